"""What metrics share: how scores rank tokens, how a faithfulness metric asks a model, and the table of their names."""

import inspect
import math
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from functools import update_wrapper
from itertools import chain
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from alti._errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

Vector = Sequence[float] | NDArray[Any] | Tensor
Question = list[int]  # token ids of one input; empty where every token was removed
Asking = Generator[
    list[Question], list[float], R
]  # yields questions, is sent a probability for each, returns a value
Predict = Callable[
    ..., Sequence[float] | Tensor
]  # (questions) or (questions, targets) -> a probability for each
_Key = tuple[tuple[int, ...], Hashable]


class Faithfulness(Generic[P, R]):
    """A metric that asks a model about shortened inputs.

    Called with `predict` it runs to its end; `ask` returns the generator, for a caller who batches many with `answer`.
    """

    def __init__(self, ask: Callable[P, Asking[R]]) -> None:
        self.ask = ask
        update_wrapper(self, ask)
        asked = inspect.signature(ask).parameters.values()
        predict = inspect.Parameter(
            "predict", inspect.Parameter.POSITIONAL_ONLY, annotation=Predict
        )
        self.__signature__ = inspect.Signature([predict, *asked])

    def __call__(self, predict: Predict, /, *args: P.args, **options: P.kwargs) -> R:
        return answer([self.ask(*args, **options)], predict)[0]


Metric = Faithfulness[..., Any]

METRICS: dict[str, Metric] = {}


def metric(function: Callable[P, Asking[R]]) -> Faithfulness[P, R]:
    """Register a faithfulness metric, a generator function (ids, keep, scores, *, options), under its name."""
    found = Faithfulness(function)
    METRICS[function.__name__] = found
    return found


def answer(
    askings: Iterable[Asking[R]], predict: Predict, targets: Sequence[Hashable] | None = None
) -> list[R]:
    """Drive many metrics together: one call of `predict` per round, with what all of them ask, each question once.

    `predict(questions)` returns the probability of the explained class for each. Where that class differs between the
    askings, give `targets`, one for each of them, and `predict(questions, targets)` is told which question is about
    which.
    """
    running = list(askings)
    if targets is not None and len(targets) != len(running):
        raise UsageError(
            f"{len(running)} metrics and {len(targets)} targets: give one target for each"
        )
    about = [None] * len(running) if targets is None else targets
    results: dict[int, R] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(running)))  # a generator starts with None
    while replies:
        asked: dict[int, list[_Key]] = {}
        for i, reply in replies.items():
            try:
                asked[i] = [(tuple(question), about[i]) for question in running[i].send(reply)]
            except StopIteration as stop:
                results[i] = stop.value
        found = _predicted(
            predict, list(dict.fromkeys(chain.from_iterable(asked.values()))), targets is not None
        )
        replies = {i: [found[key] for key in keys] for i, keys in asked.items()}
    return [results[i] for i in range(len(running))]


def _predicted(predict: Predict, keys: list[_Key], targeted: bool) -> dict[_Key, float]:
    if not keys:
        return {}
    questions = [list(ids) for ids, _ in keys]
    found = predict(questions, [target for _, target in keys]) if targeted else predict(questions)
    probabilities = found.tolist() if isinstance(found, Tensor) else [float(p) for p in found]
    if len(probabilities) != len(keys):
        raise UsageError(
            f"predict returned {len(probabilities)} values for {len(keys)} inputs: return one for each"
        )
    return dict(zip(keys, probabilities, strict=True))


def array(values: Vector) -> NDArray[np.float64]:
    """The same numbers as a float64 array of one dimension."""
    values = values.detach().double().cpu().numpy() if isinstance(values, Tensor) else values
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1:
        raise UsageError(
            f"scores of shape {list(found.shape)} are not a vector: give one number per token of one text"
        )
    return found


def ranking(scores: Vector) -> NDArray[np.intp]:
    """Positions from the highest score to the lowest, ties by position."""
    values = array(scores)
    order = np.argsort(-values, kind="stable")
    if len(order) and math.isnan(values[order[-1]]):  # nan comes last
        raise UsageError("scores with nan have no ranking: give a number for every token")
    return order


def share_of(n: int, share: float) -> int:
    """⌈n · share⌉, the product rounded first: in floating point 30 · 0.1 is more than 3."""
    if not 0 <= share <= 1:
        raise UsageError(
            f"a share of {share!r} of the tokens does not exist: give a number from 0 to 1"
        )
    return math.ceil(round(n * share, 9))

"""What metrics share: how scores rank tokens, how a metric asks a model, and the table of names."""

import inspect
import math
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from functools import update_wrapper
from itertools import chain
from typing import Any, Generic, Literal, ParamSpec, TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from alti._errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

Vector = Sequence[float] | NDArray[Any] | Tensor
Question = list[int]  # token ids of one input; empty where every token was removed
# yields questions, is sent a probability for each, returns a value
Asking = Generator[list[Question], list[float], R]
# (questions) or (questions, targets) -> a probability for each
Predict = Callable[..., Sequence[float] | Tensor]
Better = Literal["higher", "lower"]
Needs = Literal["rationale", "removal", "subsets", "evidence"]
_Key = tuple[tuple[int, ...], Hashable]  # a question and its target


class Metric:
    """A metric under its name, and what is declared about it."""

    def __init__(self, function: Callable[..., Any], *, better: Better = "higher") -> None:
        self.better = better
        self.curve = False  # whether its value is a list, one number per removed token
        self.needs: Needs | None = None  # beside scores of the tokens of one text
        wrapper: Any = self  # what calls it is in the classes below
        update_wrapper(wrapper, function)
        self.name: str = function.__name__
        self.summary = (inspect.getdoc(function) or "").partition("\n")[0]
        self.options: dict[str, Any] = {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and name != "mask_id"
        }


class Faithfulness(Metric, Generic[P, R]):
    """A metric that asks a model about shortened inputs.

    Called with `predict` it runs to its end; `ask` returns the generator, for a caller who batches
    many of them with `answer`.
    """

    def __init__(
        self,
        ask: Callable[P, Asking[R]],
        *,
        better: Better = "higher",
        curve: bool = False,
        needs: Literal["removal"] | None = None,
    ) -> None:
        super().__init__(ask, better=better)
        self.curve = curve
        self.needs = needs
        self.ask = ask
        predict = inspect.Parameter(
            "predict", inspect.Parameter.POSITIONAL_ONLY, annotation=Predict
        )
        parameters = inspect.signature(ask).parameters.values()
        self.__signature__ = inspect.Signature([predict, *parameters])

    def __call__(self, predict: Predict, /, *args: P.args, **options: P.kwargs) -> R:
        return answer([self.ask(*args, **options)], predict)[0]


class Plausibility(Metric, Generic[P, R]):
    """A metric that compares scores with a human rationale."""

    def __init__(self, compare: Callable[P, R], *, better: Better = "higher") -> None:
        super().__init__(compare, better=better)
        self.needs = "rationale"
        self.compare = compare

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        return self.compare(*args, **options)


class OfSources(Metric, Generic[P, R]):
    """A metric that compares the scores of a prompt's sources with what is known about them."""

    def __init__(
        self,
        compare: Callable[P, R],
        *,
        needs: Literal["subsets", "evidence"],
        better: Better = "higher",
    ) -> None:
        super().__init__(compare, better=better)
        self.needs = needs
        self.compare = compare

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        return self.compare(*args, **options)


METRICS: dict[str, Metric] = {}


@overload
def metric(function: Callable[P, Asking[R]], /) -> Faithfulness[P, R]: ...
@overload
def metric(
    *, better: Better = "higher", curve: bool = False
) -> Callable[[Callable[P, Asking[R]]], Faithfulness[P, R]]: ...
@overload
def metric(
    *, needs: Literal["removal"], better: Better = "higher"
) -> Callable[[Callable[P, Asking[R]]], Faithfulness[P, R]]: ...
@overload
def metric(
    *, needs: Literal["rationale"], better: Better = "higher"
) -> Callable[[Callable[P, R]], Plausibility[P, R]]: ...
@overload
def metric(
    *, needs: Literal["subsets", "evidence"], better: Better = "higher"
) -> Callable[[Callable[P, R]], OfSources[P, R]]: ...
def metric(
    function: Callable[..., Any] | None = None,
    /,
    *,
    better: Better = "higher",
    curve: bool = False,
    needs: Needs | None = None,
) -> Any:
    """Register a metric under its name.

    A faithfulness metric is a generator function (ids, keep, scores, *, options). With
    `needs="rationale"` it is a function (scores, rationale). Metrics of the sources of a prompt are
    functions (scores, kept, values) with `needs="subsets"`, (scores, known) with
    `needs="evidence"`, and generators (scores, *, options) that ask about lists of sources to
    remove with `needs="removal"`. `better` says which values are good, and `curve=True` that the
    value is a list of numbers, one for each number of removed tokens.

    >>> @metric(better="lower")
    ... def what_is_left(ids, keep, scores):
    ...     (left,) = yield [[i for i, kept in zip(ids, keep, strict=True) if kept]]
    ...     return left
    """
    if better not in ("higher", "lower"):
        raise UsageError(f"better = {better!r} does not exist: choose 'higher' or 'lower'")
    if needs not in (None, *get_args(Needs)):
        known = ", ".join(map(repr, get_args(Needs)))
        raise UsageError(f"needs = {needs!r} does not exist: choose {known} or leave it out")

    def register(function: Callable[..., Any]) -> Metric:
        new: Metric
        if needs == "rationale":
            new = Plausibility(function, better=better)
        elif needs is None or needs == "removal":
            new = Faithfulness(function, better=better, curve=curve, needs=needs)
        else:
            new = OfSources(function, better=better, needs=needs)
        METRICS[new.name] = new
        return new

    return register if function is None else register(function)


def answer(
    askings: Iterable[Asking[R]], predict: Predict, targets: Sequence[Hashable] | None = None
) -> list[R]:
    """Run many metrics together: one call of `predict` per round, with each question once.

    `predict(questions)` returns the probability of the explained class for each. Where that class
    differs between the askings, give `targets`, one for each of them: `predict(questions, targets)`
    is then called with the target of each question.
    """
    running = list(askings)
    if targets is not None and len(targets) != len(running):
        raise UsageError(
            f"{len(running)} metrics and {len(targets)} targets: give one target for each"
        )
    target_of = [None] * len(running) if targets is None else targets
    results: dict[int, R] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(running)))  # a generator starts with None
    while replies:
        keys: dict[int, list[_Key]] = {}
        for i, reply in replies.items():
            try:
                questions = running[i].send(reply)
                keys[i] = [(tuple(question), target_of[i]) for question in questions]
            except StopIteration as stop:
                results[i] = stop.value
        unique = list(dict.fromkeys(chain.from_iterable(keys.values())))
        probabilities = _predicted(predict, unique, targets is not None)
        replies = {i: [probabilities[key] for key in own] for i, own in keys.items()}
    return [results[i] for i in range(len(running))]


def _predicted(predict: Predict, keys: list[_Key], targeted: bool) -> dict[_Key, float]:
    if not keys:
        return {}
    questions = [list(ids) for ids, _ in keys]
    targets = [target for _, target in keys]
    answers = predict(questions, targets) if targeted else predict(questions)
    probabilities = answers.tolist() if isinstance(answers, Tensor) else [float(p) for p in answers]
    if len(probabilities) != len(keys):
        raise UsageError(
            f"predict returned {len(probabilities)} values for {len(keys)} inputs: "
            "return one for each"
        )
    return dict(zip(keys, probabilities, strict=True))


def array(values: Vector) -> NDArray[np.float64]:
    """The same numbers as a float64 array of one dimension."""
    values = values.detach().double().cpu().numpy() if isinstance(values, Tensor) else values
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise UsageError(
            f"scores of shape {list(vector.shape)} are not a vector: "
            "give one number per token of one text"
        )
    return vector


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

"""What a user wants explained: validated once, before any text is read."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from alti._errors import AltiWarning, UsageError
from alti.methods import Method, named, validate
from alti.model.encoded import Encoded
from alti.model.head import Head
from alti.model.lens import require_lens
from alti.model.source import By, Source
from alti.model.tokenize import Bos

Output = int | str  # a label or its index; a token of the vocabulary or its id
Outputs = Output | Sequence[Output] | None  # one for all predictions, or one for each
Positions = Sequence[int] | Literal["all"]


class SameForEveryClass(AltiWarning):
    """A target was named, and the method's scores do not speak for or against it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is explained, the same for every text."""

    method: str = "alti"
    index: tuple[int, ...] = ()  # of the outputs; one for all predictions, or one for each
    against: tuple[int, ...] = ()
    position: int | None = None
    positions: Positions | None = None  # several predictions about one text
    total: bool = False  # they are explained together, as one
    layers: bool = False
    truncate: bool = False
    bos: Bos = "auto"
    groups: By | None = None  # what is scored instead of tokens
    lens: bool = False  # what the model would have said after each layer is kept
    wanted: Any = None  # the answer or the choice that is explained; None: what the model takes
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task:
    """A text as tokens, its predictions, and the positions that they are read from."""

    encoded: Encoded
    positions: tuple[int, ...] | None  # None: one prediction, from the mean of all
    index: tuple[int, ...] = ()  # as in `Request`
    against: tuple[int, ...] = ()
    source: Source | None = None  # by groups, where these are scored
    groups: tuple[tuple[int, ...], ...] = ()  # the tokens of each
    which: tuple[int, ...] = ()  # the row of logits of each prediction, for a head with several
    labels: tuple[str, ...] = ()  # of the predictions, where the head has no names for them
    title: str = ""  # the same for all of them together

    @property
    def count(self) -> int:
        return 1 if self.positions is None else len(self.positions)


def request_of(
    head: Head,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    method: str,
    target: Outputs,
    against: Outputs,
    options: dict[str, Any],
    **rest: Any,
) -> Request:
    """Whatever can be wrong before a text is read is wrong here."""
    validate(method, options)
    if rest.get("positions") is not None and rest.get("position") is not None:
        raise UsageError("position and positions were both given: leave one of them out")
    if rest.get("lens"):
        require_lens(head, total=bool(rest.get("total")))
    if head.kind in ("span", "choice"):
        _check_other(head, against, rest)
        return Request(method, options=options, wanted=target, **rest)
    index = _indices(head, tokenizer, target, "target")
    rivals = _indices(head, tokenizer, against, "against")
    if rivals:
        _check_rivals(head, named(method), target, against)
    if index and any(own == rival for own, rival in _paired(index, rivals)):
        raise UsageError(f"target and against are both {against!r}: name two different ones")
    if index and (reason := _unfit(named(method), options)):
        warnings.warn(
            f"{reason}: to see what speaks for {target!r} use {_advised(head)}",
            SameForEveryClass,
            stacklevel=4,
        )
    return Request(method, index, rivals, options=options, **rest)


def _check_other(head: Head, against: Outputs, rest: dict[str, Any]) -> None:
    """A head whose outputs are parts of the text says itself what it reads."""
    what = "an answer" if head.kind == "span" else "a choice"
    given = {"against": against, **{name: rest.get(name) for name in ("position", "positions")}}
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                f"{name} = {value!r} was given, and this model takes {what} of the text: leave it "
                "out"
            )


def _indices(
    head: Head, tokenizer: PreTrainedTokenizerBase | None, given: Outputs, name: str
) -> tuple[int, ...]:
    """The outputs that a user names: none, one, or one for each prediction."""
    listed: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    numbers = [head.index(tokenizer, output, name) for output in listed]
    if given is None:
        return ()
    if any(number is None for number in numbers):
        raise UsageError(f"{name} holds None: name an output for every prediction, or leave it out")
    return tuple(number for number in numbers if number is not None)


def _advised(head: Head) -> str:
    """The methods to ask about one class, the first choice first (docs/benchmark.md)."""
    return "absence or linear" if head.kind == "causal" else "consensus, absence or linear"


def _check_rivals(head: Head, method: Method, target: Outputs, against: Outputs) -> None:
    if head.kind in ("sequence", "token") and head.config.num_labels == 1:
        raise UsageError(
            f"against = {against!r} was given, but this model has one output alone: leave it out"
        )
    if not method.class_specific:
        raise UsageError(
            f"{method.name} is the same for every target, also against {against!r}: use "
            f"{_advised(head)}"
        )


def _paired(index: tuple[int, ...], rivals: tuple[int, ...]) -> list[tuple[int, int]]:
    longest = max(len(index), len(rivals))
    if not rivals or (len(index) != len(rivals) and 1 not in (len(index), len(rivals))):
        return []
    return list(
        zip(index * (longest // len(index)), rivals * (longest // len(rivals)), strict=True)
    )


def _unfit(method: Method, options: dict[str, Any]) -> str:
    """Why a method's scores do not speak for or against a class; empty where they do."""
    if not method.class_specific:
        return f"{method.name} is the same for every target"
    if method.is_signed(options):
        return ""
    given = {**method.options, **options}
    shown = ", ".join(f"{name}={given[name]}" for name in ("aggregate",) if name in given)
    return f"{method.name} with {shown} says how much, not for or against what"


def contrasting_options(method: Method, options: dict[str, Any]) -> dict[str, Any]:
    """The options with which a method explains one answer against another: log p of each."""
    if not method.class_specific:
        raise UsageError(
            f"{method.name} is the same for every answer, so it cannot set one against another: "
            "use absence or linear"
        )
    if "log_prob" not in method.choices.get("of", ()):
        raise UsageError(
            f"one answer against another is a difference of log p, which {method.name} does not "
            "explain: use absence, linear or dimming"
        )
    if options.get("of", "log_prob") != "log_prob":
        raise UsageError(
            f"one answer against another is a difference of log p, and of = {options['of']!r} is "
            "another number: leave it out"
        )
    return {**options, "of": "log_prob"}

"""The answer that a question-answering model finds in a text, or that a user names."""

from typing import Any

from torch import Tensor

from alti._errors import UsageError
from alti.model.encoded import Encoded
from alti.model.request import Task

LONGEST = 30  # tokens of an answer that the model finds by itself


def task_of(encoded: Encoded, logits: Tensor, target: Any) -> Task:
    """What is explained: where the answer starts and where it ends, logits [2, T]."""
    if target is None:
        first, last = _best(encoded, logits)
    else:
        first, last = _named(encoded, target)
    answer = _text(encoded, first, last)
    return Task(
        encoded,
        (first, last),
        (first, last),
        which=(0, 1),
        labels=(f"{answer!r} starts", f"{answer!r} ends"),
        title=answer,
    )


def _best(encoded: Encoded, logits: Tensor) -> tuple[int, int]:
    """The likeliest start and end inside the context, the end not before the start."""
    inside = [i for i, segment in enumerate(encoded.segments) if segment == 1]
    starts, ends = logits.double().tolist()
    pairs = ((s, e) for s in inside for e in inside if s <= e < s + LONGEST)
    return max(pairs, key=lambda pair: starts[pair[0]] + ends[pair[1]])


def _named(encoded: Encoded, target: Any) -> tuple[int, int]:
    """The tokens of an answer that is a part of the context."""
    context = encoded.text_pair or ""
    if not isinstance(target, str) or not target.strip() or target not in context:
        raise UsageError(
            f"target = {target!r} is no part of the context: give an answer as it stands there"
        )
    start = context.index(target)
    end = start + len(target)
    spans = enumerate(zip(encoded.segments, encoded.offsets, strict=True))
    tokens = [i for i, (segment, (a, b)) in spans if segment == 1 and a < end and b > start]
    if not tokens:
        raise UsageError(f"target = {target!r} has no token in the context: name a longer part")
    return tokens[0], tokens[-1]


def _text(encoded: Encoded, first: int, last: int) -> str:
    return (encoded.text_pair or "")[encoded.offsets[first][0] : encoded.offsets[last][1]].strip()

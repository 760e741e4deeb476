"""Some tokens of an answer, explained together."""

from collections.abc import Sequence
from typing import Any

from alti._characters import plural
from alti._errors import UsageError
from alti.model.encoded import Encoded
from alti.model.request import Task

Part = Sequence[int]  # the first token of an answer that is explained, and the first that is not


def answer_task(encoded: Encoded, part: Part | None) -> Task:
    """The predictions of an answer's tokens; with `part`, of some."""
    start = encoded.answer or 0
    first, end = _inside(part, len(encoded.ids) - start)
    places = tuple(range(start - 1 + first, start - 1 + end))
    ids = tuple(encoded.ids[start + first : start + end])
    title = "" if part is None else _text(encoded, start + first, start + end)
    return Task(encoded, places, ids, title=title)


def _inside(part: Any, count: int) -> tuple[int, int]:
    if part is None:
        return 0, count
    pair = isinstance(part, list | tuple) and len(part) == 2
    if not pair or not all(type(border) is int for border in part):
        raise UsageError(f"part = {part!r} is no part of an answer: give (first, end)")
    first, end = part
    if not 0 <= first < end <= count:
        raise UsageError(
            f"part = {part!r} is not in the answer, which has {count} "
            f"{plural('token', count)}: give 0 <= first < end <= {count}"
        )
    return first, end


def _text(encoded: Encoded, first: int, end: int) -> str:
    """What some tokens of an answer say; those of one character may say nothing by themselves."""
    spans = encoded.offsets[first:end]
    text = (encoded.text_pair or "")[spans[0][0] : max(last for _, last in spans)]
    return text or "".join(encoded.tokens[first:end])

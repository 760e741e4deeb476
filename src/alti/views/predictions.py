"""The lines that a terminal shows of several predictions, and of an answer token by token."""

import re
from collections.abc import Iterator, Sequence

from alti._characters import plain, plural
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.views.colours import Scale
from alti.views.lines import body, headline, prediction
from alti.views.said import (
    Ranked,
    by_words,
    method_of,
    probability_of,
    scale_name,
    side_of,
    strongest,
    token_of,
    unit_of,
    unnamed,
    whole_answer,
)
from alti.views.screen import BOLD, DIM, Style, cells, clipped, clipped_name, padded

MOST = 3  # words in the line of a prediction
TOKEN = 16  # the most columns for a token of an answer
NARROWEST, WIDEST = 9, 20  # columns for the name of what a token rests on
GAP = 2


def several(attributions: Attributions, style: Style, words: bool) -> Iterator[str]:
    """A headline, then a line for each prediction with the words that it rests on most."""
    first = attributions[0]
    about = (
        f"{len(attributions)} {plural('prediction', len(attributions))}",
        method_of(first),
        unit_of(first),
        first.model,
    )
    yield " · ".join(plain(part) for part in about if part)
    places = [_place(attribution) for attribution in attributions]
    labels = [prediction(attribution, style) for attribution in attributions]
    widths = [max(map(cells, column)) for column in (places, [_bare(label) for label in labels])]
    view = by_words(attributions, words)
    for attribution, place, label in zip(view, places, labels, strict=True):
        ranked = strongest(attribution, MOST)
        best = "  ".join(f"{plain(each.name)} {each.score:.3f}" for each in ranked)
        gaps = (" " * (widths[0] - cells(place)), " " * (widths[1] - cells(_bare(label))))
        yield f"  {place}{gaps[0]}  {label}{gaps[1]}  {style.set(best, DIM)}".rstrip()
    if scale := unnamed(scale_name(first), side_of(first)):
        yield style.set(f"  scores: {scale}", DIM)


def _place(attribution: Attribution) -> str:
    """The position that a prediction is read from, and its token."""
    if attribution.position is None:
        return ""
    return plain(f"{attribution.position} {attribution.tokens[attribution.position]} →")


def _bare(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def answer(attributions: Attributions, style: Style, *, words: bool, bars: bool) -> Iterator[str]:
    """What the whole answer rests on in the prompt, then a line for each of its tokens."""
    whole = whole_answer(attributions)
    yield headline(whole, style)
    yield from body(whole, style, words=words, bars=bars)
    yield ""
    view = list(by_words(attributions, words))
    tokens = [clipped(plain(token_of(each)), TOKEN) for each in view]
    chances = [probability_of(each.probability or 0.0) for each in view]
    first = max(cells("token"), *map(cells, tokens))
    second = max(map(len, chances))
    ranked = [strongest(each, MOST) for each in view]
    found = _columns(ranked, style.width - first - second - 3 * GAP)
    head = f"{padded('token', first)}  {'p':<{second}}  rests most on"
    own = any(each.answer for row in ranked for each in row)
    yield f"  {style.set(head + (' (…: the answer so far)' if own else ''), DIM)}"
    for token, chance, names in zip(tokens, chances, found, strict=True):
        gap = " " * (first - cells(token))
        yield f"  {style.set(token, BOLD)}{gap}  {chance:>{second}}  {names}".rstrip()


def _columns(rows: Sequence[list[Ranked]], room: int) -> list[str]:
    """What each token rests on in columns; as many as there is room for."""
    scale = Scale.of(each.score for row in rows for each in row)
    number = len(scale.number(scale.largest))
    count, width = _fitting(room, number)
    cut = [
        [
            clipped_name(("…" if each.answer else "") + plain(each.name), width)
            for each in row[:count]
        ]
        for row in rows
    ]
    widths = [
        max((cells(names[i]) for names in cut if i < len(names)), default=0) for i in range(count)
    ]
    return [
        "  ".join(
            f"{padded(name, widths[i])} {scale.number(row[i].score):>{number}}"
            for i, name in enumerate(names)
        )
        for names, row in zip(cut, rows, strict=True)
    ]


def _fitting(room: int, number: int) -> tuple[int, int]:
    """How many columns fit, and how wide a name in one may be."""
    for count in range(MOST, 0, -1):
        width = (room + GAP) // count - number - 1 - GAP
        if width >= NARROWEST or count == 1:
            return count, max(1, min(WIDEST, width))
    raise AssertionError(room)

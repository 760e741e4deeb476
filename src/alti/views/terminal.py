"""Results for a terminal: the user's text on coloured backgrounds, bars, or lists."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from alti._characters import plain
from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.source import Source
from alti.views import lens
from alti.views.colours import Scale
from alti.views.lines import below, body, headline, scale_legend
from alti.views.predictions import answer, several
from alti.views.said import (
    as_shown,
    by_words,
    is_text,
    method_of,
    name_of,
    outside,
    scale_name,
    shortened,
)
from alti.views.screen import (
    ALL,
    BOLD,
    DIM,
    NONE,
    RESET,
    SOME,
    Style,
    cells,
    colours_of,
    padded,
    paragraphs,
)
from alti.views.segments import passages, scale_of

__all__ = [
    "ALL", "BOLD", "DIM", "NONE", "RESET", "SOME", "Style", "cells", "colours_of", "compare",
    "render",
]  # fmt: skip

MARGIN = 28  # the most columns for a method's name
GROUP = 36  # characters of a group in a table


def render(
    attribution: Attribution | Attributions,
    *,
    words: bool = True,
    bars: bool = False,
    style: Style | None = None,
) -> str:
    """The prediction and the text on coloured backgrounds; bars on request or without colours.

    Of an answer, what the whole of it rests on in the prompt, then a line for each token. Of other
    predictions, one line each: where it is read, what it is, what it rests on most.
    """
    style = style or Style.here()
    if isinstance(attribution, Attributions):
        said = lens.terminal_of_several(list(attribution), style)
        if attribution.source.answer is None:
            return "\n".join([*several(attribution, style, words), *said])
        return "\n".join([*answer(attribution, style, words=words, bars=bars), *said])
    shown = as_shown(attribution)
    lines = [headline(shown, style), *body(shown, style, words=words, bars=bars)]
    return "\n".join([*lines, *lens.terminal(attribution, style)])


def compare(
    attributions: Sequence[Attribution],
    *,
    words: bool = True,
    bars: bool = False,
    style: Style | None = None,
) -> str:
    """Several attributions of one text, a paragraph each with its method in the margin.

    Without colours, or of groups, a table.

    >>> found = [model.explain(text, method=name) for name in ("alti", "absence")]
    >>> print(alti.terminal.compare(found))
    """
    if not attributions:
        raise UsageError("there is nothing to compare: give at least one attribution")
    style = style or Style.here()
    attributions = [as_shown(attribution) for attribution in attributions]
    if bars or not style.colours or not all(is_text(each.source) for each in attributions):
        return _table(attributions, style, words)
    names = [plain(method_of(attribution)) for attribution in attributions]
    margin = min(MARGIN, max(map(cells, names)))
    if style.width < 2 * margin + 20:  # too narrow: names go on their own lines
        margin = 0
    lines = [headline(attributions[0], style, method=False)]
    for attribution, name in zip(attributions, names, strict=True):
        shown = passages(attribution, words=words)
        scale = scale_of(attribution, shown)
        inner = replace(style, width=style.width - margin - 4)
        text = paragraphs(shown, scale, style, inner.width)
        text.append(scale_legend(attribution, scale, inner))
        text += below(attribution, scale, inner, words)
        lines += ["", *_beside(name, text, margin, style)]
    return "\n".join(lines)


def _beside(name: str, text: list[str], margin: int, style: Style) -> Iterator[str]:
    """A paragraph with a name in its margin, or above it if there is no margin."""
    if not margin:
        yield f"  {style.set(name, BOLD)}"
        yield from (f"  {line}" for line in text)
        return
    names = [name[start : start + margin] for start in range(0, len(name), margin)]
    for left, line in zip_longest(names, text, fillvalue=""):
        padding = " " * (margin - cells(left))
        yield f"  {style.set(left, BOLD)}{padding}  {line}".rstrip()


def _table(attributions: Sequence[Attribution], style: Style, words: bool) -> str:
    """A row for each word, a column for each method, and last rows for what is in no word.

    The numbers are those of the methods themselves; below each name is what they are of.
    """
    views = [by_words(attribution, words) for attribution in attributions]
    if len({(view.tokens, view.offsets) for view in views}) > 1:
        raise UsageError(
            "attributions of different texts have no common rows: "
            "compare those of one text and model"
        )
    source = views[0].source
    names = [plain(_row_name(source, i)) for i in range(len(source))]
    rests = _rests(attributions, views, words)
    names += rests
    first = max(map(cells, names), default=0)
    heads = [" " * first, "scores" if any(map(_unit, attributions)) else ""]
    heads[1] = padded(heads[1], first)
    rows = [padded(name, first) for name in names]
    for number, (attribution, view) in enumerate(zip(attributions, views, strict=True)):
        column = _column(view, [scores[number] for scores in rests.values()])
        above = (plain(method_of(attribution)), _unit(attribution))
        width = max([*map(cells, above), *(len(score) for score, _ in column)])
        for i, (text, how) in enumerate(zip(above, (BOLD, DIM), strict=True)):
            heads[i] += f"  {' ' * (width - cells(text))}{style.set(text, how)}"
        for i, (score, level) in enumerate(column):
            rows[i] += "  " + " " * (width - len(score)) + style.painted(score, level)
    lines = [headline(attributions[0], style, method=False), *filter(str.strip, heads), *rows]
    return "\n".join(lines)


def _unit(attribution: Attribution) -> str:
    """What a column is of, in few words: its headline has the class."""
    return plain(re.split(" of | on ", scale_name(attribution))[0])


def _row_name(source: Source, i: int) -> str:
    """The name of a token, a word or a group; a group's beginning too."""
    name = name_of(source, i)
    return name if is_text(source) else f"{name}: {shortened(source.tokens[i], GROUP)}"


def _rests(
    attributions: Sequence[Attribution], views: Sequence[Attribution], words: bool
) -> dict[str, list[float]]:
    """What `render` says below a text, with the score that each method gives it."""
    left = [
        outside(attribution, Scale.of(view.scores.tolist()), words=words)
        for attribution, view in zip(attributions, views, strict=True)
    ]
    return {name: [each.get(name, 0.0) for each in left] for name in chain(*left)}


def _column(view: Attribution, rests: list[float]) -> list[tuple[str, int]]:
    """The numbers of one method in a table, each with the level of its colour."""
    scores = view.scores.tolist()
    scale = Scale.of(scores)
    levels = [(score, scale.level(score)) for score in scores] + [(rest, 0) for rest in rests]
    return [(scale.number(score), level) for score, level in levels]

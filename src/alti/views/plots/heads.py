"""Plots of the heads of one layer, and of what a model would have said after each layer."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.head_maps import HeadMaps
from alti.model.lens import Lens
from alti.views.lens import TITLE, shown_token
from alti.views.plots.look import (
    FAINT,
    INK,
    LONGEST_NAME,
    WATER,
    Picture,
    array,
    axes,
    bare,
    fit,
    inches,
    literal,
    name,
    typeface,
)
from alti.views.plots.look import title as titled
from alti.views.said import name_of

ACROSS = 4  # maps beside each other
SIDE = 1.9  # inches of a map
DARK = 0.55  # of the scale: white letters above
COLUMNS = 24  # predictions beside each other
LETTER = 0.08  # inches
TITLED = 4.4  # inches that the title needs


def heads(maps: HeadMaps, *, attention: bool = False) -> Figure:
    """A map of every head on one scale: a row shows what a token takes, and from where."""
    values = array(maps.attention if attention else maps.contributions)
    across = min(ACROSS, len(values))
    down = math.ceil(len(values) / across)
    rows = [name_of(maps.source, i) for i in maps.rows]
    columns = [name_of(maps.source, i) for i in maps.columns]
    beside, below = min(1.2, inches(rows)), min(1.2, inches(columns))
    figure = Picture(across * SIDE + beside + 0.5, down * (SIDE + 0.25) + below + 0.6)
    grid = figure.subplots(down, across, squeeze=False)
    largest = float(values.max()) or 1.0
    for number, ax in enumerate(grid.flat):
        if number >= len(values):
            ax.set_visible(False)
            continue
        ax.imshow(values[number], cmap=WATER, norm=PowerNorm(0.5, 0, largest), aspect="auto")
        bare(ax)
        ax.spines[:].set(visible=True, linewidth=0.6, color=FAINT)  # a map may be all white
        ax.set_title(_heading(maps, number), loc="left", fontsize=8, color=INK)
        at_bottom = number + across >= len(values)
        _tokens(ax, rows if number % across == 0 else [], columns if at_bottom else [])
    what = "attention" if attention else "contributions"
    about = f"layer {maps.layer + 1}: {what} of {len(values)} heads, white 0 to blue {largest:.3f}"
    about = " · ".join(filter(None, (about, literal(maps.model, LONGEST_NAME))))
    figure.suptitle(about, fontsize=10.5, color=INK, x=0.01, ha="left")
    return figure


def _heading(maps: HeadMaps, number: int) -> str:
    return f"head {number + 1} · {float(maps.strengths[number]):.3f}"


def _tokens(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Names of tokens where there is room for them; else none."""
    space = 72 * SIDE
    for axis, names, upright in ((ax.yaxis, rows, False), (ax.xaxis, columns, True)):
        if names and fit(names, space):
            name(axis, names, space, upright=upright, longest=16)
        else:
            axis.set_ticks([])


def lens(result: Attribution | Attributions, *, ax: Axes | None = None) -> Axes:
    """Layers from the first (top) to the last: what would have been said, darker if likelier.

    Of several predictions the likeliest token of each; of one, its likeliest tokens.
    """
    lenses = [one.lens for one in (result if isinstance(result, Attributions) else [result])]
    found = [each for each in lenses if each is not None][:COLUMNS]
    if not found:
        raise UsageError("this result has no lens: explain a language model with lens=True")
    cells = _of_one(found[0]) if len(found) == 1 else _of_several(found)
    names = [f"{number + 1}" for number in range(len(cells))]
    width = sum(_widths(cells))
    ax, (_, down) = axes(ax, max(width, TITLED), 0.24 * len(cells), beside=0.5, below=0.2)
    _grid(ax, cells)
    name(ax.yaxis, names, down)
    ax.set_ylabel("after layer", fontsize=8.5, color=INK)
    ax.set_xticks([])
    model = literal(result.model, LONGEST_NAME)
    titled(ax, literal(TITLE, 80), " · ".join(filter(None, (model, _about(found)))))
    return ax


Cells = list[list[tuple[str, float]]]  # layer by layer: token, probability


def _of_one(lens: Lens) -> Cells:
    pairs = zip(lens.tokens, lens.probabilities, strict=True)
    return [list(zip(tokens, chances, strict=True)) for tokens, chances in pairs]


def _of_several(found: Sequence[Lens]) -> Cells:
    layers = range(len(found[0]))
    return [[(each.tokens[i][0], each.probabilities[i][0]) for each in found] for i in layers]


def _widths(cells: Cells) -> list[float]:
    """Inches of each column: as wide as its longest token."""
    columns = zip(*cells, strict=True)
    longest = [max(len(literal(shown_token(token), 16)) for token, _ in row) for row in columns]
    return [max(0.45, LETTER * letters + 0.12) for letters in longest]


def _grid(ax: Axes, cells: Cells) -> None:
    """A cell for each token, as wide as its column, on the colour of its probability."""
    widths = _widths(cells)
    ends = [sum(widths[: number + 1]) for number in range(len(widths))]
    for row, line in enumerate(cells):
        for (token, chance), end, width in zip(line, ends, widths, strict=True):
            ax.barh(row, 0.97 * width, height=0.94, left=end - width, color=WATER(chance))
            ink = "white" if chance > DARK else INK
            text = literal(shown_token(token), 16)
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5, "color": ink}
            ax.text(end - width / 2, row, text, **look, **typeface())
    bare(ax)
    ax.set(xlim=(0, ends[-1]), ylim=(len(cells) - 0.4, -0.6))


def _about(found: Sequence[Lens]) -> str:
    what = "the likeliest tokens" if len(found) == 1 else f"{len(found)} predictions"
    return f"{what}; white is p = 0, blue 1"

"""Plots of alignments: lines between two texts, and the matrix target × source."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from alti.model.alignment import Alignment
from alti.views.alignments import shares
from alti.views.plots.look import (
    BLUE,
    INK,
    LONGEST_NAME,
    MUTED,
    WATER,
    array,
    axes,
    bare,
    colour_bar,
    inches,
    literal,
    name,
    title,
    typeface,
)

LETTER = 0.085  # inches that a letter takes
TITLED = 3.2  # inches that the title needs
SPACE = 0.22  # between words
BEST = "the target word's best link"


def alignment_lines(alignment: Alignment, *, ax: Axes | None = None) -> Axes:
    """The source above the target, a line for each link, stronger where its score is."""
    places = [_places(words) for words in alignment.names]
    lasts = [words[-1] for words in alignment.names]
    width = max(
        ends[-1] + LETTER * (len(literal(last)) / 2 + 1)
        for ends, last in zip(places, lasts, strict=True)
    )
    ax, _ = axes(ax, width, 1.1)
    strengths = shares(alignment)
    for i, j in alignment.links:
        share = strengths[j][i]
        ends = places[0][i], places[1][j]
        ax.plot(ends, (0.85, 0.15), **_look(share))
    source, target = alignment.names
    rows = (source, places[0], 0.9), (target, places[1], 0.1)
    for words, own, y in rows:
        for word, x in zip(words, own, strict=True):
            side = "bottom" if y > 0.5 else "top"
            ax.text(x, y, literal(word), ha="center", va=side, fontsize=9, color=INK, **typeface())
    ax.set(xlim=(-0.1, width), ylim=(-0.15, 1.15), xticks=[], yticks=[])
    bare(ax)
    title(ax, "word alignment", literal(alignment.by, LONGEST_NAME))
    _name_strengths(ax)
    return ax


def _look(share: float) -> dict[str, Any]:
    return {"color": BLUE, "alpha": 0.25 + 0.75 * share, "linewidth": 1.6}


def _name_strengths(ax: Axes) -> None:
    """Below the words, how strong a line is for which score."""
    steps = (0.25, 0.5, 1.0)
    lines = [Line2D([], [], **_look(step)) for step in steps]
    names = [f"{step:g}" for step in steps[:-1]] + [f"1: {BEST}"]
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": MUTED, "ncols": 3}
    ax.legend(lines, names, loc="upper left", bbox_to_anchor=(0, 0), borderpad=0, **look)


def _places(words: tuple[str, ...]) -> list[float]:
    """The middle of each word on a line, in inches."""
    at, middles = 0.0, []
    for word in words:
        wide = LETTER * len(literal(word))
        middles.append(at + wide / 2)
        at += wide + SPACE
    return middles


def alignment_matrix(alignment: Alignment, *, ax: Axes | None = None) -> Axes:
    """Target words (rows) × source words; rows relative to their best, links framed."""
    values = array(shares(alignment))
    rows, columns = values.shape
    source, target = alignment.names
    beside, below = inches(target), inches(source)
    ax, size = axes(
        ax, max(TITLED, 0.26 * columns), max(1.0, 0.26 * rows), beside=beside, below=below
    )
    look: Any = {"cmap": WATER, "vmin": 0, "vmax": 1, "aspect": "auto"}
    image = ax.imshow(values, interpolation="nearest", **look)
    for i, j in alignment.links:
        corner = i - 0.46, j - 0.46
        ax.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=INK, linewidth=0.9))
    bare(ax)
    name(ax.yaxis, target, size[1])
    name(ax.xaxis, source, size[0], upright=True)
    colour_bar(image, ax, size, "share of the row's best")
    by = (literal(alignment.by, LONGEST_NAME), "rows relative to their best, links framed")
    title(ax, "word alignment", " · ".join(filter(None, by)))
    return ax

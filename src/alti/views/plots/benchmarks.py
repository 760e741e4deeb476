"""Plots of benchmarks from plain numbers: curves, boxes, lines and dots."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from alti._errors import UsageError
from alti.views.plots.look import (
    BLUE,
    HUES,
    INK,
    LONGEST_NAME,
    MUTED,
    Array,
    array,
    axes,
    frame,
    inches,
    legend,
    name,
)
from alti.views.tables import Cell, Table

DASHES = ("-", "--", ":", "-.")
MARKS = ("", "o", "s")
KINDS: dict[str, tuple[Literal["-", "--"], str]] = {
    "outputs": ("-", "block outputs"),
    "transformed": ("--", "transformed vectors"),
}
BY_SIZE = " |·|"  # suffix of a method whose tokens are ranked by the size of their scores


class _Curve(NamedTuple):
    mean: Array
    low: Array | None = None
    high: Array | None = None
    texts: Array | None = None


def curves(
    curves: Mapping[str, Any], *, texts: Sequence[int] | None = None, ax: Axes | None = None
) -> Axes:
    """The probability as the highest-ranked tokens are removed, a line for each method.

    A method has its means, or (means, lows, highs) for a band, or its entry in `alti.bench.curves`.
    `texts` is the number of texts left at each step.
    """
    lines = _distinct(
        {key.replace(" probability_drop", ""): _curve(key, given) for key, given in curves.items()}
    )
    height = min(max(3.4, 0.17 * len(lines)), 16.0)
    ax, _ = axes(ax, 5.0, height, beside=1.2 + inches(lines, LONGEST_NAME), below=0.5)
    bases = list(dict.fromkeys(key.removesuffix(BY_SIZE) for key in lines))
    handles = {
        key: _draw_curve(ax, line, bases.index(key.removesuffix(BY_SIZE)), key.endswith(BY_SIZE))
        for key, line in lines.items()
    }
    frame(ax, "tokens removed", "mean probability")
    _steps(ax, lines, texts)
    order = sorted(lines, key=lambda key: -float(np.mean(lines[key].mean)))
    legend(ax, [handles[key] for key in order], order)
    return ax


def _draw_curve(ax: Axes, line: _Curve, index: int, by_size: bool) -> Line2D:
    """Draw a line with its band; `index` chooses the colour, and the dash once colours run out."""
    turn, hue = divmod(index, len(HUES))
    dash = DASHES[(2 * turn + by_size) % 4]
    mark = MARKS[turn // 2 % 3]
    steps = np.arange(len(line.mean))
    look: dict[str, Any] = {"linewidth": 1.5, "markersize": 3.5}
    look["markevery"] = max(1, len(line.mean) // 10)
    [handle] = ax.plot(steps, line.mean, mark + dash, color=HUES[hue], **look)
    if line.low is not None and line.high is not None:
        ax.fill_between(steps, line.low, line.high, color=HUES[hue], alpha=0.15, linewidth=0)
    return handle


def _curve(key: str, given: Any) -> _Curve:
    if isinstance(given, Mapping):
        if "mean" not in given:
            raise UsageError(
                f"curve {key!r} has {', '.join(map(repr, given))} and no 'mean': give its means"
            )
        names = ("mean", "low", "high", "texts")
        return _Curve(**{name: array(given[name]) for name in names if given.get(name) is not None})
    if len(given) == 3 and np.ndim(given[0]) == 1:
        return _Curve(*map(array, given))
    return _Curve(array(given))


def _distinct(lines: dict[str, _Curve]) -> dict[str, _Curve]:
    """The curves with values, without duplicates: unsigned scores rank the same by size."""
    distinct: dict[str, _Curve] = {}
    for key, line in lines.items():
        base = distinct.get(key.removesuffix(BY_SIZE))
        if line.mean.size and (base is None or not np.array_equal(base.mean, line.mean)):
            distinct[key] = line
    return distinct


def _steps(ax: Axes, lines: dict[str, _Curve], texts: Sequence[int] | None) -> None:
    """Put ticks at whole numbers of tokens, and above them the number of texts left."""
    last = max([len(line.mean) - 1 for line in lines.values()] + [1])
    ax.set_xlim(0, last)
    whole = MaxNLocator(7, integer=True).tick_values(0, last)
    ax.set_xticks([tick for tick in whole if tick <= last])
    given = [line.texts for line in lines.values() if line.texts is not None]
    left = array(texts) if texts is not None else max(given, key=len, default=array([]))
    ticks = [int(tick) for tick in ax.get_xticks() if tick < len(left)]
    if not ticks:
        return
    top = ax.secondary_xaxis("top")
    top.set_xticks(ticks, [f"{left[tick]:.0f}" for tick in ticks], fontsize=7.5, color=MUTED)
    top.tick_params(length=0, pad=1)
    top.spines["top"].set_visible(False)
    top.set_xlabel("texts left", fontsize=7.5, color=MUTED)


def agreement(
    values: Mapping[str, Any], *, ax: Axes | None = None, xlabel: str = "agreement of two models"
) -> Axes:
    """How similarly models are explained: a box per method over all pairs of models.

    The highest median is on top.
    """
    finite = {}
    for key in values:
        numbers = array(values[key])
        finite[key] = numbers[~np.isnan(numbers)]
    keys = [key for key in finite if finite[key].size]
    keys.sort(key=lambda key: float(np.median(finite[key])))
    ax, down = _row_axes(ax, keys, 0.32)
    line = {"color": BLUE, "linewidth": 0.9}
    dot = {"marker": ".", "markersize": 4, "markeredgecolor": "none", "markerfacecolor": BLUE}
    ax.boxplot(
        [finite[key] for key in keys], positions=range(len(keys)), orientation="horizontal",
        widths=0.55, patch_artist=True, manage_ticks=False, whiskerprops=line,
        capprops={"linewidth": 0},
        boxprops={"facecolor": to_rgba(BLUE, 0.25), "edgecolor": BLUE, "linewidth": 0.9},
        medianprops={"color": INK, "linewidth": 1.6}, flierprops=dot,
    )  # fmt: skip
    _rows(ax, keys, down, xlabel)
    return ax


def anisotropy(layers: Mapping[str, Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """The mean cosine of two vectors in each layer, of block outputs and of transformed vectors.

    `{model: {"outputs": [...], "transformed": [...]}}`, with a number per layer. Lines of block
    outputs are solid, those of transformed vectors dashed.
    """
    beside = 1.2 + inches([*layers, "transformed vectors"], LONGEST_NAME)
    ax, _ = axes(ax, 4.6, 3.2, beside=beside, below=0.3)
    deepest = 1
    for i, (model, given) in enumerate(layers.items()):
        for kind, values in given.items():
            if kind not in KINDS:
                known = " and ".join(map(repr, KINDS))
                raise UsageError(f"{kind!r} of {model} is not drawn: give {known}")
            deepest = max(deepest, len(values))
            _draw_layers(ax, array(values), KINDS[kind][0], i)
    frame(ax, "layer", "mean cosine of two vectors")
    ax.set_xticks(range(1, deepest + 1, -(-deepest // 16)))
    hues = [Line2D([], [], color=_hue(i), linewidth=1.5) for i in range(len(layers))]
    dashes = [
        Line2D([], [], color=MUTED, linestyle=dash, linewidth=1.5) for dash, _ in KINDS.values()
    ]
    legend(ax, [*hues, *dashes], [*layers, *(text for _, text in KINDS.values())])
    return ax


def _draw_layers(ax: Axes, values: Array, dash: str, index: int) -> None:
    numbers = np.arange(1, len(values) + 1)
    ax.plot(numbers, values, f".{dash}", color=_hue(index), linewidth=1.5, markersize=5)


def _hue(index: int) -> str:
    return HUES[index % len(HUES)]


def methods(
    table: Table | Iterable[tuple[str, Cell]], *, column: str | None = None, ax: Axes | None = None
) -> Axes:
    """One column of a table as sorted dots with their intervals.

    The best one is blue and its interval is shaded. A list of (name, Cell) is a column with
    `column` as its heading. A heading with ↓ means that lower is better.
    """
    heading, cells = _column(table, column)
    cells.sort(key=lambda row: row[1].value, reverse="↓" in heading)  # from bottom to top
    keys = [key for key, _ in cells]
    ax, down = _row_axes(ax, keys, 0.24)
    best = next((row for row, (_, cell) in enumerate(cells) if cell.best), len(cells) - 1)
    for row, (_, cell) in enumerate(cells):
        colour = BLUE if row == best else MUTED
        if cell.interval:
            ax.plot(cell.interval, (row, row), color=colour, linewidth=1.4, solid_capstyle="butt")
        ax.plot(cell.value, row, "o", color=colour, markersize=5)
    _rows(ax, keys, down, heading)
    for row, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True):
        if row == best:
            label.set(color=BLUE, fontweight="bold")
    if cells and (interval := cells[best][1].interval):
        ax.axvspan(*interval, color=BLUE, alpha=0.08, linewidth=0, zorder=0)
    return ax


def _column(
    table: Table | Iterable[tuple[str, Cell]], column: str | None
) -> tuple[str, list[tuple[str, Cell]]]:
    """The heading and the non-empty cells of a column; by default the first one with numbers."""
    if not isinstance(table, Table):
        return column or "", [(key, cell) for key, cell in table if not np.isnan(cell.value)]
    numeric: dict[str, list[tuple[str, Cell]]] = {}
    for key, cells in table.rows:
        for heading, cell in zip(table.columns[1:], cells, strict=True):
            if isinstance(cell, Cell) and not np.isnan(cell.value):
                numeric.setdefault(heading, []).append((key, cell))
    known = [heading for heading in table.columns[1:] if heading in numeric]
    for heading in known:
        if column is None or column in (heading, heading.rstrip(" ↑↓")):
            return heading, numeric[heading]
    others = ", ".join(map(repr, known)) or "another table"
    raise UsageError(f"column {column!r} has no numbers: choose from {others}")


def _row_axes(ax: Axes | None, keys: Sequence[str], row: float) -> tuple[Axes, float]:
    """Axes with a named row for each key, `row` inches high, and their height in points."""
    height = min(row * max(len(keys), 2), 16.0)
    ax, (_, down) = axes(ax, 4.6, height, beside=inches(keys, LONGEST_NAME), below=0.3)
    return ax, down


def _rows(ax: Axes, keys: Sequence[str], down: float, xlabel: str) -> None:
    """Name the rows on the left, with a grid for the values only."""
    frame(ax, xlabel)
    ax.grid(visible=False, axis="y")
    ax.spines["left"].set_visible(False)
    ax.set_ylim(-0.6, max(len(keys), 1) - 0.4)
    name(ax.yaxis, keys, down, longest=LONGEST_NAME)

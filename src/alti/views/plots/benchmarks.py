"""Views of benchmarks: curves, boxes, lines and dots, from plain numbers."""

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

DASHES, MARKS = ("-", "--", ":", "-."), ("", "o", "s")
KINDS: dict[str, tuple[Literal["-", "--"], str]] = {
    "outputs": ("-", "block outputs"),
    "transformed": ("--", "transformed vectors"),
}
BY_SIZE = " |·|"  # behind a method's name in a benchmark: tokens ranked by the size of their scores


class _Curve(NamedTuple):
    mean: Array
    low: Array | None = None
    high: Array | None = None
    texts: Array | None = None


def curves(
    curves: Mapping[str, Any], *, texts: Sequence[int] | None = None, ax: Axes | None = None
) -> Axes:
    """The probability as the highest tokens are removed, a line for each method.

    A method has its means, or (means, lows, highs) for a band, or what `alti.bench.curves` says of it. `texts` says how
    many texts are left at each step.
    """
    lines = _distinct(
        {key.replace(" probability_drop", ""): _curve(key, given) for key, given in curves.items()}
    )
    ax, _ = axes(
        ax,
        5.0,
        min(max(3.4, 0.17 * len(lines)), 16.0),
        beside=1.2 + inches(lines, LONGEST_NAME),
        below=0.5,
    )
    bases = list(dict.fromkeys(key.removesuffix(BY_SIZE) for key in lines))
    handles = {}
    for key, line in lines.items():
        turn, index = divmod(bases.index(key.removesuffix(BY_SIZE)), len(HUES))
        dash, mark = DASHES[(2 * turn + key.endswith(BY_SIZE)) % 4], MARKS[turn // 2 % 3]
        steps, every = np.arange(len(line.mean)), max(1, len(line.mean) // 10)
        look: dict[str, Any] = {
            "color": HUES[index],
            "linewidth": 1.5,
            "markersize": 3.5,
            "markevery": every,
        }
        [handles[key]] = ax.plot(steps, line.mean, mark + dash, **look)
        if line.low is not None and line.high is not None:
            ax.fill_between(steps, line.low, line.high, color=HUES[index], alpha=0.15, linewidth=0)
    frame(ax, "tokens removed", "mean probability")
    _steps(ax, lines, texts)
    order = sorted(lines, key=lambda key: -float(np.mean(lines[key].mean)))
    legend(ax, [handles[key] for key in order], order)
    return ax


def _curve(key: str, given: Any) -> _Curve:
    if isinstance(given, Mapping):
        if "mean" not in given:
            raise UsageError(
                f"curve {key!r} has {', '.join(map(repr, given))} and no 'mean': give its means"
            )
        low, high, texts = (
            None if given.get(k) is None else array(given[k]) for k in ("low", "high", "texts")
        )
        return _Curve(array(given["mean"]), low, high, texts)
    if len(given) == 3 and np.ndim(given[0]) == 1:
        return _Curve(*map(array, given))
    return _Curve(array(given))


def _distinct(lines: dict[str, _Curve]) -> dict[str, _Curve]:
    """Those that have a value, without second copies: scores that are never negative rank alike both ways."""
    found: dict[str, _Curve] = {}
    for key, line in lines.items():
        base = found.get(key.removesuffix(BY_SIZE))
        if line.mean.size and (base is None or not np.array_equal(base.mean, line.mean)):
            found[key] = line
    return found


def _steps(ax: Axes, lines: dict[str, _Curve], texts: Sequence[int] | None) -> None:
    """Ticks at whole numbers of tokens, and over them how many texts are left."""
    last = max([len(line.mean) - 1 for line in lines.values()] + [1])
    ax.set_xlim(0, last)
    ax.set_xticks(
        [tick for tick in MaxNLocator(7, integer=True).tick_values(0, last) if tick <= last]
    )
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
    """How alike models are explained: a box over the pairs of models for each method, the highest median on top."""
    found = {
        key: numbers[~np.isnan(numbers)]
        for key, numbers in ((key, array(values[key])) for key in values)
    }
    keys = sorted(
        (key for key in found if found[key].size), key=lambda key: float(np.median(found[key]))
    )
    ax, (_, down) = axes(
        ax, 4.6, min(0.32 * max(len(keys), 2), 16.0), beside=inches(keys, LONGEST_NAME), below=0.3
    )
    line = {"color": BLUE, "linewidth": 0.9}
    dot = {"marker": ".", "markersize": 4, "markeredgecolor": "none", "markerfacecolor": BLUE}
    ax.boxplot(
        [found[key] for key in keys], positions=range(len(keys)), orientation="horizontal", widths=0.55,
        patch_artist=True, manage_ticks=False, whiskerprops=line, capprops={"linewidth": 0},
        boxprops={"facecolor": to_rgba(BLUE, 0.25), "edgecolor": BLUE, "linewidth": 0.9},
        medianprops={"color": INK, "linewidth": 1.6}, flierprops=dot,
    )  # fmt: skip
    _rows(ax, keys, down, xlabel)
    return ax


def anisotropy(layers: Mapping[str, Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """The mean cosine of two vectors in each layer: solid for block outputs, dashed for transformed vectors.

    `{model: {"outputs": [...], "transformed": [...]}}`, a number per layer.
    """
    ax, _ = axes(
        ax, 4.6, 3.2, beside=1.2 + inches([*layers, "transformed vectors"], LONGEST_NAME), below=0.3
    )
    for i, (model, given) in enumerate(layers.items()):
        for kind, values in given.items():
            if kind not in KINDS:
                raise UsageError(
                    f"{kind!r} of {model} is not drawn: give {' and '.join(map(repr, KINDS))}"
                )
            line, look = array(values), "." + KINDS[kind][0]
            ax.plot(
                np.arange(1, len(line) + 1),
                line,
                look,
                color=HUES[i % len(HUES)],
                linewidth=1.5,
                markersize=5,
            )
    frame(ax, "layer", "mean cosine of two vectors")
    deepest = max(
        (len(values) for given in layers.values() for values in given.values()), default=1
    )
    ax.set_xticks(range(1, deepest + 1, -(-deepest // 16)))
    hues = [Line2D([], [], color=HUES[i % len(HUES)], linewidth=1.5) for i in range(len(layers))]
    dashes = [
        Line2D([], [], color=MUTED, linestyle=dash, linewidth=1.5) for dash, _ in KINDS.values()
    ]
    legend(ax, [*hues, *dashes], [*layers, *(text for _, text in KINDS.values())])
    return ax


def methods(
    table: Table | Iterable[tuple[str, Cell]], *, column: str | None = None, ax: Axes | None = None
) -> Axes:
    """One column of a table as dots with their intervals, sorted, the best in blue; its interval is shaded for all.

    A list of (name, Cell) is a column whose heading is `column`. Under a heading with ↓ smaller is better.
    """
    heading, cells = _column(table, column)
    cells.sort(key=lambda row: row[1].value, reverse="↓" in heading)  # from the bottom to the top
    keys = [key for key, _ in cells]
    ax, (_, down) = axes(
        ax, 4.6, min(0.24 * max(len(cells), 2), 16.0), beside=inches(keys, LONGEST_NAME), below=0.3
    )
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
    """The heading and the cells of a column, of the first with numbers if none is named; empty cells are left out."""
    if not isinstance(table, Table):
        return column or "", [(key, cell) for key, cell in table if not np.isnan(cell.value)]
    found: dict[str, list[tuple[str, Cell]]] = {}
    for key, cells in table.rows:
        for head, cell in zip(table.columns[1:], cells, strict=True):
            if isinstance(cell, Cell) and not np.isnan(cell.value):
                found.setdefault(head, []).append((key, cell))
    known = [head for head in table.columns[1:] if head in found]
    chosen = [head for head in known if column is None or column in (head, head.rstrip(" ↑↓"))]
    if not chosen:
        others = ", ".join(map(repr, known)) or "another table"
        raise UsageError(f"column {column!r} has no numbers: choose from {others}")
    return chosen[0], found[chosen[0]]


def _rows(ax: Axes, keys: Sequence[str], down: float, xlabel: str) -> None:
    """Names along the left, and a grid for the values only."""
    frame(ax, xlabel)
    ax.grid(visible=False, axis="y")
    ax.spines["left"].set_visible(False)
    ax.set_ylim(-0.6, max(len(keys), 1) - 0.4)
    name(ax.yaxis, keys, down, longest=LONGEST_NAME)

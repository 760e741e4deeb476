"""The contribution graph of one attribution: which token feeds which, layer by layer."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.views.plots.attributions import annotate, maps_of, titles
from alti.views.plots.look import (
    BLUE,
    MUTED,
    Array,
    axes,
    bare,
    inches,
    literal,
    name_largest,
    title,
    typeface,
)
from alti.views.said import is_answer, names_of

THRESHOLDS = (0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
LINES = 12  # between tokens that a threshold leaves


def graph(
    attribution: Attribution, *, threshold: float | None = None, ax: Axes | None = None
) -> Axes:
    """Which token feeds which, layer by layer: a grey line for each contribution above a threshold.

    Without one, the highest of 0.05, 0.02, 0.01 … that leaves some lines to the prediction.

    Blue shows what reaches the prediction: the stronger a line or dot, the larger the share of the
    prediction that passes through it. Rows that do not sum to 1 (Globenc's) are normalised.
    """
    if threshold is not None and not 0 <= threshold <= 1:
        raise UsageError(f"threshold = {threshold!r} is not a share of a row: give 0 to 1")
    if is_answer(attribution):
        raise UsageError("a graph is of one prediction: plot that of one token of the answer")
    maps = _shares(maps_of(attribution, True))
    if threshold is None:
        threshold = _threshold(maps, attribution.position)
    names = names_of(attribution.source)
    width = min(2.0 + 0.8 * len(maps), 11.0)
    height = min(max(2.0, 0.2 * len(names)), 16.0)
    ax, (across, down) = axes(ax, width, height, beside=inches(names) + 0.7, below=0.3)
    dense = min(1.0, max(0.65, down / len(names) / 12))  # thinner lines if rows are close together
    largest = _draw_flows(ax, maps, attribution.position, threshold, dense)
    _name_widths(ax, largest, dense)
    ax.set(xlim=(-0.08, len(maps) + 0.08), ylim=(len(names) - 0.4, -0.6))
    bare(ax)
    _, passing = _flows(maps, attribution.position)
    name_largest(ax.yaxis, names, passing.max(0), down)
    _name_layers(ax, len(maps), across)
    if (position := attribution.position) is not None:
        place: dict[str, Any] = {"va": "center", "fontsize": 8.5, "color": BLUE}
        point = (len(maps), position)
        annotate(ax, literal(names[position]), point, (6, 0), **place, **typeface())
    drawn = int((maps > threshold).sum())
    remark = f"{drawn} of {maps.size} contributions, those above {threshold:g}"
    title(ax, *titles(attribution, remark))
    return ax


def _threshold(maps: Array, position: int | None) -> float:
    """The highest threshold that leaves some lines between tokens which lead to the prediction."""
    flows, _ = _flows(maps, position)
    crossing = np.where(np.eye(maps.shape[-1], dtype=bool), 0.0, flows)
    leading = maps[crossing > 0.1 * crossing.max()]
    least = min(LINES, len(leading))
    return next((t for t in THRESHOLDS if (leading > t).sum() >= least), 0.0)


def _draw_flows(
    ax: Axes, maps: Array, position: int | None, threshold: float, dense: float
) -> float:
    """Draw the contributions in grey, and over them in blue what reaches the prediction.

    Returns the share of the widest line.
    """
    flows, nodes = _flows(maps, position)
    layer, receiver, sender = np.nonzero(maps > threshold)
    shares = maps[layer, receiver, sender]
    passing = flows[layer, receiver, sender] / (flows.max() or 1.0)
    lines = _curves(layer, sender, receiver)
    ax.add_collection(_collection(lines, 0.3 + shares, MUTED, dense * (0.06 + 0.3 * shares)))
    seen = passing > 0.001
    widths = 0.3 + 3.2 * dense * passing[seen]
    ax.add_collection(_collection(lines[seen], widths, BLUE, np.sqrt(passing[seen])))
    x, y = np.meshgrid(*map(np.arange, nodes.shape), indexing="ij")
    sizes = 40 * dense * nodes.ravel() / nodes.max()
    ax.scatter(x, y, s=sizes, color=BLUE, linewidths=0, zorder=3)
    return float(flows.max())


def _name_widths(ax: Axes, largest: float, dense: float) -> None:
    """A legend: how wide a line is for which share of the prediction."""
    shares = [share * largest for share in (0.05, 0.25, 1.0)]
    widths = [0.3 + 3.2 * dense * share for share in (0.05, 0.25, 1.0)]
    alphas = [share**0.5 for share in (0.05, 0.25, 1.0)]
    lines = [
        Line2D([], [], color=BLUE, linewidth=width, alpha=alpha)
        for width, alpha in zip(widths, alphas, strict=True)
    ]
    names = [f"{100 * share:.2g} %" for share in shares]
    names[-1] += " of the prediction"
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": MUTED, "ncols": 3}
    ax.legend(lines, names, loc="upper right", bbox_to_anchor=(1.0, -0.04), **look)


def _name_layers(ax: Axes, count: int, across: float) -> None:
    steps = range(0, count + 1, math.ceil(20 * count / across))
    labels = [str(step) if step else "input" for step in steps]
    ax.set_xticks(steps, labels, fontsize=8, color=MUTED)
    ax.set_xlabel("layer", fontsize=8.5, color=MUTED)


def _shares(maps: Array) -> Array:
    total = maps.sum(-1, keepdims=True)
    return maps / np.where(total > 0, total, 1)


def _flows(maps: Array, position: int | None) -> tuple[Array, Array]:
    """What reaches the prediction through each edge [L, T, T] and each token [L + 1, T]."""
    n = maps.shape[-1]
    nodes = [np.full(n, 1 / n) if position is None else np.eye(n)[position]]
    for contribution in maps[::-1]:
        nodes.append(nodes[-1] @ contribution)
    passing = np.array(nodes[::-1])  # from the input up
    return passing[1:, :, None] * maps, passing


def _curves(layer: NDArray[np.intp], start: NDArray[np.intp], end: NDArray[np.intp]) -> Array:
    """S-shaped lines that leave and arrive horizontally: [E, 24, 2]."""
    s = (1 - np.cos(np.linspace(0, np.pi, 24))) / 2  # denser where the line bends
    x = layer[:, None] + s
    y = start[:, None] + (end - start)[:, None] * (3 - 2 * s) * s**2
    return np.stack([x, y], -1)


def _collection(lines: Array, widths: Array, colour: str, alphas: Array) -> LineCollection:
    order = np.argsort(alphas)  # the strongest on top
    straight = lines[:, 0, 1] == lines[:, -1, 1]  # most lines are, and need only two points
    drawn = [lines[i, [0, -1]] if straight[i] else lines[i] for i in order]
    colours = np.tile(to_rgba(colour), (len(lines), 1))
    colours[:, 3] = alphas
    return LineCollection(drawn, linewidths=widths[order], colors=colours[order], capstyle="round")

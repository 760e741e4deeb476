"""Views of one attribution: bars, matrices, a graph."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, PowerNorm, to_rgba
from matplotlib.image import AxesImage
from matplotlib.markers import CARETLEFT
from numpy.typing import NDArray

from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.views.plots.look import (
    BLUE,
    FAINT,
    INK,
    MUTED,
    VERMILLION,
    WATER,
    Array,
    Picture,
    Room,
    array,
    axes,
    bare,
    fit,
    inches,
    literal,
    name,
    room,
    title,
    typeface,
)
from alti.views.segments import chance_of

BARS = 40  # of more tokens, those with the largest scores


def tokens(attribution: Attribution, *, words: bool = True, ax: Axes | None = None) -> Axes:
    """A bar for each word (or token) in the order of the text: blue is for the label, vermillion against it.

    Of more than 40, those with the largest scores, sorted; special tokens are not ranked.
    """
    view = attribution.words() if words else attribution
    every = array(view.scores)
    shown = np.arange(len(every)) if len(every) <= BARS else _largest(every, array(view.special))
    scores, names = every[shown], [view.tokens[i] for i in shown]
    ax, (_, down) = axes(ax, 4.5, 0.21 * max(len(shown), 2), beside=inches(names))
    ax.barh(
        np.arange(len(shown)),
        scores,
        height=0.7,
        color=[VERMILLION if s < 0 else BLUE for s in scores],
    )
    ax.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    bare(ax)
    name(ax.yaxis, names, down)
    _write_scores(ax, scores, down)
    if (every < 0).any():
        _name_sides(ax, attribution.label)
    left_out = f"the {len(shown)} largest of {len(every)} scores" if len(shown) < len(every) else ""
    title(ax, *_titles(attribution, left_out))
    return ax


def _largest(scores: Array, special: Array) -> NDArray[np.intp]:
    """The positions of as many scores as there are bars, highest first."""
    ranked = np.flatnonzero(special == 0)
    kept = ranked[np.argsort(-np.abs(scores[ranked]), kind="stable")[:BARS]]
    return kept[np.argsort(-scores[kept], kind="stable")]


def _write_scores(ax: Axes, scores: Array, down: float) -> None:
    """The value at the end of each bar, and the line where bars start."""
    sign = "+" if (scores < 0).any() else ""
    size = min(7.5, 0.75 * down / max(len(scores), 1))
    for row, score in enumerate(scores):
        side, align = (-1, "right") if score < 0 else (1, "left")
        place: dict[str, Any] = {
            "xytext": (3 * side, 0),
            "textcoords": "offset points",
            "ha": align,
            "va": "center",
        }
        ax.annotate(
            f"{score:{sign}z.3f}".replace("-", "−"),
            (score, row),
            **place,
            fontsize=size,
            color=MUTED,
        )
    low, high = min(0.0, *scores, 0.0), max(0.0, *scores, 0.0)
    pad = 0.13 * ((high - low) or 1.0)
    ax.set_xlim(low - (pad if low < 0 else 0), high + pad)
    ax.axvline(0, color=INK, linewidth=0.6)
    ax.xaxis.set_visible(False)


def _name_sides(ax: Axes, label: str | None) -> None:
    of = "the prediction" if label is None else literal(label)
    sides = ((f"against {of} ←", -1, "right", VERMILLION), (f"→ for {of}", 1, "left", BLUE))
    for text, side, align, colour in sides:
        place: dict[str, Any] = {
            "xycoords": ax.get_xaxis_transform(),
            "textcoords": "offset points",
            "ha": align,
        }
        ax.annotate(
            text,
            (0, 0),
            xytext=(5 * side, -3),
            **place,
            va="top",
            color=colour,
            fontsize=8,
            **typeface(),
        )


def matrix(
    attribution: Attribution,
    layer: int = -1,
    *,
    contributions: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """What every token (row) is made of after a layer: its shares of the input tokens, R^l.

    With `contributions` its shares of the tokens that the layer read, C^l. An arrow points at the row that the
    prediction is read from.
    """
    maps, names = _maps(attribution, contributions, layer), attribution.tokens
    number, side, edge = (
        layer % len(maps) + 1,
        min(max(2.2, 0.17 * len(names)), 12.0),
        inches(names),
    )
    ax, (across, down) = axes(ax, side, side, beside=edge + 1.0, below=edge + 0.3)
    image = _draw(ax, maps[layer], _scale(maps[layer]), attribution.position)
    name(ax.yaxis, names, down)
    name(ax.xaxis, names, across, upright=True)
    ax.set_xlabel(
        f"token before layer {number}" if contributions else "input token",
        fontsize=8.5,
        color=MUTED,
    )
    ax.set_ylabel(f"token after layer {number}", fontsize=8.5, color=MUTED)
    _colour_bar(image, ax, (across, down), contributions)
    title(ax, *_titles(attribution, f"layer {number} of {len(maps)}"))
    return ax


def layers(
    attribution: Attribution,
    *,
    contributions: bool = False,
    axes: Sequence[Axes] | NDArray[np.object_] | None = None,
) -> NDArray[np.object_]:
    """The matrices of all layers on one scale: R^l, or C^l with `contributions`; an Axes for each."""
    maps, names = _maps(attribution, contributions), attribution.tokens
    count, side = len(maps), min(max(1.7, 0.13 * len(names)), 3.6)
    columns = min(
        count, min(range(3, 7), key=lambda c: (-count % c, abs(c - 4)))
    )  # few gaps, about 4
    panels = (
        _grid(attribution, count, columns, side)
        if axes is None
        else list(np.asarray(axes, dtype=object).flat)
    )
    if len(panels) != count:
        raise UsageError(f"{len(panels)} axes for {count} layers: give one for each")
    scale = _scale(maps)
    for i, ax in enumerate(panels):
        image = _draw(ax, maps[i], scale, attribution.position)
        across, down = room(ax) if axes is not None else (72 * side, 72 * side)
        shown = names if fit(names, min(across, down)) else ()
        name(ax.yaxis, shown if axes is not None or i % columns == 0 else (), down)
        name(
            ax.xaxis,
            shown if axes is not None or i + columns >= count else (),
            across,
            upright=True,
        )
        ax.set_title(f"layer {i + 1}", loc="left", fontsize=8.5, color=INK, pad=4)
    _colour_bar(
        image, panels[-1 if axes is not None else columns - 1], (across, down), contributions
    )
    found = np.empty(count, dtype=object)
    found[:] = panels
    return found


def _grid(attribution: Attribution, count: int, columns: int, side: float) -> list[Axes]:
    rows, names = -(-count // columns), attribution.tokens
    edge = inches(names) if fit(names, 72 * side) else 0.1
    figure = Picture(columns * (side + 0.1) + edge + 0.7, rows * (side + 0.28) + edge + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False).flat
    for unused in grid[count:]:
        unused.remove()
    heading = " · ".join(part for part in _titles(attribution) if part)
    figure.suptitle(heading, x=0.01, ha="left", fontsize=10, color=INK, **typeface())
    return list(grid[:count])


def _maps(attribution: Attribution, contributions: bool, layer: int = 0) -> Array:
    """R^l or C^l of all layers: [L, T, T]; refuses a layer that is not there."""
    attribution.relevance(layer)
    given = array(attribution.layers)
    return (
        given
        if contributions
        else np.stack([array(attribution.relevance(i)) for i in range(len(given))])
    )


def _scale(values: Array) -> Normalize:
    """A little steeper for small shares: the few large ones would leave the others white."""
    return PowerNorm(0.6, 0, values.max())


def _draw(ax: Axes, values: Array, scale: Normalize, position: int | None) -> AxesImage:
    image = ax.imshow(values, cmap=WATER, norm=scale, interpolation="nearest")
    ax.grid(visible=False)
    ax.spines[:].set(linewidth=0.6, color=FAINT)
    if position is not None:
        edge = ax.get_yaxis_transform()
        ax.plot(
            1.0,
            position,
            marker=CARETLEFT,
            markersize=5,
            color=VERMILLION,
            transform=edge,
            clip_on=False,
        )
    return image


def _colour_bar(image: AxesImage, ax: Axes, size: Room, contributions: bool) -> None:
    """A narrow bar to the right of the Axes, at most three inches long."""
    (across, down), figure = size, ax.get_figure(root=True)
    pad = 5 / down  # the numbers at its ends stay beside the Axes
    long = min(1 - 2 * pad, 216 / down)
    place = ax.inset_axes((1 + 9 / across, 1 - pad - long, 7 / across, long))
    assert figure is not None
    bar = figure.colorbar(image, cax=place)
    bar.outline.set_visible(False)
    place.tick_params(length=2, width=0.5, color=MUTED, labelsize=7.5, labelcolor=MUTED)
    bar.set_label("contribution" if contributions else "relevance", fontsize=8, color=MUTED)


def graph(attribution: Attribution, *, threshold: float = 0.05, ax: Axes | None = None) -> Axes:
    """Which token feeds which, layer by layer: every contribution above the threshold is a grey line.

    Blue is what reaches the prediction: lines and dots are as strong as the share of it that passes there. Rows that do
    not sum to 1 (Globenc's) are divided by their sum.
    """
    if not 0 <= threshold <= 1:
        raise UsageError(f"threshold = {threshold!r} is not a share of a row: give 0 to 1")
    maps, names = _maps(attribution, True), attribution.tokens
    maps, count, n = _shares(maps), len(maps), len(names)
    flows, nodes = _flows(maps, attribution.position)
    width, height = min(2.0 + 0.8 * count, 11.0), min(max(2.0, 0.2 * n), 16.0)
    ax, (across, down) = axes(ax, width, height, beside=inches(names) + 0.7, below=0.3)
    layer, receiver, sender = np.nonzero(maps > threshold)
    shares, passing = (
        maps[layer, receiver, sender],
        flows[layer, receiver, sender] / (flows.max() or 1.0),
    )
    dense = min(1.0, max(0.65, down / n / 12))  # thinner where rows are close
    lines = _bows(layer, sender, receiver)
    ax.add_collection(_strands(lines, 0.3 + shares, MUTED, dense * (0.06 + 0.3 * shares)))
    seen = passing > 0.001
    ax.add_collection(
        _strands(lines[seen], 0.3 + 3.2 * dense * passing[seen], BLUE, np.sqrt(passing[seen]))
    )
    x, y = np.meshgrid(np.arange(count + 1), np.arange(n), indexing="ij")
    ax.scatter(x, y, s=40 * dense * nodes.ravel() / nodes.max(), color=BLUE, linewidths=0, zorder=3)
    ax.set(xlim=(-0.08, count + 0.08), ylim=(n - 0.4, -0.6))
    bare(ax)
    name(ax.yaxis, names, down)
    steps = range(0, count + 1, math.ceil(20 * count / across))
    ax.set_xticks(
        steps, [str(step) if step else "input" for step in steps], fontsize=8, color=MUTED
    )
    ax.set_xlabel("layer", fontsize=8.5, color=MUTED)
    if (at := attribution.position) is not None:
        place: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
        ax.annotate(
            literal(names[at]), (count, at), **place, fontsize=8.5, color=BLUE, **typeface()
        )
    title(ax, *_titles(attribution, f"contributions above {threshold:g}"))
    return ax


def _shares(maps: Array) -> Array:
    total = maps.sum(-1, keepdims=True)
    return maps / np.where(total > 0, total, 1)


def _flows(maps: Array, position: int | None) -> tuple[Array, Array]:
    """What passes to the prediction: on each edge [L, T, T] and at each token, input first [L + 1, T]."""
    n = maps.shape[-1]
    nodes = [np.full(n, 1 / n) if position is None else np.eye(n)[position]]
    for contribution in maps[::-1]:
        nodes.append(nodes[-1] @ contribution)
    found = np.array(nodes[::-1])
    return found[1:, :, None] * maps, found


def _bows(layer: NDArray[np.intp], start: NDArray[np.intp], end: NDArray[np.intp]) -> Array:
    """Lines that leave and arrive level: [E, 24, 2]."""
    s = (1 - np.cos(np.linspace(0, np.pi, 24))) / 2  # close where the line bends
    return np.stack(
        [layer[:, None] + s, start[:, None] + (end - start)[:, None] * (3 - 2 * s) * s**2], -1
    )


def _strands(lines: Array, widths: Array, colour: str, alphas: Array) -> LineCollection:
    order = np.argsort(alphas)  # the strongest on top
    level = lines[:, 0, 1] == lines[:, -1, 1]  # most lines are, and two points are enough
    drawn = [lines[i, [0, -1]] if level[i] else lines[i] for i in order]
    colours = np.tile(to_rgba(colour), (len(lines), 1))
    colours[:, 3] = alphas
    return LineCollection(drawn, linewidths=widths[order], colors=colours[order], capstyle="round")


def _titles(attribution: Attribution, more: str = "") -> tuple[str, str]:
    """The prediction; then what explained it."""
    label = attribution.label
    parts = [] if label is None else [literal(label if label.strip() == label else repr(label))]
    parts += [f"({chance})"] if (chance := chance_of(attribution)) else []
    rest = [attribution.method, attribution.model, more]
    main = " ".join(parts) or rest.pop(0)
    return literal(main, 60), literal(" · ".join(part for part in rest if part), 100)

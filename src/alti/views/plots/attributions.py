"""Plots of one attribution: bars, matrices, a graph."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.image import AxesImage
from matplotlib.markers import CARETLEFT
from numpy.typing import NDArray

from alti._characters import plural
from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.source import Source
from alti.views.plots.look import (
    BLUE,
    FAINT,
    INK,
    LONGEST,
    LONGEST_NAME,
    MUTED,
    VERMILLION,
    WATER,
    Array,
    Picture,
    Room,
    array,
    axes,
    bare,
    colour_bar,
    fit,
    inches,
    literal,
    name,
    room,
    title,
    typeface,
)
from alti.views.said import (
    SO_FAR,
    as_shown,
    by_words,
    chance_of,
    is_text,
    label_of,
    method_of,
    name_of,
    names_of,
    number_of,
    scale_name,
    side_of,
    token_of,
    whole_answer,
    with_its_token,
)

BARS = 40  # the most tokens to show
WIDTH = 4.5  # inches, enough for a title
TITLE = 64  # characters of a title
COLUMNS = 60  # the most tokens to show beside each other
PAGE = 7.0  # inches, the width of a page on which matrices stand beside each other


def tokens(attribution: Attribution, *, words: bool = True, ax: Axes | None = None) -> Axes:
    """A bar for each word (token, group) in order: blue is for the label, vermillion against it.

    If there are more than 40, only the largest scores are shown, sorted and without special tokens.
    """
    attribution = as_shown(attribution)
    view = by_words(attribution, words)
    every = array(view.scores)
    shown = np.arange(len(every)) if len(every) <= BARS else _largest(every, array(view.special))
    scores = every[shown]
    longest = LONGEST if is_text(view.source) else LONGEST_NAME
    names = [_name(view.source, int(i)) for i in shown]
    beside = inches(names, longest)
    ax, (_, down) = axes(ax, WIDTH, 0.21 * max(len(shown), 2), beside=beside)
    colours = [VERMILLION if score < 0 else BLUE for score in scores]
    ax.barh(np.arange(len(shown)), scores, height=0.7, color=colours)
    ax.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    bare(ax)
    name(ax.yaxis, names, down, longest=longest)
    _write_scores(ax, scores, down)
    signed = bool((every < 0).any())
    if signed:
        _name_sides(ax, None if attribution.label is None else side_of(attribution))
    _name_scale(ax, scale_name(attribution), below=signed)
    title(ax, *titles(attribution, _remark(attribution, len(shown), len(every))))
    return ax


def _name(source: Source, i: int) -> str:
    """A word or token; the name of a larger group and how it begins."""
    if is_text(source):
        return name_of(source, i)
    return f"{number_of(source, i)}: {' '.join(source.tokens[i].split())}"


def _remark(attribution: Attribution, shown: int, every: int) -> str:
    """What the bars are not: smaller scores, and the tokens of an answer."""
    remarks = [f"the {shown} largest of {every} scores"] if shown < every else []
    if "answer" in attribution.extra:
        remarks.append(f"{SO_FAR} {attribution.extra['answer']:.3f}".replace("-", "−"))
    return " · ".join(remarks)


def _largest(scores: Array, special: Array) -> NDArray[np.intp]:
    """The indices of the largest scores, one for each bar, highest first."""
    ranked = np.flatnonzero(special == 0)
    kept = ranked[np.argsort(-np.abs(scores[ranked]), kind="stable")[:BARS]]
    return kept[np.argsort(-scores[kept], kind="stable")]


def _write_scores(ax: Axes, scores: Array, down: float) -> None:
    """Write the value at the end of each bar and draw the zero line."""
    sign = "+" if (scores < 0).any() else ""
    size = min(7.5, 0.75 * down / max(len(scores), 1))
    for row, score in enumerate(scores):
        text = f"{score:{sign}z.3f}".replace("-", "−")
        side = -1 if score < 0 else 1
        annotate(ax, text, (score, row), (3 * side, 0), va="center", fontsize=size, color=MUTED)
    low = min(0.0, *scores, 0.0)
    high = max(0.0, *scores, 0.0)
    pad = 0.13 * ((high - low) or 1.0)
    ax.set_xlim(low - (pad if low < 0 else 0), high + pad)
    ax.axvline(0, color=INK, linewidth=0.6)
    ax.xaxis.set_visible(False)


def annotate(
    ax: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **look: Any
) -> None:
    """Write a text at an offset in points, to the left of the point if the offset is negative."""
    align = "right" if offset[0] < 0 else "left"
    ax.annotate(text, point, xytext=offset, textcoords="offset points", ha=align, **look)


def _name_sides(ax: Axes, label: str | None) -> None:
    of = "the prediction" if label is None else literal(label)
    place: dict[str, Any] = {"xycoords": ax.get_xaxis_transform(), "va": "top", "fontsize": 8}
    for text, offset, colour in ((f"against {of} ←", -5, VERMILLION), (f"→ for {of}", 5, BLUE)):
        annotate(ax, text, (0, 0), (offset, -3), color=colour, **place, **typeface())


def _name_scale(ax: Axes, unit: str, *, below: bool) -> None:
    """Write what the numbers are of below the bars, or below the names of their sides."""
    place: dict[str, Any] = {"xycoords": ax.get_xaxis_transform(), "va": "top", "fontsize": 8}
    offset = (0, -16 if below else -3)
    annotate(ax, literal(unit, TITLE), (0, 0), offset, color=MUTED, **place, **typeface())


def matrix(
    attribution: Attribution,
    layer: int = -1,
    *,
    contributions: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """What each token (row) consists of after a layer: its shares of the input tokens, R^l.

    With `contributions`, its shares of the tokens that enter the layer, C^l. An arrow marks the row
    that the prediction is read from.
    """
    maps = maps_of(attribution, contributions, layer)
    names = names_of(attribution.source)
    number = layer % len(maps) + 1
    side = min(max(2.2, 0.17 * len(names)), 12.0)
    edge = inches(names)
    ax, (across, down) = axes(ax, side, side, beside=edge + 1.0, below=edge + 0.3)
    image = _draw(ax, maps[layer], _scale(maps[layer]), attribution.position)
    name(ax.yaxis, names, down)
    name(ax.xaxis, names, across, upright=True)
    columns = f"token before layer {number}" if contributions else "input token"
    ax.set_xlabel(columns, fontsize=8.5, color=MUTED)
    ax.set_ylabel(f"token after layer {number}", fontsize=8.5, color=MUTED)
    colour_bar(image, ax, (across, down), _share_name(contributions))
    remark = [f"layer {number} of {len(maps)}", _arrow(attribution)]
    title(ax, *titles(attribution, " · ".join(filter(None, remark))))
    return ax


def predictions(attributions: Attributions, *, words: bool = True, ax: Axes | None = None) -> Axes:
    """A row for each prediction, a column for each word (token, group): blue is for it.

    Rows are divided by their largest score, so that weak predictions can be read too. If there are
    more than 60 columns, only the largest are shown. A line is where an answer begins.
    """
    view = by_words(attributions, words)
    every = _relative(array(view.scores), array(view.source.special))
    shown = _columns_of(every, array(view.source.special))
    names = [name_of(view.source, int(i)) for i in shown]
    labels = [_row_name(each) for each in attributions]
    across = min(max(WIDTH, 0.17 * len(names)), 14.0)
    down = min(max(1.0, 0.17 * len(labels)), 12.0)
    ax, size = axes(ax, across, down, beside=inches(labels) + 0.3, below=inches(names) + 0.3)
    limits: Any = {"vmin": -1.0, "vmax": 1.0, "cmap": "RdBu", "aspect": "auto"}
    image = ax.imshow(every[:, shown], interpolation="nearest", **limits)
    bare(ax)
    name(ax.yaxis, labels, size[1])
    name(ax.xaxis, names, size[0], upright=True)
    if view.source.answer is not None:
        begins = int((shown < view.source.answer).sum()) - 0.5
        ax.axvline(begins, color=MUTED, linewidth=0.8)
    colour_bar(image, ax, size, "for each prediction")
    title(ax, *_titles_of(attributions, len(shown), every.shape[1]))
    return ax


def _relative(scores: Array, special: Array) -> Array:
    """Each row divided by its largest score; those of special tokens do not count."""
    ranked = np.abs(scores[:, special == 0])
    largest: Array = ranked.max(axis=1, keepdims=True, initial=1e-30)
    return scores / largest


def _columns_of(rows: Array, special: Array) -> NDArray[np.intp]:
    """All columns; of many, those with the largest scores of any row, in the order of the text."""
    if rows.shape[1] <= COLUMNS:
        return np.arange(rows.shape[1])
    ranked = np.flatnonzero(special == 0)
    best = np.abs(rows[:, ranked]).max(axis=0)
    return np.sort(ranked[np.argsort(-best, kind="stable")[:COLUMNS]])


def _row_name(attribution: Attribution) -> str:
    if attribution.source.answer is not None:
        return token_of(attribution).strip(" ")
    return label_of(with_its_token(attribution)) or f"position {attribution.position}"


def _titles_of(attributions: Attributions, shown: int, every: int) -> tuple[str, str]:
    """What is predicted, and below it how the rows are to be read."""
    rows = "each row divided by its largest score"
    some = f" · the {shown} largest of {every} columns" if shown < every else ""
    if attributions.source.answer is not None:
        return titles(whole_answer(attributions), rows + some)
    about = (method_of(attributions[0]), attributions.model, rows)
    return f"{len(attributions)} {plural('prediction', len(attributions))}", " · ".join(
        filter(None, about)
    ) + some


def layers(
    attribution: Attribution,
    *,
    contributions: bool = False,
    largest: float | None = None,
    axes: Sequence[Axes] | NDArray[np.object_] | None = None,
) -> NDArray[np.object_]:
    """The matrices of all layers on one scale: R^l, or C^l with `contributions`; one Axes each.

    The scale ends at `largest`, or at the largest share: give it to compare several attributions.
    """
    maps = maps_of(attribution, contributions)
    count = len(maps)
    side = min(max(1.7, 0.13 * len(attribution.tokens)), 3.6)
    new = axes is None
    columns = _columns(count, side) if new else 1
    panels = _grid(attribution, count, columns, side) if axes is None else _flat(axes)
    if len(panels) != count:
        raise UsageError(f"{len(panels)} axes for {count} layers: give one for each")
    scale = _scale(maps, largest)
    for i, ax in enumerate(panels):
        image = _draw(ax, maps[i], scale, attribution.position)
        size = (72 * side, 72 * side) if new else room(ax)
        first = not new or i % columns == 0
        last = not new or i + columns >= count
        _name_panel(ax, names_of(attribution.source), size, rows=first, columns=last)
        ax.set_title(f"layer {i + 1}", loc="left", fontsize=8.5, color=INK, pad=4)
    colour_bar(image, panels[columns - 1 if new else -1], size, _share_name(contributions))
    return _object_array(panels)


def _columns(count: int, side: float) -> int:
    """Columns of a grid that is as wide as a page: as few empty places as can be, then many."""
    most = min(count, max(2, int(PAGE / side)))
    return min(range(min(2, most), most + 1), key=lambda columns: (-count % columns, -columns))


def _flat(axes: Sequence[Axes] | NDArray[np.object_]) -> list[Axes]:
    return list(np.asarray(axes, dtype=object).flat)


def _object_array(panels: Sequence[Axes]) -> NDArray[np.object_]:
    objects = np.empty(len(panels), dtype=object)
    objects[:] = panels
    return objects


def _name_panel(ax: Axes, names: Sequence[str], size: Room, *, rows: bool, columns: bool) -> None:
    """Name the rows and columns of one matrix among others, if there is space for all names."""
    across, down = size
    shown = names if fit(names, min(across, down)) else ()
    name(ax.yaxis, shown if rows else (), down)
    name(ax.xaxis, shown if columns else (), across, upright=True)


def _grid(attribution: Attribution, count: int, columns: int, side: float) -> list[Axes]:
    names = names_of(attribution.source)
    rows = -(-count // columns)
    edge = inches(names) if fit(names, 72 * side) else 0.1
    figure = Picture(columns * (side + 0.1) + edge + 0.7, rows * (side + 0.28) + edge + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False).flat
    for unused in grid[count:]:
        unused.remove()
    heading = " · ".join(filter(None, titles(attribution, _arrow(attribution))))
    figure.suptitle(heading, x=0.01, ha="left", fontsize=10, color=INK, **typeface())
    return list(grid[:count])


def maps_of(attribution: Attribution, contributions: bool, layer: int = 0) -> Array:
    """R^l or C^l of all layers: [L, T, T]; rejects a layer that does not exist."""
    attribution.relevance(layer)
    maps = array(attribution.layers)
    if contributions:
        return maps
    return np.stack([array(attribution.relevance(i)) for i in range(len(maps))])


def _share_name(contributions: bool) -> str:
    return "contribution" if contributions else "relevance"


def _scale(values: Array, largest: float | None = None) -> Normalize:
    """A scale that is steeper for small shares, which a few large ones would leave white."""
    return PowerNorm(0.6, 0, values.max() if largest is None else largest)


def _draw(ax: Axes, values: Array, scale: Normalize, position: int | None) -> AxesImage:
    image = ax.imshow(values, cmap=WATER, norm=scale, interpolation="nearest")
    ax.grid(visible=False)
    ax.spines[:].set(linewidth=0.6, color=FAINT)
    if position is not None:
        arrow: dict[str, Any] = {"marker": CARETLEFT, "markersize": 5, "color": VERMILLION}
        ax.plot(1.0, position, **arrow, transform=ax.get_yaxis_transform(), clip_on=False)
    return image


def _arrow(attribution: Attribution) -> str:
    """What the arrow beside a matrix says."""
    return "" if attribution.position is None else "◂ the row that is read"


def titles(attribution: Attribution, remark: str = "") -> tuple[str, str]:
    """The prediction, and below it the method, the model and a remark."""
    chance = f"({chance})" if (chance := chance_of(attribution)) else ""
    longest = max(LONGEST, TITLE - 1 - len(chance))
    label = "" if attribution.label is None else literal(label_of(attribution), longest)
    if "answer" in attribution.extra and not label.endswith("”"):
        label = f"{label[:-2].rstrip()}…”"
    main = " ".join(filter(None, (label, chance)))
    second = [method_of(attribution), attribution.model, remark]
    if not main:
        main = second.pop(0)
    return literal(main, TITLE), literal(" · ".join(filter(None, second)), 100)

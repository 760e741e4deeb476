"""What all plots share: colours, figure sizes, and text that is drawn literally."""

import io
import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from torch import Tensor

from alti.views.said import apart

Array = NDArray[np.float64]
Room = tuple[float, float]  # width and height in points

INK = "#262626"
MUTED = "#737373"
FAINT = "#d9d9d9"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
# The file endings that matplotlib can save.
ENDINGS = tuple(sorted(f".{ending}" for ending in Figure().canvas.get_supported_filetypes()))
# The palette of Okabe and Ito, without yellow.
HUES = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK)
# From white for zero, in equal steps of CIELAB, with lightness falling from 100 to 20.
WATER = LinearSegmentedColormap.from_list(
    "water",
    ["#ffffff", "#cee8f7", "#9ccfef", "#6ab3e4", "#3593d2", "#006fb4", "#004c8c", "#0f2f61"],
)
LARGEST = 8.5  # points of a label's font
SMALLEST = 5.5
LONGEST = 28  # characters of a token
LONGEST_NAME = 44  # characters of a method's name, which includes its options
# matplotlib ships the first font; the others cover scripts that it lacks, where installed.
FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Hiragino Sans",
    "Microsoft YaHei", "Malgun Gothic", "WenQuanYi Micro Hei", "Noto Sans Devanagari",
    "Noto Sans Thai", "Nirmala UI", "Noto Emoji", "Segoe UI Emoji", "Segoe UI Symbol",
    "Arial Unicode MS",
)  # fmt: skip
VISIBLE = {"\n": "↵", "\r": "↵", "\t": "⇥"}
MISSING = "□"


class Picture(Figure):
    """A figure that notebooks display, with or without pyplot."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=144, facecolor="white", layout="compressed")

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png")
        return out.getvalue()


def array(values: Any) -> Array:
    """A tensor, an array or a list as float64."""
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def axes(
    ax: Axes | None, width: float, height: float, *, beside: float = 0.0, below: float = 0.0
) -> tuple[Axes, Room]:
    """The Axes to draw into and their size in points.

    The given Axes, or new ones of this size in inches, with extra space beside and below.
    """
    if ax is not None:
        return ax, room(ax)
    figure = Picture(width + beside + 0.4, height + below + 0.7)
    return figure.add_subplot(facecolor="white"), (72 * width, 72 * height)


def room(ax: Axes) -> Room:
    """The size of Axes in points."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    extent = ax.get_window_extent()
    scale = 72 / figure.dpi
    return extent.width * scale, extent.height * scale


def inches(names: Iterable[str], longest: int = LONGEST) -> float:
    """The approximate width of the longest name."""
    return 0.075 * min(max(map(len, names), default=0), longest)


def literal(text: str, longest: int = LONGEST) -> str:
    """The text on one line of limited length, with only characters that can be drawn."""
    text = text.replace(" ", "␣") if text.isspace() else text
    shown = "".join(VISIBLE.get(c, c if _has_glyph(c) else MISSING) for c in text)
    if len(shown) <= longest:
        return shown
    typed, read = apart(shown)
    return f"{typed[: max(1, longest - 1 - len(read))]}…{read}"


def typeface() -> dict[str, Any]:
    """Font settings for the user's text: `$`, `_` and `\\` have no special meaning."""
    return {"fontfamily": _installed(), "parse_math": False, "usetex": False}


@cache
def _installed() -> list[str]:
    known = set(font_manager.fontManager.get_font_names())
    return [name for name in FONTS if name in known]


@cache
def _has_glyph(character: str) -> bool:
    return any(
        font_manager.get_font(font_manager.findfont(name)).get_char_index(ord(character))
        for name in _installed()
    )


def bare(ax: Axes) -> None:
    """Remove the frame, ticks and grid."""
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(visible=False)


def frame(ax: Axes, xlabel: str, ylabel: str = "") -> None:
    """Draw two thin axes, with a light grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set(linewidth=0.6, color=MUTED)
    ax.tick_params(length=2.5, width=0.6, color=MUTED, labelcolor=INK, labelsize=8)
    ax.grid(color=FAINT, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.set_xlabel(literal(xlabel, 60), fontsize=8.5, color=INK, **typeface())
    ax.set_ylabel(literal(ylabel, 60), fontsize=8.5, color=INK, **typeface())


def fit(names: Sequence[str], space: float) -> bool:
    """Whether all names are legible in this many points."""
    return SMALLEST * 1.1 * len(names) <= space


def name(
    axis: Axis, names: Sequence[str], space: float, *, upright: bool = False, longest: int = LONGEST
) -> None:
    """Label an axis: in a smaller font if there are many names, or only every nth name."""
    each = space / max(len(names), 1)
    size = min(LARGEST, max(SMALLEST, 0.8 * each))
    step = 1 if fit(names, space) else math.ceil(1.1 * size / each)
    labels = [literal(label, longest) for label in names[::step]]
    turned = upright and max(map(len, labels), default=0) * 0.62 * size > each * step
    places = range(0, len(names), step)
    axis.set_ticks(
        places, labels, fontsize=size, color=INK, rotation=90 if turned else 0, **typeface()
    )
    axis.set_tick_params(length=2 if step > 1 else 0, width=0.5, color=MUTED, pad=3)


def name_largest(axis: Axis, names: Sequence[str], sizes: Array, space: float) -> None:
    """Label an axis; if there is no space for all names, those of the largest sizes."""
    if fit(names, space):
        name(axis, names, space)
        return
    gap = SMALLEST * 1.1 * len(names) / space  # rows between two names
    kept: list[int] = []
    for i in np.argsort(-sizes, kind="stable").tolist():
        if all(abs(i - other) >= gap for other in kept):
            kept.append(i)
    labels = [literal(names[i]) for i in kept]
    axis.set_ticks(kept, labels, fontsize=SMALLEST, color=INK, **typeface())
    axis.set_tick_params(length=2, width=0.5, color=MUTED, pad=3)


def title(ax: Axes, main: str, second: str = "") -> None:
    """Put a title above the Axes, and optionally a smaller second line."""
    ax.set_title(main, loc="left", fontsize=10.5, color=INK, pad=17 if second else 6, **typeface())
    place: dict[str, Any] = {
        "xycoords": "axes fraction",
        "xytext": (0, 5),
        "textcoords": "offset points",
    }
    ax.annotate(second, (0, 1), **place, fontsize=8, color=MUTED, **typeface())


def legend(ax: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """Put a legend to the right of the Axes."""
    names = [literal(label, LONGEST_NAME) for label in labels]
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": INK, "handlelength": 1.8}
    box = ax.legend(handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.02), **look)
    for text in box.get_texts():
        text.set(**typeface())


def colour_bar(image: AxesImage, ax: Axes, size: Room, name: str) -> None:
    """Add a narrow colour bar to the right of the Axes, at most three inches long."""
    across, down = size
    figure = ax.get_figure(root=True)
    pad = 5 / down  # keeps the numbers at its ends beside the Axes
    length = min(1 - 2 * pad, 216 / down)
    place = ax.inset_axes((1 + 9 / across, 1 - pad - length, 7 / across, length))
    assert figure is not None
    bar = figure.colorbar(image, cax=place)
    bar.outline.set_visible(False)
    place.tick_params(length=2, width=0.5, color=MUTED, labelsize=7.5, labelcolor=MUTED)
    bar.set_label(name, fontsize=8, color=MUTED)

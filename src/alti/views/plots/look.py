"""What all pictures share: colours, figures that fit, and text that is drawn as it is written."""

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
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Room = tuple[float, float]  # points across and down

INK, MUTED, FAINT = "#262626", "#737373", "#d9d9d9"
BLUE, VERMILLION = "#0072B2", "#D55E00"
ENDINGS = tuple(
    sorted(f".{ending}" for ending in Figure().canvas.get_supported_filetypes())
)  # of pictures
HUES = (
    BLUE,
    VERMILLION,
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    INK,
)  # of Okabe and Ito, without yellow
# White is nothing; then equal steps in CIELAB, the lightness falling from 100 to 20.
WATER = LinearSegmentedColormap.from_list(
    "water",
    ["#ffffff", "#cee8f7", "#9ccfef", "#6ab3e4", "#3593d2", "#006fb4", "#004c8c", "#0f2f61"],
)
LARGEST, SMALLEST = 8.5, 5.5  # points of a name
LONGEST = 28  # characters of a token; of a method's name, more: its options are in it
LONGEST_NAME = 44
FONTS = (  # matplotlib brings the first; the others, where they are installed, have scripts that it lacks
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Hiragino Sans", "Microsoft YaHei",
    "Malgun Gothic", "WenQuanYi Micro Hei", "Noto Sans Devanagari", "Noto Sans Thai", "Nirmala UI", "Noto Emoji",
    "Segoe UI Emoji", "Segoe UI Symbol", "Arial Unicode MS",
)  # fmt: skip
VISIBLE = {"\n": "↵", "\r": "↵", "\t": "⇥"}
MISSING = "□"


class Picture(Figure):
    """A figure that notebooks show, with or without pyplot."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=144, facecolor="white", layout="compressed")

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png")
        return out.getvalue()


def array(values: Any) -> Array:
    """Numbers of any kind, in float64."""
    values = values.detach().double().cpu().numpy() if isinstance(values, Tensor) else values
    return np.asarray(values, dtype=np.float64)


def axes(
    ax: Axes | None, width: float, height: float, *, beside: float = 0.0, below: float = 0.0
) -> tuple[Axes, Room]:
    """The Axes to draw into and their size: those given, or new ones of so many inches with room beside and below."""
    if ax is not None:
        return ax, room(ax)
    return Picture(width + beside + 0.4, height + below + 0.7).add_subplot(facecolor="white"), (
        72 * width,
        72 * height,
    )


def room(ax: Axes) -> Room:
    """The size of Axes in points."""
    extent, scale = ax.get_window_extent(), 72 / ax.get_figure(root=True).dpi  # type: ignore[union-attr]  # drawn Axes have a figure
    return extent.width * scale, extent.height * scale


def inches(names: Iterable[str], longest: int = LONGEST) -> float:
    """About the width of the longest name."""
    return 0.075 * min(max(map(len, names), default=0), longest)


def literal(text: str, longest: int = LONGEST) -> str:
    """One line, not too long, in which every character can be drawn."""
    text = text.replace(" ", "␣") if text.isspace() else text
    shown = "".join(VISIBLE.get(c, c if _has_glyph(c) else MISSING) for c in text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def typeface() -> dict[str, Any]:
    """How text of the user's is set: `$`, `_` and `\\` are characters like others."""
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
    """Nothing but what is drawn."""
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(visible=False)


def frame(ax: Axes, xlabel: str, ylabel: str = "") -> None:
    """Two thin axes with a light grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set(linewidth=0.6, color=MUTED)
    ax.tick_params(length=2.5, width=0.6, color=MUTED, labelcolor=INK, labelsize=8)
    ax.grid(color=FAINT, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.set_xlabel(literal(xlabel, 60), fontsize=8.5, color=INK, **typeface())
    ax.set_ylabel(literal(ylabel, 60), fontsize=8.5, color=INK, **typeface())


def fit(names: Sequence[str], space: float) -> bool:
    """Whether all of them can be read along so many points."""
    return SMALLEST * 1.1 * len(names) <= space


def name(
    axis: Axis, names: Sequence[str], space: float, *, upright: bool = False, longest: int = LONGEST
) -> None:
    """Write names along an axis of so many points: smaller where there are many, then every second, third …"""
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


def title(ax: Axes, main: str, second: str = "") -> None:
    """A line above the Axes, and a smaller one under it."""
    ax.set_title(main, loc="left", fontsize=10.5, color=INK, pad=17 if second else 6, **typeface())
    place: dict[str, Any] = {
        "xycoords": "axes fraction",
        "xytext": (0, 5),
        "textcoords": "offset points",
    }
    ax.annotate(second, (0, 1), **place, fontsize=8, color=MUTED, **typeface())


def legend(ax: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """Names of lines, to the right of the Axes."""
    names = [literal(label, LONGEST_NAME) for label in labels]
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": INK, "handlelength": 1.8}
    box = ax.legend(handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.02), **look)
    for text in box.get_texts():
        text.set(**typeface())

"""The colour scale of every view: scores relative to the largest, on legible backgrounds."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

STEPS = 20  # levels per hue: −20 is strongest against the label, 20 strongest for it, 0 uncoloured
BLUE = 250.0  # hue in degrees of scores for the label
ORANGE = 47.0  # against it; the two are distinguishable with any kind of colour blindness
BLACK = "#000000"
WHITE = "#ffffff"
SOFT = 0.09  # the chroma of coloured text on grey


@dataclass(frozen=True, slots=True)
class Theme:
    """Lightness and chroma in OKLCH, each for a score near zero and for the largest score."""

    lightness: tuple[float, float]
    chroma: tuple[float, float]
    least: int = 1  # smaller levels are not coloured


LIGHT = Theme(lightness=(1.0, 0.52), chroma=(0.0, 0.16))
DARK = Theme(lightness=(0.22, 0.7), chroma=(0.0, 0.15))
# For an unknown background: equally far from white and black, and greyer for small scores.
BETWEEN = Theme(lightness=(0.57, 0.57), chroma=(0.02, 0.16), least=2)
# Of 256 colours, those that do the same, the greyest first: for the label, and against it.
_EVEN = {True: (67, 33), False: (137, 202)}


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of scores in a view."""

    largest: float  # the |score| with the strongest colour; 0 if all scores are 0
    signed: bool

    @classmethod
    def of(cls, scores: Iterable[float]) -> "Scale":
        finite = [score for score in scores if math.isfinite(score)]
        return cls(max(map(abs, finite), default=0.0), any(score < 0 for score in finite))

    @classmethod
    def over(cls, scales: Iterable["Scale"]) -> "Scale":
        """One scale for several views."""
        given = list(scales)
        return cls(max(each.largest for each in given), any(each.signed for each in given))

    def share(self, score: float) -> float:
        """The score relative to the largest, −1 to 1."""
        if not self.largest or math.isnan(score):
            return 0.0
        return max(-1.0, min(1.0, score / self.largest))

    def level(self, score: float) -> int:
        share = STEPS * self.share(score)
        return int(math.copysign(math.floor(abs(share) + 0.5), share))  # as JavaScript rounds

    def number(self, score: float) -> str:
        """The score, to three significant digits of the largest, with a sign if signed."""
        places = 2 - math.floor(math.log10(self.largest)) if self.largest else 0
        digits = f".{max(3, places)}f" if places <= 8 else ".2e"
        sign = "+" if self.signed else ""
        return f"{score:{sign}{digits}}"


@dataclass(frozen=True, slots=True)
class Paint:
    """A background colour and a legible text colour, as #rrggbb."""

    background: str
    ink: str


@cache
def paint(level: int, theme: Theme) -> Paint:
    """The colours of a level between −STEPS and STEPS."""
    share = abs(level) / STEPS
    lightness = _between(theme.lightness, share)
    chroma = _between(theme.chroma, share)
    return painted(_hex(lightness, chroma, math.radians(BLUE if level > 0 else ORANGE)))


def _between(ends: tuple[float, float], share: float) -> float:
    low, high = ends
    return low + (high - low) * share


def painted(background: str) -> Paint:
    """The background with black or white text: one of them always has a contrast above 4.58."""
    return Paint(background, max(BLACK, WHITE, key=lambda ink: contrast(ink, background)))


def contrast(first: str, second: str) -> float:
    """The WCAG 2 contrast of two colours, from 1 (equal) to 21 (black on white); text needs 4.5."""
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def rgb(colour: str) -> tuple[int, int, int]:
    """#rrggbb as three integers from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


_CUBE = (0, 95, 135, 175, 215, 255)
# The 256-colour palette without its greys and the first 16 colours, which users can redefine.
_TERMINAL = {
    16 + 36 * r + 6 * g + b: f"#{_CUBE[r]:02x}{_CUBE[g]:02x}{_CUBE[b]:02x}"
    for r in range(6) for g in range(6) for b in range(6)
}  # fmt: skip
_GREYS = {232 + step: f"#{8 + 10 * step:02x}" + 2 * f"{8 + 10 * step:02x}" for step in range(24)}


@dataclass(frozen=True, slots=True)
class Numbered:
    """A background and its text colour as indices into a terminal's 256 colours."""

    background: int
    ink: int
    colours: Paint  # the same as #rrggbb


@cache
def paint_256(level: int, theme: Theme) -> Numbered | None:
    """The nearest of 256 colours with the level's hue, so that its sign stays recognisable.

    The palette has no weak dark colours: where a grey is nearer, the text has the hue. None if the
    uncoloured background is nearer.
    """
    if theme == BETWEEN:
        even = _EVEN[level > 0]
        return _numbered(even[len(even) * (abs(level) - 1) // STEPS])
    wanted = _oklab(paint(level, theme).background)
    hue = math.atan2(wanted[2], wanted[1])
    distance, best = _nearest(wanted, _with_hue(hue))
    ground = _oklab(paint(0, theme).background)
    grey_distance, grey = _nearest(wanted, _GREYS)
    if math.dist(wanted, ground) < min(distance, grey_distance):
        return None
    return _numbered(best) if distance <= grey_distance else _tinted(grey, hue)


def _nearest(wanted: tuple[float, float, float], palette: dict[int, str]) -> tuple[float, int]:
    return min((math.dist(wanted, _oklab(colour)), number) for number, colour in palette.items())


def _with_hue(hue: float) -> dict[int, str]:
    return {number: colour for number, colour in _TERMINAL.items() if _has_hue(_oklab(colour), hue)}


def _numbered(background: int) -> Numbered:
    colours = painted(_TERMINAL[background])
    return Numbered(background, 231 if colours.ink == WHITE else 16, colours)


def _tinted(grey: int, hue: float) -> Numbered:
    """A legible text of a hue on a grey; not a vivid one, which would look like a strong score."""
    background = _GREYS[grey]
    inks = {n: c for n, c in _with_hue(hue).items() if contrast(c, background) >= 4.5}
    ink = min(inks, key=lambda number: abs(math.hypot(*_oklab(inks[number])[1:]) - SOFT))
    return Numbered(grey, ink, Paint(background, inks[ink]))


def _has_hue(lab: tuple[float, float, float], hue: float) -> bool:
    """Whether a colour is not grey and lies within 30 degrees of a hue."""
    _, a, b = lab
    turn = math.remainder(math.atan2(b, a) - hue, math.tau)
    return math.hypot(a, b) > 0.03 and abs(turn) < math.radians(30)


def _linear(colour: str) -> list[float]:
    """Linear RGB: sRGB with its gamma removed."""
    shares = [part / 255 for part in rgb(colour)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in shares]


def _luminance(colour: str) -> float:
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _oklab(colour: str) -> tuple[float, float, float]:
    """Björn Ottosson's OKLab: lightness and two colour axes; its distances are perceptual."""
    r, g, b = _linear(colour)
    l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)  # noqa: E741  # its name in OKLab
    m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    )


def _hex(lightness: float, chroma: float, hue: float) -> str:
    """OKLCH as #rrggbb; chroma is reduced until the colour is in the sRGB gamut."""
    while True:
        parts = _from_oklab(lightness, chroma * math.cos(hue), chroma * math.sin(hue))
        if chroma < 1e-3 or all(-1e-4 <= part <= 1.0001 for part in parts):
            break
        chroma *= 0.97
    shares = [max(0.0, min(1.0, part)) for part in parts]
    curved = [
        12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055 for part in shares
    ]
    return "#" + "".join(f"{round(255 * part):02x}" for part in curved)


def _from_oklab(lightness: float, a: float, b: float) -> tuple[float, float, float]:
    l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3  # noqa: E741  # its name in OKLab
    m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
    )

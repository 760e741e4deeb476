"""One scale for every view: a score becomes a share of the largest, and a share a colour that text can be read on."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

STEPS = 20  # of a hue; level −20 speaks strongest against the label, 20 strongest for it, 0 has no colour
BLUE, ORANGE = (
    250.0,
    47.0,
)  # hues in degrees: for and against, apart for every kind of colour blindness
BLACK, WHITE = "#000000", "#ffffff"


@dataclass(frozen=True, slots=True)
class Theme:
    """How colours grow with a score, in OKLCH: lightness and chroma next to no score, and at the largest."""

    lightness: tuple[float, float]
    chroma: tuple[float, float]
    least: int = 1  # smaller levels are left without a colour


LIGHT = Theme(lightness=(1.0, 0.52), chroma=(0.0, 0.16))
DARK = Theme(lightness=(0.22, 0.7), chroma=(0.0, 0.15))
# Light or dark, nobody knows: as far from white as from black, and paler where a score is small.
BETWEEN = Theme(lightness=(0.72, 0.62), chroma=(0.04, 0.17), least=2)


@dataclass(frozen=True, slots=True)
class Scale:
    """What the scores of one attribution are measured by."""

    largest: float  # |score| that gets the strongest colour; 0: there is none
    signed: bool

    @classmethod
    def of(cls, scores: Iterable[float]) -> "Scale":
        finite = [score for score in scores if math.isfinite(score)]
        return cls(max(map(abs, finite), default=0.0), any(score < 0 for score in finite))

    def share(self, score: float) -> float:
        """The score as a part of the largest, −1 to 1."""
        if not self.largest or math.isnan(score):
            return 0.0
        return max(-1.0, min(1.0, score / self.largest))

    def level(self, score: float) -> int:
        return round(STEPS * self.share(score))

    def number(self, score: float) -> str:
        """The score with as many digits as the largest needs for three that count, and a sign where signs differ."""
        places = 2 - math.floor(math.log10(self.largest)) if self.largest else 0
        form = f".{max(3, places)}f" if places <= 8 else ".2e"
        return f"{score:{'+' if self.signed else ''}{form}}"


@dataclass(frozen=True, slots=True)
class Paint:
    """A background and the ink that can be read on it, as #rrggbb."""

    background: str
    ink: str


@cache
def paint(level: int, theme: Theme) -> Paint:
    """The colours of a level, −STEPS to STEPS."""
    share = abs(level) / STEPS
    lightness, chroma = (
        low + (high - low) * share for low, high in (theme.lightness, theme.chroma)
    )
    return painted(_vivid(lightness, chroma, math.radians(BLUE if level > 0 else ORANGE)))


def painted(background: str) -> Paint:
    """Black or white, whichever is easier to read: one of the two always has a contrast above 4.58."""
    return Paint(background, max(BLACK, WHITE, key=lambda ink: contrast(ink, background)))


def contrast(first: str, second: str) -> float:
    """The contrast of two colours by WCAG 2: 1 for equal ones, 21 for black on white; text needs 4.5."""
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def rgb(colour: str) -> tuple[int, int, int]:
    """#rrggbb as three numbers up to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


_CUBE = (0, 95, 135, 175, 215, 255)
_TERMINAL = {  # what 256 colours are, without the first 16, which are the user's own, and without the greys
    16 + 36 * r + 6 * g + b: f"#{_CUBE[r]:02x}{_CUBE[g]:02x}{_CUBE[b]:02x}"
    for r in range(6) for g in range(6) for b in range(6)
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Numbered:
    """A background and its ink as numbers of a terminal that has 256 colours."""

    background: int
    ink: int
    colours: Paint  # what they look like


@cache
def paint_256(level: int, theme: Theme) -> Numbered | None:
    """The closest of 256 colours that has the level's hue, so that its sign is kept; None where no colour is closer."""
    wanted = _oklab(paint(level, theme).background)
    hue = math.atan2(wanted[2], wanted[1])
    alike = {
        number: lab
        for number, colour in _TERMINAL.items()
        if math.hypot(*(lab := _oklab(colour))[1:]) > 0.03
        and abs(math.remainder(math.atan2(lab[2], lab[1]) - hue, math.tau)) < math.radians(30)
    }
    best = min(alike, key=lambda number: math.dist(wanted, alike[number]))
    bare = not theme.chroma[0]  # the theme starts at the page's own colour
    if bare and math.dist(wanted, _oklab(paint(0, theme).background)) < math.dist(
        wanted, alike[best]
    ):
        return None
    colours = painted(_TERMINAL[best])
    return Numbered(best, 231 if colours.ink == WHITE else 16, colours)


def _linear(colour: str) -> list[float]:
    """sRGB without its gamma."""
    shares = [part / 255 for part in rgb(colour)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in shares]


def _luminance(colour: str) -> float:
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _oklab(colour: str) -> tuple[float, float, float]:
    """Björn Ottosson's OKLab: lightness and two axes of colour, distances in it are what the eye sees."""
    r, g, b = _linear(colour)
    l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)  # noqa: E741  # its own name
    m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    )


def _vivid(lightness: float, chroma: float, hue: float) -> str:
    """OKLCH as #rrggbb; a colour that a screen cannot show is made paler until it can."""
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
    l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3  # noqa: E741  # its own name
    m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
    )

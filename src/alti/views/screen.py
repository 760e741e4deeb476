"""What a terminal can show: colours, columns, and text that is wrapped and painted."""

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from alti._characters import harmless
from alti.views.colours import BETWEEN, DARK, LIGHT, Scale, Theme, paint, paint_256, rgb
from alti.views.said import apart
from alti.views.segments import Piece

# How many colours a terminal has.
ALL = 1 << 24
SOME = 256
NONE = 0

BOLD = "\x1b[1m"
DIM = "\x1b[2m"
RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Style:
    """What a terminal can show."""

    colours: int  # ALL, SOME or NONE
    theme: Theme = BETWEEN
    width: int = 80

    @classmethod
    def here(cls) -> "Style":
        """The style of the current terminal; a pipe has no colours."""
        colours = colours_of(sys.stdout, os.environ)
        theme = {None: BETWEEN, True: DARK, False: LIGHT}[_dark(os.environ)]
        return cls(colours, theme, max(30, shutil.get_terminal_size().columns))

    def painted(self, text: str, level: int) -> str:
        """The text on the background of a level."""
        if abs(level) < self.theme.least or not self.colours or not text:
            return text
        if self.colours == ALL:
            colour = paint(level, self.theme)
            return f"\x1b[38;2;{_code(colour.ink)};48;2;{_code(colour.background)}m{text}{RESET}"
        indexed = paint_256(level, self.theme)
        if indexed is None:
            return text
        return f"\x1b[38;5;{indexed.ink};48;5;{indexed.background}m{text}{RESET}"

    def drawn(self, text: str, level: int) -> str:
        """The text in the colour of a level."""
        if self.colours == ALL:
            return f"\x1b[38;2;{_code(paint(level, self.theme).background)}m{text}{RESET}"
        indexed = paint_256(level, self.theme)
        if indexed is None or not self.colours:
            return text
        return f"\x1b[38;5;{indexed.background}m{text}{RESET}"

    def set(self, text: str, how: str) -> str:
        """The text in bold or dim."""
        return f"{how}{text}{RESET}" if self.colours and text else text


def _code(colour: str) -> str:
    return ";".join(map(str, rgb(colour)))


def colours_of(stream: TextIO, environ: Mapping[str, str]) -> int:
    """How many colours to use: NO_COLOR and FORCE_COLOR override what the terminal reports."""
    if environ.get("NO_COLOR"):
        return NONE
    force = environ.get("FORCE_COLOR", "")
    term = environ.get("TERM", "")
    if force.lower() in ("0", "false", "no"):
        return NONE
    if not force and (term == "dumb" or not stream.isatty()):
        return NONE
    if force == "3" or _has_true_colour(environ, term):
        return ALL
    with_256 = ("256", "xterm", "screen", "tmux", "rxvt", "linux")
    return SOME if force or any(name in term for name in with_256) else NONE


def _has_true_colour(environ: Mapping[str, str], term: str) -> bool:
    return (
        environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
        or bool(environ.get("WT_SESSION"))
        or term.endswith("-direct")
        or term in ("xterm-kitty", "xterm-ghostty", "alacritty")
    )


def _dark(environ: Mapping[str, str]) -> bool | None:
    """Whether the background is dark; None if the terminal does not say, and few do."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return int(background) in (0, 1, 2, 3, 4, 5, 6, 8) if background.isdecimal() else None


@dataclass(frozen=True, slots=True)
class _Cell:
    """A character with its combining accents."""

    text: str
    width: int
    level: int | None  # None: dim


def paragraphs(
    shown: Iterable[Iterable[Piece]], scale: Scale, style: Style, width: int
) -> list[str]:
    """The texts as coloured lines, with an empty line between two texts."""
    lines: list[str] = []
    for i, passage in enumerate(shown):
        lines += [""] if i else []
        lines += [_joined(line, style) for line in _wrapped(_cells(passage, scale), width)]
    return lines


def _cells(passage: Iterable[Piece], scale: Scale) -> Iterator[_Cell]:
    """The characters of a text; special tokens and unscored text are dim."""
    for i, piece in enumerate(passage):
        text = piece.text
        if not text:
            token = piece.tokens[0][0]
            text = f" {token}" if i else f"{token} "
        dim = piece.special or piece.score is None
        level = None if dim else scale.level(piece.score or 0.0)
        yield from (_Cell(cluster, cells(cluster), level) for cluster in _clusters(harmless(text)))
        if piece.unknown and not piece.special:
            yield from (_Cell(letter, cells(letter), None) for letter in harmless(piece.unknown))


def _wrapped(characters: Iterable[_Cell], width: int) -> Iterator[list[_Cell]]:
    """Lines, broken at newlines, at spaces, next to wide characters, and inside overlong words."""
    line: list[_Cell] = []
    used = 0  # columns
    break_at = 0  # the last index where the line may be broken; 0: nowhere
    for cell in characters:
        if cell.text == "\n":
            yield line
            line = []
            used = 0
            break_at = 0
            continue
        if used + cell.width > width and not cell.text.isspace():
            break_at = break_at or len(line)
            yield line[:break_at]
            line = line[break_at:]
            break_at = 0
            used = sum(other.width for other in line)
        line.append(cell)
        used += cell.width
        if cell.text.isspace() or cell.width == 2:
            break_at = len(line)
    yield line


def _joined(line: list[_Cell], style: Style) -> str:
    """A line as a string, with one escape sequence for each run of equal levels."""
    while line and line[-1].text.isspace():
        line = line[:-1]
    runs = []
    for level, run in groupby(line, key=lambda cell: cell.level):
        text = "".join(cell.text for cell in run)
        if level is not None:
            text = style.painted(text, level)
        elif not text.isspace():
            text = style.set(text, DIM)
        runs.append(text)
    return "".join(runs)


def _clusters(text: str) -> Iterator[str]:
    """Characters with their accents, variation selectors and zero-width-joined neighbours."""
    start = 0
    for at in range(1, len(text)):
        joined = _zero_width(text[at]) or text[at - 1] == "\u200d"
        if not joined or "\n" in (text[start], text[at]):
            yield text[start:at]
            start = at
    if text:
        yield text[start:]


def padded(text: str, width: int) -> str:
    """The text and spaces behind it, up to this many columns."""
    return text + " " * (width - cells(text))


def clipped(text: str, width: int) -> str:
    """The text in at most this many columns, with … where something was cut off."""
    if cells(text) <= width:
        return text
    kept = ""
    for cluster in _clusters(text):
        if cells(kept + cluster) >= width:
            break
        kept += cluster
    return f"{kept.rstrip()}…"


def clipped_name(name: str, width: int) -> str:
    """A name in about this many columns; what the model read instead of it stays whole."""
    typed, read = apart(name)
    return clipped(typed, max(2, width - cells(read))) + read


def _zero_width(character: str) -> bool:
    """Whether a character takes no column: an accent, a joiner, a skin tone."""
    skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    return skin_tone or unicodedata.category(character) in ("Mn", "Me", "Cf")


def cells(text: str) -> int:
    """The number of columns a text takes: two for a wide character, none for an accent."""
    width = 0
    for at, character in enumerate(text):
        if character == "\ufe0f" and at and unicodedata.east_asian_width(text[at - 1]) not in "WF":
            width += 1  # the emoji form of a character: ❤️ is as wide as 😀
        elif not _zero_width(character) and not (at and text[at - 1] == "\u200d"):
            width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return width

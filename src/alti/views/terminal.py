"""The user's text with coloured backgrounds, or bars, for a terminal."""

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TextIO

from alti._characters import harmless, plain
from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.views.colours import BETWEEN, DARK, LIGHT, STEPS, Scale, Theme, paint, paint_256, rgb
from alti.views.segments import (
    Piece,
    chance_of,
    label_of,
    method_of,
    passages,
    rest_of,
    scale_of,
    told_rest,
)

ALL, SOME, NONE = 1 << 24, 256, 0  # how many colours a terminal has
LINES, BAR = 40, 24  # of the view with bars
MARGIN = 28  # columns for a method's name, at most
BOLD, DIM, RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Style:
    """What a terminal can show."""

    colours: int  # ALL, SOME or NONE
    theme: Theme = BETWEEN
    width: int = 80

    @classmethod
    def here(cls) -> "Style":
        """What the terminal says about itself; a pipe has no colours."""
        theme = {None: BETWEEN, True: DARK, False: LIGHT}[_dark(os.environ)]
        return cls(
            colours_of(sys.stdout, os.environ), theme, max(30, shutil.get_terminal_size().columns)
        )

    def painted(self, text: str, level: int) -> str:
        """The text on the background of a level."""
        if abs(level) < self.theme.least or not self.colours or not text:
            return text
        colour = paint(level, self.theme)
        if self.colours == ALL:
            ink, ground = (
                ";".join(map(str, rgb(part))) for part in (colour.ink, colour.background)
            )
            return f"\x1b[38;2;{ink};48;2;{ground}m{text}{RESET}"
        few = paint_256(level, self.theme)
        return f"\x1b[38;5;{few.ink};48;5;{few.background}m{text}{RESET}" if few else text

    def drawn(self, text: str, level: int) -> str:
        """The text in the colour of a level."""
        if self.colours == ALL:
            return f"\x1b[38;2;{';'.join(map(str, rgb(paint(level, self.theme).background)))}m{text}{RESET}"
        few = paint_256(level, self.theme)
        return f"\x1b[38;5;{few.background}m{text}{RESET}" if self.colours and few else text

    def set(self, text: str, how: str) -> str:
        """The text in bold or dim."""
        return f"{how}{text}{RESET}" if self.colours and text else text


def colours_of(stream: TextIO, environ: Mapping[str, str]) -> int:
    """How many colours may be used: NO_COLOR and FORCE_COLOR have the first word, then comes what the terminal says."""
    if environ.get("NO_COLOR"):
        return NONE
    force, term = environ.get("FORCE_COLOR", ""), environ.get("TERM", "")
    if force.lower() in ("0", "false", "no"):
        return NONE
    if not force and (term == "dumb" or not stream.isatty()):
        return NONE
    if force == "3" or environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return ALL
    if (
        environ.get("WT_SESSION")
        or term.endswith("-direct")
        or term in ("xterm-kitty", "xterm-ghostty", "alacritty")
    ):
        return ALL
    many = ("256", "xterm", "screen", "tmux", "rxvt", "linux")
    return SOME if force or any(name in term for name in many) else NONE


def _dark(environ: Mapping[str, str]) -> bool | None:
    """Whether the background is dark, where the terminal tells; few do."""
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return None if not ground.isdecimal() else int(ground) in (0, 1, 2, 3, 4, 5, 6, 8)


def render(
    found: Attribution, *, words: bool = True, bars: bool = False, style: Style | None = None
) -> str:
    """The prediction, then the text on coloured backgrounds; bars where they are asked for or there are no colours."""
    to = style or Style.here()
    if bars or not to.colours:
        return "\n".join([_headline(found, to), *_bars(found, to, words)])
    shown = passages(found, words=words)
    scale = scale_of(found, shown)
    body = [line for passage in shown for line in ("", *_text(passage, scale, to, to.width - 2))]
    low, high, whom = scale.number(-scale.largest), scale.number(scale.largest), _whom(found)
    ends = (f"{low} against", f"{whom} {high}") if scale.signed else ("0", high)
    legend = _legend(*ends, scale.signed, to) if scale.largest else to.set("every score is 0", DIM)
    rest = [to.set(told, DIM)] if words and (told := told_rest(found, scale)) else []
    return "\n".join(
        [_headline(found, to), *(f"  {line}".rstrip() for line in (*body, "", legend, *rest))]
    )


def compare(
    found: Sequence[Attribution],
    *,
    words: bool = True,
    bars: bool = False,
    style: Style | None = None,
) -> str:
    """Several attributions of one text, a paragraph each with its method in the margin; without colours, a table."""
    if not found:
        raise UsageError("there is nothing to compare: give at least one attribution")
    to = style or Style.here()
    if bars or not to.colours:
        return _table(found, to, words)
    names = [plain(method_of(one)) for one in found]
    margin = min(MARGIN, max(map(cells, names)))
    margin = (
        0 if to.width < 2 * margin + 20 else margin
    )  # too narrow: the names get lines of their own
    lines, signed = [_headline(found[0], to, method=False)], False
    for one, name in zip(found, names, strict=True):
        shown = passages(one, words=words)
        scale = scale_of(one, shown)
        body = [
            line
            for passage in shown
            for line in ("", *_text(passage, scale, to, to.width - margin - 4))
        ]
        lines += ["", *_beside(name, body[1:], margin, to)]
        signed |= scale.signed
    ends = ("against", _whom(found[0])) if signed else ("little", "much")
    return "\n".join([*lines, "", f"  {_legend(*ends, signed, to)}"])


def _beside(name: str, body: list[str], margin: int, to: Style) -> Iterator[str]:
    """A paragraph with a name in its margin, or above it where there is none."""
    if not margin:
        yield f"  {to.set(name, BOLD)}"
        yield from (f"  {line}" for line in body)
        return
    names = [name[at : at + margin] for at in range(0, len(name), margin)]
    for left, line in zip_longest(names, body, fillvalue=""):
        yield f"  {to.set(left, BOLD)}{' ' * (margin - cells(left))}  {line}".rstrip()


def _headline(found: Attribution, to: Style, *, method: bool = True) -> str:
    label = plain(label_of(found))
    chance = chance_of(found)
    chance = f"({chance})" if chance.startswith("p") else chance
    parts = [" ".join(part for part in (to.set(label, BOLD), chance) if part)]
    parts += [plain(method_of(found))] if method else []
    parts += [plain(found.model)]
    parts += [f"cut: {sum(map(len, found.cut))} characters"] if found.cut else []
    return " · ".join(part for part in parts if part)


def _legend(left: str, right: str, signed: bool, to: Style) -> str:
    """All colours between two ends."""
    levels = range(-STEPS if signed else 4, STEPS + 1, 4)
    return f"{to.set(left, DIM)} {''.join(to.painted('  ', level) for level in levels)} {to.set(right, DIM)}"


def _whom(found: Attribution) -> str:
    return f"for {plain(label_of(found))}".rstrip()


def _bars(found: Attribution, to: Style, words: bool) -> list[str]:
    """Each word (or token) with a bar, or the best of them where there are many."""
    view = found.words() if words else found
    shown = list(view) if len(view) <= LINES else view.top(LINES)
    scale = Scale.of(score for _, score in shown)
    width = max((cells(plain(word)) for word, _ in shown), default=0)
    lines = []
    for word, score in shown:
        name, bar = plain(word), _bar(scale.share(score))
        bar = to.drawn(bar, STEPS if score > 0 else -STEPS) if bar else ""
        lines.append(
            f"  {name}{' ' * (width - cells(name))}  {scale.number(score)}  {bar}".rstrip()
        )
    if len(shown) < len(view):
        lines.append(f"  … and {len(view) - len(shown)} more")
    lines += ["  " + to.set(rest, DIM)] if words and (rest := told_rest(found, scale)) else []
    return lines


def _bar(share: float) -> str:
    """A bar of up to BAR characters, eighths of one included; a negative one is grey."""
    eighths = round(abs(share) * BAR * 8)
    if share < 0:
        return "▒" * -(-eighths // 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _table(found: Sequence[Attribution], to: Style, words: bool) -> str:
    """A row for each word, a column for each method; scores as shares of all tokens' ℓ1 norm, so that methods compare.

    Under the words stands what the special tokens hold.
    """
    views = [one.words() if words else one for one in found]
    if len({(view.tokens, view.offsets) for view in views}) > 1:
        raise UsageError(
            "attributions of different texts have no common rows: compare those of one text and model"
        )
    columns = []
    for one, view in zip(found, views, strict=True):
        scores, scale, rest = view.scores.tolist(), Scale.of(view.scores.tolist()), rest_of(one)
        total = float(one.scores.abs().sum()) or 1.0
        sign = "+" if scale.signed else ""
        levels = [(score, scale.level(score)) for score in scores] + ([(rest, 0)] if words else [])
        columns.append([(f"{score / total:{sign}.3f}", level) for score, level in levels])
    heads = [plain(method_of(one)) for one in found]
    widths = [
        max([cells(head), *(len(text) for text, _ in column)])
        for head, column in zip(heads, columns, strict=True)
    ]
    tokens = [plain(token) for token in views[0].tokens] + (["special tokens"] if words else [])
    first = max(map(cells, tokens), default=0)
    rows = [_headline(found[0], to, method=False)]
    rows.append(
        " " * first
        + "".join(f"  {to.set(f'{h:>{w}}', BOLD)}" for h, w in zip(heads, widths, strict=True))
    )
    for i, token in enumerate(tokens):
        numbers = (
            " " * (w - len(c[i][0])) + to.painted(*c[i])
            for c, w in zip(columns, widths, strict=True)
        )
        rows.append("  ".join([token + " " * (first - cells(token)), *numbers]))
    return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A character with the accents that belong to it."""

    text: str
    width: int
    level: int | None  # None: dim


def _text(passage: Iterable[Piece], scale: Scale, to: Style, room: int) -> list[str]:
    """One text as painted lines."""
    return [_joined(line, to) for line in _lines(_cells(passage, scale), room)]


def _cells(passage: Iterable[Piece], scale: Scale) -> Iterator[_Cell]:
    """The characters of a text; special tokens and what was not scored are dim."""
    for at, piece in enumerate(passage):
        text = piece.text or (f" {piece.tokens[0][0]}" if at else f"{piece.tokens[0][0]} ")
        dim = piece.special or piece.score is None
        level = None if dim else scale.level(piece.score or 0.0)
        yield from (_Cell(cluster, cells(cluster), level) for cluster in _clusters(harmless(text)))


def _lines(found: Iterable[_Cell], room: int) -> Iterator[list[_Cell]]:
    """Cells on lines: broken at newlines, at spaces, beside wide characters, and in a word that is too long."""
    line: list[_Cell] = []
    used = chance = 0  # columns taken; where the line may be broken
    for cell in found:
        if cell.text == "\n":
            yield line
            line, used, chance = [], 0, 0
            continue
        if used + cell.width > room and not cell.text.isspace():
            chance = chance or len(line)
            yield line[:chance]
            line, chance = line[chance:], 0
            used = sum(other.width for other in line)
        line.append(cell)
        used += cell.width
        if cell.text.isspace() or cell.width == 2:
            chance = len(line)
    yield line


def _joined(line: list[_Cell], to: Style) -> str:
    """A line's cells, neighbours of one level in one stretch of colour."""
    while line and line[-1].text.isspace():
        line = line[:-1]
    made, at = "", 0
    while at < len(line):
        end = next((i for i in range(at, len(line)) if line[i].level != line[at].level), len(line))
        text, level = "".join(cell.text for cell in line[at:end]), line[at].level
        made += (
            to.painted(text, level)
            if level is not None
            else text
            if text.isspace()
            else to.set(text, DIM)
        )
        at = end
    return made


def _clusters(text: str) -> Iterator[str]:
    """Characters with what is set on them: accents, variations, what is joined by a zero-width joiner."""
    start = 0
    for at in range(1, len(text)):
        joined = _thin(text[at]) or text[at - 1] == "\u200d"
        if not joined or "\n" in (text[start], text[at]):
            yield text[start:at]
            start = at
    if text:
        yield text[start:]


def _thin(character: str) -> bool:
    """Whether it takes no column of its own: an accent, a joiner, a skin tone."""
    return (
        unicodedata.category(character) in ("Mn", "Me", "Cf")
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def cells(text: str) -> int:
    """The columns that a text takes: two for a wide character, none for an accent."""
    width = 0
    for at, character in enumerate(text):
        if character == "\ufe0f" and at and unicodedata.east_asian_width(text[at - 1]) not in "WF":
            width += 1  # an emoji by request: ❤️ is as wide as 😀
        elif not _thin(character) and not (at and text[at - 1] == "\u200d"):
            width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return width

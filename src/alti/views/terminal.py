"""The user's text on coloured backgrounds, or as bars, for a terminal."""

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from typing import TextIO

from alti._characters import harmless, plain
from alti._errors import UsageError
from alti.model.attribution import Attribution, Attributions
from alti.views.colours import BETWEEN, DARK, LIGHT, STEPS, Scale, Theme, paint, paint_256, rgb
from alti.views.segments import (
    Piece,
    chance_of,
    cut_note,
    label_of,
    method_of,
    passages,
    scale_of,
    special_note,
    special_total,
)

# How many colours a terminal has.
ALL = 1 << 24
SOME = 256
NONE = 0

LINES = 40  # of the bar view
MOST = 3  # words in the line of a prediction
BAR = 24  # columns of the longest bar
MARGIN = 28  # the most columns for a method's name
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


def render(
    attribution: Attribution | Attributions,
    *,
    words: bool = True,
    bars: bool = False,
    style: Style | None = None,
) -> str:
    """The prediction and the text on coloured backgrounds; bars on request or without colours.

    Of several predictions, one line each: where it is read, what it is, what it rests on most.
    """
    style = style or Style.here()
    if isinstance(attribution, Attributions):
        return "\n".join(_predictions(attribution, style, words))
    headline = _headline(attribution, style)
    if bars or not style.colours:
        return "\n".join([headline, *_bars(attribution, style, words)])
    shown = passages(attribution, words=words)
    scale = scale_of(attribution, shown)
    lines = ["", *_paragraphs(shown, scale, style, style.width - 2)]
    lines += ["", _scale_legend(attribution, scale, style)]
    if words:
        lines += _special_line(attribution, scale, style)
    return "\n".join([headline, *(f"  {line}".rstrip() for line in lines)])


def _predictions(attributions: Attributions, style: Style, words: bool) -> Iterator[str]:
    """A headline, then a line for each prediction with the words that it rests on most."""
    about = (f"{len(attributions)} predictions", method_of(attributions[0]), attributions.model)
    yield " · ".join(plain(part) for part in about if part)
    places = [_place(attribution) for attribution in attributions]
    labels = [_headline(replace(each, model=""), style, method=False) for each in attributions]
    widths = [max(map(cells, column)) for column in (places, [_bare(label) for label in labels])]
    for attribution, place, label in zip(attributions, places, labels, strict=True):
        view = attribution.words() if words and not attribution.source.groups else attribution
        ranked = ((plain(word), score) for word, score in view.top(MOST) if score)
        best = "  ".join(f"{word} {score:.3f}" for word, score in ranked)
        gaps = (" " * (widths[0] - cells(place)), " " * (widths[1] - cells(_bare(label))))
        yield f"  {place}{gaps[0]}  {label}{gaps[1]}  {style.set(best, DIM)}".rstrip()


def _place(attribution: Attribution) -> str:
    """The position that a prediction is read from, and its token."""
    if attribution.position is None:
        return ""
    return plain(f"{attribution.position} {attribution.tokens[attribution.position]} →")


def _bare(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def _scale_legend(attribution: Attribution, scale: Scale, style: Style) -> str:
    if not scale.largest:
        return style.set("every score is 0", DIM)
    high = scale.number(scale.largest)
    if not scale.signed:
        return _legend("0", high, False, style)
    low = scale.number(-scale.largest)
    return _legend(f"{low} against", f"{_for_label(attribution)} {high}", True, style)


def _special_line(attribution: Attribution, scale: Scale, style: Style) -> list[str]:
    note = special_note(attribution, scale)
    return [style.set(note, DIM)] if note else []


def compare(
    attributions: Sequence[Attribution],
    *,
    words: bool = True,
    bars: bool = False,
    style: Style | None = None,
) -> str:
    """Several attributions of one text, a paragraph each with its method in the margin.

    Without colours, a table.
    """
    if not attributions:
        raise UsageError("there is nothing to compare: give at least one attribution")
    style = style or Style.here()
    if bars or not style.colours:
        return _table(attributions, style, words)
    names = [plain(method_of(attribution)) for attribution in attributions]
    margin = min(MARGIN, max(map(cells, names)))
    if style.width < 2 * margin + 20:  # too narrow: names go on their own lines
        margin = 0
    lines = [_headline(attributions[0], style, method=False)]
    signed = False
    for attribution, name in zip(attributions, names, strict=True):
        shown = passages(attribution, words=words)
        scale = scale_of(attribution, shown)
        body = _paragraphs(shown, scale, style, style.width - margin - 4)
        lines += ["", *_beside(name, body, margin, style)]
        signed |= scale.signed
    ends = ("against", _for_label(attributions[0])) if signed else ("little", "much")
    return "\n".join([*lines, "", f"  {_legend(*ends, signed, style)}"])


def _beside(name: str, body: list[str], margin: int, style: Style) -> Iterator[str]:
    """A paragraph with a name in its margin, or above it if there is no margin."""
    if not margin:
        yield f"  {style.set(name, BOLD)}"
        yield from (f"  {line}" for line in body)
        return
    names = [name[start : start + margin] for start in range(0, len(name), margin)]
    for left, line in zip_longest(names, body, fillvalue=""):
        padding = " " * (margin - cells(left))
        yield f"  {style.set(left, BOLD)}{padding}  {line}".rstrip()


def _headline(attribution: Attribution, style: Style, *, method: bool = True) -> str:
    label = style.set(plain(label_of(attribution)), BOLD)
    chance = chance_of(attribution)
    chance = f"({chance})" if chance.startswith("p") else chance
    parts = [
        " ".join(filter(None, (label, chance))),
        plain(method_of(attribution)) if method else "",
        plain(attribution.model),
        cut_note(attribution),
    ]
    return " · ".join(filter(None, parts))


def _legend(left: str, right: str, signed: bool, style: Style) -> str:
    """The colour ramp between two ends."""
    levels = range(-STEPS if signed else 4, STEPS + 1, 4)
    ramp = "".join(style.painted("  ", level) for level in levels)
    return f"{style.set(left, DIM)} {ramp} {style.set(right, DIM)}"


def _for_label(attribution: Attribution) -> str:
    return f"for {plain(label_of(attribution))}".rstrip()


def _bars(attribution: Attribution, style: Style, words: bool) -> list[str]:
    """Each word (or token) with a bar; only the highest scores if there are many."""
    view = attribution.words() if words else attribution
    shown = list(view) if len(view) <= LINES else view.top(LINES)
    scale = Scale.of(score for _, score in shown)
    width = max((cells(plain(word)) for word, _ in shown), default=0)
    lines = []
    for word, score in shown:
        bar = _bar(scale.share(score))
        coloured = style.drawn(bar, STEPS if score > 0 else -STEPS) if bar else ""
        lines.append(f"  {_padded(plain(word), width)}  {scale.number(score)}  {coloured}".rstrip())
    if len(shown) < len(view):
        lines.append(f"  … and {len(view) - len(shown)} more")
    if words:
        lines += [f"  {line}" for line in _special_line(attribution, scale, style)]
    return lines


def _bar(share: float) -> str:
    """A bar of up to BAR columns, in eighths of a column; grey if it is negative."""
    eighths = round(abs(share) * BAR * 8)
    if share < 0:
        return "▒" * -(-eighths // 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def _table(attributions: Sequence[Attribution], style: Style, words: bool) -> str:
    """A row for each word, a column for each method, and a last row for the special tokens.

    Scores are divided by the ℓ1 norm over all tokens, so that methods can be compared.
    """
    views = [attribution.words() if words else attribution for attribution in attributions]
    if len({(view.tokens, view.offsets) for view in views}) > 1:
        raise UsageError(
            "attributions of different texts have no common rows: "
            "compare those of one text and model"
        )
    names = [plain(token) for token in views[0].tokens] + (["special tokens"] if words else [])
    first = max(map(cells, names), default=0)
    head = " " * first
    rows = [_padded(name, first) for name in names]
    for attribution, view in zip(attributions, views, strict=True):
        column = _column(attribution, view, words)
        method = plain(method_of(attribution))
        width = max([cells(method), *(len(number) for number, _ in column)])
        head += f"  {style.set(f'{method:>{width}}', BOLD)}"
        for i, (number, level) in enumerate(column):
            rows[i] += "  " + " " * (width - len(number)) + style.painted(number, level)
    return "\n".join([_headline(attributions[0], style, method=False), head, *rows])


def _column(attribution: Attribution, view: Attribution, words: bool) -> list[tuple[str, int]]:
    """The numbers of one method in a table, each with the level of its colour."""
    scores = view.scores.tolist()
    scale = Scale.of(scores)
    levels = [(score, scale.level(score)) for score in scores]
    if words:
        levels.append((special_total(attribution), 0))
    norm = float(attribution.scores.abs().sum()) or 1.0
    sign = "+" if scale.signed else ""
    return [(f"{score / norm:{sign}.3f}", level) for score, level in levels]


@dataclass(frozen=True, slots=True)
class _Cell:
    """A character with its combining accents."""

    text: str
    width: int
    level: int | None  # None: dim


def _paragraphs(
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

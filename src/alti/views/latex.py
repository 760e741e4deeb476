r"""The paper's saliency maps: words in five shades of blue, as a table or a complete document.

Scores that speak against the prediction are orange, on the same scale; a line below the text says
what the shades are of.

Any character is accepted: one that LaTeX cannot set by itself is set if a package for its script is
installed, and otherwise shown as its code point, like U+1F600.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest

from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.views import lens
from alti.views.colours import WHITE, Scale, painted
from alti.views.said import (
    Shown,
    chance_of,
    is_text,
    label_of,
    method_of,
    notes,
    number_of,
    order_of,
    scale_name,
    sections,
    shortened,
    side_of,
    unnamed,
    whole_answer,
)
from alti.views.segments import Piece, passages, scores_of

BINS = ("FFFFFF", "D0E1F2", "94C4DF", "4A98C9", "1764AB")  # the paper's, a fifth of the range each
AGAINST = ("FDD9B4", "FDA762", "F3701B", "C54102")  # as light as BINS[1:]; shades 5 to 8
SHADES = (*BINS, *AGAINST)
LONGEST = 24  # characters in one coloured box, inside which LaTeX cannot break a line
CUT = 70  # characters of a group's text
FULL = 500  # words and spaces in one row, inside which LaTeX cannot break a page

# A hyphen or a comma would form a ligature with the next one.
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}", '"': r"\symbol{34}", "-": "-{}", ",": ",{}", "…": r"\ldots{}",
}  # fmt: skip
_LETTERS = frozenset(  # available in the T1 encoding
    "¡¢£¥§©ª«¬®°±²³µ¶·¹º»¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ×ØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõö÷øùúûüýþÿ"
    "ĀāĂăĄąĆćĈĉĊċČčĎďĐđĒēĔĕĖėĘęĚěĜĝĞğĠġĢģĤĥĨĩĪīĬĭĮįİıĴĵĶķĹĺĻļĽľŁłŃńŅņŇňŊŋŌōŎŏŐőŒœŔŕŖŗŘř"
    "ŚśŜŝŞşŠšŢţŤťŨũŪūŬŭŮůŰűŲųŴŵŶŷŸŹźŻżŽžȘșȚț–—‘’‚“”„†‡•‰‹›€™"
)
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u",
    "\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d",
    "\u0327": "c", "\u0328": "k", "\u0331": "b",
}  # fmt: skip
_BELOW = "cdkb"  # accents below the letter, which are set around those above it
_OVER_MATH = {"\u0300": "grave", "\u0301": "acute", "\u0308": "ddot", "\u0342": "tilde"}
_SIGNS = "αβγδεζηθικλμνξπρστυφχψωςΓΔΘΛΞΠΣΥΦΨΩ−≤≥≠≈≡∞√∑∏∂∈∀∃←→↑↓↔⇒⇔♥♦♣♠★"
_NAMES = r"""
    \alpha \beta \gamma \delta \varepsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \pi
    \rho \sigma \tau \upsilon \varphi \chi \psi \omega \varsigma \Gamma \Delta \Theta \Lambda \Xi
    \Pi \Sigma \Upsilon \Phi \Psi \Omega - \leq \geq \neq \approx \equiv \infty \surd \sum \prod
    \partial \in \forall \exists \leftarrow \rightarrow \uparrow \downarrow \leftrightarrow
    \Rightarrow \Leftrightarrow \heartsuit \diamondsuit \clubsuit \spadesuit \star
"""
_MATH = dict(zip(_SIGNS, _NAMES.split(), strict=True))
_MATH |= dict(zip("οΑΒΕΖΗΙΚΜΝΟΡΤΧ", (rf"\mathrm{{{c}}}" for c in "oABEZHIKMNOPTX"), strict=True))
# Joiners, direction marks and variation selectors.
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufe0e\ufe0f\ufeff"
_CYRILLIC = re.compile("[Ѐ-џҐґ]")
_CJK = {"gbsn": "gb2312", "bsmi": "big5", "mj": "euc_kr"}  # LaTeX fonts and their character sets

_RATHER = r"\textrm{ rather than }"
_MACROS = r"""
% Needs \usepackage[T1]{fontenc} and \usepackage{xcolor}.
COLOURS
\providecommand{\altiword}[3]{\leavevmode{\setlength{\fboxsep}{0.6pt}% shade, ink, text
  \ifnum#1=0 \strut#3\else\kern-\fboxsep
  \colorbox{alti#1}{\rule[-.22\baselineskip]{0pt}{.82\baselineskip}\textcolor{#2}{#3}}%
  \kern-\fboxsep\fi}}
\providecommand{\alticode}[1]{\,{\scriptsize\ttfamily U+#1}\,}
\makeatletter
\providecommand{\altiglyph}[3]{% font, code point, character: set if the font is available
  \@ifundefined{Umathchar}{%
    \@ifundefined{alti-#1}{\alticode{#2}}{\@nameuse{alti-#1}{#3}}%
  }{\iffontchar\font"#2 #3\else\alticode{#2}\fi}}
\makeatother
""".replace(
    "COLOURS",
    "\n".join(rf"\definecolor{{alti{i}}}{{HTML}}{{{colour}}}" for i, colour in enumerate(SHADES)),
)
_CJK_FONT = r"""\IfFileExists{c70FONT.fd}{\usepackage{CJKutf8}
  \expandafter\newcommand\csname alti-FONT\endcsname[1]{\begin{CJK}{UTF8}{FONT}##1\end{CJK}}
}{}
"""
_PREAMBLE = r"""\documentclass{article}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\IfFileExists{t2aenc.def}{\usepackage[T2A,T1]{fontenc}
  \expandafter\newcommand\csname alti-cyrillic\endcsname[1]{{\fontencoding{T2A}\selectfont ##1}}
}{\usepackage[T1]{fontenc}}
CJK_FONTS\usepackage[margin=2.5cm]{geometry}
\usepackage{longtable}
\usepackage{xcolor}
\pagestyle{empty}
\begin{document}
""".replace("CJK_FONTS", "".join(_CJK_FONT.replace("FONT", font) for font in _CJK))


def document(attributions: Shown, *, words: bool = True, one_scale: bool = False) -> str:
    """A complete document for pdflatex or one of its successors."""
    return f"{_PREAMBLE}{_table(attributions, 'longtable', words, one_scale)}\\end{{document}}\n"


def table(attributions: Shown, *, words: bool = True, one_scale: bool = False) -> str:
    r"""A table to \input into a paper, with a row for each attribution: its method and the text.

    With `one_scale`, a method has the same shades in every text, so that texts can be compared.

    >>> found = [model.explain(text, method=name) for name in ("alti", "absence")]
    >>> written = alti.latex.table(found)
    """
    return _table(attributions, "tabular", words, one_scale)


def _table(attributions: Shown, environment: str, words: bool, one_scale: bool) -> str:
    rows: list[str] = []
    groups = [
        [whole_answer(shown)] if isinstance(shown, Attributions) else shown
        for shown in sections(attributions)
    ]
    common = _common(groups, words) if one_scale else {}
    for group in groups:
        if rows:
            rows.append(r"\noalign{\medskip}")
        last = ""
        for attribution in group:
            if (head := _head(attribution)) != last:
                cell = rf"\multicolumn{{2}}{{@{{}}p{{\linewidth}}@{{}}}}{{\raggedright {head}}}"
                rows.append(rf"{cell}\tabularnewline[2pt]")
            last = head
            rows += (
                _rows(attribution, words, common)
                if is_text(attribution.source)
                else _groups(attribution)
            )
            rows += [_row(*cells) for cells in lens.latex(attribution, escaped)]
    columns = r"{@{}p{0.2\linewidth}@{\hspace{0.02\linewidth}}p{0.78\linewidth}@{}}"
    body = "\n".join(rows)
    start = rf"\noindent\begin{{{environment}}}"  # it is as wide as a line
    return f"{_MACROS.lstrip()}{start}{columns}\n{body}\n\\end{{{environment}}}\n"


def _common(groups: list[list[Attribution]], words: bool) -> "dict[str, Shades]":
    """The shades of each method over all texts."""
    scores: dict[str, list[float]] = {}
    for attribution in chain.from_iterable(groups):
        own = scores_of(passages(attribution, words=words)) if is_text(attribution.source) else []
        scores.setdefault(method_of(attribution), []).extend(own)
    return {method: Shades.of(own) for method, own in scores.items()}


def _head(attribution: Attribution) -> str:
    label = rf"\textbf{{{escaped(label_of(attribution))}}}" if attribution.label else ""
    chance = chance_of(attribution).replace("log p", r"\log p")
    chance = f"(${chance.replace('rather than', _RATHER)}$)" if chance else ""
    model = rf"{{\color{{gray}}{escaped(attribution.model)}}}" if attribution.model else ""
    return " ".join(filter(None, (label, chance, model)))


def _rows(attribution: Attribution, words: bool, common: "dict[str, Shades]") -> list[str]:
    """The method and the text; further lines of the text are rows of their own."""
    shown = passages(attribution, words=words)
    shades = common.get(method_of(attribution)) or Shades.of(scores_of(shown))
    left = _notes(attribution, Scale(shades.high, shades.signed), words=words)
    lines = [*_lines(shown, shades), r" \quad ".join([_legend(attribution, shades), *left])]
    pairs = zip_longest([_method(attribution)], lines, fillvalue="")
    return _spaced([_row(left, text) for left, text in pairs])


def _groups(attribution: Attribution) -> list[str]:
    """The method; then each group's name, its score in its shade, and its text."""
    scores = attribution.scores.tolist()
    scale = Scale.of(scores)
    shades = Shades(0.0, scale.largest, scale.signed)  # from 0: two equal halves look equal
    rows = [_row(_method(attribution), f"by {attribution.source.by}")]
    for i in order_of(attribution):
        box = _box(_number(scale, scores[i]), shades.shade(scores[i]))
        text = escaped(shortened(attribution.tokens[i], CUT))
        rows.append(_row(escaped(number_of(attribution.source, i)), rf"{box} {text}"))
    below = r" \quad ".join([_legend(attribution, shades), *_notes(attribution, scale)])
    return _spaced([*rows, _row("", below)])


def _legend(attribution: Attribution, shades: "Shades") -> str:
    """The shades from the lowest to the highest score, and what these are of."""
    scale = Scale(shades.high, shades.signed)
    if not shades.high:
        return r"{\footnotesize\color{gray}every score is 0}"
    label = side_of(attribution)
    unit = scale_name(attribution)
    order = (8, 7, 6, 5, 0, 1, 2, 3, 4) if shades.signed else range(len(BINS))
    boxes = "".join(_box(r"\enspace", number) for number in order)
    low = _number(scale, -shades.high if shades.signed else shades.low)
    high = _number(scale, shades.high)
    if shades.signed:
        low = f"{low} against"
        high = f"for {escaped(label)} {high}" if label else f"for {high}"
        unit = unnamed(unit, label)
    ends = [rf"{{\color{{gray}}{end}}}" for end in (low, f"{high} {escaped(unit)}")]
    # the boxes stick out into the spaces beside them
    return rf"{{\footnotesize {ends[0]} \,{boxes}\, {ends[1]}}}"


def _number(scale: Scale, score: float) -> str:
    """A score with a minus, not a hyphen."""
    return escaped(scale.number(score).replace("-", "−"))


def _notes(attribution: Attribution, scale: Scale, *, words: bool = True) -> list[str]:
    """What is not on the text, in grey."""
    left = [note.replace("-", "−") for note in notes(attribution, scale, words=words)]
    return [rf"{{\footnotesize\color{{gray}}{escaped(note)}}}" for note in left]


def _method(attribution: Attribution) -> str:
    method = escaped(method_of(attribution))
    for mark in (r"\_", ":"):
        method = method.replace(mark, rf"{mark}\allowbreak{{}}")
    return method


def _row(left: str, right: str) -> str:
    # a cell that began with a colour would stand a line lower than the one beside it
    return rf"\raggedright {left} & \raggedright\leavevmode {right}\tabularnewline"


def _spaced(rows: list[str]) -> list[str]:
    """Rows with a little space below the last one."""
    return [*rows[:-1], f"{rows[-1]}[4pt]"]


def _lines(shown: list[list[Piece]], shades: "Shades") -> list[str]:
    """The texts, split at the user's line breaks: a page can break between rows, not inside one."""
    lines: list[list[str]] = []
    for passage in shown:
        lines.append([])
        previous: Piece | None = None
        for piece in passage:
            newline = piece.score is None and "\n" in piece.text
            full = len(lines[-1]) > FULL and not piece.text.strip()
            if lines[-1] and (newline or full):
                lines.append([])
            joined = previous is not None and previous.score is not None
            lines[-1].append(_piece(piece, joined, shades))
            previous = piece
    return [line for parts in lines if (line := "".join(parts).strip())]


@dataclass(frozen=True, slots=True)
class Shades:
    """Fifths of the range of scores; of signed ones, of the largest, in both directions from 0."""

    low: float
    high: float
    signed: bool

    @classmethod
    def of(cls, scores: Iterable[float]) -> "Shades":
        finite = [score for score in scores if math.isfinite(score)]
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        return cls(0.0, max(-low, high), True) if low < 0 else cls(low, high, False)

    def shade(self, score: float) -> int:
        """0 is white, 1 to 4 are for the prediction, 5 to 8 against it."""
        number = bin_of(abs(score) if self.signed else score, self.low, self.high)
        return number + len(AGAINST) if number and score < 0 else number


def bin_of(score: float, low: float, high: float) -> int:
    """Which fifth of the range between the text's lowest and highest score, 0 to 4.

    0 if all scores are equal.
    """
    if not high > low or math.isnan(score):
        return 0
    share = (max(low, min(high, score)) - low) / (high - low)
    return min(int(share * len(BINS) + 1e-9), len(BINS) - 1)


def _piece(piece: Piece, joined: bool, shades: Shades) -> str:
    """A word in its boxes, or special tokens and truncated text in grey, or a space."""
    if piece.score is None or piece.special:
        text = piece.text or " ".join(token for token, _ in piece.tokens)
        words = " ".join(escaped(word) for word in text.split())
        return rf" {{\color{{gray}}{words}}} " if words else "\n"
    number = shades.shade(piece.score)
    boxes = [_box(text, number) for text in _chunks(piece.text)]
    start = r"\allowbreak" if joined and _breakable(piece.text) else ""
    unknown = rf"{{\scriptsize\color{{gray}}\,{escaped(piece.unknown)}}}" if piece.unknown else ""
    return start + "\\allowbreak\n".join(boxes) + unknown


def _box(text: str, number: int) -> str:
    """A word or a number on one of the shades."""
    ink = "white" if painted(f"#{SHADES[number]}").ink == WHITE else "black"
    return rf"\altiword{{{number}}}{{{ink}}}{{{text}}}"


def _breakable(text: str) -> bool:
    """Whether a line may start here without a space: at CJK characters other than punctuation."""
    return _font_of(text[0]) not in ("", "cyrillic") and unicodedata.category(text[0])[0] != "P"


def _font_of(letter: str) -> str:
    """The font, if installed, for a letter that LaTeX cannot set by itself; '' if there is none."""
    if _CYRILLIC.fullmatch(letter):
        return "cyrillic"
    for font, encoding in _CJK.items() if letter >= "\u3000" else ():
        with suppress(UnicodeEncodeError):
            letter.encode(encoding)
            return font
    return ""


def _chunks(text: str) -> Iterator[str]:
    """A word as LaTeX, in chunks short enough for a line."""
    chunk = ""
    length = 0
    for cluster in _clusters(text):
        letter = _letter(cluster)
        width = 6 if r"\alticode" in letter or r"\altiglyph" in letter else 1
        if chunk and length + width > LONGEST:
            yield chunk
            chunk = ""
            length = 0
        chunk += letter
        length += width
    yield chunk


def escaped(text: str) -> str:
    """Any text as LaTeX on one line."""
    return "".join(_letter(letter) for letter in _clusters(" ".join(text.split())))


def _clusters(text: str) -> list[str]:
    """Letters with their combining accents."""
    return re.findall(r"(?s).[\u0300-\u036f]*", unicodedata.normalize("NFC", text))


def _letter(cluster: str) -> str:
    """A letter and its accents as LaTeX, or its code points."""
    if cluster in _INVISIBLE or cluster.isspace():
        return " " if cluster.isspace() else ""
    if cluster == "\ufffd" or unicodedata.category(cluster[0])[0] == "C":  # control or unassigned
        return "".join(rf"\alticode{{{ord(letter):04X}}}" for letter in cluster)
    if cluster.isascii() or cluster in _LETTERS or cluster == "…":
        return _ESCAPES.get(cluster, cluster)
    if len(cluster) == 1 and (font := _font_of(cluster)):
        return _glyph(cluster, font)
    if accented := _accented(cluster):
        return accented
    if (simpler := unicodedata.normalize("NFKC", cluster)) != cluster:  # a ligature, a bold letter
        return "".join(map(_letter, _clusters(simpler)))
    return "".join(_glyph(letter) for letter in cluster if letter not in _INVISIBLE)


def _glyph(letter: str, font: str = "") -> str:
    return rf"\altiglyph{{{font}}}{{{ord(letter):04X}}}{{{letter}}}"


def _accented(cluster: str) -> str:
    """A letter with its accents as LaTeX commands; '' if LaTeX has no commands for them."""
    base, *marks = list(unicodedata.normalize("NFD", cluster))
    if base in _MATH and all(mark in _OVER_MATH for mark in marks):
        symbol = _MATH[base]
        for mark in marks:
            symbol = rf"\{_OVER_MATH[mark]}{{{symbol}}}"
        return rf"\ensuremath{{{symbol}}}"
    if (base.isascii() or base in _LETTERS) and all(mark in _ACCENTS for mark in marks):
        letter = _ESCAPES.get(base, base)
        for mark in sorted(marks, key=lambda mark: _ACCENTS[mark] in _BELOW):
            letter = rf"\{_ACCENTS[mark]}{{{letter}}}"
        return letter
    return ""

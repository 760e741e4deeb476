r"""The paper's saliency maps: words in five shades of blue, as a table or a document of its own.

The text survives any character: what LaTeX has no letter for is set where a package for its script is installed, else
its code point is shown, like U+1F600.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest

from alti.model.attribution import Attribution
from alti.views.colours import WHITE, painted
from alti.views.segments import Piece, chance_of, label_of, method_of, passages, together

BINS = (
    "FFFFFF",
    "D0E1F2",
    "94C4DF",
    "4A98C9",
    "1764AB",
)  # the paper's colours, a fifth of the range each
LONGEST = 24  # characters in one coloured box: LaTeX cannot break a line inside it
FULL = 500  # words and spaces in one row: LaTeX cannot break a page inside it

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}", '"': r"\symbol{34}",
    "-": "-{}", ",": ",{}", "…": r"\ldots{}",
}  # fmt: skip  # - and , would grow together with the next one
_LETTERS = frozenset(  # that LaTeX knows by itself, in the encoding T1
    "¡¢£¥§©ª«¬®°±²³µ¶·¹º»¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ×ØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõö÷øùúûüýþÿĀāĂăĄąĆćĈĉĊċČčĎďĐđĒēĔĕĖėĘęĚě"
    "ĜĝĞğĠġĢģĤĥĨĩĪīĬĭĮįİıĴĵĶķĹĺĻļĽľŁłŃńŅņŇňŊŋŌōŎŏŐőŒœŔŕŖŗŘřŚśŜŝŞşŠšŢţŤťŨũŪūŬŭŮůŰűŲųŴŵŶŷŸŹźŻżŽžȘșȚț–—‘’‚“”„†‡•‰‹›€™"
)
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c", "\u0328": "k",
    "\u0331": "b",
}  # fmt: skip
_OVER_MATH = {"\u0300": "grave", "\u0301": "acute", "\u0308": "ddot", "\u0342": "tilde"}
_SIGNS = "αβγδεζηθικλμνξπρστυφχψωςΓΔΘΛΞΠΣΥΦΨΩ−≤≥≠≈≡∞√∑∏∂∈∀∃←→↑↓↔⇒⇔♥♦♣♠★"
_NAMES = r"""
    \alpha \beta \gamma \delta \varepsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \pi \rho \sigma \tau
    \upsilon \varphi \chi \psi \omega \varsigma \Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma \Upsilon \Phi \Psi \Omega -
    \leq \geq \neq \approx \equiv \infty \surd \sum \prod \partial \in \forall \exists \leftarrow \rightarrow \uparrow
    \downarrow \leftrightarrow \Rightarrow \Leftrightarrow \heartsuit \diamondsuit \clubsuit \spadesuit \star
"""
_MATH = dict(zip(_SIGNS, _NAMES.split(), strict=True))
_MATH |= dict(zip("οΑΒΕΖΗΙΚΜΝΟΡΤΧ", (rf"\mathrm{{{c}}}" for c in "oABEZHIKMNOPTX"), strict=True))
_UNSEEN = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufe0e\ufe0f\ufeff"  # joiners, marks of direction, variations
_CYRILLIC = re.compile("[Ѐ-џҐґ]")
_CJK = {
    "gbsn": "gb2312",
    "bsmi": "big5",
    "mj": "euc_kr",
}  # LaTeX's fonts, and an encoding of the characters in each

_MACROS = (
    r"""
% Needs \usepackage[T1]{fontenc} and \usepackage{xcolor}.
"""
    + "\n".join(
        rf"\definecolor{{alti{number}}}{{HTML}}{{{colour}}}" for number, colour in enumerate(BINS)
    )
    + r"""
\providecommand{\altiword}[3]{{\setlength{\fboxsep}{0.6pt}% shade, ink, text
  \ifnum#1=0 \strut#3\else\kern-\fboxsep
  \colorbox{alti#1}{\rule[-.22\baselineskip]{0pt}{.82\baselineskip}\textcolor{#2}{#3}}\kern-\fboxsep\fi}}
\providecommand{\alticode}[1]{\,{\scriptsize\ttfamily U+#1}\,}
\makeatletter
\providecommand{\altiglyph}[3]{% font, code point, character: set where there is that font
  \@ifundefined{Umathchar}{%
    \@ifundefined{alti-#1}{\alticode{#2}}{\@nameuse{alti-#1}{#3}}%
  }{\iffontchar\font"#2 #3\else\alticode{#2}\fi}}
\makeatother
"""
)
_PREAMBLE = (
    r"""\documentclass{article}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\IfFileExists{t2aenc.def}{\usepackage[T2A,T1]{fontenc}
  \expandafter\newcommand\csname alti-cyrillic\endcsname[1]{{\fontencoding{T2A}\selectfont ##1}}
}{\usepackage[T1]{fontenc}}
"""
    + "".join(
        rf"""\IfFileExists{{c70{font}.fd}}{{\usepackage{{CJKutf8}}
  \expandafter\newcommand\csname alti-{font}\endcsname[1]{{\begin{{CJK}}{{UTF8}}{{{font}}}##1\end{{CJK}}}}
}}{{}}
"""
        for font in _CJK
    )
    + r"""\usepackage[margin=2.5cm]{geometry}
\usepackage{longtable}
\usepackage{xcolor}
\pagestyle{empty}
\begin{document}
"""
)


def document(found: Attribution | Sequence[Attribution], *, words: bool = True) -> str:
    """A document that compiles on its own, with pdflatex or one of its successors."""
    return f"{_PREAMBLE}{_table(found, 'longtable', words)}\\end{{document}}\n"


def table(found: Attribution | Sequence[Attribution], *, words: bool = True) -> str:
    r"""A table to \input into a paper: a row for each attribution, its method and the coloured text."""
    return _table(found, "tabular", words)


def _table(found: Attribution | Sequence[Attribution], environment: str, words: bool) -> str:
    rows = []
    for group in together(found):
        if head := _head(group[0]):
            rows.append(
                rf"\multicolumn{{2}}{{@{{}}p{{\linewidth}}@{{}}}}{{\raggedright {head}}}\tabularnewline[2pt]"
            )
        for one in group:
            name = (
                escaped(method_of(one))
                .replace(r"\_", r"\_\allowbreak{}")
                .replace(":", r":\allowbreak{}")
            )
            texts = _lines(one, words)
            rows += [
                rf"\raggedright {left} & \raggedright {text}\tabularnewline"
                for left, text in zip_longest([name], texts, fillvalue="")
            ]
            rows[-1] += "[4pt]"
        rows.append(r"\noalign{\medskip}")
    columns = r"{@{}p{0.2\linewidth}@{\hspace{0.02\linewidth}}p{0.78\linewidth}@{}}"
    body = "\n".join(rows[:-1])
    return f"{_MACROS.lstrip()}\\begin{{{environment}}}{columns}\n{body}\n\\end{{{environment}}}\n"


def _head(found: Attribution) -> str:
    chance = f"(${chance_of(found)}$)" if chance_of(found) else ""
    label = rf"\textbf{{{escaped(label_of(found))}}}" if found.label else ""
    return " ".join(part for part in (label, chance) if part)


def _lines(found: Attribution, words: bool) -> list[str]:
    """The texts of an attribution, cut where the user begins a line: a page can end between rows, not in one."""
    shown = passages(found, words=words)
    scores = [
        piece.score
        for passage in shown
        for piece in passage
        if piece.score is not None and not piece.special
    ]
    finite = [score for score in scores if math.isfinite(score)]
    low = max(
        min(finite, default=0.0), 0.0
    )  # of signed scores, what speaks for the label is shaded: 0 stays white
    high = max(finite, default=0.0)
    lines: list[list[str]] = []
    for passage in shown:
        lines.append([])
        for before, piece in zip([None, *passage], passage, strict=False):
            ends = piece.score is None and "\n" in piece.text
            if lines[-1] and (ends or (len(lines[-1]) > FULL and not piece.text.strip())):
                lines.append([])
            joined = before is not None and before.score is not None
            lines[-1].append(_piece(piece, joined, low, high))
    return [line for parts in lines if (line := "".join(parts).strip())]


def bin_of(score: float, low: float, high: float) -> int:
    """Which fifth of the range from the sentence's lowest to its highest score: 0 to 4; 0 where all are equal."""
    if not high > low or math.isnan(score):
        return 0
    share = (max(low, min(high, score)) - low) / (high - low)
    return min(int(share * len(BINS) + 1e-9), len(BINS) - 1)


def _piece(piece: Piece, joined: bool, low: float, high: float) -> str:
    """A word in its boxes; in grey special tokens and what was cut; else what has no score is a space."""
    if piece.score is None or piece.special:
        text = piece.text or " ".join(token for token, _ in piece.tokens)
        words = " ".join(escaped(word) for word in text.split())
        return rf" {{\color{{gray}}{words}}} " if words else "\n"
    number = bin_of(piece.score, low, high)
    ink = "white" if painted(f"#{BINS[number]}").ink == WHITE else "black"
    boxes = [rf"\altiword{{{number}}}{{{ink}}}{{{text}}}" for text in _chunks(piece.text)]
    return (r"\allowbreak" if joined and _breakable(piece.text) else "") + "\\allowbreak\n".join(
        boxes
    )


def _breakable(text: str) -> bool:
    """Whether a line may begin with it though no space stands before: it is Chinese, and no punctuation."""
    return _font_of(text[0]) not in ("", "cyrillic") and unicodedata.category(text[0])[0] != "P"


def _font_of(letter: str) -> str:
    """What sets a letter that LaTeX does not know by itself, where it is installed; '' for nothing."""
    if _CYRILLIC.fullmatch(letter):
        return "cyrillic"
    for font, encoding in _CJK.items() if letter >= "\u3000" else ():
        with suppress(UnicodeEncodeError):
            letter.encode(encoding)
            return font
    return ""


def _chunks(text: str) -> Iterator[str]:
    """A word as LaTeX, in boxes short enough for a line."""
    made, taken = "", 0
    for letter in _clusters(text):
        shown = _letter(letter)
        size = 6 if r"\alticode" in shown or r"\altiglyph" in shown else 1
        if made and taken + size > LONGEST:
            yield made
            made, taken = "", 0
        made, taken = made + shown, taken + size
    yield made


def escaped(text: str) -> str:
    """Any text as LaTeX, on one line."""
    return "".join(_letter(letter) for letter in _clusters(" ".join(text.split())))


def _clusters(text: str) -> list[str]:
    """Letters with the accents on them."""
    return re.findall(r"(?s).[\u0300-\u036f]*", unicodedata.normalize("NFC", text))


def _letter(cluster: str) -> str:
    """One letter and its accents as LaTeX sets them, or its code points."""
    if cluster in _UNSEEN or cluster.isspace():
        return " " if cluster.isspace() else ""
    if (
        cluster == "\ufffd" or unicodedata.category(cluster[0])[0] == "C"
    ):  # no letter: a control, or not assigned
        return "".join(rf"\alticode{{{ord(letter):04X}}}" for letter in cluster)
    if cluster.isascii() or cluster in _LETTERS or cluster == "…":
        return _ESCAPES.get(cluster, cluster)
    if len(cluster) == 1 and (font := _font_of(cluster)):
        return rf"\altiglyph{{{font}}}{{{ord(cluster):04X}}}{{{cluster}}}"
    base, *marks = list(unicodedata.normalize("NFD", cluster))
    if base in _MATH and all(mark in _OVER_MATH for mark in marks):
        made = _MATH[base]
        for mark in marks:
            made = rf"\{_OVER_MATH[mark]}{{{made}}}"
        return rf"\ensuremath{{{made}}}"
    if (base.isascii() or base in _LETTERS) and all(mark in _ACCENTS for mark in marks):
        made = _ESCAPES.get(base, base)
        for mark in sorted(
            marks, key=lambda mark: _ACCENTS[mark] in "cdkb"
        ):  # those below go round the others
            made = rf"\{_ACCENTS[mark]}{{{made}}}"
        return made
    if (plain := unicodedata.normalize("NFKC", cluster)) != cluster:  # a ligature, a bold letter
        return "".join(map(_letter, _clusters(plain)))
    return "".join(
        rf"\altiglyph{{}}{{{ord(letter):04X}}}{{{letter}}}"
        for letter in cluster
        if letter not in _UNSEEN
    )

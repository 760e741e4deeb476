"""Words, sentences and lines of a text, and the tokens that make them up, by offsets alone."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

Span = tuple[int, int]

LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON and wrong encodings leave some

_UNSPACED = (  # Thai and Lao, Burmese, Khmer, kana and Chinese characters: no spaces between words
    range(0x0E00, 0x0F00),
    range(0x1000, 0x10A0),
    range(0x1780, 0x1800),
    range(0x3040, 0x3100),
    range(0x3400, 0xA000),
    range(0xF900, 0xFB00),
    range(0x20000, 0x40000),
)
# Over the kinds of _kind: a run of letters and digits with apostrophes inside it and points
# between digits; a run of emoji; a run of punctuation; one character of an unspaced script, where
# a word is a token.
_WORD = re.compile(r"u|[ld](?:[ldj]|a(?=[ld])|(?<=d)o(?=d))*|s[sj]*|[aopj]+")
_LINE = re.compile(r"[^\n\r\u2028\u2029]+")
# A sentence ends behind . ! ? … (and closing quotes and brackets) before a space, or behind 。！？
_END = re.compile(r"""[.!?…]+["'”’»)\]]*(?=\s|$)|[。！？]+[」』”’)]*""")
_ABBREVIATIONS = {  # words before a point that ends no sentence
    "al", "approx", "cf", "dr", "e.g", "eq", "etc", "fig", "i.e", "jr", "mr", "mrs", "ms", "no",
    "p", "pp", "prof", "sr", "st", "u.k", "u.s", "vs",
}  # fmt: skip


def group(
    text: str, tokens: Mapping[int, Span], special: Iterable[Span] = ()
) -> list[tuple[Span, list[int]]]:
    """Each word's characters and its tokens; words that share a token are one.

    `special` are characters that belong to no word: those of special tokens in the text, like
    [MASK], and of a chat's template. Line breaks belong to no word either.
    """
    kinds = [_kind(character) for character in text]
    for start, end in special:
        kinds[start:end] = " " * (end - start)
    spans = [match.span() for match in _WORD.finditer("".join(kinds))]
    stripped_tokens = {
        i: stripped(text, span) for i, span in tokens.items() if not _breaks(text[slice(*span)])
    }
    pieces = [(*span, None) for span in spans] + [(*span, i) for i, span in stripped_tokens.items()]
    grouped: list[tuple[Span, list[int]]] = []
    spaces: list[int] = []  # tokens that are nothing but space go with the word behind them
    for start, end, token in sorted(pieces, key=lambda piece: piece[:2]):
        if start == end:
            spaces += [] if token is None else [token]
            continue
        if not grouped or start >= grouped[-1][0][1]:
            grouped.append(((start, end), []))
        (first, last), members = grouped[-1]
        grouped[-1] = (first, max(last, end)), members
        if token is not None:
            members += [*spaces, token]
            spaces = []
    if grouped:
        grouped[-1][1].extend(spaces)
    return [(span, members) for span, members in grouped if members]


def _breaks(characters: str) -> bool:
    """Whether a token is nothing but space, with a line break in it."""
    return bool(characters) and characters.isspace() and not _LINE.fullmatch(characters)


def lines(text: str) -> list[Span]:
    """The lines of a text that hold more than space, without the space around them."""
    spans = (stripped(text, match.span()) for match in _LINE.finditer(text))
    return [span for span in spans if span[0] < span[1]]


def sentences(text: str) -> list[Span]:
    """The sentences of a text; none goes over the end of a line."""
    return [span for line in lines(text) for span in _sentences(text, line)]


def _sentences(text: str, line: Span) -> Iterator[Span]:
    start = line[0]
    for match in _END.finditer(text, *line):
        word = text[start : match.start()].rpartition(" ")[2].lower().lstrip("(\"'“‘")
        initial = len(word) == 1 and word.isalpha() and word != "i"
        if match[0] == "." and (word in _ABBREVIATIONS or initial):
            continue
        yield stripped(text, (start, match.end()))
        start = match.end()
    last = stripped(text, (start, line[1]))
    if last[0] < last[1]:
        yield last


def members(text: str, tokens: Mapping[int, Span], groups: list[Span]) -> list[list[int]]:
    """The tokens of each group: a token is in the group that holds most of its characters."""
    chosen: list[list[int]] = [[] for _ in groups]
    for token, span in tokens.items():
        start, end = stripped(text, span)
        shared = [min(end, last) - max(start, first) for first, last in groups]
        if shared and max(shared) > 0:
            chosen[shared.index(max(shared))].append(token)
    return chosen


def _kind(character: str) -> str:
    """l(etter), d(igit), a(postrophe), o (point or comma), p(unctuation), s(ymbol), j(oined),
    u(nspaced)."""
    if character.isspace():
        return " "
    if any(ord(character) in script for script in _UNSPACED):
        return "u"
    category = unicodedata.category(character)
    if category == "Nd":
        return "d"
    if category[0] == "M" or category == "Cf" or _is_skin_tone(character):
        return "j"  # accents, emoji variations, zero-width joiners
    if category == "So":  # emoji: models know fewer of them than of the punctuation beside them
        return "s"
    if category[0] in "LN" or category == "Pc":
        return "l"
    return "a" if character in "'’" else "o" if character in ".," else "p"


def _is_skin_tone(character: str) -> bool:
    return "\U0001f3fb" <= character <= "\U0001f3ff"


def stripped(text: str, span: Span) -> Span:
    """The span without the spaces around it: BPE counts a word's leading space to its token."""
    piece = text[slice(*span)]
    start = span[0] + len(piece) - len(piece.lstrip())
    return start, start + len(piece.strip())

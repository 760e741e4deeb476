"""Words of a text, and the tokens that make them up, by character offsets alone."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Protocol

from torch import Tensor

Span = tuple[int, int]

HALF = re.compile(
    "[\ud800-\udfff]"
)  # of a character: JSON and a wrong encoding leave them, no tokenizer takes them

_UNSPACED = (  # Thai and Lao, Burmese, Khmer, kana and Chinese characters: no spaces between words
    range(0x0E00, 0x0F00), range(0x1000, 0x10A0), range(0x1780, 0x1800), range(0x3040, 0x3100), range(0x3400, 0xA000),
    range(0xF900, 0xFB00), range(0x20000, 0x40000),
)  # fmt: skip
# Over the kinds of _kind: a run of letters and digits with apostrophes inside it and points between digits; a run of
# punctuation and symbols; one character of an unspaced script, where a word is a token.
_WORD = re.compile(r"u|[ld](?:[ldj]|a(?=[ld])|(?<=d)o(?=d))*|[aopj]+")


def group(
    text: str, tokens: Mapping[int, Span], special: Iterable[Span] = ()
) -> list[tuple[Span, list[int]]]:
    """Each word's characters and its tokens, in the order of the text; words that share a token are one word.

    `special` are the characters of special tokens in the text, like [MASK]: they belong to no word.
    """
    kinds = [_kind(character) for character in text]
    for start, end in special:
        kinds[start:end] = " " * (end - start)
    words = [match.span() for match in _WORD.finditer("".join(kinds))]
    spans = {i: stripped(text, span) for i, span in tokens.items()}
    pieces = [(*span, None) for span in words] + [(*span, i) for i, span in spans.items()]
    found: list[tuple[Span, list[int]]] = []
    spaces: list[int] = []  # tokens that are nothing but space go with the word behind them
    for start, end, token in sorted(pieces, key=lambda piece: piece[:2]):
        if start == end:
            spaces += [] if token is None else [token]
            continue
        if not found or start >= found[-1][0][1]:
            found.append(((start, end), []))
        (first, last), members = found[-1]
        found[-1] = (first, max(last, end)), members
        if token is not None:
            members += [*spaces, token]
            spaces = []
    if found:
        found[-1][1].extend(spaces)
    return [(span, members) for span, members in found if members]


def _kind(character: str) -> str:
    """l(etter), d(igit), a(postrophe), o (a point or comma), p(unctuation), j(oined to the one before), u(nspaced)."""
    if character.isspace():
        return " "
    if any(ord(character) in script for script in _UNSPACED):
        return "u"
    category = unicodedata.category(character)
    if category == "Nd":
        return "d"
    if category[0] == "M" or category == "Cf":  # accents, emoji variations, zero-width joiners
        return "j"
    if category[0] in "LN" or category == "Pc":
        return "l"
    return "a" if character in "'’" else "o" if character in ".," else "p"


def stripped(text: str, span: Span) -> Span:
    """The span without the spaces around it: BPE and SentencePiece count a word's leading space to its token."""
    piece = text[slice(*span)]
    start = span[0] + len(piece) - len(piece.lstrip())
    return start, start + len(piece.strip())


class Tokens(Protocol):
    """What has tokens with places in texts."""

    @property
    def offsets(self) -> tuple[Span, ...]: ...
    @property
    def segments(self) -> tuple[int, ...]: ...
    @property
    def special(self) -> Tensor: ...


def words_of(source: Tokens, segment: int, text: str) -> list[tuple[Span, list[int]]]:
    """The words of one text, each with its characters and its tokens; special tokens are no words."""
    own = [i for i, owner in enumerate(owners_of(source)) if owner == segment]
    tokens = {i: source.offsets[i] for i in own if not bool(source.special[i])}
    return group(text, tokens, [source.offsets[i] for i in own if i not in tokens])


def owners_of(source: Tokens) -> tuple[int, ...]:
    """The text that each token is from: 0 or 1; −1 where it was added."""
    return source.segments or tuple(-1 if special else 0 for special in source.special.tolist())

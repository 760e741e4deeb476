"""Which characters of a text its tokens stand for, where a tokenizer only says how they are spelt.

Text and tokens are spelt in the same plain way (accents and compatibility forms taken apart, no
capitals, no spaces), and the tokens are laid along the text from its start to its end. A token that
is not spelt like anything in the text, an unknown word say, may stand for whatever its neighbours
leave. A token's place is sure where every way to lay them gives the same; else it has all the
characters that it could stand for.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from alti.model.words import Span, stripped

Spellings = tuple[str, ...] | None  # ways to spell a token; None: it may stand for anything

_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")  # categories: spaces, and what shows nothing
_NOTHING = "▁\ufffd"  # written for a space, and for what an encoding got wrong
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # of a character that the vocabulary has not
_MARKS = (("", "</w>"), ("", "@@"), ("##", ""))  # of the ends of words, and of their parts


@dataclass(frozen=True, slots=True)
class Place:
    """The characters that a token stands for, and whether they can be no others."""

    span: Span
    sure: bool


@dataclass(frozen=True, slots=True)
class _Spelt:
    """A text in plain characters, and the character of the text that each of them is of."""

    text: str
    plain: str
    owners: tuple[int, ...]

    def only(self, alphabet: set[str]) -> "_Spelt":
        kept = [i for i, character in enumerate(self.plain) if character in alphabet]
        chosen = "".join(self.plain[i] for i in kept), tuple(self.owners[i] for i in kept)
        return _Spelt(self.text, *chosen)

    def of(self, start: int, end: int) -> Span:
        """The characters of the text that some plain ones are of."""
        if start == end:
            return self.between(start, end)
        return self.owners[start], self.owners[end - 1] + 1

    def between(self, start: int, end: int) -> Span:
        """All that stands between what comes before and what comes behind."""
        first = self.owners[start - 1] + 1 if start else 0
        last = self.owners[end] if end < len(self.owners) else len(self.text)
        span = first, max(first, last)
        return stripped(self.text, span) if self.text[slice(*span)].strip() else span


def places(text: str, pieces: Sequence[str | None]) -> list[Place] | None:
    """Where each piece stands in a text; None where the pieces cannot be laid along it.

    A piece is a token as a tokenizer spells it; None is one that it does not spell.
    """
    if list(text.encode()) == [ord(piece) if piece and len(piece) == 1 else -1 for piece in pieces]:
        return [Place((i, i + 1), True) for i, each in enumerate(text) for _ in each.encode()]
    groups = list(_characters(pieces))
    spelt = _spelt(text)
    spellings = [_spellings(piece) for _, piece in groups]
    found = _laid(spelt, spellings) or _laid_in_part(spelt, spellings)
    if found is None:
        return None
    return [place for (count, _), place in zip(groups, found, strict=True) for _ in range(count)]


def plain(text: str) -> str:
    """A spelling that takes no notice of capitals, spaces and the form of characters."""
    return _spelt(text).plain


def _spelt(text: str) -> _Spelt:
    parts = [_plain(character) for character in text]
    owners = tuple(i for i, part in enumerate(parts) for _ in part)
    return _Spelt(text, "".join(parts), owners)


def _plain(character: str) -> str:
    apart = unicodedata.normalize("NFKD", character).casefold()
    seen = (c for c in unicodedata.normalize("NFKD", apart) if c not in _NOTHING)
    return "".join(c for c in seen if unicodedata.category(c) not in _UNSEEN)


def _characters(pieces: Sequence[str | None]) -> Iterator[tuple[int, str | None]]:
    """Pieces, with the bytes of a character as one: how many there are, and what they spell."""
    run = bytearray()
    for piece in (*pieces, ""):  # an end, for the last run
        if byte := _BYTE.fullmatch(piece or ""):
            run.append(int(byte[1], 16))
            continue
        yield from _decoded(bytes(run))
        run.clear()
        if piece != "":
            yield 1, piece


def _decoded(run: bytes) -> list[tuple[int, str | None]]:
    try:
        return [(len(each.encode()), each) for each in run.decode()]
    except UnicodeDecodeError:
        return [(1, None)] * len(run)


def _spellings(piece: str | None) -> Spellings:
    """How a piece may be spelt: as it stands, or without a mark that is no part of the text."""
    if piece is None:
        return None
    unmarked = (
        piece.removeprefix(before).removesuffix(behind)
        for before, behind in _MARKS
        if len(piece) > len(before + behind)
    )
    return tuple(dict.fromkeys(map(plain, (piece, *unmarked))))


def _laid(spelt: _Spelt, spellings: list[Spellings]) -> list[Place] | None:
    """The places of tokens along a text, from its start to its end; None: they do not fit.

    `forward[k]` are the places where the first k tokens can end, `backward[k]` where the others can
    begin.
    """
    known = [_in(spelt.plain, each) for each in spellings]
    if _all_strange(spellings, known):
        return None
    forward = [{0}]
    for each in known:
        forward.append(_moved(spelt.plain, forward[-1], each))
    backward = [{len(spelt.plain)}]
    for each in reversed(known):
        backward.append(_moved(spelt.plain, backward[-1], each, back=True))
    possible = [here & there for here, there in zip(forward, reversed(backward), strict=True)]
    if not all(possible):
        return None
    pairs = zip(known, pairwise(possible), strict=True)
    return [_place(spelt, each, *ends) for each, ends in pairs]


def _all_strange(spellings: list[Spellings], known: list[Spellings]) -> bool:
    """Whether a tokenizer spells tokens, and none of them like anything in the text."""
    pairs = zip(spellings, known, strict=True)
    spelt = [now is not None for each, now in pairs if each not in (None, ("",))]
    return bool(spelt) and not any(spelt)


def _in(text: str, spellings: Spellings) -> Spellings:
    """The spellings that the text has; without one, a token may stand for anything."""
    if spellings is None:
        return None
    return tuple(each for each in spellings if each in text) or None


def _moved(text: str, at: set[int], spellings: Spellings, *, back: bool = False) -> set[int]:
    """Where a token can end that begins at one of some places; or (back) the other way round."""
    if not at:
        return set()
    if spellings is None:
        return set(range(max(at) + 1)) if back else set(range(min(at), len(text) + 1))
    if back:
        return {i - len(s) for s in spellings for i in at if text.endswith(s, 0, i)}
    return {i + len(s) for s in spellings for i in at if text.startswith(s, i)}


def _place(spelt: _Spelt, spellings: Spellings, starts: set[int], ends: set[int]) -> Place:
    if spellings is None:
        sure = len(starts) == len(ends) == 1
        return Place(spelt.between(min(starts), max(ends)), sure)
    found = {
        (i, i + len(s))
        for s in spellings
        for i in starts
        if spelt.plain.startswith(s, i) and i + len(s) in ends
    }
    start, end = min(i for i, _ in found), max(i for _, i in found)
    return Place(spelt.of(start, end), len(found) == 1)


def _laid_in_part(spelt: _Spelt, spellings: list[Spellings]) -> list[Place] | None:
    """The same by the characters that both have: some were left out, or written in another way."""
    spoken = {c for each in spellings if each is not None for s in each for c in s}
    shared = spoken & set(spelt.plain)
    parts = [_only(each, shared) for each in spellings]
    whole = [part == each for part, each in zip(parts, spellings, strict=True)]
    found = _laid(spelt.only(shared), parts)
    if found is None or not any(same and each for same, each in zip(whole, parts, strict=True)):
        return None
    return [Place(each.span, each.sure and same) for each, same in zip(found, whole, strict=True)]


def _only(spellings: Spellings, alphabet: set[str]) -> Spellings:
    if spellings is None:
        return None
    kept = ("".join(c for c in each if c in alphabet) for each in spellings)
    chosen = (part for part, each in zip(kept, spellings, strict=True) if part or not each)
    return tuple(dict.fromkeys(chosen)) or None

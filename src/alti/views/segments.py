"""The user's text cut into scored pieces: what every view shows."""

from collections.abc import Iterator
from dataclasses import dataclass

from alti.model.attribution import Attribution
from alti.model.words import Span, stripped
from alti.views.colours import Scale


@dataclass(frozen=True, slots=True)
class Piece:
    """A span of the text. A token added by the tokenizer has no text and sits where it was added.

    The score is None where nothing was scored: between words, or in text cut off by truncation.
    """

    text: str
    score: float | None = None
    tokens: tuple[tuple[str, float], ...] = ()
    special: bool = False
    places: tuple[int, ...] = ()  # indices of the tokens
    unknown: str = ""  # as what the model read it if its vocabulary has no such thing: [UNK]


def passages(attribution: Attribution, *, words: bool = True) -> list[list[Piece]]:
    """Each text as a list of pieces, by word or by token. The pieces join to the exact text.

    Special tokens appear in the token view only. Tokens that share a character, such as the bytes
    of an emoji, form a single piece.
    """
    texts = [attribution.text]
    if attribution.text_pair is not None:
        texts.append(attribution.text_pair)
    passages = []
    for segment, text in enumerate(texts):
        own = _tokens(attribution, segment, text)
        parts = attribution.source.words(segment) if words else own
        passages.append(list(_pieces(attribution, text, parts)))
    return passages


def scores_of(shown: list[list[Piece]]) -> list[float]:
    """The scores of all pieces that are not special tokens."""
    pieces = (piece for passage in shown for piece in passage if not piece.special)
    return [piece.score for piece in pieces if piece.score is not None]


def scale_of(attribution: Attribution, shown: list[list[Piece]]) -> Scale:
    """The scale of a view. Special tokens are left out because they often outweigh every word.

    It is signed if any token has a negative score, even if no word does.
    """
    signed = bool((attribution.scores < 0)[~attribution.special].any())
    return Scale(Scale.of(scores_of(shown)).largest, signed)


def _tokens(attribution: Attribution, segment: int, text: str) -> list[tuple[Span, list[int]]]:
    """The span of each token in one text; added tokens get an empty span after the previous one."""
    parts: list[tuple[Span, list[int]]] = []
    current = 0
    at = 0
    for i, owner in enumerate(attribution.source.owners):
        current = max(owner, current)
        if current != segment:
            continue
        start, end = attribution.offsets[i]
        if owner == segment and text[start:end].strip():
            start, end = stripped(text, (start, end))
        if owner == -1 or start == end:
            parts.append(((at, at), [i]))
        elif start < at:  # shares characters with the previous token
            (first, last), members = parts[-1]
            parts[-1] = (first, max(last, end)), [*members, i]
        else:
            parts.append(((start, end), [i]))
        at = parts[-1][0][1]
    return parts


def _pieces(
    attribution: Attribution, text: str, parts: list[tuple[Span, list[int]]]
) -> Iterator[Piece]:
    """The parts with their scores, and the unscored text between them."""
    at = 0
    for (start, end), members in parts:
        if start > at:
            yield Piece(text[at:start])
        tokens = tuple(attribution[i] for i in members)
        score = sum(score for _, score in tokens)
        special = start == end or all(bool(attribution.special[i]) for i in members)
        names = attribution.source.unknown
        unknown = max(names[i] for i in members) if names else ""
        yield Piece(text[start:end], score, tokens, special, tuple(members), unknown)
        at = end
    if text[at:]:
        yield Piece(text[at:])

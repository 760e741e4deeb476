"""The user's own text in pieces, each with its score: what every view shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.model.words import Span, stripped
from alti.views.colours import Scale


@dataclass(frozen=True, slots=True)
class Piece:
    """Some characters of the text. A token that the tokenizer added has none and stands where it was added."""

    text: str
    score: float | None = (
        None  # None: nothing was scored here, as between words or where the text was cut
    )
    tokens: tuple[tuple[str, float], ...] = ()
    special: bool = False
    places: tuple[int, ...] = ()  # of the tokens


def passages(found: Attribution, *, words: bool = True) -> list[list[Piece]]:
    """The text, and the second one where there are two, as words or as tokens. The pieces join to the exact text.

    Special tokens are pieces of the token view only; tokens that share a character (bytes of an emoji) are one piece.
    """
    texts = (found.text,) if found.text_pair is None else (found.text, found.text_pair)
    made = []
    for segment, text in enumerate(texts):
        parts = found.source.words(segment) if words else _tokens(found, segment, text)
        made.append(list(_filled(found, text, parts)))
    return made


def scale_of(found: Attribution, shown: list[list[Piece]]) -> Scale:
    """One scale for a view, special tokens left out: they often outweigh every word.

    It is signed where one token's score is, in the view of words too.
    """
    scores = [
        piece.score
        for passage in shown
        for piece in passage
        if piece.score is not None and not piece.special
    ]
    return Scale(Scale.of(scores).largest, bool((found.scores < 0)[~found.special].any()))


def _tokens(found: Attribution, segment: int, text: str) -> list[tuple[Span, list[int]]]:
    """The characters of each token of one text; an added token has none, behind the token before it."""
    parts: list[tuple[Span, list[int]]] = []
    current, at = 0, 0
    for i, owner in enumerate(found.source.owners):
        current = max(owner, current)
        if current != segment:
            continue
        start, end = found.offsets[i]
        if owner == segment and text[start:end].strip():
            start, end = stripped(text, (start, end))
        if owner == -1 or start == end:
            parts.append(((at, at), [i]))
        elif start < at:  # it shares characters with the one before
            (first, last), members = parts[-1]
            parts[-1] = (first, max(last, end)), [*members, i]
        else:
            parts.append(((start, end), [i]))
        at = parts[-1][0][1]
    return parts


def _filled(found: Attribution, text: str, parts: list[tuple[Span, list[int]]]) -> Iterator[Piece]:
    """The parts with their scores, and what stands between them."""
    at = 0
    for (start, end), members in parts:
        if start > at:
            yield Piece(text[at:start])
        tokens = tuple(found[i] for i in members)
        special = start == end or all(bool(found.special[i]) for i in members)
        yield Piece(
            text[start:end], sum(score for _, score in tokens), tokens, special, tuple(members)
        )
        at = end
    if text[at:]:
        yield Piece(text[at:])


def method_of(found: Attribution) -> str:
    """The method with the options it was given, as the command line takes it: alti:p=2."""
    return ":".join([found.method, *(f"{name}={value}" for name, value in found.options.items())])


def label_of(found: Attribution) -> str:
    """The label, in quotes where it begins or ends with a space; empty where the model has no head."""
    label = found.label or ""
    return label if label.strip() == label else repr(label)


def chance_of(found: Attribution) -> str:
    """The probability as views write it, or the value of a regression; empty where there is neither."""
    if found.probability is None:
        return f"= {found.extra['value']:.4g}" if "value" in found.extra else ""
    return f"p = {found.probability:{'.3f' if found.probability >= 0.0005 else '.0e'}}"


def rest_of(found: Attribution) -> float:
    """What the special tokens hold together: the part of the scores that the view of words leaves out."""
    return float(found.scores[found.special].sum())


def told_rest(found: Attribution, scale: Scale) -> str:
    """The same in words, under a view of words; empty where it is nothing."""
    rest = rest_of(found)
    return (
        f"special tokens {scale.number(rest)}"
        if abs(rest) >= 0.0005 * (scale.largest or 1.0)
        else ""
    )


def together(found: Attribution | Sequence[Attribution]) -> list[list[Attribution]]:
    """One or more attributions by their texts: neighbours that explain the same text belong together."""
    groups: list[list[Attribution]] = []
    several = list(found) if isinstance(found, Sequence) else [found]
    if not several:
        raise UsageError("there is nothing to show: give at least one attribution")
    for one in several:
        if groups and (groups[-1][0].text, groups[-1][0].text_pair) == (one.text, one.text_pair):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups

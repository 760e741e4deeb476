"""The user's text cut into scored pieces: what every view shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alti._errors import UsageError
from alti.model.attribution import Attribution, Attributions
from alti.model.words import Span, stripped
from alti.views.colours import Scale

Shown = Attribution | Attributions | Sequence[Attribution]


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
        yield Piece(text[start:end], score, tokens, special, tuple(members))
        at = end
    if text[at:]:
        yield Piece(text[at:])


def method_of(attribution: Attribution) -> str:
    """The method and its options, as written on the command line: alti:p=2."""
    options = (f"{name}={value}" for name, value in attribution.options.items())
    return ":".join([attribution.method, *options])


def label_of(attribution: Attribution) -> str:
    """The label, quoted if it starts or ends with a space; empty if the model has no head."""
    label = attribution.label or ""
    return label if label.strip() == label else repr(label)


def chance_of(attribution: Attribution) -> str:
    """The probability, or the value of a regression, as views show it; empty if there is none."""
    probability = attribution.probability
    if probability is not None:
        digits = ".3f" if probability >= 0.0005 else ".0e"
        return f"p = {probability:{digits}}"
    if "value" in attribution.extra:
        return f"= {attribution.extra['value']:.4g}"
    return ""


def special_total(attribution: Attribution) -> float:
    """The sum of the special tokens' scores, which the word view does not show."""
    return float(attribution.scores[attribution.special].sum())


def special_note(attribution: Attribution, scale: Scale) -> str:
    """The same as a line below a word view; empty if it is negligible."""
    total = special_total(attribution)
    if abs(total) < 0.0005 * (scale.largest or 1.0):
        return ""
    return f"special tokens {scale.number(total)}"


def cut_note(attribution: Attribution) -> str:
    """How much of the text was truncated; empty if nothing was."""
    return f"cut: {sum(map(len, attribution.cut))} characters" if attribution.cut else ""


def grouped_by_text(attributions: Shown) -> list[list[Attribution]]:
    """One or more attributions in groups: consecutive ones that explain the same text."""
    if isinstance(attributions, Attribution):
        attributions = [attributions]
    if isinstance(attributions, Attributions):
        attributions = list(attributions)
    if not attributions:
        raise UsageError("there is nothing to show: give at least one attribution")
    groups: list[list[Attribution]] = []
    for attribution in attributions:
        if groups and _texts(groups[-1][0]) == _texts(attribution):
            groups[-1].append(attribution)
        else:
            groups.append([attribution])
    return groups


def _texts(attribution: Attribution) -> tuple[str, str | None]:
    return attribution.text, attribution.text_pair

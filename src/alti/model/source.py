"""What a model read: texts, their tokens, and groups of characters to add scores up by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.model.words import Span, group, lines, members, sentences, stripped

Unit = Literal["word", "sentence", "line", "message", "document", "entity"]
By = Unit | Sequence[Span]
Place = tuple[int, int]  # the text (0, or 1 for the second), and a character of it


@dataclass(frozen=True, slots=True)
class One:
    """Of all words (or other groups) the one at a place, with the very tokens it has among them."""

    by: By
    place: Place


@dataclass(frozen=True, slots=True)
class Group:
    """Some characters of one text, by name."""

    name: str
    segment: int
    span: Span
    unit: str = ""  # what it is: message, document, question, sentence, …


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """Texts as tokens; said once, however many predictions about them are explained."""

    texts: tuple[str, ...]  # a text; a text and its pair; a prompt and its answer
    tokens: tuple[str, ...]  # as the tokenizer writes them; of a grouped source, each group's text
    offsets: tuple[Span, ...]  # characters of the token's own text; (0, 0) for added tokens
    special: Tensor  # [T]  True at special tokens
    segments: tuple[int, ...] = ()  # the text that each token is of; -1: added by the tokenizer
    ids: tuple[int, ...] = ()  # in the model's vocabulary
    groups: tuple[Group, ...] = ()  # of a grouped source, one for each of `tokens`
    by: str = "token"  # what `tokens` are: token, word, sentence, line, message, document or span
    parts: tuple[Group, ...] = ()  # messages, documents and the question that a prompt is made of
    answer: int | None = None  # the first of `tokens` that is of an answer; None: there is none
    decoder: int | None = (
        None  # the first of `tokens` that a decoder read; None: one stack read all
    )
    seconds: float | None = None  # of a sound, that a frame lasts: `tokens` of segment 0 are frames
    cut: tuple[str, ...] = ()  # what was left out of texts that were too long
    # for each token, as what the model read a text that its vocabulary has not: [UNK]; else ""
    unknown: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = [each.name for each in fields(self) if each.name != "special"]
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and self.special.tolist() == other.special.tolist()

    def __hash__(self) -> int:
        return hash((self.texts, self.tokens))

    @property
    def owners(self) -> tuple[int, ...]:
        """The text that each token is of; -1 where it was added."""
        if self.segments:
            return self.segments
        return tuple(-1 if special else 0 for special in self.special.tolist())

    def words(self, segment: int) -> list[tuple[Span, list[int]]]:
        """The words of one text: their characters and their tokens; special tokens are no words."""
        own = [i for i, owner in enumerate(self.owners) if owner == segment]
        tokens = {i: self.offsets[i] for i in own if not bool(self.special[i])}
        special = [self.offsets[i] for i in own if i not in tokens]
        template = self._template(segment)
        text = self.texts[segment]
        for i, span in list(tokens.items()):
            start, end = stripped(text, span)
            if any(first <= start and end <= last for first, last in template):
                del tokens[i]
        return group(text, tokens, [*special, *template])

    def _template(self, segment: int) -> list[Span]:
        """The characters of a chat that are of no message."""
        messages = [
            part.span for part in self.parts if part.unit == "message" and part.segment == segment
        ]
        if not messages:
            return []
        starts = [0, *(end for _, end in messages)]
        ends = [*(start for start, _ in messages), len(self.texts[segment])]
        return list(zip(starts, ends, strict=True))

    def _passages(self, segment: int) -> list[Span]:
        """A text cut where a message, a document or the question begins or ends."""
        template = self._template(segment)
        borders = {0, len(self.texts[segment])}
        borders.update(
            border for part in self.parts if part.segment == segment for border in part.span
        )
        return [
            (start, end)
            for start, end in pairwise(sorted(borders))
            if not any(first <= start and end <= last for first, last in template)
        ]

    def grouped(self, by: By | One) -> tuple[Self, list[list[int]]]:
        """The source with groups for tokens, and the tokens of each group."""
        if isinstance(by, One):
            every, members = self.grouped(by.by)
            number = every.group_at(by.place)
            return every.only([number]), [members[number]]
        unit = _unit(by)
        parts = [
            (segment, span, tokens)
            for segment in range(len(self.texts))
            for span, tokens in self._spans(segment, unit, by)
            if tokens
        ]
        names = {(part.unit, part.segment, part.span): part.name for part in self.parts}
        groups = tuple(
            Group(names.get((unit, segment, span), f"{unit} {number}"), segment, span, unit)
            for number, (segment, span, _) in enumerate(parts, start=1)
        )
        source = replace(
            self,
            tokens=tuple(self.texts[part.segment][slice(*part.span)] for part in groups),
            offsets=tuple(part.span for part in groups),
            special=torch.zeros(len(groups), dtype=torch.bool),
            segments=tuple(part.segment for part in groups),
            ids=(),
            groups=groups,
            by=unit,
            answer=None if self.answer is None else sum(part.segment == 0 for part in groups),
            unknown=self._unknown([tokens for *_, tokens in parts]),
            decoder=None if self.decoder is None else sum(part.segment == 0 for part in groups),
        )
        return source, [tokens for *_, tokens in parts]

    def _unknown(self, groups: list[list[int]]) -> tuple[str, ...]:
        """As `unknown` for groups: a word is unknown if one of its tokens is."""
        if not self.unknown:
            return ()
        return tuple(max(self.unknown[i] for i in tokens) for tokens in groups)

    def sources(self, by: By | One) -> tuple[Self, list[list[int]]]:
        """As `grouped`, but only what an answer could do without.

        That is nothing of the answer itself; and all words, sentences and lines of a question about
        documents are those of the documents.
        """
        source, tokens = self.grouped(by)
        inner = source.by in ("word", *_FINDERS) and not isinstance(by, One)
        documents = [part for part in self.parts if inner and part.unit == "document"]
        kept = [
            number
            for number, group in enumerate(source.groups)
            if (self.answer is None or group.segment == 0)
            and (not documents or any(_inside(group, part) for part in documents))
        ]
        if not kept and isinstance(by, One):
            raise UsageError(f"this {source.by} is a part of the answer: name one of the prompt")
        if not kept:
            raise UsageError(f"groups = {by!r} finds nothing to group in the text: leave it out")
        return source.only(kept), [tokens[number] for number in kept]

    def group_at(self, place: Place) -> int:
        """The number of the group that a character belongs to."""
        segment, at = place
        for number, one in enumerate(self.groups):
            start, end = one.span
            if one.segment == segment and start <= at < end:
                return number
        raise UsageError(
            f"character {at} of text {segment} is in no {self.by}: name one that is in a {self.by}"
        )

    def only(self, kept: list[int]) -> Self:
        """A grouped source with some of its groups."""
        lists = ("tokens", "offsets", "segments", "groups", *(["unknown"] if self.unknown else []))
        chosen: dict[str, Any] = {
            name: tuple(getattr(self, name)[number] for number in kept) for name in lists
        }
        answer = None if self.answer is None else len(kept)
        decoder = None if self.decoder is None else len(kept)
        return replace(self, **chosen, special=self.special[kept], answer=answer, decoder=decoder)

    def _spans(self, segment: int, unit: str, by: By) -> list[tuple[Span, list[int]]]:
        """The groups of one text: their characters and their tokens."""
        if unit == "word":
            return self.words(segment)
        text = self.texts[segment]
        if unit == "span":
            spans = _spans(list(by), text) if segment == 0 else []
        elif unit in _FINDERS:
            spans = [
                (start + first, start + last)
                for start, end in self._passages(segment)
                for first, last in _FINDERS[unit](text[start:end])
            ]
        else:
            spans = self._named(segment, unit)
        owners = enumerate(zip(self.owners, self.special.tolist(), strict=True))
        own = {i: self.offsets[i] for i, (at, special) in owners if at == segment and not special}
        return list(zip(spans, members(text, own, spans), strict=True))

    def _named(self, segment: int, unit: str) -> list[Span]:
        """The messages or documents of one text."""
        if not any(part.unit == unit for part in self.parts):
            units, made = _MADE[unit]
            raise UsageError(
                f"the text has no {units}: explain it with {made}, or group it by sentence"
            )
        return [part.span for part in self.parts if (part.unit, part.segment) == (unit, segment)]

    def is_grouped(self, by: By) -> bool:
        """Whether this source is grouped so already; by anything else it cannot be."""
        if self.by == "token":
            return False
        spans = [part.span for part in self.groups]
        if self.by == _unit(by) and (self.by != "span" or spans == list(map(tuple, by))):
            return True
        raise UsageError(
            f"these scores are of {self.by}s already, and their tokens are gone: group the "
            "attribution of the tokens instead"
        )


def _inside(group: Group, part: Group) -> bool:
    start, end = part.span
    return group.segment == part.segment and start <= group.span[0] and group.span[1] <= end


_MADE = {  # how a text comes to have such parts
    "document": ("documents", "documents="),
    "message": ("messages", "a list of messages"),
    "entity": ("entities", "positions='all' and take .entities()"),
}
_FINDERS: dict[str, Callable[[str], list[Span]]] = {"sentence": sentences, "line": lines}


def _unit(by: By) -> str:
    if not isinstance(by, str):
        return "span"
    if by not in get_args(Unit):
        raise UsageError(
            f"by = {by!r} is nothing to group by: give {', '.join(get_args(Unit))}, or a list of "
            "(start, end)"
        )
    return by


def _spans(by: list[Any], text: str) -> list[Span]:
    """Spans of characters as a user gives them."""
    spans: list[Span] = []
    for span in by:
        fits = isinstance(span, tuple | list) and len(span) == 2
        if not fits or not all(type(end) is int for end in span):
            raise UsageError(f"{span!r} is no span of characters: give (start, end)")
        start, end = span
        if not 0 <= start < end <= len(text):
            raise UsageError(
                f"the span {span!r} is not in the text, which has {len(text)} characters: give "
                "0 <= start < end"
            )
        if spans and start < max(last for _, last in spans):
            raise UsageError(f"the span {span!r} begins before the one before it ends: sort them")
        spans.append((start, end))
    return spans

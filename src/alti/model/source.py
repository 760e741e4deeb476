"""What a model read: texts, their tokens, and groups of characters to add scores up by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.model.words import Span, group, lines, members, sentences

Unit = Literal["word", "sentence", "line"]
By = Unit | Sequence[Span]


@dataclass(frozen=True, slots=True)
class Group:
    """Some characters of one text, by name."""

    name: str
    segment: int
    span: Span


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """Texts as tokens; said once, however many predictions about them are explained."""

    texts: tuple[str, ...]  # a text; or a text and its pair
    tokens: tuple[str, ...]  # as the tokenizer writes them; of a grouped source, each group's text
    offsets: tuple[Span, ...]  # characters of the token's own text; (0, 0) for added tokens
    special: Tensor  # [T]  True at special tokens
    segments: tuple[int, ...] = ()  # the text that each token is of; -1: added by the tokenizer
    ids: tuple[int, ...] = ()  # in the model's vocabulary
    groups: tuple[Group, ...] = ()  # of a grouped source, one for each of `tokens`
    by: str = "token"  # what `tokens` are: token, word, sentence, line or span
    cut: tuple[str, ...] = ()  # what was left out of texts that were too long

    def __len__(self) -> int:
        return len(self.tokens)

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
        return group(self.texts[segment], tokens, special)

    def grouped(self, by: By) -> tuple[Self, list[list[int]]]:
        """The source with groups for tokens, and the tokens of each group."""
        unit = _unit(by)
        parts = [
            (segment, span, tokens)
            for segment in range(len(self.texts))
            for span, tokens in self._parts(segment, unit, by)
            if tokens
        ]
        groups = tuple(
            Group(f"{unit} {number}", segment, span)
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
        )
        return source, [tokens for *_, tokens in parts]

    def _parts(self, segment: int, unit: str, by: By) -> list[tuple[Span, list[int]]]:
        if unit == "word":
            return self.words(segment)
        text = self.texts[segment]
        if unit == "span":
            spans = _spans(list(by), text) if segment == 0 else []
        else:
            spans = _FINDERS[unit](text)
        owners = enumerate(zip(self.owners, self.special.tolist(), strict=True))
        own = {i: self.offsets[i] for i, (at, special) in owners if at == segment and not special}
        return list(zip(spans, members(text, own, spans), strict=True))

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

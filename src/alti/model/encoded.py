"""A text as tokens, each with its place in the text."""

from dataclasses import dataclass

from torch import Tensor

from alti.model.source import Group

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text (or a pair, or a prompt and its answer) as tokens."""

    text: str
    text_pair: str | None  # the second of a pair; the answer to a prompt
    ids: list[int]
    types: list[int] | None  # token_type_ids, where the model takes them
    tokens: list[str]
    offsets: list[Span]  # characters of the token's own text; (0, 0) for added tokens
    segments: list[int]  # 0: text, 1: text_pair, -1: added
    special: list[bool]
    cut: tuple[str, ...] = ()  # what was left out of each text that was too long
    parts: tuple[Group, ...] = ()  # messages, documents and the question of a prompt
    answer: int | None = None  # its first token; None: there is none
    unknown: str = ""  # the token for whatever the vocabulary has not; "": there is none
    decoder: int | None = None  # the first token that a decoder reads; None: one stack reads all
    features: Tensor | None = None  # [F, frames]  of a sound, whose frames are the first tokens
    seconds: float | None = None  # that a frame lasts

    @property
    def prompt(self) -> int | None:
        """Where what the answer rests on ends: the text before it, or all that an encoder reads."""
        return self.answer if self.decoder is None else self.decoder


def left_out(full: Encoded, kept: Encoded, *, left: bool) -> tuple[str, ...]:
    """What a shorter encoding lost of each text, at its end or (left) at its start."""
    lost: list[str] = []
    for segment, text in enumerate((full.text, full.text_pair or "")):
        spans = [
            span
            for owner, span in zip(full.segments, full.offsets, strict=True)
            if owner == segment
        ]
        missing = len(spans) - kept.segments.count(segment)
        if missing:
            gone = spans[:missing] if left else spans[-missing:]
            lost.append(text[gone[0][0] : gone[-1][1]])
    return tuple(lost)

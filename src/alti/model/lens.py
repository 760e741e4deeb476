"""What a language model would have said after each layer, at the position of a prediction."""

from dataclasses import dataclass, fields
from typing import Any, Self

from alti._errors import UsageError
from alti.model.head import Head

KINDS = ("causal", "masked")


@dataclass(frozen=True, slots=True)
class Lens:
    """The likeliest tokens after each layer, first layer first, and the chance of the explained.

    `lens.tokens[-1][0]` is what the model says in the end.
    """

    tokens: tuple[tuple[str, ...], ...]  # [L, k]  best first
    ids: tuple[tuple[int, ...], ...]  # [L, k]
    probabilities: tuple[tuple[float, ...], ...]  # [L, k]
    own: tuple[float, ...]  # [L]  the probability of the output that is explained
    ranks: tuple[int, ...]  # [L]  its place among all tokens; 1: the model would have said it

    def __len__(self) -> int:
        return len(self.own)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Self:
        """What a stored result holds."""
        rows = ("tokens", "ids", "probabilities")
        return cls(
            **{name: tuple(map(tuple, plain[name])) for name in rows},
            own=tuple(plain["own"]),
            ranks=tuple(plain["ranks"]),
        )

    @property
    def settled(self) -> int:
        """The first layer from which on the explained output stays the likeliest; L if none is."""
        layer = len(self)
        while layer and self.ranks[layer - 1] == 1:
            layer -= 1
        return layer


NAMES = tuple(each.name for each in fields(Lens))


def require_lens(head: Head, *, total: bool) -> None:
    """Raise where no layer before the last could have said anything."""
    if head.kind not in KINDS:
        raise UsageError(
            "lens=True (--lens) applies a language model's head to every layer, and this is none "
            f"(its head is of the kind {head.kind}): leave it out, or load a causal or masked one"
        )
    if total:
        raise UsageError(
            "lens=True says what a model would have said at one position, and total=True or an "
            "answer against another joins several: leave one of them out"
        )

"""Predictions of a token classifier that belong together: names of persons, places, …"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alti.model.source import Group, Source
from alti.model.words import Span

OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class Entity:
    """Neighbouring tokens that a classifier gives one kind of label."""

    kind: str
    members: tuple[int, ...]  # of the predictions
    span: Span  # characters
    segment: int
    probability: float  # that of all its labels

    def part(self) -> Group:
        return Group(self.kind, self.segment, self.span, "entity")


def entities_of(source: Source, predictions: Sequence[Any]) -> list[Entity]:
    """The entities of some predictions, one for each token, in the order of the text.

    B- begins an entity, I- (E-, L-) goes on with one of its kind, S- and U- are one by themselves;
    labels without a prefix go on where the one before is the same. O is outside. A token that goes
    on with a word belongs to what the word began with.
    """
    found: list[tuple[str, list[int]]] = []
    last = -2  # the position of the token before, if it is in an entity
    for k, one in enumerate(predictions):
        prefix, kind = _parts(str(one.label))
        position = -2 if one.position is None else one.position
        within = last == position - 1 and bool(found) and _touch(source, last, position)
        if kind == OUTSIDE and not within:
            continue
        begins = prefix in ("B", "S", "U") or not found or last != position - 1
        if within or not (begins or kind != found[-1][0]):
            found[-1][1].append(k)
        else:
            found.append((kind, [k]))
        last = position
    return [_entity(source, predictions, kind, members) for kind, members in found]


def _parts(label: str) -> tuple[str, str]:
    """Prefix and kind of a label like B-PER; without a prefix, "" and the label."""
    prefix, dash, kind = label.partition("-")
    return (prefix, kind) if dash and prefix in "BIESUL" and len(prefix) == 1 else ("", label)


def _touch(source: Source, left: int, right: int) -> bool:
    """Whether two tokens stand next to each other inside a word."""
    if source.owners[left] != source.owners[right]:
        return False
    start, end = source.offsets[right]
    text = source.texts[source.owners[right]][start:end]
    joined = source.offsets[left][1] == start and text == text.lstrip()
    before = source.texts[source.owners[left]][slice(*source.offsets[left])]
    return joined and text[:1].isalnum() and before[-1:].isalnum()


def _entity(source: Source, predictions: Sequence[Any], kind: str, members: list[int]) -> Entity:
    positions = [predictions[k].position for k in members]
    chances = [predictions[k].probability for k in members]
    segment = source.owners[positions[0]]
    start = source.offsets[positions[0]][0]
    end = source.offsets[positions[-1]][1]
    text = source.texts[segment]
    start += len(text[start:end]) - len(text[start:end].lstrip())
    chance = math.prod(each for each in chances if each is not None)
    return Entity(kind, tuple(members), (start, end), segment, chance)

"""What happens without a word, or with another one, beside what a method says of it."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.model.model import Model
from alti.model.request import SameForEveryClass
from alti.model.source import By, Group, One, Place, Source

MEASURED = "leave_one_out"
ADDED = ("word", "token")  # groups whose score is the sum of their tokens', as views show it


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Words (or other groups): what a method says of each, and the probability without it.

    >>> found = alti.what_if(model, "A clever film.", method="absence")
    >>> found.before, found.after, found.rank_correlation
    """

    predicted: Attribution  # scores by group
    measured: Attribution  # of the same groups: how much log p falls without each (leave_one_out)
    before: float  # the probability of what is explained

    @property
    def after(self) -> Tensor:
        """The probability without each group: [G]."""
        return (math.log(self.before) - self.measured.scores.double()).exp()

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's ρ of predicted scores and measured falls; None where there is no order."""
        return correlation_of_ranks(self.predicted.scores, self.measured.scores)


@dataclass(frozen=True, slots=True)
class Change:
    """What is explained before and after a change of the text: the probability of the same."""

    label: str
    before: float
    after: float


def what_if(
    model: Model,
    text: Any = None,
    text_pair: str | None = None,
    *,
    method: str = "absence",
    groups: By = "word",
    only: Place | None = None,
    target: Any = None,
    position: int | None = None,
    options: Mapping[str, Any] | None = None,
    **asked: Any,
) -> WhatIf:
    """What a method says of every word (or group) of a text, and what happens without it.

    Without it means: its tokens are taken out of what the model read and the gap is closed, the
    text is not tokenized again, as `leave_one_out` does it. `only` names one by a character of it;
    others are then not measured, and the result holds it alone. An answer (`answer=`,
    `answer_ids=`, `part=`) is one prediction, whose probability is that of all its tokens.

    >>> alti.what_if(model, "A clever but bad film.", method="absence").rank_correlation
    """
    said = _said(target=target, position=position, **asked)
    own = dict(options or {})
    predicted = _predicted(model, (text, text_pair), method, groups, {**said, **own})
    left_out: Any = groups if only is None else One(groups, only)
    measured = model.explain(text, text_pair, method=MEASURED, groups=left_out, **said)
    predicted = _matched(predicted, measured.source)
    return WhatIf(predicted, measured, _chance(measured))


def instead(
    model: Model,
    text: Any = None,
    text_pair: str | None = None,
    *,
    at: Place,
    new: str,
    groups: By = "word",
    target: Any = None,
    position: int | None = None,
    **asked: Any,
) -> Change:
    """The probability of what is explained before and after another text takes a word's place.

    The changed text is tokenized again. What the model predicts for the text as it was is the
    target of both.

    >>> alti.instead(model, "A dull film.", at=(0, 2), new="clever").after
    """
    said = _said(target=target, position=position, **asked)
    one = model.explain(text, text_pair, method="random", layers=False, **said)
    source, _ = one.source.grouped(groups)
    group = source.groups[source.group_at(at)]
    changed = _changed(one.source, group, new, text, text_pair, said)
    if one.target is not None:
        said["target"] = one.target
    said.update(changed.pop("said", {}))
    with warnings.catch_warnings():  # no scores were asked for
        warnings.simplefilter("ignore", SameForEveryClass)
        other = model.explain(**changed, method="random", layers=False, **said)
    return Change(one.label or "", _chance(one), _chance(other))


def _said(**asked: Any) -> dict[str, Any]:
    """What is explained; the tokens of an answer together."""
    said = {name: value for name, value in asked.items() if value is not None}
    answers = any(name in said for name in ("answer", "answer_ids", "generate"))
    return {**said, "total": True} if answers else said


def _predicted(
    model: Model, texts: tuple[Any, str | None], method: str, groups: By, said: dict[str, Any]
) -> Attribution:
    """A method's scores by group: sums over tokens for words, as a view shows them."""
    if isinstance(groups, str) and groups in ADDED:
        found: Attribution = model.explain(*texts, method=method, layers=False, **said)
        return found.grouped(groups)
    grouped: Attribution = model.explain(*texts, method=method, groups=groups, **said)
    return grouped


def _only(found: Attribution, numbers: list[int]) -> Attribution:
    """Some groups of a result."""
    source = found.source.only(numbers)
    return replace(found, source=source, scores=found.scores[numbers])


def _matched(predicted: Attribution, source: Source) -> Attribution:
    """The groups that were measured; words of an answer, say, cannot be left out of a text."""
    places = {(one.segment, one.span): i for i, one in enumerate(predicted.source.groups)}
    numbers = [places[one.segment, one.span] for one in source.groups]
    return predicted if numbers == list(range(len(predicted))) else _only(predicted, numbers)


def _chance(found: Attribution) -> float:
    """The probability of what is explained; of an answer, of all its tokens."""
    if "log_prob" in found.extra:
        return math.exp(found.extra["log_prob"])
    if found.probability is None:
        raise UsageError(
            "this model predicts no probability, so nothing can be measured without a word: use a "
            "classifier or a language model"
        )
    return found.probability


# A text in which something is replaced


def _changed(
    source: Source, group: Group, new: str, text: Any, pair: str | None, said: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of `explain` for the changed text."""
    if group.segment == 1 and pair is not None:
        return {"text": text, "text_pair": _replaced(pair, group.span, new)}
    if not source.parts:
        return {"text": _replaced(source.texts[0], group.span, new), "text_pair": pair}
    part = _part_of(source, group)
    start, end = (border - part.span[0] for border in group.span)
    content = _replaced(source.texts[0][slice(*part.span)], (start, end), new)
    if part.unit == "document":
        number = int(part.name.rpartition(" ")[2]) - 1
        documents = list(said["documents"])
        documents[number] = content
        return {"text": text, "said": {"documents": documents}}
    if part.unit == "question":
        return {"text": content}
    return {"text": _messages(text, part.name, content)}


def _part_of(source: Source, group: Group) -> Group:
    """The document, question or message that a group is in; the smallest that holds it."""
    start, end = group.span
    parts = [part for part in source.parts if part.span[0] <= start and end <= part.span[1]]
    if not parts:
        raise UsageError("this is no part of a message or a document: choose a word that is")
    return min(parts, key=lambda part: part.span[1] - part.span[0])


def _messages(chat: Sequence[Mapping[str, str]], name: str, content: str) -> list[dict[str, str]]:
    """A chat with another content of the message that is called so: "user 2"."""
    role, _, number = name.rpartition(" ")
    places = [i for i, message in enumerate(chat) if message["role"] == role]
    changed = [dict(message) for message in chat]
    changed[places[int(number) - 1]]["content"] = content
    return changed


def _replaced(text: str, span: tuple[int, int], new: str) -> str:
    return text[: span[0]] + new + text[span[1] :]


def correlation_of_ranks(a: Tensor, b: Tensor) -> float | None:
    """Spearman's ρ, ranks of equal numbers averaged; None where one of them orders nothing."""
    if len(a) < 2:
        return None
    ranks = torch.stack([_ranks(a), _ranks(b)])
    ranks = ranks - ranks.mean(1, keepdim=True)
    sizes = ranks.norm(dim=1)
    return float((ranks[0] @ ranks[1]) / sizes.prod()) if bool(sizes.all()) else None


def _ranks(numbers: Tensor) -> Tensor:
    values = numbers.double()
    below = (values[None] < values[:, None]).sum(1)
    same = (values[None] == values[:, None]).sum(1)
    return below + (same + 1) / 2

"""The result for several predictions about one text."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.methods import METHODS
from alti.model import stored
from alti.model.alignment import NEAR, Alignment, align
from alti.model.attribution import Attribution
from alti.model.content import Content
from alti.model.entities import entities_of
from alti.model.results import (
    Prediction,
    Result,
    added_up,
    log_prob_of,
    relevance,
    source_share,
    together,
)
from alti.model.source import By, Source

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Attributions(Result):
    """How much each token of a text counts for each of several predictions.

    Iterating gives an `Attribution` for each of them; `total()` is one for all of them together.
    """

    source: Source
    predictions: tuple[Prediction, ...]  # K
    scores: Tensor  # [K, T]
    method: str
    layers: Tensor | None = None  # [L, T, T]  the same for every prediction
    model: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    extra: tuple[dict[str, float], ...] = ()  # about each result as a whole

    def __len__(self) -> int:
        return len(self.predictions)

    def __iter__(self) -> Iterator[Attribution]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, k: int) -> Attribution:
        return self._one(self.predictions[k], self.scores[k], self.extra[k] if self.extra else {})

    def _one(self, prediction: Prediction, scores: Tensor, extra: dict[str, float]) -> Attribution:
        return Attribution(
            source=self.source,
            prediction=prediction,
            scores=scores,
            method=self.method,
            layers=self.layers,
            model=self.model,
            options=self.options,
            extra=extra,
        )

    def total(self, *, through_answer: bool = False) -> Attribution:
        """All predictions together: the sum of their scores, or their mean if these are shares.

        With `through_answer`, what an answer's tokens took from earlier ones is passed on to the
        prompt, which those rest on: only for shares.
        """
        mean = self.method in METHODS and not METHODS[self.method].class_specific
        rows = self._through_answer() if through_answer else self.scores
        ungrouped = [one["ungrouped"] for one in self.extra if "ungrouped" in one]
        extra = {"ungrouped": sum(ungrouped) / (len(self) if mean else 1)} if ungrouped else {}
        extra |= log_prob_of(self.source, self.predictions)
        prediction = together(self.source, self.predictions)
        return self._one(prediction, rows.mean(0) if mean else rows.sum(0), extra)

    def _through_answer(self) -> Tensor:
        """(I − A)⁻¹ P of rows [P | A], A strictly lower triangular: [K, T], 0 at the answer."""
        start = self.source.answer
        whole = self.source.by == "token" and start is not None
        if start is None or not whole or len(self) != len(self.source) - start:
            raise UsageError(
                "through_answer = True needs every token of an answer: explain with answer= or "
                "generate=, and take the total before grouping"
            )
        if self.method not in METHODS or not METHODS[self.method].shares_of_input:
            raise UsageError(
                f"through_answer = True passes shares on, and {self.method} gives none: use alti"
            )
        rows = self.scores.double()
        own = rows[:, start:].tril(-1)  # [K, K]
        identity = torch.eye(len(self), dtype=own.dtype)
        passed = torch.linalg.solve_triangular(identity - own, rows[:, :start], upper=False)
        return torch.cat([passed, torch.zeros_like(own)], 1).to(self.scores.dtype)

    def alignment(self, *, near: float = NEAR, spaced: bool = False) -> Alignment:
        """Which words of the source each word of a target comes from.

        A target word is linked to the source word with the highest score, and to others with at
        least `near` times that. `spaced`: words are what stands between spaces.

        >>> print(model.explain("Ein Hund läuft.", answer="A dog runs.").alignment())  # 0-0 1-1 …
        """
        options = (f"{name}={value}" for name, value in self.options.items())
        by = " · ".join(filter(None, (":".join([self.method, *options]), self.model)))
        return replace(align(self.source, self.scores, near=near, spaced=spaced), by=by)

    def grouped(self, by: By) -> Self:
        """The scores of words, sentences, lines or spans, as in `Attribution.grouped`."""
        if self.source.is_grouped(by):
            return self
        source, groups = self.source.grouped(by)
        scores, rest = added_up(self.scores, groups)
        extra = self.extra or ({},) * len(self)
        return replace(
            self,
            source=source,
            predictions=tuple(replace(one, position=None) for one in self.predictions),
            scores=scores,
            layers=None,
            extra=tuple(
                {**one, "ungrouped": float(left)} for one, left in zip(extra, rest, strict=True)
            ),
        )

    def entities(self) -> Self:
        """The entities that a token classifier finds: a prediction for each, of all its tokens.

        Scores are those of its tokens together, as in `total`; its probability is that all their
        labels are right. `.grouped("entity")` then adds up the scores of each entity's tokens.

        >>> model.explain("Ada Lovelace lived in London.", positions="all").entities()
        """
        found = entities_of(self.source, self.predictions)
        if not found:
            raise UsageError(
                "the model finds no entity here: every label is O; explain with positions='all'"
            )
        mean = self.method in METHODS and not METHODS[self.method].class_specific
        rows = [self.scores[list(one.members)] for one in found]
        texts = [self.source.texts[one.segment][slice(*one.span)] for one in found]
        of = self.predictions[0].of
        return replace(
            self,
            source=replace(self.source, parts=tuple(one.part() for one in found)),
            predictions=tuple(
                Prediction(label=f"{one.kind} {text!r}", probability=one.probability, of=of)
                for one, text in zip(found, texts, strict=True)
            ),
            scores=torch.stack([row.mean(0) if mean else row.sum(0) for row in rows]),
            extra=(),
        )

    def words(self) -> Self:
        """The scores of words: `grouped("word")`."""
        return self.grouped("word")

    @property
    def source_share(self) -> Tensor:
        """How much of each prediction of an encoder–decoder comes from its source: [K].

        The rest comes from the prefix of what it writes. Of signed scores, sizes are compared.
        """
        return source_share(self.source, self.scores)

    def relevance(self, layer: int = -1) -> Tensor:
        """What every token is made of after a layer, as in `Attribution.relevance`: [T, T]."""
        return relevance(self.layers, self.method, layer)

    def plot(self, kind: str = "predictions", **options: Any) -> "Figure":
        """A picture: a row of tokens for each prediction; other kinds are drawn of `total()`.

        What was heard in a sound is drawn over seconds.
        """
        if self.source.seconds is not None:
            heard: Figure = import_module("alti.views.plots").sound(self).get_figure(root=True)
            return heard
        if kind == "lens":
            said: Figure = import_module("alti.views.plots").lens(self).get_figure(root=True)
            return said
        if kind != "predictions":
            return self.total().plot(kind, **options)
        figure: Figure = (
            import_module("alti.views.plots").predictions(self, **options).get_figure(root=True)
        )
        return figure

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What to_dict() gave, checked."""
        return cls._of(stored.from_dict(plain, "attributions"))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what save() wrote, checked."""
        return cls._of(stored.load(path, "attributions"))

    def _content(self) -> Content:
        return Content(
            "attributions",
            stored.source_fields(self.source),
            [stored.fields_of(one) for one in self.predictions],
            self.scores,
            self.layers,
            self.method,
            self.model,
            self.options,
            list(self.extra) or [{} for _ in self.predictions],
        )

    @classmethod
    def _of(cls, content: Content) -> Self:
        return cls(
            source=stored.source_of(content),
            predictions=tuple(Prediction(**one) for one in content.predictions),
            scores=content.scores,
            method=content.method,
            layers=content.layers,
            model=content.model,
            options=content.options,
            extra=tuple(content.extra),
        )

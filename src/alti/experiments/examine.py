"""Examines methods on questions: scores of sources, and what happens without them.

A text has a row about itself, with every number that the model was asked for, and a row for each
method. Each is written as soon as it is computed, and nothing in it depends on earlier texts: a run
that was stopped and resumed writes the same bytes.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from alti import methods
from alti._errors import AltiError, DecompositionError, LoadError, UsageError
from alti.experiments.asked import Asked
from alti.experiments.cases import Case, case_of
from alti.experiments.cost import counting
from alti.experiments.data import Skipped
from alti.experiments.evaluate import Row, Spec
from alti.experiments.store import ABOUT
from alti.experiments.study import Study
from alti.methods.ablation import values_without
from alti.metrics import METRICS, Faithfulness, OfSources
from alti.model.examples import SENTENCES
from alti.model.model import Model
from alti.model.question import Question
from alti.model.request import Request

Removed = tuple[int, ...]


class Values:
    """What is explained of a text without some parts; nothing is asked twice."""

    def __init__(self, model: Model, case: Case) -> None:
        self.model = model
        self.case = case
        self.known: dict[Removed, float] = {}

    def __call__(self, questions: Sequence[Sequence[int]]) -> list[float]:
        """log p of the answer, or how far it is above its rival's, for each list of parts."""
        keys = [tuple(question) for question in questions]
        new = [key for key in dict.fromkeys(keys) if key not in self.known]
        if new:
            self.known |= zip(new, self._asked(new), strict=True)
        return [self.known[key] for key in keys]

    def _asked(self, questions: list[Removed]) -> list[float]:
        inputs = self.case.inputs
        removed = torch.zeros(
            len(questions), inputs.mask.shape[1], dtype=torch.bool, device=inputs.mask.device
        )
        for row, parts in enumerate(questions):
            removed[row, [token for part in parts for token in self.case.removable[part]]] = True
        values = values_without(
            self.model.model, inputs, self.case.target, 0, removed, of="log_prob"
        )
        return [float(value) for value in values.double().sum(1).tolist()]


class Examiner:
    """Computes the rows of texts."""

    def __init__(self, model: Model, study: Study) -> None:
        if model.head.kind != "causal":
            raise UsageError(
                f"the task {study.task} asks a language model, and {model.name or 'this model'} "
                "writes no text: load a causal one (AutoModelForCausalLM)"
            )
        self.model = model
        self.study = study
        self.specs = study.specs()
        self.measures = study.measures()
        self.proved: set[str] = set()  # methods that were run once

    def rows(self, asked: Asked | Skipped, stored: Mapping[str | None, Row]) -> Iterator[Row]:
        """The rows of one text that are not stored yet, one after the other."""
        try:
            if isinstance(asked, Skipped):
                raise UsageError(asked.reason)
            case = case_of(self.model, asked)
            values = Values(self.model, case)
            _remember(values, stored)
            about = stored.get(ABOUT) or self._about(asked, case, values)
        except AltiError as error:
            yield {"text": asked.number, "skipped": str(error)}
            return
        if ABOUT not in stored:
            yield about
        for spec in self.specs:
            if spec not in stored:
                yield self._row(asked.number, spec, case, values, about)

    def _about(self, asked: Asked, case: Case, values: Values) -> Row:
        """The row of a text: its sources, its answer, and the model's numbers."""
        subsets = self._subsets(asked.number, len(case.sources))
        full, *left = values([[], *map(_removed, subsets)])
        if not all(map(math.isfinite, (full, *left))):
            raise UsageError("the model's prediction is not finite")
        if asked.rivals is not None and full <= 0:
            raise UsageError("the model prefers bad")
        return {
            "text": asked.number,
            "sources": len(case.sources),
            "tokens": case.inputs.mask.shape[1],
            "answer": case.answer,
            **({} if asked.task is None else {"task": asked.task}),
            **({"known": case.known} if case.known else {}),
            "full": full,
            **({"subsets": subsets, "values": left} if subsets else {}),
        }

    def _subsets(self, number: int, sources: int) -> list[str]:
        """Random halves of the sources, 1 where one is kept: each is kept as often as not."""
        if not any(METRICS[name].needs == "subsets" for name, _ in self.measures.values()):
            return []
        draw = random.Random(f"{self.study.seed} {number}")
        count = self.study.subsets
        return ["".join(draw.choice("01") for _ in range(sources)) for _ in range(count)]

    def _row(self, number: int, spec: str, case: Case, values: Values, about: Row) -> Row:
        try:
            tokens, cost = self._scores(spec, case)
        except (UsageError, LoadError):  # the same for every text
            raise
        except AltiError as error:  # a proof failed: this method says nothing about this text
            return {"text": number, "method": spec, "refused": str(error), "values": {}}
        method = methods.METHODS[self.specs[spec].name]
        if method.takes_groups and case.inputs.groups is not None:
            scores = tokens.tolist()
        else:
            scores = by_source(tokens, case.sources, chance=not method.reads_model)
        parts = scores
        if case.removable is not case.sources:
            parts = by_source(tokens, case.removable)
        asked: dict[Removed, float] = {}

        def answered(questions: list[list[int]]) -> list[float]:
            found = values(questions)
            asked.update(zip(map(tuple, questions), found, strict=True))
            return found

        row = {"text": number, "method": spec, **cost, "scores": scores}
        if parts is not scores:
            row["parts"] = parts
        row["values"] = {
            column: _plain(_value(measure, scores, parts, about, answered))
            for column, measure in self.measures.items()
        }
        row["without"] = [[list(key), value] for key, value in asked.items() if key]
        return row

    def _scores(self, spec: str, case: Case) -> tuple[Tensor, dict[str, int]]:
        """Scores of tokens [T], or of sources [S] by methods that take groups; and their cost."""
        name, options = self.specs[spec]
        chosen = methods.METHODS[name]
        self._prove(spec)
        with counting(self.model) as count:
            found = methods.call(
                chosen, self.model.model, case.inputs, case.target, layers=False, **options
            )
        scores = found.tokens[0, 0].detach().double().cpu()
        if not bool(scores.isfinite().all()):
            raise AltiError(f"{spec} gives scores that are not finite: try --dtype float32")
        return scores, {"forward": count["texts"], "backward": count["backward"]}

    def _prove(self, spec: str) -> None:
        """Run a method once on a short text: what it proves about a model is no cost of a text."""
        if spec in self.proved:
            return
        name, options = self.specs[spec]
        request = Request()
        task = self.model.read(Question(text=SENTENCES[0]), request)
        inputs, target = self.model.batch([task], request)
        self.proved.add(spec)
        with suppress(DecompositionError):
            methods.call(
                methods.METHODS[name], self.model.model, inputs, target, layers=False, **options
            )


def by_source(scores: Tensor, sources: list[list[int]], *, chance: bool = False) -> list[float]:
    """One score for each source: the sum of its tokens'.

    Of chance, that of its first token: sums would favour long sources.
    """
    return [float(scores[tokens[:1] if chance else tokens].sum()) for tokens in sources]


def _value(
    measure: Spec, scores: list[float], parts: list[float], about: Row, predict: Any
) -> float:
    """A metric's value, from what is stored and what the model says without some parts."""
    name, options = measure
    metric = METRICS[name]
    if isinstance(metric, Faithfulness):
        return float(metric(predict, parts, **options))
    assert isinstance(metric, OfSources)
    if metric.needs == "subsets":
        kept = [[int(bit) for bit in subset] for subset in about["subsets"]]
        return float(metric(scores, kept, about["values"], **options))
    known = [float(i in about.get("known", ())) for i in range(len(scores))]
    return float(metric(scores, known, **options))


def _remember(values: Values, stored: Mapping[str | None, Row]) -> None:
    """What an earlier run asked about this text."""
    if about := stored.get(ABOUT):
        values.known[()] = about["full"]
        subsets = zip(about.get("subsets", ()), about.get("values", ()), strict=True)
        values.known |= {tuple(_removed(subset)): value for subset, value in subsets}
    for row in stored.values():
        values.known |= {tuple(key): value for key, value in row.get("without", ())}


def _removed(subset: str) -> list[int]:
    return [i for i, bit in enumerate(subset) if bit == "0"]


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value  # JSON has no nan

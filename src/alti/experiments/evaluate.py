"""Evaluates methods on texts: every method's scores and every metric's value, in few batches."""

import re
import time
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from alti import methods
from alti._errors import AltiError, UsageError
from alti.experiments.cost import counting
from alti.experiments.data import Example, Skipped
from alti.experiments.predict import Predictor, batches
from alti.methods import Inputs, Scores, Target
from alti.metrics import METRICS, Asking, Faithfulness, Plausibility, answer
from alti.model.encoded import Encoded
from alti.model.model import Model
from alti.model.request import Request, Task

BY_SIZE = " |·|"  # after a metric's name: tokens ranked by the size of their scores

Row = dict[str, Any]


class Spec(NamedTuple):
    """A method, or a metric, with its options."""

    name: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is done to every text."""

    specs: dict[str, Spec]
    metrics: dict[str, Spec]
    mask: bool = False
    mask_token: str | None = None  # how the data spells it
    truncate: bool = False
    keep_scores: bool = False
    pairs: bool = False


class _Text(NamedTuple):
    """A text that can be explained, and the model's prediction."""

    example: Example
    task: Task
    target: int
    probability: float


class _Place(NamedTuple):
    """Where a value belongs: a method, the number of a text in its chunk, a column."""

    method: str
    text: int
    column: str


class Judge:
    """Computes rows: the value of each metric for each method on each text."""

    def __init__(self, model: Model, setting: Setting) -> None:
        self.model = model
        self.setting = setting
        self.predictor = Predictor(model, pairs=setting.pairs)
        self.request = Request(truncate=setting.truncate)
        self.mask_id = model.encoder.mask_id
        if setting.mask and self.mask_id is None:
            raise UsageError(
                "tokens cannot be masked, this tokenizer has no mask token: delete them instead"
            )
        if setting.mask and model.head.kind in ("masked", "token"):
            raise UsageError(
                "tokens cannot be masked, this model predicts at its mask token: "
                "delete them instead"
            )

    def rows(self, chunk: list[Example | Skipped]) -> list[Row]:
        """A row for each text and method, one for each skipped text, and one on the work done."""
        start = time.perf_counter()
        with counting(self.model) as count:
            texts, skipped = self._texts(chunk)
            before = count["texts"]
            scores = self._scores(texts)
            explained = count["texts"] - before
            values, questions = self._values(texts, scores)
        rows = [
            self._row(text, spec, scores[spec][i], values[spec][i])
            for i, text in enumerate(texts)
            for spec in self.setting.specs
        ]
        work = {
            "passes": count["passes"],
            "sequences": count["texts"],
            "unbatched": explained + questions + len(texts),
            "seconds": round(time.perf_counter() - start, 3),
        }
        return [*skipped, *rows, {"work": work}]

    def _texts(self, chunk: list[Example | Skipped]) -> tuple[list[_Text], list[Row]]:
        """The texts that can be explained, and a row for each that cannot."""
        usable: list[tuple[Example, Task]] = []
        skipped: list[Row] = []
        for row in chunk:
            try:
                if isinstance(row, Skipped):
                    raise UsageError(row.reason)
                usable.append((row, self._task(row)))
            except AltiError as error:
                skipped.append({"text": row.number, "skipped": str(error)})
        predictions = self.predictor.probabilities([task.encoded.ids for _, task in usable])
        texts: list[_Text] = []
        for (row, task), probabilities in zip(usable, predictions.unbind(), strict=True):
            if bool(probabilities.isfinite().all()):
                target = int(probabilities.argmax())
                texts.append(_Text(row, task, target, float(probabilities[target])))
            else:
                reason = "the model's prediction is not finite"
                skipped.append({"text": row.number, "skipped": reason})
        return texts, skipped

    def _task(self, row: Example) -> Task:
        task = self.model.task(self._text(row), row.pair, self.request)
        encoded = task.encoded
        if row.pair is not None and self.model.encoder.types_of(encoded.ids) != encoded.types:
            raise UsageError("a text of the pair has special tokens inside")
        return task

    def _text(self, row: Example) -> str:
        """The text, with the mask token spelt as the tokenizer does."""
        spelt = self.setting.mask_token
        mask_token = self.model.encoder.tokenizer.mask_token
        return row.text.replace(spelt, mask_token) if spelt and mask_token else row.text

    def _scores(self, texts: list[_Text]) -> dict[str, list[Tensor]]:
        """Scores [T] of every text, by method."""
        by_method = {spec: [torch.empty(0)] * len(texts) for spec in self.setting.specs}
        tokens = self.predictor.tokens if self.model.head.takes_batches else 1
        lengths = [len(text.task.encoded.ids) for text in texts]
        for batch in batches(lengths, tokens):
            inputs, target = self.model.batch([texts[i].task for i in batch], self.request)
            index = torch.tensor([[texts[i].target] for i in batch], device=inputs.mask.device)
            for spec, scores in self._run(inputs, replace(target, index=index)):
                scores = scores.detach().double().cpu()
                for row, i in enumerate(batch):
                    by_method[spec][i] = scores[row, : lengths[i]]
        return by_method

    def _run(self, inputs: Inputs, target: Target) -> Iterator[tuple[str, Tensor]]:
        """Scores [B, T] of every method; those that differ only in `aggregate` are run once."""
        for first, *others in self._groups():
            name, options = self.setting.specs[first]
            scores = methods.run(name, self.model.model, inputs, target, layers=False, **options)
            yield first, scores.tokens[:, 0]
            for spec in others:
                yield spec, self._aggregated(spec, scores, inputs)

    def _groups(self) -> list[list[str]]:
        """The methods that differ only in `aggregate`."""
        groups: dict[str, list[str]] = {}
        for spec, (name, options) in self.setting.specs.items():
            common = {key: value for key, value in options.items() if key != "aggregate"}
            groups.setdefault(f"{name} {sorted(common.items())}", []).append(spec)
        return list(groups.values())

    def _aggregated(self, spec: str, scores: Scores, inputs: Inputs) -> Tensor:
        if scores.vectors is None:
            return scores.tokens[:, 0]
        name, options = self.setting.specs[spec]
        return methods.METHODS[name].aggregated(scores.vectors, inputs.mask, options)[:, 0]

    def _values(
        self, texts: list[_Text], scores: dict[str, list[Tensor]]
    ) -> tuple[dict[str, list[Row]], int]:
        """Every metric's value for every text, by method; and how many questions that took."""
        values: dict[str, list[Row]] = {spec: [{} for _ in texts] for spec in scores}
        askings: dict[_Place, Asking[Any]] = {}
        tally = [0]  # questions, counting repeated ones
        for place, name, options, ranked in self._places(scores):
            text = texts[place.text]
            metric = METRICS[name]
            if isinstance(metric, Faithfulness):
                encoded = text.task.encoded
                asking = metric.ask(encoded.ids, encoded.special, ranked, **options)
                askings[place] = _counted(asking, tally)
            elif isinstance(metric, Plausibility):
                own = scores[place.method][place.text]
                by_size = place.column.endswith(BY_SIZE)
                value = _plausibility(metric, text, own, by_size=by_size)
                values[place.method][place.text][place.column] = value
        targets = [texts[place.text].target for place in askings]
        answers = answer(askings.values(), self.predictor, targets)
        for place, value in zip(askings, answers, strict=True):
            values[place.method][place.text][place.column] = value
        return values, tally[0]

    def _places(
        self, scores: dict[str, list[Tensor]]
    ) -> Iterator[tuple[_Place, str, dict[str, Any], Tensor]]:
        """Each value to compute: its metric, the metric's options and the scores to rank by."""
        masking = {"mask_id": self.mask_id} if self.setting.mask else {}
        count = len(next(iter(scores.values())))
        for i in range(count):
            for spec in scores:
                for suffix, ranked in _rankings(scores[spec][i]):
                    for column, (name, options) in self.setting.metrics.items():
                        place = _Place(spec, i, column + suffix)
                        yield place, name, {**masking, **options}, ranked

    def _row(self, text: _Text, spec: str, scores: Tensor, values: Row) -> Row:
        label = self._label(text.example)
        row: Row = {
            "text": text.example.number,
            "method": spec,
            "gold": text.example.label,
            "target": text.target,
            "probability": text.probability,
            "tokens": len(scores),
            # JSON has no nan
            "values": {name: None if value != value else value for name, value in values.items()},
        }
        if label is not None:
            row["right"] = label == text.target
        if text.task.encoded.cut:
            row["cut"] = True
        if self.setting.keep_scores:
            row["scores"] = scores.tolist()
        return row

    def _label(self, example: Example) -> int | None:
        """The class that the data gives; None if it gives none, or one that the model lacks."""
        head = self.model.head
        if head.kind not in ("sequence", "token") or head.config.num_labels == 1:
            return None
        label = head.config.label2id.get(example.label, example.label)
        return label if isinstance(label, int) and 0 <= label < head.config.num_labels else None


def _rankings(scores: Tensor) -> list[tuple[str, Tensor]]:
    """By score, and by its size where that is another order."""
    return [("", scores), (BY_SIZE, scores.abs())] if bool((scores < 0).any()) else [("", scores)]


def _plausibility(
    metric: Plausibility[..., Any], text: _Text, scores: Tensor, *, by_size: bool
) -> float:
    """A rationale weighs words: a word's score is the sum of its tokens'.

    Words that were cut off do not count.
    """
    rationale = text.example.rationale
    if rationale is None:
        return float("nan")
    words = _word_scores(text.task.encoded, scores)
    own = [abs(score) if by_size else score for score in words.values()]
    return float(metric(own, [rationale[word] for word in words]))


def _word_scores(encoded: Encoded, scores: Tensor) -> dict[int, float]:
    """The score of each word of the first text, by its number."""
    # of the encoded text: there the mask token is spelt as the tokenizer does
    ends = [match.end() for match in re.finditer(r"\S+", encoded.text)]
    words: dict[int, float] = {}
    tokens = zip(encoded.offsets, encoded.segments, encoded.special, scores.tolist(), strict=True)
    for (start, end), segment, special, score in tokens:
        word = bisect(ends, start)
        if segment == 0 and not special and end > start and word < len(ends):
            words[word] = words.get(word, 0.0) + score
    return words


def _counted(asking: Asking[Any], tally: list[int]) -> Asking[Any]:
    """The same questions, counted."""
    reply: Any = None
    while True:
        try:
            questions = asking.send(reply)
        except StopIteration as stop:
            return stop.value
        tally[0] += len(questions)
        reply = yield questions

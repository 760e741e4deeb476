"""Judges methods on texts: every method's scores, every metric's value, all questions to the model in few batches."""

import re
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from alti import methods
from alti._errors import AltiError, UsageError
from alti.experiments.data import Example, Skipped
from alti.experiments.predict import Predictor, batches
from alti.methods import Inputs, Target
from alti.methods.gradients import aggregated
from alti.metrics import METRICS, Asking, answer, average_precision, token_f1
from alti.model.model import Model, Request, Task
from alti.read.modules import network

PLAUSIBILITY: dict[str, Callable[..., float]] = {
    "average_precision": average_precision,
    "token_f1": token_f1,
}
BY_SIZE = " |·|"  # behind a metric's name: tokens ranked by the size of their scores

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
    mask_token: str | None = None  # how the data writes it
    truncate: bool = False
    keep_scores: bool = False
    pairs: bool = False


class _Text(NamedTuple):
    """A text that can be explained, and what the model says to it."""

    example: Example
    task: Task
    target: int
    probability: float


class Judge:
    """Computes rows: what each metric says of each method on each text."""

    def __init__(self, model: Model, setting: Setting) -> None:
        self.model, self.setting, self.predictor = (
            model,
            setting,
            Predictor(model, pairs=setting.pairs),
        )
        self.request = Request(truncate=setting.truncate)
        self.mask_id = model.encoder.tokenizer.mask_token_id
        if setting.mask and self.mask_id is None:
            raise UsageError(
                "masking was asked for, but this tokenizer has no mask token: delete tokens instead"
            )
        if setting.mask and model.head.kind in ("masked", "token"):
            raise UsageError(
                "masking was asked for, but this model predicts at its mask token: delete tokens instead"
            )

    def rows(self, chunk: list[Example | Skipped]) -> list[Row]:
        """A row for each text and method, one for each text that was passed over, and one on the work it took."""
        start = time.perf_counter()
        with _counting(self.model) as count:
            texts, passed = self._texts(chunk)
            before = count["texts"]
            scores = self._scores(texts)
            explained = count["texts"] - before
            values, asked = self._values(texts, scores)
        rows = [
            self._row(text, spec, scores[spec][i], values[spec][i])
            for i, text in enumerate(texts)
            for spec in self.setting.specs
        ]
        seconds = round(time.perf_counter() - start, 3)
        work = {
            "passes": count["passes"],
            "sequences": count["texts"],
            "unbatched": explained + asked + len(texts),
        }
        return [*passed, *rows, {"work": {**work, "seconds": seconds}}]

    def _texts(self, chunk: list[Example | Skipped]) -> tuple[list[_Text], list[Row]]:
        good: list[tuple[Example, Task]] = []
        passed: list[Row] = []
        for row in chunk:
            try:
                if isinstance(row, Skipped):
                    raise UsageError(row.reason)
                good.append((row, self._task(row)))
            except AltiError as error:
                passed.append({"text": row.number, "skipped": str(error)})
        likely = self.predictor.probabilities([task.encoded.ids for _, task in good]).unbind()
        texts: list[_Text] = []
        for (row, task), chances in zip(good, likely, strict=True):
            if bool(chances.isfinite().all()):
                target = int(chances.argmax())
                texts.append(_Text(row, task, target, float(chances[target])))
            else:
                passed.append(
                    {"text": row.number, "skipped": "the model's prediction is not finite"}
                )
        return texts, passed

    def _task(self, row: Example) -> Task:
        task, encoder = self.model.task(self._text(row), row.pair, self.request), self.model.encoder
        if row.pair is not None and encoder.types_of(task.encoded.ids) != task.encoded.types:
            raise UsageError("a text of the pair has special tokens inside")
        return task

    def _text(self, row: Example) -> str:
        own, written = self.model.encoder.tokenizer.mask_token, self.setting.mask_token
        return row.text.replace(written, own) if written and own else row.text

    def _scores(self, texts: list[_Text]) -> dict[str, list[Tensor]]:
        """Scores [T] of every text, by method."""
        found: dict[str, list[Tensor]] = {
            spec: [torch.empty(0)] * len(texts) for spec in self.setting.specs
        }
        tokens = self.predictor.tokens if self.model.head.takes_batches else 1
        for batch in batches([len(text.task.encoded.ids) for text in texts], tokens):
            inputs, target = self.model.batch([texts[i].task for i in batch], self.request)
            index = torch.tensor([texts[i].target for i in batch], device=inputs.mask.device)
            for spec, scores in self._run(inputs, replace(target, index=index)):
                for row, i in enumerate(batch):
                    found[spec][i] = (
                        scores[row, : len(texts[i].task.encoded.ids)].detach().double().cpu()
                    )
        return found

    def _run(self, inputs: Inputs, target: Target) -> Iterator[tuple[str, Tensor]]:
        """Every method on one batch; those that differ only in how they aggregate are computed once."""
        groups: dict[str, list[str]] = {}
        for spec, (name, options) in self.setting.specs.items():
            same = {key: value for key, value in options.items() if key != "aggregate"}
            groups.setdefault(f"{name} {sorted(same.items())}", []).append(spec)
        for specs in groups.values():
            name, options = self.setting.specs[specs[0]]
            scores = methods.run(name, self.model.model, inputs, target, layers=False, **options)
            yield specs[0], scores.tokens[:, 0]
            for spec in specs[1:]:
                chosen: Any = {**methods.METHODS[name].options, **self.setting.specs[spec].options}.get(
                    "aggregate"
                )
                yield (
                    spec,
                    scores.tokens[:, 0]
                    if scores.vectors is None
                    else aggregated(scores.vectors, chosen, inputs)[:, 0],
                )

    def _values(
        self, texts: list[_Text], scores: dict[str, list[Tensor]]
    ) -> tuple[dict[str, list[Row]], int]:
        """What every metric says of every text, by method; and how many questions that took, repeated ones counted."""
        values: dict[str, list[Row]] = {spec: [{} for _ in texts] for spec in scores}
        askings: list[Asking[Any]] = []
        places: list[tuple[str, int, str]] = []
        tally = [0]
        for i, text in enumerate(texts):
            for spec in scores:
                for kind, ranked in _rankings(scores[spec][i]):
                    for metric, (name, options) in self.setting.metrics.items():
                        if name in PLAUSIBILITY:
                            values[spec][i][metric + kind] = _plausibility(
                                name, text, scores[spec][i], kind
                            )
                            continue
                        encoded = text.task.encoded
                        if self.setting.mask:
                            options = {"mask_id": self.mask_id, **options}
                        asking = METRICS[name].ask(encoded.ids, encoded.special, ranked, **options)
                        askings.append(_tallied(asking, tally))
                        places.append((spec, i, metric + kind))
        answers = answer(askings, self.predictor, [texts[i].target for _, i, _ in places])
        for (spec, i, name), value in zip(places, answers, strict=True):
            values[spec][i][name] = value
        return values, tally[0]

    def _row(self, text: _Text, spec: str, scores: Tensor, values: Row) -> Row:
        row: Row = {
            "text": text.example.number,
            "method": spec,
            "gold": text.example.label,
            "target": text.target,
        }
        defined = {
            name: None if value != value else value for name, value in values.items()
        }  # JSON has no nan
        row |= {"probability": text.probability, "tokens": len(scores), "values": defined}
        if (label := self._label(text.example)) is not None:
            row["right"] = label == text.target
        row |= {"cut": True} if text.task.encoded.cut else {}
        return row | ({"scores": scores.tolist()} if self.setting.keep_scores else {})

    def _label(self, example: Example) -> int | None:
        """The class that the data says; None where it says none, or none that the model has."""
        head = self.model.head
        if head.kind not in ("sequence", "token") or head.config.num_labels == 1:
            return None
        label = head.config.label2id.get(example.label, example.label)
        return label if isinstance(label, int) and 0 <= label < head.config.num_labels else None


def _rankings(scores: Tensor) -> list[tuple[str, Tensor]]:
    """By score, and by its size where that is another order."""
    return [("", scores), (BY_SIZE, scores.abs())] if bool((scores < 0).any()) else [("", scores)]


def _plausibility(metric: str, text: _Text, scores: Tensor, kind: str) -> float:
    """A rationale weighs words: a word's score is the sum of its tokens'. Words that were cut off do not count."""
    if text.example.rationale is None:
        return float("nan")
    encoded = text.task.encoded
    ends = [
        match.end() for match in re.finditer(r"\S+", encoded.text)
    ]  # with the tokenizer's own mask token
    words: dict[int, float] = {}
    of_text = [
        owner == 0 and not special
        for owner, special in zip(encoded.segments, encoded.special, strict=True)
    ]
    for (start, end), own, score in zip(encoded.offsets, of_text, scores.tolist(), strict=True):
        word = bisect(ends, start)
        if own and end > start and word < len(ends):
            words[word] = words.get(word, 0.0) + score
    found = [abs(score) if kind == BY_SIZE else score for score in words.values()]
    return PLAUSIBILITY[metric](found, [text.example.rationale[word] for word in words])


def _tallied(asking: Asking[Any], tally: list[int]) -> Asking[Any]:
    """The same questions, counted."""
    reply: Any = None
    while True:
        try:
            questions = asking.send(reply)
        except StopIteration as stop:
            return stop.value
        tally[0] += len(questions)
        reply = yield questions


@contextmanager
def _counting(model: Model) -> Iterator[dict[str, int]]:
    """Forward passes of a model, and the sequences that went through it."""
    count = {"passes": 0, "texts": 0}

    def seen(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        count["passes"] += 1
        count["texts"] += len(kwargs["input_ids"])

    handle = network(model.model).register_forward_pre_hook(seen, with_kwargs=True)
    try:
        yield count
    finally:
        handle.remove()

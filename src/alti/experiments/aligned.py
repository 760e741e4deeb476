"""Compares methods by the word alignments that their scores give: `alti bench --task alignment`.

A row has a source, a target and gold links between their words, which stand between spaces:
`sure` and, if there are any, `possible`, as pairs of numbers from 0 on (0-0 1-2).
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from alti._errors import LoadError, UsageError
from alti.experiments.data import fingerprint, sample
from alti.experiments.formats import listed, rows_of
from alti.experiments.plan import parsed
from alti.metrics.alignment import (
    Counts,
    added,
    alignment_error_rate,
    count_links,
    link_precision,
    link_recall,
)
from alti.model.alignment import NEAR, align, links_of, require_inside
from alti.model.model import Model
from alti.views.tables import Cell, Table

METHODS = (
    "random",
    "attention",
    "attention_rollout",
    "norms",
    "alti",
    "input_x_gradient",
    "linear:of=log_prob",
    "alti_logit:of=log_prob",
    "absence:of=log_prob",
    "dimming",
    "consensus",
    "leave_one_out",
)
BATCH = 16
DRAWS = 1000  # of sentences, for the intervals

Watch = Callable[[int, int], None]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Aligning:
    """What a run computes; a file of rows belongs to one run."""

    model: str
    data: str
    methods: tuple[str, ...] = METHODS
    split: str | None = None
    first: int | None = None
    sample: int | None = None
    seed: int = 0
    near: float = NEAR  # as in `Attributions.alignment`


@dataclass(frozen=True, slots=True)
class Gold:
    """Two texts and their links."""

    number: int
    source: str
    target: str
    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def gold_of(plan: Aligning) -> list[Gold]:
    """The rows of a data set that have links."""
    rows = _gold(plan)
    chosen = sample(rows, plan.sample, plan.seed) if plan.sample else rows
    found = list(islice(chosen, plan.first))
    if not found:
        raise LoadError(f"{plan.data} has no rows: give a data set that has some")
    return found


def _gold(plan: Aligning) -> Iterator[Gold]:
    for number, row in enumerate(rows_of(plan.data, plan.split)):
        if isinstance(row, str):
            continue
        if missing := [name for name in ("source", "target", "sure") if name not in row]:
            raise UsageError(
                f"{plan.data} has no column {missing[0]!r}: the task alignment reads source, "
                f"target, sure and possible; its columns are {listed(row)}"
            )
        links = (links_of(row.get(name) or "", f"row {number}") for name in ("sure", "possible"))
        yield Gold(number, row["source"], row["target"], *links)


def run(plan: Aligning, model: Model, out: Path, watch: Watch | None = None) -> list[Row]:
    """A row of counts for each text and method, appended to a file that a stopped run resumes."""
    if model.head.kind != "seq2seq":
        raise UsageError(
            f"the task alignment needs an encoder–decoder, and {model.name} is none: load one"
        )
    specs = {spec: parsed(spec) for spec in plan.methods}
    golds = gold_of(plan)
    rows = _stored(plan, model, out)
    done = {(row["text"], row["method"]) for row in rows}
    total = len(golds) * len(specs)
    with out.open("a") as file:
        for spec, (name, options) in specs.items():
            left = [gold for gold in golds if (gold.number, spec) not in done]
            for start in range(0, len(left), BATCH):
                part = left[start : start + BATCH]
                made = _rows(plan, model, spec, name, options, part)
                file.writelines(json.dumps(row) + "\n" for row in made)
                file.flush()
                rows += made
                if watch:
                    watch(len(rows), total)
    return rows


def _rows(
    plan: Aligning, model: Model, spec: str, name: str, options: dict[str, Any], golds: list[Gold]
) -> list[Row]:
    """The counts of some texts with one method."""
    results = model.explain_all(
        [gold.source for gold in golds],
        answer=[gold.target for gold in golds],
        method=name,
        batch_size=BATCH,
        **options,
    )
    rows = []
    for gold, result in zip(golds, results, strict=True):
        found = align(result.source, result.scores, near=plan.near, spaced=True)
        require_inside([*gold.sure, *gold.possible], found)
        counts = count_links(found.links, gold.sure, gold.possible)
        rows.append({"text": gold.number, "method": spec, **counts._asdict()})
    return rows


def _stored(plan: Aligning, model: Model, out: Path) -> list[Row]:
    """The rows of an unfinished run of the same plan; a new file gets its first line."""
    head = {
        **json.loads(json.dumps(asdict(plan))),
        "fingerprint": model.fingerprint(),
        "data_fingerprint": fingerprint(plan.data),
    }
    if not out.exists() or not out.stat().st_size:
        out.write_text(json.dumps(head) + "\n")
        return []
    lines = out.read_text().splitlines()
    try:
        first, *rows = (json.loads(line) for line in lines)
    except ValueError:
        raise LoadError(
            f"{out} is damaged or was cut off: delete its last line, or name another file (--out)"
        ) from None
    if first != head:
        raise UsageError(f"{out} holds another run: name another file (--out)")
    return rows


def table(plan: Aligning, rows: list[Row]) -> Table:
    """Alignment error rate, precision and recall of each method over all sentences."""
    by_method = {
        spec: [
            Counts(*(row[name] for name in Counts._fields)) for row in rows if row["method"] == spec
        ]
        for spec in plan.methods
    }
    rates = {spec: alignment_error_rate(added(each)) for spec, each in by_method.items()}
    body = []
    for spec, counts in by_method.items():
        whole = added(counts)
        cells = (
            Cell(rates[spec], *_interval(counts), best=rates[spec] == min(rates.values())),
            Cell(link_precision(whole)),
            Cell(link_recall(whole)),
        )
        body.append((spec, cells))
    title = f"{plan.model} on {plan.data}" + (f" ({plan.split})" if plan.split else "")
    texts = len({row["text"] for row in rows})
    note = f"{texts} sentences; a source word counts from {plan.near} of the best one's score on."
    return Table(title, ("method", "AER ↓", "precision ↑", "recall ↑"), tuple(body), note)


def _interval(counts: list[Counts]) -> tuple[float, float]:
    """95 % of the error rates of sentences drawn with replacement."""
    numbers = np.array(counts)
    chance = np.random.default_rng(0)
    drawn = numbers[chance.integers(len(numbers), size=(DRAWS, len(numbers)))].sum(1)
    rates = [alignment_error_rate(Counts(*map(int, row))) for row in drawn]
    low, high = np.nanquantile(rates, (0.025, 0.975))
    return float(low), float(high)

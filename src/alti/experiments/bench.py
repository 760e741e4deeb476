"""Compares attribution methods on a data set: a row per text and method, stored as it goes.

Texts are taken in chunks of fixed composition, so a run that was stopped and resumed computes what
it would have computed anyway, to the bit. All questions that the metrics of a chunk ask go through
the model together.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from alti.experiments.data import fingerprint
from alti.experiments.evaluate import Judge
from alti.experiments.examine import Examiner
from alti.experiments.plan import (
    PAPER,
    Plan,
    default_methods,
    metrics_of,
    parsed,
    parsed_metric,
)
from alti.experiments.store import load_rows, opened
from alti.experiments.study import Study
from alti.experiments.summary import curves, summary, work
from alti.experiments.verdicts import cost, verdicts
from alti.model.model import Model

__all__ = [
    "PAPER",
    "Plan",
    "Progress",
    "Study",
    "cost",
    "curves",
    "default_methods",
    "fingerprints",
    "load_rows",
    "metrics_of",
    "parsed",
    "parsed_metric",
    "run",
    "summary",
    "total_of",
    "verdicts",
    "work",
]


class Progress(NamedTuple):
    """How far a run is."""

    texts: int  # done, including those of an earlier run
    total: int | None


def run(plan: Plan | Study, model: Model, file: Path) -> Iterator[Progress]:
    """Compute the rows of a plan that a file does not hold yet, and add them to it."""
    if isinstance(plan, Study):
        return _study(plan, model, file)
    return _plan(plan, model, file)


def _study(study: Study, model: Model, file: Path) -> Iterator[Progress]:
    """Text by text, row by row."""
    examiner = Examiner(model, study)
    of = fingerprints(study, model)
    total = total_of(study)
    questions = study.rows()
    with opened(file, study, of) as stored:
        for texts, asked in enumerate(questions, start=1):
            if not stored.holds(asked.number, study.methods):
                for row in examiner.rows(asked, stored.of(asked.number, study.methods)):
                    stored.add([row])
            yield Progress(texts, total)


def _plan(plan: Plan, model: Model, file: Path) -> Iterator[Progress]:
    """Chunk by chunk."""
    judge = Judge(model, plan.setting())
    of = fingerprints(plan, model)
    total = total_of(plan)
    rows = plan.rows()  # before the file is made: data that cannot be read leaves none
    texts = 0
    with opened(file, plan, of) as stored:
        while chunk := list(islice(rows, plan.chunk)):
            if not all(stored.holds(row.number, plan.methods) for row in chunk):
                stored.add(judge.rows(chunk))
            texts += len(chunk)
            yield Progress(texts, total)


def fingerprints(plan: Plan | Study, model: Model) -> dict[str, str]:
    """What names do not say: the dtype, and hashes of the model and the data."""
    of = {"dtype": model.dtype, "model": model.fingerprint()}
    if (data := fingerprint(plan.data)) is not None:
        of["data"] = data
    return of


def total_of(plan: Plan | Study) -> int | None:
    """How many rows there will be, where that is known without downloading them."""
    if Path(plan.data).exists():
        return sum(1 for _ in plan.rows())
    return plan.sample or plan.first

"""A benchmark whose texts are examined by the workers of an engine; the driver stores their rows.

The rows, and their order in the file, are those of `alti.experiments.bench.run`, so a run that one
engine began can be finished by another.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from alti._errors import UsageError
from alti.engines.compute import Loading
from alti.engines.data import absolute
from alti.engines.local import Engine
from alti.experiments.bench import Plan, Progress, Study, fingerprints, total_of
from alti.experiments.evaluate import Judge, Row
from alti.experiments.examine import Examiner
from alti.experiments.store import RowFile, opened
from alti.model.model import Model


class Unit(NamedTuple):
    """What a worker takes at once: a chunk of texts, or a question and what is known of it."""

    texts: int
    content: Any
    known: dict[str | None, Row]


Held = dict[int, dict[str | None, Row]]  # the rows of each text that are stored, by method


def run(
    plan: Plan | Study, model: Model, loading: Loading, file: Path, engine: Engine
) -> Iterator[Progress]:
    """Compute the rows of a plan that a file does not hold yet, and add them to it."""
    of = fingerprints(plan, model)
    total = total_of(plan)
    plan.rows()  # before the file is made: data that cannot be read leaves none
    engine.reach()
    with opened(file, plan, of) as stored:
        held = _held(stored)
        done = 0
        make = partial(_worker, plan, loading, of["model"])
        units = partial(_units, replace(plan, data=absolute(plan.data)), held)
        for texts, rows in engine.spread(make, units, ordered=True):
            stored.add(rows)
            done += texts
            yield Progress(done + _skipped(plan, held), total)


def _held(stored: RowFile) -> Held:
    held: Held = {}
    for (text, method), row in stored.stored.items():
        held.setdefault(text, {})[method] = row
    return held


def _is_complete(plan: Plan | Study, rows: dict[str | None, Row] | None) -> bool:
    return rows is not None and (None in rows or rows.keys() >= set(plan.methods))


def _skipped(plan: Plan | Study, held: Held) -> int:
    """How many texts were complete before."""
    return sum(_is_complete(plan, rows) for rows in held.values())


def _units(plan: Plan | Study, held: Held) -> Iterator[Unit]:
    """The work that is left, in order; a chunk holds the same texts in every run."""
    rows = plan.rows()
    size = 1 if isinstance(plan, Study) else plan.chunk
    while chunk := list(islice(rows, size)):
        new = [row for row in chunk if not _is_complete(plan, held.get(row.number))]
        if not new:
            continue
        if isinstance(plan, Study):
            yield Unit(1, chunk[0], held.get(chunk[0].number, {}))
        else:
            yield Unit(len(new), chunk, {})


def _worker(
    plan: Plan | Study, loading: Loading, fingerprint: str
) -> Callable[[Unit], tuple[int, list[Row]]]:
    model = loading.load()
    if model.fingerprint() != fingerprint:
        raise UsageError(
            f"{model.name} on a worker is another model than here: give it a name that means the "
            "same everywhere"
        )
    if isinstance(plan, Study):
        return partial(_examined, Examiner(model, plan))
    return partial(_judged, Judge(model, plan.setting()))


def _examined(examiner: Examiner, unit: Unit) -> tuple[int, list[Row]]:
    return unit.texts, list(examiner.rows(unit.content, unit.known))


def _judged(judge: Judge, unit: Unit) -> tuple[int, list[Row]]:
    return unit.texts, judge.rows(unit.content)

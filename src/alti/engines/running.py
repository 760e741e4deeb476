"""Explains many texts into a folder of Parquet files: one plan, whatever engine does the work."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import alti
from alti._errors import UsageError
from alti.engines.compute import Asked, Loading, rows
from alti.engines.data import Data, Scan, Shard, absolute
from alti.engines.local import Engine, Local
from alti.engines.rows import schema, table
from alti.engines.store import FORMAT, RUN, SHARD_ROWS, Store, opened


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run computes. Batches, devices and engines may change before it is continued."""

    data: Data
    loading: Loading = field(default_factory=Loading)
    asked: Asked = field(default_factory=Asked)
    shard_rows: int | None = None  # None: as the folder has it, or SHARD_ROWS

    def __post_init__(self) -> None:
        if self.shard_rows is not None and self.shard_rows < 1:
            raise UsageError(
                f"shard_rows = {self.shard_rows} is not a number of texts: give 1 or more"
            )

    def sized(self, folder: Path) -> "Plan":
        """The plan with the size of shards that a folder has already."""
        if self.shard_rows is not None:
            return self
        known = Store(folder).run() if (folder / RUN).is_file() else {}
        return replace(self, shard_rows=int(known.get("shard_rows", SHARD_ROWS)))

    def identity(self, scan: Scan | None) -> dict[str, Any]:
        """What must be the same when a run is continued, beside the model's own fingerprint."""
        usual = {"bos": "auto", "method": "alti"}
        options = {"method": "alti", **self.asked.options}
        said = {
            name: value
            for name, value in options.items()
            if name == "method" or value not in (None, False, usual.get(name))
        }
        method = said.pop("method")
        data = {"data": self.data.shown} if scan is None else {"data": scan.fingerprint}
        sizes = {"top_k": self.asked.top_k, "shard_rows": self.shard_rows}
        total = None if scan is None else scan.texts
        return {
            "alti_run": FORMAT,
            "method": method,
            "options": said,
            **sizes,
            "texts": total,
        } | data


class Progress(NamedTuple):
    """How far a run is."""

    texts: int  # done, including those of an earlier run
    total: int | None
    failed: int  # in this run
    new: int  # texts of this run


class Written(NamedTuple):
    """What a worker says about a shard."""

    number: int
    texts: int
    failed: int


@dataclass(frozen=True, slots=True)
class Worker:
    """Makes a worker: a function that explains a shard and writes it."""

    store: Store
    loading: Loading
    asked: Asked

    def __call__(self) -> Callable[[Shard], Written]:
        model = self.loading.load()
        method = self.asked.options.get("method", "alti")
        self.store.claim({"fingerprint": model.fingerprint(), "name": model.name})
        columns = schema(
            wide=model.dtype == "float64",
            layers=bool(self.asked.options.get("layers")),
            about={"model": model.name, "method": method, "alti": alti.__version__},
        )
        return partial(self._shard, model, columns)

    def _shard(self, model: Any, columns: Any, shard: Shard) -> Written:
        made = rows(model, shard.entries, self.asked)
        self.store.write(shard.number, table(made, columns))
        failed = sum(row.get("error") is not None for row in made)
        return Written(shard.number, len(made), failed)


def run(plan: Plan, folder: Path, engine: Engine | None = None) -> Iterator[Progress]:
    """Compute the shards that a folder does not hold yet, and say after each how far it is."""
    engine = engine or Local()
    plan = replace(plan.sized(folder), data=replace(plan.data, source=absolute(plan.data.source)))
    scan = plan.data.scan()
    total = None if scan is None else scan.texts
    engine.reach()
    with opened(folder, plan.identity(scan)) as store:
        finished = store.finished()
        done = sum(finished.values())
        failed = new = 0
        yield Progress(done, total, failed, new)
        worker = Worker(Store(folder.absolute()), plan.loading.absolute(), plan.asked)
        if done == total:
            worker()  # is it the same model?
            return
        missing = partial(_missing, plan.data, plan.shard_rows or SHARD_ROWS, frozenset(finished))
        for written in engine.spread(worker, missing):
            new += written.texts
            failed += written.failed
            yield Progress(done + new, total, failed, new)


def _missing(data: Data, size: int, finished: frozenset[int]) -> Iterator[Shard]:
    return (shard for shard in data.shards(size) if shard.number not in finished)

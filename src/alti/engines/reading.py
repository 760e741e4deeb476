"""Reads a folder of results back: as rows, as a table, or one attribution by its id."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alti._errors import LoadError, UsageError
from alti.engines.rows import Row, attribution_of
from alti.engines.store import existing
from alti.model.attribution import Attribution

if TYPE_CHECKING:
    import pandas
    import pyarrow

COLUMNS = (  # for everyone; the others serve to make an attribution again
    "id",
    "text",
    "pair",
    "label",
    "probability",
    "target",
    "tokens",
    "offsets",
    "scores",
    "error",
)

AGAIN = "the command that wrote it, run again, computes what is missing"
LEFT_OUT = f"left out here; {AGAIN}"


class Results:
    """What a run has written so far.

    >>> found = alti.engines.explain(["A clever film.", "A dull film."], "results", model=model)
    >>> print(len(found), found["1"].top(1))
    """

    def __init__(self, folder: str | Path) -> None:
        self.store = existing(folder)
        self.run = self.store.run()
        self.counts = self.store.finished(LEFT_OUT)
        if self.store.parts() and not self.counts:
            raise LoadError(f"no file of {folder} can be read: {AGAIN}")
        self.about = {"method": str(self.run.get("method")), "model": self._name()}

    def _name(self) -> str:
        return str(self.store.model().get("name")) if self.counts else ""

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def total(self) -> int | None:
        """How many texts there will be when the run is complete; None: nobody has counted them."""
        total = self.run.get("texts")
        return None if total is None else int(total)

    def __iter__(self) -> Iterator[Attribution]:
        """The results of all texts that could be explained, in order."""
        for row in self.rows():
            if row["error"] is None:
                yield attribution_of(row, self.about)

    def __getitem__(self, name: str | int) -> Attribution:
        """The result of the text with this id."""
        import pyarrow.compute as pc

        wanted = pc.field("id") == str(name)
        found = self._dataset().to_table(filter=wanted).to_pylist() if self.counts else []
        if not found:
            raise UsageError(
                f"{self.store.folder} has no text with the id {str(name)!r}: see its ids with "
                f"alti results {self.store.folder}"
            )
        return attribution_of(found[0], self.about)

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows as dicts, shard by shard."""
        from pyarrow import parquet

        for number in sorted(self.counts):
            file = self.store.part(number)
            try:
                read = parquet.read_table(file, columns=columns and list(columns))
            except (OSError, ValueError) as error:
                raise LoadError(f"{file} is damaged: delete it; {AGAIN}") from error
            yield from read.to_pylist()

    def failed(self) -> Iterator[Row]:
        """The rows of texts that could not be explained: id, text and error."""
        rows = self.rows(("id", "text", "error"))
        return (row for row in rows if row["error"] is not None)

    def to_table(self, columns: Sequence[str] | None = COLUMNS) -> "pyarrow.Table":
        """All rows as one Arrow table; None: every column."""
        return self._dataset().to_table(columns=columns and list(columns))

    def to_dataframe(self) -> "pandas.DataFrame":
        """All rows as a pandas data frame."""
        try:
            return self.to_table().to_pandas()
        except ImportError as error:
            raise LoadError("a data frame needs the library pandas: pip install pandas") from error

    def attribution(self, row: Row) -> Attribution:
        """The result of a whole row of `rows()`."""
        return attribution_of(row, self.about)

    def _dataset(self) -> Any:
        from pyarrow import dataset

        files = [str(self.store.part(number)) for number in sorted(self.counts)]
        if not files:
            raise LoadError(f"{self.store.folder} holds no results yet: run the same again")
        return dataset.dataset(files, format="parquet")

    def __repr__(self) -> str:
        options = json.dumps(self.run.get("options", {}))
        said = "" if options == "{}" else f", {options}"
        return f"<{len(self):,} results in {self.store.folder}: {self.about['method']}{said}>"


def results(folder: str | Path) -> Results:
    """Read a folder that `alti explain --out`, or `alti.engines.explain`, has written.

    >>> found = alti.engines.results("results")
    >>> found["3"].top(2), found.to_table(["id", "label"]).num_rows
    """
    return Results(folder)

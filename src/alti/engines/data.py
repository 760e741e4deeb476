"""The texts of a run, whatever they come from, each with an id; cut into shards of fixed rows."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from alti._errors import LoadError, UsageError
from alti.experiments.data import columns_of, text_of
from alti.experiments.formats import Row, is_lines, is_on_the_hub, rows_of
from alti.model.batching import check_texts

IDS: dict[str, tuple[str, ...]] = {"id": ("id",)}  # the usual name of the column that names a text
SECOND = "the second text"  # the column of what Python gives as pairs


class Entry(NamedTuple):
    """A text of the data, or why a row has none."""

    number: int  # of the row, from 0
    id: str
    text: str | None
    pair: str | None = None
    error: str | None = None


class Shard(NamedTuple):
    """Some texts in a row, which are explained and written together."""

    number: int
    entries: list[Entry]


class Scan(NamedTuple):
    """What one look at all texts says."""

    texts: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Data:
    """Where texts are: a file, a folder, a name on the hub, or Python's own rows."""

    source: Any
    split: str | None = None
    text: str | None = None  # name of the column; so are the next two
    pair: str | None = None
    id: str | None = None

    @property
    def is_named(self) -> bool:
        return isinstance(self.source, str | Path)

    @property
    def shown(self) -> str:
        return str(self.source) if self.is_named else f"a {type(self.source).__name__}"

    def entries(self) -> Iterator[Entry]:
        """Every text, in order; the empty lines of a text file are none."""
        rows = rows_of(self.source, self.split) if self.is_named else _given(self.source)
        skips_empty = self.is_named and is_lines(self.source)
        given = {"text": self.text, "pair": self.pair, "id": self.id}
        usual: dict[str, tuple[str, ...]] = IDS | {"pair": (SECOND,)}
        columns: dict[str, Any] = {}
        for number, row in enumerate(rows):
            if isinstance(row, str):
                yield Entry(number, str(number), None, error=row)
                continue
            if skips_empty and row == {"text": ""}:
                continue
            columns = columns or columns_of(list(row), self.shown, given, usual)
            yield _entry(number, row, columns)

    def shards(self, size: int) -> Iterator[Shard]:
        """The texts, `size` at a time: a shard holds the same ones in every run."""
        entries = self.entries()
        number = 0
        while chunk := list(islice(entries, size)):
            yield Shard(number, chunk)
            number += 1

    def scan(self) -> Scan | None:
        """Count and hash the texts; None on the hub, from where they come only once."""
        if self.is_named and is_on_the_hub(self.source):
            return None
        digest = hashlib.sha256()
        seen: set[str] = set()
        for entry in self.entries():
            if entry.id in seen:
                raise UsageError(
                    f"{self.shown} has the id {entry.id!r} twice: name a column whose values "
                    "differ (--id-column), or one that is not there for row numbers"
                )
            seen.add(entry.id)
            digest.update(repr(entry).encode("utf-8", "surrogatepass"))
        if not seen:
            raise LoadError(f"{self.shown} has no text: give data that has some")
        return Scan(len(seen), digest.hexdigest()[:16])


def _entry(number: int, row: dict[str, Any], columns: dict[str, Any]) -> Entry:
    cell = row.get(columns["id"]) if columns["id"] else None
    name = str(number) if cell is None else str(cell)
    try:
        text = text_of(row.get(columns["text"]))
        pair = text_of(row.get(columns["pair"])) if columns["pair"] else None
    except ValueError as reason:
        return Entry(number, name, None, error=str(reason))
    return Entry(number, name, text, pair)


def _given(source: Any) -> Iterator[Row]:
    """The rows of a table or a `datasets.Dataset`, dicts, pairs, or texts."""
    if hasattr(source, "to_pylist"):  # pyarrow
        source = source.to_pylist()
    elif hasattr(source, "to_dict") and hasattr(source, "columns"):  # pandas
        source = source.to_dict("records")
    else:
        check_texts(source)
    return map(_row, source)


def _row(given: Any) -> Row:
    if isinstance(given, dict):
        return given
    if isinstance(given, tuple | list) and len(given) == 2:
        return {"text": given[0], SECOND: given[1]}
    return {"text": given}


def absolute(source: Any) -> Any:
    """A place that workers in other folders find too; of Python's own, rows that last."""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        return str(path.absolute()) if path.exists() else str(source)
    once = isinstance(source, Iterable) and iter(source) is source
    return list(source) if once else source

"""Reads a data set row by row: a file, a folder of files, or a name on the hub."""

import heapq
import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from alti._errors import LoadError, UsageError
from alti.experiments.formats import Row, fingerprint, has_splits, listed, rows_of
from alti.model.words import LONE_SURROGATE

TEXTS = ("text", "sentence", "review", "content", "tokens")  # usual names of columns, best first
LABELS = ("label", "labels")

__all__ = ["Example", "Skipped", "fingerprint", "has_splits", "read", "sample"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Example:
    """A text of the data, with its label and its rationale if the data has them."""

    number: int  # of the row, from 0, in the whole data or in the chosen split
    text: str
    label: int | str | None = None
    rationale: list[float] | None = None  # a weight for each word of text.split()
    pair: str | None = None  # the second text


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be used, and why."""

    number: int
    reason: str


def read(
    source: str | Path,
    *,
    split: str | None = None,
    text: str | None = None,
    label: str | None = None,
    rationale: str | None = None,
    pair: str | None = None,
) -> Iterator[Example | Skipped]:
    """Read the rows of a data set, one at a time.

    `source` is a .parquet, .jsonl, .ndjson, .json, .csv, .tsv or .txt file (all but parquet also as
    .gz), a folder of such files or of `datasets`, or the name of a data set of the hub, as NAME or
    NAME:CONFIG.
    `text`, `label`, `rationale` and `pair` (a second text) name columns; a text may be a list of
    words. `split` keeps the rows with that value in the column "split"; on the hub it chooses the
    split of that name (default: "test", else the first). Rows are numbered from 0 within the split;
    a row that cannot be read is counted, whichever split it belongs to.

    >>> for row in read("reviews.jsonl", text="text", label="label"):
    ...     print(row)
    """
    given = {"text": text, "label": label, "rationale": rationale, "pair": pair}
    examples = _examples(rows_of(source, split), str(source), given)
    first = next(examples, None)  # now, to report a wrong column before any model is loaded
    if first is None:
        raise LoadError(f"{source} has no rows: give a data set that has some")
    return itertools.chain([first], examples)


def sample(rows: Iterable[T], count: int | None, seed: int = 0) -> Iterator[T]:
    """Draw `count` rows without replacement, in the order of the data; None takes all.

    The rows are read once and only `count` of them are held in memory. With the same seed, a
    smaller sample is part of a larger one.
    """
    if count is None:
        return iter(rows)
    if count < 1:
        raise UsageError(
            f"a sample of {count} rows is not possible: give 1 or more, or None for all rows"
        )
    generator = random.Random(seed)
    keyed = ((generator.random(), number, row) for number, row in enumerate(rows))
    lowest = heapq.nsmallest(count, keyed)
    return iter([row for _, _, row in sorted(lowest, key=lambda entry: entry[1])])


@dataclass(frozen=True, slots=True)
class _Columns:
    """The names of the columns."""

    text: str
    label: str | None
    rationale: str | None
    pair: str | None

    def example(self, number: int, row: dict[str, Any]) -> Example | Skipped:
        try:
            text = text_of(row.get(self.text))
            label = _label(row.get(self.label)) if self.label else None
            rationale = _rationale(row.get(self.rationale), text) if self.rationale else None
            pair = text_of(row.get(self.pair)) if self.pair else None
        except ValueError as reason:
            return Skipped(number, str(reason))
        return Example(number, text, label, rationale, pair)


def _examples(
    rows: Iterator[Row], source: str, given: dict[str, str | None]
) -> Iterator[Example | Skipped]:
    columns = None
    for number, row in enumerate(rows):
        if isinstance(row, str):
            yield Skipped(number, row)
            continue
        columns = columns or _Columns(**columns_of(list(row), source, given, {"label": LABELS}))
        yield columns.example(number, row)


def columns_of(
    names: list[str], source: str, given: dict[str, str | None], usual: dict[str, tuple[str, ...]]
) -> dict[str, Any]:
    """The columns that were given, or those with the usual names; a text must be among them."""
    for part, name in given.items():
        if name is not None and name not in names:
            raise UsageError(
                f"{source} has no column {name!r} for the {part}: its columns are {listed(names)}"
            )
    usual = {"text": TEXTS, **usual}
    columns = {
        part: name or next((each for each in usual.get(part, ()) if each in names), None)
        for part, name in given.items()
    }
    if columns["text"] is None:
        raise UsageError(
            f"{source} has no column called {listed(TEXTS)}: "
            f"name the column of the text, one of {listed(names)}"
        )
    return columns


def text_of(cell: Any) -> str:
    """A cell as a text; a ValueError says why it is none."""
    if isinstance(cell, list) and all(isinstance(word, str) for word in cell):
        cell = " ".join(cell)
    if not isinstance(cell, str):
        problem = "is missing" if cell is None else f"is not a string but {cell!r:.50}"
        raise ValueError(f"the text {problem}")
    if not cell.strip():
        raise ValueError("the text is empty")
    if LONE_SURROGATE.search(cell):
        raise ValueError("the text has a lone surrogate")
    return cell


def _label(cell: Any) -> int | str | None:
    """A whole number, however the format spells it, or a name."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, str):
        return int(cell) if cell.removeprefix("-").isdecimal() else cell
    if isinstance(cell, int) or (isinstance(cell, float) and cell.is_integer()):
        return int(cell)
    raise ValueError(f"the label is neither a whole number nor a name but {cell!r:.50}")


def _rationale(cell: Any, text: str) -> list[float] | None:
    if cell is None:
        return None
    if not isinstance(cell, list) or not all(isinstance(weight, int | float) for weight in cell):
        raise ValueError("the rationale is not a list of numbers")
    if len(cell) != (words := len(text.split())):
        raise ValueError(f"the rationale has {len(cell)} weights for a text of {words} words")
    return [float(weight) for weight in cell]

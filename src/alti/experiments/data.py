"""Reads a data set row by row: a file, a folder of parquet files, or a name on the hub."""

import csv
import gzip
import hashlib
import heapq
import itertools
import json
import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO, TypeVar

from alti._errors import LoadError, UsageError
from alti.model.words import LONE_SURROGATE

TEXTS = ("text", "sentence", "review", "content", "tokens")  # usual names of columns, best first
LABELS = ("label", "labels")

_UNREADABLE = (
    OSError,
    EOFError,  # a .gz that was cut off
    zlib.error,  # the same
    ValueError,  # JSON, Unicode, and pyarrow's own errors
    RecursionError,  # JSON nested too deep
    NotImplementedError,  # a parquet type that pyarrow does not read
    csv.Error,
)

T = TypeVar("T")
Row = dict[str, Any] | str  # the cells of a row by column, or why it cannot be read


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
    .gz), a folder of parquet files, or the name of a data set of the hub, as NAME or NAME:CONFIG.
    `text`, `label`, `rationale` and `pair` (a second text) name columns; a text may be a list of
    words. `split` keeps the rows with that value in the column "split"; on the hub it chooses the
    split of that name (default: "test", else the first). Rows are numbered from 0 within the split;
    a row that cannot be read is counted, whichever split it belongs to.

    >>> for row in read("reviews.csv", text="review", label="stars"):
    ...     print(row)
    """
    path = Path(source).expanduser()
    rows = _in_split(_files(path), split, path) if _is_local(path) else _hub(str(source), split)
    examples = _examples(
        rows, str(source), {"text": text, "label": label, "rationale": rationale, "pair": pair}
    )
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


def has_splits(source: str | Path) -> bool:
    """Whether a data set can be read by split: one of the hub, or files with a column "split"."""
    path = Path(source).expanduser()
    if not _is_local(path):
        return True
    first = next((row for row in _files(path) if isinstance(row, dict)), {})
    return "split" in first


def fingerprint(source: str | Path) -> str | None:
    """A hash of the files of a data set; None for a data set of the hub."""
    path = Path(source).expanduser()
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.is_file() else []
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16] if files else None


@dataclass(frozen=True, slots=True)
class _Columns:
    """The names of the columns."""

    text: str
    label: str | None
    rationale: str | None
    pair: str | None

    def example(self, number: int, row: dict[str, Any]) -> Example | Skipped:
        try:
            text = _text(row.get(self.text))
            label = _label(row.get(self.label)) if self.label else None
            rationale = _rationale(row.get(self.rationale), text) if self.rationale else None
            pair = _text(row.get(self.pair)) if self.pair else None
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
        columns = columns or _columns(list(row), source, given)
        yield columns.example(number, row)


def _columns(names: list[str], source: str, given: dict[str, str | None]) -> _Columns:
    """The columns that were given, or those with the usual names."""
    for part, name in given.items():
        if name is not None and name not in names:
            raise UsageError(
                f"{source} has no column {name!r} for the {part}: its columns are {_listed(names)}"
            )
    text = given["text"] or next((name for name in TEXTS if name in names), None)
    if text is None:
        raise UsageError(
            f"{source} has no column called {_listed(TEXTS)}: "
            f"name the column of the text, one of {_listed(names)}"
        )
    label = given["label"] or next((name for name in LABELS if name in names), None)
    return _Columns(text, label, given["rationale"], given["pair"])


def _text(cell: Any) -> str:
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


def _in_split(rows: Iterator[Row], split: str | None, source: Path) -> Iterator[Row]:
    """The rows of a split; a row that cannot be read could belong to any."""
    if split is None:
        yield from rows
        return
    seen: dict[str, None] = {}
    for row in rows:
        if isinstance(row, str):
            yield row
            continue
        if not seen and "split" not in row:
            raise UsageError(
                f"{source} has no column 'split': choose no split (--split ''), or add that column"
            )
        value = str(row.get("split"))
        seen[value] = None
        if value == split:
            yield row
    if seen and split not in seen:
        raise UsageError(f"{source} has no split {split!r}: its splits are {_listed(seen)}")


def _is_local(path: Path) -> bool:
    """Whether the source is a file or a folder, and not a name on the hub."""
    if path.is_dir():
        if not list(path.glob("*.parquet")):
            raise UsageError(
                f"the folder {path} holds no parquet files: "
                "give a file, or a folder that holds some"
            )
        return True
    known = _format(path) in _FORMATS
    if path.exists() and not known:
        raise UsageError(
            f"{path} has no format that alti can read: give a {_listed(_FORMATS)} file"
        )
    if not path.exists() and (known or path.is_absolute() or str(path).count("/") > 1):
        raise UsageError(
            f"{path} does not exist: "
            "give a file, a folder of parquet files, or a data set of the hub"
        )
    return known


def _format(path: Path) -> str:
    return Path(path.stem if _is_packed(path) else path).suffix.lower()


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _files(path: Path) -> Iterator[Row]:
    """The rows of a file, or of all parquet files of a folder, sorted by name."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if len(files) > 1:
        headers = {tuple(row) for file in files for row in itertools.islice(_rows(file), 1)}
        if len(headers) > 1:
            raise UsageError(
                f"the parquet files of {path} differ in their columns: name one of the files"
            )
    for file in files:
        yield from _rows(file)


def _rows(file: Path) -> Iterator[Row]:
    """The rows of a file; whatever its reader raises becomes a LoadError."""
    try:
        yield from _FORMATS[_format(file)](file)
    except _UNREADABLE as error:
        raise LoadError(f"{file} could not be read: {_first_line(error)}") from error


def _parquet(file: Path) -> Iterator[Row]:
    parquet = _library("pyarrow.parquet", f"{file} is a parquet file, and reading it", "pyarrow")
    with parquet.ParquetFile(file) as opened:
        for batch in opened.iter_batches(batch_size=1024):
            yield from batch.to_pylist()


def _json_lines(file: Path) -> Iterator[Row]:
    with _opened(file) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                yield f"line {number} is not JSON"
                continue
            yield row if isinstance(row, dict) else f"line {number} is not an object"


def _json(file: Path) -> Iterator[Row]:
    with _opened(file) as opened:
        entries = json.load(opened)
    if not isinstance(entries, list):
        raise ValueError("its JSON is not a list of objects")
    for number, entry in enumerate(entries, start=1):
        yield entry if isinstance(entry, dict) else f"entry {number} is not an object"


def _cells(file: Path, delimiter: str) -> Iterator[Row]:
    with _opened(file) as lines:
        table = csv.reader(lines, delimiter=delimiter)
        header = next(table, [])
        for cells in table:
            if len(cells) == len(header):
                yield dict(zip(header, cells, strict=True))
            else:
                counts = f"{len(cells)} cells under a header of {len(header)}"
                yield f"line {table.line_num} has {counts}"


def _lines(file: Path) -> Iterator[Row]:
    with _opened(file) as lines:
        for line in lines:
            yield {"text": line.strip()}


_FORMATS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": partial(_cells, delimiter=","),
    ".tsv": partial(_cells, delimiter="\t"),
    ".txt": _lines,
}


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """The file as text, without a byte order mark; line ends are left to the csv module."""
    open_file: Any = gzip.open if _is_packed(file) else open
    with open_file(file, "rt", encoding="utf-8-sig", newline="") as opened:
        yield opened


def _hub(source: str, split: str | None) -> Iterator[Row]:
    """The rows of a data set of the hub, as they arrive."""
    datasets = _library(
        "datasets",
        f"{source} is not a file or folder here, and loading it from the hub",
        "datasets",
    )
    name, _, config = source.partition(":")
    with _from_the_hub(source):
        splits = datasets.load_dataset(
            name,
            config or None,
            streaming=True,
            trust_remote_code=False,  # without it, the library asks on standard input
        )
    if split is None:
        split = "test" if "test" in splits else next(iter(splits))
    if split not in splits:
        raise UsageError(f"{source} has no split {split!r}: its splits are {_listed(splits)}")
    with _from_the_hub(source):
        yield from splits[split]


@contextmanager
def _from_the_hub(source: str) -> Iterator[None]:
    """Whatever a missing network, a wrong name or the hub itself raises becomes a LoadError."""
    try:
        yield
    except Exception as error:
        raise LoadError(
            f"{source} is not a file or folder here and could not be loaded from the hub: "
            f"check the name and the network, or give a file ({_first_line(error)})"
        ) from error


def _library(name: str, purpose: str, package: str) -> Any:
    """A library that not every user needs."""
    try:
        return import_module(name)
    except ImportError as error:
        raise LoadError(
            f"{purpose} needs the library {name.partition('.')[0]}: pip install {package}"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _listed(names: Iterable[Any]) -> str:
    first = [str(name) for name in itertools.islice(names, 21)]
    return ", ".join(first[:20]) + (", …" if len(first) > 20 else "")

"""Reads a data set row by row: a file, a folder of parquet files, or a data set of the Hugging Face hub."""

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
from alti.model.words import HALF

TEXTS = (
    "text",
    "sentence",
    "review",
    "content",
    "tokens",
)  # the columns a text is looked for in, best first
LABELS = ("label", "labels")

T = TypeVar("T")
Row = dict[str, Any] | str  # the cells of a row by column, or the reason why the row cannot be read


@dataclass(frozen=True, slots=True)
class Example:
    """A text of the data, with its label and its rationale where the data has them."""

    number: (
        int  # the row, from 0, among the rows that were read: the whole data, or the chosen split
    )
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

    `source` is a .parquet, .jsonl, .ndjson, .json, .csv, .tsv or .txt file (all but parquet also as .gz), a folder of
    parquet files, or the name of a data set of the hub, as NAME or NAME:CONFIG. `text`, `label`, `rationale` and `pair`
    (a second text) name columns; a text may be a list of words. `split` keeps the rows whose column "split" says so,
    and on the hub takes the split of that name (by default "test", else the first). Rows are numbered from 0 within the
    split; one that cannot be read counts, whichever split it was of.

    >>> for row in read("reviews.csv", text="review", label="stars"):
    ...     print(row)
    """
    path = Path(source).expanduser()
    rows = _of_split(_files(path), split, path) if _is_local(path) else _hub(str(source), split)
    examples = _examples(
        rows, str(source), {"text": text, "label": label, "rationale": rationale, "pair": pair}
    )
    first = next(examples, None)  # now, so that a wrong column is told before any model is loaded
    if first is None:
        raise LoadError(f"{source} has no rows: give a data set that has some")
    return itertools.chain([first], examples)


def sample(rows: Iterable[T], count: int | None, seed: int = 0) -> Iterator[T]:
    """Draw `count` rows without replacement, in the order of the data; None takes all.

    The rows are read once and only `count` of them are held. With one seed, a smaller sample is part of a larger one.
    """
    if count is None:
        return iter(rows)
    if count < 1:
        raise UsageError(
            f"a sample of {count} rows was asked for: give a count of 1 or more, or None for all rows"
        )
    chance = random.Random(seed)
    drawn = heapq.nsmallest(
        count, ((chance.random(), number, row) for number, row in enumerate(rows))
    )
    return iter([row for _, _, row in sorted(drawn, key=lambda keyed: keyed[1])])


def has_splits(source: str | Path) -> bool:
    """Whether a data set can be read by split: data of the hub, and files with a column "split"."""
    path = Path(source).expanduser()
    if not _is_local(path):
        return True
    first = next((row for row in _files(path) if isinstance(row, dict)), {})
    return "split" in first


def fingerprint(source: str | Path) -> str | None:
    """A hash of the files of a data set, to tell one content from another; None for one of the hub."""
    path = Path(source).expanduser()
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.is_file() else []
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16] if files else None


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where a row has its parts."""

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
    rows: Iterator[Row], source: str, asked: dict[str, str | None]
) -> Iterator[Example | Skipped]:
    columns = None
    for number, row in enumerate(rows):
        if isinstance(row, str):
            yield Skipped(number, row)
            continue
        columns = columns or _columns(list(row), source, asked)
        yield columns.example(number, row)


def _columns(there: list[str], source: str, asked: dict[str, str | None]) -> _Columns:
    """The columns asked for, or the ones that are usually so called."""
    for part, name in asked.items():
        if name is not None and name not in there:
            raise UsageError(
                f"{source} has no column {name!r} for the {part}: its columns are {_listed(there)}"
            )
    text = asked["text"] or next((name for name in TEXTS if name in there), None)
    if text is None:
        raise UsageError(
            f"{source} has no column called {_listed(TEXTS)}: name the column of the text, one of {_listed(there)}"
        )
    label = asked["label"] or next((name for name in LABELS if name in there), None)
    return _Columns(text, label, asked["rationale"], asked["pair"])


def _text(cell: Any) -> str:
    if isinstance(cell, list) and all(isinstance(word, str) for word in cell):
        cell = " ".join(cell)
    if not isinstance(cell, str):
        raise ValueError(
            "the text is missing" if cell is None else f"the text is no string but {cell!r:.50}"
        )
    if not cell.strip():
        raise ValueError("the text is empty")
    if HALF.search(cell):
        raise ValueError("the text has half a character, a lone surrogate")
    return cell


def _label(cell: Any) -> int | str | None:
    """Whole numbers as such, however the format writes them; any other string is a name."""
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


def _of_split(rows: Iterator[Row], split: str | None, source: Path) -> Iterator[Row]:
    """The rows whose column "split" says so; a row that cannot be read could be of any split."""
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
                f"{source} has no column 'split': ask for no split (--split ''), or add that column"
            )
        value = str(row.get("split"))
        seen[value] = None
        if value == split:
            yield row
    if seen and split not in seen:
        raise UsageError(f"{source} has no split {split!r}: its splits are {_listed(seen)}")


def _is_local(path: Path) -> bool:
    """Whether the source is a file or a folder of ours, rather than a name of the hub."""
    if path.is_dir():
        if not list(path.glob("*.parquet")):
            raise UsageError(
                f"the folder {path} holds no parquet files: give a file, or a folder that holds some"
            )
        return True
    known = _format(path) in _FORMATS
    if path.exists() and not known:
        raise UsageError(
            f"{path} is of no format that can be read: give a {_listed(_FORMATS)} file"
        )
    if not path.exists() and (known or path.is_absolute() or str(path).count("/") > 1):
        raise UsageError(
            f"{path} does not exist: give a file, a folder of parquet files, or a data set of the hub"
        )
    return known


def _format(path: Path) -> str:
    return Path(path.stem if _is_packed(path) else path).suffix.lower()


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _files(path: Path) -> Iterator[Row]:
    """The rows of a file, or of all the parquet files of a folder, by name."""
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
    """Whatever its reader raises, a file that cannot be read is one kind of error.

    RecursionError: JSON nested too deep. NotImplementedError: a parquet type that pyarrow does not read. EOFError and
    zlib.error: a .gz that was cut off. ValueError: JSON, Unicode, and pyarrow's own errors.
    """
    try:
        yield from _FORMATS[_format(file)](file)
    except (
        OSError,
        EOFError,
        ValueError,
        RecursionError,
        NotImplementedError,
        csv.Error,
        zlib.error,
    ) as error:
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
                yield f"line {table.line_num} has {len(cells)} cells under a header of {len(header)}"


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
    """The file as text; a byte order mark is no part of it, and the csv module wants line ends untouched."""
    unpack: Any = gzip.open if _is_packed(file) else open
    with unpack(file, "rt", encoding="utf-8-sig", newline="") as opened:
        yield opened


def _hub(source: str, split: str | None) -> Iterator[Row]:
    """The rows of a data set of the hub, as they arrive."""
    datasets = _library(
        "datasets", f"{source} is no file or folder here, and loading it from the hub", "datasets"
    )
    name, _, config = source.partition(":")
    with _from_the_hub(source):
        options = {"streaming": True, "trust_remote_code": False}  # else it asks on standard input
        splits = datasets.load_dataset(name, config or None, **options)
    if split is None:
        split = "test" if "test" in splits else next(iter(splits))
    if split not in splits:
        raise UsageError(f"{source} has no split {split!r}: its splits are {_listed(splits)}")
    with _from_the_hub(source):
        yield from splits[split]


@contextmanager
def _from_the_hub(source: str) -> Iterator[None]:
    """Whatever a missing network, a wrong name or the hub itself raises becomes a sentence."""
    try:
        yield
    except Exception as error:
        raise LoadError(
            f"{source} is no file or folder here and could not be loaded from the hub: check the name and the network, "
            f"or give a file ({_first_line(error)})"
        ) from error


def _library(name: str, what: str, install: str) -> Any:
    """A library that not every user needs."""
    try:
        return import_module(name)
    except ImportError as error:
        raise LoadError(
            f"{what} takes the library {name.partition('.')[0]}: pip install {install}"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _listed(names: Iterable[Any]) -> str:
    first = [str(name) for name in itertools.islice(names, 21)]
    return ", ".join(first[:20]) + (", …" if len(first) > 20 else "")

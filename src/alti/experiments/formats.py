"""The files and data sets that rows come from, whatever the rows hold."""

import csv
import gzip
import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from alti._errors import LoadError, UsageError

Row = dict[str, Any] | str  # the cells of a row by column, or why it cannot be read

_UNREADABLE = (
    OSError,
    EOFError,  # a .gz that was cut off
    zlib.error,  # the same
    ValueError,  # JSON, Unicode, and pyarrow's own errors
    RecursionError,  # JSON nested too deep
    NotImplementedError,  # a parquet type that pyarrow does not read
    csv.Error,
)


def rows_of(source: str | Path, split: str | None = None) -> Iterator[Row]:
    """The rows of a data set as they are, one at a time; see `alti.experiments.data.read`."""
    path = Path(source).expanduser()
    return _in_split(_files(path), split, path) if _is_local(path) else _hub(str(source), split)


def is_on_the_hub(source: str | Path) -> bool:
    """Whether a data set is neither a file nor a folder here."""
    return not _is_local(Path(source).expanduser())


def is_lines(source: str | Path) -> bool:
    """Whether a data set is text files with a text in each line."""
    files = _listed(Path(source).expanduser())
    return bool(files) and all(_format(file) == ".txt" for file in files)


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
    files = _listed(path)
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16] if files else None


def _listed(path: Path) -> list[Path]:
    """A file, or the files of a folder that can be read, sorted by name: tables before texts."""
    if not path.is_dir():
        return [path] if path.is_file() else []
    files = sorted(file for file in path.iterdir() if _format(file) in _FORMATS and _is_data(file))
    tables = [file for file in files if _format(file) in (".parquet", ".arrow")]
    return tables or files


def _is_data(file: Path) -> bool:
    """Whether a file of a folder is one of rows, not one of those that describe the others."""
    return file.is_file() and not file.name.startswith((".", "_")) and file.name not in _DESCRIBE


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
        raise UsageError(f"{source} has no split {split!r}: its splits are {listed(seen)}")


def _is_local(path: Path) -> bool:
    """Whether the source is a file or a folder, and not a name on the hub."""
    if path.is_dir():
        kinds = {_format(file) for file in _listed(path)}
        if len(kinds) > 1:
            raise UsageError(
                f"the folder {path} holds files of several formats ({listed(sorted(kinds))}): "
                "name one of the files"
            )
        if not kinds:
            raise UsageError(
                f"the folder {path} holds no {listed(_FORMATS)} files: "
                "give a file, or a folder that holds some"
            )
        return True
    known = _format(path) in _FORMATS
    if path.exists() and not known:
        raise UsageError(f"{path} has no format that alti can read: give a {listed(_FORMATS)} file")
    if not path.exists() and (known or path.is_absolute() or str(path).count("/") > 1):
        raise UsageError(
            f"{path} does not exist: give a file, a folder of files, or a data set of the hub"
        )
    return known


def _format(path: Path) -> str:
    return Path(path.stem if _is_packed(path) else path).suffix.lower()


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _files(path: Path) -> Iterator[Row]:
    """The rows of a file, or of all files of a folder, sorted by name."""
    files = _listed(path)
    if len(files) > 1:
        headers = {tuple(row) for file in files for row in itertools.islice(_rows(file), 1)}
        if len(headers) > 1:
            raise UsageError(f"the files of {path} differ in their columns: name one of the files")
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


def _arrow(file: Path) -> Iterator[Row]:
    """A file of `datasets`' save_to_disk."""
    arrow = _library("pyarrow", f"{file} is an Arrow file, and reading it", "pyarrow")
    with arrow.memory_map(str(file)) as mapped, arrow.ipc.open_stream(mapped) as batches:
        for batch in batches:
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
    ".arrow": _arrow,
}


_DESCRIBE = ("dataset_info.json", "state.json", "dataset_dict.json")  # beside Arrow files


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
        "'alti[hub]'",
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
        raise UsageError(f"{source} has no split {split!r}: its splits are {listed(splits)}")
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


def listed(names: Iterable[Any]) -> str:
    """Names for a message."""
    first = [str(name) for name in itertools.islice(names, 21)]
    return ", ".join(first[:20]) + (", …" if len(first) > 20 else "")

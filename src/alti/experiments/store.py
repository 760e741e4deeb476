"""Stores the rows of a benchmark in a file, so that a run can be resumed.

Each row is a line of JSON with a checksum. The first line holds the plan, and fingerprints of the
model and the data; methods that a later run adds to a study have a line of their own. Only one run
at a time may add rows.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from io import FileIO
from pathlib import Path
from typing import Any

from alti._errors import AltiError, LoadError, UsageError
from alti._files import append, require_file
from alti.experiments.evaluate import Row
from alti.experiments.plan import Plan
from alti.experiments.study import Study

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows: two runs into one file are not kept apart

FORMAT = 1
BESIDE_THE_PLAN = ("alti_bench", "of", "checksum")  # entries of the first line
ABOUT = "sources"  # an entry of a row that is about a text, whatever the method
ADDED = "added"  # the entry of a row that names methods of a later run

Key = tuple[int, str | None]  # a text and a method, or ABOUT; None for a text that was skipped


class RowFile:
    """A file that a run adds rows to."""

    def __init__(self, out: FileIO, stored: dict[Key, Row]) -> None:
        self.out = out
        self.stored = stored  # the rows that were there when the run began

    def holds(self, text: int, methods: tuple[str, ...]) -> bool:
        """Whether a text was skipped, or has a row for every method."""
        rows = {(text, method) for method in methods}
        return (text, None) in self.stored or rows <= self.stored.keys()

    def of(self, text: int, methods: tuple[str, ...]) -> dict[str | None, Row]:
        """What was stored of a text, by method."""
        keys = [(text, what) for what in (ABOUT, *methods)]
        return {key[1]: self.stored[key] for key in keys if key in self.stored}

    def add(self, rows: list[Row]) -> None:
        """Write the rows that are not stored yet."""
        new = [row for row in rows if _key(row) not in self.stored]
        write_rows(self.out, new)


@contextmanager
def opened(file: Path, plan: Plan | Study, fingerprints: dict[str, str]) -> Iterator[RowFile]:
    """Open a new file, or one that holds rows of the same plan, model and data."""
    if file.is_dir() or not file.parent.is_dir() or (file.exists() and not file.is_file()):
        raise UsageError(f"{file} cannot be written: give a file in a folder that exists")
    header = {"alti_bench": FORMAT, **asdict(plan), "of": fingerprints}
    with file.open("ab", buffering=0) as out:
        lock(out, file)
        stored, added = _resume(file, header)
        if not file.stat().st_size:
            write_rows(out, [header])
        if added:
            write_rows(out, [{ADDED: added}])
        yield RowFile(out, stored)


def write_rows(out: FileIO, rows: list[Row]) -> None:
    """Write all rows at once and flush them to disk: a killed run loses at most one chunk."""
    lines = b"".join(map(line_of, rows))
    try:
        append(out.fileno(), lines)
    except OSError as error:
        raise LoadError(
            f"{out.name} could not be written: {error.strerror}; "
            "run the same command again to resume"
        ) from error


def line_of(row: Row) -> bytes:
    """A row as JSON, with a checksum of the other entries."""
    try:
        text = json.dumps(row, allow_nan=False)
    except ValueError:
        raise AltiError(
            f"text {row.get('text')} with {row.get('method')} has numbers that are not finite: "
            "try --dtype float32"
        ) from None
    return json.dumps({**row, "checksum": _checksum(text)}).encode() + b"\n"


def load_rows(file: Path) -> tuple[Plan | Study, list[Row]]:
    """The plan of a file and its complete rows; LoadError names a line that was changed or damaged.

    Files from before checksums can be read. Missing lines are not noticed: a run with the same
    plan computes them.
    """
    header, rows = _content(file)
    try:
        return _plan(header), rows
    except (ValueError, TypeError) as error:
        raise _unreadable(file, error) from error


def lock(out: FileIO, file: Path) -> None:
    """Refuse to run beside another run: their rows would be mixed."""
    if fcntl is None:
        return
    try:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UsageError(
            f"another run is writing {file}: wait until it ends, or name another"
        ) from None


def _key(row: Row) -> Key:
    return row.get("text", -1), ABOUT if ABOUT in row else row.get("method")


def _resume(file: Path, header: Row) -> tuple[dict[Key, Row], list[str]]:
    """Cut off an incomplete last line; the rows that a file holds, and methods new to it."""
    if _is_only_header(file.read_bytes()):
        os.truncate(file, 0)
        return {}, []
    before, rows = _content(file)
    if not any("method" in row or ABOUT in row for row in rows):  # nothing was computed
        os.truncate(file, 0)
        return {}, []
    header = json.loads(json.dumps(header))
    added = _added(before, header)
    same = header if added is None else {**header, "methods": before["methods"]}
    _require_same_run(file, before, same)
    os.truncate(file, file.read_bytes().rfind(b"\n") + 1)
    return {_key(row): row for row in rows if "text" in row}, added or []


def _added(before: Row, header: Row) -> list[str] | None:
    """The methods of a study that its file does not have yet; None where it has others besides.

    Every row of a study is computed by itself, so more can come at any time. The rows of a plan
    are computed in chunks, of all methods together.
    """
    old, new = before.get("methods"), header["methods"]
    if "task" not in header or not isinstance(old, list) or not set(old) <= set(new):
        return None
    return [method for method in new if method not in old]


def _is_only_header(content: bytes) -> bool:
    """Whether a file is empty, or holds no more than our first line or the beginning of it."""
    start = b'{"alti_bench": '
    one_line = b"\n" not in content.rstrip(b"\n")
    return not content or (one_line and (content.startswith(start) or start.startswith(content)))


def _require_same_run(file: Path, before: Row, header: Row) -> None:
    if "checksum" not in before:
        raise UsageError(
            f"{file} holds rows without checksums, of an older alti: name another file"
        )
    different = [key for key in header if before.get(key) != header[key]]
    if different == ["of"]:
        old = before["of"]
        new = header["of"]
        changed = " and the ".join(key for key in new if old.get(key) != new[key])
        raise UsageError(
            f"{file} holds rows of the same plan, but the {changed} changed since: "
            "name another file"
        )
    if different:
        entries = ", ".join(f"{key} = {before.get(key)!r}" for key in different)
        raise UsageError(
            f"{file} holds the rows of another run ({entries}): name another file, or run that plan"
        )


def _content(file: Path) -> tuple[Row, list[Row]]:
    """The first line and the rows; an incomplete last line is ignored."""
    require_file(file, "a file of benchmark rows")
    try:
        first, *lines = file.read_bytes().split(b"\n")[:-1]
        header = _parsed(first, checksum=False)
        if header["alti_bench"] != FORMAT:
            raise ValueError(f"format {header['alti_bench']}")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _unreadable(file, error) from error
    rows = []
    for number, line in enumerate(lines, start=2):
        try:
            rows.append(_without_checksum(_parsed(line, checksum="checksum" in header)))
        except (ValueError, RecursionError) as error:
            raise LoadError(
                f"{file}: line {number} was changed or damaged: "
                "delete it, and the same run computes it again"
            ) from error
    for row in rows:
        if ADDED in row:
            header = {**header, "methods": [*header.get("methods", []), *row[ADDED]]}
    return header, [row for row in rows if ADDED not in row]


def _parsed(line: bytes, *, checksum: bool) -> Row:
    """A line that matches its checksum, if it has one; with `checksum` it must have one."""
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("a line is not an object")
    if checksum or "checksum" in row:
        expected = _checksum(json.dumps(_without_checksum(row)))
        if row.get("checksum") != expected:
            raise ValueError("a line does not match its checksum")
    return row


def _without_checksum(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "checksum"}


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plan(header: Row) -> Plan | Study:
    entries = {key: value for key, value in header.items() if key not in BESIDE_THE_PLAN}
    kind = Study if "task" in entries else Plan
    kinds = {field.name: field.type for field in fields(kind)}
    for key, value in entries.items():
        if not _fits(value, kinds.get(key)):
            raise ValueError(f"its first line says {key[:40]!a} = {ascii(value)[:40]}")
    lists = {key: tuple(value) for key, value in entries.items() if isinstance(value, list)}
    return kind(**{**entries, **lists})


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value read from JSON has the type of a field."""
    if kind == tuple[str, ...]:
        return isinstance(value, list) and all(isinstance(inner, str) for inner in value)
    if isinstance(value, bool) or kind is None:
        return kind is bool
    return isinstance(value, kind)


def _unreadable(file: Path, error: Exception) -> LoadError:
    reason = " ".join(str(error).split())[:200]
    return LoadError(
        f"{file} is not a file of benchmark rows that alti can read ({reason}): name another"
    )

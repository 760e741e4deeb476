"""What the command line reads from and shows on a terminal: lines of text, tables, progress."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from alti._characters import note, plural
from alti._errors import LoadError, UsageError
from alti._files import is_stream, require_target, write_whole

T = TypeVar("T")

BROKEN_PIPE = 141  # what a shell reports for a program whose pipe was closed
INTERRUPTED = 130  # and for one that was stopped with Ctrl-C


class Lines:
    """The texts of standard input or a file, one per line; empty lines are skipped and counted."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.name = "standard input" if file is None else str(file)
        self.numbers: list[int] = []  # of the lines that hold a text
        self.empty = 0
        if file is not None and not file.is_file():
            problem = "is not a file" if file.exists() else "does not exist"
            raise UsageError(f"--file {file} {problem}: give a text file with one text per line")

    def __iter__(self) -> Iterator[str]:
        try:
            with sys.stdin if self.file is None else self.file.open(encoding="utf-8-sig") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        self.numbers.append(number)
                        yield line.strip()
                    else:
                        self.empty += 1
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error
        except UnicodeDecodeError as error:
            line_number = len(self.numbers) + self.empty + 1
            problem = f"line {line_number} or one soon after is not UTF-8"
            raise self._unreadable(problem) from error

    def _unreadable(self, problem: str) -> LoadError:
        return LoadError(f"{self.name} could not be read ({problem}): save it as UTF-8")

    def count(self) -> int | None:
        """How many texts there will be, if that can be known."""
        if self.file is None:
            return None
        with self.file.open("rb") as lines:
            return sum(1 for line in lines if line.strip())

    def report(self, done: int) -> None:
        """Say how many texts were explained."""
        skipped = f", {self.empty} empty {plural('line', self.empty)} skipped" if self.empty else ""
        note(f"{done} {plural('text', done)} explained{skipped}")


@contextmanager
def no_input() -> Iterator[None]:
    """Hide standard input, which holds texts, from libraries that ask questions."""
    stdin = sys.stdin
    sys.stdin = io.StringIO()
    try:
        yield
    finally:
        sys.stdin = stdin


def say(text: str = "", end: str = "\n") -> None:
    """Print a result; stop quietly if the reader has closed the pipe (as head does)."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        silence()
        raise SystemExit(BROKEN_PIPE) from None


def silence() -> None:
    """Point stdout at nothing: flushing a broken one at exit would be another error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require_writable(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    if path is None or (is_stream(path) and os.access(path, os.W_OK)):
        return
    require_target(path, f"{option} {path}")
    target = path.resolve()
    changed = [target.parent]  # a file is replaced, which changes its folder too
    if target.exists():
        changed.append(target)
    if not all(os.access(place, os.W_OK) for place in changed):
        raise UsageError(f"{option} {path} cannot be written: you have no permission to change it")


def write(path: Path, text: str) -> None:
    """Write a text completely or not at all; a pipe, a device or /dev/stdout is appended to."""
    if is_stream(path):
        try:
            with path.open("ab") as out:  # "w" would empty the file that stdout goes into
                out.write(text.encode())
        except OSError as error:
            raise LoadError(f"{path} could not be written: {error.strerror}") from error
        return
    write_whole(path, text.encode())
    note(f"{path} written")


@contextmanager
def resumable(out: Path, *, saved: bool = True) -> Iterator[None]:
    """Ctrl-C says what the same command will do."""
    try:
        yield
    except KeyboardInterrupt:
        outcome = f"resumes from {out}" if saved else "starts again: no state was to be saved"
        note(f"stopped; the same command {outcome}")
        raise SystemExit(INTERRUPTED) from None


@contextmanager
def bar(unit: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar with the time left on stderr, if that is a terminal."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("alti"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(f"{unit}, left"),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with progress.Progress(
        *columns, console=console, transient=True, disable=hidden, redirect_stdout=False
    ) as shown:
        task = shown.add_task("alti", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextmanager
def late_bar(unit: str) -> Iterator[Callable[[int, int | None], None]]:
    """The same from the first thing that is done to the last, so that two can take turns."""
    with ExitStack() as bars:
        shown: list[Callable[[int, int | None], None]] = []

        def update(done: int, total: int | None) -> None:
            if not shown:
                shown.append(bars.enter_context(bar(unit)))
            shown[0](done, total)
            if done == total:
                bars.close()
                shown.clear()

        yield update


@contextmanager
def passes() -> Iterator[None]:
    """A progress bar while a method runs the model many times; the others report nothing."""
    from alti.methods.progress import watching

    with late_bar("shortened texts") as update:

        def texts(done: int, total: int | None) -> None:
            if total is not None:  # else a layer of a long text is done
                update(done, total)

        with watching(texts):
            yield


def watched(results: Iterable[T], total: int | None, *, printed: bool = True) -> Iterator[T]:
    """The same results, with a progress bar unless they are printed to the terminal."""
    if printed and sys.stdout.isatty():
        yield from results
        return
    with bar("texts") as update:
        for done, result in enumerate(results, start=1):
            yield result
            update(done, total)


def table(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print rows as a table, or as JSON, one object per line."""
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in rows[0]:
        shown.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        shown.add_row(*map(_cell, row.values()))
    Console().print(shown, markup=False)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return str(value)

"""What the command line reads from and shows on a terminal: lines of text, tables, and how far it is."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from alti._characters import note
from alti._errors import LoadError, UsageError
from alti._files import is_stream, require_target, write_whole

if TYPE_CHECKING:
    from alti.model.attribution import Attribution

T = TypeVar("T")

READER_LEFT = 141  # what a shell reports of a program whose pipe was closed


class Lines:
    """The texts of standard input or a file, one a line; empty lines are counted, not read."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.numbers, self.empty = file, list[int](), 0
        if file is not None and not file.is_file():
            what = "is not a file" if file.exists() else "does not exist"
            raise UsageError(f"--file {file} {what}: give a text file with one text per line")

    def __iter__(self) -> Iterator[str]:
        try:
            with sys.stdin if self.file is None else self.file.open(encoding="utf-8-sig") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        self.numbers.append(number)
                        yield line.strip()
                    else:
                        self.empty += 1
        except (OSError, UnicodeDecodeError) as error:
            line = len(self.numbers) + self.empty + 1
            what = (
                error.strerror
                if isinstance(error, OSError)
                else f"line {line} or one soon after is not UTF-8"
            )
            raise LoadError(
                f"{self.file or 'standard input'} could not be read ({what}): save it as UTF-8"
            ) from error

    def count(self) -> int | None:
        """How many texts there will be, where that can be known."""
        if self.file is None:
            return None
        with self.file.open("rb") as lines:
            return sum(1 for line in lines if line.strip())

    def tell(self, done: int) -> None:
        empty = f", {self.empty} empty lines passed over" if self.empty else ""
        note(f"{done} text{'' if done == 1 else 's'} explained{empty}")


@contextmanager
def unanswered() -> Iterator[None]:
    """Whatever a library asks in here gets no answer: standard input holds texts."""
    texts = sys.stdin
    sys.stdin = io.StringIO()
    try:
        yield
    finally:
        sys.stdin = texts


def say(text: str = "", end: str = "\n") -> None:
    """Print a result; where the reader has left (head), that is the end, and no failure of ours."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        silence()
        raise SystemExit(READER_LEFT) from None


def silence() -> None:
    """A stdout that takes nothing more would be an error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(found: "Attribution", as_json: bool, tokens: bool, bars: bool, file: Path | None) -> None:
    """Print a result, unless a file is written instead."""
    if as_json:
        say(json.dumps(found.to_dict()))
    elif file is None:
        say(found.render(words=not tokens, bars=bars))


def save(
    found: "list[Attribution]", page: Path | None, document: Path | None, tokens: bool
) -> None:
    """The files that were asked for, with all results."""
    from alti.views import html, latex

    if page and found:
        write(page, html.page(found, words=not tokens))
    if document and found:
        write(document, latex.document(found, words=not tokens))


def drawing(file: Path | None, kind: str) -> "Callable[[Attribution, bool], None]":
    """What draws a result into a file; a wrong kind or ending is told before any work is done."""
    if file is None:
        return lambda found, tokens: None
    from alti.model.attribution import PLOTS
    from alti.views.plots import ENDINGS

    if kind not in PLOTS:
        raise UsageError(f"--kind {kind} does not exist: choose from {', '.join(PLOTS)}")
    if file.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"--plot {file} has no ending of a picture: choose from {', '.join(ENDINGS)}"
        )
    require_target(file, f"--plot {file}")

    def draw(found: "Attribution", tokens: bool) -> None:
        figure = found.plot(kind, **({"words": not tokens} if kind == "tokens" else {}))
        picture = BytesIO()
        figure.savefig(picture, format=file.suffix[1:].lower(), dpi=150)
        write_whole(file, picture.getvalue())
        note(f"{file} written")

    return draw


def writable(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    if path is None or (is_stream(path) and os.access(path, os.W_OK)):
        return
    require_target(path, f"{option} {path}")
    target = path.resolve()  # replaced, so its folder changes too
    needed = [target.parent, *([target] if target.exists() else [])]
    if not all(os.access(place, os.W_OK) for place in needed):
        raise UsageError(f"{option} {path} cannot be written: it is not yours to change")


def write(path: Path, text: str) -> None:
    """Write a text as a whole or not at all; into a pipe, a device or /dev/stdout as it comes."""
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
def resumable(out: Path, *, kept: bool = True) -> Iterator[None]:
    """Ctrl-C says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        how = f"goes on from {out}" if kept else "begins anew: nothing was to be kept"
        note(f"stopped; the same command {how}")
        raise SystemExit(130) from None


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar with the time left on stderr, where someone watches."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("alti"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{what}, left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(
        *columns, console=console, transient=True, disable=hidden, redirect_stdout=False
    ) as progress:
        task = progress.add_task("alti", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def watched(results: Iterable[T], total: int | None, *, printed: bool = True) -> Iterator[T]:
    """The same results, with a bar; none where they go to the terminal themselves."""
    if printed and sys.stdout.isatty():
        yield from results
        return
    with bar("texts") as update:
        for done, result in enumerate(results, start=1):
            yield result
            update(done, total)


def table(rows: list[dict[str, Any]], as_json: bool, *, right: int | None = None) -> None:
    """A table; columns from number `right` on are numbers."""
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    from rich.console import Console
    from rich.table import Table

    made = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(rows[0]):
        numeric = right is not None and number >= right
        head = column if numeric else column.replace("_", " ")
        made.add_column(head, overflow="fold", justify="right" if numeric else "left")
    for row in rows:
        cells = [
            "yes" if cell is True else "" if cell is False else str(cell) for cell in row.values()
        ]
        made.add_row(*cells)
    Console().print(made, markup=False)

"""Many texts in batches of similar length, results in the order of the texts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from alti._errors import UsageError
from alti.model.request import Task

Text = str | tuple[str, str]
R = TypeVar("R")

WINDOW = 16  # batches whose texts are sorted by length


def windows(
    texts: Iterator[Text],
    read: Callable[..., Task],
    explain: Callable[[list[Task]], list[R]],
    *,
    batch_size: int,
    largest: int = WINDOW,
) -> Iterator[R]:
    """Windows of growing size, so that the first results come soon, sorted by length inside.

    What cannot be read raises after the results of all texts before it.
    """
    batches = 1
    while True:
        tasks: list[Task] = []
        wrong: Exception | None = None
        try:
            tasks.extend(read(*pair_of(text)) for text in islice(texts, batches * batch_size))
        except Exception as error:  # raised when its turn comes
            wrong = error
        yield from _in_order(tasks, explain, batch_size)
        if wrong:
            raise wrong
        if not tasks:
            return
        batches = min(2 * batches, largest)


def _in_order(
    tasks: list[Task], explain: Callable[[list[Task]], list[R]], batch_size: int
) -> Iterator[R]:
    """Computed by length, given in the order of the texts."""
    by_length = sorted(range(len(tasks)), key=lambda i: len(tasks[i].encoded.ids))
    done: dict[int, R] = {}
    given = 0
    for start in range(0, len(tasks), batch_size):
        batch = by_length[start : start + batch_size]
        done |= zip(batch, explain([tasks[i] for i in batch]), strict=True)
        while given in done:
            yield done.pop(given)
            given += 1


def check_texts(texts: Any) -> None:
    """Refuse what can be iterated, but not over texts in an order."""
    kind = type(texts).__name__
    listed = "give a list of texts"
    if isinstance(texts, str):
        raise UsageError(f"texts is one str: {listed}, or use explain for a single one")
    if isinstance(texts, bytes | bytearray):
        raise UsageError(f"texts is {kind}: decode them and {listed}")
    if isinstance(texts, Path):
        raise UsageError(f"texts is the path {texts}: give the lines of the file")
    if hasattr(texts, "columns"):
        raise UsageError(f"texts is a table ({kind}): give one column, like table['text']")
    if isinstance(texts, Mapping):
        raise UsageError(f"texts is a {kind}: {listed}, such as its values")
    if isinstance(texts, set | frozenset):
        raise UsageError(f"texts is a {kind}, which has no order: {listed}")
    if not (isinstance(texts, Iterable) or hasattr(texts, "__getitem__")):
        raise UsageError(f"texts is {kind}: {listed}")


def pair_of(text: Text) -> tuple[str, str | None]:
    """A text and its pair, where it has one."""
    if isinstance(text, str):
        return text, None
    if isinstance(text, tuple | list) and len(text) == 2:
        return text[0], text[1]
    raise UsageError(f"texts holds {text!r}: give a str, or two of them as a pair")

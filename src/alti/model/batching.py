"""Many texts in batches of similar length, results in the order of the texts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch

from alti._errors import AltiError, UsageError
from alti.methods import Inputs
from alti.model.prompt import Chat, is_chat
from alti.model.question import Question
from alti.model.request import Task

Text = str | tuple[str, str] | Chat
R = TypeVar("R")
Q = TypeVar("Q")

WINDOW = 16  # batches whose texts are sorted by length


def windows(
    texts: Iterator[Q],
    read: Callable[[Q], Task],
    explain: Callable[[list[Task]], list[R]],
    *,
    batch_size: int,
    largest: int = WINDOW,
) -> Iterator[R]:
    """Windows of growing size, so that the first results come soon, sorted by length inside.

    What cannot be read raises after the results of all texts before it, and names its number.
    """
    batches = 1
    number = 0
    while True:
        tasks: list[Task] = []
        wrong: Exception | None = None
        try:
            for text in islice(texts, batches * batch_size):
                tasks.append(read(text))
                number += 1
        except AltiError as error:
            wrong = type(error)(f"texts[{number}]: {error}")
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
        raise UsageError(f"texts is one str: {listed}, such as [text]")
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


def question_of(text: Any, *, hears: bool = False, **rest: Any) -> Question:
    """A text, a pair of texts, a chat or a sound, as `explain_all` takes them."""
    if hears and not isinstance(text, str):
        kind = "features" if rest.get("rate") is None else "audio"
        return Question(**{kind: text}, **rest)
    if isinstance(text, str) or is_chat(text):
        return Question(text=text, **rest)
    if isinstance(text, tuple | list) and len(text) == 2:
        return Question(text=text[0], text_pair=text[1], **rest)
    raise UsageError(
        f"texts holds {text!r}: give a str, two of them as a pair, or a list of messages"
    )


def one_each(texts: Any, given: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each text with what was given for it: a list holds one value per text, else it is for all."""
    lists = {name: value for name, value in given.items() if is_listed(value)}
    for name, values in lists.items():
        if hasattr(texts, "__len__") and hasattr(values, "__len__") and len(values) != len(texts):
            raise UsageError(
                f"{name} holds {len(values)} values for {len(texts)} texts: give one for each, or "
                "one for all"
            )
    return _one_each(texts, given, lists)


def _one_each(
    texts: Iterable[Any], given: dict[str, Any], lists: dict[str, Any]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    others = {name: iter(values) for name, values in lists.items()}
    for text in texts:
        own = {}
        for name, values in others.items():
            try:
                own[name] = next(values)
            except StopIteration:
                raise UsageError(f"{name} holds fewer values than there are texts") from None
            if own[name] is None:
                raise UsageError(f"{name} holds None: give a value for every text, or one for all")
        yield text, {**given, **own}


def is_listed(value: Any) -> bool:
    """Whether a value is one for each text, rather than one for all."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


@contextmanager
def sentence_on_memory(inputs: Inputs) -> Iterator[None]:
    """Running out of memory says what to do."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        texts, tokens = inputs.special.shape
        raise AltiError(
            f"out of memory on {inputs.special.device} with {texts} texts of up to {tokens} "
            "tokens: use a smaller batch_size or shorter texts"
        ) from error

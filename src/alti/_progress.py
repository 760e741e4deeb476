"""How far the work is, for whoever watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Callback = Callable[[int, int | None], None]  # (texts that are done, texts in all)

Expected = Callable[[int], None]  # (steps that follow those which are done)

_callback: ContextVar[Callback | None] = ContextVar("_callback", default=None)
_expected: ContextVar[Expected | None] = ContextVar("_expected", default=None)


@contextmanager
def watching(callback: Callback, expected: Expected | None = None) -> Iterator[None]:
    """Call `callback` after each batch that a method runs in here, and at each layer it reads.

    For a layer it is called with (1, None): one more step. `expected` is called with how many of
    these follow, before those whose number is known.

    >>> with watching(lambda done, total: print(done, "of", total)):
    ...     model.explain(text, method="occlusion")
    """
    tokens = _callback.set(callback), _expected.set(expected)
    try:
        yield
    finally:
        _callback.reset(tokens[0])
        _expected.reset(tokens[1])


def report(done: int, total: int) -> None:
    """Tell whoever watches that so many texts are done."""
    callback = _callback.get()
    if callback is not None:
        callback(done, total)


def step() -> None:
    """Tell whoever watches that a layer is read, gradients are through one, or a check is made."""
    callback = _callback.get()
    if callback is not None:
        callback(1, None)


def expect(steps: int) -> None:
    """Tell whoever watches how many steps follow."""
    expected = _expected.get()
    if expected is not None:
        expected(steps)

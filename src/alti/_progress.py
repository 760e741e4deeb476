"""How far the work is, for whoever watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Callback = Callable[[int, int | None], None]  # (texts that are done, texts in all)

_callback: ContextVar[Callback | None] = ContextVar("_callback", default=None)


@contextmanager
def watching(callback: Callback) -> Iterator[None]:
    """Call `callback` after each batch that a method runs in here, and at each layer it reads.

    For a layer it is called with (1, None): one more step, and nobody knows of how many.

    >>> with watching(lambda done, total: print(done, "of", total)):
    ...     model.explain(text, method="occlusion")
    """
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


def report(done: int, total: int) -> None:
    """Tell whoever watches that so many texts are done."""
    callback = _callback.get()
    if callback is not None:
        callback(done, total)


def step() -> None:
    """Tell whoever watches that a layer is read, or a long text's gradients are through one."""
    callback = _callback.get()
    if callback is not None:
        callback(1, None)

"""How far a method is that runs the model many times, for whoever watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

TOKENS = 4096  # of a batch on a CPU

Callback = Callable[[int, int | None], None]  # (texts that are done, texts in all)

_callback: ContextVar[Callback | None] = ContextVar("_callback", default=None)


@contextmanager
def watching(callback: Callback) -> Iterator[None]:
    """Call `callback` after each batch that a method runs in here.

    >>> with watching(lambda done, total: print(done, "of", total)):
    ...     model.explain(text, method="occlusion")
    """
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


def at_once(mask: Tensor, most: int) -> int:
    """How many texts like those of a mask [B, T] go through the model together.

    On a CPU large batches save nothing, and small ones tell sooner how far they are.
    """
    return most if mask.is_cuda else max(1, min(most, TOKENS // mask.shape[1]))


def report(done: int, total: int) -> None:
    """Tell whoever watches that so many texts are done."""
    callback = _callback.get()
    if callback is not None:
        callback(done, total)

"""A walk that is being captured as a CUDA graph cannot read from the device.

Its errors are judged after each replay.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

Judge = Callable[[], None]  # raises what is wrong


@dataclass(slots=True)
class Recording:
    captured: bool = False  # the current run is
    judges: list[Judge] = field(default_factory=list)


_current: ContextVar[Recording | None] = ContextVar("alti_recording", default=None)


@contextmanager
def into(recording: Recording) -> Iterator[None]:
    """The captured run in here records its judges."""
    token = _current.set(recording)
    try:
        yield
    finally:
        _current.reset(token)


def capturing() -> bool:
    """Whether the current run is being captured."""
    recording = _current.get()
    return recording is not None and recording.captured


def afterwards(judge: Judge) -> None:
    """Judge what was computed: now, or after each replay of a captured run."""
    recording = _current.get()
    if recording is not None and recording.captured:
        recording.judges.append(judge)
    else:
        judge()

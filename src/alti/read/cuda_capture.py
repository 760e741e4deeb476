"""A walk that is being recorded as a CUDA graph cannot read from the device.

What it must know about the model it was told in an earlier run, and what it has to judge is judged after each replay.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor

Judge = Callable[[], None]  # raises what is wrong


@dataclass(slots=True)
class Recording:
    captured: bool = False  # the run that is going on
    answers: list[bool] = field(default_factory=list)  # of the run before, in their order
    judges: list[Judge] = field(default_factory=list)


_current: ContextVar[Recording | None] = ContextVar("alti_recording", default=None)


@contextmanager
def into(recording: Recording) -> Iterator[None]:
    """Runs in here leave their answers, and the one that is captured its judges."""
    token = _current.set(recording)
    try:
        yield
    finally:
        _current.reset(token)


def capturing() -> bool:
    """Whether the run that is going on is being captured."""
    recording = _current.get()
    return recording is not None and recording.captured


def settled(condition: Tensor) -> bool:
    """Whether something holds of the model, and so in every run."""
    recording = _current.get()
    if recording is not None and recording.captured:
        if not recording.answers:
            raise RuntimeError("the model asked what it had not asked before")
        return recording.answers.pop(0)
    found = bool(condition)
    if recording is not None:
        recording.answers.append(found)
    return found


def afterwards(judge: Judge) -> None:
    """Judge what was computed: now, or after each replay."""
    recording = _current.get()
    if recording is not None and recording.captured:
        recording.judges.append(judge)
    else:
        judge()

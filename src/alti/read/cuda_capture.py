"""A walk that is being captured as a CUDA graph cannot read from the device.

What it has to know about the model is remembered from an earlier run, and its errors are judged
after each replay.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor

Judge = Callable[[], None]  # raises what is wrong


@dataclass(slots=True)
class Recording:
    captured: bool = False  # the current run is
    answers: list[bool] = field(default_factory=list)  # of `settled` in the run before, in order
    judges: list[Judge] = field(default_factory=list)


_current: ContextVar[Recording | None] = ContextVar("alti_recording", default=None)


@contextmanager
def into(recording: Recording) -> Iterator[None]:
    """Runs in here record what `settled` answered, and the captured one its judges."""
    token = _current.set(recording)
    try:
        yield
    finally:
        _current.reset(token)


def capturing() -> bool:
    """Whether the current run is being captured."""
    recording = _current.get()
    return recording is not None and recording.captured


def settled(condition: Tensor) -> bool:
    """A condition that depends on the model alone, and so is the same in every run."""
    recording = _current.get()
    if recording is not None and recording.captured:
        if not recording.answers:
            raise RuntimeError("the captured run needs a condition that earlier runs did not")
        return recording.answers.pop(0)
    answer = bool(condition)
    if recording is not None:
        recording.answers.append(answer)
    return answer


def afterwards(judge: Judge) -> None:
    """Judge what was computed: now, or after each replay of a captured run."""
    recording = _current.get()
    if recording is not None and recording.captured:
        recording.judges.append(judge)
    else:
        judge()

"""The process that holds the models: answers one request after another, and tells how far it is."""

import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from alti._characters import harmless, note
from alti._errors import AltiError, UsageError
from alti.web.help import in_fields
from alti.web.settings import Settings

LONGEST = 400  # characters of an error message
PAUSE = 0.1  # seconds between two reports
CRASHED = "Something went wrong inside alti; see the server's terminal for details."
CANCELLED = "The request was cancelled."
CANCEL = "cancel"  # sent to the process while it works on a request
PROGRESS = "progress"  # (PROGRESS, done, total), sent back meanwhile
WRITTEN = "written"  # (WRITTEN, a token), sent back while a model writes

Answer = tuple[int, bytes | str]  # an HTTP status, and the body or an error message


class Cancelled(Exception):
    """Nobody waits for the answer any more."""


class Reports:
    """Tells the server how far a method is, and stops it if the server says so."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.last = 0.0
        self.steps = 0  # that are done
        self.expected = 0  # of these, as far as it is known

    def __call__(self, done: int, total: int | None) -> None:
        self._stop_if_cancelled()
        if total is None:
            self.steps += done
            done = self.steps
            total = self.expected if done <= self.expected else None
        if time.monotonic() - self.last > PAUSE:
            self.last = time.monotonic()
            self.pipe.send((PROGRESS, done, total))

    def expect(self, steps: int) -> None:
        """So many steps follow."""
        self.expected = self.steps + steps

    def begin(self) -> None:
        """Another request."""
        self.steps = self.expected = 0

    def wrote(self, token: dict[str, Any]) -> None:
        """A token that a model wrote."""
        self._stop_if_cancelled()
        self.pipe.send((WRITTEN, token))

    def _stop_if_cancelled(self) -> None:
        if self.pipe.poll() and self.pipe.recv() == CANCEL:
            raise Cancelled


def work(pipe: Connection, settings: Settings) -> None:
    """Load the models, then answer until the server closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this one
    warnings.showwarning = lambda message, *_: note(message)
    try:
        from transformers.utils.logging import disable_progress_bar

        from alti.methods.progress import watching
        from alti.model.request import SameForEveryClass
        from alti.web.desk import Desk

        disable_progress_bar()
        warnings.simplefilter("ignore", SameForEveryClass)  # the page says it beside the method
        desk = Desk(settings)
    except AltiError as error:
        pipe.send(error)
        return
    pipe.send(desk.describe())
    reports = Reports(pipe)
    desk.wrote = reports.wrote
    with watching(reports, reports.expect):
        while True:
            try:
                message = pipe.recv()
                reports.begin()
                if message != CANCEL:  # of a request that was answered meanwhile
                    pipe.send(_to(desk, *message))
            except (EOFError, OSError):
                return


def _to(desk: Any, kind: str, question: dict[str, Any]) -> Answer:
    """The answer to one request."""
    status, answer = _answered(getattr(desk, kind), question)
    if isinstance(answer, str) and kind != "explain":  # the page has fields, no arguments
        answer = in_fields(answer, of_words=desk.says_words(question))
    return status, answer


def _answered(answer: Callable[[dict[str, Any]], bytes], question: dict[str, Any]) -> Answer:
    try:
        return 200, answer(question)
    except Cancelled:
        return 503, CANCELLED
    except UsageError as error:
        return 400, _sentence(error)
    except AltiError as error:
        return 422, _sentence(error)
    except Exception:
        print(harmless(traceback.format_exc()), end="", file=sys.stderr)
        return 500, CRASHED


def _sentence(error: Exception) -> str:
    """The library's error message as a complete sentence of limited length."""
    message = str(error)
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]}…"
    end = "" if message.endswith(".") else "."
    return f"{message[:1].upper()}{message[1:]}{end}"

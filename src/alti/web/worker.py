"""A process that holds the models, and the queue in front of it.

A request that takes too long ends the process, and a new one is started.
"""

import asyncio
import multiprocessing
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from alti._characters import harmless, note
from alti._errors import AltiError, UsageError
from alti.web.settings import Refused, Settings

LONGEST = 400  # characters of an error message
POLL = 0.1  # seconds between checks whether a waiting client is still connected
LOADING = 600.0  # seconds for the models to load
CRASHED = "Something went wrong inside alti; see the server's terminal for details."
DISCONNECTED = "The client disconnected."

Answer = tuple[int, bytes | str]  # an HTTP status, and the body or an error message
Gone = Callable[[], Awaitable[bool]]  # whether the client has disconnected


class Worker:
    """Passes requests to the process, one at a time."""

    def __init__(
        self, settings: Settings, work: Callable[[Connection, Settings], None] | None = None
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.work = work or _work
        self.waiting = 0
        self._turn = asyncio.Lock()
        self._pipe_lock = threading.Lock()
        self._process, self._pipe = self._started()
        self._loaded = False
        self._stopped = False

    def load(self) -> dict[str, Any]:
        """Wait for the models, and return what can be requested."""
        described = self._description(LOADING)
        if described is None:
            raise AltiError(f"the models did not load within {LOADING:.0f} seconds")
        return described

    async def ask(self, kind: str, question: dict[str, Any], gone: Gone) -> bytes:
        """The body of the response, or Refused; also if `gone` reports that the client is."""
        if self.waiting or self._turn.locked():
            await self._queue(gone)
        else:
            await self._turn.acquire()  # succeeds immediately
        try:
            if await gone():
                raise Refused(503, DISCONNECTED)
            status, answer = await asyncio.to_thread(self._exchange, kind, question)
        finally:
            self._turn.release()
        if isinstance(answer, str):
            raise Refused(status, answer)
        return answer

    async def _queue(self, gone: Gone) -> None:
        if self.waiting >= self.limits.waiting:
            raise Refused(
                503, f"{self.waiting} requests are already waiting: try again in a few seconds."
            )
        self.waiting += 1
        try:
            await self._wait(gone)
        finally:
            self.waiting -= 1

    async def _wait(self, gone: Gone) -> None:
        """Wait for this request's turn; give up its place if the client disconnects.

        The page disconnects at every keystroke.
        """
        end = asyncio.get_running_loop().time() + self.limits.seconds
        turn = asyncio.ensure_future(self._turn.acquire())
        try:
            while not turn.done():
                await asyncio.wait([turn], timeout=POLL)
                if await gone():
                    raise Refused(503, DISCONNECTED)
                if not turn.done() and asyncio.get_running_loop().time() > end:
                    raise Refused(
                        503, "The model is busy with other requests: try again in a few seconds."
                    )
        except BaseException:  # includes cancellation
            if not turn.cancel():
                self._turn.release()
            raise

    def stop(self) -> None:
        """End the process; a request that is being computed fails immediately."""
        self._stopped = True
        self._process.kill()
        self._process.join()
        with self._pipe_lock:
            self._pipe.close()

    def _started(self) -> tuple[SpawnProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=self.work, args=(theirs, self.settings), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _restart(self) -> None:
        if not self._stopped:
            self._end()
            self._process, self._pipe = self._started()
            self._loaded = False

    def _description(self, seconds: float) -> dict[str, Any] | None:
        """What the process sends once its models are loaded; None if that takes longer."""
        if not self._pipe.poll(seconds):
            return None
        try:
            described: dict[str, Any] | AltiError = self._pipe.recv()
        except EOFError:
            raise AltiError("the process that holds the models ended while loading them") from None
        if isinstance(described, AltiError):
            raise described
        self._loaded = True
        return described

    def _exchange(self, kind: str, question: dict[str, Any]) -> Answer:
        """Send a question and wait for the answer, in a thread so that the server stays free."""
        with self._pipe_lock:
            try:
                if not self._loaded and self._description(self.limits.seconds) is None:
                    return 503, "The model is being reloaded: try again in a few seconds."
                self._pipe.send((kind, question))
                if self._pipe.poll(self.limits.seconds):
                    answer: Answer = self._pipe.recv()
                    return answer
                self._restart()
                return 504, (
                    f"This took longer than {self.limits.seconds:g} seconds: "
                    "try a shorter text or fewer methods."
                )
            except (EOFError, OSError, AltiError):
                self._restart()
                return 503, "The process that holds the model ended: try again in a few seconds."


def _work(pipe: Connection, settings: Settings) -> None:
    """The process: load the models, then answer until the server closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this one
    warnings.showwarning = lambda message, *_: note(message)
    try:
        from transformers.utils.logging import disable_progress_bar

        from alti.model.request import SameForEveryClass
        from alti.web.desk import Desk

        disable_progress_bar()
        warnings.simplefilter("ignore", SameForEveryClass)  # the page says it beside the method
        desk = Desk(settings)
    except AltiError as error:
        pipe.send(error)
        return
    pipe.send(desk.describe())
    while True:
        try:
            kind, question = pipe.recv()
            pipe.send(_answered(getattr(desk, kind), question))
        except (EOFError, OSError):
            return


def _answered(answer: Callable[[dict[str, Any]], bytes], question: dict[str, Any]) -> Answer:
    try:
        return 200, answer(question)
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

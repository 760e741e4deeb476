"""One process that holds the models, and the queue in front of it. A request that takes too long ends the process."""

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

LONGEST = 400  # characters of a sentence
LOOKING = 0.1  # seconds after which a waiting request looks whether its sender is still there
LOADING = 600.0  # seconds that models may take to load

Answer = tuple[int, bytes | str]  # an HTTP status, and the body or the sentence


class Worker:
    """Asks the models, one request at a time."""

    def __init__(
        self, settings: Settings, work: Callable[[Connection, Settings], None] | None = None
    ) -> None:
        self.settings, self.limits, self.work = settings, settings.limits, work or _work
        self.waiting = 0
        self._turn = asyncio.Lock()
        self._talking = threading.Lock()
        self._process, self._pipe = self._started()
        self._loaded, self._stopped = False, False

    def load(self) -> dict[str, Any]:
        """Wait for the models, and say what can be asked for."""
        described = self._greeting(LOADING)
        if described is None:
            raise AltiError(f"the models were not loaded within {LOADING:.0f} seconds")
        return described

    async def ask(
        self, kind: str, asked: dict[str, Any], gone: Callable[[], Awaitable[bool]]
    ) -> bytes:
        """The body of an answer; `gone` says whether the one who asked has left while waiting."""
        if self.waiting or self._turn.locked():
            await self._queue(gone)
        else:
            await self._turn.acquire()  # at once
        try:
            if await gone():
                raise Refused(503, "The one who asked has left.")
            status, said = await asyncio.to_thread(self._exchange, kind, asked)
        finally:
            self._turn.release()
        if isinstance(said, str):
            raise Refused(status, said)
        return said

    async def _queue(self, gone: Callable[[], Awaitable[bool]]) -> None:
        if self.waiting >= self.limits.waiting:
            raise Refused(
                503, f"{self.waiting} requests are waiting already: try again in a few seconds."
            )
        self.waiting += 1
        try:
            await self._wait(gone)
        finally:
            self.waiting -= 1

    async def _wait(self, gone: Callable[[], Awaitable[bool]]) -> None:
        """Until it is this request's turn; one whose sender has left (a page, at every key) gives up its place."""
        end = asyncio.get_running_loop().time() + self.limits.seconds
        turn = asyncio.ensure_future(self._turn.acquire())
        try:
            while not turn.done():
                await asyncio.wait([turn], timeout=LOOKING)
                if await gone():
                    raise Refused(503, "The one who asked has left.")
                if not turn.done() and asyncio.get_running_loop().time() > end:
                    raise Refused(
                        503, "The model is busy with other requests: try again in a few seconds."
                    )
        except BaseException:  # also where the request is cancelled
            if not turn.cancel():
                self._turn.release()
            raise

    def stop(self) -> None:
        """End the process; a request that waits for its answer is told so at once."""
        self._stopped = True
        self._process.kill()
        self._process.join()
        with self._talking:
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

    def _greeting(self, seconds: float) -> dict[str, Any] | None:
        """What the process says when its models are loaded; None while they are not."""
        if not self._pipe.poll(seconds):
            return None
        try:
            greeting = self._pipe.recv()
        except EOFError:
            raise AltiError("the process that holds the models ended while loading them") from None
        if isinstance(greeting, AltiError):
            raise greeting
        self._loaded = True
        described: dict[str, Any] = greeting
        return described

    def _exchange(self, kind: str, asked: dict[str, Any]) -> Answer:
        """Ask and wait. It runs in a thread, so that the server can answer others meanwhile."""
        with self._talking:
            try:
                if not self._loaded and self._greeting(self.limits.seconds) is None:
                    return 503, "The model is loading again: try again in a few seconds."
                self._pipe.send((kind, asked))
                if self._pipe.poll(self.limits.seconds):
                    answer: Answer = self._pipe.recv()
                    return answer
                self._restart()
                return (
                    504,
                    f"This took longer than {self.limits.seconds:g} seconds: try a shorter text or fewer methods.",
                )
            except (EOFError, OSError, AltiError):
                self._restart()
                return 503, "The process that holds the model ended: try again in a few seconds."


def _work(pipe: Connection, settings: Settings) -> None:
    """The process: load the models, then answer until nobody is there to ask."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the server, which ends this process
    warnings.showwarning = lambda message, *_: note(message)
    for known in (
        "the same for every target",
        "not for or against what",
    ):  # the page says it beside the method
        warnings.filterwarnings("ignore", message=f".*{known}")
    try:
        from transformers.utils.logging import disable_progress_bar

        from alti.web.desk import Desk

        disable_progress_bar()
        desk = Desk(settings)
    except AltiError as error:
        pipe.send(error)
        return
    pipe.send(desk.describe())
    while True:
        try:
            kind, asked = pipe.recv()
            pipe.send(_answered(getattr(desk, kind), asked))
        except (EOFError, OSError):
            return


def _answered(answer: Callable[[dict[str, Any]], bytes], asked: dict[str, Any]) -> Answer:
    try:
        return 200, answer(asked)
    except UsageError as error:
        return 400, _sentence(error)
    except AltiError as error:
        return 422, _sentence(error)
    except Exception:
        print(harmless(traceback.format_exc()), end="", file=sys.stderr)
        return 500, "Something went wrong inside alti; the server's terminal says what."


def _sentence(error: Exception) -> str:
    """As the library says it, as a sentence of its own."""
    said = str(error)
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
    return f"{said[:1].upper()}{said[1:]}{'' if said.endswith('.') else '.'}"

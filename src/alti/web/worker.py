"""The queue in front of the process that holds the models.

A request that shows no sign of progress for too long ends the process, and a new one is started;
those that wait keep their places.
"""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from alti._errors import AltiError
from alti.web.process import CANCEL, PROGRESS, WRITTEN, Answer, work
from alti.web.settings import Refused, Settings

POLL = 0.1  # seconds between checks whether a client is still connected
LOADING = 600.0  # seconds for the models to load
GRACE = 10.0  # seconds for a cancelled request to end by itself
DISCONNECTED = "The client disconnected."
ENDED = "The process that holds the model ended: try again in a few seconds."

Gone = Callable[[], Awaitable[bool]]  # whether the client has disconnected


@dataclass(slots=True, eq=False)
class Job:
    """A request that waits or is being answered."""

    kind: str
    question: dict[str, Any]
    working: bool = False
    done: int = 0  # of `total` parts
    total: int | None = None
    cancelled: bool = False
    written: list[dict[str, Any]] = field(default_factory=list)  # tokens of an answer so far


class Worker:
    """Passes requests to the process, one at a time."""

    def __init__(
        self, settings: Settings, work: Callable[[Connection, Settings], None] = work
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.work = work
        self.jobs: list[Job] = []  # the first is at work
        self.tickets: dict[str, Job] = {}
        self._turn = asyncio.Lock()
        self._pipe_lock = threading.Lock()
        self._process, self._pipe = self._started()
        self._loaded = False
        self._stopped = False

    @property
    def waiting(self) -> int:
        return sum(not job.working for job in self.jobs)

    def load(self) -> dict[str, Any]:
        """Wait for the models, and return what can be requested."""
        described = self._description()
        if described is None:
            raise AltiError(f"the models did not load within {LOADING:.0f} seconds")
        return described

    def state(self, ticket: str) -> dict[str, Any]:
        """Where a request is: its place in the queue, or how far it is."""
        job = self.tickets.get(ticket)
        if job is None:
            return {"state": "unknown"}
        if not job.working:
            return {"state": "waiting", "position": self.jobs.index(job)}
        if not self._loaded:
            return {"state": "loading"}
        state = {"state": "working", "done": job.done, "total": job.total}
        return {**state, "written": [*job.written]} if job.written else state

    async def ask(
        self, kind: str, question: dict[str, Any], gone: Gone, ticket: str | None = None
    ) -> bytes:
        """The body of the response, or Refused; also if `gone` reports that the client is."""
        if self.waiting >= self.limits.waiting:
            raise Refused(
                503, f"{self.waiting} requests are already waiting: try again in a few seconds."
            )
        job = Job(kind, question)
        with self._listed(job, ticket):
            await self._wait(gone)
            try:
                if await gone():
                    raise Refused(503, DISCONNECTED)
                job.working = True
                status, answer = await self._watched(job, gone)
            finally:
                self._turn.release()
        if isinstance(answer, str):
            raise Refused(status, answer)
        return answer

    @contextmanager
    def _listed(self, job: Job, ticket: str | None) -> Iterator[None]:
        """The job in the queue, where its client can ask for it."""
        self.jobs.append(job)
        if ticket is not None:
            self.tickets[ticket] = job
        try:
            yield
        finally:
            self.jobs.remove(job)
            if ticket is not None and self.tickets.get(ticket) is job:
                del self.tickets[ticket]

    async def _wait(self, gone: Gone) -> None:
        """Wait for this request's turn; give up its place if the client disconnects.

        The page disconnects at every keystroke. The wait has no limit of its own: whatever is at
        work either shows progress or is ended.
        """
        if not self._turn.locked():
            await self._turn.acquire()  # succeeds immediately
            return
        turn = asyncio.ensure_future(self._turn.acquire())
        try:
            while not turn.done():
                await asyncio.wait([turn], timeout=POLL)
                if not turn.done() and await gone():
                    raise Refused(503, DISCONNECTED)
        except BaseException:  # includes cancellation
            if not turn.cancel():
                self._turn.release()
            raise

    async def _watched(self, job: Job, gone: Gone) -> Answer:
        """The answer; the process is told to stop if the client disconnects meanwhile."""
        exchange = asyncio.ensure_future(asyncio.to_thread(self._exchange, job))
        while not exchange.done():
            await asyncio.wait([exchange], timeout=POLL)
            job.cancelled = job.cancelled or (not exchange.done() and await gone())
        return exchange.result()

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

    def _description(self) -> dict[str, Any] | None:
        """What the process sends once its models are loaded; None if that takes longer."""
        if not self._pipe.poll(LOADING):
            return None
        try:
            described: dict[str, Any] | AltiError = self._pipe.recv()
        except EOFError:
            raise AltiError("the process that holds the models ended while loading them") from None
        if isinstance(described, AltiError):
            raise described
        self._loaded = True
        return described

    def _exchange(self, job: Job) -> Answer:
        """Send a question and wait for the answer, in a thread so that the server stays free."""
        with self._pipe_lock:
            try:
                if not self._loaded and self._description() is None:
                    self._restart()
                    return 503, ENDED
                self._pipe.send((job.kind, job.question))
                return self._answer(job)
            except (EOFError, OSError, AltiError):
                self._restart()
                return 503, ENDED

    def _answer(self, job: Job) -> Answer:
        """Read what the process sends: how far it is, then the answer."""
        limit = self.limits.seconds_for(job.question)
        moved = time.monotonic()
        told: float | None = None  # when the process was told to stop
        while True:
            if self._pipe.poll(POLL):
                message = self._pipe.recv()
                moved = time.monotonic()
                if message[0] == WRITTEN:
                    job.written.append(message[1])
                elif message[0] == PROGRESS:
                    _, job.done, job.total = message
                else:
                    answer: Answer = message
                    return answer
            if job.cancelled and told is None:
                told = time.monotonic()
                self._pipe.send(CANCEL)
            if told is not None and time.monotonic() - told > GRACE:
                self._restart()
                return 503, DISCONNECTED
            if time.monotonic() - moved > limit:
                self._restart()
                return 504, (
                    f"This showed no progress for {limit:g} seconds and was ended: try a shorter "
                    "text or fewer methods."
                )

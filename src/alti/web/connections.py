"""Connections: how many there may be, and how long one may leave a request unfinished."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 256
PER_CLIENT = 64  # of one address; a browser opens 6, a proxy in front all that it needs
UNFINISHED = 15.0  # seconds for a whole request, the wait for its first byte included
_REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Content-Type: application/json\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"
    b'{"error": "Too many connections are open: close some and try again."}'
)


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 with a deadline for each request and a limit for each client."""

    deadline: asyncio.TimerHandle | None = None
    unsent = float("inf")  # bytes of the answer when the deadline last passed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._too_many():
            transport.write(_REFUSED)
            transport.close()
        else:
            self._expect()

    def handle_events(self) -> None:
        super().handle_events()
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self._forget()
        elif self.deadline is None:
            self._expect()

    def on_response_complete(self) -> None:
        self.unsent = float("inf")
        self._expect()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _too_many(self) -> bool:
        own = [one.client for one in self.connections if isinstance(one, Connection)]
        same = [client for client in own if client and self.client and client[0] == self.client[0]]
        return len(same) > PER_CLIENT or len(self.connections) > CONNECTIONS

    def _expect(self) -> None:
        """Give the next request its time."""
        self._forget()
        self.deadline = self.loop.call_later(UNFINISHED, self._drop)

    def _forget(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _drop(self) -> None:
        """End it, unless its client is still reading an answer."""
        left = self.transport.get_write_buffer_size()
        if 0 < left < self.unsent:
            self.unsent = left
            self._expect()
        else:
            self.transport.abort()

"""Limits the number of connections and the time for a request to arrive.

Where there are too many, silent ones make room: those who hold them do not make others wait.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 256
PER_CLIENT = 64  # from one address; a browser opens 6, a reverse proxy as many as it needs
UNFINISHED = 15.0  # seconds for a complete request, including the wait for its first byte
_REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Content-Type: application/json\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"
    b'{"error": "Too many connections are open: close some and try again."}'
)


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with a deadline per request and a limit per client."""

    deadline: asyncio.TimerHandle | None = None
    silent_since = 0.0
    dropped = False
    unsent = float("inf")  # bytes left to send when the deadline last passed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if self._has_room():
            self._start_deadline()
        else:
            self.dropped = True
            transport.write(_REFUSED)
            transport.close()

    def handle_events(self) -> None:
        super().handle_events()
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self._cancel_deadline()
        elif self.deadline is None:
            self._start_deadline()

    def on_response_complete(self) -> None:
        self.unsent = float("inf")
        self._start_deadline()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    @property
    def answering(self) -> bool:
        """Whether a request is being answered, or the answer is still on its way."""
        working = self.cycle is not None and not self.cycle.response_complete
        return working or self.transport.get_write_buffer_size() > 0

    def _has_room(self) -> bool:
        """Whether this connection may stay; the longest silent one makes room if there are many."""
        everyone = [
            other
            for other in self.connections
            if isinstance(other, Connection) and not other.dropped
        ]
        address = self.client[0] if self.client else None
        same = [other for other in everyone if other.client and other.client[0] == address]
        for held, limit in ((same, PER_CLIENT), (everyone, CONNECTIONS)):
            silent = [other for other in held if other is not self and not other.answering]
            if len([other for other in held if not other.dropped]) <= limit:
                continue
            if not silent:
                return False
            min(silent, key=lambda other: other.silent_since).drop()
        return True

    def drop(self) -> None:
        """Close the connection at once."""
        self.dropped = True
        self._cancel_deadline()
        self.transport.abort()

    def _start_deadline(self) -> None:
        """Start the clock for the next request."""
        self._cancel_deadline()
        self.silent_since = self.loop.time()
        self.deadline = self.loop.call_later(UNFINISHED, self._on_deadline)

    def _cancel_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _on_deadline(self) -> None:
        """Drop the connection, unless its client is still reading a response."""
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self.unsent:
            self.unsent = unsent
            self._start_deadline()
        else:
            self.transport.abort()

"""Opens the address, waits for the models and serves until it is stopped."""

import socket
import webbrowser
from threading import Timer

import uvicorn
from starlette.applications import Starlette

from alti._characters import note
from alti._errors import AltiError, UsageError
from alti.web.app import create
from alti.web.connections import CONNECTIONS, Connection
from alti.web.settings import Settings
from alti.web.worker import Worker


def serve(settings: Settings, *, browser: bool = False) -> None:
    """Serve until Ctrl-C. The address goes to stdout, talk to stderr."""
    listening = _listening(settings.host, settings.port)
    if not settings.local:
        note(
            f"{settings.host} is not a loopback address: anyone who can reach this machine on port "
            f"{listening.getsockname()[1]} can use the model, and there is no password"
        )
    note("loading")
    worker = Worker(settings)
    try:
        app = create(worker, worker.load(), settings)
        address = _address(settings, listening)
        print(address, flush=True)
        note("Ctrl-C ends it")
        if browser:
            Timer(0.3, webbrowser.open, [address]).start()
        server(app, worker).run(sockets=[listening])
    except KeyboardInterrupt:
        note("stopped")
    finally:
        worker.stop()
        listening.close()


class _Server(uvicorn.Server):
    """Ends the worker before it ends itself: else it would wait for what the worker computes."""

    def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
        super().__init__(config)
        self.worker = worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.worker.stop()
        await super().shutdown(sockets)


def server(app: Starlette, worker: Worker) -> uvicorn.Server:
    """An HTTP server for the application, without what it does not use."""
    config = uvicorn.Config(
        app,
        log_level="error",
        log_config=None,
        http=Connection,
        ws="none",
        lifespan="off",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    return _Server(config, worker)


def _listening(host: str, port: int) -> socket.socket:
    """A socket at an address that is free."""
    if not 0 <= port <= 65535:
        raise UsageError(f"--port {port} does not exist: give 0 (any that is free) to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"--host {host} is not an address of this machine: {error.strerror}"
        ) from error
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
        found.listen(128)  # what SO_REUSEADDR let pass is refused here
    except OSError as error:
        found.close()
        raise AltiError(
            f"port {port} of {host} cannot be opened ({error.strerror}): give another --port"
        ) from error
    return found


def _address(settings: Settings, listening: socket.socket) -> str:
    everywhere = settings.host in ("0.0.0.0", "::", "")  # no address that a browser can open
    host = (
        socket.gethostname()
        if everywhere
        else f"[{settings.host}]"
        if ":" in settings.host
        else settings.host
    )
    return f"http://{host}:{listening.getsockname()[1]}/"

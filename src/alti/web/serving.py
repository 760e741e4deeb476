"""Opens a socket, loads the models and serves until interrupted."""

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
    """Serve until Ctrl-C. The address goes to stdout, status messages to stderr."""
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
        note("press Ctrl-C to stop")
        if browser:
            Timer(0.3, webbrowser.open, [address]).start()
        server(app, worker).run(sockets=[listening])
    except KeyboardInterrupt:
        note("stopped")
    finally:
        worker.stop()
        listening.close()


class _Server(uvicorn.Server):
    """Stops the worker before shutting down, which would otherwise wait for its computation."""

    def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
        super().__init__(config)
        self.worker = worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.worker.stop()
        await super().shutdown(sockets)


def server(app: Starlette, worker: Worker) -> uvicorn.Server:
    """An HTTP server for the application, without the features it does not use."""
    config = uvicorn.Config(
        app,
        log_level="error",
        log_config=None,
        http=Connection,
        ws="none",
        lifespan="off",
        limit_concurrency=CONNECTIONS + 1,  # silent ones have made room before
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    return _Server(config, worker)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens at the address."""
    if not 0 <= port <= 65535:
        raise UsageError(f"--port {port} does not exist: give 0 (any free port) to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"--host {host} is not an address of this machine: {error.strerror}"
        ) from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(128)  # fails if SO_REUSEADDR let bind take a port in use
    except OSError as error:
        listening.close()
        raise AltiError(
            f"port {port} of {host} cannot be opened ({error.strerror}): give another --port"
        ) from error
    return listening


def _address(settings: Settings, listening: socket.socket) -> str:
    host = settings.host
    if host in ("0.0.0.0", "::", ""):  # a browser cannot open these
        host = socket.gethostname()
    elif ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{listening.getsockname()[1]}/"

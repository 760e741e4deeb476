"""A server in a thread of the tests."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from alti.web.app import create
from alti.web.serving import server
from alti.web.settings import Limits, Settings
from alti.web.worker import Worker

WRITTEN = 4000  # tokens that a model may write: a tiny one takes seconds for them


@contextmanager
def running(*folders: Path) -> Iterator[str]:
    """Its worker uses one thread, as the tests do, so that results are equal to the last bit."""
    before = os.environ.get("OMP_NUM_THREADS")  # another server may run meanwhile
    os.environ["OMP_NUM_THREADS"] = "1"
    limits = Limits(written=WRITTEN)
    settings = Settings((None, *map(str, folders)), device="cpu", limits=limits)
    worker = Worker(settings)
    http = server(create(worker, worker.load(), settings), worker)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = Thread(target=http.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        http.should_exit = True
        thread.join()
        listening.close()
        worker.stop()
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)

"""A worker without a model: its process imports nothing heavy."""

import os
import time


def strange(pipe, settings):
    """A worker that sleeps, dies, reports or returns its process id, as the request says."""
    time.sleep(float(os.environ.get("STRANGE_LOADING", "0")))
    pipe.send({"models": [], "methods": []})
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        if message == "cancel":
            continue
        _, request = message
        time.sleep(request.get("sleep", 0))
        if request.get("die"):
            os._exit(1)
        pipe.send(_worked(pipe, request.get("parts", 0)))


def _worked(pipe, parts):
    """Parts of a tenth of a second, each with a report."""
    for done in range(parts):
        time.sleep(0.1)
        pipe.send(("progress", done + 1, parts))
        if pipe.poll() and pipe.recv() == "cancel":
            return 503, "The request was cancelled."
    return 200, str(os.getpid()).encode()

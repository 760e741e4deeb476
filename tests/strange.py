"""A worker without a model: its process imports nothing heavy."""

import os
import time


def strange(pipe, settings):
    """A worker that sleeps, dies or returns its process id, as the request says."""
    pipe.send({"models": [], "methods": []})
    while True:
        try:
            _, request = pipe.recv()
        except EOFError:
            return
        time.sleep(request.get("sleep", 0))
        if request.get("die"):
            os._exit(1)
        pipe.send((200, str(os.getpid()).encode()))

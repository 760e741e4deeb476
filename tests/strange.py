"""A worker without a model: its process imports nothing heavy."""

import os
import time


def strange(pipe, settings):
    """A worker that does what it is told: sleep, die, or say who it is."""
    pipe.send({"models": [], "methods": []})
    while True:
        try:
            _, told = pipe.recv()
        except EOFError:
            return
        time.sleep(told.get("sleep", 0))
        if told.get("die"):
            os._exit(1)
        pipe.send((200, str(os.getpid()).encode()))

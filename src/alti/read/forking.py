"""A forked process has none of its parent's threads, but torch's pool still waits for them.

So it computes with one thread. Forks wait until no explanation is under way: its hooks and training
flags would be the child's too.
"""

import os
import warnings
from typing import Protocol, TypeVar

import torch
from torch import nn

from alti._errors import AltiError

_pid = os.getpid()


class Lock(Protocol):
    def acquire(self) -> bool: ...
    def release(self) -> None: ...


L = TypeVar("L", bound=Lock)


def settle(model: nn.Module) -> None:
    """Make this process fit to run a model, if it was forked; a GPU cannot be used in it."""
    global _pid
    if _pid == os.getpid():
        return
    if any(weight.is_cuda for weight in model.parameters()) and torch.cuda._is_in_bad_fork():
        raise AltiError(
            "a GPU cannot be used in a process that was forked from one that used it: start "
            "processes with spawn, or load the model in the child only"
        )
    _pid = os.getpid()
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        warnings.warn(
            "this process was forked from one that used torch: it computes with one thread; "
            "start processes with spawn for more",
            stacklevel=4,
        )


def held_while_forking(lock: L) -> L:
    """The same lock; nobody holds it in a child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire,
            after_in_parent=lock.release,
            after_in_child=lock.release,
        )
    return lock

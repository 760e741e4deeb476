"""What this process can do: run compiled kernels, and compute after a fork.

A forked process has none of its parent's threads, but torch's pool still waits for them. So it
computes with one thread. Forks wait until no explanation is under way: its hooks and training
flags would be the child's too.
"""

import os
import warnings
from functools import cache
from importlib import import_module
from typing import Protocol, TypeVar

import torch
from torch import nn

from alti._errors import AltiError


@cache
def works(module: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a module can be imported and its `ready(device, dtype)`, if any, raises nothing."""
    try:
        imported = import_module(module)
        if hasattr(imported, "ready"):
            imported.ready(device, dtype)
    except Exception as error:  # not installed, or of no use on this processor
        name = module.rpartition(".")[2]
        warnings.warn(
            f"the {name} kernel does not work here ({error}): using a slower one", stacklevel=2
        )
        return False
    return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=works.cache_clear)  # a child lacks a kernel's threads


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

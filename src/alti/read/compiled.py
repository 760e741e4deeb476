"""Whether compiled code can be used on this machine; if not, that is said once."""

import os
import warnings
from functools import cache
from importlib import import_module

import torch


@cache
def works(module: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a module can be imported and is ready: its `ready(device, dtype)` raises nothing."""
    try:
        getattr(import_module(module), "ready", lambda device, dtype: None)(device, dtype)
    except Exception as error:  # not installed, or of no use on this processor
        name = module.rpartition(".")[2]
        warnings.warn(
            f"the {name} kernel does not work here ({error}): using a slower one", stacklevel=2
        )
        return False
    return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=works.cache_clear)  # threads of a kernel stay in the parent

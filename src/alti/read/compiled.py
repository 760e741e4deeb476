"""Whether compiled code can be used on this machine; warns once if not."""

import os
import warnings
from functools import cache
from importlib import import_module

import torch


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

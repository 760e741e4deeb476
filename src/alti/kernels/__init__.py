"""Ways to compute the only expensive thing, one module each. A kernel has some of

proximity(block, p)  -> [B, T, S]   ‖y_i‖ − ‖y_i − T_ij‖ in the ℓp norm, up to a positive factor per row
contributions(block) -> [B, T, S]   the positive part of that, for p = 1, with its rows divided
lengths(block)       -> [B, T, S]   ‖T_ij‖₂
ready(device, dtype)                raises where it cannot be used, if importing it does not tell

(S + 1 columns for cross-attention: the residual is the last one.) `reference` is the definition; every other kernel is
tested against it.
"""

import os
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from alti._errors import UsageError


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a kernel can do, and where."""

    tasks: tuple[str, ...] = ("l1", "l2", "lengths")
    device: str | None = None  # None: every one
    dtype: torch.dtype | None = None

    def can(self, task: str, device: str, dtype: torch.dtype) -> bool:
        return task in self.tasks and self.device in (None, device) and self.dtype in (None, dtype)


KERNELS: dict[str, Kernel] = {  # "auto" takes the first that can
    "triton": Kernel(("l1",), "cuda", torch.float32),
    "numba": Kernel(("l1",), "cpu"),
    "gram": Kernel(("l2", "lengths")),
    "blocked": Kernel(),
    "reference": Kernel(),
}


def pick(name: str, task: str, device: torch.device, dtype: torch.dtype) -> ModuleType:
    """The kernel of that name for a task; "auto" is what ALTI_KERNEL says, or the fastest that works here."""
    wanted = os.environ.get("ALTI_KERNEL", "auto") if name == "auto" else name
    able = [key for key, kernel in KERNELS.items() if kernel.can(task, device.type, dtype)]
    if wanted == "auto":
        wanted = next(key for key in able if works(key, device, dtype))
    if wanted not in able:
        where = "kernel" if wanted == name else "the environment variable ALTI_KERNEL"
        kind = str(dtype).removeprefix("torch.")
        what = f"computes no {task} in {kind} on {device.type}" if wanted in KERNELS else "does not exist"
        raise UsageError(f"{where} = {wanted!r} {what}: choose auto, {', '.join(able)}")
    return import_module(f"alti.kernels.{wanted}")


@cache
def works(name: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a kernel can be used here; if not, that is said once."""
    try:
        module = import_module(f"alti.kernels.{name}")
        getattr(module, "ready", lambda device, dtype: None)(device, dtype)
    except Exception as error:  # not installed, or of no use on this processor
        warnings.warn(f"the {name} kernel does not work here ({error}): using a slower one", stacklevel=2)
        return False
    return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=works.cache_clear)  # threads of a kernel stay in the parent

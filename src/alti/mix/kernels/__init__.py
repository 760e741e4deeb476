"""Ways to compute what is expensive, one module each. A kernel has one or more of

proximity(block, p)  -> [B, T, S]   ‖y_i‖ − ‖y_i − T_ij‖ in the ℓp norm, up to a factor > 0 per row
contributions(block) -> [B, T, S]   the positive part of that, for p = 1, with its rows divided
by_rows(block, spans)               the same for some rows at a time, what they share made once
lengths(block)       -> [B, T, S]   ‖T_ij‖₂
ready(device, dtype)                raises where it can be imported but not used

(S + 1 columns for cross-attention: the residual is the last one.) `reference` is the definition;
every other kernel is tested against it.
"""

import os
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import torch

from alti._errors import UsageError
from alti.read.process import works


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
    """The kernel of that name for a task.

    "auto" is the one that the environment variable ALTI_KERNEL names, or the fastest that works.
    """
    wanted = os.environ.get("ALTI_KERNEL", "auto") if name == "auto" else name
    able = [key for key, kernel in KERNELS.items() if kernel.can(task, device.type, dtype)]
    if wanted == "auto":
        wanted = next(key for key in able if works(_module(key), device, dtype))
    if wanted not in able:
        where = "kernel" if wanted == name else "the environment variable ALTI_KERNEL"
        why = "does not exist"
        if wanted in KERNELS:
            kind = str(dtype).removeprefix("torch.")
            why = f"computes no {task} in {kind} on {device.type}"
        raise UsageError(f"{where} = {wanted!r} {why}: choose auto, {', '.join(able)}")
    return import_module(_module(wanted))


def _module(name: str) -> str:
    return f"{__name__}.{name}"

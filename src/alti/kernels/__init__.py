"""Ways to compute the only expensive thing, behind one name each. A kernel is a module with

proximity(block, p) -> [B, T, S]   ‖y_i‖ − ‖y_i − T_ij‖ in the ℓp norm, up to a positive factor per row
lengths(block)      -> [B, T, S]   ‖T_ij‖₂

(S + 1 columns for cross-attention: the residual is the last one.) `reference` is the definition; every other kernel is
tested against it.
"""

import os
from types import ModuleType

from alti._errors import UsageError
from alti.kernels import blocked, reference

KERNELS: dict[str, ModuleType] = {"reference": reference, "blocked": blocked}


def pick(name: str = "auto") -> ModuleType:
    """The kernel of that name; "auto" is what ALTI_KERNEL says, or the fastest that works here."""
    wanted = os.environ.get("ALTI_KERNEL", "auto") if name == "auto" else name
    if wanted != "auto" and wanted not in KERNELS:
        where = "kernel" if wanted == name else "the environment variable ALTI_KERNEL"
        raise UsageError(f"{where} = {wanted!r} is not one of auto, {', '.join(KERNELS)}")
    return KERNELS.get(wanted, blocked)

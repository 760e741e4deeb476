"""A model, a text and what it predicts become scores: one file per kind of method.

A decorated function in any file of this folder is a method everywhere.
"""

import pkgutil
from importlib import import_module

from alti.methods.registry import (
    METHODS,
    Method,
    call,
    method,
    named,
    read_options,
    run,
    validate,
    validate_options,
)
from alti.methods.types import Inputs, Scores, Target

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

__all__ = [
    "METHODS",
    "Inputs",
    "Method",
    "Scores",
    "Target",
    "call",
    "method",
    "named",
    "read_options",
    "run",
    "validate",
    "validate_options",
]

"""Attribution methods, one file per kind. A decorated function in any file of this folder is a method everywhere."""

import pkgutil
from importlib import import_module

from alti.methods.registry import (
    METHODS,
    Inputs,
    Method,
    Scores,
    Target,
    blind,
    method,
    options_of,
    read_options,
    reads_class,
    reads_model,
    run,
    summary_of,
    takes_many_passes,
    validate,
    validate_options,
)

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

__all__ = [
    "METHODS",
    "Inputs",
    "Method",
    "Scores",
    "Target",
    "blind",
    "method",
    "options_of",
    "read_options",
    "reads_class",
    "reads_model",
    "run",
    "summary_of",
    "takes_many_passes",
    "validate",
    "validate_options",
]

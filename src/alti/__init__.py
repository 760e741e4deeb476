"""alti shows how a Transformer mixes its input and which tokens a prediction rests on.

>>> import alti
>>> model = alti.load("distilbert-base-uncased-finetuned-sst-2-english")
>>> print(model.explain("A clever blend of fact and fiction."))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from alti._errors import AltiError, DecompositionError, LoadError, UnsupportedModelError, UsageError
from alti.families import FAMILIES, Family, Site, Stack

if TYPE_CHECKING:
    from alti.attribution import Attribution
    from alti.blocks import Block, check, trace, walk
    from alti.kernels import KERNELS
    from alti.linear import linear_view
    from alti.loading import load
    from alti.methods import METHODS, Inputs, Scores, Target, method
    from alti.metrics import METRICS, metric
    from alti.mixing import contributions, norms, parts, rollout
    from alti.model import Model, explain

__version__ = "0.1.0"

_LAZY = {  # these import torch and transformers, which takes seconds: only when first used
    "Attribution": "attribution",
    "Block": "blocks",
    "check": "blocks",
    "trace": "blocks",
    "walk": "blocks",
    "KERNELS": "kernels",
    "linear_view": "linear",
    "load": "loading",
    "METHODS": "methods",
    "Inputs": "methods",
    "Scores": "methods",
    "Target": "methods",
    "method": "methods",
    "METRICS": "metrics",
    "metric": "metrics",
    "contributions": "mixing",
    "norms": "mixing",
    "parts": "mixing",
    "rollout": "mixing",
    "Model": "model",
    "explain": "model",
}

__all__ = [
    "FAMILIES",
    "KERNELS",
    "METHODS",
    "METRICS",
    "AltiError",
    "Attribution",
    "Block",
    "DecompositionError",
    "Family",
    "Inputs",
    "LoadError",
    "Model",
    "Scores",
    "Site",
    "Stack",
    "Target",
    "UnsupportedModelError",
    "UsageError",
    "check",
    "contributions",
    "explain",
    "linear_view",
    "load",
    "method",
    "metric",
    "norms",
    "parts",
    "rollout",
    "trace",
    "walk",
]


_MODULES = {"bench", "html", "latex", "metrics", "plots", "terminal", "train"}  # alti.metrics.jaccard needs no import


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"alti.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'alti' has no attribute {name!r}")
    return getattr(import_module(f"alti.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

"""alti shows how a Transformer mixes its input and which tokens a prediction rests on.

>>> import alti
>>> model = alti.load("distilbert-base-uncased-finetuned-sst-2-english")
>>> print(model.explain("A clever blend of fact and fiction."))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from alti._errors import (
    AltiError,
    AltiWarning,
    DecompositionError,
    LoadError,
    UnsupportedModelError,
    UsageError,
)
from alti.families import FAMILIES
from alti.family import Family, Site, Stack

if TYPE_CHECKING:
    from alti.experiments.what_if import Change, WhatIf, instead, what_if
    from alti.methods import METHODS, Inputs, Scores, Target, method
    from alti.metrics import METRICS, metric
    from alti.mix.contributions import contributions, norms, parts, rollout
    from alti.mix.kernels import KERNELS
    from alti.model.attribution import Attribution
    from alti.model.attributions import Attributions
    from alti.model.given import explain
    from alti.model.head_maps import HeadMaps
    from alti.model.image_attribution import ImageAttribution
    from alti.model.lens import Lens
    from alti.model.loading import load
    from alti.model.model import Model
    from alti.model.results import Prediction
    from alti.model.source import Group, Source
    from alti.read.block import Block
    from alti.read.linear_view import linear_view
    from alti.read.walk import check, trace, walk

__version__ = "0.2.0"

_LAZY = {  # these import torch and transformers, which takes seconds: only when first used
    "Attribution": "model.attribution",
    "Attributions": "model.attributions",
    "HeadMaps": "model.head_maps",
    "Lens": "model.lens",
    "ImageAttribution": "model.image_attribution",
    "Prediction": "model.results",
    "Group": "model.source",
    "Source": "model.source",
    "Block": "read.block",
    "check": "read.walk",
    "trace": "read.walk",
    "walk": "read.walk",
    "KERNELS": "mix.kernels",
    "linear_view": "read.linear_view",
    "load": "model.loading",
    "METHODS": "methods",
    "Inputs": "methods",
    "Scores": "methods",
    "Target": "methods",
    "method": "methods",
    "METRICS": "metrics",
    "metric": "metrics",
    "contributions": "mix.contributions",
    "norms": "mix.contributions",
    "parts": "mix.contributions",
    "rollout": "mix.contributions",
    "Model": "model.model",
    "explain": "model.given",
    "Change": "experiments.what_if",
    "WhatIf": "experiments.what_if",
    "instead": "experiments.what_if",
    "what_if": "experiments.what_if",
}

__all__ = [
    "FAMILIES",
    "KERNELS",
    "METHODS",
    "METRICS",
    "AltiError",
    "AltiWarning",
    "Attribution",
    "Attributions",
    "Block",
    "Change",
    "DecompositionError",
    "Family",
    "Group",
    "HeadMaps",
    "ImageAttribution",
    "Inputs",
    "Lens",
    "LoadError",
    "Model",
    "Prediction",
    "Scores",
    "Site",
    "Source",
    "Stack",
    "Target",
    "UnsupportedModelError",
    "UsageError",
    "WhatIf",
    "check",
    "contributions",
    "explain",
    "instead",
    "linear_view",
    "load",
    "method",
    "metric",
    "norms",
    "parts",
    "rollout",
    "trace",
    "walk",
    "what_if",
]


_MODULES = {  # alti.metrics.jaccard and alti.html.page need no import of their own
    "bench": "experiments.bench",
    "cards": "views.cards",
    "engines": "engines",
    "html": "views.html",
    "latex": "views.latex",
    "metrics": "metrics",
    "plots": "views.plots",
    "terminal": "views.terminal",
    "train": "experiments.train",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"alti.{_MODULES[name]}")
    if name not in _LAZY:
        raise AttributeError(f"module 'alti' has no attribute {name!r}")
    return getattr(import_module(f"alti.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext alti`: notebooks show lists of results as a table."""
    import_module("alti.views.notebooks").show_lists(shell)

"""Pictures of attributions and benchmarks: an Attribution or plain numbers in, matplotlib's Axes out.

Each function draws into the `ax` it is given, or into a figure of its own that fits what it shows; pyplot and its
settings are left alone. Pictures count layers from 1, as the paper does.

>>> ax = alti.plots.tokens(attribution)
>>> ax.figure.savefig("tokens.pdf")
"""

from alti._errors import LoadError

try:
    from alti.views.plots.attributions import graph, layers, matrix, tokens
    from alti.views.plots.benchmarks import agreement, anisotropy, curves, methods
    from alti.views.plots.look import ENDINGS
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "matplotlib":
        raise
    raise LoadError(
        "alti.plots draws with matplotlib, which is not installed: pip install 'alti[plots]'"
    ) from None

__all__ = [
    "ENDINGS",
    "agreement",
    "anisotropy",
    "curves",
    "graph",
    "layers",
    "matrix",
    "methods",
    "tokens",
]

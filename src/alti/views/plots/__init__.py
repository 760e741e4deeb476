"""Plots of attributions and benchmarks: an Attribution or plain numbers in, matplotlib Axes out.

Each function draws into the given `ax`, or into a new figure of a suitable size; pyplot and its
settings are not touched. Plots number layers from 1, as the paper does.

>>> ax = alti.plots.tokens(attribution)
>>> ax.figure.savefig("tokens.pdf")
"""

from alti._errors import LoadError

try:
    from alti.views.plots.alignments import alignment_lines, alignment_matrix
    from alti.views.plots.attributions import layers, matrix, predictions, tokens
    from alti.views.plots.benchmarks import agreement, anisotropy, curves, methods
    from alti.views.plots.graph import graph
    from alti.views.plots.heads import heads, lens
    from alti.views.plots.look import ENDINGS
    from alti.views.plots.sounds import sound
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "matplotlib":
        raise
    raise LoadError(
        "alti.plots draws with matplotlib, which is not installed: pip install 'alti[plots]'"
    ) from None

__all__ = [
    "ENDINGS",
    "agreement",
    "alignment_lines",
    "alignment_matrix",
    "anisotropy",
    "curves",
    "graph",
    "heads",
    "layers",
    "lens",
    "matrix",
    "methods",
    "predictions",
    "sound",
    "tokens",
]

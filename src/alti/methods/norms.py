"""Methods that take the length of a token's vector for its contribution."""

from torch import nn

from alti.methods.layerwise import layerwise
from alti.methods.registry import method
from alti.methods.types import Inputs, Scores, Target
from alti.mix import contributions as mixing


@method(recordable=True)
def norms(
    model: nn.Module, inputs: Inputs, target: Target, *, kernel: str = "auto", layers: bool = True
) -> Scores:
    """Norms: ℓ2 length of each token's vector, rows divided by their sum, through all layers."""
    return layerwise(
        model, inputs, target, lambda block: mixing.norms(block, kernel=kernel), layers=layers
    )


@method(recordable=True, second_norm=True, shares=False)
def globenc(
    model: nn.Module, inputs: Inputs, target: Target, *, kernel: str = "auto", layers: bool = True
) -> Scores:
    """Globenc: ℓ2 length behind the second norm, through all layers (post-norm families only)."""
    return layerwise(
        model,
        inputs,
        target,
        lambda block: mixing.lengths(block, kernel=kernel),
        layers=layers,
        through="ffn",
        rescale=True,  # rows do not sum to 1: the ranking is what counts
    )

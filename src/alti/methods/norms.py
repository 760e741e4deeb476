"""Methods that take the length of a token's vector for its contribution."""

from torch import nn

from alti.methods.layerwise import layerwise
from alti.methods.registry import Inputs, Scores, Target, method
from alti.mix import contributions as mixing


@method
def norms(
    model: nn.Module, inputs: Inputs, target: Target, *, kernel: str = "auto", layers: bool = True
) -> Scores:
    """Norms: ℓ2 length of each token's vector, rows divided by their sum, multiplied through the layers."""
    return layerwise(
        model, inputs, target, lambda block: mixing.norms(block, kernel=kernel), layers=layers
    )


@method
def globenc(
    model: nn.Module, inputs: Inputs, target: Target, *, kernel: str = "auto", layers: bool = True
) -> Scores:
    """Globenc: ℓ2 length behind the second norm, multiplied through the layers (post-norm families only)."""
    return layerwise(
        model,
        inputs,
        target,
        lambda block: mixing.lengths(block, kernel=kernel),
        layers=layers,
        through="ffn",
        rescale=True,  # rows do not sum to 1: the ranking is what counts
    )

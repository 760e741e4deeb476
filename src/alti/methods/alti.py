"""ALTI (Ferrando et al. 2022) and its ablations."""

from torch import nn

from alti.methods.layerwise import layerwise
from alti.methods.registry import Inputs, Scores, Target, method
from alti.mix.contributions import contributions


@method
def alti(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    p: int = 1,
    kernel: str = "auto",
    layers: bool = True,
) -> Scores:
    """ALTI: ℓ1 proximity of each token's vector to the block output, multiplied through the layers (p=2: ℓ2)."""
    return layerwise(
        model,
        inputs,
        target,
        lambda block: contributions(block, p=p, kernel=kernel),
        layers=layers,
    )


@method
def alti_ln2(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    p: int = 1,
    kernel: str = "auto",
    layers: bool = True,
) -> Scores:
    """ALTI + LN2: ALTI with the block carried through the second norm of its layer (post-norm families only)."""
    return layerwise(
        model,
        inputs,
        target,
        lambda block: contributions(block, p=p, kernel=kernel),
        layers=layers,
        through="ffn",
    )

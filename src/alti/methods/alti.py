"""ALTI (Ferrando et al. 2022) and its ablations."""

from torch import nn

from alti.methods.layerwise import layerwise
from alti.methods.registry import method
from alti.methods.types import Inputs, Scores, Target
from alti.mix.contributions import Contributions


@method(recordable=True)
def alti(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    p: int = 1,
    kernel: str = "auto",
    layers: bool = True,
) -> Scores:
    """ALTI: ℓ1 proximity of a token's vector to the block output, through all layers (p=2: ℓ2)."""
    return layerwise(
        model,
        inputs,
        target,
        Contributions(p, kernel),
        layers=layers,
    )


@method(recordable=True, second_norm=True)
def alti_ln2(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    p: int = 1,
    kernel: str = "auto",
    layers: bool = True,
) -> Scores:
    """ALTI + LN2: ALTI behind the second norm of each layer (post-norm families only)."""
    return layerwise(
        model,
        inputs,
        target,
        Contributions(p, kernel),
        layers=layers,
        through="ffn",
    )

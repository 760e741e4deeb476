"""The tokens of an encoder–decoder side by side: [source | prefix], columns of one matrix.

A model of one stack has one place for everything, so methods need not tell them apart.
"""

from torch import Tensor, nn

from alti.methods.types import Inputs
from alti.mix.joint import Place
from alti.read.modules import stacks_of

ALL = Place(slice(None), slice(None))


def places_of(model: nn.Module, inputs: Inputs) -> list[Place]:
    """Where each attention site's rows and columns lie, in the order of computation."""
    source = slice(0, inputs.split)
    prefix = slice(inputs.split, None)
    places: list[Place] = []
    for stack, layers in stacks_of(model):
        decodes = inputs.split is not None and any(site.cross for site in stack.sites)
        own = prefix if decodes else source
        for _ in layers:
            for site in stack.sites:
                columns = source if site.cross else own
                places.append(ALL if inputs.split is None else Place(own, columns))
    return places


def parts_of(inputs: Inputs, x: Tensor) -> list[Tensor]:
    """What belongs to each stack of x [B, T, ...]: all of it, or the encoder's, the decoder's."""
    if inputs.split is None:
        return [x]
    return [x[:, : inputs.split], x[:, inputs.split :]]

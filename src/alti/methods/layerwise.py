"""What the methods share that draw one map per layer and multiply them through the layers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from alti._errors import UnsupportedModelError
from alti.blocks import Block, Through, walk
from alti.methods.registry import Inputs, Scores, Target
from alti.mixing import roll


def layerwise(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    draw: Callable[[Block], Tensor],
    *,
    layers: bool,
    through: Through = None,
    rescale: bool = False,
    last_only: bool = False,
) -> Scores:
    """Draw a map of every block; the scores are the target's row of their product (or of the last one alone)."""
    maps: list[Tensor] = []

    def visit(block: Block) -> None:
        if block.cross:
            raise UnsupportedModelError("this method multiplies maps of self-attention, and met cross-attention")
        maps.append(draw(block))

    output = walk(model, inputs.tensors, visit, through=through)
    row = target.rows(inputs).to(maps[-1])
    tokens = roll(row, maps[-1:] if last_only else maps, rescale=rescale)
    return Scores(tokens, torch.stack(maps) if layers else None, output)

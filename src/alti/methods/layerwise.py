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
    lean = not layers and target.position is not None  # of the last block only the target's rows are drawn
    latest: list[Block] = []

    def visit(block: Block) -> None:
        if block.cross:
            raise UnsupportedModelError("this method multiplies maps of self-attention, and met cross-attention")
        if latest:
            maps.append(draw(latest.pop()))
        latest.append(block)
        if not lean:
            maps.append(draw(latest.pop()))

    output = walk(model, inputs.tensors, visit, through=through)
    if lean and target.position is not None:
        row = draw(latest.pop().rows(target.position[:, None]))[:, 0]  # [B, T]
    else:
        row = roll(target.rows(inputs).to(maps[-1]), maps[-1:])
    below = maps if lean else maps[:-1]
    tokens = row if last_only else roll(row, below, rescale=rescale)
    return Scores(tokens, torch.stack(maps) if layers else None, output)

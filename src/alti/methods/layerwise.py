"""What the methods share that draw one map per layer and multiply them through the layers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import UnsupportedModelError
from alti.methods.registry import Inputs, Scores, Target
from alti.mix.contributions import roll
from alti.read.block import Block
from alti.read.walk import Through, walk

Draw = Callable[[Block], Tensor]


def layerwise(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    draw: Draw,
    *,
    layers: bool,
    through: Through = None,
    rescale: bool = False,
    last_only: bool = False,
) -> Scores:
    """Draw a map of every block; the scores are the target's row of their product (or of the last one alone)."""
    lean = (
        not layers and target.position is not None
    )  # of the last block only the target's rows are drawn
    maps, last, output = maps_of(model, inputs, draw, through=through, hold_last=lean)
    if last is not None and target.position is not None:
        row = draw(last.rows(target.position[:, None]))[:, 0]  # [B, T]
    else:
        row = roll(target.rows(inputs).to(maps[-1]), maps[-1:])
    below = maps if lean else maps[:-1]
    tokens = row if last_only else roll(row, below, rescale=rescale)
    return Scores(tokens, torch.stack(maps) if layers else None, output)


def maps_of(
    model: nn.Module,
    inputs: Inputs,
    draw: Draw,
    *,
    through: Through = None,
    hold_last: bool = False,
) -> tuple[list[Tensor], Block | None, Any]:
    """A map of every block and the model's output; with `hold_last`, the last block itself instead of its map."""
    maps: list[Tensor] = []
    held: list[Block] = []

    def visit(block: Block) -> None:
        if block.cross:
            raise UnsupportedModelError(
                "this method multiplies maps of self-attention, and met cross-attention"
            )
        if held:
            maps.append(draw(held.pop()))
        if hold_last:
            held.append(block)
        else:
            maps.append(draw(block))

    output = walk(model, inputs.tensors, visit, through=through)
    return maps, held[0] if held else None, output

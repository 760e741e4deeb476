"""What the methods share that draw one map per layer and multiply them through the layers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import UnsupportedModelError
from alti.methods.stacks import places_of
from alti.methods.types import Inputs, Scores, Target
from alti.mix.joint import joint
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
    """Draw a map of every block; scores are the predictions' rows of their product.

    With `last_only`, rows of the last map alone.
    """
    # of the last block only the rows that are read are drawn
    lean = not layers and target.position is not None and inputs.split is None
    maps, last, output = maps_of(model, inputs, draw, through=through, hold_last=lean)
    if last is not None and target.position is not None:
        rows = draw(last.rows(target.position))  # [B, K, T]
    else:
        rows = _multiplied(target.rows(inputs).to(maps[-1]), maps[-1:])
    below = maps if lean else maps[:-1]
    tokens = rows if last_only else _multiplied(rows, below, rescale=rescale)
    return Scores(tokens, torch.stack(maps) if layers else None, output)


def _multiplied(rows: Tensor, maps: Sequence[Tensor], *, rescale: bool = False) -> Tensor:
    """Rows [B, K, T] of a rollout without the others: rows · C^L · … · C^1.

    With `rescale` each row is divided by its maximum at each layer: for maps without a common sum.
    """
    for contribution in reversed(maps):
        rows = rows @ contribution
        if rescale:
            rows = rows / rows.amax(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    return rows


def maps_of(
    model: nn.Module,
    inputs: Inputs,
    draw: Draw,
    *,
    through: Through = None,
    hold_last: bool = False,
) -> tuple[list[Tensor], Block | None, Any]:
    """A map of every block and the model's output; with `hold_last`, the last block itself.

    Those of an encoder–decoder are maps of all tokens, its own and the encoder's (ALTI+).
    """
    maps: list[Tensor] = []
    held: list[Block] = []
    places = iter(places_of(model, inputs))

    def keep(block: Block) -> None:
        drawn = draw(block)
        maps.append(drawn if inputs.split is None else joint(drawn, next(places), inputs.mask))

    def visit(block: Block) -> None:
        if block.cross and inputs.split is None:
            raise UnsupportedModelError(
                "this method multiplies maps of self-attention, and met cross-attention"
            )
        if held:
            keep(held.pop())
        if hold_last:
            held.append(block)
        else:
            keep(block)

    output = walk(model, inputs.tensors, visit, through=through)
    return maps, held[0] if held else None, output

"""What a position consists of after each layer: rows of the maps' products, without the maps."""

import torch
from torch import Tensor, nn

from alti.methods.layerwise import Draw, Drawing, maps_of
from alti.methods.types import Inputs, Target
from alti.read.backwards import walking_back
from alti.read.long import is_long


def rows_through(model: nn.Module, inputs: Inputs, target: Target, draw: Draw) -> Tensor:
    """Rows of R^l = C^l · … · C^1 at the positions that are read, for every l: [L, B, K, T].

    From the last layer down, the rows of a layer join those of the layers above it; of a long text
    no map is held as a whole.
    """
    start = target.rows(inputs)  # [B, K, T]
    if not is_long(model, inputs.tensors):
        maps, *_ = maps_of(model, inputs, draw)
        rows = start[None].to(maps[0])[:0]
        for contribution in reversed(maps):
            rows = torch.cat([start[None].to(rows), rows]) @ contribution
        return rows
    drawing = Drawing(draw)
    flat: list[Tensor] = []
    with walking_back(model, inputs.asking(target)) as (_, blocks):
        for block in blocks:
            joined = torch.cat([start.to(block.output.dtype), *flat], 1)
            flat = [drawing.through(joined, block)]
    batch, count, tokens = start.shape
    return flat[0].view(batch, -1, count, tokens).transpose(0, 1)

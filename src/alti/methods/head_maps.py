"""Maps of the heads of one layer: where each attends, and what it brings (ALTI)."""

from collections import deque
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor, nn

from alti._errors import UsageError
from alti.methods.layerwise import spans_of
from alti.methods.proofs import prove_structure
from alti.methods.stacks import places_of
from alti.methods.types import Inputs
from alti.mix.contributions import contributions
from alti.mix.heads import attention_by_head
from alti.mix.joint import Place
from alti.read.block import Block
from alti.read.long import is_long
from alti.read.walk import walk


@dataclass(frozen=True, slots=True)
class OfHeads:
    """What the heads of one layer do, for the rows that were asked for."""

    attention: Tensor  # [B, H, n, S]
    contributions: Tensor  # [B, H, n, S]
    place: Place  # among all tokens, where rows and columns are those of two stacks
    layer: int  # counted from the first


def head_maps(
    model: nn.Module, inputs: Inputs, layer: int, *, p: int = 1, rows: Tensor | None = None
) -> OfHeads:
    """The maps of one layer, all of its rows or those at `rows` [B, n]; -1 is the last layer."""
    plain = torch.autocast(inputs.mask.device.type, enabled=False)
    with torch.inference_mode(False), plain:
        inputs = inputs.cloned()
        prove_structure(model, inputs.tensors, inputs.mask)
        long = is_long(model, inputs.tensors)
        block, number = _block(model, inputs, layer, long)
        parts = _asked(block, rows, long)
        drawn = [(attention_by_head(each), contributions(each, p=p, heads=True)) for each in parts]
    attention, brought = (_joined(maps) for maps in zip(*drawn, strict=True))
    places = places_of(model, inputs)
    return OfHeads(attention, brought, places[min(number, len(places) - 1)], number)


def _block(model: nn.Module, inputs: Inputs, layer: int, long: bool) -> tuple[Block, int]:
    """The block of a layer, and its number."""
    if not isinstance(layer, Integral):
        raise UsageError(
            f"layer = {layer!r} is no layer: give its number, from 0, or -1 for the last"
        )
    kept: deque[Block] = deque(maxlen=max(1, -layer))
    count = 0

    def visit(block: Block) -> None:
        nonlocal count
        if layer < 0 or layer == count:
            kept.append(block)
        count += 1

    walk(model, inputs.tensors, visit, by_rows=long)
    if not -count <= layer < count:
        raise UsageError(f"layer = {layer} does not exist: the model has {count} layers")
    return kept[0], layer % count


def _asked(block: Block, rows: Tensor | None, long: bool) -> list[Block]:
    """The block of the rows that were asked for; all rows of a long text are several blocks."""
    if rows is not None:
        return [block.rows(rows)]
    return [block.span(span) for span in spans_of(block)] if long else [block]


def _joined(maps: tuple[Tensor, ...]) -> Tensor:
    """Rows below each other; those that saw the first tokens alone get the others as 0."""
    sources = max(each.shape[-1] for each in maps)
    wide = [torch.nn.functional.pad(each, (0, sources - each.shape[-1])) for each in maps]
    return torch.cat(wide, dim=2)

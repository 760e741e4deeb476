"""What the methods share that draw one map per layer and multiply them through the layers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import UnsupportedModelError
from alti.methods.stacks import places_of
from alti.methods.types import Inputs, Scores, Target
from alti.mix.contributions import Contributions
from alti.mix.joint import joint
from alti.read.attention_call import spans
from alti.read.backwards import walking_back
from alti.read.block import Block
from alti.read.long import is_long
from alti.read.walk import Through, walk

Draw = Callable[[Block], Tensor]

ROWS = {"cuda": 512}  # of a map at least, so that programs share the vectors that they read
TILE = {"cuda": 64}  # of which a span has whole ones: its rows lie aligned, no program has few


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
    if is_long(model, inputs.tensors):
        drawing = Drawing(draw, rescale=rescale, last_only=last_only)
        return _by_rows(model, inputs, target, drawing, layers=layers, through=through)
    # of the last block only the rows that are read are drawn
    lean = not layers and target.position is not None and inputs.split is None
    maps, last, output = maps_of(model, inputs, draw, through=through, hold_last=lean)
    if last is not None and target.position is not None:
        rows = draw(last.rows(target.position)).to(inputs.mask.device)  # [B, K, T]
    else:
        rows = _multiplied(target.rows(inputs).to(maps[-1]), maps[-1:])
    below = maps if lean else maps[:-1]
    tokens = rows if last_only else _multiplied(rows, below, rescale=rescale)
    return Scores(tokens, torch.stack(maps) if layers else None, output)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How a map is drawn of a block, and what its rows are multiplied with."""

    draw: Draw
    rescale: bool = False
    last_only: bool = False

    def through(self, rows: Tensor, block: Block, spans: Sequence[slice] | None = None) -> Tensor:
        """rows · C of a block, [B, K, T] -> [B, K, T]; C is drawn some rows at a time.

        `spans` are those with numbers in them, if that is known.
        """
        below = torch.zeros_like(rows)
        spans = reached(rows, block) if spans is None else spans
        for span, drawn in zip(spans, self._drawn(block, spans), strict=True):
            below[..., : drawn.shape[-1]].baddbmm_(rows[..., span], drawn.to(rows))
        return scaled(below) if self.rescale else below

    def _drawn(self, block: Block, spans: Sequence[slice]) -> Iterator[Tensor]:
        """C of some rows [B, n, S'] at a time."""
        if isinstance(self.draw, Contributions):
            return self.draw.by_rows(block, spans)
        return (self.draw(block.span(span)) for span in spans)

    def whole(self, block: Block) -> Tensor:
        """C itself: [B, T, T]."""
        batch, targets, _ = block.output.shape
        every = block.scale.new_zeros(batch, targets, targets)
        spans = spans_of(block)
        for span, drawn in zip(spans, self._drawn(block, spans), strict=True):
            every[:, span, : drawn.shape[-1]] = drawn
        return every


def reads_half(draw: Draw) -> bool:
    """Whether a map can be drawn of a block in half precision."""
    return isinstance(draw, Contributions) and draw.half


def reached(rows: Tensor, block: Block, before: Sequence[slice] = ()) -> list[slice]:
    """Those spans of a block's rows that rows [B, K, T] of a product are made of.

    `before` are those of the layer above: where they are all, so are these, and no GPU is waited
    for.
    """
    every = spans_of(block)
    if every == before:  # a token's own share goes on to the next layer
        return every
    needed = (rows != 0).flatten(0, 1).any(0).cpu()
    return [span for span in every if bool(needed[span].any())]


def spans_of(block: Block) -> list[slice]:
    """All rows of a block, some at a time."""
    batch, heads, targets, _ = block.attn.shape
    device = block.attn.device
    least, tile = ROWS.get(device.type), TILE.get(device.type, 1)
    return spans(batch, heads, targets, block.value.shape[2], device, least=least, tile=tile)


def _by_rows(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    drawing: Drawing,
    *,
    layers: bool,
    through: Through,
) -> Scores:
    """The same for long texts: from the last layer to the first, no map is held as a whole."""
    maps = []
    rows: Tensor | None = None
    spans: Sequence[slice] = ()
    asked = inputs.asking(target)
    half = reads_half(drawing.draw)
    with walking_back(model, asked, through=through, half=half) as (output, blocks):
        for block in blocks:
            if layers:
                maps.append(drawing.whole(block).to(inputs.mask.device))
            if rows is None:
                rows = _last(block, inputs, target, drawing)
            elif not drawing.last_only:
                spans = reached(rows, block, spans)
                rows = drawing.through(rows, block, spans)
            elif not layers:
                break
    assert rows is not None
    return Scores(rows, torch.stack(maps[::-1]) if layers else None, output)


def _last(block: Block, inputs: Inputs, target: Target, drawing: Drawing) -> Tensor:
    """Rows of the last map [B, K, T], those that predictions are read from."""
    if target.position is not None:
        return drawing.draw(block.rows(target.position))
    rows = target.rows(inputs).to(block.scale.dtype)
    return replace(drawing, rescale=False).through(rows, block)


def _multiplied(rows: Tensor, maps: Sequence[Tensor], *, rescale: bool = False) -> Tensor:
    """Rows [B, K, T] of a rollout without the others: rows · C^L · … · C^1.

    With `rescale` each row is divided by its maximum at each layer: for maps without a common sum.
    """
    for contribution in reversed(maps):
        rows = rows @ contribution
        if rescale:
            rows = scaled(rows)
    return rows


def scaled(rows: Tensor) -> Tensor:
    """Rows divided by their maximum."""
    return rows / rows.amax(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)


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
        drawn = draw(block).to(inputs.mask.device)  # layers may be on several
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

    output = walk(model, inputs.tensors, visit, through=through, half=reads_half(draw))
    return maps, held[0] if held else None, output

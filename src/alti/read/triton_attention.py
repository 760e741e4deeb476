"""Attention of long texts on a GPU, tile by tile: nothing of the size H · T² is ever written.

It is attention as torch's scaled_dot_product_attention computes it, softmax(scale · q k + mask) v,
with what that does not return: the log of the sum of each row, from which probabilities of any rows
are made again, and beside the gradients the sums of each key's column. `alti.read.attention_call`
and `alti.read.attention_bias` have the definitions, by rows in plain torch.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from alti.read import triton_tiles as kernels
from alti.read.attention_call import AttentionCall, Rows
from alti.read.messages import Columns
from alti.read.triton_norms import cdiv, lined, power_of_2, ready

__all__ = ["Dim", "Slopes", "backward", "fits", "forward", "probabilities", "ready"]

NO_COLUMNS = Columns()
LOG2E = math.log2(math.e)
WIDEST = 256  # of a head
PER_HEAD = ("softcap", "position_bias", "s_aux")  # what a family may add to plain attention


class Dim(NamedTuple):
    """Each key counts exp(log) times, for queries of other sources."""

    sources: Tensor  # [B, T]  −1: of none, and counts once
    logs: Tensor  # [B, T]


class Slopes(NamedTuple):
    """Gradients of queries, keys and values, where asked for, and a sum for each key."""

    query: Tensor | None  # [B, H, T, d]
    key: Tensor | None  # [B, G, S, d]
    value: Tensor | None  # [B, G, S, d]
    columns: Tensor | None  # [B, S]


class Tiles(NamedTuple):
    """How many rows and keys a program holds."""

    rows: int
    keys: int
    warps: int
    stages: int


# by kernel: for half precision up to 64 numbers a head, up to 128, and for everything else
TILES = {
    "forward": (Tiles(128, 64, 4, 3), Tiles(128, 64, 8, 3), Tiles(32, 32, 4, 1)),
    "probabilities": (Tiles(64, 64, 4, 1), Tiles(64, 64, 4, 1), Tiles(32, 32, 4, 1)),
    "keys": (Tiles(32, 128, 4, 3), Tiles(32, 128, 8, 2), Tiles(16, 32, 4, 1)),
    "queries": (Tiles(128, 32, 4, 3), Tiles(128, 32, 8, 3), Tiles(32, 16, 4, 1)),
}


def fits(call: AttentionCall) -> bool:
    """Whether a call is plain attention that the kernels can compute."""
    query, key, value = call.query, call.key, call.value
    return (
        query.dtype in (torch.float16, torch.bfloat16, torch.float32)
        and call.implementation == "sdpa"
        and not call.args
        and all(call.kwargs.get(name) is None for name in PER_HEAD)
        and query.shape[2] == key.shape[2]
        and query.shape[3] == key.shape[3] == value.shape[3] <= WIDEST
        and (call.mask is None or call.mask.dtype == torch.bool)
    )


class _Launch(NamedTuple):
    """What all kernels are given about a call."""

    tensors: tuple[Tensor, Tensor, Tensor]  # query, key, value
    mask: Tensor
    dim: tuple[Tensor, Tensor]
    sizes: tuple[int, int, int, int, int]  # heads, heads of a group, T, S, d
    unit: float  # what scores are multiplied by
    flags: dict[str, Any]

    @property
    def strides(self) -> list[int]:
        return [stride for x in self.tensors for stride in x.stride()[:3]]


def _launch(call: AttentionCall, dim: Dim | None = None, sources: Tensor | None = None) -> _Launch:
    query, key, value = (lined(x) for x in (call.query, call.key, call.value))
    batch, heads, targets, width = query.shape
    mask = query if call.mask is None else call.mask.expand(batch, heads, -1, -1)
    given = call.kwargs.get("scaling")
    sources = sources if dim is None else dim.sources
    numbers = query if sources is None else sources.int().contiguous()
    flags = {"CAUSAL": call.causal, "MASKED": call.mask is not None, "DIMMED": dim is not None}
    return _Launch(
        (query, key, value),
        mask,
        (numbers, numbers if dim is None else (dim.logs.float() * LOG2E).contiguous()),
        (heads, heads // key.shape[1], targets, key.shape[2], width),
        width**-0.5 if given is None else given,
        {**flags, "WIDTH": max(16, power_of_2(width))},
    )


def _tiles(kernel: str, call: AttentionCall) -> Tiles:
    narrow, usual, other = TILES[kernel]
    width = call.query.shape[-1]
    if call.query.dtype == torch.float32 or width > 128:
        return other
    return narrow if width <= 64 else usual


def forward(
    call: AttentionCall, dim: Dim | None = None, *, output: bool = False
) -> tuple[Tensor, Tensor | None]:
    """The log2 of each row's sum [B, H, T], and what is mixed [B, T, H, d]."""
    launch = _launch(call, dim)
    tiles = _tiles("forward", call)
    query = launch.tensors[0]
    batch, heads, targets, width = query.shape
    sums = query.new_empty(batch, heads, targets, dtype=torch.float32)
    mixed = query.new_empty(batch, targets, heads, width) if output else sums[..., None]
    with torch.cuda.device(query.device):
        kernels.forward[cdiv(targets, tiles.rows), batch * heads](
            *launch.tensors, mixed, sums, launch.mask, *launch.dim, *launch.sizes,
            launch.unit * LOG2E, *launch.strides, mixed.stride(0), mixed.stride(2),
            mixed.stride(1), *launch.mask.stride(), tiles.rows, tiles.keys, OUTPUT=output,
            num_warps=tiles.warps, num_stages=tiles.stages, **launch.flags,
        )  # fmt: skip
    return sums, mixed if output else None


def probabilities(call: AttentionCall, sums: Tensor, rows: Rows, seen: int) -> Tensor:
    """Those of some rows to the first keys: [B, H, n, seen] in float32."""
    launch = _launch(call)
    tiles = _tiles("probabilities", call)
    query, key, _ = launch.tensors
    batch, heads, targets, width = query.shape
    if isinstance(rows, slice):
        rows = call.places[None, rows]
    count = rows.shape[1]
    out = query.new_empty(batch, heads, count, seen, dtype=torch.float32)
    heads_of, group, _, sources, _ = launch.sizes
    with torch.cuda.device(query.device):
        kernels.probabilities[cdiv(seen, tiles.keys), cdiv(count, tiles.rows), batch * heads](
            query, key, sums, rows, out, launch.mask, heads_of, group, targets, sources, seen,
            count, width, launch.unit * LOG2E, *launch.strides[:6],
            rows.stride(0) if len(rows) > 1 else 0, *launch.mask.stride(), tiles.rows, tiles.keys,
            num_warps=tiles.warps, num_stages=tiles.stages, **launch.flags,
        )  # fmt: skip
    return out


def backward(
    call: AttentionCall,
    sums: Tensor,
    output: Tensor,
    slope: Tensor,
    *,
    response: bool = True,
    asked: Columns = NO_COLUMNS,
    dim: Dim | None = None,
) -> Slopes:
    """Gradients of attention, given those at its output [B, T, H, d].

    Without `response` those of the values alone.
    """
    launch = _launch(call, dim, asked.sources)
    query, key, value = launch.tensors
    slope = lined(slope.to(query.dtype)).transpose(1, 2)  # [B, H, T, d]
    own = (slope.float() * output.transpose(1, 2).float()).sum(-1)  # g_i · z_i: [B, H, T]
    given = (*launch.tensors, slope, sums, own)
    common = (
        launch.mask, *launch.dim, *launch.sizes, launch.unit * LOG2E, launch.unit, *launch.strides,
        *slope.stride()[:3], *launch.mask.stride(),
    )  # fmt: skip
    dk, dv, columns = _to_keys(call, launch, given, common, response, asked)
    return Slopes(
        _to_queries(call, launch, given, common) if response else None,
        _of_groups(dk, key) if response else None,
        _of_groups(dv, value),
        None if asked.of == "none" else columns.sum(1),
    )


def _to_keys(
    call: AttentionCall,
    launch: _Launch,
    given: tuple[Tensor, ...],
    common: tuple[object, ...],
    response: bool,
    asked: Columns,
) -> tuple[Tensor, Tensor, Tensor]:
    query = launch.tensors[0]
    batch, heads, _, width = query.shape
    sources = launch.tensors[1].shape[2]
    dv = query.new_empty(batch, heads, sources, width, dtype=torch.float32)
    dk = torch.empty_like(dv) if response else dv
    columns = dv[..., 0] if asked.of == "none" else torch.empty_like(dv[..., 0]).contiguous()
    tiles = _tiles("keys", call)
    with torch.cuda.device(query.device):
        kernels.back_to_keys[cdiv(sources, tiles.keys), batch * heads](
            *given, dk, dv, columns, *common, ROWS=tiles.rows, KEYS=tiles.keys, RESPONSE=response,
            COLUMN=asked.of, APART=asked.sources is not None, num_warps=tiles.warps,
            num_stages=tiles.stages, **launch.flags,
        )  # fmt: skip
    return dk, dv, columns


def _to_queries(
    call: AttentionCall,
    launch: _Launch,
    given: tuple[Tensor, ...],
    common: tuple[object, ...],
) -> Tensor:
    query = launch.tensors[0]
    batch, heads, targets, width = query.shape
    dq = query.new_empty(batch, heads, targets, width, dtype=torch.float32)
    tiles = _tiles("queries", call)
    with torch.cuda.device(query.device):
        kernels.back_to_queries[cdiv(targets, tiles.rows), batch * heads](
            *given, dq, *common, ROWS=tiles.rows, KEYS=tiles.keys, num_warps=tiles.warps,
            num_stages=tiles.stages, **launch.flags,
        )  # fmt: skip
    return dq


def _of_groups(slopes: Tensor, like: Tensor) -> Tensor:
    """Gradients for each head [B, H, S, d], added up by group: [B, G, S, d]."""
    batch, groups = like.shape[:2]
    return slopes.view(batch, groups, -1, *slopes.shape[2:]).sum(2)

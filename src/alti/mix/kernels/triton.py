"""Fused tiles on a GPU: tensor cores sum over the heads, everything else stays in registers.

One program of `_kernel` owns BI target rows and a slice of the width, two halves of BD, holds that
part of u in registers and goes through BJ source tokens: u minus the rows' attention [BI, H] times
the source's vectors [H, BD] in one tensor-core step a half, then the sum of its absolute values is
subtracted from that of u. Sources before the first and after the last tile with any attention
(causal, padding, windows) are skipped. `_turn`, `_largest`, `_vectors` lay out its operands;
`triton_rows` adds up the slices, computes the entries that the residual is part of, and divides the
rows.

Parts are read in the dtype that they have. Attention and vectors enter the tensor cores as float16,
scaled so that they cannot overflow, and so that little attention is not rounded to nothing; sums
are float32, and short: a difference is taken per slice, so that no two large sums are subtracted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from alti.mix.kernels.triton_rows import SHARP, finished
from alti.read.block import Block
from alti.read.triton_norms import cdiv, lined, power_of_2, ready

__all__ = ["by_rows", "contributions", "ready"]

BI, BD, STAGES = 64, 64, 3
BJ, SHORT, FEW = (32, 64, 128), 128, 1024  # for short texts, for few programs, and else
# Two warps: four would use Hopper's instruction for warp groups, which overwrites u and so needs a
# copy of it for every source. But that one reads its operands from shared memory, and more than 32
# heads fill the registers.
WARPS = {True: 4, False: 2}
TI, TJ = 16, 32  # tile of _turn
VS, VD = 64, 128  # tile of _vectors
LK, SHARES = 32, 512  # rows of a tile of _largest, and how many programs share the tiles
LARGEST: tl.constexpr = tl.constexpr(2.0**15)  # of a float16, nearly


@triton.jit
def _largest(v_ptr, w_ptr, out_ptr, B, H, S, K, D, d, v_b, v_h, v_s, v_d, w_k, w_o,
             VS: tl.constexpr, WIDTH: tl.constexpr, LK: tl.constexpr,
             VD: tl.constexpr):  # fmt: skip
    """value [B, H, S, d], weight [K, D] -> max|v|, max|W| of each program's tiles [2, programs]"""
    share, shares, k = tl.program_id(0), tl.num_programs(0), tl.arange(0, WIDTH)[None, :]
    tiles = tl.cdiv(S, VS)
    most = tl.zeros([VS, WIDTH], dtype=tl.float32)
    for tile in range(share, B * H * tiles, shares):
        b = (tile // tiles // H).to(tl.int64)
        h = tile // tiles % H
        s = tile % tiles * VS + tl.arange(0, VS)[:, None]
        v_at = v_ptr + b * v_b + h * v_h + s.to(tl.int64) * v_s + k * v_d
        v = tl.load(v_at, mask=(s < S) & (k < d), other=0.0)
        most = tl.maximum(most, tl.abs(v.to(tl.float32)))
    tl.store(out_ptr + share, tl.max(tl.max(most, 1), 0))
    tiles = tl.cdiv(D, VD)
    most = tl.zeros([LK, VD], dtype=tl.float32)
    for tile in range(share, tl.cdiv(K, LK) * tiles, shares):
        i = tile // tiles * LK + tl.arange(0, LK)[:, None]
        o = tile % tiles * VD + tl.arange(0, VD)[None, :]
        w_at = w_ptr + i.to(tl.int64) * w_k + o * w_o
        w = tl.load(w_at, mask=(i < K) & (o < D), other=0.0)
        most = tl.maximum(most, tl.abs(w.to(tl.float32)))
    tl.store(out_ptr + shares + share, tl.max(tl.max(most, 1), 0))


@triton.jit
def _scaled(v_ptr, sizes_ptr, unit_ptr, s, S, D, d, v_b, v_h, v_s, v_d, WIDTH: tl.constexpr,
            SHARES: tl.constexpr):  # fmt: skip
    """Values [.., WIDTH] of some tokens in float16, divided by a unit, which is stored.

    That is a power of two such that neither they nor f = v W overflow: |f| ≤ D · max|v| · max|W|.
    """
    share = tl.arange(0, SHARES)
    most, w = tl.max(tl.load(sizes_ptr + share), 0), tl.max(tl.load(sizes_ptr + SHARES + share), 0)
    most = most * tl.maximum(D * w, 1.0) / LARGEST
    unit = tl.exp2(tl.ceil(tl.log2(tl.maximum(most, 1e-30))))
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0) & (tl.program_id(2) == 0):
        tl.store(unit_ptr, unit)
    b, h = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    k = tl.arange(0, WIDTH)
    v_at = v_ptr + b * v_b + h * v_h + s[:, None] * v_s + k[None, :] * v_d
    v = tl.load(v_at, mask=(s < S)[:, None] & (k < d)[None, :], other=0.0)
    return (v.to(tl.float32) / unit).to(tl.float16)


@triton.jit
def _turn(a_ptr, out_ptr, occupied_ptr, H, T, S, a_b, a_h, a_t, a_s, PADDED: tl.constexpr,
          TI: tl.constexpr, TJ: tl.constexpr):  # fmt: skip
    """attn [B, H, T, S] -> −attn · SHARP [B, S, T, PADDED] in float16, and which tiles have any."""
    tile_j, tile_i, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    j = (tile_j * TJ + tl.arange(0, TJ))[:, None, None].to(tl.int64)
    i = (tile_i * TI + tl.arange(0, TI))[None, :, None].to(tl.int64)
    h = tl.arange(0, PADDED)[None, None, :].to(tl.int64)
    inside = (j < S) & (i < T)
    a_at = a_ptr + b * a_b + h * a_h + i * a_t + j * a_s
    a = tl.load(a_at, mask=inside & (h < H), other=0.0).to(tl.float32)
    turned = (a * -SHARP).to(tl.float16)
    tl.store(out_ptr + ((b * S + j) * T + i) * PADDED + h, turned, mask=inside)
    occupied = (tl.max(tl.max(tl.max(a, 2), 1), 0) > 0).to(tl.int32)
    tl.store(
        occupied_ptr + (b * tl.num_programs(0) + tile_j) * tl.num_programs(1) + tile_i, occupied
    )


@triton.jit
def _vectors(v_ptr, w_ptr, sizes_ptr, unit_ptr, out_ptr, B, S, D, d, v_b, v_h, v_s, v_d, w_h, w_d,
             w_o, VS: tl.constexpr, VD: tl.constexpr, WIDTH: tl.constexpr,
             SHARES: tl.constexpr):  # fmt: skip
    """value [B, H, S, d], weight [H, d, D] -> f [H, B, S, D] in float16, divided by a unit"""
    slices = tl.cdiv(D, VD)
    part, tile = tl.program_id(0) % slices, tl.program_id(0) // slices
    b, h = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    s, k, o = tile * VS + tl.arange(0, VS), tl.arange(0, WIDTH), part * VD + tl.arange(0, VD)
    s = s.to(tl.int64)
    v = _scaled(
        v_ptr, sizes_ptr, unit_ptr, s, S, D, d, v_b, v_h, v_s, v_d, WIDTH, SHARES
    )  # fmt: skip
    w_in = (k < d)[:, None] & (o < D)[None, :]
    w = tl.load(w_ptr + h * w_h + k[:, None] * w_d + o[None, :] * w_o, mask=w_in, other=0.0)
    f = tl.dot(v, w.to(tl.float16))
    tl.store(
        out_ptr + ((h * B + b) * S + s[:, None]) * D + o[None, :], f.to(tl.float16),
        mask=(s < S)[:, None] & (o < D)[None, :],
    )  # fmt: skip


@triton.jit
def _halved(v_ptr, sizes_ptr, unit_ptr, out_ptr, S, D, d, v_b, v_h, v_s, v_d, VS: tl.constexpr,
            WIDTH: tl.constexpr, SHARES: tl.constexpr):  # fmt: skip
    """value [B, H, S, d] -> [H, B, S, d] in float16, divided by a unit"""
    s, k = (tl.program_id(0) * VS + tl.arange(0, VS)).to(tl.int64), tl.arange(0, WIDTH)
    v = _scaled(
        v_ptr, sizes_ptr, unit_ptr, s, S, D, d, v_b, v_h, v_s, v_d, WIDTH, SHARES
    )  # fmt: skip
    text = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    out_at = out_ptr + (text * S + s[:, None]) * d + k[None, :]
    tl.store(out_at, v, mask=(s < S)[:, None] & (k < d)[None, :])


@triton.jit
def _sizes(x, y):
    """|x| + |y|, in a form whose absolute values cost nothing."""
    return tl.inline_asm_elementwise(
        "{ .reg .f32 a, b; abs.f32 a, $1; abs.f32 b, $2; add.f32 $0, a, b; }", "=f,f,f", [x, y],
        dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _distance(a, f_left, f_right, u_left, u_right):
    """Σ_d |u + Σ_h a f| over both halves of a slice: [BI]."""
    return tl.reduce(_sizes(tl.dot(a, f_left, u_left), tl.dot(a, f_right, u_right)), 1, _sizes)


@triton.jit
def _attended(occupied_ptr, b, tile_i, tile_j, T, S, BI: tl.constexpr, BJ: tl.constexpr,
              TI: tl.constexpr, TJ: tl.constexpr):  # fmt: skip
    """The first source of a tile that its rows attend to, and the one behind the last."""
    turned_j = (tile_j * (BJ // TJ) + tl.arange(0, BJ // TJ))[:, None]
    turned_i = (tile_i * (BI // TI) + tl.arange(0, BI // TI))[None, :]
    across, down = tl.cdiv(S, TJ), tl.cdiv(T, TI)
    occupied_at = occupied_ptr + (b * across + turned_j) * down + turned_i
    occupied = tl.load(occupied_at, mask=(turned_j < across) & (turned_i < down), other=0)
    held, tiles = tl.max(occupied, 1) > 0, tl.arange(0, BJ // TJ)
    j0 = tile_j * BJ
    first = j0 + tl.min(tl.where(held, tiles, BJ // TJ), 0) * TJ
    last = j0 + tl.max(tl.where(held, tiles + 1, 0), 0) * TJ
    return first, tl.minimum(last, tl.minimum(j0 + BJ, S))


@triton.jit
def _kernel(
    a_ptr, f_ptr, y_ptr, scale_ptr, unit_ptr, out_ptr, occupied_ptr, B, T, S, F, D, y_b, y_t, s_b,
    s_t, HEADS: tl.constexpr, PADDED: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr,
    BD: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """out [slices, B, S, T]: each program writes its own share, so their order does not matter."""
    slices = tl.cdiv(D, 2 * BD)
    part, tile_i = tl.program_id(0) % slices, tl.program_id(0) // slices
    tile_j, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    i, h, d = tile_i * BI + tl.arange(0, BI), tl.arange(0, PADDED), part * 2 * BD + tl.arange(0, BD)
    rows = i < T
    j0, j1 = tile_j * BJ, tl.minimum(tile_j * BJ + BJ, S)
    out_row = out_ptr + ((part * tl.num_programs(2) + b) * S + j0) * T + i
    first, last = _attended(occupied_ptr, b, tile_i, tile_j, T, S, BI, BJ, TI, TJ)
    j = j0 + tl.arange(0, BJ)
    outside = ((j < first) | (j >= last)) & (j < j1)
    none_at = out_row[None, :] + (j - j0)[:, None].to(tl.int64) * T
    tl.store(none_at, tl.zeros([BJ, BI], dtype=tl.float32), mask=outside[:, None] & rows[None, :])
    if first < last:
        left, right = (d < D)[None, :], (d + BD < D)[None, :]
        y_at = y_ptr + b * y_b + i[:, None].to(tl.int64) * y_t + d[None, :]
        scale = tl.load(scale_ptr + b * s_b + i * s_t, mask=rows, other=1.0)[:, None]
        scale *= tl.load(unit_ptr) / SHARP
        u_left = tl.load(y_at, mask=rows[:, None] & left, other=0.0) / scale
        u_right = tl.load(y_at + BD, mask=rows[:, None] & right, other=0.0) / scale
        out_row += (first - j0) * T
        a_row = a_ptr + ((b * S + first) * T + i[:, None]) * PADDED + h[None, :]
        f_row = f_ptr + ((h[:, None].to(tl.int64) * B + b) * F + first) * D + d[None, :]
        left, right = (h < HEADS)[:, None] & left, (h < HEADS)[:, None] & right
        # Σ|u| in the very order of Σ|u − t|, so that no attention gives exactly 0: a product with 0
        none = tl.load(a_row, mask=rows[:, None] & (T < 0), other=0.0)
        f_left = tl.load(f_row, mask=left, other=0.0)
        f_right = tl.load(f_row + BD, mask=right, other=0.0)
        whole = _distance(none, f_left, f_right, u_left, u_right)
        for _ in range(first, last):
            a = tl.load(a_row, mask=rows[:, None], other=0.0)
            f_left = tl.load(f_row, mask=left, other=0.0)
            f_right = tl.load(f_row + BD, mask=right, other=0.0)
            tl.store(out_row, whole - _distance(a, f_left, f_right, u_left, u_right), mask=rows)
            a_row += T * PADDED
            f_row += D
            out_row += T


def contributions(block: Block) -> Tensor:
    """ALTI's map of a block: `alti.contributions` with p = 1, its rows divided."""
    with torch.cuda.device(block.attn.device):
        return _contributions(block, *_operands(block.value, block.weight))


def by_rows(block: Block, spans: Iterable[slice]) -> Iterator[Tensor]:
    """Some rows at a time of the map of a block that computes attention again."""
    block = replace(block, own=block.own_columns())  # once for all spans
    with torch.cuda.device(block.attn.device):
        operands = _many_operands(block.value, block.weight)
    for rows in spans:
        part = block.span(rows)
        with torch.cuda.device(block.attn.device):
            yield _contributions(part, *operands)


def _contributions(block: Block, unit: Tensor, f: Tensor) -> Tensor:
    """The same with vectors [H, B, F, D] of all tokens, of which the block may see the first."""
    y = lined(block.output)
    r = lined(block.residual)
    return finished(block, f, y, r, unit, _fused(*_turned(block.attn), f, y, block.scale, unit))


def _operands(value: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """What vectors are divided by, and f [H, B, S, D]."""
    batch, heads, sources, width = value.shape
    out = weight.shape[-1]
    padded, sizes, unit = _measured(value, weight)
    f = torch.empty(heads, batch, sources, out, dtype=torch.float16, device=value.device)
    _vectors[cdiv(out, VD) * cdiv(sources, VS), batch, heads](
        value, weight, sizes, unit, f, batch, sources, out, width, *value.stride(),
        *weight.stride(), VS, VD, padded, SHARES, num_warps=4,
    )  # fmt: skip
    return unit, f


def _many_operands(value: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The same for many tokens, whose product is worth a library's."""
    batch, heads, sources, width = value.shape
    padded, sizes, unit = _measured(value, weight)
    halved = torch.empty(heads, batch, sources, width, dtype=torch.float16, device=value.device)
    _halved[cdiv(sources, VS), batch, heads](
        value, sizes, unit, halved, sources, weight.shape[-1], width, *value.stride(), VS, padded,
        SHARES, num_warps=4,
    )  # fmt: skip
    return unit, (halved @ weight.half()[:, None]).contiguous()


def _measured(value: Tensor, weight: Tensor) -> tuple[int, Tensor, Tensor]:
    """The width of a tile of values, the sizes that a unit is made of, and the place for that."""
    batch, heads, sources, width = value.shape
    flat = weight.flatten(0, 1)
    padded = max(16, power_of_2(width))
    sizes = torch.empty(2 * SHARES + 1, dtype=torch.float32, device=value.device)
    _largest[SHARES,](
        value, flat, sizes, batch, heads, sources, *flat.shape, width, *value.stride(),
        *flat.stride(), VS, padded, LK, VD, num_warps=4,
    )  # fmt: skip
    return padded, sizes, sizes[-1:]


def _turned(attn: Tensor) -> tuple[Tensor, Tensor]:
    """Attention as the core reads it, and which tiles of it hold any."""
    batch, heads, targets, sources = attn.shape
    tiles = cdiv(sources, TJ), cdiv(targets, TI)
    padded = max(16, power_of_2(heads))
    a = torch.empty(batch, sources, targets, padded, dtype=torch.float16, device=attn.device)
    occupied = torch.empty(batch, *tiles, dtype=torch.int32, device=attn.device)
    _turn[*tiles, batch](
        attn, a, occupied, heads, targets, sources, *attn.stride(), padded, TI, TJ, num_warps=4
    )
    return a, occupied


def _fused(
    a: Tensor, occupied: Tensor, f: Tensor, y: Tensor, scale: Tensor, unit: Tensor
) -> Tensor:
    """Attention alone, a part of the width each: [slices, B, S, T]."""
    batch, sources, targets, padded = a.shape
    slices = cdiv(f.shape[-1], 2 * BD)
    out = torch.empty(slices, batch, sources, targets, dtype=torch.float32, device=y.device)
    tiles = slices * cdiv(targets, BI)
    few = batch * tiles * cdiv(sources, BJ[-1]) < FEW
    bj = BJ[0] if sources <= SHORT else BJ[1] if few else BJ[2]
    _kernel[tiles, cdiv(sources, bj), batch](
        a, f, y, scale, unit, out, occupied, batch, targets, sources, *f.shape[2:],
        *y.stride()[:2], *scale.stride(), len(f), padded, BI, bj, BD, TI, TJ,
        num_warps=WARPS[padded > 32], num_stages=STAGES,
    )  # fmt: skip
    return out

"""Fused tiles on a GPU: tensor cores sum over the heads, everything else stays in registers.

One program owns BI target rows and a slice BD of the width, holds that part of u in registers and goes through BJ
source tokens: u minus the rows' attention [BI, H] times the source's vectors [H, BD] in one tensor-core step, then its
absolute values summed and taken from those of u. Tiles without any attention (causal, padding, windows) are skipped.

Attention and vectors enter the tensor cores as float16, scaled so that they cannot overflow; sums are float32, and
short: a difference is taken per slice, so that no two large sums are subtracted.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.linalg import vector_norm

from alti._errors import UsageError
from alti.blocks import Block

BI, BJ, BD, WARPS, STAGES = 64, 128, 128, 4, 4
TI, TJ = 16, 32  # tile of _turn
LARGEST = 2.0**15  # of a float16, nearly


@triton.jit
def _turn(a_ptr, out_ptr, some_ptr, H, T, S, a_b, a_h, a_t, a_s, PADDED: tl.constexpr, BI: tl.constexpr,
          BJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr):  # fmt: skip
    """attn [B, H, T, S] -> −attn [B, S, T, PADDED] in float16, and which tiles hold any attention."""
    tile_j, tile_i, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    j, i, h = tile_j * TJ + tl.arange(0, TJ), tile_i * TI + tl.arange(0, TI), tl.arange(0, PADDED)
    j, i, h = j[:, None, None].to(tl.int64), i[None, :, None].to(tl.int64), h[None, None, :].to(tl.int64)
    inside = (j < S) & (i < T)
    a = tl.load(a_ptr + b * a_b + h * a_h + i * a_t + j * a_s, mask=inside & (h < H), other=0.0)
    tl.store(out_ptr + ((b * S + j) * T + i) * PADDED + h, (-a).to(tl.float16), mask=inside)
    if tl.max(tl.max(tl.max(a, 2), 1), 0) > 0:
        tile = (b * tl.cdiv(S, BJ) + tile_j * TJ // BJ) * tl.cdiv(T, BI) + tile_i * TI // BI
        tl.store(some_ptr + tile, 1)


@triton.jit
def _sizes(x, y):
    """|x| + |y|, in a form whose absolute values cost nothing."""
    return tl.inline_asm_elementwise(
        "{ .reg .f32 a, b; abs.f32 a, $1; abs.f32 b, $2; add.f32 $0, a, b; }", "=f,f,f", [x, y],
        dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _kernel(
    a_ptr, f_ptr, y_ptr, scale_ptr, out_ptr, some_ptr, T, S, D, f_b, f_h, f_s, y_b, y_t,
    HEADS: tl.constexpr, PADDED: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """out [slices, B, S, T]: each program writes its slice's share, so nothing depends on the order of programs."""
    slices = tl.cdiv(D, BD)
    part, tile_i = tl.program_id(0) % slices, tl.program_id(0) // slices
    tile_j, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    i, h, d = tile_i * BI + tl.arange(0, BI), tl.arange(0, PADDED), part * BD + tl.arange(0, BD)
    rows, wide = i < T, d < D
    j0, j1 = tile_j * BJ, tl.minimum(tile_j * BJ + BJ, S)
    out_row = out_ptr + ((part * tl.num_programs(2) + b) * S + j0) * T + i
    if tl.load(some_ptr + (b * tl.num_programs(1) + tile_j) * tl.cdiv(T, BI) + tile_i) > 0:
        y_at = y_ptr + b * y_b + i[:, None].to(tl.int64) * y_t + d[None, :]
        y = tl.load(y_at, mask=rows[:, None] & wide[None, :], other=0.0)
        u = y / tl.load(scale_ptr + b * T + i, mask=rows, other=1.0)[:, None]
        a_row = a_ptr + ((b * S + j0) * T + i[:, None]) * PADDED + h[None, :]
        f_row = f_ptr + b * f_b + j0.to(tl.int64) * f_s + h[:, None].to(tl.int64) * f_h + d[None, :]
        f_in = (h < HEADS)[:, None] & wide[None, :]
        # Σ|u| in the very order of Σ|u − t|, so that no attention gives 0 exactly: a product with what is not loaded
        none = tl.load(a_row, mask=rows[:, None] & (T < 0), other=0.0)
        whole = tl.reduce(tl.dot(none, tl.load(f_row, mask=f_in, other=0.0), u), 1, _sizes)
        for _ in range(j0, j1):
            a = tl.load(a_row, mask=rows[:, None], other=0.0)
            f = tl.load(f_row, mask=f_in, other=0.0)
            tl.store(out_row, whole - tl.reduce(tl.dot(a, f, u), 1, _sizes), mask=rows)
            a_row += T * PADDED
            f_row += f_s
            out_row += T
    else:
        for _ in range(j0, j1):
            tl.store(out_row, tl.zeros([BI], dtype=tl.float32), mask=rows)
            out_row += T


@triton.jit
def _own(
    attn_ptr, f_ptr, y_ptr, r_ptr, scale_ptr, own_ptr, out_ptr, T, S, D, a_b, a_h, a_t, a_s, f_b, f_h, f_s, y_b, y_t,
    r_b, r_t, o_b, o_t, o_s, HEADS: tl.constexpr, OWN: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The entry of out [B, T, S] that a row's residual belongs to (behind the others, for cross-attention)."""
    i, b, d = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.arange(0, WIDTH)
    wide = d < D
    scale = tl.load(scale_ptr + b * T + i)
    u = tl.load(y_ptr + b * y_b + i * y_t + d, mask=wide, other=0.0) / scale
    t = tl.load(r_ptr + b * r_b + i * r_t + d, mask=wide, other=0.0) / scale
    j = i
    if OWN == "given":
        j = tl.load(own_ptr + b * T + i)
    if OWN == "behind":
        j = i * 0 + S
    else:
        for head in range(HEADS):
            h = i * 0 + head  # int64
            a = tl.load(attn_ptr + b * a_b + h * a_h + i * a_t + j * a_s)
            t += a * tl.load(f_ptr + b * f_b + h * f_h + j * f_s + d, mask=wide, other=0.0).to(tl.float32)
    tl.store(out_ptr + b * o_b + i * o_t + j * o_s, tl.sum(tl.abs(u) - tl.abs(u - t), 0))


def proximity(block: Block, p: int) -> Tensor:
    """‖y_i‖₁ − ‖y_i − T_ij‖₁, divided by scale_i and one number more."""
    if block.attn.dtype != torch.float32:
        raise UsageError(f"the triton kernel computes in float32, not {block.attn.dtype}: use kernel='blocked'")
    batch, heads, sources, width = block.value.shape
    # |f| ≤ width · max|v| · max|W|: in these units neither it nor v can overflow a float16
    large = width * vector_norm(block.weight, torch.inf)
    unit = (vector_norm(block.value, torch.inf) * large.clamp_min(1) / LARGEST).clamp_min(
        torch.finfo(torch.float32).tiny
    )
    value = torch.empty(heads, batch, sources, width, dtype=torch.float16, device=block.value.device)
    torch.div(block.value.transpose(0, 1), unit, out=value)
    f = (value.flatten(1, 2) @ block.weight.half()).unflatten(1, (batch, sources))  # [H, B, S, D]
    scale = (block.scale * unit).contiguous()
    with torch.cuda.device(scale.device):
        return _with_own(block, f, scale, _fused(block.attn, f, block.output, scale))


def _fused(attn: Tensor, f: Tensor, y: Tensor, scale: Tensor) -> Tensor:
    """Attention alone: [B, T, S]."""
    batch, heads, targets, sources = attn.shape
    y = y if y.stride(-1) == 1 else y.contiguous()
    padded, slices = max(16, triton.next_power_of_2(heads)), triton.cdiv(f.shape[-1], BD)
    tiles = triton.cdiv(sources, BJ), triton.cdiv(targets, BI)
    a = torch.empty(batch, sources, targets, padded, dtype=torch.float16, device=y.device)
    some = torch.zeros(batch, *tiles, dtype=torch.int32, device=y.device)
    out = torch.empty(slices, batch, sources, targets, dtype=torch.float32, device=y.device)
    _turn[triton.cdiv(sources, TJ), triton.cdiv(targets, TI), batch](
        attn, a, some, heads, targets, sources, *attn.stride(), padded, BI, BJ, TI, TJ, num_warps=4
    )
    _kernel[slices * tiles[1], tiles[0], batch](
        a, f, y, scale, out, some, targets, sources, f.shape[-1], f.stride(1), f.stride(0), f.stride(2),
        y.stride(0), y.stride(1), heads, padded, BI, BJ, BD, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out.sum(0).transpose(1, 2)


def _with_own(block: Block, f: Tensor, scale: Tensor, found: Tensor) -> Tensor:
    """Completed by the entries that the residual is part of."""
    batch, heads, targets, sources = block.attn.shape
    y, r = (x if x.stride(-1) == 1 else x.contiguous() for x in (block.output, block.residual))
    if block.cross:
        found = torch.nn.functional.pad(found, (0, 1))
    own = "behind" if block.cross else "same" if block.own is None else "given"
    columns = scale if block.own is None else block.own.contiguous()
    _own[targets, batch](
        block.attn, f, y, r, scale, columns, found, targets, sources, f.shape[-1], *block.attn.stride(),
        f.stride(1), f.stride(0), f.stride(2), *y.stride()[:2], *r.stride()[:2], *found.stride(),
        heads, own, triton.next_power_of_2(f.shape[-1]), num_warps=4,
    )  # fmt: skip
    return found

"""Fused tiles on a GPU: tensor cores sum over the heads, everything else stays in registers.

One program owns BI target rows and a slice BD of the width, holds that part of u in registers and goes through BJ
source tokens: u minus the rows' attention [BI, H] times the source's vectors [H, BD] in one tensor-core step, then
|u| − |u − t|, summed over the slice. Tiles without any attention (causal, padding, sliding windows) are not computed.

Attention and vectors enter the tensor cores as float16, scaled so that they cannot overflow; sums are float32.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from alti._errors import UsageError
from alti.blocks import Block
from alti.kernels.shared import closeness, with_residual

BI, BJ, BD, WARPS, STAGES = 64, 128, 128, 4, 4
TI, TJ = 16, 32  # tile of _turn


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
def _nearer(u, d):
    """|u| − |d|, in a form whose absolute values cost nothing and keep no second copy of u."""
    return tl.inline_asm_elementwise(
        "{ .reg .f32 a, b; abs.f32 a, $1; abs.f32 b, $2; sub.f32 $0, a, b; }", "=f,f,f", [u, d],
        dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _kernel(
    a_ptr, f_ptr, u_ptr, out_ptr, some_ptr, T, S, D, f_b, f_h, f_s,
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
        u = tl.load(u_ptr + (b * T + i[:, None]) * D + d[None, :], mask=rows[:, None] & wide[None, :], other=0.0)
        a_row = a_ptr + ((b * S + j0) * T + i[:, None]) * PADDED + h[None, :]
        f_row = f_ptr + b * f_b + j0.to(tl.int64) * f_s + h[:, None].to(tl.int64) * f_h + d[None, :]
        f_in = (h < HEADS)[:, None] & wide[None, :]
        for _ in range(j0, j1):
            a = tl.load(a_row, mask=rows[:, None], other=0.0)
            f = tl.load(f_row, mask=f_in, other=0.0)
            tl.store(out_row, tl.sum(_nearer(u, tl.dot(a, f, u)), axis=1), mask=rows)
            a_row += T * PADDED
            f_row += f_s
            out_row += T
    else:
        for _ in range(j0, j1):
            tl.store(out_row, tl.zeros([BI], dtype=tl.float32), mask=rows)
            out_row += T


def proximity(block: Block, p: int) -> Tensor:
    """‖y_i‖₁ − ‖y_i − T_ij‖₁, divided by scale_i."""
    if block.attn.dtype != torch.float32:
        raise UsageError(f"the triton kernel computes in float32, not {block.attn.dtype}: use kernel='blocked'")
    # |f| is at most this, so float16 cannot overflow
    largest = block.value.norm(dim=-1).amax() * block.weight.norm(dim=1).amax()
    unit = largest.clamp_min(torch.finfo(torch.float32).tiny)
    block = replace(block, value=block.value / unit, scale=block.scale * unit)  # T_ij is the same
    f = block.value.half() @ block.weight.half()  # [B, H, S, D]
    u = block.output / block.scale[..., None]
    return with_residual(block, _fused(block.attn, f, u).contiguous(), closeness(u, p))


def _fused(attn: Tensor, f: Tensor, u: Tensor) -> Tensor:
    batch, heads, targets, sources = attn.shape
    padded, slices = max(16, triton.next_power_of_2(heads)), triton.cdiv(f.shape[-1], BD)
    tiles = triton.cdiv(sources, BJ), triton.cdiv(targets, BI)
    a = torch.empty(batch, sources, targets, padded, dtype=torch.float16, device=u.device)
    some = torch.zeros(batch, *tiles, dtype=torch.int32, device=u.device)
    out = torch.empty(slices, batch, sources, targets, dtype=torch.float32, device=u.device)
    _turn[triton.cdiv(sources, TJ), triton.cdiv(targets, TI), batch](
        attn, a, some, heads, targets, sources, *attn.stride(), padded, BI, BJ, TI, TJ, num_warps=4
    )
    _kernel[slices * tiles[1], tiles[0], batch](
        a, f, u.contiguous(), out, some, targets, sources, f.shape[-1], *f.stride()[:3],
        heads, padded, BI, BJ, BD, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out.sum(0).transpose(1, 2)

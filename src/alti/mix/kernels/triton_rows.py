"""The last steps of the `triton` kernel: from shares of the width to a map whose rows sum to 1.

Attention counts SHARP times here and in vectors' units, as in the core.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from alti.read.block import Block
from alti.read.triton_norms import cdiv

FI, FJ, FD = 16, 64, 128  # tiles of _finish
CHUNK = 1024  # sources of a program of _finish, where there are more
SHARP: tl.constexpr = tl.constexpr(2.0**12)  # attention times this is a float16 too


@triton.jit
def _residual_entry(
    attn_ptr, f_ptr, y_ptr, r_ptr, i, column, scale, rows, first, last, B, F, D, a_h, a_t, a_s, y_t,
    r_t, HEADS: tl.constexpr, OWN: tl.constexpr, FI: tl.constexpr, FD: tl.constexpr,
):  # fmt: skip
    """The entry that each row's residual belongs to, of a part of the width of one text: [FI]."""
    mine = tl.zeros([FI], dtype=tl.float32)
    for d0 in range(first, last, FD):
        d = d0 + tl.arange(0, FD)
        inside = rows[:, None] & (d < D)[None, :]
        y_at = y_ptr + i[:, None] * y_t + d[None, :]
        r_at = r_ptr + i[:, None] * r_t + d[None, :]
        u = tl.load(y_at, mask=inside, other=0.0) / scale[:, None]
        t = tl.load(r_at, mask=inside, other=0.0) / scale[:, None]
        if OWN != "behind":
            for head in tl.static_range(HEADS):
                h = i * 0 + head  # int64
                a = tl.load(attn_ptr + h * a_h + i * a_t + column * a_s, mask=rows, other=0.0)
                f_at = f_ptr + (h * B * F + column)[:, None] * D + d[None, :]
                f = tl.load(f_at, mask=inside, other=0.0).to(tl.float32)
                t += (a.to(tl.float32) * SHARP)[:, None] * f
        mine += tl.sum(tl.abs(u) - tl.abs(u - t), 1)
    return mine


@triton.jit
def _own(
    attn_ptr, f_ptr, y_ptr, r_ptr, scale_ptr, unit_ptr, own_ptr, out_ptr, T, F, D, a_b, a_h, a_t,
    a_s, y_b, y_t, r_b, r_t, s_b, s_t, o_b, o_t, HEADS: tl.constexpr, OWN: tl.constexpr,
    FI: tl.constexpr, FD: tl.constexpr,
):  # fmt: skip
    """`_residual_entry` of each part of the width: out [parts, B, T]."""
    part, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    i = (tl.program_id(0) * FI + tl.arange(0, FI)).to(tl.int64)
    rows = i < T
    scale = tl.load(scale_ptr + b * s_b + i * s_t, mask=rows, other=1.0) * tl.load(unit_ptr) / SHARP
    column = i
    if OWN == "given":
        column = tl.load(own_ptr + b * o_b + i * o_t, mask=rows, other=0)
    mine = _residual_entry(
        attn_ptr + b * a_b, f_ptr + b * F * D, y_ptr + b * y_b, r_ptr + b * r_b, i, column, scale,
        rows, part * FD, part * FD + FD, tl.num_programs(2), F, D, a_h, a_t, a_s, y_t, r_t, HEADS,
        OWN, FI, FD,
    )  # fmt: skip
    tl.store(out_ptr + (part * tl.num_programs(2) + b) * T + i, mine, mask=rows)


@triton.jit
def _divide(out_ptr, column, total, rows, real, T, first, last, FJ: tl.constexpr):
    """Divide some columns of rows by the rows' sums; padding becomes 0."""
    for j0 in range(first, last, FJ):
        j = j0 + tl.arange(0, FJ).to(tl.int64)
        inside = (j < last)[:, None] & rows[None, :]
        at = out_ptr[None, :] + j[:, None] * T
        c = tl.load(at, mask=inside, other=0.0) / tl.maximum(total, 1.2e-38)[None, :]
        # a row without information says that the token stayed what it was
        c = tl.where((total == 0)[None, :] & (j[:, None] == column[None, :]), 1.0, c)
        tl.store(at, tl.where(real[None, :], c, 0.0), mask=inside)


@triton.jit
def _gather(part_ptr, out_ptr, column, mine, i, rows, b, B, T, S, columns, first, last,
            SLICES: tl.constexpr, FI: tl.constexpr, FJ: tl.constexpr):  # fmt: skip
    """Add up the slices of some columns, put the own entries in, and return the sums: [FI]."""
    total = tl.zeros([FI], dtype=tl.float32)
    for j0 in range(first, last, FJ):
        j = j0 + tl.arange(0, FJ).to(tl.int64)
        inside = (j < last)[:, None] & rows[None, :]
        c = tl.zeros([FJ, FI], dtype=tl.float32)
        for part in tl.static_range(SLICES):
            part_at = part_ptr + ((part * B + b) * S + j[:, None]) * T + i[None, :]
            c += tl.load(part_at, mask=inside, other=0.0)
        own = (j[:, None] == column[None, :]) & inside
        c = tl.where(own, mine[None, :], tl.where(c < 0, 0.0, c))
        total += tl.sum(c, 0)
        tl.store(out_ptr + (b * columns + j[:, None]) * T + i[None, :], c, mask=inside)
    return total


@triton.jit
def _finish(
    part_ptr, attn_ptr, f_ptr, y_ptr, r_ptr, scale_ptr, unit_ptr, own_ptr, mask_ptr, mine_ptr,
    total_ptr, out_ptr, B, T, S, F, D, parts, chunk, a_b, a_h, a_t, a_s, y_b, y_t, r_b, r_t, s_b,
    s_t, o_b, o_t, m_b, m_t, HEADS: tl.constexpr, SLICES: tl.constexpr, OWN: tl.constexpr,
    MASKED: tl.constexpr, LONG: tl.constexpr, FI: tl.constexpr, FJ: tl.constexpr, FD: tl.constexpr,
):  # fmt: skip
    """part [slices, B, S, T] -> out [B, S, T], or S + 1 with the residual last: rows i sum to 1.

    With LONG a program does a chunk of the columns, `_own` has made the own entries, and the sums
    [chunks, B, T] are left to `_share`.
    """
    b, i = tl.program_id(1).to(tl.int64), (tl.program_id(0) * FI + tl.arange(0, FI)).to(tl.int64)
    rows = i < T
    scale = tl.load(scale_ptr + b * s_b + i * s_t, mask=rows, other=1.0) * tl.load(unit_ptr) / SHARP
    column = i
    if OWN == "given":
        column = tl.load(own_ptr + b * o_b + i * o_t, mask=rows, other=0)
    if LONG:
        mine = tl.zeros([FI], dtype=tl.float32)
        for part in range(parts):
            mine += tl.load(mine_ptr + (part * B + b) * T + i, mask=rows, other=0.0)
    else:
        mine = _residual_entry(
            attn_ptr + b * a_b, f_ptr + b * F * D, y_ptr + b * y_b, r_ptr + b * r_b, i, column,
            scale, rows, 0, D, B, F, D, a_h, a_t, a_s, y_t, r_t, HEADS, OWN, FI, FD,
        )  # fmt: skip
    mine = tl.where(mine < 0, 0.0, mine)
    columns = S
    if OWN == "behind":
        columns = S + 1
        column = i * 0 + S
    first = tl.program_id(2) * chunk
    total = _gather(part_ptr, out_ptr, column, mine, i, rows, b, B, T, S, columns, first,
                    tl.minimum(first + chunk, S), SLICES, FI, FJ)  # fmt: skip
    if OWN == "behind":  # once, not for every chunk
        total += tl.where(first == 0, mine, 0.0)
        tl.store(out_ptr + (b * columns + S) * T + i, mine, mask=rows & (first == 0))
    if LONG:
        tl.store(total_ptr + (tl.program_id(2) * B + b) * T + i, total, mask=rows)
    else:
        tl.debug_barrier()  # what one thread wrote another one reads
        real = rows
        if MASKED:
            real = tl.load(mask_ptr + b * m_b + i * m_t, mask=rows, other=0) != 0
        _divide(out_ptr + b * columns * T + i, column, total, rows, real, T, 0, columns, FJ)


@triton.jit
def _share(
    total_ptr, own_ptr, mask_ptr, out_ptr, B, T, columns, chunk, chunks, o_b, o_t, m_b, m_t,
    OWN: tl.constexpr, MASKED: tl.constexpr, FI: tl.constexpr, FJ: tl.constexpr,
):  # fmt: skip
    """Divide a chunk of the columns by the sums of the rows."""
    b, i = tl.program_id(1).to(tl.int64), (tl.program_id(0) * FI + tl.arange(0, FI)).to(tl.int64)
    rows = i < T
    total = tl.zeros([FI], dtype=tl.float32)
    for part in range(chunks):
        total += tl.load(total_ptr + (part * B + b) * T + i, mask=rows, other=0.0)
    column = i
    if OWN == "given":
        column = tl.load(own_ptr + b * o_b + i * o_t, mask=rows, other=0)
    if OWN == "behind":
        column = i * 0 + columns - 1
    real = rows
    if MASKED:
        real = tl.load(mask_ptr + b * m_b + i * m_t, mask=rows, other=0) != 0
    first = tl.program_id(2) * chunk
    _divide(out_ptr + b * columns * T + i, column, total, rows, real, T, first,
            tl.minimum(first + chunk, columns), FJ)  # fmt: skip


def finished(block: Block, f: Tensor, y: Tensor, r: Tensor, unit: Tensor, parts: Tensor) -> Tensor:
    """The map [B, T, S], with one column more for cross-attention."""
    slices, batch, sources, targets = parts.shape
    count = sources + block.cross
    out = torch.empty(batch, count, targets, dtype=torch.float32, device=y.device)
    own = "behind" if block.cross else "same" if block.own is None else "given"
    columns = block.scale if block.own is None else block.own
    mask = block.scale if block.mask is None else block.mask
    long = count > CHUNK
    chunks = cdiv(count, CHUNK)
    widths = cdiv(f.shape[-1], FD)
    mine = total = out
    if long:
        mine = torch.empty(widths, batch, targets, dtype=torch.float32, device=y.device)
        total = torch.empty(chunks, batch, targets, dtype=torch.float32, device=y.device)
        _own[cdiv(targets, FI), widths, batch](
            block.attn, f, y, r, block.scale, unit, columns, mine, targets, f.shape[2],
            f.shape[-1], *block.attn.stride(), *y.stride()[:2], *r.stride()[:2],
            *block.scale.stride(), *columns.stride(), len(f), own, FI, FD, num_warps=4,
        )  # fmt: skip
    _finish[cdiv(targets, FI), batch, chunks if long else 1](
        parts, block.attn, f, y, r, block.scale, unit, columns, mask, mine, total, out, batch,
        targets, sources, f.shape[2], f.shape[-1], widths, CHUNK if long else count,
        *block.attn.stride(), *y.stride()[:2], *r.stride()[:2], *block.scale.stride(),
        *columns.stride(), *mask.stride(), len(f), slices, own, block.mask is not None, long, FI,
        FJ, FD, num_warps=4,
    )  # fmt: skip
    if long:
        _share[cdiv(targets, FI), batch, chunks](
            total, columns, mask, out, batch, targets, count, CHUNK, chunks, *columns.stride(),
            *mask.stride(), own, block.mask is not None, FI, FJ, num_warps=4,
        )  # fmt: skip
    return out.transpose(1, 2)

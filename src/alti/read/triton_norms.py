"""What `affine.carried` and `verdicts.errors` compute, in one and in two launches on a GPU.

Small batches wait for launches. Everything is float32 inside, whatever the model's dtype: parts are
read as they are.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from alti.read.block import Block

ROWS, CHUNK = 4, 512  # tile of _carry
SOURCES, WIDE = 128, 64  # tiles of _mix
LONG = 512  # tile of _compare
PARTS = 1 << 25  # numbers between the two, at once


@triton.jit
def _carry_weight(w_ptr, gain_ptr, out_ptr, tile, K, D, w_k, w_o, GAIN: tl.constexpr,
                  ROWS: tl.constexpr, CHUNK: tl.constexpr):  # fmt: skip
    """Rows of W, their means subtracted, times the gain."""
    k = tile * ROWS + tl.arange(0, ROWS)
    rows = (k < K)[:, None]
    w_row = w_ptr + k[:, None].to(tl.int64) * w_k
    total = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, D, CHUNK):
        o = start + tl.arange(0, CHUNK)[None, :]
        loaded = tl.load(w_row + o.to(tl.int64) * w_o, mask=rows & (o < D), other=0.0)
        total += tl.sum(loaded.to(tl.float32), 1)
    mean = (total / D)[:, None]
    for start in range(0, D, CHUNK):
        o = start + tl.arange(0, CHUNK)[None, :]
        loaded = tl.load(w_row + o.to(tl.int64) * w_o, mask=rows & (o < D), other=0.0)
        w = loaded.to(tl.float32) - mean
        if GAIN:
            w *= tl.load(gain_ptr + o, mask=o < D, other=0.0).to(tl.float32)
        tl.store(out_ptr + k[:, None].to(tl.int64) * D + o, w, mask=rows & (o < D))


@triton.jit
def _row(ptr, d, inside):
    return tl.load(ptr + d, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _means(x_row, r_row, b_row, o_row, rows, D, ADDED: tl.constexpr, ROWS: tl.constexpr,
           CHUNK: tl.constexpr):  # fmt: skip
    """The means of what a norm read, of the residual and of the bias, each [ROWS, 1]."""
    x_sum = tl.zeros([ROWS], dtype=tl.float32)
    r_sum, b_sum = x_sum, x_sum
    for start in range(0, D, CHUNK):
        d = start + tl.arange(0, CHUNK)[None, :]
        inside = rows & (d < D)
        x, bias = _row(x_row, d, inside), _row(b_row, d, inside)
        if ADDED:
            bias += x - _row(o_row, d, inside)
        x_sum += tl.sum(x, 1)
        b_sum += tl.sum(bias, 1)
        r_sum += tl.sum(_row(r_row, d, inside), 1)
    return (x_sum / D)[:, None], (r_sum / D)[:, None], (b_sum / D)[:, None]


@triton.jit
def _carry(
    w_ptr, s_ptr, r_ptr, b_ptr, o_ptr, x_ptr, y_ptr, gain_ptr, shift_ptr, w_out, s_out, r_out,
    b_out, y_out, N, K, D, eps, w_k, w_o, s_n, b_n, GAIN: tl.constexpr, SHIFT: tl.constexpr,
    ADDED: tl.constexpr, WIDEN: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """weight [K, D], and scale, residual, bias and output of N positions; a program does ROWS."""
    tiles = tl.cdiv(K, ROWS)
    if tl.program_id(0) < tiles:
        _carry_weight(w_ptr, gain_ptr, w_out, tl.program_id(0), K, D, w_k, w_o, GAIN, ROWS, CHUNK)
    else:
        i = ((tl.program_id(0) - tiles) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        rows, at = (i < N)[:, None], i[:, None] * D
        x_row, r_row, b_row, o_row = x_ptr + at, r_ptr + at, b_ptr + i[:, None] * b_n, o_ptr + at
        x_mean, r_mean, b_mean = _means(x_row, r_row, b_row, o_row, rows, D, ADDED, ROWS, CHUNK)
        square = tl.zeros([ROWS], dtype=tl.float32)
        for start in range(0, D, CHUNK):
            d = start + tl.arange(0, CHUNK)[None, :]
            x = tl.where(rows & (d < D), _row(x_row, d, rows & (d < D)) - x_mean, 0.0)
            square += tl.sum(x * x, 1)
        scale = tl.div_rn(1.0, tl.sqrt_rn(square / D + eps))[:, None]
        before = tl.load(s_ptr + i[:, None] * s_n, mask=rows, other=1.0)
        tl.store(s_out + i[:, None], before * scale, mask=rows)
        for start in range(0, D, CHUNK):
            d = start + tl.arange(0, CHUNK)[None, :]
            inside = rows & (d < D)
            bias = _row(b_row, d, inside)
            if ADDED:
                bias += _row(x_row, d, inside) - _row(o_row, d, inside)
            residual, bias = (_row(r_row, d, inside) - r_mean) * scale, (bias - b_mean) * scale
            if GAIN:
                gain = tl.load(gain_ptr + d, mask=d < D, other=0.0).to(tl.float32)
                residual *= gain
                bias *= gain
            if SHIFT:
                bias += tl.load(shift_ptr + d, mask=d < D, other=0.0).to(tl.float32)
            tl.store(r_out + at + d, residual, mask=inside)
            tl.store(b_out + at + d, bias, mask=inside)
            if WIDEN:
                tl.store(y_out + at + d, _row(y_ptr + at, d, inside), mask=inside)


@triton.jit
def _mix(
    a_ptr, v_ptr, w_ptr, at_ptr, out_ptr, S, D, d, n, a_b, a_h, a_t, a_s, v_b, v_h, v_s, v_d, w_h,
    w_d, w_o, at_b, at_n, CHOSEN: tl.constexpr, WIDTH: tl.constexpr, SOURCES: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Σ_s attn value of one head at one position, times its weight: out [B · n, H, D].

    With CHOSEN attention is that of these positions alone.
    """
    row, h = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    b, k = row // n, tl.arange(0, WIDTH)
    i = row % n
    if not CHOSEN:
        i = tl.load(at_ptr + b * at_b + i * at_n)
    mixed = tl.zeros([WIDTH], dtype=tl.float32)
    for start in range(0, S, SOURCES):
        s = start + tl.arange(0, SOURCES).to(tl.int64)
        a = tl.load(a_ptr + b * a_b + h * a_h + i * a_t + s * a_s, mask=s < S, other=0.0)
        v_at = v_ptr + b * v_b + h * v_h + s[:, None] * v_s + k[None, :] * v_d
        v = tl.load(v_at, mask=(s < S)[:, None] & (k < d)[None, :], other=0.0)
        mixed += tl.sum(a.to(tl.float32)[:, None] * v.to(tl.float32), 0)
    for start in range(0, D, WIDE):
        o = start + tl.arange(0, WIDE)
        w_at = w_ptr + h * w_h + k[:, None].to(tl.int64) * w_d + o[None, :] * w_o
        w = tl.load(w_at, mask=(k < d)[:, None] & (o < D)[None, :], other=0.0).to(tl.float32)
        product = tl.sum(mixed[:, None] * w, 0)
        tl.store(out_ptr + (row * tl.num_programs(1) + h) * D + o, product, mask=o < D)


@triton.jit
def _size(x):
    """|x|, nan as inf: a maximum would leave it out."""
    return tl.where(x == x, tl.abs(x), float("inf"))


@triton.jit
def _compare(
    part_ptr, s_ptr, r_ptr, b_ptr, y_ptr, own_ptr, mask_ptr, at_ptr, out_ptr, D, H, n, rounding,
    s_b, s_t, r_b, r_t, b_b, b_t, y_b, y_t, own_b, own_t, m_b, m_t, at_b, at_n,
    BRANCH: tl.constexpr, MASKED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """The relative error at one position, of the sum and with BRANCH of the branch: out [B · n]"""
    row = tl.program_id(0).to(tl.int64)
    b = row // n
    i = tl.load(at_ptr + b * at_b + (row % n) * at_n)
    scale = tl.load(s_ptr + b * s_b + i * s_t)
    off, size, own_off, own_size = 0.0, 0.0, 0.0, 0.0
    for start in range(0, D, LONG):
        d = start + tl.arange(0, LONG)
        inside = d < D
        total = tl.zeros([LONG], dtype=tl.float32)
        for h in range(H):
            total += tl.load(part_ptr + (row * H + h) * D + d, mask=inside, other=0.0)
        total = total * scale + _row(b_ptr + b * b_b + i * b_t, d, inside)
        if BRANCH:
            own = _row(own_ptr + b * own_b + i * own_t, d, inside)
            own_off = tl.maximum(own_off, tl.max(_size(total - own), 0))
            own_size = tl.maximum(own_size, tl.max(_size(own), 0))
        total += _row(r_ptr + b * r_b + i * r_t, d, inside)
        y = _row(y_ptr + b * y_b + i * y_t, d, inside)
        off = tl.maximum(off, tl.max(_size(total - y), 0))
        size = tl.maximum(size, tl.max(_size(y), 0))
    if BRANCH:
        size = tl.minimum(size, tl.maximum(own_size, rounding * size))
    error = tl.div_rn(off, tl.maximum(size, 1.2e-38))
    if BRANCH:
        own_error = tl.div_rn(own_off, tl.maximum(own_size, 1.2e-38))
        error = tl.maximum(_size(error), _size(own_error))
    if MASKED:
        error = tl.where(tl.load(mask_ptr + b * m_b + i * m_t) != 0, error, 0.0)
    tl.store(out_ptr + row, error)


def carried(block: Block, module: nn.LayerNorm, x: Tensor, y: Tensor, *, added: bool) -> Block:
    """`affine.carried` for a LayerNorm that mapped x to y; `added`: x is more than block.output."""
    shape = block.output.shape
    width = shape[-1]
    x, y, residual, output = (_packed(t, shape) for t in (x, y, block.residual, block.output))
    one_bias = block.bias.stride()[:2] == (0, 0)  # the same at every position
    bias = block.bias if one_bias else block.bias.contiguous()
    one_scale = block.scale.stride() == (0, 0)
    before = block.scale if one_scale else block.scale.contiguous()
    flat = block.weight.flatten(0, 1)
    widen = y.dtype != torch.float32
    weight = block.scale.new_empty(block.weight.shape)
    scale = block.scale.new_empty(shape[:2])
    parts = block.scale.new_empty(2 + widen, *shape)
    gain = module.weight
    shift = module.bias
    count = scale.numel()
    with torch.cuda.device(x.device):
        _carry[cdiv(len(flat), ROWS) + cdiv(count, ROWS),](
            flat, before, residual, bias, output, x, y, flat if gain is None else gain,
            flat if shift is None else shift, weight, scale, parts[0], parts[1], parts[-1], count,
            len(flat), width, module.eps, *flat.stride(), 0 if one_scale else 1,
            0 if one_bias else width, gain is not None, shift is not None, added, widen, ROWS,
            CHUNK,
        )  # fmt: skip
    return replace(
        block,
        weight=weight,
        scale=scale,
        residual=parts[0],
        bias=parts[1],
        output=parts[2] if widen else y,
    )


def errors(block: Block, positions: Tensor, branch: Tensor | None, rounding: float) -> Tensor:
    """`verdicts.errors`, with what rounding of the whole allows its branch."""
    batch, heads, _, width = block.value.shape
    count = positions.shape[1]
    most = max(1, PARTS // (batch * heads * block.output.shape[-1]))
    if count > most:
        chunks = positions.split(most, 1)
        return torch.cat([errors(block, chunk, branch, rounding) for chunk in chunks], dim=1)
    r, bias, y = (lined(tensor) for tensor in (block.residual, block.bias, block.output))
    own = y if branch is None else lined(branch)
    mask = block.scale if block.mask is None else block.mask
    chosen = block.again is not None
    attn = block.attn if block.again is None else block.again(positions)
    parts = block.scale.new_empty(batch * count, heads, y.shape[-1])
    relative = block.scale.new_empty(batch, count)
    with torch.cuda.device(y.device):
        _mix[batch * count, heads](
            attn, block.value, block.weight, positions, parts, attn.shape[-1], y.shape[-1], width,
            count, *attn.stride(), *block.value.stride(), *block.weight.stride(),
            *positions.stride(), chosen, power_of_2(width), SOURCES, WIDE,
        )  # fmt: skip
        _compare[batch * count,](
            parts, block.scale, r, bias, y, own, mask, positions, relative, y.shape[-1], heads,
            count, rounding, *block.scale.stride(), *r.stride()[:2], *bias.stride()[:2],
            *y.stride()[:2], *own.stride()[:2], *mask.stride(), *positions.stride(),
            branch is not None, block.mask is not None, LONG,
        )  # fmt: skip
    return relative


def cdiv(count: int, size: int) -> int:
    """How many parts of a size; triton.cdiv is slow outside of kernels."""
    return -(-count // size)


def power_of_2(number: int) -> int:
    """The next one; as above."""
    return 1 << (number - 1).bit_length()


def _packed(tensor: Tensor, shape: torch.Size) -> Tensor:
    if tensor.shape == shape and tensor.is_contiguous():
        return tensor
    return tensor.reshape(shape).contiguous()


def lined(tensor: Tensor) -> Tensor:
    """The same with its last dimension contiguous."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


@triton.jit
def _touch(ptr):
    tl.store(ptr, 1.0)


def ready(device: torch.device, dtype: torch.dtype) -> None:
    """Raise where Triton cannot compile or start a kernel: no C compiler, say, or an old GPU."""
    touched = torch.zeros(1, device=device)
    with torch.cuda.device(touched.device):
        _touch[1,](touched)
    if touched.item() != 1:
        raise RuntimeError("a first kernel did nothing")

"""The kernels of `alti.read.triton_attention`: a program holds some rows or some keys of one head.

Scores, sums and probabilities are float32, and scores are powers of two; products have the
operands' own precision.
"""

import triton
import triton.language as tl


@triton.jit
def _seen(s, i, j, T, S, mask_ptr, m_t, m_s, source_ptr, log_ptr, CAUSAL: tl.constexpr,
          MASKED: tl.constexpr, DIMMED: tl.constexpr):  # fmt: skip
    """Scores of rows i for keys j, in powers of two, dimmed; −inf where a key is not seen.

    i and j have an axis each, in either order.
    """
    shown = (j < S) & (i < T)
    if CAUSAL:
        shown &= j <= i
    if MASKED:
        at = mask_ptr + i.to(tl.int64) * m_t + j.to(tl.int64) * m_s
        shown &= tl.load(at, mask=shown, other=0) != 0
    if DIMMED:
        log = tl.load(log_ptr + j, mask=j < S, other=0.0)
        s += tl.where(_apart(i, j, T, S, source_ptr), log, 0.0)
    return tl.where(shown, s, float("-inf"))


@triton.jit
def _apart(i, j, T, S, source_ptr):
    """Whether key j is of a source, and row i not of the same."""
    source = tl.load(source_ptr + j, mask=j < S, other=-1)
    return (source >= 0) & (source != tl.load(source_ptr + i, mask=i < T, other=-1))


@triton.jit
def _vectors(ptr, t, k, T, d, stride):
    """Vectors [.., ..] at positions t with numbers k, 0 outside."""
    return tl.load(ptr + t.to(tl.int64) * stride + k, mask=(t < T) & (k < d), other=0.0)


@triton.jit
def forward(
    q_ptr, k_ptr, v_ptr, out_ptr, sum_ptr, mask_ptr, source_ptr, log_ptr, H, GROUP, T, S, d, scale,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, m_b, m_h, m_t, m_s,
    ROWS: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr,
    MASKED: tl.constexpr, DIMMED: tl.constexpr, OUTPUT: tl.constexpr,
):  # fmt: skip
    """The log2 of the sum of each row [B, H, T], +inf where nothing is seen, and the output."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest rows first
    b, h = (tl.program_id(1) // H).to(tl.int64), (tl.program_id(1) % H).to(tl.int64)
    i, k = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask_ptr += b * m_b + h * m_h
    source_ptr += b * S
    log_ptr += b * S
    k_ptr += b * k_b + h // GROUP * k_h
    v_ptr += b * v_b + h // GROUP * v_h
    q = _vectors(q_ptr + b * q_b + h * q_h, i[:, None], k[None, :], T, d, q_t)
    largest = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([ROWS], dtype=tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    end = S
    if CAUSAL:
        end = tl.minimum(S, tile * ROWS + ROWS)
    for start in range(0, end, KEYS):
        j = start + tl.arange(0, KEYS)
        keys = _vectors(k_ptr, j[None, :], k[:, None], S, d, k_t)
        s = tl.dot(q, keys, input_precision="ieee") * scale
        s = _seen(s, i[:, None], j[None, :], T, S, mask_ptr, m_t, m_s, source_ptr, log_ptr, CAUSAL,
                  MASKED, DIMMED)  # fmt: skip
        larger = tl.maximum(largest, tl.max(s, 1))
        base = tl.where(larger == float("-inf"), 0.0, larger)
        p = tl.exp2(s - base[:, None])
        fade = tl.exp2(largest - base)
        total = total * fade + tl.sum(p, 1)
        if OUTPUT:
            values = _vectors(v_ptr, j[:, None], k[None, :], S, d, v_t)
            mixed = tl.dot(p.to(values.dtype), values, mixed * fade[:, None],
                           input_precision="ieee")  # fmt: skip
        largest = larger
    sums = tl.where(total > 0, largest + tl.log2(total), float("inf"))
    tl.store(sum_ptr + tl.program_id(1).to(tl.int64) * T + i, sums, mask=i < T)
    if OUTPUT:
        mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
        at = out_ptr + b * o_b + h * o_h + i[:, None].to(tl.int64) * o_t + k[None, :]
        tl.store(at, mixed.to(out_ptr.dtype.element_ty), mask=(i < T)[:, None] & (k < d)[None, :])


@triton.jit
def probabilities(
    q_ptr, k_ptr, sum_ptr, row_ptr, out_ptr, mask_ptr, H, GROUP, T, S, seen, count, d, scale, q_b,
    q_h, q_t, k_b, k_h, k_t, r_b, m_b, m_h, m_t, m_s, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WIDTH: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, DIMMED: tl.constexpr,
):  # fmt: skip
    """Those of some rows [B, n] to the first keys: out [B, H, n, seen]."""
    b, h = (tl.program_id(2) // H).to(tl.int64), (tl.program_id(2) % H).to(tl.int64)
    n = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    i = tl.load(row_ptr + b * r_b + n, mask=n < count, other=T)
    j, k = tl.program_id(0) * KEYS + tl.arange(0, KEYS), tl.arange(0, WIDTH)
    row_sums = tl.load(sum_ptr + tl.program_id(2).to(tl.int64) * T + i, mask=i < T, other=0.0)
    q = _vectors(q_ptr + b * q_b + h * q_h, i[:, None], k[None, :], T, d, q_t)
    keys = _vectors(k_ptr + b * k_b + h // GROUP * k_h, j[None, :], k[:, None], S, d, k_t)
    s = tl.dot(q, keys, input_precision="ieee") * scale
    s = _seen(s, i[:, None], j[None, :], T, S, mask_ptr + b * m_b + h * m_h, m_t, m_s, row_ptr,
              sum_ptr, CAUSAL, MASKED, DIMMED)  # fmt: skip
    at = out_ptr + (tl.program_id(2).to(tl.int64) * count + n[:, None]) * seen + j[None, :]
    p = tl.exp2(s - row_sums[:, None])
    tl.store(at, p, mask=(n < count)[:, None] & (j < seen)[None, :])


@triton.jit
def _column(counted, i, j, T, S, source_ptr, APART: tl.constexpr):
    """Numbers of keys and rows [KEYS, ROWS], added up for each key."""
    if APART:
        counted = tl.where(_apart(i[None, :], j[:, None], T, S, source_ptr), counted, 0.0)
    return tl.sum(counted, 1)


@triton.jit
def back_to_keys(
    q_ptr, k_ptr, v_ptr, g_ptr, sum_ptr, own_ptr, dk_ptr, dv_ptr, column_ptr, mask_ptr, source_ptr,
    log_ptr, H, GROUP, T, S, d, scale, unit, q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, g_b, g_h,
    g_t, m_b, m_h, m_t, m_s, ROWS: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, DIMMED: tl.constexpr, RESPONSE: tl.constexpr,
    COLUMN: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """Gradients at keys and values for each head [B, H, S, d], and columns [B, H, S]."""
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    j, k = tl.program_id(0) * KEYS + tl.arange(0, KEYS), tl.arange(0, WIDTH)
    mask_ptr += b * m_b + h * m_h
    source_ptr += b * S
    log_ptr += b * S
    q_ptr += b * q_b + h * q_h
    g_ptr += b * g_b + h * g_h
    keys = _vectors(k_ptr + b * k_b + h // GROUP * k_h, j[:, None], k[None, :], S, d, k_t)
    values = _vectors(v_ptr + b * v_b + h // GROUP * v_h, j[:, None], k[None, :], S, d, v_t)
    dk = tl.zeros([KEYS, WIDTH], dtype=tl.float32)
    dv = tl.zeros([KEYS, WIDTH], dtype=tl.float32)
    columns = tl.zeros([KEYS], dtype=tl.float32)
    begin = tl.program_id(0) * KEYS // ROWS * ROWS if CAUSAL else 0
    for start in range(begin, T, ROWS):
        i = start + tl.arange(0, ROWS)
        q = _vectors(q_ptr, i[:, None], k[None, :], T, d, q_t)
        g = _vectors(g_ptr, i[:, None], k[None, :], T, d, g_t)
        sums = tl.load(sum_ptr + head * T + i, mask=i < T, other=float("inf"))
        s = tl.dot(keys, tl.trans(q), input_precision="ieee") * scale
        s = _seen(s, i[None, :], j[:, None], T, S, mask_ptr, m_t, m_s, source_ptr, log_ptr, CAUSAL,
                  MASKED, DIMMED)  # fmt: skip
        p = tl.exp2(s - sums[None, :])  # [KEYS, ROWS]
        dv = tl.dot(p.to(g.dtype), g, dv, input_precision="ieee")
        if RESPONSE or COLUMN != "none":
            own = tl.load(own_ptr + head * T + i, mask=i < T, other=0.0)
            effects = tl.dot(values, tl.trans(g), input_precision="ieee")
            slopes = p * (effects - own[None, :])
            if RESPONSE:
                dk = tl.dot(slopes.to(q.dtype), q, dk, input_precision="ieee")
            if COLUMN == "effects":
                slopes = p * effects
            if COLUMN != "none":
                columns += _column(slopes, i, j, T, S, source_ptr, APART)
    at, inside = (head * S + j[:, None]) * d + k[None, :], (j < S)[:, None] & (k < d)[None, :]
    tl.store(dv_ptr + at, dv, mask=inside)
    if RESPONSE:
        tl.store(dk_ptr + at, dk * unit, mask=inside)
    if COLUMN != "none":
        tl.store(column_ptr + head * S + j, columns, mask=j < S)


@triton.jit
def back_to_queries(
    q_ptr, k_ptr, v_ptr, g_ptr, sum_ptr, own_ptr, dq_ptr, mask_ptr, source_ptr, log_ptr, H, GROUP,
    T, S, d, scale, unit, q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, g_b, g_h, g_t, m_b, m_h,
    m_t, m_s, ROWS: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr,
    MASKED: tl.constexpr, DIMMED: tl.constexpr,
):  # fmt: skip
    """Gradients at queries [B, H, T, d]."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest rows first
    b, h = (tl.program_id(1) // H).to(tl.int64), (tl.program_id(1) % H).to(tl.int64)
    i, k = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask_ptr += b * m_b + h * m_h
    source_ptr += b * S
    log_ptr += b * S
    k_ptr += b * k_b + h // GROUP * k_h
    v_ptr += b * v_b + h // GROUP * v_h
    row = tl.program_id(1).to(tl.int64) * T + i
    q = _vectors(q_ptr + b * q_b + h * q_h, i[:, None], k[None, :], T, d, q_t)
    g = _vectors(g_ptr + b * g_b + h * g_h, i[:, None], k[None, :], T, d, g_t)
    sums = tl.load(sum_ptr + row, mask=i < T, other=float("inf"))
    own = tl.load(own_ptr + row, mask=i < T, other=0.0)
    dq = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    end = S
    if CAUSAL:
        end = tl.minimum(S, tile * ROWS + ROWS)
    for start in range(0, end, KEYS):
        j = start + tl.arange(0, KEYS)
        keys = _vectors(k_ptr, j[:, None], k[None, :], S, d, k_t)
        values = _vectors(v_ptr, j[:, None], k[None, :], S, d, v_t)
        s = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
        s = _seen(s, i[:, None], j[None, :], T, S, mask_ptr, m_t, m_s, source_ptr, log_ptr, CAUSAL,
                  MASKED, DIMMED)  # fmt: skip
        effects = tl.dot(g, tl.trans(values), input_precision="ieee")
        slopes = tl.exp2(s - sums[:, None]) * (effects - own[:, None])
        dq = tl.dot(slopes.to(keys.dtype), keys, dq, input_precision="ieee")
    inside = (i < T)[:, None] & (k < d)[None, :]
    tl.store(dq_ptr + row[:, None] * d + k[None, :], dq * unit, mask=inside)

"""Fused on a CPU: parallel over source tokens, explicit vectors, nothing of size T²·D in memory.

A task owns COLUMNS source tokens and goes through the target rows ROWS at a time. Their attention
is gathered into a small array; then t = Σ_h a_h f_h and |u| − |u − t| stay in vector registers.
Rows that give a source no attention are 0 and not computed.
"""

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from threading import Lock
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, types
from numba.extending import intrinsic
from torch import Tensor
from torch.nn.functional import pad

from alti._errors import AltiError
from alti.mix.kernels.shared import closeness, divided
from alti.mix.kernels.stored import KernelCache
from alti.read.block import Block

COLUMNS = 8  # source tokens whose vectors stay in the second-level cache while all rows pass
FEATURES = numba.config.CPU_FEATURES or get_host_cpu_features().flatten()
BYTES = 64 if "+avx512f" in FEATURES else 32  # of a vector
ROWS = 4
WIDE = 4 if "+avx512f" in FEATURES else 2  # vectors of each row that are in registers
VECTORS = 1 << 22  # numbers of f held at once, or one text's
KEPT = 1 << 23  # numbers of f kept between calls, at most

# glibc returns freed memory to the system above a threshold that it raises when a large block is
# freed. Without this, every layer would get its memory anew, page by page, which costs a tenth of
# a forward pass.
torch.empty(31 << 20, dtype=torch.uint8)

_running = Lock()  # the process has one pool of numba threads, and one of the buffers below
_kept: dict[torch.dtype, Tensor] = {}
_processes: list[int] = []  # the one that has numba's threads; a fork of it lacks them


class _Vectors:
    """Writes vector instructions: LLVM does not vectorise around the inner sum over heads."""

    def __init__(self, builder: Any, number: Any, index: Any) -> None:
        self.builder = builder
        self.number = number
        self.index = index
        self.lanes = BYTES // (4 if number == ir.FloatType() else 8)
        self.type = ir.VectorType(number, self.lanes)
        self.zero = ir.Constant(self.type, [0.0] * self.lanes)

    def constant(self, value: int) -> Any:
        return ir.Constant(self.index, value)

    def times(self, x: Any, n: int) -> Any:
        return self.builder.mul(x, self.constant(n))

    def place(self, array: Any, *terms: Any) -> Any:
        return self.builder.gep(array.data, [reduce(self.builder.add, terms)])

    def load(self, array: Any, *terms: Any) -> Any:
        return self.builder.load(
            self.builder.bitcast(self.place(array, *terms), self.type.as_pointer()), align=4
        )

    def splat(self, value: Any) -> Any:
        alone = self.builder.insert_element(
            ir.Constant(self.type, ir.Undefined), value, self.constant(0)
        )
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(alone, alone, lanes)

    def size(self, vector: Any) -> Any:
        return self.builder.call(self._function("fabs", self.type, self.type), [vector])

    def total(self, vector: Any) -> Any:
        add = self._function("vector.reduce.fadd", self.number, self.number, self.type)
        return self.builder.call(add, [ir.Constant(self.number, 0.0), vector], fastmath=["reassoc"])

    def add_products(self, parts: list[Any], number: Any, vectors: list[Any]) -> None:
        """parts += number · vectors"""
        weight = self.splat(number)
        for part, vector in zip(parts, vectors, strict=True):
            term = self.builder.fmul(weight, vector, flags=["contract"])
            total = self.builder.fadd(self.builder.load(part), term, flags=["contract"])
            self.builder.store(total, part)

    def add_closeness(self, total: Any, own: Any, part: Any) -> None:
        """total += |own| − |own − part|"""
        apart = self.builder.fsub(own, self.builder.load(part))
        closer = self.builder.fsub(self.size(own), self.size(apart))
        self.builder.store(self.builder.fadd(self.builder.load(total), closer), total)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        name = f"llvm.{name}.v{self.lanes}f{8 * BYTES // self.lanes}"
        return cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(result, arguments), name
        )


def _closer(rows: int) -> Any:
    """An intrinsic: out[r] = Σ_d |u_rd| − |u_rd − Σ_h a[h,r] f_hd|; a single row has its residual.

    `a` is [H, ROWS, COLUMNS], read from `a_at` on; f, u and r are read from given offsets too.
    """

    def codegen(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        a, f, u, r, out = (
            context.make_array(signature.args[i])(context, builder, given[i])
            for i in (0, 2, 5, 6, 9)
        )
        a_at, f_at, f_step, at, width = (given[i] for i in (1, 3, 4, 7, 8))
        v = _Vectors(builder, context.get_value_type(signature.args[0].dtype), width.type)
        sums = [cgutils.alloca_once_value(builder, v.zero) for _ in range(rows)]
        # t, of each row
        parts = [[cgutils.alloca_once(builder, v.type) for _ in range(WIDE)] for _ in range(rows)]
        offsets = [v.constant(n * v.lanes) for n in range(WIDE)]
        with cgutils.for_range_slice(
            builder, v.constant(0), width, v.constant(WIDE * v.lanes), v.index
        ) as (d, _):
            for row in parts:
                for part, offset in zip(row, offsets, strict=True):
                    builder.store(v.zero if rows > 1 else v.load(r, at, d, offset), part)
            with cgutils.for_range(builder, cgutils.unpack_tuple(builder, a.shape)[0]) as heads:
                f_head = builder.mul(heads.index, f_step)
                vectors = [v.load(f, f_at, f_head, d, offset) for offset in offsets]
                a_head = v.times(heads.index, ROWS * COLUMNS)
                for i, row in enumerate(parts):
                    place = v.place(a, a_at, a_head, v.constant(i * COLUMNS))
                    v.add_products(row, builder.load(place), vectors)
            for i, row in enumerate(parts):
                for part, offset in zip(row, offsets, strict=True):
                    own = v.load(u, at, v.times(width, i), d, offset)
                    v.add_closeness(sums[i], own, part)
        for i in range(rows):
            builder.store(v.total(builder.load(sums[i])), v.place(out, v.constant(i)))
        return context.get_dummy_value()

    @intrinsic
    def closer(typing, a, a_at, f, f_at, f_step, u, r, at, width, out):
        index = types.intp
        return types.void(a, index, f, index, index, u, r, index, index, out), codegen

    return closer


_closer_rows = _closer(ROWS)
_closer_own = _closer(1)


@numba.njit(parallel=True, error_model="numpy")
def _fused(attn, f, u, r, own, closer):
    """attn [B, H, T, S], f [H, B · S, D], u, r [B, T + padding, D], own [B, T] -> out [B, T, S]

    f may be of more tokens than S, of which the first are the sources: [H, B · F, D].
    """
    batch, heads, targets, sources = attn.shape
    _, rows, width = u.shape
    vectors = f.shape[1] // batch
    tiles = (sources + COLUMNS - 1) // COLUMNS
    for task in numba.prange(batch * tiles):
        b = task // tiles
        j0 = task % tiles * COLUMNS
        columns = min(COLUMNS, sources - j0)
        f_step = batch * vectors * width
        a = np.zeros((heads, ROWS, COLUMNS), attn.dtype)
        total = np.zeros(COLUMNS, attn.dtype)  # attention to each source, of all heads and rows
        out = np.zeros(ROWS, attn.dtype)
        for i in range(0, targets, ROWS):
            real = min(ROWS, targets - i)
            total[:] = 0
            for h in range(heads):
                for row in range(ROWS):
                    line = attn[b, h, min(i + row, targets - 1)]  # rows past the end are dropped
                    for k in range(columns):
                        a[h, row, k] = line[j0 + k]
                        total[k] += abs(line[j0 + k])
            for k in range(columns):
                f_at = (b * vectors + j0 + k) * width
                if total[k] != 0:
                    _closer_rows(a, k, f, f_at, f_step, u, r, (b * rows + i) * width, width, out)
                else:
                    out[:] = 0
                for row in range(real):
                    closer[b, i + row, j0 + k] = out[row]
            for row in range(real):
                k = own[b, i + row] - j0
                if 0 <= k < columns:
                    f_at = (b * vectors + j0 + k) * width
                    a_at = row * COLUMNS + k
                    at = (b * rows + i + row) * width
                    _closer_own(a, a_at, f, f_at, f_step, u, r, at, width, out)
                    closer[b, i + row, j0 + k] = out[0]


_fused._cache = KernelCache(__file__)


def ready(device: torch.device, dtype: torch.dtype) -> None:
    """Compile, or read what was compiled before."""
    _refuse_fork()
    numbers = {torch.float32: types.float32, torch.float64: types.float64}.get(dtype)
    if numbers is not None:
        arrays = [types.Array(numbers, dimensions, "C") for dimensions in (4, 3, 3, 3, 3)]
        with _running, _torch_threads_kept():  # numba starts its pool when it compiles
            _fused.compile((*arrays[:4], types.Array(types.int64, 2, "C"), arrays[4]))


def _refuse_fork() -> None:
    """numba kills a process that was forked after its threads had run, without an exception."""
    if _processes and _processes[0] != os.getpid():
        raise AltiError("this process was forked from one that has run it; spawn processes instead")


def by_rows(block: Block, spans: Iterable[slice]) -> Iterator[Tensor]:
    """Contributions, some rows at a time, of a block that computes attention again.

    The vectors of one text are made once; those of several are too many to be kept.
    """
    alone = len(block.output) == 1
    f = block.value[0] @ _wide(block.weight) if alone else None
    for span in spans:
        rows = block.span(span)
        yield divided(rows, proximity(rows, 1, f).clamp_min_(0))


def proximity(block: Block, p: int, f: Tensor | None = None) -> Tensor:
    """‖y_i‖₁ − ‖y_i − T_ij‖₁, divided by scale_i.

    f may be given for one text, also of more tokens than the block sees: [H, F, D + padding].
    """
    _refuse_fork()
    u, r = (x / block.scale[..., None] for x in (block.output, block.residual))
    batch, heads, targets, sources = block.attn.shape
    weight = _wide(block.weight)
    right = weight.shape[-1] - u.shape[-1]
    below = -targets % ROWS
    rows = [pad(x, (0, right, 0, below)) if right or below else x for x in (u, r)]
    own = torch.full((batch, targets), -1) if block.cross else block.own_columns()
    closer = torch.empty(batch, targets, sources, dtype=u.dtype)
    arrays = [x.contiguous().numpy() for x in (block.attn, *rows, own)]
    texts = max(1, VECTORS // (heads * sources * weight.shape[-1]))
    with _running, _torch_threads_kept():
        for start in range(0, batch, texts):
            chunk = slice(start, start + texts)
            vectors = _vectors(block.value[chunk], weight) if f is None else f
            attn, u_rows, r_rows, own_rows = (array[chunk] for array in arrays)
            _fused(attn, vectors.numpy(), u_rows, r_rows, own_rows, closer[chunk].numpy())
    return torch.cat([closer, closeness(u, p)(r[:, :, None])], dim=-1) if block.cross else closer


def _wide(weight: Tensor) -> Tensor:
    """W with as many numbers to a row as are computed at once."""
    right = -weight.shape[-1] % (WIDE * BYTES // weight.itemsize)
    return pad(weight, (0, right)) if right else weight


@contextmanager
def _torch_threads_kept() -> Iterator[None]:
    """numba uses as many threads as torch; its pool sets OpenMP's number, which is torch's too."""
    _processes[:] = [os.getpid()]
    threads = torch.get_num_threads()
    own = numba.get_num_threads()
    try:
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        yield
    finally:
        numba.set_num_threads(own)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def _vectors(value: Tensor, weight: Tensor) -> Tensor:
    """f[h,j] = v[h,j] W[h], all texts side by side: [H, B · S, D].

    The memory is kept: allocating it for every layer would cost more than the product.
    """
    batch, heads, sources, _ = value.shape
    shape = (heads, batch * sources, weight.shape[-1])
    count = math.prod(shape)
    kept = _kept.get(value.dtype)
    if kept is None or len(kept) < count:
        with torch.inference_mode(False):  # else it could not be written outside of that mode
            kept = torch.empty(count, dtype=value.dtype)
        if count <= KEPT:
            _kept[value.dtype] = kept
    return torch.matmul(value.transpose(0, 1).flatten(1, 2), weight, out=kept[:count].view(shape))

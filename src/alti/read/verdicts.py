"""Judges how far a block rebuilt from its parts is from what the model computed."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from alti._errors import DecompositionError
from alti.family import Site
from alti.read.affine import fused_for
from alti.read.block import Block
from alti.read.cuda_capture import afterwards

LIMITS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
FLOAT32_NORM_LIMIT = 1e-6  # for a float64 model whose norm (or softmax) computes in float32


def limit_of(dtype: torch.dtype, *, plain: bool) -> float:
    """What rounding in a dtype may come to; norms other than LayerNorm may compute in float32."""
    limit = LIMITS.get(dtype, LIMITS[torch.bfloat16])
    return limit if plain else max(limit, FLOAT32_NORM_LIMIT)


def rounding_of(dtype: torch.dtype) -> float:
    """How small a part of a sum may be before the rounding of that sum alone passes the limit."""
    return 8 * torch.finfo(dtype).eps / LIMITS.get(dtype, 1.0)


class Sample:
    """Where the blocks of one pass are compared: at `count` positions, or at every one."""

    def __init__(self, count: int | None) -> None:
        self.count = count
        self.kept: dict[Any, tuple[Tensor, Tensor]] = {}

    def of(self, block: Block) -> tuple[Tensor, Tensor]:
        """Texts [B, 1] and positions [B, n]."""
        shape = block.output.shape[:2]
        device = block.output.device
        key = id(block.mask), shape, device
        if key not in self.kept:
            texts = torch.arange(len(block.output), device=device)[:, None]
            self.kept[key] = texts, spread(block.mask, shape, device, self.count)
        return self.kept[key]

    def errors(self, block: Block, branch: tuple[Tensor, torch.dtype] | None = None) -> Tensor:
        """`errors` of a block there: [B, n]."""
        return errors(block, self.of(block)[1], branch)

    def has_float32_softmax(self, block: Block) -> bool:
        """Whether the probabilities of a float64 model are all float32 numbers there.

        Those of rows that are computed again are rounded anew then.
        """
        probs = block.rows(self.of(block)[1]).attn
        return probs.dtype == torch.float64 and bool((probs == probs.float()).all())

    def difference(self, block: Block, ours: Tensor, real: Tensor) -> Tensor:
        """How far two tensors [B, T, D] differ there, relative to the second: [B, n]."""
        at = self.of(block)
        return relative(ours[at], real[at], None if block.mask is None else block.mask[at])


def spread(
    mask: Tensor | None, shape: torch.Size, device: torch.device, count: int | None
) -> Tensor:
    """Positions spread evenly over each text, its last one included: [B, n].

    There are `count` of them in all, at least one of each text; None: every position.
    """
    batch, targets = shape
    if count is None or batch * targets <= count:
        return torch.arange(targets, device=device).expand(batch, -1)
    count = max(1, count // batch)
    if mask is None:
        step = -(-targets // count)
        return torch.arange((targets - 1) % step, targets, step, device=device).expand(batch, -1)
    real = mask.cumsum(-1)  # [B, T]  how many there are up to here
    wanted = real[:, -1:] * torch.arange(1, count + 1, device=device)  # [B, n]
    return torch.searchsorted(real, -(-wanted // count))


def errors(
    block: Block, positions: Tensor, branch: tuple[Tensor, torch.dtype] | None = None
) -> Tensor:
    """max|Δ| / max|y| at some positions, 0 at padding: [B, n].

    A branch that is added to its residual and no more can be small beside it. Given what it
    computed, and the dtype that the model rounds in, it is compared alone too, and the sum as far
    as that rounding allows.
    """
    rounding = 0.0 if branch is None else rounding_of(branch[1])
    fused = fused_for(block.scale.device, block.scale.dtype)
    if fused:
        own = None if branch is None else branch[0]
        fused_errors: Tensor = fused.errors(block, positions, own, rounding)
        return fused_errors
    everywhere = positions.shape[1] == block.attn.shape[2]  # in their order
    rows = block if everywhere and block.again is None else block.rows(positions)
    if branch is None:
        return relative(rows.rebuilt(), rows.output, rows.mask)
    texts = torch.arange(len(positions), device=positions.device)[:, None]
    return _branch_errors(rows, branch[0][texts, positions], rounding)


def _branch_errors(rows: Block, branch: Tensor, rounding: float) -> Tensor:
    """The larger error of the branch [B, n, D] alone and of the whole sum."""
    mixed = rows.mixed()
    size = _largest(rows.output)
    size = torch.minimum(size, _largest(branch).maximum(rounding * size))
    whole = relative(mixed + rows.residual, rows.output, rows.mask, size)
    return torch.maximum(relative(mixed, branch, rows.mask), whole)


def _largest(x: Tensor) -> Tensor:
    return x.abs().amax(-1)  # a seventh of the time of torch.linalg.vector_norm


def relative(ours: Tensor, real: Tensor, mask: Tensor | None, size: Tensor | None = None) -> Tensor:
    """max|Δ| / max|y| of vectors [B, n, D], 0 at padding: [B, n]; `size` replaces max|y|."""
    size = _largest(real.to(ours)) if size is None else size
    error: Tensor = _largest(ours - real) / size.clamp_min(torch.finfo(ours.dtype).tiny)
    return error if mask is None else error.where(mask, 0)


@dataclass(frozen=True, slots=True)
class Place:
    """One block of one model, as messages name it."""

    family: str
    block: int
    site: Site

    def wrong(self, what: str) -> DecompositionError:
        paths = ", ".join(f"{field}={path!r}" for field, path in self.site.paths().items())
        factor = self.site.branch_scale
        scale = f", branch_scale={factor!r}" if factor else ""
        return DecompositionError(
            f"{self.family} block {self.block}: its entry in alti.FAMILIES {what}; "
            f"look at Site({paths}{scale})"
        )


class Verdict(NamedTuple):
    place: Place
    error: Tensor  # [B, n]
    limit: float
    half: bool  # the model computes in half precision

    def require(self, error: float) -> None:
        if error <= self.limit:  # not so for nan
            return
        if not math.isfinite(error):
            raise DecompositionError(
                f"{self.place.family} block {self.place.block}: the model's numbers are not finite "
                "(nan or infinite) here or before: look at its weights, or load it with "
                "dtype='float32'"
            )
        hint = " (or load the model in float32, half precision rounds)" if self.half else ""
        raise self.place.wrong(
            f"rebuilds the block with a relative error of {error:.1e}, above {self.limit:.0e}{hint}"
        )


class Verdicts:
    """The errors of one pass. A CPU reads each at once; an accelerator would have to wait for each,

    so there they are read together at the end, or after each replay of a CUDA graph.
    """

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once
        self.open: list[Verdict] = []

    def add(
        self,
        place: Place,
        error: Tensor,
        dtype: torch.dtype,
        norms: list[nn.Module],
        *,
        rounds: bool = False,
    ) -> None:
        """Judge one block of a model that computes in `dtype`, with these norms on the way.

        With `rounds`, attention is a float32 one that was computed a second time.
        """
        plain = not rounds and all(type(module) is nn.LayerNorm for module in norms)
        limit = limit_of(dtype, plain=plain)
        self.open.append(Verdict(place, error, limit, dtype.itemsize < 4))
        if self.at_once or error.device.type == "cpu":
            self.conclude()

    def conclude(self) -> None:
        """Raise where an error that was not read yet is above its limit."""
        if not self.open:
            return
        verdicts = self.open
        self.open = []
        counts = [verdict.error.numel() for verdict in verdicts]
        place = verdicts[0].error.device  # layers may be on several
        errors = torch.cat([verdict.error.flatten().to(place) for verdict in verdicts])

        def judge() -> None:
            for verdict, error in zip(verdicts, torch.split(errors.cpu(), counts), strict=True):
                verdict.require(float(error.max()))

        afterwards(judge)

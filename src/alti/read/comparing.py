"""How far a block that was rebuilt from its parts is from what the model computed, and how far it may be."""

import torch
from torch import Tensor

from alti.read.block import Block
from alti.read.norms import fused_for

LIMITS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
FLOAT32_NORM_LIMIT = 1e-6  # for a float64 model whose norm computes in float32


def limit_of(dtype: torch.dtype, *, plain: bool) -> float:
    """What rounding in a dtype may come to; norms that are not `plain` LayerNorms may compute in float32."""
    limit = LIMITS.get(dtype, LIMITS[torch.bfloat16])
    return limit if plain else max(limit, FLOAT32_NORM_LIMIT)


def rounding_of(dtype: torch.dtype) -> float:
    """How small beside its sum a part may be before the rounding of that sum alone passes the limit."""
    return 8 * torch.finfo(dtype).eps / LIMITS.get(dtype, 1.0)


def spread(
    mask: Tensor | None, shape: torch.Size, device: torch.device, count: int | None
) -> Tensor:
    """Positions spread evenly over each text, its last one among them; `count` in all, or every one: [B, n]."""
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

    A branch that is added to its residual and no more can be small beside it. Given what it computed, and the dtype
    that the model rounds in, it is compared alone too, and the sum as far as that rounding allows.
    """
    rounding = 0.0 if branch is None else rounding_of(branch[1])
    if fused := fused_for(block.attn.device, block.attn.dtype):
        found: Tensor = fused.errors(
            block, positions, None if branch is None else branch[0], rounding
        )
        return found
    some = (
        block if positions.shape[1] == block.attn.shape[2] else block.rows(positions)
    )  # all, in their order
    if branch is None:
        return relative(some.rebuilt(), some.output, some.mask)
    at = torch.arange(len(positions), device=positions.device)[:, None], positions
    own, mixed, size = branch[0][at], some.mixed(), _largest(some.output)
    size = torch.minimum(size, _largest(own).maximum(rounding * size))
    whole = relative(mixed + some.residual, some.output, some.mask, size)
    return torch.maximum(relative(mixed, own, some.mask), whole)


def _largest(x: Tensor) -> Tensor:
    return x.abs().amax(-1)  # a seventh of the time of torch.linalg.vector_norm


def relative(
    found: Tensor, real: Tensor, mask: Tensor | None, size: Tensor | None = None
) -> Tensor:
    """max|Δ| / max|y| of vectors [B, n, D], 0 at padding: [B, n]; `size` stands in for max|y|."""
    size = _largest(real.to(found)) if size is None else size
    error: Tensor = _largest(found - real) / size.clamp_min(torch.finfo(found.dtype).tiny)
    return error if mask is None else error.where(mask, 0)

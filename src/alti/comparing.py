"""How far a block that was rebuilt from its parts is from what the model computed, and how far it may be."""

from functools import partial

import torch
from torch import Tensor

LIMITS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
FLOAT32_NORM_LIMIT = 1e-6  # for a float64 model whose norm computes in float32
_largest = partial(torch.linalg.vector_norm, ord=torch.inf, dim=-1)


def limit_of(dtype: torch.dtype, *, plain: bool) -> float:
    """What rounding in a dtype may come to; norms that are not `plain` LayerNorms may compute in float32."""
    limit = LIMITS.get(dtype, LIMITS[torch.bfloat16])
    return limit if plain else max(limit, FLOAT32_NORM_LIMIT)


def relative(
    rebuilt: Tensor, real: Tensor, mask: Tensor | None, by: tuple[Tensor, torch.dtype] | None = None
) -> Tensor:
    """The worst position: max|Δ| / max|y|, padding left out.

    `by` measures with a part of y instead, as far as the rounding of y in the model's dtype allows.
    """
    size = _largest(real.to(rebuilt))
    if by is not None:
        part, dtype = by
        rounding = 8 * torch.finfo(dtype).eps / LIMITS.get(dtype, 1.0)
        size = torch.minimum(size, _largest(part).maximum(rounding * size))
    error: Tensor = _largest(rebuilt - real) / size.clamp_min(torch.finfo(rebuilt.dtype).tiny)
    return error.max() if mask is None else error.where(mask, 0).max()

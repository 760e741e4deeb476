"""What the kernels share: the pieces they read, and the entries where the residual comes in.

In units of 1 / scale_i, a positive factor per row:  u_i = y_i / s_i,  f[h,j] = v[h,j] W[h],
t_ij = Σ_h A[h,i,j] f[h,j], plus r_i / s_i where j is the row's own token (or in a last column, for cross-attention).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.linalg import vector_norm

from alti.blocks import Block

Measure = Callable[[Tensor], Tensor]  # t [B, T, n, D] -> [B, T, n]


def pieces(block: Block) -> tuple[Tensor, Tensor]:
    """u [B, T, D] and f [B, H, S, D]."""
    return block.output / block.scale[..., None], block.value @ block.weight


def closeness(u: Tensor, p: int) -> Measure:
    """‖u_i‖ − ‖u_i − t_ij‖ in the ℓp norm, never as the difference of two large sums."""
    u = u[:, :, None]

    def measure(t: Tensor) -> Tensor:
        if p == 1:
            return (u.abs() - (u - t).abs()).sum(-1)
        far = vector_norm(u, dim=-1) + vector_norm(u - t, dim=-1)
        return ((2 * u - t) * t).sum(-1).div(far.clamp_min(torch.finfo(u.dtype).tiny))

    return measure


def with_residual(block: Block, f: Tensor, found: Tensor, measure: Measure) -> Tensor:
    """Entries of attention alone [B, T, S], completed by those that the residual is part of."""
    residual = (block.residual / block.scale[..., None])[:, :, None]  # [B, T, 1, D]
    if block.cross:
        return torch.cat([found, measure(residual)], dim=-1)
    own = block.own_columns()[:, None, :, None]  # [B, 1, T, 1]
    weights = block.attn.gather(-1, own.expand(-1, block.attn.shape[1], -1, 1))  # [B, H, T, 1]
    vectors = f.gather(2, own.expand(-1, f.shape[1], -1, f.shape[-1]))  # [B, H, T, D]
    mine = (weights * vectors).sum(1)[:, :, None] + residual
    return found.scatter_(-1, own[:, 0], measure(mine))

"""What the kernels share: the pieces they read, and the entries where the residual comes in.

In units of 1 / scale_i, a positive factor per row:  u_i = y_i / s_i,  f[h,j] = v[h,j] W[h],
t_ij = Σ_h A[h,i,j] f[h,j], plus r_i / s_i where j is the row's own token (or in a last column, for
cross-attention).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.linalg import vector_norm

from alti.read.block import Block

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


def own_vectors(block: Block) -> Tensor:
    """t_ij of the entry that holds the residual: the row's own token's, or its own: [B, T, D]"""
    residual = block.residual / block.scale[..., None]
    if block.cross:
        return residual
    own = block.own_columns()[:, None, :, None]  # [B, 1, T, 1]
    _, heads, _, width = block.value.shape
    weights = block.attn.gather(-1, own.expand(-1, heads, -1, 1))  # [B, H, T, 1]
    values = block.value.gather(2, own.expand(-1, heads, -1, width))  # [B, H, T, d]
    return (weights * values).transpose(1, 2).flatten(2) @ block.weight.flatten(0, 1) + residual


def with_residual(block: Block, measured: Tensor, measure: Measure) -> Tensor:
    """Entries of attention alone [B, T, S], completed by those that the residual is part of."""
    mine = measure(own_vectors(block)[:, :, None])  # [B, T, 1]
    if block.cross:
        return torch.cat([measured, mine], dim=-1)
    return measured.scatter_(-1, block.own_columns()[..., None], mine)


def divided(block: Block, c: Tensor) -> Tensor:
    """Rows divided by their sums; a row without any is that of the identity."""
    total = c.sum(-1, keepdim=True)
    c = c / total.clamp_min(torch.finfo(c.dtype).tiny)
    empty = (total == 0).to(c)  # without information a token stayed what it was
    if block.cross:
        c[..., -1:] += empty
    elif block.own is None:
        c.diagonal(dim1=-2, dim2=-1).add_(empty[..., 0])
    else:
        c.scatter_add_(-1, block.own[..., None], empty)
    return unpadded(block, c)


def unpadded(block: Block, c: Tensor) -> Tensor:
    """Padded rows are 0; padded columns are so already, since no attention reaches them."""
    return c if block.mask is None else c.where(block.mask[..., None], 0)

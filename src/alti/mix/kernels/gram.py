"""ℓ2 proximity and lengths without a loop over the width for every pair of tokens.

‖t_ij‖² = aᵀ G_j a  and  u_i · t_ij = Σ_h a_h (u_i · f[h,j]),  with a = A[:,i,j] and G_j = f_j f_jᵀ,
one [H, H] Gram matrix per source token.
"""

import torch
from torch import Tensor
from torch.linalg import vector_norm

from alti.mix.kernels.shared import closeness, pieces, with_residual
from alti.read.block import Block

SLICE = 1 << 22  # numbers of [B, T, s, H] held at once


def proximity(block: Block, p: int) -> Tensor:
    """‖y_i‖₂ − ‖y_i − T_ij‖₂, divided by scale_i."""
    u, f = pieces(block)
    squares = _squares(block, f)  # ‖t‖²
    # u·t: each head's share of u, read in the space of the values
    heads = torch.einsum("btd,hed->bhte", u, block.weight)  # [B, H, T, d]
    products = ((heads @ block.value.transpose(-1, -2)) * block.attn).sum(1)  # [B, T, S]
    size = u.square().sum(-1, keepdim=True)
    far = size.sqrt() + (size - 2 * products + squares).clamp_min(0).sqrt()
    closer = (2 * products - squares) / far.clamp_min(torch.finfo(u.dtype).tiny)
    return with_residual(block, closer, closeness(u, p))


def lengths(block: Block) -> Tensor:
    """‖T_ij‖₂."""
    _, f = pieces(block)
    sizes = _squares(block, f).sqrt()
    return with_residual(block, sizes, lambda t: vector_norm(t, dim=-1)) * block.scale[..., None]


def _squares(block: Block, f: Tensor) -> Tensor:
    """‖t_ij‖²: [B, T, S]."""
    batch, heads, targets, sources = block.attn.shape
    squares = torch.empty(batch, targets, sources, dtype=f.dtype, device=f.device)
    step = max(1, SLICE // (batch * targets * heads))
    for start in range(0, sources, step):
        s = slice(start, start + step)
        vectors = f[:, :, s].transpose(1, 2)  # [B, s, H, D]
        grams = vectors @ vectors.transpose(-1, -2)  # [B, s, H, H]
        a = block.attn[..., s].permute(0, 3, 2, 1)  # [B, s, T, H]
        squares[..., s] = ((a @ grams) * a).sum(-1).clamp_min(0).transpose(1, 2)
    return squares

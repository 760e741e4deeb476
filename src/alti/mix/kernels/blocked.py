"""Plain torch in bounded memory, on every device and every dtype, a few source tokens at a time."""

import torch
from torch import Tensor
from torch.linalg import vector_norm

from alti.mix.kernels.shared import Measure, closeness, pieces, with_residual
from alti.read.block import Block

SLICE = 1 << 20  # numbers of t_ij held at once


def proximity(block: Block, p: int) -> Tensor:
    """‖y_i‖ − ‖y_i − T_ij‖ in the ℓp norm, divided by scale_i."""
    u, f = pieces(block)
    return _measured(block, f, closeness(u, p))


def lengths(block: Block) -> Tensor:
    """‖T_ij‖₂."""
    _, f = pieces(block)
    return _measured(block, f, lambda t: vector_norm(t, dim=-1)) * block.scale[..., None]


def _measured(block: Block, f: Tensor, measure: Measure) -> Tensor:
    batch, _, targets, sources = block.attn.shape
    step = max(1, SLICE // (batch * targets * f.shape[-1]))
    slices = []
    for start in range(0, sources, step):
        s = slice(start, start + step)
        t = torch.einsum("bhts,bhse->btse", block.attn[..., s], f[:, :, s])
        slices.append(measure(t))
    return with_residual(block, torch.cat(slices, dim=-1), measure)

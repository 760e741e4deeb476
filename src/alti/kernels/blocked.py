"""Plain torch in bounded memory, on every device and in every dtype: a slice of source tokens at a time.

The difference of the two norms is accumulated term by term, in units of 1 / scale_i: the difference of two large sums
would lose three digits in float32, and 1 / std cancels when a row is divided by its sum.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.linalg import vector_norm

from alti.blocks import Block

SLICE = 1 << 22  # numbers of T_ij held at once


def proximity(block: Block, p: int) -> Tensor:
    """‖y_i‖ − ‖y_i − T_ij‖ in the ℓp norm, divided by scale_i."""
    u = (block.output / block.scale[..., None])[:, :, None]  # [B, T, 1, D]
    return _measured(block, lambda t: _closer(u, t, p))


def lengths(block: Block) -> Tensor:
    """‖T_ij‖₂."""
    return _measured(block, lambda t: vector_norm(t, dim=-1)) * block.scale[..., None]


def _closer(u: Tensor, t: Tensor, p: int) -> Tensor:
    if p == 1:
        return (u.abs() - (u - t).abs()).sum(-1)
    far = vector_norm(u, dim=-1) + vector_norm(u - t, dim=-1)
    return ((2 * u - t) * t).sum(-1).div(far.clamp_min(torch.finfo(u.dtype).tiny))


def _measured(block: Block, measure: Callable[[Tensor], Tensor]) -> Tensor:
    residual = block.residual / block.scale[..., None]
    columns = []
    for start, t in _slices(block):  # [B, T, s, D]
        if not block.cross:
            j = torch.arange(t.shape[2], device=t.device)
            t[:, start + j, j] += residual[:, start + j]
        columns.append(measure(t))
    if block.cross:
        columns.append(measure(residual[:, :, None]))
    return torch.cat(columns, dim=-1)


def _slices(block: Block) -> Iterator[tuple[int, Tensor]]:
    batch, _, targets, sources = block.attn.shape
    step = max(1, SLICE // (batch * targets * block.weight.shape[-1]))
    for start in range(0, sources, step):
        s = slice(start, start + step)
        transformed = torch.einsum("bhsd,hde->bhse", block.value[:, :, s], block.weight)
        yield start, torch.einsum("bhts,bhse->btse", block.attn[..., s], transformed)

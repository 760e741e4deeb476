"""The definition: writes every T_ij to memory, [B, T, S, D] numbers; for tests and for reading."""

import torch
from torch import Tensor
from torch.linalg import vector_norm

from alti.read.block import Block


def parts(block: Block) -> Tensor:
    """T_ij of a block, materialised: [B, T, S, D]; cross-attention has one more, the residual.

    Their sum over j plus `block.bias` is `block.output`.

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> block = alti.trace(model, inputs)[0]  # of the first layer
    >>> torch.allclose(alti.parts(block).sum(2) + block.bias, block.output, atol=1e-4)
    True
    """
    transformed = torch.einsum("bhsd,hde->bhse", block.value, block.weight)
    t = torch.einsum("bhts,bhse->btse", block.attn, transformed) * block.scale[..., None, None]
    if block.cross:
        return torch.cat([t, block.residual[:, :, None]], dim=2)
    batch, row = (torch.arange(n, device=t.device) for n in t.shape[:2])
    t[batch[:, None], row, block.own_columns()] += block.residual
    return t


def proximity(block: Block, p: int) -> Tensor:
    """‖y_i‖ − ‖y_i − T_ij‖ in the ℓp norm."""
    y = block.output[:, :, None]
    closer: Tensor = vector_norm(y, p, dim=-1) - vector_norm(y - parts(block), p, dim=-1)
    return closer


def lengths(block: Block) -> Tensor:
    """‖T_ij‖₂."""
    sizes: Tensor = vector_norm(parts(block), dim=-1)
    return sizes

"""What each head of attention brings: ALTI's measure on the vector of one head and one token."""

from dataclasses import replace

import torch
from torch import Tensor

from alti.read.block import Block


def head_parts(block: Block) -> Tensor:
    """T^h_ij = scale_i · attn[h,i,j] · value[h,j] @ weight[h], materialised: [B, H, T, S, D].

    Their sum over the heads is T_ij without the residual, which belongs to no head, nor does bias.
    """
    transformed = torch.einsum("bhsd,hde->bhse", block.value, block.weight)
    weighted = torch.einsum("bhts,bhse->bhtse", block.attn, transformed)
    return weighted * block.scale[:, None, :, None, None]


def by_head(block: Block) -> Block:
    """A block of one head whose sources are the tokens of every head: [H·S], head by head.

    Its T_ij are the T^h_ij of the block, and the residual has a column of its own: whatever
    measures parts measures those of heads.
    """
    batch, heads, targets, sources = block.attn.shape
    vectors = block.value @ block.weight  # [B, H, S, D]
    width = vectors.shape[-1]
    identity = torch.eye(width, dtype=vectors.dtype, device=vectors.device)
    attn = block.attn.transpose(1, 2).reshape(batch, 1, targets, heads * sources)
    value = vectors.reshape(batch, 1, heads * sources, width)
    return replace(block, attn=attn, value=value, weight=identity[None], cross=True, own=None)


def apart(block: Block, measured: Tensor) -> Tensor:
    """What was measured of `by_head(block)`, [B, T, H·S + 1], as maps of heads: [B, H, T, S].

    The last column, the residual's, is left out.
    """
    batch, heads, targets, sources = block.attn.shape
    return measured[..., :-1].reshape(batch, targets, heads, sources).transpose(1, 2)


def attention_by_head(block: Block) -> Tensor:
    """Attention probabilities of every head [B, H, T, S]; padded rows are 0."""
    a = block.attn / block.attn.sum(-1, keepdim=True)  # half precision does not sum to 1
    return a if block.mask is None else a.where(block.mask[:, None, :, None], 0)

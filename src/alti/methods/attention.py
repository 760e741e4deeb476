"""Methods that look at attention probabilities alone."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from alti.methods.layerwise import layerwise
from alti.methods.registry import method
from alti.methods.types import Inputs, Scores, Target
from alti.mix import contributions as mixing
from alti.read.block import Block


@method(recordable=True)
def attention(model: nn.Module, inputs: Inputs, target: Target, *, layers: bool = True) -> Scores:
    """Raw attention of the last layer, the mean over its heads; cross-attention if it has one."""
    return layerwise(model, inputs, target, _alone, layers=layers, last_only=True)


@method(recordable=True)
def attention_rollout(
    model: nn.Module, inputs: Inputs, target: Target, *, layers: bool = True
) -> Scores:
    """Attention rollout: half attention, half residual, through all layers (Abnar and Zuidema)."""
    return layerwise(model, inputs, target, _with_residual, layers=layers)


def _alone(block: Block) -> Tensor:
    """Attention; that of cross-attention has a column for the residual, which it leaves empty."""
    a = mixing.attention(block)
    return pad(a, (0, 1)) if block.cross else a


def _with_residual(block: Block) -> Tensor:
    a = mixing.attention(block)
    if block.cross:
        own = a.new_full(a.shape[:-1], 0.5)
        kept = own if block.mask is None else own * block.mask
        return torch.cat([0.5 * a, kept[..., None]], -1)
    identity = torch.zeros_like(a).scatter_(-1, block.own_columns()[..., None], 1)
    return 0.5 * a + 0.5 * (identity if block.mask is None else identity * block.mask[..., None])

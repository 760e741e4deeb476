"""Carries a block through a norm: the block stays a sum of one vector per token."""

import os
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from alti.read.affine import norm
from alti.read.block import Block
from alti.read.compiled import works

FUSED = "alti.read.triton_norms"


class Call(NamedTuple):
    """A module that was called."""

    module: nn.Module
    input: Tensor
    output: Tensor


def carried(block: Block, call: Call) -> Block:
    """A block carried through a norm that read its output, or that plus a feed-forward layer's."""
    same = call.input.data_ptr() == block.output.data_ptr()
    fused = fused_for(block.attn.device, block.attn.dtype)
    if fused and type(call.module) is nn.LayerNorm:
        block_after: Block = fused.carried(
            block, call.module, call.input, call.output, added=not same
        )
        return block_after
    x = call.input.to(block.output.dtype).reshape(block.output.shape)
    y = call.output.to(block.output.dtype).reshape(block.output.shape)
    through = norm(call.module, x, y)
    scale = through.scale[..., None]
    one_bias = same and block.bias.stride()[:2] == (0, 0)  # of every position
    bias = block.bias[:1, :1] if one_bias else block.bias + (x - block.output)
    return replace(
        block,
        weight=through.linear(block.weight),
        scale=block.scale * through.scale,
        residual=through.linear(block.residual).mul_(scale),
        bias=torch.addcmul(through.shift, through.linear(bias), scale),
        output=y,
    )


def fused_for(device: torch.device, dtype: torch.dtype) -> ModuleType | None:
    """The module that carries and compares blocks in a few launches, where it can be used."""
    if device.type != "cuda" or dtype != torch.float32:
        return None
    if os.environ.get("ALTI_KERNEL", "auto") not in ("auto", "triton"):
        return None
    return import_module(FUSED) if works(FUSED, device, dtype) else None

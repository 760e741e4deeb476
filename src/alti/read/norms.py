"""Carries a block through the norm that reads its output: the block stays a sum of one vector per token."""

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
    """A block carried through a norm that read its output, or its output plus a feed-forward layer's."""
    if (fused := fused_for(block.attn.device, block.attn.dtype)) and type(
        call.module
    ) is nn.LayerNorm:
        found: Block = fused.carried(
            block, call.module, call.input, call.output, added=not _same(block, call)
        )
        return found
    dtype, shape = block.output.dtype, block.output.shape
    x, y = (tensor.to(dtype).reshape(shape) for tensor in (call.input, call.output))
    through = norm(call.module, x, y)
    scale = through.scale[..., None]
    small = _same(block, call) and block.bias.stride()[:2] == (0, 0)
    bias = block.bias[:1, :1] if small else block.bias + (x - block.output)
    return replace(
        block,
        weight=through.linear(block.weight),
        scale=block.scale * through.scale,
        residual=through.linear(block.residual).mul_(scale),
        bias=torch.addcmul(through.shift, through.linear(bias), scale),
        output=y,
    )


def _same(block: Block, call: Call) -> bool:
    """Whether the norm read the block's output itself; else it was added to: a feed-forward layer."""
    return call.input.data_ptr() == block.output.data_ptr()


def fused_for(device: torch.device, dtype: torch.dtype) -> ModuleType | None:
    """What carries and compares blocks in a few launches, where that can be used."""
    if (
        device.type != "cuda"
        or dtype != torch.float32
        or os.environ.get("ALTI_KERNEL", "auto") not in ("auto", "triton")
    ):
        return None
    return import_module(FUSED) if works(FUSED, device, dtype) else None

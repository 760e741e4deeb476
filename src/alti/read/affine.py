"""Reads the weights of affine modules, and carries a block through a norm.

A projection may be a Linear, a Conv1D, a LoRA or a quantised layer; a norm may store its gain as it
is, minus one, or not at all. What they compute is always the same: x @ weight + bias, or
(x − mean) · scale · gain + shift. So a module of another type is read by calling it.
"""

import math
import os
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from alti.read.block import Block
from alti.read.process import works

PROBE = 200.0  # large enough to drown a norm's eps, its square still a float16


def projection(module: nn.Module, x: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """Weight [in, out] and bias [out] of an output projection that was called with x.

    A dtype of None leaves the numbers of a plain module as they are.
    """
    if is_plain(module):
        weight = cast(Tensor, module.weight).detach()
        bias = cast(Tensor | None, module.bias)
        weight = weight.T if type(module) is nn.Linear else weight
        bias = torch.zeros_like(weight[0]) if bias is None else bias.detach()
        return weight.to(dtype=dtype), bias.to(dtype=dtype)
    # half precision would round the difference of two outputs a second time
    dtype = dtype or torch.promote_types(x.dtype, torch.float32)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    bias = module(torch.zeros_like(eye[:1])).to(dtype=dtype)[0]
    return module(eye).to(dtype=dtype) - bias, bias


def is_plain(module: nn.Module) -> bool:
    """Whether a projection's weights can be looked at; those that are elsewhere are a meta's."""
    return type(module) in (nn.Linear, Conv1D) and not cast(Tensor, module.weight).is_meta


@dataclass(frozen=True, slots=True)
class Norm:
    """A LayerNorm or RMSNorm at one input: x ↦ linear(x) · scale + shift."""

    gain: Tensor  # [D]
    shift: Tensor  # [D]
    scale: Tensor  # [B, T]  1 / std
    centred: bool  # subtracts the mean (LayerNorm) or not (RMSNorm)

    def linear(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)).mul_(self.gain) if self.centred else x * self.gain


def norm(module: nn.Module, x: Tensor, y: Tensor) -> Norm:
    """A norm that has just mapped x to y; computed in their dtype."""
    if is_layer_norm(module):
        return _layer_norm(cast(nn.LayerNorm, module), x)
    gain, shift, centred = _probe(module, x)
    unscaled = Norm(gain, shift, x[..., 0], centred)
    # y − shift is this, times 1 / std: no need to know where the module keeps its eps
    direction = unscaled.linear(x)
    length = direction.square().sum(-1)
    scale = ((y - shift) * direction).sum(-1) / length
    # any number is right for a vector of zeros, but 0 could not be divided by
    scale = scale.where(length > 0, 1)
    return Norm(gain, shift, scale, centred)


def is_layer_norm(module: nn.Module) -> bool:
    """Whether a module is a LayerNorm whose weights can be looked at."""
    if type(module) is not nn.LayerNorm:
        return False
    weight = cast(Tensor | None, module.weight)
    return weight is None or not weight.is_meta


def _layer_norm(module: nn.LayerNorm, x: Tensor) -> Norm:
    weight = cast(Tensor | None, module.weight)
    bias = cast(Tensor | None, module.bias)
    gain = torch.ones_like(x[0, 0]) if weight is None else weight.detach().to(x.dtype)
    shift = torch.zeros_like(gain) if bias is None else bias.detach().to(x.dtype)
    # its third result is (var + eps).rsqrt()
    scale = torch.native_layer_norm(x, x.shape[-1:], None, None, module.eps)[2][..., 0]
    return Norm(gain, shift, scale, centred=True)


def _probe(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Gain, shift and whether the mean is subtracted, from the module's outputs for `_probes`."""
    weight = next(module.parameters(), x)
    device = x.device if weight.is_meta else weight.device  # accelerate brings weights when called
    probes, signs = _probes(x.shape[-1], weight.dtype, device, x.dtype)
    outputs: Tensor = module(probes)  # [1, 3, D]
    shift, of_moved, of_signs = outputs.detach().to(x.dtype)[0]
    gain = (of_signs - shift) / signs
    return gain, shift, _subtracts_mean(module, of_moved - of_signs, gain)


@cache
def _probes(
    width: int, dtype: torch.dtype, device: torch.device, wide: torch.dtype
) -> tuple[Tensor, Tensor]:
    """0, and signs whose mean is not 0 and is 0 [1, 3, D]; these by their root mean square [D].

    Not a constant: the mean that a GPU finds of it is off by a digit, which a small eps blows up.
    They are kept: a small model on a GPU would wait longer for making them than for its norms.
    """
    odd = width % 2 and width > 1
    signs = [1.0, -1.0] * (width // 2) + [1.0] * (width % 2)
    if odd:
        signs[-3:] = [0.5, 0.5, -1.0]
    size = math.sqrt(1 - 1.5 / width) if odd else 1.0
    with torch.inference_mode(False):
        moved = [(sign - 1) / 2 for sign in signs]
        probes = torch.tensor([[[0.0] * width, moved, signs]], dtype=dtype, device=device)
        return PROBE * probes, probes[0, 2].to(wide) / size


_centred: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def _subtracts_mean(module: nn.Module, change: Tensor, gain: Tensor) -> bool:
    """Whether nothing changes when a constant is added and the rest halved; else 0.2 · gain does.

    This depends on a module's code alone, so it is asked once: a GPU has to be waited for, and
    while a CUDA graph is captured it cannot be.
    """
    if module in _centred:
        return _centred[module]
    changed, size = (float(x.abs().max()) for x in (change, gain))
    centred = changed < 0.1 * size
    if size > 0:  # else nothing was asked
        _centred[module] = centred
    return centred


FUSED = "alti.read.triton_norms"


class Call(NamedTuple):
    """A module that was called."""

    module: nn.Module
    input: Tensor
    output: Tensor


def carried(block: Block, call: Call) -> Block:
    """A block carried through a norm that read its output, or that plus a feed-forward layer's."""
    same = call.input.data_ptr() == block.output.data_ptr()
    fused = fused_for(block.scale.device, block.scale.dtype)
    if fused and is_layer_norm(call.module):
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

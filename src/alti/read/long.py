"""Which texts are long: their attention is not kept, but computed again, some rows at a time."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from alti.read.cuda_capture import capturing
from alti.read.modules import network, stacks_of

LONG = 1536  # tokens; below, keeping attention is faster and costs little


def is_long_text(tokens: int) -> bool:
    return tokens >= LONG


def is_long(model: nn.Module, tensors: Mapping[str, Any]) -> bool:
    """Whether a batch has to be read by rows, and the model's family can be.

    Families that compute attention in modules of their own cannot: their probabilities are what the
    module has written. Neither can encoder–decoders, masks of four dimensions, and layers that are
    used more than once.
    """
    ids = tensors.get("input_ids")
    mask = tensors.get("attention_mask")
    if ids is None or not is_long_text(ids.shape[-1]) or capturing():
        return False
    if mask is not None and mask.dim() != 2:
        return False
    return can_be_long(model)


def can_be_long(model: nn.Module) -> bool:
    """Whether a model's attention can be computed by rows, and its layers one at a time."""
    stacks = stacks_of(model)
    sites = [site for stack, _ in stacks for site in stack.sites]
    if len(stacks) != 1 or any(site.probs or site.own or site.cross for site in sites):
        return False
    layers = getattr(network(model).config, "num_hidden_layers", None)
    return len(stacks[0][1]) == layers  # ALBERT uses one many times

"""Models whose layers pass no gradients on: what they cannot do is said in one sentence.

Most of them are quantised.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import DecompositionError, UnsupportedModelError

NO_GRADIENTS = ".*an autograd kernel was not registered"  # a warning of torch's
INFERENCE = "Inference tensors cannot be saved"  # what it says of weights without gradients
LIBRARIES = ("bitsandbytes", "torchao", "optimum", "gptqmodel", "awq", "hqq")


def is_quantised(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] in LIBRARIES


@contextmanager
def said_in_one_sentence(model: nn.Module, name: str) -> Iterator[None]:
    """Say of a method that fails on quantised layers that they are why.

    Some of them answer without autograd: gradients that went around them would be wrong.
    """
    layers = _quantised(model)
    hooks = [layer.register_forward_hook(require_gradients) for layer in layers]
    try:
        with without_gradients_said(model, name), warnings.catch_warnings():
            if layers:
                warnings.filterwarnings("error", NO_GRADIENTS)
            yield
    except DecompositionError as error:
        if not layers:
            raise
        raise UnsupportedModelError(
            f"this model has {_kind(layers)} layers, whose rounding leaves its parts too far from "
            "what it computes: explain the model not quantised"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def without_gradients_said(
    model: nn.Module, what: str, instead: str = "use alti or occlusion"
) -> Iterator[None]:
    """Say of what fails because weights pass no gradients on that they are why."""
    try:
        yield
    except (RuntimeError, UserWarning) as error:
        if INFERENCE in str(error):
            raise UnsupportedModelError(
                f"{what} takes gradients, and there are none through the weights of this model, "
                f"made in torch.inference_mode: load it outside of that mode, or {instead}"
            ) from error
        layers = _quantised(model)
        ours = isinstance(error, RuntimeError) or re.match(NO_GRADIENTS, str(error))
        if not layers or isinstance(error, torch.OutOfMemoryError) or not ours:
            raise
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise UnsupportedModelError(
            f"{what} cannot be computed: {_kind(layers)} layers pass no gradients on here "
            f"({reason}); {instead}, or the model not quantised"
        ) from error


def require_gradients(layer: nn.Module, given: tuple[Any, ...], output: Any) -> None:
    """A hook: raise where a layer was given a tensor with a history and its output has none."""
    traced = any(isinstance(x, Tensor) and x.requires_grad for x in given)
    if traced and torch.is_grad_enabled() and not output.requires_grad:
        raise RuntimeError("they answer without autograd")


def _kind(layers: list[nn.Module]) -> str:
    return type(layers[0]).__name__


def _quantised(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if is_quantised(module)]

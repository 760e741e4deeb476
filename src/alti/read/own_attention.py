"""Captures attention inside a module that takes the softmax and mixes the values by itself.

Some families neither use transformers' attention interface nor pass their probabilities through a
module (`Site.own`). While such a module runs, its softmax and the product of what comes out of it
are watched as torch functions.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Function = Callable[..., Any]

SOFTMAX: set[Function] = {torch.softmax, Tensor.softmax, functional.softmax}
PRODUCT: set[Function] = {torch.matmul, Tensor.matmul, Tensor.__matmul__}


class Watcher(Protocol):
    def added_to_scores(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """What is added to the scores [B, H, T, S] before the softmax."""

    def before_mixing(self, probs: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Values are about to be mixed; what is returned must be equal to the two."""

    def after_attention(self, probs: Tensor, value: Tensor) -> None:
        """Attention was computed: probabilities [B, H, T, S] and values [B, H, S, d]."""


class OwnAttention(TorchFunctionMode):
    """Reports the attention of the modules that are watched."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self.watcher = watcher
        self.inside = False
        self.probs: Tensor | None = None

    def watch(self, inside: bool) -> None:
        """A module that mixes by itself begins, or has ended."""
        self.inside = inside
        self.probs = None

    def __torch_function__(
        self, function: Function, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.inside and function in SOFTMAX:
            return self._softmax(function, args[0], *args[1:], **kwargs)
        if self.inside and function in PRODUCT and self._is_attention(args[0]):
            return self._product(function, *args)
        if self.inside and function is Tensor.to and self._is_attention(args[0]):
            self.probs = function(*args, **kwargs)  # in the dtype of the values
            return self.probs
        return function(*args, **kwargs)

    def _softmax(self, function: Function, scores: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        added = self.watcher.added_to_scores(None, scores.dtype)
        probs: Tensor = function(scores if added is None else scores + added, *args, **kwargs)
        self.probs = probs
        return probs

    def _is_attention(self, x: Any) -> bool:
        """Whether a tensor is the probabilities themselves, or a view of them."""
        probs = self.probs
        return probs is not None and x.data_ptr() == probs.data_ptr() and x.shape == probs.shape

    def _product(self, function: Function, probs: Tensor, value: Tensor) -> Any:
        self.probs = None
        probs, value = self.watcher.before_mixing(probs, value)
        groups = probs.shape[1] // value.shape[1]  # heads that share a value
        self.watcher.after_attention(probs, value.repeat_interleave(groups, dim=1))
        return function(probs, value)

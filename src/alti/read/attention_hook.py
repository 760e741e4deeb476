"""Captures attention at transformers' attention interface.

While a model is read its attention implementation is called "alti_over_sdpa" (say). For the thread
that reads, that is the family's own eager attention, captured; for every other thread it is still
sdpa: the numbers of other threads do not change.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from alti._errors import UnsupportedModelError
from alti.read.attention_call import AttentionCall, EagerAttention, added, meant, repeated
from alti.read.cuda_capture import capturing
from alti.read.modules import evaluating

PREFIX = "alti_over_"


class Listener(Protocol):
    needs_mask: bool  # attention adds its mask even where that masks nothing
    by_rows: bool  # attention goes to `attend`, and no mask of numbers is made

    def attend(self, call: AttentionCall) -> Tensor:
        """Compute attention: what it mixes, [B, T, H, d]."""

    def before_attention(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention is about to be computed from these; what is returned must be equal to them."""

    def added_to_scores(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """What attention adds to its scores [B, H, T, S], given the mask that it would add."""

    def after_attention(self, probs: Tensor, value: Tensor) -> None:
        """Attention was computed: probabilities [B, H, T, S] and values [B, H, S, d]."""


_listener: ContextVar[Listener | None] = ContextVar("alti_listener", default=None)


def is_listening(listener: Listener) -> bool:
    """Whether this thread reads a model for that listener, and is not paused."""
    return _listener.get() is listener


@contextmanager
def paused() -> Iterator[None]:
    """Modules may be called in here without anything being captured."""
    with reporting_to(None):
        yield


@contextmanager
def reporting_to(listener: Listener | None) -> Iterator[None]:
    """Inside `capturing_attention`: this thread reads for that listener, or for none."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def capturing_attention(model: nn.Module, listener: Listener) -> Iterator[None]:
    """Evaluation mode, with attention reported to `listener`; the model is restored afterwards."""
    with evaluating(model) as modules:
        # getattr would search every module in vain
        candidates = (vars(module).get("config") for module in modules)
        configs = {
            id(config): config for config in candidates if isinstance(config, PreTrainedConfig)
        }
        before = [(config, config._attn_implementation_internal) for config in configs.values()]
        token = _listener.set(listener)
        try:
            for config, name in before:
                config._attn_implementation_internal = _capturing(name)
            yield
        finally:
            for config, name in before:
                config._attn_implementation_internal = name
            _listener.reset(token)


@cache
def _capturing(before: str | None) -> str:
    """Register, once, what replaces the implementation `before` and return its name."""
    if before is not None and before.startswith(PREFIX):  # a walk inside a walk
        return before
    AttentionInterface.register(PREFIX + str(before), _attention_over(before))
    AttentionMaskInterface.register(PREFIX + str(before), _mask_over(before))
    return PREFIX + str(before)


def _attention_over(before: str | None) -> Callable[..., Any]:
    """Eager attention, reported to the listener; without one, the implementation `before`."""

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        eager = _eager(module)
        listener = _listener.get()
        if listener is None:
            plain = ALL_ATTENTION_FUNCTIONS.get_interface(before, eager)
            return plain(module, query, key, value, attention_mask, *args, **kwargs)
        if listener.by_rows:
            plain = ALL_ATTENTION_FUNCTIONS.get_interface(before, eager)
            given = module, query, key, value, attention_mask, args, kwargs
            return listener.attend(AttentionCall(eager, plain, before, *given)), None
        query, key, value = listener.before_attention(query, key, value)
        attention_mask, blind = meant(attention_mask, before, query.dtype)
        attention_mask = listener.added_to_scores(attention_mask, query.dtype)
        output, probs = eager(module, query, key, value, attention_mask, *args, **kwargs)
        if blind is not None:
            output = output.masked_fill(blind.transpose(1, 2), 0)
            probs = probs.masked_fill(blind, 0)
        listener.after_attention(probs, repeated(value, probs.shape[1]))
        return output, probs

    return attention


def _mask_over(before: str | None) -> Callable[..., Any]:
    """The mask that eager attention adds; without a listener, the mask of `before`."""

    def mask(*args: Any, **kwargs: Any) -> Any:
        listener = _listener.get()
        if listener is None and before in ALL_MASK_ATTENTION_FUNCTIONS:
            return ALL_MASK_ATTENTION_FUNCTIONS[before](*args, **kwargs)
        if listener is not None and listener.by_rows:
            return ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](*args, **kwargs)
        shown = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](
            *args, **{**kwargs, "allow_is_causal_skip": False}
        )
        needed = capturing() or (listener is not None and listener.needs_mask)
        if shown is None or (not needed and shown.all()):
            return None  # nothing is masked: spares every layer an addition of its size
        return added(shown, kwargs.get("dtype", torch.float32))

    return mask


def _eager(module: nn.Module) -> EagerAttention:
    """The eager attention of the file that a module's class was written in."""
    for cls in type(module).__mro__:
        file = sys.modules.get(cls.__module__)
        eager: EagerAttention | None = getattr(file, "eager_attention_forward", None)
        if eager is not None:
            return eager
    raise UnsupportedModelError(
        f"{type(module).__name__} has no eager attention whose probabilities could be read"
    )

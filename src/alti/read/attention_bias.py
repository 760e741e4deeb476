"""Runs a model with a bias on its attention: a key counts exp(bias) times in the softmax.

The bias is added where the family's own mask is: after scaling and soft caps, beside position
biases and windows. In families that compute attention in modules of their own it comes behind the
softmax, which is the same: probabilities times exp(bias), divided by their sum. A bias of 0 is the
model itself, one of −inf hides a key.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from alti._errors import UnsupportedModelError
from alti.read.affine import Call
from alti.read.attention_call import AttentionCall, Tile
from alti.read.by_layer import Tape
from alti.read.events import Reader, telling
from alti.read.messages import Columns
from alti.read.modules import call, network


def with_bias(model: nn.Module, inputs: Mapping[str, Any], bias: Tensor | Sequence[Tensor]) -> Any:
    """The model's output where `bias` [B, 1, T, T] is added to the scores of all attention.

    Or one bias to each attention, in the order of computation.

    Gradients flow back into it. The model is left as it was, also after an exception.
    """
    inner = network(model)
    reader = _Reader(inner, bias)
    with reader.listening(), telling(inner, back=torch.is_grad_enabled()):
        output = inner(**{"return_dict": True, **inputs})
    if not reader.count:
        raise UnsupportedModelError(
            f"{inner.config.model_type}: no attention was seen that a bias could be added to: use "
            "absence or occlusion"
        )
    return output


def bias_of(sources: Tensor, logs: Tensor, rows: slice, seen: int) -> Tensor:
    """What is added to the scores of some rows for the first keys: [B, 1, n, S'].

    It is the number [B, S] of the source [B, T] that a key is of, and 0 where that is −1 or the
    row's own.
    """
    seen_sources = sources[:, :seen]
    keys = of_tokens(seen_sources, logs)[:, None]  # [B, 1, S']
    apart = (seen_sources >= 0)[:, None] & (sources[:, rows, None] != seen_sources[:, None])
    return torch.where(apart, keys, 0)[:, None]


def of_tokens(sources: Tensor, logs: Tensor) -> Tensor:
    """The number of the source that each token is of: [B, T]."""
    return logs.gather(1, sources.clamp_min(0))


@contextmanager
def biased_by_layer(
    model: nn.Module, inputs: Mapping[str, Any], sources: Tensor, logs: Tensor
) -> Iterator[tuple[Any, Tape]]:
    """The same for a long text: the model's output, and a tape to take gradients with in here.

    Gradients flow back into `logs`, from which `bias_of` makes the bias where it is added.
    """
    inner = network(model)
    reader = _LongReader(inner, sources, logs)
    with torch.enable_grad(), reader.listening(), reader.tape.recording() as tape:
        yield call(inner, inputs), tape


class _LongReader(Reader):
    """Adds a bias to every attention, which is computed by rows, or on a GPU in fused kernels."""

    def __init__(self, model: PreTrainedModel, sources: Tensor, logs: Tensor) -> None:
        super().__init__(model, by_rows=True)
        self.tape = Tape(self)
        self.sources = sources
        self.logs = logs

    def hooks(self) -> Iterator[RemovableHandle]:
        return iter(())

    def attend(self, call: AttentionCall) -> Tensor:
        return self.tape.attend(call, self._mixed, self._back, self.logs)

    def _mixed(self, call: AttentionCall) -> Tensor:
        if call.fused is not None:
            mixed: Tensor = call.fused.forward(call, self._dim(call), output=True)[1]
            return mixed
        parts = [
            tile.run(*tile.operands, self._bias(self.logs, rows, tile))[0]
            for rows, tile in call.tiles()
        ]
        return torch.cat(parts, 1)

    def _bias(self, logs: Tensor, rows: slice, tile: Tile) -> Tensor:
        return bias_of(self.sources, logs, rows, tile.key.shape[2]).to(tile.dtype)

    def _dim(self, call: AttentionCall) -> Any:
        return call.fused.Dim(self.sources, of_tokens(self.sources, self.logs.detach()))

    def _back(self, call: AttentionCall, output: Tensor, slope: Tensor) -> tuple[Any, ...]:
        """Gradients of queries, keys, values and logs."""
        if call.fused is not None:
            return self._fused_back(call, output, slope)
        query, key, value, logs = (
            torch.zeros_like(x) for x in (call.query, call.key, call.value, self.logs)
        )
        for rows, tile in call.tiles():
            leaves = [x.detach().requires_grad_() for x in (*tile.operands, self.logs)]
            with torch.enable_grad():
                q, k, v, given = leaves
                mixed, _ = tile.run(q, k, v, self._bias(given, rows, tile))
            own = torch.autograd.grad(mixed, leaves, slope[:, rows])
            seen = slice(0, tile.key.shape[2])
            query[:, :, rows] += own[0]
            key[:, :, seen] += own[1]
            value[:, :, seen] += own[2]
            logs += own[3]
        return query, key, value, logs

    def _fused_back(self, call: AttentionCall, output: Tensor, slope: Tensor) -> tuple[Any, ...]:
        dim = self._dim(call)
        sums, _ = call.fused.forward(call, dim)
        asked = Columns("slopes", self.sources)
        slopes = call.fused.backward(call, sums, output, slope, asked=asked, dim=dim)
        columns = slopes.columns.to(self.logs.dtype)
        logs = torch.zeros_like(self.logs).scatter_add(1, self.sources.clamp_min(0), columns)
        return *(x.to(call.query.dtype) for x in slopes[:3]), logs


class _Reader(Reader):
    """Adds a bias to every attention of a forward pass."""

    def __init__(self, model: PreTrainedModel, bias: Tensor | Sequence[Tensor]) -> None:
        super().__init__(model)
        self.given = bias

    @property
    def bias(self) -> Tensor:
        """That of the attention that is computed next."""
        return self.given if isinstance(self.given, Tensor) else self.given[self.count]

    def hooks(self) -> Iterator[RemovableHandle]:
        for stack, layers in self.stacks:
            for layer in layers:
                yield self.at_start(layer, lambda x: None)
                for site in stack.sites:
                    if site.probs:
                        yield self.after(layer, site.probs, self._reweighed)

    def added_to_scores(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
        # converted at every layer, so that gradients of many layers are added in the bias's dtype
        bias = self.bias.to(dtype)
        return bias if mask is None else mask + bias

    def after_attention(self, probs: Tensor, value: Tensor) -> None:
        self.count += 1

    def _reweighed(self, call: Call) -> Tensor:
        """Probabilities [B, H, T, T] as they would be with the bias inside the softmax."""
        weighed = call.output * self.bias.exp().to(call.output)
        self.count += 1
        return weighed / weighed.sum(-1, keepdim=True).clamp_min(torch.finfo(weighed.dtype).tiny)

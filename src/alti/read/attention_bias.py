"""Runs a model with a bias on its attention: a key counts exp(bias) times in the softmax.

The bias is added where the family's own mask is: after scaling and soft caps, beside position
biases and windows. In families that compute attention in modules of their own it comes behind the
softmax, which is the same: probabilities times exp(bias), divided by their sum. A bias of 0 is the
model itself, one of −inf hides a key.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from alti.read.events import Reader
from alti.read.modules import call, network


def with_bias(model: nn.Module, inputs: Mapping[str, Any], bias: Tensor | Sequence[Tensor]) -> Any:
    """The model's output where `bias` [B, 1, T, T] is added to the scores of all attention.

    Or one bias to each attention, in the order of computation.

    Gradients flow back into it. The model is left as it was, also after an exception.
    """
    inner = network(model)
    reader = _Reader(inner, bias)
    with reader.listening():
        output = inner(**{"return_dict": True, **inputs})
    if not reader.count:
        raise UnsupportedModelError(
            f"{inner.config.model_type}: no attention was seen that a bias could be added to: use "
            "absence or occlusion"
        )
    return output


# the bias of some rows [B, 1, n, S'] to the first S' keys, from one number for each source [B, S]
BiasOf = Callable[[Tensor, slice, int], Tensor]


@contextmanager
def biased_by_layer(
    model: nn.Module, inputs: Mapping[str, Any], sources: Tensor, bias: BiasOf
) -> Iterator[tuple[Any, Tape]]:
    """The same for a long text: the model's output, and a tape to take gradients with in here.

    Gradients flow back into `sources`, from which `bias` is made where it is added.
    """
    inner = network(model)
    reader = _LongReader(inner, sources, bias)
    with torch.enable_grad(), reader.listening(), reader.tape.recording() as tape:
        yield call(inner, inputs), tape


class _LongReader(Reader):
    """Adds a bias to every attention, which is computed by rows."""

    def __init__(self, model: PreTrainedModel, sources: Tensor, bias: BiasOf) -> None:
        super().__init__(model, by_rows=True)
        self.tape = Tape(self)
        self.sources = sources
        self.bias = bias

    def hooks(self) -> Iterator[RemovableHandle]:
        return iter(())

    def attend(self, call: AttentionCall) -> Tensor:
        return self.tape.attend(call, self._mixed, self._back, self.sources)

    def _mixed(self, call: AttentionCall) -> Tensor:
        parts = [
            tile.run(*tile.operands, self._bias(self.sources, rows, tile))[0]
            for rows, tile in call.tiles()
        ]
        return torch.cat(parts, 1)

    def _bias(self, sources: Tensor, rows: slice, tile: Tile) -> Tensor:
        return self.bias(sources, rows, tile.key.shape[2]).to(tile.query.dtype)

    def _back(self, call: AttentionCall, slope: Tensor) -> tuple[Tensor, ...]:
        """Gradients of queries, keys, values and sources."""
        query, key, value, sources = (
            torch.zeros_like(x) for x in (call.query, call.key, call.value, self.sources)
        )
        for rows, tile in call.tiles():
            leaves = [x.detach().requires_grad_() for x in (*tile.operands, self.sources)]
            with torch.enable_grad():
                q, k, v, given = leaves
                output, _ = tile.run(q, k, v, self._bias(given, rows, tile))
            own = torch.autograd.grad(output, leaves, slope[:, rows])
            seen = slice(0, tile.key.shape[2])
            query[:, :, rows] += own[0]
            key[:, :, seen] += own[1]
            value[:, :, seen] += own[2]
            sources += own[3]
        return query, key, value, sources


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

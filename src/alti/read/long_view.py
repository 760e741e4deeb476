"""The linear view of a long text: gradients go through one layer at a time, attention by rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from alti.read.attention_call import AttentionCall, Tile, repeated
from alti.read.by_layer import Tape
from alti.read.linear_view import (
    Effects,
    Straightened,
    StraightFunctions,
    View,
    linear_view,
    require_linear,
    trained_biases,
)
from alti.read.long import is_long
from alti.read.messages import Columns, Messages, Receiver
from alti.read.modules import call, network
from alti.read.verdicts import Place, Verdicts, relative, spread
from alti.read.walk import COMPARED


@contextmanager
def viewing(
    model: nn.Module, inputs: Mapping[str, Any], *, value: float = 1.0, response: float = 0.0
) -> Iterator["View | LongView"]:
    """A linear view whose effects can be asked for in here; that of a long text layer by layer."""
    if not is_long(model, inputs):
        yield linear_view(model, inputs, value=value, response=response)
        return
    inner = network(model)
    require_linear(inner)
    reader = _Reader(inner, value, response, by_rows=True)
    tape = reader.tape = Tape(reader)
    with torch.enable_grad(), reader.listening(), tape.recording(), StraightFunctions():
        output = call(inner, inputs)
        yield LongView(output, trained_biases(inner), tape, reader)


@dataclass(frozen=True, slots=True)
class LongView:
    """What a `View` is, without the activations of all layers."""

    output: Any
    biases: list[Tensor] | None
    tape: Tape
    reader: "_Reader"

    @property
    def starts(self) -> list[Tensor]:
        return [self.tape.start]

    @property
    def others(self) -> list[Tensor]:
        return self.biases or []

    def effects(self, values: Tensor, receiver: Receiver | None = None) -> Iterator[Effects]:
        """As those of a `View`."""
        behind = self.others if receiver is None else []
        self.reader.receiver = receiver

        def reach(layer: int, k: int) -> None:
            self.reader.reached = layer, k

        for own, *others in self.tape.back(values, behind, reach):
            self.reader.verdicts.conclude()
            assert own is not None
            yield [own], others


class _Reader(Straightened):
    """Computes the gradients of attention by rows, or on a GPU in fused kernels."""

    tape: Tape
    receiver: Receiver | None = None
    reached = 0, 0  # the layer and the prediction whose gradients are computed

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verdicts = Verdicts(at_once=False)

    def attend(self, call: AttentionCall) -> Tensor:
        return self.tape.attend(call, AttentionCall.output, self._back)

    def _back(self, call: AttentionCall, output: Tensor, slope: Tensor) -> tuple[Any, ...]:
        """Gradients of queries, keys and values, faded; messages are received on the way."""
        if call.fused is not None and (self.receiver is None or self.receiver.columns is not None):
            return self._fused_back(call, output, slope)
        query, key, value = (torch.zeros_like(x) for x in (call.query, call.key, call.value))
        for rows, tile in call.tiles():
            above = slope[:, rows]
            leaves = self._leaves(tile)
            with torch.enable_grad(), StraightFunctions():
                mixed, probs = tile.run(*leaves)
            slopes = gradients(mixed, leaves, above)
            seen = slice(0, tile.key.shape[2])
            _add(query[:, :, rows], slopes[0], self.response)
            _add(key[:, :, seen], slopes[1], self.response)
            _add(value[:, :, seen], slopes[2], self.value)
            if self.receiver is not None:
                sent = _messages(tile, probs, mixed)
                self.receiver.messages(*self.reached, sent, above.flatten(2), rows)
        return query, key, value

    def _fused_back(self, call: AttentionCall, output: Tensor, slope: Tensor) -> tuple[Any, ...]:
        """The same in a few launches, with sums of messages."""
        if self.reached[1] == 0:
            self._compare(call, output)
        asked = Columns() if self.receiver is None else self.receiver.columns
        slopes = call.fused.backward(
            call, call.sums, output, slope, response=self.response != 0, asked=asked
        )
        if self.receiver is not None:
            self.receiver.sums(*self.reached, slopes.columns)
        given = slopes.query, slopes.key, slopes.value
        return tuple(
            None if x is None else (x * factor).to(call.query.dtype)
            for x, factor in zip(given, (self.response, self.response, self.value), strict=True)
        )

    def _compare(self, call: AttentionCall, output: Tensor) -> None:
        """Judge some rows of what the kernels compute by what the model's attention mixed."""
        mask = None if call.mask is None else call.mask.any(-1)[:, 0]
        positions = spread(None, output.shape[:2], output.device, COMPARED)
        probs = call.again(positions)
        value = repeated(call.value, probs.shape[1]).to(probs.dtype)
        ours = (probs @ value).transpose(1, 2).flatten(2)
        texts = torch.arange(len(output), device=output.device)[:, None]
        seen = None if mask is None else mask.expand(len(output), -1)[texts, positions]
        error = relative(ours, output.flatten(2)[texts, positions], seen)
        ((stack, _),) = self.stacks
        place = Place(self.name, self.reached[0], stack.sites[0])
        self.verdicts.add(place, error, output.dtype, [])

    def _leaves(self, tile: Tile) -> list[Tensor]:
        """Queries, keys and values, of which those that count have gradients."""
        factors = self.response, self.response, self.value
        return [
            x.detach().requires_grad_(factor != 0)
            for x, factor in zip(tile.operands, factors, strict=True)
        ]


def gradients(y: Tensor, leaves: list[Tensor], slope: Tensor) -> list[Tensor | None]:
    """Those of y at each leaf; None at those that ask for none."""
    asking = [x for x in leaves if x.requires_grad]
    if not asking:
        return [None] * len(leaves)
    found = iter(torch.autograd.grad(y, asking, slope))
    return [next(found) if x.requires_grad else None for x in leaves]


def _add(total: Tensor, slope: Tensor | None, factor: float) -> None:
    if slope is not None:
        total.add_(slope, alpha=factor)


def _messages(tile: Tile, probs: Tensor, mixed: Tensor) -> Messages:
    """What attention carried to the rows of a tile."""
    dtype = torch.promote_types(probs.dtype, torch.float32)
    value = repeated(tile.value, probs.shape[1])
    return Messages(probs.detach().to(dtype), value.to(dtype), mixed.detach().flatten(2))

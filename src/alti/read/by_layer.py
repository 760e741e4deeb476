"""Gradients through a model one layer at a time, for long texts.

The model runs once without a graph, and only what each layer read and what its attention mixed are
kept. Then each layer runs again, the last one first, and passes the gradients on: the activations
in memory are those of one layer. The gradients of attention are computed by rows
(`alti.read.attention_call`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from alti._errors import UnsupportedModelError
from alti._progress import expect, step
from alti.read.attention_call import AttentionCall
from alti.read.attention_hook import is_listening
from alti.read.events import Reader, first_of, with_hidden_states

HELD = 1 << 28  # numbers of the gradients at a layer, of several predictions
CACHES = ("past_key_values", "past_key_value", "layer_past")  # a second run would be appended

Slopes = list[Tensor | None]
# (a call, what it mixed, the gradient at that)
Back = Callable[[AttentionCall, Tensor, Tensor], tuple[Tensor | None, ...]]


@dataclass(frozen=True, slots=True)
class LayerCall:
    """A layer, and what it was called with."""

    layer: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        """A call that can be made again."""
        kept = {name: None if name in CACHES else given for name, given in kwargs.items()}
        return cls(layer, args, kept)

    @property
    def x(self) -> Tensor:
        """The hidden states that it read: [B, T, D]."""
        x: Tensor = self.args[0] if self.args else self.kwargs["hidden_states"]
        return x

    def again(self, x: Tensor) -> Tensor:
        """What it makes of others."""
        changed = with_hidden_states(self.args, self.kwargs, lambda _: x)
        assert changed is not None
        args, kwargs = changed
        y: Tensor = first_of(self.layer(*args, **kwargs))
        return y


class Tape:
    """What the layers of one forward pass read. `end`, what the last returned, starts a graph."""

    def __init__(self, reader: Reader) -> None:
        ((_, self.layers),) = reader.stacks
        self.reader = reader
        self.calls: list[LayerCall] = []
        self.mixed: list[Tensor] = []  # [B, T, H, d]  by the attention of each layer
        self.quiet = ExitStack()  # no graph while the layers run
        self.end = torch.empty(0)
        self.running = True
        self.number = 0  # of the layer that runs again

    @contextmanager
    def recording(self) -> Iterator["Tape"]:
        """The model may be run once in here."""
        expect(len(self.layers))
        with ExitStack() as registered, self.quiet:
            for layer in self.layers:
                hooks = (
                    layer.register_forward_pre_hook(self._starts, with_kwargs=True),
                    layer.register_forward_hook(self._ends),
                )
                for hook in hooks:
                    registered.callback(hook.remove)
            yield self

    @property
    def start(self) -> Tensor:
        """What entered the first layer: [B, T, D]."""
        return self.calls[0].x

    def attend(
        self, call: AttentionCall, mix: Callable[[AttentionCall], Tensor], back: Back, *more: Tensor
    ) -> Tensor:
        """What attention mixes, [B, T, H, d]; in a layer that runs again, in its graph.

        `back` makes gradients of query, key, value and `more` out of those of what was mixed.
        """
        given = call.query, call.key, call.value, *more
        call = replace(
            call, query=call.query.detach(), key=call.key.detach(), value=call.value.detach()
        )
        if self.running:
            self.mixed.append(mix(call))
            return self.mixed[-1]
        in_graph: Tensor = _ByRows.apply(call, self.mixed[self.number], back, *given)  # type: ignore[no-untyped-call]  # torch's own
        return in_graph

    def back(
        self, values: Tensor, more: Sequence[Tensor], reach: Callable[[int, int], None]
    ) -> Iterator[Slopes]:
        """Gradients of the values [B, K] of each prediction at `start` and at `more`.

        They go through the layers as many predictions at a time as can be held.
        `reach(layer, k)` is called before those of a prediction pass through a layer.
        """
        every = range(values.shape[1])
        size = max(1, HELD // self.start.numel())
        for chunk in (every[first : first + size] for first in every[::size]):
            expect(len(self.calls))
            slopes = [self._at_end(values[:, k], more, keep=k != every[-1]) for k in chunk]
            for number in reversed(range(len(self.calls))):
                slopes = self._through(number, chunk, slopes, more, reach)
                step()
            yield from slopes

    def _at_end(self, value: Tensor, more: Sequence[Tensor], *, keep: bool) -> Slopes:
        """Gradients at `end` and at `more`."""
        ends = [self.end, *more]
        return list(torch.autograd.grad(value.sum(), ends, retain_graph=keep, allow_unused=True))

    def _through(
        self,
        number: int,
        chunk: range,
        slopes: list[Slopes],
        more: Sequence[Tensor],
        reach: Callable[[int, int], None],
    ) -> list[Slopes]:
        self.number = number
        call = self.calls[number]
        x = call.x.detach().requires_grad_()
        with torch.enable_grad():
            y = call.again(x)
        below = []
        for k, (above, *sums) in zip(chunk, slopes, strict=True):
            reach(number, k)
            keep = k != chunk[-1]
            own = torch.autograd.grad(y, [x, *more], above, retain_graph=keep, allow_unused=True)
            below.append([own[0], *map(_sum, sums, own[1:])])
        return below

    # Hooks

    def _starts(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.running or not is_listening(self.reader):
            return
        if not self.calls:
            self.quiet.enter_context(torch.no_grad())
        self.calls.append(LayerCall.of(layer, args, kwargs))

    def _ends(self, layer: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not self.running or not is_listening(self.reader):
            return None
        step()
        y = first_of(output)
        if len(self.calls) < len(self.layers):
            return None
        if [call.layer for call in self.calls] != self.layers:
            raise UnsupportedModelError(
                f"{self.reader.name}: the layers do not follow each other, so a long text cannot "
                "be read one layer at a time"
            )
        self.quiet.close()
        self.running = False
        self.end = y.detach().requires_grad_()
        return (self.end, *output[1:]) if isinstance(output, tuple | list) else self.end


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


class _ByRows(torch.autograd.Function):
    """Attention in a graph that keeps no probabilities."""

    @staticmethod
    def forward(ctx: Any, call: AttentionCall, output: Tensor, back: Back, *tensors: Tensor) -> Any:
        ctx.call = call
        ctx.output = output
        ctx.back = back
        return output

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:  # [B, T, H, d]
        return None, None, None, *ctx.back(ctx.call, ctx.output, slopes[0])

"""What is checked about a whole forward pass: reading a model changes nothing, and nothing but attention mixes tokens.

`alti.blocks` proves each attention block. Between the blocks a Transformer computes every position by itself; if it did
not, products of maps would be wrong however exact each map is. `follow` proves that by changing positions and looking
at which others move.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from alti._errors import DecompositionError
from alti.families import Site, Stack
from alti.read.attention_hook import listens, overhearing
from alti.read.comparing import LIMITS, relative
from alti.read.modules import call, evaluating, network, stacks_of

OUTPUT_LIMIT = 1e-5  # at least: the softmax of many float64 models is a float32 one
LAYERS = 10  # a forward pass may be wrong by so much more than a block: every layer rounds
LAST = (
    "last_hidden_state",
    "encoder_last_hidden_state",
    "logits",
)  # of an output, one vector a position


def untouched(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    """What a model says when nobody reads it."""
    inner = network(model)
    exact = torch.autocast(inner.device.type, enabled=False)
    with torch.no_grad(), exact, evaluating(inner):
        return call(inner, inputs)


def require_same(output: Any, real: Any, model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Raise where the output of a model that was read differs from that of the untouched one, padding left out.

    Differences are relative to the largest number of a vector, or to 1: a smaller logit decides nothing.
    """
    inner = network(model)
    ours, theirs = _vectors(output), _vectors(real)
    mask = padding_mask(inputs, inner.config.is_encoder_decoder, theirs)
    size = theirs.abs().amax(-1).clamp_min(1).to(torch.promote_types(theirs.dtype, torch.float32))
    if not bool((size if mask is None else size.where(mask, 1)).isfinite().all()):
        raise DecompositionError(
            f"{inner.config.model_type}: the model itself gives numbers that are not finite for this input, so there "
            "is nothing to compare with: try another dtype, and padding on the right"
        )
    error = float(relative(ours.to(size), theirs.to(size), mask, size).max())
    limit = max(OUTPUT_LIMIT, LAYERS * LIMITS.get(theirs.dtype, LIMITS[torch.bfloat16]))
    if not error <= limit:
        raise DecompositionError(
            f"{inner.config.model_type}: the model that is read gives another output than the untouched one, by "
            f"{error:.1e} of its size, above {limit:.0e}: its attention or its mask is not what the eager attention of "
            "transformers makes of it; load it with attn_implementation='eager', or pass a mask of two dimensions"
        )


def _vectors(output: Any) -> Tensor:
    """The logits of an output or, without a head, its last hidden states."""
    logits = getattr(output, "logits", None)
    found: Tensor = output[0] if logits is None else logits
    return found.detach()


def padding_mask(inputs: Mapping[str, Any], decoder: bool, vectors: Tensor) -> Tensor | None:
    """Which positions of some vectors [B, T, D] are real; None where every one is."""
    mask: Tensor | None = inputs.get("decoder_attention_mask" if decoder else "attention_mask")
    if mask is None or vectors.dim() != 3 or mask.shape != vectors.shape[:2]:
        return None
    return mask.bool()


def follow(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Check that nothing but attention mixes positions, and that what each layer computes is read by the next.

    The model runs once as it is. Then attention is held at what it was, so that every position has to be computed by
    itself: half of the positions are changed where each layer begins, and the others must stay. Halves are taken by
    each bit of a position's number and by its opposite, so every pair of positions is apart in one of them. In a last
    run what attention gives is changed at every position, and has to arrive where the next layer begins.
    """
    inner = network(model)
    follower = _Follower(inner, inputs)
    follower.run(None)
    for bit in range((follower.longest - 1).bit_length()):
        for side in (0, 1):
            follower.run(_Half(follower, bit, side))
    follower.run(_Everywhere(follower))


class _Follower:
    """Runs a model again and again, and hands what happens on its residual stream to one change at a time."""

    def __init__(self, model: PreTrainedModel, inputs: Mapping[str, Any]) -> None:
        self.model, self.inputs, self.name = model, inputs, model.config.model_type
        self.stacks = stacks_of(model)
        self.clean: list[Tensor] = []  # every event's tensor, in the order of the first run
        self.change: _Half | _Everywhere | None = None
        self.event = self.layer = self.longest = 0
        self.begun: set[int] = set()  # stacks
        self.encoder: Tensor | None = None  # real positions of the sources of cross-attention
        self.mask: Tensor | None = None  # of the stack that runs

    def run(self, change: "_Half | _Everywhere | None") -> None:
        self.change, self.event, self.layer = change, 0, 0
        self.begun.clear()
        exact = torch.autocast(self.model.device.type, enabled=False)
        with torch.no_grad(), exact, overhearing(self.model, self), ExitStack() as hooks:
            for handle in self._hooks():
                hooks.callback(handle.remove)
            call(self.model, self.inputs)

    def _hooks(self) -> Iterator[RemovableHandle]:
        for number, (stack, layers) in enumerate(self.stacks):
            for layer in layers:
                start = self._mine(partial(self._start, number, stack))
                yield layer.register_forward_pre_hook(start, with_kwargs=True)
                for site in stack.sites:
                    yield from self._site_hooks(site, layer, last=site is stack.sites[-1])
        yield self.model.base_model.register_forward_hook(self._mine(self._end))

    def _site_hooks(self, site: Site, layer: nn.Module, *, last: bool) -> Iterator[RemovableHandle]:
        if site.value:
            value = layer.get_submodule(site.value)
            yield value.register_forward_hook(self._mine(self._value))
        out = layer.get_submodule(site.out)
        yield out.register_forward_pre_hook(self._mine(self._mixed))
        yield out.register_forward_hook(self._mine(self._branch))
        if last and (end := site.norm or site.then):
            yield layer.get_submodule(end).register_forward_pre_hook(self._mine(self._sum))
        if site.then and not site.residual:  # else the stream goes through a module of its own
            yield layer.get_submodule(site.then).register_forward_hook(self._mine(self._then))

    def _mine(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *event: hook(*event) if listens(self) else None

    # ---- what happens, in the order in which it does

    def _start(
        self,
        number: int,
        stack: Stack,
        layer: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        x = args[0] if args else kwargs["hidden_states"]
        decoder = self.model.config.is_encoder_decoder and any(site.cross for site in stack.sites)
        self.mask = padding_mask(self.inputs, decoder, x)
        if number not in self.begun and self.begun:
            self.encoder = padding_mask(self.inputs, False, self.clean[-1])
        first = number not in self.begun
        self.begun.add(number)
        x = self._next(x, "arrives", f"what enters layer {self.layer}", first)
        self.layer += 1
        return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

    def receive(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, H, T, d] of attention, before it is computed."""
        for name, x in (("queries", query), ("keys", key), ("values", value)):
            self._next(
                x.transpose(1, 2).flatten(2), "reads", f"the {name} of layer {self.layer - 1}"
            )
        return query, key, value

    def hear(self, probs: Tensor, value: Tensor) -> None:
        """Attention is replaced where its output projection reads it."""

    def _value(self, module: nn.Module, args: Any, output: Tensor) -> None:
        self._next(output, "reads", f"the values of layer {self.layer - 1}")

    def _mixed(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._next(args[0], "mixed"), *args[1:])

    def _branch(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return self._next(output, "branch")

    def _sum(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._next(args[0], "sum")

    def _then(self, module: nn.Module, args: Any, output: Any) -> Any:
        return self._next(output, "then") if isinstance(output, Tensor) else None

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        for name in LAST:
            vectors = getattr(output, name, None)
            if isinstance(vectors, Tensor) and vectors.dim() == 3:
                decoder = (
                    self.model.config.is_encoder_decoder and name != "encoder_last_hidden_state"
                )
                self.mask = padding_mask(self.inputs, decoder, vectors)
                self._next(vectors, "ends", "what comes out of the last layer")

    def _next(self, x: Tensor, kind: str, what: str = "", first: bool = False) -> Tensor:
        """Record an event in the first run; in the others, what takes its place."""
        if self.change is None:
            self.clean.append(x.detach().clone())
            self.longest = max(self.longest, x.shape[1] if x.dim() == 3 else 0)
            return x
        clean = self.clean[self.event]
        self.event += 1
        handle: Callable[[Tensor, Tensor, str, bool], Tensor] = getattr(self.change, kind)
        return handle(x, clean, what, first)

    def real(self, x: Tensor) -> Tensor:
        """Which positions of x [B, T, D] are no padding: [B, T]."""
        for mask in (self.mask, self.encoder):
            if mask is not None and mask.shape == x.shape[:2]:
                return mask
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)


class _Half:
    """Half of the positions are changed where a layer begins; the others may not move."""

    def __init__(self, follower: _Follower, bit: int, side: int) -> None:
        self.follower, self.bit, self.side = follower, bit, side

    def _changed(self, x: Tensor) -> Tensor:
        """[T]"""
        return (torch.arange(x.shape[1], device=x.device) >> self.bit) % 2 == self.side

    def arrives(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        self.reads(x, clean, what, first)
        return torch.where(self._changed(x)[:, None], clean + _noise(clean), clean)

    ends = arrives

    def reads(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        others = self.follower.real(x) & ~self._changed(x)
        wide = torch.promote_types(x.dtype, torch.float32)
        error = relative(x.to(wide), clean.to(wide), others)
        if not float(error.max()) <= LIMITS.get(x.dtype, LIMITS[torch.bfloat16]):
            position = int(error.amax(0).argmax())
            raise DecompositionError(
                f"{self.follower.name}: {what} at position {position} depends on other positions: a hook, or a module "
                "between attention blocks, mixes tokens, which attention alone cannot show; take it away"
            )
        return x

    def mixed(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return clean

    def sum(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return x

    branch = then = sum


class _Everywhere:
    """What attention gives is changed at every position; the next layer has to see that."""

    def __init__(self, follower: _Follower) -> None:
        self.follower = follower
        self.moved: Tensor | None = (
            None  # [B, T, D]  by how much the sum of residual and attention has moved
        )
        self.held = False  # the answer of the `then` that reads that sum

    def arrives(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        moved, held = self.moved, self.held
        if not first:
            self.ends(x, clean, what, first)
            if held and moved is not None:
                self._goes_on(x - clean, moved.reshape_as(x), clean)
        self.moved, self.held = None, False
        return clean

    def ends(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        still = (x == clean).all(-1) & self.follower.real(x)  # [B, T]
        changed = None if self.moved is None else (self.moved != 0).any(-1)
        if (
            changed is not None and changed.numel() == still.numel()
        ):  # a branch may be multiplied by 0
            still &= changed.reshape_as(still)
        if bool(still.any()):
            raise DecompositionError(
                f"{self.follower.name}: {what} does not depend on the attention of the layer before it, at position "
                f"{int(still.any(0).int().argmax())}: a hook throws the layer's result away, or `then` in its entry of "
                "alti.FAMILIES names the norm of the sum (norm=)"
            )
        return x

    def _goes_on(self, arrived: Tensor, moved: Tensor, clean: Tensor) -> None:
        """Behind a `then` whose answer is held, the stream is the sum."""
        wide = torch.promote_types(clean.dtype, torch.float32)
        size = torch.maximum(clean.abs(), moved.abs()).amax(-1).to(wide)
        error = relative(arrived.to(wide), moved.to(wide), self.follower.real(clean), size)
        if not float(error.max()) <= LAYERS * LIMITS.get(clean.dtype, LIMITS[torch.bfloat16]):
            raise DecompositionError(
                f"{self.follower.name}: the sum that `then` reads does not go on to the next layer as it is: in its "
                "entry of alti.FAMILIES, name a norm that is applied to the sum with norm="
            )

    def reads(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return x

    def mixed(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return clean

    def branch(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return clean + _noise(clean)

    def sum(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        self.moved = x - clean
        return x

    def then(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        self.held = True
        return clean


def _noise(x: Tensor) -> Tensor:
    """As large as each vector, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(x.shape, generator=generator).to(x.device, torch.float32)
    size = x.float().square().mean(-1, keepdim=True).sqrt().clamp_min(1e-3)
    return (drawn * size).to(x.dtype)

"""Checks of a whole forward pass: reading changes nothing, and only attention mixes tokens.

`alti.read.walk` proves each attention block. Between the blocks a Transformer computes every
position by itself; if it did not, products of maps would be wrong however exact each map is.
`follow` proves that by changing positions and looking at which others move.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations, count
from math import comb
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from alti._errors import DecompositionError
from alti._progress import expect, step
from alti.family import Site, Stack
from alti.read.affine import Call
from alti.read.events import Reader
from alti.read.modules import call, device_of, evaluating, network
from alti.read.verdicts import LIMITS, relative

OUTPUT_LIMIT = 1e-5  # at least: the softmax of many float64 models is a float32 one
LAYERS = 10  # a forward pass may be wrong by so much more than a block: every layer rounds
# of an output, one vector a position
LAST = ("last_hidden_state", "encoder_last_hidden_state", "logits")


def untouched(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    """The output of a model while nothing reads it."""
    inner = network(model)
    exact = torch.autocast(device_of(inner).type, enabled=False)
    with torch.no_grad(), exact, evaluating(inner):
        return call(inner, inputs)


def require_same(output: Any, real: Any, model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Raise where reading a model changed its output, padding left out.

    Differences are relative to the largest number of a vector, or to 1: a smaller logit decides
    nothing.
    """
    config = network(model).config
    ours = _vectors(output)
    theirs = _vectors(real)
    mask = padding_mask(inputs, config.is_encoder_decoder, theirs)
    size = theirs.abs().amax(-1).clamp_min(1).to(torch.promote_types(theirs.dtype, torch.float32))
    if not bool((size if mask is None else size.where(mask, 1)).isfinite().all()):
        raise DecompositionError(
            f"{config.model_type}: the model itself gives numbers that are not finite for this "
            "input, so there is nothing to compare with: try another dtype, and padding on the "
            "right"
        )
    error = float(relative(ours.to(size), theirs.to(size), mask, size).max())
    limit = max(OUTPUT_LIMIT, LAYERS * _limit(theirs))
    if not error <= limit:
        raise DecompositionError(
            f"{config.model_type}: the model that is read gives another output than the untouched "
            f"one, by {error:.1e} of its size, above {limit:.0e}: its attention or its mask is not "
            "what the eager attention of transformers makes of it; load it with "
            "attn_implementation='eager', or pass a mask of two dimensions"
        )


def _limit(x: Tensor) -> float:
    return LIMITS.get(x.dtype, LIMITS[torch.bfloat16])


def _vectors(output: Any) -> Tensor:
    """The logits of an output or, without a head, its last hidden states."""
    logits = getattr(output, "logits", None)
    vectors: Tensor = output[0] if logits is None else logits
    return vectors.detach()


def padding_mask(inputs: Mapping[str, Any], decoder: bool, vectors: Tensor) -> Tensor | None:
    """Which positions of some vectors [B, T, D] are real; None where every one is."""
    mask: Tensor | None = inputs.get("decoder_attention_mask" if decoder else "attention_mask")
    if mask is None or vectors.dim() != 3 or mask.shape != vectors.shape[:2]:
        return None
    return mask.bool()


def follow(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Check that only attention mixes positions, and that each layer reads the one before it.

    The model runs once as it is. Then attention is held at what it was, so that every position has
    to be computed by itself: about half of the positions of all texts are changed, their tokens and
    what enters each layer, and the others must stay; of any two positions each is changed once
    while the other is not (`halves`). In a last run the output of attention is changed at every
    position, and that has to arrive where the next layer begins.
    """
    follower = _Follower(network(model), inputs)
    expect(follower.layers_in_all)
    follower.run(None)
    each = halves(follower.positions)
    expect((len(each) + 1) * follower.layers_in_all)
    for half in each:
        follower.run(_Half(follower, half))
    follower.run(_Everywhere(follower))


def halves(positions: int) -> Tensor:
    """As few halves as tell all positions apart, in both directions: [runs, positions].

    Every position is in half of them, and no two in the same ones: so neither is only where the
    other is too. By Sperner's theorem fewer runs cannot do it.
    """
    runs = next(runs for runs in count() if comb(runs, runs // 2) >= positions)
    chosen = torch.zeros(runs, positions, dtype=torch.bool)
    for position, own in zip(range(positions), combinations(range(runs), runs // 2), strict=False):
        chosen[list(own), position] = True
    return chosen


class _Follower(Reader):
    """Runs a model repeatedly and passes its residual stream to one change at a time."""

    def __init__(self, model: PreTrainedModel, inputs: Mapping[str, Any]) -> None:
        super().__init__(model)
        self.inputs = inputs
        self.clean: list[Tensor] = []  # every event's tensor, in the order of the first run
        self.change: _Half | _Everywhere | None = None
        self.event = 0
        self.started = 0  # layers, in this run
        self.positions = 0  # of all texts
        self.begun: set[int] = set()  # stacks
        self.encoder: Tensor | None = None  # real positions of the sources of cross-attention
        self.mask: Tensor | None = None  # of the stack that is running

    def run(self, change: "_Half | _Everywhere | None") -> None:
        self.change = change
        self.event = 0
        self.started = 0
        self.begun.clear()
        inputs = change.inputs(self.inputs) if isinstance(change, _Half) else self.inputs
        with torch.no_grad(), self.listening():
            call(self.model, inputs)

    def hooks(self) -> Iterator[RemovableHandle]:
        for number, (stack, layers) in enumerate(self.stacks):
            for layer in layers:
                yield self.at_start(layer, partial(self._start, number, stack))
                for site in stack.sites:
                    yield from self._site_hooks(site, layer, last=site is stack.sites[-1])
                if stack.scale:
                    yield self.at_end(layer, partial(self._scaled, layer.get_buffer(stack.scale)))
        yield self.at_end(self.model.base_model, self._end)

    def _site_hooks(self, site: Site, layer: nn.Module, *, last: bool) -> Iterator[RemovableHandle]:
        if site.value:
            yield self.after(layer, site.value, self._value)
        yield self.before(layer, site.out, lambda x: self._next(x, "mixed"))
        yield self.after(layer, site.out, lambda call: self._next(call.output, "branch"))
        if last and (end := site.norm or site.then):
            yield self.before(layer, end, lambda x: self._next(x, "sum"))
        if site.then and not site.residual:  # else the stream goes through a module of its own
            yield self.after(layer, site.added or site.then, self._then)

    # Events, in the order in which they happen

    def _start(self, number: int, stack: Stack, x: Tensor) -> Tensor:
        step()
        cross = any(site.cross for site in stack.sites)
        self.mask = padding_mask(self.inputs, self.model.config.is_encoder_decoder and cross, x)
        first = number not in self.begun
        if first and self.begun:
            self.encoder = padding_mask(self.inputs, False, self.clean[-1])
        self.begun.add(number)
        x = self._next(x, "arrives", f"what enters layer {self.started}", first)
        self.started += 1
        return x

    def before_attention(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        for name, x in (("queries", query), ("keys", key), ("values", value)):
            what = f"the {name} of layer {self.started - 1}"
            self._next(x.transpose(1, 2).flatten(2), "reads", what)
        return query, key, value

    def before_mixing(self, probs: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        what = f"the values of layer {self.started - 1}"
        self._next(value.transpose(1, 2).flatten(2), "reads", what)
        return probs, value

    def after_attention(self, probs: Tensor, value: Tensor) -> None:
        """Attention is replaced where its output projection reads it."""

    def _value(self, call: Call) -> None:
        self._next(call.output, "reads", f"the values of layer {self.started - 1}")

    def _then(self, call: Call) -> Tensor | None:
        return self._next(call.output, "then") if isinstance(call.output, Tensor) else None

    def _scaled(self, factor: Tensor, output: Any) -> None:
        if isinstance(self.change, _Everywhere) and self.change.moved is not None:
            self.change.moved = self.change.moved * factor

    def _end(self, output: Any) -> None:
        for name in LAST:
            vectors = getattr(output, name, None)
            if isinstance(vectors, Tensor) and vectors.dim() == 3:
                encoder = name == "encoder_last_hidden_state"
                decoder = self.model.config.is_encoder_decoder and not encoder
                self.mask = padding_mask(self.inputs, decoder, vectors)
                self._next(vectors, "ends", "what comes out of the last layer")

    def _next(self, x: Tensor, kind: str, what: str = "", first: bool = False) -> Tensor:
        """Record an event in the first run; in the others, return its replacement."""
        if self.change is None:
            self.clean.append(x.detach().clone())
            self.positions = max(self.positions, x.shape[:2].numel() if x.dim() == 3 else 0)
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
    """Half of the positions are changed where text and layers begin; the others may not move."""

    def __init__(self, follower: _Follower, chosen: Tensor) -> None:
        self.follower = follower
        self.chosen = chosen  # of the positions of all texts

    def inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Other tokens at the changed positions: nothing before the first layer may mix them."""
        changed = dict(given)
        for name in ("input_ids", "decoder_input_ids"):
            ids = given.get(name)
            if ids is not None:
                changed[name] = self._other_tokens(ids)
        return changed

    def _other_tokens(self, ids: Tensor) -> Tensor:
        """Tokens of the text itself; padding stays, since some families count positions by it."""
        base = self.follower.model.base_model
        table = getattr(base, "embeddings", None)
        pads = (base.config.pad_token_id, getattr(table, "padding_idx", None))
        known = ids.new_tensor([pad for pad in pads if pad is not None])
        real = torch.isin(ids, known, invert=True)
        tokens = ids[real] if real.any() else ids
        other = torch.where(ids == tokens.min(), tokens.max(), tokens.min())
        return torch.where(self._changed(ids) & real, other, ids)

    def _changed(self, x: Tensor) -> Tensor:
        """[B, T]"""
        return self.chosen[: x.shape[:2].numel()].to(x.device).reshape(x.shape[:2])

    def arrives(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        self.reads(x, clean, what, first)
        return torch.where(self._changed(x)[..., None], clean + _noise(clean), clean)

    ends = arrives

    def reads(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        others = self.follower.real(x) & ~self._changed(x)
        wide = torch.promote_types(x.dtype, torch.float32)
        error = relative(x.to(wide), clean.to(wide), others)
        if not float(error.max()) <= _limit(x):
            position = int(error.amax(0).argmax())
            raise DecompositionError(
                f"{self.follower.name}: {what} at position {position} depends on other positions: "
                "a hook, or a module between attention blocks, mixes tokens, which attention alone "
                "cannot show; remove it"
            )
        return x

    def mixed(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return clean

    def sum(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return x

    branch = then = sum


class _Everywhere:
    """The output of attention is changed at every position; the next layer has to see that."""

    def __init__(self, follower: _Follower) -> None:
        self.follower = follower
        self.moved: Tensor | None = None  # [B, T, D]  how far residual + attention has moved
        self.held = False  # the output of the `then` that reads that sum
        self.stream: Tensor | None = None  # [B, T, D]  what enters the layer that is running

    def arrives(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        if not first:
            self.ends(x, clean, what, first)
            if self.held and self.moved is not None:
                self._require_unchanged(x - clean, self.moved.reshape_as(x), clean)
        self.moved = None
        self.held = False
        self.stream = clean
        return clean

    def ends(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        still = (x == clean).all(-1) & self.follower.real(x)  # [B, T]
        changed = None if self.moved is None else (self.moved != 0).any(-1)
        # a branch may be multiplied by 0
        if changed is not None and changed.numel() == still.numel():
            still &= changed.reshape_as(still)
        if bool(still.any()):
            position = int(still.any(0).int().argmax())
            raise DecompositionError(
                f"{self.follower.name}: {what} does not depend on the attention of the layer "
                f"before it, at position {position}: a hook throws the layer's result away, or "
                "`then` in its entry of alti.FAMILIES names the norm of the sum (norm=)"
            )
        return x

    def _require_unchanged(self, arrived: Tensor, moved: Tensor, clean: Tensor) -> None:
        """While the output of `then` is held, the sum itself has to arrive at the next layer."""
        wide = torch.promote_types(clean.dtype, torch.float32)
        size = torch.maximum(clean.abs(), moved.abs()).amax(-1).to(wide)
        error = relative(arrived.to(wide), moved.to(wide), self.follower.real(clean), size)
        if not float(error.max()) <= LAYERS * _limit(clean):
            raise DecompositionError(
                f"{self.follower.name}: the sum that `then` reads does not go on to the next layer "
                "as it is: in its entry of alti.FAMILIES, name a norm that is applied to the sum "
                "with norm="
            )

    def reads(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return x

    def mixed(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        return clean

    def branch(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        # as large as what it is added to: half precision rounds a small change away
        beside = clean if self.stream is None else self.stream.reshape_as(clean)
        return clean + _noise(clean, beside)

    def sum(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        self.moved = x - clean
        return x

    def then(self, x: Tensor, clean: Tensor, what: str, first: bool) -> Tensor:
        self.held = True
        return clean


def _noise(x: Tensor, beside: Tensor | None = None) -> Tensor:
    """As large as each vector or the one beside it, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(x.shape, generator=generator).to(x.device, torch.float32)
    size = _sizes(x)
    if beside is not None:
        size = size.maximum(_sizes(beside))
    return (drawn * size).to(x.dtype)


def _sizes(x: Tensor) -> Tensor:
    return x.float().square().mean(-1, keepdim=True).sqrt().clamp_min(1e-3)

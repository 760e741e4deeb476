"""What a model says of a text without some of its tokens, for many choices of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from alti.methods.ablation_both import of_both
from alti.methods.logits import Of, require_finite, target_logits, values_at
from alti.methods.progress import report
from alti.methods.types import Inputs, Target
from alti.read.modules import call, evaluating, network

AT_ONCE = 64  # shortened texts that go through the model together, at most
TOKENS = 16_384  # of a batch of them, at most
SMALL = 1_024  # tokens that a batch may have however many it wastes
WASTE = 1.5  # how often a larger one may have the tokens that its texts need
READ = 1_024  # positions of a batch whose logits are read, at most

Layers = list[tuple[Tensor, Tensor]]  # keys and values of every layer, [1, H, P, D]


def values_without(
    model: nn.Module, inputs: Inputs, target: Target, row: int, removed: Tensor, of: Of
) -> Tensor:
    """What is explained of one text without the tokens where `removed` [n, T] is True: [n, K].

    They are deleted and the gap is closed. A prediction is read from the same token as before, or
    from the nearest before it that is left; where a causal model has none, from a stand-in for no
    text. The target's outputs are chosen (`index`). `values_one_by_one` is the definition; here
    texts go together, and a long start that those of a batch share is read once (causal models).
    """
    if not len(removed):
        return torch.zeros(0, target.count, device=removed.device)
    distinct, places = torch.unique(removed, dim=0, return_inverse=True)
    inner = network(model)
    if inputs.split is not None:
        return of_both(inner, inputs, target, row, distinct, of)[places]
    with torch.no_grad(), evaluating(model):
        texts = _shortened(inner, inputs, target, row, distinct)
        batches, shared = _planned(texts, _at_once(inner, inputs, target))
        layers = _layers(inner, texts, shared)
        found: list[Tensor] = []
        order: list[int] = []
        for batch in batches:
            logits = _logits(inner, texts, torch.tensor(batch, device=removed.device), layers)
            require_finite(logits)
            found.append(values_at(inner, logits, target, row, of))
            order += batch
            report(len(order), len(distinct))
        values = torch.cat(found)[torch.tensor(order, device=removed.device).argsort()]
        if texts.nothing is not None and bool(texts.nothing.any()):
            values = _of_nothing(inner, inputs, target, row, of).where(texts.nothing, values)
    return values[places]


def values_one_by_one(
    model: nn.Module, inputs: Inputs, target: Target, row: int, removed: Tensor, of: Of
) -> Tensor:
    """The same, one text after another: the definition."""
    inner = network(model)
    values = []
    with torch.no_grad(), evaluating(model):
        for gone in removed:
            kept = inputs.mask[row] & ~gone
            left = {name: tensor[row : row + 1, kept] for name, tensor in inputs.tensors.items()}
            output = call(inner, left if bool(kept.any()) else emptied(inputs, row))
            if target.position is None:
                values.append(values_at(inner, target_logits(output, target), target, row, of))
                continue
            place = kept.cumsum(0)[target.position[row]][None] - 1  # [1, K]
            logits = target_logits(output, Target(position=place.clamp_min(0)))
            value = values_at(inner, logits, target, row, of)
            if inputs.causal:
                value = value.where(place >= 0, _of_nothing(inner, inputs, target, row, of))
            values.append(value)
    return torch.cat(values)


def emptied(inputs: Inputs, row: int) -> dict[str, Tensor]:
    """A text of one token that stands for none."""
    first = int(inputs.mask[row].int().argmax())
    alone = {
        name: tensor[row : row + 1, first : first + 1] for name, tensor in inputs.tensors.items()
    }
    return alone | {"input_ids": torch.full_like(alone["input_ids"], inputs.pad_id)}


def _of_nothing(inner: PreTrainedModel, inputs: Inputs, target: Target, row: int, of: Of) -> Tensor:
    """What is explained where a causal model has read nothing yet: [1, K]."""
    position = torch.zeros(1, target.count, dtype=torch.long, device=inputs.mask.device)
    logits = target_logits(call(inner, emptied(inputs, row)), Target(position=position))
    return values_at(inner, logits, target, row, of)


@dataclass(frozen=True, slots=True)
class _Texts:
    """One text without some tokens, n times."""

    whole: dict[str, Tensor]  # [T]  input_ids, attention_mask, …
    kept: Tensor  # [n, T]
    bare: Tensor  # [n]  True where no token was left, and one stands for none
    position: Tensor | None  # [n, K]  where predictions are read once gaps are closed
    nothing: Tensor | None  # [n, K]  True where a causal model has nothing to read
    shared: Tensor  # [n]  how many tokens at the start are as in the whole text, and not read
    pad_id: int

    def padded(self, batch: Tensor, start: int) -> dict[str, Tensor]:
        """Some of the texts from a token on, padded on the right: [n, T']."""
        kept = self.kept[batch, start:]
        lengths = kept.sum(1, keepdim=True)
        width = int(lengths.max())
        places = kept.byte().argsort(dim=1, descending=True, stable=True)[:, :width]
        inside = torch.arange(width, device=kept.device) < lengths
        fills = {"input_ids": self.pad_id}
        texts = {
            name: tensor[start:][places].where(inside, fills.get(name, 0))
            for name, tensor in self.whole.items()
        }
        texts["input_ids"][self.bare[batch], 0] = self.pad_id
        before = self.whole["attention_mask"][:start].expand(len(batch), -1)
        texts["attention_mask"] = torch.cat([before, texts["attention_mask"]], 1)
        return texts


def _shortened(
    inner: PreTrainedModel, inputs: Inputs, target: Target, row: int, removed: Tensor
) -> _Texts:
    kept = inputs.mask[row] & ~removed
    reads = _reads(target, row)  # [K]
    if reads is not None and inputs.causal:  # no prediction sees what comes behind it
        kept = kept & (torch.arange(kept.shape[1], device=kept.device) <= reads.max())
    bare = ~kept.any(1)
    stand_in = torch.zeros_like(kept[0])
    stand_in[inputs.mask[row].int().argmax()] = True
    left = torch.where(bare[:, None], stand_in, kept)
    whole = {name: tensor[row] for name, tensor in inputs.tensors.items()}
    shared = torch.zeros_like(bare, dtype=torch.long)
    if reads is None:
        return _Texts(whole, left, bare, None, None, shared, inputs.pad_id)
    places = kept.cumsum(1)[:, reads] - 1  # [n, K]
    position = places.clamp_min(0)
    if inputs.causal and _takes_cache(inner):
        same = (left == inputs.mask[row]).int().cumprod(1).sum(1)
        shared = same.minimum(position.amin(1))
    nothing = places < 0 if inputs.causal else None
    return _Texts(whole, left, bare, position, nothing, shared, inputs.pad_id)


def _reads(target: Target, row: int) -> Tensor | None:
    """The positions of one text that are read: [K]; one that is not real is as a real one."""
    if target.position is None:
        return None
    position = target.position[row]
    if target.real is None or not bool(target.real[row].any()):
        return position
    return position.where(target.real[row], position[target.real[row]][0])


def _at_once(inner: PreTrainedModel, inputs: Inputs, target: Target) -> int:
    """How many texts a batch may have; some models without padding take one."""
    if inner.config.pad_token_id is None and not inputs.causal:
        return 1
    return max(1, min(AT_ONCE, READ // target.count))


def _planned(texts: _Texts, at_once: int) -> tuple[list[list[int]], int]:
    """Batches of the texts, and how many tokens of their start are read once, in a pass before.

    None where that saves no more tokens than the whole text has: it would be a pass more.
    """
    batches = list(_batches(texts, at_once))
    starts = [int(texts.shared[batch].min()) for batch in batches]
    saved = sum(len(batch) * start for batch, start in zip(batches, starts, strict=True))
    if saved > int(texts.whole["attention_mask"].sum()):
        return batches, max(starts)
    apart = replace(texts, shared=torch.zeros_like(texts.shared))
    return list(_batches(apart, at_once)), 0


def _batches(texts: _Texts, at_once: int) -> Iterator[list[int]]:
    """Texts by number, those together that need about as many tokens behind what they share."""
    lengths, shared = texts.kept.sum(1), texts.shared.tolist()
    sizes, order = lengths.tolist(), (lengths - texts.shared).argsort(stable=True).tolist()
    batch: list[int] = []
    for number in order:
        grown = [*batch, number]
        longest = max(sizes[each] for each in grown)
        cost = len(grown) * (longest - min(shared[each] for each in grown))
        needed = sum(sizes[each] - shared[each] for each in grown)
        full = len(batch) == at_once or len(grown) * longest > TOKENS
        if batch and (full or cost > max(SMALL, WASTE * needed)):
            yield batch
            grown = [number]
        batch = grown
    yield batch


def _logits(inner: PreTrainedModel, texts: _Texts, batch: Tensor, layers: Layers | None) -> Tensor:
    """The logits of every prediction about some of the texts: [n, K, C]."""
    start = 0 if layers is None else int(texts.shared[batch].min())
    given: dict[str, Any] = texts.padded(batch, start)
    if layers is not None and start:
        given |= {"past_key_values": _copied(layers, start, len(batch)), "use_cache": True}
    if texts.position is None:
        return target_logits(call(inner, given), Target())
    position = texts.position[batch] - start
    if "logits_to_keep" in signature(inner.forward).parameters:
        columns, position = torch.unique(position, return_inverse=True)
        given["logits_to_keep"] = columns
    return target_logits(call(inner, given), Target(position=position))


# Keys and values of the start that texts share


def _takes_cache(inner: PreTrainedModel) -> bool:
    rotary = repr(getattr(inner.config, "rope_parameters", None))
    by_length = "longrope" in rotary or "dynamic" in rotary  # the start depends on what follows
    return "past_key_values" in signature(inner.forward).parameters and not by_length


def _layers(inner: PreTrainedModel, texts: _Texts, end: int) -> Layers | None:
    """Keys and values of the first tokens, which texts share; None: each text is read whole."""
    if not end:
        return None
    cache = DynamicCache()  # without a config it keeps all keys, those outside a window too
    start = {name: tensor[None, :end] for name, tensor in texts.whole.items()}
    last = {"logits_to_keep": 1} if "logits_to_keep" in signature(inner.forward).parameters else {}
    call(inner, {**start, **last, "past_key_values": cache, "use_cache": True})
    plain = [
        layer for layer in cache.layers if type(layer) is DynamicLayer and layer.is_initialized
    ]
    if not plain or len(plain) < len(cache.layers):
        return None
    if any(layer.keys.shape[-2] != end for layer in plain):
        return None
    return [(layer.keys, layer.values) for layer in plain]


def _copied(layers: Layers, start: int, count: int) -> DynamicCache:
    """A cache of its own for some texts that begin with the same tokens."""
    return DynamicCache(
        [tuple(part[:, :, :start].expand(count, -1, -1, -1) for part in layer) for layer in layers]
    )

"""What an encoder–decoder says without some of the tokens that its two stacks read."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from alti.methods.logits import Of, explained, require_finite, target_logits, values_at
from alti.methods.progress import report
from alti.methods.stacks import parts_of
from alti.methods.types import Inputs, Scores, Target
from alti.read.exactness import untouched
from alti.read.modules import call, evaluating, network

AT_ONCE = 64  # shortened texts that go through the model together
FRAMES = 2  # of a sound's features, that one frame of the encoder stands for


def of_both(
    inner: PreTrainedModel, inputs: Inputs, target: Target, row: int, removed: Tensor, of: Of
) -> Tensor:
    """What is explained of one text without the tokens where `removed` [n, T] is True: [n, K].

    Tokens are deleted from what the encoder and what the decoder reads, and gaps are closed;
    frames of a sound are silenced. A prediction is read from the same token as before, or from the
    nearest before it that is left: a decoder's first token always is.
    """
    assert target.position is not None
    values = []
    with torch.no_grad(), evaluating(inner):
        for start in range(0, len(removed), AT_ONCE):
            gone = removed[start : start + AT_ONCE]
            given, kept = _shortened(inputs, row, gone)
            position = (kept.cumsum(1)[:, target.position[row]] - 1).clamp_min(0)
            logits = target_logits(call(inner, given), Target(position=position))
            require_finite(logits)
            values.append(values_at(inner, logits, target, row, of))
            report(start + len(gone), len(removed))
    return torch.cat(values)


def _shortened(inputs: Inputs, row: int, removed: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """One text without some tokens, n times, and which of the decoder's are left: [n, T']."""
    source, prefix = parts_of(inputs, inputs.mask[row] & ~removed)
    given: dict[str, Tensor] = {}
    for name, kept in (("", source), ("decoder_", prefix)):
        if f"{name}input_ids" not in inputs.tensors:
            continue
        ids, mask = _closed(inputs.tensors[f"{name}input_ids"][row], kept, inputs.pad_id)
        given |= {f"{name}input_ids": ids, f"{name}attention_mask": mask}
    if "input_features" in inputs.tensors:
        given["input_features"] = silenced(inputs.tensors["input_features"][row], source)
    return given, prefix


def _closed(ids: Tensor, kept: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Ids [T] without the gaps of `kept` [n, T], padded on the right, and their mask: [n, T'].

    Where nothing is left, one token of padding stands for nothing.
    """
    lengths = kept.sum(1, keepdim=True).clamp_min(1)
    width = int(lengths.max())
    order = kept.byte().argsort(dim=1, descending=True, stable=True)[:, :width]
    inside = torch.arange(width, device=ids.device) < kept.sum(1, keepdim=True)
    mask = torch.arange(width, device=ids.device) < lengths
    return ids[order].where(inside, pad), mask.long()


def silenced(features: Tensor, kept: Tensor) -> Tensor:
    """Features [F, 2·S] of a sound with silence where `kept` [n, S] is False: [n, F, 2·S]."""
    heard = kept.repeat_interleave(FRAMES, dim=1)[:, None, : features.shape[-1]]
    return torch.where(heard, features, features.amin())


def without_each(model: nn.Module, inputs: Inputs, target: Target, removal: str, of: Of) -> Scores:
    """How much of what is explained is lost without each token, one at a time."""
    inner = network(model)
    output = untouched(model, inputs.tensors)
    target = replace(target, index=target.chosen(target_logits(output, target)), total=False)
    whole = explained(output, target, inner.config, of)  # [B, K]
    scores = whole.new_zeros(*whole.shape, inputs.special.shape[1])
    for row in range(len(whole)):
        places = (~inputs.special[row]).nonzero()[:, 0]
        gone = torch.zeros(len(places), scores.shape[-1], dtype=torch.bool, device=places.device)
        gone[torch.arange(len(places), device=places.device), places] = True
        ask = _masked if removal == "mask" else of_both
        fall = whole[row] - ask(inner, inputs, target, row, gone, of)  # [n, K]
        scores[row, :, places] = fall.T.where(_seen(inputs, target, row, places), 0).to(scores)
    return Scores(scores, output=output)


def _seen(inputs: Inputs, target: Target, row: int, places: Tensor) -> Tensor:
    """Which of some tokens each prediction sees: [K, n]."""
    assert target.position is not None
    return places <= target.position[row, :, None] + (inputs.split or 0)


def _masked(
    inner: PreTrainedModel, inputs: Inputs, target: Target, row: int, gone: Tensor, of: Of
) -> Tensor:
    """The same as `of_both` with mask tokens in the place of what is taken away."""
    assert target.position is not None
    values = []
    fill: Any = inputs.mask_id
    for start in range(0, len(gone), AT_ONCE):
        some = gone[start : start + AT_ONCE]
        given = {
            name: x[row].expand(len(some), *x[row].shape) for name, x in inputs.tensors.items()
        }
        for name, hidden in zip(
            ("input_ids", "decoder_input_ids"), parts_of(inputs, some), strict=True
        ):
            if name in given:
                given[name] = given[name].masked_fill(hidden, fill)
        position = target.position[row].expand(len(some), -1)
        logits = target_logits(untouched(inner, given), Target(position=position))
        values.append(values_at(inner, logits, target, row, of))
    return torch.cat(values)

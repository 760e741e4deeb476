"""Methods that look at the model from outside: take a token away and see, and a guess to compare with."""

import random as randomness
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from alti._errors import UsageError
from alti.methods.logits import logits_of, probabilities
from alti.methods.registry import Inputs, Scores, Target, method
from alti.read.modules import evaluating, network

AT_ONCE = 64  # shortened texts that go through the model together


@method(many_passes=True)
def occlusion(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    removal: Literal["delete", "mask"] = "delete",
) -> Scores:
    """Occlusion: how much the prediction's probability falls without a token (deleted, or masked)."""
    if removal == "mask" and inputs.mask_id is None:
        raise UsageError(
            "removal = 'mask', but this tokenizer has no mask token: use removal='delete'"
        )
    inner = network(model)
    with torch.no_grad(), evaluating(model):
        output = inner(**inputs.tensors, return_dict=True)
        logits = logits_of(output, target.position)
        index = target.chosen(logits)
        full = target.of(probabilities(logits, inner.config), index)
        scores = torch.zeros_like(inputs.mask, dtype=full.dtype)
        reads = (
            None if output.logits.dim() == 2 else target.position
        )  # a classifier finds its position by itself
        at_once = (
            1 if inner.config.pad_token_id is None else AT_ONCE
        )  # some classifiers then take one text at a time
        for row, places in _questions(inputs, reads, at_once):
            some = torch.tensor(places, device=scores.device)
            tensors, position = _without(inputs, reads, row, some, removal)
            left = probabilities(
                logits_of(inner(**tensors, return_dict=True), position), inner.config
            )
            rival = 0 if target.against is None else left[:, target.against[row]]
            scores[row, some] = (full[row] - (left[:, index[row]] - rival)).to(scores)
    return Scores(scores, output=output)


@method
def random(model: nn.Module, inputs: Inputs, target: Target, *, seed: int = 0) -> Scores:
    """Random: scores drawn by chance, the same for the same text and seed; what every method must beat."""
    scores = torch.zeros(inputs.mask.shape)
    for row, (ids, mask) in enumerate(
        zip(inputs.tensors["input_ids"].tolist(), inputs.mask.tolist(), strict=True)
    ):
        real = [i for i, inside in zip(ids, mask, strict=True) if inside]
        draw = randomness.Random(f"{seed} {real}")
        scores[row, : len(real)] = torch.tensor([draw.random() for _ in real])
    return Scores(scores.to(inputs.mask.device))


def _questions(
    inputs: Inputs, reads: Tensor | None, at_once: int
) -> Iterator[tuple[int, list[int]]]:
    """Which tokens of which text are taken away, one at a time.

    The token that a prediction is read from stays, unless it is the last: then the one before it is read.
    """
    for row, (special, mask) in enumerate(
        zip(inputs.special.tolist(), inputs.mask.tolist(), strict=True)
    ):
        kept = None if reads is None or reads[row] == sum(mask) - 1 else int(reads[row])
        places = [i for i, each in enumerate(special) if not each and i != kept]
        for start in range(0, len(places), at_once):
            yield row, places[start : start + at_once]


def _without(
    inputs: Inputs, reads: Tensor | None, row: int, places: Tensor, removal: str
) -> tuple[dict[str, Tensor], Tensor | None]:
    """One text without each of some tokens, as a batch, and the position that its prediction is read from."""
    length = int(inputs.mask[row].sum())
    position = None if reads is None else reads[row].expand(len(places))
    every = torch.arange(length, device=places.device).expand(len(places), -1)
    texts = {
        name: tensor[row, :length].expand(len(places), -1)
        for name, tensor in inputs.tensors.items()
    }
    gone = every == places[:, None]
    if removal == "mask" or length == 1:  # nothing can be deleted from a text of one token
        fill = inputs.pad_id if inputs.mask_id is None or removal == "delete" else inputs.mask_id
        return texts | {"input_ids": texts["input_ids"].masked_fill(gone, fill)}, position
    texts = {name: tensor[~gone].view(len(places), -1) for name, tensor in texts.items()}
    return texts, None if position is None else position - (places <= position).long()

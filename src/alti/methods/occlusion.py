"""Methods that look at a model from outside: take a token away and see; and chance."""

import random as randomness
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from alti._errors import UsageError
from alti.methods.ablation_both import without_each
from alti.methods.logits import Of, explained, target_logits
from alti.methods.progress import at_once, report
from alti.methods.registry import method
from alti.methods.types import Inputs, Scores, Target
from alti.read.modules import evaluating, network

AT_ONCE = 64  # shortened texts that go through the model together


@method(class_specific=True, signed=True, many_passes=True, shortens={"removal": "delete"})
def occlusion(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    removal: Literal["delete", "mask"] = "delete",
    of: Of = "probability",
) -> Scores:
    """Occlusion: how much the probability falls without a token (deleted, or masked)."""
    if removal == "mask" and inputs.mask_id is None:
        raise UsageError(
            "removal = 'mask', but this tokenizer has no mask token: use removal='delete'"
        )
    if inputs.split is not None:
        return without_each(model, inputs, target, removal, of)
    inner = network(model)
    with torch.no_grad(), evaluating(model):
        output = inner(**inputs.tensors, return_dict=True)
        logits = target_logits(output, target)
        target = replace(target, index=target.chosen(logits))
        whole = explained(output, target, inner.config, of)  # [B, K]
        scores = whole.new_zeros(*whole.shape, inputs.mask.shape[1])
        reads = None if output.logits.dim() == 2 else target.position  # a classifier finds its own
        single = inner.config.pad_token_id is None  # then some classifiers take one text at a time
        together = 1 if single else at_once(inputs.mask, AT_ONCE)
        questions = list(_questions(inputs, reads, together))
        total = sum(len(places) for _, places in questions)
        done = 0
        for row, places in questions:
            removed = torch.tensor(places, device=scores.device)
            tensors, position = _without(inputs, reads, row, removed, removal)
            shorter = _of_text(target, row, position, len(places))
            left = explained(
                inner(**tensors, return_dict=True), shorter, inner.config, of
            )  # [n, K]
            if reads is not None and inputs.causal and removal == "delete" and places[0] == 0:
                start = _of_text(target, row, torch.zeros_like(reads[:1]), 1)
                empty = inner(**_emptied(inputs, row), return_dict=True)
                left[:1] = left[:1].where(reads[row] > 0, explained(empty, start, inner.config, of))
            fall = whole[row] - left
            if reads is not None:
                fall = fall.masked_fill(_kept(inputs, reads, row, removed), 0)
            scores[row, :, removed] = fall.to(scores).T
            done += len(places)
            report(done, total)
    return Scores(scores, output=output)


def _of_text(target: Target, row: int, position: Tensor | None, count: int) -> Target:
    """The target of one text, for some copies of it that are read elsewhere."""
    copies = target.changed(lambda tensor: tensor[row].expand(count, -1))
    return replace(copies, position=position)


@method(reads_model=False)
def random(model: nn.Module, inputs: Inputs, target: Target, *, seed: int = 0) -> Scores:
    """Random: scores drawn by chance, the same for the same text and seed; what to beat."""
    count = 1 if target.position is None else target.position.shape[1]
    texts, tokens = inputs.mask.shape
    scores = torch.zeros(texts, count, tokens)
    ids = inputs.ids.tolist()
    for row, (own, mask) in enumerate(zip(ids, inputs.mask.tolist(), strict=True)):
        real = [token for token, inside in zip(own, mask, strict=True) if inside]
        draw = randomness.Random(f"{seed} {real}")
        columns = torch.tensor(mask).nonzero()[:, 0]
        for k in range(count):
            scores[row, k, columns] = torch.tensor([draw.random() for _ in real])
    return Scores(scores.to(inputs.mask.device))


def _questions(
    inputs: Inputs, reads: Tensor | None, at_once: int
) -> Iterator[tuple[int, list[int]]]:
    """Which tokens of which text are taken away, one at a time."""
    rows = zip(inputs.special.tolist(), inputs.mask.tolist(), strict=True)
    for row, (special, mask) in enumerate(rows):
        stays = None
        end = len(mask)
        if reads is not None and inputs.causal:
            end = int(reads[row].max()) + 1  # no prediction sees what comes behind
        elif reads is not None and reads.shape[1] == 1 and reads[row, 0] != sum(mask) - 1:
            stays = int(reads[row, 0])
        places = [i for i, each in enumerate(special[:end]) if not each and i != stays]
        for start in range(0, len(places), at_once):
            yield row, places[start : start + at_once]


def _kept(inputs: Inputs, reads: Tensor, row: int, removed: Tensor) -> Tensor:
    """Where a token is none that a prediction can do without: [n, K].

    The one that it is read from stays, unless it is the last that it sees: then the one before it
    is read. What a prediction does not see is nothing to it.
    """
    if inputs.causal:
        return removed[:, None] > reads[row]
    last = int(inputs.mask[row].sum()) - 1
    return (removed[:, None] == reads[row]) & (reads[row] != last)


def _emptied(inputs: Inputs, row: int) -> dict[str, Tensor]:
    """A text of one token that stands for none: what is left of the first token's own past."""
    first = {name: tensor[row : row + 1, :1] for name, tensor in inputs.tensors.items()}
    return first | {"input_ids": torch.full_like(first["input_ids"], inputs.pad_id)}


def _without(
    inputs: Inputs, reads: Tensor | None, row: int, places: Tensor, removal: str
) -> tuple[dict[str, Tensor], Tensor | None]:
    """One text without each of some tokens, as a batch, and the positions [n, K] that are read."""
    length = int(inputs.mask[row].sum())
    position = None if reads is None else reads[row].expand(len(places), -1)
    every = torch.arange(length, device=places.device).expand(len(places), -1)
    texts = {
        name: tensor[row, :length].expand(len(places), -1)
        for name, tensor in inputs.tensors.items()
    }
    gone = every == places[:, None]
    if removal == "mask" or length == 1:  # nothing can be deleted from a text of one token
        fill = inputs.pad_id
        if removal == "mask" and inputs.mask_id is not None:
            fill = inputs.mask_id
        return texts | {"input_ids": texts["input_ids"].masked_fill(gone, fill)}, position
    texts = {name: tensor[~gone].view(len(places), -1) for name, tensor in texts.items()}
    if position is None:
        return texts, None
    return texts, (position - (places[:, None] <= position).long()).clamp_min(0)

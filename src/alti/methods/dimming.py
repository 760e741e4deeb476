"""Dimming: what each source would bring back while attention to all of them is turned down."""

import random
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alti._errors import AltiWarning, UsageError
from alti.methods.logits import Of, explained, require_finite, target_logits
from alti.methods.proofs import ENOUGH, prove_once
from alti.methods.registry import method
from alti.methods.stacks import places_of
from alti.methods.types import Inputs, Scores, Target
from alti.read.attention_bias import bias_of, biased_by_layer, with_bias
from alti.read.exactness import require_same, untouched
from alti.read.long import is_long
from alti.read.modules import network

BRIGHTER = 10  # times that some sources count in a draw, and at most once


@method(class_specific=True, signed=True, takes_groups=True)
def dimming(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    strength: float = 0.1,
    points: int = 1,
    draws: int = 0,
    seed: int = 0,
    of: Of = "log_prob",
) -> Scores:
    """Dimming: what each token would bring back while attention to all of them is turned down.

    Attention to a source counts m times before the softmax, except from its own tokens. A score is
    the derivative by m where all m are `strength`; or its mean over `points` from 0 to 1 (Gauss and
    Legendre's), or over `draws` in which half of the sources count ten times as much.
    """
    _warn_of_blindness(inputs, target)
    output = untouched(model, inputs.asking(target))
    levels = list(_levels(inputs, strength, points, draws, seed))
    return Scores(brought_back(model, inputs, target, output, levels, of), output=output)


class Blind(AltiWarning):
    """A group holds the token that a prediction is read from, which sees it as ever."""


def _warn_of_blindness(inputs: Inputs, target: Target) -> None:
    if inputs.groups is None or target.position is None:
        return
    read = target.position + (inputs.split or 0)
    if bool((inputs.groups.gather(1, read) >= 0).any()):
        warnings.warn(
            "dimming does not see what a group does to a prediction that is read inside of it: "
            "look at absence or leave_one_out too",
            Blind,
            stacklevel=7,
        )


def brought_back(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    output: Any,
    levels: list[tuple[Tensor, float]],
    of: Of = "log_prob",
) -> Tensor:
    """The mean derivative at some levels, each with its weight: [B, K, S].

    `output` is the undimmed model's: it says what is explained where the target does not.
    """
    logits = target_logits(output, target).detach()
    require_finite(logits)
    target = replace(target, index=target.chosen(logits))
    prove_once(model, "dimming", lambda: _prove_undimmed(model, inputs, output))
    total: Tensor | int = 0
    for level, weight in levels:
        total = total + weight * slopes(model, inputs, target, level, of)[1]
    return torch.as_tensor(total)


def _levels(
    inputs: Inputs, strength: float, points: int, draws: int, seed: int
) -> Iterator[tuple[Tensor, float]]:
    """How much each source counts [B, S], with a weight; the weights sum to 1."""
    if not 0 < strength <= 1:
        raise UsageError(f"strength = {strength} does not dim: give a number above 0, up to 1")
    if points < 1 or draws < 0 or (points > 1 and draws):
        raise UsageError(
            f"points = {points} and draws = {draws} do not go together: give 1 or more points, or "
            "a number of draws"
        )
    if draws:
        for number in range(draws):
            yield _drawn(inputs, strength, number, seed), 1 / draws
    elif points == 1:
        yield inputs.sources_at(strength), 1.0
    else:
        nodes, weights = np.polynomial.legendre.leggauss(points)
        for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
            yield inputs.sources_at((node + 1) / 2), weight / 2


def _drawn(inputs: Inputs, strength: float, number: int, seed: int) -> Tensor:
    """Half of the sources brighter, by chance; every second draw is the one before, inverted."""
    dim = inputs.sources_at(strength)
    chance = random.Random(f"{seed} {number // 2}")
    bits = torch.tensor([chance.random() < 0.5 for _ in range(dim.shape[1])], device=dim.device)
    return torch.where(bits ^ bool(number % 2), min(1.0, BRIGHTER * strength), dim)


def dimmed(model: nn.Module, inputs: Inputs, levels: Tensor) -> Any:
    """The model's output where source s counts levels[:, s] times, [B, S], in the graph.

    A source is seen by its own tokens as ever.
    """
    bias = _bias(inputs.sources, levels.log())
    if inputs.split is None:
        return with_bias(model, inputs.tensors, bias)
    places = places_of(model, inputs)
    return with_bias(model, inputs.tensors, [bias[:, :, row, column] for row, column in places])


def _bias(sources: Tensor, logs: Tensor) -> Tensor:
    """What is added to the scores of every query outside a source to its keys: [B, 1, T, T]."""
    every = sources.shape[1]
    return bias_of(sources, logs, slice(0, every), every)


def slopes(
    model: nn.Module, inputs: Inputs, target: Target, levels: Tensor, of: Of
) -> tuple[Tensor, Tensor]:
    """What is explained [B, K], and its derivative by the level of each source [B, K, S]."""
    if is_long(model, inputs.tensors):
        return _slopes_by_layer(model, inputs, target, levels, of)
    dtype = torch.promote_types(network(model).dtype, torch.float32)
    levels = levels.detach().to(dtype).requires_grad_()
    with torch.enable_grad():
        output = dimmed(model, inputs, levels)
        values = target.joined(explained(output, target, network(model).config, of))  # [B, K]
    last = values.shape[1] - 1
    columns = [
        torch.autograd.grad(value.sum(), levels, retain_graph=k < last)[0]
        for k, value in enumerate(values.unbind(1))
    ]
    return values.detach(), torch.stack(columns, 1)


def _slopes_by_layer(
    model: nn.Module, inputs: Inputs, target: Target, levels: Tensor, of: Of
) -> tuple[Tensor, Tensor]:
    """The same for long texts."""
    dtype = torch.promote_types(network(model).dtype, torch.float32)
    logs = levels.detach().to(dtype).log().requires_grad_()
    with biased_by_layer(model, inputs.asking(target), inputs.sources, logs) as (output, tape):
        values = target.joined(explained(output, target, network(model).config, of))  # [B, K]
        slopes = tape.back(values, [logs], lambda layer, k: None)
        columns = [torch.zeros_like(logs) if own is None else own for _, own in slopes]
    return values.detach(), torch.stack(columns, 1) / levels.to(dtype)[:, None]


def _prove_undimmed(model: nn.Module, inputs: Inputs, output: Any) -> None:
    """Prove that a model whose sources all count once is the model itself."""
    if is_long(model, inputs.tensors):
        inputs = inputs.start(ENOUGH)
        output = untouched(model, inputs.tensors)
    with torch.no_grad():
        same = dimmed(model, inputs, inputs.sources_at(1.0))
    require_same(same, output, model, inputs.tensors)

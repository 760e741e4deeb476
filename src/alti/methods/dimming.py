"""Dimming: what each source would bring back while attention to all of them is turned down."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alti._errors import UsageError
from alti.methods.logits import Of, require_finite, target_logits, values_of
from alti.methods.proofs import prove_once
from alti.methods.registry import method
from alti.methods.types import Inputs, Scores, Target
from alti.read.attention_bias import with_bias
from alti.read.exactness import require_same, untouched
from alti.read.modules import network


@method(class_specific=True, signed=True, takes_groups=True)
def dimming(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    strength: float = 0.25,
    points: int = 1,
    of: Of = "log_prob",
) -> Scores:
    """Dimming: what each token would bring back while attention to all of them is turned down.

    Attention of every other token to a source counts m times before the softmax; a score is the
    derivative by m where all m are `strength`, or the mean of it over `points` between 0 and 1.
    """
    output = untouched(model, inputs.tensors)
    logits = target_logits(output, target)
    require_finite(logits)
    target = replace(target, index=target.chosen(logits))
    levels = list(_levels(strength, points))
    prove_once(model, "dimming", lambda: _prove_undimmed(model, inputs, output))
    scores = [
        weight * slopes(model, inputs, target, inputs.sources_at(level), of)[1]
        for level, weight in levels
    ]
    return Scores(torch.stack(scores).sum(0), output=output)


def _levels(strength: float, points: int) -> Iterator[tuple[float, float]]:
    """The values of m, each with its weight; they sum to 1."""
    if not 0 < strength <= 1:
        raise UsageError(f"strength = {strength} does not dim: give a number above 0, up to 1")
    if points < 1:
        raise UsageError(f"points = {points} is not a number of points: give 1 or more")
    if points == 1:
        yield strength, 1.0
        return
    nodes, weights = np.polynomial.legendre.leggauss(points)
    yield from zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist(), strict=True)


def dimmed(model: nn.Module, inputs: Inputs, levels: Tensor) -> Any:
    """The model's output where source s counts levels[:, s] times, [B, S], in the graph.

    A source is seen by its own tokens as ever.
    """
    return with_bias(model, inputs.tensors, _bias(inputs.sources, levels.log()))


def _bias(sources: Tensor, logs: Tensor) -> Tensor:
    """What is added to the scores of every query outside a source to its keys: [B, 1, T, T]."""
    inside = sources >= 0
    keys = logs.gather(1, sources.clamp_min(0))[:, None]  # [B, 1, T]
    dims = inside[:, None] & (sources[:, :, None] != sources[:, None])  # [B, T, T]
    return torch.where(dims, keys, 0)[:, None]


def slopes(
    model: nn.Module, inputs: Inputs, target: Target, levels: Tensor, of: Of
) -> tuple[Tensor, Tensor]:
    """What is explained [B, K], and its derivative by the level of each source [B, K, S]."""
    levels = levels.detach().requires_grad_()
    with torch.enable_grad():
        logits = target_logits(dimmed(model, inputs, levels), target)
        values = target.of(values_of(logits, network(model).config, of), target.chosen(logits))
        values = target.joined(values)
    last = values.shape[1] - 1
    columns = [
        torch.autograd.grad(value.sum(), levels, retain_graph=k < last)[0]
        for k, value in enumerate(values.unbind(1))
    ]
    return values.detach(), torch.stack(columns, 1)


def _prove_undimmed(model: nn.Module, inputs: Inputs, output: Any) -> None:
    """Prove that a model whose sources all count once is the model itself."""
    with torch.no_grad():
        same = dimmed(model, inputs, inputs.sources_at(1.0))
    require_same(same, output, model, inputs.tensors)

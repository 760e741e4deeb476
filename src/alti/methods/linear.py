"""Signed, class-specific attributions from the linear view of a model."""

import torch
from torch import Tensor, nn

from alti.methods.layerwise import maps_of
from alti.methods.logits import contrast, logits_of, require_finite
from alti.methods.proofs import prove_complete
from alti.methods.registry import Inputs, Scores, Target, method
from alti.mix.contributions import contributions
from alti.read.linear_view import View, gap, linear_view, require_complete
from alti.read.modules import network


@method
def linear(model: nn.Module, inputs: Inputs, target: Target) -> Scores:
    """Linear: each token's exact signed effect on the class, with attention, norms and activations held constant.

    The class is read as its logit against the mean of the others, or against the one that was named. What biases carry
    is the result's `remainder`; scores and biases are checked to make up the class (but in models whose biases are
    frozen).
    """
    view = linear_view(model, inputs.tensors)
    value = _contrast(model, view, target)
    vectors = [view.start, *(view.biases or [])]
    slopes = torch.autograd.grad(value.sum(), vectors, allow_unused=True)
    if view.biases is not None:
        near = target.against is not None  # two logits can be large and their difference small
        least = (
            float(logits_of(view.output, target.position).detach().abs().amax()) if near else 0.0
        )
        require_complete(gap(value.sum(), zip(slopes, vectors, strict=True), least), model)
    scores = _products(slopes[0], view)
    rest = value.detach().to(scores) - scores.sum(-1)  # padding has no effect
    return Scores(scores.where(inputs.mask, 0), output=view.output, extra={"remainder": rest})


@method
def absence(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    value: float = 0.5,
    response: float = 0.1,
    messages: float = 0.5,
) -> Scores:
    """Absence: what speaks for the class and would leave with the token; signed, the first choice for one class.

    Two views of a missing token, each divided by its ℓ1 norm: its vector's effect, what attention carries counting
    `value` and what attention answers counting `response`; and, `messages` times, all that it sent, replaced by what
    the others send.
    """
    prove_complete(model, inputs.tensors, inputs.mask, target.position)
    view = linear_view(model, inputs.tensors, value=value, response=response)
    spoken = _contrast(model, view, target)
    slope, *slopes = torch.autograd.grad(
        spoken.sum(), [view.start, *(sent.mixed for sent in view.messages)]
    )
    vectors = _products(slope, view)
    sent = torch.stack(
        [m.losses(s).sum(1) for m, s in zip(view.messages, slopes, strict=True)]
    ).sum(0)
    parts = [_shares(x.where(inputs.mask, 0)) for x in (vectors, sent)]
    return Scores(parts[0] + messages * parts[1], output=view.output)


@method
def alti_logit(model: nn.Module, inputs: Inputs, target: Target, *, kernel: str = "auto") -> Scores:
    """ALTI-logit: signed effects of the messages that attention carries, traced back to the input with ALTI."""
    prove_complete(model, inputs.tensors, inputs.mask, target.position)
    maps, *_ = maps_of(
        model, inputs, lambda block: contributions(block, kernel=kernel), hold_last=True
    )
    view = linear_view(model, inputs.tensors)
    value = _contrast(model, view, target)
    slopes = torch.autograd.grad(value.sum(), [messages.mixed for messages in view.messages])
    dtype = torch.promote_types(value.dtype, torch.float32)
    scores = torch.zeros_like(
        inputs.mask, dtype=dtype
    )  # Σ_l Σ_ij S^l_ij R^{l−1}_jk, from the last layer down
    for layer in reversed(range(len(slopes))):
        sent = (
            view.messages[layer].effects(slopes[layer]).sum(1)
        )  # [B, T]  by each source, to all targets
        above = (scores[:, None] @ maps[layer].to(scores))[:, 0] if layer < len(maps) else 0
        scores = above + sent
    return Scores(scores.where(inputs.mask, 0), output=view.output)


def _contrast(model: nn.Module, view: View, target: Target) -> Tensor:
    with torch.enable_grad():
        logits = logits_of(view.output, target.position)
        require_finite(logits.detach())
        index = target.chosen(logits)
        alone = target.against is None
        return contrast(logits, index, network(model).config) if alone else target.of(logits, index)


def _products(slope: Tensor, view: View) -> Tensor:
    """Gradient · vector of every token, in float32 at least: [B, T]."""
    dtype = torch.promote_types(slope.dtype, torch.float32)
    return (slope.to(dtype) * view.start.detach().to(dtype)).sum(-1)


def _shares(x: Tensor) -> Tensor:
    return x / x.abs().sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)

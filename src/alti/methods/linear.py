"""Signed, class-specific attributions from the linear view of a model."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from alti.methods.layerwise import maps_of
from alti.methods.logits import contrast, require_finite, target_logits
from alti.methods.proofs import prove_complete
from alti.methods.registry import method
from alti.methods.types import Inputs, Scores, Target
from alti.mix.contributions import contributions
from alti.read.linear_view import Messages, View, gap, linear_view, require_complete
from alti.read.modules import network

Of = Literal["logit", "log_prob"]  # the number that is explained
Sending = Literal["replaced", "first_order", "effects"]  # what a message is compared with


@method(class_specific=True, signed=True)
def linear(model: nn.Module, inputs: Inputs, target: Target, *, of: Of = "logit") -> Scores:
    """Linear: exact signed effects on the class, with attention, norms and activations constant.

    The class is read as its logit against the mean of the others, or against the one that was
    named; with of="log_prob" as the log of its probability. What biases carry is the result's
    `remainder`; scores and biases are checked to make up the class (but in models whose biases are
    frozen).
    """
    view = linear_view(model, inputs.tensors)
    values = _contrast(model, view, target, of)  # [B, K]
    vectors = [view.start, *(view.biases or [])]
    least = _least(view, target, of)
    scores = []
    for value, slopes in _gradients(values, vectors):
        if view.biases is not None:
            pairs = zip(slopes, vectors, strict=True)
            require_complete(gap(value.sum(), pairs, least), model)
        scores.append(_products(slopes[0], view))
    tokens = torch.stack(scores, 1)
    remainder = values.detach().to(tokens) - tokens.sum(-1)  # padding has no effect
    tokens = tokens.where(inputs.mask[:, None], 0)
    return Scores(tokens, output=view.output, extra={"remainder": remainder})


def _combined(vectors: Tensor, mask: Tensor, *, messages: float, **_: Any) -> Tensor:
    """One view of each token [B, K, T, 1], or two, each divided by its ℓ1 norm, added."""
    own, *sent = (x.where(mask[:, None], 0) for x in vectors.unbind(-1))
    return shares(own) + messages * shares(sent[0]) if sent else own


def shares(x: Tensor) -> Tensor:
    return x / x.abs().sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


@method(class_specific=True, signed=True, takes_groups=True, aggregate=_combined)
def absence(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    value: float = 0.5,
    response: float = 0.1,
    messages: float = 0.5,
    rule: Literal["auto", "two_views", "first_order", "effects"] = "auto",
    of: Of = "logit",
) -> Scores:
    """Absence: what speaks for the class and would leave with the token.

    Two views of a missing token, each divided by its ℓ1 norm: its vector's effect, what attention
    carries counting `value` and what attention answers counting `response`; and, `messages` times,
    all that it sent, replaced by what the others send. In causal language models only what it
    sent: to first order, since their attention rests on the first token, which nothing replaces
    ("first_order"); of a group as it is, replaced by nothing ("effects").
    """
    if rule == "auto":
        rule = messages_of(inputs) if inputs.causal else "two_views"
    sending: Sending = "replaced" if rule == "two_views" else rule
    own, sent, output = views(model, inputs, target, value, response, of=of, sending=sending)
    vectors = torch.stack([own, sent] if rule == "two_views" else [sent], -1)  # [B, K, S, 2 or 1]
    mask = inputs.mask if inputs.groups is None else torch.ones_like(own[:, 0]).bool()
    return Scores(_combined(vectors, mask, messages=messages), output=output, vectors=vectors)


def views(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    value: float,
    response: float,
    *,
    of: Of,
    sending: Sending,
) -> tuple[Tensor, Tensor, Any]:
    """Two views of each source [B, K, S], its vectors' effect and its messages', and the output."""
    prove_complete(model, inputs.tensors, inputs.mask, target.read_at)
    view = linear_view(model, inputs.tensors, value=value, response=response)
    values = _contrast(model, view, target, of)
    sites = [sent.mixed for sent in view.messages]
    own = []
    sent = []
    for _, (slope, *slopes) in _gradients(values, [view.start, *sites]):
        own.append(_by_source(_products(slope, view), inputs))
        sent.append(_sent(view, slopes, inputs, sending))
    return torch.stack(own, 1), torch.stack(sent, 1), view.output


def _sent(view: View, slopes: Sequence[Tensor], inputs: Inputs, sending: Sending) -> Tensor:
    """What all messages of each source were worth: [B, S].

    Of a group, those to its own tokens are left out: they leave with it.
    """
    members = None if inputs.groups is None else inputs.members.to(view.messages[0].attn)
    total: Tensor | int = 0
    for sent, slope in zip(view.messages, slopes, strict=True):
        lost = _of_site(sent, slope, members, sending)
        if members is not None:
            lost = lost.masked_fill(members.bool(), 0)
        total = total + lost.sum(1)  # of [B, T, S]
    return torch.as_tensor(total)


def _of_site(sent: Messages, slope: Tensor, members: Tensor | None, sending: Sending) -> Tensor:
    """What the messages of each source to each token were worth at one site: [B, T, S]."""
    if sending == "replaced":
        return sent.losses(slope, members)
    worth = sent.effects(slope) if sending == "effects" else sent.slopes(slope)
    return worth if members is None else worth @ members


def messages_of(inputs: Inputs) -> Literal["first_order", "effects"]:
    """How messages count in a causal language model."""
    return "first_order" if inputs.groups is None else "effects"


def _by_source(scores: Tensor, inputs: Inputs) -> Tensor:
    """Scores of tokens [B, T], added up by group where there are some: [B, S]."""
    if inputs.groups is None:
        return scores
    return (scores[:, None] @ inputs.members.to(scores))[:, 0]


@method(class_specific=True, signed=True)
def alti_logit(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    kernel: str = "auto",
    of: Of = "logit",
) -> Scores:
    """ALTI-logit: signed effects of attention's messages, traced back to the input with ALTI."""
    prove_complete(model, inputs.tensors, inputs.mask, target.read_at)
    maps, *_ = maps_of(
        model, inputs, lambda block: contributions(block, kernel=kernel), hold_last=True
    )
    view = linear_view(model, inputs.tensors)
    values = _contrast(model, view, target, of)
    sites = [sent.mixed for sent in view.messages]
    scores = [_traced(view, slopes, maps, inputs) for _, slopes in _gradients(values, sites)]
    return Scores(torch.stack(scores, 1).where(inputs.mask[:, None], 0), output=view.output)


def _traced(view: View, slopes: Sequence[Tensor], maps: list[Tensor], inputs: Inputs) -> Tensor:
    """Σ_l Σ_ij S^l_ij R^{l−1}_jk, from the last layer down: [B, T]."""
    dtype = torch.promote_types(slopes[0].dtype, torch.float32)
    scores = torch.zeros_like(inputs.mask, dtype=dtype)
    for layer in reversed(range(len(slopes))):
        sent = view.messages[layer].effects(slopes[layer]).sum(1)  # by each source, to all targets
        above: Tensor | int = 0
        if layer < len(maps):
            above = (scores[:, None] @ maps[layer].to(scores))[:, 0]
        scores = above + sent
    return scores


def _contrast(model: nn.Module, view: View, target: Target, of: Of) -> Tensor:
    """What speaks for each prediction, in the graph: [B, K], or [B, 1] for all of them together."""
    with torch.enable_grad():
        logits = target_logits(view.output, target)
        require_finite(logits.detach())
        index = target.chosen(logits)
        if target.against is None:
            return target.joined(contrast(logits, index, network(model).config, of))
        return target.joined(target.of(logits, index))


def _gradients(
    values: Tensor, vectors: Sequence[Tensor]
) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
    """The values [B] of one prediction after another, and their gradients at some vectors."""
    last = values.shape[1] - 1
    for k, value in enumerate(values.unbind(1)):
        yield (
            value,
            torch.autograd.grad(value.sum(), vectors, retain_graph=k < last, allow_unused=True),
        )


def _least(view: View, target: Target, of: Of) -> float:
    """What is rounded on the way to a contrast: two logits can be large, their difference small.

    So can a logit and the mean of all by their probabilities, for a prediction that is sure.
    """
    if target.against is None and of == "logit":
        return 0.0
    return float(target_logits(view.output, target).detach().abs().amax())


def _products(slope: Tensor, view: View) -> Tensor:
    """Gradient · vector of every token, in float32 at least: [B, T]."""
    dtype = torch.promote_types(slope.dtype, torch.float32)
    return (slope.to(dtype) * view.start.detach().to(dtype)).sum(-1)

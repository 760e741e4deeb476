"""Signed, class-specific attributions from the linear view of a model."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from alti.methods.layerwise import Draw, Drawing, maps_of
from alti.methods.logits import contrast, require_finite, target_logits
from alti.methods.proofs import prove_complete
from alti.methods.registry import method
from alti.methods.stacks import places_of
from alti.methods.types import Inputs, Scores, Target
from alti.mix.contributions import Contributions
from alti.mix.joint import Place
from alti.read.backwards import walking_back
from alti.read.linear_view import View, gap, require_complete
from alti.read.long import is_long
from alti.read.long_view import LongView, viewing
from alti.read.messages import Columns, Messages, Receiver
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
    with viewing(model, inputs.asking(target)) as view:
        values = _contrast(model, view, target, of)  # [B, K]
        least = _least(view, target, of)
        scores = []
        for value, (slopes, others) in zip(values.unbind(1), view.effects(values), strict=True):
            if view.biases is not None:
                vectors = [*view.starts, *view.others]
                pairs = zip([*slopes, *others], vectors, strict=True)
                require_complete(gap(value.sum(), pairs, least), model)
            scores.append(_products(slopes, view))
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
    tokens = _combined(vectors, mask, messages=messages)
    return Scores(tokens, output=output, vectors=vectors, relative=rule == "two_views")


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
    asked = inputs.asking(target)
    with viewing(model, asked, value=value, response=response) as view:
        values = _contrast(model, view, target, of)
        sent = _Sent(inputs, values, sending, places_of(model, inputs))
        own = [
            _by_source(_products(slopes, view), inputs)
            for slopes, _ in view.effects(values, sent.receiver)
        ]
    return torch.stack(own, 1), sent.total, view.output


class _Sent:
    """What all messages of each source were worth: [B, K, S].

    Of a group, those to its own tokens are left out: they leave with it.
    """

    def __init__(
        self, inputs: Inputs, values: Tensor, sending: Sending, places: list[Place]
    ) -> None:
        dtype = torch.promote_types(values.dtype, torch.float32)
        self.groups = inputs.groups
        self.members = None if inputs.groups is None else inputs.members.to(dtype)
        self.sending = sending
        self.places = places
        self.total = values.new_zeros(*values.shape, inputs.source_count, dtype=dtype)

    @property
    def receiver(self) -> Receiver:
        columns = None
        if self.sending != "replaced":
            columns = Columns("effects" if self.sending == "effects" else "slopes", self.groups)
        return Receiver(self._receive, self._add, columns)

    def _add(self, layer: int, k: int, sums: Tensor) -> None:
        """Add what the messages of each token [B, S] were worth at one site."""
        if self.members is not None:
            sums = (sums[:, None] @ self.members)[:, 0]
        self.total[:, k] += sums.to(self.total.device)

    def _receive(self, layer: int, k: int, sent: Messages, slope: Tensor, rows: slice) -> None:
        """Add the messages to some rows, at one site."""
        place = self.places[layer]
        first = slice(0, sent.value.shape[2])  # the sources that these rows see
        if self.members is None:
            lost = _of_site(sent, slope, None, self.sending)  # [B, n, S']
            self.total[:, k, place.columns][:, first] += lost.sum(1).to(self.total.device)
            return
        lost = _of_site(sent, slope, self.members[:, place.columns][:, first], self.sending)
        inside = self.members[:, place.rows][:, rows].bool()
        self.total[:, k] += lost.masked_fill(inside, 0).sum(1).to(self.total.device)


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
    with viewing(model, inputs.asking(target)) as view:
        values = _contrast(model, view, target, of)
        places = places_of(model, inputs)
        sent: dict[int, Tensor] = {}  # by each source at one layer, to all targets: [B, K, T]

        def receive(layer: int, k: int, messages: Messages, slope: Tensor, rows: slice) -> None:
            add(layer, k, messages.effects(slope).sum(1))

        def add(layer: int, k: int, worth: Tensor) -> None:  # [B, S']
            if layer not in sent:
                sent[layer] = worth.new_zeros(*values.shape, inputs.mask.shape[1])
            sent[layer][:, k, places[layer].columns][:, : worth.shape[-1]] += worth

        for _ in view.effects(values, Receiver(receive, add, Columns("effects"))):
            pass
    own = [sent[layer] for layer in sorted(sent)]
    scores = _traced(model, inputs, target, own, Contributions(kernel=kernel))
    return Scores(scores.where(inputs.mask[:, None], 0), output=view.output)


def _traced(
    model: nn.Module, inputs: Inputs, target: Target, sent: list[Tensor], draw: Draw
) -> Tensor:
    """Σ_l Σ_ij S^l_ij R^{l−1}_jk, from the last layer down: [B, K, T]."""
    scores = sent[-1]
    if not is_long(model, inputs.tensors):
        maps, *_ = maps_of(model, inputs, draw, hold_last=True)
        for below, contribution in zip(reversed(sent[:-1]), reversed(maps), strict=True):
            scores = scores @ contribution.to(scores) + below
        return scores
    drawing = Drawing(draw)
    with walking_back(model, inputs.asking(target)) as (_, blocks):
        next(blocks)  # what the last layer sends has arrived
        for below, block in zip(reversed(sent[:-1]), blocks, strict=True):
            scores = drawing.through(scores, block) + below
    return scores


def _contrast(model: nn.Module, view: View | LongView, target: Target, of: Of) -> Tensor:
    """What speaks for each prediction, in the graph: [B, K], or [B, 1] for all of them together."""
    with torch.enable_grad():
        logits = target_logits(view.output, target)
        require_finite(logits.detach())
        index = target.chosen(logits)
        if target.against is None:
            return target.joined(contrast(logits, index, network(model).config, of))
        return target.joined(target.of(logits, index))


def _least(view: View | LongView, target: Target, of: Of) -> float:
    """What is rounded on the way to a contrast: two logits can be large, their difference small.

    So can a logit and the mean of all by their probabilities, for a prediction that is sure.
    """
    if target.against is None and of == "logit":
        return 0.0
    return float(target_logits(view.output, target).detach().abs().amax())


def _products(slopes: Sequence[Tensor], view: View | LongView) -> Tensor:
    """Gradient · vector of every token of all stacks, in float32 at least: [B, T]."""
    dtype = torch.promote_types(slopes[0].dtype, torch.float32)
    pairs = zip(slopes, view.starts, strict=True)
    return torch.cat([(slope.to(dtype) * x.detach().to(dtype)).sum(-1) for slope, x in pairs], 1)

"""Consensus: views of a token's worth that fail in different places, added up."""

import torch
from torch import nn

from alti.methods.dimming import brought_back
from alti.methods.linear import messages_of, shares, views
from alti.methods.registry import method
from alti.methods.types import Inputs, Scores, Target


@method(class_specific=True, signed=True, takes_groups=True)
def consensus(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    value: float = 0.5,
    response: float = 0.1,
    strength: float = 0.05,
) -> Scores:
    """Consensus: absence and dimming together; the first choice where a class is asked about.

    Three views of each source, divided by their ℓ1 norms and added: the effect of its vector, that
    of its messages, and what it would bring back to a dimmed text.
    """
    sending = messages_of(inputs) if inputs.causal else "first_order"
    own, sent, output = views(model, inputs, target, value, response, of="logit", sending=sending)
    levels = [(inputs.sources_at(strength), 1.0)]
    back = brought_back(model, inputs, target, output, levels)
    real = inputs.mask[:, None] if inputs.groups is None else own.new_ones(1).bool()
    seen = [shares(view.where(real, 0)) for view in (own, sent, back)]
    return Scores(torch.stack(seen).sum(0), output=output, relative=True)

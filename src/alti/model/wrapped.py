"""Heads that are no classifiers, as models with logits that every method can explain.

A wrapped model shares the user's modules and changes nothing about them.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from alti.read.modules import call


class Wrapped(PreTrainedModel):  # type: ignore[misc]  # Any to mypy
    """A model inside another one."""

    def __init__(self, inner: PreTrainedModel) -> None:
        nn.Module.__init__(self)  # that of PreTrainedModel would change the config
        self.inner = inner
        self.config = inner.config
        self.training = inner.training

    @property
    def base_model(self) -> nn.Module:
        return cast(nn.Module, self.inner.base_model)

    def get_input_embeddings(self) -> nn.Module:
        return cast(nn.Module, self.inner.get_input_embeddings())


class Spans(Wrapped):
    """A model that answers questions with a part of a text: which token it starts and ends with."""

    def forward(self, **inputs: Any) -> SequenceClassifierOutput:
        output = call(self.inner, inputs)
        logits = torch.stack([output.start_logits, output.end_logits], 1)  # [B, 2, T]
        return SequenceClassifierOutput(logits=logits, hidden_states=output.hidden_states)


class OneChoice(Wrapped):
    """A multiple-choice model that reads one choice: the logit [B, 1] that it is given."""

    def forward(self, **inputs: Any) -> SequenceClassifierOutput:
        single = {
            name: x[:, None] if isinstance(x, Tensor) and x.dim() == 2 else x
            for name, x in inputs.items()
        }
        output = call(self.inner, single)
        return SequenceClassifierOutput(logits=output.logits, hidden_states=output.hidden_states)


class UnitNorm(nn.Module):
    """A vector of length 1; the linear view takes it for a norm, which it is."""

    def forward(self, x: Tensor) -> Tensor:
        length: Tensor = x.norm(dim=-1, keepdim=True)
        return x / length.clamp_min(torch.finfo(x.dtype).tiny)


class Similarity(Wrapped):
    """The cosine [B, 1] of a text's embedding and another one's, which stays as it is."""

    def __init__(self, inner: PreTrainedModel, pooling: str) -> None:
        super().__init__(inner)
        self.pooling = pooling
        self.unit = UnitNorm()
        self.other = torch.empty(0)  # [1, D]  the other text's, of length 1

    def forward(self, **inputs: Any) -> SequenceClassifierOutput:
        output = call(self.inner, inputs)
        embedding = self.unit(pooled(output[0], inputs["attention_mask"], self.pooling))
        if not self.other.numel():
            return SequenceClassifierOutput(logits=embedding)
        cosine = (embedding * self.other.to(embedding)).sum(-1, keepdim=True)
        return SequenceClassifierOutput(logits=cosine, hidden_states=output.hidden_states)


def pooled(vectors: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """The embedding [B, D] of texts whose last vectors are [B, T, D]."""
    if pooling == "first":
        return vectors[:, 0]
    if pooling == "last":
        texts = torch.arange(len(mask), device=mask.device)
        return vectors[texts, mask.sum(1) - 1]
    shares = mask.to(vectors) / mask.sum(1, keepdim=True)
    return (shares[..., None] * vectors).sum(1)

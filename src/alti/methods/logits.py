"""What the numbers that a model gives for a text mean: its logits, probabilities, and one class against the others."""

from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from alti._errors import AltiError, UnsupportedModelError

Kind = Literal["softmax", "sigmoid", "value"]


def logits_at(output: Any, position: Tensor | None) -> Tensor | None:
    """The logits of the prediction: [B, C], or None for a model without a head."""
    logits: Tensor | None = getattr(output, "logits", None)
    if logits is None or logits.dim() == 2 or position is None:
        return logits
    return logits[torch.arange(len(logits), device=logits.device), position]


def logits_of(output: Any, position: Tensor | None) -> Tensor:
    """The logits of the prediction, from a model that has a head: [B, C], in float32 at least.

    In half precision a small change of a probability near 1 would be none, and a sum of thousands too much.
    """
    logits = logits_at(output, position)
    if logits is None:
        raise UnsupportedModelError(
            "this method explains a prediction, and the model has no head that makes one: load a classifier or a "
            "language model, or use alti, norms or attention_rollout"
        )
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def require_finite(logits: Tensor) -> None:
    """Raise for logits [B, C] that make no prediction; −inf for some outputs is fine: they cannot be."""
    if bool(logits.isnan().any() | logits.amax(-1).isinf().any()):
        raise AltiError(
            "the model's prediction for this text is not finite (nan or infinite): load it with dtype='float32' "
            "(--dtype float32), and look at its weights if that does not help"
        )


def kind_of(config: PreTrainedConfig, classes: int) -> Kind:
    """How logits are read: classes that exclude each other, labels one by one, or a plain value (a regression)."""
    problem = getattr(config, "problem_type", None)
    if problem == "regression" or (
        problem is None and classes == 1
    ):  # transformers' own rule for one logit
        return "value"
    return "sigmoid" if problem == "multi_label_classification" or classes == 1 else "softmax"


def probabilities(logits: Tensor, config: PreTrainedConfig) -> Tensor:
    """Probabilities [B, C]; a regression's value is itself."""
    kind = kind_of(config, logits.shape[-1])
    return (
        logits.softmax(-1)
        if kind == "softmax"
        else logits.sigmoid()
        if kind == "sigmoid"
        else logits
    )


def contrast(logits: Tensor, index: Tensor, config: PreTrainedConfig) -> Tensor:
    """What speaks for an output [B]: its logit against the mean of the others, or its logit where it stands alone."""
    own = logits.gather(1, index[:, None])[:, 0]
    if kind_of(config, logits.shape[-1]) != "softmax":
        return own
    classes = logits.shape[-1]
    return (classes * own - logits.sum(-1)) / (classes - 1)

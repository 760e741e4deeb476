"""What a model's output means: logits, probabilities, and one class against the others."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel

from alti._errors import AltiError, UnsupportedModelError
from alti.methods.types import Target

Kind = Literal["softmax", "sigmoid", "value"]
Of = Literal["probability", "logit", "log_prob"]  # the number that is explained


def logits_at(output: Any, position: Tensor | None) -> Tensor | None:
    """The logits at one position of each text [B]: [B, C]; None for a model without a head."""
    logits: Tensor | None = getattr(output, "logits", None)
    if logits is None or logits.dim() == 2 or position is None:
        return logits
    return logits[torch.arange(len(logits), device=logits.device), position]


def logits_of(output: Any, position: Tensor | None) -> Tensor:
    """The same from a model that has a head, in float32 at least.

    In half precision a small change of a probability near 1 would be none, and a sum of thousands
    too much.
    """
    return _wide(logits_at(output, position))


def target_logits(output: Any, target: Target) -> Tensor:
    """The logits of every prediction that is explained, in float32 at least: [B, K, C]."""
    logits: Tensor | None = getattr(output, "logits", None)
    if logits is None or logits.dim() == 2 or target.read_at is None:
        return _wide(logits)[:, None]
    texts = torch.arange(len(logits), device=logits.device)[:, None]
    return _wide(logits[texts, _columns(logits, target)])


def _columns(logits: Tensor, target: Target) -> Tensor:
    """Where the logits [B, n, C] of each prediction stand: [B, K]."""
    if target.which is not None:
        return target.which
    assert target.position is not None
    if target.kept is None or not target.has_kept(logits):
        return target.position
    return torch.searchsorted(target.kept, target.position)


def _wide(logits: Tensor | None) -> Tensor:
    if logits is None:
        raise UnsupportedModelError(
            "this method explains a prediction, and the model has no head that makes one: load a "
            "classifier or a language model, or use alti, norms or attention_rollout"
        )
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def require_finite(logits: Tensor) -> None:
    """Raise for logits [..., C] that make no prediction; −inf for some outputs is fine."""
    if bool(logits.isnan().any() | logits.amax(-1).isinf().any()):
        raise AltiError(
            "the model's prediction for this text is not finite (nan or infinite): load it with "
            "dtype='float32' (--dtype float32), and look at its weights if that does not help"
        )


def kind_of(config: PreTrainedConfig, classes: int) -> Kind:
    """How logits are read: exclusive classes, labels one by one, or a value (a regression)."""
    problem = getattr(config, "problem_type", None)
    if problem == "regression" or (problem is None and classes == 1):  # as transformers does
        return "value"
    return "sigmoid" if problem == "multi_label_classification" or classes == 1 else "softmax"


def probabilities(logits: Tensor, config: PreTrainedConfig) -> Tensor:
    """Probabilities [..., C]; a regression's value is itself."""
    kind = kind_of(config, logits.shape[-1])
    if kind == "value":
        return logits
    return logits.softmax(-1) if kind == "softmax" else logits.sigmoid()


def values_of(logits: Tensor, config: PreTrainedConfig, of: Of) -> Tensor:
    """What is explained of each output: its logit, its probability or the log of that."""
    kind = kind_of(config, logits.shape[-1])
    if of == "logit" or kind == "value":
        return logits
    if of == "probability":
        return probabilities(logits, config)
    return logits.log_softmax(-1) if kind == "softmax" else functional.logsigmoid(logits)


def values_at(inner: PreTrainedModel, logits: Tensor, target: Target, row: int, of: Of) -> Tensor:
    """What is explained of logits [n, K, C] about one text of a batch: [n, K]."""
    own = target.changed(lambda tensor: tensor[row].expand(len(logits), -1))
    return own.of(values_of(logits, inner.config, of), own.chosen(logits))


def explained(output: Any, target: Target, config: PreTrainedConfig, of: Of) -> Tensor:
    """The number that is explained of each prediction, minus that of its rival: [B, K]."""
    logits = target_logits(output, target)
    return target.of(values_of(logits, config, of), target.chosen(logits))


def contrast(logits: Tensor, index: Tensor, config: PreTrainedConfig, of: Of = "logit") -> Tensor:
    """What speaks for an output [...], as a linear map of logits [..., C].

    "logit": its logit against the mean of the others. "log_prob": against the mean of all weighted
    by their probabilities, which are held constant; its gradient is that of log p. An output that
    stands alone (a label of many, a regression) is its own logit.
    """
    own = logits.gather(-1, index[..., None])[..., 0]
    kind = kind_of(config, logits.shape[-1])
    if kind == "value" or (kind == "sigmoid" and of == "logit"):
        return own
    if kind == "sigmoid":
        return own * own.detach().neg().sigmoid()
    if of == "log_prob":
        return own - (logits.detach().softmax(-1) * logits).sum(-1)
    classes = logits.shape[-1]
    return (classes * own - logits.sum(-1)) / (classes - 1)

"""What a model makes of a text without some of its tokens."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from alti.experiments.predict import LOGITS, TOKENS
from alti.methods.logits import Of, target_logits, values_of
from alti.methods.types import Inputs, Target
from alti.read.modules import call, evaluating, network


def values_without(
    model: nn.Module, inputs: Inputs, target: Target, row: int, removed: Tensor, of: Of
) -> Tensor:
    """What is explained of one text of a batch without the tokens of `removed` [n, T]: [n, K].

    Tokens are deleted and the gap is closed; a prediction whose own token is gone is read from the
    one before it. Answers must be named (`target.index`).
    """
    inner = network(model)
    most = min(TOKENS.get(removed.device.type, TOKENS["cpu"]), LOGITS // inner.config.vocab_size)
    at_once = max(1, most // removed.shape[1])
    with torch.no_grad(), evaluating(model):
        parts = [
            _batch(inner, inputs, target, row, part, of) for part in torch.split(removed, at_once)
        ]
    return torch.cat(parts)


def _batch(
    inner: nn.Module, inputs: Inputs, target: Target, row: int, removed: Tensor, of: Of
) -> Tensor:
    kept = inputs.mask[row] & ~removed  # [n, T]
    lengths = kept.sum(-1).clamp_min(1)  # a text without tokens is one that stands for none
    order = kept.long().argsort(dim=-1, descending=True, stable=True)[:, : int(lengths.max())]
    real = torch.arange(order.shape[1], device=order.device) < lengths[:, None]
    tensors = {name: x[row].expand_as(kept).gather(1, order) for name, x in inputs.tensors.items()}
    gone = ~kept.gather(1, order)
    tensors["input_ids"] = tensors["input_ids"].masked_fill(gone, inputs.pad_id)
    tensors["attention_mask"] = real.to(tensors["attention_mask"])
    copies = target.changed(lambda x: x[row].expand(len(kept), -1))
    assert copies.position is not None
    position = kept.cumsum(-1).gather(1, copies.position) - 1
    copies = replace(copies, position=position.clamp_min(0))
    logits = target_logits(call(network(inner), tensors), copies)
    return copies.joined(
        copies.of(values_of(logits, network(inner).config, of), copies.chosen(logits))
    )

"""What a prediction is: which head a model has, which position that head reads, and what its numbers mean."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from alti._errors import UnsupportedModelError, UsageError
from alti.encoding import Encoded
from alti.structure import family_of, network, stacks_of

HEADS = {  # the ending of a transformers class name: what its logits are
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForMaskedLM": "masked",
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
}


def head_of(model: nn.Module) -> str:
    """sequence, token, masked, causal, or encoder for a model without a head; refuses what `explain` does not take."""
    inner = network(model)
    name, family = type(inner).__name__, inner.config.model_type
    stacks = [stack for stack, _ in stacks_of(inner)]
    readable = "alti.walk, alti.trace and alti.check read it"
    if inner.main_input_name != "input_ids":
        raise UnsupportedModelError(f"explain takes text; {name} ({family}) reads {inner.main_input_name}: {readable}")
    if len(stacks) > 1 and any(site.cross for stack in stacks for site in stack.sites):
        raise UnsupportedModelError(f"explain does not take encoder–decoders such as {name} ({family}) yet: {readable}")
    for cls in type(inner).__mro__:
        for ending, head in HEADS.items():
            if cls.__name__.endswith(ending):
                return head
    if inner.base_model is inner:
        return "encoder"
    raise UnsupportedModelError(
        f"explain does not take the head of {name} ({family}): load the checkpoint as one of "
        f"{', '.join('Auto…' + ending for ending in list(HEADS)[:4])} or AutoModel"
    )


def read_position(model: nn.Module, text: Encoded, mask_id: int | None, position: int | None = None) -> int | None:
    """The final position that the prediction of a text is read from; None where it is the mean of all."""
    head, length = head_of(model), len(text.ids)
    if head == "sequence":
        if position is not None:
            raise UsageError(f"position = {position} was given, but a sequence classifier reads its own: leave it out")
        return pooled_position(network(model), text.ids)
    if position is not None:
        if not -length <= position < length:
            raise UsageError(
                f"position = {position} is outside the text, whose {length} tokens have the positions 0 to {length - 1}"
            )
        return position % length
    if head == "token":
        raise UsageError(
            f"a token classifier predicts at every token: say which with position=, 0 to {length - 1} in this text"
        )
    if head == "masked":
        masks = [i for i, token in enumerate(text.ids) if token == mask_id]
        if len(masks) != 1:
            raise UsageError(f"the text has {len(masks)} mask tokens, expected one: put it in, or give position=")
        return masks[0]
    return length - 1 if head == "causal" else None


def pooled_position(model: PreTrainedModel, ids: list[int]) -> int | None:
    """The position that a sequence classifier of this family reads, found as the model itself finds it."""
    config, pool = model.config, family_of(model).pool
    if pool.startswith("config:"):
        pool = getattr(config, pool.removeprefix("config:"))
    if pool == "mean":
        return None
    if pool == "last":
        return max((i for i, token in enumerate(ids) if token != config.pad_token_id), default=0)
    if pool == "eos":
        return max((i for i, token in enumerate(ids) if token == config.eos_token_id), default=0)
    return 0


def target_index(model: nn.Module, tokenizer: PreTrainedTokenizerBase, target: int | str | None) -> int | None:
    """The output that `target` names: a label or its index, a vocabulary token, its text or its id."""
    if target is None:
        return None
    head, config = head_of(model), network(model).config
    if head == "encoder":
        raise UsageError(f"target = {target!r} was given, but this model has no head and so no classes: leave it out")
    if head in ("masked", "causal"):
        return _vocabulary_index(tokenizer, config.vocab_size, target)
    labels = {int(index): str(label) for index, label in config.id2label.items()}
    if isinstance(target, str):
        same = [i for i, label in labels.items() if label == target]
        same = same or [i for i, label in labels.items() if label.lower() == target.lower()]
        if len(same) == 1:
            return same[0]
        target = int(target) if target.isdecimal() else target
    if isinstance(target, int) and not isinstance(target, bool) and target in labels:
        return target
    names = ", ".join([f"{i} {label}" for i, label in labels.items()][:20] + ["…"] * (len(labels) > 20))
    raise UsageError(f"target = {target!r} is not a label of this model: it has {names}")


def _vocabulary_index(tokenizer: PreTrainedTokenizerBase, size: int, target: int | str) -> int:
    if isinstance(target, int):
        if 0 <= target < size:
            return target
        raise UsageError(f"target = {target} is not in the vocabulary, whose ids are 0 to {size - 1}")
    ids: list[int] = tokenizer.encode(target, add_special_tokens=False)
    if len(ids) == 1:
        return ids[0]
    if target in (vocabulary := tokenizer.get_vocab()):
        return int(vocabulary[target])
    pieces = ", ".join(repr(piece) for piece in tokenizer.convert_ids_to_tokens(ids))
    raise UsageError(f"target = {target!r} is {len(ids)} tokens of this model ({pieces}): give a single one")


def logits_at(output: Any, position: Tensor | None) -> Tensor | None:
    """The logits of the prediction: [B, C], or None for a model without a head."""
    logits: Tensor | None = getattr(output, "logits", None)
    if logits is None or logits.dim() == 2 or position is None:
        return logits
    return logits[torch.arange(len(logits), device=logits.device), position]


def read_prediction(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, logits: Tensor, index: int | None
) -> tuple[int, str, float | None]:
    """Index, label and probability of the target (None: of the predicted class), for the logits [C] of one text."""
    head, config = head_of(model), network(model).config
    logits = logits.double()
    index = int(logits.argmax()) if index is None else index
    kind = getattr(config, "problem_type", None)
    if head in ("masked", "causal"):
        label = tokenizer.decode([index]) or str(tokenizer.convert_ids_to_tokens(index))
        return index, label, float(logits.softmax(-1)[index])
    label = str(config.id2label.get(index, index))
    if kind == "regression" or (len(logits) == 1 and kind is None):  # transformers' own rule for one logit
        return index, label, None
    sigmoid = kind == "multi_label_classification" or len(logits) == 1
    return index, label, float((logits.sigmoid() if sigmoid else logits.softmax(-1))[index])

"""A hash of all that a model's results depend on: weights, settings, tokenizer."""

import hashlib
import json
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from alti.model.languages import LANGUAGES
from alti.read.modules import network

PIECES = ("sp_model", "spm_source", "spm_target")  # sentencepiece's, by the names they have
AT_ONCE = 1 << 22  # numbers of a tensor that are copied at a time
BESIDE_THE_RESULTS = {  # settings that differ between models which compute the same
    "_name_or_path",
    "architectures",  # the class itself is hashed
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "auto_map",
    "base_model_name_or_path",
    "_commit_hash",
    "dtype",  # the weights say it
    "torch_dtype",
    "gradient_checkpointing",
    "inference_mode",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "revision",
    "torchscript",
    "transformers_version",
    "use_cache",
}


def fingerprint(model: nn.Module, tokenizer: Any) -> str:
    """A hash of every weight, of the settings that change results, and of the tokenizer."""
    inner = network(model)
    adapters = getattr(model, "peft_config", {})  # LoRA's factors are no weights
    settings = {
        "class": type(inner).__name__,
        "config": _settings(inner.config.to_dict()),
        "adapters": {name: _settings(vars(adapter)) for name, adapter in adapters.items()},
        "tokenizer": None if tokenizer is None else _tokenizer(tokenizer),
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, tensor in inner.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        _add(digest, tensor.detach())
    return digest.hexdigest()[:16]


def _add(digest: Any, tensor: Tensor) -> None:
    """All bytes of a tensor, wherever it is and however it is laid out, a part at a time."""
    rows = tensor.reshape(1) if tensor.dim() == 0 else tensor
    width = max(1, rows[:1].numel())
    for part in torch.split(rows, max(1, AT_ONCE // width)):
        digest.update(part.cpu().contiguous().view(torch.uint8).numpy())


def _settings(value: Any) -> Any:
    """Settings as JSON, without those that do not change results; sets and names in one order."""
    if isinstance(value, dict):
        kept = {str(key): inner for key, inner in value.items()}
        return {key: _settings(kept[key]) for key in kept.keys() - BESIDE_THE_RESULTS}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_settings(inner) for inner in value]
    if isinstance(value, Enum):
        return _settings(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if isinstance(value, torch.dtype) else type(value).__name__


def _of_languages(tokenizer: Any) -> dict[str, str]:
    """The languages that a tokenizer of plain Python is set to, and the pieces that it knows."""
    found = {name: getattr(tokenizer, name, None) for name in LANGUAGES}
    for name in PIECES:
        if (pieces := getattr(tokenizer, name, None)) is not None:
            found[name] = hashlib.sha256(pieces.serialized_model_proto()).hexdigest()
    return {name: said for name, said in found.items() if said}


def _tokenizer(tokenizer: Any) -> dict[str, Any]:
    """Vocabulary, merges, normalizer: all of tokenizer.json, and which tokens are special."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        plain = {"class": type(tokenizer).__name__, "vocabulary": tokenizer.get_vocab()}
        plain |= _of_languages(tokenizer)
    else:
        plain = json.loads(backend.to_str())
        plain |= {"truncation": None, "padding": None}  # left there by the call before
    names = ("special_tokens_map", "model_max_length", "truncation_side", "model_input_names")
    return {**plain, **{name: _settings(getattr(tokenizer, name)) for name in names}}

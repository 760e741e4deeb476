"""Adapters: weights of peft that go on top of a model, with or without a head of their own."""

from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import PreTrainedConfig
from transformers.utils import is_peft_available

from alti._errors import LoadError
from alti.model.checkpoints import Checkpoint
from alti.model.pretrained import architecture_of, check_adapter, check_head, quiet, read

WEIGHTS = "adapter_model.safetensors"
HEADS = ("classifier", "score", "qa_outputs")  # their last weights have a row for each label


def with_adapter(
    checkpoint: Checkpoint, config: PreTrainedConfig, options: dict[str, Any]
) -> nn.Module:
    """A model with the adapter on top."""
    adapter = str(checkpoint.adapter)
    if not is_peft_available():
        raise LoadError(f"{adapter} is an adapter, and peft is not installed: pip install peft")
    from peft import PeftModel

    check_adapter(adapter)
    own = _weights(adapter)
    auto = checkpoint.task or architecture_of(config)
    if checkpoint.task is not None:
        check_head(checkpoint.place, config, auto)
    labels = [rows for name, rows in own.items() if name.split(".")[-2] in HEADS]
    if labels and labels[-1] != config.num_labels:
        config.num_labels = labels[-1]
    given = {"config": config, **checkpoint.hub, **options, "output_loading_info": True}
    with quiet(bar=True):
        cls = getattr(transformers, auto)
        model, report = read(cls.from_pretrained, checkpoint.place, **given)
        missing = [key for key in report["missing_keys"] if not _brings(own, key)]
        if missing and model.base_model is not model:
            raise LoadError(
                f"neither {checkpoint.place} nor the adapter {adapter} has {sorted(missing)[0]}: "
                "train the adapter's head too (modules_to_save)"
            )
        wrapped: nn.Module = read(lambda place: PeftModel.from_pretrained(model, place), adapter)
    return wrapped


def _weights(adapter: str) -> dict[str, int]:
    """The names of an adapter's weights, with their rows; none of a pickle, which is not opened."""
    file = Path(adapter) / WEIGHTS
    if not file.is_file():
        raise LoadError(f"the adapter {adapter} has no {WEIGHTS}: save it as safetensors")
    try:
        with safe_open(str(file), "pt") as weights:
            names: list[str] = weights.keys()
            shapes = {name: weights.get_slice(name).get_shape() for name in names}
    except SafetensorError as error:
        raise LoadError(f"{file} could not be read ({error}): it is damaged") from error
    return {name: shape[0] for name, shape in shapes.items() if shape and "." in name}


def _brings(own: dict[str, int], key: str) -> bool:
    """Whether an adapter holds a weight of the model itself."""
    return any(name.endswith(f".{key}") for name in own)

"""The language model inside one that also sees or hears (Gemma 3, LLaVA, Mistral 3, Voxtral …).

Asked with text alone, such a model computes what its language model does; that is explained.
"""

from copy import deepcopy
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from alti._errors import DecompositionError, UnsupportedModelError
from alti.families import FAMILIES
from alti.read.exactness import require_same, untouched
from alti.read.modules import family_named, network
from alti.refused import REFUSED

TRIED = 7  # tokens of a text that the two are compared on


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The config of the language model inside; that of any other model is its own."""
    inner = config.get_text_config(decoder=True)
    if config.model_type in FAMILIES or _class_of(inner) is None:
        return config
    return inner if inner.model_type in FAMILIES or inner.model_type in REFUSED else config


def language_model(model: nn.Module) -> nn.Module:
    """The language model inside a model, sharing its modules; any other model as it is."""
    whole = network(model)
    config = text_config(whole.config)
    if config is whole.config:
        return model
    family_named(config.model_type, vars(config))
    inside: nn.Module = _part(whole, _class_of(config)) or _shell(whole, config)
    ids = torch.arange(TRIED, device=whole.device)[None] + 5
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    try:
        require_same(untouched(inside, inputs), untouched(whole, inputs), inside, inputs)
    except (DecompositionError, TypeError, ValueError) as error:  # some take no text alone
        raise UnsupportedModelError(
            f"{type(whole).__name__}, given text alone, does not compute what the "
            f"{config.model_type} inside it does, so alti cannot read it"
        ) from error
    return inside


def _shell(whole: PreTrainedModel, config: PreTrainedConfig) -> PreTrainedModel:
    """A language model that has the modules of the whole in the place of its own."""
    with torch.device("meta"):  # its own weights are never made
        shell: Any = _class_of(config)(deepcopy(config))
    layers = _part(whole, type(shell.base_model))
    head = whole.get_output_embeddings()
    if layers is None or head is None:
        raise UnsupportedModelError(
            f"{type(whole).__name__} keeps no {type(shell.base_model).__name__} with a head for "
            "tokens, so alti cannot read it"
        )
    setattr(shell, shell.base_model_prefix, layers)
    shell.set_output_embeddings(head)
    shell.config = config
    shell.name_or_path = whole.name_or_path
    shell.generation_config = whole.generation_config
    shell.train(whole.training)
    return shell


def _part(whole: nn.Module, kind: type) -> PreTrainedModel | None:
    found = (part for part in whole.modules() if type(part) is kind)
    return next(found, None)


def _class_of(config: PreTrainedConfig) -> Any:
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    return None if name is None else getattr(transformers, name, None)

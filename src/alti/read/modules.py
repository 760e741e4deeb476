"""Finds in a model the parts that its family's entry names."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import signature
from threading import RLock
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from alti._errors import UnsupportedModelError
from alti.families import FAMILIES
from alti.family import Family, Stack
from alti.read.process import held_while_forking, settle
from alti.refused import REFUSED

DECODED = 7  # tokens that a decoder reads where none are given, behind its first

# training flags, hooks and configs belong to the model, not to the caller: one reader at a time
reading = held_while_forking(RLock())


def network(given: nn.Module) -> PreTrainedModel:
    """The Hugging Face model inside a compiled or PEFT-wrapped one."""
    model: Any = getattr(given, "_orig_mod", given)
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise UnsupportedModelError(
            "this PEFT model puts virtual tokens before the text, which alti cannot show: use LoRA "
            "or a merged model"
        )
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not isinstance(inner, PreTrainedModel):
        raise UnsupportedModelError(
            f"{type(inner).__name__} is not a transformers model: pass a PreTrainedModel, or load "
            "one with alti.load"
        )
    return inner


def device_of(model: PreTrainedModel) -> torch.device:
    """Where a model takes its input; weights that accelerate keeps elsewhere are on none (meta)."""
    places = (parameter.device for parameter in model.parameters())
    return next((place for place in places if place.type != "meta"), torch.device("cpu"))


def family_of(model: nn.Module) -> Family:
    """The entry of FAMILIES that describes a model."""
    config = network(model).config
    return family_named(config.model_type, vars(config))


def family_named(name: str, config: Mapping[str, Any]) -> Family:
    """The entry of FAMILIES for a model type; `config` may hold settings that it refuses."""
    if name in REFUSED and name not in FAMILIES:
        raise UnsupportedModelError(
            f"alti cannot read {name} models: {REFUSED[name]}; `alti families` lists those that it "
            "reads"
        )
    inside = getattr(config.get("text_config"), "model_type", None)
    if name not in FAMILIES and inside in FAMILIES:
        raise UnsupportedModelError(
            f"alti reads the {inside} model inside a {name} model, given text alone: "
            "alti.load(model, tokenizer) takes it out, and its model.model is that"
        )
    if name not in FAMILIES:
        alike = ", ".join(get_close_matches(name, FAMILIES))
        raise UnsupportedModelError(
            f"alti does not know the model family {name!r}{alike and f' (it knows {alike})'}: "
            "`alti families` lists those that it reads; describe it with "
            f"alti.FAMILIES[{name!r}] = alti.Family(...) and prove that with alti.check"
        )
    for field, why in FAMILIES[name].refuse:
        if config.get(field):
            raise UnsupportedModelError(
                f"this {name} model has {field} = {config[field]!r}: {why}; use a {name} model "
                "without it"
            )
    return FAMILIES[name]


def require_readable(model: nn.Module) -> None:
    """Raise for layers that are no affine maps, whatever a family's entry says; or no weights."""
    modules = list(network(model).modules())
    weights = list(network(model).parameters())
    # accelerate brings weights from elsewhere with hooks of its own
    brought = any("_hf_hook" in vars(module) for module in modules)
    if weights and not brought and all(weight.is_meta for weight in weights):
        raise UnsupportedModelError(
            "this model has no weights, it is on the meta device: load it with from_pretrained"
        )
    for module in modules:
        if type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.nn.quantized")):
            raise UnsupportedModelError(
                f"this model was quantised by torch: its {type(module).__name__} layers round what "
                "they are given at every call and pass no gradients on, so no sum of parts is what "
                "they compute; explain the model that it was made from"
            )


def stacks_of(model: nn.Module) -> list[tuple[Stack, list[nn.Module]]]:
    """The stacks that a model has, each with its layers."""
    inner = network(model)
    stacks = []
    for stack in family_of(inner).stacks:
        layers = list(_layers(inner.base_model, stack.blocks.split(".")))
        if layers and _applies(stack, inner.config):
            stacks.append((stack, layers))
    return stacks


def _applies(stack: Stack, config: PreTrainedConfig) -> bool:
    if stack.when is None:
        return True
    field = stack.when.removeprefix("not ")
    return bool(getattr(config, field, False)) != stack.when.startswith("not ")


def _layers(module: nn.Module, path: list[str]) -> Iterator[nn.Module]:
    if not path:
        yield from module.children()
        return
    for name, child in module.named_children():
        if path[0] in ("*", name):
            yield from _layers(child, path[1:])


def call(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Any:
    """Run a model as it is, without a cache of keys and values, which nothing would use."""
    options: dict[str, Any] = {"return_dict": True}
    # without a cache, transformers takes positions that restart for several texts
    if "use_cache" in signature(model.forward).parameters and "position_ids" not in inputs:
        options["use_cache"] = False
    return model(**{**options, **inputs})


def is_gated(model: PreTrainedModel) -> bool:
    """Whether the MLP of a model multiplies an activated gate with a second projection."""
    gated = family_of(model).gated
    return bool(getattr(model.config, gated, False)) if isinstance(gated, str) else gated


def decodes(model: PreTrainedModel) -> bool:
    """Whether a model has an encoder and a decoder that attends to it."""
    stacks = stacks_of(model)
    return len(stacks) > 1 and any(site.cross for stack, _ in stacks for site in stack.sites)


def with_decoder_ids(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs of an encoder–decoder with something for its decoder to read."""
    given = any(
        inputs.get(f"decoder_{name}") is not None for name in ("input_ids", "inputs_embeds")
    )
    if given or not decodes(model):
        return inputs
    texts = len(next(iter(inputs.values())))
    first = getattr(model.config, "decoder_start_token_id", None) or 0
    ids = [first, *(number % model.config.vocab_size for number in range(5, 5 + DECODED))]
    tokens = torch.tensor([ids] * texts, device=model.device)
    return {
        **inputs,
        "decoder_input_ids": tokens,
        "decoder_attention_mask": torch.ones_like(tokens),
    }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[list[nn.Module]]:
    """All modules, in evaluation mode and locked for our other threads; restored afterwards."""
    settle(model)
    with reading:
        modules = list(model.modules())
        training = [module for module in modules if module.training]
        try:
            for module in training:
                module.training = False
            yield modules
        finally:
            for module in training:
                module.training = True

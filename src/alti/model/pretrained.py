"""Reads configs, tokenizers and models with transformers; their own code runs only if allowed.

A folder can name code in many places: `auto_map` (refused, and trust_remote_code is always given:
transformers asks on standard input otherwise), pickles (torch reads nothing but tensors), kernels
from the hub (not loaded), modules of an adapter and weights outside the folder (refused).
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import find_adapter_config_file, is_peft_available

from alti._errors import LoadError

# transformers' own implementations; it fetches others from the hub and runs them
ATTENTION = (None, "eager", "sdpa", "flex_attention")
EXPERTS = (None, "eager", "batched_mm", "grouped_mm")
MOSES = "Recommended: pip install sacremoses"  # Marian's tokenizer says so and does not use it
UNREACHED = "couldn't find them in the cached files"  # of the hub, in transformers' words
PICKLED = "damaged or hold more than tensors, which could run code: they were not read"


def read(reader: Any, place: str, **options: Any) -> Any:
    """Call one of transformers' readers; whatever it raises becomes one sentence."""
    try:
        return reader(place, **options)
    except LoadError:
        raise
    except Exception as error:
        if "trust_remote_code=True" in str(error) and not options.get("trust_remote_code"):
            raise LoadError(_refusal(place)) from error
        reason = str(error).strip().partition("\n")[0]
        if isinstance(error, UnpicklingError):
            reason = f"its pickled weights are {PICKLED}; save them as safetensors"
        if UNREACHED in reason:
            reason = f"{reason.rstrip('.')}: check the connection, or give a folder"
        raise LoadError(f"the {_kind(place)} {place} could not be loaded: {reason}") from error


@contextmanager
def quiet(*, bar: bool) -> Iterator[None]:
    """transformers' report on missing weights becomes ours; its bar is shown only if asked for."""
    logs = transformers.logging
    before = logs.get_verbosity()
    hidden = not bar and logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    if hidden:
        logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(before)
        if hidden:
            logs.enable_progress_bar()


def settings_of(place: str, **hub: Any) -> dict[str, Any]:
    """What config.json says."""
    settings: dict[str, Any] = read(PreTrainedConfig.get_config_dict, place, **hub)[0]
    return settings


def config_of(place: str, trust: bool, **hub: Any) -> PreTrainedConfig:
    """The config of a model that can be loaded without code of its own, or with `trust`."""
    config = read(AutoConfig.from_pretrained, place, trust_remote_code=trust, **hub)
    known = hasattr(transformers, architecture_of(config))
    if not (known or trust) and _models(config):  # another class would stand in for the named one
        raise LoadError(_refusal(place))
    _drop_kernels(place, config)
    _check_shards(place, getattr(config, "transformers_weights", None))
    check_adapter(place)
    return config


def tokenizer_of(place: str, trust: bool, **hub: Any) -> PreTrainedTokenizerBase:
    """The tokenizer, of the class that is named: no plain one in place of the folder's own."""
    settings = read(get_tokenizer_config, place)
    name, named = settings.get("tokenizer_class") or "none", settings.get("auto_map") or {}
    known = any(hasattr(transformers, each) for each in (name, f"{name}Fast"))
    if not (known or trust) and (isinstance(named, list) or "AutoTokenizer" in named):
        raise LoadError(_refusal(place))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", MOSES)
            return read(AutoTokenizer.from_pretrained, place, trust_remote_code=trust, **hub)
    except LoadError as error:
        if "requires the SentencePiece library" in str(error):
            raise LoadError(
                f"the tokenizer of {place} needs sentencepiece: pip install sentencepiece"
            ) from error
        raise LoadError(f"{place} has no tokenizer: {error}") from error


def architecture_of(config: PreTrainedConfig) -> str:
    return str((config.architectures or ["AutoModel"])[0])


def class_of(config: PreTrainedConfig, trust: bool) -> Any:
    """The class that a config names: its own (with `trust`), transformers', or None."""
    name = architecture_of(config)
    for auto, reference in _models(config).items():
        if trust and reference.rpartition(".")[2] == name:
            return getattr(transformers, auto, None)
    found = getattr(transformers, name, None)
    is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    return found if is_model or found is transformers.AutoModel else None


def check_head(place: str, config: PreTrainedConfig, auto: str) -> None:
    """Refuse a head that the model's own code lacks: transformers would use another network."""
    own = _models(config) and not hasattr(transformers, architecture_of(config))
    if own and auto not in _models(config):
        raise LoadError(f"the code of {place} has no class for {auto}: choose another checkpoint")


def _models(config: PreTrainedConfig) -> dict[str, str]:
    """The auto classes that a config names code for."""
    named = getattr(config, "auto_map", None) or {}
    return {auto: reference for auto, reference in named.items() if auto.startswith("AutoModel")}


def _kind(place: str) -> str:
    return "folder" if Path(place).is_dir() else "hub model"


def _refusal(place: str) -> str:
    files = {
        "config.json": settings_of(place),
        "tokenizer_config.json": read(get_tokenizer_config, place),
    }
    named = [
        f"{file}: {', '.join(references)}"
        for file, settings in files.items()
        if (references := list(dict.fromkeys(_references(settings.get("auto_map")))))
    ]
    return (
        f"the {_kind(place)} {place} names code of its own ({'; '.join(named)}), which was not "
        "run: read it, then allow it with trust_remote_code=True (--trust-remote-code)"
    )


def _references(auto_map: Any) -> Iterator[str]:
    """The classes that an auto_map names; those of tokenizers come in lists."""
    if isinstance(auto_map, str):
        yield auto_map
    elif isinstance(auto_map, dict | list):
        for entry in auto_map.values() if isinstance(auto_map, dict) else auto_map:
            yield from _references(entry)


def _drop_kernels(place: str, config: PreTrainedConfig) -> None:
    """A config may name a kernel that transformers would fetch from the hub and run."""
    allowed = {"_attn_implementation": ATTENTION, "_experts_implementation": EXPERTS}
    for part in (config, *(getattr(config, name, None) for name in config.sub_configs)):
        for field, own in allowed.items():
            if (name := getattr(part, field, None)) not in own:
                setattr(part, field, None)
                what = f"{place} names the kernel {name}, which is code and was not loaded"
                warnings.warn(what, stacklevel=4)


def _check_shards(place: str, named: Any) -> None:
    """Weights are read from the folder itself; a config may name an index of its own."""
    indexes = set(Path(place).glob("*.index.json"))
    if str(named).endswith(".index.json") and (Path(place) / str(named)).is_file():
        indexes.add(Path(place) / str(named))
    for index in indexes:
        shards = read(_json, str(index)).get("weight_map", {})
        for name in set(map(str, shards.values())) if isinstance(shards, dict) else ():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise LoadError(f"{index} names weights outside the folder ({name}): not read")


def check_adapter(place: str) -> None:
    """peft imports the module that megatron_core names."""
    file = read(find_adapter_config_file, place) if is_peft_available() else None
    if file and (settings := read(_json, file)).get("megatron_config"):
        module = settings.get("megatron_core")
        raise LoadError(f"{file} names the module {module}, not imported: remove megatron_config")


def _json(file: str) -> dict[str, Any]:
    content = json.loads(Path(file).read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds no JSON object")
    return content

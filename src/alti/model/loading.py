"""Finds a model by name or folder and loads it with its tokenizer."""

import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoImageProcessor,
    AutoModel,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from alti._errors import LoadError, UsageError
from alti.model.adapters import with_adapter
from alti.model.checkpoints import HUB, Checkpoint, found
from alti.model.given import own
from alti.model.inside import language_model, text_config
from alti.model.languages import LANGUAGES, speak
from alti.model.model import Model
from alti.model.pretrained import (
    architecture_of,
    class_of,
    config_of,
    quiet,
    read,
    settings_of,
    tokenizer_of,
)
from alti.read.modules import decodes, family_named, network

DEFAULT = Path(__file__).with_name("default_model")
DEFAULT_NAME = "minilm-l6-sst2"
DEFAULT_NAMES = (DEFAULT_NAME, "default", "embedded")
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SPREADING = ("auto", "balanced", "balanced_low_0", "sequential")  # of transformers' device_map
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json")


def load(
    name: Any = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    device: str = "auto",
    dtype: torch.dtype | str | None = None,
    graphs: bool = False,
    trust_remote_code: bool = False,
    **more: Any,
) -> Model:
    """Load a model with its tokenizer from the Hugging Face hub or a folder; by default, our own.

    The embedded model judges the sentiment of English sentences (`default_model/card.json`).
    A transformers model with its `tokenizer`, or a pipeline, is taken as it is.

    `device` "auto" takes an accelerator where there is one. `dtype` None is float32 on a CPU, the
    checkpoint's own elsewhere. `graphs` records explanations as CUDA graphs: small batches then
    cost a GPU about a forward pass (`alti.model.cuda_graphs.Recorder` says what is not seen).

    The name may be a folder of an adapter (peft), a GGUF file or an old sentence-transformer.
    `more` are transformers' own arguments, such as `device_map`, `attn_implementation`,
    `quantization_config` or `revision`; a `device_map` stands for `device`. `src_lang` and
    `tgt_lang` are the languages of a tokenizer that has several.

    Python code that comes with a model runs only with `trust_remote_code`; a model that cannot be
    read without its code is refused.

    >>> model = alti.load("distilbert-base-uncased-finetuned-sst-2-english")
    """
    if name is not None and not isinstance(name, str | Path):
        _require_as_it_is(
            device=device != "auto", dtype=dtype is not None, **dict.fromkeys(more, True)
        )
        return own(name, tokenizer, graphs=graphs)
    if tokenizer is not None:
        raise UsageError(
            f"a tokenizer goes with a model of your own, and {str(name)!r} is loaded with its own: "
            "leave it out, or give the model itself"
        )
    languages = {key: more.pop(key) for key in LANGUAGES if key in more}
    hub = {key: more.pop(key) for key in HUB if key in more}
    place = found(DEFAULT if name is None or is_default(name) else name, hub)
    spread = more.get("device_map")
    where = _device(device) if spread is None else None
    kind = _dtype(dtype)
    if kind is None:
        kind = torch.float32 if _is_on_cpu(where or spread) else "auto"
    more |= {"dtype": kind, "trust_remote_code": trust_remote_code}
    try:
        loaded = _loaded(place, where, graphs, more)
    except (TypeError, AttributeError, KeyError) as error:  # JSON of the wrong types
        reason = str(error).partition("\n")[0]
        raise LoadError(
            f"{place.place} could not be loaded ({reason}): its JSON files are not what "
            "transformers writes"
        ) from error
    speak(loaded.tokenizer, languages, loaded.name)
    return loaded


def _require_as_it_is(**asked: bool) -> None:
    """Raise where a model that a user has would have to be changed."""
    if names := " and ".join(name for name, given in asked.items() if given):
        raise UsageError(
            f"{names} would change a model that is loaded already: leave it out, or use model.to"
        )


def _loaded(
    checkpoint: Checkpoint, where: torch.device | None, graphs: bool, options: dict[str, Any]
) -> Model:
    place, trust = checkpoint.place, options["trust_remote_code"]
    settings = settings_of(place, **checkpoint.hub)
    if "text_config" not in settings:
        family_named(settings.get("model_type", "unknown"), settings)
    config = config_of(place, trust, **checkpoint.hub)
    family_named(text_config(config).model_type, vars(text_config(config)))
    if checkpoint.adapter is None:
        model = _model(checkpoint, config, options)
    else:
        model = with_adapter(checkpoint, config, options)
    _require_modules(options.get("device_map"), network(model))
    model = language_model(model)
    inner = network(model)
    reads_text = inner.main_input_name == "input_ids" or decodes(inner)
    tokenizer = _tokenizer(checkpoint, trust) if reads_text else _processor(checkpoint)
    shown = DEFAULT_NAME if place == str(DEFAULT) else checkpoint.shown
    model = model.eval() if where is None else model.to(where).eval()
    loaded = Model(model, tokenizer, name=shown, graphs=graphs)
    loaded.pooling = checkpoint.pooling
    if reads_text and tokenizer is not None:
        _ = loaded.encoder  # a tokenizer that does not fit is refused now
    return loaded


def is_default(name: str | Path | None) -> bool:
    """Whether the embedded model is meant; a folder of one of its names comes first."""
    return name is None or (str(name) in DEFAULT_NAMES and not Path(name).exists())


def find(name: str | Path) -> str:
    """A folder that holds a model, or a hub name."""
    return found(name, {}).place


def _device(name: str) -> torch.device:
    if name == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        return found or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (
        RuntimeError,  # an unknown name
        AssertionError,  # built without CUDA
        NotImplementedError,  # a backend that is not built in
    ):
        raise UsageError(
            f"device {name!r} is not there: this machine has {_devices()}, or say auto"
        ) from None
    return device


def _is_on_cpu(place: Any) -> bool:
    """Whether a device, or a device_map of transformers, leaves all computing to the CPU."""
    if isinstance(place, dict):
        return all(map(_is_on_cpu, place.values()))
    if place in SPREADING:
        return torch.accelerator.current_accelerator(check_available=True) is None
    return str(place) in ("cpu", "disk")


def _require_modules(spread: Any, model: PreTrainedModel) -> None:
    """Raise for a device_map that names what is not there: transformers passes over it."""
    if not isinstance(spread, dict):
        return
    named = {name for name, _ in (*model.named_modules(), *model.named_parameters())}
    if missing := [name for name in spread if name not in named]:
        parts = ", ".join(name for name, _ in model.named_children())
        raise UsageError(
            f"device_map names {missing[0]!r}, which this model has not: name its modules "
            f"({parts}, or parts of them), or give 'auto'"
        )


def _devices() -> str:
    found = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if found is None else f"cpu and {torch.accelerator.device_count()} × {found.type}"


def _dtype(name: torch.dtype | str | None) -> torch.dtype | str | None:
    if name is None or name == "auto":
        return name
    found = name if isinstance(name, torch.dtype) else getattr(torch, str(name), None)
    if found not in DTYPES:
        raise UsageError(
            f"dtype {name!r} does not exist: give float32, float64, float16, bfloat16 or auto"
        )
    return found


def _model(
    checkpoint: Checkpoint, config: PreTrainedConfig, options: dict[str, Any]
) -> PreTrainedModel:
    """The model with the head that its config names, or without one if it has no weights for it."""
    place = checkpoint.place
    architecture = architecture_of(config)
    named = class_of(config, options["trust_remote_code"])
    if named is None:
        warnings.warn(
            f"{place} names {architecture}, which transformers does not have: "
            "loaded without a head",
            stacklevel=3,
        )
    if "gguf_file" in checkpoint.hub and not config.architectures:
        named = AutoModelForCausalLM  # the format is one of language models
    options = {"config": config, **checkpoint.hub, **options, "output_loading_info": True}
    for number, cls in enumerate((named or AutoModel, AutoModel)):
        with quiet(bar=number == 0):
            model, report = read(cls.from_pretrained, place, **options)
        headless = model.base_model is model
        missing = [
            key for key in sorted(report["missing_keys"]) if not (headless and "pooler." in key)
        ]
        if not missing:
            _warn_of_layers_left_out(place, model, report["unexpected_keys"])
            return model
        if not headless:
            warnings.warn(
                f"{place} has no weights for the head of {architecture}: loaded without a head",
                stacklevel=3,
            )
    raise LoadError(f"the weights of {place} are incomplete: they lack {', '.join(missing[:3])}")


def _warn_of_layers_left_out(place: str, model: PreTrainedModel, unexpected: set[str]) -> None:
    """A checkpoint with more layers than its config says is not the model that was trained."""
    config = text_config(model.config)
    stacks = family_named(config.model_type, vars(config)).stacks
    paths = [stack.blocks.partition("*")[0] for stack in stacks]
    if lost := sorted(key for key in unexpected if any(f"{path}." in key for path in paths)):
        warnings.warn(
            f"{place} has weights of layers that its config leaves out, such as {lost[0]}",
            stacklevel=4,
        )


def _processor(checkpoint: Checkpoint) -> Any:
    """How images become tensors; None where the model comes without a word about it."""
    place = Path(checkpoint.place)
    if place.is_dir() and not (place / "preprocessor_config.json").is_file():
        return None
    return read(AutoImageProcessor.from_pretrained, checkpoint.place, **checkpoint.hub)


def _tokenizer(checkpoint: Checkpoint, trust: bool) -> PreTrainedTokenizerBase:
    place = checkpoint.place
    own = checkpoint.adapter
    if own is not None and any((Path(own) / name).is_file() for name in TOKENIZERS):
        place = own
    tokenizer = tokenizer_of(place, trust, **checkpoint.hub)
    if "gguf_file" in checkpoint.hub:
        return tokenizer
    files = [
        "tokenizer.json",
        "vocab.*",
        "merges.txt",
        "*.model",
        *tokenizer.vocab_files_names.values(),
    ]
    inner = Path(place) / str(checkpoint.hub.get("subfolder", ""))
    lacks = inner.is_dir() and not any(file for name in files for file in inner.glob(name))
    if lacks or len(tokenizer) <= len(
        tokenizer.all_special_tokens
    ):  # transformers makes one up where no file is
        raise LoadError(
            f"{place} has no tokenizer: save one beside the model with tokenizer.save_pretrained"
        )
    return tokenizer

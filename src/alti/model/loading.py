"""Finds a model by name or folder and loads it with its tokenizer."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from alti._errors import LoadError, UsageError
from alti.model.model import Model
from alti.model.pretrained import (
    architecture_of,
    class_of,
    config_of,
    read,
    settings_of,
    tokenizer_of,
)
from alti.read.modules import decodes, family_named, family_of

DEFAULT = Path(__file__).with_name("default_model")
DEFAULT_NAME = "minilm-l6-sst2"


def load(
    name: str | Path | None = None,
    *,
    device: str = "auto",
    dtype: torch.dtype | str | None = None,
    graphs: bool = False,
    trust_remote_code: bool = False,
) -> Model:
    """Load a model with its tokenizer from the Hugging Face hub or a folder; by default, our own.

    The embedded model judges the sentiment of English sentences (`default_model/card.json`).

    `device` "auto" takes an accelerator where there is one. `dtype` None is float32 on a CPU, the
    checkpoint's own elsewhere. `graphs` records explanations as CUDA graphs: small batches then
    cost a GPU about a forward pass (`alti.model.cuda_graphs.Recorder` says what is not seen).

    Python code that comes with a model runs only with `trust_remote_code`; a model that cannot be
    read without its code is refused.
    """
    place = find(DEFAULT if name is None or _is_default(name) else name)
    where = _device(device)
    kind = _dtype(dtype)
    if kind is None:
        kind = torch.float32 if where.type == "cpu" else "auto"
    try:
        return _loaded(place, where, kind, graphs, trust_remote_code)
    except (TypeError, AttributeError, KeyError) as error:  # JSON of the wrong types
        reason = str(error).partition("\n")[0]
        raise LoadError(
            f"{place} could not be loaded ({reason}): its JSON files are not what transformers "
            "writes"
        ) from error


def _loaded(
    place: str, where: torch.device, dtype: torch.dtype | str, graphs: bool, trust: bool
) -> Model:
    settings = settings_of(place)
    family_named(settings.get("model_type", "unknown"), settings)
    model = _model(place, config_of(place, trust), dtype, trust)
    writes = model.main_input_name == "input_ids" or decodes(model)
    tokenizer = _tokenizer(place, trust) if writes else None
    shown = DEFAULT_NAME if place == str(DEFAULT) else Path(place).name
    loaded = Model(model.to(where).eval(), tokenizer, name=shown, graphs=graphs)
    if tokenizer is not None and tokenizer.is_fast:
        _ = loaded.encoder  # a tokenizer that does not fit is refused now
    return loaded


def _is_default(name: str | Path) -> bool:
    """Whether the embedded model is meant; a folder of its name comes first."""
    return name == "default" or (name == DEFAULT_NAME and not Path(DEFAULT_NAME).exists())


def find(name: str | Path) -> str:
    """A folder that holds a model, or a hub name."""
    if not str(name):
        raise UsageError(
            "the name of the model is empty: give a hub name or a folder, or leave it out"
        )
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LoadError(f"the folder {name} holds no model: it has no config.json")
        return str(path)
    if path.exists():
        raise UsageError(
            f"model {str(name)!r} is a file: give the folder that holds config.json and the weights"
        )
    if path.is_absolute() or str(name).startswith((".", "~")) or str(name).count("/") > 1:
        raise UsageError(
            f"model {str(name)!r} does not exist: give a folder that holds config.json, or a hub "
            "name"
        )
    return str(name)


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


def _devices() -> str:
    found = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if found is None else f"cpu and {torch.accelerator.device_count()} × {found.type}"


def _dtype(name: torch.dtype | str | None) -> torch.dtype | str | None:
    if name is None or name == "auto" or isinstance(name, torch.dtype):
        return name
    if not isinstance(found := getattr(torch, name, None), torch.dtype):
        raise UsageError(
            f"dtype {name!r} does not exist: give float32, float64, float16, bfloat16 or auto"
        )
    return found


def _model(
    place: str,
    config: PreTrainedConfig,
    dtype: torch.dtype | str,
    trust: bool,
) -> PreTrainedModel:
    """The model with the head that its config names, or without one if it has no weights for it."""
    architecture = architecture_of(config)
    named = class_of(config, trust)
    if named is None:
        warnings.warn(
            f"{place} names {architecture}, which transformers does not have: "
            "loaded without a head",
            stacklevel=3,
        )
    options = {"config": config, "dtype": dtype, "trust_remote_code": trust}
    for cls in (named or AutoModel, AutoModel):
        with _quiet():
            model, report = read(cls.from_pretrained, place, **options, output_loading_info=True)
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
    paths = [stack.blocks.partition("*")[0] for stack in family_of(model).stacks]
    if lost := sorted(key for key in unexpected if any(f"{path}." in key for path in paths)):
        warnings.warn(
            f"{place} has weights of layers that its config leaves out, such as {lost[0]}",
            stacklevel=4,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers' report on missing weights becomes ours."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)


def _tokenizer(place: str, trust: bool) -> PreTrainedTokenizerBase:
    tokenizer = tokenizer_of(place, trust)
    files = [
        "tokenizer.json",
        "vocab.*",
        "merges.txt",
        "*.model",
        *tokenizer.vocab_files_names.values(),
    ]
    lacks = Path(place).is_dir() and not any(
        file for pattern in files for file in Path(place).glob(pattern)
    )
    if lacks or len(tokenizer) <= len(
        tokenizer.all_special_tokens
    ):  # transformers makes one up where no file is
        raise LoadError(
            f"{place} has no tokenizer: save one beside the model with tokenizer.save_pretrained"
        )
    return tokenizer

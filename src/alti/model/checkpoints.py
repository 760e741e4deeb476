"""What a name or a path stands for: a model, an adapter, a GGUF file, a sentence-transformer."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from transformers.utils import cached_file, find_adapter_config_file

from alti._errors import LoadError, UsageError
from alti.model.pretrained import read

# of transformers' own arguments, those that say where files are found
HUB = ("revision", "subfolder", "token", "cache_dir", "local_files_only", "force_download")
QUIETLY = {  # None for a file that cannot be had, whatever the reason
    f"_raise_exceptions_for_{reason}": False
    for reason in ("gated_repo", "missing_entries", "connection_errors")
}
FETCHED = ("adapter_config.json", "adapter_model.safetensors", "token*", "vocab*", "merges.txt")
POOLINGS = {  # a setting of sentence-transformers: the position that it reads
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
}
HEADS = {  # the task of an adapter: the head that it was trained with
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "FEATURE_EXTRACTION": "AutoModel",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the parts of a model are."""

    place: str  # a folder that holds config.json, or a hub name
    shown: str  # its name in results
    hub: dict[str, Any] = field(default_factory=dict)  # where and how files are found there
    adapter: str | None = None  # a folder with weights that go on top
    task: str | None = None  # the head that these were trained with
    pooling: str = "mean"  # of a sentence-transformer


def found(name: str | Path, hub: dict[str, Any], *, base: bool = False) -> Checkpoint:
    """What is at a path; any other name is one of the hub. A `base` is what an adapter names."""
    if not str(name):
        raise UsageError(
            "the name of the model is empty: give a hub name or a folder, or leave it out"
        )
    path = Path(name).expanduser()
    if path.is_dir():
        return _in_folder(path, hub, base)
    if path.is_file() and path.suffix == ".gguf":
        return Checkpoint(str(path.parent), path.name, {**hub, "gguf_file": path.name})
    if path.exists():
        raise UsageError(
            f"model {str(name)!r} is a file: give the folder that holds config.json and the "
            "weights, or a .gguf file"
        )
    if path.is_absolute() or str(name).startswith((".", "~")) or str(name).count("/") > 1:
        raise UsageError(
            f"model {str(name)!r} does not exist: give a folder that holds config.json, or a hub "
            "name"
        )
    return _on_hub(str(name), hub, base)


def _on_hub(name: str, hub: dict[str, Any], base: bool) -> Checkpoint:
    """A model of the hub, or an adapter, whose files are fetched into a folder of the cache."""
    plain = Checkpoint(name, Path(name).name, hub)
    if read(cached_file, name, filename="config.json", **QUIETLY, **hub) is not None:
        return plain
    if (file := read(find_adapter_config_file, name, **hub)) is None:
        return plain  # whatever is wrong with it is said when it is read
    _require_model(name, base)
    options = {key: value for key, value in hub.items() if key != "subfolder"}
    read(snapshot_download, name, allow_patterns=[f"*{each}" for each in FETCHED], **options)
    # a revision is one of the adapter, which may name that of the model under it
    rest = {key: value for key, value in hub.items() if key not in ("revision", "subfolder")}
    found = _adapter(Path(file).parent, rest)
    return replace(found, shown=plain.shown)


def _require_model(name: str | Path, base: bool) -> None:
    if base:
        raise LoadError(f"{name} is an adapter, and another one names it as its model: merge them")


def _in_folder(path: Path, hub: dict[str, Any], base: bool) -> Checkpoint:
    inner = path / str(hub.get("subfolder", ""))
    modules = _json(path / "modules.json", [])
    pooling = _pooling(path, modules)
    if (inner / "config.json").is_file():
        return Checkpoint(str(path), path.name, hub, pooling=pooling)
    if (path / "adapter_config.json").is_file():
        _require_model(path, base)
        return _adapter(path, hub)
    for module in modules:
        if str(module.get("type", "")).endswith(".Transformer"):
            folder = _inside(path, module)
            if (folder / "config.json").is_file():
                return Checkpoint(str(folder), path.name, hub, pooling=pooling)
    raise LoadError(f"the folder {path} holds no model: it has no config.json")


def _adapter(path: Path, hub: dict[str, Any]) -> Checkpoint:
    """An adapter names the model that it goes on top of."""
    settings = _json(path / "adapter_config.json", {})
    base = settings.get("base_model_name_or_path")
    if not base:
        raise LoadError(
            f"{path} is an adapter whose adapter_config.json names no base_model_name_or_path: "
            "load the model, add the adapter with peft, and pass both to alti.explain"
        )
    if settings.get("revision"):
        hub = {**hub, "revision": settings["revision"]}
    under = found(base, hub, base=True)
    return Checkpoint(
        under.place, path.name, under.hub, str(path), HEADS.get(settings.get("task_type") or "")
    )


def _pooling(path: Path, modules: list[dict[str, Any]]) -> str:
    """How a sentence-transformer makes one vector of many; a word that no head has: not known."""
    pooling = "mean"
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            settings = _json(_inside(path, module) / "config.json", {})
            chosen = [own for name, own in POOLINGS.items() if settings.get(name)]
            modes = [name for name, on in settings.items() if on is True and "mode_" in name]
            pooling = chosen[0] if len(chosen) == 1 == len(modes) else ", ".join(modes) or "mean"
        elif kind not in ("Transformer", "Normalize"):
            return kind
    return pooling


def _inside(path: Path, module: dict[str, Any]) -> Path:
    """The folder of a module, which must lie in that of the model."""
    name = str(module.get("path", ""))
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise LoadError(f"{path / 'modules.json'} names a folder outside ({name}): not read")
    return path / name


def _json(file: Path, otherwise: Any) -> Any:
    """What a file holds; `otherwise` where there is none."""
    if not file.is_file():
        return otherwise
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"{file} could not be read ({error}): it is no JSON") from error
    if type(content) is not type(otherwise):
        raise LoadError(f"{file} holds {type(content).__name__}, not {type(otherwise).__name__}")
    return content

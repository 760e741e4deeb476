"""Results as plain data, for JSON and files: what may stand in them, and a checksum over it.

Format 2 holds K predictions about one source; format 1 held one, its fields side by side, and is
still read.
"""

import hashlib
import json
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as packed
from torch import Tensor

from alti._errors import AltiError, LoadError
from alti._files import require_file, write_whole
from alti.model.content import Content, check
from alti.model.rules import (
    DTYPES,
    OLD,
    PREDICTION,
    SOURCE,
    TOP,
    is_list,
    is_number,
    is_text,
)
from alti.model.source import Group, Source

FORMAT = 2  # a reader refuses what is newer than itself
TENSORS = {"scores": 2, "special": 1, "layers": 3}  # with their dimensions
LATER: dict[str, Any] = {
    "parts": [],
    "answer": None,
    "decoder": None,
    "seconds": None,
    "of": None,
    "lens": None,
    "value": None,
    "unit": "",
    "unknown": [],
}  # fields, with their defaults
CLASSES = {"attribution": "Attribution", "attributions": "Attributions"}


def source_fields(source: Source) -> dict[str, Any]:
    """A source as plain data, but for its tensor."""
    fields = {name: getattr(source, name) for name in SOURCE}
    fields["unknown"] = list(source.unknown)
    for name in ("groups", "parts"):
        fields[name] = [
            without_defaults({**asdict(part), "span": list(part.span)}) for part in fields[name]
        ]
    return fields


def fields_of(prediction: Any) -> dict[str, Any]:
    fields = asdict(prediction)
    del fields["steps"]
    return fields


def source_of(content: Content) -> Source:
    """The source that a content holds."""
    fields = dict(content.source)
    for name in ("groups", "parts"):
        fields[name] = tuple(
            Group(**{**part, "span": tuple(part["span"])}) for part in fields[name]
        )
    for name in ("texts", "tokens", "segments", "ids", "cut", "unknown"):
        fields[name] = tuple(fields[name])
    offsets = tuple((start, end) for start, end in fields["offsets"])
    return Source(**{**fields, "offsets": offsets})


def to_dict(content: Content, *, checksum: bool) -> dict[str, Any]:
    """Lists, numbers and strings; AltiError where JSON has no such number."""
    _require(content)
    sums = {"checksum": _checksum(content)} if checksum else {}
    plain = _texts(content)
    plain["source"]["special"] = content.source["special"].tolist()
    plain["scores"] = content.scores.tolist()
    plain["layers"] = None if content.layers is None else content.layers.tolist()
    return {**plain, **sums}


def _require(content: Content) -> None:
    try:
        check(content)
    except ValueError as error:
        raise AltiError(f"this {content.kind[:11]} cannot be stored: its {error}") from None


def _texts(content: Content) -> dict[str, Any]:
    """All but the tensors, as JSON has it."""
    source = {name: value for name, value in content.source.items() if name != "special"}
    source = without_defaults(source)
    return {
        "format": FORMAT,
        "kind": content.kind,
        "dtype": dtype_name(content.scores.dtype),
        "source": source,
        "predictions": [without_defaults(one) for one in content.predictions],
        "method": content.method,
        "model": content.model,
        "options": content.options,
        "extra": content.extra,
    }


def without_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields that came later are written where they say something: older files keep their sums."""
    return {
        name: value for name, value in fields.items() if name not in LATER or value != LATER[name]
    }


def from_dict(plain: Any, kind: str) -> Content:
    """The content of plain data of either format, checked; LoadError for what cannot be right."""
    try:
        return _from_dict(plain, kind)
    except ValueError as error:
        raise LoadError(f"attribution {error}: it was not written by alti, or is damaged") from None


def _from_dict(plain: Any, kind: str) -> Content:
    if not isinstance(plain, dict) or not all(isinstance(key, str) for key in plain):
        raise ValueError("is not an object with named fields")
    _refuse_images(plain)
    plain = dict(plain)
    version = plain.pop("format", None)
    if type(version) is not int or version not in (1, FORMAT):
        raise LoadError(
            f"attribution has format {shown(version)}, and this version of alti reads 1 and "
            f"{FORMAT}: update alti"
        )
    if version == 1:
        plain = _upgraded(plain)
    given = plain.pop("checksum", "")
    content = _content(plain, kind)
    check(content)
    if given not in ("", _checksum(content)):
        raise LoadError("attribution does not match its checksum: it was changed or damaged")
    return content


def _refuse_images(plain: Any) -> None:
    if isinstance(plain, dict) and plain.get("kind") == "image":
        raise LoadError("this file or dict holds an image: read it with alti.ImageAttribution")


def _upgraded(plain: dict[str, Any]) -> dict[str, Any]:
    """The fields of format 1 where format 2 has them."""
    dtype = plain.pop("dtype", "float32")
    require_fields(plain, OLD)
    old = {**{name: value for name, value in OLD.items() if value is not ...}, **plain}
    pair = old["text_pair"]
    if not (pair is None or is_text(pair)):
        raise ValueError("text_pair is not a text or null")
    names = ("tokens", "offsets", "special", "segments", "cut")
    source = {name: old[name] for name in names}
    source["texts"] = [old["text"]] if pair is None else [old["text"], pair]
    prediction = {name: old[name] for name in ("label", "probability", "position")}
    if old["method"] == "absence" and not old["options"]:  # a sum of shares, as in classifiers now
        prediction["of"] = "relative"
    scores = old["scores"]
    if isinstance(scores, Tensor):
        scores = scores[None] if scores.dim() == 1 else None
    return {
        "kind": "attribution",
        "dtype": dtype,
        "source": source,
        "predictions": [{**prediction, "index": old["target"]}],
        "scores": scores if isinstance(scores, Tensor) else [scores],
        "extra": [old["extra"]],
        **{name: old[name] for name in ("layers", "method", "model", "options")},
    }


def require_fields(plain: dict[str, Any], fields: dict[str, Any], what: str = "") -> None:
    if unknown := sorted(plain.keys() - fields.keys()):
        names = ", ".join(ascii(str(name)[:40])[1:-1] for name in unknown[:5])
        raise LoadError(f"attribution has unknown fields {names}: update alti")
    required = {name for name, value in fields.items() if value is ...}
    if lacking := sorted(required - plain.keys()):
        raise ValueError(f"lacks {', '.join(lacking)}{what}")


def _content(plain: dict[str, Any], kind: str) -> Content:
    """Plain data as a content; values of a wrong type stay, and `_check` refuses them."""
    require_fields(plain, TOP)
    plain = {**{name: value for name, value in TOP.items() if value is not ...}, **plain}
    if not isinstance(plain["kind"], str) or plain["kind"] not in CLASSES:
        raise ValueError(f"kind {shown(plain['kind'])} is none of {', '.join(CLASSES)}")
    if plain["kind"] != kind:
        right = CLASSES[plain["kind"]]
        raise LoadError(f"this file or dict holds {plain['kind']}: read it with alti.{right}")
    dtype = plain["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype {shown(dtype)} is none of {', '.join(DTYPES)}")
    source = _filled(plain["source"], SOURCE, " of the source")
    source["special"] = tensor_of(source["special"], 1, torch.bool)
    predictions = plain["predictions"]
    if is_list(predictions):
        predictions = [prediction_of(one) for one in predictions]
    scores = tensor_of(plain["scores"], 2, DTYPES[dtype])
    layers = plain["layers"]
    if layers is not None:
        layers = tensor_of(layers, 3, DTYPES[dtype])
    named = (plain[name] for name in ("method", "model", "options", "extra"))
    content = Content(kind, source, predictions, scores, layers, *named)
    if isinstance(scores, Tensor) and scores.dtype != DTYPES[dtype]:
        raise ValueError(f"scores is {scores.dtype}, not {dtype}")
    return content


def prediction_of(value: Any) -> dict[str, Any]:
    fields = _filled(value, PREDICTION, " of a prediction")
    for name in ("probability", "value"):
        if is_number(fields[name]):
            fields[name] = float(fields[name])  # JavaScript writes 1.0 as 1
    return fields


def _filled(value: Any, fields: dict[str, Any], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"is not an object with named fields{what}")
    require_fields(value, fields, what)
    return {**{name: default for name, default in fields.items() if default is not ...}, **value}


def save(content: Content, path: str | Path) -> None:
    """One safetensors file whose header holds the texts as JSON. No pickle."""
    _require(content)
    tensors = {"scores": content.scores, "special": content.source["special"]}
    if content.layers is not None:
        tensors["layers"] = content.layers
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    header = {"alti": json.dumps(_texts(content)), "checksum": _checksum(content)}
    write_whole(path, packed(tensors, header))


def load(path: str | Path, kind: str) -> Content:
    """What save() wrote, or what it wrote in format 1."""
    written = f"a file written by {CLASSES[kind]}.save"
    require_file(path, written)
    try:
        with safe_open(path, "pt") as file:
            header = dict(file.metadata() or {})
            plain = json.loads(header.pop("alti"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no dict
        content = from_dict(_joined(plain, tensors, header), kind)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise LoadError(f"{path} is not {written} ({reason})") from None
    return _owned(content)


def _joined(plain: Any, tensors: dict[str, Tensor], header: dict[str, str]) -> dict[str, Any]:
    """The texts and the tensors of a file, as to_dict has them."""
    _refuse_images(plain)
    if not isinstance(plain, dict) or header.keys() - {"checksum"} or tensors.keys() - TENSORS:
        raise ValueError("its header or its tensors are not what alti writes")
    if plain.get("format") == 1:
        return {**plain, **tensors, **header}
    if "checksum" not in header:
        raise ValueError("it has no checksum")
    special = {"special": tensors.pop("special")} if "special" in tensors else {}
    source = plain.get("source")
    source = {**source, **special} if isinstance(source, dict) else source
    return {**plain, **tensors, **header, "source": source}


def _owned(content: Content) -> Content:
    """The same with tensors of its own: those of an open file would change with it."""
    special = content.source["special"].clone()
    return replace(
        content,
        source={**content.source, "special": special},
        scores=content.scores.clone(),
        layers=None if content.layers is None else content.layers.clone(),
    )


def tensor_of(value: Any, depth: int, dtype: torch.dtype) -> Any:
    """Nested lists as a tensor; anything else is given back."""
    if isinstance(value, Tensor):
        return value
    leaves = value
    nested = is_list(value)
    for _ in range(depth - 1):
        nested = nested and all(map(is_list, leaves))
        if nested:
            leaves = list(chain.from_iterable(leaves))
    allowed = {bool} if dtype == torch.bool else {int, float}
    if not nested or not set(map(type, leaves)) <= allowed:
        return value
    try:
        return torch.tensor(value, dtype=dtype)
    except (ValueError, TypeError, OverflowError, RuntimeError):  # ragged, or beyond any float
        return value


def _checksum(content: Content) -> str:
    """A hash of the texts and numbers: of the content, however JSON spells it."""
    digest = hashlib.sha256(json.dumps(_texts(content), sort_keys=True, allow_nan=False).encode())
    tensors = (content.scores, content.source["special"], content.layers)
    for tensor in tensors:
        if tensor is not None:
            digest.update(f"{tensor.dtype} {list(tensor.shape)} ".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def shown(value: Any) -> str:
    """A wrong value in a sentence; what is long or nested by its type alone."""
    whole = isinstance(value, int) and abs(value) < 10**18
    if value is None or isinstance(value, bool | float) or whole:
        return repr(value)
    return repr(value[:40]) if isinstance(value, str) else f"of type {type(value).__name__}"

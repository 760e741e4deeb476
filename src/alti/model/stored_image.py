"""Explanations of images as plain data, for JSON and files, checked as those of texts are."""

import base64
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as packed
from torch import Tensor

from alti._errors import AltiError, LoadError
from alti._files import require_file, write_whole
from alti.model.results import Prediction
from alti.model.rules import (
    DTYPES,
    PREDICTION_RULES,
    Rules,
    is_layers,
    is_numbers,
    is_object,
    is_scores,
    is_text,
)
from alti.model.stored import (
    dtype_name,
    fields_of,
    prediction_of,
    require_fields,
    shown,
    tensor_of,
    without_defaults,
)

FORMAT = 1  # a reader refuses what is newer than itself
WRITTEN = "a file written by ImageAttribution.save"
FIELDS: dict[str, Any] = dict.fromkeys(
    ("kind", "dtype", "prediction", "scores", "special", "layers", "image", "method", "model",
     "options", "extra"), ...
) | {"checksum": ""}  # fmt: skip
DEPTHS = {"scores": 2, "special": 1, "layers": 3}
RULES: Rules = {
    "scores": (lambda value: is_scores(value) and len(value) > 0, "rows of finite numbers"),
    "special": (lambda value: is_scores(value, 1), "a list of finite numbers"),
    "layers": (is_layers, "a matrix of finite numbers per layer"),
    "method": (is_text, "a text"),
    "model": (is_text, "a text"),
    "options": (is_object, "an object of what JSON has"),
    "extra": (is_numbers, "an object of finite numbers"),
}
Fields = dict[str, Any]  # of an ImageAttribution


def to_dict(fields: Fields, *, checksum: bool) -> dict[str, Any]:
    """Lists, numbers and strings; the image is a PNG in base 64."""
    _require(fields)
    sums = {"checksum": _digest(fields)} if checksum else {}
    tensors = {name: _listed(fields[name]) for name in DEPTHS}
    return {**_texts(fields), **tensors, "image": _encoded(fields["image"]), **sums}


def from_dict(plain: Any) -> Fields:
    """What to_dict gave, checked; LoadError for what cannot be right."""
    try:
        return _from_dict(plain)
    except ValueError as error:
        raise LoadError(
            f"image attribution {error}: it was not written by alti, or is damaged"
        ) from None


def save(fields: Fields, path: str | Path) -> None:
    """One safetensors file whose header holds the texts as JSON. No pickle."""
    _require(fields)
    tensors = {name: fields[name].contiguous() for name in DEPTHS if fields[name] is not None}
    tensors["image"] = torch.from_numpy(np.array(fields["image"]))
    header = {"alti": json.dumps(_texts(fields)), "checksum": _digest(fields)}
    write_whole(path, packed(tensors, header))


def load(path: str | Path) -> Fields:
    """What save wrote."""
    require_file(path, WRITTEN)
    try:
        with safe_open(path, "pt") as file:
            header = dict(file.metadata() or {})
            plain = {**json.loads(header["alti"]), "checksum": header["checksum"], "layers": None}
            names: list[str] = file.keys()
            plain |= {name: file.get_tensor(name).clone() for name in names}
        return from_dict(plain)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise LoadError(f"{path} is not {WRITTEN} ({reason})") from None


def same(one: Fields, other: Fields) -> bool:
    """Whether everything is the same: numbers to the bit, options as JSON writes them."""
    return _digest(one) == _digest(other)


def _from_dict(plain: Any) -> Fields:
    if not isinstance(plain, dict) or not all(isinstance(key, str) for key in plain):
        raise ValueError("is not an object with named fields")
    plain = dict(plain)
    kind = plain.get("kind")
    if kind != "image":
        raise LoadError(f"this file or dict holds {shown(kind)}, no image: read it with its class")
    if (version := plain.pop("format", None)) != FORMAT:
        raise LoadError(
            f"image attribution has format {shown(version)}, and this version of alti reads "
            f"{FORMAT}: update alti"
        )
    require_fields(plain, FIELDS)
    given = plain.pop("checksum", "")
    fields = _fields(plain)
    _check(fields)
    if given not in ("", _digest(fields)):
        raise LoadError("image attribution does not match its checksum: it was changed or damaged")
    return fields


def _fields(plain: dict[str, Any]) -> Fields:
    """Plain data as what an ImageAttribution holds; values of a wrong type stay."""
    if (dtype := plain["dtype"]) not in list(DTYPES):
        raise ValueError(f"dtype {shown(dtype)} is none of {', '.join(DTYPES)}")
    tensors = {
        name: None if plain[name] is None else tensor_of(plain[name], depth, DTYPES[dtype])
        for name, depth in DEPTHS.items()
    }
    prediction = prediction_of(plain["prediction"])
    for name, (is_right, expected) in PREDICTION_RULES.items():
        if not is_right(prediction[name]):
            raise ValueError(f"{name} is not {expected}")
    kept = {name: plain[name] for name in ("method", "model", "options", "extra")}
    image = _picture(plain["image"])
    return {**kept, **tensors, "image": image, "prediction": Prediction(**prediction)}


def _require(fields: Fields) -> None:
    try:
        _check(fields)
    except ValueError as error:
        raise AltiError(f"this image attribution cannot be stored: its {error}") from None


def _check(fields: Fields) -> None:
    """Raise a ValueError that names the first field which cannot be right."""
    for name, (is_right, expected) in RULES.items():
        if not is_right(fields[name]):
            raise ValueError(f"{name} is not {expected}")
    for name in DEPTHS:
        tensor = fields[name]
        if tensor is not None and not tensor.isfinite().all():
            raise ValueError(f"{name} is not {RULES[name][1]}")
        if tensor is not None and tensor.dtype != fields["scores"].dtype:
            raise ValueError(f"{name} is {tensor.dtype}, but scores is {fields['scores'].dtype}")
    tokens = len(fields["special"]) + fields["scores"].numel()
    if fields["layers"] is not None and fields["layers"].shape[1:] != (tokens, tokens):
        raise ValueError(f"layers is not {RULES['layers'][1]}, patch by patch")


def _texts(fields: Fields) -> dict[str, Any]:
    """All but the tensors and the image, as JSON has it."""
    return {
        "format": FORMAT,
        "kind": "image",
        "dtype": dtype_name(fields["scores"].dtype),
        "prediction": without_defaults(fields_of(fields["prediction"])),
        **{name: fields[name] for name in ("method", "model", "options", "extra")},
    }


def _listed(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.tolist()


def _encoded(image: Any) -> str:
    written = io.BytesIO()
    image.save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode()


def _picture(value: Any) -> Any:
    """The image of a PNG in base 64, or of the pixels that a file holds."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(value, Tensor):
        if value.dtype != torch.uint8 or value.dim() not in (2, 3) or not value.numel():
            raise ValueError("image is not pixels of whole numbers up to 255")
        return Image.fromarray(value.numpy())
    try:
        content = base64.b64decode(value, validate=True)
        with Image.open(io.BytesIO(content), formats=["PNG"]) as opened:
            opened.load()
            return opened.convert(opened.mode)  # without a file behind it
    except (TypeError, ValueError, OSError, UnidentifiedImageError, Image.DecompressionBombError):
        raise ValueError("image is not a PNG in base 64") from None


def _digest(fields: Fields) -> str:
    """A hash of everything: of the content, however JSON spells it."""
    texts = json.dumps(_texts(fields), sort_keys=True, default=repr)
    digest = hashlib.sha256(texts.encode())
    for name in DEPTHS:
        tensor = fields[name]
        if tensor is not None:
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    image = fields["image"]
    digest.update(f"{image.mode} {image.size} ".encode() + image.tobytes())
    return digest.hexdigest()[:32]

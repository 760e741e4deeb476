"""An attribution as plain data, for JSON and files: what may be in it, and a checksum over it."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from alti.model.words import HALF

TENSORS = {"scores": 1, "special": 1, "layers": 3}  # with their dimensions
DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}
LISTS = ("tokens", "segments", "cut")
DEPTH = 100  # of lists in options; Python's own JSON gives up near 1,000


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def fields_of(plain: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The fields of an attribution from plain data (or tensors), of the types that it declares.

    A value of a wrong type stays as it is: `require` refuses it.
    """
    fields = dict(plain)
    for name, depth in TENSORS.items():
        kind = torch.bool if name == "special" else DTYPES[dtype]
        if fields.get(name) is not None:
            fields[name] = _tensor(fields[name], depth, kind)
    for name in LISTS:
        if isinstance(fields.get(name), list):
            fields[name] = tuple(fields[name])
    if _is_list(fields["offsets"]) and all(map(_is_list, fields["offsets"])):
        fields["offsets"] = tuple(map(tuple, fields["offsets"]))
    if _is_number(fields.get("probability")):
        fields["probability"] = float(fields["probability"])
    return fields


def _tensor(value: Any, depth: int, dtype: torch.dtype) -> Any:
    """Nested lists as a tensor; anything else is given back."""
    if isinstance(value, Tensor):
        return value
    leaves, nested = value, _is_list(value)
    for _ in range(depth - 1):
        if nested := nested and all(map(_is_list, leaves)):
            leaves = list(chain.from_iterable(leaves))
    allowed = {bool} if dtype == torch.bool else {int, float}
    if not nested or not set(map(type, leaves)) <= allowed:
        return value
    try:
        return torch.tensor(value, dtype=dtype)
    except (ValueError, TypeError, OverflowError, RuntimeError):  # ragged, or beyond any float
        return value


def require(found: Any) -> None:
    """Raise a ValueError that names the first field which cannot be right."""
    for name, (is_right, expected) in RULES.items():
        if not is_right(getattr(found, name)):
            raise ValueError(f"{name} is not {expected}")
    count = len(found.tokens)
    for name, expected in SIZES.items():
        if len(getattr(found, name)) != count and (name != "segments" or found.segments):
            raise ValueError(f"{name} is not {expected}")
    if found.layers is not None and found.layers.shape[1:] != (count, count):
        raise ValueError(f"layers is not {RULES['layers'][1]}")
    _require_numbers(found)
    _require_places(found)


def _require_numbers(found: Any) -> None:
    """Finite ones, of one dtype; after their shapes, so that a wrong size is never read."""
    for name, tensor in (("scores", found.scores), ("layers", found.layers)):
        if tensor is None:
            continue
        if not tensor.isfinite().all():
            raise ValueError(f"{name} is not {RULES[name][1]}")
        if tensor.dtype != found.scores.dtype:
            raise ValueError(f"{name} is {tensor.dtype}, but scores is {found.scores.dtype}")


def _require_places(found: Any) -> None:
    """Every token lies inside the text that it is of; an added one inside any."""
    if found.position is not None and found.position >= len(found.tokens):
        raise ValueError(f"position {found.position} is behind the last token")
    if 1 in found.segments and found.text_pair is None:
        raise ValueError("segments name a second text, and there is none")
    ends = {0: len(found.text), 1: len(found.text_pair or "")}
    ends[-1] = max(ends.values())
    segments = found.segments or (0,) * len(found.tokens)
    if any(end > ends[owner] for owner, (_, end) in zip(segments, found.offsets, strict=True)):
        raise ValueError("offsets lie outside the text")


def checksum(found: Any, names: Iterable[str]) -> str:
    """A hash of the texts and numbers of these fields: of the content, however JSON spells it."""
    texts = {name: getattr(found, name) for name in names if name not in TENSORS}
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True, allow_nan=False).encode())
    for name in TENSORS:
        if (tensor := getattr(found, name)) is not None:
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
            bits = tensor.detach().cpu().contiguous().view(torch.uint8)
            digest.update(bits.numpy().tobytes())
    return digest.hexdigest()[:32]


def shown(value: Any) -> str:
    """A wrong value in a sentence; what is long or nested by its type alone."""
    if isinstance(value, str):
        return repr(value[:40])
    short = value is None or isinstance(value, bool | float)
    if short or (isinstance(value, int) and abs(value) < 10**18):
        return repr(value)
    return f"of type {type(value).__name__}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not HALF.search(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond any float
        return False


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_span(value: Any) -> bool:
    pair = _is_list(value) and len(value) == 2 and all(map(_is_whole, value))
    return pair and bool(value[0] <= value[1])


def _is_segment(value: Any) -> bool:
    return type(value) is int and -1 <= value <= 1


def _is_numbers(value: Any) -> bool:
    named = isinstance(value, dict) and all(map(_is_text, value))
    return named and all(map(_is_number, value.values()))


def _is_json(value: Any, depth: int = DEPTH) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_is_text(k) and _is_json(v, depth - 1) for k, v in value.items())
    if _is_list(value):
        return depth > 0 and all(_is_json(inner, depth - 1) for inner in value)
    return value is None or isinstance(value, bool) or _is_text(value) or _is_number(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and _is_json(value)


def _is_scores(value: Any, depth: int = 1) -> bool:
    return isinstance(value, Tensor) and value.dim() == depth and value.dtype in DTYPES.values()


def _is_layers(value: Any) -> bool:
    return value is None or (_is_scores(value, 3) and len(value) > 0)


def _is_special(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 1 and value.dtype == torch.bool


def _many(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: _is_list(value) and all(map(is_right, value))


def _optional(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


SIZES = {
    "scores": "one finite number per token",
    "special": "one truth value per token",
    "offsets": "one pair per token",
    "segments": "one number per token",
}
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (_is_text, "a text"),
    "text_pair": (_optional(_is_text), "a text or null"),
    "tokens": (_many(_is_text), "a list of texts"),
    "offsets": (_many(_is_span), "a list of pairs of whole numbers, start and end"),
    "segments": (_many(_is_segment), "a list of -1, 0 and 1"),
    "scores": (_is_scores, SIZES["scores"]),
    "special": (_is_special, SIZES["special"]),
    "layers": (_is_layers, "a matrix of finite numbers per layer, token by token"),
    "method": (_is_text, "a text"),
    "label": (_optional(_is_text), "a text or null"),
    "probability": (_optional(_is_share), "a number from 0 to 1 or null"),
    "target": (_optional(_is_whole), "a whole number from 0 on or null"),
    "position": (_optional(_is_whole), "a whole number from 0 on or null"),
    "cut": (_many(_is_text), "a list of texts"),
    "model": (_is_text, "a text"),
    "options": (_is_object, "an object of what JSON has"),
    "extra": (_is_numbers, "an object of finite numbers"),
}

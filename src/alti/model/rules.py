"""What may stand in a stored result: the fields with their defaults, and a rule for each."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from alti.model.words import LONE_SURROGATE

DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}
DEPTH = 100  # of lists in options; Python's own JSON gives up near 1,000


def is_text(value: Any) -> bool:
    return isinstance(value, str) and not LONE_SURROGATE.search(value)


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        return False


def is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def is_span(value: Any) -> bool:
    pair = is_list(value) and len(value) == 2 and all(map(is_whole, value))
    return pair and value[0] <= value[1]


def is_segment(value: Any) -> bool:
    return type(value) is int and -1 <= value <= 1


def is_group(value: Any) -> bool:
    required = {"name", "segment", "span"}
    if not isinstance(value, dict) or not required <= value.keys() <= {*required, "unit"}:
        return False
    texts = is_text(value["name"]) and is_text(value.get("unit", ""))
    return texts and is_segment(value["segment"]) and is_span(value["span"])


def is_numbers(value: Any) -> bool:
    named = isinstance(value, dict) and all(map(is_text, value))
    return named and all(map(is_number, value.values()))


def is_json(value: Any, depth: int = DEPTH) -> bool:
    if isinstance(value, dict):
        inside = (is_text(key) and is_json(x, depth - 1) for key, x in value.items())
        return depth > 0 and all(inside)
    if is_list(value):
        return depth > 0 and all(is_json(inner, depth - 1) for inner in value)
    return value is None or isinstance(value, bool) or is_text(value) or is_number(value)


def is_object(value: Any) -> bool:
    return isinstance(value, dict) and is_json(value)


def is_scores(value: Any, depth: int = 2) -> bool:
    return isinstance(value, Tensor) and value.dim() == depth and value.dtype in DTYPES.values()


def is_lens(value: Any) -> bool:
    """Tokens, ids and probabilities of every layer, and those of the explained output."""
    rules = {
        "tokens": many(many(is_text)),
        "ids": many(many(is_whole)),
        "probabilities": many(many(is_share)),
        "own": many(is_share),
        "ranks": many(is_whole),
    }
    if not isinstance(value, dict) or value.keys() != rules.keys():
        return False
    if not all(is_right(value[name]) for name, is_right in rules.items()):
        return False
    rows = zip(value["tokens"], value["ids"], value["probabilities"], strict=False)
    return len({*map(len, value.values())}) == 1 and all(len({*map(len, row)}) == 1 for row in rows)


def is_layers(value: Any) -> bool:
    return value is None or (is_scores(value, 3) and len(value) > 0)


def is_special(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 1 and value.dtype == torch.bool


def many(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: is_list(value) and all(map(is_right, value))


def optional(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


Rules = dict[str, tuple[Callable[[Any], bool], str]]

NUMBERS = "one finite number per token"
SIZES = {
    "special": "one truth value per token",
    "offsets": "one pair per token",
    "segments": "one number per token",
    "ids": "one number per token",
    "groups": "one group per token",
}
TOP: dict[str, Any] = {  # the fields of format 2, without a default (...) or with one
    "kind": "attribution",
    "dtype": "float32",
    "source": ...,
    "predictions": ...,
    "scores": ...,
    "layers": None,
    "method": ...,
    "model": "",
    "options": {},
    "extra": ...,
    "checksum": "",
}
SOURCE: dict[str, Any] = {
    "texts": ...,
    "tokens": ...,
    "offsets": ...,
    "special": ...,
    "segments": [],
    "ids": [],
    "groups": [],
    "by": "token",
    "parts": [],
    "answer": None,
    "decoder": None,
    "seconds": None,
    "cut": [],
    "unknown": [],
}
PREDICTION: dict[str, Any] = {
    "label": None,
    "index": None,
    "probability": None,
    "position": None,
    "against": None,
    "of": None,
    "lens": None,
    "value": None,
}
TOP_RULES: Rules = {
    "scores": (is_scores, NUMBERS),
    "layers": (is_layers, "a matrix of finite numbers per layer, token by token"),
    "method": (is_text, "a text"),
    "model": (is_text, "a text"),
    "options": (is_object, "an object of what JSON has"),
    "extra": (many(is_numbers), "an object of finite numbers"),
}
SOURCE_RULES: Rules = {
    "texts": (lambda value: bool(value) and many(is_text)(value), "a text"),
    "tokens": (many(is_text), "a list of texts"),
    "offsets": (many(is_span), "a list of pairs of whole numbers, start and end"),
    "segments": (many(is_segment), "a list of -1, 0 and 1"),
    "special": (is_special, SIZES["special"]),
    "ids": (many(is_whole), "a list of whole numbers"),
    "groups": (many(is_group), "a list of named groups"),
    "by": (is_text, "a text"),
    "parts": (many(is_group), "a list of named groups"),
    "answer": (optional(is_whole), "a whole number from 0 on or null"),
    "decoder": (optional(is_whole), "a whole number from 0 on or null"),
    "seconds": (optional(is_number), "a number or null"),
    "cut": (many(is_text), "a list of texts"),
    "unknown": (many(is_text), "a list of texts"),
}
PREDICTION_RULES: Rules = {
    "label": (optional(is_text), "a text or null"),
    "index": (optional(is_whole), "a whole number from 0 on or null"),
    "probability": (optional(is_share), "a number from 0 to 1 or null"),
    "position": (optional(is_whole), "a whole number from 0 on or null"),
    "against": (optional(is_whole), "a whole number from 0 on or null"),
    "of": (optional(is_text), "a text or null"),
    "lens": (optional(is_lens), "what was said after each layer, or null"),
    "value": (optional(is_number), "a finite number or null"),
}
OLD: dict[str, Any] = {  # the fields of format 1; those without a default have none here
    "text": ...,
    "tokens": ...,
    "offsets": ...,
    "scores": ...,
    "special": ...,
    "method": ...,
    "label": None,
    "probability": None,
    "layers": None,
    "target": None,
    "position": None,
    "text_pair": None,
    "segments": [],
    "cut": [],
    "model": "",
    "options": {},
    "extra": {},
}

"""Everything that a result holds, before it is one, and what cannot be right about it."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from alti.model.rules import (
    NUMBERS,
    PREDICTION_RULES,
    SIZES,
    SOURCE_RULES,
    TOP_RULES,
    is_list,
)


@dataclass(slots=True)
class Content:
    """Everything that a result holds."""

    kind: str  # attribution or attributions
    source: dict[str, Any]
    predictions: list[dict[str, Any]]  # K
    scores: Tensor  # [K, T]
    layers: Tensor | None
    method: str
    model: str
    options: dict[str, Any]
    extra: list[dict[str, float]]  # K


def check(content: Content) -> None:
    """Raise a ValueError that names the first field which cannot be right."""
    for rules, fields in _checked(content):
        for name, (is_right, expected) in rules.items():
            if not is_right(fields[name]):
                raise ValueError(f"{name} is not {expected}")
    source = content.source
    count = len(source["tokens"])
    _check_sizes(content, count)
    _check_numbers(content)
    _check_places(source)
    for prediction in content.predictions:
        if prediction["position"] is not None and prediction["position"] >= count:
            raise ValueError(f"position {prediction['position']} is behind the last token")


def _checked(content: Content) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    top = {name: getattr(content, name) for name in TOP_RULES}
    pairs = [(SOURCE_RULES, content.source), (TOP_RULES, top)]
    if not is_list(content.predictions) or not content.predictions:
        raise ValueError("predictions is not a list of objects")
    return pairs + [(PREDICTION_RULES, one) for one in content.predictions]


def _check_sizes(content: Content, count: int) -> None:
    predictions = len(content.predictions)
    source = content.source
    if content.scores.shape != (predictions, count):
        raise ValueError(f"scores is not {NUMBERS}")
    if len(content.extra) != predictions:
        raise ValueError(f"extra is not {TOP_RULES['extra'][1]}")
    for name, expected in SIZES.items():
        optional = name in ("segments", "ids", "groups")
        if len(source[name]) != count and not (optional and not len(source[name])):
            raise ValueError(f"{name} is not {expected}")
    if content.layers is not None and content.layers.shape[1:] != (count, count):
        raise ValueError(f"layers is not {TOP_RULES['layers'][1]}")


def _check_numbers(content: Content) -> None:
    """Finite ones, of one dtype; after their shapes, so that a wrong size is never read."""
    for name, tensor in (("scores", content.scores), ("layers", content.layers)):
        if tensor is None:
            continue
        if not tensor.isfinite().all():
            raise ValueError(f"{name} is not {TOP_RULES[name][1]}")
        if tensor.dtype != content.scores.dtype:
            raise ValueError(f"{name} is {tensor.dtype}, but scores is {content.scores.dtype}")


def _check_places(source: dict[str, Any]) -> None:
    """Every token lies inside the text that it is of; an added one inside any."""
    ends = [len(text) for text in source["texts"]]
    if any(segment >= len(ends) for segment in source["segments"]):
        raise ValueError("segments name a second text, and there is none")
    segments = source["segments"] or (0,) * len(source["tokens"])
    for owner, (_, end) in zip(segments, source["offsets"], strict=True):
        if end > (max(ends) if owner < 0 else ends[owner]):
            raise ValueError("offsets lie outside the text")
    for part in source["parts"]:
        if not 0 <= part["segment"] < len(ends) or part["span"][1] > ends[part["segment"]]:
            raise ValueError("parts lie outside the text")
    if source["answer"] is not None and source["answer"] > len(source["tokens"]):
        raise ValueError("answer is behind the last token")
    if source["decoder"] is not None and source["decoder"] > (source["answer"] or 0):
        raise ValueError("decoder is behind the answer")

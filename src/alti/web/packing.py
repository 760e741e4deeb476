"""What is sent to the page: JSON, and maps as 16-bit numbers."""

import base64
import json
from typing import Any

from torch import Tensor

from alti._errors import AltiError
from alti.model.attribution import Attribution
from alti.views import html, latex


def packed(layers: Tensor | None) -> dict[str, Any]:
    """Maps [L, ...] as 16-bit shares of each layer's maximum.

    This takes a tenth of the space, and is finer than any colour.
    """
    if layers is None:
        raise AltiError("this model has no maps per layer")
    largest = layers.flatten(1).amax(1).clamp_min(1e-30)
    shares = (layers / largest.view(-1, *[1] * (layers.dim() - 1)) * 65535).round().clamp(0, 65535)
    data = shares.cpu().numpy().astype("<u2").tobytes()
    return {
        "shape": list(layers.shape),
        "largest": largest.tolist(),
        "data": base64.b64encode(data).decode(),
    }


def as_file(
    attributions: list[Attribution], form: str, *, words: bool, one_scale: bool = False
) -> bytes:
    """Explanations as a page (html), a LaTeX document or a list of to_dict() (json)."""
    if form == "json":
        return as_json([attribution.to_dict() for attribution in attributions])
    write = html.page if form == "html" else latex.document
    return write(attributions, words=words, one_scale=one_scale).encode()


def as_json(plain: Any) -> bytes:
    try:
        return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise AltiError(
            "the model's output for this text is not finite: try --dtype float32"
        ) from None

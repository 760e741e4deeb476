"""Answers the request about an image: the colours of its patches, by each method."""

import base64
import binascii
import io
from typing import Any

from alti._errors import LoadError, UsageError
from alti.experiments.bench import parsed
from alti.methods import METHODS
from alti.methods.logits import probabilities
from alti.model.image_attribution import ImageAttribution
from alti.model.model import Model
from alti.read.exactness import untouched
from alti.read.modules import network
from alti.views.colours import LIGHT, STEPS, paint
from alti.views.pictures import STRONGEST, faded
from alti.views.said import meaning_of, scale_name, side_of
from alti.web.options import checked
from alti.web.packing import as_json
from alti.web.settings import Limits

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
PIXELS = 40_000_000  # of an image; more could be a bomb
CLASSES = 20  # the most classes whose probabilities are shown
SPECIAL = "special tokens"


class ImageDesk:
    """The part of the desk that explains images."""

    models: dict[str, Model]
    limits: Limits

    def picture(self, question: dict[str, Any]) -> bytes:
        """What the model saw, and the score of every patch by each method."""
        model = self.models[question["model"]]
        if model.head.kind != "image":
            raise UsageError(f"{question['model']} reads texts: choose a model that reads images")
        image = opened(question["image"])
        found = [_explained(model, image, spec, question) for spec in question["methods"]]
        first = found[0]
        return as_json(
            {
                "model": question["model"],
                "label": first.label,
                "target": first.target,
                "probability": first.probability,
                "classes": _classes(model, image),
                "seen": _png(first.image),
                "faded": _png(faded(first.image)),
                "size": [first.image.width, first.image.height],
                "colours": [paint(STEPS, LIGHT).background, paint(-STEPS, LIGHT).background],
                "strongest": STRONGEST,
                "rows": [
                    _row(spec, each) for spec, each in zip(question["methods"], found, strict=True)
                ],
            }
        )


def opened(text: str) -> Any:
    """The image of a request; UsageError for what is none, or too large."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise LoadError("images need pillow: pip install 'alti[images]'") from error
    try:
        data = base64.b64decode(text, validate=True)
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        small = image.width * image.height <= PIXELS
        if small:
            return image.convert("RGB")
    except Image.DecompressionBombError:
        small = False
    except (binascii.Error, UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise UsageError(
            f"this is no image that can be read: give one of {', '.join(FORMATS)}"
        ) from error
    raise UsageError(f"the image has over {PIXELS:,} pixels: make it smaller")


def _explained(model: Model, image: Any, spec: str, question: dict[str, Any]) -> ImageAttribution:
    method, options = parsed(spec)
    against = question["against"] if METHODS[method].class_specific else None
    asked = {"method": method, "layers": False, "target": question["target"], "against": against}
    found: Any = model.explain(image, **asked, **checked(method, options))
    result: ImageAttribution = found
    return result


def _classes(model: Model, image: Any) -> list[dict[str, Any]]:
    """The most probable labels, best first."""
    place, _ = model.show(image)
    logits = untouched(network(model.model), {"pixel_values": place.pixels}).logits[0].double()
    shares = probabilities(logits[None].cpu(), model.head.config)[0]
    best = shares.topk(min(CLASSES, len(shares))).indices.tolist()
    labels = model.head.config.id2label
    return [
        {"index": i, "label": str(labels.get(i, i)), "probability": float(shares[i])} for i in best
    ]


def _row(spec: str, found: ImageAttribution) -> dict[str, Any]:
    """What one method says: a score for every patch, row by row."""
    special = float(found.special.sum())
    return {
        "method": spec,
        "scores": found.scores.tolist(),
        "unit": scale_name(found),
        "side": side_of(found),
        "left": [[SPECIAL, special, meaning_of(SPECIAL)]],
    }


def _png(image: Any) -> str:
    out = io.BytesIO()
    image.save(out, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"

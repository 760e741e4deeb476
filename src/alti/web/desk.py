"""What the worker process does with a request: it holds the models and answers in bytes."""

import base64
import json
from typing import Any

import torch
from torch import Tensor

from alti._characters import visible
from alti._errors import AltiError, UsageError
from alti.experiments.bench import default_methods, parsed
from alti.methods import METHODS, options_of, reads_class, summary_of, takes_many_passes, validate
from alti.methods.logits import kind_of, logits_of, probabilities
from alti.model.attribution import Attribution
from alti.model.loading import load
from alti.model.model import Model, Request
from alti.read.modules import evaluating, network, stacks_of
from alti.views import html, latex
from alti.views.segments import passages
from alti.web.settings import Settings

CLASSES = 20  # whose probabilities the page shows
LABELS = 200  # that the page offers
LARGEST = 1000  # number that an option may have: steps of integrated gradients take memory
LARGEST_OF_LINKS = 200  # the same for an option that a link gives to a method with many passes
SECOND_NORM = ("globenc", "alti_ln2")


class Desk:
    """The models of a server by name."""

    def __init__(self, settings: Settings) -> None:
        self.limits = settings.limits
        self.models: dict[str, Model] = {}
        for name in settings.models:
            model = load(
                name,
                device=settings.device,
                dtype=settings.dtype,
                trust_remote_code=settings.trust_remote_code,
            )
            _ = model.head, model.encoder  # what explain does not take is refused at the start
            same = sum(other.name == model.name for other in self.models.values())
            self.models[f"{model.name} ({same + 1})" if same else model.name] = model

    def describe(self) -> dict[str, Any]:
        """What can be asked for."""
        return {
            "models": [
                _described(name, model, self.limits.tokens) for name, model in self.models.items()
            ],
            "methods": [
                {
                    "name": name,
                    "what": summary_of(name),
                    "classes": reads_class(name),
                    "options": _own(name),
                    "many_passes": takes_many_passes(name),
                    "largest": LARGEST_OF_LINKS if takes_many_passes(name) else LARGEST,
                }
                for name in METHODS
            ],
        }

    def explain(self, asked: dict[str, Any]) -> bytes:
        """The JSON of Attribution.to_dict()."""
        model = self._model(asked)
        what = {name: asked[name] for name in ("method", "target", "against", "position", "layers")}
        return _json(
            self._explained(
                model, asked, **what, **_checked(asked["method"], asked["options"])
            ).to_dict()
        )

    def view(self, asked: dict[str, Any]) -> bytes:
        """All that the page shows of a text, the maps of the layers as 16-bit numbers."""
        model = self._model(asked)
        found = self._all(model, asked, layers=True)
        shares = (
            one for one in found if one.layers is not None and one.method != "globenc"
        )  # whose rows are lengths
        mixed = next(shares, None)
        if mixed is None:
            mixed = self._explained(model, asked, method="alti", position=asked["position"])
        first = next(
            (one for one in found if "against" in one.extra), found[0]
        )  # its label names the rival too
        return _json(
            {
                "model": asked["model"],
                "names": _names(first),
                "special": first.special.tolist(),
                "position": first.position,
                "target": first.target,
                "label": first.label,
                "probability": first.probability,
                "classes": _classes(model, asked),
                "words": _pieces(first, words=True),
                "tokens": _pieces(first, words=False),
                "rows": [
                    {"method": spec, "scores": one.scores.tolist()}
                    for spec, one in zip(asked["methods"], found, strict=True)
                ],
                "mixing": {"method": mixed.method, **_packed(mixed.layers)},
            }
        )

    def export(self, asked: dict[str, Any]) -> bytes:
        """The explanations as a page, as a LaTeX document or as a list of to_dict()."""
        questions = [asked] + (
            [{**asked, "text": asked["other"]}] if asked["other"] is not None else []
        )
        found = [
            one for each in questions for one in self._all(self._model(each), each, layers=False)
        ]
        if asked["format"] == "json":
            return _json([one.to_dict() for one in found])
        written = html.page if asked["format"] == "html" else latex.document
        return written(found, words=asked["words"]).encode()

    def _model(self, asked: dict[str, Any]) -> Model:
        """The model that is asked for, once the text is known to be short enough."""
        model = self.models[asked["model"]]
        encoded = model.encoder.encode(asked["text"], asked["text_pair"], truncate=True)
        most = min(self.limits.tokens, model.encoder.limit)
        if encoded.cut or len(encoded.ids) > most:
            raise UsageError(
                f"the text is longer than the {most} tokens that can be explained here: shorten it"
            )
        return model

    def _all(self, model: Model, asked: dict[str, Any], *, layers: bool) -> list[Attribution]:
        what = {name: asked[name] for name in ("target", "position")}
        found = []
        for name, options in [parsed(spec) for spec in asked["methods"]]:
            rival = (
                asked["against"] if reads_class(name) else None
            )  # to the others every class is the same
            given = {
                "method": name,
                "layers": layers,
                "against": rival,
                **what,
                **_checked(name, options),
            }
            found.append(self._explained(model, asked, **given))
        return found

    def _explained(self, model: Model, asked: dict[str, Any], **what: Any) -> Attribution:
        return model.explain(asked["text"], asked["text_pair"], **what)


def _checked(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The method's own options and no other argument of explain, in numbers that a request may take."""
    validate(method, options)
    for name, value in options.items():
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise UsageError(f"the option {name} takes numbers up to {LARGEST} here")
    return options


def _described(name: str, model: Model, tokens: int) -> dict[str, Any]:
    config = model.head.config
    named = model.head.kind in ("sequence", "token")
    second = "globenc" in default_methods(model)
    return {
        "name": name,
        "family": model.family,
        "kind": model.head.kind,
        "mask": model.encoder.tokenizer.mask_token or "",
        "layers": sum(len(layers) for _, layers in stacks_of(model.model)),
        "outputs": len(config.id2label) if named else getattr(config, "vocab_size", 0),
        "labels": [str(label) for _, label in sorted(config.id2label.items())][:LABELS]
        if named
        else [],
        "methods": [m for m in METHODS if (second or m not in SECOND_NORM) and _predicts(model, m)],
        "tokens": min(model.encoder.limit, tokens),
    }


def _predicts(model: Model, method: str) -> bool:
    return model.head.kind != "encoder" or not reads_class(method)


def _own(method: str) -> dict[str, Any]:
    return {name: default for name, default in options_of(method).items() if name != "layers"}


def _classes(model: Model, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The most probable outputs, best first; none without a head or where the output is a plain value."""
    head, tokenizer = model.head, model.encoder.tokenizer
    if head.kind == "encoder":
        return []
    request = Request(position=asked["position"])
    inputs, target = model.batch([model.task(asked["text"], asked["text_pair"], request)], request)
    with torch.no_grad(), evaluating(model.model):
        output = network(model.model)(**inputs.tensors, return_dict=True)
    logits = logits_of(output, target.position)[0].double().cpu()
    if kind_of(head.config, len(logits)) == "value":
        return []
    shares = probabilities(logits[None], head.config)[0]
    best = shares.topk(min(CLASSES, len(shares))).indices.tolist()
    return [
        {
            "index": i,
            "label": head.prediction(tokenizer, logits, i)[1],
            "probability": float(shares[i]),
        }
        for i in best
    ]


def _names(found: Attribution) -> list[str]:
    """What the page calls each token: its characters in the text; an added one as the tokenizer writes it."""
    texts, owners = (found.text, found.text_pair or ""), found.segments or (0,) * len(found)
    shown = [
        "" if owner < 0 else texts[owner][slice(*span)].strip()
        for owner, span in zip(owners, found.offsets, strict=True)
    ]
    return [visible(name or token) for name, token in zip(shown, found.tokens, strict=True)]


def _pieces(found: Attribution, *, words: bool) -> list[list[dict[str, Any]]]:
    """The texts in pieces, each with the tokens whose scores it sums."""
    return [
        [
            {"text": visible(piece.text), "places": piece.places, "special": piece.special}
            for piece in passage
        ]
        for passage in passages(found, words=words)
    ]


def _packed(layers: Tensor | None) -> dict[str, Any]:
    """Maps [L, T, T] as 16-bit shares of each layer's largest number: a tenth of the size, finer than any colour."""
    if layers is None:
        raise AltiError("this model has no maps of layers")
    largest = layers.amax((1, 2)).clamp_min(1e-30)
    shares = (layers / largest[:, None, None] * 65535).round().clamp(0, 65535)
    data = shares.cpu().numpy().astype("<u2").tobytes()
    return {
        "shape": list(layers.shape),
        "largest": largest.tolist(),
        "data": base64.b64encode(data).decode(),
    }


def _json(plain: Any) -> bytes:
    try:
        return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise AltiError(
            "the model gives numbers that are not finite for this text: try --dtype float32"
        ) from None

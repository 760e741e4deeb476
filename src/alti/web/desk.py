"""Answers the requests in the worker process, which holds the models."""

from typing import Any

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.experiments.bench import parsed
from alti.methods import METHODS, Method
from alti.methods.logits import kind_of, probabilities, target_logits
from alti.model.attribution import Attribution
from alti.model.head import VOCABULARIES, token_label
from alti.model.loading import load
from alti.model.model import Model
from alti.model.request import Request
from alti.read.modules import evaluating, network, stacks_of
from alti.views.said import left_out, meaning_of, scale_name, side_of
from alti.web.alignments import AlignmentDesk
from alti.web.answers import AnswerDesk, describe_writer
from alti.web.deeper import DeeperDesk, declared
from alti.web.help import PLAIN, recommended, too_long
from alti.web.images import ImageDesk
from alti.web.options import LARGEST, LARGEST_OF_LINKS, checked
from alti.web.packing import as_file, as_json, packed
from alti.web.pieces import cut, token_names
from alti.web.sets import SetDesk
from alti.web.settings import Settings
from alti.web.whatif import WhatIfDesk

CLASSES = 20  # the most classes whose probabilities are shown
LABELS = 200  # the most labels to choose from


class Desk(AnswerDesk, WhatIfDesk, DeeperDesk, SetDesk, AlignmentDesk, ImageDesk):
    """The models of a server by name."""

    def __init__(self, settings: Settings) -> None:
        self.limits = settings.limits
        self.models: dict[str, Model] = {}
        for name in settings.models:
            model = load(
                name,
                device=settings.device,
                dtype=settings.dtype,
                graphs=settings.graphs,
                trust_remote_code=settings.trust_remote_code,
            )
            _require_fields(name, model)
            if model.head.kind != "image":  # which has no tokens
                _ = model.encoder  # raises now if explain cannot handle the model
            same = sum(other.name == model.name for other in self.models.values())
            self.models[f"{model.name} ({same + 1})" if same else model.name] = model

    def describe(self) -> dict[str, Any]:
        """The models and methods to choose from."""
        tokens = self.limits.tokens
        return {
            "models": [
                {**_model_entry(name, model, tokens), **describe_writer(model, self.limits)}
                for name, model in self.models.items()
            ],
            "methods": [_method_entry(method) for method in METHODS.values()],
        }

    def explain(self, question: dict[str, Any]) -> bytes:
        """Attribution.to_dict() as JSON."""
        model = self._model(question)
        method = question["method"]
        options = checked(method, question["options"])
        names = ("target", "against", "position", "layers")
        arguments = {name: question[name] for name in names}
        return as_json(_explain(model, question, method=method, **arguments, **options).to_dict())

    def view(self, question: dict[str, Any]) -> bytes:
        """Everything the page shows for a text, with the maps of the layers as 16-bit numbers."""
        model = self._model(question)
        attributions = _explain_all(model, question, layers=True)
        mixing = _mixing(model, question, attributions)
        contrasted = (each for each in attributions if each.prediction.against is not None)
        first = next(contrasted, attributions[0])  # a contrasted label names the rival too
        rows = [
            _row(spec, attribution)
            for spec, attribution in zip(question["methods"], attributions, strict=True)
        ]
        return as_json(
            {
                "model": question["model"],
                "names": token_names(first),
                "special": first.special.tolist(),
                "position": first.position,
                "target": first.target,
                "label": first.label,
                "probability": first.probability,
                **_outputs(model, question, first.target),
                "words": cut(first, words=True),
                "tokens": cut(first, words=False),
                "rows": rows,
                "mixing": {"method": mixing.method, **packed(mixing.layers)},
            }
        )

    def export(self, question: dict[str, Any]) -> bytes:
        """The explanations as a page, a LaTeX document or a list of to_dict()."""
        maps = question["maps"] and question["format"] == "json"
        attributions = _explain_all(self._model(question), question, layers=maps)
        if question["other"] is not None:  # for the same class: others could not be compared
            target = attributions[0].target if question["target"] is None else question["target"]
            other = {**question, "text": question["other"], "target": target}
            attributions += _explain_all(self._model(other), other, layers=maps)
        if question["versus"] is not None:  # for the same class, however that model numbers it
            beside = {
                **question,
                "model": question["versus"],
                **_named(self, question, attributions),
            }
            attributions += _explain_all(self._model(beside), beside, layers=maps)
        compared = question["other"] is not None or question["versus"] is not None
        words = question["words"]
        return as_file(attributions, question["format"], words=words, one_scale=compared)

    def reader(self, question: dict[str, Any]) -> Model:
        """The requested model for a text, or for a prompt with its answer."""
        answers = question["answer"] is not None or question["answer_ids"] is not None
        return self._writer(question) if answers else self._model(question)

    def _model(self, question: dict[str, Any]) -> Model:
        """The requested model; raises if the text is too long for it."""
        model = self.models[question["model"]]
        if model.head.kind == "image":  # a text could be the path of a file
            raise UsageError(f"{question['model']} reads images, no text: choose one")
        encoder = model.encoder
        encoded = encoder.encode(question["text"], question["text_pair"], truncate=True)
        limit = min(self.limits.tokens, encoder.limit)
        if encoded.cut or len(encoded.ids) > limit:
            raise UsageError(_too_long(encoder.tokenizer, question, limit, encoder.limit))
        return model


def _too_long(tokenizer: Any, question: dict[str, Any], limit: int, model_limit: int) -> str:
    def count(*texts: str | None, **more: Any) -> int:
        return len(tokenizer(*texts, verbose=False, **more)["input_ids"])

    text, pair = question["text"], question["text_pair"]
    parts = None
    if pair is not None:
        parts = (count(text, add_special_tokens=False), count(pair, add_special_tokens=False))
    return too_long(count(text, pair), limit, model_limit, parts)


def _named(desk: Desk, question: dict[str, Any], found: list[Attribution]) -> dict[str, Any]:
    """The class and its rival by their names, for another model."""
    model = desk.models[question["model"]]
    numbers = {"target": found[0].target, "against": question["against"]}

    def named(index: int) -> str:
        if model.head.kind in VOCABULARIES:
            return token_label(model.tokenizer, index)
        return str(model.head.config.id2label.get(index, index))

    return {
        name: named(number) if isinstance(number, int) else number
        for name, number in numbers.items()
    }


def _explain_all(model: Model, question: dict[str, Any], *, layers: bool) -> list[Attribution]:
    """An attribution for each requested method."""
    attributions = []
    for method, options in [parsed(spec) for spec in question["methods"]]:
        arguments = {
            "method": method,
            "layers": layers,
            "target": question["target"],
            "against": question["against"] if METHODS[method].class_specific else None,
            "position": question["position"],
            **checked(method, options),
        }
        attributions.append(_explain(model, question, **arguments))
    return attributions


def _explain(model: Model, question: dict[str, Any], **arguments: Any) -> Attribution:
    """One result; of a model that answers questions, where its answer starts and ends together."""
    if model.head.kind == "span":
        arguments["total"] = True
    result: Attribution = model.explain(question["text"], question["text_pair"], **arguments)
    return result


def _mixing(model: Model, question: dict[str, Any], attributions: list[Attribution]) -> Attribution:
    """The first attribution whose layers are shares of the input, else one by ALTI."""
    for attribution in attributions:
        if attribution.layers is not None and METHODS[attribution.method].shares:
            return attribution
    return _explain(model, question, method="alti", position=question["position"])


def _method_entry(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "what": PLAIN.get(method.name, method.summary),
        "classes": method.class_specific,
        "options": method.options,
        "declared": declared(method),
        "many_passes": method.many_passes,
        "largest": LARGEST_OF_LINKS if method.many_passes else LARGEST,
    }


def _require_fields(name: str | None, model: Model) -> None:
    """Raise for a model that reads what the page has no fields for."""
    if model.head.hears or model.head.kind == "choice":
        reads = "sounds" if model.head.hears else "several choices"
        raise UsageError(
            f"{name} reads {reads}, which the page has no fields for: use alti explain, or the "
            "library"
        )


def _model_entry(name: str, model: Model, tokens: int) -> dict[str, Any]:
    config = model.head.config
    named = model.head.kind in ("sequence", "token", "image")
    reads = model.head.kind != "image"  # tokens
    labels = [str(label) for _, label in sorted(config.id2label.items())] if named else []
    return {
        "name": name,
        "family": model.family,
        "kind": model.head.kind,
        "mask": (model.encoder.tokenizer.mask_token or "") if reads else "",
        "layers": sum(len(layers) for _, layers in stacks_of(model.model)),
        "outputs": len(config.id2label) if named else getattr(config, "vocab_size", 0),
        "labels": labels[:LABELS],
        "methods": [name for name, method in METHODS.items() if model.suits(method)],
        "recommended": recommended(model.head.kind),
        "tokens": min(model.encoder.limit, tokens) if reads else 0,
    }


def _outputs(model: Model, question: dict[str, Any], target: int | None) -> dict[str, Any]:
    """The most probable outputs, best first; none without a head or for a regression.

    And, of a token that was named without its space, the far likelier one with a space in front.
    """
    head = model.head
    tokenizer = model.encoder.tokenizer
    none: dict[str, Any] = {"classes": [], "spaced": None}
    if head.kind in ("encoder", "span"):
        return none
    logits = _logits(model, question)
    if kind_of(head.config, len(logits)) == "value":
        return none
    shares = probabilities(logits[None], head.config)[0]

    def entry(i: int) -> dict[str, Any]:
        label = head.prediction(tokenizer, logits, i)[1]
        return {"index": i, "label": label, "probability": float(shares[i])}

    best = shares.topk(min(CLASSES, len(shares))).indices.tolist()
    spaced = None if target is None else head.spaced(tokenizer, logits, target)
    return {
        "classes": [entry(i) for i in best],
        "spaced": None if spaced is None else entry(spaced),
    }


def _logits(model: Model, question: dict[str, Any]) -> Tensor:
    request = Request(position=question["position"])
    task = model.task(question["text"], question["text_pair"], request)
    inputs, target = model.batch([task], request)
    with torch.no_grad(), evaluating(model.model):
        output = network(model.model)(**inputs.tensors, return_dict=True)
    return target_logits(output, target)[0, 0].double().cpu()


def _row(spec: str, attribution: Attribution) -> dict[str, Any]:
    """What one method says: its scores, what they are of, and what the word view does not show."""
    left = [[name, score, meaning_of(name)] for name, score in left_out(attribution)]
    return {
        "method": spec,
        "scores": attribution.scores.tolist(),
        "unit": scale_name(attribution),
        "side": side_of(attribution),
        "left": left,
    }

"""Answers the request for a prediction alone: the page asks it for the rows of a set of texts."""

from typing import Any

from alti.methods.logits import kind_of, probabilities, target_logits
from alti.model.model import Model
from alti.model.request import Request
from alti.read.exactness import untouched
from alti.web.packing import as_json


class SetDesk:
    """The part of the desk that predicts and explains nothing."""

    def _model(self, question: dict[str, Any]) -> Model:
        raise NotImplementedError  # the desk has the models

    def predict(self, question: dict[str, Any]) -> bytes:
        """What a model says about a text: label, number and probability, from one forward pass."""
        model = self._model(question)
        if model.head.kind == "encoder":
            return as_json({"label": None, "index": None, "probability": None})
        request = Request(position=question["position"])
        task = model.task(question["text"], question["text_pair"], request)
        inputs, target = model.batch([task], request)
        logits = target_logits(untouched(model.model, inputs.asking(target)), target)[0, 0]
        index, label, _ = model.head.prediction(model.tokenizer, logits, None)
        if kind_of(model.head.config, len(logits)) == "value":
            return as_json({"label": label, "index": index, "probability": None})
        chances = probabilities(logits.double()[None], model.head.config)[0]
        return as_json({"label": label, "index": index, "probability": float(chances[index])})

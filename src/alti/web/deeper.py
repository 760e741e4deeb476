"""Answers the requests about one layer: its heads, and what the model would have said there."""

from dataclasses import asdict
from typing import Any

from alti._characters import visible
from alti._errors import UsageError
from alti.methods import Method
from alti.methods.options import Option
from alti.model.head_maps import HeadMaps
from alti.model.model import Model
from alti.read.modules import network
from alti.web.options import LARGEST
from alti.web.packing import as_json, packed

NUMBERS = 1_500_000  # of one map of all heads; more are sent for one token alone


class DeeperDesk:
    """The part of the desk that looks into layers."""

    def _model(self, question: dict[str, Any]) -> Model:
        raise NotImplementedError  # the desk has the models

    def heads(self, question: dict[str, Any]) -> bytes:
        """The maps of every head of a layer: attention and contributions."""
        model = self._model(question)
        texts = question["text"], question["text_pair"]
        tokens = len(model.encoder.encode(*texts).ids)
        count = getattr(network(model.model).config, "num_attention_heads", 1)
        alone = count * tokens**2 > NUMBERS
        if not 0 <= question["place"] < tokens:
            raise UsageError(f"token {question['place']} is outside the text: it has {tokens}")
        rows = [question["place"]] if alone else None
        return as_json(_sent(model.heads(*texts, layer=question["layer"], positions=rows)))

    def lens(self, question: dict[str, Any]) -> bytes:
        """What a language model would have said after each layer."""
        model = self._model(question)
        asked = {name: question[name] for name in ("position", "target")}
        found = model.explain(
            question["text"],
            question["text_pair"],
            method="random",
            layers=False,
            lens=True,
            **asked,
        )
        assert found.lens is not None
        tokens = [[visible(token) for token in row] for row in found.lens.tokens]
        label = visible(found.label or "")
        return as_json({"label": label, **asdict(found.lens), "tokens": tokens})


def _sent(maps: HeadMaps) -> dict[str, Any]:
    return {
        "layer": maps.layer,
        "rows": list(maps.rows),
        "attention": packed(maps.attention),
        "contributions": packed(maps.contributions),
        "strengths": maps.strengths.tolist(),
        "shares": maps.contributions.sum(2).T.tolist(),  # [n, H]
        "residual": maps.residual.tolist(),
    }


def declared(method: Method) -> list[dict[str, Any]]:
    """The options that a method declares, for the page's panel."""
    return [_plain(each) for each in method.declared.values() if not each.about.technical]


def _plain(option: Option) -> dict[str, Any]:
    numbers = option.kind in ("integer", "number")
    low, high = option.about.lowest, option.about.highest
    return {
        "name": option.name,
        "kind": option.kind,
        "default": option.default,
        "choices": list(option.choices),
        "help": option.about.help,
        "lowest": low,
        "highest": min(high or LARGEST, LARGEST) if numbers else None,
    }

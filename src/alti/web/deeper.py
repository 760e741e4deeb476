"""Answers the requests about one layer: its heads, and what the model would have said there."""

from dataclasses import asdict
from typing import Any

from alti._characters import visible
from alti._errors import UsageError
from alti.methods import Method
from alti.methods.options import Option
from alti.model.attribution import Attribution
from alti.model.head_maps import HeadMaps
from alti.model.model import Model
from alti.model.question import Question, read_prompt
from alti.read.modules import network
from alti.web.options import LARGEST
from alti.web.packing import as_json, packed
from alti.web.pieces import cut, token_names
from alti.web.prompts import answer_of, prompt_of

NUMBERS = 1_500_000  # of one map of all heads; more are sent for one token alone


class DeeperDesk:
    """The part of the desk that looks into layers."""

    def _model(self, question: dict[str, Any]) -> Model:
        raise NotImplementedError  # the desk has the models

    def _writer(self, question: dict[str, Any]) -> Model:
        raise NotImplementedError  # the same for what a model writes

    def heads(self, question: dict[str, Any]) -> bytes:
        """The maps of every head of a layer: attention and contributions."""
        model = self._model(question)
        texts = {"text": question["text"], "text_pair": question["text_pair"]}
        tokens = len(model.encoder.encode(**texts).ids)
        maps = _heads(model, texts, question["layer"], question["place"], tokens)
        return as_json(_sent(maps))

    def answer_heads(self, question: dict[str, Any]) -> bytes:
        """The same of a prompt with its answer, which are sent in pieces, too."""
        model = self._writer(question)
        asked = {**prompt_of(question), **answer_of(question)}
        one = _token(model, question, asked)
        found = model.explain(**asked, method="random")[one]
        tokens = len(found.source)
        place = found.position if question["place"] is None else question["place"]
        maps = _heads(model, asked, question["layer"], place, tokens)
        pieces = {"words": cut(found, words=True), "tokens": cut(found, words=False)}
        about = {"names": token_names(found), "special": found.special.tolist(), **pieces}
        return as_json({**_sent(maps), "place": place, "of": about})

    def answer_lens(self, question: dict[str, Any]) -> bytes:
        """What a language model would have said in place of a token of an answer."""
        model = self._writer(question)
        asked = {**prompt_of(question), **answer_of(question)}
        one = _token(model, question, asked)
        return as_json(_said(model.explain(**asked, method="random", lens=True)[one]))

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
        return as_json(_said(found))


def _heads(
    model: Model, asked: dict[str, Any], layer: int, place: int | None, tokens: int
) -> HeadMaps:
    """The maps of a layer; of a long text one row, because all of them would be too large."""
    if place is None or not 0 <= place < tokens:
        raise UsageError(f"token {place} is outside the text: it has {tokens}")
    count = getattr(network(model.model).config, "num_attention_heads", 1)
    rows = [place] if count * tokens**2 > NUMBERS else None
    return model.heads(**asked, layer=layer, positions=rows)


def _token(model: Model, question: dict[str, Any], asked: dict[str, Any]) -> int:
    """The number of a token of an answer, which a causal model has."""
    if model.head.kind != "causal":
        raise UsageError(f"{question['model']} reads source and target apart: choose another model")
    encoded = read_prompt(Question(**asked), model.encoder)
    count = len(encoded.ids) - (encoded.answer or 0)
    if not 0 <= question["token"] < count:
        raise UsageError(f"token {question['token']} is not in the answer, which has {count}")
    return int(question["token"])


def _said(found: Attribution) -> dict[str, Any]:
    """A lens with its names made harmless."""
    assert found.lens is not None
    tokens = [[visible(token) for token in row] for row in found.lens.tokens]
    return {"label": visible(found.label or ""), **asdict(found.lens), "tokens": tokens}


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

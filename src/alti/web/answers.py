"""Answers the requests about what a model writes: its tokens, and what they rest on."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from alti._characters import visible
from alti._errors import UsageError
from alti.experiments.bench import parsed
from alti.methods import METHODS
from alti.model.answers import GREEDY, JoinedByTokens
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.decoding import LONGEST, decoded
from alti.model.head import VOCABULARIES, token_label
from alti.model.model import Model
from alti.model.question import Question, read_prompt
from alti.model.source import Source
from alti.model.through_layers import through_layers
from alti.read.modules import network, stacks_of
from alti.views.said import SO_FAR, as_shown, left_out, scale_name, shortened, side_of, unnamed
from alti.web.help import LARGE, beside, too_long
from alti.web.options import checked
from alti.web.packing import as_file, as_json, packed
from alti.web.pieces import by_piece, pieces_of, sections_of, shown_as
from alti.web.prompts import answer_of, prompt_of
from alti.web.settings import Limits

LARGER = ("sentence", "line", "document", "message")  # groups that may be scored as wholes
NUMBERS = 4_000_000  # of maps in a file of JSON
LABEL = 300  # characters of an answer in a title

Token = dict[str, Any]  # of an answer: its id, text, name and probability


class AnswerDesk:
    """The part of the desk that lets models write and explains it."""

    limits: Limits
    models: dict[str, Model]
    wrote: Callable[[Token], None] = staticmethod(lambda token: None)  # tells whoever waits

    def generate(self, question: dict[str, Any]) -> bytes:
        """The tokens that a model writes; meanwhile each is told as it comes."""
        model = self._writer(question)
        count = question["tokens"]
        if not 1 <= count <= self.limits.written:
            raise UsageError(
                f"{count} new tokens were asked for: up to {self.limits.written} can be written "
                "here"
            )
        watched = Watched(model, self.wrote, count)
        options = {**GREEDY, "max_new_tokens": count, "logits_processor": [watched]}
        ids = model.written(**prompt_of(question), generate=options)
        return as_json({"ids": ids, "tokens": watched.tokens[: len(ids)]})

    def answer(self, question: dict[str, Any]) -> bytes:
        """What an answer or a part of it rests on, with the probability of each token."""
        model = self._writer(question)
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", JoinedByTokens)
            shown = _explained(model, question)
        said = (str(each.message) for each in noted if each.category is JoinedByTokens)
        notes = [f"{text[:1].upper()}{text[1:]}." for text in dict.fromkeys(said)]
        notes += _large(shown)
        return as_json({**shown, "model": question["model"], "notes": notes})

    def answer_export(self, question: dict[str, Any]) -> bytes:
        """What an answer or a part of it rests on, as a file."""
        model = self._writer(question)
        maps = question["maps"] and question["format"] == "json"
        if maps:
            _require_maps(model, question)
        found = _found(model, question, layers=maps)
        return as_file([found], question["format"], words=question["by"] != "token")

    def layers(self, question: dict[str, Any]) -> bytes:
        """What the positions that write a part of an answer consist of after each layer."""
        model = self._writer(question)
        asked = {**prompt_of(question), **answer_of(question), "part": question["part"]}
        starts, columns = by_piece(through_layers(model, **asked), question["by"])
        return as_json({"starts": starts, **packed(columns)})

    def says_words(self, question: dict[str, Any]) -> bool:
        """Whether what the requested model predicts are words."""
        return self.models[question["model"]].head.kind in VOCABULARIES

    def _writer(self, question: dict[str, Any]) -> Model:
        """The requested model; raises if it writes nothing, or if the prompt is too long."""
        model = self.models[question["model"]]
        if not writes(model):
            raise UsageError(
                f"{question['model']} writes no text: choose a language model or a translator"
            )
        encoder = model.encoder
        encoded = read_prompt(Question(**prompt_of(question)), encoder)
        tokens = len(encoded.ids) + len(question.get("answer_ids") or ())
        limit = min(self.limits.prompt, encoder.limit)
        if tokens > limit:
            raise UsageError(too_long(tokens, limit, encoder.limit))
        return model


def writes(model: Model) -> bool:
    """Whether a model writes texts behind texts."""
    return model.head.kind in ("causal", "seq2seq") and not model.head.hears


class Watched:
    """Sees the logits of every token while transformers generates, and tells the token at once.

    It is called as a logits processor, after those of the model's own settings; what is written is
    the likeliest token (greedy).
    """

    def __init__(self, model: Model, wrote: Callable[[Token], None], most: int) -> None:
        self.model = model
        self.wrote = wrote
        self.most = most
        ends = network(model.model).generation_config.eos_token_id
        self.ends = ends if isinstance(ends, list) else [ends]
        self.tokens: list[Token] = []
        self.pending: list[int] = []  # tokens whose character is not complete

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        chance, index = logits[0].double().softmax(-1).max(0)
        number = int(index)
        if number not in self.ends and len(self.tokens) < self.most:
            text = self._new_text(ids[0].tolist(), number)
            name = shown_as(text) or token_label(self.model.tokenizer, number)
            said = {"text": visible(text), "name": visible(name)}
            self.tokens.append({"id": number, **said, "probability": float(chance)})
            self.wrote(self.tokens[-1])
        return logits

    def _new_text(self, before: list[int], number: int) -> str:
        """What a token adds to the answer's text: nothing before its character is complete."""
        if self.model.head.kind != "causal":  # a decoder's first tokens are no text
            before = [token["id"] for token in self.tokens]
        before = before[: len(before) - len(self.pending)]
        self.pending.append(number)
        text, _ = decoded(self.model.tokenizer, self.pending, before)
        if text.endswith("\ufffd") and len(self.pending) < LONGEST:
            return ""
        self.pending = []
        return text


def _require_maps(model: Model, question: dict[str, Any]) -> None:
    """Raise where an answer has no maps of layers, or more numbers than a file should hold."""
    method, _ = parsed(question["method"])
    if not METHODS[method].draws_maps:
        drawn = ", ".join(name for name, each in METHODS.items() if each.draws_maps)
        raise UsageError(f"{method} draws no maps: choose {drawn}, or take the JSON without maps")
    encoded = read_prompt(Question(**prompt_of(question), **answer_of(question)), model.encoder)
    tokens = len(encoded.ids)
    layers = sum(len(layers) for _, layers in stacks_of(model.model))
    if layers * tokens**2 > NUMBERS:
        raise UsageError(
            f"the maps of {tokens} tokens are {layers * tokens**2 / 1e6:.0f} million numbers, and "
            f"{NUMBERS / 1e6:.0f} fit into a file: take the JSON without maps, or a shorter prompt"
        )


def _found(model: Model, question: dict[str, Any], *, layers: bool = False) -> Attribution:
    """What an answer or a part of it rests on; larger groups are scored as wholes.

    With `layers` by token, since maps of layers are of tokens.
    """
    method, options = parsed(question["method"])
    by = question["by"]
    given = {
        "method": method,
        "groups": by if by in LARGER and not layers else None,
        "part": question["part"],
        "against": question["against"],
        "total": True,
        **({"layers": True} if layers else {}),
        **checked(method, options),
    }
    found: Attribution = model.explain(**prompt_of(question), **answer_of(question), **given)
    return found


def _explained(model: Model, question: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of an answer, and its tokens if they are asked for."""
    found = _found(model, question)
    shown = _view(found, question["by"], _side(question))
    if question["tokens"]:
        shown["answer"] = _tokens(model, question, found)
    return {**shown, "method": question["method"], "by": question["by"]}


def _tokens(model: Model, question: dict[str, Any], found: Attribution) -> list[Token]:
    """The tokens of an answer; their probabilities are known where all of it was explained."""
    chances = found.prediction.steps
    if chances and question["part"] is None and question["by"] not in LARGER:
        return tokens_of(found.source, chances)
    asked = {**prompt_of(question), **answer_of(question)}
    every: Attributions = model.explain(**asked, method="random")
    return tokens_of(every.source, [one.probability or 0.0 for one in every.predictions])


def _side(question: dict[str, Any]) -> str:
    """What scores speak for or against."""
    if question["against"] is not None:
        return "the first answer"
    return "the answer" if question["part"] is None else "this part"


def _view(found: Attribution, by: str, side: str) -> dict[str, Any]:
    shown = found if "log_prob_against" in found.extra else as_shown(found)
    pieces = pieces_of(shown, by)
    extra = shown.extra
    left = [] if by == "token" else left_out(shown)
    left.append((SO_FAR, extra.get("answer", 0.0)))
    return {
        "pieces": pieces,
        "sections": sections_of(shown.source, pieces),
        "label": visible(shortened(found.label or "", LABEL)),
        "probability": found.probability,
        "log_prob": extra.get("log_prob"),
        "log_prob_against": extra.get("log_prob_against"),
        "unit": unnamed(scale_name(shown), side_of(shown)),
        "side": side,
        "left": [[name, score, beside(name)] for name, score in left],
        "signed": bool((shown.scores < 0).any()),
    }


def _large(shown: dict[str, Any]) -> list[str]:
    """A note where more belongs to no word than the strongest word has."""
    words = [abs(each.get("score", 0.0)) for each in shown["pieces"] if not each.get("special")]
    names = [name for name, score, _ in shown["left"] if abs(score) > max(words, default=0.0)]
    return [LARGE.format(names=", ".join(names))] if names else []


def tokens_of(source: Source, chances: Sequence[float]) -> list[Token]:
    """The tokens of an answer with their probabilities: their texts join to the answer."""
    start = source.answer or 0
    answer = source.texts[1]
    tokens = []
    at = 0
    for k, chance in enumerate(chances):
        end = max(at, source.offsets[start + k][1])
        if k == len(chances) - 1:
            end = len(answer)
        text = answer[at:end] or ""
        tokens.append(
            {
                "id": source.ids[start + k],
                "text": visible(text),
                "name": visible(shown_as(text) or source.tokens[start + k]),
                "probability": chance,
            }
        )
        at = end
    return tokens


def describe_writer(model: Model, limits: Limits) -> dict[str, Any]:
    """What the page has to know to let a model write."""
    if not writes(model):
        return {"writes": False}
    tokenizer = model.tokenizer
    return {
        "writes": True,
        "chats": model.head.kind == "causal" and bool(tokenizer and tokenizer.chat_template),
        "prompt": min(model.encoder.limit, limits.prompt),
        "written": limits.written,
        "groups": [name for name, method in METHODS.items() if method.takes_groups],
    }

"""Answers of language models: a given continuation, or one that the model writes."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from alti._errors import AltiError, AltiWarning, UsageError
from alti.model.encoded import Encoded, Span
from alti.model.tokenize import Encoder, check_text, too_long
from alti.read.modules import evaluating, network

Generation = int | Mapping[str, Any]  # tokens, or transformers' own options and `seed`

GREEDY = {"do_sample": False, "num_beams": 1, "temperature": None, "top_p": None, "top_k": None}


class JoinedByTokens(AltiWarning):
    """Prompt and answer as one text would be other tokens: they were put together as they are."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as tokens, with the characters of each."""

    text: str
    ids: list[int]
    offsets: list[Span]


def answered(encoder: Encoder, prompt: Encoded, answer: Answer) -> Encoded:
    """A prompt with an answer behind it."""
    prompt = without_end(prompt)
    ids = answer.ids
    length = len(prompt.ids) + len(ids)
    if length > encoder.limit:
        raise too_long(length, encoder.limit, advice="shorten the prompt or the answer")
    types = None if prompt.types is None else [*prompt.types, *[prompt.types[-1]] * len(ids)]
    return replace(
        prompt,
        text_pair=answer.text,
        ids=[*prompt.ids, *ids],
        types=types,
        tokens=[*prompt.tokens, *encoder.names(ids)],
        offsets=[*prompt.offsets, *answer.offsets],
        segments=[*prompt.segments, *[1] * len(ids)],
        special=[*prompt.special, *(token in encoder.special for token in ids)],
        answer=len(prompt.ids),
    )


def prompt_of(encoded: Encoded) -> Encoded:
    """A prompt without its answer."""
    return replace(_first(encoded, encoded.prompt), text_pair=None, answer=None, decoder=None)


def without_end(prompt: Encoded) -> Encoded:
    """A prompt without what its tokenizer adds at the end of a text: the answer follows."""
    end = max(i for i, segment in enumerate(prompt.segments) if segment >= 0) + 1
    return prompt if end == len(prompt.ids) else _first(prompt, end)


def _first(encoded: Encoded, count: int | None) -> Encoded:
    """The first tokens alone."""
    lists = ("ids", "types", "tokens", "offsets", "segments", "special")
    kept = {name: value[:count] for name in lists if (value := getattr(encoded, name)) is not None}
    return replace(encoded, **kept)


def of_ids(encoder: Encoder, prompt: Encoded, ids: list[int]) -> Answer:
    """An answer of given tokens: its text comes from decoding, tokens are never made again."""
    if (largest := max(ids)) >= encoder.vocabulary:
        raise UsageError(
            f"the answer holds token id {largest}, but the model has only {encoder.vocabulary} "
            f"embeddings: give 0 to {encoder.vocabulary - 1}"
        )
    text, offsets = encoder.decoded(ids, without_end(prompt).ids)
    return Answer(text, ids, offsets)


def of_text(encoder: Encoder, prompt: Encoded, text: Any) -> Answer:
    """The tokens of a given answer behind a prompt: as in one text, where that leaves the prompt's.

    Else, or behind `ids=` that no text would give, the answer is tokenized alone.
    """
    if not isinstance(text, str):
        raise UsageError(f"answer is {type(text).__name__}, expected a str; ids go to answer_ids")
    if not text:
        raise UsageError("answer is empty: give at least one word, or generate= to let it write")
    if text.strip():
        check_text("answer", text)
    prompt = without_end(prompt)
    own = [token for token, at in zip(prompt.ids, prompt.segments, strict=True) if at >= 0]
    joined = encoder.plain(prompt.text + text)
    count = len(own)
    start = len(prompt.text)
    apart = not count or joined.offsets[:count][-1][1] <= start  # an unknown word takes them all
    if joined.ids[:count] == own and len(joined.ids) > count and apart:
        offsets = [(max(0, a - start), max(0, b - start)) for a, b in joined.offsets[count:]]
        return Answer(text, joined.ids[count:], offsets)
    alone = encoder.plain(text)
    if not alone.ids:
        raise UsageError(f"the tokenizer finds no token in the answer {text!r}: give a word")
    before, first = encoder.names(own[-1:] + alone.ids[:1])
    warnings.warn(
        f"the answer was put behind the prompt token by token ({before!r}, then {first!r}): as one "
        "text they would be other tokens; most models want the space in the answer",
        JoinedByTokens,
        stacklevel=5,
    )
    return Answer(text, alone.ids, alone.offsets)


def ids_of(given: Any, name: str) -> tuple[list[int], list[int] | None]:
    """Ids as users give them, and token types where a BatchEncoding holds some."""
    if isinstance(given, Mapping):
        return _of_encoding(given, name)
    listed = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(listed, Sequence) and len(listed) == 1 and isinstance(listed[0], list | tuple):
        listed = listed[0]
    whole = isinstance(listed, list | tuple) and all(type(i) is int and i >= 0 for i in listed)
    if not whole:
        raise UsageError(
            f"{name} is no list of token ids: give whole numbers, a tensor of one dimension, or "
            "what a tokenizer returned for one text"
        )
    if not listed:
        raise UsageError(f"{name} is empty: give at least one token id")
    return list(listed), None


def _of_encoding(given: Mapping[str, Any], name: str) -> tuple[list[int], list[int] | None]:
    """What a tokenizer returned for one text, without its padding."""
    if "input_ids" not in given:
        raise UsageError(f"{name} is a {type(given).__name__} without input_ids: give ids")
    ids, _ = ids_of(given["input_ids"], name)
    rest = ("attention_mask", "token_type_ids")
    mask, types = (None if given.get(key) is None else ids_of(given[key], key)[0] for key in rest)
    kept = [i for i in range(len(ids)) if mask is None or mask[i]]
    return [ids[i] for i in kept], None if types is None else [types[i] for i in kept]


def generated(model: nn.Module, encoder: Encoder, prompt: Encoded, asked: Any) -> list[int]:
    """What a model writes behind a prompt, without the end token."""
    options = generation_of(asked)
    prompt = without_end(prompt)
    inputs = encoder.collate([prompt]).tensors
    inner = network(model)
    config = options.get("generation_config")
    _require_room(encoder, len(prompt.ids), options, config)
    given = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    written = write(model, {**given, "pad_token_id": encoder.pad, **options}, asked)
    ids = written[len(prompt.ids) :]
    end = (config or inner.generation_config).eos_token_id
    ends = options.get("eos_token_id", end)
    if ids and ids[-1] in (ends if isinstance(ends, list) else [ends]):
        ids.pop()
    if not ids:
        raise AltiError("the model wrote nothing but the end token: there is no answer to explain")
    return ids


def write(model: nn.Module, options: dict[str, Any], asked: Any) -> list[int]:
    """All tokens that transformers' generate returns; random numbers go on where they were."""
    inner = network(model)
    seed = options.pop("seed", None)
    devices = [inner.device] if inner.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad(), evaluating(model):
        torch.manual_seed(0 if seed is None else seed)
        try:
            written: list[int] = inner.generate(**options)[0].tolist()
        except (TypeError, ValueError) as error:
            if not isinstance(asked, Mapping):
                raise
            shown = {name: value for name, value in asked.items() if name != "streamer"}
            reason = str(error).partition("\n")[0]
            raise UsageError(f"transformers refuses generate = {shown}: {reason}") from error
    return written


def _require_room(encoder: Encoder, prompt: int, options: dict[str, Any], config: Any) -> None:
    """Raise where more is to be written than the model takes."""
    room = encoder.limit - prompt
    if room < 1:
        raise UsageError(
            f"the prompt has {prompt} tokens, and the model takes {encoder.limit} in all: nothing "
            "can be written behind it, so shorten it"
        )
    new = options.get("max_new_tokens") or getattr(config, "max_new_tokens", None)
    length = options.get("max_length") or getattr(config, "max_length", None)
    wanted = new if isinstance(new, int) else length - prompt if isinstance(length, int) else 0
    if wanted > room:
        raise UsageError(
            f"generate asks for {wanted} tokens behind a prompt of {prompt}, and the model takes "
            f"{encoder.limit} in all: ask for {room}"
        )


def generation_of(asked: Any) -> dict[str, Any]:
    """What is given to transformers' generate, with our defaults."""
    if isinstance(asked, int) and not isinstance(asked, bool):
        if asked < 1:
            raise UsageError(f"generate = {asked} is not a number of tokens: give 1 or more")
        return {**GREEDY, "max_new_tokens": asked}
    if not isinstance(asked, Mapping):
        raise UsageError(
            f"generate = {asked!r} is neither a number of tokens nor a dict of generation options"
        )
    own = asked.get("do_sample") or asked.get("generation_config") is not None
    options = {**({} if own else GREEDY), **asked}
    if options.get("num_return_sequences", 1) != 1:
        raise UsageError("generate asks for several answers: explain them one by one")
    options["return_dict_in_generate"] = False
    return options

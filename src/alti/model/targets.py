"""What an encoder–decoder writes: a source for one stack, the prefix of a target for the other."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from torch import nn

from alti._errors import AltiError, UnsupportedModelError, UsageError
from alti.model.answers import Answer, generation_of, ids_of, write
from alti.model.encoded import Encoded
from alti.model.pretrained import quiet
from alti.model.tokenize import Encoder, check_text
from alti.read.modules import network


def read(model: nn.Module, encoder: Encoder, source: Encoded, question: Any) -> Encoded:
    """A source with what is written of it behind it."""
    if question.answer is not None:
        start, answer = _of_text(encoder, question.answer)
    elif question.answer_ids is not None:
        ids, _ = ids_of(question.answer_ids, "answer_ids")
        start, answer = [], _of_ids(encoder, ids)
    else:
        start, ids = _generated(model, encoder, source, question.generate)
        answer = _of_ids(encoder, ids)
    return written(encoder, source, _begun(network(model), start), answer)


def written(encoder: Encoder, source: Encoded, start: list[int], answer: Answer) -> Encoded:
    """A source, the tokens that a decoder begins with, and a target behind them."""
    ids = [*start, *answer.ids]
    _require_room(encoder, len(ids))
    special = [True] * len(start) + [token in encoder.special for token in answer.ids]
    return replace(
        source,
        text_pair=answer.text,
        ids=[*source.ids, *ids],
        types=None,
        tokens=[*source.tokens, *encoder.names(ids)],
        offsets=[*source.offsets, *[(0, 0)] * len(start), *answer.offsets],
        segments=[*source.segments, *[1] * len(ids)],
        special=[*source.special, *special],
        decoder=len(source.ids),
        answer=len(source.ids) + len(start),
    )


def _begun(inner: Any, start: list[int]) -> list[int]:
    """The tokens that a decoder begins with: its own first, then those that a tokenizer adds."""
    configs = (inner.config, inner.generation_config)
    firsts = (getattr(config, "decoder_start_token_id", None) for config in configs)
    first = next((i for i in firsts if i is not None), None)
    if first is None:
        raise UnsupportedModelError(
            f"this {inner.config.model_type} model does not say what its decoder begins with: set "
            "model.config.decoder_start_token_id"
        )
    return start if start[:1] == [first] else [first, *start]


def _limit(encoder: Encoder) -> int | None:
    """How many tokens a decoder takes; None where there is no limit."""
    config = encoder.model.config
    names = ("max_target_positions", "max_position_embeddings")
    limits = (getattr(config, name, None) for name in names)
    return next((limit for limit in limits if limit), None)


def _require_room(encoder: Encoder, tokens: int) -> None:
    limit = _limit(encoder)
    if limit is not None and tokens > limit:
        raise UsageError(
            f"the decoder reads {tokens} tokens, its first and the answer, {tokens - limit} more "
            f"than the {limit} that the model takes: shorten the answer"
        )


def _of_ids(encoder: Encoder, ids: list[int]) -> Answer:
    """A target of given tokens."""
    if (largest := max(ids)) >= encoder.vocabulary:
        raise UsageError(
            f"the answer holds token id {largest}, but the model has only {encoder.vocabulary} "
            f"embeddings: give 0 to {encoder.vocabulary - 1}"
        )
    text, offsets = encoder.decoded(ids)
    return Answer(text, ids, offsets)


def _of_text(encoder: Encoder, text: Any) -> tuple[list[int], Answer]:
    """The tokens of a target, after those that its tokenizer adds at the start."""
    if not isinstance(text, str):
        raise UsageError(f"answer is {type(text).__name__}, expected a str; ids go to answer_ids")
    check_text("answer", text)
    full = encoder.target(text)
    own = [i for i, segment in enumerate(full.segments) if segment >= 0]
    if not own:
        raise UsageError(f"the tokenizer finds no token in the answer {text!r}: give a word")
    inside = slice(own[0], own[-1] + 1)
    return full.ids[: own[0]], Answer(text, full.ids[inside], full.offsets[inside])


def _generated(
    model: nn.Module, encoder: Encoder, source: Encoded, asked: Any
) -> tuple[list[int], list[int]]:
    """What a model writes, without its end token, after tokens that it is forced to begin with."""
    options = generation_of(asked)
    inner = network(model)
    config = options.get("generation_config") or inner.generation_config
    forced = options.get("forced_bos_token_id", _language(encoder, config))
    if forced is not None:
        options["forced_bos_token_id"] = forced
    if options.get("max_new_tokens"):
        options.setdefault("max_length", None)  # a config may have one, which would not be asked
    _require_room(encoder, 1 + (options.get("max_new_tokens") or 0))
    if source.features is not None:
        given = {"input_features": source.features[None].to(inner.device)}
    else:
        given = encoder.collate([source]).tensors
    # generate of speech models logs a warning about options that it sets itself
    with quiet(bar=True) if encoder.hears else nullcontext():
        ids = write(model, {**given, **options}, asked)
    ids = _without_ends(ids, options.get("eos_token_id", config.eos_token_id), encoder.pad)
    if encoder.hears:  # speech models put in front what their tokenizer does, and may not return it
        ids = [*_of_text(encoder, ".")[0], *(i for i in ids if i not in encoder.special)]
        count = len(ids) - sum(i not in encoder.special for i in ids)
        return _parted(ids, count)
    count = _forced(ids, inner, forced)
    return _parted(ids, count)


def _language(encoder: Encoder, config: Any) -> int | None:
    """The token that what is written has to begin with: its language, where a tokenizer has one."""
    forced: int | None = getattr(config, "forced_bos_token_id", None)
    if forced is not None or not getattr(encoder.given, "tgt_lang", None):
        return forced
    start, _ = _of_text(encoder, ".")
    return start[0] if len(start) == 1 else None


def _parted(ids: list[int], count: int) -> tuple[list[int], list[int]]:
    """What a model begins with, and what it wrote."""
    if len(ids) == count:
        raise AltiError("the model wrote nothing but the end token: there is no answer to explain")
    return ids[:count], ids[count:]


def _without_ends(ids: list[int], end: Any, pad: int) -> list[int]:
    """Without the end token and the padding behind it; the first token may look like them."""
    ends = {pad, *(end if isinstance(end, list) else [end])}
    while len(ids) > 1 and ids[-1] in ends:
        ids = ids[:-1]
    return ids


def _forced(ids: list[int], inner: Any, forced: int | None) -> int:
    """How many tokens at the start were not the model's choice."""
    begun = _begun(inner, ids)
    count = 1 if begun == ids else 0
    return count + (len(ids) > count and ids[count] == forced)

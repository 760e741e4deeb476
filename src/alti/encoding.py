"""From the user's text to a batch that a model takes, with every token's place in the text."""

from dataclasses import dataclass
from inspect import signature
from threading import Lock

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from alti._errors import UnsupportedModelError, UsageError
from alti.methods.registry import Inputs
from alti.structure import family_of, network

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text (or pair) as tokens."""

    text: str
    text_pair: str | None
    ids: list[int]
    types: list[int] | None  # token_type_ids, where the model takes them
    tokens: list[str]
    offsets: list[Span]  # characters of the token's own text; (0, 0) for added tokens
    segments: list[int]  # 0: text, 1: text_pair, -1: added by the tokenizer
    special: list[bool]
    cut: tuple[str, ...] = ()  # what was left out, of each text that was too long


_tokenizing = Lock()  # fast tokenizers keep the truncation setting inside and do not share


def encode(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    text_pair: str | None = None,
    *,
    truncate: bool = False,
) -> Encoded:
    """Tokenize one text or pair; what the model cannot take is refused, or cut with truncate=True."""
    for name, given in (("text", text), ("text_pair", text_pair)):
        if given is not None and not isinstance(given, str):
            raise UsageError(f"{name} is {type(given).__name__}, expected a str: for several texts use explain_all")
        if given is not None and not given.strip():
            raise UsageError(f"{name} is empty: give at least one word")
    full = _tokenized(model, tokenizer, text, text_pair)
    limit = longest(model, tokenizer)
    if not full.ids:
        raise UsageError(f"the tokenizer finds no token in {text!r}: give at least one word")
    if limit is not None and len(full.ids) > limit and not truncate:
        raise UsageError(
            f"the text has {len(full.ids)} tokens, {len(full.ids) - limit} more than the {limit} that the model takes: "
            "shorten it, or cut it with truncate=True (--truncate)"
        )
    if limit is None or len(full.ids) <= limit:
        return full
    return _tokenized(model, tokenizer, text, text_pair, limit, full)


def longest(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """How many tokens the model takes, added ones included."""
    config, family = network(model).config, family_of(model)
    limits = [tokenizer.model_max_length]
    if positions := getattr(config, "max_position_embeddings", None):
        limits.append(positions - (config.pad_token_id + 1 if family.offset_positions else 0))
    shortest = min(limits)
    return shortest if shortest < 10**9 else None  # tokenizers without a limit say 10**30


def _tokenized(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    text_pair: str | None,
    limit: int | None = None,
    full: Encoded | None = None,
) -> Encoded:
    if not tokenizer.is_fast:
        raise UnsupportedModelError(
            f"{type(tokenizer).__name__} cannot say which characters a token stands for: load a fast tokenizer "
            "(tokenizer.json)"
        )
    with _tokenizing:
        found = tokenizer(
            text,
            text_pair,
            truncation=limit is not None,
            max_length=limit,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            return_attention_mask=False,
            verbose=False,
        )
    ids = found["input_ids"]
    segments = [-1 if sequence is None else sequence for sequence in found.sequence_ids()]
    by_role = _special_ids(tokenizer)
    special = [bool(added) or i in by_role for added, i in zip(found["special_tokens_mask"], ids, strict=True)]
    takes_types = "token_type_ids" in signature(network(model).forward).parameters
    encoded = Encoded(
        text,
        text_pair,
        ids,
        found.get("token_type_ids") if takes_types else None,
        tokenizer.convert_ids_to_tokens(ids),
        [tuple(span) for span in found["offset_mapping"]],
        segments,
        special,
        _cut(full, segments, found["offset_mapping"]) if full else (),
    )
    _check_vocabulary(model, encoded)
    return encoded


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Ids that stand for no word wherever they are; an unknown word is still a word."""
    roles = ("bos_token", "eos_token", "sep_token", "cls_token", "pad_token", "mask_token")
    return {i for role in roles if (i := getattr(tokenizer, f"{role}_id", None)) is not None}


def _check_vocabulary(model: nn.Module, encoded: Encoded) -> None:
    rows = network(model).get_input_embeddings().weight.shape[0]
    if max(encoded.ids) >= rows:
        raise UsageError(
            f"the tokenizer gives token id {max(encoded.ids)}, but the model has only {rows} embeddings: load both "
            "from the same place"
        )


def _cut(full: Encoded, segments: list[int], offsets: list[Span]) -> tuple[str, ...]:
    kept = {(segment, *span) for segment, span in zip(segments, offsets, strict=True)}
    tails = []
    for segment, text in enumerate((full.text, full.text_pair)):
        places = zip(full.segments, full.offsets, strict=True)
        lost = [span for s, span in places if s == segment and (s, *span) not in kept]
        if lost and text is not None:
            tails.append(text[lost[0][0] : lost[-1][1]])
    return tuple(tails)


def collate(model: nn.Module, tokenizer: PreTrainedTokenizerBase, texts: list[Encoded]) -> Inputs:
    """Several texts as one batch, padded on the right so that every position is what it is without padding."""
    config, device = network(model).config, network(model).device
    pads = (getattr(config, "pad_token_id", None), tokenizer.pad_token_id, 0)
    pad = next(pad for pad in pads if pad is not None)
    length = max(len(text.ids) for text in texts)

    def padded(rows: list[list[int]], fill: int) -> Tensor:
        return torch.tensor([row + [fill] * (length - len(row)) for row in rows], device=device)

    tensors = {
        "input_ids": padded([text.ids for text in texts], pad),
        "attention_mask": padded([[1] * len(text.ids) for text in texts], 0),
    }
    if all(text.types is not None for text in texts):
        tensors["token_type_ids"] = padded([text.types or [] for text in texts], 0)
    special = padded([[int(s) for s in text.special] for text in texts], 1).bool()
    return Inputs(tensors, special, tokenizer.mask_token_id, pad)

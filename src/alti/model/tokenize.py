"""From the user's text or ids to a batch that a model takes, with every token's place in the text.

Language models attend to whatever comes first, a word or not. Where a tokenizer adds no first
token, one is put in front of what a causal model reads (`bos`), so that no word has to play it.
"""

import warnings
from dataclasses import replace
from functools import cached_property, partial
from inspect import signature
from itertools import pairwise
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from alti._errors import AltiWarning, LoadError, UsageError
from alti.methods.types import Inputs
from alti.model import slow
from alti.model.decoding import decoded, name_of
from alti.model.encoded import Encoded, Span, left_out
from alti.model.vocabulary import SEPARATOR, check_vocabulary, special_ids
from alti.model.words import LONE_SURROGATE
from alti.read.modules import device_of, family_of, network
from alti.read.process import held_while_forking

Bos = bool | str  # whether a first token is put in front, or which

MASKS = ("[MASK]", "<mask>")  # as families write it
MEANT = {  # by someone who gives these types in the place of a text
    **dict.fromkeys(("list", "tuple"), "for several texts use explain_all"),
    "dict": "a chat is a list of messages",
}

# fast tokenizers keep the truncation setting inside and do not share
_tokenizing = held_while_forking(Lock())


class FirstTokenAdded(AltiWarning):
    """A first token was put in front of a text, because its tokenizer adds none."""


class Encoder:
    """A tokenizer, or none, and what a model wants from it."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase | None,
        *,
        causal: bool = False,
        decodes: bool = False,
        name: str = "",
    ) -> None:
        inner = network(model)
        self.given = tokenizer
        self.name = name
        self.model = inner
        self.causal = causal
        self.decodes = decodes  # what is written is read by a stack of its own
        self.hears = inner.main_input_name == "input_features"
        self.takes_types = "token_type_ids" in signature(inner.forward).parameters
        self.vocabulary = inner.get_input_embeddings().weight.shape[0]
        self.warned = False  # of the first token
        pads = (inner.config.pad_token_id, getattr(tokenizer, "pad_token_id", None))
        self.pad = next((pad for pad in pads if pad is not None and pad >= 0), 0)
        self.mask_id = getattr(tokenizer, "mask_token_id", None)
        self.special: set[int] = set()
        # added tokens included; 10**30 where a tokenizer has no limit
        self.limit = int(getattr(tokenizer, "model_max_length", 10**30))
        if tokenizer is not None:
            check_vocabulary(tokenizer, self.vocabulary, inner.config)
            self.special = special_ids(tokenizer)
        if positions := getattr(inner.config, "max_position_embeddings", None):
            unused = 0
            if family_of(inner).offset_positions:
                unused = inner.base_model.embeddings.padding_idx + 1
            self.limit = min(self.limit, positions - unused)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, for what needs one."""
        if self.given is None:
            raise LoadError(
                f"{self.name or 'this model'} has no tokenizer, and text cannot be read without "
                "one: give it beside the model, or ids= in place of a text"
            )
        return self.given

    def encode(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        truncate: bool = False,
        bos: Bos = "auto",
        templated: bool = False,
    ) -> Encoded:
        """Tokenize one text or pair; what is too long is refused, or cut with truncate=True.

        A `templated` text holds its special tokens already.
        """
        check_text("text", text)
        if text_pair is not None:
            check_text("text_pair", text_pair)
        self._warn_of_masks(f"{text} {text_pair or ''}")
        full = self._tokenized(text, text_pair, templated=templated)
        self._check_tokens(full)
        first = None if templated else self._first(full, bos)
        room = self.limit - (first is not None)
        if len(full.ids) > room:
            if not truncate:
                raise too_long(len(full.ids) + self.limit - room, self.limit)
            full = self._cut_down(full, room, templated=templated)
        return full if first is None else self._behind(first, full)

    def encode_ids(self, ids: list[int], types: list[int] | None = None) -> Encoded:
        """Exactly these tokens; without a tokenizer their numbers stand for them."""
        if (largest := max(ids)) >= self.vocabulary:
            raise UsageError(
                f"ids holds {largest}, but the model has only {self.vocabulary} embeddings: give "
                f"0 to {self.vocabulary - 1}"
            )
        if len(ids) > self.limit:
            raise too_long(len(ids), self.limit, advice="give fewer ids")
        if getattr(self.given, "separate_vocabs", False):
            raise UsageError(
                f"{type(self.given).__name__} reads and writes with two vocabularies, and names "
                "only what is written: give the source as a text"
            )
        text, offsets = self.decoded(ids)
        special = [token in self.special for token in ids]
        if types is None and "token_type_ids" in getattr(self.given, "model_input_names", ()):
            types = [0] * len(ids)
        types = types if self.takes_types else None
        names = self.names(ids)
        unknown = getattr(self.given, "unk_token", None) or ""
        owners = [0] * len(ids)
        return Encoded(text, None, ids, types, names, offsets, owners, special, unknown=unknown)

    def plain(self, text: str) -> Encoded:
        """A text without anything added to it."""
        return self._tokenized(text, templated=True)

    def target(self, text: str) -> Encoded:
        """A text that is written, not read: some tokenizers tell the two apart."""
        return self._tokenized(text, written=True)

    def names(self, ids: list[int]) -> list[str]:
        """Tokens as the tokenizer writes them; without one, their numbers."""
        if self.given is None:
            return list(map(str, ids))
        names = [(i, name_of(self.given, i)) for i in ids]
        return [str(i) if name is None else name for i, name in names]

    def decoded(self, ids: list[int], before: list[int] | None = None) -> tuple[str, list[Span]]:
        """The text of some tokens that stand behind others, and the characters of each."""
        return decoded(self.given, ids, before or [])

    def _first(self, full: Encoded, bos: Bos) -> int | None:
        """The token to be put in front; None: none."""
        if not self.causal:
            if bos in ("auto", False):
                return None
            raise UsageError(
                f"bos = {bos!r} was given, and this is no causal language model: leave it out"
            )
        if bos is False or full.ids[0] in self.special:
            return None
        if isinstance(bos, str) and bos != "auto":
            vocabulary = self.tokenizer.get_vocab()
            if bos not in vocabulary:
                raise UsageError(
                    f"bos = {bos!r} is no token of this model: give one, like {SEPARATOR!r}, True "
                    "or False"
                )
            return int(vocabulary[bos])
        if self.first is None and bos is True:
            raise UsageError("bos = True, but this tokenizer has no token to begin with: name one")
        return self.first

    @cached_property
    def first(self) -> int | None:
        """The token that texts begin with where the tokenizer adds none."""
        tokenizer = self.tokenizer
        added = {token.content: i for i, token in tokenizer.added_tokens_decoder.items()}
        ids = (added.get(SEPARATOR), tokenizer.bos_token_id, tokenizer.eos_token_id)
        return next((i for i in ids if i is not None and i < self.vocabulary), None)

    def _behind(self, first: int, full: Encoded) -> Encoded:
        """A text with a token in front of it."""
        (token,) = self.names([first])
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{token} was put in front of the text: language models attend to whatever comes "
                "first, and here that would be a word; bos=False (--no-bos) leaves it out",
                FirstTokenAdded,
                stacklevel=7,
            )
        return replace(
            full,
            ids=[first, *full.ids],
            types=None if full.types is None else [full.types[0], *full.types],
            tokens=[token, *full.tokens],
            offsets=[(0, 0), *full.offsets],
            segments=[-1, *full.segments],
            special=[True, *full.special],
        )

    def _check_tokens(self, full: Encoded) -> None:
        if any(pair == (0, 1) for pair in pairwise(full.segments)):
            warnings.warn(
                "this tokenizer puts nothing between the two texts: the model reads them as one",
                stacklevel=4,
            )
        if 0 not in full.segments:
            raise UsageError(
                f"the tokenizer finds no token in {full.text!r}: give at least one word"
            )
        if max(full.ids) >= self.vocabulary:
            raise UsageError(
                f"the tokenizer gives token id {max(full.ids)}, but the model has only "
                f"{self.vocabulary} embeddings: load both from the same place"
            )

    def _cut_down(self, full: Encoded, room: int, *, templated: bool) -> Encoded:
        """The part of a text that the model takes, and what was left out."""
        kept = self._tokenized(full.text, full.text_pair, room, templated=templated)
        if len(kept.ids) > room or 0 not in kept.segments:
            raise UsageError(
                f"the model takes {self.limit} tokens, too few for any of the text: load it with "
                "room for more"
            )
        return replace(
            kept, cut=left_out(full, kept, left=self.tokenizer.truncation_side == "left")
        )

    def _warn_of_masks(self, text: str) -> None:
        """A mask token of another family is read as plain characters."""
        own = self.tokenizer.mask_token
        if (
            own
            and own not in text
            and (other := next((mask for mask in MASKS if mask in text), None))
        ):
            warnings.warn(
                f"{other} is plain characters here, no mask token: this tokenizer's is {own}",
                stacklevel=4,
            )

    def _tokenized(
        self,
        text: str,
        text_pair: str | None = None,
        limit: int | None = None,
        *,
        templated: bool = False,
        written: bool = False,
    ) -> Encoded:
        read = _fast if self.tokenizer.is_fast else slow.tokenized
        with _tokenizing:
            made = read(
                self.tokenizer, text, text_pair, limit, templated=templated, written=written
            )
        special = [
            mark or i in self.special for mark, i in zip(made.special, made.ids, strict=True)
        ]
        return replace(made, types=made.types if self.takes_types else None, special=special)

    def types_of(self, ids: list[int]) -> list[int] | None:
        """token_type_ids of a pair that some words were taken from; None where it takes none.

        They change at added tokens only, which stay: the k-th of them and what stands behind it
        have the types that they have in every pair.
        """
        if self._template is None:
            return None
        now, added = self._template
        types, left = [], iter(added)
        for token in ids:
            separates = token in self.special and token != self.mask_id
            own, behind = next(left, (now, now)) if separates else (now, now)
            types.append(own)
            now = behind
        return types

    @cached_property
    def _template(self) -> tuple[int, list[tuple[int, int]]] | None:
        """The type at the start of a pair, then of each added token and of what follows it."""
        pair = self._tokenized("a", "a")
        if (types := pair.types) is None:
            return None
        following = [*types[1:], types[-1]]
        places = [i for i, added in enumerate(pair.special) if added]
        return types[0], [(types[i], following[i]) for i in places]

    def collate(self, texts: list[Encoded], multiple: int = 1) -> Inputs:
        """Several texts as one batch, padded on the right: positions are those without padding."""
        if texts[0].decoder is not None:
            return self._collate_both(texts)
        length = max(len(text.ids) for text in texts)
        length = max(length, min(-(-length // multiple) * multiple, self.limit))

        padded = partial(self._padded, length=length)
        tensors = {
            "input_ids": padded([text.ids for text in texts], self.pad),
            "attention_mask": padded([[1] * len(text.ids) for text in texts], 0),
        }
        types = [text.types for text in texts if text.types is not None]
        if types:
            tensors["token_type_ids"] = padded(types, 0)
        special = padded([[int(s) for s in text.special] for text in texts], 1).bool()
        return Inputs(tensors, special, self.mask_id, self.pad, self.causal)

    def _padded(self, rows: list[list[int]], fill: int, length: int | None = None) -> Tensor:
        length = length or max(map(len, rows))
        return torch.tensor(
            [row + [fill] * (length - len(row)) for row in rows], device=device_of(self.model)
        )

    def _collate_both(self, texts: list[Encoded]) -> Inputs:
        """The same for an encoder–decoder: each of its stacks is padded by itself."""
        tensors: dict[str, Tensor] = {}
        special: list[Tensor] = []
        for side, name in enumerate(("", "decoder_")):
            parts = [
                slice(0, text.decoder) if not side else slice(text.decoder, None) for text in texts
            ]
            ids = [text.ids[part] for text, part in zip(texts, parts, strict=True)]
            marks = [text.special[part] for text, part in zip(texts, parts, strict=True)]
            sounds = [text.features for text in texts if text.features is not None]
            if sounds and not side:
                tensors["input_features"] = torch.stack(sounds).to(self.model.device)
            else:
                tensors[f"{name}input_ids"] = self._padded(ids, self.pad)
                tensors[f"{name}attention_mask"] = self._padded([[1] * len(row) for row in ids], 0)
            special.append(self._padded([list(map(int, row)) for row in marks], 1).bool())
        split = special[0].shape[1]
        return Inputs(tensors, torch.cat(special, 1), self.mask_id, self.pad, split=split)


def _fast(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    text_pair: str | None,
    limit: int | None,
    *,
    templated: bool,
    written: bool,
) -> Encoded:
    """What a fast tokenizer says of a text or a pair."""
    given = {"text_target": text} if written else {"text": text, "text_pair": text_pair}
    encoding = tokenizer(
        **given,
        add_special_tokens=not templated,
        truncation=limit is not None,
        max_length=limit,
        verbose=False,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_attention_mask=False,
    )
    return Encoded(
        text,
        text_pair,
        encoding["input_ids"],
        encoding.get("token_type_ids"),
        tokenizer.convert_ids_to_tokens(encoding["input_ids"]),
        [tuple(span) for span in encoding["offset_mapping"]],
        [-1 if segment is None else segment for segment in encoding.sequence_ids()],
        list(map(bool, encoding["special_tokens_mask"])),
        unknown=tokenizer.unk_token or "",
    )


CUT = "shorten it, or cut it with truncate=True (--truncate)"


def too_long(tokens: int, limit: int, advice: str = CUT) -> UsageError:
    return UsageError(
        f"the text has {tokens} tokens, {tokens - limit} more than the {limit} that the model "
        f"takes: {advice}"
    )


def check_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        kind = type(text).__name__
        meant = f": {MEANT[kind]}" if kind in MEANT else ""
        raise UsageError(f"{name} is {kind}, expected a str{meant}")
    if not text.strip():
        raise UsageError(f"{name} is empty: give at least one word")
    if LONE_SURROGATE.search(text):
        raise UsageError(
            f"{name} {text[:40]!r} is not valid Unicode: read it with the right encoding"
        )

"""Reads texts with tokenizers of plain Python, which do not say where in a text a token stands.

Most checkpoints of Marian and M2M-100 have only such a one. It cuts a text into pieces, whose
places `spelling.py` finds; then it puts numbers for them, and tokens of its own around these.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from alti._errors import AltiWarning, UsageError
from alti.model.encoded import Encoded, Span
from alti.model.spelling import places


class UnsurePlaces(AltiWarning):
    """It cannot be told which characters some tokens stand for."""


@dataclass(frozen=True, slots=True)
class _Token:
    id: int
    name: str
    span: Span
    segment: int


def tokenized(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    text_pair: str | None = None,
    limit: int | None = None,
    *,
    templated: bool = False,
    written: bool = False,
) -> Encoded:
    """A text or a pair as tokens, with the characters that each stands for."""
    with _mode(tokenizer, written):
        sides = [_read(tokenizer, text, 0)]
        if text_pair is not None:
            sides.append(_read(tokenizer, text_pair, 1))
        own = [token for side in sides for token in side]
        # numbers below 0 in the place of ids show where the tokens go; others are added
        numbers = [-1 - i for i in range(len(own))]
        count = len(sides[0])
        made = tokenizer.prepare_for_model(
            numbers[:count],
            None if text_pair is None else numbers[count:],
            add_special_tokens=not templated,
            truncation=limit is not None,
            max_length=limit,
            return_attention_mask=False,
            verbose=False,
        )
    places = made["input_ids"]
    added = {i: _Token(i, tokenizer.convert_ids_to_tokens(i), (0, 0), -1) for i in places if i >= 0}
    tokens = [own[-1 - i] if i < 0 else added[i] for i in places]
    return Encoded(
        text,
        text_pair,
        [token.id for token in tokens],
        made.get("token_type_ids"),
        [token.name for token in tokens],
        [token.span for token in tokens],
        [token.segment for token in tokens],
        [token.segment < 0 for token in tokens],
        unknown=tokenizer.unk_token or "",
    )


def _read(tokenizer: PreTrainedTokenizerBase, text: str, segment: int) -> list[_Token]:
    """The tokens of one text. One that the vocabulary has not keeps its place, not its name."""
    unknown = tokenizer.unk_token
    pieces = tokenizer.tokenize(text)
    ids = tokenizer.convert_tokens_to_ids(pieces)
    found = places(text, [None if piece == unknown else piece for piece in pieces])
    if found is None:
        raise UsageError(
            f"{type(tokenizer).__name__} spells {text[:40]!r} with other characters, so its tokens "
            "have no places in it: load a fast tokenizer (tokenizer.json), or give ids="
        )
    _warn_of(text, [piece for piece, at in zip(pieces, found, strict=True) if not at.sure])
    names = [
        unknown if i == tokenizer.unk_token_id else piece
        for i, piece in zip(ids, pieces, strict=True)
    ]
    spans = [place.span for place in found]
    return [_Token(*each, segment) for each in zip(ids, names, spans, strict=True)]


def _warn_of(text: str, unsure: list[str]) -> None:
    if unsure:
        some = ", ".join(map(repr, unsure[:3])) + (", …" if unsure[3:] else "")
        warnings.warn(
            f"it cannot be told which characters of {text[:40]!r} {some} "
            f"{'stand' if unsure[1:] else 'stands'} for: shown with all that fit",
            UnsurePlaces,
            stacklevel=8,
        )


@contextmanager
def _mode(tokenizer: PreTrainedTokenizerBase, written: bool) -> Iterator[None]:
    """Some tokenizers have another vocabulary or language for what is written (text_target=)."""
    _switch(tokenizer, "target" if written else "input")
    try:
        yield
    finally:
        if written:
            _switch(tokenizer, "input")


def _switch(tokenizer: PreTrainedTokenizerBase, mode: str) -> None:
    try:
        getattr(tokenizer, f"_switch_to_{mode}_mode", lambda: None)()
    except KeyError as error:
        name = "src_lang" if mode == "input" else "tgt_lang"
        raise UsageError(
            f"{type(tokenizer).__name__} has no language {error.args[0]!r} to "
            f"{'read' if mode == 'input' else 'write'}: set tokenizer.{name}, or load the model "
            f"with {name}="
        ) from None

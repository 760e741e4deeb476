"""Whether a tokenizer is the model's own, and which of its tokens stand for no word."""

import warnings
from typing import Any

from transformers import PreTrainedTokenizerBase

from alti._errors import LoadError
from alti.model.decoding import name_of

SEPARATOR = "<|endoftext|>"  # between the texts that many language models were trained on

# tokens that stand for no word; an unknown word is one
_ROLES = ("bos", "eos", "sep", "cls", "pad", "mask")


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Tokens that stand for no word. Another name for the unknown word is no reason against it."""
    roles = (getattr(tokenizer, f"{role}_token_id", None) for role in _ROLES)
    added = (
        i
        for i, token in tokenizer.added_tokens_decoder.items()
        if token.special and (i != tokenizer.unk_token_id or token.content == SEPARATOR)
    )
    languages = getattr(tokenizer, "lang_token_to_id", {}).values()  # of M2M-100, no added tokens
    return {i for i in (*roles, *added, *languages) if i is not None}


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, rows: int, config: Any) -> None:
    """Refuse a tokenizer with words beyond a model's embeddings; warn if it may be another model's.

    Fewer entries than embeddings are usual: rows are often padded to a multiple of 64. Added tokens
    beyond the embeddings occur in sound checkpoints too (a padding token, say, that no text holds),
    so they are a warning, and a text with one is refused. A vocabulary of the right size whose
    special tokens stand in the right places cannot be told from the model's own.
    """
    added = tokenizer.added_tokens_decoder
    if len(tokenizer) > rows or max(added, default=0) >= rows:
        beyond = sorted((i, token) for token, i in tokenizer.get_vocab().items() if i >= rows)
        words = [token for i, token in beyond if i not in added]
        if words:
            some = ", ".join(map(repr, words[:3]))
            raise LoadError(
                f"the tokenizer has {len(words)} entries that the model has no embedding for "
                f"(it has {rows}), such as {some}: load both from the same place"
            )
        names = ", ".join(token for _, token in beyond[:3])
        what = f"the model has no embedding for {names}: texts with it are refused"
        warnings.warn(what, stacklevel=5)
    if wrong := _contradictions(tokenizer, rows, config):
        warnings.warn(
            f"the tokenizer may be another model's: to it, the config's {', '.join(wrong)}; load "
            "both from the same place",
            stacklevel=5,
        )


def _contradictions(tokenizer: PreTrainedTokenizerBase, rows: int, config: Any) -> list[str]:
    """Ids that a config gives to special tokens and a tokenizer to words, or to nothing.

    One id of a word alone says little: configs keep defaults that nobody has set.
    """
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    words, missing = {}, {}
    for role in ("bos", "eos", "cls", "sep", "pad"):
        ids = getattr(config, f"{role}_token_id", None)
        for i in ids if isinstance(ids, list) else [ids]:
            if i is None or not 0 <= i < rows or i in special:
                continue
            if (token := name_of(tokenizer, i)) is not None:
                words[role, i] = f"{role} {i} is {token!r}"
            elif role != "pad":
                missing[role, i] = f"{role} {i} is no token"
    few = len({i for _, i in words}) < 2
    return [*([] if few else words.values()), *missing.values()]

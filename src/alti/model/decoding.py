"""The text that tokens stand for, and the characters of each."""

from functools import partial

from transformers import PreTrainedTokenizerBase

from alti.model.encoded import Span

CONTEXT = 4  # tokens before an answer that say how it is spelt, like a space
LONGEST = 8  # tokens that a character can have


def decoded(
    tokenizer: PreTrainedTokenizerBase | None, ids: list[int], before: list[int]
) -> tuple[str, list[Span]]:
    """The text of some tokens that stand behind others, and the characters of each.

    Tokens that are parts of one character share it. Without a tokenizer the text is numbers.
    """
    if tokenizer is None:
        return _numbers(ids, leading=bool(before))
    pending = 0  # tokens whose character is not complete
    text = ""
    spans: list[Span] = []
    tokens = [*before[-CONTEXT:], *ids]
    known = len(tokens) - len(ids)
    start = 0  # decoding begins here: how a token is spelt depends on the one before
    for end in range(known + 1, len(tokens) + 1):
        piece = _new_text(tokenizer, tokens[start:end], known - start)
        pending += 1
        if piece.endswith("\ufffd") and pending < LONGEST and end < len(tokens):
            continue
        spans += [(len(text), len(text) + len(piece))] * pending
        text += piece
        start, known, pending = known, end, 0
    return text, spans


def name_of(tokenizer: PreTrainedTokenizerBase, token: int) -> str | None:
    """A token as its tokenizer writes it; a model may have more rows than that has names."""
    try:
        name: str | None = tokenizer.convert_ids_to_tokens(token)
    except IndexError:  # sentencepiece's
        return None
    return name


def _new_text(tokenizer: PreTrainedTokenizerBase, tokens: list[int], known: int) -> str:
    """What tokens add to the text of the first `known` of them."""
    decode = partial(tokenizer.decode, clean_up_tokenization_spaces=False)
    whole: str = decode(tokens)
    old: str = decode(tokens[:known]) if known else ""
    return whole[len(old) :] if whole.startswith(old) else decode(tokens[known:])


def _numbers(ids: list[int], *, leading: bool) -> tuple[str, list[Span]]:
    """Ids as a text of numbers with spaces between them."""
    text = ""
    spans: list[Span] = []
    for token in ids:
        text += " " if text or leading else ""
        spans.append((len(text), len(text) + len(str(token))))
        text += str(token)
    return text, spans

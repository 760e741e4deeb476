"""The languages that a tokenizer of many is set to."""

from typing import Any

from alti._errors import UsageError

LANGUAGES = ("src_lang", "tgt_lang")  # what is read, what is written; as transformers calls them


def speak(tokenizer: Any, languages: dict[str, str], name: str) -> None:
    """Set the languages that a tokenizer reads and writes."""
    for key, language in languages.items():
        if not hasattr(tokenizer, key):
            raise UsageError(f"the tokenizer of {name} has no languages: leave out {key}")
        if not _knows(tokenizer, language):
            raise UsageError(
                f"{key} = {language!r} is no language of {type(tokenizer).__name__}: give one as "
                "the model's card writes it, like en or eng_Latn"
            )
        setattr(tokenizer, key, language)


def _knows(tokenizer: Any, language: str) -> bool:
    """Whether there is a token for a language; another name would become the unknown word."""
    names = getattr(tokenizer, "lang_code_to_token", {})  # of M2M-100
    number = tokenizer.convert_tokens_to_ids(names.get(language, language))
    return number not in (None, tokenizer.unk_token_id)

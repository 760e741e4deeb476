"""The fields of each request, as data for both the checks and the OpenAPI description."""

import json
from collections.abc import Callable
from typing import Any

from alti.web.fields import Field
from alti.web.layers import HEADS, LENS, PREDICT
from alti.web.prompts import (
    ALIGNMENT,
    ANSWER,
    ANSWER_HEADS,
    ANSWER_LENS,
    GENERATE,
    LAYERS,
    WHATIF,
    check_integers,
    check_messages,
    check_prompt,
    check_texts,
    texts_of,
)
from alti.web.settings import Limits, Refused

MOST = 4  # methods in one request
LONGEST_TICKET = 64  # characters
FORMATS = ("html", "latex", "json")

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "class": (int, str),
    "messages": (list,),
    "texts": (list,),
    "integers": (list,),
}
_EXPECTED = {
    "class": "an integer or a string",
    "array": "a list of strings",
    "integer": "an integer",
    "object": "an object",
    "messages": "a list of messages",
    "texts": "a list of texts",
    "integers": "a list of integers",
}
_LISTS: dict[str, Callable[[str, Any], None]] = {
    "messages": check_messages,
    "texts": check_texts,
    "integers": check_integers,
}


_TEXT = {
    "model": Field("string", "A name from GET /api/models; default: the first."),
    "text": Field("string", "The text.", required=True),
    "text_pair": Field("string", "The second text, for models that read two."),
}
_WHAT = {
    "target": Field("class", "A label or its index, or a token; default: what the model predicts."),
    "against": Field(
        "class", "Another label or token: explain why the target rather than this one."
    ),
    "position": Field(
        "integer", "The token whose prediction is explained, in models that predict at every token."
    ),
}
_METHODS = {"methods": Field("array", "One to four methods; alti:p=2 gives an option.", ["alti"])}

_TICKET = {
    "ticket": Field("string", "A name of your choice: GET /api/queue?ticket= says where it is.")
}

EXPLAIN = {
    **_TEXT,
    "method": Field("string", "An attribution method.", "alti"),
    "options": Field("object", "The method's own options.", {}),
    **_WHAT,
    "layers": Field("boolean", "Whether to include the maps of the layers.", True),
    **_TICKET,
}
VIEW = {**_TEXT, **_METHODS, **_WHAT, **_TICKET}
PICTURE = {
    "model": _TEXT["model"],
    "image": Field("string", "A PNG, JPEG, WEBP, GIF or BMP file in base64.", required=True),
    **_METHODS,
    "target": _WHAT["target"],
    "against": _WHAT["against"],
    **_TICKET,
}
EXPORT = {
    **VIEW,
    "other": Field("string", "A text to compare with."),
    "versus": Field("string", "A model to compare with, on the same text."),
    "format": Field("string", "html, latex or json.", "html"),
    "words": Field("boolean", "Whether the page opens with words rather than tokens.", True),
    "maps": Field("boolean", "Whether JSON has the maps of the layers.", False),
}
ANSWER_EXPORT = {
    **{name: field for name, field in ANSWER.items() if name != "tokens"},
    "format": EXPORT["format"],
    "maps": EXPORT["maps"],
}
ROWS = {
    "model": _TEXT["model"],
    "file": Field("string", "A Parquet file in base64.", required=True),
    **_TICKET,
}
KINDS = {  # of requests: what they are for, and their fields
    "explain": ("Explain a text.", EXPLAIN),
    "view": ("Everything the page shows for a text.", VIEW),
    "export": ("A file to download.", EXPORT),
    "picture": ("Which patches of an image a prediction rests on.", PICTURE),
    "generate": ("What a model writes; GET /api/queue has its tokens meanwhile.", GENERATE),
    "answer": ("What an answer, or a part of it, rests on.", ANSWER),
    "answer_export": ("The same as a file to download.", ANSWER_EXPORT),
    "layers": ("What a part of an answer consists of after each layer.", LAYERS),
    "alignment": ("Which words of a source those of a target come from.", ALIGNMENT),
    "whatif": ("The probability without a word or with another, beside what is predicted.", WHATIF),
    "heads": ("What every head of a layer does with a text.", HEADS),
    "predict": ("What a model says about a text, without an explanation.", PREDICT),
    "rows": ("The rows of a Parquet file, to choose texts from.", ROWS),
    "lens": ("What a language model would have said after each layer.", LENS),
    "answer_heads": ("What every head of a layer does with an answer.", ANSWER_HEADS),
    "answer_lens": ("The same as lens, in place of a token of an answer.", ANSWER_LENS),
}


def read(body: bytes, fields: dict[str, Field], limits: Limits) -> dict[str, Any]:
    """The fields of a request's body, with defaults filled in; Refused if anything is wrong."""
    try:
        given = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refused(
            400, 'The body is not JSON: send an object like {"text": "A clever film."}.'
        ) from None
    if not isinstance(given, dict):
        raise Refused(400, f"The body is {_name(given)}, expected an object.")
    if unknown := [name for name in given if name not in fields]:
        raise Refused(
            400, f"There is no field {_short(unknown[0])}: the fields are {', '.join(fields)}."
        )
    question = {
        name: field.default if given.get(name) is None else given[name]
        for name, field in fields.items()
    }
    for name, field in fields.items():
        _check(name, field, question[name])
    if "chat" in fields:
        check_prompt(question)
    characters = sum(map(len, texts_of(question)))
    most = limits.prompt_characters if "chat" in fields else limits.characters
    if characters > most:
        raise Refused(
            413,
            f"The text has {characters} characters, and this server accepts {most}: "
            "shorten it, or explain its parts one by one.",
        )
    return question


def _check(name: str, field: Field, value: Any) -> None:
    if value is None:
        if field.required:
            raise Refused(400, f"The field {name} is missing.")
        return
    kinds = _KINDS[field.kind]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = _EXPECTED.get(field.kind, f"a {field.kind}")
        raise Refused(400, f"{name} is {_name(value)}, expected {expected}.")
    if field.kind in _LISTS:
        _LISTS[field.kind](name, value)
    elif isinstance(value, list):
        strings = all(isinstance(item, str) for item in value)
        if not strings or not 1 <= len(value) <= MOST:
            raise Refused(400, f"{name} takes one to {MOST} names.")
    if name == "ticket" and isinstance(value, str) and len(value) > LONGEST_TICKET:
        raise Refused(400, f"ticket takes up to {LONGEST_TICKET} characters.")
    if name == "format" and value not in FORMATS:
        raise Refused(
            400, f"There is no format {_short(value)}: choose one of {', '.join(FORMATS)}."
        )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _name(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    return names.get(type(value), "a number")


def _short(value: Any) -> str:
    """The user's value, shortened to fit a sentence."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…'"

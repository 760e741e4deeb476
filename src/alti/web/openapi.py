"""The OpenAPI description of the API, from the same fields that requests are checked against."""

from typing import Any

from alti import __version__
from alti.web.fields import Field
from alti.web.questions import FORMATS, KINDS, MOST

_NUMBERS = {"type": "array", "items": {"type": "number"}}
_STRINGS = {"type": "array", "items": {"type": "string"}}
_MAYBE_STRING = {"type": ["string", "null"]}

_MAYBE_INTEGER = {"type": ["integer", "null"]}
_INTEGERS = {"type": "array", "items": {"type": "integer"}}

_MESSAGE = {"type": "object", "properties": {"role": {}, "content": {}}}
_LISTS: dict[str, dict[str, Any]] = {  # kinds of fields that are lists
    "texts": _STRINGS,
    "integers": _INTEGERS,
    "messages": {"type": "array", "items": _MESSAGE},
}

_SOURCE = {
    "type": "object",
    "required": ["texts", "tokens", "offsets", "special"],
    "properties": {
        "texts": {**_STRINGS, "description": "The text; or the text and its pair."},
        "tokens": _STRINGS,
        "ids": _INTEGERS,
        "offsets": {"type": "array", "items": _INTEGERS},
        "segments": _INTEGERS,
        "special": {"type": "array", "items": {"type": "boolean"}},
        "groups": {"type": "array", "items": {"type": "object"}},
        "by": {"type": "string"},
        "parts": {"type": "array", "items": {"type": "object"}},
        "answer": _MAYBE_INTEGER,
        "cut": _STRINGS,
        "unknown": _STRINGS,
    },
    "additionalProperties": False,
}
_PREDICTION = {
    "type": "object",
    "properties": {
        "label": _MAYBE_STRING,
        "index": _MAYBE_INTEGER,
        "probability": {"type": ["number", "null"]},
        "position": _MAYBE_INTEGER,
        "against": _MAYBE_INTEGER,
        "of": _MAYBE_STRING,
        "value": {"type": ["number", "null"]},
        "lens": {"type": "object", "description": "What was said after each layer (lens=True)."},
    },
    "additionalProperties": False,
}
ATTRIBUTION: dict[str, Any] = {
    "type": "object",
    "description": "alti.Attribution.to_dict(); alti.Attribution.from_dict() reads it.",
    "required": ["format", "kind", "source", "predictions", "scores", "method"],
    "properties": {
        "format": {"type": "integer"},
        "kind": {"type": "string"},
        "dtype": {"type": "string"},
        "source": _SOURCE,
        "predictions": {"type": "array", "items": _PREDICTION},
        "scores": {
            "type": "array",
            "description": "For each prediction, one for each token.",
            "items": _NUMBERS,
        },
        "layers": {
            "type": ["array", "null"],
            "description": "For each layer, what each token (row) consists of.",
            "items": {"type": "array", "items": _NUMBERS},
        },
        "method": {"type": "string"},
        "model": {"type": "string"},
        "options": {"type": "object"},
        "extra": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": {"type": "number"}},
        },
    },
    "additionalProperties": False,
}
_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_STATUSES = {
    "400": "The request is invalid.",
    "404": "The model does not exist.",
    "408": "The body did not arrive in time.",
    "413": "The body or the text is too long.",
    "415": "The body is not application/json.",
    "421": "The server answers to localhost only.",
    "422": "The model cannot be explained this way.",
    "500": "Something went wrong inside alti.",
    "503": "Too many requests are waiting.",
    "504": "The request took too long.",
}


def description(models: list[str], methods: list[str]) -> dict[str, Any]:
    """The OpenAPI document for a server with these models and methods."""
    posts = {
        f"/api/{kind}": {"post": _post(what, fields, _result(kind), models, methods)}
        for kind, (what, fields) in KINDS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "alti",
            "version": __version__,
            "description": "Which tokens the prediction of a Transformer rests on.",
        },
        "paths": {
            "/api/models": {"get": _get("The models, their labels, the methods and the limits.")},
            "/api/queue": {
                "get": _get("Where the request with a ticket is: waiting, loading or working.")
            },
            **posts,
        },
        "components": {"schemas": {"Attribution": ATTRIBUTION, "Error": _ERROR}},
    }


def _result(kind: str) -> dict[str, Any]:
    """What a request is answered with."""
    if kind == "explain":
        return ATTRIBUTION
    if kind in ("export", "answer_export"):
        return {"type": "string", "description": "A web page, a LaTeX document, or JSON."}
    what = "What the page shows: pieces of the text, scores, probabilities, maps."
    return {"type": "object", "description": what}


def _get(what: str) -> dict[str, Any]:
    return {"summary": what, "responses": {"200": _response(what, {"type": "object"})}}


def _post(
    what: str,
    fields: dict[str, Field],
    result: dict[str, Any],
    models: list[str],
    methods: list[str],
) -> dict[str, Any]:
    if result is ATTRIBUTION:
        result = {"$ref": "#/components/schemas/Attribution"}
    kinds = ("application/json", "text/plain") if "format" in fields else ("application/json",)
    errors = {
        status: _response(meaning, {"$ref": "#/components/schemas/Error"})
        for status, meaning in _STATUSES.items()
    }
    schema = _body_schema(fields, models, methods)
    return {
        "summary": what,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": _response(what, result, kinds), **errors},
    }


def _body_schema(fields: dict[str, Field], models: list[str], methods: list[str]) -> dict[str, Any]:
    properties = {name: _schema(field) for name, field in fields.items()}
    for name, known in (("model", models), ("method", methods), ("format", list(FORMATS))):
        if name in fields:
            properties[name]["enum"] = known
    return {
        "type": "object",
        "required": [name for name, field in fields.items() if field.required],
        "properties": properties,
        "additionalProperties": False,
    }


def _schema(field: Field) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": field.kind}
    if field.kind == "class":
        kind = {"type": ["integer", "string", "null"]}
    if field.kind == "array":
        kind = {**_STRINGS, "minItems": 1, "maxItems": MOST}
    kind = _LISTS.get(field.kind, kind)
    if field.default is not None:
        kind["default"] = field.default
    if not field.required and isinstance(kind["type"], str):
        kind["type"] = [kind["type"], "null"]  # null means the default
    return {**kind, "description": field.what}


def _response(
    what: str, schema: dict[str, Any], kinds: tuple[str, ...] = ("application/json",)
) -> dict[str, Any]:
    return {"description": what, "content": {kind: {"schema": schema} for kind in kinds}}

"""Results as rows of a table, one per text, and rows as results again.

The first columns are for everyone; `more` holds, as JSON, the few fields of an attribution that
have no column, so that what is read back is equal to what was explained.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from alti._errors import LoadError
from alti.model.attribution import Attribution
from alti.model.results import Prediction
from alti.model.rules import SOURCE
from alti.model.stored import fields_of

if TYPE_CHECKING:
    import pyarrow

Row = dict[str, Any]

PER_TOKEN = ("tokens", "offsets", "special", "segments", "ids")  # columns; the next are in `more`
MAYBE_PER_TOKEN = ("groups", "unknown")
IN_COLUMNS = {"texts", *PER_TOKEN}
SAID = ("label", "probability", "index")  # of a prediction, in columns
LEFT_OUT = "left_out"  # in `extra`: the sum of the scores of tokens that were not kept


def schema(
    *, wide: bool = False, layers: bool = False, about: dict[str, str] | None = None
) -> "pyarrow.Schema":
    """The columns of a shard, with `wide` numbers; `about` becomes the metadata of its file."""
    import pyarrow as pa

    numbers = pa.list_(pa.float64() if wide else pa.float32())
    columns = {
        "number": pa.int64(),
        "id": pa.string(),
        "text": pa.string(),
        "pair": pa.string(),
        "label": pa.string(),
        "probability": pa.float64(),
        "target": pa.int64(),
        "tokens": pa.list_(pa.string()),
        "offsets": pa.list_(pa.list_(pa.int32(), 2)),
        "scores": numbers,
        "special": pa.list_(pa.bool_()),
        "segments": pa.list_(pa.int8()),
        "ids": pa.list_(pa.int32()),
        "error": pa.string(),
        "more": pa.string(),
    }
    if layers:
        columns["layers"] = pa.list_(pa.list_(numbers))
    return pa.schema(list(columns.items()), metadata=about)


def row_of(result: Attribution, top_k: int | None = None) -> Row:
    """What is stored of a result: all tokens, or the `top_k` that count most."""
    kept = None if top_k is None else _strongest(result, top_k)
    source = result.source
    fields = {name: _kept(getattr(source, name), kept) for name in (*PER_TOKEN, *MAYBE_PER_TOKEN)}
    scores = result.scores.tolist()
    extra = dict(result.extra)
    if kept is not None and len(kept) < len(scores):
        extra[LEFT_OUT] = sum(scores) - sum(scores[i] for i in kept)
    row: Row = {name: fields[name] for name in PER_TOKEN}
    row |= {
        "label": result.label,
        "probability": result.probability,
        "target": result.target,
        "scores": _kept(scores, kept),
        "more": _more(result, fields, extra, None if kept is None else tuple(kept)),
    }
    if result.layers is not None and kept is None:
        row["layers"] = result.layers.tolist()
    return row


def _strongest(result: Attribution, count: int) -> list[int]:
    """The tokens with the largest scores, either sign, in the order of the text."""
    special = result.special.tolist()
    order = result.scores.abs().argsort(descending=True, stable=True).tolist()
    return sorted([i for i in order if not special[i]][:count])


def _kept(values: Any, kept: list[int] | None) -> list[Any]:
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return listed if kept is None or not listed else [listed[i] for i in kept]


def _more(
    result: Attribution, fields: Row, extra: dict[str, float], kept: tuple[int, ...] | None
) -> str:
    """The fields without a column that say something, as JSON."""
    rest = {name: getattr(result.source, name) for name in SOURCE if name not in IN_COLUMNS}
    rest |= {name: fields[name] for name in MAYBE_PER_TOKEN}
    for name in ("groups", "parts"):
        rest[name] = [asdict(part) for part in rest[name]]
    rest = {name: value for name, value in rest.items() if value not in (SOURCE[name], ())}
    more: Row = {
        "source": rest,
        "prediction": _said(result.prediction, kept),
        "options": result.options,
        "extra": extra,
        "dtype": str(result.scores.dtype).removeprefix("torch."),
        "texts": len(result.source.texts),
    }
    return json.dumps({name: value for name, value in more.items() if value != {}})


def _said(prediction: Prediction, kept: tuple[int, ...] | None) -> Row:
    """What has no column; a position is a number of a token, which may not be kept."""
    fields = {name: value for name, value in fields_of(prediction).items() if name not in SAID}
    position = fields["position"]
    if kept is not None and position is not None:
        fields["position"] = kept.index(position) if position in kept else None
    return {name: value for name, value in fields.items() if value is not None}


def attribution_of(row: Row, about: dict[str, str]) -> Attribution:
    """The result that a row was made of; of `top_k`, with the tokens that were kept."""
    if row["error"] is not None:
        raise LoadError(f"text {row['id']} was not explained: {row['error']}")
    more = json.loads(row["more"])
    texts = [row["text"], row["pair"]][: more["texts"]]
    columns = {name: row[name] for name in PER_TOKEN}
    named = {name: row[name] for name in ("label", "probability")}
    plain = {
        "format": 2,
        "kind": "attribution",
        "dtype": more["dtype"],
        "source": {"texts": texts, **columns, **more.get("source", {})},
        "predictions": [{**named, "index": row["target"], **more.get("prediction", {})}],
        "scores": [row["scores"]],
        "layers": row.get("layers"),
        "method": about["method"],
        "model": about["model"],
        "options": more.get("options", {}),
        "extra": [more.get("extra", {})],
    }
    return Attribution.from_dict(plain)


def table(rows: Sequence[Row], columns: "pyarrow.Schema") -> "pyarrow.Table":
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=columns)

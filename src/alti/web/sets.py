"""Answers the requests about sets of texts: the rows of a file, and a prediction for each."""

import base64
import binascii
import math
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pyarrow
from pyarrow import parquet, types

from alti._errors import UsageError
from alti.methods.logits import kind_of, probabilities, target_logits
from alti.model.model import Model
from alti.model.request import Request
from alti.read.exactness import untouched
from alti.web.packing import as_json

ROWS = 20_000  # of a file
BYTES = 64_000_000  # of its texts: a small file may hold a long one many times
TOGETHER = 16  # rows that are unpacked at a time
PLAIN = (  # types of columns that are read
    types.is_string,
    types.is_large_string,
    types.is_integer,
    types.is_floating,
    types.is_boolean,
)


class SetDesk:
    """The part of the desk that reads and predicts, and explains nothing."""

    def _model(self, question: dict[str, Any]) -> Model:
        raise NotImplementedError  # the desk has the models

    def rows(self, question: dict[str, Any]) -> bytes:
        """The rows of a Parquet file: its columns of texts, numbers and truth values."""
        try:
            content = base64.b64decode(question["file"], validate=True)
        except binascii.Error:
            raise UsageError("the file is not in base64") from None
        return as_json({"rows": _rows(content)})

    def predict(self, question: dict[str, Any]) -> bytes:
        """What a model says about a text: label, number and probability, from one forward pass."""
        model = self._model(question)
        if model.head.kind == "encoder":
            return as_json({"label": None, "index": None, "probability": None})
        request = Request(position=question["position"])
        task = model.task(question["text"], question["text_pair"], request)
        inputs, target = model.batch([task], request)
        logits = target_logits(untouched(model.model, inputs.asking(target)), target)[0, 0]
        index, label, _ = model.head.prediction(model.tokenizer, logits, None)
        if kind_of(model.head.config, len(logits)) == "value":
            return as_json({"label": label, "index": index, "probability": None})
        chances = probabilities(logits.double()[None], model.head.config)[0]
        return as_json({"label": label, "index": index, "probability": float(chances[index])})


def _rows(content: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for batch in _batches(content):
        size += batch.nbytes
        if size > BYTES:
            raise UsageError(f"the texts of the file have over {BYTES // 10**6} MB")
        rows += batch.to_pylist()
        if len(rows) > ROWS:
            raise UsageError(f"the file has over {ROWS} rows: open a part of it")
    return [{name: _finite(value) for name, value in row.items()} for row in rows]


def _batches(content: bytes) -> Iterator[pyarrow.RecordBatch]:
    """Some rows of a Parquet file after others, without columns of lists, dates or the like."""
    try:
        with parquet.ParquetFile(BytesIO(content)) as file:
            names = [
                field.name for field in file.schema_arrow if any(fits(field.type) for fits in PLAIN)
            ]
            yield from file.iter_batches(TOGETHER, columns=names)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError("the file is damaged, or no Parquet file") from error


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value

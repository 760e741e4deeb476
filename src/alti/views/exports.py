"""Results as the objects of other libraries, which are imported when they are asked for."""

import math
from html import escape
from importlib import import_module
from typing import Any

import numpy as np

from alti._errors import LoadError
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.source import Source
from alti.views.said import is_text, label_of, names_of


def library(name: str, purpose: str) -> Any:
    """A module of a library that is not one of alti's own; LoadError where it is missing."""
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError:
        raise LoadError(
            f"{purpose} needs {package}, which is not installed: pip install {package}"
        ) from None


def frame(result: Attribution | Attributions) -> Any:
    """A pandas table: a row for each token, of several predictions one for each of them."""
    pandas = library("pandas", "to_dataframe")
    if isinstance(result, Attribution):
        table = pandas.DataFrame(_columns(result))
        table.attrs |= {"label": result.label, "probability": result.probability}
    else:
        table = pandas.concat([_numbered(pandas, k, one) for k, one in enumerate(result)])
        table = table.reset_index(drop=True)
    table.attrs |= {"method": result.method, "model": result.model}
    return table


def _numbered(pandas: Any, number: int, one: Attribution) -> Any:
    """The rows of one prediction among several."""
    return pandas.DataFrame({"prediction": number, "label": one.label, **_columns(one)})


def _columns(one: Attribution) -> dict[str, Any]:
    source = one.source
    named = {} if is_text(source) else {"group": names_of(source)}
    return {
        **named,
        "token": list(source.tokens),
        "score": one.values,
        "start": [start for start, _ in source.offsets],
        "end": [end for _, end in source.offsets],
        "segment": list(source.owners),
        "special": source.special.tolist(),
    }


def shap(result: Attribution | Attributions) -> Any:
    """SHAP's `Explanation`: values [T], of several predictions [T, K]."""
    explanation = library("shap", "to_shap").Explanation
    data = np.array(_pieces(result.source), dtype=object)
    if isinstance(result, Attribution):  # whose label SHAP has no place for
        names = names_of(result.source)
        return explanation(result.values, _base(result), data, feature_names=names)
    base = np.array([_base(one) for one in result])
    return explanation(result.values.T, base, data, output_names=[label_of(one) for one in result])


def _base(one: Attribution) -> float:
    """What biases carry, where a method says so; else 0."""
    return float(one.extra.get("remainder", 0.0))


def _pieces(source: Source) -> list[str]:
    """The text cut before each token, whose spaces stay behind it; added tokens by their names."""
    owners = source.owners
    added = [owner < 0 or special for owner, special in zip(owners, source.special, strict=True)]
    pieces = [f"{name} " for name in names_of(source)]
    ends: dict[int, int] = {}  # where the next token of each text starts
    for i in reversed(range(len(source))):
        if added[i] or not is_text(source):
            continue
        text = source.texts[owners[i]]
        start = source.offsets[i][0]
        pieces[i] = text[start : max(start, ends.get(owners[i], len(text)))]
        ends[owners[i]] = start
    return pieces


def captum(result: Attribution | Attributions) -> Any:
    """Captum's record for `visualize_text`; of several predictions a list of them."""
    visualization = library("captum.attr", "to_captum").visualization
    if isinstance(result, Attributions):
        return [captum(one) for one in result]
    label = escape(label_of(result))
    largest = max((abs(score) for score in result.scores.tolist()), default=0.0)
    chance = result.probability
    return visualization.VisualizationDataRecord(
        word_attributions=result.scores / (largest or 1.0),
        pred_prob=math.nan if chance is None else chance,
        pred_class=label,
        true_class="",
        attr_class=label,
        attr_score=float(result.scores.sum()),
        raw_input_ids=[escape(name) for name in names_of(result.source)],
        convergence_score=result.extra.get("gap"),
    )

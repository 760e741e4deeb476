"""Results as the objects of other libraries, which are imported when they are asked for."""

from importlib import import_module
from typing import Any

from alti._errors import LoadError
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.views.said import is_text, names_of


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

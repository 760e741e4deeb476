"""The rows of a benchmark of contexts as tables: means, differences and what each method costs."""

import math
from collections import Counter
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from alti._errors import UsageError
from alti.experiments.evaluate import Row
from alti.experiments.store import ABOUT
from alti.experiments.study import Study
from alti.experiments.summary import skipped
from alti.metrics import METRICS
from alti.views.tables import Cell, Table, mean_of_groups

PASSES = "passes"
COST = f"{PASSES}: texts through the network for one explanation, a backward pass counting 2."

Groups = dict[str | None, list[int]]  # the texts of each part of the data
Values = dict[int, float]  # a metric's value by text, where it is defined


def verdicts(study: Study, rows: list[Row], rival: str | None = None) -> list[Table]:
    """Means with 95 % intervals, and paired differences to a rival, or to the best of each column.

    Where rows name a `task`, the means over tasks come first, then a table for each.
    """
    if rival is not None and rival not in study.methods:
        raise UsageError(f"the rival {rival!r} was not run: choose {', '.join(study.methods)}")
    title = f"{study.model} on {study.data}" + (f" ({study.split})" if study.split else "")
    groups = _groups(rows)
    whole = f"{title}: mean over {len(groups)} tasks" if len(groups) > 1 else title
    tables = [
        _means(whole, study, rows, groups, _note(rows, groups)),
        _differences(whole, study, rows, groups, rival),
    ]
    if len(groups) > 1:
        tables += [
            _means(f"{title}: {name}", study, rows, {name: texts}, _count(len(texts)))
            for name, texts in groups.items()
        ]
    return tables


def cost(rows: list[Row]) -> dict[str, float]:
    """What all methods took together: texts through the network, forwards and backwards."""
    made = [row for row in rows if "forward" in row]
    return {name: sum(row[name] for row in made) for name in ("forward", "backward")}


def _groups(rows: list[Row]) -> Groups:
    groups: Groups = {}
    for row in rows:
        if ABOUT in row:
            groups.setdefault(row.get("task"), []).append(row["text"])
    return {name: sorted(texts) for name, texts in groups.items()}


def _means(title: str, study: Study, rows: list[Row], groups: Groups, note: str) -> Table:
    cells: dict[str, list[Cell]] = {method: [] for method in study.methods}
    for column in study.metrics:
        values = {method: _values(rows, method, column) for method in study.methods}
        best = _best(values, column, groups)
        for method, own in values.items():
            cells[method].append(Cell(*_mean(own, groups), best=method == best))
    for method, line in cells.items():
        line.append(Cell(_mean(_passes(rows, method), groups)[0]))
    heads = ("method", *map(_head, study.metrics), PASSES)
    return Table(title, heads, _lines(cells), note)


def _differences(
    title: str, study: Study, rows: list[Row], groups: Groups, rival: str | None
) -> Table:
    cells: dict[str, list[Cell]] = {method: [] for method in study.methods}
    for column in study.metrics:
        values = {method: _values(rows, method, column) for method in study.methods}
        other = values[rival or _best(values, column, groups)]
        for method, own in values.items():
            both = {text: own[text] - other[text] for text in sorted(own.keys() & other.keys())}
            cells[method].append(Cell(*_mean(both, groups)))
    whom = f"to {rival}" if rival else "to the best of each column"
    heads = ("method", *map(_head, study.metrics))
    return Table(f"{title}: difference {whom}", heads, _lines(cells), "In pairs of texts.")


def _mean(values: Values, groups: Groups) -> tuple[float, float, float]:
    return mean_of_groups(_by_group(values, groups))


def _by_group(values: Values, groups: Groups) -> list[list[float]]:
    return [[values[text] for text in texts if text in values] for texts in groups.values()]


def _best(values: dict[str, Values], column: str, groups: Groups) -> str:
    sign = -1 if _better(column) == "lower" else 1

    def mean(method: str) -> float:
        means = [fmean(own) for own in _by_group(values[method], groups) if own]
        return sign * fmean(means) if means else -math.inf

    return max(values, key=mean)


def _values(rows: Iterable[Row], method: str, column: str) -> Values:
    own = {row["text"]: row["values"].get(column) for row in rows if row.get("method") == method}
    return {text: value for text, value in own.items() if value is not None}


def _passes(rows: Iterable[Row], method: str) -> Values:
    own = (row for row in rows if row.get("method") == method and "forward" in row)
    return {row["text"]: row["forward"] + 2 * row["backward"] for row in own}


def _better(column: str) -> str:
    return METRICS[column.partition(":")[0]].better


def _head(column: str) -> str:
    return f"{column} {'↓' if _better(column) == 'lower' else '↑'}"


def _lines(cells: dict[str, list[Cell]]) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    return tuple((method, tuple(line)) for method, line in cells.items())


def _count(texts: int) -> str:
    intervals = "; 95 % bootstrap intervals" if texts > 1 else ""
    return f"{texts} text{'' if texts == 1 else 's'}{intervals}."


def _note(rows: list[Row], groups: Groups) -> str:
    """What the means are taken over."""
    texts = sum(map(len, groups.values()))
    abouts = [row for row in rows if ABOUT in row]
    parts = [_count(texts), COST]
    if abouts:
        parts.insert(1, f"{fmean(row[ABOUT] for row in abouts):.1f} sources in a text.")
    undefined: set[Any] = {
        row["text"] for row in rows if "method" in row and None in row["values"].values()
    }
    if undefined:
        parts.append(f"Undefined and left out of a mean: {len(undefined)} texts.")
    return " ".join([*parts, *skipped(rows), *_refused(rows)])


def _refused(rows: list[Row]) -> list[str]:
    """How many texts each method refused; its means are over the others."""
    counts = Counter(row["method"] for row in rows if "refused" in row)
    return [f"Refused by {method}: {count} (the rows say why)." for method, count in counts.items()]

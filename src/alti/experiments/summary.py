"""The rows of a benchmark as tables, curves, and the work that they took."""

import math
import re
from collections import Counter
from typing import Any

from alti.experiments.evaluate import BY_SIZE, Row
from alti.experiments.plan import Plan, metric_name
from alti.metrics import METRICS, Metric, mean_curve
from alti.views.tables import Cell, Table, bootstrap, paired

STEPS = (0, 1, 2, 3, 5, 10, 20, 30, 60)  # columns of a curve's table: tokens removed

Values = dict[int, float]  # a metric's value by text, where it is defined


def summary(plan: Plan, rows: list[Row]) -> list[Table]:
    """Means with 95 % intervals, and paired differences to the best method of each column."""
    title = f"{plan.model} on {plan.data}" + (f" ({plan.split})" if plan.split else "")
    curve_tables = [
        _curve_table(f"{title}: {spec}", spec, plan, rows)
        for spec in plan.metrics
        if _metric(spec).curve
    ]
    numbers = [spec for spec in plan.metrics if not _metric(spec).curve]
    return [*_mean_tables(title, _both_rankings(numbers), plan, rows), *curve_tables]


def curves(plan: Plan, rows: list[Row]) -> dict[str, Any]:
    """Mean probability after each removal, and how many texts are left, by method and ranking."""
    columns = _both_rankings([spec for spec in plan.metrics if _metric(spec).curve])
    return {
        f"{method} {column}": _curve(_rows_of(method, rows), column)
        for method in plan.methods
        for column in columns
    }


def work(rows: list[Row]) -> dict[str, float]:
    """What the run took: passes through the model, sequences, seconds."""
    total: dict[str, float] = {}
    for row in rows:
        for key, amount in row.get("work", {}).items():
            total[key] = total.get(key, 0) + amount
    return total


def _metric(column: str) -> Metric:
    return METRICS[metric_name(column)]


def _both_rankings(specs: list[str]) -> list[str]:
    """The columns of metrics: tokens ranked by score, and by the size of the score."""
    return [spec + ranking for spec in specs for ranking in ("", BY_SIZE)]


def _rows_of(method: str, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.get("method") == method]


def _mean_tables(title: str, columns: list[str], plan: Plan, rows: list[Row]) -> list[Table]:
    """The means, and the differences to the best of each column."""
    if not columns:
        return []
    heads = ("method", *map(_head, columns))
    means: dict[str, list[Cell]] = {method: [] for method in plan.methods}
    differences: dict[str, list[Cell]] = {method: [] for method in plan.methods}
    for column in columns:
        values = {method: _values(_rows_of(method, rows), column) for method in plan.methods}
        best = _best(values, column)
        for method, own in values.items():
            means[method].append(Cell(*bootstrap(list(own.values())), best=method == best))
            differences[method].append(_difference(own, values[best]))
    return [
        Table(title, heads, _lines(means), _note(rows)),
        Table(
            f"{title}: difference to the best of each column",
            heads,
            _lines(differences),
            "In pairs of texts.",
        ),
    ]


def _head(column: str) -> str:
    return f"{column} {'↓' if _metric(column).better == 'lower' else '↑'}"


def _lines(cells: dict[str, list[Cell]]) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    return tuple((method, tuple(line)) for method, line in cells.items())


def _difference(own: Values, best: Values) -> Cell:
    texts = sorted(own.keys() & best.keys())
    return Cell(*paired([own[text] for text in texts], [best[text] for text in texts]))


def _values(rows: list[Row], column: str) -> Values:
    values = {row["text"]: _value(row, column) for row in rows}
    # sorted: rows that a resumed run adds are at the end of the file
    return {text: value for text, value in sorted(values.items()) if value is not None}


def _value(row: Row, column: str) -> Any:
    """A value of a row; where no score is negative both rankings are the same, and stored once."""
    return row["values"].get(column, row["values"].get(column.removesuffix(BY_SIZE)))


def _best(values: dict[str, Values], column: str) -> str:
    sign = -1 if _metric(column).better == "lower" else 1

    def mean(method: str) -> float:
        own = list(values[method].values())
        return sign * sum(own) / len(own) if own else -math.inf

    return max(values, key=mean)


def _curve(rows: list[Row], column: str) -> dict[str, Any]:
    lines = [_value(row, column) for row in rows]
    means, counts = mean_curve([line for line in lines if line is not None])
    return {"mean": list(means), "texts": list(counts)}


def _curve_table(title: str, spec: str, plan: Plan, rows: list[Row]) -> Table:
    """The mean after some numbers of removed tokens; the note says how many texts are left."""
    by_method = {method: _curve(_rows_of(method, rows), spec) for method in plan.methods}
    longest = max(len(curve["mean"]) for curve in by_method.values())
    steps = [step for step in STEPS if step < longest]
    lines = [
        (method, tuple(Cell(curve["mean"][step]) for step in steps))
        for method, curve in by_method.items()
    ]
    left = by_method[plan.methods[0]]["texts"]
    counts = ", ".join(f"{left[step]} at {step}" for step in steps)
    heads = ("tokens removed", *map(str, steps))
    return Table(title, heads, tuple(lines), f"Texts left: {counts}. {_note(rows)}")


def _note(rows: list[Row]) -> str:
    """What the means are taken over."""
    texts = {row["text"] for row in rows if "method" in row}
    count = f"{len(texts)} text{'' if len(texts) == 1 else 's'}"
    intervals = "95 % bootstrap intervals; " if len(texts) > 1 else ""
    parts = [f"{count}; {intervals}{BY_SIZE.strip()}: ranked by the size of scores."]
    if right := {row["text"]: row["right"] for row in rows if "right" in row}:
        labelled = "them" if len(right) == len(texts) else f"the {len(right)} whose label it knows"
        share = 100 * sum(right.values()) / len(right)
        parts.append(f"The model is right on {share:.1f} % of {labelled}.")
    if cut := {row["text"] for row in rows if row.get("cut")}:
        parts.append(f"Cut to the model's length: {len(cut)} of them.")
    if undefined := {row["text"] for row in rows if None in row.get("values", {}).values()}:
        parts.append(f"Undefined and left out of a mean: {len(undefined)} texts.")
    return " ".join([*parts, *skipped(rows)])


def skipped(rows: list[Row]) -> list[str]:
    """How many texts were skipped for each reason; reasons that differ in numbers only are one."""
    reasons = Counter(re.sub(r"\d+", "…", row["skipped"]) for row in rows if "skipped" in row)
    return [f"Passed over: {count} ({reason})." for reason, count in reasons.items()]

"""Tables 2, 3, 4 and the appendix: faithfulness of every method, by both protocols.

python -m reproduction.faithfulness gte-small sst2
python -m reproduction.faithfulness textattack/bert-base-uncased-SST-2 sst2     # from the hub
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import alti
from alti.experiments.bench import Plan, default_methods, load_rows, run, work
from alti.experiments.evaluate import BY_SIZE
from alti.views.tables import bootstrap, paired
from reproduction.settings import (
    BUILD,
    DATA,
    METHODS,
    RESULTS,
    data_file,
    model_name,
    rounded,
    short,
    write,
)

PLAIN = ("comprehensiveness", "sufficiency")
METRICS = (*PLAIN, *(f"{name}:envelope=true" for name in PLAIN))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a backbone that was trained here, a folder or a hub name")
    parser.add_argument("data", choices=DATA)
    parser.add_argument(
        "--texts", type=int, help="default: 1,000 for sst2 and sva, 300 for imdb and yelp"
    )
    options = parser.parse_args()
    model = alti.load(model_name(options.model, options.data), dtype="float32")
    possible = default_methods(model)
    methods = tuple(spec for spec in METHODS.values() if spec in possible)
    name = f"{short(options.model)}-{options.data}"
    rows = BUILD / "rows" / f"{name}.jsonl"
    measure(model, options.model, options.data, methods, METRICS, rows, options.texts)
    write(RESULTS / "faithfulness" / f"{name}.json", summarised(rows, model))


def measure(
    model: alti.Model,
    name: str,
    data: str,
    methods: tuple[str, ...],
    metrics: tuple[str, ...],
    rows: Path,
    texts: int | None,
) -> None:
    """Write the rows of some methods; a run that was stopped goes on."""
    settings = DATA[data]
    plan = Plan(
        model=short(name),
        data=str(data_file(data)),
        methods=methods,
        metrics=metrics,
        split="test",
        sample=texts or settings.texts,
        mask_token=settings.mask_token,
        truncate=True,
    )
    rows.parent.mkdir(parents=True, exist_ok=True)
    for progress in run(plan, model, rows):
        print(f"{progress.texts} of {progress.total} texts", file=sys.stderr, flush=True)


def summarised(file: Path, model: alti.Model) -> dict[str, Any]:
    """Means with their 95 % intervals, and ALTI minus each method in pairs of texts."""
    plan, rows = load_rows(file)
    specs = {name: spec for name, spec in METHODS.items() if spec in plan.methods}
    values = {name: values_of(rows, spec) for name, spec in specs.items()}
    tokens = [row["tokens"] for row in rows if row.get("method") == "alti"]
    return {
        "model": plan.model,
        "data": Path(plan.data).stem,
        "texts": len({row["text"] for row in rows if "method" in row}),
        "median_tokens": statistics.median(tokens),
        "passed_over": sum("skipped" in row for row in rows),
        "accuracy": round(_accuracy(rows, model), 4),
        "work": work(rows),
        "means": {
            name: {metric: rounded(bootstrap(own)) for metric, own in columns.items()}
            for name, columns in values.items()
        },
        "alti_minus": {
            name: _differences(values["ALTI"], columns)
            for name, columns in values.items()
            if name != "ALTI"
        },
    }


def _differences(first: dict[str, list[float]], second: dict[str, list[float]]) -> dict[str, Any]:
    return {
        metric: rounded(paired(first[metric.removesuffix(BY_SIZE)], values))
        for metric, values in second.items()
    }


def values_of(rows: list[dict[str, Any]], spec: str) -> dict[str, list[float]]:
    """Every metric's values in the order of the texts; also by size, if scores are signed."""
    own = [row["values"] for row in rows if row.get("method") == spec]
    columns = dict.fromkeys(key for values in own for key in values)
    return {
        key: [values.get(key, values[key.removesuffix(BY_SIZE)]) for values in own]
        for key in columns
    }


def _accuracy(rows: list[dict[str, Any]], model: alti.Model) -> float:
    """Models that call their classes LABEL_0 and LABEL_1 have them in the order of the names."""
    own = [row for row in rows if row.get("method") == "alti"]
    names = sorted({row["gold"] for row in own})
    labels = {int(i): str(label).lower() for i, label in model.model.config.id2label.items()}
    if not set(names) & set(labels.values()):
        labels = dict(enumerate(names))
    return statistics.fmean(labels[row["target"]] == row["gold"] for row in own)


if __name__ == "__main__":
    main()

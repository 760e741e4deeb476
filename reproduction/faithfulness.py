"""Tables 2, 3, 4 and those of the appendix: comprehensiveness and sufficiency of every method, by both protocols.

python -m reproduction.faithfulness gte-small sst2
python -m reproduction.faithfulness textattack/bert-base-uncased-SST-2 sst2      # a model of the paper, from the hub
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
    asked = parser.parse_args()
    settings = DATA[asked.data]
    model = alti.load(model_name(asked.model, asked.data), dtype="float32")
    able = default_methods(model)
    plan = Plan(
        model=short(asked.model),
        data=str(data_file(asked.data)),
        methods=tuple(spec for spec in METHODS.values() if spec in able),
        metrics=METRICS,
        split="test",
        sample=asked.texts or settings.texts,
        mask_token=settings.mask_token,
        truncate=True,
    )
    rows = BUILD / "rows" / f"{short(asked.model)}-{asked.data}.jsonl"
    rows.parent.mkdir(parents=True, exist_ok=True)
    for done in run(plan, model, rows):
        print(f"{done.texts} of {done.total} texts", file=sys.stderr, flush=True)
    write(
        RESULTS / "faithfulness" / f"{short(asked.model)}-{asked.data}.json",
        summarised(rows, model),
    )


def summarised(file: Path, model: alti.Model) -> dict[str, Any]:
    """Means with their 95 % intervals, and ALTI minus each method in pairs of texts."""
    plan, rows = load_rows(file)
    found = {name: _values(rows, spec) for name, spec in METHODS.items() if spec in plan.methods}
    return {
        "model": plan.model,
        "data": Path(plan.data).stem,
        "texts": len({row["text"] for row in rows if "method" in row}),
        "median_tokens": statistics.median(
            row["tokens"] for row in rows if row.get("method") == "alti"
        ),
        "passed_over": sum("skipped" in row for row in rows),
        "accuracy": round(_accuracy(rows, model), 4),
        "work": work(rows),
        "means": {
            name: {m: rounded(bootstrap(v)) for m, v in columns.items()}
            for name, columns in found.items()
        },
        "alti_minus": {
            name: {
                m: rounded(paired(found["ALTI"][m.removesuffix(BY_SIZE)], v))
                for m, v in columns.items()
            }
            for name, columns in found.items()
            if name != "ALTI"
        },
    }


def _values(rows: list[dict[str, Any]], spec: str) -> dict[str, list[float]]:
    """Every metric's values in the order of the texts; by size too where a score is signed."""
    own = [row["values"] for row in rows if row.get("method") == spec]
    columns = dict.fromkeys(key for values in own for key in values)
    return {
        key: [values.get(key, values[key.removesuffix(BY_SIZE)]) for values in own]
        for key in columns
    }


def _accuracy(rows: list[dict[str, Any]], model: alti.Model) -> float:
    """Models of the hub call their classes LABEL_0 and LABEL_1: in the order of the names, negative comes first."""
    own = [row for row in rows if row.get("method") == "alti"]
    names = sorted({row["gold"] for row in own})
    labels = {int(i): str(label).lower() for i, label in model.model.config.id2label.items()}
    if not set(names) & set(labels.values()):
        labels = dict(enumerate(names))
    return statistics.fmean(labels[row["target"]] == row["gold"] for row in own)


if __name__ == "__main__":
    main()

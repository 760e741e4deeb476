"""Which method for a class: dimming and consensus beside absence and occlusion, in every cell.

python -m reproduction.classes distilbert-base-cased mpnet-base              # four data sets each
python -m reproduction.classes distilbert-base-cased mpnet-base --tables     # of the docs

What is not trained yet is trained first, so it takes a GPU and is one command. A run that was
stopped goes on.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import alti
from alti.experiments.bench import load_rows
from alti.views.tables import bootstrap, paired
from reproduction.faithfulness import PLAIN, measure, values_of
from reproduction.report import NAMES, results, table
from reproduction.settings import BACKBONES, BUILD, DATA, RESULTS, model_name, rounded, write
from reproduction.train import trained

PASSES = {  # of each method
    "linear": "3",
    "absence": "3",
    "dimming": "4",
    "dimming:strength=0.05": "4",
    "consensus": "6",
    "occlusion": "one per token",
}
METHODS = tuple(PASSES)
RIVALS = ("absence", "occlusion")  # the others are compared with them


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backbones", nargs="+", choices=BACKBONES)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--texts", type=int, help="default: as reproduction.faithfulness")
    parser.add_argument("--tables", action="store_true", help="print those of what was measured")
    options = parser.parse_args()
    if options.tables:
        print("\n\n".join(map(tables, options.backbones)))
        return
    for backbone, data in product(options.backbones, options.data):
        trained(backbone, data)
        model = alti.load(model_name(backbone, data), dtype="float32")
        rows = BUILD / "rows" / f"classes-{backbone}-{data}.jsonl"
        measure(model, backbone, data, METHODS, PLAIN, rows, options.texts)
        write(RESULTS / "classes" / f"{backbone}-{data}.json", summarised(rows))


def summarised(file: Path) -> dict[str, Any]:
    """Means with their 95 % intervals, and differences from the others in pairs of texts."""
    _, rows = load_rows(file)
    values = {spec: values_of(rows, spec) for spec in METHODS}
    return {
        "texts": len({row["text"] for row in rows if "method" in row}),
        "means": {
            spec: {metric: rounded(bootstrap(columns[metric])) for metric in PLAIN}
            for spec, columns in values.items()
        },
        "minus": {rival: _minus(values, rival) for rival in RIVALS},
    }


def _minus(values: dict[str, dict[str, list[float]]], rival: str) -> dict[str, Any]:
    """How far each other method is from one, in each metric."""
    return {
        spec: {metric: rounded(paired(columns[metric], values[rival][metric])) for metric in PLAIN}
        for spec, columns in values.items()
        if spec != rival
    }


def tables(backbone: str) -> str:
    """The means of each method on each data set, and how far `consensus` is from its rivals."""
    measured = results("classes")
    if missing := [data for data in DATA if f"{backbone}-{data}" not in measured]:
        raise SystemExit(
            f"{backbone} was not measured on {', '.join(missing)}: run this without --tables first"
        )
    cells = {data: measured[f"{backbone}-{data}"] for data in DATA}
    best = {
        (data, metric): choose(round(mean[metric][0], 3) for mean in cell["means"].values())
        for data, cell in cells.items()
        for metric, choose in zip(PLAIN, (max, min), strict=True)
    }

    def shown(data: str, method: str, metric: str) -> str:
        mean = cells[data]["means"][method][metric][0]
        return f"**{_signed(mean)}**" if round(mean, 3) == best[data, metric] else _signed(mean)

    means = [
        [f"`{method}`", passes]
        + [" / ".join(shown(data, method, metric) for metric in PLAIN) for data in cells]
        for method, passes in PASSES.items()
    ]
    differences = [
        [f"{name}: `consensus` − `{rival}`"]
        + [_interval(cell["minus"][rival]["consensus"][metric]) for cell in cells.values()]
        for rival in RIVALS
        for metric, name in zip(PLAIN, ("comp ↑", "suff ↓"), strict=True)
    ]
    texts = [f"{NAMES[data]} ({cell['texts']:,} texts)" for data, cell in cells.items()]
    names = [NAMES[data] for data in cells]
    return "\n\n".join(
        (
            table(["method", "passes", *texts], means),
            table(["paired difference", *names], differences),
        )
    )


def _signed(number: float) -> str:
    return f"{round(number, 3) + 0.0:.3f}".replace("-", "−")  # no −0.000


def _interval(found: list[float]) -> str:
    mean, low, high = map(_signed, found)
    return f"{mean} [{low}, {high}]"


if __name__ == "__main__":
    main()

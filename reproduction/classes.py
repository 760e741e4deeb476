"""Which method for a class: dimming and consensus beside absence and occlusion, in every cell.

python -m reproduction.classes distilbert-base-cased mpnet-base     # four data sets each

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
from reproduction.settings import BACKBONES, BUILD, DATA, RESULTS, model_name, rounded, write
from reproduction.train import trained

METHODS = ("linear", "absence", "occlusion", "dimming", "dimming:strength=0.05", "consensus")
RIVALS = ("absence", "occlusion")  # the others are compared with them


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backbones", nargs="+", choices=BACKBONES)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--texts", type=int, help="default: as reproduction.faithfulness")
    options = parser.parse_args()
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


if __name__ == "__main__":
    main()

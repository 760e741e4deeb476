"""Figures 4 and 7: how the probability falls as the highest tokens are deleted one by one.

python -m reproduction.curves gte-small sst2                     # one model
python -m reproduction.curves gte-small sst2 --seeds 10 --texts 200    # mean and deviation of seeds
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

import alti
from alti.experiments.bench import Plan, load_rows, run
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

DRAWN = (
    "Grad ℓ2",
    "IG ℓ2",
    "IG μ",
    "G×I ℓ2",
    "G×I μ",
    "Rollout",
    "Globenc",
    "ALTI",
    "ALTI + LN2",
    "IG signed",
    "Absence",
    "Random",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a backbone that was trained here, a folder or a hub name")
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    by_seed = [
        computed(options.model, options.data, seed, options.texts) for seed in range(options.seeds)
    ]
    suffix = f"-{options.seeds}-seeds" if options.seeds > 1 else ""
    name = f"{short(options.model)}-{options.data}{suffix}"
    content = {
        "model": short(options.model),
        "data": options.data,
        "texts": options.texts,
        "seeds": options.seeds,
    }
    for protocol in ("plain", "envelope"):
        content[protocol] = {
            method: mean_with_band([curves[protocol][method] for curves in by_seed])
            for method in DRAWN
        }
    write(RESULTS / "curves" / f"{name}.json", rounded(content))


def computed(
    model: str, data: str, seed: int, texts: int
) -> dict[str, dict[str, list[list[float]]]]:
    """The curve of every text, by protocol and method."""
    metric = f"probability_drop:steps={DATA[data].removed}"
    plan = Plan(
        model=short(model),
        data=str(data_file(data)),
        methods=tuple(METHODS[name] for name in DRAWN),
        metrics=(metric, f"{metric}:envelope=true"),
        split="test",
        sample=texts,
        mask_token=DATA[data].mask_token,
        truncate=True,
    )
    file = BUILD / "rows" / f"{short(model)}-{data}-{seed}-curves-{texts}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    loaded = alti.load(model_name(model, data, seed), dtype="float32")
    for progress in run(plan, loaded, file):
        count = f"{progress.texts} of {progress.total} texts"
        print(f"{file.stem}: {count}", file=sys.stderr, flush=True)
    return {
        protocol: {name: _curves(file, METHODS[name], column) for name in DRAWN}
        for protocol, column in zip(("plain", "envelope"), plan.metrics, strict=True)
    }


def _curves(file: Path, spec: str, column: str) -> list[list[float]]:
    return [row["values"][column] for row in load_rows(file)[1] if row.get("method") == spec]


def mean_with_band(models: list[list[list[float]]]) -> dict[str, Any]:
    """The mean curve and a band: the 95 % interval over texts, or the deviation over models.

    Texts that have run out of tokens stay at their last probability, so the mean is always over
    the same texts.
    """
    longest = max(len(curve) for model in models for curve in model)
    filled = np.array(
        [[curve + curve[-1:] * (longest - len(curve)) for curve in model] for model in models]
    )
    means = filled.mean(1)  # [models, steps]
    left = [sum(len(curve) > step for curve in models[0]) for step in range(longest)]
    if len(models) > 1:
        spread = np.array([statistics.stdev(step) for step in means.T])
    else:
        spread = 1.96 * filled[0].std(0, ddof=1) / np.sqrt(filled.shape[1])
    mean = means.mean(0)
    return {
        "mean": mean.tolist(),
        "low": (mean - spread).tolist(),
        "high": (mean + spread).tolist(),
        "left": left,
    }


if __name__ == "__main__":
    main()

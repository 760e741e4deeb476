"""Figures 5 and 6: are models that differ only in their seed explained alike?

Jaccard-25 % and Spearman of all pairs.

python -m reproduction.agreement gte-small                        # ten fine-tuning seeds on SST-2
python -m reproduction.agreement --published multiberts_sst2.npz  # attributions of the authors
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import alti
from alti.metrics import agreement, jaccard, pairs, spearman
from reproduction.settings import BUILD, METHODS, RESULTS, SEEDS, model_name, rounded, texts, write

MEASURES = {"jaccard": jaccard, "spearman": spearman}
PUBLISHED = {  # our names for those in the authors' file
    "ALTI": "alti",
    "ALTI ℓ2": "alti_l2",
    "ALTI + LN2": "alti_ln2",
    "Globenc": "globenc",
    "Norms": "norms",
    "Rollout": "rollout",
    "Grad ℓ2": "grad_l2",
    "G×I ℓ2": "gxi_l2",
    "G×I μ": "gxi_mu",
    "IG ℓ2": "ig_l2",
    "IG μ": "ig_mu",
}
LEFT_OUT = {"Random", "Occlusion"}  # the first agrees with nothing, the other is slow


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backbone", nargs="?")
    parser.add_argument("--published", type=Path)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    if options.published:
        write(RESULTS / "agreement" / "published.json", rounded(published(options.published)))
        return
    if not options.backbone:
        parser.error("name a backbone, or the authors' file with --published")
    models = [explained(options.backbone, seed, options.texts) for seed in range(options.seeds)]
    predictions = [model["predictions"] for model in models]
    by_method = {
        name: measured([model[name] for model in models], predictions) for name in methods()
    }
    content = {
        "backbone": options.backbone,
        "data": "sst2",
        "texts": options.texts,
        "models": options.seeds,
    }
    write(
        RESULTS / "agreement" / f"{options.backbone}.json", rounded(content | {"pairs": by_method})
    )


def methods() -> list[str]:
    return [name for name in METHODS if name not in LEFT_OUT]


def measured(scores: list[list[Any]], predictions: list[Any]) -> dict[str, list[float]]:
    return {
        name: pairs(agreement(scores, predictions, measure)).tolist()
        for name, measure in MEASURES.items()
    }


def explained(backbone: str, seed: int, count: int) -> dict[str, Any]:
    """Every method's scores on the same texts, from a file that is written once for each model.

    The file is enough: the model may be gone.
    """
    file = BUILD / "scores" / f"{backbone}-sst2-{seed}-{count}.npz"
    folder = model_name(backbone, "sst2", seed)
    if not file.is_file() or Path(str(folder)).is_dir():
        model = alti.load(folder, dtype="float32")
        if not _is_from(file, model):
            _save(file, _scores(model, seed, count))
    with np.load(file) as stored:
        ends = np.cumsum(stored["lengths"])[:-1]
        scores = {name: np.split(stored[name], ends) for name in methods()}
        return scores | {"predictions": stored["predictions"]}


def _scores(model: alti.Model, seed: int, count: int) -> dict[str, Any]:
    sentences = texts("sst2", count)
    arrays = {"weights": np.array(model.fingerprint())}
    for name in methods():
        method, options = alti.bench.parsed(METHODS[name])
        results = list(model.explain_all(sentences, method=method, **options))
        arrays[name] = np.concatenate([result.scores.double().numpy() for result in results])
        arrays["predictions"] = np.array([result.target for result in results])
        arrays["lengths"] = np.array([len(result) for result in results])
        print(f"seed {seed}: {name}", file=sys.stderr, flush=True)
    return arrays


def _save(file: Path, arrays: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.stem}-partial.npz")
    np.savez_compressed(partial, **arrays)
    partial.replace(file)


def _is_from(file: Path, model: alti.Model) -> bool:
    """Whether a file holds the scores of these very weights, and not of an earlier training."""
    if not file.is_file():
        return False
    with np.load(file) as stored:
        return "weights" in stored and str(stored["weights"]) == model.fingerprint()


def published(file: Path) -> dict[str, Any]:
    with np.load(file) as stored:
        ends = np.cumsum(stored["lengths"].astype(int))[:-1]
        seeds = sorted({key.partition("/")[0] for key in stored if key.startswith("seed")})
        predictions = [stored[f"{seed}/pred_class"] for seed in seeds]
        by_method = {
            name: measured([np.split(stored[f"{seed}/{key}"], ends) for seed in seeds], predictions)
            for name, key in PUBLISHED.items()
            if f"{seeds[0]}/{key}" in stored
        }
        return {
            "backbone": "MultiBERTs",
            "data": "sst2",
            "texts": len(ends) + 1,
            "models": len(seeds),
            "pairs": by_method,
        }


if __name__ == "__main__":
    main()

"""Figures 5 and 6: are models that differ only in their seed explained alike? Jaccard-25 % and Spearman, all pairs.

python -m reproduction.agreement gte-small                             # ten fine-tuning seeds on SST-2
python -m reproduction.agreement --published multiberts_sst2.npz       # the attributions that the authors published
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
PUBLISHED = {  # how the authors' file calls what the paper's figures show
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
LEFT_OUT = {"Random", "Occlusion"}  # the one agrees with nothing, the other takes a pass per token


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backbone", nargs="?")
    parser.add_argument("--published", type=Path)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args()
    if asked.published:
        write(RESULTS / "agreement" / "published.json", rounded(published(asked.published)))
        return
    if not asked.backbone:
        parser.error("name a backbone, or the authors' file with --published")
    models = [explained(asked.backbone, seed, asked.texts) for seed in range(asked.seeds)]
    found = {
        name: measured([m[name] for m in models], [m["predictions"] for m in models])
        for name in methods()
    }
    content = {
        "backbone": asked.backbone,
        "data": "sst2",
        "texts": asked.texts,
        "models": asked.seeds,
    }
    write(RESULTS / "agreement" / f"{asked.backbone}.json", rounded(content | {"pairs": found}))


def methods() -> list[str]:
    return [name for name in METHODS if name not in LEFT_OUT]


def measured(scores: list[list[Any]], predictions: list[Any]) -> dict[str, list[float]]:
    return {
        name: pairs(agreement(scores, predictions, measure)).tolist()
        for name, measure in MEASURES.items()
    }


def explained(backbone: str, seed: int, count: int) -> dict[str, Any]:
    """Every method's scores on the same texts, kept in a file for each model (and taken from it once that is gone)."""
    file, place = (
        BUILD / "scores" / f"{backbone}-sst2-{seed}-{count}.npz",
        model_name(backbone, "sst2", seed),
    )
    model = (
        alti.load(place, dtype="float32")
        if not file.is_file() or Path(str(place)).is_dir()
        else None
    )
    if model and not _is_of(file, model):
        sentences, kept = texts("sst2", count), {"weights": np.array(model.fingerprint())}
        for name in methods():
            method, options = alti.bench.parsed(METHODS[name])
            found = list(model.explain_all(sentences, method=method, **options))
            kept[name] = np.concatenate([each.scores.double().numpy() for each in found])
            kept["predictions"] = np.array([each.target for each in found])
            kept["lengths"] = np.array([len(each) for each in found])
            print(f"seed {seed}: {name}", file=sys.stderr, flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.stem}-partial.npz")
        np.savez_compressed(partial, **kept)
        partial.replace(file)
    with np.load(file) as stored:
        ends = np.cumsum(stored["lengths"])[:-1]
        scores = {name: np.split(stored[name], ends) for name in methods()}
        return scores | {"predictions": stored["predictions"]}


def _is_of(file: Path, model: alti.Model) -> bool:
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
        found = {
            name: measured([np.split(stored[f"{seed}/{key}"], ends) for seed in seeds], predictions)
            for name, key in PUBLISHED.items()
            if f"{seeds[0]}/{key}" in stored
        }
        return {
            "backbone": "MultiBERTs",
            "data": "sst2",
            "texts": len(ends) + 1,
            "models": len(seeds),
            "pairs": found,
        }


if __name__ == "__main__":
    main()

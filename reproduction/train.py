"""Fine-tune a backbone on a data set: BUILD/models/BACKBONE-DATA-SEED, with its card.

python -m reproduction.train gte-small sst2 --seed 0
"""

import argparse
import json
import sys
from pathlib import Path

from safetensors import safe_open

from alti.experiments.train import Recipe, train
from reproduction.settings import BACKBONES, BUILD, DATA, RESULTS, data_file, model_name, write


def recipe_of(backbone: str, data: str, seed: int) -> Recipe:
    settings = DATA[data]
    source = BACKBONES[backbone]
    local = BUILD / "checkpoints" / backbone
    return Recipe(
        str(local) if local.is_dir() else source.checkpoint,
        str(data_file(data)),
        task=settings.task,
        mask_token=settings.mask_token,
        epochs=settings.epochs,
        batch=settings.batch,
        rate=source.rate,
        tokens=settings.tokens,
        seed=seed,
    )


def origin(backbone: str) -> str:
    """What was really fine-tuned: a local folder may differ from the hub's of the same name."""
    local = BUILD / "checkpoints" / backbone
    if not local.is_dir():
        return BACKBONES[backbone].checkpoint
    record = local / "source.json"
    if not record.is_file():
        return f"a local folder {backbone}, of unknown origin"
    source = json.loads(record.read_text(encoding="utf-8"))
    return f"{source['what']} ({', '.join(source['packages'])})"


def dtype_of(backbone: str) -> str | None:
    """The precision of the weights in a local folder."""
    file = BUILD / "checkpoints" / backbone / "model.safetensors"
    if not file.is_file():
        return None
    with safe_open(file, "pt") as weights:
        return str(weights.get_tensor(next(iter(weights.keys()))).dtype).removeprefix("torch.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backbone", choices=BACKBONES)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--saves", type=int, default=5)
    options = parser.parse_args()
    trained(options.backbone, options.data, options.seed, options.saves)


def trained(backbone: str, data: str, seed: int = 0, saves: int = 5) -> None:
    """Write a model and its card; one that is there already stays."""
    out = Path(str(model_name(backbone, data, seed)))
    card = train(recipe_of(backbone, data, seed), out, saves=saves, watch=_report)
    card |= {
        "checkpoint": origin(backbone),
        "checkpoint_dtype": dtype_of(backbone),
        "data": data,
    }
    write(RESULTS / "cards" / f"{out.name}.json", card)


def _report(step: int, steps: int) -> None:
    if step % max(1, steps // 10) == 0:
        print(f"{step} of {steps} steps", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

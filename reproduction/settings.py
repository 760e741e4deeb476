"""What the experiments share: backbones, data sets, how models are trained, where files are."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alti.experiments.data import Example, read, sample

ROOT = Path(__file__).parents[1]
# data, models and rows: not in the repository
BUILD = Path(os.environ.get("ALTI_BUILD", ROOT / "build" / "reproduction"))
RESULTS = ROOT / "reproduction" / "results"
MASK = "***mask***"  # how the agreement data spells the masked verb


@dataclass(frozen=True, slots=True)
class Backbone:
    """A pretrained checkpoint."""

    checkpoint: str  # folder or hub name; a folder of that name in BUILD/checkpoints comes first
    rate: float


@dataclass(frozen=True, slots=True)
class Data:
    """A data set, how a model is fine-tuned on it, and how many of its test texts are used."""

    texts: int
    task: str = "text"
    epochs: float = 2.0
    batch: int = 32
    tokens: int = 512
    removed: int = 60  # the most tokens that the probability-drop curves remove

    @property
    def mask_token(self) -> str | None:
        return MASK if self.task == "mask" else None


BACKBONES = {
    "gte-small": Backbone("thenlper/gte-small", 5e-5),
    "distilbert-base-cased": Backbone("distilbert/distilbert-base-cased", 5e-5),
    "mpnet-base": Backbone("microsoft/mpnet-base", 2e-5),
    "bert-tiny": Backbone("prajjwal1/bert-tiny", 2e-4),  # two layers: to try the commands
    "bert-base-uncased": Backbone("google-bert/bert-base-uncased", 2e-5),
    "roberta-base": Backbone("FacebookAI/roberta-base", 2e-5),
    "distilbert-base-uncased": Backbone("distilbert/distilbert-base-uncased", 2e-5),
}
DATA = {
    "sst2": Data(texts=1000, batch=64, tokens=128, removed=30),
    "imdb": Data(texts=300),
    "yelp": Data(texts=300, epochs=3.0),
    "sva": Data(texts=1000, task="mask", epochs=4.0, tokens=128, removed=30),
}
SEEDS = 10

OF_THE_PAPER = {  # the eight methods of its tables: our name for each of its names
    "Grad ℓ2": "gradient",
    "IG ℓ2": "integrated_gradients",
    "IG μ": "integrated_gradients:aggregate=mean_abs",
    "G×I ℓ2": "input_x_gradient",
    "G×I μ": "input_x_gradient:aggregate=mean_abs",
    "Rollout": "attention_rollout",
    "Globenc": "globenc",
    "ALTI": "alti",
}
ABLATIONS = {"Norms": "norms", "ALTI ℓ2": "alti:p=2", "ALTI + LN2": "alti_ln2"}
BEYOND = {
    "Random": "random",
    "Attention": "attention",
    "Occlusion": "occlusion",
    "G×I signed": "input_x_gradient:aggregate=sum",
    "IG signed": "integrated_gradients:aggregate=sum",
    "ALTI logit": "alti_logit",
    "Linear": "linear",
    "Absence": "absence",
}
METHODS = OF_THE_PAPER | ABLATIONS | BEYOND


def data_file(data: str) -> Path:
    file = BUILD / "data" / f"{data}.parquet"
    if not file.is_file():
        raise SystemExit(
            f"{file} does not exist: make it with python -m reproduction.prepare SOURCE"
        )
    return file


def texts(data: str, count: int) -> list[str]:
    """Test texts, the same for every model: drawn with seed 0."""
    rows = read(data_file(data), split="test")
    return [row.text for row in sample(rows, count) if isinstance(row, Example)]


def model_name(model: str, data: str, seed: int = 0) -> str | None:
    """The folder of a fine-tuned backbone, any other folder or hub name, or None for `default`."""
    if model == "default":
        return None
    return str(BUILD / "models" / f"{model}-{data}-{seed}") if model in BACKBONES else model


def short(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2]


def write(path: Path, content: Any) -> None:
    """Write JSON at once: a file that exists is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
    print(path)


def rounded(value: Any, digits: int = 5) -> Any:
    """The same lists and dicts, with numbers of this many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(inner, digits) for key, inner in value.items()}
    return [rounded(inner, digits) for inner in value] if isinstance(value, list | tuple) else value

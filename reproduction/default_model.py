"""Make the embedded default model: MiniLM-L6, smaller vocabulary, fine-tuned on SST-2, float16.

python -m reproduction.default_model CHECKPOINT    # a folder with all-MiniLM-L6-v2, or its hub name
python -m reproduction.default_model --measure     # accuracy of the embedded model
"""

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

import alti
from alti.experiments.data import Example, read
from alti.experiments.predict import Predictor
from alti.experiments.train import CARD, Recipe, train
from reproduction.settings import BUILD, ROOT, data_file

TOKENS = 17_000  # of the 30,522: as many as fit into 36 MB
CORPORA = ("sst2", "imdb", "yelp")  # their training texts decide which tokens are kept
SEED = 0
OUT = ROOT / "src" / "alti" / "model" / "default_model"
NAME = "minilm-l6-sst2"
TRAINED = (  # entries of the training's card that go into ours
    "epochs",
    "batch",
    "rate",
    "warmup",
    "decay",
    "tokens",
    "seed",
    "texts",
    "labels",
    "torch",
    "transformers",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--saves", type=int, default=5)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.out)))
        return
    if not options.checkpoint:
        parser.error("name the checkpoint to start from, or --measure what is there")
    trimmed = BUILD / "checkpoints" / "minilm-l6-trimmed"
    if not (trimmed / "model.safetensors").is_file():
        trim(options.checkpoint, trimmed)
    folder = BUILD / "models" / f"{NAME}-{SEED}"
    if not (folder / CARD).is_file():
        train(recipe(trimmed), folder, saves=options.saves)
    embed(folder, options.out)


def recipe(checkpoint: Path) -> Recipe:
    return Recipe(
        str(checkpoint), str(data_file("sst2")), batch=64, rate=5e-5, tokens=64, seed=SEED
    )


def trim(checkpoint: str, out: Path) -> None:
    """Keep the special tokens, every single character, and the tokens that the corpora use most."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
    model = AutoModel.from_pretrained(checkpoint, trust_remote_code=False)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    old = content["model"]["vocab"]
    kept = _kept_tokens(tokenizer, old)
    out.mkdir(parents=True, exist_ok=True)
    _save_tokenizer(content, kept, out)
    with torch.no_grad():
        rows = model.get_input_embeddings().weight[[old[token] for token in kept]]
    model.resize_token_embeddings(len(kept))
    model.get_input_embeddings().weight.data.copy_(rows)
    model.half().save_pretrained(out)


def _kept_tokens(tokenizer: Any, vocabulary: dict[str, int]) -> list[str]:
    """In the order of the vocabulary; of tokens that are used as often, the first."""
    used: Counter[int] = Counter()
    for name in CORPORA:
        rows = read(data_file(name), split="train")
        texts = [row.text for row in rows if isinstance(row, Example)]
        used.update(token for ids in tokenizer(texts, verbose=False)["input_ids"] for token in ids)
    special = set(tokenizer.all_special_tokens)
    always = [
        token for token in vocabulary if token in special or len(token.removeprefix("##")) == 1
    ]

    def rank(token: str) -> tuple[bool, int, int]:
        number = vocabulary[token]
        return token.startswith("[unused"), -used[number], number

    others = sorted(vocabulary.keys() - set(always), key=rank)
    return sorted([*always, *others[: TOKENS - len(always)]], key=vocabulary.__getitem__)


def _save_tokenizer(content: dict[str, Any], kept: list[str], out: Path) -> None:
    """The same tokenizer with a smaller vocabulary."""
    numbers = {token: i for i, token in enumerate(kept)}
    content["model"]["vocab"] = numbers
    for token in content["added_tokens"]:
        token["id"] = numbers[token["content"]]
    for token in content["post_processor"]["special_tokens"].values():
        token["ids"] = [numbers[name] for name in token["tokens"]]
    content["truncation"] = content["padding"] = None
    file = out / "tokenizer.json"
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    PreTrainedTokenizerFast(
        tokenizer_file=str(file),
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **roles,
    ).save_pretrained(out)


def embed(folder: Path, out: Path) -> None:
    """Weights in half precision, the tokenizer, and a card that says how they were made."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    model = alti.load(folder, device="cpu")
    model.model.half().save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)  # like the other files
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, out / name)
    trained = {key: value for key, value in _card(folder).items() if key in TRAINED}
    card: dict[str, Any] = {
        "name": NAME,
        "what": "sentiment of English sentences: BERT, 6 layers of 384, 12 heads",
        "from": "all-MiniLM-L6-v2 (Apache-2.0), rounded to float16 before training",
        "made_by": "python -m reproduction.default_model sentence-transformers/all-MiniLM-L6-v2",
        "vocabulary": model.model.config.vocab_size,
        "data": "SST-2 (GLUE)",
        **trained,
    }
    card |= measured(out)
    (out / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(card))


def measured(folder: Path) -> dict[str, Any]:
    """Accuracy of the stored weights, and the size of their files."""
    model = alti.load(folder, device="auto", dtype="float32")
    predict = Predictor(model)
    measurements: dict[str, Any] = {}
    for split in ("validation", "test"):
        rows = [row for row in read(data_file("sst2"), split=split) if isinstance(row, Example)]
        ids = [model.encoder.encode(row.text, truncate=True).ids for row in rows]
        guesses = predict.probabilities(ids).argmax(-1).tolist()
        labels = model.model.config.id2label
        right = sum(labels[guess] == row.label for guess, row in zip(guesses, rows, strict=True))
        measurements[f"{split}_accuracy"] = round(right / len(rows), 4)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.name != CARD)
    measurements["megabytes"] = round(size / 1e6, 1)
    return measurements


def _card(folder: Path) -> dict[str, Any]:
    return json.loads((folder / CARD).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()

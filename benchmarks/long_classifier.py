"""Fine-tune a small encoder on long reviews: the classifier that docs/benchmark.md measures with.

python benchmarks/long_classifier.py CHECKPOINT IMDB.parquet OUT [--texts 14000]

IMDB.parquet has columns text, label, split. Training reviews are drawn with seed 0 and cut at 256
tokens; those that were not drawn are written to OUT/heldout.jsonl (to choose with), 500 test
reviews to OUT/test.jsonl (to confirm with). The tokenizer is saved with a limit of 192 tokens.
Takes a minute on a GPU.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSequenceClassification, AutoTokenizer

EPOCHS = 3
BATCH = 32
RATE = 5e-5
TOKENS = 256  # of a training review
LIMIT = 192  # of the saved tokenizer
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Review = tuple[str, int]


def reviews(file: str, split: str) -> list[Review]:
    rows = parquet.read_table(file).to_pylist()
    return [
        (row["text"].replace("<br />", " "), int(row["label"]))
        for row in rows
        if row["split"] == split
    ]


def write(file: Path, rows: list[Review]) -> None:
    lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in rows]
    file.write_text("".join(lines))


def encoded(tokenizer: Any, rows: list[Review]) -> tuple[Any, torch.Tensor]:
    texts = [text for text, _ in rows]
    inputs = tokenizer(
        texts, truncation=True, max_length=TOKENS, padding=True, return_tensors="pt"
    ).to(DEVICE)
    return inputs, torch.tensor([label for _, label in rows]).to(DEVICE)


def train_epoch(
    model: Any, tokenizer: Any, rows: list[Review], optimizer: Any, schedule: Any
) -> None:
    model.train()
    shuffled = torch.randperm(len(rows)).tolist()
    for start in range(0, len(rows) - BATCH + 1, BATCH):
        inputs, labels = encoded(tokenizer, [rows[i] for i in shuffled[start : start + BATCH]])
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = cross_entropy(model(**inputs).logits.float(), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


@torch.no_grad()
def accuracy(model: Any, tokenizer: Any, rows: list[Review]) -> float:
    model.eval()
    correct = 0
    for start in range(0, len(rows), 100):
        inputs, labels = encoded(tokenizer, rows[start : start + 100])
        correct += int((model(**inputs).logits.argmax(-1) == labels).sum())
    return correct / len(rows)


def fit(model: Any, tokenizer: Any, training: list[Review], test: list[Review]) -> None:
    """AdamW, 100 steps of warm-up, then linear decay."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    steps = EPOCHS * (len(training) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 100) * max(0, 1 - step / steps)
    )
    for epoch in range(EPOCHS):
        train_epoch(model, tokenizer, training, optimizer, schedule)
        share = accuracy(model, tokenizer, test)
        print(f"epoch {epoch + 1}: {share:.3f} of {len(test)} test reviews right", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("imdb")
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", type=int, default=14000)
    options = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(options.checkpoint, trust_remote_code=False)
    model = AutoModelForSequenceClassification.from_pretrained(
        options.checkpoint, num_labels=2, trust_remote_code=False
    )
    model = model.float().to(DEVICE)
    training = reviews(options.imdb, "train")
    test = reviews(options.imdb, "test")
    order = np.random.default_rng(0).permutation(len(training))
    chosen = [training[i] for i in order[: options.texts]]
    confirm = [test[i] for i in np.random.default_rng(1).permutation(len(test))[:500]]
    fit(model, tokenizer, chosen, confirm)
    tokenizer.model_max_length = LIMIT
    model.half().save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    write(options.out / "heldout.jsonl", [training[i] for i in order[options.texts :]])
    write(options.out / "test.jsonl", confirm)


if __name__ == "__main__":
    main()

"""Fine-tune a small encoder on long reviews: the classifier of long texts that docs/benchmark.md measures with.

python benchmarks/long_classifier.py CHECKPOINT IMDB.parquet OUT [--texts 14000]

IMDB.parquet has columns text, label, split. Training reviews are drawn with seed 0 and cut at 256 tokens; those that
were not drawn are written to OUT/heldout.jsonl (to choose with), 500 test reviews to OUT/test.jsonl (to confirm with).
The tokenizer is saved with a limit of 192 tokens. A minute on a GPU.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSequenceClassification, AutoTokenizer

EPOCHS, BATCH, RATE = 3, 32, 5e-5


def reviews(file: str, split: str) -> list[tuple[str, int]]:
    rows = parquet.read_table(file).to_pylist()
    return [
        (row["text"].replace("<br />", " "), int(row["label"]))
        for row in rows
        if row["split"] == split
    ]


def write(file: Path, rows: list[tuple[str, int]]) -> None:
    file.write_text(
        "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    )


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
    device = "cuda" if torch.cuda.is_available() else "cpu"
    no_code = {"trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(options.checkpoint, **no_code)
    auto = AutoModelForSequenceClassification
    model = auto.from_pretrained(options.checkpoint, num_labels=2, **no_code).float().to(device)
    train, test = reviews(options.imdb, "train"), reviews(options.imdb, "test")
    order = np.random.default_rng(0).permutation(len(train))
    chosen = [train[i] for i in order[: options.texts]]
    confirm = [test[i] for i in np.random.default_rng(1).permutation(len(test))[:500]]

    def batch(rows: list[tuple[str, int]]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        asked = {"truncation": True, "max_length": 256, "padding": True, "return_tensors": "pt"}
        return tokenizer([text for text, _ in rows], **asked).to(device), torch.tensor(
            [y for _, y in rows]
        ).to(device)

    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    steps = EPOCHS * (len(chosen) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / 100) * max(0, 1 - s / steps)
    )
    for epoch in range(EPOCHS):
        model.train()
        shuffled = torch.randperm(len(chosen)).tolist()
        for start in range(0, len(chosen) - BATCH + 1, BATCH):
            inputs, labels = batch([chosen[i] for i in shuffled[start : start + BATCH]])
            with torch.autocast(device, torch.bfloat16):
                loss = cross_entropy(model(**inputs).logits.float(), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            right = [batch(confirm[i : i + 100]) for i in range(0, len(confirm), 100)]
            correct = sum(
                int((model(**inputs).logits.argmax(-1) == labels).sum()) for inputs, labels in right
            )
        print(
            f"epoch {epoch + 1}: {correct / len(confirm):.3f} of {len(confirm)} test reviews right",
            flush=True,
        )
    tokenizer.model_max_length = 192
    model.half().save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    write(options.out / "heldout.jsonl", [train[i] for i in order[options.texts :]])
    write(options.out / "test.jsonl", confirm)


if __name__ == "__main__":
    main()

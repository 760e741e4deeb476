"""Bring the four data sets into one form: BUILD/data/NAME.parquet with text, label and split.

python -m reproduction.prepare SOURCE      # a folder with {sst2,imdb,yelp,linzen}/data.parquet
python -m reproduction.prepare hub         # SST-2, IMDB and Yelp polarity from the Hugging Face hub
"""

import argparse
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from reproduction.settings import BUILD, MASK

Row = dict[str, Any]
NAMES = {0: "negative", 1: "positive"}
HELD_OUT = 0.1  # share of a training split that becomes the validation split, if there is none
LARGEST_TEST = 5000


def sst2(rows: list[Row]) -> list[Row]:
    named = [_row(row["text"], NAMES[row["label"]], row["split"]) for row in rows]
    return named if any(row["split"] == "validation" for row in named) else _held_out(named)


def imdb(rows: list[Row]) -> list[Row]:
    """Reviews that are in both splits are removed from the training split."""
    tested = {row["text"] for row in rows if row["split"] == "test"}
    kept = [row for row in rows if row["split"] == "test" or row["text"] not in tested]
    return _held_out([_row(row["text"], NAMES[row["label"]], row["split"]) for row in kept])


def yelp(rows: list[Row]) -> list[Row]:
    """As many positive reviews as negative ones, in each split; no review in two of them."""
    generator = random.Random(0)
    balanced: list[Row] = []
    seen: set[str] = set()
    for split in ("test", "train"):
        both: dict[int, list[Row]] = {0: [], 1: []}
        for row in rows:
            if row["split"] == split and row["text"] not in seen:
                seen.add(row["text"])
                both[row["label"]].append(_row(row["text"], NAMES[row["label"]], split))
        fewest = min(map(len, both.values()))
        chosen = [row for group in both.values() for row in generator.sample(group, fewest)]
        generator.shuffle(chosen)
        balanced += chosen
    return _held_out(balanced)


def sva(rows: list[Row]) -> list[Row]:
    """Subject–verb agreement: "is" and "are" are left out as in the released code; 60 / 20 / 20."""
    kept = [
        row for row in rows if row["verb"] not in ("is", "are") and row["masked"].count(MASK) == 1
    ]
    random.Random(0).shuffle(kept)
    ends = {"train": 0.6, "validation": 0.8, "test": 1.0}
    labelled = []
    for i, row in enumerate(kept):
        split = next(split for split, end in ends.items() if i < end * len(kept))
        label = "singular" if row["third_singular"] else "plural"
        labelled.append(_row(row["masked"], label, split))
    return labelled


def _row(text: str, label: str, split: str) -> Row:
    return {"text": text, "label": label, "split": split}


def _held_out(rows: list[Row]) -> list[Row]:
    """Part of the training split becomes the validation split; a large test split is sampled."""
    generator = random.Random(0)
    train = [row for row in rows if row["split"] == "train"]
    held = {id(row) for row in generator.sample(train, round(HELD_OUT * len(train)))}
    test = [row for row in rows if row["split"] == "test"]
    test = generator.sample(test, min(LARGEST_TEST, len(test)))
    return [row | {"split": "validation" if id(row) in held else "train"} for row in train] + test


def _folder(source: Path, name: str) -> list[Row]:
    return parquet.read_table(source / name / "data.parquet").to_pylist()


def _hub(name: str, text: str = "text", splits: dict[str, str] | None = None) -> list[Row]:
    """The rows of a data set of the hub; `splits` maps our names of splits to its own."""
    import datasets

    dataset = datasets.load_dataset(*name.split(":"), trust_remote_code=False)
    return [
        {"text": row[text], "label": row["label"], "split": ours}
        for ours, theirs in (splits or {"train": "train", "test": "test"}).items()
        for row in dataset[theirs]
    ]


MAKERS: dict[str, tuple[Callable[[list[Row]], list[Row]], str]] = {
    "sst2": (sst2, "sst2"),
    "imdb": (imdb, "imdb"),
    "yelp": (yelp, "yelp"),
    "sva": (sva, "linzen"),
}
ON_THE_HUB: dict[str, Callable[[], list[Row]]] = {
    # the labels of its test split are not public
    "sst2": lambda: _hub("nyu-mll/glue:sst2", "sentence", {"train": "train", "test": "validation"}),
    "imdb": lambda: _hub("stanfordnlp/imdb"),
    "yelp": lambda: _hub("fancyzhx/yelp_polarity"),
}


def save(name: str, rows: Iterable[Row]) -> None:
    folder = BUILD / "data"
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(rows)
    parquet.write_table(
        pyarrow.Table.from_pylist(rows), folder / f"{name}.parquet", compression="zstd"
    )
    counts: dict[str, int] = {}
    for row in rows:
        key = f"{row['split']} {row['label']}"
        counts[key] = counts.get(key, 0) + 1
    print(name, dict(sorted(counts.items())))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="a folder, or hub")
    source = parser.parse_args().source
    for name, (make, folder) in MAKERS.items():
        if source == "hub" and name not in ON_THE_HUB:
            print(
                f"{name}: not on the hub; take its file from https://github.com/yoavg/bert-syntax"
            )
            continue
        save(name, make(ON_THE_HUB[name]() if source == "hub" else _folder(Path(source), folder)))


if __name__ == "__main__":
    main()

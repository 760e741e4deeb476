"""Figures 3 and 9 to 11, Tables 1, 5 and 6: relevance by layer, and saliency maps.

python -m reproduction.maps gte-small sst2
"""

import argparse
import random
from typing import Any

import alti
from alti.experiments.data import Example, read
from reproduction.settings import (
    DATA,
    METHODS,
    RESULTS,
    data_file,
    model_name,
    rounded,
    short,
    write,
)

LAYERWISE = ("Rollout", "Globenc", "ALTI")
SALIENCY = ("Grad ℓ2", "G×I μ", "IG μ", "ALTI", "Absence")
OWN = {
    "sst2": (
        "a clever blend of fact and fiction .",
        "The camera work is gorgeous, but nobody on screen seems to have read the script.",
        "Hardly a moment goes by without a reason to smile.",
    ),
    "imdb": (
        "I went in expecting nothing and came out humming the score; "
        "the slow first act is a price worth paying.",
    ),
    "yelp": (
        "The waiter forgot us twice, the soup was cold, "
        "and still the bill came with a smile and a mistake in it.",
    ),
    "sva": ("the keys to the cabinet in the old kitchen ***mask*** on the table .",),
}
DRAWN = 3  # texts of the data
LONGEST = 90  # words in each of them


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a backbone that was trained here, a folder or a hub name")
    parser.add_argument("data", choices=DATA)
    options = parser.parse_args()
    model = alti.load(model_name(options.model, options.data), dtype="float32")
    own = OWN[options.data]
    content = {
        "model": short(options.model),
        "data": options.data,
        "layers": {name: explained(model, own[0], name, layers=True) for name in LAYERWISE},
        "saliency": [
            {name: explained(model, text, name) for name in SALIENCY}
            for text in (*own, *random_texts(options.data))
        ],
    }
    write(RESULTS / "maps" / f"{short(options.model)}-{options.data}.json", rounded(content, 4))


def random_texts(data: str) -> list[str]:
    short_ones = [
        row.text
        for row in read(data_file(data), split="test")
        if isinstance(row, Example) and 8 <= len(row.text.split()) <= LONGEST
    ]
    return random.Random(0).sample(short_ones, DRAWN)


def explained(model: alti.Model, text: str, name: str, *, layers: bool = False) -> dict[str, Any]:
    method, options = alti.bench.parsed(METHODS[name])
    text = text.replace("***mask***", model.encoder.tokenizer.mask_token or "")
    return model.explain(text, method=method, layers=layers, truncate=True, **options).to_dict()


if __name__ == "__main__":
    main()

"""Figure 2: the mean cosine of two block outputs, and of two of the vectors that an output is the sum of, by layer.

python -m reproduction.anisotropy gte-small sst2
"""

import argparse

import torch

import alti
from alti.metrics import anisotropy
from alti.mix.contributions import lengths
from reproduction.settings import DATA, RESULTS, model_name, rounded, short, texts, write


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a backbone that was trained here, a folder or a hub name")
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--texts", type=int, default=500)
    asked = parser.parse_args()
    model = alti.load(model_name(asked.model, asked.data), dtype="float32")
    found = []
    for text in texts(asked.data, asked.texts):
        encoded = model.encoder.encode(text, truncate=True)
        layers: list[tuple[float, float]] = []

        def seen(block: alti.Block, layers: list[tuple[float, float]] = layers) -> None:
            outputs, vectors = anisotropy(block, lengths(block))
            layers.append((float(outputs), float(vectors)))

        alti.walk(model.model, model.encoder.collate([encoded]).tensors, seen)
        found.append(layers)
    means = torch.tensor(found, dtype=torch.float64).nanmean(0)  # [L, 2]
    content = {"model": short(asked.model), "data": asked.data, "texts": len(found)}
    content |= {"outputs": means[:, 0].tolist(), "transformed": means[:, 1].tolist()}
    write(RESULTS / "anisotropy" / f"{short(asked.model)}-{asked.data}.json", rounded(content))


if __name__ == "__main__":
    main()

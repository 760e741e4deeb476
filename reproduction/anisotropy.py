"""Figure 2: the mean cosine of two outputs, and of two vectors that add up to one, by layer.

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
    options = parser.parse_args()
    model = alti.load(model_name(options.model, options.data), dtype="float32")
    by_text = []
    for text in texts(options.data, options.texts):
        encoded = model.encoder.encode(text, truncate=True)
        layers: list[tuple[float, float]] = []

        def measure(block: alti.Block, layers: list[tuple[float, float]] = layers) -> None:
            outputs, vectors = anisotropy(block, lengths(block))
            layers.append((float(outputs), float(vectors)))

        alti.walk(model.model, model.encoder.collate([encoded]).tensors, measure)
        by_text.append(layers)
    means = torch.tensor(by_text, dtype=torch.float64).nanmean(0)  # [L, 2]
    content = {"model": short(options.model), "data": options.data, "texts": len(by_text)}
    content |= {"outputs": means[:, 0].tolist(), "transformed": means[:, 1].tolist()}
    write(RESULTS / "anisotropy" / f"{short(options.model)}-{options.data}.json", rounded(content))


if __name__ == "__main__":
    main()

"""What a tolerance buys on real, long texts: time, entries left out, and how far the scores really move.

python benchmarks/tolerance.py MODEL FILE     FILE: one text per line; they are cut at the model's length
"""

import argparse
import time
from pathlib import Path

import alti
from alti.mix.kernels.shared import thinned


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    model = alti.load(options.model)
    texts = [line for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    exact = [model.explain(text, truncate=True, layers=False) for text in texts]
    print(f"{len(texts)} texts of {sum(map(len, exact)) / len(exact):.0f} tokens on average")
    for tol in (0.0, 1e-3, 1e-2, 1e-1):
        start = time.perf_counter()
        found = [model.explain(text, truncate=True, layers=False, tol=tol) for text in texts]
        seconds = time.perf_counter() - start
        moved = max(
            float((a.scores - b.scores).abs().sum()) for a, b in zip(exact, found, strict=True)
        )
        zeros: list[float] = []

        def count(block: alti.Block, tol: float = tol, zeros: list[float] = zeros) -> None:
            thin = thinned(block, 1, tol) if tol else block
            zeros.append(float((thin.attn.amax(1) == 0).float().mean()))

        inputs = model.encoder.collate([model.encoder.encode(texts[0], truncate=True)]).tensors
        alti.walk(model.model, inputs, count)
        left_out = 100 * sum(zeros) / len(zeros)
        print(
            f"tol {tol:g}: {seconds:.1f} s, {left_out:.0f} % of the pairs left out, scores move by {moved:.1e}"
        )


if __name__ == "__main__":
    main()

"""What all predictions about a text cost beside one of them, from one forward pass each.

python benchmarks/positions.py MODEL     a causal language model; a text of about 200 tokens, CPU
"""

import statistics
import sys
import time

import alti

SENTENCE = "The keys to the cabinet are on the table, and nobody knows who left them there."


def seconds(model: alti.Model, **asked: object) -> float:
    start = time.perf_counter()
    model.explain(" ".join([SENTENCE] * 10), **asked)  # type: ignore[call-overload]  # either kind
    return time.perf_counter() - start


def main(name: str, rounds: int = 5) -> None:
    model = alti.load(name, device="cpu")
    turns = [(seconds(model), seconds(model, positions="all")) for _ in range(rounds + 1)][1:]
    one, every = (statistics.median(column) for column in zip(*turns, strict=True))
    print(f"one position {one:.2f} s, all {every:.2f} s: {every / one:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Which first guess, how many ablations and how much freedom make the best `surrogate`.

python benchmarks/contexts.py MODEL DATA FIRST --only nq10 --half first --methods METHODS
python benchmarks/surrogate.py FIRST               # what constants are chosen from
python benchmarks/surrogate.py benchmarks/results  # the same about the questions of the docs

METHODS are linear:of=log_prob,absence,consensus,leave_one_out.

No model is asked: the rows of contexts.py hold log p of 64 random halves of each question, and the
scores of the methods that a fit can start from. The halves that a fit learns from are taken from
32 of them, its LDS is that of the other 32, and the other way round.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.contexts import merged_rows

from alti.methods import surrogates
from alti.metrics import lds
from alti.views.tables import paired

Row = dict[str, Any]
GUESSES = {"linear:of=log_prob": 3, "absence": 3, "consensus": 6}  # with their passes
RIVAL = "leave_one_out"
RIDGES, FLOORS = (1.0, 3.0, 6.0), (0.1, 0.3, 1.0)


def questions(folder: Path) -> list[tuple[Row, dict[str, Row]]]:
    """The row about each question, and those of the methods."""
    found = merged_rows("nq10", folder)
    if found is None:
        raise SystemExit(f"{folder} holds no rows of nq10: make them with benchmarks/contexts.py")
    texts: dict[int, dict[str, Row]] = {}
    for row in found[1]:
        if "skipped" not in row:
            texts.setdefault(row["text"], {})[row.get("method", "")] = row
    needed = {*GUESSES, RIVAL}
    return [
        (rows[""], {name: rows[name] for name in needed})
        for rows in texts.values()
        if all("scores" in rows.get(name, ()) for name in needed)
    ]


def halves(about: Row) -> Iterator[tuple[list[int], list[int]]]:
    """Numbers of subsets to learn from, and to be judged by: both ways."""
    numbers = list(range(len(about["subsets"])))
    yield numbers[::2], numbers[1::2]
    yield numbers[1::2], numbers[::2]


def judged(about: Row, scores: list[float], numbers: list[int]) -> float:
    """LDS over some of the subsets."""
    kept = [[int(bit) for bit in about["subsets"][i]] for i in numbers]
    return lds(scores, kept, [about["values"][i] for i in numbers])


def fitted(about: Row, guess: list[float], numbers: list[int], ablations: int) -> list[float]:
    """The scores of a surrogate whose ablations are taken from some of the subsets."""
    subsets = [[int(bit) for bit in about["subsets"][i]] for i in numbers]
    taken = surrogates._telling(torch.tensor(subsets, dtype=torch.bool), ablations)
    kept = torch.tensor([*(subsets[i] for i in taken), [1] * about["sources"]]).double()
    values = [*(about["values"][numbers[i]] for i in taken), about["full"]]
    own: list[float] = surrogates._fitted(
        kept, torch.tensor(values).double(), torch.tensor(guess).double()
    ).tolist()
    return own


def held_out(about: Row, guess: list[float], ablations: int) -> float:
    """LDS of a surrogate over the subsets that it has not learned from."""
    return fmean(
        judged(about, fitted(about, guess, numbers, ablations), others)
        for numbers, others in halves(about)
    )


def lines(texts: list[tuple[Row, dict[str, Row]]]) -> Iterator[str]:
    """The table: for each number of passes and each guess, every constant."""
    rivals = [
        fmean(judged(about, rows[RIVAL]["scores"], others) for _, others in halves(about))
        for about, rows in texts
    ]
    yield f"{len(texts)} questions; LDS of {RIVAL}: {fmean(rivals):.3f}\n"
    yield f"| passes | guess | ablations | ridge | floor | LDS | minus {RIVAL} |"
    yield "|---:|---|---:|---:|---:|---:|---:|"
    for passes, (name, cost) in product((12, 16), GUESSES.items()):
        for ridge, floor in product(RIDGES, FLOORS):
            with patch.multiple(surrogates, RIDGE=ridge, FLOOR=floor):
                own = [
                    held_out(about, rows[name]["scores"], passes - cost) for about, rows in texts
                ]
            mean, low, high = paired(own, rivals)
            yield (
                f"| {passes} | {name} | {passes - cost} | {ridge:g} | {floor:g} | "
                f"{fmean(own):.3f} | {mean:.3f} [{low:.3f}, {high:.3f}] |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, help="a folder that contexts.py wrote")
    options = parser.parse_args()
    for line in lines(questions(options.rows)):
        print(line, flush=True)


if __name__ == "__main__":
    main()

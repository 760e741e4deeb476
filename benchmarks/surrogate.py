"""Which first guess, how many ablations and how much freedom make the best `surrogate`.

python benchmarks/surrogate.py MODEL DATA ROWS            # asks the model, then prints the table
python benchmarks/surrogate.py MODEL DATA ROWS --table    # from the rows that are there

DATA is nq10.parquet, whose first rows are used: constants are chosen on its first half (500 rows),
and what is chosen is reported on the second one (benchmarks/contexts.py). Of each question the
model is asked once for every first guess, for the designed halves of the text and for random ones;
all fits are made of these numbers. ROWS is a file with a line per question; a run that was stopped
goes on.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import alti
from alti import methods
from alti.experiments.asked import Asked, Shape, asked
from alti.experiments.cases import Case, case_of
from alti.experiments.examine import by_source
from alti.methods import surrogates
from alti.methods.ablation import values_without
from alti.metrics import lds

Row = dict[str, Any]
GUESSES = {"linear": 3, "absence": 3, "consensus": 6, "alti": 1}  # with their passes
OF_LOG_P = {"linear": {"of": "log_prob"}}
HALVES = 14  # designed ones; the first n of them are the design of n
START = 1  # the pass for what shortened texts share
RIDGES, FLOORS = (1.0, 3.0, 6.0), (0.1, 0.3, 1.0)


def guess(model: alti.Model, case: Case, name: str) -> list[float]:
    """What a method says of each source."""
    chosen = methods.METHODS[name]
    options = OF_LOG_P.get(name, {})
    target = replace(case.target, total=True)
    found = methods.call(chosen, model.model, case.inputs, target, layers=False, **options)
    scores = found.tokens[0, 0].detach().double().cpu()
    return scores.tolist() if chosen.takes_groups else by_source(scores, case.sources)


def values_of(model: alti.Model, case: Case, kept: Tensor) -> list[float]:
    """log p of the answer where only some sources [n, S] are kept."""
    removed = torch.zeros(len(kept), case.inputs.mask.shape[1], dtype=torch.bool)
    for source, tokens in enumerate(case.sources):
        removed[:, tokens] = ~kept[:, source, None]
    device = case.inputs.mask.device
    values = values_without(
        model.model, case.inputs, case.target, 0, removed.to(device), of="log_prob"
    )
    return values.double().sum(1).tolist()


def row_of(model: alti.Model, question: Asked, subsets: int) -> Row:
    """All that is asked about one question."""
    case = case_of(model, question)
    sources = len(case.sources)
    designed = surrogates._design(sources, HALVES, 0)
    draw = torch.Generator().manual_seed(question.number)
    drawn = torch.rand(subsets, sources, generator=draw) < 0.5
    whole = torch.ones(1, sources, dtype=torch.bool)
    values = values_of(model, case, torch.cat([designed, whole, drawn]))
    return {
        "text": question.number,
        "guesses": {name: guess(model, case, name) for name in GUESSES},
        "designed": designed.int().tolist(),
        "drawn": drawn.int().tolist(),
        "halves": values[:HALVES],
        "whole": values[HALVES],
        "values": values[HALVES + 1 :],
    }


def ask(model: alti.Model, data: Path, rows: Path, texts: int, subsets: int) -> None:
    """Write the rows that are missing."""
    known = {row["text"] for row in read(rows)}
    for question in islice(asked(str(data), "answer", Shape(distractors=3)), texts):
        if isinstance(question, Asked) and question.number not in known:
            row = row_of(model, question, subsets)
            with rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{question.number + 1} of {texts}", flush=True)


def read(rows: Path) -> list[Row]:
    """The rows that are whole: the last one may have been cut."""
    lines = rows.read_text().split("\n")[:-1] if rows.exists() else []
    return [json.loads(line) for line in lines]


def fitted(row: Row, name: str, ablations: int) -> float:
    """LDS of a surrogate on one question."""
    kept = torch.tensor([*row["designed"][:ablations], [1] * len(row["designed"][0])]).double()
    values = torch.tensor([*row["halves"][:ablations], row["whole"]]).double()
    start = torch.tensor(row["guesses"][name]).double()
    scores = surrogates._fitted(kept, values, start)
    return lds(scores.tolist(), row["drawn"], row["values"])


def lines(rows: list[Row]) -> Iterator[str]:
    """The table: for each number of passes and each guess, every constant."""
    yield "| passes | guess | ablations | ridge | floor | LDS |"
    yield "|---:|---|---:|---:|---:|---:|"
    for passes, (name, cost) in product((12, 16), GUESSES.items()):
        ablations = min(passes - cost - START, HALVES)
        for ridge, floor in product(RIDGES, FLOORS):
            with patch.multiple(surrogates, RIDGE=ridge, FLOOR=floor):
                mean = fmean(fitted(row, name, ablations) for row in rows)
            yield f"| {passes} | {name} | {ablations} | {ridge:g} | {floor:g} | {mean:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--subsets", type=int, default=64)
    parser.add_argument("--table", action="store_true", help="ask nothing")
    options = parser.parse_args()
    if not options.table:
        model = alti.load(options.model, dtype="float32")
        ask(model, options.data, options.rows, options.texts, options.subsets)
    print("\n".join(lines(read(options.rows))))


if __name__ == "__main__":
    main()

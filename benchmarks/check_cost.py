"""What the exactness check of every call costs: `alti` with and without it, beside a plain forward pass.

python benchmarks/check_cost.py [--tokens 128] [--rounds 20]

BERT-base size, random weights, float32, one text; the three are timed in turn and the medians printed as ratios.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from unittest.mock import patch

import torch
from transformers import BertConfig, BertModel

from alti import blocks
from alti.methods import Inputs, Target, run


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = BertModel(BertConfig()).eval()
    ids = torch.randint(1000, 20000, (1, options.tokens))
    inputs = Inputs({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.zeros_like(ids).bool())
    target = Target(position=torch.tensor([0]))

    def forward() -> None:
        with torch.no_grad():
            model(**inputs.tensors)

    def checked() -> None:
        run("alti", model, inputs, target)

    def unchecked() -> None:
        with patch.object(blocks.Block, "rebuilt", lambda block: block.output), patch.object(blocks, "_relative", zero):
            run("alti", model, inputs, target)

    def zero(*_: object) -> float:
        return 0.0

    runs = {"forward": forward, "alti": checked, "alti without check": unchecked}
    for function in runs.values():
        function()
    times = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, function in runs.items():
            times[name].append(seconds(function))
    middle = {name: statistics.median(found) for name, found in times.items()}
    print(f"{options.tokens} tokens, {torch.get_num_threads()} threads, median of {options.rounds}, in forward passes:")
    for name, found in middle.items():
        print(f"  {name:<20} {found / middle['forward']:.2f}")


if __name__ == "__main__":
    main()

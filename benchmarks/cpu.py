"""What an explanation costs on a CPU, in forward passes of the same model: time and memory.

python benchmarks/cpu.py
    ratios at 16, 128 and 512 tokens, one text, BERT-base size
python benchmarks/cpu.py --captum
    the same with Captum's integrated gradients, 100 steps (minutes)
python benchmarks/cpu.py --all MODEL FILE
    explain_all of a file's lines beside forward passes of the same batches
python benchmarks/cpu.py --all MODEL FILE --base
    the same with a BERT-base of random weights behind MODEL's tokenizer

Random weights, float32, as many threads as torch uses; the candidates take turns in one process,
medians are printed. Nothing is printed when the kernels do not agree with their definition.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import BertConfig, BertForSequenceClassification

import alti
from alti.methods import Inputs, Target, proofs, run
from alti.read import verdicts


def model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig()).eval()


def inputs_of(tokens: int) -> Inputs:
    ids = torch.randint(1000, 20000, (1, tokens), generator=torch.Generator().manual_seed(0))
    return Inputs(
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.zeros_like(ids).bool()
    )


def refuse_if_wrong(bert: BertForSequenceClassification) -> None:
    block = alti.trace(bert, inputs_of(63).tensors)[0]
    exact = alti.Block(*(getattr(block, name).double() for name in alti.Block.__slots__[:7]))
    expected = alti.contributions(exact, kernel="reference")
    error = float((alti.contributions(block).double() - expected).abs().max())
    if not error < 2e-5:
        sys.exit(f"the kernel is off by {error:.1e}: no numbers")


def medians(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            candidate()
            if number:  # the first turn warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def ratios(tokens: int, rounds: int, captum: bool) -> None:
    bert, inputs, target = model(), inputs_of(tokens), Target(position=torch.tensor([[0]]))

    def forward() -> None:
        with torch.no_grad():
            bert(**inputs.tensors)

    def unchecked() -> None:
        with patch.object(verdicts, "errors", lambda *_: torch.zeros(1, 1)):
            run("alti", bert, inputs, target)

    def first() -> None:
        proofs._proved.clear()  # as if the model was new
        run("alti", bert, inputs, target)

    candidates: dict[str, Callable[[], object]] = {
        "forward": forward,
        "alti": lambda: run("alti", bert, inputs, target),
        "alti, no check": unchecked,
        "alti, no layers": lambda: run("alti", bert, inputs, target, layers=False),
        "norms": lambda: run("norms", bert, inputs, target),
    }
    times = medians(candidates, rounds)
    times |= medians({"alti, first": first}, max(1, rounds // 4))
    if captum:
        from captum.attr import LayerIntegratedGradients

        explainer = LayerIntegratedGradients(
            lambda ids: bert(ids).logits.softmax(-1)[:, 0], bert.bert.embeddings
        )
        ids = inputs.tensors["input_ids"]
        start = time.perf_counter()
        explainer.attribute(ids, torch.full_like(ids, 103), n_steps=100, internal_batch_size=10)
        times["Captum IG, 100 steps"] = time.perf_counter() - start
    line = ", ".join(
        f"{name} {seconds / times['forward']:.2f}"
        for name, seconds in times.items()
        if name != "forward"
    )
    print(f"{tokens} tokens: {line}", flush=True)


def peak(what: str) -> float:
    """Peak memory of a process that runs one thing at 512 tokens, in MB."""
    done = subprocess.run(
        [sys.executable, __file__, "--peak", what], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def run_for_peak(what: str) -> None:
    bert, inputs = model(), inputs_of(512)
    run(
        "alti", bert, inputs_of(16), Target(position=torch.tensor([[0]]))
    )  # loads and compiles what both need
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    for _ in range(2):
        if what == "alti":
            run("alti", bert, inputs, Target(position=torch.tensor([[0]])))
        else:
            with torch.no_grad():
                bert(**inputs.tensors)
    status = Path("/proc/self/status").read_text()
    print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def throughput(name: str, file: str, base: bool) -> None:
    loaded = alti.load(name)
    if base:
        loaded = alti.Model(model(), loaded.tokenizer)
    texts = [
        line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    batches: list[dict[str, torch.Tensor]] = []
    collate = loaded.encoder.collate

    def recorded(*given: Any) -> Inputs:
        batches.append(collate(*given).tensors)
        return collate(*given)

    with patch.object(loaded.encoder, "collate", recorded):
        list(loaded.explain_all(texts))

    def forward() -> None:
        with torch.no_grad():
            for batch in batches:
                loaded.model(**batch)

    times = medians({"forward": forward, "alti": lambda: list(loaded.explain_all(texts))}, 3)
    for what, seconds in times.items():
        print(f"{what}: {len(texts) / seconds:.0f} texts a second")
    ratio = times["alti"] / times["forward"]
    print(f"explain_all costs {ratio:.2f} of the forward passes (tokenizing included)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--captum", action="store_true")
    parser.add_argument("--all", nargs=2, metavar=("MODEL", "FILE"))
    parser.add_argument("--base", action="store_true")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        run_for_peak(options.peak)
        return
    refuse_if_wrong(model())
    if options.all:
        throughput(*options.all, options.base)
        return
    print(
        f"{torch.get_num_threads()} threads, medians of {options.rounds} turns, in forward passes"
    )
    for tokens in (16, 128, 512):
        ratios(tokens, options.rounds, options.captum)
    forward, explained = peak("forward"), peak("alti")
    print(
        f"peak memory at 512 tokens: forward {forward:.0f} MB, alti {explained - forward:+.0f} MB"
    )


if __name__ == "__main__":
    main()

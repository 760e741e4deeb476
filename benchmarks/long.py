"""What an explanation of one long text costs: time and memory beside those of a forward pass.

python benchmarks/long.py                            # the shape of SmolLM2-135M, 3,000 tokens
python benchmarks/long.py --layers 3 --runs 1 --tokens 1600 3200 6400 12800 --plot FILE.svg
python benchmarks/long.py --device cuda --shape 8b --dtype bfloat16 --tokens 5000 8192 32768

Weights are random, or those of a folder (--model). On a CPU each cell is a process of its own. Each
method first explains a short text, so that proofs are given, and on a GPU one as long, so that
kernels are compiled (those of 8,192 tokens serve longer ones, which run once); then forward passes
and explanations of the last token take turns. Time is the median ratio; memory the peak above that
of the forward pass with all logits (on a GPU: above the weights). Before that each method has to
give the scores of the plain way on a text of 400 tokens, or nothing is printed; in half precision
both are compared with those of float32, and the long way may be off by no more than twice what the
plain one is. The plot compares with forward passes that compute the last token's logits alone, as
explanations do.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import alti.read.long as long
from alti.methods import METHODS, Inputs, Target, call
from alti.read.modules import call as forward

SHAPES = {
    "135m": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
             "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
}  # fmt: skip
OF = {"135m": "SmolLM2-135M", "1b": "Llama-3.2-1B", "8b": "Llama-3.1-8B"}  # whose shapes these are
LIMIT = 1e-4  # in float32
COMPILED = 10_000  # tokens of a text whose kernels serve longer ones
GIB = 2**30


def load(options: Any) -> Any:
    dtype = getattr(torch, options.dtype)
    if options.model:
        return AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).to(options.device)
    shape = SHAPES[options.shape]
    if options.layers:
        shape = {**shape, "num_hidden_layers": options.layers}
    config = LlamaConfig(**shape, max_position_embeddings=1 << 17)
    torch.manual_seed(0)
    with torch.device(options.device):
        torch.set_default_dtype(dtype)
        model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    return model


def question(model: Any, tokens: int) -> tuple[Inputs, Target]:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (1, tokens), generator=draw).to(model.device)
    position = torch.tensor([[tokens - 1]], device=model.device)
    tensors = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs = Inputs(tensors, torch.zeros_like(ids).bool(), causal=True)
    return inputs, Target(position=position, kept=position[0] if tokens >= long.LONG else None)


def explain(model: Any, method: str, tokens: int) -> torch.Tensor:
    inputs, target = question(model, tokens)
    return call(METHODS[method], model, inputs, target, layers=False).tokens


def shown(model: Any, method: str, *, by_rows: bool) -> torch.Tensor:
    """Scores of a text of 400 tokens, read as a long one or as a short one."""
    kept = long.LONG
    try:
        long.LONG = 1 if by_rows else kept
        return explain(model, method, 400).double()
    finally:
        long.LONG = kept


def require_right(model: Any, methods: list[str]) -> None:
    """Raise where a long text would get other scores than a short one."""
    dtype = model.dtype
    ours = {method: shown(model, method, by_rows=True) for method in methods}
    plain = {method: shown(model, method, by_rows=False) for method in methods}
    true = plain
    if dtype != torch.float32:
        model.float()  # and back, which changes no bit
        true = {method: shown(model, method, by_rows=False) for method in methods}
        model.to(dtype)
    for method in methods:
        size = true[method].abs().max()
        error = float((ours[method] - true[method]).abs().max() / size)
        usual = float((plain[method] - true[method]).abs().max() / size)
        print(f"{method}: {error:.1e} off, the plain way {usual:.1e}", file=sys.stderr)
        limit = LIMIT if dtype == torch.float32 else 2 * usual
        if model.device.type == "cuda" and method == "alti":
            limit = max(limit, 2e-3)  # its kernel has float16 operands
        if not error <= limit:
            raise SystemExit(f"{method}: wrong by {error:.1e}, over {limit:.0e}")


def measured(run: Callable[[], object], device: str) -> tuple[float, float]:
    """Seconds, and the peak of memory in GiB."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, peak(device)


def peak(device: str) -> float:
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / GIB
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")) / GIB


def passes(model: Any, tokens: int, **options: Any) -> None:
    inputs, _ = question(model, tokens)
    with torch.no_grad():
        forward(model, {**inputs.tensors, **options})


def cell(model: Any, options: Any, method: str, tokens: int) -> dict[str, float]:
    """One method at one length."""
    weights = torch.cuda.memory_allocated() / GIB if options.device == "cuda" else None
    explain(model, method, 64)
    if options.device == "cuda" and tokens <= COMPILED:
        explain(model, method, tokens)
    rows = []
    for _ in range(options.runs if tokens <= COMPILED else 1):
        plain = measured(lambda: passes(model, tokens), options.device)
        lean = measured(lambda: passes(model, tokens, logits_to_keep=1), options.device)
        own = measured(lambda: explain(model, method, tokens), options.device)
        rows.append((plain, lean, own))
    floor = max(plain[1] for plain, _, _ in rows) if weights is None else weights
    return {
        "forward": statistics.median(plain[0] for plain, _, _ in rows),
        "seconds": statistics.median(own[0] for _, _, own in rows),
        "ratio": statistics.median(own[0] / plain[0] for plain, _, own in rows),
        "lean": statistics.median(own[0] / lean[0] for _, lean, own in rows),
        "memory": max(own[1] for _, _, own in rows) - floor,
        "beyond": max(own[1] for _, _, own in rows) - max(lean[1] for _, lean, _ in rows),
    }


def cells(options: Any) -> Iterator[dict[str, Any]]:
    """All methods at all lengths: on a CPU each in a process of its own, for its peak of memory."""
    if options.device == "cuda" or options.cell:
        model = load(options)
        require_right(model, options.methods)
    for tokens in options.tokens:
        for method in options.methods:
            if options.device == "cuda" or options.cell:
                own = cell(model, options, method, tokens)
            else:
                given = [*sys.argv, "--cell", "--methods", method, "--tokens", str(tokens)]
                done = subprocess.run([sys.executable, *given], stdout=subprocess.PIPE, check=False)
                if done.returncode:
                    print(f"| {tokens} | {method} | failed |", flush=True)
                    continue
                own = json.loads(done.stdout.splitlines()[-1])
            yield {"tokens": tokens, "method": method, **own}


def about(options: Any) -> str:
    """What was measured, for a picture of it."""
    name = options.model or f"random weights in the shape of {OF[options.shape]}"
    cut = f", {options.layers} layers" if options.layers else ""
    return f"{name}{cut} · {options.dtype} on {options.device} · the last token explained"


def plot(rows: list[dict[str, Any]], file: Path, title: str) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from alti.views.plots.look import HUES, INK, frame

    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    titles = {"lean": "time, in forward passes", "beyond": "memory, GiB above a forward pass"}
    panels = figure.subplots(1, 2)
    for axis, (name, label) in zip(panels, titles.items(), strict=True):
        for colour, method in zip(HUES, dict.fromkeys(row["method"] for row in rows), strict=False):
            own = [row for row in rows if row["method"] == method]
            places = [row["tokens"] for row in own], [row[name] for row in own]
            axis.plot(*places, "o-", color=colour, markersize=3.5, linewidth=1.5, label=method)
        frame(axis, "tokens", label)
        axis.set(ylim=(0, None), xlim=(0, None))
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, color=INK)
    handles, names = panels[0].get_legend_handles_labels()
    look: Any = {"loc": "outside lower center", "frameon": False, "fontsize": 8.5}
    figure.legend(handles, names, ncols=len(names), labelcolor=INK, **look)
    with mpl.rc_context({"svg.hashsalt": "alti"}):
        figure.savefig(file, metadata={"Date": None}, facecolor="white")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a folder; else random weights of a shape")
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--layers", type=int, help="fewer than the shape has")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--tokens", type=int, nargs="+", default=[3000])
    parser.add_argument("--methods", nargs="+", default=["alti", "linear", "absence", "dimming"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--cell", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(next(cells(options))))
        return
    rows = []
    print("| tokens | method | forward | explanation | ratio | to lean forward | memory |")
    print("|---|---|---|---|---|---|---|")
    for row in cells(options):
        rows.append(row)
        digits = 2 if row["forward"] > 1 else 3
        print(
            f"| {row['tokens']:,} | `{row['method']}` | {row['forward']:.{digits}f} s | "
            f"{row['seconds']:.{digits}f} s | {row['ratio']:.1f} | {row['lean']:.1f} | "
            f"{row['memory']:+.2f} GiB |",
            flush=True,
        )
    if options.plot:
        plot(rows, options.plot, about(options))


if __name__ == "__main__":
    main()

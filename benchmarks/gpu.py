"""The triton kernel and complete explanations on a GPU, beside the forward pass and the floor.

python benchmarks/gpu.py

It prints the kernel's errors first, and stops where they, or a replayed graph, are wrong;
tests/test_gpu.py compares everything else that is timed here with its definition.
"""

import statistics
import sys
import warnings
from pathlib import Path

import torch
from transformers import BertConfig, BertModel
from triton.testing import do_bench_cudagraph

import alti
from alti.methods import METHODS, run
from alti.mix.kernels import triton
from alti.model.cuda_graphs import Recorder
from alti.model.head import Head

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from test_gpu import HALF_PRECISION, SHAPES, batch_of, double, poisoned, random_block

import tiny  # beside the tests, no package


def kernel_errors() -> None:
    """Refuse to report a kernel that is wrong."""
    for kind in ("plain", "causal", "large"):
        blocks = [
            random_block(*shape, causal=kind == "causal", large=kind == "large") for shape in SHAPES
        ]
        worst = max(map(error_of, blocks))
        print(f"  {kind}: off by at most {worst:.1e}")
        if not worst < HALF_PRECISION:  # nan is wrong too
            sys.exit("the triton kernel is wrong: no numbers")


def error_of(block: alti.Block) -> float:
    expected = alti.contributions(double(block), kernel="reference")
    with poisoned():
        ours = alti.contributions(block, kernel="triton").double()
    return float((ours - expected).abs().max().nan_to_num(torch.inf))


def milliseconds(*functions, rounds: int = 20) -> list[float]:
    """Medians; the functions take turns, since Python's speed changes from second to second."""
    for _ in range(3):
        for function in functions:
            function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, found in zip(functions, times, strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            torch.cuda.synchronize()
            found.append(start.elapsed_time(end))
    return [statistics.median(found) for found in times]


def recorded_families() -> None:
    """Which families can be recorded, and why others cannot: tiny models of the tests."""
    recorded, others = [], []
    for family in tiny.CONFIGS:
        if tiny.missing(family):
            continue
        model = tiny.build(family, dtype=torch.float32).cuda()
        try:
            Head.of(model)
        except alti.UnsupportedModelError:
            continue
        inputs, target = batch_of(2, 16, padding=4)
        ids = inputs.tensors["input_ids"]
        ids.remainder_(tiny.VOCAB - 3).add_(3)  # words that a tiny vocabulary has
        recorder = Recorder(model)
        with warnings.catch_warnings(record=True) as reasons:
            warnings.simplefilter("always")
            found = [recorder.run(METHODS["alti"], inputs, target) for _ in range(3)][-1]
        if recorder.kept:
            require_equal(found.tokens, run("alti", model, inputs, target).tokens, family)
            recorded.append(family)
        else:
            others.append(family)
            print(f"  {family}: {reasons[-1].message}")
    total = len(recorded) + len(others)
    print(f"  {len(recorded)} of {total} families recorded; not {', '.join(others) or 'one'}")


def require_equal(replayed: torch.Tensor, plain: torch.Tensor, what: str) -> None:
    if not torch.equal(replayed, plain):
        sys.exit(f"a graph of {what} differs from a run: no numbers")


def device_milliseconds(function) -> float:
    """Without the time that Python takes to start kernels: a graph of them is played."""
    found = do_bench_cudagraph(function, rep=50, return_mode="median")
    assert isinstance(found, float)
    return found


def kernel_times() -> None:
    block = random_block(8, 12, 512, 768)
    unit, f = triton._operands(block.value, block.weight)
    y, scale = block.output, block.scale
    turned = triton._turned(block.attn)
    parts = triton._fused(*turned, f, y, scale, unit)
    steps = {
        "vectors": lambda: triton._operands(block.value, block.weight),
        "attention turned": lambda: triton._turned(block.attn),
        "fused core": lambda: triton._fused(*turned, f, y, scale, unit),
        "residual's entries, rows divided": lambda: triton.finished(
            block, f, y, block.residual, unit, parts
        ),
        "all of it": lambda: triton.contributions(block),
    }
    for name, step in steps.items():
        print(f"  8 x 512, {name}: {device_milliseconds(step):.3f} ms a layer")
    causal, one = random_block(8, 12, 512, 768, causal=True), random_block(1, 12, 512, 768)
    time = device_milliseconds(lambda: triton.contributions(causal))
    print(f"  8 x 512, causal: {time:.3f} ms a layer")
    print(f"  1 x 512: {device_milliseconds(lambda: triton.contributions(one)):.3f} ms a layer")
    x = torch.randn(8 * 512 * 512 * 16, device="cuda")
    bandwidth = 8 * x.numel() / milliseconds(lambda: x.abs_())[0] / 1e6
    terms = 8 * 512**2 * 768
    rate = torch.cuda.get_device_properties(0).multi_processor_count * 128 * 1.98e9
    half = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    tensor = 2 * 8192**3 / milliseconds(lambda: half @ half)[0] / 1e9  # TFLOP/s
    floor = terms / rate * 1e3
    print(f"  floor: {floor:.3f} ms for a float32 addition a term at {rate / 1e12:.1f} T/s, ")
    print(
        f"  {2 * 16 * terms / tensor / 1e9:.3f} ms for 16 heads' products at {tensor:.0f} TFLOP/s"
    )
    print(f"  bandwidth {bandwidth:.0f} GB/s")


def launches(function) -> int:
    """How many kernels (and copies) something starts."""
    function()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def started() -> None:
    """How many kernels a forward pass and an explanation of 128 tokens start, and a layer."""
    inputs, target = batch_of(1, 128)
    for dtype in (torch.float32, torch.bfloat16):
        counts = []
        for layers in (11, 12):
            model = BertModel(BertConfig(num_hidden_layers=layers)).eval().to("cuda", dtype)
            with torch.no_grad():
                forward = launches(lambda: model(**inputs.tensors))  # noqa: B023
            alti_count = launches(lambda: run("alti", model, inputs, target))  # noqa: B023
            counts.append((forward, alti_count))
        (f11, a11), (f12, a12) = counts
        print(f"  {dtype}: forward {f12}, a layer {f12 - f11}; alti {a12}, a layer {a12 - a11}")


def complete() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        model = BertModel(BertConfig()).eval().to("cuda", dtype)
        recorder = Recorder(model)
        for batch in (1, 8, 32):
            for tokens in (128, 512):
                inputs, target = batch_of(batch, tokens)

                def forward(inputs=inputs, model=model) -> None:
                    with torch.no_grad():
                        model(**inputs.tensors)

                plain, explained, replayed = milliseconds(
                    forward,
                    lambda: run("alti", model, inputs, target),  # noqa: B023
                    lambda: recorder.run(METHODS["alti"], inputs, target),  # noqa: B023
                )
                name = f"{str(dtype).removeprefix('torch.')} {batch} x {tokens}"
                again = recorder.run(METHODS["alti"], inputs, target).tokens
                require_equal(again, run("alti", model, inputs, target).tokens, name)
                both = f"forward {plain:.2f} ms, alti {explained:.2f} ms, {explained / plain:.2f}"
                graph = f"as a graph {replayed:.2f} ms, {replayed / plain:.2f}"
                print(f"  {name}: {both}; {graph}")


def long_text() -> None:
    model = BertModel(BertConfig(max_position_embeddings=8192)).eval().cuda()
    inputs, target = batch_of(1, 8192)
    torch.cuda.reset_peak_memory_stats()
    (time,) = milliseconds(lambda: run("alti", model, inputs, target, layers=False), rounds=2)
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"  1 x 8192, 12 layers of 768: {time:.0f} ms, peak {peak:.1f} GiB")


def main() -> None:
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for part in (kernel_errors, recorded_families, kernel_times, started, complete, long_text):
        print(part.__name__)
        part()


if __name__ == "__main__":
    main()

"""The triton kernel and complete explanations on a GPU, beside the forward pass and the floor.

python benchmarks/gpu.py
"""

import os
import statistics
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel
from triton.testing import do_bench_cudagraph

import alti
from alti import Block
from alti.methods import METHODS, Inputs, Target, run
from alti.mix.kernels import reference, triton
from alti.model.cuda_graphs import Recorder
from alti.model.head import Head
from alti.read import verdicts
from alti.read import walk as blocks
from alti.read.affine import fused_for

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import tiny  # beside the tests, no package


def random_block(
    batch: int, heads: int, tokens: int, width: int, *, causal: bool = False, large: bool = False
) -> Block:
    g = torch.Generator("cuda").manual_seed(0)

    def rand(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, device="cuda")

    scores = 2 * rand(batch, heads, tokens, tokens)
    if causal:
        scores = scores.masked_fill(
            torch.ones(tokens, tokens, device="cuda").triu(1).bool(), -torch.inf
        )
    d = width // heads
    value, weight = rand(batch, heads, tokens, d), rand(heads, d, width) / d**0.5
    if large:  # one dimension 300 times the others, as trained models have
        weight[..., 3] *= 300
    parts = scores.softmax(-1), value, weight, rand(batch, tokens).exp(), rand(batch, tokens, width)
    block = Block(*parts, 0.3 * rand(batch, tokens, width), torch.empty(0))
    return Block(*parts, block.bias, block.rebuilt())


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


def double(block: Block) -> Block:
    return replace(block, **{name: getattr(block, name).double() for name in Block.__slots__[:7]})


def variants(block: Block) -> dict[str, Block]:
    """The block, one row of it, as cross-attention, with padded rows, and without information."""
    batch, _, tokens, _ = block.attn.shape
    one = torch.full((batch, 1), tokens // 2, device="cuda")
    mask = torch.arange(tokens, device="cuda") < torch.tensor(
        [[1 + tokens // 2]] * batch, device="cuda"
    )
    return {
        "all": block,
        "rows": block.rows(one),
        "cross": replace(block, cross=True, attn=block.attn.contiguous()),
        "padded": replace(block, mask=mask),
        "empty": replace(block, attn=0 * block.attn, residual=-100 * block.output),
    }


@contextmanager
def poisoned() -> Iterator[None]:
    """New memory is full of nan in here."""

    def filled(make):
        def empty(*args, **kwargs):
            made = make(*args, **kwargs)
            return made.fill_(torch.nan) if made.is_floating_point() else made.fill_(77)

        return empty

    with (
        patch("torch.empty", filled(torch.empty)),
        patch("torch.Tensor.new_empty", filled(torch.Tensor.new_empty)),
    ):
        yield


def check_kernel() -> None:
    """Refuse to report a kernel that is wrong."""
    for shape in (
        (1, 1, 1, 48),
        (2, 3, 2, 60),
        (2, 12, 63, 768),
        (1, 9, 500, 63),
        (2, 32, 33, 64),
        (1, 12, 130, 100),
    ):
        for causal, large in ((False, False), (True, False), (False, True)):
            for name, block in variants(random_block(*shape, causal=causal, large=large)).items():
                expected = alti.contributions(double(block), kernel="reference")
                with poisoned():
                    found = alti.contributions(block, kernel="triton").double()
                error = float((found - expected).abs().max())
                exact = float(
                    (alti.contributions(block, kernel="blocked").double() - expected).abs().max()
                )
                print(f"  {shape} {name} {causal=} {large=}: {error:.1e}, blocked {exact:.1e}")
                if not error < 2e-3 or (causal and name == "all" and (found.triu(1) != 0).any()):
                    sys.exit("the triton kernel is wrong: no numbers")


def plainly():
    """Blocks are carried and compared by the plain definitions in here."""
    return patch.dict(os.environ, ALTI_KERNEL="blocked")


def read(model, inputs, through) -> list[tuple[Block, torch.Tensor]]:
    """Every block with its errors."""
    found: list[tuple[Block, torch.Tensor]] = []
    blocks._walk(model, inputs, lambda *block: found.append(block), through, blocks.COMPARED)
    return found


def check_blocks() -> None:
    """Refuse to report when blocks differ from those of the plain definitions."""
    if fused_for(torch.device("cuda", 0), torch.float32) is None:
        sys.exit("blocks are put together in plain torch here (look at ALTI_KERNEL): no numbers")
    worst, count = 0.0, 0
    for dtype in (torch.float32, torch.bfloat16):
        models = [tiny.build(family, dtype=dtype) for family in tiny.CONFIGS]
        models += [BertModel(BertConfig(num_hidden_layers=2)).eval().to(dtype)]  # wider than a tile
        for model in models:
            inputs = {name: tensor.cuda() for name, tensor in tiny.inputs(model.cuda()).items()}
            for through in (None, "ffn"):
                try:
                    with plainly():
                        plain = read(model, inputs, through)
                except alti.UnsupportedModelError:
                    continue
                with poisoned():
                    found = read(model, inputs, through)
                for (a, a_error), (b, b_error) in zip(plain, found, strict=True):
                    parts = [
                        (getattr(a, name).detach(), getattr(b, name).detach())
                        for name in Block.__slots__[:7]
                    ]
                    off = [
                        float((x - y).abs().max() / x.abs().max().clamp_min(1e-30))
                        for x, y in parts
                    ]
                    off.append(float((a_error - b_error).abs().max()))
                    worst, count = max(worst, *off), count + 1
                    if not all(each < 2e-6 for each in off):  # nan is wrong too
                        what = f"{model.config.model_type} {dtype} {through=}"
                        sys.exit(f"{what}: blocks are off by {off}: no numbers")
    print(f"  {count} blocks of {len(tiny.CONFIGS)} families are off by at most {worst:.1e}")


def check_comparisons() -> None:
    """Refuse to report when a wrong block, or a nan, gets another error than by the definition."""
    whole = random_block(2, 12, 63, 768)
    mask = torch.arange(63, device="cuda") < torch.tensor([[63], [30]], device="cuda")
    positions = verdicts.spread(mask, torch.Size((2, 63)), mask.device, 16)
    last = torch.full_like(positions[:, :1], 62)  # padding in the second text
    positions = torch.cat([positions, last], dim=1)
    branch = whole.mixed()
    count = 0
    for block, own in (
        (whole, None),
        (replace(whole, output=branch + whole.residual), (branch, torch.float32)),
    ):
        for name in Block.__slots__[:7]:
            for wrong in (1.01, torch.nan):
                spoilt = replace(block, **{name: getattr(block, name) * wrong}, mask=mask)
                with plainly():
                    expected = verdicts.errors(spoilt, positions, own)
                with poisoned():
                    found = verdicts.errors(spoilt, positions, own)
                real = mask.gather(1, positions)
                same = (
                    torch.allclose(found, expected, rtol=1e-3)
                    if wrong == wrong
                    else not found[real].isfinite().any()
                )
                if not same or (found[real] <= 1e-4).any() or found[~real].any():
                    what = f"a block with {name} times {wrong}"
                    sys.exit(f"{what} is judged {found}, not {expected}: no numbers")
                count += 1
    print(f"  {count} wrong blocks have the errors of the definition")


def batch_of(batch: int, tokens: int, *, padding: int = 0) -> tuple[Inputs, Target]:
    ids = torch.randint(1000, 20000, (batch, tokens), device="cuda")
    mask = torch.ones_like(ids)
    mask[-1, tokens - padding :] = 0
    target = Target(position=torch.zeros(batch, 1, dtype=torch.long, device="cuda"))
    return Inputs({"input_ids": ids, "attention_mask": mask}, ~mask.bool()), target


def check_graphs() -> None:
    """Refuse to report graphs that do not give what runs give, to the bit."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=3)).eval().cuda()
    recorder = Recorder(model)

    def compare(what: str, recorded: int) -> None:
        for name, layers in (
            ("alti", True),
            ("alti", False),
            ("alti_ln2", True),
            ("norms", True),
            ("globenc", False),
        ):
            for shape, padding in (
                ((1, 32), 0),
                ((4, 48), 9),
                ((1, 32), 5),
                ((4, 48), 0),
                ((1, 32), 0),
            ):
                inputs, target = batch_of(*shape, padding=padding)
                found = recorder.run(METHODS[name], inputs, target, layers=layers)
                real = run(name, model, inputs, target, layers=layers)
                pairs = [(found.tokens, real.tokens), (found.output.logits, real.output.logits)]
                pairs += [(found.layers, real.layers)] if layers else []
                if not all(torch.equal(a, b) for a, b in pairs):
                    worst = max(float((a - b).abs().max()) for a, b in pairs)
                    graph = f"a graph of {name} {shape} {padding=}"
                    sys.exit(f"{graph} is off by {worst:.1e}, {what}: no numbers")
        if len(recorder.kept) != recorded:
            sys.exit(f"{len(recorder.kept)} graphs instead of {recorded}, {what}: no numbers")
        print(f"  graphs equal runs, {what}")

    compare("as loaded", 10)
    compare("again", 10)
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.weight.mul_(1.5)
    compare("after a change of weights in place", 10)
    model.bert.encoder.layer[0].output.dense.weight.data = (
        torch.randn(768, 3072, device="cuda") / 50
    )
    compare("after weights were replaced", 10)
    handle = model.bert.embeddings.register_forward_hook(lambda module, args, output: 1.1 * output)
    compare("with a hook", 10)
    handle.remove()
    compare("without it", 10)
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.output.dense.weight[0, 0] = torch.nan
    try:
        recorder.run(METHODS["alti"], *batch_of(1, 32), layers=True)
    except alti.DecompositionError as error:
        print(f"  a replay judges: {error}")
    else:
        sys.exit("a replay of a broken model raised nothing: no numbers")


def recorded_families() -> None:
    """Which families can be recorded: tiny models of the tests, with padding."""
    recorded, others = [], []
    for family in tiny.CONFIGS:
        model = tiny.build(family, dtype=torch.float32).cuda()
        try:
            Head.of(model)
        except alti.UnsupportedModelError:
            continue
        inputs, target = batch_of(2, 16, padding=4)
        ids = inputs.tensors["input_ids"]
        ids.remainder_(tiny.VOCAB - 3).add_(3)  # words that a tiny vocabulary has
        recorder = Recorder(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [recorder.run(METHODS["alti"], inputs, target) for _ in range(3)][-1]
        if not torch.equal(found.tokens, run("alti", model, inputs, target).tokens):
            sys.exit(f"a graph of {family} differs from a run: no numbers")
        (recorded if recorder.kept else others).append(family)
    total = len(recorded) + len(others)
    print(f"  {len(recorded)} of {total} families recorded; not {', '.join(others) or 'one'}")


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
        "residual's entries, rows divided": lambda: triton._finished(
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
                name = str(dtype).removeprefix("torch.")
                both = f"forward {plain:.2f} ms, alti {explained:.2f} ms, {explained / plain:.2f}"
                graph = f"as a graph {replayed:.2f} ms, {replayed / plain:.2f}"
                print(f"  {name} {batch} x {tokens}: {both}; {graph}")


def long_text() -> None:
    model = BertModel(BertConfig(max_position_embeddings=8192)).eval().cuda()
    inputs, target = batch_of(1, 8192)
    torch.cuda.reset_peak_memory_stats()
    (time,) = milliseconds(lambda: run("alti", model, inputs, target, layers=False), rounds=2)
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"  1 x 8192, 12 layers of 768: {time:.0f} ms, peak {peak:.1f} GiB")


def main() -> None:
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for part in (
        check_kernel,
        check_blocks,
        check_comparisons,
        check_graphs,
        recorded_families,
        kernel_times,
        started,
        complete,
        long_text,
    ):
        print(part.__name__)
        part()
    assert reference  # the definition that check_kernel compares with


if __name__ == "__main__":
    main()

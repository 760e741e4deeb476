"""The kernels of a GPU against their definitions, in float32 on CUDA; skipped without a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import alti
import alti.mix.kernels
from alti import Block
from alti.methods import METHODS, Inputs, Target, run
from alti.model.cuda_graphs import Recorder
from alti.read import assembly, verdicts
from alti.read import walk as blocks
from alti.read.affine import Call, carried, fused_for
from alti.read.modules import stacks_of

import tiny

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU, and ALTI_TEST_GPU=1"
)

PARTS = ("attn", "value", "weight", "scale", "residual", "bias", "output")
HALF_PRECISION = 2e-3  # the operands of the triton kernel are float16
ROUNDING = 2e-6  # of float32 sums in another order


@pytest.fixture(autouse=True)
def kernels_chosen_automatically(monkeypatch):
    monkeypatch.delenv("ALTI_KERNEL", raising=False)


def random_block(
    batch: int, heads: int, tokens: int, width: int, *, causal: bool = False, large: bool = False
) -> Block:
    """A block of random numbers whose parts sum to its output."""
    g = torch.Generator("cuda").manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, device="cuda")

    d = max(1, width // heads)
    scores = 2 * rand(batch, heads, tokens, tokens)
    if causal:
        later = torch.ones(tokens, tokens, device="cuda").triu(1).bool()
        scores = scores.masked_fill(later, -torch.inf)
    weight = rand(heads, d, width) / d**0.5
    if large:  # one dimension 300 times the others, as trained models have
        weight[..., 3] *= 300
    block = Block(
        attn=scores.softmax(-1),
        value=rand(batch, heads, tokens, d),
        weight=weight,
        scale=rand(batch, tokens).exp(),
        residual=rand(batch, tokens, width),
        bias=0.3 * rand(batch, tokens, width),
        output=torch.empty(0, device="cuda"),
    )
    return replace(block, output=block.rebuilt())


def padding_of(batch: int, tokens: int) -> Tensor:
    """The first text is whole, the others are padded behind their middle: [B, T]."""
    lengths = torch.tensor([[tokens], *[[1 + tokens // 2]] * (batch - 1)], device="cuda")
    return torch.arange(tokens, device="cuda") < lengths


def double(block: Block) -> Block:
    return replace(block, **{name: getattr(block, name).double() for name in PARTS})


def variant(name: str, block: Block) -> Block:
    batch, _, tokens, _ = block.attn.shape
    if name == "one row":
        return block.rows(torch.full((batch, 1), tokens // 2, device="cuda"))
    if name == "cross":
        return replace(block, cross=True)
    if name == "padded":
        return replace(block, mask=padding_of(batch, tokens))
    if name == "no information":
        return replace(block, attn=0 * block.attn, residual=-100 * block.output)
    return block


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


def plainly():
    """Blocks are carried and compared by the plain definitions in here."""
    return patch.dict(os.environ, ALTI_KERNEL="blocked")


def assert_relative(actual: Tensor, expected: Tensor, limit: float) -> None:
    """Relative to the largest expected number; nan is wrong too."""
    size = expected.abs().max().clamp_min(1e-30)
    assert float((actual - expected).abs().max() / size) < limit


# The triton kernel

SHAPES = [  # batch, heads, tokens, width
    (1, 1, 1, 48),
    (2, 3, 2, 60),
    (2, 12, 63, 768),
    (1, 9, 500, 63),
    (2, 32, 33, 64),
    (3, 40, 20, 80),
    (1, 12, 130, 100),
]


def test_the_fastest_kernel_is_chosen():
    gpu = torch.device("cuda", 0)
    assert alti.mix.kernels.pick("auto", "l1", gpu, torch.float32).__name__.endswith(".triton")
    assert alti.mix.kernels.pick("auto", "l1", gpu, torch.float64).__name__.endswith(".blocked")
    assert fused_for(gpu, torch.float32) is not None
    assert fused_for(gpu, torch.float64) is None


@pytest.mark.parametrize("name", ["whole", "one row", "cross", "padded", "no information"])
@pytest.mark.parametrize("kind", ["plain", "causal", "large"])
@pytest.mark.parametrize("shape", SHAPES)
def test_triton_equals_the_reference(shape, kind, name):
    block = variant(name, random_block(*shape, causal=kind == "causal", large=kind == "large"))
    expected = alti.contributions(double(block), kernel="reference")
    with poisoned():
        actual = alti.contributions(block, kernel="triton")
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=HALF_PRECISION)


@pytest.mark.parametrize("tokens", [1, 63, 130])
def test_attention_that_is_zero_contributes_exactly_zero(tokens):
    with poisoned():
        c = alti.contributions(random_block(2, 12, tokens, 96, causal=True), kernel="triton")
    assert (c.triu(1) == 0).all()


@pytest.mark.parametrize("tokens", [1, 63, 130])
def test_rows_sum_to_one_and_padding_is_zero(tokens):
    block = variant("padded", random_block(3, 6, tokens, 48))
    with poisoned():
        c = alti.contributions(block, kernel="triton")
    torch.testing.assert_close(c.sum(-1), block.mask.float(), rtol=0, atol=1e-5)
    assert (c[~block.mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["whole", "one row", "cross", "padded"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 48), (2, 3, 2, 60), (2, 5, 33, 40), (1, 12, 130, 100)])
def test_parts_in_half_precision_are_read_as_they_are(shape, name, dtype):
    block = variant(name, random_block(*shape, causal=True))
    kept = {part: getattr(block, part).to(dtype) for part in PARTS if part != "scale"}
    half = replace(block, **kept)
    wide = replace(half, **{part: tensor.float() for part, tensor in kept.items()})
    expected = alti.contributions(double(half), kernel="reference")
    positions = torch.arange(half.output.shape[1], device="cuda").expand(len(half.output), -1)
    branch = half.mixed() if name == "cross" else None
    with poisoned():
        ours = alti.contributions(half, kernel="triton")
        errors = fused_for(half.scale.device, torch.float32).errors(half, positions, branch, 0.5)
    assert ours.dtype == errors.dtype == torch.float32
    torch.testing.assert_close(ours.double(), expected, rtol=0, atol=HALF_PRECISION)
    widened = alti.contributions(wide, kernel="triton")
    same = fused_for(half.scale.device, torch.float32).errors(wide, positions, branch, 0.5)
    for actual, wanted in ((ours, widened), (errors, same)):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "gemma2"])
def test_a_half_precision_model_is_explained_without_widening_what_kernels_read(
    family, monkeypatch
):
    model = tiny.build(family, dtype=torch.bfloat16).cuda()
    inputs = on_gpu(model)
    narrow: list[Block] = []
    blocks.walk(model, inputs, narrow.append, half=True)
    for block, wide in zip(narrow, alti.trace(model, inputs), strict=True):
        assert block.attn.dtype == block.value.dtype == torch.bfloat16
        assert {getattr(wide, part).dtype for part in PARTS} == {torch.float32}
        ours, plain = (alti.contributions(x, kernel="triton") for x in (block, wide))
        torch.testing.assert_close(ours, plain, rtol=0, atol=ROUNDING)


def test_values_that_overflow_a_float16():
    block = random_block(2, 4, 63, 48)
    block = replace(block, value=1e6 * block.value, residual=1e6 * block.residual)
    block = replace(block, output=block.rebuilt())
    expected = alti.contributions(double(block), kernel="reference")
    actual = alti.contributions(block, kernel="triton").double()
    torch.testing.assert_close(actual, expected, rtol=0, atol=HALF_PRECISION)


@pytest.mark.parametrize("family", ["bert", "llama", "qwen3", "gemma2", "bart"])
def test_blocks_of_models_with_padding_and_grouped_heads(family):
    model = tiny.build(family, dtype=torch.float32).cuda()
    for block in alti.trace(model, on_gpu(model)):
        expected = alti.contributions(double(block), kernel="reference")
        with poisoned():
            actual = alti.contributions(block, kernel="triton").double()
        torch.testing.assert_close(actual, expected, rtol=0, atol=HALF_PRECISION)


# Blocks that are carried and compared in a few launches


def on_gpu(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.cuda() for name, tensor in tiny.inputs(model).items()}


def read(model, inputs, through) -> list[tuple[Block, Tensor]]:
    """Every block with its errors."""
    reported: list[tuple[Block, Tensor]] = []
    blocks._walk(model, inputs, lambda *block: reported.append(block), through, blocks.COMPARED)
    return reported


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", tiny.CONFIGS)
def test_fused_blocks_are_the_plain_ones(family, dtype):
    model = tiny.build(family, dtype=dtype).cuda()
    inputs = on_gpu(model)
    sites = [site for stack, _ in stacks_of(model) for site in stack.sites]
    for through in (None, "ffn") if any(site.ffn_norm for site in sites) else (None,):
        with plainly():
            plain = read(model, inputs, through)
        with poisoned():
            fused = read(model, inputs, through)
        for (a, a_error), (b, b_error) in zip(plain, fused, strict=True):
            for name in PARTS:
                assert_relative(getattr(b, name), getattr(a, name), ROUNDING)
            torch.testing.assert_close(b_error, a_error, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("shape", [(1, 2, 1, 24), (2, 3, 63, 1000), (1, 12, 130, 768)])
def test_carried_is_the_definition(shape, added, affine):
    block = random_block(*shape)
    width = shape[-1]
    torch.manual_seed(0)
    norm = nn.LayerNorm(width, elementwise_affine=affine).cuda().requires_grad_(False)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    x = block.output + torch.randn_like(block.output) if added else block.output
    call = Call(norm, x, norm(x))
    with plainly():
        plain = carried(block, call)
    with poisoned():
        fused = carried(block, call)
    for name in PARTS:
        assert_relative(getattr(fused, name), getattr(plain, name), 10 * ROUNDING)


@pytest.mark.parametrize("wrong", [1.01, torch.nan])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("alone", [False, True])
def test_errors_are_the_definition(alone, part, wrong):
    """Of blocks that are wrong in one part; with `alone`, the branch is compared alone too."""
    block = random_block(2, 12, 63, 768)
    branch = None
    if alone:
        branch = block.mixed(), torch.float32
        block = replace(block, output=branch[0] + block.residual)
    mask = padding_of(2, 63)
    positions = verdicts.spread(mask, mask.shape, mask.device, 16)
    last = torch.full_like(positions[:, :1], 62)  # padding in the second text
    positions = torch.cat([positions, last], dim=1)
    block = replace(block, **{part: getattr(block, part) * wrong}, mask=mask)
    with plainly():
        plain = verdicts.errors(block, positions, branch)
    with poisoned():
        fused = verdicts.errors(block, positions, branch)
    real = mask.gather(1, positions)
    if wrong == wrong:
        torch.testing.assert_close(fused, plain, rtol=1e-3, atol=0)
        assert (fused[real] > 1e-4).all()
    else:
        assert not fused[real].isfinite().any()
    assert not fused[~real].any()


def test_a_wrong_block_is_refused_before_the_walk_returns(monkeypatch):
    model = tiny.build("bert", dtype=torch.float32).cuda()
    real = assembly.projection
    monkeypatch.setattr(
        assembly, "projection", lambda *args: (real(*args)[0] * 1.01, real(*args)[1])
    )
    with pytest.raises(alti.DecompositionError, match=r"bert block 0: .*relative error of"):
        alti.walk(model, on_gpu(model), lambda block: None)


# CUDA graphs


def batch_of(batch: int, tokens: int, padding: int) -> tuple[Inputs, Target]:
    ids = torch.randint(1000, 20000, (batch, tokens), device="cuda")
    mask = torch.ones_like(ids)
    mask[-1, tokens - padding :] = 0
    target = Target(position=torch.zeros(batch, 1, dtype=torch.long, device="cuda"))
    return Inputs({"input_ids": ids, "attention_mask": mask}, ~mask.bool()), target


def classifier() -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(num_hidden_layers=3)).eval().cuda()


def assert_replays_equal_runs(recorder: Recorder, method: str, layers: bool) -> None:
    """A shape is recorded when it comes a second time, so the later ones are replays."""
    for shape in ((1, 32, 0), (4, 48, 9), (1, 32, 5), (4, 48, 0), (1, 32, 0)):
        inputs, target = batch_of(*shape)
        replayed = recorder.run(METHODS[method], inputs, target, layers=layers)
        plain = run(method, recorder.model, inputs, target, layers=layers)
        assert torch.equal(replayed.tokens, plain.tokens)
        assert torch.equal(replayed.output.logits, plain.output.logits)
        if layers:
            assert torch.equal(replayed.layers, plain.layers)


@pytest.mark.parametrize(
    ("method", "layers"),
    [("alti", True), ("alti", False), ("alti_ln2", True), ("norms", True), ("globenc", False)],
)
def test_replays_equal_runs_to_the_bit(method, layers):
    recorder = Recorder(classifier())
    assert_replays_equal_runs(recorder, method, layers)
    assert len(recorder.kept) == 2


def test_replays_follow_changes_of_the_model():
    model = classifier()
    recorder = Recorder(model)
    assert_replays_equal_runs(recorder, "alti", True)
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.weight.mul_(1.5)
    assert_replays_equal_runs(recorder, "alti", True)
    handle = model.bert.embeddings.register_forward_hook(lambda module, args, output: 1.1 * output)
    assert_replays_equal_runs(recorder, "alti", True)
    handle.remove()
    assert_replays_equal_runs(recorder, "alti", True)
    assert len(recorder.kept) == 2


def test_a_replay_is_judged():
    model = classifier()
    recorder = Recorder(model)
    assert_replays_equal_runs(recorder, "alti", True)
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.output.dense.weight[0, 0] = torch.nan
    with pytest.raises(alti.DecompositionError, match=r"bert block 1: .*not finite"):
        recorder.run(METHODS["alti"], *batch_of(1, 32, 0), layers=True)


def test_a_loaded_model_with_graphs():
    """All three are padded alike: the first runs, the second is recorded, the third replayed."""
    model = alti.load(device="cuda", graphs=True)
    text = "A clever blend of fact and fiction."
    first, *others = [model.explain(text) for _ in range(3)]
    assert model.recorder is not None
    assert model.recorder.kept
    for other in others:
        assert torch.equal(other.scores, first.scores)
        assert other.probability == first.probability
    plain = alti.load(device="cuda").explain(text)
    torch.testing.assert_close(first.scores, plain.scores, rtol=0, atol=HALF_PRECISION)


@pytest.mark.parametrize("method", ["alti", "absence", "linear", "gradient", "occlusion"])
def test_layers_split_between_a_cpu_and_a_gpu(tmp_path, method):
    tiny.saved(tmp_path / "m")
    place = {
        "bert.embeddings": "cpu", "bert.encoder.layer.0": "cpu", "bert.encoder.layer.1": 0,
        "bert.encoder.layer.2": 0, "bert.pooler": 0, "classifier": 0,
    }  # fmt: skip
    text = "A clever blend of fact and fiction."
    split = alti.load(tmp_path / "m", device_map=place, dtype="float32")
    # accelerate keeps the weights of layers on the CPU and brings them to the GPU for each call
    assert {parameter.device.type for parameter in split.model.parameters()} == {"meta", "cuda"}
    found = split.explain(text, method=method, layers=False)
    expected = alti.load(tmp_path / "m", device="cpu").explain(text, method=method, layers=False)
    largest = float(expected.scores.abs().max())
    atol = HALF_PRECISION if method == "alti" else 1e-3 * largest
    torch.testing.assert_close(found.scores, expected.scores, rtol=0, atol=atol)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("method", ["alti", "absence", "linear", "input_x_gradient", "occlusion"])
def test_an_answer_on_a_gpu_is_that_of_a_cpu(method, graphs):
    network = tiny.build("mistral", "AutoModelForCausalLM", dtype=torch.float32)
    question = {"ids": [7, 12, 9, 33, 21, 8], "answer_ids": [14, 40, 5, 9], "method": method}
    expected = alti.Model(network, None).explain(**question)
    model = alti.Model(network.cuda(), None, graphs=graphs)
    for _ in range(3 if graphs else 1):  # recorded the second time
        found = model.explain(**question)
        largest = float(expected.scores.abs().max())
        atol = HALF_PRECISION if method == "alti" else 1e-3 * largest
        torch.testing.assert_close(found.scores, expected.scores, rtol=0, atol=atol)
        whole = model.explain(**question, total=True)
        assert whole.scores.isfinite().all()
    assert len(model.explain(ids=[7, 12, 9], generate=3, method=method)) == 3

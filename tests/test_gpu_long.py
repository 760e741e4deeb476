"""Attention of long texts on a GPU against the definitions; skipped without a GPU."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import alti
import alti.read.attention_call as attention_call
import alti.read.long as long
from alti import Block
from alti.methods import Inputs, Target, layerwise
from alti.mix.contributions import Contributions
from alti.read import verdicts
from alti.read.attention_bias import bias_of
from alti.read.attention_call import AttentionCall
from alti.read.messages import Columns, Messages
from test_gpu import HALF_PRECISION, double, poisoned, random_block, variant

import test_long
import tiny

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU, and ALTI_TEST_GPU=1"
)

SHAPES_OF_ATTENTION = [(1, 2, 1, 1, 16), (2, 4, 2, 63, 24), (1, 3, 3, 130, 64)]  # B, H, G, T, d
ATTENTION_LIMITS = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def eager(module, query, key, value, mask, scaling, **_):
    """The definition: plain attention, in the dtype of its operands."""
    key, value = (attention_call.repeated(x, query.shape[1]) for x in (key, value))
    scores = query @ key.transpose(-1, -2) * scaling
    probs = (scores if mask is None else scores + mask).softmax(-1)
    return (probs @ value).transpose(1, 2), probs


def call_of(shape, masked: bool, dtype) -> AttentionCall:
    batch, heads, groups, tokens, width = shape
    g = torch.Generator("cuda").manual_seed(0)

    def rand(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=g, device="cuda").to(dtype)

    module = nn.Module().eval()
    module.num_key_value_groups = heads // groups
    module.is_causal = True
    mask = None
    if masked:  # a window of four tokens; the first third of the last text is padding
        mask = torch.ones(batch, 1, tokens, tokens, device="cuda").tril().triu(-3).bool()
        mask[-1, :, :, : tokens // 3] = False
    operands = rand(batch, heads, tokens, width), rand(batch, groups, tokens, width)
    value = rand(batch, groups, tokens, width)
    kwargs = {"scaling": 0.3, "dropout": 0.0}
    return AttentionCall(
        eager, sdpa_attention_forward, "sdpa", module, *operands, value, mask, (), kwargs
    )


def assert_close_to(actual: Tensor, expected: Tensor, limit: float) -> None:
    """Relative to the largest number, or to 1: of one token alone it is 0, a difference of more."""
    expected = expected.detach()
    size = expected.abs().max().clamp_min(1)
    assert float((actual.detach().double() - expected).abs().max() / size) < limit


def exactly(given: AttentionCall) -> AttentionCall:
    """The same call in float64, by the definition."""
    wide = {name: getattr(given, name).double() for name in ("query", "key", "value")}
    return replace(given, implementation="eager", **wide)


# torch says so where a thread of autograd is the first to multiply matrices
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
@pytest.mark.parametrize("dimmed", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ATTENTION_LIMITS)
@pytest.mark.parametrize("shape", SHAPES_OF_ATTENTION)
def test_attention_and_its_gradients_are_the_definitions(shape, dtype, masked, dimmed):
    torch.manual_seed(0)
    given = call_of(shape, masked, dtype)
    batch, heads, _, tokens, width = shape
    limit = ATTENTION_LIMITS[dtype]
    fused = given.fused
    sources = torch.arange(tokens, device="cuda").expand(batch, -1) // 3 - 1
    logs = torch.where(sources >= 0, -torch.rand(batch, tokens, device="cuda"), 0)
    tile = exactly(given).tile(slice(0, tokens))
    seen = tile.key.shape[2]
    leaves = [x.detach().requires_grad_() for x in tile.operands]
    own = logs.double().requires_grad_()
    every = torch.arange(tokens, device="cuda").expand(batch, -1)
    apart = (sources >= 0)[:, None] & (sources[:, :, None] != sources[:, None])
    bias = None
    if dimmed:
        added = bias_of(every, own, slice(0, tokens), seen)
        bias = torch.where(apart[:, None, :, :seen], added, 0)
    expected, probs = tile.run(*leaves, bias)
    slope = torch.randn(batch, tokens, heads, width, device="cuda").to(dtype)
    expected_slopes = torch.autograd.grad(expected, leaves, slope.double(), retain_graph=True)
    dim = fused.Dim(sources, logs) if dimmed else None
    with poisoned():
        sums, output = fused.forward(given, dim, output=True)
        columns = Columns("slopes", sources if dimmed else None)
        slopes = fused.backward(given, sums, output, slope, asked=columns, dim=dim)
    assert_close_to(output, expected, limit)
    for actual, wanted in zip(slopes[:3], expected_slopes, strict=True):
        assert_close_to(actual[:, :, : wanted.shape[2]], wanted, limit)
    if dimmed:
        (wanted,) = torch.autograd.grad(expected, own, slope.double())
        assert_close_to(slopes.columns, wanted, limit)
        return
    value = attention_call.repeated(tile.value, heads)
    sent = Messages(probs.detach(), value, expected.detach().flatten(2))
    assert_close_to(slopes.columns[:, :seen], sent.slopes(slope.double().flatten(2)).sum(1), limit)
    with poisoned():
        found = fused.probabilities(given, sums, slice(0, tokens), seen)
        some = torch.randint(tokens, (batch, 5), device="cuda")
        few = fused.probabilities(given, sums, some, seen)
        asked = Columns("effects", sources)
        slopes = fused.backward(given, sums, output, slope, response=False, asked=asked)
    assert slopes.query is slopes.key is None
    assert_close_to(found, probs.detach(), limit)
    texts = torch.arange(batch, device="cuda")[:, None]
    same = found.transpose(1, 2)[texts, some].transpose(1, 2).double()
    assert_close_to(few, same, limit)
    wanted = sent.effects(slope.double().flatten(2)).where(apart[:, :, :seen], 0).sum(1)
    assert_close_to(slopes.columns[:, :seen], wanted, limit)


@pytest.fixture
def by_rows(monkeypatch):
    """Every text is long in here, and attention is computed five rows at a time."""
    monkeypatch.setattr(long, "LONG", 1)
    monkeypatch.setattr(attention_call, "LEAST", 5)
    monkeypatch.setattr(attention_call, "NUMBERS", {"cpu": 1, "cuda": 1})
    monkeypatch.setattr(layerwise, "ROWS", {"cuda": 5})
    monkeypatch.setattr(layerwise, "TILE", {})


def asked_on_gpu(family, **options) -> tuple[nn.Module, Inputs, Target]:
    model = tiny.build(family, test_long.head_of(family), dtype=torch.float32).cuda()
    inputs, target = test_long.question(model, family, **options)
    tensors = {name: tensor.cuda() for name, tensor in inputs.tensors.items()}
    groups = None if inputs.groups is None else inputs.groups.cuda()
    inputs = replace(inputs, tensors=tensors, special=inputs.special.cuda(), groups=groups)
    kept = None if target.kept is None else target.kept.cuda()
    return model, inputs, replace(target.changed(lambda tensor: tensor.cuda()), kept=kept)


LONG_CASES = [
    ("alti", {}, False), ("linear", {}, False), ("absence", {}, False), ("absence", {}, True),
    ("absence", {"rule": "two_views"}, False), ("alti_logit", {}, False), ("dimming", {}, False),
    ("dimming", {}, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "groups"), LONG_CASES)
@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma3_text", "bert", "gpt_oss"])
def test_long_texts_are_explained_as_short_ones(
    family, name, options, groups, by_rows, monkeypatch
):
    if groups and family != "llama":
        pytest.skip("groups are tested on one family")
    if family == "gpt_oss" and name not in ("alti", "dimming"):
        pytest.skip("its experts have no linear view")
    model, inputs, target = asked_on_gpu(family, groups=groups)
    with poisoned():
        ours = test_long.scores_of(name, model, inputs, target, **options).tokens
    test_long.dense(monkeypatch)
    plain = test_long.scores_of(name, model, inputs, target, **options).tokens
    half = name in ("alti", "alti_logit")
    torch.testing.assert_close(
        ours, plain, rtol=0, atol=float(plain.abs().max()) * (HALF_PRECISION if half else 1e-3)
    )


def lazily(block: Block, dtype: torch.dtype) -> Block:
    """A block that computes attention again, as that of a long text; values as a model has them."""

    def again(rows: slice | Tensor) -> Tensor:
        if isinstance(rows, slice):
            return block.attn[:, :, rows, : rows.stop].contiguous()
        return block.rows(rows).attn

    return replace(block, attn=block.attn[..., :0], value=block.value.to(dtype), again=again)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1, 1, 48), (2, 3, 7, 60), (2, 5, 33, 40), (1, 12, 130, 100)])
def test_rows_of_a_block_are_drawn_and_compared_as_the_whole(shape, dtype):
    block = random_block(*shape, causal=True)
    block = replace(block, value=block.value.to(dtype).float())
    block = replace(block, output=block.rebuilt())
    lazy, tokens = lazily(block, dtype), shape[2]
    spans = [slice(first, min(first + 5, tokens)) for first in range(0, tokens, 5)]
    expected = alti.contributions(double(block), kernel="reference")
    with poisoned():
        for span, drawn in zip(spans, Contributions().by_rows(lazy, spans), strict=True):
            seen = drawn.shape[-1]
            torch.testing.assert_close(
                drawn.double(), expected[:, span, :seen], rtol=0, atol=HALF_PRECISION
            )
    positions = torch.randint(tokens, (shape[0], 4), device="cuda")
    for part, factor in (("output", 1.0), ("residual", 1.01), ("weight", 0.99)):
        wrong = replace(lazy, **{part: getattr(lazy, part) * factor})
        with poisoned():
            found = verdicts.errors(wrong, positions)
        whole = replace(block, **{part: getattr(block, part) * factor})
        plain = verdicts.relative(*rebuilt_at(whole, positions), None)
        torch.testing.assert_close(found, plain, rtol=1e-3, atol=1e-5)


def rebuilt_at(block: Block, positions: Tensor) -> tuple[Tensor, Tensor]:
    rows = block.rows(positions)
    return rows.rebuilt(), rows.output


def test_long_rows_are_finished_in_parts(monkeypatch):
    block = random_block(2, 3, 130, 60, causal=True)
    monkeypatch.setattr("alti.mix.kernels.triton_rows.CHUNK", 48)
    for kind in ("whole", "padded", "cross", "no information"):
        changed = variant(kind, block)
        expected = alti.contributions(double(changed), kernel="reference")
        with poisoned():
            actual = alti.contributions(changed, kernel="triton").double()
        torch.testing.assert_close(actual, expected, rtol=0, atol=HALF_PRECISION)


@pytest.mark.parametrize("name", ["alti", "linear", "absence"])
def test_kernels_that_are_wrong_are_found(name, by_rows, monkeypatch):
    """The check of every call has been seen failing: sums of rows that are 3 % off."""
    model, inputs, target = asked_on_gpu("llama")
    test_long.scores_of(name, model, inputs, target)
    real = AttentionCall.sums.func
    monkeypatch.setattr(AttentionCall, "sums", property(lambda self: real(self) + 0.04))
    with pytest.raises(alti.DecompositionError, match="relative error"):
        test_long.scores_of(name, model, inputs, target)

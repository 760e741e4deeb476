"""The paper's equations, written again as loops, and the kernels against their definition."""

import os
import platform
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import alti
import alti.mix.kernels
from alti import Block

import tiny
from speed import mostly_slow, slow


def random_block(
    batch: int = 2,
    heads: int = 3,
    targets: int = 7,
    sources: int | None = None,
    *,
    width: int = 20,
    d: int = 4,
    cross: bool = False,
    causal: bool = False,
    padded: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Block:
    """A block of random numbers whose parts sum to its output."""
    g = torch.Generator().manual_seed(seed)
    sources = targets if sources is None else sources

    def rand(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    scores = 3 * rand(batch, heads, targets, sources)
    mask = None
    if causal:
        scores = scores.masked_fill(torch.ones(targets, sources).triu(1).bool(), -torch.inf)
    if padded:
        mask = torch.ones(batch, targets, dtype=torch.bool)
        mask[-1, targets // 2 + 1 :] = False
        scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
    block = Block(
        attn=scores.softmax(-1),
        value=rand(batch, heads, sources, d),
        weight=rand(heads, d, width) / d,
        scale=rand(batch, targets).exp(),
        residual=rand(batch, targets, width),
        bias=0.3 * rand(batch, targets, width),
        output=torch.empty(0),
        cross=cross,
        mask=mask,
    )
    block = replace(block, output=block.rebuilt())
    return Block(
        *(
            t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t
            for t in _fields(block)
        )
    )


def _fields(block: Block):
    return [getattr(block, name) for name in Block.__slots__]


def textbook(block: Block, p: int) -> tuple[Tensor, Tensor]:
    """Contributions and Norms with a loop over every number of the formulas."""
    batch, heads, targets, sources = block.attn.shape
    columns = sources + block.cross
    c, n = (
        torch.zeros(batch, targets, columns).double(),
        torch.zeros(batch, targets, columns).double(),
    )
    for b in range(batch):
        for i in range(targets):
            if block.mask is not None and not block.mask[b, i]:
                continue
            y = block.output[b, i]
            for j in range(columns):
                t = torch.zeros_like(y)
                if j < sources:
                    for h in range(heads):
                        t = t + block.scale[b, i] * block.attn[b, h, i, j] * (
                            block.value[b, h, j] @ block.weight[h]
                        )
                if j == (sources if block.cross else i):
                    t = t + block.residual[b, i]
                c[b, i, j] = max(0.0, y.norm(p) - (y - t).norm(p))
                n[b, i, j] = t.norm(2)
            if c[b, i].sum() == 0:
                c[b, i, sources if block.cross else i] = 1
            c[b, i] /= c[b, i].sum()
            n[b, i] /= n[b, i].sum()
    return c, n


def _with_one_large_dimension(block: Block) -> Block:
    weight = block.weight.clone()
    weight[..., 3] *= 300
    block = replace(block, weight=weight)
    return replace(block, output=block.rebuilt())


BLOCKS = {
    "plain": random_block(),
    "one token": random_block(targets=1),
    "two tokens, one head": random_block(targets=2, heads=1),
    "causal": random_block(causal=True),
    "padded": random_block(padded=True),
    "cross": random_block(targets=5, sources=8, cross=True),
    "cross, padded targets": replace(
        random_block(targets=6, sources=3, cross=True),
        mask=torch.arange(6) < torch.tensor([[6], [2]]),
    ),
    "nine heads, odd width": random_block(heads=9, width=61, targets=13),
    "one large dimension": _with_one_large_dimension(random_block()),
}


def kernels(*tasks: str) -> list[tuple[str, str]]:
    """The kernels of a CPU, with each of the tasks they can do; test_gpu.py has those of a GPU."""
    here = {name: kernel for name, kernel in alti.KERNELS.items() if kernel.device in (None, "cpu")}
    return [(name, task) for name, kernel in here.items() for task in tasks if task in kernel.tasks]


@pytest.mark.parametrize(("kernel", "task"), kernels("l1", "l2"))
@pytest.mark.parametrize("name", BLOCKS)
def test_contributions_are_the_formula(name, kernel, task):
    p = int(task[1])
    expected, _ = textbook(BLOCKS[name], p)
    torch.testing.assert_close(
        alti.contributions(BLOCKS[name], p=p, kernel=kernel), expected, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize(("kernel", "task"), kernels("lengths"))
@pytest.mark.parametrize("name", BLOCKS)
def test_norms_are_the_formula(name, kernel, task):
    _, expected = textbook(BLOCKS[name], 1)
    torch.testing.assert_close(
        alti.norms(BLOCKS[name], kernel=kernel), expected, rtol=0, atol=1e-10
    )


SHAPES = [  # batch, heads, targets, sources, width
    (1, 12, 63, 63, 60),
    (2, 3, 500, 500, 48),
    (3, 32, 33, 33, 64),
    (1, 9, 2, 2, 768),
    (1, 1, 1, 1, 48),
    (2, 12, 17, 40, 60),
    (1, 20, 65, 65, 100),
]


@pytest.mark.parametrize(("kernel", "task"), kernels("l1", "l2", "lengths"))
@mostly_slow("shape", SHAPES, quick=lambda shape: shape[2] < 100)
@pytest.mark.parametrize("kind", ["padded", "causal", "large dimension"])
def test_kernels_equal_the_reference(shape, kind, kernel, task, monkeypatch):
    batch, heads, targets, sources, width = shape
    monkeypatch.setattr("alti.mix.kernels.blocked.SLICE", 7 * batch * targets * width)
    monkeypatch.setattr("alti.mix.kernels.gram.SLICE", 7 * batch * targets * heads)
    options = {
        "padded": kind == "padded" and targets == sources,
        "causal": kind == "causal" and targets == sources,
    }
    block = random_block(
        batch, heads, targets, sources, width=width, cross=targets != sources, **options
    )
    if kind == "large dimension":
        block = _with_one_large_dimension(block)

    def measured(block, kernel):
        return (
            alti.norms(block, kernel=kernel)
            if task == "lengths"
            else alti.contributions(block, p=int(task[1]), kernel=kernel)
        )

    expected = measured(block, "reference")
    torch.testing.assert_close(measured(block, kernel), expected, rtol=0, atol=1e-10)
    if kernel != "reference":  # the definition takes the difference of two large sums
        single = Block(
            *(
                t.float() if isinstance(t, Tensor) and t.is_floating_point() else t
                for t in _fields(block)
            )
        )
        torch.testing.assert_close(measured(single, kernel).double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("kernel", "task"), kernels("l1", "l2", "lengths"))
def test_kernels_read_nothing_that_they_did_not_write(kernel, task, monkeypatch):
    """Fresh memory is full of NaN."""
    empty = torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *shape, **options: empty(*shape, **options).fill_(torch.nan)
    )
    test_kernels_equal_the_reference((2, 5, 37, 37, 52), "causal", kernel, task, monkeypatch)


@pytest.mark.parametrize(("kernel", "task"), kernels("l1", "l2", "lengths"))
def test_some_rows_are_those_of_the_whole(kernel, task):
    block = random_block(padded=True)
    rows = torch.tensor([[6, 0, 3], [1, 1, 2]])
    measure = alti.norms if task == "lengths" else alti.contributions
    options = {} if task == "lengths" else {"p": int(task[1])}
    whole, some = (measure(b, kernel=kernel, **options) for b in (block, block.rows(rows)))
    torch.testing.assert_close(some, whole[torch.arange(2)[:, None], rows])


@pytest.mark.parametrize(("kernel", "task"), kernels("l1", "lengths"))
def test_rows_sum_to_one_and_padding_is_zero(kernel, task):
    block = random_block(padded=True)
    c = (alti.norms if task == "lengths" else alti.contributions)(block, kernel=kernel)
    torch.testing.assert_close(c.sum(-1), block.mask.double())
    assert (c[~block.mask] == 0).all()
    assert (c.transpose(1, 2)[~block.mask] == 0).all()


@pytest.mark.parametrize(("kernel", "task"), [k for k in kernels("l1") if k[0] != "reference"])
def test_attention_that_is_zero_contributes_exactly_zero(kernel, task):
    c = alti.contributions(random_block(causal=True), kernel=kernel)
    assert (c.triu(1) == 0).all()


@pytest.mark.parametrize(("kernel", "task"), kernels("l1", "l2"))
@pytest.mark.parametrize("cross", [False, True])
def test_a_row_without_information_is_the_identity(kernel, task, cross):
    block = random_block(cross=cross)
    block = replace(block, output=torch.zeros_like(block.output))  # nothing is closer to 0 than 0
    expected = torch.zeros(2, 7, 7 + cross).double()
    expected[..., -1] = float(cross)
    expected[..., :7] += torch.eye(7) * (not cross)
    assert torch.equal(alti.contributions(block, p=int(task[1]), kernel=kernel), expected)


@pytest.mark.parametrize(("kernel", "task"), kernels("l1", "l2", "lengths"))
def test_zeros_give_no_nan(kernel, task):
    zero = Block(
        *(torch.zeros_like(t) if isinstance(t, Tensor) else t for t in _fields(random_block()))
    )
    zero = replace(zero, scale=zero.scale + 1)
    measure = alti.norms if task == "lengths" else alti.contributions
    options = {} if task == "lengths" else {"p": int(task[1])}
    assert torch.equal(
        measure(zero, kernel=kernel, **options), torch.eye(7).double().expand(2, 7, 7)
    )


def test_the_terms_are_summed_before_they_can_cancel():
    """Float32 keeps its digits: the difference of two large sums is off by 1e-3 here."""
    block = random_block(width=768, heads=12, targets=20, seed=3)
    offset = 10 * torch.ones(768).double()
    block = replace(block, bias=block.bias + offset, output=block.output + offset)
    single = Block(*(t.float() if isinstance(t, Tensor) else t for t in _fields(block)))
    expected = alti.contributions(block, kernel="reference")
    naive = (alti.contributions(single, kernel="reference").double() - expected).abs().max()
    assert naive > 1e-4
    for kernel in ("blocked", "numba"):
        assert (alti.contributions(single, kernel=kernel).double() - expected).abs().max() < 2e-5


def test_rollout_is_the_product_of_the_layers():
    maps = [torch.rand(2, 5, 5).double().softmax(-1) for _ in range(4)]
    expected = maps[3] @ maps[2] @ maps[1] @ maps[0]
    torch.testing.assert_close(alti.rollout(maps), expected)
    torch.testing.assert_close(alti.rollout(torch.stack(maps)), expected)
    torch.testing.assert_close(alti.rollout(maps[:1]), maps[0])


def test_rescaled_rollout_keeps_the_ranking_and_does_not_overflow():
    maps = [1e20 * torch.rand(1, 5, 5) for _ in range(30)]
    assert not alti.rollout(maps).isfinite().all()
    product = alti.rollout(maps, rescale=True)
    exact = alti.rollout([m.double() for m in maps[:3]])
    assert product.isfinite().all()
    assert product.max() == 1
    short = alti.rollout(maps[:3], rescale=True)
    torch.testing.assert_close(short, (exact / exact.max()).float())


def test_wrong_options():
    block = random_block()
    with pytest.raises(alti.UsageError, match=r"p = 3 is not a norm of ALTI: give 1 .* or 2"):
        alti.contributions(block, p=3)
    with pytest.raises(
        alti.UsageError,
        match="kernel = 'cuda' does not exist: choose auto, numba, blocked, reference",
    ):
        alti.contributions(block, kernel="cuda")
    with pytest.raises(
        alti.UsageError,
        match="kernel = 'gram' computes no l1 in float64 on cpu: choose auto, numba",
    ):
        alti.contributions(block, kernel="gram")
    with pytest.raises(
        alti.UsageError,
        match="kernel = 'numba' computes no lengths in float64 on cpu: choose auto, gram, blocked",
    ):
        alti.norms(block, kernel="numba")
    with pytest.raises(alti.UsageError, match="at least one layer"):
        alti.rollout([])


def test_the_environment_chooses_the_kernel(monkeypatch):
    block = random_block()
    monkeypatch.setenv("ALTI_KERNEL", "no-such-kernel")
    with pytest.raises(alti.UsageError, match="ALTI_KERNEL = 'no-such-kernel'"):
        alti.contributions(block)
    assert alti.contributions(block, kernel="reference").shape == (
        2,
        7,
        7,
    )  # an argument has the last word
    monkeypatch.setenv("ALTI_KERNEL", "reference")
    monkeypatch.setattr("alti.mix.kernels.numba.proximity", None)
    assert alti.contributions(block).shape == (2, 7, 7)


@slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 features")
def test_numba_on_a_processor_with_shorter_vectors(tmp_path):
    older = {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma,+avx",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    code = (
        "from test_mixing import *\n"
        "from alti.mix.kernels import numba\n"
        "assert numba.BYTES == 32\n"
        "for name, block in BLOCKS.items():\n"
        "    fast = alti.contributions(block, kernel='numba')\n"
        "    expected = alti.contributions(block, kernel='reference')\n"
        "    torch.testing.assert_close(fast, expected, rtol=0, atol=1e-10)\n"
    )
    environment = {**os.environ, **older, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_numba_leaves_torchs_threads_alone(monkeypatch):
    before = torch.get_num_threads()
    alti.contributions(random_block(), kernel="numba")
    assert torch.get_num_threads() == before

    def broken(*arrays):
        raise ZeroDivisionError

    monkeypatch.setattr("alti.mix.kernels.numba._fused", broken)
    with pytest.raises(ZeroDivisionError):
        alti.contributions(random_block(), kernel="numba")
    assert torch.get_num_threads() == before


def test_without_numba_another_kernel_is_used_and_that_is_said_once(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "alti.mix.kernels.numba", None
    )  # as if it could not be imported
    alti.mix.kernels.works.cache_clear()
    block = random_block()
    try:
        with pytest.warns(
            UserWarning, match="the numba kernel does not work here .*: using a slower one"
        ):
            found = alti.contributions(block)
        torch.testing.assert_close(
            found, alti.contributions(block)
        )  # warnings are errors: none the second time
        with pytest.raises(ImportError):
            alti.contributions(block, kernel="numba")
    finally:
        alti.mix.kernels.works.cache_clear()


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_cross_attention_of_a_model(family):
    model = tiny.build(family)
    batch = tiny.inputs(model)
    for block in alti.trace(model, batch):
        c = alti.contributions(block)
        targets, sources = block.attn.shape[-2:]
        assert c.shape == (2, targets, sources + block.cross)
        torch.testing.assert_close(c.sum(-1), block.mask.double())
        if block.cross:
            padded = ~batch["attention_mask"].bool()
            assert (c[..., :-1].transpose(1, 2)[padded] == 0).all()


def test_a_gpu_in_float64_takes_a_kernel_that_computes_in_it():
    assert (
        alti.mix.kernels.pick("auto", "l1", torch.device("cuda"), torch.float64).__name__
        == "alti.mix.kernels.blocked"
    )


def test_numba_works_after_a_call_in_inference_mode(monkeypatch):
    monkeypatch.setattr("alti.mix.kernels.numba._kept", {})
    block = random_block()
    with torch.inference_mode():
        inside = alti.contributions(block, kernel="numba")
    torch.testing.assert_close(alti.contributions(block, kernel="numba"), inside.clone())


def test_numba_leaves_its_own_threads_alone():
    import numba

    before, threads = numba.get_num_threads(), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alti.contributions(random_block(), kernel="numba")
        assert numba.get_num_threads() == before
    finally:
        torch.set_num_threads(threads)

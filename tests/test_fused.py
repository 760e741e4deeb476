"""How blocks are passed to `triton_norms`, with a stand-in; `test_gpu.py` tests the real one."""

from dataclasses import replace
from types import SimpleNamespace

import accelerate
import pytest
import torch

import alti
from alti.methods import Inputs, Target, layerwise
from alti.read import affine, assembly, process, verdicts, walk
from alti.read.affine import Call, fused_for, projection

import tiny

PARTS = ("attn", "value", "weight", "scale", "residual", "bias", "output")
USERS = (affine, assembly, verdicts, walk)


def read(model, inputs, through=None):
    read_blocks = []
    walk._walk(model, inputs, lambda *block: read_blocks.append(block), through, walk.COMPARED)
    return read_blocks


def widened(block):
    return replace(block, **{name: getattr(block, name).float() for name in PARTS})


@pytest.fixture
def standing_in(monkeypatch):
    """The plain definitions in place of `triton_norms`; returns the calls that reached it."""
    calls = []

    def plain(definition, *args):
        with monkeypatch.context() as patch:
            for module in (affine, verdicts):
                patch.setattr(module, "fused_for", lambda device, dtype: None)
            return definition(*args)

    def carried(block, module, x, y, *, added):
        calls.append(("carried", block.weight.dtype, added))
        assert added == (x.data_ptr() != block.output.data_ptr())
        block = replace(widened(block), attn=block.attn, value=block.value)  # which it leaves
        return plain(affine.carried, block, Call(module, x if added else block.output, y))

    def errors(block, positions, branch, rounding):
        calls.append(("errors", branch is not None, rounding))
        dtype = next(
            (dtype for dtype in verdicts.LIMITS if rounding == verdicts.rounding_of(dtype)), None
        )
        assert (dtype is None) == (branch is None)
        branch = None if branch is None else (branch.float(), dtype)
        return plain(verdicts.errors, widened(block), positions, branch)

    module = SimpleNamespace(carried=carried, errors=errors)
    for user in USERS:
        monkeypatch.setattr(
            user, "fused_for", lambda device, dtype: module if dtype == torch.float32 else None
        )
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "family", ["bert", "distilbert", "deberta-v2", "gpt2", "gpt_neox", "llama", "granite", "bart"]
)
def test_blocks_are_the_same(family, dtype, standing_in, monkeypatch):
    model = tiny.build(family, dtype=dtype)
    inputs = tiny.inputs(model)
    fused_blocks = read(model, inputs)
    used = list(standing_in)
    for user in USERS:
        monkeypatch.setattr(user, "fused_for", fused_for)
    for (block, error), (plain, plain_error) in zip(fused_blocks, read(model, inputs), strict=True):
        for name in PARTS:
            assert getattr(block, name).dtype == torch.float32
            torch.testing.assert_close(
                getattr(block, name), getattr(plain, name), rtol=1e-5, atol=1e-6
            )
        torch.testing.assert_close(error, plain_error, rtol=1e-2, atol=1e-6)
    assert sum(call[0] == "errors" for call in used) == len(fused_blocks)
    post_norm = family in ("bert", "distilbert", "deberta-v2", "bart")
    # a plain norm reads the model's own numbers, so nothing has to be made float32 before
    assert {call for call in used if call[0] == "carried"} == (
        {("carried", dtype, False)} if post_norm else set()
    )


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gemma2", "granite", "beit"])
def test_half_precision_is_left_to_kernels_that_read_it(family, standing_in, monkeypatch):
    model = tiny.build(family, dtype=torch.bfloat16)
    inputs = tiny.inputs(model)
    found, wide = [], []
    walk.walk(model, inputs, found.append, half=True)
    walk.walk(model, inputs, wide.append)
    site = alti.FAMILIES[family].stacks[0].sites[0]
    scaled = site.branch_scale or site.branch_gain or site.branch_norm
    for block, plain in zip(found, wide, strict=True):
        kept = {name for name in PARTS if getattr(block, name).dtype == torch.bfloat16}
        of_sum = set() if site.norm or scaled else {"weight", "residual", "bias", "output"}
        assert kept == {"attn", "value", *of_sum}
        for name in PARTS:
            torch.testing.assert_close(getattr(block, name).float(), getattr(plain, name))
    monkeypatch.setattr(walk, "fused_for", fused_for)  # no GPU: all parts are float32
    walk.walk(model, inputs, found.append, half=True)
    assert {getattr(found[-1], name).dtype for name in PARTS} == {torch.float32}


@pytest.mark.parametrize(("options", "half"), [({}, True), ({"kernel": "blocked"}, False)])
def test_alti_asks_for_half_precision_where_its_kernel_reads_it(options, half, monkeypatch):
    asked = []
    monkeypatch.setattr(layerwise, "walk", lambda *_, half, **__: asked.append(half))
    with pytest.raises(IndexError):  # of the maps that were not drawn
        alti.methods.run("alti", *question_of("bert"), layers=True, **options)
    assert asked == [half]


def question_of(family):
    model = tiny.build(family)
    tensors = tiny.inputs(model)
    mask = tensors["attention_mask"].bool()
    return model, Inputs(tensors, ~mask), Target(position=torch.zeros_like(mask[:, :1]).long())


def test_through_the_second_norm(standing_in):
    model = tiny.build("bert", dtype=torch.bfloat16)
    fused_blocks = read(model, tiny.inputs(model), "ffn")
    carried = [call[1:] for call in standing_in if call[0] == "carried"]
    assert carried == [(torch.bfloat16, False), (torch.float32, True)] * len(fused_blocks)


def test_a_wrong_block_is_refused(standing_in, monkeypatch):
    model = tiny.build("bert", dtype=torch.float32)
    real = assembly.projection
    monkeypatch.setattr(
        assembly, "projection", lambda *args: (real(*args)[0] * 1.01, real(*args)[1])
    )
    with pytest.raises(alti.DecompositionError, match="relative error of"):
        alti.walk(model, tiny.inputs(model), lambda block: None)
    assert standing_in


def test_where_it_is_used(monkeypatch):
    module, works = SimpleNamespace(), {affine.FUSED: True}
    monkeypatch.setattr(affine, "import_module", {"alti.read.triton_norms": module}.__getitem__)
    monkeypatch.setattr(affine, "works", lambda name, *_: works[name])
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert fused_for(gpu, torch.float32) is module
    assert fused_for(gpu, torch.float64) is None
    assert fused_for(cpu, torch.float32) is None
    monkeypatch.setenv("ALTI_KERNEL", "blocked")
    assert fused_for(gpu, torch.float32) is None
    monkeypatch.setenv("ALTI_KERNEL", "triton")
    assert fused_for(gpu, torch.float32) is module
    works[affine.FUSED] = False
    assert fused_for(gpu, torch.float32) is None


@pytest.fixture
def forgotten():
    """What works where is forgotten, before and after."""
    process.works.cache_clear()
    yield
    process.works.cache_clear()


def test_a_machine_where_triton_starts_no_kernel_warns_once(forgotten, monkeypatch):
    devices = []

    def ready(device, dtype):
        devices.append(device)
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(process, "import_module", lambda name: SimpleNamespace(ready=ready))
    gpu = torch.device("cuda", 1)
    with pytest.warns(
        UserWarning, match=r"triton_norms kernel does not work here \(Failed to find C compiler"
    ):
        assert fused_for(gpu, torch.float32) is None
    assert fused_for(gpu, torch.float32) is None
    assert devices == [gpu]


def test_a_projection_that_is_not_plain_is_read_in_float32():
    """The difference of its answers would be rounded a second time."""

    class Own(torch.nn.Linear):
        pass

    torch.manual_seed(0)
    module = Own(24, 24).bfloat16()
    x = torch.zeros(1, 1, 24, dtype=torch.bfloat16)
    raw, wide = projection(module, x, None), projection(module, x, torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(raw, wide, strict=True))
    assert projection(torch.nn.Linear(24, 24).bfloat16(), x, None)[0].dtype == torch.bfloat16


def test_a_whole_block_is_compared_as_it_is(monkeypatch):
    model = tiny.build("bert")
    monkeypatch.setattr(alti.Block, "rows", None)  # would copy it
    assert max(alti.check(model, tiny.inputs(model))) < 1e-9


def test_a_norm_whose_weights_are_elsewhere_is_carried_plainly(standing_in):
    """A kernel would be given the address of nothing: accelerate has taken the weights away."""
    model = tiny.build("bert", dtype=torch.float32)
    inputs = tiny.inputs(model)
    expected = read(model, inputs)
    assert any(call[0] == "carried" for call in standing_in)
    standing_in.clear()
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    found = read(model, inputs)
    assert not any(call[0] == "carried" for call in standing_in)
    for (block, _), (plain, _) in zip(found, expected, strict=True):
        torch.testing.assert_close(block.weight, plain.weight, rtol=1e-4, atol=1e-5)

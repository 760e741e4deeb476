"""A model is bit-identical after it was read: outputs, hooks, attention, training flags."""

import threading
import weakref

import pytest
import torch

import alti

import tiny
from speed import slow


def fingerprint(model):
    """Everything about a model that reading it could change."""
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    configs = [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]
    return (
        hooks,
        configs,
        [m.training for m in model.modules()],
        [p.clone() for p in model.state_dict().values()],
    )


def assert_untouched(model, before, run):
    hooks, configs, training, weights = fingerprint(model)
    assert (hooks, configs, training) == before[:3]
    assert all(torch.equal(a, b) for a, b in zip(weights, before[3], strict=True))
    assert torch.equal(run(), before[4])


def snapshot(model, batch):
    """A fingerprint with an output, and how to compute that output."""

    def run(**more):
        with torch.no_grad():
            return model(**batch, **more)[0]

    run(output_hidden_states=True)  # transformers registers hooks of its own the first time
    return (*fingerprint(model), run()), run


@pytest.mark.parametrize(
    ("family", "implementation"),
    [(f, i) for f in ("bert", "llama", "t5", "modernbert", "albert") for i in ("eager", "sdpa")]
    + [("mpnet", "eager")],
)
def test_after_a_walk(family, implementation):
    model = tiny.build(family, dtype=torch.float32)
    model.set_attn_implementation(implementation)
    batch = tiny.inputs(model)
    before, run = snapshot(model, batch)
    alti.check(model, batch)
    assert_untouched(model, before, run)


def test_after_an_exception_in_visit():
    model = tiny.build("bert", dtype=torch.float32)
    batch = tiny.inputs(model)
    before, run = snapshot(model, batch)

    def visit(block):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        alti.walk(model, batch, visit)
    assert_untouched(model, before, run)


def test_after_an_exception_in_the_model():
    model = tiny.build("gpt2", dtype=torch.float32)
    batch = tiny.inputs(model)
    before, run = snapshot(model, batch)
    with pytest.raises(IndexError):
        alti.check(model, {"input_ids": batch["input_ids"] + 10_000})
    assert_untouched(model, before, run)


def test_after_a_wrong_entry(monkeypatch):
    model = tiny.build("bert", dtype=torch.float32)
    batch = tiny.inputs(model)
    before, run = snapshot(model, batch)
    site = alti.Site(
        "attention.output.dense", norm="attention.output.LayerNorm", ffn_norm="no.such.module"
    )
    monkeypatch.setitem(alti.FAMILIES, "bert", alti.Family((alti.Stack("encoder.layer", (site,)),)))
    with pytest.raises(alti.DecompositionError):
        alti.check(model, batch)
    assert_untouched(model, before, run)


def test_training_flags_stay_and_dropout_does_not_disturb():
    model = tiny.build("bert", hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    batch = tiny.inputs(model)
    expected = [block.output for block in alti.trace(model, batch)]
    model.train()
    model.pooler.eval()
    flags = [m.training for m in model.modules()]
    outputs = [block.output for block in alti.trace(model, batch)]
    assert [m.training for m in model.modules()] == flags
    assert all(torch.equal(a, b) for a, b in zip(expected, outputs, strict=True))


def test_gradients_are_neither_made_nor_lost():
    model = tiny.build("bert")
    batch = tiny.inputs(model)
    model(**batch)[0].sum().backward()
    before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert not any(
        t.requires_grad
        for block in alti.trace(model, batch)
        for t in (block.attn, block.output, block.weight)
    )
    after = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_other_threads_see_the_model_as_it_was(family):
    """While one thread walks, a plain forward pass in another keeps sdpa, its mask and its bits."""
    model = tiny.build(family, dtype=torch.float32)
    model.set_attn_implementation("sdpa")
    batch = tiny.inputs(model)
    before, run = snapshot(model, batch)
    outputs = []
    walking = threading.Event()
    done = threading.Event()

    def plain():
        walking.wait(10)
        with torch.no_grad():
            outputs.append(model(**batch)[0])
        done.set()

    def visit(block):
        walking.set()
        assert done.wait(10)  # the other pass runs inside this walk

    other = threading.Thread(target=plain)
    other.start()
    alti.walk(model, batch, visit)
    other.join()
    assert torch.equal(outputs[0], before[4])
    assert_untouched(model, before, run)


def test_several_threads_explain_at_once():
    model = alti.Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer()
    )
    texts = [tiny.CORPUS[i % 4] for i in range(12)]
    expected = [model.explain(text).scores for text in texts]
    scores: dict[int, torch.Tensor] = {}

    def work(i):
        scores[i] = model.explain(texts[i]).scores

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(scores[i], expected[i]) for i in range(len(texts)))


def test_a_walk_inside_a_walk():
    outer, inner = tiny.build("bert"), tiny.build("llama")
    batch, other = tiny.inputs(outer), tiny.inputs(inner)
    expected = alti.check(inner, other)
    errors = []
    alti.walk(outer, batch, lambda block: errors.append(alti.check(inner, other)))
    assert errors == [expected] * tiny.LAYERS
    again = []
    alti.walk(outer, batch, lambda block: again.append(alti.check(outer, batch)))
    assert again == [alti.check(outer, batch)] * tiny.LAYERS


def test_the_visitor_may_call_the_model():
    model = tiny.build("bert")
    batch = tiny.inputs(model)
    outputs = []
    alti.walk(model, batch, lambda block: outputs.append(model(**batch)[0]))
    assert all(torch.equal(each, model(**batch)[0]) for each in outputs)


def test_autocast_does_not_reach_the_mathematics():
    model = tiny.build("bert", dtype=torch.float32)
    batch = tiny.inputs(model)
    expected = alti.trace(model, batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        blocks = alti.trace(model, batch)
        assert max(alti.check(model, batch)) < 1e-5
        assert alti.contributions(blocks[0]).dtype == torch.float32
    assert all(torch.equal(a.output, b.output) for a, b in zip(expected, blocks, strict=True))


def test_an_unknown_way_through():
    with pytest.raises(alti.UsageError, match="through = 'mlp' is not known"):
        alti.trace(model := tiny.build("bert"), tiny.inputs(model), through="mlp")


@slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch.compile's own
def test_a_compiled_model_is_read():
    model = tiny.build("bert")
    batch = tiny.inputs(model)
    assert alti.check(torch.compile(model), batch) == alti.check(model, batch)


def test_positions_that_start_anew_are_what_they_are_without_us():
    """Without a cache transformers would take them for two texts in one row."""
    model = tiny.build("llama")
    inputs = {
        "input_ids": torch.arange(3, 11)[None],
        "position_ids": torch.tensor([[0, 1, 2, 3] * 2]),
    }
    with torch.no_grad():
        plain = model(**inputs).last_hidden_state
    assert torch.allclose(
        alti.walk(model, inputs, lambda block: None).last_hidden_state, plain, atol=1e-5
    )


@pytest.mark.parametrize(
    ("family", "through"),
    [("bert", None), ("bert", "ffn"), ("gpt2", None), ("gpt_neox", None), ("gemma2", None)],
)
def test_a_walk_holds_one_block_at_a_time(family, through):
    model = tiny.build(family)
    seen: list[weakref.ref] = []

    def visit(block):
        assert not any(part() is not None for part in seen)  # nothing of the blocks before is left
        seen.extend(
            weakref.ref(part) for part in (block.attn, block.bias, block.weight, block.scale)
        )

    alti.walk(model, tiny.inputs(model), visit, through=through)
    assert len(seen) == 4 * tiny.LAYERS

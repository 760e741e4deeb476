"""Long texts: attention by rows and gradients by layer give what the plain way gives."""

import copy
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import alti
import alti.read.attention_call as attention_call
import alti.read.by_layer as by_layer
import alti.read.long as long
from alti import AltiError, DecompositionError, Inputs, Target
from alti.methods import METHODS, call, layerwise
from alti.model.model import Model
from alti.read.backwards import walking_back
from alti.read.by_layer import Tape
from alti.read.long import can_be_long
from alti.read.verdicts import Verdict
from alti.read.walk import walk

import tiny
from speed import mostly_slow, slow


def sites_of(family):
    return [site for stack in alti.FAMILIES[family].stacks for site in stack.sites]


TEXT_FAMILIES = [family for family in tiny.CONFIGS if family not in tiny.IMAGES]
# attention that is not the interface's
OWN_MODULES = [f for f in TEXT_FAMILIES if any(site.probs or site.own for site in sites_of(f))]
FAMILIES = [
    family
    for family in TEXT_FAMILIES
    if family not in (*tiny.ENCODER_DECODERS, *OWN_MODULES, "albert")
]
# norms of these compute in float32 whatever the dtype, and so do some softmaxes
LIMIT = 1e-6
EXACT = {"bert": 1e-10, "distilbert": 1e-10, "gpt2": 1e-10, "opt": 1e-10, "gpt_neox": 1e-7}


@pytest.fixture
def by_rows(monkeypatch):
    """Every text is long in here, and attention is computed three rows at a time."""
    monkeypatch.setattr(long, "LONG", 1)
    monkeypatch.setattr(attention_call, "LEAST", 3)
    monkeypatch.setattr(attention_call, "NUMBERS", {"cpu": 1})


def dense(monkeypatch):
    monkeypatch.setattr(long, "LONG", 10**9)


def head_of(family: str) -> str:
    causal = family in tiny.DECODERS
    return "AutoModelForCausalLM" if causal else "AutoModelForSequenceClassification"


def question(model, family, *, lengths=(9, 7), side="right", groups=False, total=False):
    tensors = tiny.inputs(model, lengths=lengths, side=side)
    mask = tensors["attention_mask"].bool()
    special = ~mask
    members = None
    if groups:
        numbers = torch.arange(mask.shape[1]).expand_as(mask) // 3 - 1
        members = numbers.masked_fill(~mask, -1)
    causal = family in tiny.DECODERS
    inputs = Inputs(tensors, special, causal=causal, groups=members)
    if not causal:
        return inputs, Target(
            position=None if family == "modernbert" else torch.zeros_like(mask[:, :1]).long()
        )
    last = mask.long().cumsum(1).argmax(1)[:, None]
    first = mask.long().argmax(1)[:, None]
    position = torch.cat([last, (first + last) // 2], 1)
    return inputs, Target(position=position, kept=torch.unique(position), total=total)


def scores_of(name, model, inputs, target, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", alti.AltiWarning)  # dimming is blind to its own group
        return call(METHODS[name], model, inputs, target, layers=False, **options)


def compare(name, model, inputs, target, monkeypatch, limit, **options):
    ours = scores_of(name, model, inputs, target, **options)
    dense(monkeypatch)
    plain = scores_of(name, model, inputs, target, **options)
    size = plain.tokens.abs().amax().clamp_min(1e-12)  # one token alone may be worth nothing
    assert ours.tokens.shape == plain.tokens.shape
    assert float((ours.tokens - plain.tokens).abs().amax() / size) < limit
    return ours


@pytest.mark.parametrize("side", ["right", "left"])
@mostly_slow("family", FAMILIES, quick=tiny.FEW)
def test_rows_are_those_of_the_whole_block(family, side, by_rows):
    model = tiny.build(family)
    tensors = tiny.inputs(model, side=side)
    whole = alti.trace(model, tensors)
    parts = []
    walk(model, tensors, parts.append, by_rows=True)
    assert len(whole) == len(parts)
    real = tensors["attention_mask"].bool()
    for block, lazy in zip(whole, parts, strict=True):
        assert lazy.attn.numel() == 0  # nothing of size T² is kept
        for span in (slice(0, 4), slice(4, 9)):
            rows = lazy.span(span)
            seen = rows.attn.shape[-1]
            mask = real[:, None, span, None]
            expected = block.attn[:, :, span]
            assert_close(rows.attn.where(mask, 0), expected[..., :seen].where(mask, 0))
            assert not expected[..., seen:].where(mask, 0).any()  # what is left out is not seen
            sources = real[:, None, :seen, None]
            value = block.value[:, :, :seen]
            assert_close(rows.value.where(sources, 0), value.where(sources, 0))
        positions = torch.tensor([[8, 2], [3, 5]])
        assert_close(lazy.rows(positions).attn, block.rows(positions).attn)


def assert_close(ours, plain):
    torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-7)


def test_rows_that_a_product_is_made_of(by_rows):
    """Once they are all rows of a layer, no layer below is asked, nor a GPU waited for."""
    model = tiny.build("llama", "AutoModelForCausalLM")
    parts = []
    walk(model, tiny.inputs(model, lengths=(9,)), parts.append, by_rows=True)
    every = [slice(0, 3), slice(3, 6), slice(6, 9)]
    rows = torch.zeros(1, 2, 9)
    rows[0, 1, 4] = 1
    assert layerwise.reached(rows, parts[0]) == every[1:2]
    assert layerwise.reached(rows, parts[0], every[1:]) == every[1:2]
    assert layerwise.reached(None, parts[0], every) == every


def methods_for(family, linear):
    return ("alti", "dimming") if alti.FAMILIES[family].nonlinear else ("alti", linear, "dimming")


@pytest.mark.parametrize("length", [1, 2, 3, 4, 23])
def test_texts_of_any_length(length, by_rows, monkeypatch):
    model = tiny.build("llama", "AutoModelForCausalLM")
    inputs, target = question(model, "llama", lengths=(length,))
    for name in ("alti", "linear", "absence", "dimming", "alti_logit", "norms"):
        monkeypatch.setattr(long, "LONG", 1)
        compare(name, model, inputs, target, monkeypatch, LIMIT)


@pytest.mark.parametrize("side", ["right", "left"])
@mostly_slow("family", FAMILIES, quick=tiny.FEW)
def test_every_family(family, side, by_rows, monkeypatch):
    if side == "left" and family in ("bert", "electra", "distilbert"):
        pytest.skip("reads the first position, which is padding then")
    if side == "left" and family in ("gemma2", "vaultgemma"):
        pytest.skip("its eager attention gives nan for padding on the left")
    model = tiny.build(family, head_of(family))
    inputs, target = question(model, family, side=side)
    for name in methods_for(family, "absence"):
        monkeypatch.setattr(long, "LONG", 1)
        compare(name, model, inputs, target, monkeypatch, EXACT.get(family, LIMIT))


@mostly_slow("family", FAMILIES, quick=tiny.FEW)
def test_the_models_own_attention_is_used(family, by_rows, monkeypatch):
    """In float32 what goes on to the next layer is sdpa's, where the model has that."""
    model = tiny.build(family, head_of(family), dtype=torch.float32)
    inputs, target = question(model, family)
    for name in methods_for(family, "linear"):
        monkeypatch.setattr(long, "LONG", 1)
        compare(name, model, inputs, target, monkeypatch, 2e-4)


CASES = [
    ("alti", {"p": 2}), ("norms", {}), ("attention", {}), ("attention_rollout", {}),
    ("linear", {}), ("linear", {"of": "log_prob"}), ("alti_logit", {}), ("consensus", {}),
    ("absence", {"rule": "two_views"}), ("absence", {"rule": "effects"}),
    ("absence", {"value": 0.5, "response": 0.25, "messages": 0.0, "rule": "two_views"}),
    ("dimming", {"points": 2}), ("dimming", {"draws": 2}), ("input_x_gradient", {}),
]  # fmt: skip


@mostly_slow("total", [False, True], quick=[True])
@pytest.mark.parametrize(("name", "options"), CASES)
@mostly_slow("family", ["gpt2", "mistral"], quick=["mistral"])
def test_every_method(family, name, options, total, by_rows, monkeypatch):
    model = tiny.build(family, "AutoModelForCausalLM")
    inputs, target = question(model, family, total=total)
    compare(name, model, inputs, target, monkeypatch, EXACT.get(family, LIMIT), **options)


@pytest.mark.parametrize("name", ["linear", "absence", "dimming"])
def test_predictions_go_through_the_layers_as_many_as_can_be_held(name, by_rows, monkeypatch):
    model = tiny.build("gpt2", "AutoModelForCausalLM")
    inputs, target = question(model, "gpt2")
    runs = []
    model.transformer.h[0].register_forward_hook(lambda *_: runs.append(1))

    def runs_of_a_layer(held):
        monkeypatch.setattr(by_layer, "HELD", held)
        runs.clear()
        scores.append(scores_of(name, model, inputs, target).tokens)
        return len(runs)

    scores = []
    runs_of_a_layer(1)  # proofs
    assert runs_of_a_layer(1) == runs_of_a_layer(10**9) + target.count - 1
    assert torch.equal(scores[1], scores[2])
    monkeypatch.setattr(by_layer, "HELD", 1)
    compare(name, model, inputs, target, monkeypatch, 1e-10)


@pytest.mark.parametrize("name", ["alti_ln2", "globenc"])
def test_methods_behind_the_second_norm(name, by_rows, monkeypatch):
    model = tiny.build("bert", "AutoModelForSequenceClassification")
    inputs, target = question(model, "bert")
    compare(name, model, inputs, target, monkeypatch, 1e-10)


@pytest.mark.parametrize("rule", ["auto", "two_views", "first_order"])
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_groups(family, rule, by_rows, monkeypatch):
    model = tiny.build(family, head_of(family))
    inputs, target = question(model, family, groups=True)
    compare("absence", model, inputs, target, monkeypatch, 1e-10, rule=rule)
    monkeypatch.setattr(long, "LONG", 1)
    compare("dimming", model, inputs, target, monkeypatch, 1e-10)


def test_maps_can_be_kept(by_rows, monkeypatch):
    model = tiny.build("gpt2", "AutoModelForCausalLM")
    inputs, target = question(model, "gpt2")
    ours = call(METHODS["alti"], model, inputs, target, layers=True)
    dense(monkeypatch)
    plain = call(METHODS["alti"], model, inputs, target, layers=True)
    torch.testing.assert_close(ours.layers, plain.layers, rtol=1e-6, atol=1e-7)


class Largest(TorchDispatchMode):
    """The most numbers that any tensor had."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        sizes = [x.numel() for x in tree_leaves(output) if isinstance(x, torch.Tensor)]
        self.count = max([self.count, *sizes])
        return output


@slow
@pytest.mark.parametrize("name", ["alti", "norms", "linear", "absence", "dimming", "alti_logit"])
def test_nothing_of_the_size_of_all_attention_is_written(name, by_rows, monkeypatch):
    tokens = 300
    model = tiny.build(
        "llama", "AutoModelForCausalLM", max_position_embeddings=400, dtype=torch.float32
    )
    inputs, target = question(model, "llama", lengths=(tokens,))
    monkeypatch.setattr(attention_call, "LEAST", 16)
    scores_of(name, model, inputs, target)  # proofs
    with Largest() as largest:
        scores_of(name, model, inputs, target)
    assert largest.count < tokens**2  # H · T² is four times that
    dense(monkeypatch)
    with Largest() as largest:
        scores_of(name, model, inputs, target)
    assert largest.count >= tiny.HEADS * tokens**2  # the check can fail


def test_logits_are_those_of_the_explained_positions(by_rows):
    model = tiny.build("llama", "AutoModelForCausalLM")
    inputs, target = question(model, "llama")
    output = scores_of("alti", model, inputs, target).output
    assert output.logits.shape[1] == len(target.kept) < inputs.mask.shape[1]


@pytest.mark.parametrize("name", ["alti", "absence", "dimming"])
def test_the_model_is_left_as_it_was(name, by_rows):
    model = tiny.build("llama", "AutoModelForCausalLM")
    before = copy.deepcopy(model)
    inputs, target = question(model, "llama")
    scores_of(name, model, inputs, target)
    same(model, before)
    hook = model.model.layers[1].mlp.register_forward_hook(fail)
    before_hooks = count_hooks(model)
    with pytest.raises(ZeroDivisionError):
        scores_of(name, model, inputs, target)
    assert count_hooks(model) == before_hooks
    assert torch.is_grad_enabled()
    hook.remove()
    same(model, before)


def fail(*_):
    raise ZeroDivisionError


def count_hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def same(model, before):
    assert model.config._attn_implementation == before.config._attn_implementation
    pairs = zip(model.parameters(), before.parameters(), strict=True)
    assert all(torch.equal(a, b) and a.grad is None for a, b in pairs)


@pytest.mark.parametrize("family", [*OWN_MODULES, "albert"])
def test_other_families_are_read_as_ever(family, by_rows):
    model = tiny.build(family, head_of(family))
    assert not can_be_long(model)
    inputs, target = question(model, family)
    assert scores_of("alti", model, inputs, target).tokens.isfinite().all()


@pytest.mark.parametrize(
    ("dtype", "found"),
    [(torch.float32, "relative error"), (torch.float64, "another output")],
    ids=["by sdpa", "by rows"],
)
def test_a_mask_that_is_wrong_is_found(dtype, found, by_rows, monkeypatch):
    """The check has been seen failing: rows that see their future are not the model's."""
    model = tiny.build("gpt2", "AutoModelForCausalLM", dtype=dtype)
    inputs, target = question(model, "gpt2", lengths=(9,))
    monkeypatch.setattr(attention_call.AttentionCall, "causal", property(lambda self: False))
    with pytest.raises(DecompositionError, match=found):
        scores_of("alti", model, inputs, target)


@pytest.mark.parametrize(("family", "limit"), [("gpt2", 1e-9), ("qwen2", 1e-6)])
def test_only_a_float32_softmax_may_round_anew(family, limit, by_rows, monkeypatch):
    """In float64 a block is held to 1e-9, but where its probabilities are float32 numbers."""
    model = tiny.build(family)
    monkeypatch.setattr(Verdict, "require", lambda self, error: limits.append(self.limit))
    limits = []
    walk(model, tiny.inputs(model), lambda block: None, by_rows=True)
    assert set(limits) == {limit}


def test_blocks_are_made_again_from_the_last_to_the_first(by_rows):
    """What is kept is what the layers read; a layer stops where its block is complete."""
    model = tiny.build("gpt2")
    tensors = tiny.inputs(model)
    whole = alti.trace(model, tensors)
    calls = []
    for layer in model.h:
        layer.mlp.register_forward_hook(lambda *_: calls.append(1))
    with walking_back(model, tensors) as (output, blocks):
        assert_close(output[0], model(**tensors)[0])
        calls.clear()
        for block, again in zip(reversed(whole), blocks, strict=True):
            assert_close(again.output, block.output)
            assert_close(again.residual, block.residual)
            places = torch.tensor([[8], [5]])
            assert_close(again.rows(places).attn, block.rows(places).attn)
    assert not calls


def test_a_visitor_may_stop_or_fail(by_rows):
    model = tiny.build("llama")
    tensors = tiny.inputs(model)
    before = model(**tensors)[0]
    with walking_back(model, tensors) as (_, blocks):
        next(blocks)
    with pytest.raises(ZeroDivisionError), walking_back(model, tensors) as (_, blocks):
        next(blocks).attn.shape[1] / 0
    assert torch.equal(model(**tensors)[0], before)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_gradient_that_is_wrong_is_found(by_rows, monkeypatch):
    """Completeness is checked through all layers: one that is left out is missed."""
    model = tiny.build("gpt2", "AutoModelForCausalLM")
    inputs, target = question(model, "gpt2", lengths=(9,))
    original = Tape.back

    def without_a_layer(self, *args):
        del self.calls[1]
        return original(self, *args)

    monkeypatch.setattr(Tape, "back", without_a_layer)
    with pytest.raises(AltiError, match="unexplained"):
        scores_of("linear", model, inputs, target)


# What users see


@pytest.fixture
def explainer():
    model = tiny.speaking("llama", "AutoModelForCausalLM", "bpe", dtype=torch.float32)
    return Model(model, tiny.tokenizer("bpe"))


TEXT = "The keys to the cabinet are on the table."


def test_maps_are_not_kept_unless_asked_for(explainer, monkeypatch):
    short = explainer.explain(TEXT)
    assert short.layers is not None
    monkeypatch.setattr(long, "LONG", 4)
    found = explainer.explain(TEXT)
    assert found.layers is None
    assert found.scores == pytest.approx(short.scores, abs=1e-5)
    assert found.probability == pytest.approx(short.probability, abs=1e-5)
    count = len(found.tokens)
    with pytest.warns(alti.AltiWarning, match=f"keeps 3 maps of {count} × {count} numbers: 0.0 GB"):
        kept = explainer.explain(TEXT, layers=True)
    assert kept.layers.shape == short.layers.shape


@pytest.mark.parametrize("method", ["absence", "dimming", "leave_one_out", "gradient", "random"])
def test_answers_about_long_prompts(method, explainer, monkeypatch):
    plain = explainer.explain(TEXT, answer=" It costs", method=method)
    monkeypatch.setattr(long, "LONG", 4)
    found = explainer.explain(TEXT, answer=" It costs", method=method)
    for ours, theirs in zip(found, plain, strict=True):
        assert ours.scores == pytest.approx(theirs.scores, rel=1e-3, abs=1e-4)
        assert ours.probability == pytest.approx(theirs.probability, abs=1e-5)


@pytest.mark.parametrize("tokens", [1, 63, 5000, 8192])
def test_spans_of_rows_are_whole_tiles_of_about_the_same_length(tokens):
    """A kernel that is given 838 rows works on 896, which do not lie where it reads fast."""
    found = attention_call.spans(1, 32, tokens, tokens, torch.device("cuda"), least=512, tile=64)
    assert [row for span in found for row in range(span.start, span.stop)] == list(range(tokens))
    *most, last = [span.stop - span.start for span in found]
    assert len(set(most)) <= 1
    assert all(rows % 64 == 0 and rows >= last for rows in most)

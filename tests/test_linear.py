"""The linear view: nothing changes but gradients, and they account for the whole prediction."""

import re

import pytest
import torch
from torch.nn import functional

import alti
from alti.read import linear_view as linear
from alti.read.linear_view import completeness, linear_view

import tiny
from speed import mostly_slow

CLASSIFIER = "AutoModelForSequenceClassification"
FAMILIES = [
    family
    for family in tiny.CONFIGS
    if family not in (*tiny.ENCODER_DECODERS, *tiny.IMAGES) and not alti.FAMILIES[family].nonlinear
]
VARIANTS = [(name, *variant) for name, variant in tiny.VARIANTS.items() if variant[0] in FAMILIES]


def limit(family):
    return (
        1e-5 if family in tiny.FLOAT32_NORMS else 1e-9
    )  # their norms round to float32, seven in a row


def heads_of(family):
    language = "AutoModelForCausalLM" if family in tiny.DECODERS else "AutoModelForMaskedLM"
    return [CLASSIFIER, language] if tiny.classifies(family) else [language]


def chosen(output):
    """One logit of each text."""
    return output.logits[:, 1] if output.logits.dim() == 2 else output.logits[:, 2, 3]


@pytest.mark.parametrize(("family", "head"), [(f, h) for f in FAMILIES for h in heads_of(f)])
def test_vectors_and_biases_account_for_the_target(family, head):
    model = tiny.build(family, head)
    gap = completeness(model, tiny.inputs(model), chosen)
    assert gap.max() < limit(family)


@pytest.mark.parametrize(("name", "family", "config"), VARIANTS)
def test_variants_too(name, family, config):
    model = tiny.build(family, heads_of(family)[0], **config)
    assert completeness(model, tiny.inputs(model), chosen).max() < limit(family)


@pytest.mark.parametrize("family", FAMILIES)
@mostly_slow("factors", [{}, {"value": 0.5, "response": 0.1}], quick=lambda factors: not factors)
def test_the_output_is_the_models_own(family, factors):
    model = tiny.build(family, heads_of(family)[0])
    batch = tiny.inputs(model)
    blocks = alti.trace(model, batch)
    view = linear_view(model, batch, **factors)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(**batch).logits
    torch.testing.assert_close(view.output.logits.detach(), expected, rtol=0, atol=1e-12)
    assert len(view.messages) == len(blocks)
    for messages, block in zip(view.messages, blocks, strict=True):
        limits = {"rtol": 1e-6, "atol": 1e-6} if family in tiny.FLOAT32_SCORES else {}
        torch.testing.assert_close(messages.attn.to(block.attn), block.attn, **limits)
        torch.testing.assert_close(messages.value.to(block.value), block.value, **limits)


@pytest.mark.parametrize("broken", ["a norm", "an activation", "a function", "attention"])
def test_a_skipped_part_is_noticed(monkeypatch, broken):
    if broken == "a norm":
        monkeypatch.setattr(linear, "_straight_norm", lambda *_: None)
    elif broken == "an activation":
        monkeypatch.setattr(linear, "_straight_activation", lambda *_: None)
        monkeypatch.setattr(linear, "ACTIVATIONS", linear.ACTIVATIONS - {functional.gelu})
    elif broken == "a function":
        monkeypatch.setattr(linear, "ACTIVATIONS", set())
    else:
        monkeypatch.setattr(linear.Straightened, "before_attention", lambda self, *vectors: vectors)
    model = tiny.build("roberta", CLASSIFIER)  # its head calls torch.tanh
    assert completeness(model, tiny.inputs(model), chosen).max() > 1e-4


def test_a_gate_that_is_not_held_constant_is_noticed(monkeypatch):
    model = tiny.build("modernbert", CLASSIFIER)
    monkeypatch.setattr(linear.Straightened, "_gates", lambda self: set())
    assert completeness(model, tiny.inputs(model), chosen).max() > 1e-4


def test_attention_of_a_module_of_its_own_that_is_not_held_constant_is_noticed(monkeypatch):
    model = tiny.build("falcon", CLASSIFIER)
    monkeypatch.setattr(linear.Straightened, "before_mixing", lambda self, *given: given)
    assert completeness(model, tiny.inputs(model), chosen).max() > 1e-4


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe"])
def test_a_router_that_is_not_held_constant_is_noticed(monkeypatch, family):
    model = tiny.build(family, CLASSIFIER)
    monkeypatch.setattr(linear, "_constants", lambda call: None)
    assert completeness(model, tiny.inputs(model), chosen).max() > 1e-4


def test_a_family_without_a_linear_view_says_why():
    model = tiny.speaking("gpt_oss", CLASSIFIER)
    why = "gpt_oss has no linear view, which .* because its experts add 1"
    with pytest.raises(alti.UnsupportedModelError, match=why) as refusal:
        linear_view(model, tiny.inputs(model))
    needing, _, instead = str(refusal.value).partition(" because ")
    named = [set(alti.METHODS) & set(re.findall(r"\w+", part)) for part in (needing, instead)]
    ready = alti.Model(model, tiny.tokenizer())
    suited = [name for name, each in alti.METHODS.items() if ready.suits(each)]
    assert named[0] == {name for name in suited if _is_refused(ready, name)}
    assert named[1] == {"alti", "contextcite", "dimming", "gradient", "leave_one_out", "occlusion"}


def _is_refused(model, method):
    try:
        model.explain("clever film", method=method)
    except alti.UnsupportedModelError:
        return True
    return False


def test_frozen_biases_count_and_stay_frozen():
    model = tiny.build("bert", CLASSIFIER).requires_grad_(False)
    assert completeness(model, tiny.inputs(model), chosen).max() < 1e-9
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("family", ["bert", "gpt2", "qwen2"])
def test_biases_count_that_accelerate_brings_for_a_call(family):
    """They are no parameters of the model: what gradients reach is gone when the call is over."""
    accelerate = pytest.importorskip("accelerate")
    model = tiny.build(family, heads_of(family)[0])
    inputs = tiny.inputs(model)
    expected = completeness(model, inputs, chosen)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in model.parameters())
    assert completeness(model, inputs, chosen).max() < max(limit(family), 2 * expected.max())
    assert linear_view(model, inputs).biases is None


def test_an_activation_of_zero_has_its_slope():
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    y = linear._straight(x, functional.gelu(x), functional.gelu)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert slope.tolist() == [0.5] * 3


def test_effects_sum_to_what_attention_carried():
    model = tiny.build("bert", CLASSIFIER)
    view = linear_view(model, tiny.inputs(model))
    sites = [messages.mixed for messages in view.messages]
    for messages, slope in zip(
        view.messages, torch.autograd.grad(chosen(view.output).sum(), sites), strict=True
    ):
        together = (slope * messages.mixed.detach()).sum(-1)
        torch.testing.assert_close(messages.effects(slope).sum(-1), together)


def test_losses_are_what_deleting_a_source_changes():
    """One head, one row, worked out: without j the others share its attention."""
    g = torch.Generator().manual_seed(0)
    attn = torch.rand(1, 2, 3, 4, generator=g, dtype=torch.float64).softmax(-1)
    value = torch.randn(1, 2, 4, 5, generator=g, dtype=torch.float64)
    mixed = (attn @ value).transpose(1, 2).flatten(2)
    slope = torch.randn(1, 3, 10, generator=g, dtype=torch.float64)
    losses = linear.Messages(attn, value, mixed).losses(slope)
    for j in range(4):
        rest = [k for k in range(4) if k != j]
        left = attn[..., rest] / attn[..., rest].sum(-1, keepdim=True)
        without = (left @ value[:, :, rest]).transpose(1, 2).flatten(2)
        torch.testing.assert_close(losses[..., j], (slope * (mixed - without)).sum(-1))


def test_what_is_no_transformer_of_a_known_family_is_refused():
    with pytest.raises(alti.UnsupportedModelError, match="not a transformers model"):
        linear_view(torch.nn.Linear(2, 2), {})

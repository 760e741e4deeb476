"""Every family is read exactly: blocks rebuilt from their parts are what the model computed."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from packaging.version import Version
from transformers import CONFIG_MAPPING

import alti
from alti.read.modules import family_named
from alti.refused import REFUSED

import tiny
from speed import mostly_slow

ROOT = Path(__file__).parents[1]
BUILDS = {family: (family, {}) for family in tiny.CONFIGS} | tiny.VARIANTS
POST_NORM = [
    name
    for name, family in alti.FAMILIES.items()
    if any(s.ffn_norm for x in family.stacks for s in x.sites)
]
FLOAT32_NORM = (
    "deberta",
    "gemma2",
    "gemma3_text",
    "gemma4_text",
    "gemma4_unified_text",
    "olmo2",
    "olmo3",
    "flex_olmo",
    "glm4",
    "exaone4",
    "hyperclovax",
)  # their branch norm computes in float32 whatever the model's dtype

NAN_ON_THE_LEFT = (
    "bloom",
    "gemma2",
    "mpt",
    "vaultgemma",
)  # in float64: their eager softmax is float32, where the lowest float64 is -inf


def test_the_tiny_models_cover_the_registry():
    assert tiny.CONFIGS.keys() == alti.FAMILIES.keys()


def test_the_oldest_transformers_that_is_asked_for_has_every_family():
    oldest = re.search(r'"transformers>=([\d.]+)', (ROOT / "pyproject.toml").read_text())[1]
    assert all(Version(since) <= Version(oldest) for since in tiny.SINCE.values())


@mostly_slow("side", ["left", "right"], quick=["right"])
@pytest.mark.parametrize("build", BUILDS)
def test_blocks_are_exact(build, side):
    family, config = BUILDS[build]
    model = tiny.build(family, **config)
    if (family in NAN_ON_THE_LEFT) and side == "left":
        with pytest.raises(
            alti.DecompositionError,
            match=r"numbers (that )?are not finite|error of nan",
        ):
            alti.check(model, tiny.inputs(model, side=side))
        model = model.float()
    errors = alti.check(model, tiny.inputs(model, side=side))
    layers = {"albert": 4 * config.get("inner_group_num", 1)}.get(family, tiny.LAYERS)
    assert len(errors) == layers + (4 if family in tiny.ENCODER_DECODERS else 0)
    assert max(errors) < (
        1e-5 if model.dtype == torch.float32 else 1e-6 if family in FLOAT32_NORM else 1e-12
    )


@pytest.mark.parametrize(
    ("dtype", "limit"), [("float32", 1e-5), ("float16", 4e-3), ("bfloat16", 2e-2)]
)
@mostly_slow("family", tiny.CONFIGS, quick=tiny.FEW)
def test_blocks_are_exact_in_every_dtype(family, dtype, limit):
    model = tiny.build(family, dtype=getattr(torch, dtype))
    batch = tiny.inputs(model)
    assert max(alti.check(model, batch)) < limit
    assert all(block.attn.dtype == torch.float32 for block in alti.trace(model, batch))


@mostly_slow("family", tiny.CONFIGS, quick=tiny.FEW)
def test_parts_sum_to_the_output(family):
    model = tiny.build(family)
    for block in alti.trace(model, tiny.inputs(model)):
        rebuilt = alti.parts(block).sum(2) + block.bias
        real = (
            torch.ones(block.output.shape[:2], dtype=torch.bool)
            if block.mask is None
            else block.mask
        )
        tolerance = 1e-6 if family in FLOAT32_NORM else 1e-11
        torch.testing.assert_close(
            rebuilt[real], block.output[real], rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("family", POST_NORM)
def test_blocks_are_exact_through_the_second_norm(family):
    model = tiny.build(family, **({"do_layer_norm_before": False} if family == "opt" else {}))
    batch = tiny.inputs(model)
    assert max(alti.check(model, batch, through="ffn")) < (
        1e-6 if family in FLOAT32_NORM else 1e-12
    )
    if family in tiny.ENCODER_DECODERS:
        return
    model.config._attn_implementation = "eager"
    hidden = model(**batch, output_hidden_states=True).hidden_states[1:]
    for block, state in zip(alti.trace(model, batch, through="ffn"), hidden, strict=True):
        torch.testing.assert_close(block.output, state)  # the second norm's output is the layer's


@mostly_slow("family", [f for f in tiny.CONFIGS if f not in POST_NORM], quick=tiny.FEW)
def test_families_without_a_second_norm_refuse_it(family):
    model = tiny.build(family)
    with pytest.raises(
        alti.UnsupportedModelError, match=rf"{family} has no norm after .* use alti, norms"
    ):
        alti.check(model, tiny.inputs(model), through="ffn")


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["bert", "llama", "gemma3_text", "t5", "modernbert"])
def test_the_walk_computes_what_the_model_computes(family, implementation):
    model = tiny.build(family)
    model.set_attn_implementation(implementation)
    batch = tiny.inputs(model)
    real = batch["decoder_attention_mask" if family == "t5" else "attention_mask"].bool()
    walked = alti.walk(model, batch, lambda block: None).last_hidden_state
    # sdpa's softmax is not the float32 one of eager attention
    torch.testing.assert_close(
        walked[real], model(**batch).last_hidden_state[real], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("left_out", ["scale", "added"])
def test_what_happens_to_the_sum_later_has_to_be_named(left_out, monkeypatch):
    family = alti.FAMILIES["gemma4_text"]
    (stack,) = family.stacks
    if left_out == "added":
        stack = replace(stack, sites=(replace(stack.sites[0], added=None),))
    else:
        stack = replace(stack, scale=None)
    monkeypatch.setitem(alti.FAMILIES, "gemma4_text", replace(family, stacks=(stack,)))
    model = tiny.build("gemma4_text")
    with pytest.raises(alti.DecompositionError, match="gemma4_text: the sum that `then` reads"):
        alti.check(model, tiny.inputs(model))


def test_a_family_of_ones_own():
    class Config(type(tiny.build("bert").config)):
        model_type = "bert-of-mine"

    model = tiny.build("bert")
    model.config.__class__ = Config
    with pytest.raises(alti.UnsupportedModelError, match=r"'bert-of-mine': .* alti.FAMILIES\["):
        alti.check(model, tiny.inputs(model))
    alti.FAMILIES["bert-of-mine"] = alti.FAMILIES["bert"]
    try:
        assert max(alti.check(model, tiny.inputs(model))) < 1e-12
    finally:
        del alti.FAMILIES["bert-of-mine"]


def test_a_convolution_beside_attention_is_refused():
    model = tiny.build("deberta-v2", conv_kernel_size=3, conv_act="gelu")
    with pytest.raises(
        alti.UnsupportedModelError, match="deberta-v2 model has conv_kernel_size = 3: a convolution"
    ):
        alti.check(model, tiny.inputs(model))


@pytest.mark.parametrize(
    ("family", "setting"), [("deberta", {"talking_head": True}), ("falcon", {"alibi": True})]
)
def test_a_setting_that_cannot_be_read_is_refused(family, setting):
    model = tiny.build(family, **setting)
    (field,) = setting
    with pytest.raises(
        alti.UnsupportedModelError, match=rf"this {family} model has {field} = True: .* without it"
    ):
        alti.check(model, tiny.inputs(model))


@pytest.mark.parametrize("family", REFUSED)
def test_families_that_cannot_be_read_say_why(family):
    assert family in CONFIG_MAPPING
    assert family not in alti.FAMILIES
    with pytest.raises(alti.UnsupportedModelError, match=re.escape(REFUSED[family])):
        family_named(family, {})


def test_falcon_adds_its_position_bias_twice_where_it_is_eager():
    """Why alibi is refused; when this fails, transformers has mended it."""
    model = tiny.build("falcon", alibi=True)
    batch = tiny.inputs(model)
    usual = model(**batch).last_hidden_state
    model.config._attn_implementation_internal = "eager"
    assert (model(**batch).last_hidden_state - usual).abs().max() > 1e-3


def test_one_token_of_a_family_that_always_adds_its_mask():
    model = tiny.build("falcon")
    assert max(alti.check(model, {"input_ids": torch.tensor([[7]])})) < 1e-12


def test_a_sink_takes_a_share_of_attention_and_carries_nothing():
    model = tiny.build("gpt_oss")
    batch = tiny.inputs(model, lengths=(9,))
    (block, *_) = alti.trace(model, batch)
    assert (block.attn.sum(-1) < 1 - 1e-6).any()
    torch.testing.assert_close(block.mixed() + block.residual, block.output)
    ones = torch.ones(1, 9, dtype=torch.float64)
    torch.testing.assert_close(alti.contributions(block).sum(-1), ones)
    for layer in model.layers:
        layer.self_attn.sinks.data.fill_(-torch.inf)
    (block, *_) = alti.trace(model, batch)
    torch.testing.assert_close(block.attn.sum(-1), torch.ones_like(block.attn.sum(-1)))


def test_the_readme_counts_the_families():
    readme = (ROOT / "README.md").read_text()
    spec = importlib.util.spec_from_file_location("families", ROOT / "examples" / "families.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.counted(readme) == readme
    assert len(alti.FAMILIES) >= 40


def test_a_cache_is_refused():
    model = tiny.build("llama")
    batch = tiny.inputs(model, lengths=(9,))
    cache = model(**batch, use_cache=True).past_key_values
    with pytest.raises(
        alti.UnsupportedModelError, match="attends from 9 to 18 tokens: pass the whole text"
    ):
        alti.check(model, {"input_ids": batch["input_ids"], "past_key_values": cache})


def test_something_else_than_a_model_is_refused():
    with pytest.raises(alti.UnsupportedModelError, match="Linear is not a transformers model"):
        alti.check(torch.nn.Linear(2, 2), {})


@pytest.mark.parametrize("kernel", ["reference", "blocked", "numba"])
@pytest.mark.parametrize("family", ["gemma2", "granite"])
def test_attention_that_adds_nothing(family, kernel):
    """An ablated head projection: every token stays what it was."""
    config = {"residual_multiplier": 0.0} if family == "granite" else {}
    model = tiny.build(family, **config)
    if family == "gemma2":
        model.layers[1].self_attn.o_proj.weight.data.zero_()
    block = alti.trace(model, tiny.inputs(model, lengths=(6,)))[1]
    torch.testing.assert_close(
        alti.contributions(block, kernel=kernel), torch.eye(6, dtype=block.attn.dtype)[None]
    )
    torch.testing.assert_close(alti.norms(block), torch.eye(6, dtype=block.attn.dtype)[None])

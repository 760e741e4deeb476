"""Checks of a whole forward pass: masks mean the same, and nothing but attention mixes tokens."""

import json
from dataclasses import replace
from functools import wraps

import pytest
import torch
from torch import nn

import alti
from alti.methods import METHODS, Inputs, Target
from alti.read.exactness import halves
from alti.read.linear_view import require_complete

import tiny
from tiny import run

CLASSIFIER = "AutoModelForSequenceClassification"
SECOND_NORM = {"globenc", "alti_ln2"}


def four_dimensions(mask: torch.Tensor) -> torch.Tensor:
    return mask.bool()[:, None, None, :]


# Masks


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_a_boolean_mask_of_four_dimensions_means_the_same_when_read(family, implementation, dtype):
    model = tiny.build(family, dtype=getattr(torch, dtype))
    model.set_attn_implementation(implementation)
    batch = tiny.inputs(model)
    batch["attention_mask"] = four_dimensions(batch["attention_mask"])
    if family == "t5":
        batch.pop("decoder_attention_mask")
    walked = alti.walk(model, batch, lambda block: None).last_hidden_state
    with torch.no_grad():
        plain = model(**batch).last_hidden_state
    close = {"float64": 1e-6, "float32": 1e-4, "bfloat16": 0.1}[dtype]
    torch.testing.assert_close(walked, plain, rtol=close, atol=close)
    alti.check(model, batch)


def test_a_row_that_a_boolean_mask_shows_nothing_gets_nothing():
    model = tiny.build("bert", dtype=torch.float32)
    model.set_attn_implementation("sdpa")
    batch = tiny.inputs(model, lengths=(6,))
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 2, :] = False
    batch["attention_mask"] = mask
    blocks = alti.trace(model, batch)
    assert blocks[0].attn[0, :, 2].abs().max() == 0
    alti.check(model, batch)


def test_a_mask_that_is_read_as_something_else_is_caught(monkeypatch):
    model = tiny.build("bert", CLASSIFIER, dtype=torch.float32)
    model.set_attn_implementation("sdpa")
    batch = tiny.inputs(model)
    batch["attention_mask"] = four_dimensions(batch["attention_mask"])
    monkeypatch.setattr("alti.read.attention_hook.meant", lambda mask, *_: (mask, None))
    with pytest.raises(
        alti.DecompositionError, match=r"gives another output than the untouched one, by \d"
    ):
        alti.check(model, batch)


@pytest.mark.parametrize("method", ["alti", "linear", "absence"])
def test_explain_compares_with_the_untouched_model_once_for_each_kind_of_mask(method, monkeypatch):
    model = alti.Model(tiny.speaking("bert", CLASSIFIER), tiny.tokenizer())
    passes = []
    monkeypatch.setattr(
        "alti.methods.proofs.untouched",
        lambda *args, old=alti.methods.proofs.untouched: passes.append(1) or old(*args),
    )
    texts = ["a long film", "a long and clumsy film"]
    model.explain(texts[0], method=method)
    first = len(passes)
    assert first >= 1
    model.explain(texts[1], method=method)
    assert len(passes) == first  # the same kind of mask
    list(model.explain_all(texts, method=method))
    assert len(passes) == first + 1  # padding


def test_explain_refuses_a_model_whose_masks_are_read_as_something_else(monkeypatch):
    model = alti.Model(tiny.speaking("bert", CLASSIFIER, dtype=torch.float32), tiny.tokenizer())
    added = alti.read.attention_hook.added
    monkeypatch.setattr(
        "alti.read.attention_hook.added", lambda shown, dtype: added(torch.ones_like(shown), dtype)
    )
    assert model.explain("a long film").scores.sum() > 0  # nothing is masked
    with pytest.raises(
        alti.DecompositionError, match="gives another output than the untouched one"
    ):
        list(model.explain_all(["a long film", "a long and clumsy film"]))


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_float64_attention_beyond_float32_does_not_reach_padding(family):
    """Scores of 1e40 and more: the lowest number of float32 would not hide a key."""
    model = tiny.build(family)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "query" in name or "key" in name:
                weight.mul_(1e20)
    batch = tiny.inputs(model, lengths=(9, 4))
    for block in alti.trace(model, batch):
        assert block.attn[1, :, :4, 4:].abs().max() == 0


# Between the blocks


class ReadsItsNeighbour(nn.Module):
    """A feed-forward layer that looks at the position before."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x + 0.1 * x.roll(1, dims=1))


def replaced(output, x):
    return (x, *output[1:]) if isinstance(output, tuple) else x


def reversing(module, args, output):
    x = output[0] if isinstance(output, tuple) else output
    return replaced(output, x.flip(1))


def averaging(module, args, output):
    x = output[0] if isinstance(output, tuple) else output
    return replaced(output, 0.9 * x + 0.1 * x.mean(1, keepdim=True))


def throwing_away(module, args, kwargs, output):
    return replaced(output, args[0] if args else kwargs["hidden_states"])


def broken(how: str, family: str, head: str = "AutoModel", **config: object):
    model = tiny.build(family, head, **config)
    layers = [layer for _, layers in alti.read.modules.stacks_of(model) for layer in layers]
    if how == "neighbour":
        layer = layers[1]
        if family == "bert":
            layer.intermediate = ReadsItsNeighbour(layer.intermediate)
        else:
            layer.mlp = ReadsItsNeighbour(layer.mlp)
    elif how == "thrown away":
        layers[1].register_forward_hook(throwing_away, with_kwargs=True)
    elif how == "last thrown away":
        layers[-1].register_forward_hook(throwing_away, with_kwargs=True)
    elif how == "values":
        module = layers[1].attention.self.value if family == "bert" else layers[1].self_attn.v_proj
        module.register_forward_hook(averaging)
    else:
        layers[0].register_forward_hook({"reversed": reversing, "averaged": averaging}[how])
    return model


BROKEN = {
    "reversed": "what enters layer 1 at position",
    "averaged": "what enters layer 1 at position",
    "neighbour": "what enters layer 2 at position",
    "values": "the values of layer 1 at position",
    "thrown away": "what enters layer 2 does not depend on the attention of the layer before",
    "last thrown away": "what comes out of the last layer does not depend on",
}


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("length", [1, 2, 9])
def test_what_happens_between_blocks_is_checked(how, family, length):
    model = broken(how, family)
    batch = tiny.inputs(model, lengths=(length,))
    if length == 1 and "thrown" not in how:
        alti.check(model, batch)  # nothing to mix with
        return
    with pytest.raises(alti.DecompositionError, match=f"{family}: {BROKEN[how]}"):
        alti.check(model, batch)


def test_positions_that_only_two_far_texts_share_are_checked():
    """Any two positions: the last reads the first, and nothing else does."""
    model = tiny.build("gpt2")

    def copying(module, args, output):
        x = output[0] if isinstance(output, tuple) else output
        x = x.clone()
        x[:, -1] += 0.1 * x[:, 0]
        return replaced(output, x)

    model.h[0].register_forward_hook(copying)
    with pytest.raises(
        alti.DecompositionError,
        match="what enters layer 1 at position 16 depends on other positions",
    ):
        alti.check(model, tiny.inputs(model, lengths=(17,)))


def test_the_model_is_left_as_it_was_after_a_refusal():
    model = broken("averaged", "bert")
    batch = tiny.inputs(model)
    before = model(**batch).last_hidden_state
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    with pytest.raises(alti.DecompositionError):
        alti.check(model, batch)
    assert torch.equal(model(**batch).last_hidden_state, before)
    assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()] == hooks


@pytest.mark.parametrize("how", ["reversed", "neighbour", "thrown away"])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_method_answers_on_a_model_that_check_refuses(method, how):
    vocabulary = {"vocab_size": len(tiny.tokenizer()), "cls_token_id": 2, "sep_token_id": 3}
    model = alti.Model(broken(how, "bert", CLASSIFIER, **vocabulary), tiny.tokenizer())
    if method == "random":
        model.explain("a long film", method=method)
        return
    with pytest.raises(alti.DecompositionError):
        model.explain("a long film", method=method)


def test_a_hook_that_comes_later_is_seen():
    model = alti.Model(tiny.speaking("bert", CLASSIFIER), tiny.tokenizer())
    model.explain("a long film")
    handle = model.model.bert.encoder.layer[0].register_forward_hook(averaging)
    with pytest.raises(alti.DecompositionError, match="depends on other positions"):
        model.explain("a long film")
    handle.remove()
    model.explain("a long film")


def test_the_norm_of_the_sum_is_not_what_reads_it(monkeypatch):
    entry = alti.FAMILIES["bert"]
    site = replace(entry.stacks[0].sites[0], norm=None, then="attention.output.LayerNorm")
    monkeypatch.setitem(
        alti.FAMILIES, "bert", replace(entry, stacks=(replace(entry.stacks[0], sites=(site,)),))
    )
    model = tiny.build("bert")
    with pytest.raises(
        alti.DecompositionError,
        match=r"`then` in its entry of alti.FAMILIES names the norm of the sum",
    ):
        alti.check(model, tiny.inputs(model))
    with pytest.raises(alti.DecompositionError):
        alti.explain(tiny.speaking("bert", CLASSIFIER), tiny.tokenizer(), "a long film")


# Entries and heads


def test_a_pool_that_does_not_exist_is_refused(monkeypatch):
    with pytest.raises(
        alti.UsageError,
        match=r"pool = 'nonsense' is no position: give first, last, eos, mean, patches, first_and",
    ):
        replace(alti.FAMILIES["bert"], pool="nonsense")
    monkeypatch.setitem(
        alti.FAMILIES, "bert", replace(alti.FAMILIES["bert"], pool="config:hidden_act")
    )
    with pytest.raises(
        alti.UnsupportedModelError, match="hidden_act = 'gelu': alti reads cls, bos, first, last"
    ):
        alti.explain(tiny.speaking("bert", CLASSIFIER), tiny.tokenizer(), "a long film")


@pytest.mark.parametrize("frozen", [False, True])
def test_explain_refuses_a_classifier_that_reads_another_position(frozen, monkeypatch):
    monkeypatch.setitem(alti.FAMILIES, "bert", replace(alti.FAMILIES["bert"], pool="last"))
    model = tiny.speaking("bert", CLASSIFIER).requires_grad_(not frozen)
    with pytest.raises(
        alti.DecompositionError, match="the head reads position 0, not where pool = 'last'"
    ):
        alti.explain(model, tiny.tokenizer(), "a long film")


class Strange(nn.Module):
    """An activation that the linear view does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.abs().sqrt()


@pytest.mark.parametrize("method", ["linear", "absence", "alti_logit"])
def test_an_unknown_activation_is_refused(method):
    model = tiny.speaking("bert", CLASSIFIER)
    for layer in model.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = Strange()
    with pytest.raises(
        alti.DecompositionError, match=r"the linear view leaves .* of a prediction unexplained"
    ):
        alti.explain(model, tiny.tokenizer(), "a long film", method=method)
    alti.explain(model, tiny.tokenizer(), "a long film")  # blocks are exact


def test_rounding_is_named_as_a_reason_where_there_is_a_finer_dtype():
    for dtype in (torch.float32, torch.float64):
        model = tiny.speaking("bert", CLASSIFIER, dtype=dtype)
        with pytest.raises(alti.DecompositionError) as caught:
            require_complete(torch.tensor(1.5e-4), model)
        assert ("load it with dtype='float64'" in str(caught.value)) is (dtype == torch.float32)


# Numbers that are not finite


def poisoned(head: str = CLASSIFIER, value: float = float("nan")):
    model = tiny.speaking("bert", head, dtype=torch.float32)
    with torch.no_grad():
        model.classifier.bias[1] = value
    return alti.Model(model, tiny.tokenizer())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_prediction_that_is_not_finite_is_an_error(method, value):
    with pytest.raises(alti.AltiError, match="not finite"):
        poisoned(value=value).explain("a long film", method=method)


def test_scores_that_are_not_finite_are_an_error(monkeypatch):
    model = alti.Model(tiny.speaking("bert", CLASSIFIER), tiny.tokenizer())
    real = METHODS["gradient"]

    def wrong(*args, **options):
        scores = real(*args, **options)
        return replace(scores, tokens=scores.tokens * float("nan"))

    monkeypatch.setitem(METHODS, "gradient", replace(real, function=wraps(real.function)(wrong)))
    with pytest.raises(alti.AltiError, match="gradient gives scores that are not finite"):
        model.explain("a long film", method="gradient")


def test_results_are_standard_json():
    model = alti.Model(tiny.speaking("bert", CLASSIFIER), tiny.tokenizer())
    for method in METHODS:
        options = {"steps": 4} if method == "integrated_gradients" else {}
        json.dumps(
            model.explain("a long film", method=method, **options).to_dict(), allow_nan=False
        )


def test_random_costs_one_plain_pass():
    model = alti.Model(tiny.speaking("bert", CLASSIFIER), tiny.tokenizer())
    passes = []
    model.model.register_forward_pre_hook(lambda *_: passes.append(1))
    model.explain("a long film", method="random")
    assert len(passes) == 1


def test_inputs_padded_on_the_left_are_proved_on_real_tokens():
    model = tiny.build("bert", CLASSIFIER)
    batch = tiny.inputs(model, side="left", lengths=(3, 20))
    inputs = Inputs(batch, special=batch["attention_mask"] == 0)
    scores = run("alti", model, inputs, Target(position=torch.tensor([19, 19])))
    assert torch.isfinite(scores.tokens).all()


# What proofs remember


def test_a_text_of_one_token_proves_nothing_about_longer_ones():
    model = tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe")
    model.transformer.h[0].mlp.register_forward_hook(lambda module, args, x: x.roll(1, 1))
    explainer = alti.Model(model, tiny.tokenizer("bpe"))
    explainer.explain("a")
    with pytest.raises(alti.DecompositionError, match="depends on other positions"):
        explainer.explain("a long and clumsy film")


def test_hooks_of_all_modules_and_changed_entries_are_seen(monkeypatch):
    model = alti.Model(tiny.speaking("bert", CLASSIFIER), tiny.tokenizer())
    model.explain("a long film")
    inside = model.model.bert.encoder.layer[0].intermediate
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: output.roll(1, 1) if module is inside else None
    )
    try:
        with pytest.raises(alti.DecompositionError, match="depends on other positions"):
            model.explain("a long film")
    finally:
        handle.remove()
    model.explain("a long film")
    entry = alti.FAMILIES["bert"]
    site = replace(entry.stacks[0].sites[0], norm=None, then="attention.output.LayerNorm")
    wrong = replace(entry, stacks=(replace(entry.stacks[0], sites=(site,)),))
    monkeypatch.setitem(alti.FAMILIES, "bert", wrong)
    with pytest.raises(alti.DecompositionError):
        model.explain("a long film")


@pytest.mark.parametrize(
    ("family", "head", "kind", "path"),
    [
        ("bert", "AutoModelForMaskedLM", "wordpiece", "cls.predictions.transform"),
        ("bert", "AutoModelForTokenClassification", "wordpiece", "dropout"),
        ("gpt2", "AutoModelForCausalLM", "bpe", "transformer.ln_f"),
    ],
)
def test_a_head_that_reads_other_positions_is_refused(family, head, kind, path):
    model = tiny.speaking(family, head, kind)
    model.get_submodule(path).register_forward_hook(lambda module, args, x: x.flip(1))
    explainer = alti.Model(model, tiny.tokenizer(kind))
    with pytest.raises(alti.DecompositionError):
        explainer.explain("a long film", position=1)
    with pytest.raises(alti.DecompositionError):
        explainer.check()


def test_classifiers_whose_logits_add_up_to_nothing_are_read():
    """Two classes of a logistic regression, and a head that is zero."""
    for factor in (-1, 0):
        model = tiny.speaking("bert", CLASSIFIER)
        with torch.no_grad():
            model.classifier.weight[0] *= abs(factor)
            model.classifier.weight[1] = factor * model.classifier.weight[0]
        alti.explain(model, tiny.tokenizer(), "a long film")


@pytest.mark.parametrize("method", ["alti", "occlusion"])
def test_weights_made_in_inference_mode_are_read(method):
    with torch.inference_mode():
        model = tiny.speaking("bert", CLASSIFIER)
    alti.explain(model, tiny.tokenizer(), "a long film", method=method)


@pytest.mark.parametrize(
    ("family", "path"), [("bert", "embeddings"), ("bert", "embeddings.LayerNorm"), ("gpt2", "wte")]
)
@pytest.mark.parametrize("how", [reversing, averaging])
def test_what_happens_before_the_first_layer_is_checked(how, family, path):
    model = tiny.build(family)
    model.get_submodule(path).register_forward_hook(how)
    with pytest.raises(alti.DecompositionError, match="what enters layer 0 at position"):
        alti.check(model, tiny.inputs(model))


def test_texts_of_a_batch_do_not_see_each_other():
    model = tiny.build("bert")
    model.encoder.layer[0].register_forward_hook(
        lambda module, args, output: replaced(
            output, output[0].roll(1, 0) if isinstance(output, tuple) else output.roll(1, 0)
        )
    )
    with pytest.raises(alti.DecompositionError, match="depends on other positions"):
        alti.check(model, tiny.inputs(model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "bert", "gpt_neox", "t5"])
def test_attention_that_adds_nothing_is_no_alarm(family, dtype):
    """Pruned attention, or blocks that were added and not trained yet."""
    model = tiny.build(family, dtype=torch.float32)
    paths = {site.out for stack in alti.FAMILIES[family].stacks for site in stack.sites}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.rpartition(".")[0].endswith(tuple(paths)):
                parameter.zero_()
    alti.check(model.to(dtype), tiny.inputs(model))


@pytest.mark.parametrize(
    ("positions", "runs"), [(0, 0), (1, 0), (2, 2), (16, 6), (63, 8), (128, 10)]
)
def test_every_position_is_changed_once_while_any_other_is_not(positions, runs):
    chosen = halves(positions)
    assert chosen.shape == (runs, positions)
    alone = (chosen[:, :, None] & ~chosen[:, None]).any(0)
    assert (alone | torch.eye(positions, dtype=torch.bool)).all()

"""One battery over methods for a prediction: batches, padding, one token, classes, dtypes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import alti
from alti.methods import Inputs, Target
from alti.methods.logits import contrast, kind_of, probabilities
from test_untouched import assert_untouched, snapshot

import tiny
from speed import mostly_slow
from tiny import run

METHODS = [name for name in alti.METHODS if not alti.METHODS[name].draws_maps]
FAMILIES = [
    "bert",
    "distilbert",
    "roberta",
    "mpnet",
    "deberta-v2",
    "modernbert",
    "gpt2",
    "bloom",
    "llama",
    "gemma2",
]
GRADIENTS = ("gradient", "input_x_gradient", "integrated_gradients")
FEW = {"integrated_gradients": {"steps": 4}, "contextcite": {"alpha": 1e-4}}


def built(family, dtype=torch.float64):
    head = (
        "AutoModelForCausalLM" if family in tiny.DECODERS else "AutoModelForSequenceClassification"
    )
    return tiny.build(family, head, dtype=dtype)


def as_inputs(batch):
    return Inputs(batch, special=~batch["attention_mask"].bool(), mask_id=4)


def explained(method, model, batch, index=None, **options):
    target = Target(index, batch["attention_mask"].sum(-1) - 1)
    return run(method, model, as_inputs(batch), target, **FEW.get(method, {}) | options)


battery = mostly_slow(
    ("method", "family"),
    [(method, family) for method in METHODS for family in FAMILIES],
    quick=lambda pair: pair[1] in ("bert", "gpt2"),
)


@battery
def test_a_padded_text_is_explained_as_if_alone(method, family):
    model = built(
        family, torch.float32 if family == "gemma2" else torch.float64
    )  # its own mask overflows in float64
    batch = tiny.inputs(
        model, lengths=(9, 6, 1) if family not in ("roberta", "mpnet") else (9, 6, 2)
    )
    together = explained(method, model, batch).tokens
    mask = batch["attention_mask"].bool()
    assert together.isfinite().all()
    assert (together[~mask] == 0).all()
    assert (together[0] != 0).any()
    for row, length in enumerate(mask.sum(-1).tolist()):
        single = {name: tensor[row : row + 1, :length] for name, tensor in batch.items()}
        alone = explained(method, model, single).tokens[0]
        torch.testing.assert_close(together[row, :length], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_half_precision(method):
    model = built("bert", torch.float32)
    exact = explained(method, model, tiny.inputs(model)).tokens
    found = explained(method, model.to(torch.bfloat16), tiny.inputs(model)).tokens
    assert found.dtype == torch.float32
    assert torch.corrcoef(torch.stack([exact.flatten(), found.flatten()]))[0, 1] > 0.97


@pytest.mark.parametrize("method", [m for m in METHODS if m != "random"])
def test_the_class_matters_and_the_default_is_the_predicted_one(method):
    model = built("bert")
    batch = tiny.inputs(model)
    predicted = model(**batch).logits.argmax(-1)
    default, same, other = (
        explained(method, model, batch, index).tokens for index in (None, predicted, 1 - predicted)
    )
    torch.testing.assert_close(default, same)
    if method == "absence" or method in ("linear", "alti_logit", "occlusion"):
        torch.testing.assert_close(
            other, -same
        )  # of two classes, one's reason is the other's counter-reason


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_left_as_it_was(method):
    model = built("bert", torch.float32)
    model.train()
    batch = tiny.inputs(model)
    flags = [module.training for module in model.modules()]
    assert all(flags)
    explained(method, model, batch)
    assert [module.training for module in model.modules()] == flags
    model.eval()
    before, again = snapshot(model, batch)
    explained(method, model, batch)
    assert_untouched(model, before, again)
    if method != "random":  # which never calls the model
        with pytest.raises(IndexError):  # while hooks are in place
            explained(method, model, {**batch, "input_ids": batch["input_ids"] + 10_000})
        assert_untouched(model, before, again)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "random"])
def test_a_model_without_a_head_is_refused(method):
    model = tiny.build("bert")
    with pytest.raises(alti.UnsupportedModelError, match="no head"):
        explained(method, model, tiny.inputs(model))


@pytest.mark.parametrize(
    ("method", "forward", "backward"),
    [
        ("gradient", 1, 1),
        ("input_x_gradient", 1, 1),
        ("linear", 1, 1),
        ("absence", 1, 1),
        ("alti_logit", 2, 1),
    ],
)
def test_what_a_method_costs(method, forward, backward):
    """In passes, once the model is proved; a backward pass costs about two forward ones."""
    model = built("bert")
    explained(method, model, tiny.inputs(model))
    passes = {"forward": 0, "backward": 0}

    def count(which):
        return lambda *_: passes.update({which: passes[which] + 1})

    handles = [
        model.register_forward_pre_hook(count("forward")),
        model.classifier.register_full_backward_hook(count("backward")),
    ]
    explained(method, model, tiny.inputs(model))
    for handle in handles:
        handle.remove()
    assert passes == {"forward": forward, "backward": backward}


def test_linear_and_its_remainder_make_up_the_contrast():
    model = built("bert")
    batch = tiny.inputs(model)
    scores = explained("linear", model, batch)
    logits = model(**batch).logits
    expected = contrast(logits, logits.argmax(-1), model.config)
    torch.testing.assert_close(scores.tokens.sum(-1) + scores.extra["remainder"], expected.detach())


def test_alti_logit_is_its_definition():
    from alti.read.linear_view import linear_view

    model = built("bert")
    batch = tiny.inputs(model, lengths=(7,))
    maps = [alti.contributions(block, kernel="reference") for block in alti.trace(model, batch)]
    view = linear_view(model, batch)
    logits = view.output.logits
    sites = [messages.mixed for messages in view.messages]
    slopes = torch.autograd.grad(contrast(logits, logits.argmax(-1), model.config).sum(), sites)
    expected, product = 0, torch.eye(7, dtype=torch.float64)[None]
    for layer, (messages, slope) in enumerate(zip(view.messages, slopes, strict=True)):
        expected = expected + (messages.effects(slope) @ product).sum(1)  # Σ_ij S_ij R_jk
        product = maps[layer] @ product
    torch.testing.assert_close(explained("alti_logit", model, batch).tokens, expected)


def test_alti_logit_equals_what_the_blocks_say():
    """S_ij from the neutral blocks: the gradient at a block's output times the message T_ij."""
    model = built("bert")
    batch = tiny.inputs(model, lengths=(6,))
    from alti.read.linear_view import linear_view

    view = linear_view(model, batch)
    block = alti.trace(model, batch)[-1]
    slope = torch.autograd.grad(view.output.logits[:, 0].sum(), view.messages[-1].mixed)[0]
    effects = view.messages[-1].effects(slope)[0]
    messages = alti.parts(block)[0] - torch.diag_embed(block.residual[0].T).permute(
        1, 2, 0
    )  # [T, S, D]
    reader = model.bert.encoder.layer[-1].intermediate
    kept = []
    handle = reader.register_forward_pre_hook(lambda module, args: kept.append(args[0]))
    try:
        output = linear_view(model, batch).output
    finally:
        handle.remove()
    at_output = torch.autograd.grad(output.logits[:, 0].sum(), kept[0])[0]
    torch.testing.assert_close(effects, torch.einsum("td,tsd->ts", at_output[0], messages))


@pytest.mark.parametrize("of", ["probability", "logit"])
def test_gradients_are_those_of_finite_differences(of):
    model = built("bert")
    batch = tiny.inputs(model, lengths=(5,))
    table = model.get_input_embeddings().weight
    slopes = explained("gradient", model, batch, at="word", of=of).vectors[0]
    values = []
    token = batch["input_ids"][0, 2]
    assert (batch["input_ids"][0] == token).sum() == 1  # else its embedding would move two places
    index = model(**batch).logits.argmax(-1)[0]
    for step in (-1e-6, 1e-6):
        with torch.no_grad():
            table[token, 3] += step
            logits = model(**batch).logits
            values.append((logits.softmax(-1) if of == "probability" else logits)[0, index])
            table[token, 3] -= step
    assert slopes[2, 3].abs() > 1e-4
    torch.testing.assert_close(slopes[2, 3], (values[1] - values[0]) / 2e-6, rtol=1e-5, atol=1e-8)


def test_integrated_gradients_add_up():
    model = built("bert")
    batch = tiny.inputs(model, lengths=(6, 4))
    found = explained("integrated_gradients", model, batch, aggregate="sum", steps=60)
    ids = torch.where(batch["attention_mask"].bool(), 4, batch["input_ids"])
    with torch.no_grad():
        both = [
            model(**batch | {"input_ids": x}).logits.softmax(-1) for x in (batch["input_ids"], ids)
        ]
    index = both[0].argmax(-1, keepdim=True)
    change = (both[0].gather(1, index) - both[1].gather(1, index))[:, 0]
    torch.testing.assert_close(found.tokens.sum(-1), change, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        found.extra["gap"], found.tokens.sum(-1) - change, rtol=1e-4, atol=1e-9
    )


@pytest.mark.parametrize("baseline", ["mask", "zero", "pad", "auto"])
def test_special_tokens_get_nothing_from_integrated_gradients(baseline):
    model = built("bert")
    batch = tiny.inputs(model, lengths=(6,))
    special = torch.zeros_like(batch["input_ids"]).bool()
    special[:, 0] = special[:, -1] = True
    target = Target(position=torch.tensor([0]))
    found = run(
        "integrated_gradients", model, Inputs(batch, special, 4), target, steps=3, baseline=baseline
    ).tokens
    assert (found[special] == 0).all()
    assert (found[~special] > 0).all()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gradient", {"aggregate": "l3"}, "one of l2, mean_abs, not 'l3'"),
        ("gradient", {"at": "output"}, "one of word, embedding"),
        ("input_x_gradient", {"of": "loss"}, "one of probability, logit"),
        ("integrated_gradients", {"steps": 0}, "1 or more"),
        ("integrated_gradients", {"baseline": "noise"}, "one of auto, mask, zero, pad"),
        ("occlusion", {"removal": "swap"}, "one of delete, mask"),
    ],
)
def test_wrong_options_are_said(method, options, message):
    model = built("bert")
    with pytest.raises(alti.UsageError, match=message):
        explained(method, model, tiny.inputs(model), **options)


def test_no_mask_token():
    model = built("gpt2")
    batch = tiny.inputs(model)
    inputs = Inputs(batch, ~batch["attention_mask"].bool(), mask_id=None)
    target = Target(position=batch["attention_mask"].sum(-1) - 1)
    for method, option in (
        ("occlusion", {"removal": "mask"}),
        ("integrated_gradients", {"baseline": "mask"}),
    ):
        with pytest.raises(alti.UsageError, match="no mask token"):
            run(method, model, inputs, target, **option)
    assert run("integrated_gradients", model, inputs, target, steps=2).tokens.isfinite().all()


@pytest.mark.parametrize("removal", ["delete", "mask"])
def test_occlusion_by_hand(removal):
    model = built("bert")
    batch = tiny.inputs(model, lengths=(4,))
    full = model(**batch).logits.softmax(-1)[0]
    index = full.argmax()
    found = explained("occlusion", model, batch, removal=removal).tokens[0]
    for k in range(4):
        ids = batch["input_ids"][0].tolist()
        ids = ids[:k] + ids[k + 1 :] if removal == "delete" else [*ids[:k], 4, *ids[k + 1 :]]
        left = model(input_ids=torch.tensor([ids])).logits.softmax(-1)[0]
        torch.testing.assert_close(found[k], full[index] - left[index])


def test_occlusion_of_a_language_model_finds_the_position_again():
    model = built("gpt2")
    ids = tiny.inputs(model, lengths=(6,))["input_ids"]
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    position = torch.tensor([3])
    found = run("occlusion", model, as_inputs(batch), Target(torch.tensor([7]), position)).tokens[0]
    full = model(**batch).logits.softmax(-1)[0, 3, 7]
    without = model(input_ids=ids[:, [0, 2, 3, 4, 5]]).logits.softmax(-1)[0, 2, 7]
    torch.testing.assert_close(found[1], full - without)
    assert found[3] == 0  # it is read from there
    assert (found[4:].abs() < 1e-12).all()  # what comes later is not seen


def test_random_is_the_same_for_the_same_text_and_seed():
    model = built("bert")
    batch = tiny.inputs(model)
    one, again, other = (explained("random", model, batch, seed=seed).tokens for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("problem", "classes", "kind"),
    [
        (None, 2, "softmax"),
        (None, 1, "value"),
        ("regression", 3, "value"),
        ("multi_label_classification", 3, "sigmoid"),
        ("single_label_classification", 1, "sigmoid"),
    ],
)
def test_what_logits_mean(problem, classes, kind):
    config = tiny.build("bert").config
    config.problem_type = problem
    logits = torch.randn(4, classes)
    index = torch.zeros(4, dtype=torch.long)
    assert kind_of(config, classes) == kind
    expected = {"softmax": logits.softmax(-1), "sigmoid": logits.sigmoid(), "value": logits}[kind]
    assert torch.equal(probabilities(logits, config), expected)
    alone = logits[:, 0] if kind != "softmax" else logits[:, 0] - logits[:, 1:].mean(-1)
    torch.testing.assert_close(contrast(logits, index, config), alone)


@pytest.mark.parametrize("method", ["alti", *METHODS])
def test_whatever_the_caller_is_in_the_middle_of(method):
    model = alti.Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer()
    )
    options = FEW.get(method, {})
    expected = model.explain("A clever film.", method=method, **options)
    around = (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16))
    for context in around:
        with context:
            found = model.explain("A clever film.", method=method, **options)
        assert found.scores.dtype == expected.scores.dtype
        torch.testing.assert_close(found.scores, expected.scores)


def test_methods_in_several_threads_do_not_disturb_each_other():
    model = alti.Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification").train(), tiny.tokenizer()
    )
    methods = ("linear", "absence", "alti", "gradient", "occlusion")
    expected = {method: model.explain(tiny.CORPUS[0], method=method).scores for method in methods}
    with ThreadPoolExecutor(5) as threads:
        calls = [
            (m, threads.submit(model.explain, tiny.CORPUS[0], method=m))
            for _ in range(6)
            for m in methods
        ]
        for method, call in calls:
            torch.testing.assert_close(call.result().scores, expected[method])
    assert model.model.config._attn_implementation == "sdpa"
    assert all(module.training for module in model.model.modules())


@pytest.mark.parametrize("activation", ["sigmoid", "xielu"])
def test_an_activation_that_the_linear_view_does_not_know_is_an_error(activation):
    model = tiny.build("bert", "AutoModelForSequenceClassification", hidden_act=activation)
    with pytest.raises(alti.DecompositionError, match="the linear view leaves"):
        explained("linear", model, tiny.inputs(model))


@pytest.mark.parametrize("method", ["occlusion", "integrated_gradients", "absence"])
def test_a_classifier_without_a_padding_token(method):
    network = tiny.speaking("gpt2", "AutoModelForSequenceClassification", "bpe", pad_token_id=None)
    found = alti.Model(network, tiny.tokenizer("bpe")).explain(
        "A clever film", method=method, **FEW.get(method, {})
    )
    assert found.scores.isfinite().all()


def test_positions_stay_where_they_are_in_the_baseline():
    """RoBERTa reads positions off the ids: a baseline of padding must not lose them."""
    model = built("roberta")
    batch = tiny.inputs(model, lengths=(6,))
    inputs = Inputs(
        batch,
        torch.zeros_like(batch["input_ids"]).bool(),
        mask_id=4,
        pad_id=model.config.pad_token_id,
    )
    from alti.methods.gradients import _slopes, _start

    vectors, _, _ = _slopes(
        model, inputs, Target(position=torch.tensor([[0]])), "embedding", "logit"
    )
    start = _start(model, inputs, vectors, "embedding", "pad")[0]
    assert torch.pdist(start).min() > 0.1


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("absence", {"value": "abc"}),
        ("absence", {"messages": None}),
        ("integrated_gradients", {"steps": 2.5}),
        ("integrated_gradients", {"baseline": ["mask"]}),
        ("alti", {"p": True}),
    ],
)
def test_options_of_the_wrong_kind(method, options):
    with pytest.raises(alti.UsageError, match=f"method {method} takes {next(iter(options))} as"):
        explained(method, built("bert"), tiny.inputs(built("bert")), **options)

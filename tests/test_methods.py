"""One battery over methods that draw maps of the layers: batches, padding, one token, no NaN."""

from functools import cache

import pytest
import torch

import alti
from alti.methods import Inputs, Target
from alti.methods.gradients import _start
from alti.methods.layerwise import layerwise
from test_families import POST_NORM

import tiny
from speed import mostly_slow, slow
from tiny import run

ENCODERS = ["bert", "distilbert", "albert", "mpnet", "deberta-v2", "modernbert"]
FAMILIES = [
    *ENCODERS,
    "gpt2",
    "opt",
    "gpt_neox",
    "bloom",
    "llama",
    "gemma3_text",
    "olmo2",
    "granite",
]
SECOND_NORM = ("alti_ln2", "globenc")
METHODS = [name for name in alti.METHODS if alti.METHODS[name].draws_maps]
PAIRS = [
    (method, family)
    for method in METHODS
    for family in FAMILIES
    if method not in SECOND_NORM or (family in POST_NORM and family != "opt")
]
battery = mostly_slow(
    ("method", "family"), PAIRS, quick=lambda pair: pair[1] in ("bert", "llama", "gemma3_text")
)


def as_inputs(batch) -> Inputs:
    return Inputs(batch, special=~batch["attention_mask"].bool())


def last(batch) -> Target:
    return Target(position=batch["attention_mask"].sum(-1) - 1)


def rows_sum_to_one(method: str) -> bool:
    return method != "globenc"


@battery
def test_shapes_and_sums(method, family):
    model = tiny.build(family)
    batch = tiny.inputs(model)
    scores = run(method, model, as_inputs(batch), last(batch))
    mask = batch["attention_mask"].bool()
    layers = 4 if family == "albert" else tiny.LAYERS
    assert scores.tokens.shape == (2, 9)
    assert scores.layers.shape == (layers, 2, 9, 9)
    assert scores.tokens.isfinite().all()
    assert (scores.tokens[~mask] == 0).all()
    assert (scores.layers[:, ~mask] == 0).all()
    assert (scores.layers.transpose(-1, -2)[:, ~mask] == 0).all()
    if rows_sum_to_one(method):
        torch.testing.assert_close(
            scores.layers.sum(-1), mask.double().expand(layers, 2, 9), rtol=0, atol=1e-6
        )
        torch.testing.assert_close(scores.tokens.sum(-1), torch.ones(2).double(), rtol=0, atol=1e-6)


@battery
def test_a_padded_text_is_explained_as_if_alone(method, family):
    model = tiny.build(family, dtype=torch.float32)
    batch = tiny.inputs(model, lengths=(9, 7, 1))
    together = run(method, model, as_inputs(batch), last(batch))
    for row, length in enumerate((9, 7, 1)):
        single = {name: tensor[row : row + 1, :length] for name, tensor in batch.items()}
        alone = run(method, model, as_inputs(single), last(single))
        torch.testing.assert_close(
            together.tokens[row, :length], alone.tokens[0], rtol=0, atol=1e-5
        )
        if rows_sum_to_one(method):
            maps = together.layers[:, row, :length, :length]
            torch.testing.assert_close(maps, alone.layers[:, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in SECOND_NORM])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_padding_on_the_left_changes_nothing(method, family):
    model = tiny.build(family, dtype=torch.float32)
    right, left = (
        tiny.inputs(model, lengths=(9, 9)),
        tiny.inputs(model, side="left", lengths=(9, 9)),
    )
    for batch, cut in ((right, slice(7)), (left, slice(2, None))):
        batch["input_ids"] = batch["input_ids"].clone()
        batch["attention_mask"] = torch.zeros_like(batch["attention_mask"])
        batch["attention_mask"][:, cut] = 1
        batch["position_ids"] = (batch["attention_mask"].cumsum(-1) - 1).clamp_min(0)
    left["input_ids"][:, 2:] = right["input_ids"][:, :7]
    found = [
        run(method, model, as_inputs(right), Target(position=torch.tensor([6, 6]))).tokens[:, :7],
        run(method, model, as_inputs(left), Target(position=torch.tensor([8, 8]))).tokens[:, 2:],
    ]
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision_is_computed_in_float32(method, dtype):
    model = tiny.build("bert", dtype=torch.float32)
    batch = tiny.inputs(model)
    exact = run(method, model, as_inputs(batch), last(batch)).tokens
    found = run(method, model.to(dtype), as_inputs(batch), last(batch)).tokens
    assert found.dtype == torch.float32
    if rows_sum_to_one(method):
        torch.testing.assert_close(found.sum(-1), torch.ones(2), rtol=0, atol=1e-5)
    torch.testing.assert_close(found, exact, rtol=0, atol=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_without_layers_the_scores_are_the_same(method):
    model = tiny.build("bert")
    batch = tiny.inputs(model)
    for target in (last(batch), Target(position=torch.tensor([0, 3])), Target()):
        full, lean = (
            run(method, model, as_inputs(batch), target, layers=layers) for layers in (True, False)
        )
        assert lean.layers is None
        scale = (
            1
            if rows_sum_to_one(method)
            else full.tokens.amax(-1, True) / lean.tokens.amax(-1, True)
        )
        torch.testing.assert_close(full.tokens, lean.tokens * scale)


@pytest.mark.parametrize("method", METHODS)
def test_the_mean_of_all_rows(method):
    model = tiny.build("bert")
    batch = tiny.inputs(model, lengths=(9,))
    mean = run(method, model, as_inputs(batch), Target()).tokens
    rows = [
        run(method, model, as_inputs(batch), Target(position=torch.tensor([i]))).tokens
        for i in range(9)
    ]
    if rows_sum_to_one(method):
        torch.testing.assert_close(mean, torch.stack(rows).mean(0))
    assert mean.shape == (1, 9)


def test_scores_are_the_row_of_the_rollout():
    model = tiny.build("bert")
    batch = tiny.inputs(model)
    for method in ("alti", "alti_ln2", "norms", "attention_rollout"):
        scores = run(method, model, as_inputs(batch), Target(position=torch.tensor([0, 3])))
        product = alti.rollout(scores.layers)
        torch.testing.assert_close(scores.tokens, torch.stack([product[0, 0], product[1, 3]]))
    raw = run("attention", model, as_inputs(batch), Target(position=torch.tensor([0, 3])))
    torch.testing.assert_close(raw.tokens[0], raw.layers[-1][0, 0])


def test_the_definitions_differ_from_each_other():
    model = tiny.build("bert")
    batch = tiny.inputs(model)
    found = [run(method, model, as_inputs(batch), last(batch)).tokens for method in METHODS]
    found.append(run("alti", model, as_inputs(batch), last(batch), p=2).tokens)
    for i, a in enumerate(found):
        assert not any(torch.allclose(a, b, atol=1e-3) for b in found[:i])


def test_every_method_says_what_it_does_and_takes():
    for method in alti.METHODS:
        assert alti.METHODS[method].summary.endswith(".")
    assert alti.METHODS["alti"].options == {"p": 1, "kernel": "auto"}


def test_unknown_names():
    model = tiny.build("bert")
    batch = tiny.inputs(model)
    with pytest.raises(
        alti.UsageError,
        match=r"method 'lime' does not exist: choose one of absence, alti, alti_ln2",
    ):
        run("lime", model, as_inputs(batch), Target())
    with pytest.raises(alti.UsageError, match="method alti has no option 'q': it takes p, kernel"):
        run("alti", model, as_inputs(batch), Target(), q=1)
    with pytest.raises(alti.UsageError, match="method attention has no option 'p': it takes none"):
        run("attention", model, as_inputs(batch), Target(), p=1)


def test_a_method_of_ones_own():
    @alti.method
    def first_token(model, inputs, target):
        """All to the first token."""
        scores = torch.zeros_like(inputs.mask, dtype=torch.float32)
        return alti.Scores(scores.index_fill(1, torch.tensor([0]), 1)[:, None])

    try:
        model = alti.Model(
            tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer()
        )
        found = model.explain("a clever film", method="first_token")
        assert found.scores.tolist()[:2] == [1, 0]
        assert found.label in ("LABEL_0", "LABEL_1")
        assert found.probability > 0.5
        assert found.layers is None
    finally:
        del alti.METHODS["first_token"]


HALF = (
    "A gorgeous, witty, seductive movie.",
    "The plot is a tedious mess, and nobody cares.",
    "It is not bad at all.",
)


@cache
def embedded(dtype: str) -> alti.Model:
    return alti.load(device="cpu", dtype=dtype)


@slow
@pytest.mark.parametrize("against", [None, "other"])
@pytest.mark.parametrize("method", ["gradient", "input_x_gradient", "integrated_gradients"])
def test_gradients_of_a_confident_model_survive_half_precision(method, against):
    """They are p (1 − p) times something, and a float16 ends at 6e-8."""
    options = {"steps": 10} if method == "integrated_gradients" else {}
    full, half = embedded("float32"), embedded("float16")
    for text in HALF:
        rival = None if against is None else 1 - full.explain(text).target
        one, other = (
            model.explain(text, method=method, against=rival, **options) for model in (full, half)
        )
        assert one.probability > 0.98
        torch.testing.assert_close(
            other.scores, one.scores, rtol=0, atol=0.02 * float(one.scores.max())
        )


def test_a_small_fall_of_a_probability_survives_half_precision():
    found = embedded("float16").explain(HALF[0], method="occlusion")
    assert found.probability > 0.999
    scores = found.scores[~found.special].abs()
    assert scores.max() < 2**-11  # the step of float16 below 1: a difference there would be 0
    assert (scores > 0).sum() > len(scores) / 2  # two logits may be the same number


@pytest.mark.parametrize("at", ["word", "embedding"])
def test_integrated_gradients_start_from_the_vector_that_the_model_gives_a_token(at):
    model = tiny.build(
        "gemma3_text", "AutoModelForCausalLM", dtype=torch.float32
    )  # scales its embeddings
    batch = tiny.inputs(model, lengths=(5,))
    inputs = Inputs(batch, special=torch.zeros(1, 5, dtype=torch.bool), pad_id=3)
    vectors = torch.zeros(1, 5, tiny.WIDTH)
    start = _start(model, inputs, vectors, at, "pad")
    words = model.get_input_embeddings()
    torch.testing.assert_close(start, words(torch.full((1, 5), 3)))
    assert not torch.allclose(start[0, 0], words.weight[3])


def test_without_layers_the_last_one_computes_only_the_rows_it_needs():
    model = tiny.build("bert")
    batch = tiny.inputs(model)
    drawn = []

    def draw(block):
        drawn.append(block.attn.shape[2])
        return alti.contributions(block)

    target = Target(position=torch.tensor([[0], [3]]))
    lean, whole = (
        layerwise(model, as_inputs(batch), target, draw, layers=layers) for layers in (False, True)
    )
    assert drawn == [9, 9, 1, 9, 9, 9]  # without, then with layers
    torch.testing.assert_close(lean.tokens, whole.tokens)


def test_which_methods_take_many_passes(monkeypatch):
    slow = {name for name, one in alti.METHODS.items() if one.many_passes}
    removing = {"occlusion", "leave_one_out", "contextcite", "surrogate"}
    assert slow == {"integrated_gradients", *removing}
    for name in ("slow", "quick"):
        monkeypatch.setitem(alti.METHODS, name, None)

    @alti.method(many_passes=True)
    def slow():
        """Slow."""

    @alti.method
    def quick():
        """Quick."""

    assert (slow, quick) == (alti.METHODS["slow"], alti.METHODS["quick"])
    assert slow.many_passes
    assert not quick.many_passes


@pytest.mark.parametrize("name", sorted(alti.METHODS))
def test_a_method_that_takes_many_passes_says_so(name):
    """Counted in texts that are read, for one text of nine tokens."""
    model = tiny.build("bert", "AutoModelForSequenceClassification")
    batch = tiny.inputs(model, lengths=(9,))
    passes = []
    model.bert.embeddings.register_forward_hook(lambda _, __, vectors: passes.append(len(vectors)))
    for _ in range(2):  # the first time, the model is proved too
        passes.clear()
        run(name, model, as_inputs(batch), Target(position=torch.tensor([0])))
    assert (sum(passes) > 4) == alti.METHODS[name].many_passes, passes

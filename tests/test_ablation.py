"""Texts without some tokens, and the methods that are made of them."""

import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

import alti
from alti.cli.console import late_bar
from alti.methods import Inputs, Target, ablation, surrogates
from alti.methods.ablation import values_one_by_one, values_without
from alti.methods.progress import report, watching
from alti.methods.surrogates import FLOOR, RIDGE, _design, _drawn, _fitted, _lasso
from test_untouched import assert_untouched, snapshot

import tiny
from speed import mostly_slow

EXACT = {"rtol": 1e-10, "atol": 1e-10}
NAMES = ("leave_one_out", "contextcite", "surrogate")
OVERFLOWING = ("gemma2", "vaultgemma")  # in float64
CAUSAL = [family for family in tiny.DECODERS if family not in OVERFLOWING]
HEADS = {
    "sequence": ("bert", "AutoModelForSequenceClassification"),
    "masked": ("bert", "AutoModelForMaskedLM"),
    "causal": ("gpt2", "AutoModelForCausalLM"),
}


def causal(family="gpt2", lengths=(12, 9), **config):
    """A model, a padded batch whose first token is special, and three predictions per text."""
    model = tiny.build(family, "AutoModelForCausalLM", **config)
    batch = tiny.inputs(model, lengths=lengths)
    special = ~batch["attention_mask"].bool()
    special[:, 0] = True
    position = torch.tensor([[length - 4, length - 3, length - 2] for length in lengths])
    index = batch["input_ids"].gather(1, position + 1)
    return model, Inputs(batch, special, causal=True), Target(index, position)


def of_kind(kind, lengths=(10, 7)):
    if kind == "causal":
        return causal(lengths=lengths)
    model = tiny.build(*HEADS[kind])
    batch = tiny.inputs(model, lengths=lengths)
    special = ~batch["attention_mask"].bool()
    special[:, 0] = True
    position = torch.full((len(lengths), 1), 4)  # which a classifier does not read
    if kind == "masked":
        position = torch.tensor([[3, 5]] * len(lengths))
    index = torch.ones_like(position)
    return model, Inputs(batch, special), Target(index, position)


def subsets(count, width, seed=0, share=0.5):
    draw = torch.rand(count, width, generator=torch.Generator().manual_seed(seed))
    return draw < share


def grouped(inputs, size=3):
    """The same with groups of neighbours; the first token and padding belong to none."""
    width = inputs.mask.shape[1]
    groups = (torch.arange(width) - 1).div(size, rounding_mode="floor").expand_as(inputs.special)
    return replace(inputs, groups=groups.masked_fill(inputs.special, -1))


def row_of(inputs, target, row):
    """One text of a batch alone, without padding."""
    length = int(inputs.mask[row].sum())
    tensors = {name: tensor[row : row + 1, :length] for name, tensor in inputs.tensors.items()}
    groups = None if inputs.groups is None else inputs.groups[row : row + 1, :length]
    alone = replace(
        inputs, tensors=tensors, special=inputs.special[row : row + 1, :length], groups=groups
    )
    return alone, target.changed(lambda tensor: tensor[row : row + 1])


# Texts without some tokens


def test_a_text_without_some_tokens_by_hand():
    model, inputs, target = causal()
    ids = inputs.tensors["input_ids"][0].tolist()
    gone = {2, 3, 8}  # 8 is the position of the first prediction: 7 is read
    removed = torch.tensor([[i in gone for i in range(12)]])
    left = torch.tensor([[token for i, token in enumerate(ids) if i not in gone]])
    logits = model(left).logits[0].log_softmax(-1)
    expected = [logits[place, index] for place, index in zip((5, 6, 7), ids[9:], strict=True)]
    for function in (values_without, values_one_by_one):
        found = function(model, inputs, target, 0, removed, "log_prob")
        torch.testing.assert_close(found[0], torch.stack(expected).detach())


@mostly_slow("family", CAUSAL, quick=tiny.FEW)
@pytest.mark.parametrize("first", [0, 1, 5], ids=["nothing shared", "one token", "five tokens"])
def test_together_is_as_one_by_one(family, first):
    model, inputs, target = causal(family)
    for row in (0, 1):
        removed = subsets(20, 12, seed=row)
        removed[:, :first] = False
        removed[0], removed[1], removed[2, first:] = False, removed[3], True
        removed[4] = torch.arange(12) != first  # one token is left
        found, expected = (
            each(model, inputs, target, row, removed, "log_prob")
            for each in (values_without, values_one_by_one)
        )
        rounded = family in (*tiny.FLOAT32_SCORES, *tiny.FLOAT32_ROUTERS)
        limits = {"rtol": 1e-6, "atol": 1e-6} if rounded else EXACT
        torch.testing.assert_close(found, expected, **limits)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("of", ["logit", "log_prob", "probability"])
def test_every_kind_of_model_in_batches_of_every_size(kind, of, monkeypatch):
    model, inputs, target = of_kind(kind)
    removed = subsets(9, 10, share=0.4)
    expected = values_one_by_one(model, inputs, target, 0, removed, of)
    for at_once, tokens in ((64, 16_384), (4, 16_384), (64, 15), (1, 1)):
        monkeypatch.setattr(ablation, "AT_ONCE", at_once)
        monkeypatch.setattr(ablation, "TOKENS", tokens)
        monkeypatch.setattr(ablation, "SMALL", tokens % 5)
        found = values_without(model, inputs, target, 0, removed, of)
        torch.testing.assert_close(found, expected, **EXACT)


@pytest.mark.parametrize("kind", HEADS)
def test_a_text_of_which_nothing_is_left(kind):
    model, inputs, target = of_kind(kind)
    removed = torch.ones(2, 10, dtype=torch.bool)
    removed[1, -1] = False
    found = values_without(model, inputs, target, 0, removed, "log_prob")
    empty = model(torch.full((1, 1), inputs.pad_id), attention_mask=torch.ones(1, 1)).logits
    expected = empty.reshape(-1).log_softmax(-1)[target.index[0]].detach()
    torch.testing.assert_close(found[0], expected, **EXACT)
    if kind == "causal":  # what is left comes behind all predictions
        torch.testing.assert_close(found[1], expected, **EXACT)


def test_what_texts_share_is_read_once():
    model, inputs, target = causal()
    read = []
    model.transformer.wte.register_forward_hook(lambda _, __, x: read.append(tuple(x.shape[:2])))
    removed = torch.zeros(3, 12, dtype=torch.bool)
    removed[torch.arange(3), torch.tensor([5, 6, 7])] = True
    values_without(model, inputs, target, 0, removed, "log_prob")
    assert read == [(1, 5), (3, 5)]  # the first 5; then each without one token
    read.clear()
    values_without(model, inputs, target, 0, removed[[0, 0, 0]], "log_prob")
    assert read == [(1, 10)]  # the same text once, and whole: nothing would be saved


def test_a_start_that_saves_less_than_a_text_is_read_with_each():
    model, inputs, target = causal()
    read = []
    model.transformer.wte.register_forward_hook(lambda _, __, x: read.append(tuple(x.shape[:2])))
    for share, expected in ((4, [(3, 10)]), (5, [(1, 5), (3, 5)])):  # 12 tokens, or 15, of 12
        removed = torch.zeros(3, 12, dtype=torch.bool)
        removed[torch.arange(3), share + torch.arange(3)] = True
        values_without(model, inputs, target, 0, removed, "log_prob")
        assert read == expected
        read.clear()


def test_texts_that_share_more_go_together(monkeypatch):
    model, inputs, target = causal()
    read = []
    model.transformer.wte.register_forward_hook(lambda _, __, x: read.append(tuple(x.shape[:2])))
    removed = torch.eye(12, dtype=torch.bool)[1:9]
    monkeypatch.setattr(ablation, "SMALL", 0)
    values_without(model, inputs, target, 0, removed, "log_prob")
    assert read == [(1, 3), (6, 7), (2, 9)]  # not (8, 9)


def test_a_batch_has_so_many_tokens_at_most(monkeypatch):
    model, inputs, target = causal()
    read = []
    model.transformer.wte.register_forward_hook(lambda _, __, x: read.append(len(x)))
    monkeypatch.setattr(ablation, "TOKENS", 25)
    values_without(model, inputs, target, 0, torch.eye(12, dtype=torch.bool)[:5], "log_prob")
    assert read == [2, 2, 1]  # texts of ten tokens


def test_logits_are_computed_where_they_are_read():
    model, inputs, target = causal()
    read = []
    model.lm_head.register_forward_hook(lambda _, __, x: read.append(tuple(x.shape[:2])))
    removed = torch.zeros(3, 12, dtype=torch.bool)
    removed[:, 5], removed[1, 6], removed[2, 7] = True, True, True
    values_without(model, inputs, target, 0, removed, "log_prob")
    assert read == [(1, 1), (3, 4)]  # the start; three positions, one further on in one text


def test_predictions_that_are_not_real_take_no_shared_start_away():
    model, inputs, target = causal()
    target = replace(target, real=torch.tensor([[True, True, False]] * 2))
    target.position[:, 2] = 0
    read = []
    model.transformer.wte.register_forward_hook(lambda _, __, x: read.append(tuple(x.shape[:2])))
    removed = torch.zeros(3, 12, dtype=torch.bool)
    removed[:, 5], removed[1, 6], removed[2, 7] = True, True, True
    values_without(model, inputs, target, 0, removed, "log_prob")
    assert read == [(1, 5), (3, 4)]  # nothing behind the last that is real


def test_dropout_is_off():
    model, inputs, target = causal(resid_pdrop=0.5)
    removed = subsets(4, 12)
    expected = values_without(model, inputs, target, 0, removed, "log_prob")
    model.train()
    for each in (values_without, values_one_by_one):
        found = each(model, inputs, target, 0, removed, "log_prob")
        torch.testing.assert_close(found, expected, **EXACT)
    assert model.training
    assert not found.requires_grad


def test_a_model_without_padding_takes_one_text_at_a_time():
    model = tiny.build("gpt2", "AutoModelForSequenceClassification")
    batch = tiny.inputs(model, lengths=(8,))
    model.config.pad_token_id = None
    inputs = Inputs(batch, ~batch["attention_mask"].bool())
    found = surrogates.leave_one_out(model, inputs, Target(position=torch.tensor([[7]])))
    assert found.tokens.shape == (1, 1, 8)
    assert (found.tokens != 0).all()


def test_a_start_that_depends_on_the_length_is_not_shared():
    model, *_ = causal("llama")
    assert ablation._takes_cache(model)
    model.config.rope_parameters = {"rope_type": "longrope"}
    assert not ablation._takes_cache(model)


# One source left out


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("of", ["log_prob", "probability"])
def test_leaving_one_token_out_is_occlusion(kind, of):
    model, inputs, target = of_kind(kind)
    found, expected = (
        alti.methods.run(name, model, inputs, target, of=of).tokens
        for name in ("leave_one_out", "occlusion")
    )
    torch.testing.assert_close(found, expected, **EXACT)
    assert (found != 0).any(-1).all()


@pytest.mark.parametrize("kind", HEADS)
def test_leaving_one_group_out_by_hand(kind):
    model, inputs, target = of_kind(kind)
    inputs = grouped(inputs)
    found = alti.methods.run("leave_one_out", model, inputs, target).tokens
    assert found.shape == (2, target.position.shape[1], 3)
    none = torch.zeros(1, 10, dtype=torch.bool)
    for row in (0, 1):
        for k in range(target.position.shape[1]):
            one = target.changed(lambda x, k=k: x[:, k : k + 1])
            whole = values_one_by_one(model, inputs, one, row, none, "log_prob")
            for group in range(3):
                gone = inputs.groups[row] == group
                if kind == "masked":  # what the prediction is read from stays
                    gone = gone & (torch.arange(10) != one.position[row])
                left = values_one_by_one(model, inputs, one, row, gone[None], "log_prob")
                expected = (whole - left)[0, 0]
                torch.testing.assert_close(found[row, k, group], expected, **EXACT)


def test_a_group_behind_a_prediction_is_nothing_to_it():
    model, inputs, target = causal(lengths=(12,))
    inputs = grouped(inputs, 4)  # 1 to 4, 5 to 8, 9 to 11
    target = Target(torch.tensor([[7, 7, 7]]), torch.tensor([[3, 6, 10]]))
    for name in NAMES:
        found = alti.methods.run(name, model, inputs, target).tokens[0]
        assert (found != 0).tolist() == [[True, False, False], [True, True, False], [True] * 3]


# All three


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("by", ["tokens", "groups"])
def test_a_text_in_a_batch_is_as_alone(name, kind, by):
    model, inputs, target = of_kind(kind)
    if by == "groups":
        inputs = grouped(inputs)
    together = alti.methods.run(name, model, inputs, target)
    for row in (0, 1):
        alone = alti.methods.run(name, model, *row_of(inputs, target, row))
        width = alone.tokens.shape[-1]
        torch.testing.assert_close(together.tokens[row, :, :width], alone.tokens[0], **EXACT)
        assert (together.tokens[row, :, width:] == 0).all()
        for key, values in alone.extra.items():
            torch.testing.assert_close(together.extra[key][row], values[0], **EXACT)
    assert (together.tokens[0] != 0).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["masked", "causal"])
def test_predictions_that_are_not_real_do_not_count(name, kind):
    model, inputs, target = of_kind(kind)
    for total in (False, True):
        few = target.changed(lambda x: x[:, :1])
        real = torch.zeros_like(target.index, dtype=torch.bool)
        real[:, 0] = True
        many = replace(target, total=total, real=real)
        if kind == "causal":  # padding of positions
            many.position[:, 1:] = 0
        found = alti.methods.run(name, model, inputs, many)
        expected = alti.methods.run(name, model, inputs, few)
        torch.testing.assert_close(found.tokens[:, :1], expected.tokens, **EXACT)
        assert (found.tokens[:, 1:] == 0).all()
        for key, values in expected.extra.items():
            torch.testing.assert_close(found.extra[key][:, :1], values, **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_a_total_explains_the_sum(name, monkeypatch):
    model, inputs, target = causal()
    inputs = grouped(inputs)
    found = alti.methods.run(name, model, inputs, replace(target, total=True)).tokens
    assert found.shape == (2, 1, 4)
    rows = alti.methods.run(name, model, inputs, target).tokens
    if name == "leave_one_out":
        torch.testing.assert_close(found, rows.sum(1, keepdim=True), **EXACT)
    else:
        assert (found - rows.sum(1, keepdim=True)).abs().max() > 1e-6


def test_a_total_of_a_model_that_sees_both_sides_is_a_sum():
    model, inputs, target = of_kind("masked")
    found = alti.methods.run("contextcite", model, inputs, replace(target, total=True))
    rows = alti.methods.run("contextcite", model, inputs, target)
    torch.testing.assert_close(found.tokens, rows.tokens.sum(1, keepdim=True))
    intercepts = rows.extra["intercept"].sum(1, keepdim=True)
    torch.testing.assert_close(found.extra["intercept"], intercepts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", HEADS)
def test_one_source_and_none(name, kind):
    model, inputs, target = of_kind(kind)
    one = torch.full_like(inputs.tensors["input_ids"], -1)
    one[0, 2] = 0  # the second text has no source
    found = alti.methods.run(name, model, replace(inputs, groups=one), target).tokens
    assert found.shape[-1] == 1
    assert (found[0] != 0).all()
    assert (found[1] == 0).all()
    nothing = replace(inputs, special=torch.ones_like(inputs.special))
    found = alti.methods.run(name, model, nothing, target).tokens
    assert (found == 0).all()
    assert found.shape[-1] == 10


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", HEADS)
def test_a_text_that_can_go_altogether(name, kind):
    model, inputs, target = of_kind(kind)
    inputs = replace(inputs, groups=inputs.mask.long() - 1)  # one group of all tokens
    options = {"alpha": 1e-6} if name == "contextcite" else {}
    found = alti.methods.run(name, model, inputs, target, **options).tokens
    assert found.isfinite().all()
    assert (found != 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_left_as_it_was(name):
    model, inputs, target = causal("llama")
    model.train()
    alti.methods.run(name, model, inputs, target)
    assert all(module.training for module in model.modules())
    model.eval()
    before, again = snapshot(model, inputs.tensors)
    alti.methods.run(name, model, inputs, target)
    assert_untouched(model, before, again)
    assert all(parameter.grad is None for parameter in model.parameters())


# ContextCite


def lasso_by_hand(columns, y, alpha, rounds=200):
    """Coordinate descent on standardised columns, in their own units, and the intercept."""
    mean, scale = columns.mean(0), columns.std(0, unbiased=False)
    scale = scale.where(scale > 0, 1)
    x, rest, n = (columns - mean) / scale, y - y.mean(), len(y)
    w = torch.zeros(x.shape[1], dtype=x.dtype)
    for _ in range(rounds):
        for j in range(len(w)):
            pull = x[:, j] @ (rest - x @ w + x[:, j] * w[j]) / n
            size = (x[:, j] @ x[:, j] / n).clamp_min(1e-30)
            w[j] = pull.sign() * (pull.abs() - alpha).clamp_min(0) / size
    return w / scale, y.mean() - (mean / scale) @ w


@pytest.mark.parametrize("total", [False, True])
def test_contextcite_by_hand(total):
    model, inputs, target = causal(lengths=(12,))
    inputs = grouped(inputs)
    options = {"ablations": 20, "alpha": 0.05, "keep": 0.4, "seed": 3}
    asked = replace(target, total=total)
    found = alti.methods.run("contextcite", model, inputs, asked, **options)
    kept = _drawn(4, 20, 0.4, 3)
    removed = torch.stack([~row[inputs.groups[0]] & (inputs.groups[0] >= 0) for row in kept])
    values = values_one_by_one(model, inputs, target, 0, removed, "log_prob")
    larger = 3 if total else 1  # the penalty is on the mean of the predictions
    values = values.mean(1, keepdim=True) if total else values
    for k, own in enumerate(values.T):
        seen = 4 if total or k == 2 else 3  # groups: the last begins at 10
        weights, intercept = lasso_by_hand(kept[:, :seen].double(), own, 0.05)
        scores = found.tokens[0, k]
        torch.testing.assert_close(scores[:seen], larger * weights, rtol=1e-6, atol=1e-8)
        assert (scores[seen:] == 0).all()
        assert found.extra["intercept"][0, k] == pytest.approx(float(larger * intercept))


def test_contextcite_finds_a_linear_model():
    truth = torch.tensor([3.0, -2.0, 0.0, 0.5, 1.0], dtype=torch.float64)
    kept = _drawn(5, 64, 0.5, 0)
    weights, intercept = _lasso(kept, kept.double() @ truth + 7, alpha=1e-6)
    torch.testing.assert_close(weights, truth, rtol=0, atol=1e-4)
    assert intercept == pytest.approx(7, abs=1e-4)
    sparse, _ = _lasso(kept, kept.double() @ truth, alpha=0.7)
    assert (sparse != 0).tolist() == [True, True, False, False, False]


def test_contextcite_and_columns_that_never_change():
    kept = torch.ones(8, 3, dtype=torch.bool)
    kept[:4, 1] = False
    weights, _ = _lasso(kept, kept[:, 1].double(), alpha=1e-3)
    assert weights[0] == weights[2] == 0
    assert weights[1] > 0.9


def test_contextcite_without_scikit_learn(monkeypatch):
    model, inputs, target = causal()
    for name in ("sklearn", "sklearn.linear_model", "sklearn.preprocessing"):
        monkeypatch.setitem(sys.modules, name, None)
    passes = []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    message = r"contextcite needs scikit-learn: pip install 'alti\[context\]'"
    with pytest.raises(alti.LoadError, match=message):
        surrogates.contextcite(model, inputs, target)
    assert not passes  # it is said before any work is done


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("contextcite", {"ablations": 0}, "ablations = 0 is not a number of texts"),
        ("surrogate", {"ablations": 0}, "ablations = 0 is not a number of texts"),
        ("contextcite", {"keep": 1.0}, "keep = 1.0 is no share"),
        ("contextcite", {"alpha": 0.0}, "alpha = 0.0 is not above 0"),
        ("surrogate", {"of": "probability"}, "of as one of logit, log_prob"),
    ],
)
def test_wrong_options_are_one_sentence(name, options, message):
    model, inputs, target = causal()
    with pytest.raises(alti.UsageError, match=message):
        alti.methods.run(name, model, inputs, target, **options)


# The surrogate


def surrogate_by_hand(kept, y, prior):
    """The definition, with s equations."""
    p = prior / prior.abs().sum()
    a, y = kept - kept.mean(0), y - y.mean()
    c = max(0.0, float((a @ p) @ y / ((a @ p) @ (a @ p))))
    sd = p.abs() + FLOOR * p.abs().mean()
    penalty = RIDGE * torch.diag(sd.mean() / sd)
    return c * p + torch.linalg.inv(a.T @ a + penalty) @ a.T @ (y - c * a @ p)


def test_the_fit_by_hand():
    draw = torch.Generator().manual_seed(0)
    for rows, sources in ((13, 5), (6, 20), (3, 1)):
        kept = torch.rand(rows, sources, generator=draw).round().double()
        kept[-1], kept[0] = 1, 0
        y, prior = (torch.randn(n, generator=draw).double() for n in (rows, sources))
        for sign in (1, -1):
            expected = surrogate_by_hand(kept, y, sign * prior)
            torch.testing.assert_close(_fitted(kept, y, sign * prior), expected)


def test_the_fit_without_a_prior_is_a_ridge_regression():
    kept, y = _drawn(4, 30, 0.5, 0).double(), torch.arange(30).double()
    a = kept - kept.mean(0)
    expected = torch.linalg.solve(a.T @ a + RIDGE * torch.eye(4), a.T @ (y - y.mean()))
    torch.testing.assert_close(_fitted(kept, y, torch.zeros(4).double()), expected)


def test_many_ablations_are_least_squares():
    truth = torch.tensor([3.0, -2.0, 0.0, 0.5], dtype=torch.float64)
    prior = torch.tensor([-1.0, 2.0, 1.0, 0.1], dtype=torch.float64)  # a wrong one
    gaps = []
    for count in (20, 200, 2_000):
        kept = _drawn(4, count, 0.5, 0).double()
        gaps.append(float((_fitted(kept, kept @ truth, prior) - truth).abs().max()))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.03


@pytest.mark.parametrize("sources", [6, 11, 30])
def test_the_design_by_hand(sources):
    candidates = _drawn(sources, 64, 0.5, 5)
    matrix = RIDGE * torch.eye(sources).double()
    left = (candidates.double() - 0.5).tolist()
    for half in _design(sources, 40, 5):
        signs = torch.tensor(left).double()
        gains = torch.einsum("is,st,it->i", signs, torch.linalg.inv(matrix), signs)
        own = half.double() - 0.5
        assert float(own @ torch.linalg.inv(matrix) @ own) == pytest.approx(float(gains.max()))
        matrix += own.outer(own)
        left.remove(own.tolist())  # each candidate is taken once
    drawn = candidates[:40].double() - 0.5
    assert torch.logdet(matrix) > torch.logdet(RIDGE * torch.eye(sources) + drawn.T @ drawn)
    assert len(_design(sources, 80, 0)) == 80


def test_what_is_drawn_of_a_source_depends_on_no_later_one():
    assert torch.equal(_drawn(9, 20, 0.3, 1)[:, :4], _drawn(4, 20, 0.3, 1))


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("name", ["consensus", "linear"])
def test_the_surrogate_by_hand(name, total):
    model, inputs, target = causal(lengths=(12,))
    inputs = grouped(inputs)
    asked = replace(target, total=total)
    options = {"ablations": 6, "seed": 2, "prior": name}
    found = alti.methods.run("surrogate", model, inputs, asked, **options).tokens[0]
    kept = torch.cat([_design(4, 6, 2), torch.ones(1, 4, dtype=torch.bool)])
    removed = torch.stack([~row[inputs.groups[0]] & (inputs.groups[0] >= 0) for row in kept])
    values = values_one_by_one(model, inputs, target, 0, removed, "log_prob")
    values = values.sum(1, keepdim=True) if total else values
    of = {"of": "log_prob"} if name == "linear" else {}
    scores = alti.methods.run(name, model, inputs, asked, **of).tokens[0]
    if name == "linear":  # scores of tokens
        members = [scores[:, inputs.groups[0] == group].sum(-1) for group in range(4)]
        scores = torch.stack(members, -1)
    for k, own in enumerate(values.T):
        seen = 4 if total or k == 2 else 3
        expected = surrogate_by_hand(kept[:, :seen].double(), own, scores[k, :seen])
        torch.testing.assert_close(found[k, :seen], expected, rtol=1e-8, atol=1e-10)
        assert (found[k, seen:] == 0).all()


@pytest.mark.parametrize(("prior", "passes"), [("linear", 1), ("consensus", 2)])
def test_what_a_surrogate_costs(prior, passes):
    model, inputs, target = causal(lengths=(12,))
    read = []
    model.transformer.wte.register_forward_hook(lambda _, __, x: read.append(len(x)))
    alti.methods.run("surrogate", model, inputs, target, prior=prior)  # with the proofs
    read.clear()
    surrogates.surrogate(model, inputs, target, ablations=9, prior=prior)
    assert sum(read) <= passes + 9  # the prior, the ablations


# Progress


@pytest.mark.parametrize("name", ["occlusion", *NAMES])
def test_methods_report_how_far_they_are(name, monkeypatch):
    monkeypatch.setattr(ablation, "AT_ONCE", 4)
    monkeypatch.setattr("alti.methods.occlusion.AT_ONCE", 4)
    model, inputs, target = causal(lengths=(12,))
    told = []
    with watching(lambda done, total: told.append((done, total))):
        alti.methods.run(name, model, inputs, target)
    texts = [said for said in told if said[1] is not None]  # others are of layers
    done, totals = zip(*texts, strict=True)
    assert list(done) == sorted(set(done))
    assert set(totals) == {done[-1]}
    assert len(texts) >= 3
    told.clear()
    report(1, 2)  # nobody watches
    assert not told


@pytest.mark.parametrize(("name", "shown"), [("leave_one_out", True), ("alti", False)])
def test_the_command_line_shows_how_far_a_method_is(name, shown, run, monkeypatch):
    opened, told = [], []

    @contextmanager
    def bar(unit):
        opened.append(unit)
        yield lambda done, total: told.append((done, total))

    monkeypatch.setattr("alti.cli.console.bar", bar)
    code, out, _ = run("explain", "a clever film", "--method", name)
    assert code == 0
    assert "clever" in out
    assert opened == ["shortened texts"] * shown
    assert told == [(3, 3)] * shown


def test_a_late_bar_is_open_while_something_is_done(monkeypatch):
    events = []

    @contextmanager
    def bar(unit):
        events.append("open")
        yield lambda done, total: events.append(done)
        events.append("closed")

    monkeypatch.setattr("alti.cli.console.bar", bar)
    with late_bar("things") as update:
        assert events == []
        for done in (1, 2, 1):
            update(done, 2)
    assert events == ["open", 1, 2, "closed", "open", 1, "closed"]

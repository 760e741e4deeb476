"""Dimming: the bias goes where it should, and scores are derivatives that add up to an ablation."""

import copy

import pytest
import torch

import alti
from alti import Inputs, Target, UsageError
from alti.methods import dimming as module
from alti.methods.dimming import _bias, brought_back, dimmed, slopes
from alti.model.model import Model
from alti.read.attention_bias import _Reader as Biased
from alti.read.attention_bias import with_bias
from alti.read.events import Reader

import tiny
from speed import mostly_slow

CLASSIFIER = "AutoModelForSequenceClassification"
CAUSAL = "AutoModelForCausalLM"
FAMILIES = [
    family for family in tiny.CONFIGS if family not in (*tiny.ENCODER_DECODERS, *tiny.IMAGES)
]
QUICKLY = (*tiny.FEW, "mpnet", "falcon", "gpt_oss")  # and attention of a module's own, and a sink


def head_of(family):
    return CAUSAL if family in tiny.DECODERS else CLASSIFIER


def batch(model, lengths=(9, 6), special=(0,)):
    """Texts with padding; the first token of each is special."""
    tensors = tiny.inputs(model, lengths=lengths)
    outside = ~tensors["attention_mask"].bool()
    outside[:, list(special)] = True
    return Inputs(tensors, outside, causal=model.config.model_type in tiny.DECODERS)


def target_of(inputs, model, k=1):
    if model.config.model_type not in tiny.DECODERS:
        return Target(index=torch.ones(len(inputs.special), 1, dtype=torch.long))
    last = inputs.mask.sum(1, keepdim=True) - 1
    position = torch.cat([last - i for i in range(k)], 1)
    return Target(index=torch.full_like(position, 3), position=position)


def levels(inputs, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shape = len(inputs.special), inputs.source_count
    return torch.rand(shape, generator=draw, dtype=torch.float64) * 0.8 + 0.1


@mostly_slow("family", FAMILIES, quick=QUICKLY)
def test_undimmed_is_the_model_itself(family):
    model = tiny.build(family, head_of(family))
    inputs = batch(model)
    with torch.no_grad():
        same = dimmed(model, inputs, inputs.sources_at(1.0)).logits
        real = model(**inputs.tensors).logits
    keep = inputs.mask if real.dim() == 3 else slice(None)
    limit = 1e-6 if family in tiny.ROUNDED else 1e-13
    torch.testing.assert_close(
        same[keep], real[keep], rtol=0, atol=limit * float(real[keep].abs().max())
    )


class Probabilities(Reader):
    """Keeps the attention of the first block."""

    def __init__(self, model):
        super().__init__(model)
        self.seen = []

    def hooks(self):
        for stack, layers in self.stacks:
            for layer in layers:
                yield self.at_start(layer, lambda x: None)
                for site in stack.sites:
                    if site.probs:
                        yield self.after(layer, site.probs, lambda call: self.keep(call.output))

    def keep(self, probs):
        self.seen.append(probs.detach())

    def after_attention(self, probs, value):
        self.keep(probs)


def _kept_probabilities(monkeypatch):
    """A list that the probabilities of every dimmed attention are added to."""
    kept = []
    seen, reweighed = Biased.after_attention, Biased._reweighed

    def after_attention(self, probs, value):
        kept.append(probs)
        seen(self, probs, value)

    def behind_the_softmax(self, call):
        kept.append(reweighed(self, call))
        return kept[-1]

    monkeypatch.setattr(Biased, "after_attention", after_attention)
    monkeypatch.setattr(Biased, "_reweighed", behind_the_softmax)
    return kept


@mostly_slow("family", FAMILIES, quick=QUICKLY)
def test_the_bias_comes_behind_scaling_caps_and_masks(family, monkeypatch):
    """In the first block, whose input is the same, probabilities are multiplied and divided."""
    model = tiny.build(family, head_of(family))
    inputs = batch(model)
    given = levels(inputs)
    plain = Probabilities(model)
    with torch.no_grad(), plain.listening():
        model(**inputs.tensors)
    kept = _kept_probabilities(monkeypatch)
    with torch.no_grad():
        dimmed(model, inputs, given)
    factor = _bias(inputs.sources, given.log()).exp()
    expected = plain.seen[0].double() * factor
    sink = 1 - plain.seen[0].double().sum(-1, keepdim=True)  # 0, but in gpt_oss
    expected = expected / (expected.sum(-1, keepdim=True) + sink)
    rows = inputs.mask[:, None, :, None].expand_as(expected)
    torch.testing.assert_close(kept[0].double()[rows], expected[rows], rtol=1e-5, atol=1e-7)


@mostly_slow("family", FAMILIES, quick=QUICKLY)
def test_a_score_is_a_derivative(family):
    model = tiny.build(family, head_of(family))
    inputs = batch(model)
    target = target_of(inputs, model, k=2)
    given = levels(inputs)
    _, found = slopes(model, inputs, target, given, "log_prob")
    step = 1e-3 if family in tiny.ROUNDED else 1e-5
    for source in (1, 4):
        shift = torch.zeros_like(given)
        shift[:, source] = step
        with torch.no_grad():
            high, low = (
                _log_prob(dimmed(model, inputs, given + sign * shift).logits, target)
                for sign in (1, -1)
            )
        numeric = (high - low) / (2 * step)
        limit = 2e-3 if family in tiny.ROUNDED else 1e-6
        torch.testing.assert_close(found[:, :, source], numeric, rtol=limit, atol=limit)


def _log_prob(logits, target):
    """Written a second time: log of the softmax, the class, the position."""
    if logits.dim() == 3:
        logits = torch.stack(
            [row[places] for row, places in zip(logits, target.position, strict=True)]
        )
    else:
        logits = logits[:, None]
    return logits.double().log_softmax(-1).gather(-1, target.index[..., None])[..., 0]


def soft(family):
    """A model whose attention is not near 0 or 1, so that 64 points follow the way exactly."""
    model = tiny.build(family, head_of(family))
    for name, weight in model.named_parameters():
        if (
            any(part in name for part in ("query", "key", "attn.q.", "c_attn", "relative"))
            and weight.dim() == 2
        ):
            weight.data *= 0.05
    return model


@pytest.mark.parametrize("family", ["bert", "gpt2", "deberta-v2", "mpnet"])
def test_scores_on_the_way_from_nothing_add_up_to_an_ablation(family):
    model = soft(family)
    inputs = batch(model)
    target = target_of(inputs, model)
    output = model(**inputs.tensors)
    way = list(module._levels(inputs, 0.1, 64, 0, 0))
    total = brought_back(model, inputs, target, output, way).sum(-1)
    hidden = _bias(inputs.sources, torch.full_like(levels(inputs), -torch.inf))
    with torch.no_grad():
        gone = with_bias(model, inputs.tensors, hidden).logits
    expected = _log_prob(output.logits, target) - _log_prob(gone, target)
    torch.testing.assert_close(total, expected.to(total), rtol=1e-6, atol=1e-8)


def test_nothing_is_a_mask_over_keys():
    """f(0) is the model whose tokens see special tokens and themselves alone."""
    model = tiny.build("bert", CLASSIFIER, attn_implementation="sdpa")
    inputs = batch(model, lengths=(7,))
    with torch.no_grad():
        gone = with_bias(
            model, inputs.tensors, _bias(inputs.sources, levels(inputs).log() - torch.inf)
        )
        seen = torch.eye(7).bool() | inputs.special
        masked = model(**{**inputs.tensors, "attention_mask": seen[None, None]})
    torch.testing.assert_close(gone.logits, masked.logits)


@pytest.mark.parametrize("family", ["bert", "llama", "gemma2", "deberta-v2"])
@pytest.mark.parametrize("options", [{}, {"points": 3}, {"draws": 3}])
def test_a_batch_is_its_texts(family, options):
    model = tiny.build(family, head_of(family))
    lengths = (9, 7, 8) if family == "gemma2" else (9, 1, 6)  # else padding sees no key
    inputs = batch(model, lengths=lengths)
    inputs.special[1, 0] = False
    together = alti.methods.METHODS["dimming"](model, inputs, target_of(inputs, model), **options)
    for row, length in enumerate(lengths):
        alone = Inputs(
            {name: x[row : row + 1, :length] for name, x in inputs.tensors.items()},
            inputs.special[row : row + 1, :length],
            causal=inputs.causal,
        )
        found = alti.methods.METHODS["dimming"](model, alone, target_of(alone, model), **options)
        torch.testing.assert_close(
            together.tokens[row, :, :length], found.tokens[0], rtol=1e-4, atol=1e-5
        )
        assert not together.tokens[row, :, length:].any()


def test_what_is_not_dimmed_has_no_score():
    model = tiny.build("gpt2", CAUSAL)
    inputs = batch(model, lengths=(8,), special=(0, 3))
    target = Target(position=torch.tensor([[5]]))
    found = alti.methods.METHODS["dimming"](model, inputs, target).tokens[0, 0]
    assert not found[[0, 3]].any()  # special
    assert not found[[5, 6, 7]].any()  # the token that is read sees itself as ever; later: unseen
    assert bool(found[[1, 2, 4]].all())


def test_groups_are_dimmed_as_one():
    model = tiny.build("gpt2", CAUSAL)
    inputs = batch(model, lengths=(8,))
    groups = torch.tensor([[-1, 0, 0, -1, 1, 1, 1, -1]])
    grouped = Inputs(inputs.tensors, inputs.special, causal=True, groups=groups)
    bias = _bias(grouped.sources, torch.tensor([[0.5, 0.25]]).log()).exp()[0, 0]
    expected = torch.ones(8, 8)
    for query in range(8):
        for key in range(8):
            group = int(groups[0, key])
            if group >= 0 and int(groups[0, query]) != group:
                expected[query, key] = (0.5, 0.25)[group]
    torch.testing.assert_close(bias, expected)
    found = alti.methods.METHODS["dimming"](model, grouped, target_of(grouped, model))
    assert found.tokens.shape == (1, 1, 2)


def test_draws_come_in_opposite_pairs_and_are_seeded():
    inputs = Inputs({}, torch.zeros(1, 40, dtype=torch.bool))
    first, second, third = (x for x, _ in module._levels(inputs, 0.05, 1, 3, 0))
    assert set(first.unique().tolist()) == set(torch.tensor([0.05, 0.5]).tolist())
    assert not bool((first == second).any())
    assert bool((first == third).any())
    again = next(iter(module._levels(inputs, 0.05, 1, 3, 0)))[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, next(iter(module._levels(inputs, 0.05, 1, 3, 1)))[0])
    shorter = Inputs({}, torch.zeros(1, 7, dtype=torch.bool))
    assert torch.equal(next(iter(module._levels(shorter, 0.05, 1, 3, 0)))[0], first[:, :7])


@pytest.mark.parametrize(
    "options",
    [{"strength": 0.0}, {"strength": 1.5}, {"points": 0}, {"draws": -1}, {"points": 2, "draws": 2}],
)
def test_wrong_options(options):
    model = Model(tiny.build("gpt2", CAUSAL), None)
    with pytest.raises(UsageError, match="give"):
        model.explain(ids=[5, 6, 7], method="dimming", **options)


@pytest.mark.parametrize("family", ["gpt2", "deberta-v2"])
def test_the_model_is_left_as_it_was(family, monkeypatch):
    model = tiny.build(family, head_of(family))
    before = copy.deepcopy(model.state_dict())
    inputs = batch(model)
    real = model(**inputs.tensors).logits
    alti.methods.METHODS["dimming"](model, inputs, target_of(inputs, model))

    def broken(*args):
        raise RuntimeError("broken")

    monkeypatch.setattr(module, "explained", broken)
    with pytest.raises(RuntimeError, match="broken"):
        slopes(model, inputs, target_of(inputs, model), inputs.sources_at(0.5), "logit")
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())
    assert torch.equal(model(**inputs.tensors).logits, real)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_bias_that_reaches_no_attention_is_refused(monkeypatch):
    model = tiny.build("gpt2", CAUSAL)
    inputs = batch(model)
    monkeypatch.setattr(Reader, "listening", _deaf)
    with pytest.raises(alti.UnsupportedModelError, match="no attention was seen"):
        with_bias(model, inputs.tensors, torch.zeros(2, 1, 9, 9))


def _deaf(self):
    from contextlib import nullcontext

    return nullcontext()

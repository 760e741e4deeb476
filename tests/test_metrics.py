"""Metrics by hand on three tokens, against their definitions and against published numbers."""

import inspect
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import alti
from alti.metrics import (
    METRICS,
    Faithfulness,
    OfSources,
    Plausibility,
    agreement,
    anisotropy,
    answer,
    aopc,
    aopc_bounds,
    average_precision,
    comprehensiveness,
    cosine,
    jaccard,
    mean_curve,
    metric,
    normalized_aopc,
    pairs,
    probability_drop,
    spearman,
    sufficiency,
    token_f1,
)
from alti.mix.contributions import lengths
from alti.mix.kernels.reference import parts
from test_mixing import random_block

from speed import mostly_slow

FAITHFULNESS = {name: measure for name, measure in METRICS.items() if measure.needs is None}
CLS, SEP, MASK = 101, 102, 103
WEIGHTS = {1: 0.5, 2: 0.2, 3: 0.1}  # what each of three tokens adds to the probability
IDS = [CLS, 1, 2, 3, SEP]
KEEP = [True, False, False, False, True]
BEST = [9.0, 3.0, 2.0, 1.0, 9.0]  # the highest scores are of tokens that are kept
WORST = [9.0, 1.0, 2.0, 3.0, 9.0]
THIRDS = {"bins": (1 / 3, 2 / 3)}  # one token, two tokens


def additive(inputs):
    """p = 0.1 + the weights of the tokens that are there."""
    assert all(ids[0] == CLS and ids[-1] == SEP for ids in inputs)
    return [0.1 + sum(WEIGHTS.get(token, 0.0) for token in ids) for ids in inputs]


def bumpy(inputs):
    """A probability that can rise: 1 and 2 matter only together, and 3 lowers it."""
    return [0.2 + 0.5 * ({1, 2} <= {*ids}) + 0.3 * (3 not in ids) * (1 in ids) for ids in inputs]


class Recorded:
    def __init__(self, predict):
        self.predict, self.calls = predict, []

    def __call__(self, inputs):
        self.calls.append(inputs)
        return self.predict(inputs)


def test_comprehensiveness_by_hand():  # p = .9; without the first .4, without the first two .2
    assert comprehensiveness(additive, IDS, KEEP, BEST, **THIRDS) == pytest.approx((0.5 + 0.7) / 3)
    assert comprehensiveness(additive, IDS, KEEP, WORST, **THIRDS) == pytest.approx((0.1 + 0.3) / 3)
    assert comprehensiveness(additive, IDS, KEEP, BEST) == pytest.approx(
        (4 * 0.5 + 0.7) / 6
    )  # ⌈3 · bin⌉ = 1 1 1 1 2


def test_sufficiency_by_hand():  # p = .9; the first alone .6, the first two .8
    assert sufficiency(additive, IDS, KEEP, BEST, **THIRDS) == pytest.approx((0.3 + 0.1) / 3)
    assert sufficiency(additive, IDS, KEEP, WORST, **THIRDS) == pytest.approx((0.7 + 0.5) / 3)
    assert sufficiency(additive, IDS, KEEP, BEST) == pytest.approx((4 * 0.3 + 0.1) / 6)


def test_probability_drop_by_hand():
    assert probability_drop(additive, IDS, KEEP, BEST) == pytest.approx([0.9, 0.4, 0.2, 0.1])
    assert probability_drop(additive, IDS, KEEP, WORST, steps=2) == pytest.approx([0.9, 0.8, 0.6])
    assert probability_drop(additive, [CLS, SEP], [True, True], [0, 0]) == pytest.approx([0.1])


def test_mean_of_curves_of_different_length():
    assert mean_curve([[1.0, 0.5], [0.8, 0.3, 0.1], [0.6]]) == (
        pytest.approx([0.8, 1.4 / 3, 0.4]),
        [3, 2, 1],
    )
    assert mean_curve([]) == ([], [])


def test_aopc_by_hand():
    assert aopc(additive, IDS, KEEP, BEST) == pytest.approx((0.5 + 0.7 + 0.8) / 3)
    assert aopc(additive, IDS, KEEP, WORST) == pytest.approx((0.1 + 0.3 + 0.8) / 3)


def test_normalized_aopc_by_hand():
    # bounds 1.2 / 3 and 2 / 3; the order 2 1 3 has (.2 + .7 + .8) / 3
    assert aopc_bounds(additive, IDS, KEEP) == pytest.approx((1.2 / 3, 2 / 3))
    assert normalized_aopc(additive, IDS, KEEP, BEST) == pytest.approx(1)
    assert normalized_aopc(additive, IDS, KEEP, WORST) == pytest.approx(0)
    assert normalized_aopc(additive, IDS, KEEP, [0, 2, 3, 1, 0]) == pytest.approx((1.7 - 1.2) / 0.8)


def test_the_envelope_is_a_running_minimum_or_maximum():
    # in the order 3 2 1: p = .7, without 3 it is 1, without 3 and 2 it is .5, without all .2
    assert probability_drop(bumpy, IDS, KEEP, WORST) == pytest.approx([0.7, 1, 0.5, 0.2])
    assert probability_drop(bumpy, IDS, KEEP, WORST, envelope=True) == pytest.approx(
        [0.7, 0.7, 0.5, 0.2]
    )
    assert comprehensiveness(bumpy, IDS, KEEP, WORST, **THIRDS) == pytest.approx((-0.3 + 0.2) / 3)
    assert comprehensiveness(bumpy, IDS, KEEP, WORST, **THIRDS, envelope=True) == pytest.approx(
        (0 + 0.2) / 3
    )
    # in the order 1 3 2: nothing .2, 1 alone .5, 1 and 3 .2
    assert sufficiency(bumpy, IDS, KEEP, [0, 3, 1, 2, 0], **THIRDS) == pytest.approx(
        (0.2 + 0.5) / 3
    )
    assert sufficiency(bumpy, IDS, KEEP, [0, 3, 1, 2, 0], **THIRDS, envelope=True) == pytest.approx(
        (0.2 + 0.2) / 3
    )


def test_the_envelope_does_not_depend_on_the_order_of_the_bins():
    for measure in (comprehensiveness, sufficiency):
        there, back = (
            measure(bumpy, IDS, KEEP, WORST, bins=b, envelope=True)
            for b in [(0.3, 0.6, 1), (1, 0.6, 0.3)]
        )
        assert there == pytest.approx(back)


def test_the_envelope_of_sufficiency_starts_with_no_token_at_all():
    def falling(inputs):
        return [
            1.0 - 0.1 * len(ids) for ids in inputs
        ]  # .5 as it is, .8 without any token, .7 with one

    assert sufficiency(falling, IDS, KEEP, BEST, bins=(1 / 3,), envelope=True) == pytest.approx(
        (0.5 - 0.8) / 2
    )
    assert sufficiency(falling, IDS, KEEP, BEST, bins=(1 / 3,)) == pytest.approx((0.5 - 0.7) / 2)


@pytest.mark.parametrize("name", FAITHFULNESS)
def test_kept_tokens_stay_and_the_others_go_or_are_masked(name):
    deleted, masked = Recorded(additive), Recorded(additive)
    values = (
        FAITHFULNESS[name](deleted, IDS, KEEP, BEST),
        FAITHFULNESS[name](masked, IDS, KEEP, BEST, mask_id=MASK),
    )
    assert values[0] == pytest.approx(values[1])  # to this model a mask is nothing
    questions = [[q for call in predict.calls for q in call] for predict in (deleted, masked)]
    assert [[t for t in q if t != MASK] for q in questions[1]] == questions[0]
    assert all(len(q) == len(IDS) and q[0] == CLS and q[-1] == SEP for q in questions[1])
    assert min(map(len, questions[0])) < len(IDS)


@pytest.mark.parametrize("name", FAITHFULNESS)
def test_no_token_to_remove(name):
    value = FAITHFULNESS[name](additive, [CLS, SEP], [True, True], [0.3, 0.7])
    assert value == pytest.approx([0.1]) if name == "probability_drop" else math.isnan(value)


def test_ties_are_broken_by_position():
    predict = Recorded(additive)
    probability_drop(predict, IDS, KEEP, [0.0] * 5)
    assert predict.calls == [[IDS, [CLS, 2, 3, SEP], [CLS, 3, SEP], [CLS, SEP]]]
    assert spearman([i % 2 for i in range(500)], [1000 * (i % 2) - i for i in range(500)]) == 1
    assert jaccard([1, 1, 1, 1], [5, 1, 1, 1]) == 1
    assert jaccard([1, 1, 1, 1], [1, 1, 1, 5]) == 0
    assert spearman([1, 1, 1], [3, 2, 1]) == 1


@pytest.mark.parametrize(
    ("n", "share", "k"), [(100, 0.05, 5), (30, 0.1, 3), (31, 0.1, 4), (7, 0.01, 1), (300, 0.07, 21)]
)
def test_shares_are_rounded_up_but_not_by_floating_point(n, share, k):
    lens = []
    comprehensiveness(
        lambda inputs: [lens.append(len(i)) or 0.5 for i in inputs],
        range(n),
        [False] * n,
        range(n),
        bins=[share],
    )
    assert lens == [n, n - k]


def test_scores_may_be_a_tensor_a_list_or_an_array():
    kinds = (
        BEST,
        torch.tensor(BEST, requires_grad=True),
        torch.tensor(BEST).bfloat16(),
        np.array(BEST, dtype="f4"),
    )
    assert (
        len({comprehensiveness(additive, IDS, torch.tensor(KEEP), scores) for scores in kinds}) == 1
    )


class Text:
    """Tokens of which each adds its own weight to the probability; every third is kept."""

    def __init__(self, seed, n=12):
        self.weights = np.random.default_rng(seed).uniform(-0.02, 0.06, n)
        self.ids, self.keep = [*range(n)], [i % 3 == 2 for i in range(n)]

    def __call__(self, inputs):
        return torch.tensor(
            [0.5 + sum(self.weights[i] for i in ids) for ids in inputs], dtype=torch.float64
        )


@pytest.mark.parametrize("seed", range(5))
def test_the_true_weights_are_best_and_their_reverse_is_worst(seed):
    text = Text(seed)
    args = text, text.ids, text.keep
    random = np.random.default_rng(seed + 100).normal(size=(20, 12))
    for better in (comprehensiveness, aopc, lambda *a: -sufficiency(*a)):
        values = [better(*args, scores) for scores in random]
        assert (
            better(*args, -text.weights) <= min(values) < max(values) <= better(*args, text.weights)
        )
    assert normalized_aopc(*args, text.weights) == pytest.approx(1)
    assert normalized_aopc(*args, -text.weights) == pytest.approx(0, abs=1e-12)
    assert 0.1 < np.mean([normalized_aopc(*args, scores) for scores in random]) < 0.9


def every_aopc(predict, ids, keep):
    """AOPC of every order there is."""
    free = [i for i in range(len(ids)) if not keep[i]]
    for order in itertools.permutations(free):
        yield aopc(
            predict,
            ids,
            keep,
            [order.index(i) * -1.0 if i in order else 0.0 for i in range(len(ids))],
        )


@pytest.mark.parametrize(("n", "beam"), [(4, 1), (5, 10)])
@pytest.mark.parametrize("seed", range(10))
def test_the_bounds_are_those_of_all_orders_for_few_tokens(seed, n, beam):
    """Random probabilities for every set of tokens: nothing a greedy search could follow."""
    table = {}
    rng = np.random.default_rng(seed)

    def predict(inputs):
        return [table.setdefault(tuple(ids), rng.uniform()) for ids in inputs]

    values = [*every_aopc(predict, range(n), [False] * n)]
    assert aopc_bounds(predict, range(n), [False] * n, beam=beam) == pytest.approx(
        (min(values), max(values))
    )


def test_a_narrow_beam_misses_orders_and_the_scores_own_order_moves_the_bounds():
    def trap(inputs):  # only after the tokens that change nothing at first does it pay
        return [
            1.0 if len(ids) > 3 else 0.0 if {*ids} <= {0, 1, 2} else 0.9 - 0.01 * len(ids)
            for ids in inputs
        ]

    args = trap, range(6), [False] * 6
    scores = [0, 1, 2, 3, 4, 5]
    assert aopc(*args, scores) > aopc_bounds(*args, beam=1)[1]
    assert normalized_aopc(*args, scores, beam=1) == 1


def test_bounds_that_are_equal_up_to_rounding_are_no_scale():
    assert math.isnan(normalized_aopc(lambda inputs: [0.7] * len(inputs), IDS, KEEP, BEST))
    noise = np.random.default_rng(0)
    assert math.isnan(
        normalized_aopc(lambda inputs: 0.7 + 1e-8 * noise.normal(size=len(inputs)), IDS, KEEP, BEST)
    )


def test_many_metrics_are_answered_together_and_each_question_is_asked_once():
    text = Text(0)
    cases = [
        (measure, scores)
        for measure in FAITHFULNESS.values()
        for scores in (text.weights, -text.weights, text.weights**2)
    ]
    together = Recorded(text)
    values = answer(
        (measure.ask(text.ids, text.keep, scores) for measure, scores in cases), together
    )
    assert values == [measure(text, text.ids, text.keep, scores) for measure, scores in cases]
    for call in together.calls:
        assert len({*map(tuple, call)}) == len(call)
    alone = Recorded(text)
    for measure, scores in cases:
        measure(alone, text.ids, text.keep, scores)
    assert (
        len(together.calls) == 1 + 1 + 8
    )  # the scores' own order, the whole text, eight tokens one by one
    assert sum(map(len, together.calls)) < sum(map(len, alone.calls)) / 3


def test_questions_about_different_targets():
    calls = []

    def predict(inputs, targets):
        calls.append(targets)
        return [
            p if target == "yes" else 1 - p
            for p, target in zip(additive(inputs), targets, strict=True)
        ]

    askings = [aopc.ask(IDS, KEEP, BEST) for _ in range(3)]
    yes, no, again = answer(askings, predict, ["yes", "no", "yes"])
    assert yes == again == -no == pytest.approx(2 / 3)
    assert calls == [["yes"] * 4 + ["no"] * 4]


def test_nothing_to_answer():
    assert answer([], None) == []
    assert math.isnan(comprehensiveness(None, [], [], []))  # the model is not even asked


def test_a_metric_of_ones_own(monkeypatch):
    monkeypatch.setattr("alti.metrics.registry.METRICS", {})

    @metric
    def first_token(ids, keep, scores, *, scale=1.0):
        """What the first token is worth."""
        full, left = yield [ids, ids[1:]]
        return scale * (full - left)

    assert {"first_token": first_token} == alti.metrics.registry.METRICS
    assert first_token.__name__ == "first_token"
    assert first_token.__doc__ == "What the first token is worth."
    assert list(inspect.signature(first_token).parameters) == [
        "predict",
        "ids",
        "keep",
        "scores",
        "scale",
    ]
    assert first_token(lambda inputs: [sum(ids) for ids in inputs], [5, 2], [], [], scale=2) == 10
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        first_token(additive, IDS, KEEP, BEST, size=3)


def test_a_metric_declares_its_properties(monkeypatch):
    monkeypatch.setattr("alti.metrics.registry.METRICS", {})

    @metric(better="lower", curve=True)
    def left(ids, keep, scores, *, steps=3, mask_id=None):
        """What is left.

        More about it.
        """
        return (yield [ids])

    @metric(needs="rationale")
    def overlap(scores, rationale, *, share=0.5):
        """How much is shared."""
        return share * sum(rationale)

    @metric
    def bare(ids, keep, scores):
        return (yield [ids])

    def declared(measure):
        return (
            measure.name,
            measure.better,
            measure.curve,
            measure.needs,
            measure.options,
            measure.summary,
        )

    assert declared(left) == ("left", "lower", True, None, {"steps": 3}, "What is left.")
    assert declared(overlap) == (
        "overlap",
        "higher",
        False,
        "rationale",
        {"share": 0.5},
        "How much is shared.",
    )
    assert declared(bare) == ("bare", "higher", False, None, {}, "")
    assert overlap([1, 2], [1, 1], share=2) == 4
    assert {"left": left, "overlap": overlap, "bare": bare} == alti.metrics.registry.METRICS
    with pytest.raises(alti.UsageError, match="better = 'more' does not exist"):
        metric(better="more")
    with pytest.raises(alti.UsageError, match="needs = 'time' does not exist"):
        metric(needs="time")


def test_the_table_holds_the_metrics_of_one_text():
    faithfulness = {
        "aopc",
        "comprehensiveness",
        "normalized_aopc",
        "probability_drop",
        "sufficiency",
    }
    plausibility = {"average_precision", "token_f1"}
    needs = {"top_k_drop": "removal", "top_share_lost": "removal", "lds": "subsets"}
    needs |= {"evidence": "evidence", "recall_at_k": "evidence"}
    kinds = {name: type(measure) for name, measure in METRICS.items()}
    assert kinds == {
        **dict.fromkeys(faithfulness, Faithfulness),
        **dict.fromkeys(plausibility, Plausibility),
        **{name: Faithfulness if need == "removal" else OfSources for name, need in needs.items()},
    }
    assert {name: measure.needs for name, measure in METRICS.items() if measure.needs} == {
        **dict.fromkeys(plausibility, "rationale"),
        **needs,
    }
    assert {name for name, measure in METRICS.items() if measure.better == "lower"} == {
        "probability_drop",
        "sufficiency",
    }
    assert [name for name, measure in METRICS.items() if measure.curve] == ["probability_drop"]
    assert alti.metrics.__all__ == sorted(
        alti.metrics.__all__, key=lambda name: (not name.isupper(), name)
    )


def test_wrong_arguments():
    wrong = {
        "5 ids, 5 keep and 2 scores are not of one text": lambda: aopc(additive, IDS, KEEP, [1, 2]),
        "a share of 5 of the tokens does not exist": lambda: sufficiency(
            additive, IDS, KEEP, BEST, bins=[5]
        ),
        "scores with nan have no ranking": lambda: aopc(
            additive, IDS, KEEP, [1, math.nan, 2, 3, 4]
        ),
        r"scores of shape \[1, 5\] are not a vector": lambda: aopc(
            additive, IDS, KEEP, torch.zeros(1, 5)
        ),
        "predict returned 1 values for 4 inputs": lambda: aopc(
            lambda inputs: [0.5], IDS, KEEP, BEST
        ),
        "beam = 0 searches nothing": lambda: normalized_aopc(additive, IDS, KEEP, BEST, beam=0),
        "steps = -1 is not a number of tokens": lambda: probability_drop(
            additive, IDS, KEEP, BEST, steps=-1
        ),
        "1 metrics and 2 targets": lambda: answer([aopc.ask(IDS, KEEP, BEST)], additive, [0, 1]),
        "2 and 3 scores are not of one text": lambda: spearman([1, 2], [1, 2, 3]),
        "2 scores and a rationale of 3 tokens": lambda: token_f1([1, 2], [1, 0, 0]),
        "attributions or predictions are missing": lambda: agreement([[[1, 2]], []]),
        r"vectors of shape \[3\] are not a list": lambda: cosine(torch.zeros(3)),
    }
    for message, call in wrong.items():
        with pytest.raises(alti.UsageError, match=message):
            call()


def test_jaccard_by_hand():
    a, b = [8, 7, 6, 5, 4, 3, 2, 1], [7, 1, 2, 3, 4, 5, 6, 8]
    assert jaccard(a, b) == 1 / 3  # {0, 1} and {7, 0}
    assert jaccard(a, b, share=0.5) == 1 / 7  # {0, 1, 2, 3} and {7, 0, 6, 5}
    assert jaccard(a[:5], b[:5]) == 1 / 3  # ⌈.25 · 5⌉ = 2: {0, 1} and {0, 4}
    assert jaccard([1], [2]) == 1
    assert math.isnan(jaccard([], []))


def test_spearman_by_hand():
    assert spearman([1, 2, 3], [10, 20, 90]) == 1
    assert spearman([1, 2, 3], [3, 2, 1]) == -1
    assert spearman([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert math.isnan(spearman([1], [2]))


def test_agreement_by_hand():
    a, b, c = [1, 2, 3], [3, 2, 1], [1, 3, 2]
    models = [
        [a, a, [7]],
        [a, b, [8]],
        [c, b, [9]],
    ]  # the text of one token has no rank correlation
    matrix = agreement(models)
    np.testing.assert_allclose(matrix, [[1, 0, -0.25], [0, 1, 0.75], [-0.25, 0.75, 1]])
    np.testing.assert_allclose(pairs(matrix), [0, -0.25, 0.75])
    matrix = agreement(models, predictions=[[0, 0, 0], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_allclose(pairs(matrix), [1, -1, np.nan])
    np.testing.assert_allclose(pairs(agreement(models, measure=jaccard)), [2 / 3, 1 / 3, 2 / 3])


MEDIANS = {  # over the 45 pairs of models: Spearman, Jaccard
    "alti": (0.913, 0.731),
    "globenc": (0.924, 0.772),
    "norms": (0.862, 0.702),
    "rollout": (0.833, 0.712),
    "gxi_mu": (0.803, 0.635),
    "grad_l2": (0.729, 0.539),
    "ig_mu": (0.724, 0.421),
    "gxi_l2": (0.663, 0.520),
    "ig_l2": (0.645, 0.385),
}


@mostly_slow("method", MEDIANS, quick=["rollout"])
def test_published_agreement_of_ten_models(shared, method):
    """Ten MultiBERTs on 1,000 SST-2 sentences: the authors' scores give the authors' matrices."""
    with np.load(shared / "published" / "multiberts_sst2.npz") as published:
        ends = published["lengths"].astype(int).cumsum()[:-1]
        scores = [np.split(published[f"seed{seed}/{method}"], ends) for seed in range(10)]
        predictions = [published[f"seed{seed}/pred_class"] for seed in range(10)]
        expected = published.get(f"expected_spearman/{method}")
    matrix = agreement(scores, predictions)
    if expected is not None:
        np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-14)
    medians = np.median(pairs(matrix)), np.median(pairs(agreement(scores, predictions, jaccard)))
    np.testing.assert_allclose(medians, MEDIANS[method], rtol=0, atol=5.01e-4)


def test_average_precision_by_hand():
    assert average_precision([4, 3, 2, 1], [1, 0, 1, 0]) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision([1, 2, 3, 4], [1, 0, 0, 0]) == 1 / 4
    assert average_precision([0, 0, 0, 0], [1, 0, 0, 0]) == 1 / 4  # all come in together
    assert average_precision([2, 1, 1, 0], [0, 1, 0, 1]) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert average_precision([0.1, 0.4, 0.35, 0.8], [False, False, True, True]) == pytest.approx(
        0.8333, abs=1e-4
    )


def test_token_f1_by_hand():
    assert token_f1([4, 3, 2, 1], [1, 0, 1, 0]) == 1 / 2
    assert token_f1([4, 3, 2, 1], torch.tensor([True, True, True, False])) == 1
    assert token_f1([1, 1, 1], [0, 0, 1]) == 0  # ties by position
    assert token_f1([3, 2, 1], [0.5, 0.4, 1.0]) == 1 / 2  # marked by half of the people or more


@pytest.mark.parametrize("measure", [average_precision, token_f1])
@pytest.mark.parametrize("rationale", [[0, 0, 0], [1, 1, 1], [0.4, 0.1, 0.0]])
def test_a_rationale_without_a_contrast(measure, rationale):
    value = measure([1, 2, 3], rationale)
    assert math.isnan(value)


def test_cosine_by_hand():
    vectors = torch.tensor([[1.0, 0], [0, 2], [3, 3]])
    assert cosine(vectors) == pytest.approx(2 * 0.5**0.5 / 3)  # 0, √½, √½
    assert cosine(vectors, torch.tensor([True, False, True])) == pytest.approx(0.5**0.5)
    assert cosine(torch.tensor([[1.0, 0], [0, 0], [-1, 0]])) == pytest.approx(
        -1
    )  # zero points nowhere
    assert math.isnan(cosine(vectors[:1]))
    assert math.isnan(cosine(vectors, torch.zeros(3).bool()))


def pairwise(vectors):
    """The mean cosine by a loop over pairs; nan without one."""
    real = [v for v in vectors if v.norm() > 0]
    cosines = [
        float(torch.cosine_similarity(a, b, dim=0)) for a, b in itertools.combinations(real, 2)
    ]
    return np.mean(cosines) if cosines else math.nan


def definition(block):
    t = parts(block)
    real = torch.ones(t.shape[:2]).bool() if block.mask is None else block.mask
    outputs = [pairwise(y[r]) for y, r in zip(block.output, real, strict=True)]
    rows = [[pairwise(v) for v in text[r]] for text, r in zip(t, real, strict=True)]
    return outputs, [np.nanmean(row) if np.isfinite(row).any() else math.nan for row in rows]


ANISOTROPIC = {
    "plain": random_block(),
    "one token": random_block(targets=1),
    "causal": random_block(causal=True),
    "padded": random_block(padded=True),
    "cross": random_block(targets=5, sources=8, cross=True),
    "cross, padded targets": replace(
        random_block(targets=6, sources=3, cross=True),
        mask=torch.arange(6) < torch.tensor([[6], [2]]),
    ),
    "some rows": random_block(padded=True).rows(torch.tensor([[6, 0, 3], [1, 3, 2]])),
}


@pytest.mark.parametrize("name", ANISOTROPIC)
def test_anisotropy_is_its_definition(name):
    block = ANISOTROPIC[name]
    outputs, transformed = anisotropy(block, lengths(block))
    expected = definition(block)
    np.testing.assert_allclose(outputs, expected[0], atol=1e-12)
    np.testing.assert_allclose(transformed, expected[1], atol=1e-12)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-8), (torch.float16, 1e-3)])
def test_anisotropy_in_lower_precision(dtype, atol):
    exact = _shrunk(random_block(targets=30, width=64))
    block = _shrunk(random_block(targets=30, width=64, dtype=dtype))
    means = anisotropy(block, lengths(block, kernel="reference"))
    for value, expected in zip(means, anisotropy(exact, lengths(exact)), strict=True):
        np.testing.assert_allclose(value.double(), expected, rtol=0, atol=atol)


def _shrunk(block):
    """The same directions, but so short that the inverse of the length does not fit float16."""
    return replace(
        block, weight=block.weight / 64, residual=block.residual / 64, output=block.output / 64
    )

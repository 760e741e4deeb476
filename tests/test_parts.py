"""Some tokens of an answer, explained together."""

import pytest
import torch

import alti
from alti.model.model import Model
from test_answers import ANSWER, MESSAGES, PROMPT, causal, speaking

import tiny

METHODS = ("alti", "absence", "linear", "leave_one_out", "occlusion")


@pytest.mark.parametrize("method", METHODS)
def test_a_part_is_the_sum_of_its_rows(method):
    model = causal()
    asked = {"ids": PROMPT, "answer_ids": ANSWER, "method": method}
    rows = model.explain(**asked)
    part = model.explain(**asked, part=(1, 3))
    wanted = rows.scores[1:3].mean(0) if method == "alti" else rows.scores[1:3].sum(0)
    assert torch.allclose(part.scores, wanted, atol=1e-9)
    chance = rows[1].probability * rows[2].probability
    assert part.probability == pytest.approx(chance)
    one = model.explain(**asked, part=(2, 3))
    assert torch.allclose(one.scores, rows.scores[2], atol=1e-9)


def test_one_token_is_what_comes_next_behind_those_before_it():
    model = causal()
    asked = {"ids": PROMPT, "answer_ids": ANSWER, "method": "linear"}
    one = model.explain(**asked, part=(2, 3))
    alone = model.explain(ids=PROMPT + ANSWER[:2], target=ANSWER[2], method="linear")
    assert torch.allclose(one.scores[: len(alone)], alone.scores, atol=1e-9)
    assert one.probability == pytest.approx(alone.probability)


def test_a_part_has_its_own_words():
    model = speaking()
    answer = "The plot is funny."
    ids = model.explain(MESSAGES, answer=answer).source.ids
    start = model.explain(MESSAGES, answer=answer).source.answer
    whole = model.explain(MESSAGES, answer=answer, part=(0, len(ids) - start))
    assert whole.label == answer
    asked = {"answer": answer, "method": "absence", "groups": "message"}
    some = model.explain(MESSAGES, part=(1, 2), **asked)
    assert some.label in answer
    assert some.label != answer
    assert some.source.by == "message"
    assert some.scores.tolist() == pytest.approx(
        model.explain(MESSAGES, **asked).scores[1].tolist()
    )


def test_a_part_of_what_an_encoder_decoder_wrote():
    model = Model(tiny.build("t5", "AutoModelForSeq2SeqLM", dtype=torch.float64), None)
    asked = {"ids": PROMPT, "answer_ids": ANSWER, "method": "linear"}
    part = model.explain(**asked, part=(1, 4))
    assert torch.allclose(part.scores, model.explain(**asked).scores[1:4].sum(0), atol=1e-9)


@pytest.mark.parametrize("part", [(0, 5), (2, 2), (-1, 2), "all", (0.0, 1), (True, 2)])
def test_what_is_no_part_of_the_answer(part):
    with pytest.raises(alti.UsageError, match="part = "):
        causal().explain(ids=PROMPT, answer_ids=ANSWER, part=part)


def test_a_part_behind_an_answer_of_one_token():
    with pytest.raises(alti.UsageError, match="the answer, which has 1 token: give 0 <= first"):
        causal().explain(ids=PROMPT, answer_ids=ANSWER[:1], part=(1, 2))


def test_a_part_of_nothing():
    with pytest.raises(alti.UsageError, match="give answer="):
        causal().explain(ids=PROMPT, part=(0, 1))
    with pytest.raises(alti.UsageError, match="whole answers apart"):
        causal().explain(
            ids=PROMPT, answer_ids=ANSWER, against=[1, 2], part=(0, 1), method="absence"
        )

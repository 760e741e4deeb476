"""What happens without a word or with another one: the model's own numbers."""

import math

import pytest
import torch

import alti
from alti.experiments.what_if import correlation_of_ranks

import tiny

TEXT = "The acting is superb, but the plot is a tedious mess."
CHAT = [
    {"role": "system", "content": "It is a film."},
    {"role": "user", "content": "The plot is funny. The acting is better."},
]
DOCUMENTS = ["The plot is funny.", "The acting is better. It is a film."]


@pytest.fixture(scope="module")
def model():
    return alti.load(device="cpu")


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return alti.load(str(tiny.writer(tmp_path_factory.mktemp("x") / "tiny-chat")), device="cpu")


def chance(model, ids, target):
    """What the model says of exactly these tokens."""
    with torch.no_grad():
        logits = model.model(input_ids=torch.tensor([ids])).logits[0]
    return float(logits.double().softmax(-1)[target])


def test_without_a_word_is_the_model_without_its_tokens(model):
    found = alti.what_if(model, TEXT, method="absence")
    plain = model.explain(TEXT)
    for number, group in enumerate(found.measured.source.groups):
        inside = range(*group.span)
        kept = [
            token
            for token, span, special in zip(
                plain.source.ids, plain.offsets, plain.special.tolist(), strict=True
            )
            if special or not set(range(*span)) & set(inside)
        ]
        wanted = chance(model, kept, plain.target)
        assert float(found.after[number]) == pytest.approx(wanted, abs=1e-6)
    assert found.before == pytest.approx(plain.probability)


def test_measured_is_leave_one_out_and_predicted_is_what_views_show(model):
    found = alti.what_if(model, TEXT, method="absence", target="positive")
    wanted = model.explain(TEXT, method="leave_one_out", groups="word", target="positive")
    assert torch.equal(found.measured.scores, wanted.scores)
    shown = model.explain(TEXT, method="absence", target="positive").words()
    assert found.predicted.scores.tolist() == shown.scores.tolist()
    assert found.predicted.tokens == found.measured.tokens
    fall = math.log(found.before) - found.after.log()
    assert fall.tolist() == pytest.approx(wanted.scores.tolist(), abs=1e-5)


def test_the_rank_correlation_is_that_of_scipy(model):
    spearmanr = pytest.importorskip("scipy.stats").spearmanr
    found = alti.what_if(model, TEXT, method="absence")
    wanted = spearmanr(found.predicted.scores, found.measured.scores).statistic
    assert found.rank_correlation == pytest.approx(wanted)
    assert found.rank_correlation == pytest.approx(
        correlation_of_ranks(found.predicted.scores, -found.after)
    )  # probabilities have the same order
    tied = torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([4.0, 1.0, 3.0, 3.0])
    assert correlation_of_ranks(*tied) == pytest.approx(spearmanr(*tied).statistic)
    assert correlation_of_ranks(tied[0], torch.ones(4)) is None
    assert alti.what_if(model, "Superb").rank_correlation is None


def test_one_word_is_measured_alone(model):
    every = alti.what_if(model, TEXT)
    at = TEXT.index("tedious") + 3
    one = alti.what_if(model, TEXT, only=(0, at))
    number = list(every.measured.tokens).index("tedious")
    assert one.predicted.tokens == ("tedious",)
    assert float(one.after[0]) == pytest.approx(float(every.after[number]), abs=1e-6)
    assert float(one.predicted.scores[0]) == float(every.predicted.scores[number])


def test_a_word_is_left_out_with_the_tokens_that_it_has_among_all(writer):
    every = alti.what_if(writer, CHAT, answer="It is")
    for number, group in enumerate(every.measured.source.groups):
        one = alti.what_if(writer, CHAT, answer="It is", only=(0, group.span[0]))
        assert one.measured.tokens == (every.measured.tokens[number],)
        # its spaces may be tokens of their own
        assert float(one.after[0]) == pytest.approx(float(every.after[number]), rel=1e-4)


def test_a_word_of_a_question_about_documents_is_left_out_alone(writer):
    asked = {"documents": DOCUMENTS, "answer": "It is"}
    text = writer.explain("Is it funny?", **asked).source.texts[0]
    one = alti.what_if(writer, "Is it funny?", only=(0, text.rindex("funny")), **asked)
    assert one.predicted.tokens == one.measured.tokens == ("funny",)


def test_a_word_of_the_answer_cannot_be_left_out(writer):
    with pytest.raises(alti.UsageError, match="this word is a part of the answer"):
        alti.what_if(writer, CHAT, answer="It is", only=(1, 0))


def test_a_word_of_the_second_text(model):
    pair = "I slept well."
    every = alti.what_if(model, TEXT, pair)
    one = alti.what_if(model, TEXT, pair, only=(1, 3))
    assert one.predicted.tokens == ("slept",)
    number = [group.segment for group in every.measured.source.groups].index(1) + 1
    assert float(one.after[0]) == float(every.after[number])


@pytest.mark.parametrize("groups", ["word", "sentence", "message"])
def test_of_an_answer_the_probability_is_that_of_all_its_tokens(writer, groups):
    asked = {"answer": "It is better", "groups": groups}
    found = alti.what_if(writer, CHAT, **asked)
    wanted = writer.explain(CHAT, method="leave_one_out", total=True, **asked)
    assert torch.equal(found.measured.scores, wanted.scores)
    assert math.log(found.before) == pytest.approx(wanted.extra["log_prob"])
    part = alti.what_if(writer, CHAT, part=(1, 3), only=(0, found_at(writer, "funny")), **asked)
    assert part.before > found.before


def found_at(writer, word):
    return writer.explain(CHAT, answer="It").source.texts[0].index(word)


def test_another_word_is_tokenized_again(model):
    at = TEXT.index("tedious")
    change = alti.instead(model, TEXT, at=(0, at), new="gripping")
    changed = TEXT.replace("tedious", "gripping")
    target = model.explain(TEXT).target
    assert change.before == model.explain(TEXT, method="random").probability
    wanted = model.explain(changed, method="random", target=target).probability
    assert change.after == wanted
    pair = alti.instead(model, TEXT, "I slept well.", at=(1, 3), new="ate")
    target = model.explain(TEXT, "I slept well.").target
    wanted = model.explain(TEXT, "I ate well.", method="random", target=target)
    assert pair.after == wanted.probability


@pytest.mark.filterwarnings("error::alti.model.request.SameForEveryClass")  # nobody named one
def test_the_target_stays_where_the_prediction_turns(model):
    change = alti.instead(model, "A dull film.", at=(0, 2), new="clever")
    assert change.label == "negative"
    assert change.before > 0.5 > change.after


def test_another_word_in_a_message_or_a_document(writer):
    at = found_at(writer, "funny")
    change = alti.instead(writer, CHAT, at=(0, at), new="dull", answer="It is")
    other = [CHAT[0], {**CHAT[1], "content": CHAT[1]["content"].replace("funny", "dull")}]
    wanted = writer.explain(other, answer="It is", method="random", total=True)
    assert change.after == pytest.approx(wanted.probability)
    asked = {"documents": DOCUMENTS, "answer": "It is"}
    source = writer.explain("Is it funny?", **asked).source
    at = source.texts[0].index("better")
    change = alti.instead(writer, "Is it funny?", at=(0, at), new="worse", **asked)
    documents = [DOCUMENTS[0], DOCUMENTS[1].replace("better", "worse")]
    wanted = writer.explain(
        "Is it funny?", documents=documents, answer="It is", method="random", total=True
    )
    assert change.after == pytest.approx(wanted.probability)
    at = source.texts[0].index("Is it") + 1
    change = alti.instead(writer, "Is it funny?", at=(0, at), new="Was", **asked)
    wanted = writer.explain("Was it funny?", method="random", total=True, **asked)
    assert change.after == pytest.approx(wanted.probability)


def test_the_next_word_of_a_language_model(writer):
    found = alti.what_if(writer, "The plot is funny", target="is", method="alti")
    wanted = writer.explain("The plot is funny", target="is", method="leave_one_out", groups="word")
    assert torch.equal(found.measured.scores, wanted.scores)


def test_what_cannot_be_measured(model, writer):
    with pytest.raises(alti.UsageError, match="is in no word"):
        alti.what_if(model, TEXT, only=(0, 999))
    with pytest.raises(alti.UsageError, match="no part of a message"):
        alti.instead(writer, CHAT, at=(0, 6), new="x", answer="It", groups=[(5, 11)])

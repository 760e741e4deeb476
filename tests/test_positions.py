"""Several predictions about one text from one forward pass, and scores of groups of tokens."""

import json

import pytest
import torch

import alti
from alti.methods import METHODS
from alti.model.words import lines, sentences

import tiny
from speed import mostly_slow

TEXT = "The keys to the cabinet are on the table."
STEPS = {"integrated_gradients": {"steps": 3}}
HEADS = {
    "causal": ("llama", "AutoModelForCausalLM", "bpe"),
    "masked": ("bert", "AutoModelForMaskedLM", "wordpiece"),
    "token": ("bert", "AutoModelForTokenClassification", "wordpiece"),
    "encoder": ("bert", "AutoModel", "wordpiece"),
}


def built(kind: str) -> alti.Model:
    family, head, tokenizer = HEADS[kind]
    model = tiny.speaking(family, head, tokenizer, max_position_embeddings=200)
    return alti.Model(model, tiny.tokenizer(tokenizer), name="tiny")


def usable(method: str, kind: str) -> bool:
    if (method, kind) == ("surrogate", "causal"):
        return False  # its design is one for all predictions
    if kind == "encoder":
        return not METHODS[method].class_specific
    return kind != "causal" or not METHODS[method].second_norm


@mostly_slow("kind", HEADS, quick=["causal", "encoder"])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_prediction_is_explained_as_if_alone(method, kind):
    if not usable(method, kind) or method == "random":
        return
    model = built(kind)
    options = STEPS.get(method, {})
    together = model.explain(TEXT, positions=[2, 5, -1], method=method, **options)
    assert isinstance(together, alti.Attributions)
    assert len(together) == 3
    for place, one in zip((2, 5, len(together.source) - 1), together, strict=True):
        alone = model.explain(TEXT, position=place, method=method, **options)
        torch.testing.assert_close(one.scores, alone.scores, rtol=1e-9, atol=1e-12)
        assert (one.label, one.target, one.position) == (alone.label, alone.target, place)
        assert one.probability == pytest.approx(alone.probability)
        assert one.extra == pytest.approx(alone.extra, abs=1e-9)


def test_all_positions_are_those_of_tokens_that_are_not_special():
    model = built("token")
    found = model.explain(TEXT, positions="all")
    assert [one.position for one in found.predictions] == list(range(1, len(found.source) - 1))
    torch.testing.assert_close(found.scores, found.relevance()[1:-1])
    assert found.layers.dim() == 3


@pytest.mark.parametrize("kind", ["token", "encoder"])
def test_every_view_says_which_token_a_prediction_is_of(kind):
    pytest.importorskip("matplotlib")
    found = built(kind).explain("The table.", positions="all", layers=False)
    names = [
        " → ".join(filter(None, (found.source.tokens[one.position], one.label)))
        for one in found.predictions
    ]
    page, card, paper = found.to_html(), found._repr_html_(), found.to_latex()
    shown = [text.get_text() for text in found.plot().axes[0].get_yticklabels()]
    assert shown == names
    for name in names:
        assert f"<small>{name}" in page
        assert f'<th scope="row" dir="auto">{name}</th>' in card
        head = name.replace("→", r"\ensuremath{\rightarrow}").replace("_", r"\_")
        assert head.replace("#", r"\#") in paper


def test_all_positions_take_one_forward_pass():
    model = built("causal")
    model.explain(TEXT)
    passes = []
    model.model.register_forward_pre_hook(lambda *_: passes.append(1))
    model.explain(TEXT, positions="all")
    assert len(passes) == 1


def test_targets_are_one_for_all_or_one_for_each():
    model = built("causal")
    one = model.explain(TEXT, positions=[2, 5], target=9, against=7, method="linear")
    assert [(each.target, each.prediction.against) for each in one] == [(9, 7), (9, 7)]
    each = model.explain(TEXT, positions=[2, 5], target=[9, 11], against=[7, 8], method="linear")
    assert [(one.target, one.prediction.against) for one in each] == [(9, 7), (11, 8)]
    torch.testing.assert_close(each[0].scores, one[0].scores)
    alone = model.explain(TEXT, position=5, target=11, against=8, method="linear")
    torch.testing.assert_close(each[1].scores, alone.scores)


WRONG = [
    ({"positions": [2], "position": 2}, "position and positions were both given"),
    ({"positions": []}, "positions is empty"),
    ({"positions": [99]}, "position = 99 is outside the text"),
    ({"positions": "some"}, "positions = 'some' is no list of numbers"),
    ({"positions": 3}, "positions = 3 is no list of numbers"),
    (
        {"positions": [1, 2], "target": [3, 4, 5]},
        "target names 3 outputs, and there are 2 predictions",
    ),
    ({"positions": [1, 2], "target": [3, None]}, "target holds None"),
    ({"positions": [1, 2], "target": [3, 4], "against": [5, 4]}, "target and against are both"),
]


@pytest.mark.parametrize(("asked", "message"), WRONG)
def test_wrong_positions_and_targets_are_one_sentence(asked, message):
    with pytest.raises(alti.UsageError, match=message):
        built("causal").explain(TEXT, method="linear", **asked)


def test_a_sequence_classifier_has_no_positions():
    model = tiny.speaking("bert", "AutoModelForSequenceClassification")
    with pytest.raises(alti.UsageError, match="positions = 'all' was given, but a sequence class"):
        alti.explain(model, tiny.tokenizer(), TEXT, positions="all")


def test_total_is_the_sum():
    found = built("causal").explain(TEXT, positions=[2, 5, 7], method="linear")
    total = found.total()
    torch.testing.assert_close(total.scores, found.scores.sum(0))
    assert total.label == "3 predictions"
    assert total.top(1)[0][0] in found.source.tokens


@pytest.mark.parametrize("method", ["alti", "linear"])
def test_several_results_are_stored_and_read(method, tmp_path):
    found = built("causal").explain(TEXT, positions=[2, 5], method=method)
    found.save(tmp_path / "file")
    for again in (
        alti.Attributions.load(tmp_path / "file"),
        alti.Attributions.from_dict(json.loads(json.dumps(found.to_dict(checksum=True)))),
    ):
        assert again.to_dict() == found.to_dict()
        assert again.predictions == found.predictions
        assert torch.equal(again.scores, found.scores)
    with pytest.raises(alti.LoadError, match=r"holds attributions: read it with alti.Attributions"):
        alti.Attribution.load(tmp_path / "file")
    found[0].save(tmp_path / "one")
    with pytest.raises(alti.LoadError, match=r"holds attribution: read it with alti.Attribution"):
        alti.Attributions.load(tmp_path / "one")


def test_results_are_shown(tmp_path):
    found = built("causal").explain(TEXT, positions=[2, 5])
    for text in (str(found), found.to_html(), found.to_latex(document=True)):
        assert "keys" in text
    found.plot().savefig(tmp_path / "tokens.png")
    assert (tmp_path / "tokens.png").stat().st_size > 1000
    assert "alti-ramp" in found._repr_html_()


# Groups

LONG = "Dr. Smith went home. He was tired!\nA new line, e.g. this one. The end"


def test_sentences_and_lines():
    found = [LONG[slice(*span)] for span in sentences(LONG)]
    assert found == [
        "Dr. Smith went home.",
        "He was tired!",
        "A new line, e.g. this one.",
        "The end",
    ]
    assert [LONG[slice(*span)] for span in lines(LONG)] == LONG.split("\n")
    assert sentences("") == lines(" \n ") == []
    chinese = "他走了。我来了！"
    assert [chinese[slice(*span)] for span in sentences(chinese)] == ["他走了。", "我来了！"]


@pytest.mark.parametrize("by", ["word", "sentence", "line", [(0, 9), (21, 34)]])
def test_groups_add_up_and_the_rest_is_told(by):
    found = built("causal").explain(LONG, positions=[3, 8], method="linear")
    grouped = found.grouped(by)
    assert len(grouped.source.groups) == len(grouped.source.tokens)
    rest = torch.tensor([one["ungrouped"] for one in grouped.extra])
    torch.testing.assert_close(grouped.scores.sum(-1) + rest, found.scores.sum(-1))
    for text, group in zip(grouped.source.tokens, grouped.source.groups, strict=True):
        assert text == LONG[slice(*group.span)]
    assert grouped.grouped(by) is grouped
    one = found[0].grouped(by)
    assert list(one) == list(grouped[0])
    assert one.grouped(by) is one
    if by != "line":
        with pytest.raises(alti.UsageError, match=r"these scores are of .* already"):
            one.grouped("line")
    torch.testing.assert_close(grouped.total().scores, grouped.scores.sum(0))


def test_groups_have_names_and_words_are_one_case():
    found = built("causal").explain(LONG)
    assert [group.name for group in found.grouped("sentence").source.groups][:2] == [
        "sentence 1",
        "sentence 2",
    ]
    assert list(found.words()) == list(found.grouped("word"))


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("paragraph", "by = 'paragraph' is nothing to group by: give word, sentence, line"),
        ([(0, 999)], "the span .* is not in the text"),
        ([(5, 5)], "the span .* is not in the text"),
        ([(5, 9), (3, 6)], "begins before the one before it ends"),
        ([3], "3 is no span of characters"),
        ([("a", "b")], "is no span of characters"),
    ],
)
def test_wrong_groups_are_one_sentence(by, message):
    with pytest.raises(alti.UsageError, match=message):
        built("causal").explain(LONG).grouped(by)


def test_sentences_do_not_go_from_one_text_into_its_pair():
    model = tiny.speaking("bert", "AutoModelForSequenceClassification")
    found = alti.explain(model, tiny.tokenizer(), "a long film", "and a bad plot")
    grouped = found.grouped("sentence")
    assert list(grouped.tokens) == ["a long film", "and a bad plot"]
    assert grouped.segments == (0, 1)
    assert grouped.extra["ungrouped"] == pytest.approx(float(found.scores[found.special].sum()))

"""Groups as sources: one column each, given to the methods that can, added up for the others."""

import json
from dataclasses import replace

import pytest
import torch

import alti
from alti import Inputs, Target, UsageError
from alti.methods.linear import views
from alti.read.linear_view import linear_view
from test_answers import speaking

import tiny

pytestmark = pytest.mark.filterwarnings("ignore::alti.methods.dimming.Blind")
TEXT = "It's not a bad film. The plot is funny. A clever blend"
DOCUMENTS = ["It's not a bad film. The plot is funny.", "The acting is better."]
GIVEN = [name for name, method in alti.METHODS.items() if method.takes_groups]
ADDED = [name for name, method in alti.METHODS.items() if not method.takes_groups]
ADDED = [name for name in ADDED if not alti.METHODS[name].second_norm]
FEW = {"integrated_gradients": {"steps": 4}, "contextcite": {"ablations": 8}}


@pytest.fixture(scope="module")
def model():
    return speaking()


@pytest.mark.parametrize("method", ADDED)
def test_scores_of_tokens_are_added_up(model, method):
    options = {"method": method, **FEW.get(method, {})}
    found = model.explain(TEXT, groups="sentence", **options)
    plain = model.explain(TEXT, **options).grouped("sentence")
    assert found.source.by == "sentence"
    assert found.tokens == plain.tokens
    torch.testing.assert_close(found.scores, plain.scores)
    assert found.extra["ungrouped"] == pytest.approx(plain.extra["ungrouped"])


@pytest.mark.parametrize("method", GIVEN)
def test_groups_are_given_to_methods_that_take_them(model, method):
    options = {"method": method, **FEW.get(method, {})}
    found = model.explain(TEXT, groups="sentence", **options)
    assert found.tokens == ("It's not a bad film.", "The plot is funny.", "A clever blend")
    assert found.scores.shape == (3,)
    assert found.layers is None
    assert "ungrouped" not in found.extra
    assert bool(found.scores.isfinite().all())
    several = model.explain(TEXT, answer=" better film", groups="word", **options)
    assert several.scores.shape == (len(several), len(several.source))
    assert "better" not in several.source.tokens


@pytest.mark.parametrize("method", ["dimming", "absence", "alti"])
def test_of_documents_their_sentences_and_nothing_else(model, method):
    asked = {"documents": DOCUMENTS, "answer": " better", "method": method}
    found = model.explain("is it funny", groups="sentence", **asked)
    assert found.source.tokens == (
        "It's not a bad film.",
        "The plot is funny.",
        "The acting is better.",
    )
    whole = model.explain("is it funny", groups="document", total=True, **asked)
    assert [group.name for group in whole.source.groups] == ["document 1", "document 2"]
    plain = model.explain("is it funny", **asked)
    assert "question" not in " ".join(found.source.tokens)
    if method == "alti":
        rows = plain.scores.sum(-1)
        left = torch.tensor([one["ungrouped"] for one in found.extra])
        torch.testing.assert_close(found.scores.sum(-1) + left, rows)


@pytest.mark.parametrize("method", ["dimming", "alti"])
def test_spans_and_many_texts(model, method):
    one = model.explain(TEXT, groups=[(0, 4), (5, 20)], method=method)
    assert one.tokens == (TEXT[:4], TEXT[5:20])
    many = list(model.explain_all([TEXT, "A clever blend"], groups="word", method=method))
    for text, found in zip((TEXT, "A clever blend"), many, strict=True):
        alone = model.explain(text, groups="word", method=method)
        assert found.tokens == alone.tokens
        torch.testing.assert_close(found.scores, alone.scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["dimming", "absence", "linear"])
def test_one_answer_against_another_by_group(model, method):
    asked = {"documents": DOCUMENTS, "method": method}
    options = {"groups": "sentence", "total": True, "of": "log_prob"}
    ours, theirs = (
        model.explain("is it funny", answer=a, **asked, **options) for a in (" better", " a bad")
    )
    found = model.explain(
        "is it funny", answer=" better", against=" a bad", groups="sentence", **asked
    )
    assert found.tokens == ours.tokens
    assert found.source.texts == ours.source.texts[:1]
    torch.testing.assert_close(found.scores, ours.scores - theirs.scores)


def test_a_result_by_groups_is_saved_shown_and_grouped_no_further(model, tmp_path):
    asked = {"documents": DOCUMENTS, "answer": " better film", "method": "dimming"}
    found = model.explain("is it funny", groups="sentence", **asked)
    file = tmp_path / "found.alti"
    found.save(file)
    again = alti.Attributions.load(file)
    assert torch.equal(again.scores, found.scores)
    assert again.source.groups == found.source.groups
    assert json.dumps(found.to_dict()) == json.dumps(again.to_dict())
    for shown in (str(found), found.to_html(), found.to_latex(), str(found.total())):
        assert "The plot is funny." in shown
    assert found.grouped("sentence") is found
    with pytest.raises(UsageError, match="of sentences already"):
        found.grouped("word")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("paragraph", "nothing to group by"),
        ("document", "has no documents"),
        ([(3, 1)], "not in the text"),
        ([], "finds nothing to group"),
    ],
)
def test_groups_that_are_none(model, groups, message):
    with pytest.raises(UsageError, match=message):
        model.explain(TEXT, groups=groups, method="dimming")


# --- absence by group, its definition written a second time ---


def grouped_batch(family, head, dtype=torch.float64):
    model = tiny.build(family, head, dtype=dtype)
    tensors = tiny.inputs(model, lengths=(7, 5))
    groups = torch.tensor([[-1, 0, 0, 1, 2, 2, -1], [0, -1, 1, 1, 1, -1, -1]])
    special = torch.zeros_like(groups, dtype=torch.bool)
    return model, Inputs(tensors, special, causal=family == "gpt2", groups=groups)


@pytest.mark.parametrize("sending", ["replaced", "first_order", "effects"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_messages_of_a_group(family, sending):
    head = "AutoModelForCausalLM" if family == "gpt2" else "AutoModelForSequenceClassification"
    model, inputs = grouped_batch(family, head)
    position = torch.tensor([[6], [4]]) if family == "gpt2" else None
    target = Target(index=torch.tensor([[1], [1]]), position=position)
    _, found, _ = views(model, inputs, target, 0.5, 0.1, of="logit", sending=sending)
    view = linear_view(model, inputs.tensors, value=0.5, response=0.1)
    logits = view.output.logits
    if position is not None:
        logits = torch.stack([logits[0, 6], logits[1, 4]])
    others = (logits.sum(-1) - logits[:, 1]) / (logits.shape[-1] - 1)
    gradients = torch.autograd.grad(
        (logits[:, 1] - others).sum(), [site.mixed for site in view.messages]
    )
    expected = torch.zeros(2, 3, dtype=torch.float64)
    for site, gradient in zip(view.messages, gradients, strict=True):
        _add_by_hand(expected, site, gradient, inputs.groups, sending)
    torch.testing.assert_close(found[:, 0], expected)


def _add_by_hand(expected, site, gradient, groups, sending):
    """Σ over texts, heads, groups and rows outside of the group, one at a time."""
    batch, heads, length, _ = site.attn.shape
    size = site.value.shape[-1]
    for b in range(batch):
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            for s in range(3):
                inside = groups[b] == s
                for i in range(length):
                    if inside[i]:
                        continue
                    a = site.attn[b, h, i]
                    z = a @ site.value[b, h]
                    share = a[inside].sum()
                    sent = a[inside] @ site.value[b, h, inside]
                    if sending != "effects":
                        sent = sent - share * z
                    if sending == "replaced":
                        sent = sent / (1 - share).clamp_min(0.05)
                    expected[b, s] += gradient[b, i, part] @ sent


@pytest.mark.parametrize("method", ["dimming", "absence"])
def test_groups_of_one_token_are_tokens(method):
    """Nobody else is in the group: the bias is the token's own."""
    model = tiny.build("bert", "AutoModelForSequenceClassification")
    tensors = tiny.inputs(model, lengths=(6,))
    inputs = Inputs(tensors, torch.tensor([[True, False, False, False, False, True]]))
    options = {} if method == "dimming" else {"rule": "effects"}
    alone = alti.METHODS[method](model, inputs, Target(), **options).tokens
    groups = torch.tensor([[-1, 0, 1, 2, 3, -1]])
    found = alti.METHODS[method](model, replace(inputs, groups=groups), Target(), **options).tokens
    if method == "dimming":
        torch.testing.assert_close(found, alone[..., 1:5])
    else:  # what a token sends to itself leaves with it
        assert not torch.allclose(found, alone[..., 1:5])


def test_tokens_of_no_group_are_not_dimmed():
    model, inputs = grouped_batch("gpt2", "AutoModelForCausalLM")
    target = Target(index=torch.tensor([[1], [1]]), position=torch.tensor([[6], [4]]))
    fewer = replace(inputs, groups=inputs.groups.masked_fill(inputs.groups == 2, -1))
    ours = alti.METHODS["dimming"](model, fewer, target).tokens
    theirs = alti.METHODS["dimming"](model, inputs, target).tokens
    assert ours.shape[-1] == 2
    assert not torch.allclose(ours[0], theirs[0, :, :2])  # the third was dim beside them
    torch.testing.assert_close(ours[1], theirs[1, :, :2])  # the second text has no third


# --- what a reader of the change found ---


def test_spans_and_messages_are_as_given_also_with_documents(model):
    asked = {"documents": DOCUMENTS, "answer": " better", "method": "linear", "total": True}
    prompt = model.explain("is it funny", **asked).source.texts[0]
    spans = [(prompt.index("The plot"), prompt.index("The plot") + 8)]
    spans.append((prompt.index("is it funny"), len("is it") + prompt.index("is it funny")))
    found = model.explain("is it funny", groups=spans, **asked)
    assert found.tokens == ("The plot", "is it")
    assert len(model.explain("is it funny", groups="message", **asked)) == 1


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("method", ["dimming", "linear", "consensus", "surrogate"])
def test_the_first_call_may_be_without_gradients(around, method):
    fresh = speaking()
    with around():
        found = fresh.explain("The acting is", method=method)
    again = fresh.explain("The acting is", method=method)
    torch.testing.assert_close(found.scores, again.scores)


def test_a_group_that_holds_the_token_that_is_read_is_warned_of(model):
    with pytest.warns(alti.AltiWarning, match="read inside of it"):
        model.explain("The plot is funny. The acting", groups="sentence", method="dimming")

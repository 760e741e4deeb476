"""Heads that are no classifiers: scores are those of a definition written a second time here."""

import json

import pytest
import torch

import alti
from alti import UsageError
from alti.model.entities import entities_of
from alti.model.model import Model
from alti.model.wrapped import OneChoice, Similarity, Spans
from alti.read.linear_view import linear_view
from test_untouched import assert_untouched, snapshot

import tiny

QUESTION = "What is the plot?"
CONTEXT = "The acting is better than the plot. The café owner is funny."
CHOICES = ["The plot is long.", "The café is clumsy and funny.", "It costs dollars."]
OTHER = "The film is clever, but the ending is not."


def loaded(head, family="bert", **config):
    config = {"max_position_embeddings": 80, **config}
    model = tiny.speaking(family, head, **config).requires_grad_(False)
    return Model(model, tiny.tokenizer())


@pytest.fixture(scope="module")
def answering():
    return loaded("AutoModelForQuestionAnswering")


@pytest.fixture(scope="module")
def choosing():
    return loaded("AutoModelForMultipleChoice")


@pytest.fixture(scope="module")
def embedding():
    return loaded("AutoModel")


def tensors(model, *texts):
    return dict(model.tokenizer(*texts, return_tensors="pt"))


def best_span(model, output):
    """Every start and end inside the context, one by one."""
    encoding = model.tokenizer(QUESTION, CONTEXT)
    inside = [i for i, segment in enumerate(encoding.sequence_ids()) if segment == 1]
    scored = {
        float(output.start_logits[0, s] + output.end_logits[0, e]): (s, e)
        for s in inside
        for e in inside
        if s <= e < s + 30
    }
    return scored[max(scored)]


# Question answering


@pytest.mark.parametrize(("method", "of"), [("consensus", "relative"), ("linear", "logit")])
def test_what_scores_of_similarity_are_of(embedding, method, of):
    found = embedding.explain(CONTEXT, OTHER, target="similarity", method=method)
    assert found.prediction.of == of


def test_an_answer_is_the_best_part_of_the_context(answering):
    found = answering.explain(QUESTION, CONTEXT)
    output = answering.model(**tensors(answering, QUESTION, CONTEXT))
    start, end = best_span(answering, output)
    assert [one.target for one in found] == [start, end] == [one.position for one in found]
    chances = [output.start_logits.softmax(-1)[0, start], output.end_logits.softmax(-1)[0, end]]
    assert [one.probability for one in found] == pytest.approx([float(x) for x in chances])
    spans = found.source.offsets
    answer = CONTEXT[spans[start][0] : spans[end][1]]
    assert [one.label for one in found] == [f"{answer!r} starts", f"{answer!r} ends"]
    both = answering.explain(QUESTION, CONTEXT, total=True)
    assert both.label == answer
    assert both.probability == pytest.approx(float(chances[0] * chances[1]))


def test_maps_are_read_where_an_answer_starts_and_ends(answering):
    found = answering.explain(QUESTION, CONTEXT)
    blocks = alti.trace(answering.model, tensors(answering, QUESTION, CONTEXT))
    relevance = torch.eye(len(found.source), dtype=torch.float64)
    for block in blocks:
        relevance = alti.contributions(block)[0] @ relevance
    for row, one in enumerate(found):
        torch.testing.assert_close(found.scores[row], relevance[one.position])
    both = answering.explain(QUESTION, CONTEXT, total=True)
    torch.testing.assert_close(both.scores, found.scores.mean(0))


def test_linear_effects_on_start_and_end(answering):
    found = answering.explain(QUESTION, CONTEXT, method="linear", target="better than")
    view = linear_view(answering.model, tensors(answering, QUESTION, CONTEXT))
    rows = (view.output.start_logits[0], view.output.end_logits[0])
    for one, logits in zip(found, rows, strict=True):
        others = [i for i in range(len(logits)) if i != one.target]
        against = logits[one.target] - logits[others].mean()
        (slope,) = torch.autograd.grad(against, view.start, retain_graph=True)
        torch.testing.assert_close(one.scores, (slope * view.start).sum(-1)[0].detach())
        remainder = float(against.detach()) - float(one.scores.sum())
        assert one.extra["remainder"] == pytest.approx(remainder, abs=1e-9)
    assert found[0].label == "'better than' starts"
    both = answering.explain(QUESTION, CONTEXT, method="linear", target="better than", total=True)
    torch.testing.assert_close(both.scores, found.scores.sum(0))


def test_occlusion_masks_and_asks_again(answering):
    options = {"method": "occlusion", "removal": "mask", "target": "plot"}
    found = answering.explain(QUESTION, CONTEXT, **options)
    whole = tensors(answering, QUESTION, CONTEXT)
    with torch.no_grad():
        before = answering.model(**whole).end_logits.softmax(-1)[0, found[1].target]
        for place in (2, 9):
            masked = whole["input_ids"].clone()
            masked[0, place] = answering.tokenizer.mask_token_id
            after = answering.model(**{**whole, "input_ids": masked}).end_logits.softmax(-1)
            fall = float(before - after[0, found[1].target])
            assert float(found.scores[1, place]) == pytest.approx(fall, abs=1e-12)


@pytest.mark.parametrize("method", ["alti", "gradient", "dimming", "consensus", "absence"])
def test_every_kind_of_method_explains_an_answer(answering, method):
    before = snapshot(answering.model, tensors(answering, QUESTION, CONTEXT))
    found = answering.explain(QUESTION, CONTEXT, method=method)
    assert found.scores.shape == (2, len(found.source))
    assert found.source.texts == (QUESTION, CONTEXT)
    assert_untouched(answering.model, *before)


def test_a_derivative_of_dimming_is_that_of_the_start(answering):
    """By a small step of one token's level, both ways."""
    found = answering.explain(QUESTION, CONTEXT, method="dimming", strength=0.5)
    task = answering.task(QUESTION, CONTEXT, answering.request(
        method="alti", target=None, against=None, options={}))  # fmt: skip
    inputs, _ = answering.batch([task], answering.request(
        method="alti", target=None, against=None, options={}))  # fmt: skip
    from alti.methods.dimming import dimmed

    place, values = 3, []
    for step in (1e-5, -1e-5):
        levels = inputs.sources_at(0.5).double()
        levels[0, place] += step
        with torch.no_grad():
            logits = dimmed(answering.model, inputs, levels).start_logits
        values.append(float(logits.log_softmax(-1)[0, found[0].target]))
    slope = (values[0] - values[1]) / 2e-5
    assert float(found.scores[0, place]) == pytest.approx(slope, rel=1e-4)


def test_answers_in_groups_and_one_after_another(answering):
    found = answering.explain(QUESTION, CONTEXT, method="absence", groups="sentence")
    assert [part.segment for part in found.source.groups] == [0, 1, 1]
    (again,) = answering.explain_all([(QUESTION, CONTEXT)], method="absence", groups="sentence")
    torch.testing.assert_close(again.scores, found.scores)


def test_what_a_question_needs(answering):
    with pytest.raises(UsageError, match="give the question and, as text_pair"):
        answering.explain(QUESTION)
    with pytest.raises(UsageError, match="leave_one_out takes tokens out of the text, which moves"):
        answering.explain(QUESTION, CONTEXT, method="leave_one_out")
    with pytest.raises(UsageError, match="target = 'nobody' is no part of the context"):
        answering.explain(QUESTION, CONTEXT, target="nobody")
    with pytest.raises(UsageError, match="position = 3 was given, and this model takes an answer"):
        answering.explain(QUESTION, CONTEXT, position=3)


def test_a_model_that_answers_is_checked(answering, choosing):
    assert max(answering.check()) < 1e-12
    assert answering.completeness() < 1e-9
    assert max(choosing.check()) < 1e-12


def test_a_head_that_reads_elsewhere_is_noticed(answering):
    class Shifted(Spans):
        def forward(self, **inputs):
            output = super().forward(**inputs)
            output.logits = output.logits.roll(1, -1)
            return output

    model = Model(answering.model, answering.tokenizer)
    model.__dict__["subject"] = Shifted(answering.model)
    with pytest.raises(alti.DecompositionError, match="the head reads position"):
        model.explain(QUESTION, CONTEXT)


# Multiple choice


def test_a_choice_is_what_its_logit_says(choosing):
    found = choosing.explain(QUESTION, choices=CHOICES, method="linear")
    batch = choosing.tokenizer([QUESTION] * 3, CHOICES, padding=True, return_tensors="pt")
    logits = choosing.model(**{name: x[None] for name, x in batch.items()}).logits[0]
    number = int(logits.argmax())
    assert (found.label, found.target) == (CHOICES[number], number)
    assert found.probability == pytest.approx(float(logits.softmax(-1)[number]))
    assert found.source.texts == (QUESTION, CHOICES[number])
    own = tensors(choosing, QUESTION, CHOICES[number])
    view = linear_view(choosing.model, {name: x[:, None] for name, x in own.items()})
    (slope,) = torch.autograd.grad(view.output.logits[0, 0], view.start)
    torch.testing.assert_close(found.scores, (slope * view.start).sum(-1)[0].detach())
    assert found.extra["value"] == pytest.approx(float(logits[number]))


def test_occlusion_of_a_choice_is_a_fall_of_its_logit(choosing):
    found = choosing.explain(QUESTION, choices=CHOICES, method="occlusion", target=CHOICES[2])
    own = tensors(choosing, QUESTION, CHOICES[2])
    with torch.no_grad():
        before = choosing.model(**{name: x[:, None] for name, x in own.items()}).logits
        keep = [i for i in range(own["input_ids"].shape[1]) if i != 3]
        without = choosing.model(**{name: x[:, None, keep] for name, x in own.items()}).logits
    assert float(found.scores[3]) == pytest.approx(float(before - without), abs=1e-12)
    assert found.label == CHOICES[2]


@pytest.mark.parametrize("method", ["alti", "consensus", "gradient"])
def test_every_kind_of_method_explains_a_choice(choosing, method):
    found = choosing.explain(QUESTION, choices=CHOICES, method=method, target=1)
    assert found.target == 1
    assert float(found.scores.abs().sum()) > 0


def test_what_choices_must_be(choosing, embedding):
    with pytest.raises(UsageError, match="this model compares choices, and none were given"):
        choosing.explain(QUESTION)
    with pytest.raises(UsageError, match="choices = 'a' is no list of texts"):
        choosing.explain(QUESTION, choices="a")
    with pytest.raises(UsageError, match="target = 9 is none of the choices"):
        choosing.explain(QUESTION, choices=CHOICES, target=9)
    with pytest.raises(UsageError, match="and this model compares none"):
        embedding.explain(QUESTION, choices=CHOICES)


# The similarity of two texts


def vectors(model, text):
    batch = tensors(model, text)
    return batch, model.model(**batch).last_hidden_state


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_linear_effects_on_a_similarity(embedding, pooling):
    model = Model(embedding.model, embedding.tokenizer)
    model.pooling = pooling
    found = model.explain(CONTEXT, OTHER, target="similarity", method="linear")
    pool = {"mean": lambda x: x.mean(1), "first": lambda x: x[:, 0], "last": lambda x: x[:, -1]}
    one, other = (pool[pooling](vectors(model, text)[1])[0] for text in (CONTEXT, OTHER))
    cosine = torch.cosine_similarity(one, other, dim=0)
    assert found.extra["value"] == pytest.approx(float(cosine))
    start = 0
    for text, rival in ((CONTEXT, other), (OTHER, one)):
        view = linear_view(model.model, tensors(model, text))
        own = pool[pooling](view.output.last_hidden_state)[0]
        value = own @ rival.detach() / own.detach().norm() / rival.detach().norm()
        (slope,) = torch.autograd.grad(value, view.start)
        expected = (slope * view.start).sum(-1)[0].detach()
        scores = found.scores[start : start + len(expected)]
        torch.testing.assert_close(scores, expected)
        suffix = "" if text == CONTEXT else "_pair"
        left = float(cosine) - float(scores.sum())
        assert found.extra[f"remainder{suffix}"] == pytest.approx(left, abs=1e-9)
        start += len(expected)
    assert start == len(found)


def test_occlusion_is_a_fall_of_the_similarity(embedding):
    found = embedding.explain(CONTEXT, OTHER, target="similarity", method="occlusion")
    one, other = (vectors(embedding, text)[1].mean(1)[0] for text in (CONTEXT, OTHER))
    batch = tensors(embedding, OTHER)
    keep = [i for i in range(batch["input_ids"].shape[1]) if i != 4]
    with torch.no_grad():
        shorter = embedding.model(**{name: x[:, keep] for name, x in batch.items()})
    without = shorter.last_hidden_state.mean(1)[0]
    fall = torch.cosine_similarity(one, other, dim=0) - torch.cosine_similarity(one, without, dim=0)
    place = len(embedding.tokenizer(CONTEXT)["input_ids"]) + 4
    assert float(found.scores[place]) == pytest.approx(float(fall), abs=1e-12)


@pytest.mark.parametrize("method", ["consensus", "absence", "dimming", "gradient"])
def test_every_kind_of_method_explains_a_similarity(embedding, method, tmp_path):
    before = snapshot(embedding.model, tensors(embedding, OTHER))
    found = embedding.explain(CONTEXT, OTHER, target="similarity", method=method)
    assert_untouched(embedding.model, *before)
    assert found.label == "similarity"
    assert found.source.texts == (CONTEXT, OTHER)
    assert "café" in str(found)
    assert "clever" in str(found)
    found.save(tmp_path / "found.alti")
    again = alti.Attribution.load(tmp_path / "found.alti")
    torch.testing.assert_close(again.scores, found.scores)
    sentences = found.grouped("sentence")
    assert [part.segment for part in sentences.source.groups] == [0, 0, 1]


def test_a_gradient_is_that_of_the_cosine(embedding):
    found = embedding.explain(CONTEXT, OTHER, target="similarity", method="gradient")
    other = vectors(embedding, OTHER)[1].mean(1)[0]
    leaf = embedding.model.get_input_embeddings()(tensors(embedding, CONTEXT)["input_ids"])
    leaf = leaf.detach().requires_grad_()
    one = embedding.model(inputs_embeds=leaf).last_hidden_state.mean(1)[0]
    (slope,) = torch.autograd.grad(torch.cosine_similarity(one, other, dim=0), leaf)
    torch.testing.assert_close(found.scores[: leaf.shape[1]], slope[0].norm(dim=-1))


def test_a_text_is_most_similar_to_itself(embedding):
    found = embedding.explain(CONTEXT, CONTEXT, target="similarity", method="linear")
    assert found.extra["value"] == pytest.approx(1)


def test_what_a_similarity_needs(embedding):
    with pytest.raises(UsageError, match="compares two texts: give text and text_pair"):
        embedding.explain(CONTEXT, target="similarity", method="linear")
    with pytest.raises(UsageError, match="alti draws how one text is mixed, and similarity is of"):
        embedding.explain(CONTEXT, OTHER, target="similarity")


def test_wrapped_models_share_everything(embedding):
    for wrapped in (OneChoice(embedding.model), Similarity(embedding.model, "mean")):
        assert wrapped.config is embedding.model.config
        assert wrapped.base_model is embedding.model
        assert wrapped.dtype == torch.float64
        own = set(map(id, embedding.model.parameters()))
        assert {id(parameter) for parameter in wrapped.parameters()} == own


# Entities


def labelled(labels, text="Ada Lovelace lived in London and Paris.", tokens=None):
    """A result of a token classifier with these labels at the tokens of a text."""
    tokens = tokens or ["Ada", "Love", "lace", "lived", "in", "London", "and", "Paris", "."]
    start, offsets = 0, []
    for token in tokens:
        start = text.index(token, start)
        offsets.append((start, start + len(token)))
        start += len(token)
    source = alti.Source(
        texts=(text,), tokens=("[CLS]", *tokens), offsets=((0, 0), *offsets),
        segments=(-1, *[0] * len(tokens)), special=torch.tensor([True] + [False] * len(tokens)),
    )  # fmt: skip
    predictions = tuple(
        alti.Prediction(label=label, index=0, probability=0.5, position=i)
        for i, label in enumerate(labels, start=1)
    )
    scores = torch.arange(float(len(labels) * (len(tokens) + 1))).reshape(len(labels), -1)
    return alti.Attributions(
        source=source, predictions=predictions, scores=scores, method="linear", model="m"
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("B-PER I-PER I-PER O O B-LOC O B-LOC O", ["PER 0 1 2", "LOC 5", "LOC 7"]),
        ("B-PER B-PER O O O B-LOC B-LOC B-ORG O", ["PER 0", "PER 1 2", "LOC 5", "LOC 6", "ORG 7"]),
        ("PER PER O O O LOC O LOC O", ["PER 0 1 2", "LOC 5", "LOC 7"]),
        ("O O O O O I-LOC I-ORG S-LOC O", ["LOC 5", "ORG 6", "LOC 7"]),
    ],
)
def test_neighbours_of_one_kind_are_an_entity(labels, expected):
    found = labelled(labels.split())
    entities = entities_of(found.source, found.predictions)
    assert [" ".join([one.kind, *map(str, one.members)]) for one in entities] == expected


def test_entities_are_predictions_and_groups():
    found = labelled(["B-PER", "I-PER", "I-PER", "O", "O", "B-LOC", "O", "O", "O"])
    entities = found.entities()
    assert [one.label for one in entities] == ["PER 'Ada Lovelace'", "LOC 'London'"]
    assert [one.probability for one in entities] == [0.5**3, 0.5]
    torch.testing.assert_close(entities.scores[0], found.scores[:3].sum(0))
    torch.testing.assert_close(entities.scores[1], found.scores[5])
    groups = entities.grouped("entity")
    assert groups.source.tokens == ("Ada Lovelace", "London")
    torch.testing.assert_close(groups.scores[1, 0], found.scores[5, 1:4].sum())
    again = alti.Attributions.from_dict(entities.to_dict())
    assert again.grouped("entity").source.tokens == groups.source.tokens


def test_no_entity_and_no_groups_of_them():
    found = labelled(["O"] * 9)
    with pytest.raises(UsageError, match="the model finds no entity here"):
        found.entities()
    with pytest.raises(
        UsageError, match="has no entities: explain it with positions='all' and take"
    ):
        found.grouped("entity")


def test_entities_of_a_token_classifier():
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    model = loaded("AutoModelForTokenClassification", id2label=labels, num_labels=3)
    found = model.explain("The naïve café owner is clumsy.", positions="all", method="linear")
    logits = model.model(**tensors(model, "The naïve café owner is clumsy.")).logits[0]
    assert [one.label for one in found] == [
        labels[int(row.argmax())]
        for i, row in enumerate(logits)
        if not bool(found.source.special[i])
    ]
    view = linear_view(model.model, tensors(model, "The naïve café owner is clumsy."))
    one = found[2]
    row = view.output.logits[0, one.position]
    value = row[one.target] - row[[i for i in range(3) if i != one.target]].mean()
    (slope,) = torch.autograd.grad(value, view.start)
    torch.testing.assert_close(one.scores, (slope * view.start).sum(-1)[0].detach())
    for entity in found.entities():
        assert entity.label.startswith("PER ")


# On the command line


def test_heads_on_the_command_line(run, tmp_path):
    tiny.saved(tmp_path / "answers", head="AutoModelForQuestionAnswering")
    code, out, err = run("explain", "What is it?", "--pair", "A long film.", "-m",
                         tmp_path / "answers", "--total")  # fmt: skip
    assert code == 0, err
    assert out.splitlines()[0].partition(" (p = ")[0] in "A long film."
    tiny.saved(tmp_path / "chooses", head="AutoModelForMultipleChoice")
    code, out, err = run("explain", "What is it?", "--choice", "A film.", "--choice", "A café.",
                         "-m", tmp_path / "chooses", "--json")  # fmt: skip
    assert code == 0, err
    assert '"label": "A ' in out
    code, _, err = run("explain", "What is it?", "-m", tmp_path / "chooses")
    assert code == 2
    assert "none were given: give them as choices= (--choice)" in err
    one = ("--choice", "A film.", "-m", tmp_path / "chooses")
    code, _, err = run("explain", "What is it?", *one)
    assert code == 2
    assert "nothing to compare in choices = ['A film.']: give two or more (--choice)" in err
    code, _, err = run("bench", "-m", tmp_path / "chooses", "--data", tmp_path / "none.csv")
    assert code != 0


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A folder with a model that finds persons by chance."""
    path = tmp_path_factory.mktemp("models") / "tagger"
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    model = loaded("AutoModelForTokenClassification", id2label=labels, num_labels=3)
    model.model.float().save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


def test_positions_on_the_command_line(run, tagger):
    text = "The naïve café owner is clumsy."
    asked = ("explain", text, "-m", tagger, "--method", "linear", "--json", "--positions")
    model = alti.load(tagger)
    for given, positions in (("all", "all"), ("2,4", [2, 4])):
        code, out, err = run(*asked, given)
        assert code == 0, err
        found = alti.Attributions.from_dict(json.loads(out))
        expected = model.explain(text, method="linear", positions=positions)
        assert found.predictions == expected.predictions
        torch.testing.assert_close(found.scores, expected.scores)
    code, out, err = run(*asked, "entities")
    assert code == 0, err
    found = alti.Attributions.from_dict(json.loads(out))
    entities = model.explain(text, method="linear", positions="all").entities()
    assert [one.label for one in found] == [one.label for one in entities]
    torch.testing.assert_close(found.scores, entities.scores)
    code, out, _ = run("explain", text, "-m", tagger, "--positions", "all")
    assert (code, len(out.splitlines()) > 5) == (0, True)


def test_wrong_positions_on_the_command_line(run, tagger, tmp_path):
    (tmp_path / "a.txt").write_text("A film.\n")
    writer = tmp_path / "writer"
    model = loaded("AutoModelForMaskedLM")
    model.model.save_pretrained(writer)
    model.tokenizer.save_pretrained(writer)
    cases = [
        (["A film.", "-m", tagger, "--positions", "some"], "--positions some names no tokens"),
        (["A film.", "-m", tagger, "--positions", "99"], "position = 99 is outside the text"),
        (["A film.", "--positions", "all"], "a sequence classifier reads its own: leave it out"),
        (["--file", tmp_path / "a.txt", "-m", tagger, "--positions", "all"], "go with one TEXT"),
        (["A film.", "-m", tagger, "--positions", "entities", "--total"], "leave --total out"),
        (["A film.", "-m", writer, "--positions", "entities"], "of a token classifier, and writer"),
    ]
    for arguments, message in cases:
        code, out, err = run("explain", *arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.splitlines()) == 1

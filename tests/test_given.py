"""Models that a user has already: pipelines, models with tokenizers, and what they predict."""

from dataclasses import replace
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig, pipeline
from transformers.utils import logging

import alti

import tiny

TEXT = "The acting is better than the plot."


@pytest.fixture(scope="module")
def classifier():
    model = tiny.speaking("bert", "AutoModelForSequenceClassification")
    return pipeline("text-classification", model=model, tokenizer=tiny.tokenizer(), device="cpu")


def test_a_pipeline_is_explained_like_its_model(classifier):
    expected = alti.explain(classifier.model, classifier.tokenizer, TEXT, method="consensus")
    assert alti.explain(classifier, TEXT, method="consensus") == expected
    assert alti.explain(classifier, text=TEXT, method="consensus") == expected
    assert alti.explain(classifier, classifier.tokenizer, TEXT, method="consensus") == expected
    assert alti.explain(alti.load(classifier), TEXT, method="consensus") == expected
    (said,) = classifier([TEXT])
    assert (expected.label, expected.probability) == (
        said["label"],
        pytest.approx(said["score"], abs=1e-6),
    )


def test_a_pipeline_reads_pairs(classifier):
    expected = alti.explain(classifier.model, classifier.tokenizer, TEXT, "A dull film.")
    assert expected.text_pair == "A dull film."
    assert alti.explain(classifier, TEXT, "A dull film.") == expected
    assert alti.explain(classifier, TEXT, text_pair="A dull film.") == expected


def test_loading_takes_what_there_is(classifier):
    loaded = alti.load(classifier)
    assert loaded.model is classifier.model
    assert loaded.tokenizer is classifier.tokenizer
    assert alti.load(loaded) is loaded
    again = alti.load(classifier.model, classifier.tokenizer)
    assert again.explain(TEXT) == loaded.explain(TEXT)


def test_a_pipeline_that_writes():
    model = tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe")
    writer = pipeline("text-generation", model=model, tokenizer=tiny.tokenizer("bpe"), device="cpu")
    found = alti.explain(writer, "The acting", answer=" is better")
    assert found == alti.load(model, writer.tokenizer).explain("The acting", answer=" is better")
    assert isinstance(found, alti.Attributions)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("model", "text"), "the text stands where the tokenizer is expected"),
        (("pipeline", "a", "b", "c"), "the text stands where the tokenizer is expected"),
        (("number", "a"), "model is int: give a transformers model or pipeline"),
        (("zero", "a"), "a pipeline for zero-shot-classification puts more into a text"),
    ],
)
def test_what_cannot_be_explained(classifier, arguments, message):
    model = classifier.model
    zero = SimpleNamespace(model=model, tokenizer=None, task="zero-shot-classification")
    first = {"model": model, "pipeline": classifier, "number": 3, "zero": zero}[arguments[0]]
    with pytest.raises(alti.UsageError, match=message):
        alti.explain(first, *arguments[1:])


def test_loading_changes_nothing_about_a_model(classifier):
    with pytest.raises(alti.UsageError, match="device and dtype would change a model"):
        alti.load(classifier, device="cpu", dtype="float64")
    with pytest.raises(alti.UsageError, match="a tokenizer goes with a model of your own"):
        alti.load("default", classifier.tokenizer)


def test_explain_has_the_arguments_of_the_method():
    model, tokenizer, *rest = signature(alti.explain).parameters.values()
    assert [model.name, tokenizer.name] == ["model", "tokenizer"]
    assert rest == list(signature(alti.Model.explain).parameters.values())[1:]
    assert "groups" in signature(alti.explain).parameters


def test_predictions_are_those_that_are_explained(classifier):
    model = alti.load(classifier)
    texts = [TEXT, (TEXT, "A dull film."), "x", f"{TEXT} {TEXT}"]
    expected = [one.prediction for one in model.explain_all(texts)]
    passes = []
    handle = model.model.register_forward_pre_hook(lambda *_: passes.append(1))
    try:
        found = model.predict(texts)
    finally:
        handle.remove()
    assert len(passes) == 1
    for one, other in zip(found, expected, strict=True):
        chance = pytest.approx(other.probability, abs=1e-12)  # the attention of another kernel
        assert replace(one, probability=chance) == replace(other, probability=chance)
        assert one.probability == chance
    assert model.predict(texts, batch_size=1)[3].label == expected[3].label
    assert model.predict([]) == []
    with pytest.raises(alti.UsageError, match=r"texts is one str: .* such as \[text\]"):
        model.predict(TEXT)


def test_a_prediction_shows_what_is_known_of_it():
    found = alti.Prediction(label="dull", index=0, probability=0.75)
    assert repr(found) == "Prediction(label='dull', index=0, probability=0.75)"
    assert repr(alti.Prediction()) == "Prediction()"


def test_predictions_of_other_heads():
    asked = alti.load(tiny.speaking("bert", "AutoModelForQuestionAnswering"), tiny.tokenizer())
    (answer,) = asked.predict([("Who acts?", TEXT)])
    assert answer.label in TEXT
    bare = alti.load(tiny.speaking("bert", "AutoModel"), tiny.tokenizer())
    with pytest.raises(alti.UsageError, match="has no head and predicts nothing"):
        bare.predict([TEXT])


def test_predictions_of_a_regression(tmp_path):
    network = tiny.speaking("bert", "AutoModelForSequenceClassification", num_labels=1)
    tokenizer = tiny.tokenizer()
    model = alti.load(network, tokenizer)
    texts = [TEXT, "A dull film."]
    with torch.no_grad():
        values = [float(network(**tokenizer(text, return_tensors="pt")).logits) for text in texts]
    found = model.predict(texts)
    assert [one.value for one in found] == pytest.approx(values)
    assert [one.probability for one in found] == [None, None]
    explained = model.explain(TEXT)
    assert explained.prediction.value == explained.extra["value"] == pytest.approx(values[0])
    explained.save(tmp_path / "value.alti")
    assert alti.Attribution.load(tmp_path / "value.alti") == explained


def test_loading_shows_one_bar(tmp_path, capsys):
    tiny.saved(tmp_path, head="AutoModel")  # read twice: its head has no weights
    config = BertConfig.from_pretrained(tmp_path)
    config.architectures = ["BertForSequenceClassification"]
    config.save_pretrained(tmp_path)
    capsys.readouterr()
    logging.enable_progress_bar()
    try:
        with pytest.warns(UserWarning, match="loaded without a head"):
            alti.load(tmp_path)
        assert logging.is_progress_bar_enabled()
    finally:
        logging.disable_progress_bar()  # as tiny has it
    assert capsys.readouterr().err.count("100%") == 1

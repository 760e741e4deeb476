"""Rows of every layer without the maps, of short and of long texts."""

import pytest
import torch

import alti
from alti._progress import watching
from alti.model.through_layers import through_layers
from test_answers import ANSWER, PROMPT, causal

import tiny

FLOAT = {"dtype": torch.float64}


@pytest.mark.parametrize("long", [False, True])
def test_rows_are_those_of_the_maps(monkeypatch, long):
    model = causal()
    wanted = model.explain(ids=PROMPT + ANSWER)
    if long:
        monkeypatch.setattr("alti.read.long.LONG", 1)
    found = through_layers(model, ids=PROMPT + ANSWER)
    assert len(found) == len(wanted.layers)
    for layer, row in enumerate(found.scores):
        relevance = wanted.relevance(layer)[wanted.position]
        assert torch.allclose(row, relevance, atol=1e-9)
    assert torch.allclose(found.scores[-1], wanted.scores, atol=1e-9)


@pytest.mark.parametrize("long", [False, True])
def test_of_a_part_of_an_answer_it_is_the_mean(monkeypatch, long):
    model = causal()
    asked = {"ids": PROMPT, "answer_ids": ANSWER}
    rows = model.explain(**asked, layers=True)
    if long:
        monkeypatch.setattr("alti.read.long.LONG", 1)
    found = through_layers(model, **asked, part=(1, 3))
    start = rows.source.answer
    wanted = rows.relevance(0)[start : start + 2].mean(0)
    assert torch.allclose(found.scores[0], wanted, atol=1e-9)
    assert torch.allclose(found.scores[-1], rows.scores[1:3].mean(0), atol=1e-9)


def test_an_encoder_decoder():
    model = alti.Model(tiny.build("t5", "AutoModelForSeq2SeqLM", **FLOAT), None)
    asked = {"ids": PROMPT, "answer_ids": ANSWER}
    found = through_layers(model, **asked)
    assert torch.allclose(found.scores[-1], model.explain(**asked).scores.mean(0), atol=1e-9)


def test_long_texts_tell_of_every_layer(monkeypatch, tmp_path):
    model = alti.load(str(tiny.writer(tmp_path / "tiny-chat")), device="cpu")
    model.explain("The plot is", method="linear")  # what is proved once is proved
    monkeypatch.setattr("alti.read.long.LONG", 1)
    for method in ("alti", "absence", "linear"):
        told = []
        with watching(lambda *said, told=told: told.append(said)):
            model.explain("The plot is", method=method)
        layers = model.model.config.num_hidden_layers
        assert len(told) >= 2 * layers, method
        assert set(told) == {(1, None)}

"""The model that alti embeds: it is there, it is small, it is good, and its card says so."""

import json
import re
import string
from pathlib import Path

import pytest

import alti
from alti.experiments.data import Example, read
from alti.experiments.predict import Predictor
from alti.model.loading import DEFAULT

from speed import slow

CARD = json.loads((DEFAULT / "card.json").read_text())
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model():
    return alti.load(device="cpu")


def test_it_reads_sentences(model):
    assert (model.name, model.family, model.dtype) == ("minilm-l6-sst2", "bert", "float32")
    assert model.explain("A clever blend of fact and fiction.").label == "positive"
    assert model.explain("Two hours that feel like four.", method="absence").label == "negative"


def test_the_words_it_stands_on(model):
    assert [word for word, _ in model.explain("An utterly wonderful film.").words().top(1)] == [
        "wonderful"
    ]
    signed = dict(
        model.explain("The acting is gorgeous, the script is a mess.", method="absence").words()
    )
    assert signed["mess"] > 0 > signed["gorgeous"]


def test_it_is_exact(model):
    assert max(model.check()) < 1e-5
    assert model.completeness() < 1e-5


def test_its_vocabulary_keeps_every_character(model):
    vocabulary = model.tokenizer.get_vocab()
    assert len(vocabulary) == CARD["vocabulary"] == model.model.config.vocab_size
    for character in string.ascii_lowercase + string.digits:
        assert {character, f"##{character}"} <= vocabulary.keys()
    assert set(string.punctuation) <= vocabulary.keys()
    assert model.tokenizer.unk_token not in model.tokenizer.tokenize(
        "Zxqvj's 1,000-word antidisestablishmentarianism!"
    )


def test_it_is_small_and_its_card_is_right():
    weight = sum(file.stat().st_size for file in DEFAULT.iterdir())
    assert weight <= 36e6
    assert CARD["megabytes"] == pytest.approx(weight / 1e6, abs=0.1)
    assert CARD["validation_accuracy"] >= 0.88
    assert "default_model/*" in (ROOT / "pyproject.toml").read_text()  # it ships in the wheel


@slow
def test_its_accuracy_is_what_the_card_says(model, shared):
    rows = [
        row
        for row in read(shared / "data" / "sst2" / "data.parquet", split="validation")
        if isinstance(row, Example)
    ]
    guesses = (
        Predictor(model)
        .probabilities([model.encoder.encode(row.text).ids for row in rows])
        .argmax(-1)
    )
    right = sum(int(guess) == row.label for guess, row in zip(guesses, rows, strict=True))
    assert right / len(rows) == pytest.approx(
        CARD["validation_accuracy"], abs=0.0012
    )  # one sentence of 872


def test_the_readme_says_what_the_card_says():
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert (
        f"{CARD['validation_accuracy']:.1%}".replace("%", " %") + " on the validation set" in readme
    )
    assert f"{CARD['test_accuracy']:.1%}".replace("%", " %") + " on the test set" in readme
    assert f"{CARD['vocabulary']:,} word pieces, {CARD['megabytes']:.0f} MB" in readme


def test_its_name_is_a_name_to_load_it_by(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    embedded = alti.load()
    for name in (embedded.name, "default", "embedded", Path("embedded")):
        assert alti.load(name).fingerprint() == embedded.fingerprint()


def test_the_help_names_it_as_the_command_line_takes_it(run):
    code, out, _ = run("explain", "--help")
    assert code == 0
    named = re.search(r"default: +(\w+)\.", out)[1]
    code, out, _ = run("explain", "A clever film.", "--model", named)
    assert (code, alti.load().name in out) == (0, True)


def test_a_folder_of_its_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "embedded").mkdir()
    with pytest.raises(alti.AltiError, match="embedded"):
        alti.load("embedded")

"""The reproduction: its data, its commands on a random model, and its page."""

import importlib
import json
import sys
from pathlib import Path

import pytest

import alti

import tiny
from speed import slow

sys.path.insert(0, str(Path(__file__).parents[1]))  # reproduction/ is no part of the package
from reproduction import classes, prepare, report, settings


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Small data sets, and folders of our own."""
    for name in ("agreement", "anisotropy", "classes", "curves", "faithfulness", "maps", "train"):
        module = importlib.import_module(f"reproduction.{name}")
        for attribute, value in (("BUILD", tmp_path / "build"), ("RESULTS", tmp_path / "results")):
            if hasattr(module, attribute):
                monkeypatch.setattr(module, attribute, value)
    for module in (settings, prepare):
        monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    text = "A clever blend of fact and fiction that is long enough to be drawn"
    words = text.split()
    rows = [
        {
            "text": " ".join(words[i:] + words[:i]),
            "label": ("negative", "positive")[i % 2],
            "split": split,
        }
        for split in ("train", "validation", "test")
        for i in range(8)
    ]
    prepare.save("sst2", rows)
    return tmp_path


def command(name, *arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    importlib.import_module(f"reproduction.{name}").main()


@slow
@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_the_commands_on_a_random_model(build, family, monkeypatch):
    model = tiny.speaking(family, "AutoModelForSequenceClassification")
    folder = build / family
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    for name in ("faithfulness", "curves", "anisotropy"):
        command(name, str(folder), "sst2", "--texts", "4", monkeypatch=monkeypatch)
    command("maps", str(folder), "sst2", monkeypatch=monkeypatch)
    result = json.loads((build / "results" / "faithfulness" / f"{family}-sst2.json").read_text())
    assert result["texts"] == 4
    assert result["means"].keys() == settings.METHODS.keys()
    plain, released = (
        result["means"]["ALTI"][f"comprehensiveness{end}"][0] for end in ("", report.RELEASED)
    )
    assert released >= plain  # a running minimum
    maps = json.loads((build / "results" / "maps" / f"{family}-sst2.json").read_text())
    assert alti.Attribution.from_dict(maps["layers"]["ALTI"]).relevance().shape[0] > 8


@slow
def test_a_backbone_is_trained_and_explained_over_seeds(build, monkeypatch):
    folder = build / "build" / "checkpoints" / "bert-tiny"
    tiny.speaking("bert", "AutoModel").save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    for seed in ("0", "1"):
        command(
            "train", "bert-tiny", "sst2", "--seed", seed, "--saves", "0", monkeypatch=monkeypatch
        )
    command("agreement", "bert-tiny", "--seeds", "2", "--texts", "3", monkeypatch=monkeypatch)
    result = json.loads((build / "results" / "agreement" / "bert-tiny.json").read_text())
    assert len(result["pairs"]["ALTI"]["spearman"]) == 1
    card = build / "build" / "models" / "bert-tiny-sst2-0" / "card.json"
    before = card.stat().st_mtime_ns
    arguments = ("bert-tiny", "--data", "sst2", "--texts", "4")
    command("classes", *arguments, monkeypatch=monkeypatch)
    assert card.stat().st_mtime_ns == before  # what is trained stays
    result = json.loads((build / "results" / "classes" / "bert-tiny-sst2.json").read_text())
    assert result["texts"] == 4
    for metric in ("comprehensiveness", "sufficiency"):
        ours, theirs = (result["means"][name][metric][0] for name in ("consensus", "absence"))
        minus = result["minus"]["absence"]["consensus"][metric][0]
        assert minus == pytest.approx(ours - theirs, abs=1e-5)


@pytest.mark.parametrize("backbone", ["distilbert-base-cased", "mpnet-base"])
def test_the_tables_of_classes_are_those_of_the_results(backbone):
    page = (settings.ROOT / "docs" / "benchmark.md").read_text()
    assert classes.tables(backbone) in page


def test_tables_of_what_was_not_measured_are_refused(monkeypatch):
    with pytest.raises(SystemExit, match="gte-small was not measured on sst2, imdb, yelp, sva"):
        command("classes", "gte-small", "--tables", monkeypatch=monkeypatch)


def test_data_is_balanced_and_split_without_leaks():
    reviews = [
        {
            "text": f"review {i // 2 if i < 4 else i}",
            "label": int(i % 3 > 0),
            "split": ("train", "test")[i % 2],
        }
        for i in range(60)
    ]
    rows = prepare.yelp(reviews)
    for split in ("train", "test"):
        labels = [
            row["label"]
            for row in rows
            if row["split"] in (split, "validation" if split == "train" else "")
        ]
        assert labels.count("positive") == labels.count("negative") > 0
    assert len({row["text"] for row in rows}) == len(rows)
    verbs = [
        {
            "masked": f"the key {i} ***mask*** here",
            "verb": ("is", "lies")[i % 2],
            "third_singular": True,
        }
        for i in range(20)
    ]
    rows = prepare.sva(verbs)
    assert [row["split"] for row in rows] == ["train"] * 6 + ["validation"] * 2 + ["test"] * 2
    assert {row["label"] for row in rows} == {"singular"}


def test_the_page_says_what_the_results_say():
    assert report.OUT.read_text() == report.report(), "run python -m reproduction.report"
    assert "{" not in report.report()


def test_every_picture_of_the_page_is_there():
    text = report.OUT.read_text()
    pictures = [
        line.rpartition("(")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")
    ]
    assert pictures
    assert all((report.OUT.parent / picture).is_file() for picture in pictures)


def test_letters_of_saliency_maps_are_outlines():
    figures = sorted(Path(report.OUT.parent, "figures").glob("saliency-*.svg"))
    assert figures
    for figure in figures:
        drawn = figure.read_text()
        assert "<symbol" in drawn  # letters
        assert "<rect" not in drawn, f"{figure.name}: dots of a bitmap"


def test_a_card_says_what_was_really_trained(build):
    train = importlib.import_module("reproduction.train")
    assert train.origin("bert-tiny") == settings.BACKBONES["bert-tiny"].checkpoint
    folder = build / "build" / "checkpoints" / "bert-tiny"
    folder.mkdir(parents=True)
    assert "unknown origin" in train.origin("bert-tiny")
    (folder / "source.json").write_text(
        json.dumps({"what": "a tagger", "packages": ["pypi tagger==1"]})
    )
    assert train.origin("bert-tiny") == "a tagger (pypi tagger==1)"

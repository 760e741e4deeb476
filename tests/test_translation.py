"""Word alignments, and models that are trained to translate."""

import json
import random
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
import torch

import alti
from alti.experiments import translation
from alti.experiments.aligned import Aligning, run, table
from alti.metrics.alignment import (
    Counts,
    added,
    alignment_error_rate,
    count_links,
    link_precision,
    link_recall,
)
from alti.model.alignment import align, links_of
from alti.views.latex import escaped

import tiny

sys.path.insert(0, str(Path(__file__).parents[1]))  # reproduction/ is no part of the package
from reproduction import gold_alignment
from reproduction import translation as experiments
from reproduction import translation_constants as constants

ROOT = Path(__file__).parents[1]

WORDS = {"hund": "dog", "katze": "cat", "läuft": "runs", "schläft": "sleeps", "ein": "a"}


def pairs(count: int) -> list[dict[str, str]]:
    chance = random.Random(0)
    rows = []
    for _ in range(count):
        words = [chance.choice([*WORDS]) for _ in range(3)]
        rows.append({"de": " ".join(words), "en": " ".join(WORDS[word] for word in words)})
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for name, count in (("train", 40), ("validation", 4)):
        lines = "".join(json.dumps(row) + "\n" for row in pairs(count))
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


SMALL = {"vocabulary": 60, "width": 16, "layers": 1, "heads": 2, "inner": 16, "epochs": 2}


def recipe(data, **changes) -> translation.Translation:
    places = {"data": str(data / "train.jsonl"), "validation": str(data / "validation.jsonl")}
    settings = {**SMALL, "source": "de", "target": "en", **places, **changes}
    return translation.Translation(**settings)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "mt"
    card = translation.train_translation(recipe(data), folder, saves=0)
    return folder, card


def test_a_translation_model_is_trained_and_explained(trained, data):
    folder, card = trained
    assert card["pairs"] == 40
    assert card["validation_pairs"] == 4
    assert 0 <= card["bleu"] <= 100
    assert card["bleu_signature"].startswith("nrefs:1|case:mixed|")
    model = alti.load(folder, dtype="float64")
    assert max(model.check()) < 1e-12
    result = model.explain("ein hund läuft", answer="a dog runs")
    assert [*result.alignment().target] == ["a", "dog", "runs"]
    assert (result.scores.sum(-1) - 1).abs().max() < 1e-12
    again = translation.train_translation(recipe(data), folder, saves=0)
    assert again == card  # a finished run is not trained again
    with pytest.raises(alti.UsageError):
        translation.train_translation(recipe(data, seed=1), folder, saves=0)


def test_the_same_recipe_gives_the_same_weights(trained, data, tmp_path, monkeypatch):
    """With the tokenizer of the first run, which is what a run that was stopped finds."""
    folder, _ = trained
    first = translation.pretrained.tokenizer_of(str(folder), False)
    monkeypatch.setattr(translation, "new_tokenizer", lambda texts, size: first)
    translation.train_translation(recipe(data), tmp_path / "again", saves=0)
    weights = [(each / "model.safetensors").read_bytes() for each in (folder, tmp_path / "again")]
    assert weights[0] == weights[1]


def test_what_cannot_be_trained_is_one_sentence(data, run_cli):
    options = ("--data", data / "train.jsonl", "--task", "translation")
    cases = {
        ("train", "marian", "out", *options): "needs two columns",
        ("train", "bert-base", "out", *options): "trains a new model, and 'bert-base'",
        ("train", "marian", "out", *options, "--text-column", "de", "--target-column", "xx"): (
            "has no column 'xx': its columns are de, en"
        ),
        ("train", "marian", "out", *options, "--label-column", "en"): "--label-column says nothing",
        ("train", "x", "out", "--data", data / "train.jsonl", "--width", 8): "--width says nothing",
    }
    for arguments, message in cases.items():
        code, _, error = run_cli(*arguments)
        assert code == 2, error
        assert message in error
    with pytest.raises(alti.UsageError, match="width = 10 cannot be split into 4 heads"):
        recipe(data, width=10, heads=4)


@pytest.fixture
def run_cli(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return run


def test_training_on_the_command_line(data, run_cli, tmp_path):
    code, out, error = run_cli(
        "train", "marian", tmp_path / "mt", "--task", "translation", "--data",
        data / "train.jsonl", "--text-column", "de", "--target-column", "en", "--width", 16,
        "--layers", 1, "--vocabulary", 60, "--epochs", 1, "--saves", 0,
    )  # fmt: skip
    assert code == 0, error
    assert "trained on 40 pairs; " in out
    card = json.loads((tmp_path / "mt" / "card.json").read_text())
    assert card["bleu"] is None
    assert card["inner"] == 32


def test_bleu_is_sacrebleus(monkeypatch):
    assert translation.bleu(["a dog runs there"], ["a dog runs there"])["bleu"] == 100
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu", None)
    with pytest.raises(alti.LoadError, match=r"pip install 'alti\[translation\]'"):
        translation.bleu(["a"], ["a"])


# Alignments


def test_the_error_rate_by_hand():
    """Och and Ney: 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)."""
    counts = count_links({(0, 0), (1, 1), (2, 1)}, {(0, 0), (2, 2)}, {(1, 1)})
    assert counts == Counts(3, 2, 1, 2)
    assert alignment_error_rate(counts) == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert link_precision(counts) == pytest.approx(2 / 3)
    assert link_recall(counts) == pytest.approx(1 / 2)
    assert added([counts, counts]) == Counts(6, 4, 2, 4)
    assert alignment_error_rate(count_links([(0, 0)], [(0, 0)])) == 0


def source_of(*texts: str) -> alti.Source:
    """Two texts with a token for each word, and a first token between them."""
    offsets, segments = [], []
    for side, text in enumerate(texts):
        at = 0
        if side:
            offsets.append((0, 0))
            segments.append(1)
        for word in text.split():
            offsets.append((at, at + len(word)))
            segments.append(side)
            at += len(word) + 1
    first = len(texts[0].split())
    special = torch.zeros(len(offsets), dtype=torch.bool)
    special[first] = True
    tokens = tuple(texts[max(0, s)][slice(*o)] for s, o in zip(segments, offsets, strict=True))
    return alti.Source(texts=texts, tokens=tokens, offsets=tuple(offsets), special=special,
                       segments=tuple(segments), decoder=first, answer=first + 1)  # fmt: skip


def test_links_go_to_the_best_and_to_those_near_it():
    source = source_of("ein hund", "a dog")
    scores = torch.tensor([[0.5, 0.2, 0.3, 0, 0], [0.2, 0.3, 0.1, 0.4, 0]])
    assert align(source, scores, near=1).links == ((0, 0), (1, 1))
    assert align(source, scores, near=0.5).links == ((0, 0), (0, 1), (1, 1))
    assert str(align(source, scores, near=1)) == "0-0 1-1"
    torch.testing.assert_close(align(source, scores).scores, scores[:, :2])
    assert align(source, -scores).links == ()
    with pytest.raises(alti.UsageError, match="near = 0 is no share"):
        align(source, scores, near=0)
    with pytest.raises(alti.UsageError, match="every token of a target"):
        align(source, scores[:1])


def test_words_of_several_tokens():
    model = alti.Model(
        tiny.speaking("marian", "AutoModelForSeq2SeqLM", decoder_start_token_id=0), tiny.tokenizer()
    )
    result = model.explain("A clever film, long", answer="the plot")
    found = result.alignment()
    assert found.source == ("A", "clever", "film", ",", "long")
    spaced = result.alignment(spaced=True)
    assert spaced.source == ("A", "clever", "film,", "long")
    words = result.words()
    by_hand = words.scores[:, 1]  # of "clever" for every target token
    rows = [words_tokens(result, "the"), words_tokens(result, "plot")]
    expected = torch.stack([by_hand[row].mean() for row in rows])
    torch.testing.assert_close(found.scores[:, 1], expected)
    with pytest.raises(alti.UsageError, match="do not group it"):
        words.alignment()
    with pytest.raises(alti.UsageError, match="explain an encoder–decoder"):
        alti.load().explain("a film", positions=None) and align(
            alti.load().explain("a film").source, torch.zeros(1, 4)
        )


def words_tokens(result: alti.Attributions, word: str) -> list[int]:
    start = result.source.texts[1].index(word)
    inside = range(start, start + len(word))
    spans = result.source.offsets[result.source.answer :]
    return [k for k, (first, _) in enumerate(spans) if first in inside]


def test_links_as_they_are_written():
    assert links_of("0-0 2-1") == {(0, 0), (2, 1)}
    with pytest.raises(alti.UsageError, match="row 3: '2p1' is no link"):
        links_of("0-0 2p1", "row 3")


@pytest.fixture
def gold(tmp_path):
    rows = [
        {"source": "ein hund läuft", "target": "a dog runs", "sure": "0-0 1-1 2-2"},
        {"source": "katze schläft", "target": "cat sleeps", "sure": "0-0", "possible": "1-1"},
    ]
    file = tmp_path / "gold.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_the_benchmark_of_alignments(trained, gold, tmp_path, run_cli):
    folder, _ = trained
    out = tmp_path / "rows.jsonl"
    arguments = ("bench", "--task", "alignment", "--model", folder, "--data", gold, "--methods",
                 "random,attention,alti", "--out", out)  # fmt: skip
    code, text, error = run_cli(*arguments)
    assert code == 0, error
    assert "AER" in text
    assert "2 sentences" in text
    lines = out.read_text().splitlines()
    assert len(lines) == 1 + 2 * 3
    out.write_text("\n".join(lines[:4]) + "\n")  # a run that was stopped
    assert run_cli(*arguments)[:2] == (code, text)
    assert sorted(out.read_text().splitlines()) == sorted(lines)
    assert run_cli(*arguments, "--first", 1)[0] == 2  # another run
    assert run_cli(*arguments, "--group", "word")[0] == 2
    other = (*arguments[:-1], tmp_path / "near.jsonl")
    code, narrow, error = run_cli(*other, "--near", 1)
    assert code == 0, error
    assert narrow != text  # fewer links


def test_the_benchmark_refuses_what_it_cannot_do(trained, gold, tmp_path):
    model = alti.load(trained[0])
    plan = Aligning(model="x", data=str(gold), methods=("alti",))
    rows = run(plan, model, tmp_path / "a.jsonl")
    best = table(plan, rows).rows[0][1][0]
    assert best.value == pytest.approx(
        alignment_error_rate(added(Counts(*list(row.values())[2:]) for row in rows))
    )
    with pytest.raises(alti.UsageError, match="needs an encoder–decoder"):
        run(plan, alti.load(), tmp_path / "b.jsonl")
    gold.write_text('{"source": "ein", "target": "a", "sure": "0-5"}\n')
    with pytest.raises(alti.UsageError, match="link 0-5 is outside the texts"):
        run(plan, model, tmp_path / "c.jsonl")
    gold.write_text('{"source": "ein", "sure": "0-5"}\n')
    with pytest.raises(alti.UsageError, match="has no column 'target'"):
        run(plan, model, tmp_path / "d.jsonl")


# Views


@pytest.fixture
def drawn():
    """Two source words of one target word, and a word that would be code on a page."""
    source = source_of("ein kleiner <b>", "tiny {x}")
    scores = torch.tensor([[0.4, 0.3, 0.1, 0.2, 0, 0], [0.0, 0.1, 0.8, 0.0, 0.1, 0]])
    return align(source, scores, spaced=True)


def test_side_by_side_in_a_terminal(drawn):
    assert drawn.render().splitlines() == [
        "source → target",
        "  ein kleiner ── tiny",
        "  <b> ────────── {x}",
        "",
        "  each row relative to its best; [ ] is a link",
        "       ein kleiner <b>",
        "  tiny [█]   [▓]    ·",
        "  {x}              [█]",
    ]


def test_a_matrix_that_does_not_fit():
    words = " ".join(f"word{number}" for number in range(30))
    found = align(source_of(words, "a"), torch.ones(1, 32))
    assert "(the matrix is wider than the terminal: see to_html)" in found.render()


def test_a_page_of_an_alignment(drawn):
    page = drawn.to_html()
    assert page.count('class="link"') == len(drawn.links) == 3
    assert page.count('class="linked"') == 3
    assert page.count('class="cell"') == 6
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "<script" not in page


def test_an_alignment_in_latex(drawn, tmp_path):
    assert drawn.to_latex().count(r"\draw") == 3
    written = drawn.to_latex(document=True)
    assert written.count(r"\bullet") == 3
    assert r"\{x\}" in written
    if shutil.which("pdflatex") is None:
        pytest.skip("no LaTeX here")
    (tmp_path / "a.tex").write_text(written)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-500:]


def test_an_alignment_names_its_method_and_model(trained):
    model = alti.load(trained[0])
    found = model.explain("ein hund", answer="a dog", method="linear", of="log_prob").alignment()
    assert found.by == f"linear:of=log_prob · {model.name}"
    assert found.by in found.render()
    assert found.by in found.to_html()
    assert "of=log" in found.to_latex(document=True)


def test_plots_of_an_alignment(drawn):
    lines = drawn.plot()
    (ax,) = lines.axes
    assert len(ax.lines) == 3
    assert [text.get_text() for text in ax.texts] == [*drawn.source, *drawn.target, drawn.by]
    scale = [text.get_text() for text in ax.get_legend().get_texts()]
    assert scale == ["0.25", "0.5", "1: the target word's best link"]
    alphas = [line.get_alpha() for line in ax.get_legend().get_lines()]
    assert alphas == sorted(alphas)
    assert alphas[-1] == 1.0
    (ax,) = drawn.plot("matrix").axes
    assert len(ax.patches) == 3
    (bar,) = ax.child_axes
    assert bar.get_ylabel() == "share of the row's best"
    with pytest.raises(alti.UsageError, match="plot 'pie' does not exist: choose from lines"):
        drawn.plot("pie")


# The experiments of docs/translation.md


def test_the_page_holds_the_results():
    page = (ROOT / "docs" / "translation.md").read_text()
    results = json.loads((ROOT / "reproduction" / "results" / "translation.json").read_text())
    for made in experiments.tables(results):
        assert made in page
    assert f"**{results['bleu']['bleu']:.1f}** on the test set" in page


def test_the_page_holds_the_constants():
    page = (ROOT / "docs" / "translation.md").read_text()
    folder = ROOT / "reproduction" / "results"
    results = json.loads((folder / "translation_constants.json").read_text())
    assert constants.table(results["test"]) in page
    assert constants.chosen(results["validation"]) == results["chosen"]
    of_all = json.loads((folder / "translation.json").read_text())["deletion"]
    same = [spec for spec in results["test"] if spec in of_all]
    assert len(same) == 4  # alti and three defaults, by two scripts
    assert all(results["test"][spec] == of_all[spec] for spec in same)


def test_constants_are_chosen_by_the_mean():
    """Each method by itself, whatever the others do."""
    specs = [
        x
        for name in constants.DEFAULTS
        for x in (constants.DEFAULTS[name], *constants.OTHERS[name])
    ]
    found = {spec: {"0.1": 0.0, "0.5": float(number)} for number, spec in enumerate(specs)}
    last = {name: others[-1] for name, others in constants.OTHERS.items()}
    assert constants.chosen(found) == last


def test_the_made_up_language_follows_its_rules():
    (row,) = gold_alignment.rows("test", 1)
    source, target = row["source"].split(), row["target"].split()
    links = links_of(row["sure"])
    assert source[-1].startswith("ver")
    assert {i for i, _ in links} == set(range(len(source)))
    assert {j for _, j in links} == set(range(len(target)))
    for i, j in links:
        joined = target[j].startswith("JO")
        assert source[i][-1].upper() in target[j][2:] if joined else source[i].upper() == target[j]


def test_gold_links_of_files(tmp_path):
    for name, text in (("de", "Das stimmt\n"), ("en", "This is true\n"), ("links", "1-1 2p2 2-3")):
        (tmp_path / name).write_text(text)
    experiments.gold(*(str(tmp_path / name) for name in ("de", "en", "links", "out")))
    assert json.loads((tmp_path / "out").read_text()) == {
        "source": "Das stimmt",
        "target": "This is true",
        "sure": "0-0 1-2",
        "possible": "1-1",
    }


def test_the_area_under_the_roc():
    assert experiments.area([0.0, 1.0], [2.0, 3.0]) == 1
    assert experiments.area([0.0, 1.0], [0.0, 1.0]) == 0.5


def test_the_experiments_on_a_tiny_model(trained, data, tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "RESULTS", tmp_path / "translation.json")
    monkeypatch.setattr(experiments, "METHODS", ("random", "alti"))
    monkeypatch.setattr(experiments, "POSITIONS", 2)
    monkeypatch.setattr(sys, "argv", ["x", str(trained[0]), str(data / "validation.jsonl")])
    experiments.main()
    results = json.loads((tmp_path / "translation.json").read_text())
    assert results["pairs"] == 4
    assert results["deletion"].keys() == {"random", "alti"}
    assert len(experiments.tables(results)) == 3


def test_an_alignment_marks_what_the_model_did_not_know(trained):
    model = alti.load(trained[0])
    found = model.explain("ein \U0001f60d hund", answer="a dog").alignment()
    assert found.source == ("ein", "\U0001f60d", "hund")
    (mark,) = filter(None, found.unknown[0])
    assert found.names[0] == ("ein", f"\U0001f60d {mark}", "hund")
    figure = found.plot("matrix")
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    for view in (found.render(), unescape(found.to_html()), " ".join(ticks)):
        assert mark in view
    assert escaped(mark) in found.to_latex()

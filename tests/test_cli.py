"""The command line: results on stdout, talk on stderr, exit codes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperOption

import alti
from alti.cli import app
from alti.cli.models import _compared, _complete
from alti.cli.panels import ANSWER, FEW, OF_COMMANDS, PANELS
from alti.refused import REFUSED

import tiny
from speed import slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.saved(tmp_path_factory.mktemp("models") / "tiny-bert"))


def test_explain(run, folder):
    code, out, err = run("explain", "A clever film", "--model", folder)
    assert (code, err) == (0, "")
    assert "· alti · tiny-bert" in out.splitlines()[0]
    first = [line.split()[0] for line in out.splitlines()[1:]]
    assert first == ["A", "clever", "film", "special", "scores:"]


def test_explain_as_json(run, folder):
    code, out, _ = run(
        "explain", "A clever film", "-m", folder, "--json", "--target", "positive", "-o", "p=2"
    )
    result = alti.Attribution.from_dict(json.loads(out))
    assert code == 0
    assert (result.label, result.options, result.layers) == ("positive", {"p": 2}, None)
    _, out, _ = run("explain", "A clever film", "-m", folder, "--json", "--layers")
    assert len(alti.Attribution.from_dict(json.loads(out)).layers) == tiny.LAYERS


def test_explain_options(run, folder):
    _, out, _ = run(
        "explain", "A clever film", "-m", folder, "--tokens", "--method", "attention_rollout"
    )
    assert "[CLS]" in out
    _, out, _ = run("explain", "A clever film", "-m", folder, "--pair", "the plot", "--json")
    assert json.loads(out)["source"]["texts"][1] == "the plot"
    _, out, _ = run("explain", "clever " * 50, "-m", folder, "--truncate", "--json")
    assert json.loads(out)["source"]["cut"]


def test_explain_lines(run, folder, tmp_path):
    lines = "A clever film\n\nthe plot\n"
    code, out, err = run("explain", "-", "-m", folder, "--json", stdin=lines)
    assert code == 0
    assert [json.loads(line)["source"]["texts"] for line in out.splitlines()] == [
        ["A clever film"],
        ["the plot"],
    ]
    assert err == "alti: 2 texts explained, 1 empty line skipped\n"
    (tmp_path / "texts").write_text(lines)
    assert run("explain", "--file", tmp_path / "texts", "-m", folder, "--json")[1] == out


def test_explain_writes_files(run, folder, tmp_path):
    page, paper = tmp_path / "page.html", tmp_path / "paper.tex"
    code, out, err = run("explain", "A clever film", "-m", folder, "--html", page, "--latex", paper)
    assert (code, out) == (0, "")
    assert err == f"alti: {page} written\nalti: {paper} written\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert paper.read_text(encoding="utf-8").startswith("\\documentclass")
    code, out, _ = run(
        "explain", "-", "-m", folder, "--html", page, "--json", stdin="A clever film\nthe plot\n"
    )
    assert (code, len(out.splitlines())) == (0, 2)
    assert page.read_text(encoding="utf-8").count("<section") == 2
    code, _, err = run(
        "explain", "-", "-m", folder, "--html", page, stdin=f"the plot\n{'long ' * 100}\n"
    )
    assert (code, page.read_text(encoding="utf-8").count("<section")) == (
        2,
        1,
    )  # what was done is kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "paper.tex"]


def test_files_that_cannot_be_written(run, folder, tmp_path, monkeypatch):
    for name, what in (
        (tmp_path / "no" / "page", "there is no folder"),
        (tmp_path, "is a folder: give a file"),
    ):
        for command, option in (("explain", "--html"), ("compare", "--latex")):
            code, out, err = run(command, "A clever film", "-m", folder, option, name)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert f"{option} {name}" in err
            assert what in err
    assert run("explain", "A clever film", "-m", folder, "--html", "/dev/null")[0] == 0
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert run("explain", "A clever film", "-m", folder, "--html", tmp_path / "link")[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert "<section" in (tmp_path / "real").read_text(encoding="utf-8")
    monkeypatch.setattr(
        "os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    code, _, err = run("explain", "A clever film", "-m", folder, "--html", tmp_path / "real")
    assert (code, "No space left on device" in err) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_colours_where_there_are_some(run, folder, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "3")
    _, out, _ = run("explain", "A clever film", "-m", folder)
    assert "\x1b[38;2;" in out
    assert "█" not in out
    assert "█" in run("explain", "A clever film", "-m", folder, "--bars")[1]
    _, out, _ = run("compare", "A clever film", "-m", folder, "--methods", "alti,linear")
    assert out.splitlines()[2].startswith("  \x1b[1malti\x1b[0m    ")
    assert "alti" in run("compare", "A clever film", "-m", folder, "--bars")[1].splitlines()[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("explain", "A clever film", "-m", folder)[1]


def test_a_bad_line_is_named_and_nothing_is_lost(run, folder):
    lines = f"A clever film\n\nthe plot\n{'long ' * 100}\nfiction\n"
    code, out, err = run("explain", "-", "-m", folder, "--json", stdin=lines)
    assert code == 2
    assert len(out.splitlines()) == 2
    assert "alti: line 4: the text has " in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("explain", "hi", "-m", "/no/model"), 2, "model '/no/model' does not exist"),
        (
            ("explain", "hi", "-m", "no-such/model"),
            1,
            "the hub model no-such/model could not be loaded",
        ),
        (("explain", "", "-m", "FOLDER"), 2, "text is empty"),
        (
            ("explain", "-m", "FOLDER"),
            2,
            "give one of a TEXT (- for standard input), --file FILE, --chat FILE or --audio FILE",
        ),
        (("explain", "hi", "--file", "x", "-m", "FOLDER"), 2, "give one of a TEXT"),
        (("explain", "--file", "/no/file", "-m", "FOLDER"), 2, "--file /no/file does not exist"),
        (
            ("explain", "hi", "-m", "FOLDER", "--method", "lime"),
            2,
            "method 'lime' does not exist: choose one of absence, alti",
        ),
        (("explain", "hi", "-m", "FOLDER", "-o", "q=1"), 2, "method alti has no option 'q'"),
        (
            ("explain", "hi", "-m", "FOLDER", "-o", "method=norms"),
            2,
            "method alti has no option 'method'",
        ),
        (
            ("explain", "hi", "-m", "FOLDER", "-o", "layers=true"),
            2,
            "method alti has no option 'layers'",
        ),
        (
            ("explain", "hi", "-m", "FOLDER", "--layers"),
            2,
            "--layers prints the maps as JSON: add --json, or draw",
        ),
        (("explain", "a\udcffb", "-m", "FOLDER"), 2, "is not valid Unicode"),
        (("explain", "--file", "/tmp", "-m", "FOLDER"), 2, "--file /tmp is not a file"),
        (
            ("explain", "hi", "-m", "FOLDER", "-o", "p"),
            2,
            "option 'p' has no value: write it as NAME=VALUE",
        ),
        (("explain", "hi", "-m", "FOLDER", "-o", "p=3"), 2, "p = 3 is not a norm of ALTI"),
        (
            ("explain", "hi", "-m", "FOLDER", "--target", "ugly"),
            2,
            "is not a label of this model: it has 0 negative",
        ),
        (
            ("explain", "hi", "-m", "FOLDER", "--position", "1"),
            2,
            "a sequence classifier reads its own",
        ),
        (("explain", "hi", "-m", "FOLDER", "--device", "tpu"), 2, "device 'tpu' is not there"),
        (
            ("explain", "hi", "--targt", "x"),
            2,
            "option --targt does not exist (did you mean --target?): see alti explain --help",
        ),
        (("explain", "hi", "--zzzzz"), 2, "option --zzzzz does not exist: see alti explain"),
        (("explian", "hi"), 2, "command explian does not exist (did you mean explain?): see alti"),
        (("-m", "x"), 2, "option -m does not exist: see alti --help"),
        (("explain", "hi", "--position", "x"), 2, "--position x is no whole number: see alti exp"),
        (("explain", "hi", "--temperature", "x"), 2, "--temperature x is no number: see alti exp"),
        (("results",), 2, "missing argument 'path': see alti results --help"),
        (("explain", "hi", "--choice", "a", "-m", "FOLDER"), 2, "choices (--choice) were given"),
        (("explain", "-", "--pair", "x", "-m", "FOLDER"), 2, "go with one TEXT"),
        (("check", "/no/model"), 2, "model '/no/model' does not exist"),
    ],
)
def test_errors_are_one_sentence_and_a_code(run, folder, arguments, code, message):
    given = (folder if argument == "FOLDER" else argument for argument in arguments)
    exit_code, out, err = run(*given)
    assert exit_code == code
    assert out == ""
    assert message in err
    assert err.startswith("alti: ")
    assert err.count("\n") == 1


def test_no_arguments_show_the_help(run):
    code, out, err = run()
    assert (code, err) == (2, "")
    assert "Usage: alti [OPTIONS] COMMAND" in out


def test_no_lines_are_one_sentence(run, folder):
    code, out, err = run("explain", "-", "-m", folder, stdin="")
    assert (code, out) == (1, "")
    assert err == "alti: standard input has no text: give one per line\n"


def test_a_folder_that_cannot_be_made(run, folder, tmp_path):
    (tmp_path / "texts.txt").write_text("A dull film.\n")
    code, _, err = run("explain", "--file", tmp_path / "texts.txt", "--out", "/proc/x")
    assert code == 2
    assert err.startswith("alti: /proc/x cannot be made (")


@pytest.mark.parametrize(("option", "of"), [("--top-k", "tokens"), ("--batch-size", "texts"),
                                            ("--shard-rows", "texts")])  # fmt: skip
def test_a_number_says_what_it_counts(run, tmp_path, option, of):
    (tmp_path / "texts.txt").write_text("A dull film.\n")
    code, _, err = run(
        "explain", "--file", tmp_path / "texts.txt", "--out", tmp_path / "out", option, 0
    )
    assert code == 2
    assert f" = 0 is not a number of {of}: give 1 or more" in err


def test_a_file_that_is_not_text(run, folder, tmp_path):
    (tmp_path / "picture").write_bytes(b"\xff\xfe\x00")
    code, _, err = run("explain", "--file", tmp_path / "picture", "-m", folder)
    assert code == 1
    assert (
        "picture could not be read (line 1 or one soon after is not UTF-8): save it as UTF-8" in err
    )


def test_warnings_are_a_line_of_talk(run, tmp_path):
    tiny.saved(tmp_path, head="AutoModel")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "architectures": ["BertForMaskedLM"]})
    )
    _, out, err = run("explain", "A clever film", "-m", tmp_path)
    assert "clever" in out
    assert (
        err == f"alti: {tmp_path} has no weights for the head of BertForMaskedLM: "
        "loaded without a head\n"
    )


def test_check_says_what_was_compared_where_nothing_differs():
    assert _compared(1.5e-7, "float32") == "worst error 1.5e-07 in float32"
    assert (
        _compared(0.0, "float32") == "each equal to the sum of its parts to the last bit in float32"
    )
    assert _complete(1.5e-7) == "linear view complete to 1.5e-07"
    assert _complete(0.0) == "linear view complete to the last bit"


def test_check(run, folder, monkeypatch):
    code, out, _ = run("check", folder)
    assert code == 0
    assert out.startswith("tiny-bert (bert): 3 blocks, worst error ")
    assert " in float32, linear view complete to " in out
    assert out.endswith(": exact\n")
    _, out, _ = run("check", folder, "--dtype", "bfloat16", "--json")
    report = json.loads(out)
    assert report["exact"] is True
    assert {name: len(errors) for name, errors in report["errors"].items()} == {
        "bfloat16": 3,
        "float32": 3,
    }
    assert max(report["errors"]["float32"]) < 1e-5 < max(report["errors"]["bfloat16"])
    assert report["completeness"] < 1e-5
    with monkeypatch.context() as patch:
        patch.setattr("alti.read.linear_view._straight_norm", lambda *_: None)
        code, out, err = run("check", folder)
        assert (code, out) == (1, "")
        assert "the linear view leaves" in err
    site = alti.Site("attention.output.dense", then="intermediate")
    monkeypatch.setitem(alti.FAMILIES, "bert", alti.Family((alti.Stack("encoder.layer", (site,)),)))
    code, out, err = run("check", folder)
    assert (code, out) == (1, "")
    assert (
        "bert block 0: its entry in alti.FAMILIES rebuilds the block with a relative error" in err
    )


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("t5", "AutoModelForSeq2SeqLM"),
        ("bart", "AutoModelForSeq2SeqLM"),
        ("gpt2", "AutoModelForCausalLM"),
    ],
)
def test_check_other_kinds(run, tmp_path, family, head):
    tiny.saved(tmp_path, family, head)
    code, out, _ = run("check", tmp_path)
    assert code == 0
    assert out.endswith("exact\n")


@pytest.mark.filterwarnings("ignore")  # transformers' own, about the tiny config
@pytest.mark.parametrize("family", ["gpt_oss", "apertus"])
def test_check_without_a_linear_view(run, tmp_path, family):
    tiny.saved(tmp_path, family, "AutoModelForCausalLM")
    code, out, _ = run("check", tmp_path)
    checked, why = out.splitlines()
    assert code == 0
    assert f"({family}): 3 blocks" in checked
    assert checked.endswith(": exact")
    assert why == f"no linear view: {alti.FAMILIES[family].nonlinear}"
    report = json.loads(run("check", tmp_path, "--json")[1])
    assert (report["exact"], report["completeness"]) == (True, None)
    assert report["no_linear_view"] == alti.FAMILIES[family].nonlinear


def test_check_pictures(run, tmp_path):
    tiny.build("vit", "AutoModelForImageClassification").float().save_pretrained(tmp_path)
    code, out, _ = run("check", tmp_path)
    assert code == 0
    assert "(vit): 3 blocks" in out


def test_lists(run):
    _, out, _ = run("families", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["family"] for row in rows] == sorted(alti.FAMILIES)
    _, out, _ = run("families")
    assert "deberta-v2" in out
    _, out, _ = run("families", "--refused", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["family"]: row["why"] for row in rows} == REFUSED
    _, out, _ = run("methods", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["method"] for row in rows} == set(alti.METHODS)
    by_name = {row["method"]: row for row in rows}
    assert by_name["alti"]["options"] == {"p": 1, "kernel": "auto"}
    assert by_name["alti"]["explains"] == "how tokens mix"
    assert by_name["occlusion"]["explains"] == "a class, many passes"
    assert (rows[0]["explains"], rows[-1]["method"]) == ("a class", "random")
    _, out, _ = run("methods")
    assert "attention_rollout" in out


def test_version_and_help(run):
    assert run("--version")[1] == f"alti {alti.__version__}\n"
    assert "explain" in run("--help")[1]


@slow
def test_as_a_program(folder):
    done = subprocess.run(
        [sys.executable, "-m", "alti", "explain", "A clever film", "-m", folder, "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["source"]["texts"] == ["A clever film"]
    assert done.stderr == ""


@slow
@pytest.mark.skipif(shutil.which("script") is None, reason="needs a pseudo-terminal from script(1)")
def test_progress_goes_to_a_terminal_on_stderr_only(folder, tmp_path):
    (tmp_path / "texts").write_text("A clever film\n" * 40)
    explain = f"{sys.executable} -m alti explain --file {tmp_path / 'texts'} -m {folder} --json"
    command = f"{explain} > {tmp_path / 'out'}"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=True
    )
    assert "40/40" in done.stdout  # what the terminal showed
    assert "40 texts explained" in done.stdout
    assert len((tmp_path / "out").read_text().splitlines()) == 40


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.tsv"
    file.write_text("sentence\tlabel\nA clever film\t1\nA bad and clumsy plot\t0\n\t1\n")
    return file


def test_bench(run, folder, texts, tmp_path):
    rows = tmp_path / "rows.jsonl"
    arguments = (
        "bench",
        "-m",
        folder,
        "--data",
        texts,
        "--methods",
        "random,alti,alti:p=2,linear",
        "--out",
        rows,
    )
    code, out, err = run(*arguments)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[3:7]] == [
        "random",
        "alti",
        "alti:p=2",
        "linear",
    ]
    assert "2 texts; 95 % bootstrap intervals" in out
    assert re.search(r"The model is right on (0|50|100)\.0 % of them\.", out)
    assert "Passed over: 1 (" in out
    assert "forward passes in" in err
    assert f"rows in {rows}" in err
    again = run(*arguments)
    assert again[1] == out  # nothing left to do, the same tables
    for form, start in (
        ("markdown", "**"),
        ("latex", "\\begin{table}"),
        ("csv", "table,row,column,value,low,high\n"),
    ):
        code, out, _ = run(*arguments, "--format", form)
        assert (code, out[: len(start)]) == (0, start)
    _, out, _ = run(*arguments, "--json")
    report = json.loads(out)
    assert report["tables"][0]["rows"][1]["method"] == "alti"
    assert report["work"]["passes"] > 0


def test_bench_draws_curves(run, folder, texts, tmp_path):
    metrics = "probability_drop,aopc,normalized_aopc"
    options = (
        "--methods",
        "alti",
        "--metrics",
        metrics,
        "--out",
        tmp_path / "rows.jsonl",
        "--json",
    )
    code, out, _ = run("bench", "-m", folder, "--data", texts, *options)
    report = json.loads(out)
    assert code == 0
    assert report["curves"]["alti probability_drop"]["texts"][0] == 2
    assert 0 <= report["tables"][0]["rows"][0]["normalized_aopc"]["value"] <= 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--data", "nowhere.csv"), 2, "nowhere.csv"),
        (("--data", "TEXTS", "--methods", "lime"), 2, "method 'lime' does not exist"),
        (("--data", "TEXTS", "--metrics", "accuracy"), 2, "metric 'accuracy' does not exist"),
        (("--data", "TEXTS", "--metrics", ","), 2, "names nothing"),
        (("--data", "TEXTS", "--text-column", "body"), 2, "body"),
        (("--data", "TEXTS", "--format", "html"), 2, "choose text, markdown, latex or csv"),
        (("--data", "TEXTS", "--first", "0"), 2, "give 1 or more"),
        (("--data", "TEXTS", "--out", "TEXTS"), 2, "is the data itself"),
        (("--data", "TEXTS", "--out", "."), 2, "cannot be written"),
        (("--data", "EMPTY", "--methods", "random"), 1, "no text of"),
    ],
)
def test_bench_errors(run, folder, texts, tmp_path, arguments, code, message):
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n')
    paths = {"TEXTS": str(texts), "EMPTY": str(tmp_path / "empty.jsonl")}
    given = [paths.get(argument, argument) for argument in arguments]
    exit_code, out, err = run("bench", "-m", folder, "--out", tmp_path / "rows.jsonl", *given)
    assert (exit_code, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_file_without_any_result_is_no_obstacle(run, folder, tmp_path):
    (tmp_path / "long.txt").write_text("clever " * 100, encoding="utf-8")
    arguments = (
        "bench",
        "-m",
        folder,
        "--data",
        tmp_path / "long.txt",
        "--methods",
        "alti",
        "--out",
        tmp_path / "b.jsonl",
    )
    code, _, err = run(*arguments)
    assert (code, "--truncate" in err) == (1, True)
    code, out, _ = run(*arguments, "--truncate")
    assert code == 0
    assert "1 text; |·|: ranked by the size" in out
    assert "Cut to the model's length: 1 of them." in out
    assert (
        "[" not in out.partition("alti ")[2].partition("\n")[0]
    )  # of one text there is no interval


def test_compare_against_a_class(run, folder):
    arguments = ("compare", "A clever film", "-m", folder, "--target", "1", "--against", "0")
    code, out, err = run(*arguments, "--methods", "alti,linear,absence")
    assert (code, out.splitlines()[1].split()) == (0, ["linear", "absence"])
    assert "left out, the same for every class: alti" in err
    assert " rather than " in out.splitlines()[0]
    code, _, err = run(*arguments, "--methods", "alti")
    assert (code, "nothing to compare" in err) == (2, True)


def test_metrics(run):
    code, out, _ = run("metrics", "--json")
    metrics = {row["metric"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    assert metrics["probability_drop"]["options"] == {"steps": 30, "envelope": False}
    assert metrics["token_f1"]["what"]


def test_compare_a_pair(run, folder):
    code, out, _ = run(
        "compare", "A clever film", "--pair", "a dull plot", "-m", folder, "--methods", "alti"
    )
    assert (code, [line.split()[0] for line in out.splitlines()[2:]][-2]) == (0, "plot")


def test_compare(run, folder, tmp_path):
    code, out, _ = run(
        "compare",
        "A clever film",
        "-m",
        folder,
        "--methods",
        "alti,linear,input_x_gradient:aggregate=sum",
    )
    head, *lines = out.splitlines()[1:]
    assert code == 0
    assert head.split() == ["alti", "linear", "input_x_gradient:aggregate=sum"]
    assert [line.split()[0] for line in lines] == ["scores", "A", "clever", "film", "special"]
    assert sum(abs(float(line.split()[-3])) for line in lines[1:]) == pytest.approx(1, abs=2e-3)
    code, out, _ = run("compare", "A clever film", "-m", folder, "--json")
    assert [json.loads(line)["method"] for line in out.splitlines()][:2] == ["alti", "absence"]
    page = tmp_path / "page.html"
    code, out, _ = run(
        "compare", "A clever film", "-m", folder, "--methods", "alti,linear", "--html", page
    )
    assert (code, out) == (0, "")
    assert page.read_text(encoding="utf-8").count('class="alti-name"') == 2
    code, _, err = run("compare", "A clever film", "-m", folder, "--methods", "lime")
    assert (code, "method 'lime' does not exist" in err) == (2, True)


def test_bench_leaves_out_what_a_family_has_not(run, texts, tmp_path):
    tiny.saved(tmp_path / "gpt2", "gpt2")
    code, out, err = run(
        "bench", "-m", tmp_path / "gpt2", "--data", texts, "--first", "1", "--out", tmp_path / "r"
    )
    assert code == 0
    assert "left out, gpt2 has no second norm: globenc, alti_ln2" in err
    assert "absence" in out


def test_train(run, tmp_path):
    tiny.saved(tmp_path / "checkpoint")
    data = tmp_path / "data.csv"
    data.write_text(
        "text,label,split\na clever film,1,train\na bad plot,0,train\na bad film,0,validation\n"
    )
    code, out, _ = run(
        "train", tmp_path / "checkpoint", tmp_path / "out", "--data", data, "--epochs", "1"
    )
    assert code == 0
    assert "trained on 2 texts, accuracy" in out
    assert alti.load(tmp_path / "out").explain("a bad film").label in ("0", "1")
    code, _, err = run(
        "train", tmp_path / "checkpoint", tmp_path / "out", "--data", data, "--task", "tokens"
    )
    assert (code, "choose text or mask" in err) == (2, True)


def test_training_that_goes_wrong_is_a_failure(run, tmp_path):
    tiny.saved(tmp_path / "checkpoint")
    data = tmp_path / "data.csv"
    data.write_text("text,label\na clever film,1\na bad plot,0\n")
    options = ("--data", data, "--split", "", "--validation", "", "--epochs", "4", "--rate", "1e36")
    code, out, err = run("train", tmp_path / "checkpoint", tmp_path / "out", *options)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "is not finite at step 2 of 4" in err
    assert "train with a smaller rate (--rate), into another folder" in err
    assert not (tmp_path / "out" / "card.json").exists()


def test_training_without_labels_names_the_options(run, tmp_path):
    tiny.saved(tmp_path / "checkpoint")
    data = tmp_path / "data.csv"
    data.write_text("text\na clever film\n")
    options = ("--data", data, "--split", "", "--validation", "")
    code, out, err = run("train", tmp_path / "checkpoint", tmp_path / "out", *options)
    assert (code, out) == (2, "")
    assert "name their columns with text= (--text-column) and label= (--label-column)" in err


@slow
def test_a_reader_who_leaves_is_no_failure(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\ufeffA clever film\nA dull film\n", encoding="utf-8")
    page = tmp_path / "page.html"
    command = f"{sys.executable} -m alti explain --file {file} --json --html {page} --batch-size 1"
    script = f"set -o pipefail; {command} | head -c 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 141)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert page.is_file()  # what was computed is not lost


def test_a_full_disk_is_one_sentence():
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")  # only Linux has it
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "alti", "families"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "alti: the output could not be written: No space left on device\n"


def test_no_text_is_a_failure(run, folder, tmp_path):
    code, out, err = run("explain", "-", "-m", folder, "--html", tmp_path / "page.html", stdin="\n")
    assert (code, out) == (1, "")
    assert "standard input has no text: give one per line" in err


def test_the_embedded_model_has_a_name(run):
    assert run("check", "default")[0] == 0
    code, _, err = run("explain", "hi", "--model", "")
    assert code == 2
    assert "the name of the model is empty" in err


@pytest.mark.parametrize("kind", ["tokens", "matrix", "layers", "graph"])
def test_a_plot(run, folder, tmp_path, kind):
    file = tmp_path / "picture.svg"
    code, out, err = run("explain", "A clever blend", "-m", folder, "--plot", file, "--kind", kind)
    assert (code, out, err) == (0, "", f"alti: {file} written\n")
    assert file.read_text().startswith("<?xml")


def test_a_plot_is_written_as_a_whole(run, folder, tmp_path, monkeypatch):
    (tmp_path / "null.png").symlink_to("/dev/null")
    code, _, err = run("explain", "hi", "-m", folder, "--plot", tmp_path / "null.png")
    assert (code, "is a device or a pipe, which cannot be replaced" in err) == (2, True)
    (tmp_path / "null.png").unlink()
    file = tmp_path / "old.png"
    file.write_text("old")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(full))
    code, _, err = run("explain", "hi", "-m", folder, "--plot", file)
    assert (code, err) == (1, f"alti: {file} could not be written: No space left on device\n")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.png", "old")]


def test_a_plot_that_cannot_be(run, folder, tmp_path):
    for arguments, message in (
        (("--plot", tmp_path / "picture.txt"), "does not end like a picture: choose from"),
        (
            ("--plot", tmp_path / "picture.png", "--kind", "pie"),
            "--kind pie does not exist: choose from tokens",
        ),
        (("--plot", tmp_path / "no" / "picture.png"), "cannot be written"),
    ):
        code, _, err = run("explain", "hi", "-m", folder, *arguments)
        assert code == 2
        assert message in err
    code, _, err = run("explain", "-", "-m", folder, "--plot", tmp_path / "picture.png", stdin="hi")
    assert code == 2
    assert "--plot and --heads go with one TEXT" in err


HOSTILE = "\x1b[31m\x07\x9b1m\u202e\u2066"  # an escape, a bell, a C1 control, two overrides
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SHOWN = "␛[31m␇"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A model whose name and labels hold control characters."""
    labels = {0: f"bad{HOSTILE}", 1: f"good{HOSTILE}"}
    folder = tmp_path_factory.mktemp("hostile") / f"tiny{HOSTILE}"
    return tiny.saved(folder, id2label=labels, label2id={label: i for i, label in labels.items()})


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "A clever film", "-m"),
        ("compare", "A clever film", "--methods", "alti,linear", "-m"),
        ("check",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_names_of_a_model_do_not_control_the_terminal(run, hostile, arguments):
    code, out, err = run(*arguments, hostile)
    assert code == 0
    assert not CONTROLS.search(out + err)
    assert f"tiny{SHOWN}" in out


def test_json_keeps_names_as_they_are(run, hostile):
    options = ("--target", "0", "-m", hostile, "--json", "--method", "linear")
    _, out, _ = run("explain", "A clever film", *options)
    assert not CONTROLS.search(out)
    assert json.loads(out)["predictions"][0]["label"] == f"bad{HOSTILE}"


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "csv"])
def test_names_of_a_bench_do_not_control_the_terminal(run, folder, tmp_path, form):
    data = tmp_path / f"texts{HOSTILE}.txt"
    data.write_text("A clever film\n")
    out = tmp_path / f"rows{HOSTILE}.jsonl"
    options = ("--data", data, "--methods", "alti", "--out", out, "--format", form)
    code, said, err = run("bench", "-m", folder, *options)
    assert code == 0
    assert not CONTROLS.search(said + err)
    assert f"rows{SHOWN}" in err


def test_labels_of_training_do_not_control_the_terminal(run, tmp_path):
    tiny.saved(tmp_path / "checkpoint", head="AutoModel")
    data = tmp_path / f"data{HOSTILE}.csv"
    rows = f"text,label\na clever film,good{HOSTILE}\na bad plot,bad{HOSTILE}\n"
    data.write_text(rows, encoding="utf-8")
    out = tmp_path / f"out{HOSTILE}"
    options = ("--data", data, "--epochs", "1", "--saves", "0")
    code, said, err = run("train", tmp_path / "checkpoint", out, *options)
    assert code == 0
    assert not CONTROLS.search(said + err)
    assert f"labels bad{SHOWN}" in said
    assert f"data{SHOWN}" in err  # the warning that there is no column 'split'


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "--file", f"/nowhere/{HOSTILE}"),
        ("explain", "A film", "--html", f"/nowhere/{HOSTILE}"),
        ("explain", "A film", "--plot", f"film.{HOSTILE}"),
        ("bench", "--data", f"/nowhere/{HOSTILE}"),
    ],
    ids=lambda arguments: " ".join(arguments[:3]).translate({ord(c): "." for c in HOSTILE}),
)
def test_an_error_does_not_control_the_terminal(run, arguments):
    code, out, err = run(*arguments)
    assert (code > 0, out) == (True, "")
    assert not CONTROLS.search(err)
    assert "␛[31m" in err


def test_files_that_are_written_do_not_control_the_terminal(run, folder, tmp_path):
    for option, ending in {"--html": "html", "--latex": "tex", "--plot": "png"}.items():
        file = tmp_path / f"a{HOSTILE}.{ending}"
        code, _, err = run("explain", "A clever film", "-m", folder, option, file)
        assert (code, err.count("\n")) == (0, 1)
        assert not CONTROLS.search(err)
        assert f"a{SHOWN}" in err


def test_options_stand_in_panels():
    commands = typer.main.get_command(app).commands
    known = {param.name for command in commands.values() for param in command.params}
    named = {
        name
        for table in (PANELS, *OF_COMMANDS.values())
        for names in table.values()
        for name in names
    }
    assert named <= known
    for command in commands.values():
        options = [param for param in command.params if isinstance(param, TyperOption)]
        shown = [option.rich_help_panel for option in options]
        assert shown == sorted(shown, key=shown.index)  # each panel once
        assert all(shown.count(panel) > 1 for panel in shown if panel is not None)
        assert len(options) <= FEW or shown.count(None) <= FEW
    where = {option.name: option.rich_help_panel for option in commands["explain"].params[1:]}
    assert (where["model"], where["answer"]) == (None, ANSWER)

"""Many texts into a folder: what is stored, what is read back, and what a killed run leaves."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alti
from alti.engines import Asked, Data, Loading, Local, Plan, Ray, bench, compute, run
from alti.engines.store import Store

import tiny
from speed import slow

WORDS = ["a", "clever", "blend", "of", "fact", "and", "fiction", "but", "dull"]


def sentences(count: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(count)]


TEXTS = sentences(50)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.saved(tmp_path_factory.mktemp("engines") / "reader")


@pytest.fixture
def jsonl(tmp_path):
    file = tmp_path / "texts.jsonl"
    rows = [{"id": f"r{number}", "text": text} for number, text in enumerate(TEXTS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def content(folder):
    return alti.engines.results(folder).to_table(None).to_pylist()


def test_a_row_is_equal_to_what_explain_gives(model, jsonl, tmp_path):
    found = alti.engines.explain(jsonl, tmp_path / "out", model=model, shard_rows=20)
    loaded = alti.load(model)
    assert len(found) == found.total == 50
    assert [part.name[-9:] for part in found.store.parts()] == [
        "0.parquet",
        "1.parquet",
        "2.parquet",
    ]
    for number in (0, 19, 20, 49):
        one = loaded.explain(TEXTS[number], layers=False)
        assert found[f"r{number}"].values == pytest.approx(one.values, abs=1e-6)
        again = replace(found[f"r{number}"], scores=one.scores, prediction=one.prediction)
        assert again == one
    assert [one.text for one in found] == TEXTS
    plain = pq.read_table(tmp_path / "out")  # by any reader of Parquet
    assert plain["id"].to_pylist() == [f"r{number}" for number in range(50)]
    assert "layers" not in plain.column_names


@pytest.mark.parametrize(
    "options",
    [
        {"groups": "word"},
        {"method": "linear", "target": 0, "against": 1},
        {"layers": True},
        {"p": 2},
    ],
)
def test_what_has_no_column_is_kept_too(model, tmp_path, options):
    found = alti.engines.explain(TEXTS[:3], tmp_path / "out", model=model, **options)
    (result,) = alti.load(model).explain_all(TEXTS[:1], **options)
    stored = found["0"]
    assert replace(stored, scores=result.scores, layers=result.layers, prediction=result.prediction,
                   extra=result.extra) == result  # fmt: skip
    assert stored.values == pytest.approx(result.values, abs=1e-6)
    assert stored.extra == pytest.approx(result.extra, abs=1e-6)
    assert stored.prediction.against == result.prediction.against
    if "layers" in options:
        assert (stored.layers - result.layers).abs().max() < 1e-6


def test_the_tokens_that_count_most(model, tmp_path):
    text = "a clever blend of fact"
    found = alti.engines.explain([text], tmp_path / "out", model=model, top_k=2)["0"]
    whole = alti.load(model).explain(text)
    assert sorted(found.values, reverse=True) == pytest.approx([s for _, s in whole.top(2)])
    assert found.extra["left_out"] == pytest.approx(float(whole.scores.sum() - found.scores.sum()))
    assert found.text == text
    assert "tokens that were not kept" in found.render()
    assert "tokens that were not kept" not in whole.render()


def test_pairs(tmp_path):
    reader = tiny.saved(tmp_path / "pairs", type_vocab_size=2)
    pairs = [("a clever film", "a dull one"), ("fact", "fiction and fact")]
    found = alti.engines.explain(pairs, tmp_path / "out", model=reader)
    assert [one.source.texts for one in found] == pairs
    found = alti.engines.explain(
        [{"one": a, "two": b} for a, b in pairs],
        tmp_path / "other",
        model=alti.load(reader),
        text_column="one",
        pair_column="two",
    )
    assert found["1"].text_pair == "fiction and fact"


def test_a_text_that_fails_keeps_its_reason(model, tmp_path):
    texts = [*TEXTS[:5], "", "dull " * 100, None, *TEXTS[5:8]]
    found = alti.engines.explain(texts, tmp_path / "out", model=model, batch_size=2)
    failed = {row["id"]: row["error"] for row in found.failed()}
    assert list(failed) == ["5", "6", "7"]
    assert failed["5"] == "the text is empty"
    assert "402 tokens" in failed["6"]
    assert failed["7"] == "the text is missing"
    assert [one.text for one in found] == TEXTS[:8]
    with pytest.raises(alti.LoadError, match="text 6 was not explained: the text has 402 tokens"):
        found["6"]


def test_an_error_inside_a_batch_fails_its_text_alone(model, tmp_path, monkeypatch):
    loaded = alti.load(model)
    explained = loaded._explained

    def broken(tasks, request):
        if any(task.encoded.text == TEXTS[3] for task in tasks):
            raise RuntimeError("no such\nkernel")
        return explained(tasks, request)

    monkeypatch.setattr(loaded, "_explained", broken)
    found = alti.engines.explain(TEXTS[:10], tmp_path / "out", model=loaded, batch_size=4)
    same = [str(n) for n, text in enumerate(TEXTS[:10]) if text == TEXTS[3]]
    assert [row["id"] for row in found.failed()] == same
    assert {row["error"] for row in found.failed()} == {"RuntimeError: no such kernel"}


def test_a_gpu_that_is_lost_stops_the_run(model, tmp_path, monkeypatch):
    loaded = alti.load(model)
    lost = type("AcceleratorError", (RuntimeError,), {})

    def broken(tasks, request):
        raise lost("unspecified launch failure")

    monkeypatch.setattr(loaded, "_explained", broken)
    with pytest.raises(lost):
        alti.engines.explain(TEXTS[:4], tmp_path / "out", model=loaded)
    assert Store(tmp_path / "out").parts() == []


def test_another_run_into_the_same_folder_is_refused(model, jsonl, tmp_path):
    out = tmp_path / "out"
    alti.engines.explain(jsonl, out, model=model, shard_rows=20)
    before = {part.name: part.stat().st_mtime_ns for part in Store(out).parts()}
    other = tiny.saved(tmp_path / "other", hidden_size=12)
    for changed, sentence in (
        ({"method": "norms"}, "belongs to another run"),
        ({"p": 2}, "belongs to another run"),
        ({"top_k": 3}, "belongs to another run"),
        ({"shard_rows": 30}, "belongs to another run"),
        ({"data": TEXTS[:40]}, "belongs to another run"),
        ({"model": other}, "holds results of another model"),
        ({"dtype": "float64"}, "holds results of another model"),
    ):
        asked = {"data": jsonl, "model": model, **changed}
        with pytest.raises(alti.UsageError, match=sentence) as error:
            alti.engines.explain(asked.pop("data"), out, **asked)
        assert "\n" not in str(error.value)
    assert {part.name: part.stat().st_mtime_ns for part in Store(out).parts()} == before
    Store(out).part(1).unlink()
    moved = model.rename(model.with_name("moved"))
    try:  # the same model by another name, in other batches, goes on
        assert len(alti.engines.explain(jsonl, out, model=moved, batch_size=7)) == 50
    finally:
        moved.rename(model)
    after = {part.name: part.stat().st_mtime_ns for part in Store(out).parts()}
    assert [name for name in before if after[name] != before[name]] == ["part-000001.parquet"]


def test_a_shard_is_there_completely_or_not_at_all(model, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store = Store(tmp_path)
    with pytest.raises(alti.LoadError, match="No space left"):
        store.write(0, pa.table({"id": ["a"]}))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_ours(model, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(alti.UsageError, match=r"holds other files, such as mine\.txt"):
        alti.engines.explain(TEXTS, tmp_path, model=model)
    with pytest.raises(alti.UsageError, match="cannot be a folder of results"):
        alti.engines.explain(TEXTS, tmp_path / "mine.txt", model=model)
    with pytest.raises(alti.LoadError, match="is no folder of results"):
        alti.engines.results(tmp_path)


def test_two_runs_do_not_share_a_folder(model, tmp_path):
    plan = Plan(Data(TEXTS), Loading(model), Asked(), 10)
    going = run(plan, tmp_path / "out")
    next(going)
    with pytest.raises(alti.UsageError, match="another run is writing"):
        next(run(plan, tmp_path / "out"))
    going.close()


def test_a_wrong_model_leaves_a_folder_that_can_be_used(model, tmp_path):
    with pytest.raises(alti.AltiError):
        alti.engines.explain(TEXTS, tmp_path / "out", model=tmp_path / "nothing")
    assert len(alti.engines.explain(TEXTS, tmp_path / "out", model=model, method="norms")) == 50


def test_a_damaged_shard_is_computed_again(model, tmp_path, capsys):
    out = tmp_path / "out"
    alti.engines.explain(TEXTS, out, model=model, shard_rows=20)
    before = content(out)
    part = Store(out).part(1)
    part.write_bytes(part.read_bytes()[:100])
    alti.engines.explain(TEXTS, out, model=model)
    assert content(out) == before
    assert "part-000001.parquet is damaged, and will be computed again" in capsys.readouterr().err


def test_results_of_damaged_shards_are_left_out(model, tmp_path, run):
    out = tmp_path / "out"
    alti.engines.explain(TEXTS, out, model=model, shard_rows=25)
    for number in (0, 1):
        Store(out).part(number).write_bytes(b"PAR1")
        code, said, noted = run("results", out, "--json")
        if number == 0:
            assert (code, len(said.splitlines())) == (0, 25)
            assert "part-000000.parquet is damaged, and left out here; the command that" in noted
            assert "will be" not in noted
    assert (code, said) == (1, "")
    assert noted.splitlines()[-1].startswith(f"alti: no file of {out} can be read: the command")


def test_results_of_a_folder_that_is_not_there(run):
    code, _, noted = run("results", "nowhere")
    assert (code, noted.count("\n")) == (2, 1)
    assert noted.startswith("alti: the folder nowhere does not exist: give one")


def test_formats(model, jsonl, tmp_path):
    text = tmp_path / "texts.txt"
    text.write_text("\n".join(TEXTS[:25]) + "\n\n" + "\n".join(TEXTS[25:]) + "\n\n")
    table = pa.table({"id": [f"r{n}" for n in range(50)], "text": TEXTS})
    pq.write_table(table, tmp_path / "texts.parquet")
    arrow = tmp_path / "saved"  # as datasets' save_to_disk
    arrow.mkdir()
    (arrow / "state.json").write_text("{}")
    (arrow / "dataset_info.json").write_text("{}")
    with pa.ipc.new_stream(arrow / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    lines = tmp_path / "lines"
    lines.mkdir()
    rows = jsonl.read_text().splitlines(keepends=True)
    (lines / "b.jsonl").write_text("".join(rows[30:]))
    (lines / "a.jsonl").write_text("".join(rows[:30]))
    (tmp_path / "texts.csv").write_text(
        "id,text\n" + "".join(f"r{n},{t}\n" for n, t in enumerate(TEXTS))
    )
    of = {str(source): list(Data(source).entries()) for source in
          (jsonl, table, tmp_path / "texts.parquet", arrow, lines, tmp_path / "texts.csv",
           table.to_pandas(), table.to_pylist())}  # fmt: skip
    first, *others = of.values()
    assert [entry.text for entry in first] == TEXTS
    assert all(entries == first for entries in others)
    entries = list(Data(text).entries())
    assert [entry.text for entry in entries] == TEXTS
    assert [entry.number for entry in entries][24:26] == [24, 26]  # the line, from 0


def test_ids_that_stand_twice_are_refused(model, tmp_path):
    rows = [{"id": "a", "text": "fact"}, {"id": "a", "text": "fiction"}]
    with pytest.raises(alti.UsageError, match="has the id 'a' twice"):
        alti.engines.explain(rows, tmp_path / "out", model=model)
    with pytest.raises(alti.LoadError, match="has no text"):
        alti.engines.explain([], tmp_path / "out", model=model)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"top_k": 0}, "top_k = 0 is not a number"),
        ({"batch_size": 0}, "batch_size = 0 is not a number"),
        ({"shard_rows": 0}, "shard_rows = 0 is not a number"),
        ({"method": "atli"}, "'atli' does not exist"),
        ({"strength": 2}, "strength"),
        ({"answer": "dull"}, "explain the answer as a whole"),
        ({"top_k": 2, "layers": True}, "leave one out"),
        ({"engine": "spark"}, "engine 'spark' does not exist: choose from local, ray"),
        ({"engine": "ray", "model": 3}, "give a name or a folder"),
    ],
)
def test_wrong_usage_writes_nothing(model, tmp_path, options, sentence):
    with pytest.raises(alti.UsageError, match=sentence):
        alti.engines.explain(TEXTS, tmp_path / "out", **{"model": model, **options})
    assert not (tmp_path / "out").exists()


def test_a_model_whose_results_are_no_rows(tmp_path):
    spans = tiny.saved(tmp_path / "spans", "bert", "AutoModelForQuestionAnswering")
    pairs = [("fact", "a clever blend of fact")]
    with pytest.raises(alti.UsageError, match="a start and an end"):
        alti.engines.explain(pairs, tmp_path / "out", model=spans)
    assert len(alti.engines.explain(pairs, tmp_path / "out", model=spans, total=True)) == 1


def test_texts_are_explained_in_the_order_of_their_length(model, monkeypatch):
    seen = []
    loaded = alti.load(model)
    explain = loaded.explain_all
    monkeypatch.setattr(
        loaded, "explain_all", lambda texts, **rest: seen.extend(texts) or explain(texts, **rest)
    )
    entries = list(Data(TEXTS).entries())
    made = compute.rows(loaded, entries, Asked())
    assert [row["text"] for row in made] == TEXTS
    assert [len(text) for text in seen] == sorted(map(len, TEXTS))


COMMAND = "from alti.cli import main; main()"


def started(*arguments) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def killed_after(process, folder, parts: int) -> None:
    """Kill a run without a word once it has written so many shards."""
    while process.poll() is None and len(Store(folder).parts()) < parts:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


@slow
def test_a_run_killed_at_random_moments_goes_on(model, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(sentences(600)))
    out = tmp_path / "out"
    arguments = ("explain", "--file", file, "--out", out, "--model", model, "--shard-rows", 10)
    draw = random.Random(1)
    for at in sorted(draw.sample(range(1, 50), 2)):
        killed_after(started(*arguments), out, at)
    assert 0 < len(Store(out).parts()) < 60
    assert len(list(run(Plan(Data(file), Loading(model)), out))) > 1
    alti.engines.explain(file, tmp_path / "whole", model=model, shard_rows=10)
    assert content(out) == content(tmp_path / "whole")  # to the bit
    assert [row["number"] for row in content(out)] == list(range(600))
    assert not list(out.glob(".alti-*"))


def test_the_commands(model, jsonl, tmp_path, run):
    out = tmp_path / "out"
    arguments = ("explain", "--file", jsonl, "--out", out, "--model", model)
    code, said, noted = run(*arguments, "--top-k", 3)
    assert code == 0
    assert said == f"50 texts explained, 50 in {out}\n"
    assert f"alti results {out}" in noted
    code, said, noted = run(*arguments, "--top-k", 3, "--json")
    assert json.loads(said) | {"seconds": 0} == {
        "out": str(out), "texts": 50, "total": 50, "failed": 0, "new": 0, "seconds": 0,
    }  # fmt: skip
    assert "holds 50 texts already" in noted
    code, said, noted = run("results", out)
    assert code == 0
    assert len(said.splitlines()) == 21
    assert "20 texts shown" in noted
    code, said, _ = run("results", out, "--json")
    rows = [json.loads(line) for line in said.splitlines()]
    assert [row["id"] for row in rows] == [f"r{number}" for number in range(50)]
    assert all(len(row["scores"]) <= 3 for row in rows)
    code, said, _ = run("results", out, "r7", "--json")
    assert alti.Attribution.from_dict(json.loads(said)) == alti.engines.results(out)["r7"]
    code, said, _ = run("results", out, "r7")
    assert code == 0
    assert all(word in said for word, _ in alti.engines.results(out)["r7"].words())
    code, _, noted = run("results", out, "r77")
    assert (code, "has no text with the id 'r77'" in noted) == (2, True)
    code, said, noted = run("results", out, "r7", "--html", tmp_path / "page.html")
    assert "r7" not in said
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("a text", "--engine", "ray"), "--engine goes with a folder of results"),
        (("a text", "--top-k", "3"), "--top-k goes with a folder of results"),
        (("a text", "--out", "out"), "name them with --file"),
        (("--file", "{file}", "--out", "{file}"), "is a file: name a folder"),
        (("--file", "{file}", "--out", "out", "--actors", "2"), "go with --engine ray"),
        (("--file", "{file}", "--out", "out", "--pair", "b"), "go with one TEXT"),
        (("--file", "{file}", "--out", "out", "--engine", "x"), "choose from local, ray"),
        (("--file", "{file}", "--out", "out", "--engine", "ray", "--actors", "0"), "1 or more"),
        (("--file", "{file}", "--out", "out", "--text-column", "x"), "has no column 'x'"),
    ],
)
def test_wrong_commands(jsonl, tmp_path, monkeypatch, run, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    code, said, noted = run("explain", *(each.format(file=jsonl) for each in arguments))
    assert (code, said) == (2, "")
    assert sentence in noted


def test_a_file_without_a_usable_text_is_a_failure(model, tmp_path, run):
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": null}\n')
    code, _, noted = run("explain", "--file", file, "--out", tmp_path / "out", "--model", model)
    assert code == 1
    assert "no text could be explained" in noted
    code, said, noted = run("results", tmp_path / "out", "--failed")
    assert "1 failed text shown" in noted
    assert (code, "the text is missing" in said) == (0, True)


def bench_rows(file):
    """The rows of a benchmark without the time and the passes that they took."""
    lines = [json.loads(line) for line in file.read_text().splitlines() if '"work"' not in line]
    return [{k: v for k, v in row.items() if k not in ("checksum", "seconds")} for row in lines]


@pytest.mark.parametrize("task", ["text", "answer"])
@pytest.mark.parametrize("kept", [1, 3, 6])
def test_a_benchmark_goes_on_with_another_engine(tmp_path, task, kept):
    data = tmp_path / "data.jsonl"
    if task == "text":
        reader = tiny.saved(tmp_path / "reader")
        rows = [{"text": text} for text in TEXTS[:5]]
        plan = alti.bench.Plan(str(reader), str(data), ("norms", "attention"), chunk=2)
    else:
        reader = tiny.saved(tmp_path / "writer", "gpt2", "AutoModelForCausalLM", n_positions=400)
        rows = [
            {"question": "clever or dull", "documents": TEXTS[n : n + 3], "answer": " fact"}
            for n in range(3)
        ]
        plan = alti.bench.Study(
            str(reader), str(data), "answer", ("absence", "attention"), subsets=4
        )
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = alti.load(reader)
    list(alti.bench.run(plan, model, tmp_path / "whole.jsonl"))
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    assert sum('"method"' in line for line in lines) == 2 * len(rows)
    (tmp_path / "rest.jsonl").write_text("".join(lines[:kept]))
    file = tmp_path / "rest.jsonl"
    *_, last = bench.run(plan, model, Loading(str(reader)), file, Local())
    assert last == (len(rows), len(rows))
    assert bench_rows(file) == bench_rows(tmp_path / "whole.jsonl")
    assert list(bench.run(plan, model, Loading(str(reader)), file, Local())) == []  # all is there
    other = Loading(str(tiny.saved(tmp_path / "other", hidden_size=12)))
    with pytest.raises(alti.UsageError, match="is another model than here"):
        list(bench.run(plan, model, other, tmp_path / "new.jsonl", Local()))


def test_without_ray_a_sentence_says_so(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(alti.LoadError, match=r"pip install 'alti\[ray\]'"):
        alti.engines.explain(TEXTS, tmp_path / "out", model=model, engine="ray")
    from alti.engines.ray import Explain  # needs none

    table = Explain(str(model), top_k=2)({"text": TEXTS[:3], "stars": [1, 2, 3]})
    assert table.column_names[:3] == ["text", "stars", "label"]
    assert table["stars"].to_pylist() == [1, 2, 3]


def test_an_actor_looks_for_no_gpu_that_it_has_not():
    assert Ray().device("auto") == "cpu"
    assert Ray(gpus=1).device("auto") == "auto"
    assert Ray().device("cuda:1") == "cuda:1"


@pytest.mark.parametrize(
    ("nodes", "asked", "expected"),
    [
        ([2], Ray(), (2, 1)),
        ([2], Ray(actors=1), (1, 2)),
        ([2], Ray(actors=4), (4, 0.5)),
        ([16, 16], Ray(), (8, 4)),
        ([16, 8], Ray(actors=3), (3, 4)),  # two on a node, whichever it is
        ([(8, 4), (8, 4)], Ray(gpus=1), (8, 2)),
        ([(8, 4)], Ray(gpus=0.5), (8, 1)),
    ],
)
def test_the_share_of_an_actor(nodes, asked, expected):
    class Cluster:
        @staticmethod
        def nodes():
            pairs = [node if isinstance(node, tuple) else (node, 0) for node in nodes]
            return [{"Alive": True, "Resources": {"CPU": c, "GPU": g}} for c, g in pairs]

    share = asked._share(Cluster)
    assert (share["actors"], share["num_cpus"]) == expected
    assert share["num_gpus"] == asked.gpus

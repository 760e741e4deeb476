"""The same work on Ray: two actors on two cores, one of them killed, and the driver killed."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import pytest

import alti
from alti.engines import Data, Ray
from alti.engines.ray import Explain, _require_answer
from alti.engines.store import Store
from test_engines import bench_rows, content, killed_after, sentences, started

import tiny
from speed import slow

ray = pytest.importorskip("ray", reason="no Ray here: pip install 'alti[ray]'")

pytestmark = [
    slow,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
TEXTS = sentences(60)
TWO = Ray(actors=2)


@pytest.fixture(scope="session")
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=100_000_000,
        )
        yield ray
        ray.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.saved(tmp_path_factory.mktemp("engines") / "reader")


def test_two_actors_write_the_files_of_one_process(cluster, model, tmp_path, monkeypatch):
    texts = [*TEXTS, "", "dull " * 100]
    monkeypatch.chdir(model.parent)  # actors are in other folders
    found = alti.engines.explain(
        texts, tmp_path / "ray", model=model.name, engine=TWO, shard_rows=5
    )
    alti.engines.explain(texts, tmp_path / "local", model=model, shard_rows=5)
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    assert [row["id"] for row in found.failed()] == ["60", "61"]
    for name in ("_run.json", "_model.json"):
        assert (tmp_path / "ray" / name).read_text() == (tmp_path / "local" / name).read_text()


def test_the_sentences_of_actors(cluster, model, tmp_path):
    alti.engines.explain(TEXTS[:9], tmp_path / "out", model=model, shard_rows=3)
    Store(tmp_path / "out").part(1).unlink()
    other = tiny.saved(tmp_path / "other", hidden_size=12)
    with pytest.raises(alti.UsageError, match="holds results of another model"):
        alti.engines.explain(TEXTS[:9], tmp_path / "out", model=other, engine=Ray(actors=1))
    with pytest.raises(alti.UsageError, match="the cluster has 0"):
        alti.engines.explain(TEXTS, tmp_path / "gpu", model=model, engine=Ray(gpus=1))


def test_an_actor_that_dies_loses_no_item(cluster, tmp_path):
    marker = tmp_path / "died"

    def dying():  # a worker that kills its process once, in the midst of its third item
        seen = []

        def work(item):
            seen.append(item)
            if len(seen) == 3 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)
            return item * 2, os.getpid()

        return work

    done = list(TWO.spread(dying, partial(range, 12), ordered=True))
    assert marker.exists()
    assert [item for item, _ in done] == [2 * item for item in range(12)]
    assert len({process for _, process in done}) > 1  # both have worked


def actors_of(driver: int) -> list[int]:
    """The processes of the actors that a driver's own Ray has."""
    parents = {}
    names = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text()
                names[int(entry.name)] = (entry / "cmdline").read_text()
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])

    def is_below(process: int) -> bool:
        return process == driver or (process in parents and is_below(parents[process]))

    return [each for each, name in names.items() if "MapWorker" in name and is_below(each)]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_an_actor_and_the_driver_killed_at_random_moments(cluster, model, tmp_path):
    file = tmp_path / "texts.jsonl"
    rows = [{"id": f"r{number}", "text": text} for number, text in enumerate(sentences(1500))]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out"
    arguments = ("explain", "--file", file, "--out", out, "--model", model, "--shard-rows", 5)
    driver = started(*arguments, "--engine", "ray", "--actors", 2)
    draw = random.Random(0)
    first, second = sorted(draw.sample(range(1, 200), 2))
    while driver.poll() is None and len(Store(out).parts()) < first:
        time.sleep(0.002)
    os.kill(draw.choice(actors_of(driver.pid)), signal.SIGKILL)
    killed_after(driver, out, second)
    assert second <= len(Store(out).parts()) < 300
    found = alti.engines.explain(file, out, model=model, engine=TWO)
    alti.engines.explain(file, tmp_path / "whole", model=model, shard_rows=5)
    assert content(out) == content(tmp_path / "whole")  # to the bit
    assert [row["id"] for row in found.rows(("id",))] == [row["id"] for row in rows]


def test_explain_in_a_pipeline_of_somebody_else(cluster, model):
    data = cluster.data.from_items([{"review": text, "stars": 3} for text in [*TEXTS[:20], ""]])
    options = {"model": str(model), "method": "norms", "text_column": "review", "top_k": 2}
    explained = data.map_batches(
        Explain, fn_constructor_kwargs=options, batch_size=8, concurrency=1
    )
    rows = {row["review"]: row for row in explained.take_all()}
    assert rows[""]["error"] == "the text is empty"
    (one,) = alti.load(model).explain_all(TEXTS[:1], method="norms")
    row = rows[TEXTS[0]]
    assert (row["label"], row["stars"]) == (one.label, 3)
    assert sorted(row["scores"], reverse=True) == pytest.approx([s for _, s in one.top(2)])
    assert {"tokens", "offsets", "probability", "target"} <= row.keys()


def test_bench_writes_the_same_rows(cluster, model, tmp_path, run):
    data = tmp_path / "texts.txt"
    data.write_text("\n".join(TEXTS[:7]))
    arguments = ["bench", "--model", model, "--data", data, "--methods", "norms,attention"]
    code, local, noted = run(*arguments, "--out", tmp_path / "local.jsonl")
    assert code == 0, noted
    out = ("--out", tmp_path / "ray.jsonl", "--engine", "ray", "--actors", 1)
    code, there, noted = run(*arguments, *out)
    assert (code, there) == (0, local), noted
    here, there = (bench_rows(tmp_path / name) for name in ("local.jsonl", "ray.jsonl"))
    assert len(here) == 15
    for one, other in zip(here, there, strict=True):  # an actor may have more threads
        assert other.get("values") == pytest.approx(one.get("values"), abs=1e-6)
        assert other.get("probability") == pytest.approx(one.get("probability"), abs=1e-6)
        numbers = {"values": None, "probability": None}
        assert {**other, **numbers} == {**one, **numbers}


def test_the_code_of_the_page_runs(cluster, tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[1] / "docs" / "scale.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, page, "exec"), {})
    assert "the text is empty" in capsys.readouterr().out


def test_texts_are_read_as_they_are_needed(cluster, tmp_path):
    """Ten thousand items do not wait for each other: the first is done before the last is read."""
    log = tmp_path / "log"

    def items():
        for number in range(10_000):
            if number == 9_999:
                log.touch()
            yield b"x" * 10_000

    results = Ray(actors=1).spread(lambda: len, items)
    assert next(results) == 10_000
    assert not log.exists()
    results.close()


@pytest.mark.parametrize("command", ["explain", "bench"])
def test_nobody_at_the_address(tmp_path, command):
    """In a process of its own: the Ray of these tests would be taken instead."""
    texts = tmp_path / "texts.txt"
    texts.write_text("A dull film.\n")
    out = tmp_path / "out"
    data = "--data" if command == "bench" else "--file"
    command = [sys.executable, "-m", "alti", command, data, texts, "--out", out]
    command += ["--engine", "ray", "--address", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(
        "alti: no Ray could be reached at 127.0.0.1:1 (Connection refused): give"
    )
    assert not out.exists()


def test_an_address_that_is_none():
    for address in ("here", "127.0.0.1", "127.0.0.1:port"):
        with pytest.raises(alti.UsageError, match=f"address '{address}' is not one of Ray"):
            _require_answer(address)
    _require_answer("auto")


def test_data_goes_to_other_processes():
    import pickle

    assert list(pickle.loads(pickle.dumps(Data(TEXTS))).entries())[3].text == TEXTS[3]

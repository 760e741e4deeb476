"""The tables of docs/benchmark.md about contexts are those of the rows in benchmarks/results."""

import gzip
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from alti.experiments.bench import verdicts

from documents import printed, same
from speed import mostly_slow

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks/ is no part of the package
from benchmarks import contexts, surrogate

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LEFT_OUT = "leave_one_out"
FEW = "contextcite:ablations=32"
SIX = "surrogate:ablations=6"
FROM_LINEAR = [f"surrogate:ablations={count}:prior=linear" for count in (12, 8)]
ANSWERS = (  # after `passes`: whom a column compares with, or nobody, and what it is about
    (None, "lds"),
    *((None, f"top_k_drop:k={k}") for k in (1, 3, 5)),
    (LEFT_OUT, "lds"),
    (LEFT_OUT, "top_k_drop:k=1"),
    (FEW, "lds"),
)
SENTENCES = (
    (None, "recall_at_k:k=1"),
    (None, "evidence"),
    (LEFT_OUT, "evidence"),
    ("contextcite", "evidence"),
)
PRINTED = {  # where the table of a part begins, and its columns
    "nq10": ("**Which sentence made the answer**", ANSWERS),
    "nq10-all": ("**All ten documents**", ANSWERS),
    "xquad": ("**Where the answer stands**", SENTENCES),
}


@cache
def stored(part):
    return contexts.merged_rows(part, RESULTS)


@cache
def computed(part, rival=None):
    """Cells by method and column: means, or differences to a rival."""
    study, rows = stored(part)
    _, shown = PRINTED.get(part, ("", ()))
    own = tuple(column for whom, column in shown if whom == rival)  # intervals take their time
    means, differences = verdicts(replace(study, metrics=own), rows, rival)[:2]
    table = means if rival is None else differences
    columns = [column.split()[0] for column in table.columns[1:]]
    return {name: dict(zip(columns, cells, strict=True)) for name, cells in table.rows}


@mostly_slow("part", PRINTED, quick=["xquad"])
def test_tables_of_the_docs_are_those_of_the_rows(part):
    start, columns = PRINTED[part]
    rows = printed("benchmark.md", start)
    assert rows.keys() == computed(part).keys()
    for method, (passes, *cells) in rows.items():
        assert same(passes, [computed(part)[method]["passes"].value])
        for cell, (rival, column) in zip(cells, columns, strict=True):
            own = computed(part, rival)[method][column]
            numbers = [own.value] if rival is None else [own.value, own.low, own.high]
            assert same(cell, [] if rival == method else numbers), (method, rival, column)


def test_a_wrong_number_is_seen():
    assert same("0.5 [−0.25, 1]", [0.54, -0.2549, 1.4])
    assert not same("0.5 [−0.25, 1]", [0.54, 0.2549, 1.4])
    assert not same("0.5", [0.551])
    assert not same("", [0.5])


def test_what_was_asked_for():
    """Which methods are level with leave-one-out and with ContextCite-32, in how many passes."""
    means, differences = computed("nq10"), computed("nq10", LEFT_OUT)
    least = -0.03 * means[LEFT_OUT]["top_k_drop:k=1"].value
    cheap = {name for name, row in means.items() if row["passes"].value <= 4}
    good = {name for name in cheap if means[name]["lds"].value >= 0.70}
    assert good == {"alti", "linear:of=log_prob", "absence", "dimming"}
    level = {name for name in good if differences[name]["top_k_drop:k=1"].low > least}
    assert level == {"dimming"}
    level = {name for name, row in differences.items() if row["lds"].low > -0.02}
    assert level == {SIX, "surrogate", FROM_LINEAR[0], LEFT_OUT, FEW, "contextcite"}
    passes = {name: round(means[name]["passes"].value) for name in level}
    assert passes[SIX] == 12
    assert passes["surrogate"] == 16
    level = {name for name, row in computed("nq10", FEW).items() if row["lds"].low > -0.02}
    assert level == {FEW, "contextcite"}


def test_keys_are_found():
    first = {name: row["recall_at_k:k=1"].value for name, row in computed("kv").items()}
    assert first.pop("alti") == pytest.approx(0.57, abs=0.005)
    assert first.pop("random") == pytest.approx(0.13, abs=0.005)
    assert set(first.values()) == {1.0}
    refused = [row["method"] for row in stored("kv")[1] if "refused" in row]
    assert sorted(set(refused)) == ["linear:of=log_prob", *FROM_LINEAR]
    assert len(refused) == 18


def test_rows_say_nothing_of_where_they_were_made():
    files = list(RESULTS.rglob("*.gz"))
    assert len(files) == 32
    for file in files:
        header = json.loads(gzip.decompress(file.read_bytes()).partition(b"\n")[0])
        assert header["model"] == "SmolLM2-135M-Instruct"
        assert header["data"] == f"OUT/questions-{file.name.removesuffix('.gz')}"


def test_packed_rows_and_plain_ones_are_the_same(tmp_path):
    for file in (RESULTS / "kv").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    assert contexts.merged_rows("kv", tmp_path) == stored("kv")  # each of them once
    assert contexts.merged_rows("nq10", tmp_path) is None


def test_first_guesses_are_compared_from_these_rows():
    texts = surrogate.questions(RESULTS)
    assert len(texts) == 200
    about, rows = texts[0]
    for name in surrogate.GUESSES:
        found = surrogate.judged(about, rows[name]["scores"], range(64))
        assert found == pytest.approx(rows[name]["values"]["lds"])
    for learned, judged in surrogate.halves(about):
        assert sorted(learned + judged) == list(range(64))
    scores = surrogate.fitted(about, rows["consensus"]["scores"], learned, 6)
    assert len(scores) == about["sources"]
    changed = {**about, "values": [v * (i in learned) for i, v in enumerate(about["values"])]}
    assert surrogate.fitted(changed, rows["consensus"]["scores"], learned, 6) == scores


def test_a_retrieval_task_keeps_the_record_that_is_asked_for():
    records = [{"key": key, "value": key} for key in "abcdefgh"]
    row = {"records": records, "key": "g"}
    for count in (1, 3, 7):
        kept = contexts.shortened(row, count)["records"]
        assert len(kept) == count
        assert records[6] in kept
        assert kept == [record for record in records if record in kept]  # in their order
    assert contexts.shortened(row, 8) == row

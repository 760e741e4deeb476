"""The benchmark: its numbers are the metrics' own, and a killed run is resumed."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import alti
from alti.experiments.bench import (
    PAPER,
    Plan,
    curves,
    default_methods,
    load_rows,
    parsed,
    run,
    summary,
    work,
)
from alti.experiments.data import Example, read
from alti.experiments.evaluate import BY_SIZE, Judge, _plausibility
from alti.experiments.predict import Predictor, batches
from alti.metrics import (
    average_precision,
    comprehensiveness,
    probability_drop,
    sufficiency,
    token_f1,
)

import tiny
from speed import slow

TEXTS = [
    "A clever blend of fact and fiction.",
    "The keys to the cabinet are on the table.",
    "It's not a bad film",
    "clumsy",
    "The acting is better than the plot, and funny.",
    "a long and clumsy ending",
    "It costs 3.14 dollars!",
]
METHODS = ("random", "alti", "linear", "input_x_gradient:aggregate=sum", "input_x_gradient")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder):
    return alti.load(folder, device="cpu")


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text(
        "".join(json.dumps({"text": text, "label": i % 2}) + "\n" for i, text in enumerate(TEXTS))
    )
    return file


@pytest.fixture
def plan(data):
    return Plan(model="tiny", data=str(data), methods=METHODS, chunk=3)


def finished(plan, model, file):
    for _ in run(plan, model, file):
        pass
    return load_rows(file)[1]


def tables(plan, rows):
    return [table.markdown() + table.csv() + table.latex() for table in summary(plan, rows)]


def test_rows_are_what_the_metrics_say_one_by_one(plan, model, tmp_path):
    rows = [row for row in finished(plan, model, tmp_path / "rows.jsonl") if "method" in row]
    assert [(row["text"], row["method"]) for row in rows] == [
        (i, m) for i in range(len(TEXTS)) for m in METHODS
    ]

    def predict(questions):
        probabilities = [
            model.model(input_ids=torch.tensor([ids])).logits.softmax(-1)[0, row["target"]]
            for ids in questions
        ]
        return torch.stack(probabilities).detach()

    for row in rows[::3]:
        name, options = parsed(row["method"])
        result = model.explain(TEXTS[row["text"]], method=name, **options)
        assert row["probability"] == pytest.approx(result.probability, abs=1e-5)
        ids = model.tokenizer(TEXTS[row["text"]])["input_ids"]
        for kind, scores in (("", result.scores), (BY_SIZE, result.scores.abs())):
            for metric in (comprehensiveness, sufficiency):
                expected = metric(predict, ids, result.special.tolist(), scores)
                value = row["values"].get(metric.__name__ + kind, row["values"][metric.__name__])
                assert value == pytest.approx(expected, abs=1e-5)


def test_a_run_that_is_cut_anywhere_goes_on(plan, model, tmp_path):
    whole = finished(plan, model, tmp_path / "whole.jsonl")
    content = (tmp_path / "whole.jsonl").read_bytes()
    for cut in (1, 100, len(content) // 3, len(content) // 2, len(content) - 1, len(content)):
        file = tmp_path / f"{cut}.jsonl"
        file.write_bytes(content[:cut])
        rows = finished(plan, model, file)
        keys = [(row["text"], row["method"]) for row in rows if "method" in row]
        assert len(keys) == len(set(keys)) == len(TEXTS) * len(METHODS)
        assert tables(plan, rows) == tables(plan, whole)


def test_nothing_is_computed_again(plan, model, tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    before = finished(plan, model, file)
    monkeypatch.setattr(Judge, "rows", lambda self, chunk: pytest.fail("computed again"))
    assert finished(plan, model, file) == before


KILLED = """
import os, signal, sys
from pathlib import Path
import alti
from alti.experiments import bench, store
written = []
def write(out, rows):
    lines = b"".join(map(store.line_of, rows))
    written.append(rows)
    out.write(lines if len(written) < 3 else lines[: len(lines) // 2])
    out.flush()
    if len(written) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
store.write_rows = write
folder, data, file, *methods = sys.argv[1:]
plan = bench.Plan(model="tiny", data=data, methods=tuple(methods), chunk=3)
for _ in bench.run(plan, alti.load(folder, device="cpu"), Path(file)):
    pass
"""


@slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_kill_9_in_the_middle_of_a_row(plan, model, folder, data, tmp_path):
    file = tmp_path / "killed.jsonl"
    arguments = [sys.executable, "-c", KILLED, str(folder), str(data), str(file), *METHODS]
    done = subprocess.run(
        arguments, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert not file.read_bytes().endswith(b"\n")
    rows = finished(plan, model, file)
    assert tables(plan, rows) == tables(plan, finished(plan, model, tmp_path / "whole.jsonl"))


def test_every_changed_byte_of_a_row_is_noticed(plan, model, tmp_path):
    """What is read is what was written, or a sentence that names the line."""
    good, bad, chance = tmp_path / "rows.jsonl", tmp_path / "bad.jsonl", random.Random(0)
    finished(replace(plan, methods=("alti",), chunk=4), model, good)
    content, whole = good.read_bytes(), load_rows(good)
    refused = []
    for place in range(len(content) - 1):
        byte = chance.choice([content[place] ^ 1 << chance.randrange(8), chance.randrange(256)])
        bad.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
        try:
            assert load_rows(bad) == whole
        except alti.LoadError as error:
            refused.append((content[:place].count(b"\n") + 1, str(error)))
    assert len(refused) > 0.95 * len(content)
    for line, sentence in refused:
        assert "\n" not in sentence
        assert ("not a file of benchmark rows" if line == 1 else f"line {line} ") in sentence


def test_an_edited_row_is_refused_and_can_be_taken_out(plan, model, tmp_path):
    file = tmp_path / "rows.jsonl"
    before = finished(plan, model, file)
    lines = file.read_text().splitlines(keepends=True)
    assert all("checksum" in json.loads(line) for line in lines)
    assert not any("checksum" in row for row in before)
    edited = {**json.loads(lines[3]), "probability": 0.5}
    plain = {key: value for key, value in json.loads(lines[3]).items() if key != "checksum"}
    strange = ("[]", "null", "{}", "[" * 100_000, "\xff", '{"a": NaN}')
    for wrong in (json.dumps(edited), json.dumps(plain), *strange):
        file.write_text("".join([*lines[:3], wrong + "\n", *lines[4:]]), encoding="latin-1")
        for read_again in (lambda: load_rows(file), lambda: finished(plan, model, file)):
            with pytest.raises(alti.LoadError, match="line 4 was changed or damaged: delete it"):
                read_again()
    file.write_text("".join([*lines[:3], *lines[4:]]))
    assert tables(plan, finished(plan, model, file)) == tables(plan, before)


def test_rows_of_before_checksums_are_read_but_not_added_to(plan, model, tmp_path):
    file = tmp_path / "rows.jsonl"
    whole = finished(plan, model, file)
    plain = [json.loads(line) for line in file.read_text().splitlines()]
    for row in plain:
        del row["checksum"]
    file.write_text("".join(json.dumps(row) + "\n" for row in plain))
    assert load_rows(file) == (plan, whole)
    with pytest.raises(alti.UsageError, match="rows without checksums, of an older alti: name"):
        finished(plan, model, file)
    wrong = {"colour": 1, "methods": 5, "metrics": [5], "first": "x", "model": [1], "seed": {}}
    for key, value in wrong.items():
        file.write_text(json.dumps({**plain[0], key: value}) + "\n")
        with pytest.raises(alti.LoadError, match="not a file of benchmark rows"):
            load_rows(file)


def test_rows_that_json_has_not_are_not_written(plan, model, tmp_path, monkeypatch):
    real = Judge._row

    def strange(self, text, spec, scores, values):
        return {**real(self, text, spec, scores, values), "probability": math.nan}

    monkeypatch.setattr(Judge, "_row", strange)
    with pytest.raises(alti.AltiError, match="text 0 with random has numbers that are not finite"):
        finished(plan, model, tmp_path / "rows.jsonl")
    assert b"NaN" not in (tmp_path / "rows.jsonl").read_bytes()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_disk_that_is_full_stops_a_run_that_then_goes_on(plan, model, tmp_path):
    from test_files import at_most

    whole = finished(plan, model, tmp_path / "whole.jsonl")
    file = tmp_path / "rows.jsonl"
    refused = pytest.raises(alti.LoadError, match="could not be written: File too large")
    with at_most(4000), refused:
        finished(plan, model, file)
    assert file.stat().st_size == 4000
    assert tables(plan, finished(plan, model, file)) == tables(plan, whole)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(alti.LoadError, match="pipe is a device or a pipe"):
        load_rows(tmp_path / "pipe")


def test_another_plan_does_not_go_into_the_same_file(plan, model, tmp_path):
    finished(plan, model, tmp_path / "rows.jsonl")
    with pytest.raises(
        alti.UsageError, match=r"holds the rows of another run \(seed = 0\): name another file"
    ):
        finished(replace(plan, seed=1), model, tmp_path / "rows.jsonl")
    (tmp_path / "other.txt").write_text("hello\n")
    with pytest.raises(alti.LoadError, match="not a file of benchmark rows"):
        finished(plan, model, tmp_path / "other.txt")


def test_what_cannot_be_used_is_counted(plan, model, data, tmp_path):
    long = " ".join(["funny"] * 60)
    with data.open("a") as out:
        out.write(json.dumps({"text": ""}) + "\nnot json\n" + json.dumps({"text": long}) + "\n")
    rows = finished(plan, model, tmp_path / "rows.jsonl")
    reasons = [row["skipped"] for row in rows if "skipped" in row]
    assert len(reasons) == 3
    assert "than the 40 that the model takes" in reasons[2]
    note = summary(plan, rows)[0].note
    assert note.count("Passed over: 1") == 3
    assert note.startswith("7 texts")
    cut = finished(replace(plan, truncate=True), model, tmp_path / "cut.jsonl")
    assert len([row for row in cut if "skipped" in row]) == 2
    assert finished(plan, model, tmp_path / "rows.jsonl") == rows  # they are not tried again


def test_a_text_with_nothing_to_remove_is_left_out_of_means(model, data, tmp_path):
    data.write_text(json.dumps({"text": "[MASK]"}) + "\n" + json.dumps({"text": TEXTS[0]}) + "\n")
    plan = Plan(model="tiny", data=str(data), methods=("alti",))
    rows = finished(plan, model, tmp_path / "rows.jsonl")
    assert rows[0]["values"]["comprehensiveness"] is None
    table = summary(plan, rows)[0]
    assert table.rows[0][1][0].value == rows[1]["values"]["comprehensiveness"]
    assert "Undefined and left out of a mean: 1 texts." in table.note


def test_work_is_counted(plan, model, tmp_path):
    spent = work(finished(plan, model, tmp_path / "rows.jsonl"))
    assert spent["passes"] < spent["sequences"] < spent["unbatched"]
    questions = len(TEXTS) * (
        1 + 11 * len(METHODS) * 2
    )  # at the most: a full text and ten shorter ones, two rankings
    assert spent["unbatched"] < questions * 2


def test_methods_that_differ_in_their_aggregate_are_computed_once(
    plan, model, tmp_path, monkeypatch
):
    from alti import methods

    calls = []
    real = methods.run
    monkeypatch.setattr(
        methods, "run", lambda name, *a, **k: calls.append(name) or real(name, *a, **k)
    )
    three = (
        "input_x_gradient",
        "input_x_gradient:aggregate=sum",
        "input_x_gradient:aggregate=mean_abs",
    )
    both = replace(plan, methods=three, keep_scores=True, chunk=32)
    rows = finished(both, model, tmp_path / "rows.jsonl")
    assert calls == ["input_x_gradient"]
    for row in rows[:9]:
        name, options = parsed(row["method"])
        expected = model.explain(TEXTS[row["text"]], method=name, **options).scores
        torch.testing.assert_close(torch.tensor(row["scores"]), expected, rtol=1e-4, atol=1e-6)


def test_curves_masking_and_the_envelope(plan, model, tmp_path):
    plain = replace(plan, metrics=("probability_drop", "comprehensiveness"), methods=("alti",))
    rows = finished(plain, model, tmp_path / "plain.jsonl")
    curve = curves(plain, rows)["alti probability_drop"]
    assert curve["texts"][0] == len(TEXTS)
    assert curve["texts"] == sorted(curve["texts"], reverse=True)
    assert curve["mean"][0] == pytest.approx(
        sum(r["probability"] for r in rows if "method" in r) / len(TEXTS)
    )
    assert [column for column in summary(plain, rows)[0].columns if "drop" in column] == []
    envelope = finished(replace(plain, envelope=True), model, tmp_path / "envelope.jsonl")
    masked = finished(replace(plain, mask=True), model, tmp_path / "mask.jsonl")
    for a, b, c in zip(rows, envelope, masked, strict=True):
        if "values" in a:
            assert b["values"]["comprehensiveness"] >= a["values"]["comprehensiveness"] - 1e-9
            assert len(c["values"]["probability_drop"]) == len(a["values"]["probability_drop"])
    assert [r.get("values") for r in rows] != [r.get("values") for r in masked]
    assert probability_drop.__name__ in plain.metrics


def test_rationales(model, tmp_path):
    file = tmp_path / "rationale.jsonl"
    file.write_text(
        json.dumps({"tokens": ["A", "clever", "blend."], "rationale": [0, 1, 0]}) + "\n"
    )
    plan = Plan(
        model="tiny",
        data=str(file),
        methods=("alti",),
        metrics=("token_f1",),
        rationale="rationale",
    )
    (row, *_) = finished(plan, model, tmp_path / "rows.jsonl")
    words = model.explain("A clever blend.").words()
    scores = [float(words.scores[0]), float(words.scores[1]), float(words.scores[2:].sum())]
    assert row["values"]["token_f1"] == token_f1(scores, [0, 1, 0])


def test_samples_are_seeded_and_rows_from_the_top_are_the_first(plan):
    assert [row.number for row in replace(plan, first=2).rows()] == [0, 1]
    samples = [
        [row.number for row in replace(plan, sample=3, seed=seed).rows()] for seed in (0, 0, 1, 2)
    ]
    assert samples[0] == samples[1]
    assert len({tuple(numbers) for numbers in samples}) > 1
    assert all(isinstance(row, Example) for row in plan.rows())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("lime",)}, "method 'lime' does not exist"),
        ({"methods": ("alti:p",)}, "write it as NAME=VALUE"),
        ({"methods": ("alti:q=1",)}, "has no option 'q'"),
        ({"methods": ()}, "at least one method"),
        ({"metrics": ("accuracy",)}, "metric 'accuracy' does not exist: choose from"),
        ({"first": 0}, "first = 0 is not a number of texts"),
    ],
)
def test_wrong_plans(plan, change, message):
    with pytest.raises(alti.UsageError, match=message):
        replace(plan, **change)


def test_a_model_without_a_head_is_refused(plan, tmp_path):
    model = alti.Model(tiny.speaking("bert", "AutoModel"), tiny.tokenizer())
    with pytest.raises(alti.UsageError, match="has no head"):
        finished(plan, model, tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("family", "head", "kind"),
    [
        ("bert", "AutoModelForSequenceClassification", "wordpiece"),
        ("bert", "AutoModelForMaskedLM", "wordpiece"),
        ("gpt2", "AutoModelForCausalLM", "bpe"),
        ("gpt2", "AutoModelForSequenceClassification", "bpe"),
    ],
)
def test_predictions_in_batches_are_those_one_by_one(family, head, kind):
    model = alti.Model(tiny.speaking(family, head, kind), tiny.tokenizer(kind))
    mask = model.tokenizer.mask_token_id
    questions = [model.tokenizer(text)["input_ids"] for text in TEXTS]
    if head == "AutoModelForMaskedLM":
        questions = [[*ids[:1], mask, *ids[1:]] for ids in questions]
    predictor = Predictor(model, tokens=40)
    probabilities = predictor.probabilities(questions)
    for row, ids in zip(probabilities, questions, strict=True):
        logits = model.model(input_ids=torch.tensor([ids])).logits[0].detach()
        place = {"AutoModelForMaskedLM": 1, "AutoModelForCausalLM": -1}.get(head)
        torch.testing.assert_close(row, (logits if place is None else logits[place]).softmax(-1))
    assert predictor.texts == len(TEXTS)
    assert 1 < predictor.passes < len(TEXTS)
    if head != "AutoModelForMaskedLM":
        assert predictor([[]], [0])[0] > 0  # nothing is left of the text


def test_batches_hold_what_fits():
    lengths = [5, 1, 9, 3, 3, 20]
    numbers = list(batches(lengths, 12))
    assert sorted(i for batch in numbers for i in batch) == list(range(6))
    assert all(
        len(batch) * max(lengths[i] for i in batch) <= 12 or len(batch) == 1 for batch in numbers
    )
    assert list(batches([], 12)) == []


def test_files_of_others_are_left_alone(plan, model, tmp_path):
    for number, content in enumerate(
        ('{"important": "one line"}', "123\n", '{"text": "a"}\n{"text": "b"}', "x" * 99)
    ):
        file = tmp_path / f"{number}.txt"
        file.write_text(content)
        with pytest.raises(alti.LoadError, match="not a file of benchmark rows"):
            finished(plan, model, file)
        assert file.read_text() == content
    for file in (tmp_path, tmp_path / "nowhere" / "rows.jsonl"):
        with pytest.raises(alti.UsageError, match="cannot be written"):
            finished(plan, model, file)


def test_changed_data_weights_or_dtype_are_noticed(plan, model, data, tmp_path):
    file = tmp_path / "rows.jsonl"
    finished(plan, model, file)
    other = alti.Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification", seed=1), tiny.tokenizer()
    )
    with pytest.raises(alti.UsageError, match="the dtype and the model changed since"):
        finished(plan, other, file)
    words = json.loads(model.tokenizer.backend_tokenizer.to_str())
    words["normalizer"] = None
    backend = Tokenizer.from_str(json.dumps(words))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **tiny.ROLES)
    changed = alti.Model(model.model, tokenizer)
    with pytest.raises(alti.UsageError, match="but the model changed since: name another file"):
        finished(plan, changed, file)
    data.write_text(data.read_text().replace("clever", "clumsy"))
    with pytest.raises(alti.UsageError, match="but the data changed since: name another file"):
        finished(plan, model, file)


def test_a_run_that_failed_before_its_first_row_leaves_nothing_behind(
    plan, model, tmp_path, monkeypatch
):
    def fail(self, chunk):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Judge, "rows", fail)
        with pytest.raises(ZeroDivisionError):
            finished(plan, model, tmp_path / "rows.jsonl")
    assert finished(replace(plan, methods=("alti",)), model, tmp_path / "rows.jsonl")


def test_labels_of_any_kind_can_be_read_again(model, data, tmp_path):
    data.write_text(json.dumps({"text": "A clever film", "label": "pos\u2028\x85x"}) + "\n")
    plan = Plan(model="tiny", data=str(data), methods=("random",))
    assert finished(plan, model, tmp_path / "rows.jsonl")[0]["gold"] == "pos\u2028\x85x"


def test_how_often_the_model_is_right(model, data, tmp_path):
    """By the number of a class or by its name; a label that the model lacks is not counted."""
    names = [model.head.config.id2label[i] for i in range(2)]
    truth = [model.explain(text).target for text in TEXTS[:3]]
    labels = [truth[0], names[truth[1]], names[1 - truth[2]], "neither", -1]
    lines = [
        json.dumps({"text": text, "label": label})
        for text, label in zip(TEXTS, labels, strict=False)
    ]
    data.write_text("\n".join(lines))
    plan = Plan(model="tiny", data=str(data), methods=("random",))
    rows = finished(plan, model, tmp_path / "rows.jsonl")
    assert [row.get("right") for row in rows if "method" in row] == [True, True, False, None, None]
    assert (
        "The model is right on 66.7 % of the 3 whose label it knows." in summary(plan, rows)[0].note
    )


def test_a_token_behind_the_last_word(tmp_path):
    model = alti.Model(
        tiny.speaking("gpt2", "AutoModelForSequenceClassification", "bpe"), tiny.tokenizer("bpe")
    )
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"text": "clever film ", "rationale": [1, 0]}) + "\n")
    plan = Plan(
        model="tiny",
        data=str(file),
        methods=("linear",),
        metrics=("token_f1",),
        rationale="rationale",
    )
    assert finished(plan, model, tmp_path / "rows.jsonl")[0]["values"]["token_f1"] in (0.0, 1.0)


def test_models_that_cannot_be_judged(plan, tmp_path):
    masked = alti.Model(tiny.speaking("bert", "AutoModelForMaskedLM"), tiny.tokenizer())
    with pytest.raises(alti.UsageError, match="predicts at its mask token"):
        finished(replace(plan, mask=True), masked, tmp_path / "rows.jsonl")
    bare = alti.Model(tiny.speaking("bert", "AutoModel"), tiny.tokenizer())
    with pytest.raises(alti.UsageError, match="has no head and predicts nothing"):
        finished(plan, bare, tmp_path / "rows.jsonl")
    with pytest.raises(alti.UsageError, match="token_f1 compares with human rationales"):
        replace(plan, metrics=("token_f1",))


def test_a_classifier_of_the_masked_position(plan, tmp_path):
    model = alti.Model(tiny.speaking("bert", "AutoModelForTokenClassification"), tiny.tokenizer())
    texts = ["The keys to the cabinet *** on the table.", "A clever blend"]
    file = tmp_path / "masked.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    plan = replace(
        plan, data=str(file), mask_token="***", metrics=("comprehensiveness", "probability_drop")
    )
    first, *_, passed = [
        row for row in finished(plan, model, tmp_path / "rows.jsonl") if "work" not in row
    ][::-1]
    result = model.explain(texts[0].replace("***", "[MASK]"), method="input_x_gradient")
    assert result.tokens[result.position] == "[MASK]"
    assert first["probability"] == pytest.approx(result.probability, abs=1e-6)
    assert (
        len(first["values"]["probability_drop"]) == len(result) - 3 + 1
    )  # [CLS], [MASK] and [SEP] stay
    assert "predicts at every token" in passed["skipped"]
    with pytest.raises(alti.UsageError, match="predicts at its mask token"):
        finished(replace(plan, mask=True), model, tmp_path / "mask.jsonl")


def test_metrics_take_options(plan, model, tmp_path):
    names = ("comprehensiveness", "comprehensiveness:envelope=true", "probability_drop:steps=2")
    both = replace(plan, metrics=names)
    rows = finished(both, model, tmp_path / "rows.jsonl")
    other = finished(
        replace(plan, metrics=names[:1], envelope=True), model, tmp_path / "envelope.jsonl"
    )
    for row, envelope in zip(rows, other, strict=True):
        if "values" in row:
            assert row["values"][names[1]] == pytest.approx(envelope["values"][names[0]])
            assert len(row["values"][names[2]]) <= 3
    means = summary(both, rows)[0].columns
    assert means == ("method", *(f"{name}{kind} ↑" for name in names[:2] for kind in ("", " |·|")))
    assert f"alti {names[2]}" in curves(both, rows)
    for wrong, match in (
        ("aopc:beam=3", "aopc has no option 'beam': it takes none"),
        ("probability_drop:step=1", "it takes steps, envelope"),
        ("token_f1:k=2", "it takes none"),
        ("probability_drop:steps=abc", "takes steps as int, like 30, not 'abc'"),
        ("comprehensiveness:envelope=maybe", "takes envelope as bool"),
        ("comprehensiveness:bins=0.5", "takes bins as tuple"),
    ):
        with pytest.raises(alti.UsageError, match=match):
            replace(plan, metrics=(wrong,), rationale="r")


def test_default_methods_are_those_that_the_family_can():
    gpt = alti.Model(tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe"), tiny.tokenizer("bpe"))
    bert = alti.Model(tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer())
    assert set(PAPER) - set(default_methods(gpt)) == {"globenc", "alti_ln2"}
    assert default_methods(bert) == PAPER


def test_a_rationale_beside_a_mask_token_of_the_data(tmp_path):
    model = alti.Model(tiny.speaking("bert", "AutoModelForTokenClassification"), tiny.tokenizer())
    text = "The keys ***mask*** on the table"
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"text": text, "rationale": [0, 0, 0, 0, 0, 1]}) + "\n")
    judge = Judge(model, Plan("tiny", str(file), ("alti",), mask_token="***mask***").setting())
    (usable,), _ = judge._texts(list(read(file, rationale="rationale")))
    last = usable.task.encoded.text.index("table")
    scores = torch.tensor([float(start >= last) for start, _ in usable.task.encoded.offsets])
    assert _plausibility(average_precision, usable, scores, by_size=False) == 1.0


def test_one_run_at_a_time_writes_a_file(plan, model, tmp_path):
    first = run(plan, model, tmp_path / "rows.jsonl")
    next(first)
    with pytest.raises(alti.UsageError, match="another run is writing"):
        next(run(plan, model, tmp_path / "rows.jsonl"))
    rest = list(first)
    assert rest[-1].texts == len(TEXTS)
    with pytest.raises(alti.UsageError, match="cannot be written"):
        next(run(plan, model, Path("/dev/null")))


@pytest.mark.parametrize("mask", [False, True])
def test_pairs_of_texts(model, tmp_path, mask):
    """Which words are taken away does not change which text the others are of."""
    file, pairs = tmp_path / "pairs.jsonl", [(TEXTS[0], TEXTS[2]), (TEXTS[3], TEXTS[4])]
    lines = [
        {
            "premise": one,
            "hypothesis": other,
            "human": [float(i == 1) for i in range(len(one.split()))],
        }
        for one, other in pairs
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    columns = {"text": "premise", "pair": "hypothesis", "rationale": "human", "mask": mask}
    metrics = ("comprehensiveness", "sufficiency", "token_f1")
    plan = Plan(
        model="tiny", data=str(file), methods=("alti", "linear"), metrics=metrics, **columns
    )
    rows = [row for row in finished(plan, model, tmp_path / "rows.jsonl") if "method" in row]
    mask_id = model.tokenizer.mask_token_id
    for row in rows:
        encoded = model.encoder.encode(*pairs[row["text"]])
        assert set(encoded.types) == {0, 1}
        second = encoded.types.index(1)

        def predict(questions, row=row, encoded=encoded, second=second):
            probabilities = []
            for ids in questions:
                first = ids.index(encoded.ids[second - 1], 1) + 1  # behind the first [SEP]
                types = [0] * first + [1] * (len(ids) - first)
                logits = model.model(
                    input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])
                ).logits
                probabilities.append(logits.softmax(-1)[0, row["target"]])
            return torch.stack(probabilities).detach()

        keep = torch.tensor(encoded.special)
        scores = model.explain(
            *pairs[row["text"]], method=row["method"], target=row["target"]
        ).scores
        options = {
            "ids": encoded.ids,
            "keep": keep,
            "scores": scores,
            "mask_id": mask_id if mask else None,
        }
        assert row["values"]["comprehensiveness"] == pytest.approx(
            comprehensiveness(predict, **options), abs=1e-6
        )
        assert row["values"]["sufficiency"] == pytest.approx(
            sufficiency(predict, **options), abs=1e-6
        )
        if row["text"] == 0:  # only words of the first text count
            one = TEXTS[0].split()
            own = [
                (
                    i,
                    sum(
                        float(scores[k])
                        for k, (a, b) in enumerate(encoded.offsets)
                        if encoded.segments[k] == 0 and TEXTS[0][:a].count(" ") == i
                    ),
                )
                for i in range(len(one))
            ]
            expected = token_f1([score for _, score in own], lines[0]["human"])
            assert row["values"]["token_f1"] == pytest.approx(expected)


def test_pairs_with_special_tokens_inside_are_passed_over(model, tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"text": "so [SEP] dull", "pair": "funny"}) + "\n")
    plan = Plan(model="tiny", data=str(file), methods=("alti",), pair="pair")
    (row, *_) = finished(plan, model, tmp_path / "rows.jsonl")
    assert row == {"text": 0, "skipped": "a text of the pair has special tokens inside"}


@pytest.mark.parametrize(("family", "kind"), [("roberta", "bpe"), ("mpnet", "wordpiece")])
def test_pairs_without_types(family, kind):
    """A tokenizer that gives none, and a model that takes none."""
    model = alti.Model(
        tiny.speaking(family, "AutoModelForSequenceClassification", kind), tiny.tokenizer(kind)
    )
    assert model.encoder.types_of([2, 5, 3, 6, 3]) is None
    assert Predictor(model, pairs=True).probabilities([[2, 5, 3, 6, 3]]).shape == (1, 2)

"""Sources of contexts: metrics of their scores, and the benchmark of three tasks."""

import itertools
import json
import math
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import alti
from alti.experiments import examine
from alti.experiments.bench import Study, cost, load_rows, run, verdicts
from alti.experiments.cases import case_of
from alti.experiments.study import default_methods
from alti.methods.ablation import values_without
from alti.metrics import evidence, lds, recall_at_k, top_k_drop, top_share_lost
from alti.views.tables import bootstrap, mean_of_groups
from test_answers import speaking

import tiny
from speed import slow

pytestmark = pytest.mark.filterwarnings("ignore::alti.model.answers.JoinedByTokens")

DOCUMENTS = [
    "The keys to the cabinet are on the table. It costs 3.14 dollars!",
    "A clever blend of fact and fiction.",
    "It's not a bad film. The acting is better.",
    "A long and clumsy ending.",
]
SENTENCES = [
    "The keys to the cabinet are on the table.",
    "It costs 3.14 dollars!",
    *DOCUMENTS[1:2],
    "It's not a bad film.",
    "The acting is better.",
    DOCUMENTS[3],
]
CONTEXT = " ".join(DOCUMENTS)
ROWS = {
    "answer": [
        {"question": "Where are the keys?", "documents": DOCUMENTS, "gold": 0, "answer": None},
        {"question": "Is it funny?", "documents": DOCUMENTS[::-1], "gold": 1, "answer": "A film"},
        {"question": "Where?", "documents": ["clumsy"], "gold": 0, "answer": "The table"},
    ],
    "next": [
        {"prompt": "The keys to the cabinet", "good": good, "bad": bad, "evidence": word, "task": t}
        for good, bad, word, t in [
            ("are", "is", "keys", "number"),
            ("is", "are", "keys", "number"),
            ("film", "better", "cabinet", "noun"),
            ("better", "film", "cabinet", "noun"),
            ("are", "are", "keys", "noun"),
            ("film", "better", "key", "noun"),
            ("dollars", "table", "keys", "number"),
            ("table", "dollars", "keys", "number"),
        ]
    ],
    "evidence": [
        {
            "context": " " * 60 + CONTEXT,
            "question": "Where is it?",
            "answer": word,
            "answer_start": start + 60 if word in CONTEXT else 3,
        }
        for word in ("table", "film", "moon")
        for start in [CONTEXT.find(word)]
    ],
    "records": [
        {
            "records": [{"key": key, "value": DOCUMENTS[i]} for i, key in enumerate("abcd")],
            "key": "c",
            "value": DOCUMENTS[2],
        }
    ],
}
METHODS = ("random", "alti", "linear:of=log_prob", "dimming")


@pytest.fixture(scope="module")
def model():
    return speaking()


def written(folder, name, form="jsonl"):
    file = folder / f"{name}.{form}"
    if form == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[name]))
    else:
        pq.write_table(pa.Table.from_pylist(ROWS[name]), file)
    return file


def study_of(file, task, **changes):
    options = {"methods": METHODS, "generate": 4, "subsets": 8, **changes}
    return Study(model="tiny", data=str(file), task=task, **options)


def finished(study, model, file):
    for _ in run(study, model, file):
        pass
    return load_rows(file)[1]


def abouts(rows):
    return {row["text"]: row for row in rows if "sources" in row}


def reasons(rows):
    return {row["text"]: row["skipped"] for row in rows if "skipped" in row}


# --- metrics, against their definitions ---


def ranks_by_hand(values):
    """The mean of the ranks that equal values share."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def lds_by_hand(scores, kept, values):
    sums = [sum(s for s, keep in zip(scores, row, strict=True) if keep) for row in kept]
    a, b = ranks_by_hand(sums), ranks_by_hand(values)
    return float(np.corrcoef(a, b)[0, 1])


@pytest.mark.parametrize("seed", range(20))
def test_lds_is_spearmans_correlation_of_sums_with_shared_ranks(seed):
    draw = random.Random(seed)
    n, sources = draw.randint(4, 30), draw.randint(2, 6)
    scores = [float(draw.randint(-2, 2)) + (i == 0) for i in range(sources)]
    kept = [[draw.randint(0, 1) for _ in range(sources)] for _ in range(n)]
    kept[0], kept[1] = [0] * sources, [1] + [0] * (sources - 1)
    values = [float(draw.randint(0, 3)) for _ in range(n - 1)] + [9.0]
    if scores[0] == 0:
        scores[0] = 1.0
    assert lds(scores, kept, values) == pytest.approx(lds_by_hand(scores, kept, values))
    assert lds(torch.tensor(scores), torch.tensor(kept), np.array(values)) == pytest.approx(
        lds(scores, kept, values)
    )


def test_lds_where_nothing_differs():
    kept = [[0, 1], [1, 0], [1, 1]]
    assert lds([0.0, 0.0], kept, [1.0, 2.0, 3.0]) == 0.0
    assert math.isnan(lds([1.0, 2.0], kept, [4.0, 4.0, 4.0]))
    assert math.isnan(lds([0.0, 0.0], kept, [4.0, 4.0, 4.0]))
    assert lds([1.0, 2.0], kept, [5.0, 4.0, 6.0]) == pytest.approx(1.0)
    assert lds([1.0, 2.0], kept, [4.0, 5.0, 6.0]) == pytest.approx(0.5)
    assert lds([-1.0, -2.0], kept, [4.0, 5.0, 6.0]) == pytest.approx(-0.5)


@pytest.mark.parametrize("seed", range(20))
def test_evidence_and_recall_with_ties(seed):
    draw = random.Random(seed)
    n = draw.randint(2, 6)
    scores = [float(draw.randint(0, 2)) for _ in range(n)]
    known = [draw.randint(0, 1) for _ in range(n)]
    known[draw.randrange(n)] = 1
    best = max(score for score, mark in zip(scores, known, strict=True) if mark)
    rank = sum(s > best for s in scores) + (sum(s == best for s in scores) + 1) / 2
    assert evidence(scores, known) == pytest.approx(1 / rank)
    orders = [
        order
        for order in itertools.permutations(range(n))
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]
    for k in range(1, n + 2):
        found = [sum(known[i] for i in order[:k]) / min(k, sum(known)) for order in orders]
        assert recall_at_k(scores, known, k=k) == pytest.approx(sum(found) / len(found))


def test_what_has_no_evidence_has_no_rank():
    assert math.isnan(evidence([1.0, 2.0], [0, 0]))
    assert math.isnan(recall_at_k([1.0, 2.0], [0, 0]))
    assert evidence([1.0, 3.0, 2.0], [1, 0, 0]) == pytest.approx(1 / 3)
    assert recall_at_k([1.0, 3.0, 2.0], [1, 0, 1], k=2) == 0.5


def test_drops_ask_about_the_highest_sources():
    worth = [1.0, 5.0, 3.0, 0.5, 0.25]
    asked = []

    def predict(questions):
        asked.extend(questions)
        return [10.0 - sum(worth[i] for i in question) for question in questions]

    assert top_k_drop(predict, worth) == 5.0
    assert top_k_drop(predict, worth, k=3) == 9.0
    assert asked == [[], [1], [], [0, 1, 2]]
    assert top_share_lost(predict, worth) == 0.5
    assert top_share_lost(predict, worth, share=0.3) == 0.8
    assert top_share_lost(predict, worth, share=0.0) == 0.5  # at least one
    assert math.isnan(top_share_lost(lambda questions: [-1.0, 2.0], worth))


def test_wrong_sizes():
    wrong = {
        r"2 scores, 3 values and kept of \[3, 3\] do not go together": lambda: lds(
            [1, 2], [[1, 0, 1]] * 3, [1, 2, 3]
        ),
        r"2 scores, 2 values and kept of \[3, 2\]": lambda: lds([1, 2], [[1, 0]] * 3, [1, 2]),
        "scores with nan have no ranking": lambda: lds([1, math.nan], [[1, 0]], [1]),
        "values with nan have no ranking": lambda: lds([1, 2], [[1, 0]] * 2, [1, math.nan]),
        "2 scores and 3 known are not of the same sources": lambda: evidence([1, 2], [1, 0, 0]),
        "scores with nan": lambda: recall_at_k([1, math.nan], [1, 0]),
        "k = 0 is not a number of sources": lambda: recall_at_k([1, 2], [1, 0], k=0),
        "k = -1 is not a number of sources": lambda: top_k_drop(None, [1, 2], k=-1),
        "a share of 2 of the tokens": lambda: top_share_lost(None, [1, 2], share=2),
    }
    for sentence, call in wrong.items():
        with pytest.raises(alti.UsageError, match=sentence):
            call()


def test_the_mean_of_groups():
    a, b = [1.0, 2.0, 3.0], [10.0]
    assert mean_of_groups([a, b, []])[0] == 6.0
    assert mean_of_groups([a]) == bootstrap(a)
    mean, low, high = mean_of_groups([a, b])
    assert (mean, 2 * low - 10, 2 * high - 10) == pytest.approx((6.0, *bootstrap(a)[1:]))
    assert all(map(math.isnan, mean_of_groups([[], [math.nan]])))
    assert math.isnan(mean_of_groups([b, b])[1])


# --- what is asked ---


@pytest.mark.parametrize("kind", ["answer", "next"])
def test_values_without_are_the_models_own_one_by_one(model, tmp_path, kind):
    study = study_of(written(tmp_path, kind), kind)
    case = case_of(model, next(iter(study.rows())))
    inputs, target = case.inputs, case.target
    length = inputs.mask.shape[1]
    draw = torch.Generator().manual_seed(0)
    removed = torch.rand(5, length, generator=draw) < 0.5
    removed[:, 0] = False
    removed[0] = False
    removed[:, int(target.position.min()) if kind == "answer" else 0 :] = False
    removed[1, -1] = kind == "next"  # then the token before it is read
    found = values_without(model.model, inputs, target, 0, removed, "log_prob")
    ids = inputs.tensors["input_ids"][0]
    for gone, value in zip(removed, found, strict=True):
        logits = model.model(input_ids=ids[~gone][None]).logits[0].log_softmax(-1)
        if kind == "next":
            good, bad = int(target.index), int(target.against)
            expected = logits[-1, good] - logits[-1, bad]
        else:
            count = target.index.shape[1]
            rows = logits[-count - 1 : -1]
            expected = rows.gather(1, target.index[0][:, None]).sum()
        torch.testing.assert_close(value.sum(), expected, rtol=1e-9, atol=1e-9)
    assert len(set(found[:, 0].tolist())) > 1


def test_the_sources_are_those_of_the_documents(model, tmp_path):
    counts = {"sentence": 6, "document": 4, "line": 4}
    file = written(tmp_path, "answer")
    for group, count in counts.items():
        case = case_of(model, next(iter(study_of(file, "answer", group=group).rows())))
        assert len(case.sources) == count
        assert case.inputs.groups.amax() == count - 1
        ids = case.inputs.tensors["input_ids"][0]
        texts = [model.tokenizer.decode(ids[tokens]) for tokens in case.sources]
        # a token that is nothing but space is of no source
        assert "".join(texts).replace(" ", "") == CONTEXT.replace(" ", "")
    words = case_of(model, next(iter(study_of(file, "answer", group="word").rows())))
    assert len(words.sources) == len(CONTEXT.split()) + 6  # ends of sentences


def test_distractors_are_drawn_and_shuffled_with_a_seed(tmp_path):
    file = written(tmp_path, "answer")

    def documents(**changes):
        study = study_of(file, "answer", distractors=2, first=2, **changes)
        return [row.documents for row in study.rows()]

    first = documents()
    assert first == documents()
    assert all(len(row) == 3 for row in first)
    assert DOCUMENTS[0] in first[0]
    assert DOCUMENTS[2] in first[1]
    places = {row.index(DOCUMENTS[0]) for seed in range(20) for row in documents(seed=seed)[:1]}
    assert places == {0, 1, 2}
    last = list(study_of(file, "answer", distractors=2).rows())[2]
    assert last.reason == "there are 0 documents beside the gold one, not 2"


# --- rows ---


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_answers(model, tmp_path, form):
    study = study_of(written(tmp_path, "answer", form), "answer")
    rows = finished(study, model, tmp_path / "rows.jsonl")
    assert reasons(rows) == {2: "it has 1 sources (sentence): two can be ranked"}
    assert [(row["text"], row.get("method")) for row in rows[:-1]] == [
        (text, method) for text in (0, 1) for method in (None, *METHODS)
    ]
    for text, about in abouts(rows).items():
        case = case_of(model, list(study.rows())[text])
        assert len(about["subsets"]) == 8
        assert about["sources"] == 6
        for subset, value in zip(
            ["111111", *about["subsets"]], [about["full"], *about["values"]], strict=True
        ):
            gone = [t for i, bit in enumerate(subset) if bit == "0" for t in case.sources[i]]
            removed = torch.zeros(1, about["tokens"], dtype=torch.bool)
            removed[0, gone] = True
            own = values_without(model.model, case.inputs, case.target, 0, removed, "log_prob")
            assert float(own.sum()) == pytest.approx(value, abs=1e-9)
    assert model.tokenizer.decode(model.tokenizer.encode("A film")) == abouts(rows)[1]["answer"]
    for row in (row for row in rows if "method" in row):
        about = abouts(rows)[row["text"]]
        kept = [list(map(int, subset)) for subset in about["subsets"]]
        assert row["values"]["lds"] == lds(row["scores"], kept, about["values"])
        left = {tuple(key): value for key, value in row["without"]}
        for k in (1, 3, 5):
            top = tuple(sorted(np.argsort(np.negative(row["scores"]))[:k].tolist()))
            assert row["values"][f"top_k_drop:k={k}"] == about["full"] - left[top]


def test_scores_of_sources_are_sums_or_the_methods_own(model, tmp_path):
    study = study_of(written(tmp_path, "answer"), "answer")
    rows = finished(study, model, tmp_path / "rows.jsonl")
    own = {row["method"]: row for row in rows if row.get("text") == 1 and "method" in row}
    asked = list(study.rows())[1]
    case = case_of(model, asked)
    options = {"documents": list(asked.documents), "answer": "A film", "total": True}
    for method in ("alti", "dimming"):
        found = model.explain(asked.text, method=method, **options)
        sums = [float(found.scores[tokens].sum()) for tokens in case.sources]
        if method == "alti":
            assert own[method]["scores"] == pytest.approx(sums)
        else:
            assert own[method]["scores"] != pytest.approx(sums)
            assert len(own[method]["scores"]) == len(sums)
    chance = model.explain(asked.text, method="random", **options)
    assert own["random"]["scores"] == pytest.approx(
        [float(chance.scores[tokens[0]]) for tokens in case.sources]
    )
    costs = {name: (row["forward"], row["backward"]) for name, row in own.items()}
    assert costs == {
        "random": (0, 0),
        "alti": (1, 0),
        "linear:of=log_prob": (1, 1),
        "dimming": (2, 1),
    }
    table = verdicts(study, rows)[0]
    assert [cells[-1].value for _, cells in table.rows] == [0, 1, 3, 4]
    assert cost(rows) == {"forward": 8, "backward": 4}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_next_words(model, tmp_path, form):
    study = study_of(written(tmp_path, "next", form), "next")
    rows = finished(study, model, tmp_path / "rows.jsonl")
    found = reasons(rows)
    assert found.pop(4) == "good and bad begin with the same token"
    assert found.pop(5) == "the evidence is not a word of the prompt"
    assert sorted(found.values()) == ["the model prefers bad"] * 3
    assert len({i // 2 for i in found}) == 3  # of each pair of rivals the model prefers one
    ids = model.tokenizer("The keys to the cabinet")["input_ids"]

    def difference(ids, asked):
        with torch.no_grad():
            logits = model.model(torch.tensor([ids])).logits[0, -1]
        good, bad = (model.tokenizer(f" {asked[name]}")["input_ids"][0] for name in ("good", "bad"))
        return float(logits[good] - logits[bad])

    for text, about in abouts(rows).items():
        asked = ROWS["next"][text]
        assert about["full"] == pytest.approx(difference(ids, asked))
        assert about["known"] == [{"keys": 1, "cabinet": 4}[asked["evidence"]]]
        assert about["task"] == asked["task"]
        for row in (row for row in rows if row["text"] == text and "method" in row):
            assert len(row["scores"]) == 5
            assert len(row["parts"]) == len(ids)
            if row["method"] != "random":
                assert sum(row["scores"]) == pytest.approx(sum(row["parts"]))
            known = [i in about["known"] for i in range(5)]
            assert row["values"]["evidence"] == evidence(row["scores"], known)
            ((gone, left),) = row["without"]
            assert gone == sorted(np.argsort(np.negative(row["parts"]))[: len(gone)].tolist())
            assert len(gone) == math.ceil(0.2 * len(ids))
            kept = [token for i, token in enumerate(ids) if i not in gone]
            assert left == pytest.approx(difference(kept, asked))
            share = (about["full"] - left) / about["full"]
            assert row["values"]["top_share_lost"] == pytest.approx(share)


def test_the_next_word_comes_before_the_end_that_a_tokenizer_adds(tmp_path):
    model = speaking("wordpiece")
    asked = next(iter(study_of(written(tmp_path, "next"), "next").rows()))
    case = case_of(model, asked)
    ids = case.inputs.tensors["input_ids"][0].tolist()
    assert [2, *ids[1:], 3] == model.tokenizer(asked.text)["input_ids"]
    assert case.target.position.tolist() == [[len(ids) - 1]]
    assert case.removable == [[i] for i in range(1, len(ids))]


def test_a_table_for_each_task_and_one_over_all(model, tmp_path):
    study = study_of(written(tmp_path, "next"), "next")
    rows = finished(study, model, tmp_path / "rows.jsonl")
    whole, difference, *tasks = verdicts(study, rows)
    assert whole.title.endswith("mean over 2 tasks")
    assert difference.title.endswith("difference to the best of each column")
    assert [table.title.rpartition(" ")[2] for table in tasks] == ["number", "noun"]
    for i, (method, cells) in enumerate(whole.rows):
        parts = [table.rows[i][1] for table in tasks]
        for column in range(2):
            mean = (parts[0][column].value + parts[1][column].value) / 2
            assert cells[column].value == pytest.approx(mean)
        assert method == METHODS[i]
    assert "Passed over: 3 (the model prefers bad)." in whole.note
    against = verdicts(study, rows, "alti")[1]
    assert against.title.endswith("difference to alti")
    assert dict(against.rows)["alti"][0].value == 0
    lines, rest = dict(whole.rows), dict(against.rows)
    assert rest["dimming"][1].value == pytest.approx(
        lines["dimming"][1].value - lines["alti"][1].value
    )
    with pytest.raises(alti.UsageError, match="the rival 'gradient' was not run: choose random"):
        verdicts(study, rows, "gradient")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_evidence_in_passages(model, tmp_path, form):
    study = study_of(written(tmp_path, "evidence", form), "evidence")
    rows = finished(study, model, tmp_path / "rows.jsonl")
    assert reasons(rows) == {2: "the answer does not stand at its answer_start in the context"}
    assert [about["known"] for about in abouts(rows).values()] == [[0], [3]]
    assert [about["answer"] for about in abouts(rows).values()] == ["table", "film"]
    for row in (row for row in rows if "method" in row):
        known = [i in abouts(rows)[row["text"]]["known"] for i in range(6)]
        assert row["values"] == {
            "evidence": evidence(row["scores"], known),
            "recall_at_k:k=1": recall_at_k(row["scores"], known),
        }


def test_evidence_in_documents_of_ones_own(model, tmp_path):
    """One text or several, in one document or more; the answer may be the model's own."""
    asked = {"question": "Where is it?", "documents": [f" {DOCUMENTS[0]}", *DOCUMENTS[1:]]}
    rows = [
        {**asked, "answer": "table", "evidence": "cabinet"},
        {**asked, "answer": None, "evidence": ["3.14 ", "The acting is better."]},
        {**asked, "answer": "film", "evidence": "ac"},  # fact, acting
        {**asked, "answer": "film", "evidence": ["cabinet", "moon"]},
        {**asked, "answer": "film", "evidence": " "},
        {**asked, "answer": "film", "evidence": None},
    ]
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    study = study_of(file, "evidence", methods=("random", "dimming"))
    found = finished(study, model, tmp_path / "rows.jsonl")
    marked = [i for i, text in enumerate(SENTENCES) if "ac" in text]
    assert [about["known"] for about in abouts(found).values()] == [[0], [1, 4], marked]
    assert abouts(found)[0]["answer"] == "table"
    assert abouts(found)[1]["answer"]
    assert reasons(found) == {
        3: "its evidence 'moon' stands in no document",
        4: "its evidence '' stands in no document",
        5: "evidence is not a list of texts but None",
    }


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_evidence_in_records(model, tmp_path, form):
    study = study_of(written(tmp_path, "records", form), "evidence")
    (asked,) = study.rows()
    assert asked.text == 'What is the value of "c"?'
    assert asked.documents[0].splitlines()[2] == f'"c": "{DOCUMENTS[2]}"'
    (about,) = abouts(finished(study, model, tmp_path / "rows.jsonl")).values()
    assert (about["sources"], about["known"], about["answer"]) == (4, [2], DOCUMENTS[2])


def test_an_answer_behind_a_plain_text_begins_with_a_space(tmp_path):
    plain = speaking(template=None)
    study = study_of(written(tmp_path, "evidence"), "evidence", methods=("random",))
    rows = finished(study, plain, tmp_path / "rows.jsonl")
    assert [about["answer"] for about in abouts(rows).values()] == [" table", " film"]


def test_a_method_that_refuses_a_text_does_not_stop_the_others(model, tmp_path, monkeypatch):
    real = alti.METHODS["alti"].function

    def alti_of_long_texts(model, inputs, target, **options):
        if len(inputs.mask[0]) < 11:
            raise alti.DecompositionError("too short to be read")
        return real(model, inputs, target, **options)

    strict = replace(alti.METHODS["alti"], function=alti_of_long_texts)
    monkeypatch.setitem(alti.METHODS, "alti", strict)
    rows = [
        {**ROWS["next"][i], "prompt": p} for i in (0, 1) for p in ("The keys", "keys are on it")
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    study = study_of(file, "next", methods=("random", "alti"))
    rows = finished(study, model, tmp_path / "out.jsonl")
    refused = [row for row in rows if "refused" in row]
    assert refused
    assert all(row["refused"] == "too short to be read" for row in refused)
    table = verdicts(study, rows)[0]
    assert f"Refused by alti: {len(refused)} (the rows say why)." in table.note
    assert math.isnan(dict(table.rows)["alti"][0].value)
    assert not math.isnan(dict(table.rows)["random"][0].value)
    assert finished(study, model, tmp_path / "out.jsonl") == rows


# --- stopped and resumed ---


@slow
@pytest.mark.parametrize("kind", ["answer", "next"])
def test_a_run_that_is_cut_anywhere_ends_as_the_same_bytes(model, tmp_path, kind):
    study = study_of(written(tmp_path, kind), kind, methods=("random", "linear:of=log_prob"))
    finished(study, model, tmp_path / "whole.jsonl")
    content = (tmp_path / "whole.jsonl").read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == 10]
    for cut in (1, 40, *ends, *(end - 7 for end in ends)):
        file = tmp_path / f"{cut}.jsonl"
        file.write_bytes(content[:cut])
        finished(study, speaking(), file)  # a new process has proved nothing yet
        assert file.read_bytes() == content


def test_nothing_is_asked_twice(model, tmp_path, monkeypatch):
    asked = []

    def counted(model, inputs, target, row, removed, of):
        asked.extend((inputs.mask.shape[1], *gone.nonzero()[:, 0].tolist()) for gone in removed)
        return values_without(model, inputs, target, row, removed, of)

    monkeypatch.setattr(examine, "values_without", counted)
    study = study_of(written(tmp_path, "answer"), "answer", first=1)
    finished(study, model, tmp_path / "whole.jsonl")
    assert len(asked) == len(set(asked)) > 8
    whole = list(asked)
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    subsets = {"111111", *json.loads(lines[1])["subsets"]}
    for count in range(2, len(lines) + 1):
        asked.clear()
        (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:count]))
        finished(study, model, tmp_path / "cut.jsonl")
        assert asked == whole[len(whole) - len(asked) :]
        assert len(asked) <= len(whole) - len(subsets)
    assert asked == []


def test_methods_are_added_to_a_study_that_is_there(model, tmp_path, monkeypatch):
    study = study_of(written(tmp_path, "answer"), "answer", methods=("random", "alti"))
    more = replace(study, methods=("leave_one_out", "random", "alti"))
    file = tmp_path / "rows.jsonl"
    before = finished(study, model, file)
    fresh = finished(more, model, tmp_path / "fresh.jsonl")
    asked = []

    def counted(model, inputs, target, row, removed, of):
        asked.extend(gone.nonzero()[:, 0].tolist() for gone in removed)
        return values_without(model, inputs, target, row, removed, of)

    monkeypatch.setattr(examine, "values_without", counted)
    rows = finished(more, model, file)
    assert rows[: len(before)] == before
    assert sorted(map(repr, rows)) == sorted(map(repr, fresh))  # what a run of all would hold
    texts = {row["text"] for row in rows}
    assert len(asked) <= 3 * len(texts)  # the drops of the new method: no subset is asked again
    assert load_rows(file)[0] == replace(study, methods=("random", "alti", "leave_one_out"))
    content = file.read_bytes()
    for again in (more, replace(more, methods=more.methods[::-1])):  # in any order
        finished(again, model, file)
        assert file.read_bytes() == content
    with pytest.raises(alti.UsageError, match="holds the rows of another run"):
        finished(study, model, file)  # fewer: the tables would show more than was asked for
    for cut in range(len(content) - content[::-1].index(b'{"added"'[::-1]) - 8, len(content), 97):
        file.write_bytes(content[:cut])
        finished(more, model, file)
        assert file.read_bytes() == content


def test_another_study_does_not_go_into_the_same_file(model, tmp_path):
    study = study_of(written(tmp_path, "evidence"), "evidence", first=1)
    finished(study, model, tmp_path / "rows.jsonl")
    assert load_rows(tmp_path / "rows.jsonl")[0] == study
    for change in ({"group": "word"}, {"seed": 1}, {"methods": ("alti",)}):
        with pytest.raises(alti.UsageError, match="holds the rows of another run"):
            finished(replace(study, **change), model, tmp_path / "rows.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text((tmp_path / "evidence.jsonl").read_text().replace("Where", "When"))
    with pytest.raises(alti.UsageError, match="holds the rows of another run"):
        finished(replace(study, data=str(other)), model, tmp_path / "rows.jsonl")
    (tmp_path / "evidence.jsonl").write_text(other.read_text())
    with pytest.raises(alti.UsageError, match="but the data changed since"):
        finished(study, model, tmp_path / "rows.jsonl")


# --- wrong use ---


def test_wrong_columns_say_what_was_expected(tmp_path):
    wrong = {
        "answer": ("evidence", "expected the columns question/prompt, documents/context"),
        "next": ("answer", "expected the columns prompt, good, bad, evidence; its columns are"),
        "evidence": ("next", "documents/context, evidence or context, question, answer, answer_"),
    }
    for task, (name, sentence) in wrong.items():
        file = written(tmp_path, name)
        if task == "answer":
            file.write_text('{"context": "a"}\n')
        with pytest.raises(alti.UsageError, match=sentence):
            study_of(file, task).rows()
    with pytest.raises(alti.UsageError, match="has no column 'gold'"):
        study_of(written(tmp_path, "evidence"), "answer", distractors=1).rows()


def test_rows_that_cannot_be_used_say_why(tmp_path):
    cells = {
        "documents is not a list of texts but 'x'": {"documents": "x"},
        "documents is not a list of texts but [1]": {"documents": [1]},
        "a document is empty": {"documents": ["a", " "]},
        "question is missing": {"question": None, "documents": ["a"]},
        "question is empty": {"question": " ", "documents": ["a"]},
        "answer is not a string but 3": {"answer": 3, "documents": ["a"]},
    }
    file = tmp_path / "rows.jsonl"
    lines = [json.dumps({"question": "Where?", **cell}) for cell in cells.values()]
    file.write_text("\n".join(["no json", *lines]) + "\n")
    rows = list(study_of(file, "answer").rows())
    assert [row.reason for row in rows] == ["line 1 is not JSON", *cells]


def test_a_csv_file_holds_one_context(model, tmp_path):
    file = tmp_path / "rows.csv"
    start = CONTEXT.index("table")
    file.write_text(f'context,question,answer,answer_start\n"{CONTEXT}",Where?,table,{start}\n')
    rows = finished(study_of(file, "evidence"), model, tmp_path / "rows.jsonl")
    assert abouts(rows)[0]["known"] == [0]
    assert next(iter(study_of(file, "answer").rows())).documents == (CONTEXT,)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": "sort"}, "task 'sort' does not exist: choose answer, next, evidence"),
        ({"group": "message"}, "group 'message' does not exist: choose word, sentence"),
        ({"metrics": ("evidence",)}, "metric evidence does not fit the task answer: choose from"),
        ({"metrics": ("aopc",)}, "metric aopc does not fit the task answer"),
        ({"methods": ()}, "at least one method"),
        ({"methods": ("magic",)}, "method 'magic' does not exist"),
        ({"subsets": 1}, "subsets = 1 is too few: give 2 or more"),
        ({"generate": 0}, "generate = 0 is too few"),
    ],
)
def test_wrong_studies(changes, sentence):
    with pytest.raises(alti.UsageError, match=sentence):
        Study(**{"model": "m", "data": "d", "task": "answer", "methods": ("alti",), **changes})


def test_only_language_models_are_asked(tmp_path):
    folder = tiny.saved(tmp_path / "model")
    study = study_of(written(tmp_path, "answer"), "answer")
    with pytest.raises(alti.UsageError, match="the task answer asks a language model"):
        finished(study, alti.load(folder, device="cpu"), tmp_path / "rows.jsonl")
    assert not (tmp_path / "rows.jsonl").exists()


def test_text_benchmarks_refuse_metrics_of_sources(tmp_path):
    with pytest.raises(alti.UsageError, match="lds measures the sources of a prompt"):
        alti.bench.Plan("m", "d", metrics=("lds",))


# --- the command line ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.saved(
        tmp_path_factory.mktemp("writer"), "gpt2", "AutoModelForCausalLM", n_positions=400
    )


@slow
def test_the_command_runs_each_task(run, folder, tmp_path):
    for name in ROWS:
        task = "evidence" if name == "records" else name
        file = written(tmp_path, name)
        out = tmp_path / f"{name}.rows"
        command = ("bench", "--model", folder, "--data", file, "--task", task, "--out", out)
        command = (*command, "--device", "cpu")
        code, printed, said = run(*command, "--json")
        assert code == 0, said
        content = json.loads(printed)
        rows = content["tables"][0]["rows"]
        assert [row["method"] for row in rows] == list(default_methods())
        assert rows[2]["passes"]["value"] == 1
        assert content["work"]["forward"] > 0
        assert f"rows in {out}" in said
        for form in ("text", "markdown", "latex", "csv"):
            code, printed, _ = run(*command, "--format", form, "--rival", "alti")
            assert code == 0
            assert "difference to alti" in printed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--task", "sort"), "task 'sort' does not exist"),
        (("--task", "next"), "expected the columns prompt, good, bad, evidence"),
        (("--task", "answer", "--mask"), "--mask says nothing about --task answer"),
        (("--task", "answer", "--text-column", "x"), "--text-column says nothing about --task"),
        (("--subsets", "8"), "--subsets says nothing about --task text"),
        (("--task", "answer", "--rival", "magic"), "--rival magic is not run: choose random"),
        (("--task", "answer", "--metrics", "evidence"), "does not fit the task answer"),
    ],
)
def test_wrong_usage_is_exit_code_2(run, folder, tmp_path, options, sentence):
    file = written(tmp_path, "answer")
    out = tmp_path / "rows"
    code, printed, said = run("bench", "--model", folder, "--data", file, "--out", out, *options)
    assert (code, printed) == (2, "")
    assert sentence in said
    assert not out.exists()


@slow
def test_real_data(shared, tmp_path):
    """The first rows of each data set, with a tiny model."""
    files = {
        "context_qa/nq10.parquet": ("answer", {"distractors": 3}),
        "context_qa/xquad_en.parquet": ("evidence", {}),
        "context_qa/kv75.parquet": ("evidence", {}),
        "minimal_pairs/data.parquet": ("next", {"first": None, "sample": 60}),
    }
    model = alti.Model(
        tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe", n_positions=9000, dtype=torch.float32),
        tiny.tokenizer("bpe"),
    )
    for name, (task, options) in files.items():
        if not (shared / "data" / name).is_file():
            pytest.skip(f"no {name}")
        methods = {"methods": ("random",), "first": 2, "subsets": 2, **options}
        study = study_of(shared / "data" / name, task, **methods)
        rows = finished(study, model, tmp_path / f"{name.partition('/')[2]}.jsonl")
        assert abouts(rows), reasons(rows)
        assert all(about["sources"] > 1 for about in abouts(rows).values())
        for row in (row for row in rows if "method" in row):
            assert None not in row["values"].values()

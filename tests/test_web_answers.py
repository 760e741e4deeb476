"""The API for what a model writes: the library's own numbers, its limits, and one sentence."""

import contextlib
import json
import time
from itertools import pairwise

import httpx
import pytest
import torch

import alti
from alti.model.model import Model
from alti.web.answers import Watched
from alti.web.pieces import _starts, pieces_of, sections_of
from alti.web.settings import Limits

import tiny
from serving import WRITTEN

CHAT = [
    {"role": "system", "content": "It is a film."},
    {"role": "user", "content": "The plot is funny. The acting is better."},
]
DOCUMENTS = ["The plot is funny.", "The acting is better. It is a film."]


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return alti.load(str(tiny.writer(tmp_path_factory.mktemp("x") / "tiny-chat")), device="cpu")


def asked(client, kind, **question):
    answer = client.post(f"/api/{kind}", json={"model": "tiny-chat", **question})
    assert answer.status_code == 200, answer.text
    return answer.json()


def scores(view):
    return [piece["score"] for piece in view["pieces"] if "score" in piece]


@pytest.mark.parametrize(
    "prompt",
    [{"text": "The plot is"}, {"chat": CHAT}, {"text": "Is it funny?", "documents": DOCUMENTS}],
    ids=lambda value: str(value)[:40],
)
def test_what_is_written_is_what_the_library_writes(client, model, prompt):
    found = asked(client, "generate", **prompt, tokens=6)
    text = prompt.get("chat") or prompt["text"]
    wanted = model.explain(text, documents=prompt.get("documents"), generate=6)
    assert found["ids"] == list(wanted.source.ids[wanted.source.answer :])
    chances = [token["probability"] for token in found["tokens"]]
    assert chances == pytest.approx([one.probability for one in wanted], abs=1e-5)
    assert [token["id"] for token in found["tokens"]] == found["ids"]


@pytest.mark.parametrize("method", ["absence", "alti", "leave_one_out", "linear"])
@pytest.mark.parametrize("by", ["word", "sentence", "message"])
def test_an_answer_has_the_scores_of_the_library(client, model, by, method):
    given = {"chat": CHAT, "answer": "It is better", "method": method, "by": by}
    view = asked(client, "answer", **given)
    groups = {} if by == "word" else {"groups": by}
    wanted = model.explain(CHAT, answer="It is better", method=method, total=True, **groups)
    wanted = wanted.words() if by == "word" else wanted
    end = wanted.source.answer
    assert scores(view) == pytest.approx(wanted.scores[:end].tolist(), abs=1e-5)
    assert "".join(piece["text"] for piece in view["pieces"]) == wanted.source.texts[0]
    assert view["log_prob"] == pytest.approx(wanted.extra["log_prob"])
    rows = model.explain(CHAT, answer="It is better", method="random")
    chances = [token["probability"] for token in view["answer"]]
    if by == "word":  # from the pass that explains
        assert chances == pytest.approx(wanted.prediction.steps, rel=1e-9)
    assert chances == pytest.approx([one.probability for one in rows], rel=1e-5)  # float32
    assert "".join(token["text"] for token in view["answer"]) == "It is better"


def test_a_part_of_an_answer(client, model):
    ids = [token["id"] for token in asked(client, "answer", chat=CHAT, answer="It is")["answer"]]
    view = asked(client, "answer", chat=CHAT, answer_ids=ids, part=[1, 3], tokens=False)
    wanted = model.explain(CHAT, answer_ids=ids, method="absence", part=(1, 3))
    assert scores(view) == pytest.approx(
        wanted.words().scores[: wanted.words().source.answer].tolist(), abs=1e-5
    )
    assert "answer" not in view  # they are known
    assert view["label"] == wanted.label.strip()


def test_one_answer_rather_than_another(client, model):
    view = asked(client, "answer", chat=CHAT, answer="It is", against="The plot", by="message")
    wanted = model.explain(
        CHAT, answer="It is", against="The plot", method="absence", groups="message"
    )
    assert scores(view) == pytest.approx(wanted.scores.tolist(), abs=1e-5)
    assert view["log_prob_against"] == pytest.approx(wanted.extra["log_prob_against"], abs=1e-5)


def test_what_belongs_to_no_word_is_named(client, model):
    """The amounts beside a prompt say what they are, and a note says why they may be large."""
    view = asked(client, "answer", chat=CHAT, answer="It is better", method="alti")
    found = model.explain(CHAT, answer="It is better", method="alti", total=True)
    left = {name: (score, what) for name, score, what in view["left"]}
    assert left["the answer so far"][0] == pytest.approx(
        float(found.scores[found.source.answer :].sum())
    )
    assert all("no word" in what for _, what in left.values())
    names = [name for name, (score, _) in left.items() if score > max(scores(view))]
    (note,) = view["notes"]
    assert note.startswith(f"The amounts beside the scale ({', '.join(names)}) belong to no word")


def test_an_encoder_decoder_writes_and_is_explained(client):
    found = asked(client, "generate", model="tiny-t5", text="The plot is", tokens=3)
    assert len(found["ids"]) == 3
    view = asked(client, "answer", model="tiny-t5", text="The plot is", answer="It is funny")
    assert "".join(piece["text"] for piece in view["pieces"]) == "The plot is"
    assert "".join(token["text"] for token in view["answer"]) == "It is funny"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({}, "A prompt is a text or a chat"),
        ({"text": "a", "chat": CHAT}, "A prompt is a text or a chat"),
        ({"chat": CHAT, "documents": ["a"]}, "Documents go with a question"),
        ({"chat": "hello"}, "chat is a string, expected a list of messages"),
        ({"chat": [{"role": "user"}]}, "chat takes one to 64 messages"),
        ({"chat": [{"role": "user", "content": 1}]}, "chat takes one to 64 messages"),
        ({"chat": [CHAT[0]] * 65}, "chat takes one to 64 messages"),
        ({"chat": []}, "chat takes one to 64 messages"),
        ({"text": "a", "documents": [1]}, "documents takes one to 64 texts"),
        ({"text": "a", "documents": []}, "documents takes one to 64 texts"),
        ({"text": "a", "tokens": 0}, "0 new tokens were asked for"),
        ({"text": "a", "tokens": WRITTEN + 1}, f"up to {WRITTEN} can be written here"),
        ({"text": "a", "tokens": "many"}, "tokens is a string, expected an integer"),
        ({"text": "a", "magic": 1}, "There is no field 'magic'"),
        ({"text": "a" * 40_001}, "this server accepts 40000"),
        ({"text": "a", "documents": ["b" * 20_001] * 2}, "this server accepts 40000"),
        ({"text": "film " * 3000}, "and 4096 can be explained here"),
        ({"text": "film " * 5000}, "that the model takes: shorten it."),
        ({"text": "a", "model": "minilm-l6-sst2"}, "writes no text"),
        ({"chat": CHAT, "model": "tiny-llama"}, "has no template for chats"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_written_is_one_sentence(client, question, said):
    answer = client.post("/api/generate", json={"model": "tiny-chat", **question})
    assert answer.status_code in (400, 413)
    sentence = answer.json()["error"]
    assert said in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({}, "An answer is a text or token ids"),
        ({"answer": "a", "answer_ids": [1]}, "An answer is a text or token ids"),
        ({"answer_ids": ["a"]}, "answer_ids takes a list of whole numbers"),
        ({"answer_ids": [-1]}, "answer_ids takes a list of whole numbers"),
        ({"answer_ids": [10**9]}, "The answer holds token id 1000000000"),
        ({"answer_ids": [5] * 5000}, "4096 can be explained here"),
        ({"answer": ""}, "Answer is empty"),
        ({"answer": "It", "part": [0, 99]}, "is not in the answer"),
        ({"answer": "It", "part": [1]}, "is no part of an answer"),
        ({"answer": "It", "by": "verse"}, "choose one of token, word"),
        ({"answer": "It", "by": "document"}, "has no documents"),
        ({"answer": "It", "method": "magic"}, "There is no method 'magic'"),
        ({"answer": "It", "method": "integrated_gradients:steps=1000000"}, "numbers up to 1000"),
        ({"answer": "It", "against": "It"}, "give two different ones"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_explained_is_one_sentence(client, question, said):
    answer = client.post("/api/answer", json={"model": "tiny-chat", "text": "Plot", **question})
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["error"]


def test_who_leaves_stops_the_writing(client, server):
    """The queue shows what is written so far; a client that leaves frees the worker."""
    question = {"model": "tiny-chat", "chat": CHAT, "tokens": WRITTEN, "ticket": "mine"}
    seen = []
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{server}/api/generate", json=question, timeout=0.2, trust_env=False)
    end = time.monotonic() + 30
    while (state := client.get("/api/queue?ticket=mine").json())["state"] != "unknown":
        assert time.monotonic() < end
        seen.append(len(state.get("written", [])))
    assert seen == sorted(seen)
    assert all(count < WRITTEN for count in seen)
    assert asked(client, "generate", text="The plot", tokens=1)["ids"]


def test_the_time_limit_grows_with_the_prompt():
    limits = Limits(seconds=2.0)
    assert limits.seconds_for({"chat": [{"role": "user", "content": "a" * 4000}]}) == 4.0
    assert limits.seconds_for({"text": "a", "documents": ["b" * 5999]}) == 6.0


def test_the_end_token_is_not_told(model):
    told = []
    watched = Watched(model, told.append, 3)
    logits = torch.zeros(1, 330)
    logits[0, 7] = 5.0
    assert watched(torch.tensor([[1]]), logits) is logits
    logits = torch.zeros(1, 330)
    logits[0, watched.ends[0]] = 5.0
    watched(torch.tensor([[1, 7]]), logits)
    assert [token["id"] for token in told] == [7]


@pytest.mark.parametrize("written", [" 我爱 film", "It is رائع", " plain \U0001f60d"])
def test_what_is_told_joins_to_the_answer(model, written):
    """Tokens that are parts of a character say nothing until it is complete."""
    told = []
    watched = Watched(model, told.append, 99)
    prompt, answer = ([*model.encoder.plain(text).ids] for text in ("The plot", written))
    for count, number in enumerate(answer):
        logits = torch.zeros(1, 330)
        logits[0, number] = 5.0
        watched(torch.tensor([[*prompt, *answer[:count]]]), logits)
    assert "".join(token["text"] for token in told) == written
    assert all(token["name"] for token in told)


def test_sections_cover_the_prompt(model):
    found = model.explain("Is it funny?", documents=DOCUMENTS, answer="It is", total=True)
    pieces = pieces_of(found.words(), "word")
    sections = sections_of(found.words().source, pieces)
    assert [each["name"] for each in sections] == [
        "beginning",
        "document 1",
        "document 2",
        "question",
    ]
    ends = [(each["first"], each["end"]) for each in sections]
    assert ends[0][0] == 0
    assert ends[-1][1] == len(pieces)
    assert all(a[1] == b[0] for a, b in pairwise(ends))
    text = "One two. " * 300 + "\n\nLast."
    starts = _starts(text)
    assert max(b - a for a, b in pairwise(starts)) < 1300
    assert text[starts[-1] :] == "Last."
    assert len(_starts("word " * 1000)) > 3


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ({"text": [{"role": "user", "content": "The plot is funny. " * 300}]}, ["", "", ""]),
        (
            {"text": "Is it funny?", "documents": ["The plot is funny. " * 300, "It is a film."]},
            ["beginning", "document 1", "document 1, part 2"],
        ),
    ],
    ids=["one message", "a long document"],
)
def test_a_long_message_or_document_has_sections_of_its_own(model, asked, first):
    """A chat is often one message with all that there is to read."""
    found = model.explain(**asked, answer="It is", total=True, method="random").words()
    pieces = pieces_of(found, "word")
    sections = sections_of(found.source, pieces)
    assert [each["name"] for each in sections][: len(first)] == first
    sizes = [each["end"] - each["first"] for each in sections]
    assert sum(sizes) == len(pieces)
    assert max(sizes) < 400


def test_a_model_says_what_it_can_be_asked(client):
    entries = {one["name"]: one for one in client.get("/api/models").json()["models"]}
    assert entries["minilm-l6-sst2"]["writes"] is False
    assert (entries["tiny-chat"]["chats"], entries["tiny-llama"]["chats"]) == (True, False)
    assert (entries["tiny-chat"]["prompt"], entries["tiny-chat"]["written"]) == (4096, WRITTEN)


def test_every_request_is_described(client):
    paths = client.get("/api/openapi.json").json()["paths"]
    for kind in ("generate", "answer"):
        schema = paths[f"/api/{kind}"]["post"]["requestBody"]["content"]["application/json"]
        assert schema["schema"]["properties"]["chat"]["type"] == ["array", "null"]
    assert json.dumps(paths)


def test_a_model_without_names_is_shown_by_numbers():
    model = Model(tiny.build("gpt2", "AutoModelForCausalLM", dtype=torch.float32), None)
    told = []
    Watched(model, told.append, 1)(torch.tensor([[1]]), torch.eye(50)[:1])
    assert told[0]["text"] == " 0"  # numbers behind that of the prompt


def test_alignments_are_the_library_s(client, tmp_path):
    translator = alti.load(str(tiny.writer(tmp_path / "tiny-t5")), device="cpu")
    asked_for = {"text": "The plot is funny.", "answer": "It is better"}
    found = asked(client, "alignment", model="tiny-t5", **asked_for)
    rows = translator.explain(**asked_for)
    wanted = rows.alignment()
    assert (found["source"], found["target"]) == (list(wanted.source), list(wanted.target))
    assert sorted(map(tuple, found["links"])) == sorted(wanted.links)
    assert found["from_source"] == pytest.approx(rows.source_share.tolist(), abs=1e-5)
    ends = [end for _, end in found["parts"]]
    assert ends[-1] == len(rows)
    refused = client.post("/api/alignment", json={"model": "tiny-chat", **asked_for})
    assert "does not translate" in refused.json()["error"]
    refused = client.post("/api/alignment", json={"model": "tiny-t5", "text": "a"})
    assert "An answer is a text or token ids" in refused.json()["error"]


def test_an_answer_leaves_as_json_with_maps(client, model, monkeypatch):
    asked_for = {"text": "The plot is", "answer": " thin", "format": "json", "maps": True}
    (found,) = asked(client, "answer_export", **asked_for, method="alti", by="word")
    wanted = model.explain("The plot is", answer=" thin", method="alti", total=True, layers=True)
    assert alti.Attribution.from_dict(found).layers is not None
    assert alti.Attribution.from_dict(found) == wanted
    refused = {"model": "tiny-chat", **asked_for, "by": "word"}
    answer = client.post("/api/answer_export", json={**refused, "method": "absence"})
    assert answer.status_code == 400
    assert "Absence draws no maps: choose alti" in answer.json()["error"]
    plain = asked(client, "answer_export", **{**asked_for, "maps": False}, method="alti", by="word")
    assert alti.Attribution.from_dict(plain[0]).layers is None

"""The API: what the library says, and no more than it should."""

import asyncio
import base64
import contextlib
import json
import re
import select
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import torch

import alti
from alti import cli
from alti.views import html, latex
from alti.web import connections, desk, serve, serving
from alti.web.app import STATIC
from alti.web.settings import Limits, Refused, Settings
from alti.web.worker import Worker

import tiny
from strange import strange

QUICK = (  # `make test` runs these; the others are slow
    "test_explain_is_what_the_library_says",
    "test_any_named_model_can_be_asked",
    "test_models_are_described",
    "test_a_view_has_all_that_the_page_shows",
    "test_a_view_against_a_class",
    "test_exports_are_the_library_s",
    "test_every_answer_is_guarded",
    "test_the_page_needs_nothing_from_elsewhere",
    "test_what_is_local",
    "test_only_local_names_are_answered",
    "test_a_hostile_request_gets_one_sentence",
    "test_wrong_addresses_get_one_sentence",
    "test_the_api_is_what_its_description_says",
    "test_twenty_at_once",
    "test_cancel_frees_the_worker",
    "test_a_request_with_two_lengths_is_refused",
)

TEXT = "The acting is superb, but the plot is a tedious mess."
NAME = "minilm-l6-sst2"


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def model():
    return alti.load(device="cpu")


def asked(client, **question):
    answer = client.post("/api/explain", json={"text": TEXT, **question})
    assert answer.status_code == 200, answer.text
    return answer.json()


def plain(found):
    return json.loads(json.dumps(found.to_dict()))


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"method": "absence", "target": "positive"},
        {"method": "alti", "options": {"p": 2}, "layers": False},
        {"method": "occlusion", "target": 0},
        {"text_pair": "Who says so?"},
        {"text": "这部电影 هذا فيلم 😍 <script>alert(1)</script>", "method": "linear"},
    ],
    ids=str,
)
def test_explain_is_what_the_library_says(client, model, question):
    wanted = {"text": TEXT, **question}
    options = wanted.pop("options", {})
    assert asked(client, **question) == plain(model.explain(**wanted, **options))


def test_any_named_model_can_be_asked(client, server):
    names = [one["name"] for one in client.get("/api/models").json()["models"]]
    assert names == [NAME, "tiny-bert", "tiny-llama", "tiny-chat", "tiny-t5"]
    assert asked(client, model="tiny-bert")["model"] == "tiny-bert"


def test_models_are_described(client):
    told = client.get("/api/models").json()
    first = told["models"][0]
    assert (first["family"], first["layers"], first["labels"]) == (
        "bert",
        6,
        ["negative", "positive"],
    )
    assert set(first["methods"]) == set(alti.METHODS)
    reads = {one["name"] for one in told["methods"] if one["classes"]}
    assert {
        "absence",
        "linear",
        "alti_logit",
        "gradient",
        "integrated_gradients",
        "occlusion",
    } <= reads
    assert not reads & {"alti", "norms", "globenc", "attention", "attention_rollout", "random"}
    assert told["limits"]["tokens"] == 512
    slow = {one["name"]: one["largest"] for one in told["methods"] if one["many_passes"]}
    removing = ("occlusion", "leave_one_out", "contextcite", "surrogate")
    assert slow == dict.fromkeys(("integrated_gradients", *removing), 200)
    assert {one["largest"] for one in told["methods"] if one["name"] not in slow} == {1000}


def test_a_view_has_all_that_the_page_shows(client, model):
    view = client.post(
        "/api/view", json={"text": TEXT, "methods": ["absence", "alti"], "target": 1}
    ).json()
    found = model.explain(TEXT)
    words = [piece for piece in view["words"][0] if piece["places"]]
    scores = view["rows"][1]["scores"]
    assert (
        view["rows"][0]["scores"] == model.explain(TEXT, method="absence", target=1).scores.tolist()
    )
    assert "".join(piece["text"] for piece in view["words"][0]) == TEXT
    summed = [sum(scores[place] for place in piece["places"]) for piece in words]
    assert summed == pytest.approx(found.words().scores.tolist(), abs=1e-6)
    assert [one["label"] for one in view["classes"]] == ["negative", "positive"]
    assert sum(one["probability"] for one in view["classes"]) == pytest.approx(1)
    assert (view["label"], view["target"]) == ("positive", 1)
    mixing = view["mixing"]
    shares = np.frombuffer(base64.b64decode(mixing["data"]), "<u2").reshape(mixing["shape"])
    maps = torch.tensor(shares / 65535) * torch.tensor(mixing["largest"])[:, None, None]
    assert mixing["method"] == "alti"
    torch.testing.assert_close(maps, found.layers.double(), atol=1e-5, rtol=0)


def test_a_view_against_a_class(client, model):
    asked = {
        "text": TEXT,
        "methods": ["alti", "absence", "linear"],
        "target": "positive",
        "against": 0,
    }
    view = client.post("/api/view", json=asked).json()
    found = {
        name: model.explain(TEXT, method=name, target=1, against=0)
        for name in ("absence", "linear")
    }
    assert view["label"] == found["absence"].label == "positive rather than negative"
    shown = {row["method"]: row["scores"] for row in view["rows"]}
    assert shown.pop("alti") == model.explain(TEXT).scores.tolist()  # the same for every class
    assert shown == {name: one.scores.tolist() for name, one in found.items()}
    exported = client.post("/api/export", json={**asked, "format": "json"}).json()
    labels = [one["predictions"][0]["label"] for one in exported]
    assert labels == ["positive", view["label"], view["label"]]
    wrong = client.post("/api/view", json={**asked, "against": "positive"})
    assert (wrong.status_code, wrong.json()["error"].partition(":")[0]) == (
        400,
        "Class and Rather than are both 'positive'",
    )


def test_exports_are_the_library_s(client, model):
    asked = {"text": TEXT, "methods": ["alti", "absence:messages=1.0"], "other": "A clever film."}
    found = [  # both for the class of the first text
        model.explain(text, method=method, target="negative", layers=False, **options)
        for text in (TEXT, "A clever film.")
        for method, options in (("alti", {}), ("absence", {"messages": 1.0}))
    ]
    made = {
        form: client.post("/api/export", json={**asked, "format": form})
        for form in ("html", "latex", "json")
    }
    assert made["html"].text == html.page(found, one_scale=True)
    assert made["latex"].text == latex.document(found, one_scale=True)
    assert made["json"].json() == [plain(one) for one in found]
    assert (
        made["html"].headers["content-type"] == "text/plain; charset=utf-8"
    )  # no browser renders it here


def test_every_answer_is_guarded(client):
    kinds = {
        "/": "text/html",
        "/app.js": "text/javascript",
        "/style.css": "text/css",
        "/html.css": "text/css",
    }
    kinds |= {
        "/icon.svg": "image/svg+xml",
        "/api/models": "application/json",
        "/nothing": "application/json",
    }
    for address, kind in kinds.items():
        answer = client.get(address)
        assert answer.headers["content-type"].startswith(kind), address
        assert answer.headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'; style-src"
        )
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] in ("no-cache", "no-store")
    tag = client.get("/app.js").headers["etag"]
    assert client.get("/app.js", headers={"If-None-Match": tag}).status_code == 304


NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/XML/1998/namespace"}  # names only


def test_the_page_needs_nothing_from_elsewhere(client):
    files = {
        "/",
        "/html.css",
        *(f"/{file.name}" for file in STATIC.iterdir() if file.name != "index.html"),
    }
    used = set()
    for address in files:
        text = client.get(address).text
        used |= set(re.findall(r'(?:src|href|from)[= ]"(/[^"]*)"', text))
        assert set(re.findall(r"https?://[^\s\"')]+", text)) <= NAMESPACES, address
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", text
        ), address
    assert used - {"/api/openapi.json"} == files - {"/"}
    assert not re.search(r" style=| on[a-z]+=|<style|<script>", client.get("/").text)


def test_what_is_local():
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        assert Settings(host=host).local
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        assert not Settings(host=host).local


def test_only_local_names_are_answered(client):
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "localhost:1@evil.example"):
        answer = client.get("/api/models", headers={"Host": host})
        assert answer.status_code in (400, 421), host
    for host in ("localhost", "127.0.0.1:99", "[::1]:8765"):
        assert client.get("/api/models", headers={"Host": host}).status_code == 200


BODY = {"content-type": "application/json"}
HOSTILE = {
    "no json": (400, {"content": b"{text:", "headers": BODY}),
    "nested": (400, {"content": b"[" * 100_000, "headers": BODY}),
    "nan": (400, {"content": b'{"text": NaN}', "headers": BODY}),
    "binary": (400, {"content": b"\xff\xfe\x00", "headers": BODY}),
    "a list": (400, {"json": [1]}),
    "no text": (400, {"json": {}}),
    "empty text": (400, {"json": {"text": " "}}),
    "half a character": (400, {"content": b'{"text": "\\ud800"}', "headers": BODY}),
    "a number for text": (400, {"json": {"text": 1}}),
    "a list for text": (400, {"json": {"text": ["a"]}}),
    "a boolean for position": (400, {"json": {"text": "a", "position": True}}),
    "a string for layers": (400, {"json": {"text": "a", "layers": "yes"}}),
    "an unknown field": (400, {"json": {"text": "a", "txet": "b" * 1000}}),
    "an unknown method": (400, {"json": {"text": "a", "method": "magic"}}),
    "an unknown option": (400, {"json": {"text": "a", "options": {"q": 2}}}),
    "options of a wrong kind": (400, {"json": {"text": "a", "options": {"p": [2]}}}),
    "a huge option": (
        400,
        {"json": {"text": "a", "method": "integrated_gradients", "options": {"steps": 10**9}}},
    ),
    "an argument as an option": (400, {"json": {"text": "a", "options": {"method": "linear"}}}),
    "another as an option": (400, {"json": {"text": "a", "options": {"truncate": True}}}),
    "an unknown class": (400, {"json": {"text": "a", "method": "linear", "target": "neutral"}}),
    "a huge class": (400, {"json": {"text": "a", "target": 10**4000}}),
    "a position": (400, {"json": {"text": "a", "position": 3}}),
    "an unknown model": (404, {"json": {"text": "a", "model": "gpt-7"}}),
    "a path": (404, {"json": {"text": "a", "model": "../../../../etc/passwd"}}),
    "a file": (404, {"json": {"text": "a", "model": "/etc"}}),
    "too many tokens": (400, {"json": {"text": "word " * 600}}),
    "too many characters": (413, {"json": {"text": "a" * 30_000}}),
    "too many bytes": (413, {"content": b"x" * 10_000_000, "headers": BODY}),
    "a stream without a length": (
        413,
        {"content": (b"x" * 100_000 for _ in range(100)), "headers": BODY},
    ),
    "a form": (415, {"data": {"text": "a"}}),
    "plain text": (415, {"content": b'{"text": "a"}', "headers": {"content-type": "text/plain"}}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_request_gets_one_sentence(client, name):
    status, request = HOSTILE[name]
    answer = client.post("/api/explain", **request)
    assert answer.status_code == status, answer.text
    sentence = answer.json()["error"]
    assert answer.json() == {"error": sentence}
    assert (sentence[-1], sentence.count("\n")) == (".", 0)
    assert len(sentence) < 500
    assert client.post("/api/explain", json={"text": "fine"}).status_code == 200


def test_wrong_addresses_get_one_sentence(client):
    for method, address, status in (
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/static/app.js", 404),
        ("GET", "/%2e%2e/app.py", 404),
        ("GET", "/api/explain", 405),
        ("DELETE", "/", 405),
        ("POST", "/api/models", 405),
    ):
        answer = client.request(method, address)
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
    for question in (
        {"methods": []},
        {"methods": ["alti"] * 5},
        {"methods": [1]},
        {"format": "exe"},
        {"methods": ["integrated_gradients:steps=1000000000"]},
        {"methods": ["alti:q=1"]},
    ):
        assert client.post("/api/export", json={"text": "a", **question}).status_code == 400


def fits(value, schema, schemas):
    """Whether a value matches a JSON schema, for the keywords that the description uses."""
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "boolean": bool,
        "null": type(None),
    }
    kinds["number"] = int | float
    named = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    kind = next(
        (
            n
            for n in named
            if isinstance(value, kinds[n]) and (n == "boolean") >= isinstance(value, bool)
        ),
        None,
    )
    if kind == "array":
        return all(fits(item, schema["items"], schemas) for item in value)
    if kind == "object":
        known = schema.get("properties", {})
        more = schema.get("additionalProperties", True)
        rest = [item for name, item in value.items() if name not in known]
        inside = all(fits(value[name], known[name], schemas) for name in known if name in value)
        others = (
            not rest
            if more is False
            else more is True or all(fits(item, more, schemas) for item in rest)
        )
        return inside and others and set(schema.get("required", ())) <= set(value)
    return kind is not None and value in schema.get("enum", [value])


def test_the_api_is_what_its_description_says(client):
    said = client.get("/api/openapi.json").json()
    schemas, post = said["components"]["schemas"], said["paths"]["/api/explain"]["post"]
    question = post["requestBody"]["content"]["application/json"]["schema"]
    good = {"text": TEXT, "model": NAME, "method": "linear", "target": "positive", "options": {}}
    answers = {
        status: one["content"]["application/json"]["schema"]
        for status, one in post["responses"].items()
    }
    assert fits(good, question, schemas)
    assert fits(asked(client, **good), answers["200"], schemas)
    assert fits(asked(client, layers=False), answers["200"], schemas)
    assert not fits({**asked(client), "scores": ["1"]}, answers["200"], schemas)
    assert not fits({**asked(client), "more": 1}, answers["200"], schemas)
    for name in (
        "no text",
        "a number for text",
        "an unknown field",
        "an unknown method",
        "an unknown model",
    ):
        request = HOSTILE[name][1]
        assert not fits(request["json"], question, schemas)
        answer = client.post("/api/explain", **request)
        assert fits(answer.json(), answers[str(answer.status_code)], schemas)


def test_twenty_at_once(client, server, model):
    texts = [f"The film number {i} is a tedious mess." for i in range(20)]

    def post(text):
        return httpx.post(f"{server}/api/explain", json={"text": text}, timeout=60, trust_env=False)

    start = time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(post, texts))
    assert time.monotonic() - start < 30
    done = [
        (text, answer)
        for text, answer in zip(texts, answers, strict=True)
        if answer.status_code == 200
    ]
    assert len(done) >= 5
    assert {answer.status_code for answer in answers} <= {200, 503}
    for text, answer in done:
        assert answer.json() == plain(model.explain(text))
    assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 503)


def test_the_page_answers_while_the_model_works(client, server):
    slow = {"text": "word " * 100, "methods": ["occlusion"]}
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(
            httpx.post, f"{server}/api/view", json=slow, timeout=60, trust_env=False
        )
        time.sleep(0.2)
        start = time.monotonic()
        assert client.get("/").status_code == 200
        quick = time.monotonic() - start
        assert not working.done()
        assert quick < 0.5
        assert working.result().status_code in (200, 504)


async def here():
    return False


def ask(worker, **told):
    return asyncio.run(worker.ask("view", told, here))


def test_a_request_that_takes_too_long_is_ended():
    worker = Worker(Settings(limits=Limits(seconds=1.0)), strange)
    worker.load()
    first = ask(worker)
    assert ask(worker) == first
    for told, status, why in (
        ({"sleep": 60}, 504, "no progress for 1 seconds"),
        ({"die": True}, 503, "process"),
    ):
        start = time.monotonic()
        with pytest.raises(Refused, match=why) as refused:
            ask(worker, **told)
        assert (refused.value.status, time.monotonic() - start < 5) == (status, True)
        worker.load()
        assert ask(worker) != first
    worker.stop()


def test_the_queue_has_an_end():
    worker = Worker(Settings(limits=Limits(seconds=2.0, waiting=2)), strange)
    worker.load()

    async def many():
        asking = [worker.ask("view", {"sleep": 0.5}, here) for _ in range(6)]
        return await asyncio.gather(*asking, return_exceptions=True)

    answers = asyncio.run(many())
    worker.stop()
    refused = [one for one in answers if isinstance(one, Refused)]
    assert len(answers) - len(refused) == 3  # one at work, two waiting
    assert {one.status for one in refused} == {503}


def test_the_time_limit_counts_from_the_last_sign_of_progress():
    worker = Worker(Settings(limits=Limits(seconds=0.6)), strange)
    worker.load()
    assert ask(worker, parts=12)  # 1.2 seconds, and a report every 0.1
    worker.stop()


def test_the_time_limit_grows_with_the_text():
    limits = Limits(seconds=2.0)
    assert limits.seconds_for({"text": "short"}) == 2.0
    assert limits.seconds_for({"text": "a" * 3000, "other": "b" * 3000}) == 6.0


def test_the_queue_is_not_lost_when_the_process_is_ended(monkeypatch):
    monkeypatch.setenv("STRANGE_LOADING", "1.5")  # longer than a request may take
    worker = Worker(Settings(limits=Limits(seconds=0.5)), strange)
    worker.load()

    async def many():
        asking = [worker.ask("view", {"sleep": 60}, here, "slow")]
        asking += [worker.ask("view", {}, here, f"t{i}") for i in range(4)]
        running = [asyncio.ensure_future(one) for one in asking]
        await asyncio.sleep(0.2)
        places = [worker.state(ticket) for ticket in ("slow", "t0", "t3", "none")]
        await asyncio.sleep(0.8)
        loading = worker.state("t0")
        return places, loading, await asyncio.gather(*running, return_exceptions=True)

    places, loading, answers = asyncio.run(many())
    worker.stop()
    assert places == [
        {"state": "working", "done": 0, "total": None},
        {"state": "waiting", "position": 1},
        {"state": "waiting", "position": 4},
        {"state": "unknown"},
    ]
    assert loading == {"state": "loading"}
    assert answers[0].status == 504
    assert len(set(answers[1:])) == 1  # all by the new process
    assert worker.tickets == {}


def test_cancel_frees_the_worker():
    worker = Worker(Settings(), strange)
    worker.load()
    first = ask(worker)

    async def leaving():
        left = []

        async def gone():
            return bool(left)

        running = asyncio.ensure_future(worker.ask("view", {"parts": 300}, gone, "mine"))
        await asyncio.sleep(0.5)
        state = worker.state("mine")
        left.append(True)
        start = time.monotonic()
        assert await worker.ask("view", {}, here) == first  # by the same process
        assert time.monotonic() - start < 2
        with pytest.raises(Refused, match="cancelled"):
            await running
        return state

    state = asyncio.run(leaving())
    assert (state["state"], state["total"], 0 < state["done"] < 10) == ("working", 300, True)
    worker.stop()


def test_a_cancelled_request_that_does_not_stop_is_ended(monkeypatch):
    monkeypatch.setattr("alti.web.worker.GRACE", 0.5)
    worker = Worker(Settings(), strange)
    worker.load()

    async def leaving():
        gone = asyncio.Event()
        running = asyncio.ensure_future(worker.ask("view", {"sleep": 60}, left(gone)))
        await asyncio.sleep(0.2)
        gone.set()
        assert await worker.ask("view", {}, here)
        with pytest.raises(Refused, match="disconnected"):
            await running

    asyncio.run(leaving())
    worker.stop()


def left(event):
    async def gone():
        return event.is_set()

    return gone


def test_long_methods_report_and_stop(client, server):
    """Occlusion and integrated gradients look up between batches; who leaves stops them."""
    for method in ("occlusion", "integrated_gradients"):
        slow = {"text": "word " * 300, "methods": [method], "ticket": method}
        with contextlib.suppress(httpx.ReadTimeout):
            httpx.post(f"{server}/api/view", json=slow, timeout=1.0, trust_env=False)
        last = {"done": 0, "total": None}
        end = time.monotonic() + 60
        while (seen := client.get(f"/api/queue?ticket={method}").json())["state"] != "unknown":
            assert time.monotonic() < end
            last = seen if "done" in seen else last
            time.sleep(0.05)
        assert last["done"] < 100  # of as many passes or more: it was not computed to its end
        assert client.post("/api/explain", json={"text": "fine"}).status_code == 200
    assert client.post("/api/view", json={"text": "a", "ticket": "x" * 65}).status_code == 400


def test_who_has_left_is_not_answered():
    worker = Worker(Settings(), strange)
    worker.load()

    async def gone():
        return True

    with pytest.raises(Refused, match="client disconnected"):
        asyncio.run(worker.ask("view", {"die": True}, gone))
    assert ask(worker)
    worker.stop()


def test_who_leaves_while_waiting_gives_up_the_place():
    worker = Worker(Settings(limits=Limits(waiting=2)), strange)
    worker.load()

    async def gone():
        return True

    async def typing():
        working = asyncio.ensure_future(worker.ask("view", {"sleep": 2}, here))
        await asyncio.sleep(0.1)
        start = time.monotonic()
        for _ in range(5):  # more than may wait
            with pytest.raises(Refused, match="client disconnected"):
                await worker.ask("view", {}, gone)
        assert time.monotonic() - start < 1.5
        assert worker.waiting == 0
        assert await worker.ask("view", {}, here) == await working

    asyncio.run(typing())
    worker.stop()


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["alti", "serve", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code, *capsys.readouterr()


def test_what_cannot_be_served_is_one_sentence(monkeypatch, capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = run(monkeypatch, capsys, "--port", port, "--no-browser")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert f"port {port} of 127.0.0.1 cannot be opened" in err
    code, _, err = run(monkeypatch, capsys, "--port", 0, "--no-browser", tmp_path)
    assert (code, "holds no model" in err) == (1, True)
    assert run(monkeypatch, capsys, "--port", 99999)[0] == 2
    assert run(monkeypatch, capsys, "--host", "not an address")[0] == 2
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "alti.web.serving")
    monkeypatch.delattr("alti.web.serving")
    with pytest.raises(alti.LoadError, match=r"pip install 'alti\[web\]'"):
        serve(Settings())


@pytest.mark.parametrize(
    ("kind", "hears", "reads"),
    [
        ("seq2seq", True, "sounds"),
        ("choice", False, "several choices"),
    ],
)
def test_a_model_that_the_page_has_no_fields_for_is_not_served(monkeypatch, kind, hears, reads):
    head = SimpleNamespace(kind=kind, hears=hears)
    monkeypatch.setattr(desk, "load", lambda name, **_: SimpleNamespace(name=name, head=head))
    with pytest.raises(alti.UsageError, match=f"^mine reads {reads}, which the page has no fields"):
        desk.Desk(Settings(("mine",)))


def test_serve_until_ctrl_c(tmp_path):
    folder = tiny.saved(tmp_path / "tiny-bert")
    command = [
        sys.executable,
        "-m",
        "alti",
        "serve",
        folder,
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--no-browser",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as served:
        try:
            assert select.select([served.stdout], [], [], 60)[0]
            address = served.stdout.readline().strip()
            port = re.fullmatch(rf"http://{re.escape(socket.gethostname())}:(\d+)/", address)[1]
            near = f"http://127.0.0.1:{port}/api/explain"
            answer = httpx.post(near, json={"text": "A clever film"}, timeout=60, trust_env=False)
            assert alti.Attribution.from_dict(answer.json()).model == "tiny-bert"
            slow = {
                "text": "bad film " * 200,
                "method": "integrated_gradients",
                "options": {"steps": 1000},
            }
            with ThreadPoolExecutor() as pool:  # Ctrl-C does not wait for what is being computed
                pool.submit(httpx.post, near, json=slow, timeout=60, trust_env=False)
                time.sleep(1)
                served.send_signal(signal.SIGINT)
                out, err = served.communicate(timeout=10)
        finally:
            served.kill()
    assert (served.returncode, out) == (0, "")
    assert "anyone who can reach this machine on port" in err
    assert "no password" in err
    assert "Traceback" not in err


def sent(server, data, seconds=10.0):
    """What the server says to bytes on a connection of their own, until it closes it."""
    host, port = server.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(data)
        return received(connection)


def received(connection):
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("length", [0, 5, 1000])
@pytest.mark.parametrize("address", ["/api/explain", "/"])
def test_a_request_with_two_lengths_is_refused(server, address, length):
    body = b'{"text": "smuggled"}'
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % length
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % address.encode()
    head += both + b"Content-Type: application/json\r\n\r\n"
    behind = b"GET /api/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = sent(server, head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) + behind)
    head, _, said = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nconnection: close" in head.lower()
    sentence = json.loads(said)["error"]  # the only answer
    assert sentence.startswith("The request has both Content-Length and Transfer-Encoding")


@pytest.fixture
def impatient(server, monkeypatch):
    """The server, with limits of connections that a test can wait for."""
    monkeypatch.setattr(connections, "UNFINISHED", 1.0)
    monkeypatch.setattr(connections, "PER_CLIENT", 8)
    return server


UNFINISHED = {
    "nothing": b"",
    "half a header": b"GET / HTTP/1.1\r\nHost: loc",
    "no body": b"POST /api/explain HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n",
    "half a body": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\nhalf",
    "a second request": b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT",
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_connection_that_stays_silent_is_dropped(impatient, name):
    start = time.monotonic()
    sent(impatient, UNFINISHED[name], seconds=4.0)
    assert 0.9 < time.monotonic() - start < 3.0


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_connection_that_dribbles_is_dropped(impatient, name):
    host, port = impatient.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(UNFINISHED[name])
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - start < 4:
                connection.sendall(b"G")
                time.sleep(0.1)
    assert time.monotonic() - start < 3


def test_a_request_at_work_is_not_dropped(impatient):
    slow = {"text": "word " * 150, "method": "occlusion"}
    answer = httpx.post(f"{impatient}/api/explain", json=slow, timeout=60, trust_env=False)
    assert answer.elapsed.total_seconds() > 1.2
    assert answer.status_code == 200
    with httpx.Client(base_url=impatient, trust_env=False) as client:
        for _ in range(5):  # each request has its own time
            assert client.get("/icon.svg").status_code == 200
            time.sleep(0.4)


LARGE = 32 << 20  # bytes: more than the system keeps for a connection


async def large(scope, receive, send):
    headers = [(b"content-length", b"%d" % LARGE)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(LARGE)})


@pytest.fixture
def large_answers(monkeypatch):
    """A server of large answers, and the address it listens at."""
    monkeypatch.setattr(connections, "UNFINISHED", 1.0)
    http = serving.server(large, SimpleNamespace(stop=lambda: None))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=http.run, args=([listening],))
        thread.start()
        yield http, listening.getsockname()
        http.should_exit = True
        thread.join()


def test_an_answer_may_be_read_slowly(large_answers):
    with socket.create_connection(large_answers[1], timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        size = 0
        while part := connection.recv(2 << 20, socket.MSG_WAITALL):
            size += len(part)
            time.sleep(0.15)
    assert size > 2 * LARGE  # each of two answers


def test_an_answer_that_is_not_read_is_dropped(large_answers):
    http, address = large_answers
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.5)
        assert len(http.server_state.connections) == 1
        time.sleep(2.5)
        assert not http.server_state.connections


def test_silent_connections_make_room(impatient):
    """The ninth is answered: the longest silent one of the same client is closed for it."""
    host, port = impatient.removeprefix("http://").split(":")
    time.sleep(1.2)  # those of other tests are closed
    held = [socket.create_connection((host, int(port)), timeout=10) for _ in range(8)]
    try:
        time.sleep(0.2)
        assert httpx.get(f"{impatient}/", trust_env=False).status_code == 200
        assert held[0].recv(1) == b""
        held[7].sendall(b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[7].recv(8) == b"HTTP/1.1"
    finally:
        for connection in held:
            connection.close()


def test_270_silent_connections_make_nobody_wait(server):
    host, port = server.removeprefix("http://").split(":")
    held = []
    try:
        for _ in range(270):
            held.append(socket.create_connection((host, int(port)), timeout=10))
        for _ in range(3):
            start = time.monotonic()
            answer = httpx.post(
                f"{server}/api/explain", json={"text": "fine"}, timeout=20, trust_env=False
            )
            assert answer.status_code == 200
            assert time.monotonic() - start < 3
    finally:
        for connection in held:
            connection.close()


def test_a_client_with_only_busy_connections_is_refused(impatient):
    """Whoever is being answered is not dropped for others."""
    slow = json.dumps({"text": "word " * 60, "method": "occlusion"}).encode()
    head = b"POST /api/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    host, port = impatient.removeprefix("http://").split(":")
    time.sleep(1.2)
    busy = [socket.create_connection((host, int(port)), timeout=60) for _ in range(8)]
    try:
        for connection in busy:
            connection.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(slow), slow))
        time.sleep(0.3)
        answer = sent(impatient, b"")
        assert answer.startswith(b"HTTP/1.1 503 ")
        sentence = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        assert sentence.startswith("Too many connections")
    finally:
        for connection in busy:
            connection.close()

"""A prompt of 4,000 tokens on the page: progress, few passes, folds, overview, a quick slider."""

import base64
import json
from urllib.parse import quote

import httpx
import numpy as np
import pytest

import alti
from alti.model.through_layers import through_layers
from alti.web.desk import Desk
from alti.web.settings import Settings
from test_web_answer_page import DONE

import tiny
from pages import BROWSED, file, text

QUICK = (  # `make test` runs these; the others are slow
    "test_rows_of_layers_are_the_library_s",
)
browsed = BROWSED
LINES = ["The plot is funny. ", "It is a film. ", "The acting is better. "]
PROMPT = "".join(LINES[i % 3] for i in range(300)).strip()
SHORT = {"form": "text", "text": "The plot is funny. It is a film.", "answer": " It is better"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.writer(tmp_path_factory.mktemp("x") / "tiny-chat")


@pytest.fixture(scope="module")
def model(folder):
    return alti.load(str(folder), device="cpu")


def long_prompt(model):
    """A text of 3,990 to 4,000 tokens."""
    words = PROMPT.split()
    per_word = len(model.encoder.encode(PROMPT).ids) / len(words)
    many = (words * 10)[: int(3995 / per_word)]
    prompt = " ".join(many)
    assert 3900 <= len(model.encoder.encode(prompt).ids) <= 4050
    return prompt


def test_first_colours_take_few_passes(folder, model):
    """Every run of a layer counts, those that are run again on the way back too."""
    desk = Desk(Settings((str(folder),), device="cpu"))
    writer = desk.models["tiny-chat"]
    names = ("chat", "documents", "answer_ids", "part", "against")
    question = {"model": "tiny-chat", "method": "absence", "by": "word", "tokens": True}
    question |= dict.fromkeys(names) | {"answer": " It is better"}
    desk.answer({**question, "text": "The plot is"})  # what is proved once is proved
    runs = []
    layer = writer.model.model.layers[0]
    hook = layer.register_forward_hook(lambda _, given, __: runs.append(given[0].shape[1]))
    shown = json.loads(desk.answer({**question, "text": long_prompt(model)}))
    hook.remove()
    # forward, again on the way back, the probabilities of the answer, and a check the first time
    assert 3 <= sum(tokens > 3900 for tokens in runs) <= 4
    assert sum(runs) < 5 * max(runs)  # with everything that is proved of short texts
    assert len(shown["pieces"]) > 1000
    assert len(shown["sections"]) > 3


@pytest.mark.parametrize("by", ["word", "token", "sentence"])
def test_rows_of_layers_are_the_library_s(server, model, by):
    asked = {"text": SHORT["text"], "answer": SHORT["answer"], "part": [0, 2]}
    sent = {"model": "tiny-chat", **asked, "by": by}
    answer = httpx.post(f"{server}/api/layers", json=sent, timeout=60, trust_env=False)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    wanted = through_layers(model, **asked)
    if by != "token":
        wanted = wanted.grouped(by)
    end = wanted.source.answer
    assert found["shape"] == [len(wanted), end]
    data = np.frombuffer(base64.b64decode(found["data"]), "<u2")
    rows = data.reshape(found["shape"]) / 65535 * np.array(found["largest"])[:, None]
    assert rows == pytest.approx(wanted.scores[:, :end].numpy(), abs=1e-4)


def opened(page, **asked):
    page.open(f"{page.server}/#model=tiny-chat&ask=answer&prompt={quote(json.dumps(asked))}")


@browsed
def test_a_prompt_of_4000_tokens_stays_usable(blank, model):
    blank.open(f"{blank.server}/#model=tiny-chat&ask=answer")
    blank.wait("!document.querySelector('#writing').hidden")
    seen = """window.told = []; new MutationObserver(() =>
        window.told.push(document.querySelector('#waiting-why').textContent))
        .observe(document.querySelector('#waiting-why'), {childList: true}); 0"""
    blank.run(seen)
    prompt = long_prompt(model)
    opened(blank, form="text", text=prompt, answer=" It is better")
    blank.run(seen)
    blank.wait(DONE, 60)
    assert any("steps are done" in line for line in blank.run("window.told"))
    sections = blank.run("document.querySelectorAll('.fold').length")
    assert sections > 3
    assert blank.run("document.querySelectorAll('.fold[open]').length") == 2
    assert blank.run("document.querySelectorAll('.overview span').length") == 160
    order = blank.run("[...document.querySelectorAll('.fold')].map(f => f.dataset.section)")
    blank.click("#order")
    inside = blank.run("[...document.querySelectorAll('.fold')].map(f => f.dataset.section)")
    assert inside == sorted(order, key=int)
    assert inside != order
    blank.click("#ranked li:nth-child(5) button")  # opens the section that it is in
    assert blank.run("!!document.querySelector('#prompted .found').offsetParent")
    blank.click("#follow")
    blank.wait("!document.querySelector('#answer-layers label').hidden", 60)
    moved = """(() => { const slider = document.querySelector('#answer-layer'); const times = [];
        document.querySelectorAll('.fold').forEach(f => { f.open = true; f.fill() });
        for (const layer of [1, 2, 3, 1, 3]) {
            const start = performance.now(); slider.value = layer;
            slider.dispatchEvent(new Event('input')); document.body.offsetHeight;
            times.push(performance.now() - start) }
        return times })()"""
    times = sorted(blank.run(moved))
    assert times[len(times) // 2] < 100  # milliseconds, with everything unfolded
    assert blank.run("document.documentElement.scrollWidth") <= 1280


@browsed
def test_the_slider_colours_the_prompt_by_layers(blank, model):
    opened(blank, **SHORT)
    blank.wait(DONE)
    looks = """[...document.querySelectorAll('#prompted [data-piece]')].map(
        s => [s.className, s.title, s.ariaLabel, s.dataset.score])"""
    own = blank.run(looks)
    blank.click("#follow")
    blank.wait("!document.querySelector('#answer-layers label').hidden")
    assert blank.run("document.activeElement.id") == "answer-layer"
    blank.key("ArrowLeft")
    assert text(blank, "#answer-layer-number") == "2 of 3, as alti sees it"
    rows = through_layers(model, SHORT["text"], answer=SHORT["answer"]).words()
    titles = blank.run("[...document.querySelectorAll('#prompted [data-piece]')].map(s => s.title)")
    shown = [float(title.rpartition(": ")[2]) for title in titles]
    assert shown == pytest.approx(rows.scores[1, : len(shown)].tolist(), abs=6e-4)
    said = "[...document.querySelectorAll('#prompted [data-piece]')].map(s => s.dataset.score)"
    assert [float(score) for score in blank.run(said)] == shown  # no number of the method is left
    legend = "document.querySelector('#prompted .alti-legend').textContent"
    assert blank.run(legend).endswith("shares of 1, after layer 2, as alti sees it")
    assert "after layer 2" in file(blank, "vector", "answer").decode()
    blank.click("#follow")
    assert blank.run(looks) == own
    assert not blank.run(legend).endswith("as alti sees it")


@browsed
def test_a_short_prompt_is_not_folded(blank):
    opened(blank, **SHORT)
    blank.wait(DONE)
    assert blank.run("document.querySelectorAll('.fold, .overview').length") == 0

"""A prompt of 4,000 tokens on the page: progress, few passes, folds, overview, a quick slider."""

import base64
import json
import re
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
from speed import slow

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


@slow
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
    # forward, which gives the answer's probabilities too, again on the way back, and a check once
    assert 2 <= sum(tokens > 3900 for tokens in runs) <= 3
    assert sum(runs) < 4 * max(runs)  # with everything that is proved of short texts
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


SPANS = "[...document.querySelectorAll('#prompted [data-piece]')]"


def opened(page, **asked):
    page.open(f"{page.server}/#model=tiny-chat&ask=answer&prompt={quote(json.dumps(asked))}")


@browsed
@slow
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
    assert any(re.search(r"Step \d+ of \d+", line) for line in blank.run("window.told"))
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
    assert blank.run("document.documentElement.scrollWidth") <= 1280


FOLDS = """import('/overview.js').then(({ folds }) => {
    const sections = [3, -7, 1].map((score, i) => ({ name: `${i}`, first: i, end: i + 1, score }));
    const pieces = [..."abc"].map(text => ({ text, score: 1 }));
    const { node } = folds({ sections, pieces, signed: true }, () => []);
    return [...node.querySelectorAll('.fold')].map(fold => fold.dataset.section) })"""


def test_a_section_against_the_answer_is_as_strong_as_one_for_it(blank):
    blank.open(blank.server)
    assert blank.run(FOLDS) == ["1", "0", "2"]


MOVE = """(async () => {{
    document.querySelector('#answer-layer').value = {};
    document.querySelector('#answer-layer').dispatchEvent(new Event('input'));
    document.body.offsetHeight;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
}})()"""


@browsed
@slow
def test_the_slider_takes_less_than_100_ms_at_worst(blank, model):
    """With 4,000 sub-words unfolded, from the move to the frame that shows it, also the first."""
    opened(blank, form="text", text=long_prompt(model), answer=" It is better", by="token")
    blank.wait(DONE, 60)
    blank.click("#follow")
    blank.wait("!document.querySelector('#answer-layers label').hidden", 60)
    blank.run("document.querySelectorAll('.fold').forEach(f => { f.open = true; f.fill() })")
    blank.run("document.body.offsetHeight")
    assert blank.run("document.querySelectorAll('#prompted [data-piece]').length") > 3900
    times = []
    for layer in (1, 2, 3, 1, 3, 2, 1, 2):
        before = blank.work()
        blank.run(MOVE.format(layer))
        times.append(blank.work() - before)
    assert max(times) < 100  # of the processor: other work on the machine does not count


@browsed
def test_the_slider_colours_the_prompt_by_layers(blank, model):
    opened(blank, **SHORT)
    blank.wait(DONE)
    own = blank.run("document.querySelector('#prompted').innerHTML")
    blank.click("#follow")
    blank.wait("!document.querySelector('#answer-layers label').hidden")
    assert blank.run("document.activeElement.id") == "answer-layer"
    blank.key("ArrowLeft")
    assert text(blank, "#answer-layer-number") == "2 of 3, as alti sees it"
    rows = through_layers(model, SHORT["text"], answer=SHORT["answer"]).words()
    wanted = rows.scores[1, : rows.source.answer]
    largest = float(wanted.max())
    blank.wait(f"{SPANS}[0].title.endsWith(': {float(wanted[0]):.3f}')")  # after the colours
    for said, mark in (("title", ": "), ("ariaLabel", ", "), ("dataset.score", "")):
        told = blank.run(f"{SPANS}.map(s => s.{said})")
        shown = [each.rpartition(mark or " ")[2] for each in told]
        assert [float(each) for each in shown] == pytest.approx(wanted.tolist(), abs=6e-4)
    assert f"{largest:.3f}" in text(blank, "#prompted .alti-legend")
    assert "shares of 1, after layer 2, as alti sees it" in text(blank, "#prompted .alti-legend")
    heading = "What it is made of most after layer 2, in shares of 1"
    assert text(blank, "#ranking h3") == heading
    assert "after layer 2" in file(blank, "vector", "answer").decode()
    assert text(blank, "#ranked .share") == f"{largest:.3f}"
    blank.click("#follow")
    assert text(blank, "#ranking h3").startswith("What it rests on most")
    assert "after layer" not in text(blank, "#ranking h3")
    assert blank.run("document.querySelector('#prompted').innerHTML").count("alti-f") == own.count(
        "alti-f"
    )


@browsed
@slow
def test_a_section_that_is_opened_later_is_of_the_same_layer(blank):
    opened(blank, form="text", text=PROMPT, answer=" It is better")
    blank.wait(DONE, 60)
    blank.click("#follow")
    blank.wait("!document.querySelector('#answer-layers label').hidden", 60)
    blank.key("ArrowLeft")
    blank.run("document.querySelector('.fold:nth-child(3) summary').focus()")
    blank.key("Enter")
    inside = "[...document.querySelectorAll('.fold:nth-child(3) [data-piece]')]"
    blank.wait(f"{inside}.length > 0")
    seen = f"{inside}.map(s => s.className + s.title).join()"
    blank.run(f"window.late = {seen}; 0")
    for layer, same in ((1, "!=="), (2, "===")):
        blank.run(MOVE.format(layer))
        blank.wait(f"{seen} {same} window.late")


@browsed
@slow
def test_sections_out_of_sight_are_as_wide_as_those_in_it(blank):
    blank.size(320, 300)
    opened(blank, form="text", text=PROMPT, answer=" It is better")
    blank.wait(DONE, 60)
    edges = "[...document.querySelectorAll('.fold')].map(f => f.getBoundingClientRect().right)"
    card = blank.run("document.querySelector('#answer').getBoundingClientRect().right")
    assert max(blank.run(edges)) < card
    assert "better" in file(blank, "vector", "answer").decode()  # drawn though it is not seen
    words = blank.run("document.querySelectorAll('.fold[open] [data-piece]').length")
    drawn = file(blank, "vector", "answer").decode()
    assert drawn.count("<text") > words
    names = blank.run("[...document.querySelectorAll('.fold .name')].map(n => n.textContent)")
    assert drawn.count(f">{names[0]}</text>") == len(names) > 2  # folded ones too, with their sums
    assert float(re.search(r'width="(\d+)"', drawn)[1]) < 1000  # lines are as on the page


@browsed
def test_a_short_prompt_is_not_folded(blank):
    opened(blank, **SHORT)
    blank.wait(DONE)
    assert blank.run("document.querySelectorAll('.fold, .overview').length") == 0

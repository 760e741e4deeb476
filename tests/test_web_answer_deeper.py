"""Heads and lens below an answer: of prompt and answer together, where the chosen part is said."""

import json
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

import alti

import tiny
from pages import BROWSED, show, text

pytestmark = BROWSED
CHAT = [{"role": "user", "content": "The plot is funny. It is a film."}]
ANSWER = "It is better"
SHOWN = "[...document.querySelectorAll('#head-text [data-score]')].map(s => +s.dataset.score)"
DONE = "!!document.querySelector('#prompted') && !document.body.hasAttribute('aria-busy')"
QUICK = (  # `make test` runs these; the others are slow
    "test_heads_of_an_answer",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return alti.load(str(tiny.writer(tmp_path_factory.mktemp("x") / "tiny-chat")), device="cpu")


def answering(page, name="tiny-chat", **more):
    told = quote(json.dumps({"form": "chat", "messages": CHAT, "answer": ANSWER, **more}))
    page.open(f"{page.server}/#model={name}&ask=answer&unit=tokens&prompt={told}")
    page.wait(DONE)


def row_of(model, layer, place):
    maps = model.heads(CHAT, answer=ANSWER, layer=layer)
    head = int(maps.strengths.argmax())
    return maps.contributions[head, place].tolist()


def test_heads_of_an_answer(blank, model):
    answering(blank, part=[2, 4])
    blank.run("document.querySelector('#heads').open = true")
    blank.wait("!!document.querySelector('#head-text [data-score]')")
    place = model.explain(CHAT, answer=ANSWER, method="random")[2].position
    pieces = blank.run("[...document.querySelectorAll('#head-text p')].map(p => p.textContent)")
    assert pieces[1] == ANSWER
    blank.click("[data-token='1']")
    name = blank.run("document.querySelector('[data-token=\"1\"]').title.split(': ')[0]")
    blank.wait(f"{DONE} && document.querySelector('#deeper-of p').textContent.includes('“{name}”')")
    blank.run("document.querySelector('#deeper-layer').value = 1")
    blank.run("document.querySelector('#deeper-layer').dispatchEvent(new Event('input'))")
    blank.wait("document.querySelector('#head-by').textContent.includes('of layer 1 of tiny-chat')")
    assert blank.run(SHOWN) == pytest.approx(row_of(model, 0, place - 1), abs=6e-4)
    assert "layer=0" in blank.run("location.hash")
    blank.click("#head-text [data-place='20']")  # another token of the prompt
    blank.wait("!!document.querySelector('#head-text [data-place=\"20\"][aria-pressed=true]')")


def test_lens_of_an_answer(blank, model):
    answering(blank, part=[1, 2])
    blank.run("document.querySelector('#lens').open = true")
    blank.wait("document.querySelectorAll('#lens-table tbody tr').length === 3")
    found = model.explain(CHAT, answer=ANSWER, method="random", lens=True)[1]
    own = "[...document.querySelectorAll('#lens-table td.number')].map(cell => +cell.textContent)"
    assert blank.run(own) == pytest.approx(found.lens.own, abs=6e-4)
    blank.click("#lens-table tr[data-layer='1'] button")
    blank.wait("document.querySelector('#deeper-layer').value === '2'")


def test_nothing_of_another_text_stays(blank):
    """Not that of the next word below an answer, nor that of an answer below another prompt."""
    show(blank, model="tiny-chat", text="The plot is", methods="absence", open="heads")
    blank.run("document.querySelector('[name=ask][value=answer]').click()")
    assert blank.run("document.querySelector('#deeper').hidden") is True
    answering(blank)
    assert blank.run("document.querySelector('#deeper').hidden") is False
    blank.run("document.querySelector('#prompt-0').focus()")
    blank.type("Other. ")
    assert blank.run("document.querySelector('#deeper').hidden") is True
    show(blank, model="tiny-chat", text="The plot is", methods="absence")
    assert blank.run("document.querySelector('#deeper').hidden") is False
    assert blank.run("document.querySelector('#deeper-of').hidden") is True


def test_a_translator_has_no_drawers_below_an_answer(blank):
    told = quote(json.dumps({"text": "The plot is funny.", "answer": "It is better"}))
    blank.open(f"{blank.server}/#model=tiny-t5&ask=answer&prompt={told}")
    blank.wait(DONE)
    assert blank.run("document.querySelector('#deeper').hidden") is True
    assert text(blank, "#answer-title") == "What the answer rests on"


@pytest.mark.parametrize(
    ("kind", "question", "said"),
    [
        ("answer_heads", {"answer": "It", "layer": 99}, "Layer = 99 does not exist"),
        ("answer_heads", {"answer": "It", "layer": 0, "place": 10**6}, "is outside the text"),
        ("answer_heads", {"answer": "It"}, "The field layer is missing"),
        ("answer_heads", {"layer": 0}, "An answer is a text or token ids"),
        ("answer_lens", {"answer": "It", "token": 99}, "is not in the answer"),
        ("answer_lens", {"answer": "It", "model": "tiny-t5"}, "reads source and target apart"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(server, kind, question, said):
    body = json.dumps({"model": "tiny-chat", "text": "Plot", **question}).encode()
    request = Request(f"{server}/api/{kind}", body, {"Content-Type": "application/json"})
    with pytest.raises(HTTPError) as refused:
        urlopen(request)
    assert said in json.load(refused.value)["error"]

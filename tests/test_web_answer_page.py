"""The page of a language model in a browser: typing, writing, dragging, choosing, cancelling."""

import json
import re
import time
from itertools import pairwise
from urllib.parse import quote

import pytest

import alti
from alti.web.pieces import pieces_of

import tiny
from pages import BROWSED, READY, offered, show, text

pytestmark = BROWSED
QUICK = (  # `make test` runs these; the others are slow
    "test_type_a_prompt_and_let_it_write",
    "test_documents_and_the_list_of_the_strongest",
    "test_a_link_restores_an_answer_and_writes_nothing",
    "test_any_token_is_a_target_and_a_rival",
    "test_an_encoder_decoder_shows_which_word_comes_from_which",
)
DONE = "!!document.querySelector('#prompted') && !document.body.hasAttribute('aria-busy')"
CHAT = [{"role": "user", "content": "The plot is funny. It is a film."}]
DOCUMENTS = ["The plot is funny.", "The acting is better. It is a film."]
TOKENS = "[...document.querySelectorAll('.written [role=option]')]"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return alti.load(str(tiny.writer(tmp_path_factory.mktemp("x") / "tiny-chat")), device="cpu")


def answering(page, name="tiny-chat", **asked):
    """The page with what is asked, as a link holds it; explained if there is an answer."""
    told = quote(json.dumps(asked))
    page.open(f"{page.server}/#model={name}&ask=answer&prompt={told}")
    page.wait("!document.querySelector('#writing').hidden")
    if "answer" in asked:
        page.wait(DONE)


def shown(page):
    """The pieces of the prompt with their scores."""
    code = "[...document.querySelectorAll('#prompted [data-score]')]"
    code += ".map(s => [s.textContent, s.dataset.score])"
    return [(piece, float(score.replace("−", "-"))) for piece, score in page.run(code)]


def same(page, found):
    end = found.source.answer
    pieces = shown(page)
    assert [piece for piece, _ in pieces] == list(found.tokens[:end])
    assert [score for _, score in pieces] == pytest.approx(found.scores[:end].tolist(), abs=6e-4)


def fill(page, selector, value):
    page.run(f"(f => {{ f.focus(); f.select() }})(document.querySelector({selector!r}))")
    page.type(value)


def choose(page, selector, value):
    change = f"s.value = {value!r}; s.dispatchEvent(new Event('change'))"
    page.run(f"(s => {{ {change} }})(document.querySelector({json.dumps(selector)}))")


def test_type_a_prompt_and_let_it_write(blank, model):
    show(blank, model="tiny-chat")
    blank.click("[name=ask][value=answer]")
    blank.click("[name=form][value=text]")
    fill(blank, "#prompt-text", "The plot is")
    fill(blank, "#new", "5")
    blank.run("document.querySelector('#new').dispatchEvent(new Event('change'))")
    blank.click("#write")
    blank.wait(DONE)
    wanted = model.explain("The plot is", generate=5, method="absence", total=True)
    same(blank, wanted.words())
    rows = model.explain("The plot is", generate=5, method="random")
    titles = blank.run(f"{TOKENS}.map(t => t.title)")
    assert len(titles) == 5
    assert titles[0].endswith(f"{100 * rows[0].probability:.1f} %")
    assert text(blank, "#answer-title") == "What the answer rests on"


def test_a_chat_is_typed_message_by_message(blank, model):
    answering(blank)
    assert text(blank, "#prompt label") == "Message 1"
    fill(blank, "#prompt-0", "It is a film.")
    blank.click("#add-message")
    assert blank.run("document.activeElement.id") == "prompt-1"
    blank.type("The plot is funny.")
    choose(blank, "[aria-label='Role of message 2']", "user")
    fill(blank, "#answer-text", "It is better")
    choose(blank, "#by", "message")
    blank.wait(DONE)
    chat = [
        {"role": "user", "content": "It is a film."},
        {"role": "user", "content": "The plot is funny."},
    ]
    same(
        blank,
        model.explain(chat, answer="It is better", method="absence", groups="message", total=True),
    )
    blank.click("[aria-label='Remove message 1']")
    assert blank.run("document.querySelectorAll('#prompt textarea').length") == 1


def test_documents_and_the_list_of_the_strongest(blank, model):
    asked = {"form": "documents", "documents": DOCUMENTS, "question": "Is it funny?"}
    answering(blank, **asked, answer="It is", by="sentence")
    found = model.explain(
        "Is it funny?",
        documents=DOCUMENTS,
        answer="It is",
        method="absence",
        groups="sentence",
        total=True,
    )
    same(blank, found)
    first = found.top(1)[0]
    assert first[0] in text(blank, "#ranked li")
    assert blank.run("document.querySelectorAll('#ranked li').length") == 3
    blank.click("#ranked li button")
    assert blank.run("document.querySelector('#prompted .found').textContent") == first[0]


def middle(page, number):
    return page.run(
        f"(r => [r.x + r.width / 2, r.y + r.height / 2])"
        f"(document.querySelector('[data-token=\"{number}\"]').getClientRects()[0])"
    )


def test_hints_speak_of_the_answer(blank):
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    for name in ("absence", "linear", "alti"):
        choose(blank, "#answer-method", name)
        blank.wait(DONE)
        hint = text(blank, "#answer-method-what")
        assert "class" not in hint
        assert "next word" not in hint
    left = blank.run("[...document.querySelectorAll('#prompted .alti-rest')].map(n => n.title)")
    assert any("no word of the prompt" in what for what in left)


def test_click_a_token_drag_over_several_take_all(blank, model):
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    blank.run("document.querySelector('.written').scrollIntoView({block: 'center'})")
    blank.click("[data-token='2']")
    blank.wait(f"{DONE} && !!document.querySelector('#whole')")
    asked = {"text": CHAT, "answer": "It is better", "method": "absence"}
    one = model.explain(**asked, part=(2, 3))
    same(blank, one.words())
    assert text(blank, "#answer-title") == f"What “{one.label.strip()}” rests on"
    together = "all its tokens together: "  # each may be likely, and all of them not
    assert together not in text(blank, "#answer header")
    blank.run("document.querySelector('.written').scrollIntoView({block: 'center'})")
    for kind, number in (
        ("mousePressed", 1),
        ("mouseMoved", 2),
        ("mouseMoved", 3),
        ("mouseReleased", 3),
    ):
        x, y = middle(blank, number)
        blank.send(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )
    some = model.explain(**asked, part=(1, 4))
    blank.wait(f"{DONE} && {TOKENS}.filter(t => t.ariaSelected === 'true').length === 3")
    blank.wait(
        f"document.querySelector('#answer-title').textContent.includes({json.dumps(some.label.strip())})"
    )
    same(blank, some.words())
    assert together in text(blank, "#answer header")
    blank.click("#whole")
    blank.wait(f"{DONE} && !document.querySelector('#whole')")
    same(blank, model.explain(**asked, total=True).words())


def test_a_drag_is_seen_before_it_ends(blank):
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    blank.run("document.querySelector('.written').scrollIntoView({block: 'center'})")
    seen = f"{TOKENS}.map(t => getComputedStyle(t).boxShadow !== 'none')"
    assert blank.run(seen).count(True) == 0  # all of the answer is chosen: it has no mark
    about = {"button": "left", "buttons": 1, "clickCount": 1}
    for kind, number in (("mousePressed", 1), ("mouseMoved", 2)):
        x, y = middle(blank, number)
        blank.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **about)
    blank.wait(f"{TOKENS}.filter(t => t.ariaSelected === 'true').length === 2")
    line = "document.querySelector('.written')"
    assert blank.run(seen)[:4] == [False, True, True, False]
    blank.run(f"{line}.dispatchEvent(new PointerEvent('pointercancel'))")  # a finger that scrolls
    assert blank.run(seen).count(True) == 0
    assert blank.run(f"{TOKENS}.every(t => t.ariaSelected === 'true')") is True
    blank.send("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **about)


def test_a_screen_reader_clicks_a_token_without_a_pointer(blank):
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    blank.run("document.querySelector('[data-token=\"1\"]').click()")
    blank.wait(f"{DONE} && !!document.querySelector('#whole')")
    chosen = f"{TOKENS}.map(token => token.ariaSelected).indexOf('true')"
    assert blank.run(chosen) == 1


def test_keyboard_only(blank, model):
    """Tab to the answer, arrows to a token, shift and arrows over several, enter to choose."""
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    blank.run("document.querySelector('#explain-answer').focus()")
    for _ in range(30):
        if blank.run("document.activeElement.getAttribute('role')") == "option":
            break
        blank.key("Tab")
    assert blank.run("document.activeElement.dataset.token") == "0"
    blank.key("ArrowRight")
    blank.key("Enter")
    blank.wait(f"{DONE} && !!document.querySelector('#whole')")
    assert blank.run("document.activeElement.dataset.token") == "1"  # the focus stays
    asked = {"text": CHAT, "answer": "It is better", "method": "absence"}
    same(blank, model.explain(**asked, part=(1, 2)).words())
    for kind in ("rawKeyDown", "keyUp"):
        blank.send(
            "Input.dispatchKeyEvent",
            type=kind,
            key="ArrowRight",
            code="ArrowRight",
            windowsVirtualKeyCode=39,
            modifiers=8,
        )
    blank.key("Enter")
    blank.wait(f"{DONE} && {TOKENS}.filter(t => t.ariaSelected === 'true').length === 2")
    same(blank, model.explain(**asked, part=(1, 3)).words())


def test_one_answer_rather_than_another(blank, model):
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    blank.click("#versus")
    fill(blank, "#answer-rival", "The plot")
    blank.click("#explain-answer")
    blank.wait(
        f"{DONE} && document.querySelector('#answer .faint').textContent.includes('rather than')"
    )
    title = "What 'It is better' rather than 'The plot' rests on"
    assert text(blank, "#answer-title") == title
    found = model.explain(CHAT, answer="It is better", against="The plot", method="absence").words()
    assert [score for _, score in shown(blank)] == pytest.approx(found.scores.tolist(), abs=6e-4)


SLOW = """window.fetched = window.fetched ?? window.fetch
    const so = {state: 'working', done: 2, total: null, written: [
        {id: 20, text: ' so', name: 'so', probability: .5},
        {id: 21, text: ' far', name: 'far', probability: .25}]}
    const left = new DOMException('', 'AbortError')
    window.fetch = (address, options) => {
        if (address.startsWith('/api/queue')) return Promise.resolve(Response.json(so))
        if (address !== '/api/generate') return window.fetched(address, options)
        return new Promise((done, failed) =>
            options.signal.addEventListener('abort', () => failed(left)))
    }; 0"""


def test_cancel_keeps_what_was_written(blank):
    answering(blank, form="text", text="The plot is")
    blank.run(SLOW)
    blank.click("#write")
    blank.wait(f"{TOKENS}.length === 2")
    assert blank.run(f"{TOKENS}.map(t => t.title)") == ["so: 50.0 %", "far: 25.0 %"]
    assert text(blank, "#answer-title") == "The model writes …"
    blank.wait("!document.querySelector('#waiting').hidden")
    blank.click("#cancel")
    assert text(blank, "#waiting-why") == "Cancelled: the answer so far is kept."
    assert text(blank, "#answer-title") == "What was written so far"
    assert blank.run("document.querySelector('#answer-text').value") == " so far"
    blank.run("window.fetch = window.fetched")
    blank.click("#cancel")  # explain what there is
    blank.wait(DONE)
    assert blank.run(f"{TOKENS}.length") == 2


def test_cancel_frees_the_server(blank):
    answering(blank, form="text", text="The plot is")
    fill(blank, "#new", "200")
    blank.run("document.querySelector('#new').dispatchEvent(new Event('change'))")
    blank.click("#write")
    blank.wait("!document.querySelector('#waiting').hidden || " + DONE)
    if blank.run("!document.querySelector('#waiting').hidden"):
        blank.click("#cancel")
    start = time.monotonic()
    show(blank, text="A clever film")
    assert time.monotonic() - start < 5


def test_a_link_restores_an_answer_and_writes_nothing(blank):
    answering(blank, form="chat", messages=CHAT, answer="It is better", by="sentence")
    blank.click("[data-token='1']")
    blank.wait(f"{DONE} && !!document.querySelector('#whole')")
    seen = (blank.run("document.querySelector('#answer').innerText"), blank.run("location.href"))
    blank.open("about:blank")
    blank.open(seen[1])
    blank.wait(DONE)
    assert blank.run("document.querySelector('#answer').innerText") == seen[0]


@pytest.mark.parametrize(
    "told",
    [
        "{",
        "[]",
        "7",
        '{"form": "<b>", "messages": [1], "method": "magic", "ids": [0.5], "by": "__proto__"}',
    ],
)
def test_a_hostile_link_shows_the_inputs(blank, told):
    blank.open(f"{blank.server}/#model=tiny-chat&ask=answer&prompt={quote(told)}")
    blank.wait("!document.querySelector('#writing').hidden")
    assert blank.run("document.querySelector('#error').hidden") is True
    assert blank.run("document.querySelectorAll('#prompt textarea').length") == 1


def test_a_link_runs_no_expensive_method(blank):
    answering(blank)
    told = quote(
        json.dumps({"form": "chat", "messages": CHAT, "answer": "It", "method": "occlusion"})
    )
    blank.open(f"{blank.server}/#model=tiny-chat&ask=answer&prompt={told}")
    blank.wait("document.querySelector('#answer-text').value === 'It'")
    time.sleep(0.3)
    assert blank.run("document.querySelector('#answer').hidden") is True
    why = "occlusion runs the model many times: it is computed when you ask for it."
    assert text(blank, "#waiting-why") == why
    assert blank.run("document.querySelector('#waiting').hidden") is False
    blank.click("#cancel")
    blank.wait(DONE)


HOSTILE = "<img src=x onerror='document.body.dataset.owned = 1'></textarea><b>plot</b>"


def test_whatever_is_typed_is_only_text(blank):
    chat = [{"role": "user", "content": HOSTILE}]
    answering(blank, form="chat", messages=chat, answer=HOSTILE, by="message")
    assert HOSTILE in text(blank, "#prompted")
    assert blank.run(f"{TOKENS}.map(t => t.textContent).join('')") == HOSTILE
    assert blank.run("document.body.dataset.owned") is None
    assert blank.run("document.querySelectorAll('#answer img, #answer b, #prompt b').length") == 0


def test_options_of_the_method_of_an_answer(blank, model):
    answering(blank, form="chat", messages=CHAT, answer="It is better", method="alti")
    blank.click("#options summary")
    field = "#options [id='option-0-p']"
    fill(blank, field, "2")
    blank.run(f"document.querySelector({field!r}).dispatchEvent(new Event('change'))")
    blank.wait(f"{DONE} && document.querySelector('#answer .faint').textContent.includes('p=2')")
    found = model.explain(CHAT, answer="It is better", method="alti", p=2, total=True)
    same(blank, found.words())
    assert text(blank, "#options-chosen") == "1 changed"
    assert blank.run("document.querySelector('#answer-method').value") == "alti"
    address = blank.run("location.href")
    blank.open("about:blank")
    blank.open(address)
    blank.wait(f"{DONE} && document.querySelector('#answer .faint').textContent.includes('p=2')")
    same(blank, found.words())
    choose(blank, "#answer-method", "absence")
    blank.wait(f"{DONE} && document.querySelector('#options .title').textContent === 'absence'")


def test_right_to_left(blank):
    chat = [{"role": "user", "content": "هذا فيلم رائع جدا ومضحك"}]
    answering(blank, form="text", text="هذا فيلم رائع", answer=" رائع")
    for selector in (".prompted", ".written", "#prompt-text"):
        assert (
            blank.run(f"getComputedStyle(document.querySelector('{selector}')).direction") == "rtl"
        )
    answering(blank, form="chat", messages=chat)
    assert blank.run("getComputedStyle(document.querySelector('#prompt-0')).direction") == "rtl"


def test_a_part_of_a_letter_is_no_letter(blank):
    """Tokens of a few bytes: the first has the letter, the others a dot and a name."""
    answer = " رائع"
    answering(blank, form="text", text="The plot is", answer=answer)
    assert blank.run(f"{TOKENS}.map(t => t.textContent).join('')") == answer
    assert blank.run(f"{TOKENS}.length") > len(answer)
    assert blank.run(f"{TOKENS}.every(t => t.ariaLabel.length > 4)")


def test_what_was_written_can_be_edited_in_any_script(blank, model):
    """The box holds the decoded answer, whatever names its tokens have."""
    ids = model.encoder.plain(" 我爱").ids
    answering(blank, form="text", text="The plot is", answer="çĪ±", ids=ids)
    assert blank.run("document.querySelector('#answer-text').value") == " 我爱"
    assert quote(" 我爱") in blank.run("location.href.replaceAll('+', '%20')")


def test_what_is_out_of_date_says_so(blank, model):
    answering(blank, form="text", text="The plot is", answer=" funny")
    blank.click("#versus")  # nothing is typed yet
    assert blank.run("document.querySelector('#waiting').hidden") is True
    fill(blank, "#prompt-text", "The film is")
    why = "The prompt or an answer has changed: this is out of date."
    assert text(blank, "#waiting-why") == why
    assert blank.run("document.querySelector('#waiting').hidden") is False
    blank.click("#cancel")
    blank.wait(f"{DONE} && document.querySelector('#waiting').hidden")
    wanted = model.explain("The film is", answer=" funny", method="absence", total=True)
    same(blank, wanted.words())


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 1400])
def test_it_fits_every_window(blank, width, dark):
    blank.size(width, 800, dark=dark)
    asked = {"form": "documents", "documents": DOCUMENTS, "question": "Is it funny?"}
    answering(blank, **asked, answer="It is better " * 6, by="document")
    assert blank.run("document.documentElement.scrollWidth") <= width
    ink, ground = (
        blank.run(f"getComputedStyle(document.querySelector('{selector}')).{name}")
        for selector, name in (("#answer", "color"), ("#answer", "backgroundColor"))
    )
    assert ink != ground


BOXES = """[...document.querySelectorAll('#prompted [data-piece]')].map(node =>
    (r => [node.textContent, r.left, r.right])(node.getClientRects()[0]))"""
GAP = """((above, below) => document.querySelector(below).getBoundingClientRect().top
    - document.querySelector(above).getBoundingClientRect().bottom)"""


def test_boxes_do_not_overlap(blank):
    chat = [{"role": "user", "content": "It is a film, the plot."}]
    answering(blank, form="chat", messages=chat, answer="It " * 400)
    pairs = list(pairwise(blank.run(BOXES)))
    marks = [(word[2], mark[1]) for word, mark in pairs if mark[0] in (",", ".")]
    assert len(marks) == 2
    assert all(left >= right - 0.1 for right, left in marks)
    blank.click("#versus")
    for above, below in (
        ("#answer-text", "#rivalry label"),
        ("#prompt select", "#prompt textarea"),
    ):
        assert blank.run(f"{GAP}('{above}', '{below}')") >= 4
    height = blank.run("document.querySelector('#answer-text').clientHeight")
    assert (height - 12) % 27 == 0  # whole lines


def test_the_marks_of_tokens_put_no_gaps_into_words(blank):
    answering(blank, form="text", text="The plot is", answer="a cleverest film")
    widths = f"{TOKENS}.map(t => t.getBoundingClientRect()).map(box => [box.left, box.right])"
    boxes = blank.run(widths)
    assert len(boxes) > 3  # words have several tokens
    assert all(left == pytest.approx(right, abs=0.01) for (_, right), (left, _) in pairwise(boxes))
    line = "(p => { p.textContent = p.textContent; const r = document.createRange();"
    line += " r.selectNodeContents(p); return r.getBoundingClientRect().width })"
    plain = blank.run(f"{line}(document.querySelector('.written'))")
    assert boxes[-1][1] - boxes[0][0] == pytest.approx(plain, abs=0.6)  # but for kerning


def test_what_has_no_colour_says_why(blank):
    asked = {"form": "documents", "documents": DOCUMENTS, "question": "Is it funny?"}
    answering(blank, **asked, answer="It is better", by="sentence")
    titles = blank.run("[...document.querySelectorAll('.unscored')].map(piece => piece.title)")
    assert set(titles) == {"Only the documents are divided into sentences: this has no colour."}


def test_high_contrast(blank):
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    blank.click("[data-token='1']")
    blank.wait(f"{DONE} && !!document.querySelector('#whole')")
    blank.send(
        "Emulation.setEmulatedMedia", features=[{"name": "forced-colors", "value": "active"}]
    )
    style = "getComputedStyle(document.querySelector('{}')).{}"
    on = blank.run(style.format('[data-token="1"]', "backgroundColor"))
    off = blank.run(style.format('[data-token="0"]', "backgroundColor"))
    assert on != off
    blank.send("Emulation.setEmulatedMedia", features=[])


def test_what_a_screen_reader_calls_things(blank):
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    nodes = blank.send("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node["role"]["value"], node.get("name", {}).get("value"))
        for node in nodes
        if "role" in node
    }
    assert ("listbox", "The answer, token by token") in named
    assert any(role == "option" and name and name.endswith(" %") for role, name in named)
    for role, name in (
        ("textbox", "Answer"),
        ("textbox", "Message 1"),
        ("combobox", "Role of message 1"),
        ("combobox", "Colour"),
        ("combobox", "Method"),
        ("button", "Let the model write"),
        ("spinbutton", "up to tokens"),
        ("heading", "What the answer rests on"),
        ("list", "What it rests on most"),
    ):
        assert (role, name) in named, (role, name)
    blank.send("Accessibility.disable")


def test_a_classifier_s_page_has_none_of_it(page):
    for name in ("asks", "writing", "answer", "saids", "rathers"):
        assert page.run(f"document.querySelector('#{name}').getClientRects().length") == 0


def test_any_token_is_a_target_and_a_rival(blank, model):
    show(blank, model="tiny-chat", text="The plot is", methods="absence")
    fill(blank, "#said", " film")
    blank.key("Tab")
    blank.wait("!document.querySelector('#error').hidden")
    sentence = text(blank, "#error")
    assert re.fullmatch(
        r"Word ' film' is \d tokens of this model \(' .*\): give a single one, or explain several "
        r"as an answer.",
        sentence,
    )
    assert text(blank, ".alti-says strong") is not None  # what was explained before stays
    assert blank.run("document.body.classList.contains('stale')") is True
    blank.problems.clear()
    fill(blank, "#said", "is")
    blank.key("Tab")
    blank.wait(f"{READY} && document.querySelector('.alti-says strong').textContent === 'is'")
    fill(blank, "#rather", "b")
    blank.key("Tab")
    says = "document.querySelector('.alti-says strong').textContent"
    blank.wait(f"{READY} && {says}.includes('rather than')")
    found = model.explain("The plot is", method="absence", target="is", against="b")
    assert text(blank, ".alti-says strong") == found.label
    assert "said=is" in blank.run("location.hash")
    assert "as requested; the prediction is" in text(blank, ".alti-says")


def test_a_word_without_its_space_is_another_token(blank):
    """The page says so, and offers the token that was probably meant."""
    show(blank, model="tiny-chat", text="The plot is", methods="absence", said="t")
    assert text(blank, ".alti-says strong") == "t"
    assert "the token without a space in front" in text(blank, ".alti-says")
    blank.click("#take-word")
    blank.wait(f"{READY} && document.querySelector('.alti-says strong').textContent === '“ t”'")
    assert blank.run("document.querySelector('#said').value") == " t"
    assert text(blank, "#take-word") is None


def test_click_a_token_for_the_prediction_there(blank, model):
    show(blank, model="tiny-chat", text="The plot is funny", methods="absence", unit="tokens")
    found = model.explain("The plot is funny", method="absence", position=2)
    blank.click(".result [data-place='2']")
    blank.click("#explain-here")
    blank.wait(f"{READY} && document.querySelector('#position').value === '2'")
    assert text(blank, ".alti-says strong").strip("“”") == found.label


def test_an_encoder_decoder_shows_which_word_comes_from_which(blank, tmp_path):
    translator = alti.load(str(tiny.writer(tmp_path / "tiny-t5")), device="cpu")
    source, target = "The plot is funny.", "It is better"
    answering(blank, "tiny-t5", text=source, answer=target)
    blank.wait("!!document.querySelector('#alignment')")
    assert blank.run("document.querySelector('#asks').hidden") is True  # there is nothing else
    assert text(blank, "#prompt label") == "Source"
    wanted = translator.explain(source, answer=target).alignment()
    links = "[...document.querySelectorAll('.aligned path')].map(p => [+p.dataset.i, +p.dataset.j])"
    assert sorted(map(tuple, blank.run(links))) == sorted(wanted.links)
    words = "[...document.querySelectorAll('.aligned ol{} button')].map(b => b.textContent)"
    assert blank.run(words.format(":first-child")) == list(wanted.source)
    assert blank.run(words.format(":last-child")) == list(wanted.target)
    wide = "[...document.querySelectorAll('{} path')].map(p => +p.getAttribute('stroke-width'))"
    lines, samples = (blank.run(wide.format(where)) for where in (".aligned", ".samples"))
    assert max(lines) == max(samples)  # the best link of a target word
    assert min(samples) <= min(lines)
    assert text(blank, ".samples") == "0.250.51: the target word's best link"
    blank.run("document.querySelector('.aligned ol:last-child li:nth-child(2) button').focus()")
    lit = "[...document.querySelectorAll('.aligned path.on')].map(p => p.dataset.j)"
    assert set(blank.run(lit)) == {"1"}  # what has the focus shows where it comes from
    blank.key("Enter")
    blank.wait(f"{DONE} && !!document.querySelector('#whole')")
    assert text(blank, "#answer-title") == "What “is” rests on"
    assert blank.run("document.activeElement.textContent") == "is"  # drawn again, still there
    blank.size(320, 800)
    assert blank.run("document.documentElement.scrollWidth") <= 320


def test_an_answer_leaves_as_a_picture(blank):
    blank.send(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    answering(blank, form="chat", messages=CHAT, answer="It is better")
    assert offered(blank) == ["answer", "whatif"]
    blank.click("#keep summary")
    blank.click("[aria-label='Copy as SVG']")
    blank.wait("document.querySelector('#toast').textContent === 'SVG copied.'")
    svg = blank.run("navigator.clipboard.readText()")
    assert "What it rests on most" in svg
    assert ", in logits" in svg
    lines = f"{TOKENS}.filter(t => t.textContent.trim()).length"
    assert svg.count('height="3"') >= 2 * blank.run(lines)  # the lines of the probabilities
    blank.run("document.querySelector('#keep').open = true")
    answering(blank, form="chat", messages=CHAT, answer="It is better", method="alti")
    blank.click("#keep summary")
    blank.click("[aria-label='Copy as JSON with maps']")
    blank.wait("document.querySelector('#toast').textContent === 'JSON with maps copied.'")
    (found,) = json.loads(blank.run("navigator.clipboard.readText()"))
    assert len(found["layers"]) == 3


def test_an_answer_leaves_as_html_latex_and_json(blank, model):
    """What leaves is what the page shows: the chosen part, by the chosen groups."""
    blank.send(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    answering(blank, form="chat", messages=CHAT, answer="It is better", by="message")
    blank.click("[data-token='1']")
    blank.wait(f"{DONE} && !!document.querySelector('#whole')")
    files = {}
    for kind in ("HTML", "LaTeX", "JSON"):
        blank.run("document.querySelector('#keep').open = true")
        blank.click(f"[aria-label='Copy as {kind}']")
        blank.wait(f"document.querySelector('#toast').textContent === '{kind} copied.'")
        files[kind] = blank.run("navigator.clipboard.readText()")
    method = blank.run("import('/prompt.js').then(m => m.answerFields().method)")
    found = model.explain(
        CHAT,
        answer="It is better",
        part=[1, 2],
        method=method,
        groups="message",
        total=True,
    )
    assert alti.Attribution.from_dict(json.loads(files["JSON"])[0]) == found
    assert files["HTML"] == alti.html.page([found])
    assert files["LaTeX"] == alti.latex.document([found])


UNREAD = {
    "pieces": [
        {"text": "Loved it ", "start": 0, "score": 0.25},
        {"text": "\U0001f60d", "start": 9, "score": 0.5, "unknown": "[UNK]"},
    ],
    "signed": False,
    "sections": [],
}
DRAWN = """import('/prompted.js').then(m => {{
    const view = {}, scale = m.scaleOfPieces(view);
    const box = document.createElement('div');
    box.append(m.promptText(view, scale, ''), m.rankedList(view, scale));
    return [...box.querySelectorAll('.alti-unknown')].map(
        mark => [mark.parentNode.textContent, mark.parentNode.ariaLabel]) }})"""


def test_what_the_model_did_not_know_of_a_prompt(blank):
    show(blank, text="A film.", methods="alti")
    marked = blank.run(DRAWN.format(json.dumps(UNREAD)))
    assert marked[0] == ["\U0001f60d[UNK]", "\U0001f60d read as [UNK], 0.500"]
    assert marked[1][0] == "\U0001f60d[UNK]"
    found = alti.load(device="cpu").explain("Loved it \U0001f60d")
    for by in ("word", "token"):
        sent = [piece for piece in pieces_of(found, by) if "unknown" in piece]
        assert [(piece["text"], piece["unknown"]) for piece in sent] == [("\U0001f60d", "[UNK]")]


RANKED = """import('/prompted.js').then(m =>
    [...m.rankedList({}).querySelectorAll('.share')].map(node => node.textContent))"""


def test_the_list_of_the_strongest_leaves_out_nothing_that_is_stronger(blank):
    show(blank, text="A film.", methods="alti")
    scores = [0.01 * number for number in range(1, 9)] + [-0.1 * number for number in range(1, 9)]
    pieces = [
        {"text": f"word{i} ", "start": 9 * i, "score": score} for i, score in enumerate(scores)
    ]
    view = {"pieces": pieces, "signed": True, "sections": []}
    shown = [float(share.replace("−", "-")) for share in blank.run(RANKED.format(json.dumps(view)))]
    largest = sorted(scores, key=abs, reverse=True)[:10]
    assert shown == pytest.approx(largest)


def test_another_model_has_other_tokens(blank, model):
    """What one model wrote is typed text for another."""
    ids = model.encoder.plain(" It is").ids
    answering(blank, form="text", text="The plot is", answer=" It is", ids=ids)
    choose(blank, "#model", "tiny-llama")
    blank.wait(
        f"{DONE} && document.querySelector('#answer .faint').textContent.includes('tiny-llama')"
    )
    assert blank.run("document.querySelector('#answer-text').value") == " It is"
    assert blank.run(f"{TOKENS}.map(t => t.textContent).join('')") == " It is"

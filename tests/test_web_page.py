"""The page in a browser: what a user does, and what a hostile text cannot do."""

import json

import pytest

import alti

from pages import BROWSED, CHOOSE, READY, TEXT, same, scores, show, text, write

pytestmark = BROWSED
QUICK = (  # `make test` runs these; the others are slow
    "test_it_opens_with_an_explained_example",
    "test_typing_explains",
    "test_click_a_token_and_move_the_slider",
    "test_switch_the_class",
    "test_compare_two_texts",
    "test_a_link_restores_the_view",
    "test_any_text_is_only_text",
    "test_what_goes_wrong_is_one_sentence",
    "test_exports",
)


@pytest.fixture(scope="module")
def model():
    return alti.load(device="cpu")


def test_it_opens_with_an_explained_example(page, model):
    text = page.run("document.querySelector('#text').value")
    same(scores(page), model.explain(text))
    same(scores(page, "absence"), model.explain(text, method="absence"))
    assert page.run("document.querySelector('.alti-says strong').textContent") == "negative"
    assert (
        page.run("document.querySelector('#mixing-title').textContent") == "What [CLS] is made of"
    )
    assert page.run("document.querySelectorAll('#flow .edge.strong').length") > 5


def test_typing_explains(page, model):
    write(page, "A gorgeous and clever film")
    same(scores(page), model.explain("A gorgeous and clever film"))
    assert page.run("document.querySelector('.alti-says strong').textContent") == "positive"


def test_one_to_four_methods(page, model):
    page.click("#methods summary")
    for name in ("linear", "norms"):
        page.click(f"#methods [value={name}]")
    page.wait(f"{READY} && document.querySelectorAll('.alti-row').length === 4")
    same(scores(page, "linear"), model.explain(TEXT, method="linear"))
    left = "[...document.querySelectorAll('#methods input')]"
    left += ".filter(box => !box.disabled).map(box => box.value)"
    assert set(page.run(left)) == {"alti", "norms", "linear", "absence"}
    page.key("Escape")
    assert page.run("document.querySelector('#methods').open") is False


def mixed(page):
    return page.run(
        "[...document.querySelectorAll('#mixed [data-score]')].map(s => Number(s.dataset.score))"
    )


def test_click_a_token_and_move_the_slider(blank, model):
    show(blank, text=TEXT, unit="tokens", methods="alti")
    found = model.explain(TEXT)
    place = found.tokens.index("plot")
    blank.click(f".result [data-place='{place}']")
    assert (
        blank.run("document.querySelector('#mixing-title').textContent") == "What plot is made of"
    )
    assert mixed(blank) == pytest.approx(found.relevance(5)[place].tolist(), abs=1e-3)
    blank.run("document.querySelector('#layer').focus()")
    for _ in range(3):
        blank.key("ArrowLeft")
    assert blank.run("document.querySelector('#layer-number').textContent") == "3 of 6"
    assert blank.run("document.querySelector('#strip tr.on').dataset.layer") == "2"
    assert mixed(blank) == pytest.approx(found.relevance(2)[place].tolist(), abs=1e-3)
    blank.click("[name=since][value=layer]")
    assert mixed(blank) == pytest.approx(found.layers[2][place].tolist(), abs=1e-3)
    cells = blank.run("document.querySelectorAll('#strip tbody td').length")
    assert cells == 6 * len(found)


def test_words_are_sums_of_sub_words(page, model):
    found = model.explain(TEXT)
    page.click("[name=unit][value=tokens]")
    shown = scores(page)
    assert [score for _, score in shown] == pytest.approx(found.scores.tolist(), abs=6e-4)
    page.click("[name=unit][value=words]")
    same(scores(page), found)


def test_the_keyboard_reaches_a_word(page):
    page.run("document.querySelector('.result [tabindex=\"0\"]').focus()")
    page.key("ArrowRight")
    page.key("Enter")
    assert page.run("document.activeElement.textContent") == "acting"
    assert page.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert (
        page.run("document.querySelector('#mixing-title').textContent") == "What acting is made of"
    )


def test_the_graph_has_a_threshold(blank, model):
    show(blank, text=TEXT, threshold=10)
    found = model.explain(TEXT)
    edges = "document.querySelectorAll('#flow .edge').length"
    assert blank.run(edges) == pytest.approx(int((found.layers >= 0.1).sum()), abs=2)
    blank.run("document.querySelector('#threshold').focus()")
    blank.key("ArrowRight")
    assert blank.run("document.querySelector('#threshold-number').textContent") == "15 %"
    assert blank.run(edges) == pytest.approx(int((found.layers >= 0.15).sum()), abs=2)


def test_switch_the_class(page, model):
    page.run(CHOOSE.format(1, "class"))
    page.wait(f"{READY} && document.querySelector('.alti-says strong').textContent === 'positive'")
    same(scores(page, "absence"), model.explain(TEXT, method="absence", target="positive"))
    show(page, text=TEXT, methods="alti")
    assert page.run("document.querySelector('#class').disabled") is True
    assert "same for every class" in page.run("document.querySelector('#class-hint').textContent")


def test_another_model(page):
    page.run(CHOOSE.format("tiny-bert", "model"))
    page.wait(f"{READY} && document.querySelector('#layer').max === '3'")


def test_compare_two_texts(page, model):
    page.click("#compare")
    write(page, "It is not bad", "other")
    assert page.run("document.querySelectorAll('.result').length") == 2
    same(scores(page, panel=1), model.explain("It is not bad"))
    page.click(".result:nth-child(2) [data-place='3']")
    title = page.run("document.querySelector('#mixing-title').textContent")
    assert title == "What not is made of in the second text"
    page.click("#compare")
    page.wait(f"{READY} && document.querySelectorAll('.result').length === 1")


def test_a_pair_of_texts(page, model):
    page.click("#add")
    write(page, "I slept well.", "pair")
    same(scores(page), model.explain(TEXT, "I slept well."))
    page.click("#compare")
    write(page, "It is not bad", "other")
    same(scores(page, panel=1), model.explain("It is not bad", "I slept well."))
    assert "pair=I+slept+well." in page.run("location.hash")
    page.click("#compare")
    page.click("#add")
    page.wait(f"{READY} && !document.querySelector('#results').innerText.includes('slept')")
    assert "pair" not in page.run("location.hash")
    same(scores(page), model.explain(TEXT))


SEEN = """[document.querySelector('#text').value, document.querySelector('#other').value,
    document.querySelector('#results').innerText,
    document.querySelector('#mixing-title').textContent,
    document.querySelector('#mixed').innerText, document.querySelector('#layer').value,
    document.querySelector('#threshold').value, document.querySelector('#flow').innerHTML]"""


def test_a_link_restores_the_view(page):
    write(page, "Clever & witty = 100% #fun? 😍")
    page.click("#compare")
    write(page, "Dull + slow", "other")
    page.click("[name=unit][value=tokens]")
    page.click(".result:nth-child(2) [data-place='1']")
    page.run(CHOOSE.format(0, "class"))
    page.wait(f"{READY} && document.querySelector('.alti-says strong').textContent === 'negative'")
    for name in ("layer", "threshold"):
        page.run(f"document.querySelector('#{name}').focus()")
        page.key("ArrowLeft")
    page.wait("location.hash.includes('threshold=')")
    seen, link = page.run(SEEN), page.run("location.href")
    page.open("about:blank")
    page.open(link)
    page.wait(READY)
    assert page.run(SEEN) == seen
    assert page.run("document.querySelector('#class').value") == "0"


@pytest.mark.parametrize(
    "text",
    [
        "<script>document.body.dataset.owned = 1</script> a good film",
        '<img src=x onerror="document.body.dataset.owned = 1"> & \'quoted\' "film"',
        "</textarea></p><style>*{display:none}</style> film",
        "هذا فيلم رائع جدا ومضحك",
        "סרט נהדר with English",
        "Loved it 😍👨‍👩‍👧 🎉",
        "这部电影非常好看，演员很棒。",
        "\u202eevil\u202c \u0000\u001b[31m film",
    ],
)
def test_any_text_is_only_text(blank, model, text):
    show(blank, text=text)
    typed = "(p => { p.querySelectorAll('.alti-unknown').forEach(m => m.remove()); return p })"
    shown = blank.run(
        f"{typed}(document.querySelector('.result .alti-text').cloneNode(true)).textContent"
    )
    assert shown == model.explain(text).text.replace("\0", "␀").replace("\x1b", "␛")
    assert blank.run("document.body.dataset.owned") is None
    assert (
        blank.run("document.querySelectorAll('main script, main style, .result img').length") == 0
    )
    rtl = "\u0590" <= text[0] <= "\u06ff"
    direction = "getComputedStyle(document.querySelector('.result .alti-text')).direction"
    assert blank.run(direction) == ("rtl" if rtl else "ltr")


def test_a_label_is_only_text(blank):
    """The tiny model's labels are elements: none may become one."""
    show(blank, model="tiny-bert", text="A clever film", methods="alti,linear", target=0)
    assert blank.run("document.querySelector('.alti-says strong').textContent").startswith(
        "<img src=x"
    )
    assert blank.run("document.querySelector('#class').options[2].text") == "</option><b>bold</b>"
    assert blank.run("document.querySelectorAll('main img, main .result b').length") == 0
    assert blank.run("document.body.dataset.owned") is None


def test_a_link_cannot_do_harm(blank):
    numbers = "target=x&layer=-1&threshold=9999&place=99999"
    blank.open(f"{blank.server}/#model=../etc&methods=magic,%3Cb%3E&unit=%3Cb%3E&{numbers}")
    blank.wait("!document.querySelector('#held').hidden")
    assert blank.run("document.querySelector('#error').hidden") is True
    assert blank.run("document.querySelectorAll('.result, .result b').length") == 0
    blank.click("#compute")  # another model, as the button says
    blank.wait(READY)
    assert blank.run("document.querySelector('#error').hidden") is True


def test_what_goes_wrong_is_one_sentence(page):
    page.run("document.querySelector('#text').select()")
    page.type("word " * 600)
    page.wait("!document.querySelector('#error').hidden")
    assert "and the model takes 512" in page.run("document.querySelector('#error').textContent")
    write(page, "A good film")
    assert page.run("document.querySelector('#error').hidden") is True
    assert page.problems == [
        "Failed to load resource: the server responded with a status of 400 (Bad Request)"
    ]
    page.problems.clear()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_text_stays_readable(blank, width):
    text = "Nobody expected the second half to drag quite so badly, did they? " * 28
    blank.size(width, 800)
    show(blank, text=text.strip(), methods="alti,absence", unit="tokens")
    assert blank.run("document.querySelectorAll('#strip thead th').length") > 390
    assert blank.run("document.documentElement.scrollWidth") <= width
    assert (
        blank.run(
            "parseFloat(getComputedStyle(document.querySelector('.result .alti-text')).fontSize)"
        )
        >= 16
    )
    assert blank.run(
        "document.querySelector('#flow').scrollWidth > document.querySelector('#flow').clientWidth"
    )


def test_exports(page, model):
    """What is copied is what the library makes."""
    page.send(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    page.click("#keep summary")
    found = [model.explain(TEXT, method=method, layers=False) for method in ("alti", "absence")]
    for kind, wanted in (("HTML", alti.html.page(found)), ("LaTeX", alti.latex.document(found))):
        page.run("document.querySelector('#keep').open = true")
        page.click(f"[aria-label='Copy as {kind}']")
        page.wait(f"document.querySelector('#toast').textContent === '{kind} copied.'")
        assert page.run("navigator.clipboard.readText()") == wanted
    page.run("document.querySelector('#keep').open = true")
    page.click("[aria-label='Copy as JSON']")
    page.wait("document.querySelector('#toast').textContent === 'JSON copied.'")
    copied = json.loads(page.run("navigator.clipboard.readText()"))
    assert copied == json.loads(json.dumps([one.to_dict() for one in found]))
    page.run("document.querySelector('#keep').open = true")
    page.click("[aria-label='Copy as Image']")
    page.wait("document.querySelector('#toast').textContent === 'Image copied.'")


def test_light_and_dark(page):
    ground = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    light = page.run(ground)
    page.click("#theme")
    dark = page.run(ground)
    assert light != dark
    show(page)
    assert page.run(ground) == dark
    page.click("#theme")
    assert page.run(ground) == light
    page.run("localStorage.clear()")


def test_the_way_past_the_controls_keeps_the_text(page):
    write(page, "A text of my own")
    page.run("document.querySelector('.skip').click()")
    assert page.run("document.activeElement.id") == "results"
    assert page.run("document.querySelector('#text').value") == "A text of my own"
    assert "text=A+text+of+my+own" in page.run("location.hash")


def test_what_a_screen_reader_calls_the_sliders(page):
    for name, called in (("layer", "Layer"), ("threshold", "Contributions above")):
        assert page.run(f"document.querySelector('#{name}').labels[0].textContent").startswith(
            called
        )
        assert page.run(f"document.querySelector('#{name}').getAttribute('aria-valuetext')")


def test_of_two_texts_one_can_be_wrong(page):
    page.open(f"{page.server}/#text=good&other=" + "bad+" * 600)
    page.wait(f"{READY} && !document.querySelector('#error').hidden")
    assert page.run("document.querySelectorAll('.result .alti-text').length") > 0
    assert page.run("document.querySelector('#error').textContent").startswith(
        "Compare with: The text has 602 tokens"
    )
    page.problems.clear()


def test_a_link_of_another_model_s_class(blank):
    show(blank, text="good film", methods="absence,absence,foo", target=99, versus="gpt-7")
    assert blank.run("document.querySelector('#error').hidden") is True
    assert blank.run("document.querySelectorAll('[data-method=absence]').length") == 1
    assert text(blank, "#link-hint") == (
        "The link asks for the class 99, the method foo, the model gpt-7 beside it, which is not "
        "here: the page shows what there is of minilm-l6-sst2."
    )
    show(blank, text="good film", methods="absence", target=1)
    assert blank.run("document.querySelector('#link-hint').hidden") is True


def test_back_to_the_prediction_and_focus_stays(page):
    page.click(".result [data-place='2']")
    page.click("#mixing-by button")
    assert (
        page.run("document.querySelector('#mixing-title').textContent") == "What [CLS] is made of"
    )
    page.run("document.querySelector('#examples button:nth-child(3)').focus()")
    page.key("Enter")
    page.wait(READY)
    assert page.run("document.activeElement.textContent") == "It is not a bad film at all."


def test_rather_than_another_class(blank):
    show(blank, model="tiny-bert", text=TEXT, methods="alti,absence")
    assert blank.run("!document.querySelector('#rivals').hidden")
    names = "[...document.querySelector('#rival').options].map(option => option.value)"
    bars = "[...document.querySelectorAll('.bars .full')]"
    predicted = blank.run(f"{bars}.findIndex(bar => bar.classList.contains('on'))")
    assert blank.run(names) == ["", *(str(i) for i in range(3) if i != predicted)]
    before = scores(blank, "absence")
    rival = next(i for i in range(3) if i != predicted)
    blank.run(CHOOSE.format(rival, "rival"))
    blank.wait(READY)
    assert "rather than" in blank.run("document.querySelector('.alti-says strong').textContent")
    assert scores(blank, "absence") != before
    assert blank.run("document.querySelector('#class').value") == str(
        predicted
    )  # another text could be predicted so
    assert f"against={rival}" in blank.run("location.hash")
    blank.open("about:blank")
    show(
        blank, model="tiny-bert", text=TEXT, methods="alti,absence", target=predicted, against=rival
    )
    assert blank.run("document.querySelector('#rival').value") == str(rival)
    blank.run(CHOOSE.format(rival, "class"))  # is now the target, and no rival any more
    blank.wait(READY)
    assert blank.run("document.querySelector('#rival').value") == ""
    assert "rather than" not in blank.run("document.querySelector('.alti-says strong').textContent")


def test_of_two_classes_one_is_all_others(page):
    assert page.run("document.querySelector('#rivals').hidden")


ROWS = "[...document.querySelectorAll('.result:first-child .alti-row')]"
ROWS += ".map(row => row.dataset.method)"
SAYS = "document.querySelector('.alti-says strong').textContent"
CHOSEN = "document.querySelector('#methods-chosen').textContent"
WAITING = "!document.querySelector('#held').hidden"
RECORDED = """window.sent = []; const fetched = window.fetch; window.fetch = (address, options) => {
    window.sent.push([address, JSON.parse(options?.body ?? 'null')])
    return fetched(address, options) }"""


@pytest.fixture
def recorded(blank):
    """A browser that keeps what the page asks the server."""
    script = blank.send("Page.addScriptToEvaluateOnNewDocument", source=RECORDED)["identifier"]
    yield blank
    blank.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def sent(page):
    """The methods that the page asked for since the last look; a link exports nothing."""
    questions = page.run("window.sent.splice(0)")
    addresses = {address.partition("?")[0] for address, _ in questions}
    assert addresses <= {"/api/models", "/api/view", "/api/queue"}
    return [question["methods"] for _, question in questions if question]


def test_a_link_starts_nothing_expensive(recorded, model):
    show(recorded, text=TEXT, methods="alti,occlusion", export="html", format="html", keep=1)
    assert sent(recorded) == [["alti"]]
    same(scores(recorded), model.explain(TEXT))
    assert recorded.run(ROWS) == ["alti"]
    assert recorded.run(CHOSEN) == "alti, occlusion"
    assert recorded.run("document.querySelector('#methods [value=occlusion]').checked") is True
    assert "occlusion" in recorded.run("location.hash")
    called = "document.querySelector('#compute').textContent"
    assert recorded.run(WAITING)
    assert recorded.run(called) == "Compute occlusion: it runs the model many times"
    recorded.run(CHOOSE.format(1, "class"))  # is no wish for it
    recorded.wait(f"{READY} && {SAYS} === 'positive'")
    assert sent(recorded) == [["alti"]]
    recorded.click("#compute")
    recorded.wait(f"{READY} && {ROWS}.length === 2")
    same(scores(recorded, "occlusion"), model.explain(TEXT, method="occlusion", target="positive"))
    assert not recorded.run(WAITING)
    assert recorded.run("document.activeElement.id") == "results"
    recorded.run(CHOOSE.format(0, "class"))
    recorded.wait(f"{READY} && {SAYS} === 'negative'")
    assert sent(recorded) == [["alti", "occlusion"]] * 2


def test_a_link_to_nothing_but_expensive_methods(recorded):
    methods = "integrated_gradients,occlusion"
    show(recorded, text="A clever film", methods=methods, other="A dull film")
    assert sent(recorded) == [["alti"]] * 2  # for the prediction and the layers; it has no row
    assert recorded.run("document.querySelectorAll('.result').length") == 2
    assert recorded.run(ROWS) == []
    called = recorded.run("document.querySelector('#compute').textContent")
    assert called == "Compute integrated_gradients and occlusion: they run the model many times"
    recorded.click("#keep summary")
    recorded.click("[aria-label='Copy as JSON']")
    toast = "document.querySelector('#toast').textContent"
    recorded.wait(f"{toast}.startsWith('There is nothing to export yet')")
    assert sent(recorded) == []
    recorded.key("Escape")
    recorded.run("document.querySelector('#compute').focus()")
    recorded.key("Enter")
    recorded.wait(f"{READY} && {ROWS}.length === 2")


def test_an_address_that_changes_starts_nothing_expensive(recorded, model):
    show(recorded)
    write(recorded, "A gorgeous film")
    sent(recorded)
    recorded.run("location.hash = '#text=A+dull+film&methods=occlusion'")
    recorded.wait(f"{READY} && {WAITING} && {SAYS} === 'negative'")
    assert sent(recorded) == [["alti"]]
    recorded.run("document.querySelector('#text').select()")
    recorded.type("A clever film")
    recorded.wait(f"{READY} && {ROWS}.includes('occlusion')")
    same(scores(recorded, "occlusion"), model.explain("A clever film", method="occlusion"))
    assert not recorded.run(WAITING)


def test_ticking_a_method_asks_for_it(recorded):
    show(recorded, text=TEXT, methods="alti,occlusion")
    recorded.click("#methods summary")
    recorded.click("#methods [value=norms]")  # asks for another
    recorded.wait(f"{READY} && {ROWS}.join() === 'alti,norms'")
    for _ in range(2):  # off and on
        recorded.click("#methods [value=occlusion]")
    recorded.wait(f"{READY} && {ROWS}.includes('occlusion')")
    assert sent(recorded)[-1] == ["alti", "norms", "occlusion"]
    recorded.key("Escape")


@pytest.mark.parametrize("steps", ["1000000", "1e99", "-1000000"])
def test_a_link_has_limits(recorded, steps):
    show(recorded, text="good", methods=f"alti:p=2,integrated_gradients:steps={steps}")
    hint = recorded.run("document.querySelector('#link-hint').textContent")
    wanted = f"Methods: the link asks for integrated_gradients with steps={steps}, but a link may"
    assert hint.startswith(wanted)
    assert recorded.run("document.querySelector('#link-hint').getClientRects().length") > 0
    assert "steps=200" in recorded.run(CHOSEN).replace("-", "")
    assert sent(recorded) == [["alti:p=2"]]
    show(recorded, text="good", methods="alti:p=2,integrated_gradients:steps=200:baseline=zero")
    assert recorded.run("document.querySelector('#link-hint').hidden") is True
    recorded.click("#compute")
    recorded.wait(f"{READY} && {ROWS}.length === 2")
    assert recorded.run("document.querySelector('#error').hidden") is True

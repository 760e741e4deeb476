"""The page's heads, lens, options and two models side by side, and the requests behind them."""

import io
import json
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import pytest
from PIL import Image

import alti
from alti.methods import METHODS
from alti.model.model import Model

import tiny
from browser import Browser
from pages import BROWSED, READY, TEXT, file, high_contrast, offered, printed, show
from serving import running

pytestmark = BROWSED
QUICK = (  # `make test` runs these; the others are slow
    "test_heads_are_those_of_the_library",
    "test_options_come_from_the_methods",
    "test_a_server_refuses_numbers_outside",
    "test_heads_and_lens_of_the_api_are_those_of_the_library",
)
FILM = "the film is a clever blend"
OPEN = (
    "!document.querySelector('#{0}').hasAttribute('aria-busy') && !!document.querySelector('{1}')"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A classifier with the same classes in another order, and a language model."""
    folder = tmp_path_factory.mktemp("two")
    labels = {
        "id2label": {0: "positive", 1: "negative"},
        "label2id": {"positive": 0, "negative": 1},
    }
    tiny.saved(folder / "turned", **labels)
    tiny.speaking("llama", "AutoModelForCausalLM", "bpe").save_pretrained(folder / "speaker")
    tiny.tokenizer("bpe").save_pretrained(folder / "speaker")
    return folder


@pytest.fixture(scope="module")
def address(folders):
    with running(folders / "turned", folders / "speaker") as address:
        yield address


@pytest.fixture(scope="module")
def browser(address, tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("user"))
    opened.server = address
    yield opened
    opened.close()


@pytest.fixture
def page(browser):
    browser.size(1100, 800)
    browser.problems.clear()
    yield browser
    assert browser.problems == []


def post(address, kind, **question):
    body = json.dumps(question).encode()
    request = Request(f"{address}/api/{kind}", body, {"Content-Type": "application/json"})
    with urlopen(request) as response:
        return json.load(response)


def test_heads_are_those_of_the_library(page):
    show(page, text=TEXT, open="heads", layer=3, methods="alti", unit="tokens")
    page.wait(OPEN.format("heads", ".head canvas"))
    maps = alti.load(device="cpu").heads(TEXT, layer=3)
    assert page.run("document.querySelectorAll('.head canvas').length") == len(maps)
    first = page.run("document.querySelector('.head').getAttribute('aria-label')")
    assert first.startswith(f"Head 1: {float(maps.strengths[0]):.3f} of the layer on average")
    head = int(maps.strengths.argmax())
    assert page.run("document.querySelector('.head[aria-pressed=true]').dataset.head") == str(head)
    shown = "[...document.querySelectorAll('#head-text [data-score]')].map(s => +s.dataset.score)"
    assert page.run(shown) == pytest.approx(maps.contributions[head, 0].tolist(), abs=1e-5)
    assert f"{float(maps.residual[0]):.3f} comes through no head" in page.run(
        "document.querySelector('#head-by').textContent"
    )
    largest = float(maps.contributions.max())
    scale = "document.querySelector('#head-scale').textContent"
    assert page.run(scale).startswith(
        f"0{largest:.3f}shares of what the token becomes, in every map"
    )
    page.click("[name=of-head][value=attention]")
    assert page.run(scale).startswith(f"0{float(maps.attention.max()):.3f}attention, shares of 1")
    assert page.run(shown) == pytest.approx(maps.attention[head, 0].tolist(), abs=1e-3)


@pytest.mark.parametrize(
    ("name", "model", "drawn"),
    [("heads", "turned", ".head"), ("lens", "speaker", "#lens-table tr")],
)
def test_a_drawer_says_how_far_it_is(page, name, model, drawn):
    show(page, model=model, text=FILM, methods="alti")
    page.wait("!document.querySelector('#deeper').hidden")
    page.run(
        """const own = window.fetch;
        window.fetch = async (url, more) => {
          const ticket = new URL(url, location).searchParams.get('ticket');
          if (ticket && ticket === window.ticket)
            return new Response('{"state": "working", "done": 3, "total": 26}');
          if (url === '/api/NAME') {
            window.ticket = JSON.parse(more.body).ticket;
            await new Promise((done) => setTimeout(done, 1500));
          }
          return own(url, more);
        }; 0""".replace("NAME", name)
    )
    page.run(f"document.querySelector('#{name}').open = true")
    line = f"document.querySelector('#{name}-waiting')"
    page.wait(f"{line}.textContent === 'Computing. Step 3 of 26.' && !{line}.hidden")
    page.wait(OPEN.format(name, drawn))
    page.wait(f"{line}.hidden")
    page.open("about:blank")


def test_heads_by_keyboard_and_slider(page):
    show(page, text=TEXT, open="heads", methods="alti")
    page.wait(OPEN.format("heads", ".head"))
    page.run("document.querySelector('.head[data-head=\"2\"]').focus()")
    page.key("Enter")
    page.wait("document.querySelector('#head-by').textContent.startsWith('Head 3 of layer 6')")
    assert page.run("document.activeElement.dataset.head") == "2"
    page.run("document.querySelector('#layer').focus()")
    page.key("ArrowLeft")
    page.wait("document.querySelector('#head-by').textContent.startsWith('Head 3 of layer 5')")
    assert "head=2" in page.run("location.hash")
    code = """(async () => {
      const slider = document.querySelector('#layer');
      const took = [];
      for (const value of [1, 4, 2, 6, 3, 5]) {
        const start = performance.now();
        slider.value = value;
        slider.dispatchEvent(new Event('input'));
        took.push(performance.now() - start);
      }
      return took.sort((a, b) => a - b)[3];
    })()"""
    assert page.run(code) <= 100  # milliseconds, with the heads open


def test_what_was_said_after_each_layer(page, folders):
    show(page, model="speaker", text=FILM, open="lens", methods="alti")
    page.wait(OPEN.format("lens", "#lens-table tbody tr"))
    found = alti.load(str(folders / "speaker"), device="cpu").explain(FILM, lens=True)
    rows = "[...document.querySelectorAll('#lens-table tbody tr')]"
    shown = f"{rows}.map(row => row.cells[1].textContent)"
    own = [float(each) for each in page.run(shown)]
    assert own == pytest.approx(list(found.lens.own), abs=6e-4)
    page.run("document.querySelector('#lens-table button').focus()")
    page.key("Enter")
    page.wait("document.querySelector('#layer-number').textContent === '1 of 3'")
    page.wait("document.querySelector('#lens-table tr.on').dataset.layer === '0'")
    assert page.run("document.activeElement.getAttribute('aria-label')") == "layer 1"


def test_a_classifier_has_no_lens(page):
    show(page, text=TEXT, open="lens,heads", methods="alti")
    page.wait(OPEN.format("heads", ".head"))
    assert page.run("document.querySelector('#lens').hidden") is True


def test_options_come_from_the_methods(page):
    show(page, text=TEXT, methods="alti")
    page.click("#options summary")
    page.run("document.querySelector('#option-0-p').focus()")
    write = "(f => {{ f.value = '{}'; f.dispatchEvent(new Event('change')) }})"
    page.run(write.format(2) + "(document.querySelector('#option-0-p'))")
    page.wait(f"{READY} && !!document.querySelector('[data-method=\"alti:p=2\"]')")
    found = alti.load(device="cpu").explain(TEXT, p=2).words()
    shown = "[...document.querySelectorAll('.result [data-score]')].map(s => +s.dataset.score)"
    assert page.run(shown) == pytest.approx(found.scores.tolist(), abs=6e-4)
    assert page.run("document.querySelector('#options-chosen').textContent") == "1 changed"
    page.run(write.format(3) + "(document.querySelector('#option-0-p'))")
    wrong = page.run("document.querySelector('#option-0-p-wrong').textContent")
    assert wrong == "p takes a whole number from 1 to 2."
    assert page.run("document.querySelector('#option-0-p').getAttribute('aria-invalid')") == "true"
    page.click("#options .settings button")
    page.wait(f"{READY} && !!document.querySelector('[data-method=alti]')")


def test_every_option_says_what_it_is_for():
    for method in METHODS.values():
        for option in method.declared.values():
            assert option.about.help, f"{method.name} {option.name}"
            assert option.problem(option.default) == ""


def test_a_server_refuses_numbers_outside(address):
    with pytest.raises(Exception, match="400") as caught:
        post(address, "view", text="hi", methods=["integrated_gradients:steps=0"])
    said = json.load(caught.value)["error"]
    assert "steps of integrated_gradients takes a number from 1, not 0" in said


def test_two_models_on_one_text(page, folders):
    show(page, text=TEXT, methods="alti,linear", versus="turned", unit="words")
    page.wait(f"{READY} && document.querySelectorAll('.result').length === 2")
    names = page.run("[...document.querySelectorAll('.result .alti-by')].map(n => n.textContent)")
    assert names == ["minilm-l6-sst2", "turned"]
    labels = page.run("[...document.querySelectorAll('.alti-says strong')].map(n => n.textContent)")
    assert labels == ["negative", "negative"]  # one class, though it is 0 here and 1 there
    other = alti.load(str(folders / "turned"), device="cpu")
    found = other.explain(TEXT, method="linear", target="negative").words()
    shown = ".result:nth-child(2) [data-method=linear] [data-score]"
    code = f"[...document.querySelectorAll('{shown}')].map(s => s.dataset.score)"
    scores = [float(score.replace("−", "-")) for score in page.run(code)]
    assert scores == pytest.approx(found.scores.tolist(), abs=6e-4)
    legends = page.run(
        "[...document.querySelectorAll('[data-method=alti] .alti-legend')].map(n => n.textContent)"
    )
    ends = {legend.split("shares")[0] for legend in legends}
    assert len(ends) == 1  # one scale
    assert "turned" in page.run("document.querySelector('#versus-model').value")
    page.run("document.querySelector('#versus-model').value = ''")
    page.run("document.querySelector('#versus-model').dispatchEvent(new Event('change'))")
    page.wait(f"{READY} && document.querySelectorAll('.result').length === 1")


def test_two_models_are_exported(address):
    asked = {"text": TEXT, "methods": ["linear"], "versus": "turned", "format": "json"}
    found = post(address, "export", **asked)
    assert [one["model"] for one in found] == ["minilm-l6-sst2", "turned"]
    assert [one["predictions"][0]["label"] for one in found] == ["negative", "negative"]


def test_a_large_text_is_sent_a_row_at_a_time(address, monkeypatch):
    found = post(address, "heads", text=TEXT, layer=1, place=2)
    assert len(found["rows"]) == found["attention"]["shape"][1] > 1
    long = " ".join(["film"] * 400)
    row = post(address, "heads", text=long, layer=1, place=2)
    assert row["rows"] == [2]


@pytest.mark.parametrize("width", [320, 1100])
def test_it_fits(page, width):
    page.size(width, 800, dark=True)
    show(page, model="speaker", text=FILM, open="heads,lens", methods="alti")
    page.wait(OPEN.format("heads", ".head"))
    page.wait(OPEN.format("lens", "#lens-table tbody tr"))
    assert page.run("document.documentElement.scrollWidth") <= width
    unnamed = """[...document.querySelectorAll('#deeper button, #deeper input, #options input')]
      .filter(n => !(n.ariaLabel || n.textContent.trim() || n.labels?.length)).length"""
    assert page.run(unnamed) == 0


def test_heads_and_lens_of_the_api_are_those_of_the_library(address, folders):
    model = Model(*_loaded(folders / "speaker"))
    found = post(address, "lens", model="speaker", text="the film is", target=7)
    wanted = model.explain("the film is", lens=True, target=7, method="random")
    assert found["own"] == pytest.approx(list(wanted.lens.own), abs=1e-9)
    for wrong in ({"layer": 99}, {"layer": 0, "place": 99}):
        with pytest.raises(Exception, match="400"):
            post(address, "heads", text="the film", **wrong)
    with pytest.raises(Exception, match="400"):
        post(address, "lens", text="a film")


def _loaded(folder):
    model = alti.load(str(folder), device="cpu")
    return model.model, model.tokenizer


SVG = "{http://www.w3.org/2000/svg}"
DRAWERS = {
    "heads": ("turned", "#head-text .alti-text"),
    "lens": ("speaker", "#lens-table td"),
}


def opened(page, name, text=TEXT):
    model, ready = DRAWERS[name]
    show(page, model=model, text=text, methods="alti", open=name)
    page.wait(OPEN.format(name, ready))
    return model


@pytest.mark.parametrize("name", DRAWERS)
def test_heads_and_lens_leave_as_pictures(page, name):
    model = opened(page, name)
    assert name in offered(page)
    root = ElementTree.fromstring(file(page, "vector", name))
    said = " ".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))
    assert model in said
    assert "where it looks" not in said  # controls stay behind
    maps = page.run(f"document.querySelectorAll('#{name} canvas').length")
    images = [image.get("href") for image in root.iter(f"{SVG}image")]
    assert len(images) == len(set(images)) == maps
    size = float(root.get("width")), float(root.get("height"))
    picture = Image.open(io.BytesIO(file(page, "picture", name)))
    assert picture.size == tuple(2 * side for side in size)
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 50
    document = printed(page, name)
    assert b"/FontFile" in document
    assert (b"/Subtype /Image" in document) == (name == "heads")  # its maps are pixels
    page.run(f"document.querySelector('#{name}').open = false")
    assert name not in offered(page)


@pytest.mark.parametrize("name", DRAWERS)
def test_heads_and_lens_in_high_contrast(page, name):
    opened(page, name)
    high_contrast(page)
    chosen = {"heads": "[aria-pressed=true]", "lens": "tr.on"}[name]
    other = {"heads": "[aria-pressed=false]", "lens": "tbody tr:not(.on)"}[name]
    outline = "getComputedStyle(document.querySelector('#{} {}')).outlineStyle"
    assert page.run(outline.format(name, chosen)) == "solid"
    assert page.run(outline.format(name, other)) == "none"
    high_contrast(page, on=False)


@pytest.mark.parametrize("name", DRAWERS)
def test_heads_and_lens_of_a_text_from_right_to_left(page, name):
    opened(page, name, "فيلم ذكي جدا")
    direction = "getComputedStyle(document.querySelector('{}')).direction"
    if name == "heads":
        assert page.run(direction.format("#head-text .alti-text")) == "rtl"
    page.size(320, 800)
    assert page.run("document.documentElement.scrollWidth") <= 320

"""Every view of the page for everyone: narrow, dark, in high contrast, from right to left, by
keyboard alone, and with a name for each control."""

import base64
import json
from urllib.parse import urlencode

import pytest

from pages import BROWSED, READY, TEXT, high_contrast

pytestmark = BROWSED
QUICK = ("test_nothing_is_outside_of_its_card", "test_each_check_sees_what_is_wrong")
ARABIC = "فيلم رائع، لكن."
DOCUMENTS = {"form": "documents", "question": "Is it funny?", "by": "sentence"}
LINES = ("The plot is funny. ", "It is a film. ", "The acting is better. ")
LONG = "".join(LINES[i % 3] for i in range(150))
WIDE, NARROW = 1280, 320


def asking(model, **prompt):
    return {"model": model, "ask": "answer", "prompt": json.dumps(prompt)}


VIEWS = {  # name: the view of a text and of its answer, and what is there when it is shown
    "heads": (
        lambda text, _: {"text": text, "open": "heads", "layer": 3, "methods": "alti"},
        ".head canvas",
    ),
    "lens": (
        lambda text, _: {"model": "tiny-llama", "text": text, "open": "lens", "methods": "alti"},
        "#lens-table td",
    ),
    "models": (
        lambda text, _: {"model": "tiny-llama", "text": text, "versus": "tiny-chat"},
        ".result + .result",
    ),
    "options": (
        lambda text, _: {"text": text, "methods": "alti:p=2,dimming"},
        ".result",
    ),
    "set": (lambda text, _: {"text": text, "methods": "alti"}, ".result"),
    "whatif": (lambda text, _: {"text": text, "methods": "absence"}, ".result"),
    "answer": (
        lambda text, answer: asking(
            "tiny-chat", **DOCUMENTS, documents=[text, text], answer=answer, part=[1, 3]
        ),
        "#ranked li",
    ),
    "whole answer": (
        lambda text, answer: asking("tiny-chat", form="text", text=text, answer=answer),
        "#ranked li",
    ),
    "long": (
        lambda text, answer: asking("tiny-chat", form="text", text=LONG + text * 5, answer=answer),
        ".fold",
    ),
    "alignment": (
        lambda text, answer: asking("tiny-t5", text=text, answer=answer),
        "#alignment",
    ),
}
OPEN = """(() => {{
  const bytes = Uint8Array.from(atob('{}'), letter => letter.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], 'set.csv'));
  document.querySelector('#set-file').files = files.files;
  document.querySelector('#set-file').dispatchEvent(new Event('change'));
}})()"""


def prepare(page, name, text):
    """What a user would do first."""
    if name == "options":
        page.click("#options summary")
        page.wait("!!document.querySelector('#option-0-p')")
    if name == "set":
        rows = f'text,label\n"{text}",positive\nA tedious mess.,positive\n'
        page.run(OPEN.format(base64.b64encode(rows.encode()).decode()))
        page.wait("!document.querySelector('#set-body').hidden")
        page.click("#set-predict")
        page.wait(
            "document.querySelectorAll('#set-rows [data-name=verdict]:not(:empty)').length > 1"
        )
        page.click("#set-rows tr:last-child button")
        page.wait(f"{READY} && !!document.querySelector('#set-rows tr.on')")
        page.click("#view-keep")
    if name == "whatif":
        words = "[...document.querySelectorAll('.result [data-score]')]"
        page.run(f"{words}[1].click()")
        page.click("#without")
        page.wait("document.querySelectorAll('#tries li').length === 1")
        page.click("#measure")
        page.wait("!!document.querySelector('.scatter')")
        page.run("document.querySelector('#measured details').open = true")
    if name == "long":
        page.click("#follow")
        page.wait("!document.querySelector('#answer-layers label').hidden")


def opened(page, name, text, answer):
    view, there = VIEWS[name]
    page.open(f"{page.server}/#{urlencode(view(text, answer))}")
    page.wait(
        f"!!document.querySelector('{there}') && !document.body.hasAttribute('aria-busy')", 30
    )
    prepare(page, name, text)


@pytest.fixture(scope="module")
def window(chromium, server):
    chromium.server = server
    chromium.size(WIDE, 900)
    yield chromium
    high_contrast(chromium, on=False)


@pytest.fixture(scope="module", params=VIEWS)
def view(request, window):
    """A view of an English text, for all tests of it."""
    window.size(WIDE, 900)
    opened(window, request.param, TEXT, "It is better")
    return window


@pytest.fixture(scope="module", params=VIEWS)
def from_right(request, window):
    """A view of an Arabic text."""
    window.size(WIDE, 900)
    opened(window, request.param, ARABIC, "رائع جدا")
    return window


OUTSIDE = """(() => [...document.querySelectorAll('main > *')].flatMap(card => {
  const box = card.getBoundingClientRect();
  const style = getComputedStyle(card);
  const left = box.left + parseFloat(style.paddingLeft);
  const right = box.right - parseFloat(style.paddingRight);
  const own = '.scroll, .examples, .menu .panel, svg'; // they scroll or are above the page
  return [...card.querySelectorAll('*')].filter(node => {
    if (node.closest(own) || !node.getClientRects().length || node.matches('input')) return false;
    const { width, ...at } = node.getBoundingClientRect().toJSON();
    return width && (at.left < left - 4 || at.right > right + 4);
  }).map(node => `${node.tagName} ${node.textContent.trim().slice(0, 30)}`);
}))()"""
PANELS = """[...document.querySelectorAll('.menu[open] .panel')].filter(panel => {
  const { left, right } = panel.getBoundingClientRect();
  return left < 0 || right > document.body.getBoundingClientRect().right; }).length"""


@pytest.mark.parametrize("width", [WIDE, 390, NARROW])
def test_nothing_is_outside_of_its_card(view, width):
    view.size(width, 900)
    view.wait(f"{PANELS} === 0")  # an open menu follows
    assert view.run(OUTSIDE) == []
    assert view.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nor_from_right_to_left(from_right, width):
    from_right.size(width, 900)
    assert from_right.run(OUTSIDE) == []


NAMED = {
    "button", "checkbox", "combobox", "heading", "image", "link", "listbox", "option",
    "progressbar", "radio", "region", "searchbox", "slider", "spinbutton", "textbox",
}  # fmt: skip


def nameless(page):
    """The roles of what a screen reader has no name for."""
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    page.send("Accessibility.disable")
    roles = {
        (node["role"]["value"], node.get("name", {}).get("value", "").strip())
        for node in nodes
        if not node.get("ignored") and "role" in node
    }
    return {role for role, name in roles if role in NAMED and not name}


def test_everything_has_a_name(view):
    """What a screen reader calls each control, and each part with a role of its own."""
    assert nameless(view) == set()


TABBED = """[...document.querySelectorAll(
    'button, input, select, textarea, summary, a[href], [tabindex="0"]')].filter(node =>
  node.tabIndex >= 0 && !node.disabled && node.checkVisibility() && !node.matches('.skip') &&
  (node.type !== 'radio' || node.checked))"""
STEP = """(() => {
  const node = document.activeElement;
  const style = getComputedStyle(node.matches('.segments input, .drop input') ?
    node.parentNode.querySelector('span') ?? node.parentNode : node);
  const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return [window.tabbed.indexOf(node), seen, node.outerHTML.slice(0, 80)];
})()"""


def untabbed(page):
    """What the tab key does not reach, or reaches without showing it."""
    page.size(WIDE, 900)
    page.run("new Promise(done => setTimeout(done, 500))")  # a text is drawn again after a resize
    count = page.run(f"window.tabbed = {TABBED}; window.tabbed.length")
    page.run("document.activeElement.blur(); document.querySelector('.skip').focus()")
    left, hidden = set(range(count)), []
    for _ in range(count + 20):
        page.key("Tab")
        at, seen, what = page.run(STEP)
        if at in left and not seen:
            hidden.append(what)
        left.discard(at)
    return hidden + [page.run(f"window.tabbed[{i}].outerHTML.slice(0, 80)") for i in left]


def test_the_tab_key_reaches_everything_and_shows_where_it_is(view):
    assert untabbed(view) == []


UNREADABLE = """(() => {
  const ink = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const parsed = colour => {
    ink.clearRect(0, 0, 1, 1); ink.fillStyle = colour; ink.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = ink.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = ([r, g, b, a], below) =>
    [r, g, b].map((part, i) => a * part + (1 - a) * below[i]);
  const above = node => node ? [node, ...above(node.parentElement)] : [];
  const light = colour => colour.map(part => part / 255)
    .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [.2126, .7152, .0722][i], 0);
  const wrong = [];
  for (const node of document.querySelectorAll('main *, header *, footer *')) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest('option, :disabled, .unseen')) continue;
    if (node.matches('label:has(:disabled), .disabled *')) continue;
    const style = getComputedStyle(node);
    let ground = parsed(getComputedStyle(document.documentElement).backgroundColor).slice(0, 3);
    for (const each of above(node).reverse()) {
      ground = over(parsed(getComputedStyle(each).backgroundColor), ground); }
    const clear = above(node).reduce((all, each) => all * getComputedStyle(each).opacity, 1);
    const [r, g, b, a] = parsed(node.ownerSVGElement ? style.fill : style.color);
    const [one, two] = [light(over([r, g, b, a * clear], ground)), light(ground)].sort();
    const [dark, bright] = one < two ? [one, two] : [two, one];
    const ratio = (bright + .05) / (dark + .05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) {
      const what = node.textContent.slice(0, 25);
      wrong.push(`${ratio.toFixed(2)} ${node.tagName}.${node.getAttribute('class')} ${what}`); }
  }
  return wrong;
})()"""
MODES = {
    "light": [],
    "dark": [("prefers-color-scheme", "dark")],
    "contrast": [("forced-colors", "active")],
    "dark contrast": [("forced-colors", "active"), ("prefers-color-scheme", "dark")],
}


@pytest.mark.parametrize("theme", ["", "light", "dark"])
@pytest.mark.parametrize("mode", MODES)
def test_every_word_can_be_read(view, mode, theme):
    """A contrast of 4.5 at least, whatever the system and the button of the page say."""
    features = [{"name": name, "value": value} for name, value in MODES[mode]]
    view.send("Emulation.setEmulatedMedia", features=features)
    view.run(f"document.documentElement.dataset.theme = {theme!r}")
    view.run(f"{theme!r} || document.documentElement.removeAttribute('data-theme')")
    found = view.run(UNREADABLE)
    view.run("document.documentElement.removeAttribute('data-theme')")
    high_contrast(view, on=False)
    assert found == []


SENTENCES = """[...document.querySelectorAll('main *')].filter(node => {
  const own = [...node.childNodes].filter(child => child.nodeType === 3).map(({ data }) => data);
  const said = (node.matches('textarea') ? node.value : own.join('')).trim();
  return node.checkVisibility() && /^[\\s.,\\u0600-\\u06ff]+$/.test(said) &&
    /[\\u0620-\\u064a]/.test(said) && /[\\s.,،]/.test(said);
}).map(node => {
  let box = node;
  while (!box.dir && getComputedStyle(box).display === 'inline') box = box.parentElement;
  const { direction, unicodeBidi } = getComputedStyle(box);
  return [node.outerHTML.slice(0, 60), unicodeBidi === 'plaintext' ? 'rtl' : direction];
})"""


def test_arabic_is_written_from_right_to_left(from_right):
    """Whatever is more than a word: its order and the place of its marks depend on the side."""
    found = from_right.run(SENTENCES)
    assert found
    assert [what for what, direction in found if direction != "rtl"] == []


WRONG = """(() => {
  const card = document.createElement('section');
  card.className = 'card';
  card.innerHTML = '<button></button><p>فيلم رائع، لكن.</p><a href="#">silent</a>';
  Object.assign(card.children[1].style, { color: '#888', background: '#999', width: '120%' });
  card.children[2].style.outline = 'none';
  document.querySelector('main').append(card);
})()"""


def test_each_check_sees_what_is_wrong(window):
    opened(window, "whatif", TEXT, "")
    for check in (OUTSIDE, UNREADABLE):
        assert window.run(check) == []
    window.run(WRONG)
    assert window.run(OUTSIDE)[0].startswith("P ")
    assert any("P.null" in found for found in window.run(UNREADABLE))
    assert nameless(window) == {"button"}
    assert any("silent" in found for found in untabbed(window))
    assert [direction for _, direction in window.run(SENTENCES)] == ["ltr"]

"""What tests of the page share: how a view is opened, written into and read."""

import base64
import json
from urllib.parse import quote

import pytest

from browser import CHROMIUM

BROWSED = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
TEXT = "The acting is superb, but the plot is a tedious mess."
READY = "!!document.querySelector('.result') && !document.body.hasAttribute('aria-busy')"
CHOOSE = (
    "(s => {{ s.value = '{}'; s.dispatchEvent(new Event('change')) }})"
    "(document.querySelector('#{}'))"
)


def show(page, **view):
    page.open(
        f"{page.server}/#" + "&".join(f"{name}={quote(str(value))}" for name, value in view.items())
    )
    page.wait(READY)


def write(page, text, field="text"):
    """Type over what is there, and wait for the explanation."""
    page.run(
        f"document.querySelector('#{field}').focus(), document.querySelector('#{field}').select()"
    )
    page.type(text)
    page.wait(
        f"{READY} && [...document.querySelectorAll('.result .alti-text')].some(p => "
        f"p.textContent.includes({json.dumps(text)}))"
    )


def scores(page, method="alti", panel=0):
    """The words of a row with the scores that it shows."""
    spans = f".result:nth-child({panel + 1}) [data-method={method}] [data-score]"
    code = f"[...document.querySelectorAll('{spans}')]"
    code += ".map(span => [span.textContent, span.dataset.score])"
    return [(word, float(score.replace("−", "-"))) for word, score in page.run(code)]


def same(shown, found):
    wanted = found.words()
    assert [word for word, _ in shown] == list(wanted.tokens)
    assert [score for _, score in shown] == pytest.approx(wanted.scores.tolist(), abs=6e-4)


def text(page, selector):
    """What an element says; None if it is not there."""
    return page.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")


FILE = """import('/picture.js').then(m => m.{}(document.getElementById('{}'))).then(blob =>
    new Promise(done => {{ const reader = new FileReader();
        reader.onload = () => done(reader.result); reader.readAsDataURL(blob) }}))"""


def file(page, kind, panel):
    """A picture of a panel as the export menu makes it."""
    return base64.b64decode(page.run(FILE.format(kind, panel)).partition(",")[2])


def printed(page, panel):
    """The PDF that a browser makes of a panel which the export menu prints."""
    page.run("window.print = () => { window.printing = true }, window.printing = false")
    page.run("document.querySelector('#keep').open = true")
    page.run(CHOOSE.format(panel, "panel"))
    page.click("[aria-label='Print or save as PDF']")
    page.wait("window.printing")
    made = page.send("Page.printToPDF", preferCSSPageSize=True)
    page.wait("(dispatchEvent(new Event('afterprint')), !document.querySelector('svg.printed'))")
    page.run("document.querySelector('#keep').open = false")
    return base64.b64decode(made["data"])


def offered(page):
    """The panels that the export menu offers."""
    page.run("document.querySelector('#keep').open = true")
    page.wait("[...document.querySelector('#panel').options].some(o => o.disabled)")
    names = page.run(
        "[...document.querySelector('#panel').options].filter(o => !o.disabled).map(o => o.value)"
    )
    page.run("document.querySelector('#keep').open = false")
    return names


def high_contrast(page, on=True):
    features = [{"name": "forced-colors", "value": "active"}] if on else []
    page.send("Emulation.setEmulatedMedia", features=features)

"""Make pictures of the page of a language model: answers, what if, long prompts, alignments.

python examples/page_answers.py FOLDER MODEL [TRANSLATOR]

MODEL is a causal language model with a chat template (e.g. SmolLM2-135M-Instruct), TRANSLATOR an
encoder–decoder. Each view is drawn at 320, 390 and 1400 pixels, light, dark and in high contrast;
cards of four of them go into docs/images (needs Chromium).
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

from page_views import MODES, looked  # noqa: E402

from browser import Browser  # noqa: E402
from serving import running  # noqa: E402

FREE = "!document.body.hasAttribute('aria-busy')"
READY = f"!!document.querySelector('.result') && {FREE}"
DONE = f"!!document.querySelector('#prompted') && {FREE}"
MEASURED = "!!document.querySelector('.scatter')"
TEXT = "The acting is superb, but the plot is a tedious mess."
DOCUMENTS = [
    "The Eiffel Tower was finished in 1889. It was built for a world's fair in Paris.",
    "Big Ben is the name of a bell in London. The tower that holds it was finished in 1859.",
]
ASKED = {
    "form": "documents",
    "documents": DOCUMENTS,
    "question": "When was the Eiffel Tower finished?",
    "answer": "The Eiffel Tower was finished in 1889.",
}
FILLERS = (
    " The city of Paris has many bridges over the river, and people walk along them at night." * 12,
    " The weather in London is mild, and it often rains for an hour before the sun is back." * 12,
)
LONG = {**ASKED, "documents": [text + more for text, more in zip(DOCUMENTS, FILLERS, strict=True)]}
SOURCE = {"text": "Zwei Hunde laufen im Schnee.", "answer": "Two dogs run in the snow."}
SIZES = [(width, mode) for width in (1400, 390, 320) for mode in MODES]
CARDS = {"answer": "#answer", "whatif": "#whatif", "long": "#answer", "alignment": "#answer"}
WAIT = 300  # seconds
UNSEEN = """document.querySelectorAll('.fold > p').forEach(text =>
    (text.style.contentVisibility = 'visible'))"""  # a picture holds more than a window


def views(model: str, translator: str | None) -> dict[str, tuple[dict[str, object], str]]:
    """What the page shows, and when it is there."""

    def asked(name: str, question: dict[str, object]) -> dict[str, object]:
        return {"model": name, "ask": "answer", "prompt": json.dumps(question)}

    shown = {
        "answer": (asked(model, {**ASKED, "part": [7, 12]}), DONE),
        "sentences": (asked(model, {**ASKED, "by": "sentence"}), DONE),
        "whatif": ({"text": TEXT, "methods": "absence"}, READY),
        "long": (asked(model, LONG), DONE),
    }
    if translator:
        ready = "!!document.querySelector('#alignment')"
        shown["alignment"] = (asked(translator, SOURCE), ready)
    return shown


def prepare(browser: Browser, name: str) -> None:
    """What a user would click."""
    if name != "whatif":
        return
    words = "[...document.querySelectorAll('.result [data-score]')]"
    browser.run(f"{words}.find(word => word.textContent === 'mess').click()")
    browser.click("#without")
    browser.wait("document.querySelectorAll('#tries li').length === 1", WAIT)
    browser.click("#measure")
    browser.wait(MEASURED, WAIT)


def main(folder: Path, *models: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = [model.name for model in models]
    shown = views(names[0], names[1] if names[1:] else None)
    with running(*models) as address, TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        for name, (view, ready) in shown.items():
            browser.size(1400, 900)
            browser.open(f"{address}/#{urlencode(view)}")
            browser.wait(ready, WAIT)
            prepare(browser, name)
            for width, mode in SIZES:
                looked(browser, width, mode)
                browser.run(UNSEEN)
                file = folder / f"{name}-{width}-{mode}.png"
                browser.picture(file)
                print(file)
            if name in CARDS:
                browser.size(1100, 200)  # no taller than the card
                card(browser, CARDS[name], ROOT / "docs" / "images" / f"page-{name}.png")
        browser.close()


def card(browser: Browser, selector: str, file: Path) -> None:
    """One card of the page alone."""
    hide = f"[...document.querySelectorAll('main > *')].filter(e => !e.matches('{selector}'))"
    browser.run(f"window.away = {hide}; window.away.forEach(e => e.style.display = 'none'); 0")
    browser.run("document.querySelectorAll('.top, footer').forEach(e => e.style.display = 'none')")
    browser.picture(file)
    print(file)


if __name__ == "__main__":  # the worker process imports this file too
    main(*map(Path, sys.argv[1:]))

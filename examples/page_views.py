"""Make pictures of the page's newer views: heads, lens, options, models, a set (needs Chromium).

python examples/page_views.py FOLDER MODEL     MODEL: a causal language model, e.g. SmolLM2-135M

Each is drawn at 320, 390 and 1400 pixels, light, dark and in high contrast; three cards go into
docs/images.
"""

import base64
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import tiny  # noqa: E402
from browser import Browser  # noqa: E402
from pages import high_contrast  # noqa: E402
from serving import running  # noqa: E402

READY = "!!document.querySelector('.result') && !document.body.hasAttribute('aria-busy')"
TEXT = "The acting is superb, but the plot is a tedious mess."
SET = """text,label
A gorgeous and witty film.,positive
A tedious mess.,positive
It is a dull film.,negative
Superb acting and a clever plot.,negative
Not a bad film at all.,positive
"""
OPEN = """(() => {{
  const bytes = Uint8Array.from(atob('{}'), letter => letter.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], 'films.csv'));
  document.querySelector('#set-file').files = files.files;
  document.querySelector('#set-file').dispatchEvent(new Event('change'));
}})()"""
PREDICTED = "document.querySelectorAll('#set-rows [data-name=prediction]:not(:empty)').length === 5"
CARDS = {"heads": "#deeper", "lens": "#deeper", "set": "#sets"}
MODES = ("light", "dark", "contrast")
HEADS = "!!document.querySelector('.head')"
SAID = "!!document.querySelector('#lens-table tr')"


def views(speaker: str) -> dict[str, tuple[dict[str, object], str]]:
    """What the page shows, and when it is there."""
    return {
        "heads": ({"text": TEXT, "open": "heads", "layer": 3, "methods": "alti"}, HEADS),
        "lens": (
            {"model": speaker, "text": "The capital of France is", "open": "lens", "layer": 28},
            SAID,
        ),
        "models": ({"text": TEXT, "versus": "other", "methods": "alti,linear"}, READY),
        "options": ({"text": TEXT, "methods": "alti,dimming"}, READY),
        "set": ({"text": TEXT, "methods": "alti"}, READY),
    }


def looked(browser: Browser, width: int, mode: str) -> None:
    """A window of a width: light, dark or in high contrast."""
    browser.size(width, 900, dark=mode == "dark")
    if mode == "contrast":
        high_contrast(browser)


def prepare(browser: Browser, name: str) -> None:
    """What a user would click."""
    if name == "options":
        browser.click("#options summary")
    if name == "set":
        browser.run(OPEN.format(base64.b64encode(SET.encode()).decode()))
        browser.wait("!document.querySelector('#set-body').hidden")
        browser.click("#set-predict")
        browser.wait(PREDICTED, 60)
        browser.click("#set-rows tr:nth-child(1) button")
        browser.wait(READY)
        browser.click("#view-keep")


def card(browser: Browser, selector: str, file: Path) -> None:
    """A part of the page alone."""
    box = f"document.querySelector({selector!r}).getBoundingClientRect()"
    x, y, width, height = browser.run(
        f"(r => [r.x + scrollX, r.y + scrollY, r.width, r.height])({box})"
    )
    clip = {"x": x - 8, "y": y - 8, "width": width + 16, "height": height + 16, "scale": 1}
    shot = browser.send(
        "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
    )
    file.write_bytes(base64.b64decode(shot["data"]))
    print(file)


def main(folder: Path, speaker: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        names = {"positive": 0, "negative": 1}
        numbers = {number: name for name, number in names.items()}
        tiny.saved(Path(profile, "other"), id2label=numbers, label2id=names)
        with running(Path(profile, "other"), speaker) as address:
            browser = Browser(Path(profile, "user"))
            for name, (view, there) in views(speaker.name).items():
                for width in (320, 390, 1400):
                    for mode in MODES:
                        looked(browser, width, mode)
                        browser.open(f"{address}/#{urlencode(view)}")
                        browser.wait(f"{READY} && {there}", 60)
                        prepare(browser, name)
                        file = folder / f"{name}-{width}-{mode}.png"
                        browser.picture(file, full=name != "options")
                        print(file)
                        if name in CARDS and (width, mode) == (1400, "light"):
                            card(browser, CARDS[name], ROOT / f"docs/images/page-{name}.png")
            print(browser.problems or "no problems")
            browser.close()


if __name__ == "__main__":  # the worker process imports this file too
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

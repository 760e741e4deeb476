"""Make the pictures of the web page in docs/images again (needs Chromium)."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser  # noqa: E402
from serving import running  # noqa: E402

READY = "!!document.querySelector('.result') && !document.body.hasAttribute('aria-busy')"
TEXT = "The acting is superb, but the plot is a tedious mess."
TWO = {"text": "It is a good film.", "other": "It is not a good film."}
VIEWS = {  # name: width, dark, what the page shows
    "page": (1100, False, {"text": TEXT}),
    "page-dark": (1100, True, {"text": TEXT, "methods": "alti,absence,linear,attention_rollout"}),
    "page-compare": (1100, False, TWO),
    "page-phone": (390, False, {"text": TEXT}),
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with running() as address, TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        for name, (width, dark, view) in VIEWS.items():
            browser.size(width, 800, dark=dark)
            browser.open(f"{address}/#{urlencode(view)}")
            browser.wait(READY)
            browser.picture(folder / f"{name}.png")
            print(folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":  # the worker process imports this file too
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")

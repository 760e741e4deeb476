"""The documentation site: it is built strictly, and loads nothing from elsewhere.

`make docs` runs this; without its tools the tests are skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the site's tools are not installed: make docs")

from browser import CHROMIUM, Browser
from speed import slow

pytestmark = slow  # make docs
ROOT = Path(__file__).parents[1]
PARTS = ("mkdocs.yml", "docs", "src", "reproduction", "examples", "benchmarks")
KEPT = (".venv", ".cache", "site", "default_model", "results", "__pycache__")


@pytest.fixture
def copy(tmp_path):
    """What the site is made of, to be changed."""
    return copied(tmp_path)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as it is."""
    folder = copied(tmp_path_factory.mktemp("whole"))
    done = built(folder)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def copied(place: Path) -> Path:
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns(*KEPT))
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(file, place)
    for folder in ("src/alti/model/default_model", "reproduction/results"):
        (place / folder).symlink_to(ROOT / folder)
    return place


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    build = [sys.executable, "-m", "mkdocs", "build"]  # --quiet would be: no warning fails
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(build, cwd=folder, env=quiet, capture_output=True, text=True, check=False)


def test_it_is_built_and_needs_no_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(https?:[^\"' >]*)"
            r"|<link\b[^>]*\bhref=[\"']?(https?:[^\"' >]*)",
            page.read_text(encoding="utf-8"),
        )
        assert not loaded, page
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8"), style


def test_formulas_are_typeset(site):
    assert "+ residual<sub>i</sub> + bias<sub>i</sub>" in (site / "theory.html").read_text()
    assert "A[h,i,j] f[h,j]<sub>d</sub>|)" in (site / "performance.html").read_text()


@pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")
def test_search_needs_no_server(site, tmp_path):
    browser = Browser(tmp_path)
    try:
        browser.open((site / "howto" / "scale.html").as_uri())
        asked = (
            "{const q = document.querySelector('[name=query]'); q.focus(); q.value = 'surrogate';"
        )
        asked += "q.dispatchEvent(new Event('keyup')); q.dispatchEvent(new Event('input'))}"
        browser.wait(f"{asked} document.querySelectorAll('.md-search-result__item').length", 60)
        assert browser.problems == []
    finally:
        browser.close()


@pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pictures_take_the_theme_and_fit_a_phone(site, tmp_path, dark):
    browser = Browser(tmp_path)
    try:
        browser.size(390, 844, dark=dark)
        browser.open((site / "index.html").as_uri())
        seen = "[...document.querySelectorAll('.figure')].filter(a => a.offsetParent)"
        theme = "dark" if dark else "light"
        assert browser.run(f"{seen}.map(a => a.href.split('/').pop())") == [f"methods-{theme}.svg"]
        assert browser.run("document.documentElement.scrollWidth") == 390
        browser.open((site / "page.html").as_uri())
        assert browser.run(f"{seen}.map(a => a.href.split('/').pop())") == ["page-phone.png"]
        browser.open((site / "pictures.html").as_uri())
        box = (
            "(a => [a.scrollWidth, a.clientWidth])(document.querySelector('.figure[href=\"{}\"]'))"
        )
        wide, seen = browser.run(box.format("images/graph.svg"))
        assert wide > 1.5 * seen  # it scrolls in its own box, readable
        wide, seen = browser.run(box.format("images/methods-light.svg"))
        assert wide == seen  # readable as a whole
        assert browser.run("document.documentElement.scrollWidth") == 390
        browser.open((site / "notebooks" / "classifier.html").as_uri())
        card = "document.querySelector('.alti')"
        assert browser.run(f"getComputedStyle({card}).colorScheme") == theme
        assert browser.run(f"{card}.getBoundingClientRect().width") > 220  # no room for Out[2]:
    finally:
        browser.close()


NOWHERE = {
    "[a page](nowhere.md)": "a link 'nowhere.md'",
    "[a part](theory.md#lost)": "a link 'theory.md#lost'",
    "[a file](../src/alti/gone.py)": "links to src/alti/gone.py, which does not exist",
    "[a part of README](../README.md#gone)": "README.md#gone'",
    "![a picture](images/none.svg)": "a link 'images/none.svg'",
}


def test_what_leads_nowhere_fails(copy):
    """One build for all: each is a warning, of which a strict build must have none."""
    page = copy / "docs" / "guarantees.md"
    page.write_text("\n\n".join([page.read_text(), *NOWHERE, ""]))
    (copy / "docs" / "lost.md").write_text("# In no menu\n")
    done = built(copy)
    assert done.returncode != 0
    warned = [line for line in done.stderr.splitlines() if "WARNING" in line]
    for reason in (*NOWHERE.values(), 'not included in the "nav"'):
        assert len([line for line in warned if reason in line]) == 1, done.stderr
    assert "- lost.md\n" in done.stderr
    assert f"Aborted with {len(NOWHERE) + 1} warnings in strict mode" in done.stderr + done.stdout


def test_an_object_that_is_not_there_fails(copy):
    page = copy / "docs" / "guarantees.md"
    page.write_text(f"{page.read_text()}\n\n::: alti.nowhere\n")
    done = built(copy)
    assert done.returncode != 0
    assert "alti.nowhere" in done.stderr

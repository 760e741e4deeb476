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

from speed import slow

pytestmark = slow  # make docs
ROOT = Path(__file__).parents[1]
PARTS = ("mkdocs.yml", "docs", "src", "reproduction", "examples", "benchmarks")
KEPT = (".venv", ".cache", "site", "default_model", "results", "__pycache__")


@pytest.fixture
def copy(tmp_path):
    """What the site is made of, to be changed."""
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns(*KEPT))
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(file, tmp_path)
    for folder in ("src/alti/model/default_model", "reproduction/results"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    return tmp_path


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    build = [sys.executable, "-m", "mkdocs", "build"]  # --quiet would be: no warning fails
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(build, cwd=folder, env=quiet, capture_output=True, text=True, check=False)


def test_it_is_built_and_needs_no_network(copy):
    done = built(copy)
    assert done.returncode == 0, done.stderr
    pages = list((copy / "site").rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(https?:[^\"' >]*)"
            r"|<link\b[^>]*\bhref=[\"']?(https?:[^\"' >]*)",
            page.read_text(encoding="utf-8"),
        )
        assert not loaded, page
    assert (copy / "site" / "search" / "search_index.js").is_file()  # a folder has no server
    for style in (copy / "site").rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8"), style


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

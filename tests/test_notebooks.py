"""The notebooks of the docs: they run, and what they store is what they show.

`make docs` runs this; without its tools the tests are skipped.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="the site's tools are not installed: make docs")
pytest.importorskip("ipykernel", reason="the site's tools are not installed: make docs")

import nbformat

import documents
from speed import slow

pytestmark = [
    slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of jupyter's libraries
]
EXAMPLE = documents.ROOT / "examples" / "notebooks.py"
SMALLER = {"PAIRS, EPOCHS = 6000, 8": "PAIRS, EPOCHS = 256, 1"}


def script():
    spec = importlib.util.spec_from_file_location("notebooks", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["notebooks"] = module
    spec.loader.exec_module(module)
    return module


NOTEBOOKS = script().NOTEBOOKS


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return str(documents.models(tmp_path_factory.mktemp("models"))["SmolLM2"])


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == ["answer", "classifier", "compare", "translation"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(notebook, writer, tmp_path):
    instead = {"HuggingFaceTB/SmolLM2-135M-Instruct": writer, **SMALLER}
    done = script().run(notebook, instead, tmp_path)
    stored = nbformat.read(notebook, as_version=4)
    assert [kinds(cell) for cell in done.cells] == [kinds(cell) for cell in stored.cells]
    assert "image/png" in str([kinds(cell) for cell in stored.cells])


def kinds(cell: nbformat.NotebookNode) -> list[list[str]]:
    """What a cell shows: text, HTML, pictures."""
    outputs = cell.get("outputs", [])
    return [sorted(output.get("data", {"text/plain": ""})) for output in outputs]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_names_no_folder_of_a_machine(notebook):
    text = notebook.read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert "site-packages" not in text
    assert notebook.stat().st_size < 600_000

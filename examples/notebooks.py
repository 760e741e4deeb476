"""Runs the notebooks of docs/notebooks and stores what they show.

    python examples/notebooks.py [classifier …] [NAME=FOLDER …]

`HuggingFaceTB/SmolLM2-135M-Instruct=FOLDER` takes a model from a folder. Notebooks run in an empty
folder of their own; tests/test_notebooks.py runs them with small stand-ins and stores nothing.
"""

import sys
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def run(notebook: Path, instead: Mapping[str, str], folder: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs, but for messages; some strings of its code are replaced."""
    written = nbformat.read(notebook, as_version=4)
    executed = deepcopy(written)
    for cell in executed.cells:
        for old, new in instead.items():
            cell.source = cell.source.replace(old, new)
    NotebookClient(executed, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell, done in zip(written.cells, executed.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs = [output for output in done.outputs if output.get("name") != "stderr"]
            cell.execution_count = done.execution_count
    return written


def main() -> None:
    instead = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
    chosen = [argument for argument in sys.argv[1:] if "=" not in argument]
    for notebook in (path for path in NOTEBOOKS if not chosen or path.stem in chosen):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(run(notebook, instead, Path(folder)), notebook)
        print(notebook.name)


if __name__ == "__main__":
    main()

"""The shape of the package: who imports whom, what is public, what is heavy."""

import ast
import importlib
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import alti

from speed import slow

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "alti"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__main__.py")

ROOMS = (  # a module imports from its own room and earlier ones; "" holds errors, families, files
    "",
    "read",
    "mix",
    "methods",
    "model",
    "views",
    "metrics",
    "experiments",
    "engines",
    "web",
    "cli",
)


def name_of(path: Path) -> str:
    return (
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        .removesuffix("__init__")
        .removesuffix(".")
    )


NAMES = {name_of(path) for path in MODULES}


def room_of(name: str) -> str:
    return name.partition(".")[0] if name.partition(".")[0] in ROOMS else ""


def imports(path: Path) -> set[str]:
    """The modules of alti that a file imports at once, or that only type checkers see."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    later = {id(node) for function in functions for node in ast.walk(function)}
    found = set()
    for node in ast.walk(tree):
        if (
            id(node) in later
            or not isinstance(node, ast.ImportFrom)
            or not (node.module or "").startswith("alti")
        ):
            continue
        module = node.module.removeprefix("alti").removeprefix(".")
        inner = [f"{module}.{alias.name}".removeprefix(".") for alias in node.names]
        found |= {name if name in NAMES else module for name in inner}
    return found


@cache
def all_imports() -> dict[str, set[str]]:
    return {name_of(path): imports(path) for path in MODULES}


@pytest.mark.parametrize("name", [name for name in sorted(NAMES) if name])
def test_imports_go_from_room_to_room_in_one_direction(name):
    for other in all_imports()[name] - {""}:  # alti imports its public names when they are used
        assert ROOMS.index(room_of(other)) <= ROOMS.index(room_of(name)), f"{name} imports {other}"


def test_no_two_modules_need_each_other():
    others = {name: found - {"", name} for name, found in all_imports().items() if name}
    assert list(TopologicalSorter(others).static_order())


def test_no_room_has_the_name_of_a_public_function():
    assert not set(ROOMS) & set(alti.__all__)


CALLS = """
import importlib, pkgutil, alti
for module in pkgutil.walk_packages(alti.__path__, "alti."):
    if not module.name.rpartition(".")[2].startswith(("__main__", "triton")):
        importlib.import_module(module.name)
model = alti.load(device="cpu")
found = model.explain("a film")
alti.explain(model.model, model.tokenizer, "a film")
inputs = model.encoder.collate([model.encoder.encode("a film")]).tensors
alti.walk(model.model, inputs, lambda block: None)
assert max(alti.check(model.model, inputs)) < 1e-4
blocks = alti.trace(model.model, inputs)
for function in (alti.contributions, alti.norms, alti.parts):
    function(blocks[0])
alti.rollout([alti.contributions(block) for block in blocks])
alti.linear_view(model.model, inputs)
alti.method(alti.METHODS["alti"].function)
alti.metric(alti.METRICS["aopc"].ask)
alti.html.page(found), alti.latex.table(found), alti.terminal.compare([found])
print([name for name in alti.__all__ if type(getattr(alti, name)).__name__ == "module"])
"""


@slow
def test_public_names_are_callable_after_every_module_was_imported():
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-c", CALLS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def uses(word: str) -> set[str]:
    return {name_of(path) for path in MODULES if re.search(word, path.read_text())}


def test_hooks_and_heavy_libraries_have_one_place():
    assert uses(r"register_forward") == {
        "read.by_layer",
        "read.events",
        "read.lens",
        "read.quantised",
        "experiments.cost",
    }
    assert uses(r"AttentionInterface\.register") == {"read.attention_hook"}
    assert {room_of(name) for name in uses(r"import (typer|rich)|from (typer|rich)")} == {"cli"}
    assert uses(r"(?m)^(import|from) matplotlib") == {
        "views.plots.alignments",
        "views.plots.attributions",
        "views.plots.benchmarks",
        "views.plots.graph",
        "views.plots.heads",
        "views.plots.look",
        "views.plots.pictures",
        "views.plots.sounds",
    }


def test_public_names_are_real_and_sorted():
    assert all(hasattr(alti, name) for name in alti.__all__)
    assert set(alti._LAZY) < set(alti.__all__)
    assert set(dir(alti)) == {*alti.__all__, *alti._MODULES, "__version__"}
    with pytest.raises(AttributeError, match="has no attribute 'explian'"):
        alti.explian  # noqa: B018  # reading it is the test


def test_every_error_is_an_alti_error():
    for name in ("UsageError", "LoadError", "UnsupportedModelError", "DecompositionError"):
        assert issubclass(getattr(alti, name), alti.AltiError)


def test_start_up_is_light():
    heavy = "('torch', 'transformers', 'numpy')"
    code = f"import sys, alti.cli; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
    seconds = []
    for _ in range(3):
        before = os.times()  # the processor's time: other tests run beside this one
        subprocess.run([sys.executable, "-m", "alti", "--help"], capture_output=True, check=True)
        after = os.times()
        spent = after.children_user + after.children_system
        seconds.append(spent - before.children_user - before.children_system)
    assert min(seconds) < 0.5, seconds


def test_version_is_the_packages():
    assert f'version = "{alti.__version__}"' in (ROOT / "pyproject.toml").read_text()


def body_lines(node: ast.FunctionDef) -> int:
    """Lines from the first statement behind the docstring to the last."""
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return node.end_lineno - body[0].lineno + 1


def test_functions_are_short():
    lengths = {
        f"{name_of(path)}.{node.name}": body_lines(node)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    longest = max(lengths, key=lengths.get)
    assert lengths[longest] <= 40, longest


def test_what_is_listed_as_quick_exists():
    for file in (ROOT / "tests").glob("test_*.py"):
        text = file.read_text()
        (listed,) = re.findall(r"^QUICK = \((.*?)^\)", text, re.MULTILINE | re.DOTALL) or [""]
        names = re.findall(r'"(\w+)"', listed)
        assert all(f"def {name}(" in text for name in names), file


@slow
def test_the_demo_explains_a_sentence_with_the_embedded_model(tmp_path):
    demo = [sys.executable, ROOT / "examples" / "demo.py"]
    done = subprocess.run(demo, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "negative (p = 0.9" in done.stdout
    assert "in float32: exact" in done.stdout
    assert "gorgeous" in (tmp_path / "demo.html").read_text()


STATIC = sorted((SOURCE / "web" / "static").glob("*.[jc]s*"))


@pytest.mark.parametrize("path", STATIC, ids=lambda path: path.name)
def test_the_page_s_files_are_short(path):
    """Lines of 100 columns, files of 400 lines; what they load is there."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 100] == []
    assert len(lines) <= 400
    for name in re.findall(r'from "/(.+?)"', "\n".join(lines)):
        assert (path.parent / name).is_file()


def test_the_reference_has_every_public_name_once():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: alti\.(\w+)$", page, re.M) + re.findall(r"`alti\.([A-Z]{2,})`", page)
    assert sorted(shown) == sorted(alti.__all__)
    directives = re.findall(r"^::: (.+)$", page, re.M)
    assert len(directives) == len(set(directives))
    for name in directives:
        *path, last = name.split(".")
        named = getattr(importlib.import_module(".".join(path)), last)
        assert isinstance(named, type) or ">>>" in named.__doc__, f"{name} has no example"
    headings = re.findall(r"^## .+$", page, re.M)
    assert len(headings) == len(set(headings))

"""The shape of the package: who imports whom, what is public, what is heavy."""

import ast
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import alti

import tiny

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "alti"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__main__.py")

RANKS = [  # a module imports only from earlier rows
    {"_errors"},
    {"families", "files", "forking", "recording", "fused", "kernels", "words", "characters"},
    {"affine", "colours", "console", "structure", "outputs", "data", "tables", "metrics.registry"},
    {"fingerprints", "pieces", "pretrained", "resuming", "stored"},
    {"terminal", "html", "latex"},  # views: attribution imports them when called
    {"overhear", "carrying"},
    {"comparing"},
    {"exactness"},
    {"metrics.faithfulness", "metrics.robustness", "metrics.plausibility", "metrics.anisotropy"},
    {"metrics"},
    {"blocks"},
    {"linear"},
    {"kernels.shared", "kernels.stored"},
    {"kernels.reference", "kernels.blocked", "kernels.gram", "kernels.numba", "kernels.triton"},
    {"mixing", "proofs"},
    {"methods.registry"},
    {"methods.layerwise"},
    {
        "methods.alti",
        "methods.attention",
        "methods.gradients",
        "methods.linear",
        "methods.norms",
        "methods.occlusion",
    },
    {"methods"},
    {"encoding", "attribution", "graphs"},
    {"targets", "plots.look"},
    {"plots.attributions", "plots.benchmarks"},
    {"plots"},
    {"model"},
    {"loading", "predicting"},
    {"judging", "train"},
    {"bench"},
    {""},  # alti itself: public names, lazily
    {"web"},
    {"web.settings"},
    {"web.questions", "web.desk", "web.worker"},
    {"web.openapi", "web.connections"},
    {"web.app"},
    {"web.serving"},
    {"cli.shared"},
    {"cli.lists", "cli.runs", "cli.texts"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def imports(path: Path) -> set[str]:
    """The modules of alti that a file imports when it is imported; those that only type checkers see are left out."""
    tree = ast.parse(path.read_text())
    guarded = {
        id(node) for block in ast.walk(tree) if isinstance(block, ast.If | ast.FunctionDef) for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in guarded or not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("alti"):
            continue
        module = node.module.removeprefix("alti").removeprefix(".")
        inner = [f"{module}.{alias.name}".removeprefix(".") for alias in node.names]
        found |= {name if name in RANK else module for name in inner}
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path):
    name = name_of(path)
    assert name in RANK, "a new module: give it a row in RANKS"
    for other in imports(path):
        # types of the registry are shared by what stands between methods and model
        assert RANK[other] < RANK[name], f"{name} imports {other}"


def uses(word: str) -> set[str]:
    return {name_of(path) for path in MODULES if re.search(word, path.read_text())}


def test_hooks_and_heavy_libraries_have_one_place():
    assert uses(r"register_forward") == {"blocks", "exactness", "linear", "judging"}
    assert uses(r"AttentionInterface\.register") == {"overhear"}
    assert uses(r"import (typer|rich)|from (typer|rich)") == {"cli", "cli.runs", "cli.shared", "cli.texts", "console"}
    assert uses(r"(?m)^(import|from) matplotlib") == {"plots.attributions", "plots.benchmarks", "plots.look"}


def test_public_names_are_real_and_sorted():
    assert all(hasattr(alti, name) for name in alti.__all__)
    assert set(alti._LAZY) < set(alti.__all__)
    assert set(dir(alti)) == {*alti.__all__, "__version__"}
    with pytest.raises(AttributeError, match="has no attribute 'explian'"):
        alti.explian  # noqa: B018  # reading it is the test


def test_every_error_is_an_alti_error():
    for name in ("UsageError", "LoadError", "UnsupportedModelError", "DecompositionError"):
        assert issubclass(getattr(alti, name), alti.AltiError)


def test_start_up_is_light():
    code = "import sys, alti.cli; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "alti", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.5


def test_version_is_the_packages():
    assert f'version = "{alti.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_functions_are_short():
    lengths = {
        f"{name_of(path)}.{node.name}": sum(1 for _ in range(node.body[0].lineno, node.end_lineno + 1))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    longest = max(lengths, key=lengths.get)
    assert lengths[longest] <= 60, longest


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    folder = tiny.saved(tmp_path / "model")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        code = re.sub(r'alti\.load\("[^"]+"\)', f"alti.load({str(folder)!r})", block)
        exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_the_demo_explains_a_sentence_with_the_embedded_model(tmp_path):
    demo = [sys.executable, ROOT / "examples" / "demo.py"]
    done = subprocess.run(demo, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "negative (p = 0.9" in done.stdout
    assert "in float32: exact" in done.stdout
    assert "gorgeous" in (tmp_path / "demo.html").read_text()

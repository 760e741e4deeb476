"""What is given to users: a wheel and a source archive, built of a copy and looked into."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import alti

ROOT = Path(__file__).parents[1]
BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]  # setuptools writes arguments of its own there
build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""
NEEDED = (
    "__init__.py",
    "py.typed",
    "model/default_model/config.json",
    "model/default_model/model.safetensors",
    "model/default_model/tokenizer.json",
    "views/html.css",
    "web/static/index.html",
)
EXPLAINED = """
import alti
found = alti.load(device="cpu").explain("A clever film.")
print(alti.__file__, found.label, found.words().top(1)[0][0])
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The source archive and the wheel."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("built")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
    command = [sys.executable, "-W", "ignore", "-c", BUILD, folder]
    subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
    (archive,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return archive, wheel


def test_the_wheel_holds_all_that_is_needed_and_no_more(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        facts = f"alti-{alti.__version__}.dist-info"
        assert "alti = alti.cli:main" in wheel.read(f"{facts}/entry_points.txt").decode()
    assert f"{facts}/licenses/LICENSE" in names
    assert {f"alti/{name}" for name in NEEDED} <= names
    files = [path.relative_to(ROOT / "src") for path in (ROOT / "src" / "alti").rglob("*.*")]
    own = {path.as_posix() for path in files if path.suffix not in ("", ".pyc")}
    assert own <= names  # nothing of the package is left out
    assert {name.partition("/")[0] for name in names} == {"alti", facts}


def test_the_source_archive_holds_what_the_wheel_is_built_from(built):
    with tarfile.open(built[0]) as archive:
        names = set(archive.getnames())
    top = f"alti-{alti.__version__}"
    assert {f"{top}/src/alti/{name}" for name in NEEDED} <= names
    assert {f"{top}/{name}" for name in ("pyproject.toml", "README.md", "LICENSE")} <= names


@pytest.mark.skipif("ALTI_TEST_INSTALL" not in os.environ, reason="make install: minutes")
@pytest.mark.parametrize("which", [0, 1], ids=["sdist", "wheel"])
def test_it_installs_in_an_empty_environment_and_explains(built, which, tmp_path):
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile"]  # that takes half of the time
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", built[which]], check=True)
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = {"capture_output": True, "text": True, "check": True, "cwd": tmp_path, "env": alone}
    done = subprocess.run([python, "-W", "ignore", "-c", EXPLAINED], **told)
    assert done.stdout.startswith(str(tmp_path / "empty"))
    assert done.stdout.endswith(" positive clever\n")
    done = subprocess.run([tmp_path / "empty" / "bin" / "alti", "explain", "A dull film."], **told)
    assert "negative" in done.stdout


def test_the_citation_names_this_version():
    assert f"version: {alti.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_workflows_run_the_readmes_command_and_then_the_rest():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert "- run: make test\n      - run: make slow\n      - run: make install\n" in workflow
    assert "make test\nmake slow\nmake install\nmake docs\n" in (ROOT / ".ci" / "run").read_text()

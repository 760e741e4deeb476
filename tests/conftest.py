import io
import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
os.environ["OMP_NUM_THREADS"] = "1"  # the tests run in two processes, which start others
if not os.environ.get("ALTI_TEST_GPU"):  # set it for tests/test_gpu.py; the others are of a CPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest
import torch

from alti import cli

import tiny
from speed import mark_what_is_not_quick

torch.set_num_threads(1)
for name in ("FORCE_COLOR", "NO_COLOR", "COLORFGBG"):
    os.environ.pop(name, None)  # what is printed is part of what is tested

collect_ignore = (
    [] if find_spec("uvicorn") else ["test_web.py", "test_web_page.py", "test_web_pictures.py"]
)

SHARED = Path(__file__).parents[2] / "shared"


NEED_CAPTUM = (
    "integrated_gradients",
    "test_a_backbone_is_trained_and_explained_over_seeds",
    "test_bench_leaves_out_what_a_family_has_not",
    "test_no_mask_token",
    "test_results_are_standard_json",
    "test_the_commands_on_a_random_model",
    "test_the_demo_explains_a_sentence_with_the_embedded_model",
)


def pytest_configure(config: pytest.Config) -> None:
    """Without numba, as on some machines with a GPU, a CPU is slower, and says so."""
    if find_spec("numba") is None:
        config.addinivalue_line("filterwarnings", "ignore:the numba kernel does not work here")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests are marked; those whose package is missing on this machine are skipped by name."""
    mark_what_is_not_quick(items)
    if find_spec("captum") is None:
        missing = pytest.mark.skip(reason="no captum here")
        for item in items:
            if any(name in item.name for name in NEED_CAPTUM):
                item.add_marker(missing)
    if find_spec("sklearn") is None:
        missing = pytest.mark.skip(reason="no scikit-learn here")
        for item in items:
            if "contextcite" in item.name:
                item.add_marker(missing)


@pytest.fixture
def shared() -> Path:
    """Reference outputs and real models that are not part of the project."""
    if not SHARED.is_dir():
        pytest.skip(f"no reference data at {SHARED}")  # the rest of the suite needs none
    return SHARED


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The address of a server: the embedded model and tiny ones.

    One has hostile labels, one is causal, one reads chats and long prompts, one translates.
    """
    from serving import running

    hostile = (
        "<img src=x onerror='document.body.dataset.owned = 1'>",
        "</option><b>bold</b>",
        "neither",
    )
    labels = dict(enumerate(hostile))
    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    tiny.saved(folder, id2label=labels, label2id={label: i for i, label in labels.items()})
    causal = folder.with_name("tiny-llama")
    tiny.speaking("llama", "AutoModelForCausalLM", "bpe").save_pretrained(causal)
    tiny.tokenizer("bpe").save_pretrained(causal)
    writers = [tiny.writer(folder.with_name(name)) for name in ("tiny-chat", "tiny-t5")]
    with running(folder, causal, *writers) as address:
        yield address


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A browser for all tests of the page."""
    from browser import Browser

    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def blank(chromium, server):
    """A browser that has opened nothing yet; nothing may go wrong in its console."""
    chromium.problems.clear()
    chromium.server = server
    chromium.size(1280, 900)
    yield chromium
    assert chromium.problems == []


@pytest.fixture
def page(blank):
    """The page as it opens."""
    from pages import show

    show(blank)
    return blank


@pytest.fixture
def run(monkeypatch, capsys):
    """alti ARGUMENTS -> exit code, stdout, stderr"""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        warnings.simplefilter("default")
        monkeypatch.setattr(sys, "argv", ["alti", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.setenv("COLUMNS", "120")
        code = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code or 0
        return code, *capsys.readouterr()

    return run

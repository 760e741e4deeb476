"""The code of README, docs and docstrings: it runs, and its commands exist."""

import doctest
import importlib.util
import inspect
import re
import tomllib
from importlib import import_module

import pytest
import transformers
import typer.main
from PIL import Image

import alti
from alti.cli import app

import documents
import tiny
from documents import LANGUAGES, PAGES, ROOT, fences, indented
from speed import mostly_slow

PEERS = "docs/peers.md"  # its code is that of other tools too: benchmarks/peers.py runs it
PYTHON = [
    page
    for page in PAGES
    if page != PEERS and any(block.language == "python" for block in fences(page))
]
COMMANDS = [
    (block, program, arguments)
    for page in PAGES
    for block in [*fences(page), *indented(page)]
    for program, arguments in block.commands()
]
RUN = [
    block
    for page in PAGES
    for block in fences(page)
    if block.is_run and any(program == "alti" for program, _ in block.commands())
]
ELSEWHERE = {  # what a command with one of these words does is tested where it says
    "serve": "tests/test_web.py",  # it would go on for ever
    "--audio": "tests/test_translation.py",  # with a small speech model
    "--engine": "tests/test_ray.py",  # starts Ray
}
BRIEFLY = {  # options that make a command of the documents take seconds here
    "bench": ["--methods", "random,alti"],
    "train": ["--epochs", "1"],
    "translation": ["--vocabulary", "80", "--width", "16", "--layers", "1"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return documents.models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files of the documents; what their code registers is forgotten."""
    documents.write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    registries = (alti.FAMILIES, alti.METHODS, alti.METRICS)
    before = [dict(registry) for registry in registries]
    yield tmp_path
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


# --- pages ---


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    for block in fences(page):
        assert block.language in LANGUAGES, block.code
        commands = re.findall(r"^\$? *(?:alti|pip|make|python) .*", block.code, re.MULTILINE)
        assert block.language != "text" or not commands, "what a reader types is bash or console"


def test_few_blocks_are_not_run():
    left = [block for page in PAGES for block in fences(page) if not block.is_run]
    assert len(left) <= 4, [block.code for block in left]


@mostly_slow("page", PYTHON, quick=["README.md"])
def test_the_code_of_a_page_runs(page, folders, desk, capsys):
    def local(match: re.Match[str]) -> str:
        return f"alti.load({documents.stand_in(match[1], folders)!r})"

    names: dict[str, object] = {"__name__": page}
    printed = before = ""
    for block in fences(page):
        if block.language == "text" and "alti.load()" in before:  # of the embedded model
            assert printed == block.code
        if block.language == "python":
            before = block.code
        if "import ray" in block.code:  # tests/test_ray.py runs it
            continue
        if block.language == "python" and block.is_run:
            code = re.sub(r'alti\.load\("([^"]+)"\)', local, block.code)
            exec(compile(code, page, "exec"), names)
            printed = capsys.readouterr().out


@mostly_slow(
    "block",
    RUN,
    quick=lambda block: block.page == "README.md",
    ids=lambda block: f"{block.page}: {block.code[:40]}",
)
def test_the_commands_of_a_block_run(block, folders, desk, run):
    for program, arguments in block.commands():
        if program == "alti" and not ELSEWHERE.keys() & {*arguments}:
            (desk / "bench.jsonl").unlink(missing_ok=True)  # each is a run of its own
            code, _, err = run(*_here(arguments, folders))
            assert code == 0, (arguments, err)


def test_few_commands_are_run_elsewhere():
    listed = [arguments for block in RUN for _, arguments in block.commands()]
    assert 0 < len([one for one in listed if ELSEWHERE.keys() & {*one}]) <= 8
    assert all((ROOT / file).exists() for file in ELSEWHERE.values())


def _here(arguments: list[str], folders) -> list[str]:
    """A command with stand-ins for its models, and without the file that its output goes to."""
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    asked = " ".join(arguments)
    kind = "t5" if "align" in asked else "tagger" if "entities" in asked else "SmolLM2"
    special = ("--generate", "answer", "alignment", "align", "entities")
    writes = any(word in arguments for word in special)
    names = {"MODEL": kind if writes else "", "CHECKPOINT": ""}
    placed = [
        documents.stand_in(names.get(argument, argument), folders)
        if argument in names or before in ("--model", "-m")
        else argument
        for before, argument in zip(["", *arguments], arguments, strict=False)
    ]
    return placed + [
        option
        for word, options in BRIEFLY.items()
        if word in arguments and options[0] not in arguments
        for option in options
    ]


@pytest.mark.parametrize(
    ("program", "arguments"),
    [(program, arguments) for _, program, arguments in COMMANDS],
    ids=lambda part: part if isinstance(part, str) else " ".join(part),
)
def test_a_command_of_the_documents_exists(program, arguments):
    {
        "alti": _parsed,
        "make": _is_a_target,
        "pip": _is_an_extra,
        "python": _is_a_script,
        "curl": lambda arguments: None,
    }[program](arguments)


def _parsed(arguments: list[str]) -> None:
    """The command line takes these arguments; … stands for others."""
    group = typer.main.get_command(app)
    command = group.get_command(None, arguments[0])
    given = [argument for argument in arguments[1:] if argument != "…"]
    if ">" in given:
        given = given[: given.index(">")]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in given if word.startswith("--")} <= options
    if "…" not in arguments:
        command.make_context(arguments[0], given)


def _is_a_target(arguments: list[str]) -> None:
    targets = re.findall(r"^([\w./$()-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert arguments[0] in targets


def _is_an_extra(arguments: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
    assert {extra for group in named for extra in group.split(",")} <= project[
        "optional-dependencies"
    ].keys()


def _is_a_script(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        path = arguments[1].replace(".", "/")
        assert (
            arguments[1] in ("pytest", "venv")
            or (ROOT / f"{path}.py").exists()
            or (ROOT / path).is_dir()
        )
    elif arguments[0] != "-c":
        assert (ROOT / arguments[0]).exists()


@pytest.mark.parametrize("page", PAGES)
def test_the_extras_and_scripts_that_a_page_names_exist(page):
    text = (ROOT / page).read_text()
    named = re.findall(r"alti\[([\w,]+)\]", text)
    _is_an_extra([f"[{group}]" for group in named])
    for script in re.findall(r"`python ((?:-m )?[\w./]+)", text):
        _is_a_script(script.split())


def test_the_changelog_has_a_section_for_each_gain_and_no_other():
    text = (ROOT / "CHANGELOG.md").read_text()
    gains = re.findall(r"^\d+\. \*\*(.+?)\*\*", text, re.MULTILINE)
    sections = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert len(gains) > 5
    assert [gain.rstrip(".") for gain in gains] == sections


# --- beside other tools ---


def test_the_page_of_peers_is_made_of_the_code_that_ran():
    name = ROOT / "benchmarks" / "peers.py"
    spec = importlib.util.spec_from_file_location("peers", name)
    peers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peers)
    assert (ROOT / PEERS).read_text() == peers.page()


@pytest.mark.parametrize(
    "script", sorted((ROOT / "benchmarks/peers/alti").glob("*.py")), ids=lambda path: path.stem
)
def test_our_own_lines_run(script, folders, desk, capsys):
    kinds = {"CLASSIFIER": "", "LANGUAGE_MODEL": "SmolLM2", "TRANSLATOR": "t5"}
    code = script.read_text()
    for name, kind in kinds.items():
        code = code.replace(f'"{name}"', repr(str(folders[kind])))
    exec(compile(code, script.name, "exec"), {})
    assert capsys.readouterr().out


# --- docstrings ---


def _examples() -> list[tuple[str, list[doctest.Example]]]:
    """Every docstring with >>> in it: where it is, and its examples."""
    found = []
    for file in sorted((ROOT / "src" / "alti").rglob("*.py")):
        for text in re.findall(r'"""(.*?)"""', file.read_text(), re.DOTALL):
            if ">>>" in text:
                examples = doctest.DocTestParser().get_examples(inspect.cleandoc(text))
                place = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
                found.append((place.removesuffix(".__init__"), examples))
    return found


def _speaks_of(code: str, folders) -> dict[str, object]:
    """The names that an example takes for granted."""
    if not re.search(r"\b(model|text|attribution|maps|found|results)\b", code):
        return {}
    if "image" in code:
        image = Image.new("RGB", (12, 12), "orange")
        model = alti.Model(tiny.build("vit", "AutoModelForImageClassification"), None)
        return {"model": model, "image": image, "found": model.explain(image)}
    if ".entities()" in code:
        labels = {0: "O", 1: "B-PER", 2: "I-PER"}
        network = tiny.speaking("bert", "AutoModelForTokenClassification", id2label=labels)
        return {"model": alti.Model(network, tiny.tokenizer())}
    if "answer=" in code:
        return {"model": alti.load(folders["t5"])}
    if ".lens" in code:
        return {"found": alti.load(folders["SmolLM2"]).explain("A clever film", lens=True)}
    if "engines.results" in code:
        alti.engines.explain([f"Film {number}" for number in range(9)], "results")
    model = alti.load(folders[""])
    text = "A clever film. The plot is bad, and the acting is better than that."
    own = {"model": model, "text": text, "attribution": model.explain(text)}
    if "maps" in code:
        own["maps"] = model.heads(text, layer=3)
    if "tokenizer" in code:
        pipe = transformers.pipeline("text-classification", model.model, tokenizer=model.tokenizer)
        own |= {"model": model.model, "tokenizer": model.tokenizer, "classifier": pipe}
    return own


@pytest.mark.parametrize(("place", "examples"), _examples())
def test_the_examples_of_docstrings_run(place, examples, folders, desk, capsys):
    code = "".join(example.source for example in examples)
    names = {"alti": alti, **vars(import_module(place)), **_speaks_of(code, folders)}
    for library in re.findall(r"^(shap|captum)\.", code):
        names[library] = pytest.importorskip(library)
        pytest.importorskip("IPython", reason="these libraries show HTML in notebooks only")
        import_module(f"{library}.attr" if library == "captum" else library)
    for example in examples:
        load = re.sub(r'load\("[^"]+"\)', f"load({str(folders[''])!r})", example.source)
        exec(compile(load, place, "single"), names)
        printed = capsys.readouterr().out
        assert not example.want or doctest.OutputChecker().check_output(example.want, printed, 0)

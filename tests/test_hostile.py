"""Model folders that try to run code: none of it runs unless it is allowed."""

import io
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import alti
from alti import cli
from alti.experiments.resuming import SEAL, seal
from alti.experiments.train import Recipe, train

import tiny
from speed import slow

TEXTS = "y\ny\nA clever film\n"  # an answer to every question, were one asked
REFUSED = "names code of its own"


class Marker:
    """A pickle that leaves a file behind when it is read carelessly."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


class Unread(io.StringIO):
    """A standard input that nobody may read."""

    reads = 0

    def readline(self, *_):
        self.reads += 1
        return "y\n"

    read = __next__ = readline


@pytest.fixture
def marker(tmp_path, monkeypatch):
    modules = transformers.dynamic_module_utils
    monkeypatch.setattr(modules, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "code-has-run"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """One harmless folder of each family, to be copied."""
    root = tmp_path_factory.mktemp("clean")
    tiny.saved(root / "bert")
    tiny.saved(root / "llama", "llama")
    tiny.saved(root / "gpt2", "gpt2", "AutoModelForCausalLM")
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "texts.jsonl"
    rows = [{"text": f"a {'clever' if i % 2 else 'clumsy'} film", "label": i % 2} for i in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def edit(file: Path, **changes: object) -> None:
    old = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**old, **changes}))


def code(file: Path, marker: Path, *classes: str) -> None:
    """A module that leaves the marker when it is imported."""
    file.parent.mkdir(exist_ok=True)
    lines = [
        "import os, transformers",
        f"os.path.exists({str(marker)!r}) or os.mkdir({str(marker)!r})",
    ]
    file.write_text("\n".join([*lines, *classes]) + "\n")


OWN_CONFIG = "class OwnConfig(transformers.BertConfig): pass"
OWN_MODEL = "class Own(transformers.BertForSequenceClassification): config_class = OwnConfig"
OWN_TOKENIZER = "class OwnTokenizer(transformers.PreTrainedTokenizerFast): pass"


# Every way in. Each takes the folder and the marker that its code would leave.


def config_map(folder: Path, marker: Path, **changes: object) -> None:
    code(folder / "own.py", marker, OWN_CONFIG, OWN_MODEL)
    classes = {
        "AutoConfig": "own.OwnConfig",
        "AutoModel": "own.Own",
        "AutoModelForSequenceClassification": "own.Own",
    }
    edit(folder / "config.json", auto_map=classes, **changes)


def tokenizer_map(folder: Path, marker: Path, **changes: object) -> None:
    code(folder / "own.py", marker, OWN_TOKENIZER)
    classes = {"AutoTokenizer": [None, "own.OwnTokenizer"]}
    edit(folder / "tokenizer_config.json", auto_map=classes, **changes)


def tokenizer_of_a_module(folder: Path, marker: Path, name: str) -> None:
    code(folder / "own.py", marker, OWN_TOKENIZER)
    edit(folder / "tokenizer_config.json", tokenizer_class=name)


def processor(folder: Path, marker: Path) -> None:
    code(folder / "own.py", marker, "class Own: pass")
    classes = {
        "AutoProcessor": "own.Own",
        "AutoImageProcessor": "own.Own",
        "AutoFeatureExtractor": "own.Own",
    }
    for name in (
        "processor_config.json",
        "preprocessor_config.json",
        "video_preprocessor_config.json",
    ):
        edit(folder / name, auto_map=classes, processor_class="Own")


def generation(folder: Path, marker: Path) -> None:
    code(folder / "custom_generate" / "generate.py", marker, "def generate(*_, **__): pass")
    edit(folder / "generation_config.json", custom_generate="own", auto_map={"AutoModel": "own.A"})


def template(folder: Path, marker: Path) -> None:
    way_out = "''.__class__.__mro__[1].__subclasses__()[0].__init__.__globals__.os"
    escape = f"{{{{ {way_out}.mkdir('{marker}') }}}}"
    edit(folder / "tokenizer_config.json", chat_template=escape)
    (folder / "chat_template.jinja").write_text(escape)


def beside(folder: Path, marker: Path) -> None:
    for name in (
        "modeling_bert.py",
        "configuration_bert.py",
        "sitecustomize.py",
        "torch.py",
        "conftest.py",
    ):
        code(folder / name, marker)
    (folder / "requirements.txt").write_text("no-such-package\n")


def kernel(folder: Path, marker: Path, field: str) -> None:
    edit(folder / "config.json", **{field: "someone/kernel"})


def quantized(folder: Path, marker: Path) -> None:
    code(folder / "own.py", marker)
    method = {
        "quant_method": "own.Own",
        "modules_to_not_convert": ["own"],
        "linear_class": "own.Own",
    }
    edit(folder / "config.json", quantization_config=method)


def pickled(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Marker(marker)}, folder / "pytorch_model.bin")


def shards(folder: Path, marker: Path, ending: str, place: str) -> None:
    """Real weights, outside of the folder."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    outside = folder.parent / f"outside{ending}"
    if ending == ".safetensors":
        save_file(weights, outside, {"format": "pt"})
    else:
        torch.save(weights, outside)
    name = f"../{outside.name}" if place == "relative" else str(outside)
    stem = "model" if ending == ".safetensors" else "pytorch_model"
    index = folder / f"{stem}{ending}.index.json"
    edit(index, metadata={}, weight_map=dict.fromkeys(weights, name))


def adapter(folder: Path, marker: Path, *, pickle: bool = False, **changes: object) -> None:
    peft = pytest.importorskip("peft")
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    lora = peft.get_peft_model(whole, peft.LoraConfig(r=2, target_modules=["query"]))
    lora.save_pretrained(folder)
    code(folder / "own.py", marker, OWN_CONFIG, OWN_MODEL)
    edit(folder / "adapter_config.json", **changes)
    if pickle:
        (folder / "adapter_model.safetensors").unlink()
        torch.save({"weight": Marker(marker)}, folder / "adapter_model.bin")


Plant = Callable[[Path, Path], None]
own_class = {"auto_mapping": {"parent_library": "own", "base_model_class": "Own"}}
megatron = {"megatron_config": {"hidden_size": 1}, "megatron_core": "own"}

HARMLESS: dict[str, tuple[str, Plant]] = {  # read as if it were not there
    "config, known class": ("bert", config_map),
    "tokenizer, known class": ("bert", tokenizer_map),
    "tokenizer class of a module": (
        "bert",
        partial(tokenizer_of_a_module, name="own.OwnTokenizer"),
    ),
    "processors": ("bert", processor),
    "chat template": ("bert", template),
    "modules beside it": ("bert", beside),
    "quantization": ("bert", quantized),
}
REFUSALS: dict[str, tuple[str, Plant, str]] = {
    "config, own class": ("bert", partial(config_map, architectures=["Own"]), REFUSED),
    "tokenizer, own class": (
        "llama",
        partial(tokenizer_map, tokenizer_class="OwnTokenizer"),
        REFUSED,
    ),
    "tokenizer, own class, known family": (
        "bert",
        partial(tokenizer_map, tokenizer_class="OwnTokenizer"),
        REFUSED,
    ),
    "pickle": ("bert", pickled, "hold more than tensors"),
    "adapter, pickle": ("bert", partial(adapter, pickle=True), "adapter_model.safetensors"),
    "adapter, megatron": ("bert", partial(adapter, **megatron), "names the module own"),
    "shards, ../x.safetensors": (
        "bert",
        partial(shards, ending=".safetensors", place="relative"),
        "outside",
    ),
    "shards, /x.safetensors": (
        "bert",
        partial(shards, ending=".safetensors", place="absolute"),
        "outside",
    ),
    "shards, ../x.bin": ("bert", partial(shards, ending=".bin", place="relative"), "outside"),
    "shards, /x.bin": ("bert", partial(shards, ending=".bin", place="absolute"), "outside"),
}


@pytest.fixture
def planted(clean, tmp_path, marker):
    def planted(family: str, plant: Plant) -> Path:
        folder = Path(shutil.copytree(clean / family, tmp_path / "folder"))
        plant(folder, marker)
        return folder

    return planted


@pytest.fixture
def importable(monkeypatch):
    """A folder whose modules any library could import by their name."""

    def importable(folder: Path) -> Path:
        monkeypatch.syspath_prepend(folder)
        return folder

    return importable


@pytest.fixture
def unread(monkeypatch):
    monkeypatch.setattr(sys, "stdin", stdin := Unread())
    return stdin


def scores(folder: Path, **options: object) -> torch.Tensor:
    return alti.load(folder, device="cpu", **options).explain("A clever film").scores


@pytest.fixture
def run(monkeypatch, capsys):
    """alti ARGUMENTS -> exit code, stdout, stderr"""

    def run(*arguments, stdin=TEXTS):
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        warnings.simplefilter("default")
        monkeypatch.setattr(sys, "argv", ["alti", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin) if isinstance(stdin, str) else stdin)
        code = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code or 0
        return code, *capsys.readouterr()

    return run


def recipe(folder: Path, data: str) -> Recipe:
    return Recipe(str(folder), data, split=None, validation=None, epochs=1)


@slow
@pytest.mark.parametrize(("family", "plant"), HARMLESS.values(), ids=HARMLESS)
def test_unneeded_code_is_not_run(planted, clean, marker, unread, run, data, family, plant):
    folder = planted(family, plant)
    assert torch.equal(scores(folder), scores(clean / family))
    train(recipe(folder, data), folder.parent / "out", saves=0)
    assert not unread.reads
    code, out, err = run("explain", "-", "-m", folder, "--json")
    texts = [json.loads(line)["source"]["texts"][0] for line in out.splitlines()]
    assert texts == ["y", "y", "A clever film"]
    assert (code, err) == (0, "alti: 3 texts explained\n")
    assert not marker.exists()


@pytest.mark.parametrize(("family", "plant", "why"), REFUSALS.values(), ids=REFUSALS)
def test_needed_code_is_refused(planted, marker, unread, run, data, importable, family, plant, why):
    folder = importable(planted(family, plant))
    with pytest.raises(alti.LoadError, match=why):
        alti.load(folder, device="cpu")
    with pytest.raises(alti.LoadError, match=why):
        train(recipe(folder, data), folder.parent / "out", saves=0)
    assert not unread.reads
    stdin = io.StringIO(TEXTS)
    code, out, err = run("explain", "-", "-m", folder, "--json", stdin=stdin)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert why in err
    assert stdin.read() == TEXTS
    assert not marker.exists()


def test_the_refusal_says_what_and_how_to_allow_it(planted):
    folder = planted("llama", partial(tokenizer_map, tokenizer_class="OwnTokenizer"))
    with pytest.raises(alti.LoadError) as refusal:
        alti.load(folder)
    assert str(refusal.value) == (
        f"the folder {folder} names code of its own (tokenizer_config.json: own.OwnTokenizer), "
        "which was not run: read it, then allow it with trust_remote_code=True "
        "(--trust-remote-code)"
    )


def test_generation_code_is_not_run(planted, marker):
    folder = planted("gpt2", generation)
    alti.load(folder, device="cpu").explain("A clever film")
    assert not marker.exists()


def test_classes_that_an_adapter_names_are_not_imported(planted, marker, importable):
    folder = importable(planted("bert", partial(adapter, **own_class)))
    alti.load(folder, device="cpu").explain("A clever film")
    assert not marker.exists()


FIELDS = ("attn_implementation", "_attn_implementation", "_experts_implementation")


@slow
@pytest.mark.parametrize("field", FIELDS)
def test_a_kernel_of_the_hub_is_not_fetched(planted, clean, monkeypatch, data, field):
    folder = planted("bert", partial(kernel, field=field))
    fetched = []
    fetch = "transformers.modeling_utils.lazy_import_flash_attention"
    monkeypatch.setattr(fetch, lambda *names, **_: fetched.append(names))
    with pytest.warns(UserWarning, match="kernel someone/kernel, which is code and was not loaded"):
        model = alti.load(folder, device="cpu")
    assert torch.equal(
        model.explain("A clever film").scores,
        alti.load(clean / "bert", device="cpu").explain("A clever film").scores,
    )
    with pytest.warns(UserWarning, match="someone/kernel"):
        train(recipe(folder, data), folder.parent / "out", saves=0)
    assert not fetched


# What is allowed


def test_a_class_of_the_folders_own_where_it_is_allowed(planted, clean, marker, run, data):
    folder = planted("bert", partial(config_map, architectures=["Own"]))
    model = alti.load(folder, device="cpu", trust_remote_code=True)
    assert marker.exists()
    assert type(model.model).__name__ == "Own"
    same = alti.load(clean / "bert", device="cpu").explain("A clever film")
    assert torch.equal(model.explain("A clever film").scores, same.scores)
    code, out, _ = run("explain", "-", "-m", folder, "--json", "--trust-remote-code")
    assert (code, len(out.splitlines())) == (0, 3)
    allowed = replace(recipe(folder, data), trust_remote_code=True)
    assert train(allowed, folder.parent / "out", saves=0)["trust_remote_code"] is True


def test_a_tokenizer_of_the_folders_own_where_it_is_allowed(planted, marker):
    folder = planted("llama", partial(tokenizer_map, tokenizer_class="OwnTokenizer"))
    model = alti.load(folder, device="cpu", trust_remote_code=True)
    assert type(model.tokenizer).__name__ == "OwnTokenizer"
    assert marker.exists()


def test_a_head_that_the_folders_code_lacks_is_not_trained(planted, data):
    folder = planted("bert", partial(config_map, architectures=["Own"]))
    mask = replace(recipe(folder, data), task="mask", trust_remote_code=True)
    with pytest.raises(alti.LoadError, match="has no class for AutoModelForTokenClassification"):
        train(mask, folder.parent / "out", saves=0)


@pytest.mark.parametrize("command", ["explain", "compare", "bench", "check", "serve", "train"])
def test_every_command_that_loads_a_model_can_allow_it(run, command):
    assert "--trust-remote-code" in run(command, "--help")[1]


def test_commands_refuse_as_one(planted, run, data):
    folder = planted("llama", partial(tokenizer_map, tokenizer_class="OwnTokenizer"))
    out = folder.parent / "rows.jsonl"
    for arguments in (
        ("compare", "A clever film", "-m", folder),
        ("bench", "-m", folder, "--data", data, "--out", out),
        ("check", folder),
        ("train", folder, folder.parent / "out", "--data", data, "--split", "", "--validation", ""),
    ):
        code, printed, err = run(*arguments)
        assert (code, printed, err.count("\n")) == (1, "", 1)
        assert REFUSED in err


@slow
def test_piped_texts_do_not_answer_questions(planted, marker):
    """In a process of its own, where standard input is a pipe."""
    folder = planted("llama", partial(tokenizer_map, tokenizer_class="OwnTokenizer"))
    done = subprocess.run(
        [sys.executable, "-m", "alti", "explain", "-", "-m", folder, "--json"],
        input=TEXTS, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert REFUSED in done.stderr
    assert not marker.exists()


def test_no_library_reads_the_texts(planted, run, monkeypatch):
    """Whatever asks while a model is loaded gets no answer."""
    folder = planted("bert", beside)
    answers = []
    real = transformers.AutoConfig.from_pretrained

    def asking(*arguments, **options):
        try:
            answers.append(input("Do you wish to run it? [y/N] "))
        except EOFError:
            answers.append(None)
        return real(*arguments, **options)

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", asking)
    code, out, _ = run("explain", "-", "-m", folder, "--json")
    assert answers
    assert not any(answers)
    assert (code, len(out.splitlines())) == (0, 3)


def test_data_of_the_hub_runs_no_script(monkeypatch):
    calls = []
    library = type(
        "datasets",
        (),
        {"load_dataset": staticmethod(lambda *_, **options: calls.append(options) or {})},
    )
    monkeypatch.setitem(sys.modules, "datasets", library)
    with pytest.raises((alti.AltiError, StopIteration, RuntimeError)):
        list(alti.experiments.data.read("someone/data"))
    assert calls[0]["trust_remote_code"] is False


# A training that goes on


@pytest.fixture(scope="module")
def stopped(clean, data, tmp_path_factory):
    """The recipe and the folder of a run that was stopped after its first state."""

    class Stop(Exception):
        pass

    def stop(step, steps):
        if step == 2:
            raise Stop

    slow = replace(recipe(clean / "bert", data), epochs=2, batch=2)
    out = tmp_path_factory.mktemp("stopped") / "out"
    with pytest.raises(Stop):
        train(slow, out, saves=4, watch=stop)
    assert list((out / "steps").glob("checkpoint-1"))
    return slow, out


def sealed_again(state):
    """The hashes of a state tell damage, not forgery: whoever plants a file can write them too."""
    run = json.loads((state / SEAL).read_text())
    del run["files"]
    seal(state, run)


STATE = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin")


@slow
@pytest.mark.parametrize("name", STATE)
def test_a_state_that_is_a_hostile_pickle_is_refused(stopped, tmp_path, marker, name):
    slow, out = stopped
    shutil.copytree(out, tmp_path / "out")
    state = tmp_path / "out" / "steps" / "checkpoint-1"
    if name == "pytorch_model.bin":
        (state / "model.safetensors").unlink()
    torch.save({"state": Marker(marker)}, state / name)
    sealed_again(state)
    with pytest.raises(alti.LoadError, match="hold more than tensors"):
        train(slow, tmp_path / "out", saves=4)
    assert not marker.exists()


@slow
def test_the_arguments_of_a_state_are_not_read(stopped, tmp_path, marker):
    slow, out = stopped
    shutil.copytree(out, tmp_path / "out")
    state = tmp_path / "out" / "steps" / "checkpoint-1"
    torch.save(Marker(marker), state / "training_args.bin")
    sealed_again(state)
    train(slow, tmp_path / "out", saves=4)
    assert not marker.exists()


def test_an_index_that_a_config_names_is_read_from_the_folder(clean, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(clean / "bert", folder)
    (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    names = load_file(tmp_path / "outside.safetensors")
    (folder / "inside").mkdir()
    shards = {"metadata": {}, "weight_map": dict.fromkeys(names, f"{tmp_path}/outside.safetensors")}
    (folder / "inside" / "a.safetensors.index.json").write_text(json.dumps(shards))
    config = json.loads((folder / "config.json").read_text())
    config["transformers_weights"] = "inside/a.safetensors.index.json"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(alti.LoadError, match="names weights outside the folder"):
        alti.load(folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "[]"),
        ("config.json", '"x"'),
        ("tokenizer_config.json", "[]"),
        ("model.safetensors.index.json", "[]"),
        ("adapter_config.json", "[]"),
    ],
)
def test_json_of_another_kind_is_one_sentence(clean, tmp_path, file, content):
    folder = tmp_path / "model"
    shutil.copytree(clean / "bert", folder)
    (folder / file).write_text(content)
    with pytest.raises(alti.AltiError) as caught:
        alti.load(folder)
    assert "\n" not in str(caught.value)

"""Checkpoints as they come: adapters, GGUF files, old layouts, device maps, quantised layers."""

import json
import shutil
import subprocess
import sys
from functools import partial
from importlib.util import find_spec

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import alti
from alti.methods import METHODS
from alti.model import checkpoints
from alti.read.quantised import require_gradients, said_in_one_sentence

import tiny
from speed import slow

TEXT = "A clever blend of fact and fiction."
METHODS_TRIED = ("alti", "linear", "gradient", "dimming")
needs = {
    name: pytest.mark.skipif(find_spec(name) is None, reason=f"no {name} here")
    for name in ("peft", "accelerate", "gguf", "bitsandbytes")
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.saved(tmp_path_factory.mktemp("models") / "tiny-bert")


def same(one, other, methods=METHODS_TRIED, limit=1e-5):
    for method in methods:
        ours = one.explain(TEXT, method=method)
        theirs = other.explain(TEXT, method=method)
        assert ours.label == theirs.label
        torch.testing.assert_close(ours.scores, theirs.scores, rtol=limit, atol=limit)


# Adapters


@pytest.fixture(scope="module")
def adapter(folder, tmp_path_factory):
    """An adapter of a classifier, whose base has no head; and the merged model."""
    peft = pytest.importorskip("peft")
    place = tmp_path_factory.mktemp("adapter")
    base = tiny.saved(place / "base", head="AutoModel")
    labels = {"id2label": {i: f"LABEL_{i}" for i in range(3)}, "num_labels": 3}
    model = tiny.speaking("bert", "AutoModelForSequenceClassification", dtype=torch.float32,
                          **labels)  # fmt: skip
    model.base_model.load_state_dict(
        tiny.speaking("bert", "AutoModel", dtype=torch.float32).state_dict()
    )
    settings = peft.LoraConfig(
        task_type="SEQ_CLS", r=4, target_modules=["query", "value", "dense"],
        exclude_modules=r".*pooler.*", init_lora_weights=False,
    )  # fmt: skip
    model.name_or_path = str(base)
    wrapped = peft.get_peft_model(model, settings)
    wrapped.peft_config["default"].base_model_name_or_path = str(base)
    wrapped.save_pretrained(place / "lora")
    merged = wrapped.merge_and_unload()
    return place / "lora", alti.Model(merged.eval(), tiny.tokenizer())


LOADED = "import sys, alti; print(alti.load(sys.argv[1], device='cpu').name)"


@needs["peft"]
@slow
@pytest.mark.parametrize("kind", ["plain", "headless", "shards", "adapter"])
def test_a_process_that_loads_shows_one_bar_at_most(folder, adapter, tmp_path, kind):
    place = tmp_path / "m"
    shutil.copytree(adapter[0] if kind == "adapter" else folder, place)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    if kind == "shards":
        (place / "model.safetensors").unlink()
        model.save_pretrained(place, max_shard_size="20KB")
        assert len(list(place.glob("*.safetensors"))) > 2
    if kind == "headless":  # read twice: its head has no weights
        model.bert.save_pretrained(place)
        model.config.architectures = ["BertForSequenceClassification"]
        model.config.save_pretrained(place)
    command = [sys.executable, "-W", "ignore", "-c", LOADED, place]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "m\n"
    assert done.stderr.count(" 0%|") <= 1
    assert done.stderr.count("100%|") <= 1


@needs["peft"]
def test_an_adapter_folder_is_the_merged_model(adapter):
    place, merged = adapter
    loaded = alti.load(place)
    assert (loaded.name, loaded.head.kind) == ("lora", "sequence")
    assert loaded.head.config.num_labels == 3
    same(loaded, merged)
    assert max(loaded.check()) < 1e-5


@needs["peft"]
def test_what_an_adapter_may_lack(adapter, tmp_path):
    place, _ = adapter
    shutil.copytree(place, tmp_path / "a")
    weights = load_file(place / "adapter_model.safetensors")
    headless = {name: x for name, x in weights.items() if "classifier" not in name}
    save_file(headless, tmp_path / "a" / "adapter_model.safetensors")
    with pytest.raises(alti.LoadError, match=r"neither .* nor the adapter .* has classifier"):
        alti.load(tmp_path / "a")
    (tmp_path / "a" / "adapter_model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(alti.LoadError, match=r"could not be read .* it is damaged"):
        alti.load(tmp_path / "a")
    (tmp_path / "a" / "adapter_model.safetensors").unlink()
    with pytest.raises(alti.LoadError, match=r"has no adapter_model.safetensors: save it as"):
        alti.load(tmp_path / "a")
    settings = json.loads((place / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = None
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(alti.LoadError, match="names no base_model_name_or_path"):
        alti.load(tmp_path / "a")
    settings |= {"base_model_name_or_path": str(place.parent / "base"), "megatron_config": {"a": 1}}
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(alti.LoadError, match="not imported: remove megatron_config"):
        alti.load(tmp_path / "a")


@needs["peft"]
def test_an_adapter_that_names_itself(adapter, tmp_path):
    shutil.copytree(adapter[0], tmp_path / "a")
    settings = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = str(tmp_path / "a")
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(alti.LoadError, match="is an adapter, and another one names it as its mod"):
        alti.load(tmp_path / "a")


def cached(cache, name, folder, revision="1" * 40):
    """A folder as huggingface_hub keeps what it has fetched: no network is needed to read it."""
    place = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, place / "snapshots" / revision)
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / ("main" if revision == "1" * 40 else revision[:3])).write_text(revision)


@needs["peft"]
def test_an_adapter_by_its_name_on_the_hub(adapter, tmp_path, monkeypatch):
    """Through transformers' and huggingface_hub's own code, from a cache that holds the files."""
    place, merged = adapter
    shutil.copytree(place, tmp_path / "lora")
    settings = json.loads((place / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "me/base"
    (tmp_path / "lora" / "adapter_config.json").write_text(json.dumps(settings))
    cache = tmp_path / "cache"
    cached(cache, "me/base", place.parent / "base")
    cached(cache, "me/lora", tmp_path / "lora")
    asked = {"cache_dir": str(cache), "local_files_only": True}
    fetch, fetched = checkpoints.snapshot_download, []
    monkeypatch.setattr(
        checkpoints,
        "snapshot_download",
        lambda name, **options: fetched.append(options["allow_patterns"]) or fetch(name, **options),
    )
    loaded = alti.load("me/lora", **asked)
    (patterns,) = fetched
    assert "*adapter_model.safetensors" in patterns
    assert not any(pattern.endswith((".bin", ".py", "*.*")) for pattern in patterns)
    assert (loaded.name, loaded.head.config.num_labels) == ("lora", 3)
    same(loaded, merged, methods=("alti", "linear"))
    (tmp_path / "lora" / "adapter_model.safetensors").unlink()
    cached(cache, "me/lora", tmp_path / "lora", revision="2" * 40)
    with pytest.raises(alti.LoadError, match=r"has no adapter_model.safetensors: save it as"):
        alti.load("me/lora", revision="222", **asked)  # a revision of the adapter, not of the base
    with pytest.raises(alti.LoadError, match="me/none could not be loaded"):
        alti.load("me/none", **asked)
    assert alti.load("me/base", **asked).name == "base"


# Sentence-transformers


def sentence_transformer(folder, *, inner="0_Transformer", **pooling):
    tiny.saved(folder / inner, head="AutoModel")
    modules = [
        {"idx": 0, "name": "0", "path": inner, "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling",
        },
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 24, **pooling})
    )
    return modules


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("cls_token", "first"), ("mean_tokens", "mean"), ("lasttoken", "last"),
     ("max_tokens", "pooling_mode_max_tokens")],
)  # fmt: skip
@pytest.mark.parametrize("inner", ["0_Transformer", "."])
def test_old_and_new_layouts(tmp_path, mode, expected, inner):
    sentence_transformer(tmp_path, inner=inner, **{f"pooling_mode_{mode}": True})
    loaded = alti.load(tmp_path)
    assert (loaded.name, loaded.pooling) == (tmp_path.name, expected)
    asked = {"target": "similarity", "method": "linear"}
    if expected not in ("first", "mean", "last"):
        with pytest.raises(
            alti.UsageError, match="makes an embedding with pooling_mode_max_tokens"
        ):
            loaded.explain(TEXT, "A dull film.", **asked)
        return
    place = tmp_path / inner
    plain = alti.load(place if inner != "." else tmp_path)
    plain.pooling = expected
    torch.testing.assert_close(
        loaded.explain(TEXT, "A dull film.", **asked).scores,
        plain.explain(TEXT, "A dull film.", **asked).scores,
    )


def test_a_layout_that_leads_elsewhere_is_refused(tmp_path):
    modules = sentence_transformer(tmp_path / "m", pooling_mode_mean_tokens=True)
    modules[0]["path"] = "../elsewhere"
    (tmp_path / "m" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(alti.LoadError, match=r"names a folder outside \(../elsewhere\): not read"):
        alti.load(tmp_path / "m")
    (tmp_path / "m" / "modules.json").write_text("{}")
    with pytest.raises(alti.LoadError, match="holds dict, not list"):
        alti.load(tmp_path / "m")
    modules[0]["path"] = "0_Transformer"
    modules.append({"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (tmp_path / "m" / "modules.json").write_text(json.dumps(modules))
    assert alti.load(tmp_path / "m").pooling == "Dense"


# transformers' own arguments


def test_arguments_are_passed_on(folder, tmp_path):
    eager = alti.load(folder, attn_implementation="eager")
    assert eager.model.config._attn_implementation == "eager"
    assert alti.load(folder, dtype="float64").dtype == "float64"
    shutil.copytree(folder, tmp_path / "outer" / "inner")
    same(alti.load(tmp_path / "outer", subfolder="inner"), alti.load(folder), ("alti",))
    with pytest.raises(alti.LoadError, match="could not be loaded"):
        alti.load(folder, attn_implementation="nonsense")


@pytest.mark.parametrize("place", ["cpu", "auto", {"": "cpu"}, torch.device("cpu")], ids=str)
def test_a_device_map_has_the_dtype_of_its_device(place):
    """The embedded model is stored in float16."""
    if place == "auto" and torch.accelerator.is_available():
        pytest.skip("layers go to the accelerator here")
    assert alti.load(device_map=place).dtype == alti.load(device="cpu").dtype == "float32"


def test_a_device_map_with_a_module_that_is_not_there(folder):
    with pytest.raises(alti.UsageError, match=r"device_map names 'x', which .*\(bert, "):
        alti.load(folder, device_map={"x": "cpu"})


@needs["accelerate"]
@pytest.mark.parametrize(
    "place",
    [
        {"": "cpu"},
        "auto",
        {"bert.embeddings": "cpu", "bert.encoder.layer.0": "cpu", "bert.encoder.layer.1": "disk",
         "bert.encoder.layer.2": "cpu", "bert.pooler": "cpu", "classifier": "disk"},
    ],
    ids=["cpu", "auto", "disk"],
)  # fmt: skip
def test_a_device_map(folder, tmp_path, place):
    loaded = alti.load(folder, device_map=place, offload_folder=tmp_path, dtype="float32")
    if isinstance(place, dict) and "disk" in place.values():
        assert any(parameter.is_meta for parameter in loaded.model.parameters())
    methods = ("alti", "norms", "linear", "absence", "consensus", "occlusion", "gradient")
    same(loaded, alti.load(folder, device="cpu"), methods)
    assert max(loaded.check()) < 1e-5


# Quantised layers


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS_TRIED)
def test_dynamic_int8_says_why_it_cannot_be_read(method):
    model = tiny.speaking("bert", "AutoModelForSequenceClassification", dtype=torch.float32)
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    why = "was quantised by torch: its Linear layers round what they are given at every call"
    with pytest.raises(alti.UnsupportedModelError, match=why):
        alti.explain(quantised, tiny.tokenizer(), TEXT, method=method)
    with pytest.raises(alti.UnsupportedModelError, match=why):
        alti.check(quantised, tiny.inputs(quantised))


class Rounding(torch.nn.Linear):
    """A layer that rounds its input, as int8 layers do."""

    steps = 64.0

    def forward(self, x):
        size = x.abs().amax().clamp_min(1e-9) / self.steps
        return super().forward((x / size).round() * size)


class WeightOnly(torch.nn.Linear):
    """A layer whose weights are rounded and read as they are, as 4-bit layers do."""

    def forward(self, x):
        size = self.weight.abs().amax() / 7
        return torch.nn.functional.linear(x, (self.weight / size).round() * size, self.bias)


def swapped(kind):
    model = tiny.speaking("bert", "AutoModelForSequenceClassification", dtype=torch.float32)
    for layer in model.bert.encoder.layer:
        dense = layer.attention.output.dense
        made = kind(dense.in_features, dense.out_features)
        made.load_state_dict(dense.state_dict())
        layer.attention.output.dense = made
    return model


def test_layers_that_round_their_input_are_named():
    model = swapped(Rounding)
    with pytest.raises(
        alti.UnsupportedModelError,
        match=r"attention.output.dense is a Rounding, which rounds what it is given, by \de-0\d",
    ):
        alti.check(model, tiny.inputs(model))


def test_layers_with_rounded_weights_are_read_through_themselves():
    model = swapped(WeightOnly)
    assert max(alti.check(model, tiny.inputs(model))) < 1e-5
    for method in METHODS_TRIED:
        alti.explain(model, tiny.tokenizer(), TEXT, method=method)


class WithoutAutograd(WeightOnly):
    """Kernels for inference are not seen by autograd."""

    __module__ = "bitsandbytes.nn"

    def forward(self, x):
        return super().forward(x.detach()).detach()


@pytest.mark.parametrize("method", ["linear", "absence", "dimming", "gradient"])
def test_gradients_that_would_go_around_a_quantised_layer(method):
    model = swapped(WithoutAutograd)
    alti.explain(model, tiny.tokenizer(), TEXT)
    why = r"WithoutAutograd layers pass no gradients on here \(they answer without autograd\)"
    with pytest.raises(alti.UnsupportedModelError, match=why):
        alti.explain(model, tiny.tokenizer(), TEXT, method=method)
    hooks = [hook for part in model.modules() for hook in part._forward_hooks.values()]
    assert require_gradients not in hooks


def test_layers_that_fail_with_gradients_once_they_were_run():
    """As 4-bit layers whose weights a first pass has packed for inference."""

    class Packing(WeightOnly):
        __module__ = "bitsandbytes.nn"
        packed = False

        def forward(self, x):
            if self.packed and torch.is_grad_enabled() and x.requires_grad:
                raise RuntimeError("a view is being used in-place.")
            self.packed = self.packed or not torch.is_grad_enabled()
            return super().forward(x)

    model = alti.Model(swapped(Packing), tiny.tokenizer())
    model.explain(TEXT)
    why = r"where its head reads cannot be .* Packing layers .* in-place\); load the model again"
    with pytest.raises(alti.UnsupportedModelError, match=why):
        model.check()


def test_gradients_that_torch_alone_says_are_missing():
    """torch answers with zeros and a warning where an operator has no gradient."""
    with torch.library._scoped_library("alti_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")

        class Packed(WeightOnly):
            __module__ = "bitsandbytes.nn"

            def forward(self, x):
                return torch.ops.alti_test.twice(super().forward(x)) / 2

        model = swapped(Packed)
        alti.explain(model, tiny.tokenizer(), TEXT)
        why = r"Packed layers pass no gradients on here \(.*an autograd kernel was not registered"
        with pytest.raises(alti.UnsupportedModelError, match=why):
            alti.explain(model, tiny.tokenizer(), TEXT, method="absence")


def test_quantised_layers_that_do_not_add_up_are_named():
    class Eight(Rounding):
        __module__ = "bitsandbytes.nn"

    model = swapped(Eight)
    why = "this model has Eight layers, whose rounding leaves its parts too far"
    with (
        pytest.raises(alti.UnsupportedModelError, match=why),
        said_in_one_sentence(model, "alti"),
    ):
        raise alti.DecompositionError("block 3: its entry in alti.FAMILIES")
    with pytest.raises(alti.DecompositionError), said_in_one_sentence(swapped(Rounding), "alti"):
        raise alti.DecompositionError("block 3: its entry in alti.FAMILIES")


def with_layers(made):
    """A model whose attention ends in such layers, with the weights that it had."""
    model = tiny.speaking("bert", "AutoModelForSequenceClassification", dtype=torch.bfloat16,
                          hidden_size=64, intermediate_size=64)  # fmt: skip
    for layer in model.bert.encoder.layer:
        dense = layer.attention.output.dense
        quantised = made(64, 64)
        quantised.load_state_dict(dense.state_dict())
        layer.attention.output.dense = quantised.to("cpu")
    return model


@needs["bitsandbytes"]
@pytest.mark.filterwarnings("ignore")
def test_four_bits():
    import bitsandbytes

    four = partial(bitsandbytes.nn.Linear4bit, compute_dtype=torch.bfloat16, quant_type="nf4")
    model = with_layers(four)
    found = alti.explain(model, tiny.tokenizer(), TEXT)
    assert float(found.scores.sum()) == pytest.approx(1, abs=1e-3)
    with pytest.raises(alti.UnsupportedModelError, match="Linear4bit layers pass no gradients on"):
        alti.explain(model, tiny.tokenizer(), TEXT, method="linear")


@needs["bitsandbytes"]
@pytest.mark.filterwarnings("ignore")
def test_eight_bits():
    import bitsandbytes

    model = with_layers(partial(bitsandbytes.nn.Linear8bitLt, has_fp16_weights=False))
    for method in ("alti", "norms", "occlusion"):
        found = alti.explain(model, tiny.tokenizer(), TEXT, method=method)
        assert found.scores.isfinite().all()
    with pytest.raises(alti.UnsupportedModelError, match="Linear8bitLt layers, whose rounding"):
        alti.explain(model, tiny.tokenizer(), TEXT, method="linear")


@needs["bitsandbytes"]
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bits", [4, 8])
def test_loaded_with_fewer_bits(tmp_path, bits):
    """In float32 their rounding is larger than alti allows, which is said in one sentence."""
    tiny.saved(tmp_path, hidden_size=64, intermediate_size=64)
    config = transformers.BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    load = partial(alti.load, tmp_path, device="cpu", quantization_config=config)
    why = "which rounds what it is given, by .* load the model in bfloat16, or not quantised"
    for act in (load().check, partial(load().explain, TEXT)):
        with pytest.raises(alti.UnsupportedModelError, match=why):
            act()


# GGUF


@needs["gguf"]
@pytest.mark.filterwarnings("ignore:the model has no embedding")
def test_a_gguf_file(tmp_path):
    import gguf

    model = tiny.speaking("llama", "AutoModelForCausalLM", "bpe", dtype=torch.float32,
                          attention_bias=False, head_dim=6, tie_word_embeddings=False)  # fmt: skip
    config, tokenizer = model.config, tiny.tokenizer("bpe")
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(6)
    writer.add_vocab_size(config.vocab_size)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([1] * len(vocabulary))
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        array = tensor.detach()
        for part, count in heads.items():  # rotary halves are interleaved in this format
            if part in name:
                array = (
                    array.reshape(count, 2, -1, array.shape[-1]).transpose(1, 2).reshape_as(array)
                )
        stem, _, ending = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{ending}", array.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    loaded = alti.load(tmp_path / "tiny.gguf")
    assert (loaded.name, loaded.head.kind, loaded.family) == ("tiny.gguf", "causal", "llama")
    ids = loaded.encoder.plain("The plot is long.").ids
    ours = loaded.explain(ids=ids, layers=False)
    theirs = alti.explain(model, tokenizer, ids=ids, layers=False)
    assert (ours.target, ours.label) == (theirs.target, theirs.label)
    torch.testing.assert_close(ours.scores, theirs.scores, rtol=1e-4, atol=1e-5)


def test_a_gguf_file_that_is_none(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"nothing")
    with pytest.raises(alti.LoadError, match="could not be loaded"):
        alti.load(tmp_path / "broken.gguf")
    (tmp_path / "model.bin").write_bytes(b"nothing")
    with pytest.raises(alti.UsageError, match=r"is a file: give the folder .* or a .gguf file"):
        alti.load(tmp_path / "model.bin")


def test_every_method_says_whether_it_shortens():
    shortening = {name for name, method in METHODS.items() if method.shortens_with({})}
    assert shortening == {"occlusion", "leave_one_out", "contextcite", "surrogate"}

"""Loading, and explaining one text or many."""

import copy
import json
import shutil
from dataclasses import replace
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig

import alti

import tiny
from speed import mostly_slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.saved(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture
def model(folder):
    return alti.load(folder)


def test_load_and_explain(model):
    found = model.explain("A clever blend of fact and fiction.")
    assert model.name == found.model == "tiny-bert"
    assert repr(model) == "<Model tiny-bert: bert, float32>"
    assert found.label in ("negative", "positive")
    assert found.tokens[0] == "[CLS]"
    assert found.layers.shape == (tiny.LAYERS, len(found), len(found))
    assert float(found.scores.sum()) == pytest.approx(1, abs=1e-5)
    assert found.scores.dtype == torch.float32
    assert not model.model.training


def test_one_function_is_one_call_of_the_model(model):
    direct = alti.explain(
        model.model, model.tokenizer, "a long film", method="norms", target="negative"
    )
    assert torch.equal(
        direct.scores, model.explain("a long film", method="norms", target="negative").scores
    )
    pair = alti.explain(model.model, model.tokenizer, "a long film", "the plot", p=2)
    assert pair.text_pair == "the plot"
    assert pair.options == {"p": 2}


def test_explanations_repeat_to_the_bit(model):
    first, second = (model.explain(tiny.CORPUS[0]) for _ in range(2))
    assert torch.equal(first.scores, second.scores)
    assert torch.equal(first.layers, second.layers)


TEXTS = [" ".join(tiny.CORPUS[i % 4].split()[: 1 + (7 * i) % 9]) for i in range(23)]


@pytest.mark.parametrize("layers", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_many_texts_come_in_their_order(model, batch_size, layers):
    found = list(model.explain_all(iter(TEXTS), batch_size=batch_size, layers=layers))
    assert [one.text for one in found] == TEXTS
    for text, one in zip(TEXTS, found, strict=True):
        alone = model.explain(text)
        torch.testing.assert_close(one.scores, alone.scores, rtol=0, atol=1e-5)
        assert one.label == alone.label
        assert one.probability == pytest.approx(alone.probability, abs=1e-5)
        assert (one.layers is not None) == layers
        if layers:
            torch.testing.assert_close(one.layers, alone.layers, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "kind"), [("gpt2", "bpe"), ("llama", "bpe"), ("roberta", "wordpiece")]
)
def test_many_texts_of_other_families(family, kind):
    head = "AutoModelForCausalLM" if kind == "bpe" else "AutoModelForMaskedLM"
    model = alti.Model(
        tiny.speaking(family, head, kind, pad_token_id=None if kind == "bpe" else 0),
        tiny.tokenizer(kind),
    )
    options = {} if kind == "bpe" else {"position": 1}
    for text, one in zip(TEXTS, model.explain_all(TEXTS, **options), strict=True):
        torch.testing.assert_close(
            one.scores, model.explain(text, **options).scores, rtol=0, atol=1e-5
        )


def test_a_classifier_that_cannot_take_batches():
    model = alti.Model(
        tiny.speaking("gpt2", "AutoModelForSequenceClassification", "bpe", pad_token_id=None),
        tiny.tokenizer("bpe"),
    )
    assert [one.text for one in model.explain_all(TEXTS[:5])] == TEXTS[:5]


def test_many_pairs(model):
    pairs = [
        ("a long film", "the plot"),
        ("the acting", "it is better"),
        ("fact", "a clever fiction"),
    ]
    for (text, other), one in zip(pairs, model.explain_all(pairs), strict=True):
        torch.testing.assert_close(one.scores, model.explain(text, other).scores, rtol=0, atol=1e-5)


def test_texts_are_read_as_results_are_taken(model):
    taken = []

    def endless():
        while True:
            taken.append(None)
            yield "a long film"

    results = model.explain_all(endless(), batch_size=2, layers=True)
    assert not taken
    next(results)
    assert len(taken) == 2
    lean = model.explain_all(endless(), batch_size=2)
    counts = [len(taken)]
    for _ in range(2 + 4 + 8 + 16 + 32 + 32):  # one batch, then 2, 4, 8, 16, 16
        next(lean)
        counts.append(len(taken))
    assert sorted({count - 2 for count in counts}) == [0, 2, 6, 14, 30, 62, 94]


@pytest.mark.parametrize("layers", [False, True])
def test_nothing_before_a_bad_text_is_lost(model, layers):
    results = model.explain_all(
        ["a long film", "the plot", "fiction", " ", "fact"], batch_size=2, layers=layers
    )
    texts = []
    with pytest.raises(alti.UsageError, match="text is empty"):
        texts.extend(one.text for one in results)
    assert texts == ["a long film", "the plot", "fiction"]


def test_nothing_before_another_error_is_lost(model):
    def breaking():
        yield from ["a long film", "the plot"]
        raise ZeroDivisionError

    for texts, error in (
        (breaking(), ZeroDivisionError),
        (["a long film", "the plot", None], alti.UsageError),
        (["a long film", "the plot", ("a", "b", "c")], alti.UsageError),
        (["a long film", "the plot", "\ud800"], alti.UsageError),
    ):
        found = []
        with pytest.raises(error):
            found.extend(one.text for one in model.explain_all(texts))
        assert found == ["a long film", "the plot"]


def test_batches_before_one_that_fails_are_not_lost(model, monkeypatch):
    method = alti.METHODS["alti"]

    @wraps(method.function)
    def failing(model, inputs, target, **options):
        if inputs.mask.shape[1] > 20:
            raise torch.OutOfMemoryError
        return method(model, inputs, target, **options)

    monkeypatch.setitem(alti.METHODS, "alti", replace(method, function=failing))
    found = []
    with pytest.raises(alti.AltiError, match="out of memory"):
        found.extend(
            one.text for one in model.explain_all(["a", "b", "clever " * 12, "c"], batch_size=1)
        )
    assert found == ["a", "b"]


def test_texts_that_are_too_long(model):
    text = "clever " * 60
    count = len(model.tokenizer(text)["input_ids"])
    with pytest.raises(
        alti.UsageError,
        match=rf"has {count} tokens, {count - 40} more than the 40 that the model takes",
    ):
        model.explain(text)
    found = model.explain(text, truncate=True)
    assert len(found) == 40
    kept = max(end for _, end in found.offsets)
    assert found.cut == (text[kept:].strip(),)
    assert "cut: " in str(found)
    assert model.explain("clever", truncate=True).cut == ()


def test_pairs_that_are_too_long(model):
    found = model.explain("clever " * 30, "the plot", truncate=True)
    assert len(found) == 40
    assert len(found.cut) == 1
    assert set("clever ") >= set(found.cut[0])


def test_a_cut_inside_a_character_is_told():
    model = tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe", n_positions=4)
    found = alti.explain(model, tiny.tokenizer("bpe"), "a😀", truncate=True)
    assert len(found) == 4
    assert found.cut == ("😀",)


def test_a_model_with_no_room_for_any_word():
    model = tiny.speaking("bert", "AutoModel", max_position_embeddings=2)
    with pytest.raises(alti.UsageError, match="takes 2 tokens, too few for any of the text"):
        alti.explain(model, tiny.tokenizer(), "a long film", truncate=True)


def test_roberta_counts_its_positions_from_behind_the_padding():
    model = alti.Model(
        tiny.speaking("roberta", "AutoModel", max_position_embeddings=12), tiny.tokenizer()
    )
    length = 11  # pad_token_id = 0: the first row of the table belongs to no token
    assert len(model.explain("clever " * 30, truncate=True)) == length


def test_a_text_that_the_tokenizer_drops(model):
    with pytest.raises(alti.UsageError, match="the tokenizer finds no token in"):
        model.explain("\u200b")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_empty_texts(model, text):
    with pytest.raises(alti.UsageError, match="text is empty: give at least one word"):
        model.explain(text)
    with pytest.raises(alti.UsageError, match="text_pair is empty"):
        model.explain("fact", text)


def test_wrong_types(model):
    with pytest.raises(
        alti.UsageError, match="text is list, expected a str: for several texts use explain_all"
    ):
        model.explain(["a", "b"])
    with pytest.raises(alti.UsageError, match=r"text is dict, .*: a chat is a list of messages"):
        model.explain({"role": "user", "content": "Hello."})
    with pytest.raises(alti.UsageError, match=r"text_pair is int, expected a str$"):
        model.explain("a", 5)
    with pytest.raises(alti.UsageError, match=r"batch_size = 2\.5 is not a number of texts"):
        model.explain_all(["a"], batch_size=2.5)
    with pytest.raises(alti.UsageError, match="texts is one str"):
        model.explain_all("a long film")
    with pytest.raises(alti.UsageError, match="batch_size = 0"):
        model.explain_all(["a"], batch_size=0)
    with pytest.raises(alti.UsageError, match="method 'lime' does not exist"):
        model.explain_all(["a"], method="lime")
    with pytest.raises(alti.UsageError, match="method alti has no option 'steps'"):
        model.explain("a", steps=3)


class Frame(list):
    """As pandas and polars make them: iterating gives the names of the columns."""

    columns = ("text", "label")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (Frame(["text", "label"]), "texts is a table .Frame.: give one column, like table"),
        ({"a": "a long film"}, "texts is a dict: give a list of texts, such as its values"),
        ({"a long film", "the plot"}, "texts is a set, which has no order: give a list of texts"),
        (frozenset({"a long film"}), "texts is a frozenset, which has no order"),
        (b"a long film", "texts is bytes: decode them and give a list of texts"),
        (bytearray(b"a long film"), "texts is bytearray: decode them"),
        (Path("texts.txt"), "texts is the path texts.txt: give the lines of the file"),
        (None, "texts is NoneType: give a list of texts"),
        (7, "texts is int: give a list of texts"),
    ],
)
def test_what_is_no_list_of_texts(model, texts, message):
    with pytest.raises(alti.UsageError, match=message):
        model.explain_all(texts)


@pytest.mark.parametrize(
    "collect",
    [list, tuple, iter, np.array, lambda texts: dict.fromkeys(texts).keys()],
)
def test_what_is_a_list_of_texts(model, collect):
    texts = ["a long film", "the plot"]
    assert [one.text for one in model.explain_all(collect(texts))] == texts


def test_a_text_of_one_token():
    model = alti.Model(tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe"), tiny.tokenizer("bpe"))
    for method in ("alti", "norms", "attention", "attention_rollout"):
        found = model.explain("a", method=method)
        assert found.tokens == ("a",)
        assert found.scores.tolist() == pytest.approx([1.0])


def with_tokens(*tokens, special=False):
    """The tokenizer with more tokens, whose ids follow the last."""
    tokenizer = copy.deepcopy(tiny.tokenizer())
    tokenizer.add_tokens(list(tokens), special_tokens=special)
    return tokenizer


def test_a_tokenizer_with_words_beyond_the_embeddings_is_refused_at_once(folder, tmp_path):
    rows, entries = len(tiny.tokenizer()), len(tiny.tokenizer("bpe"))
    message = f"has {entries - rows} entries that the model has no embedding for .it has {rows}."
    with pytest.raises(alti.LoadError, match=message):
        alti.explain(tiny.speaking("bert", "AutoModel"), tiny.tokenizer("bpe"), "a")
    shutil.copytree(folder, tmp_path / "m")
    tiny.tokenizer("bpe").save_pretrained(tmp_path / "m")
    with pytest.raises(alti.LoadError, match=message):
        alti.load(tmp_path / "m")


@pytest.mark.parametrize("special", [False, True])
def test_added_tokens_beyond_the_embeddings_are_refused_where_they_occur(special):
    tokenizer, rows = with_tokens("<image>", special=special), len(tiny.tokenizer())
    with pytest.warns(UserWarning, match="no embedding for <image>: texts with it are refused"):
        encoder = alti.Model(tiny.speaking("bert", "AutoModel"), tokenizer).encoder
    assert encoder.encode("a long film")
    with pytest.raises(alti.UsageError, match=f"gives token id {rows}, but the model has only"):
        encoder.encode("a long <image>")


def test_rows_without_a_token_are_usual():
    model = tiny.speaking("bert", "AutoModel", vocab_size=128)
    assert alti.explain(model, tiny.tokenizer(), "a film").tokens[1] == "a"


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ({"bos_token_id": 11, "eos_token_id": 12}, "bos 11 is '.', eos 12 is '.+'"),
        ({"bos_token_id": 100, "eos_token_id": 100}, "bos 100 is no token, eos 100 is no token"),
        ({"eos_token_id": [3, 101]}, "eos 101 is no token"),
    ],
)
def test_a_vocabulary_of_another_model_is_warned_of(ids, words):
    model = tiny.speaking("gpt2", "AutoModel", vocab_size=128, **ids)
    with pytest.warns(UserWarning, match=f"may be another model's: to it, the config's {words}"):
        alti.Model(model, tiny.tokenizer()).encoder  # noqa: B018  # making it is the test


@pytest.mark.parametrize(
    "ids",
    [
        {"pad_token_id": 11},  # left at its default by who trained it, say
        {"bos_token_id": 11, "eos_token_id": 11},
        {"pad_token_id": 120},
        {"pad_token_id": -1},
        {"bos_token_id": 50256, "eos_token_id": 50256},  # GPT-2's default in a smaller model
        {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None},
    ],
)
def test_special_ids_that_are_usual(ids):
    model = tiny.speaking("gpt2", "AutoModel", vocab_size=128)
    for name, value in ids.items():  # a model is not built with some of them
        setattr(model.config, name, value)
    assert alti.Model(model, tiny.tokenizer()).encoder.encode("a film")


def test_real_tokenizers_fit(shared):
    alti.load(device="cpu")  # warnings are errors
    alti.load(shared / "models" / "minilm-l6-sst2", device="cpu")


def test_out_of_memory_is_one_sentence(model, monkeypatch):
    method = alti.METHODS["alti"]

    @wraps(method.function)
    def exhausted(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setitem(alti.METHODS, "alti", replace(method, function=exhausted))
    with pytest.raises(
        alti.AltiError,
        match=r"out of memory on cpu with 1 texts of up to \d+ tokens: use a smaller",
    ):
        model.explain("a long film")


def test_the_exactness_check_is_part_of_explain(model, monkeypatch):
    site = alti.Site("attention.output.dense", then="intermediate")
    monkeypatch.setitem(alti.FAMILIES, "bert", alti.Family((alti.Stack("encoder.layer", (site,)),)))
    for method in ("alti", "norms", "attention"):
        with pytest.raises(alti.DecompositionError, match=r"bert block 0: .* relative error"):
            model.explain("a long film", method=method)


# Loading


def test_unknown_models(tmp_path):
    with pytest.raises(
        alti.UsageError,
        match=r"model '/no/such/model' does not exist: give a folder .*, or a hub name",
    ):
        alti.load("/no/such/model")
    with pytest.raises(alti.LoadError, match=r"the hub model no-such/model .*: check the connec"):
        alti.load("no-such/model")
    with pytest.raises(alti.LoadError, match=r"holds no model: it has no config\.json"):
        alti.load(tmp_path)
    (tmp_path / "weights.bin").touch()
    with pytest.raises(alti.UsageError, match=r"weights.bin' is a file: give the folder"):
        alti.load(tmp_path / "weights.bin")


def test_a_folder_without_a_tokenizer(folder, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, tmp_path)
    with pytest.raises(alti.LoadError, match=r"has no tokenizer"):
        alti.load(tmp_path)


@mostly_slow(
    "family",
    [f for f in tiny.CONFIGS if f not in (*tiny.IMAGES, "granite")],
    quick=tiny.FEW,
)
def test_no_family_makes_up_a_tokenizer(family, tmp_path):
    tiny.build(family, dtype=torch.float32).save_pretrained(tmp_path)
    with pytest.raises(alti.LoadError, match=r"has no tokenizer"):
        alti.load(tmp_path)


def test_a_folder_without_weights(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    with pytest.raises(alti.LoadError, match=r"could not be loaded: .*model\.safetensors"):
        alti.load(tmp_path / "m")


def test_weights_that_are_damaged(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(alti.LoadError, match="could not be loaded"):
        alti.load(tmp_path / "m")


def test_a_config_that_is_not_json(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text("{")
    with pytest.raises(alti.LoadError, match="could not be loaded"):
        alti.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mamba", "alti cannot read mamba models: it mixes tokens without attention"),
        ("of-no-one", "does not know the model family 'of-no-one': `alti families` lists those"),
        ("lama", r"the model family 'lama' \(it knows llama\): `alti families` lists those"),
    ],
)
def test_unsupported_families(folder, tmp_path, name, why):
    shutil.copytree(folder, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps({**config, "model_type": name}))
    with pytest.raises(alti.UnsupportedModelError, match=why):
        alti.load(tmp_path / "m")


def test_a_checkpoint_without_weights_for_its_head(tmp_path):
    tiny.saved(tmp_path, head="AutoModel")
    config = BertConfig.from_pretrained(tmp_path)
    config.architectures = ["BertForSequenceClassification"]
    config.save_pretrained(tmp_path)
    with pytest.warns(
        UserWarning,
        match="no weights for the head of BertForSequenceClassification: loaded without a head",
    ):
        model = alti.load(tmp_path)
    assert model.explain("a long film").label is None


def test_a_head_that_transformers_does_not_have(tmp_path):
    tiny.saved(tmp_path)
    for name in ("MyFancyClassifier", "PreTrainedTokenizerFast"):
        config = BertConfig.from_pretrained(tmp_path)
        config.architectures = [name]
        config.save_pretrained(tmp_path)
        with pytest.warns(
            UserWarning,
            match=f"names {name}, which transformers does not have: loaded without a head",
        ):
            alti.load(tmp_path)


def test_a_config_that_leaves_layers_out(tmp_path):
    tiny.saved(tmp_path)
    config = BertConfig.from_pretrained(tmp_path)
    config.num_hidden_layers = 2
    config.save_pretrained(tmp_path)
    with pytest.warns(
        UserWarning,
        match=r"weights of layers that its config leaves out, such as bert\.encoder\.layer\.2",
    ):
        alti.load(tmp_path)


def test_devices_and_dtypes(folder):
    with pytest.raises(alti.UsageError, match="device 'tpu' is not there: this machine has cpu"):
        alti.load(folder, device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(
            alti.UsageError, match="device 'cuda' is not there: this machine has cpu"
        ):
            alti.load(folder, device="cuda")
    with pytest.raises(alti.UsageError, match="dtype 'float33' does not exist: give float32"):
        alti.load(folder, dtype="float33")
    for dtype in ("int8", torch.int8, 3):  # weights are never whole numbers
        with pytest.raises(alti.UsageError, match="does not exist: give float32"):
            alti.load(folder, dtype=dtype)
    assert alti.load(folder, dtype="bfloat16").dtype == "bfloat16"
    assert alti.load(folder, dtype=torch.float64).dtype == "float64"
    assert alti.load(folder).dtype == "float32"


def test_half_precision_checkpoints_are_read_in_float32_on_a_cpu(folder, tmp_path):
    alti.load(folder, dtype="float16").model.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    assert alti.load(tmp_path, device="cpu").dtype == "float32"
    assert alti.load(tmp_path, device="cpu", dtype="auto").dtype == "float16"


def test_fingerprints_tell_weights_apart():
    one, other = (alti.Model(tiny.build("bert"), None) for _ in range(2))
    assert one.fingerprint() == other.fingerprint()
    with torch.no_grad():
        other.model.encoder.layer[1].output.dense.weight.flatten()[20:].mul_(1.5)
    assert one.fingerprint() != other.fingerprint()


def test_a_model_in_training_mode_is_checked_without_dropout(folder):
    model = alti.load(folder)
    model.model.train()
    state = torch.get_rng_state()
    model.check()
    model.completeness()
    assert torch.equal(torch.get_rng_state(), state)
    assert model.model.training


def changed_word(tokenizer):
    """The same tokenizer with two words swapped in its vocabulary."""
    plain = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = plain["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    return rebuilt(plain)


def rebuilt(plain, **roles):
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer.from_str(json.dumps(plain))
    settings = {"model_max_length": 10**30, "model_input_names": tiny.tokenizer().model_input_names}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **{**settings, **tiny.ROLES, **roles})


def test_fingerprints_read_every_weight():
    model = alti.Model(tiny.build("bert", dtype=torch.float32), None)
    first = model.fingerprint()
    for tensor in model.model.state_dict().values():
        for place in (0, tensor.numel() // 2, tensor.numel() - 1):
            kept = tensor.flatten()[place].clone()
            with torch.no_grad():
                tensor.view(-1)[place] += 1e-3
            assert model.fingerprint() != first
            with torch.no_grad():
                tensor.view(-1)[place] = kept
    assert model.fingerprint() == first


def test_fingerprints_read_every_setting_that_matters():
    def of(**config):
        return alti.Model(tiny.build("bert", **config), None).fingerprint()

    assert of() != of(layer_norm_eps=1e-5)
    assert of() != of(hidden_act="relu")
    assert of() != of(id2label={0: "no", 1: "yes"})
    model = alti.Model(tiny.build("bert"), None)
    before = model.fingerprint()
    model.model.config.name_or_path = "/elsewhere"
    model.model.config._attn_implementation = "eager"
    model.model.config.use_cache = not model.model.config.use_cache
    model.model.config.output_attentions = False
    model.model.config.transformers_version = "0"
    assert model.fingerprint() == before


def test_fingerprints_read_the_tokenizer():
    network, tokenizer = tiny.speaking("bert", "AutoModel"), tiny.tokenizer()
    plain = json.loads(tokenizer.backend_tokenizer.to_str())

    def of(tokenizer):
        return alti.Model(network, tokenizer).fingerprint()

    same = rebuilt(plain)
    assert of(same) == of(tokenizer)
    same(["a film", "plot"], padding=True, truncation=True, max_length=4)  # which stays in it
    assert of(same) == of(tokenizer)
    others = [
        None,
        changed_word(tokenizer),
        rebuilt({**plain, "normalizer": None}),
        rebuilt({**plain, "post_processor": None}),
        rebuilt(plain, mask_token="film"),
        rebuilt(plain, model_max_length=16),
    ]
    found = [of(other) for other in (tokenizer, *others)]
    assert len(set(found)) == len(found)
    bpe = tiny.tokenizer("bpe")
    plain = json.loads(bpe.backend_tokenizer.to_str())
    merges = plain["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]
    assert of(rebuilt(plain)) != of(rebuilt(json.loads(bpe.backend_tokenizer.to_str())))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_fingerprints_of_any_dtype(dtype, monkeypatch):
    one = alti.Model(tiny.build("bert", dtype=dtype), None)
    first = one.fingerprint()
    assert alti.Model(tiny.build("bert", dtype=dtype), None).fingerprint() == first
    assert alti.Model(tiny.build("bert", dtype=torch.float32), None).fingerprint() != first
    monkeypatch.setattr("alti.model.fingerprints.AT_ONCE", 100)  # in parts
    assert one.fingerprint() == first
    weight = one.model.encoder.layer[0].output.dense.weight
    weight.data = weight.data.T.contiguous().T  # the same numbers, laid out by columns
    assert one.fingerprint() == first


def test_fingerprints_read_the_factor_of_an_adapter():
    peft = pytest.importorskip("peft")

    def of(alpha):
        torch.manual_seed(0)
        adapter = peft.LoraConfig(r=2, lora_alpha=alpha, target_modules=["query", "value"])
        model = tiny.speaking("bert", "AutoModelForSequenceClassification")
        return alti.Model(peft.get_peft_model(model, adapter), tiny.tokenizer()).fingerprint()

    assert of(4) == of(4)
    assert of(4) != of(8)

"""The result: words, ranking, relevance, files, text."""

import json
import math
import os
import random
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import alti
from alti.model.rules import OLD
from alti.model.words import group

import tiny
from speed import slow

TEXTS = [
    *tiny.CORPUS,
    " Zoë's  naïve café, 3.14 stars 😀👍🏽!",
    "tab\tand\nnewline\n\n",
    "我喜欢这部电影。 हिन्दी में लिखा",
    "x",
]


def attribution(**changes) -> alti.Attribution:
    """A hand-made result: 'un ##lucky [SEP]'."""
    given = {
        "text": "So unlucky!",
        "tokens": ("[CLS]", "so", "un", "##lucky", "!", "[SEP]"),
        "offsets": ((0, 0), (0, 2), (3, 5), (5, 10), (10, 11), (0, 0)),
        "scores": torch.tensor([0.4, 0.1, 0.05, 0.25, 0.15, 0.05]),
        "special": torch.tensor([True, False, False, False, False, True]),
        "segments": (-1, 0, 0, 0, 0, -1),
        "method": "alti",
        "label": "negative",
        "probability": 0.75,
    }
    return tiny.attribution(**{**given, **changes})


def explained(text="The acting is better than the plot.", **options) -> alti.Attribution:
    model = alti.Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer(), name="tiny"
    )
    return model.explain(text, **options)


def test_it_is_a_sequence_of_tokens_and_scores():
    found = attribution()
    assert [token for token, _ in found] == list(found.tokens)
    assert dict(found)["so"] == pytest.approx(0.1)
    assert len(found) == 6
    assert found[3] == ("##lucky", pytest.approx(0.25))
    with pytest.raises(FrozenInstanceError):
        found.method = "other"


@pytest.mark.parametrize("k", [-1, "a", 1.5])
def test_top_says_what_is_no_number_of_tokens(k):
    with pytest.raises(alti.UsageError, match=f"k = {k!r} is not a number of tokens"):
        attribution().top(k)


def test_a_file_to_save_to_has_a_name():
    with pytest.raises(alti.UsageError, match="3 is no name of a file: give a path"):
        attribution().save(3)


def test_top_leaves_special_tokens_out():
    found = attribution()
    assert [token for token, _ in found.top(2)] == ["##lucky", "!"]
    assert len(found.top(100)) == 4
    assert found.top(0) == []
    assert [word for word, _ in found.words().top(1)] == ["unlucky"]
    with pytest.raises(alti.UsageError, match="k = -1"):
        found.top(-1)


def test_words_are_sums_over_their_tokens():
    words = attribution().words()
    assert list(words) == [
        ("So", pytest.approx(0.1)),
        ("unlucky", pytest.approx(0.3)),
        ("!", pytest.approx(0.15)),
    ]
    assert words.offsets == ((0, 2), (3, 10), (10, 11))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "sentencepiece"])
def test_words_keep_every_score_and_every_character(kind, text):
    tokenizer = tiny.tokenizer(kind)
    head = "AutoModelForCausalLM" if kind == "bpe" else "AutoModel"
    model = tiny.speaking(
        "llama" if kind == "bpe" else "bert", head, kind, max_position_embeddings=200
    )
    found = alti.explain(model, tokenizer, text)
    words = found.words()
    kept = words.scores.sum() + words.extra["ungrouped"]
    torch.testing.assert_close(kept, found.scores.sum(), check_dtype=False)
    if not any(token.isspace() for token in text if token in "\n\r"):  # which is in no word
        torch.testing.assert_close(words.scores.sum(), found.scores[~found.special].sum())
    for word, span in zip(words.tokens, words.offsets, strict=True):
        assert word == text[slice(*span)]
        assert word == word.strip()
    assert "".join("".join(words.tokens).split()) == "".join(text.split())


def test_words_are_the_same_for_every_tokenizer():
    text = "It's not a bad café, doesn't cost 3.14 dollars ... unbelievably funny!"
    expected = [
        "It's",
        "not",
        "a",
        "bad",
        "café",
        ",",
        "doesn't",
        "cost",
        "3.14",
        "dollars",
        "...",
        "unbelievably",
        "funny",
        "!",
    ]
    for kind in ("wordpiece", "bpe", "sentencepiece"):
        found = tiny.tokenizer(kind)(text, return_offsets_mapping=True, add_special_tokens=False)
        words = group(text, dict(enumerate(found["offset_mapping"])))
        assert [text[slice(*span)] for span, _ in words] == expected


def test_words_that_share_a_token_are_one():
    assert group("good, bad", {0: (0, 5), 1: (5, 9)}) == [((0, 5), [0]), ((6, 9), [1])]
    assert group("a b", {0: (0, 1), 1: (1, 2), 2: (2, 3)}) == [
        ((0, 1), [0]),
        ((2, 3), [1, 2]),
    ]  # a space of its own
    assert group("a ", {0: (0, 1), 1: (1, 2)}) == [((0, 1), [0, 1])]
    assert group("one two", {0: (0, 3)}) == [((0, 3), [0])]  # the rest was cut
    assert group("  ", {}) == []
    family = "a \U0001f469\u200d\U0001f467 ❤️"  # an emoji of three characters, one of two
    assert [span for span, _ in group(family, {0: (0, 1), 1: (2, 4), 2: (4, 5), 3: (6, 8)})] == [
        (0, 1),
        (2, 5),
        (6, 8),
    ]


def test_offsets_point_into_the_users_own_text():
    found = explained("The ACTING is bÉtter.")
    assert [found.text[slice(*span)] for span in found.offsets][1].lower() == "the"
    assert "ACTING" in [word for word, _ in found.words()]


def test_relevance_is_the_product_up_to_a_layer():
    found = explained()
    first, second, third = found.layers
    torch.testing.assert_close(found.relevance(0), first)
    torch.testing.assert_close(found.relevance(1), second @ first)
    torch.testing.assert_close(found.relevance(), third @ second @ first)
    torch.testing.assert_close(found.relevance()[0], found.scores)
    with pytest.raises(alti.UsageError, match="layer = 3 does not exist: the model has 3, 0 to 2"):
        found.relevance(3)
    with pytest.raises(alti.UsageError, match="explain with layers=True"):
        explained(layers=False).relevance()


def test_relevance_of_globenc_is_rescaled():
    found = explained(method="globenc")
    assert found.relevance().max() == 1
    for factor in (1e-9, 1e9):  # rows far below 1 have no common sum either
        assert replace(found, layers=factor * found.layers).relevance().max() == 1


def same(a: alti.Attribution, b: alti.Attribution) -> bool:
    plain = [x.to_dict() for x in (a, b)]
    return plain[0] == plain[1]


@pytest.mark.parametrize("options", [{}, {"layers": False}, {"method": "norms"}, {"p": 2}])
def test_round_trips(options, tmp_path):
    found = explained(**options)
    found.save(tmp_path / "result.alti")
    loaded = alti.Attribution.load(tmp_path / "result.alti")
    assert same(found, loaded)
    assert loaded.scores.dtype == found.scores.dtype
    assert list(tmp_path.iterdir()) == [tmp_path / "result.alti"]
    again = alti.Attribution.from_dict(json.loads(json.dumps(found.to_dict())))
    assert same(found, again)
    assert again.scores.dtype == found.scores.dtype == torch.float64
    assert again.to_dict()["format"] == 2


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(alti.LoadError, match="does not exist"):
        alti.Attribution.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("not a result")
    with pytest.raises(alti.LoadError, match=r"text is not a file written by Attribution\.save"):
        alti.Attribution.load(tmp_path / "text")
    save_file({"scores": torch.zeros(2)}, tmp_path / "other")
    with pytest.raises(alti.LoadError, match=r"other is not a file written by Attribution\.save"):
        alti.Attribution.load(tmp_path / "other")
    with pytest.raises(
        alti.LoadError, match="has format 3, and this version of alti reads 1 and 2: update alti"
    ):
        alti.Attribution.from_dict({**attribution().to_dict(), "format": 3})
    with pytest.raises(
        alti.LoadError, match="attribution lacks method, offsets, scores, special, text, tokens"
    ):
        alti.Attribution.from_dict({"format": 1})
    with pytest.raises(alti.UsageError, match="cannot be written: there is no folder"):
        attribution().save(tmp_path / "no" / "folder")
    with pytest.raises(alti.LoadError, match="unknown fields colour: update alti"):
        alti.Attribution.from_dict({**attribution().to_dict(), "colour": 2})


NAN, INF = math.nan, math.inf
EYE = torch.eye(6).expand(2, 6, 6).tolist()
WRONG = [  # a field, a value that it must not have, and what the sentence says
    ("text", None, "texts is not a text"),
    ("text", "half \ud800", "texts is not a text"),
    ("text_pair", 3, "text_pair is not a text or null"),
    ("tokens", ["[CLS]", "so", "un", "##lucky", "!"], "scores is not one finite number per token"),
    ("tokens", ["[CLS]", "so", "un", None, "!", "[SEP]"], "tokens is not a list of texts"),
    ("tokens", "sounu!", "tokens is not a list of texts"),
    ("offsets", [[0, 0]] * 5, "offsets is not one pair per token"),
    ("offsets", [[0, 0, 0]] * 6, "offsets is not a list of pairs"),
    ("offsets", [[0, 12]] * 6, "offsets lie outside the text"),
    ("offsets", [[-1, 2]] * 6, "offsets is not a list of pairs"),
    ("offsets", [[3, 2]] * 6, "offsets is not a list of pairs"),
    ("offsets", [[False, True]] * 6, "offsets is not a list of pairs"),
    ("offsets", [["a", "b"]] * 6, "offsets is not a list of pairs"),
    ("offsets", 7, "offsets is not a list of pairs"),
    ("segments", [-1, 0, 0, 0, 0], "segments is not one number per token"),
    ("segments", [-1, 0, 2, 0, 0, -1], "segments is not a list of -1, 0 and 1"),
    ("segments", [-1, 0, False, 0, 0, -1], "segments is not a list of -1, 0 and 1"),
    ("segments", [-1, 0, 1, 0, 0, -1], "segments name a second text, and there is none"),
    ("scores", [0.1] * 5, "scores is not one finite number per token"),
    ("scores", [[0.1] * 6], "scores is not one finite number per token"),
    ("scores", [True] * 6, "scores is not one finite number per token"),
    ("scores", ["0.1"] * 6, "scores is not one finite number per token"),
    ("scores", [None] * 6, "scores is not one finite number per token"),
    ("scores", [NAN] * 6, "scores is not one finite number per token"),
    ("scores", [10**400] * 6, "scores is not one finite number per token"),
    ("scores", None, "scores is not one finite number per token"),
    ("scores", {}, "scores is not one finite number per token"),
    ("special", [0] * 6, "special is not one truth value per token"),
    ("special", [True], "special is not one truth value per token"),
    ("layers", [[[1.0]]], "layers is not a matrix of finite numbers per layer, token by token"),
    ("layers", [[1.0] * 6] * 6, "layers is not a matrix of finite numbers per layer"),
    ("layers", [], "layers is not a matrix of finite numbers per layer"),
    ("layers", [*EYE, [[1.0]]], "layers is not a matrix of finite numbers per layer"),
    ("layers", [[[INF] * 6] * 6], "layers is not a matrix of finite numbers per layer"),
    ("layers", "layers", "layers is not a matrix of finite numbers per layer"),
    ("method", 5, "method is not a text"),
    ("label", 5, "label is not a text or null"),
    ("probability", NAN, "probability is not a number from 0 to 1 or null"),
    ("probability", -INF, "probability is not a number from 0 to 1 or null"),
    ("probability", 1.5, "probability is not a number from 0 to 1 or null"),
    ("probability", True, "probability is not a number from 0 to 1 or null"),
    ("probability", "0.5", "probability is not a number from 0 to 1 or null"),
    ("target", 0.5, "index is not a whole number from 0 on or null"),
    ("target", -1, "index is not a whole number from 0 on or null"),
    ("position", True, "position is not a whole number from 0 on or null"),
    ("position", 6, "position 6 is behind the last token"),
    ("cut", "rest", "cut is not a list of texts"),
    ("cut", None, "cut is not a list of texts"),
    ("model", None, "model is not a text"),
    ("options", None, "options is not an object"),
    ("options", {"p": NAN}, "options is not an object"),
    ("extra", {"gap": NAN}, "extra is not an object of finite numbers"),
    ("extra", {"gap": "0"}, "extra is not an object of finite numbers"),
    ("extra", [], "extra is not an object of finite numbers"),
    ("format", True, "has format True"),
    ("format", None, "has format None"),
    ("dtype", "__class__", "dtype '__class__' is none of float16, bfloat16, float32, float64"),
    ("dtype", "load", "dtype 'load' is none of"),
    ("dtype", "int64", "dtype 'int64' is none of"),
    ("dtype", None, "dtype None is none of"),
    ("dtype", ["float32"], "is none of"),
    ("checksum", "0" * 16, "unknown fields checksum"),
]


@pytest.mark.parametrize(("field", "value", "message"), WRONG)
def test_a_dict_with_a_wrong_value_is_one_sentence(field, value, message):
    plain = {**tiny.of_format_1(attribution(layers=torch.tensor(EYE))), field: value}
    with pytest.raises(alti.LoadError, match=message) as caught:
        alti.Attribution.from_dict(plain)
    assert "\n" not in str(caught.value)


def nested(depth: int):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@slow
def test_what_is_no_attribution_at_all():
    for plain in ([], None, "text", 5, {1: 2}, {"format": 1, 2: 3}):
        with pytest.raises(alti.LoadError):
            alti.Attribution.from_dict(plain)
    for plain in (attribution().to_dict(), tiny.of_format_1(attribution())):
        for field in plain:
            with pytest.raises(alti.LoadError):
                alti.Attribution.from_dict({**plain, field: nested(100_000)})


def test_fields_that_have_a_default_may_be_missing():
    plain = tiny.of_format_1(attribution())
    for field in plain.keys() - {key for key, value in OLD.items() if value is ...} - {"format"}:
        alti.Attribution.from_dict({key: value for key, value in plain.items() if key != field})
    whole = alti.Attribution.from_dict({**plain, "probability": 1, "scores": [0, 1, 0, 0, 0, 0]})
    assert (whole.probability, whole.scores.dtype) == (1.0, torch.float32)


JUNK = (
    None,
    True,
    0,
    -1,
    10**30,
    10**400,
    0.5,
    NAN,
    INF,
    "",
    "x",
    "\ud800",
    [],
    [[]],
    [None],
    {},
    {"a": 1},
    [[1, 2, 3]],
)


def mutated(value, chance: random.Random):
    """The same JSON with one thing somewhere in it changed, taken out or doubled."""
    if isinstance(value, dict | list) and value and chance.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = chance.choice(keys)
        change = chance.random()
        if change < 0.1:
            del value[key]
        elif change < 0.2 and isinstance(value, list):
            value.append(value[key])
        else:
            value[key] = mutated(value[key], chance)
        return value
    return chance.choice(JUNK)


def test_no_dict_is_read_wrong_whatever_is_changed_in_it():
    chance = random.Random(0)
    plain = json.loads(json.dumps(attribution(layers=torch.tensor(EYE)).to_dict(checksum=True)))
    refused = []
    for number in range(1000):
        given = mutated(deepcopy(plain), chance)
        if isinstance(given, dict) and number % 2:
            given.pop("checksum", None)
        try:
            found = alti.Attribution.from_dict(given)
        except alti.LoadError as error:
            refused.append(str(error))
            continue
        if "checksum" in given:
            assert same(found, alti.Attribution.from_dict(plain))
        json.dumps(found.to_dict(), allow_nan=False)  # what was read can be shown and written again
        found.words().render(), found.to_html()
    assert 500 < len(refused) < 1000
    assert "\n" not in "".join(refused)


def test_every_changed_byte_of_a_file_is_noticed(tmp_path):
    found = attribution(layers=torch.tensor(EYE), text="So unlucky! é 😀")
    found.save(tmp_path / "good")
    content, file, chance = (tmp_path / "good").read_bytes(), tmp_path / "bad", random.Random(0)
    refused = []
    for place in range(len(content)):
        for byte in (content[place] ^ 1 << chance.randrange(8), chance.randrange(256)):
            file.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
            try:
                assert same(alti.Attribution.load(file), found)
            except alti.LoadError as error:
                refused.append(str(error))
    assert len(refused) > 1.9 * len(content)
    assert "\n" not in "".join(refused)


def test_files_that_were_cut_or_grew_are_noticed(tmp_path):
    found = attribution()
    found.save(tmp_path / "good")
    content, file, chance = (tmp_path / "good").read_bytes(), tmp_path / "bad", random.Random(0)
    changed = [content[:end] for end in range(0, len(content), 7)] + [content + b"\0", content * 2]
    for _ in range(300):
        start, end = sorted(chance.sample(range(len(content)), 2))
        changed.append(content[:start] + chance.randbytes(chance.randrange(20)) + content[end:])
    for bad in changed:
        file.write_bytes(bad)
        with pytest.raises(alti.LoadError, match="bad"):
            alti.Attribution.load(file)


STORED = Path(__file__).with_name("stored")


@pytest.mark.parametrize(
    ("method", "options", "of"),
    [("absence", {}, "relative"), ("absence", {"messages": 0}, None), ("linear", {}, None)],
)
def test_scores_of_absence_were_always_relative(method, options, of):
    plain = {**tiny.of_format_1(attribution()), "method": method, "options": options}
    assert alti.Attribution.from_dict(plain).prediction.of == of


def test_files_and_dicts_of_format_1_are_read():
    """Written by the version before results could hold several predictions."""
    plain = json.loads((STORED / "format1.json").read_text())
    file = alti.Attribution.load(STORED / "format1.alti")
    assert same(file, alti.Attribution.from_dict(plain))
    assert (file.text, file.text_pair) == ("A clever film.", "It is not bad.")
    assert file.label == "positive"
    assert list(file.scores) == pytest.approx(plain["scores"])
    assert json.loads(json.dumps(tiny.of_format_1(file))) == plain


def test_a_file_without_its_checksum_or_with_more_is_refused(tmp_path):
    attribution(layers=torch.tensor(EYE)).save(tmp_path / "new")
    with safe_open(tmp_path / "new", "pt") as file:
        metadata, names = file.metadata(), file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
    assert metadata.keys() == {"alti", "checksum"}
    save_file(tensors, tmp_path / "bare", {"alti": metadata["alti"]})
    with pytest.raises(alti.LoadError, match="bare is not a file written by"):
        alti.Attribution.load(tmp_path / "bare")
    metadata["checksun"] = metadata.pop("checksum")
    save_file(tensors, tmp_path / "odd", metadata)
    with pytest.raises(alti.LoadError, match="odd is not a file written by"):
        alti.Attribution.load(tmp_path / "odd")


@pytest.mark.parametrize(
    "change",
    [
        {"scores": torch.zeros(6).long()},
        {"scores": torch.zeros(6).double()},
        {"colour": EYE},
        {"format": EYE},
    ],
)
def test_tensors_of_another_kind_are_refused(tmp_path, change):
    found = attribution()
    tensors = {"scores": found.scores, "special": found.special, **change}
    plain = tiny.of_format_1(found)
    del plain["scores"], plain["special"], plain["layers"]
    tensors = {name: torch.as_tensor(value) for name, value in tensors.items()}
    save_file(tensors, tmp_path / "odd", {"alti": json.dumps(plain)})
    with pytest.raises(alti.LoadError, match="odd"):
        alti.Attribution.load(tmp_path / "odd")


def test_a_deep_or_strange_header_is_one_sentence(tmp_path):
    long = '{"format": 1' + "0" * 5000 + "}"
    for number, text in enumerate(("[" * 100_000, "null", "5", '"x"', "{}", long)):
        save_file({"scores": torch.zeros(2)}, tmp_path / f"odd{number}", {"alti": text})
        with pytest.raises(alti.LoadError, match=f"odd{number}"):
            alti.Attribution.load(tmp_path / f"odd{number}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    device = "a device or a pipe"
    for path, what in ((tmp_path / "pipe", device), (tmp_path, "a folder"), ("/dev/null", device)):
        with pytest.raises(alti.LoadError, match=f"is {what}: give a file written by"):
            alti.Attribution.load(path)


def test_a_loaded_result_does_not_change_with_its_file(tmp_path):
    attribution().save(tmp_path / "result")
    found = alti.Attribution.load(tmp_path / "result")
    size = (tmp_path / "result").stat().st_size
    (tmp_path / "result").write_bytes(b"\xff" * size)  # in place: a map of the file would show it
    assert same(found, attribution())


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize("field", ["scores", "layers", "probability", "extra", "options"])
def test_numbers_that_json_has_not_are_refused(tmp_path, field, number):
    values = {
        "scores": torch.tensor([0.0, number, 0.0, 0.0, 0.0, 0.0]),
        "layers": torch.full((2, 6, 6), number),
        "probability": number,
        "extra": {"gap": number},
        "options": {"p": number},
    }
    found = attribution(**{field: values[field]})
    for store in (found.to_dict, lambda: found.save(tmp_path / "result")):
        with pytest.raises(alti.AltiError, match=f"cannot be stored: its {field} is not"):
            store()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", sorted(set(alti.METHODS) - {"random"}))
def test_every_method_gives_what_can_be_stored(method, tmp_path):
    found = explained(method=method)
    plain = json.loads(json.dumps(found.to_dict(checksum=True), allow_nan=False))
    assert same(alti.Attribution.from_dict(plain), found)
    for one in (found, found.words()):
        one.save(tmp_path / "result")
        assert same(alti.Attribution.load(tmp_path / "result"), one)


def test_a_checksum_is_of_the_content_not_of_its_spelling():
    plain = attribution(probability=1.0).to_dict(checksum=True)
    assert "checksum" not in attribution().to_dict()
    reordered = dict(sorted(json.loads(json.dumps(plain)).items()))
    reordered["predictions"][0]["probability"] = 1  # as JavaScript writes 1.0
    alti.Attribution.from_dict(reordered)
    edited = attribution(probability=1.0).to_dict()
    scores = [0.4, 0.1, 0.05, 0.25, 0.15, 0.06]
    source = {**plain["source"], "texts": ["So unlucky?"]}
    labels = [{**plain["predictions"][0], "label": "positive"}]
    for change in ({"source": source}, {"scores": [scores]}, {"predictions": labels}):
        with pytest.raises(alti.LoadError, match="its checksum: it was changed or damaged"):
            alti.Attribution.from_dict({**plain, **change})
        alti.Attribution.from_dict({**edited, **change})


def test_terminal_text():
    assert str(attribution(model="tiny")) == "\n".join([
        "negative (p = 0.750) · alti · tiny",
        "  So       0.100  ████████",
        "  unlucky  0.300  ████████████████████████",
        "  !        0.150  ████████████",
        "  special tokens 0.450",
        "  scores: shares of 1",
    ])  # fmt: skip
    assert str(attribution(label=" Paris")).startswith("' Paris' (p = 0.750)")
    assert "##lucky  0.250" in attribution().render(words=False)
    signed = attribution(scores=torch.tensor([0.0, -0.1, 0.1, 0.1, 0.2, 0.0]))
    assert "-0.100" in str(signed)
    assert "+0.200" in str(signed)
    assert "-0.100  ▒▒▒▒▒▒▒▒▒▒▒▒" in attribution(
        scores=torch.tensor([0.0, -0.1, 0.1, 0.1, 0.2, 0.0])
    ).render(words=False)
    assert "(p = 3e-05)" in str(attribution(probability=3.2e-5))
    assert str(attribution(probability=None, extra={"value": 3.14159})).startswith(
        "negative = 3.142 · alti"
    )


def test_terminal_text_of_a_long_text_shows_the_best():
    words = [f"word{i}" for i in range(100)]
    text, offsets, at = " ".join(words), [], 0
    for word in words:
        offsets.append((at, at + len(word)))
        at += len(word) + 1
    given = {
        "text": text,
        "tokens": tuple(words),
        "offsets": tuple(offsets),
        "scores": torch.arange(100.0),
    }
    lines = str(
        attribution(**given, special=torch.zeros(100).bool(), segments=(0,) * 100)
    ).splitlines()
    assert lines[1].split()[0] == "word99"
    assert lines[-2] == "  … and 60 more"


def test_a_text_without_words(tmp_path):
    found = attribution(
        text="",
        tokens=("[CLS]", "[SEP]"),
        offsets=((0, 0), (0, 0)),
        scores=torch.ones(2) / 2,
        special=torch.tensor([True, True]),
        segments=(-1, -1),
    )
    assert len(found.words()) == 0
    assert found.top(3) == []
    assert str(found) == "\n".join(
        ["negative (p = 0.750) · alti", "  special tokens 1.000", "  scores: shares of 1"]
    )
    found.words().save(tmp_path / "empty")
    assert len(alti.Attribution.load(tmp_path / "empty")) == 0


def test_a_mask_in_the_text_is_no_part_of_a_word():
    model = alti.Model(tiny.speaking("bert", "AutoModelForMaskedLM"), tiny.tokenizer())
    found = model.explain("The film is [MASK].")
    assert found.words().tokens == ("The", "film", "is", ".")
    with pytest.raises(alti.UsageError, match="a text or ids=, and neither was given"):
        model.explain(None)
    with pytest.raises(alti.UsageError, match="text is int, expected a str"):
        model.explain(3)

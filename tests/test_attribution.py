"""The result: words, ranking, relevance, files, text."""

import json
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from safetensors.torch import save_file

import alti
from alti.words import group

import tiny

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
    return alti.Attribution(**{**given, **changes})


def explained(text="The acting is better than the plot.", **options) -> alti.Attribution:
    model = alti.Model(tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer(), name="tiny")
    return model.explain(text, **options)


def test_it_is_a_sequence_of_tokens_and_scores():
    found = attribution()
    assert [token for token, _ in found] == list(found.tokens)
    assert dict(found)["so"] == pytest.approx(0.1)
    assert len(found) == 6
    assert found[3] == ("##lucky", pytest.approx(0.25))
    with pytest.raises(FrozenInstanceError):
        found.method = "other"


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
    model = tiny.speaking("llama" if kind == "bpe" else "bert", head, kind, max_position_embeddings=200)
    found = alti.explain(model, tokenizer, text)
    words = found.words()
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
    assert group("a b", {0: (0, 1), 1: (1, 2), 2: (2, 3)}) == [((0, 1), [0]), ((2, 3), [1, 2])]  # a space of its own
    assert group("a ", {0: (0, 1), 1: (1, 2)}) == [((0, 1), [0, 1])]
    assert group("one two", {0: (0, 3)}) == [((0, 3), [0])]  # the rest was cut
    assert group("  ", {}) == []
    family = "a \U0001f469\u200d\U0001f467 ❤️"  # an emoji of three characters, one of two
    assert [span for span, _ in group(family, {0: (0, 1), 1: (2, 4), 2: (4, 5), 3: (6, 8)})] == [(0, 1), (2, 5), (6, 8)]


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
    assert again.to_dict()["format"] == 1


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(alti.LoadError, match="does not exist"):
        alti.Attribution.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("not a result")
    with pytest.raises(alti.LoadError, match=r"text is not a file written by Attribution\.save"):
        alti.Attribution.load(tmp_path / "text")
    save_file({"scores": torch.zeros(2)}, tmp_path / "other")
    with pytest.raises(alti.LoadError, match=r"other is not a file written by Attribution\.save"):
        alti.Attribution.load(tmp_path / "other")
    with pytest.raises(alti.LoadError, match="has format 2, and this version of alti reads 1: update alti"):
        alti.Attribution.from_dict({**attribution().to_dict(), "format": 2})
    with pytest.raises(alti.LoadError, match="attribution lacks method, offsets, scores, special, text, tokens"):
        alti.Attribution.from_dict({"format": 1})
    with pytest.raises(alti.UsageError, match="cannot be written: there is no folder"):
        attribution().save(tmp_path / "no" / "folder")
    with pytest.raises(alti.LoadError, match="unknown fields colour: update alti"):
        alti.Attribution.from_dict({**attribution().to_dict(), "colour": 2})


def test_terminal_text():
    assert str(attribution(model="tiny")) == "\n".join([
        "negative (p = 0.750) · alti · tiny",
        "  So       0.100  ████████",
        "  unlucky  0.300  ████████████████████████",
        "  !        0.150  ████████████",
        "  special tokens 0.450",
    ])  # fmt: skip
    assert str(attribution(label=" Paris")).startswith("' Paris' (p = 0.750)")
    assert "##lucky  0.250" in attribution().render(words=False)
    signed = attribution(scores=torch.tensor([0.0, -0.1, 0.1, 0.1, 0.2, 0.0]))
    assert "-0.100" in str(signed)
    assert "+0.200" in str(signed)
    assert "-0.100  ▒▒▒▒▒▒▒▒▒▒▒▒" in attribution(scores=torch.tensor([0.0, -0.1, 0.1, 0.1, 0.2, 0.0])).render(
        words=False
    )
    assert "(p = 3e-05)" in str(attribution(probability=3.2e-5))
    assert str(attribution(probability=None, extra={"value": 3.14159})).startswith("negative = 3.142 · alti")


def test_terminal_text_of_a_long_text_shows_the_best():
    words = [f"word{i}" for i in range(100)]
    text, offsets, at = " ".join(words), [], 0
    for word in words:
        offsets.append((at, at + len(word)))
        at += len(word) + 1
    given = {"text": text, "tokens": tuple(words), "offsets": tuple(offsets), "scores": torch.arange(100.0)}
    lines = str(attribution(**given, special=torch.zeros(100).bool(), segments=(0,) * 100)).splitlines()
    assert lines[1].split()[0] == "word99"
    assert lines[-1] == "  … and 60 more"


def test_a_text_without_words(tmp_path):
    found = attribution(text="", tokens=("[CLS]", "[SEP]"), offsets=((0, 0), (0, 0)), scores=torch.ones(2) / 2)
    found = alti.Attribution(**{**found.__dict__, "special": torch.tensor([True, True]), "segments": (-1, -1)})
    assert len(found.words()) == 0
    assert found.top(3) == []
    assert str(found) == "negative (p = 0.750) · alti\n  special tokens 1.000"
    found.words().save(tmp_path / "empty")
    assert len(alti.Attribution.load(tmp_path / "empty")) == 0


def test_a_mask_in_the_text_is_no_part_of_a_word():
    model = alti.Model(tiny.speaking("bert", "AutoModelForMaskedLM"), tiny.tokenizer())
    found = model.explain("The film is [MASK].")
    assert found.words().tokens == ("The", "film", "is", ".")
    with pytest.raises(alti.UsageError, match="text is NoneType, expected a str"):
        model.explain(None)

"""Tokenizers of plain Python: the characters that their tokens stand for are found by spelling."""

import io
import json
import random
import warnings

import pytest
import torch
from transformers import (
    BertTokenizerLegacy,
    ByT5Tokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
)

import alti
from alti.model import slow
from alti.model.head import token_label
from alti.model.slow import UnsurePlaces
from alti.model.spelling import Place, places, plain
from alti.model.words import stripped

sentencepiece = pytest.importorskip(
    "sentencepiece", reason="needs sentencepiece, which the slow tokenizers are made of"
)

GERMAN = [
    "Ein kleiner Hund läuft über die Wiese.",
    "Zwei Männer stehen im Regen und warten.",
    "Eine Frau fährt mit dem Fahrrad durch die Stadt.",
]
ENGLISH = [
    "A small dog runs across the meadow.",
    "Two men are standing in the rain and waiting.",
    "A woman rides her bicycle through the town.",
]
ODD = [
    "Ein kleiner Hund läuft.",
    "  Ein\tHund   läuft \n",
    "ﬁne ½ ① ＡＢＣ 𝐀 …",  # one character is several, and in other forms
    "La\u0308uft é e\u0301 ñ",  # accents apart and together
    "Hund\u200bund\u00adRegen\ufeff",  # nothing is seen of some
    "Hund☃ ☃☃ 東京 läuft",  # not in the vocabulary
    "ẞ ß İ ı Straße",  # capitals of two letters
    "1.000,50 € – „Hallo“ «x» ~～",
    "▁Ein▁Hund",
    "한국어 กำ हिन्दी",
    "a\U0001f469\u200d\U0001f680b \U0001f44d\U0001f3fd",
]


def model_of(texts: list[str], size: int, **options: object) -> bytes:
    """A sentencepiece model of a few sentences."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 20),
        model_writer=written,
        vocab_size=size,
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return written.getvalue()


def vocabulary_of(*models: bytes) -> dict[str, int]:
    names = ["</s>", "<unk>", "<pad>", "<s>", ">>deu<<"]
    for proto in models:
        pieces = sentencepiece.SentencePieceProcessor(model_proto=proto)
        names += [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    return {name: i for i, name in enumerate(dict.fromkeys(names))}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of two languages, each with its pieces."""
    folder = tmp_path_factory.mktemp("pieces")
    german, english = model_of(GERMAN, 60), model_of(ENGLISH, 50, normalization_rule_name="nfkc_cf")
    (folder / "source.spm").write_bytes(german)
    (folder / "target.spm").write_bytes(english)
    (folder / "vocab.json").write_text(json.dumps(vocabulary_of(german, english)))
    (folder / "source.json").write_text(json.dumps(vocabulary_of(german)))
    (folder / "target.json").write_text(json.dumps(vocabulary_of(english)))
    return folder


def marian_tokenizer(files, **options) -> MarianTokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # recommends a package that it does not use
        paths = [str(files / name) for name in ("source.spm", "target.spm")]
        return MarianTokenizer(*paths, options.pop("vocab", str(files / "vocab.json")), **options)


@pytest.fixture(scope="module")
def marian(files) -> alti.Model:
    """A tiny Marian with the tokenizer that Marian has."""
    tokenizer = marian_tokenizer(files)
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=len(tokenizer),
        decoder_vocab_size=len(tokenizer),
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None,
    )
    return alti.Model(MarianMTModel(config).eval().double(), tokenizer, name="tiny")


@pytest.mark.parametrize("text", ODD)
def test_places_are_those_of_sentencepiece(files, text):
    """Its own offsets are another way to the same; a space may be of either side."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(files / "source.spm"))
    its = pieces.encode(text, return_type="offset_mapping")
    found = places(text, its["pieces"])
    assert all(place.sure for place in found)
    for place, span in zip(found, its["offsets"], strict=True):
        ours, theirs = text[slice(*place.span)].strip("▁ "), text[slice(*span)].strip("▁ ")
        assert plain(theirs) in plain(ours)  # of one that is several, it gives all to one token
        assert place.span[0] <= max(span[0], stripped(text, span)[0])


@pytest.mark.parametrize("text", ODD)
def test_every_token_spells_what_was_typed(marian, text):
    encoded = marian.encoder.encode(text)
    pieces = marian.tokenizer.tokenize(text)
    own = [i for i, segment in enumerate(encoded.segments) if segment == 0]
    assert len(own) == len(pieces)
    read = "".join(plain(piece) for piece in pieces)
    assert read == plain(text)
    covered = {at for i in own for at in range(*encoded.offsets[i])}
    assert all(at in covered for at, each in enumerate(text) if plain(each))
    for i, piece in zip(own, pieces, strict=True):
        assert plain(piece) in plain(text[slice(*encoded.offsets[i])])
    assert encoded.ids == marian.tokenizer(text)["input_ids"]


def test_texts_of_random_characters(files):
    """The pieces of whatever is typed lie in the text, one behind the other."""
    chosen = random.Random(0)
    alphabet = "aäe Hundrgü.,☃ß½ﬁÅ\u0301\u200d東\t"
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(files / "source.spm"))
    for _ in range(300):
        text = "".join(chosen.choices(alphabet, k=chosen.randint(1, 25)))
        found = places(text, pieces.encode(text, return_type=str))
        assert found is not None
        starts = [place.span[0] for place in found]
        assert starts == sorted(starts)


def test_a_place_that_is_not_the_first_that_fits():
    assert places("xaa", [None, "▁a"]) == [Place((0, 2), True), Place((2, 3), True)]


def test_places_that_nobody_can_tell():
    found = places("ab ab", [None, "ab", None])
    assert [place.sure for place in found] == [False, False, False]
    assert found[1].span == (0, 5)  # all that it could be


def test_a_tokenizer_that_leaves_out_and_rewrites():
    text = "naïve don't"
    found = places(text, ["naive", "don", "&apos;", "t"])
    assert [text[slice(*place.span)] for place in found] == ["naïve", "don", "'", "t"]
    assert all(place.sure for place in found)
    assert places("é e", ["e", "e"]) == [Place((0, 1), True), Place((2, 3), True)]


def test_bytes_share_their_character():
    text = "a☃"
    assert [p.span for p in places(text, ["▁a", "<0xE2>", "<0x98>", "<0x83>"])] == [
        (0, 1),
        *[(1, 2)] * 3,
    ]
    byt5 = ByT5Tokenizer()
    assert slow.tokenized(byt5, text).offsets == [(0, 1), *[(1, 2)] * 3, (0, 0)]


def test_other_spellings_are_refused(marian, monkeypatch):
    assert places("Hund", ["Ġ7", "§"]) is None
    monkeypatch.setattr(marian.tokenizer, "_tokenize", lambda text: ["Ġ7", "§"])
    with pytest.raises(alti.UsageError, match="MarianTokenizer spells 'Hund' with other chara"):
        marian.encoder.encode("Hund")


def test_marks_of_parts_of_words(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##even\nroad\n")
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = BertTokenizerLegacy(str(tmp_path / "vocab.txt"), model_input_names=names)
    found = slow.tokenized(tokenizer, "Uneven ☃ road", "uneven")
    assert found.tokens == [
        "[CLS]", "un", "##even", "[UNK]", "road", "[SEP]", "un", "##even", "[SEP]",
    ]  # fmt: skip
    spans = [(0, 0), (0, 2), (2, 6), (7, 8), (9, 13), (0, 0), (0, 2), (2, 6), (0, 0)]
    assert found.offsets == spans
    assert found.segments == [-1, 0, 0, 0, 0, -1, 1, 1, -1]
    assert found.types == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    cut = slow.tokenized(tokenizer, "Uneven ☃ road", "uneven", 7)
    assert cut.tokens == ["[CLS]", "un", "##even", "[SEP]", "un", "##even", "[SEP]"]
    assert cut.offsets == [(0, 0), (0, 2), (2, 6), (0, 0), (0, 2), (2, 6), (0, 0)]


def test_unsure_places_are_told(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nroad\n")
    tokenizer = BertTokenizerLegacy(str(tmp_path / "vocab.txt"))
    with pytest.warns(UnsurePlaces, match=r"'Snow rain road' '\[UNK\]', '\[UNK\]' stand for"):
        found = slow.tokenized(tokenizer, "Snow rain road")
    assert found.offsets[1:4] == [(0, 9), (0, 9), (10, 14)]


def test_what_is_written_is_tokenized_as_a_target(marian):
    """The target's pieces are others than the source's, and its capitals are gone."""
    found = marian.explain(GERMAN[0], answer=ENGLISH[0])
    assert marian.tokenizer.current_spm is marian.tokenizer.spm_source  # as it was
    start = found.source.answer
    expected = marian.tokenizer(text_target=ENGLISH[0])["input_ids"]
    assert [*found.source.ids[start:], marian.tokenizer.eos_token_id] == expected
    assert expected != marian.tokenizer(ENGLISH[0])["input_ids"]
    spelt = [ENGLISH[0][slice(*span)] for span in found.source.offsets[start:]]
    assert "".join(spelt).replace(" ", "") == ENGLISH[0].replace(" ", "")


def test_a_marian_checkpoint_is_explained_and_aligned(marian, tmp_path):
    marian.model.save_pretrained(tmp_path)
    marian.tokenizer.save_pretrained(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    loaded = alti.load(tmp_path, dtype="float64")
    found = loaded.explain(GERMAN[0], answer=ENGLISH[0], method="linear")
    again = marian.explain(
        ids=marian.tokenizer(GERMAN[0])["input_ids"],
        answer_ids=marian.tokenizer(text_target=ENGLISH[0])["input_ids"][:-1],
        method="linear",
    )
    torch.testing.assert_close(found.scores, again.scores, atol=1e-12, rtol=0)
    alignment = found.alignment(near=1)
    assert alignment.source == ("Ein", "kleiner", "Hund", "läuft", "über", "die", "Wiese", ".")
    assert alignment.target == ("A", "small", "dog", "runs", "across", "the", "meadow", ".")
    written = loaded.explain(GERMAN[0], generate=4)
    assert len(written) == 4


def test_sentencepiece_is_named_where_it_is_missing(marian, tmp_path, monkeypatch):
    def refusing(*args, **options):
        raise ImportError("\nMarianTokenizer requires the SentencePiece library but it was not …")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", refusing)
    marian.model.save_pretrained(tmp_path)
    with pytest.raises(alti.LoadError, match="needs sentencepiece: pip install sentencepiece"):
        alti.load(tmp_path)


def test_a_language_code_in_the_text(marian):
    found = marian.encoder.encode(">>deu<< Ein Hund")
    assert found.tokens[0] == ">>deu<<"
    assert found.offsets[0] == (0, 7)


def test_unknown_pieces_keep_their_place(marian):
    found = marian.explain("Ein ☃ läuft", answer="A dog")
    at = found.source.unknown.index("<unk>")
    assert "Ein ☃ läuft"[slice(*found.source.offsets[at])] == "☃"
    assert found.source.tokens[at] == "<unk>"


def test_a_long_source_is_cut(marian):
    text = " ".join(GERMAN)
    with pytest.raises(alti.UsageError, match="more than the 64 that the model takes"):
        marian.explain(text, answer="A dog")
    found = marian.explain(text, answer="A dog", truncate=True)
    assert found.source.decoder == 64
    assert text.endswith(found.source.cut[0])


@pytest.fixture(scope="module")
def m2m(files) -> alti.Model:
    tokenizer = M2M100Tokenizer(
        str(files / "vocab.json"), str(files / "source.spm"), src_lang="de", tgt_lang="en"
    )
    rows = len(tokenizer) + 110  # languages come behind the vocabulary
    torch.manual_seed(0)
    config = M2M100Config(
        vocab_size=rows,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
    )
    network = M2M100ForConditionalGeneration(config).eval().double()
    return alti.Model(network, tokenizer, name="tiny")


def test_languages_are_special_tokens(m2m):
    found = m2m.explain(GERMAN[1], answer=ENGLISH[1])
    names = found.source.tokens
    special = [
        name for name, mark in zip(names, found.source.special.tolist(), strict=True) if mark
    ]
    assert special == ["__de__", "</s>", "</s>", "__en__"]
    assert found.source.ids[0] == m2m.tokenizer.get_lang_id("de")
    ids = m2m.explain(ids=list(found.source.ids[: found.source.decoder]), answer_ids=[7, 8])
    assert ids.source.special.tolist()[: found.source.decoder].count(True) == 2


def test_the_target_language_is_forced_on_what_is_written(m2m):
    found = m2m.explain(GERMAN[1], generate=3)
    assert found.source.tokens[found.source.decoder :][:2] == ("</s>", "__en__")
    assert len(found) == 2  # the language is one of the three
    other = m2m.tokenizer.get_lang_id("fr")
    asked = {"max_new_tokens": 3, "forced_bos_token_id": other}
    found = m2m.explain(GERMAN[1], generate=asked)
    assert found.source.tokens[found.source.decoder :][:2] == ("</s>", "__fr__")


def test_a_language_that_is_not_given(m2m, monkeypatch):
    monkeypatch.setattr(m2m.tokenizer, "tgt_lang", None)
    with pytest.raises(alti.UsageError, match=r"no language None to write: set tokenizer.tgt_lang"):
        m2m.explain(GERMAN[1], answer=ENGLISH[1])
    assert m2m.tokenizer.prefix_tokens == [m2m.tokenizer.get_lang_id("de")]


def test_languages_are_given_to_load(m2m, run, tmp_path):
    m2m.model.float().save_pretrained(tmp_path)
    m2m.model.double()
    m2m.tokenizer.save_pretrained(tmp_path)
    loaded = alti.load(tmp_path, src_lang="fr", tgt_lang="de")
    found = loaded.explain(GERMAN[1], answer=ENGLISH[1])
    assert found.source.tokens[0] == "__fr__"
    assert found.source.tokens[found.source.answer - 1] == "__de__"
    with pytest.raises(alti.UsageError, match="src_lang = 'klingon' is no language of M2M100Tok"):
        alti.load(tmp_path, src_lang="klingon")
    with pytest.raises(
        alti.UsageError, match="tokenizer of minilm-l6-sst2 has no languages: leave out"
    ):
        alti.load(tgt_lang="de")


def test_two_vocabularies(files):
    """Of a source by its ids, only numbers could be shown."""
    tokenizer = marian_tokenizer(
        files,
        vocab=str(files / "source.json"),
        target_vocab_file=str(files / "target.json"),
        separate_vocabs=True,
    )
    torch.manual_seed(0)
    rows = len(tokenizer.encoder), len(tokenizer.target_encoder)
    config = MarianConfig(
        vocab_size=rows[0],
        decoder_vocab_size=rows[1],
        share_encoder_decoder_embeddings=False,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    model = alti.Model(MarianMTModel(config).eval().double(), tokenizer, name="tiny")
    found = model.explain(GERMAN[0], answer=ENGLISH[0])
    start = found.source.answer
    target = {i: name for name, i in tokenizer.target_encoder.items()}
    assert list(found.source.tokens[start:]) == [target[i] for i in found.source.ids[start:]]
    source = {i: name for name, i in tokenizer.encoder.items()}
    own = found.source.ids[: found.source.decoder]
    assert list(found.source.tokens[: found.source.decoder]) == [source[i] for i in own]
    with pytest.raises(alti.UsageError, match="reads and writes with two vocabularies"):
        model.explain(ids=list(own), answer="A dog")


def test_rows_without_a_name(marian):
    """A model may have more rows than its tokenizer has pieces."""
    encoder = marian.encoder
    assert encoder.names([5, 10_000]) == [marian.tokenizer.convert_ids_to_tokens(5), "10000"]
    assert token_label(marian.tokenizer, 10_000) == "10000"


def test_languages_and_pieces_are_in_the_fingerprint(m2m, files, monkeypatch):
    before = m2m.fingerprint()
    assert m2m.fingerprint() == before
    monkeypatch.setattr(m2m.tokenizer, "tgt_lang", "fr")
    french = m2m.fingerprint()
    assert french != before
    other = sentencepiece.SentencePieceProcessor(model_file=str(files / "target.spm"))
    monkeypatch.setattr(m2m.tokenizer, "sp_model", other)
    assert m2m.fingerprint() not in (before, french)

"""What is explained: positions, labels, probabilities, and a sentence where there is no answer."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import alti
from alti.model.head import Head

import tiny
from speed import mostly_slow

SEQUENCE = [f for f in tiny.CONFIGS if tiny.classifies(f)]
TEXT = tiny.CORPUS[1]


def model_of(family, head="AutoModelForSequenceClassification", **config):
    return alti.Model(tiny.speaking(family, head, **config), tiny.tokenizer())


def pooled(model, ids):
    """The position that the head reads; enter behind what refuses encoder–decoders."""
    pool = alti.FAMILIES[model.config.model_type].pool
    pool = getattr(model.config, pool.removeprefix("config:"), pool)
    return Head("sequence", pool, model.config).position(ids[0].tolist(), None)


def logits_with_noise(model, batch, rows):
    """The logits when the final hidden state of some positions is disturbed."""

    def disturb(module, args, kwargs, output):
        getattr(output, "last_hidden_state", output)[:, rows] += 1.0

    # their base model ends with a pooler
    family, base = model.config.model_type, model.base_model
    if family in ("bert", "albert", "ernie", "rembert", "megatron-bert"):
        final = base.encoder
    else:
        final = base.layers[-1] if family in ("gte", "nomic_bert") else base
    handle = final.register_forward_hook(disturb, with_kwargs=True)
    try:
        with torch.no_grad():
            return model(**batch).logits
    finally:
        handle.remove()


POOLING = [(family, {}) for family in SEQUENCE] + [("modernbert", {"classifier_pooling": "mean"})]


@pytest.mark.parametrize(("family", "config"), POOLING)
def test_the_position_that_a_classifier_reads(family, config):
    model = tiny.build(family, "AutoModelForSequenceClassification", **config)
    ids = torch.tensor([[5, 9, 11, 20, 2, 31, 12, 2]])  # ends with EOS
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        before = model(**batch).logits
    position = pooled(model, ids)
    others = [i for i in range(8) if i != position]
    if position is None:
        assert all(
            not torch.allclose(logits_with_noise(model, batch, [i]), before) for i in range(8)
        )
        return
    assert torch.equal(logits_with_noise(model, batch, others), before)
    assert not torch.allclose(logits_with_noise(model, batch, [position]), before)


@mostly_slow("family", [f for f in SEQUENCE if f not in tiny.ENCODER_DECODERS], quick=tiny.FEW)
def test_check_finds_a_wrong_position(family, monkeypatch):
    kind = "bpe" if family in tiny.DECODERS else "wordpiece"
    dtype = torch.float32 if family == "gemma2" else torch.float64  # its padding is nan in float64
    model = tiny.speaking(family, "AutoModelForSequenceClassification", kind, dtype=dtype)
    model = alti.Model(model, tiny.tokenizer(kind))
    assert max(model.check()) < 1e-6
    wrong = {"first": "last", "last": "first"}.get(alti.FAMILIES[family].pool, "mean")
    monkeypatch.setitem(alti.FAMILIES, family, replace(alti.FAMILIES[family], pool=wrong))
    again = alti.Model(model.model, model.tokenizer)
    for trained in (True, False):
        model.model.requires_grad_(trained)
        with pytest.raises(
            alti.DecompositionError,
            match=rf"{family}: the head reads position \d+, not where",
        ):
            again.check()


def test_the_last_position_is_found_as_the_model_finds_it():
    model = tiny.build("gpt2", "AutoModelForSequenceClassification", pad_token_id=2)
    ids = torch.tensor(
        [[5, 9, 11, 20, 2]]
    )  # the last real token is the pad token: the head reads the one before
    assert pooled(model, ids) == 3
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        before = model(**batch).logits
    assert torch.equal(logits_with_noise(model, batch, [0, 1, 2, 4]), before)


def test_sequence_classification():
    model = model_of("bert", id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})
    found = model.explain(TEXT)
    with torch.no_grad():
        probabilities = model.model(**tiny.tokenizer()(TEXT, return_tensors="pt")).logits.softmax(
            -1
        )[0]
    assert found.label == ("bad", "good")[int(probabilities.argmax())]
    assert found.probability == pytest.approx(float(probabilities.max()))
    assert found.position == 0
    for target in ("good", "GOOD", 1, "1"):
        other = model.explain(TEXT, target=target)
        assert (other.label, other.target) == ("good", 1)
        assert other.probability == pytest.approx(float(probabilities[1]))


def test_integers_of_any_make():
    model = model_of("bert")
    for one in (1, np.int64(1), torch.tensor(1)):
        assert model.explain(TEXT, target=one).target == 1
    tagger = model_of("bert", "AutoModelForTokenClassification")
    assert tagger.explain(TEXT, position=np.int64(2)).position == 2
    for wrong in (1.5, "1", True):
        with pytest.raises(alti.UsageError, match="is outside the text"):
            tagger.explain(TEXT, position=wrong)


@pytest.mark.parametrize("target", ["ugly", 2, -1, True, 1.0])
def test_an_unknown_label(target):
    model = model_of("bert", id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})
    with pytest.raises(
        alti.UsageError,
        match=rf"target = {target!r} is not a label of this model: it has 0 bad, 1 good",
    ):
        model.explain(TEXT, target=target)


def test_a_pair_of_texts():
    model = model_of("bert")
    found = model.explain("the acting", "a long film")
    assert found.tokens.count("[SEP]") == 2
    assert [w for w, _ in found.words()] == ["the", "acting", "a", "long", "film"]
    assert found.words().segments == (0, 0, 1, 1, 1)
    swapped = model.explain("a long film", "the acting")
    assert not torch.allclose(found.scores.sort().values, swapped.scores.sort().values)
    with torch.no_grad():
        logits = model.model(
            **tiny.tokenizer()("the acting", "a long film", return_tensors="pt")
        ).logits
    assert found.probability == pytest.approx(float(logits.softmax(-1).max()))


@pytest.mark.parametrize(
    ("config", "probability"),
    [
        ({"num_labels": 3}, "softmax"),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, "sigmoid"),
        ({"num_labels": 1}, None),
        ({"num_labels": 1, "problem_type": "regression"}, None),
        ({"num_labels": 2, "problem_type": "regression"}, None),
        ({"num_labels": 1, "problem_type": "multi_label_classification"}, "sigmoid"),
    ],
)
def test_heads_and_the_probability_they_have(config, probability):
    model = model_of("bert", **config)
    found = model.explain(TEXT)
    with torch.no_grad():
        logits = model.model(**tiny.tokenizer()(TEXT, return_tensors="pt")).logits[0]
    best = int(logits.argmax())
    assert (found.target, found.label) == (best, f"LABEL_{best}")
    if probability is None:
        assert found.probability is None
    else:
        assert found.probability == pytest.approx(
            float(getattr(logits, probability)(*[-1][: probability == "softmax"])[best])
        )


def test_token_classification():
    model = model_of("bert", "AutoModelForTokenClassification", num_labels=4)
    found = model.explain(TEXT, position=3)
    with torch.no_grad():
        logits = model.model(**tiny.tokenizer()(TEXT, return_tensors="pt")).logits[0, 3]
    assert found.label == f"LABEL_{int(logits.argmax())}"
    assert found.position == 3
    length = len(found)
    assert model.explain(TEXT, position=-1).position == length - 1
    with pytest.raises(
        alti.UsageError,
        match=rf"predicts at every token: say which with position=, 0 to {length - 1}",
    ):
        model.explain(TEXT)
    for position in (length, -length - 1):
        with pytest.raises(
            alti.UsageError,
            match=f"position = {position} is outside the text: its {length} tokens are 0",
        ):
            model.explain(TEXT, position=position)


def test_masked_language_model():
    model = model_of("distilbert", "AutoModelForMaskedLM")
    found = model.explain("the acting is [MASK] than the plot.")
    mask = found.tokens.index("[MASK]")
    assert found.position == mask
    assert bool(found.special[mask])
    assert 0 < found.probability < 1
    assert model.explain("the acting is fact", position=1).position == 1
    for target in ("☃", "zzz☃", "", True, 1.5):
        with pytest.raises(alti.UsageError, match=r"is not in the vocabulary|tokens of this model"):
            model.explain("the acting is [MASK]", target=target)
    assert model.explain("the acting is [MASK]", target="[UNK]").label == "[UNK]"
    for count, text in ((0, "the plot"), (2, "[MASK] and [MASK]")):
        with pytest.raises(
            alti.UsageError, match=rf"the text has {count} mask tokens, expected one: put it in"
        ):
            model.explain(text)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "gpt_neox"])
def test_causal_language_model(family):
    model = alti.Model(tiny.speaking(family, "AutoModelForCausalLM", "bpe"), tiny.tokenizer("bpe"))
    text = "The keys to the cabinet"
    found = model.explain(text)
    ids = tiny.tokenizer("bpe")(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        probabilities = model.model(ids).logits[0, -1].softmax(-1)
    assert found.target == int(probabilities.argmax())
    assert found.probability == pytest.approx(float(probabilities.max()))
    assert found.position == len(found) - 1
    token = tiny.tokenizer("bpe").encode(" the")
    assert len(token) == 1
    for target in (" the", "Ġthe", token[0]):
        wanted = model.explain(text, target=target)
        assert (wanted.target, wanted.label) == (token[0], " the")
        assert wanted.probability == pytest.approx(float(probabilities[token[0]]))
    with pytest.raises(
        alti.UsageError,
        match=r"target = 'clumsiness' is \d+ tokens of this model \(.*: give a single one, "
        r"or explain several as an answer \(answer=\)$",
    ):
        model.explain(text, target="clumsiness")
    with pytest.raises(alti.UsageError, match="target = 1000000 is not in the vocabulary"):
        model.explain(text, target=1_000_000)


def test_a_causal_model_gives_nothing_to_the_future():
    model = alti.Model(tiny.speaking("llama", "AutoModelForCausalLM", "bpe"), tiny.tokenizer("bpe"))
    found = model.explain("The keys to the cabinet are on the table.", position=4)
    assert (found.scores[5:] == 0).all()
    assert (found.layers.triu(1) == 0).all()


def test_a_plain_encoder():
    model = model_of("bert", "AutoModel")
    found = model.explain(TEXT)
    assert (found.label, found.probability, found.target, found.position) == (
        None,
        None,
        None,
        None,
    )
    rows = [model.explain(TEXT, position=i).scores for i in range(len(found))]
    torch.testing.assert_close(found.scores, torch.stack(rows).mean(0))
    with pytest.raises(
        alti.UsageError, match="target = 'good' was given, but this model has no head"
    ):
        model.explain(TEXT, target="good")


def test_a_sequence_classifier_has_a_position_of_its_own():
    with pytest.raises(
        alti.UsageError, match="position = 2 was given, but a sequence classifier reads its own"
    ):
        model_of("bert").explain(TEXT, position=2)


def test_the_encoder_of_an_encoder_decoder_is_taken():
    from transformers import T5EncoderModel

    whole = tiny.speaking("t5", "AutoModel")
    encoder = T5EncoderModel(whole.config).double().eval()
    assert len(alti.explain(encoder, tiny.tokenizer(), TEXT).layers) == tiny.LAYERS


def test_pictures_without_a_head_are_not_taken():
    model = alti.Model(tiny.build("vit"), None)
    with pytest.raises(
        alti.UnsupportedModelError, match=r"explain takes text; ViTModel \(vit\) reads pixel_values"
    ):
        model.explain(TEXT)
    assert max(model.check()) < 1e-12


def test_a_text_is_no_picture():
    model = alti.Model(tiny.build("vit", "AutoModelForImageClassification"), None)
    with pytest.raises(alti.UsageError, match="does not exist: this model reads images"):
        model.explain(TEXT)
    assert max(model.check()) < 1e-12


def test_other_heads_are_refused():
    model = model_of("bert", "AutoModelForNextSentencePrediction")
    with pytest.raises(
        alti.UnsupportedModelError,
        match=r"does not take the head of BertForNextSentencePrediction \(bert\)",
    ):
        model.explain(TEXT)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_a_config_that_asks_for_tuples(family):
    model = tiny.speaking(family, "AutoModelForSequenceClassification")
    expected = alti.explain(model, tiny.tokenizer(), TEXT)
    model.config.return_dict = False
    found = alti.explain(model, tiny.tokenizer(), TEXT)
    assert (found.label, found.probability) == (expected.label, expected.probability)


def test_a_subclass_keeps_its_head():
    from transformers import BertForSequenceClassification

    class MyClassifier(BertForSequenceClassification):
        pass

    model = MyClassifier(model_of("bert").model.config).double().eval()
    assert alti.explain(model, tiny.tokenizer(), TEXT).label in ("LABEL_0", "LABEL_1")


def test_a_target_that_changes_nothing_is_told():
    model = alti.Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer()
    )
    with pytest.warns(
        UserWarning,
        match="same for every target: to see what speaks for 1 use consensus",
    ):
        model.explain("A clever blend", target=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.explain("A clever blend", target=1, method="linear")
        model.explain("A clever blend", target=1, method="input_x_gradient", aggregate="sum")
        model.explain("A clever blend")
    with pytest.warns(UserWarning, match="aggregate=l2 says how much, not for or against what"):
        model.explain("A clever blend", target=1, method="input_x_gradient")


def test_a_sum_of_slopes_is_refused():
    with pytest.raises(alti.UsageError, match="takes aggregate as one of l2, mean_abs, not 'sum'"):
        model_of("bert").explain(TEXT, method="gradient", aggregate="sum")


def test_which_tokens_there_are_to_choose_from():
    model = model_of("bert", "AutoModelForTokenClassification")
    with pytest.raises(
        alti.UsageError, match=r"say which with position=.*The tokens: 0 \[CLS\], 1 "
    ):
        model.explain(TEXT)


def test_a_mask_token_of_another_family_is_told():
    model = model_of("bert")
    with pytest.warns(
        UserWarning, match=r"<mask> is plain characters here.*this tokenizer's is \[MASK\]"
    ):
        model.explain("A clever <mask>")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.explain("A clever [MASK]")


def test_a_token_that_wants_a_space_before_it_is_told():
    tokenizer = tiny.tokenizer("bpe")
    model = alti.Model(tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe"), tokenizer)
    bare, spaced = (
        next(i for i in range(len(tokenizer)) if tokenizer.decode([i]) == text)
        for text in ("a", " a")
    )
    head = Head.of(model.model)
    logits = torch.zeros(model.model.config.vocab_size)
    logits[spaced] = 9.0
    with pytest.warns(UserWarning, match="'a' is far less likely here than ' a', another token"):
        head.warn_of_spaces(tokenizer, logits, bare)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head.warn_of_spaces(tokenizer, logits, spaced)
        head.prediction(tokenizer, logits, bare)  # of every class, on the page


RIVALS = {
    "linear": {},
    "absence": {},
    "alti_logit": {},
    "input_x_gradient": {"aggregate": "sum"},
    "occlusion": {},
}
RIVALS |= {"integrated_gradients": {"aggregate": "sum", "steps": 20}}


@pytest.mark.parametrize("method", RIVALS)
def test_why_rather_this_than_that(method):
    model = model_of("bert", num_labels=4, id2label={i: f"class {i}" for i in range(4)})
    options = RIVALS[method]
    one, other = (
        model.explain(TEXT, method=method, target=a, against=b, **options)
        for a, b in ((1, "class 3"), ("class 3", 1))
    )
    torch.testing.assert_close(one.scores, -other.scores, rtol=1e-9, atol=1e-12)
    assert (one.target, one.label) == (1, "class 1 rather than class 3")
    assert not torch.allclose(
        one.scores, model.explain(TEXT, method=method, target=1, **options).scores
    )


def test_scores_against_a_class_add_up_to_the_difference_of_logits():
    model = model_of("bert", num_labels=4)
    found = model.explain(TEXT, method="linear", target=2, against=0)
    logits = (
        model.model(**model.encoder.collate([model.encoder.encode(TEXT)]).tensors)
        .logits[0]
        .detach()
    )
    assert float(found.scores.sum()) + found.extra["remainder"] == pytest.approx(
        float(logits[2] - logits[0]), abs=1e-9
    )
    many = list(model.explain_all([TEXT, "so dull"], method="linear", target=2, against=0))
    torch.testing.assert_close(many[0].scores, found.scores)


def test_what_cannot_be_explained_against():
    model = model_of("bert", num_labels=3)
    with pytest.raises(
        alti.UsageError, match="alti is the same for every target, also against 1: use consensus"
    ):
        model.explain(TEXT, target=0, against=1)
    with pytest.raises(alti.UsageError, match="both 1: name two different ones"):
        model.explain(TEXT, target=1, against=1, method="linear")
    predicted = model.explain(TEXT).target
    with pytest.warns(UserWarning, match="the model predicts 'LABEL_.' itself"):
        assert not model.explain(TEXT, against=predicted, method="linear").scores.any()
    spaced = alti.Model(tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe"), tiny.tokenizer("bpe"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        label = spaced.explain("so dull", target=" a", against="a", method="linear").label
    assert label == "' a' rather than a"


def test_a_contrast_near_zero_is_checked_by_its_parts():
    """Two tokens that are as likely as each other: their difference is no measure of an error."""
    model = alti.Model(
        tiny.speaking("llama", "AutoModelForCausalLM", "bpe").float(), tiny.tokenizer("bpe")
    )
    weight = model.model.get_output_embeddings().weight
    with torch.no_grad():
        weight[9] = weight[8] * (1 + 1e-6)
    found = model.explain("so dull", target=8, against=9, method="linear")
    assert found.scores.abs().max() < 1e-4
    assert found.prediction.against == 9


def test_what_is_wrong_with_against_is_said_of_it():
    model = model_of("bert", num_labels=3)
    with pytest.raises(alti.UsageError, match=r"^against = 'none' is not a label"):
        model.explain(TEXT, target=1, against="none", method="linear")
    with pytest.raises(
        alti.UsageError, match="against = 0 was given, but this model has one output alone"
    ):
        model_of("bert", num_labels=1).explain(TEXT, against=0, method="linear")


def test_a_pair_without_anything_between_is_told():
    glued = alti.Model(tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe"), tiny.tokenizer("bpe"))
    with pytest.warns(UserWarning, match="puts nothing between the two texts"):
        glued.explain("so dull", "so funny")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_of("bert").explain("so dull", "so funny")

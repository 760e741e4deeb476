"""Encoder–decoders: ALTI+ and the other methods over [source | prefix]."""

import logging

import pytest
import torch
import transformers

import alti
from alti.methods import METHODS
from alti.methods.ablation_both import of_both
from alti.methods.dimming import dimmed
from alti.methods.logits import explained
from alti.methods.types import Target
from alti.model.question import Question
from alti.model.request import Request
from alti.read.linear_view import linear_view

import tiny
from speed import slow

TEXT, ANSWER = "A clever film", "the plot"
OTHER = "The keys to the cabinet", "a bad film"
PREFIXED = ("bart", "marian", "m2m_100", "t5")


def loaded(family: str, **config: object) -> alti.Model:
    """A tiny model that writes; the constant that its head adds is not 0."""
    own = {"decoder_start_token_id": 0, **config}
    network = tiny.speaking(family, "AutoModelForSeq2SeqLM", **own)
    if hasattr(network, "final_logits_bias"):
        torch.manual_seed(0)
        network.final_logits_bias.copy_(torch.randn_like(network.final_logits_bias))
    return alti.Model(network, tiny.tokenizer(), name="tiny")


@pytest.fixture(scope="session")
def marian() -> alti.Model:
    return loaded("marian")


def joint_by_hand(model: alti.Model, result: alti.Attributions) -> torch.Tensor:
    """ALTI+ as a textbook would: matrices over [source | prefix], multiplied block after block."""
    split, total = result.source.decoder, len(result.source)
    inputs = {
        "input_ids": torch.tensor([result.source.ids[:split]]),
        "decoder_input_ids": torch.tensor([result.source.ids[split:]]),
    }
    product = torch.eye(total, dtype=torch.float64)
    encoders = model.model.config.num_hidden_layers
    for number, block in enumerate(alti.trace(model.model, inputs)):
        parts = alti.parts(block)[0]  # [T, S, D], of cross-attention S + 1
        y = block.output[0]
        near = y.abs().sum(-1, keepdim=True) - (y[:, None] - parts).abs().sum(-1)
        near = near.clamp_min(0)
        shares = near / near.sum(1, keepdim=True)
        whole = torch.eye(total, dtype=torch.float64)
        for i, row in enumerate(shares):
            if number < encoders:
                whole[i] = torch.cat([row, row.new_zeros(total - split)])
            elif block.cross:
                whole[split + i] = 0
                whole[split + i, :split] = row[:-1]
                whole[split + i, split + i] = row[-1]
            else:
                whole[split + i] = torch.cat([row.new_zeros(split), row])
        product = whole @ product
    return product


@pytest.mark.parametrize("family", PREFIXED)
def test_alti_is_the_product_of_joint_matrices(family):
    model = loaded(family)
    result = model.explain(TEXT, answer=ANSWER, layers=True)
    by_hand = joint_by_hand(model, result)
    rows = [one.position for one in result.predictions]
    assert (result.scores - by_hand[rows]).abs().max() < 1e-10
    assert (result.relevance() - by_hand).abs().max() < 1e-10
    assert (result.scores.sum(-1) - 1).abs().max() < 1e-12
    assert len(result.layers) == tiny.LAYERS + 4
    lean = model.explain(TEXT, answer=ANSWER)
    torch.testing.assert_close(lean.scores, result.scores)


def test_two_segments_and_the_start_of_the_decoder(marian):
    result = marian.explain(TEXT, answer=ANSWER)
    source = result.source
    start = marian.tokenizer.convert_ids_to_tokens(0)
    assert source.texts == (TEXT, ANSWER)
    assert source.tokens[source.decoder] == start
    assert bool(source.special[source.decoder])
    assert source.segments[source.decoder] == 1
    assert source.offsets[source.decoder] == (0, 0)
    assert {*source.segments[: source.decoder]} == {-1, 0}
    written = source.ids[source.answer :]
    assert [one.index for one in result.predictions] == [*written]
    pieces = [ANSWER[slice(*span)] for span in source.offsets[source.answer :]]
    assert "".join(pieces) == ANSWER.replace(" ", "")


def test_an_answer_by_its_ids_counts_its_end(marian):
    end = marian.model.config.eos_token_id
    result = marian.explain(ids=[2, 30, 31, 3], answer_ids=[40, 41, end])
    assert len(result) == 3
    assert result.predictions[-1].index == end
    assert result.source.ids == (2, 30, 31, 3, 0, 40, 41, end)
    assert result.source.answer == result.source.decoder + 1


def test_what_the_model_writes_itself(marian):
    result = marian.explain(TEXT, generate=3)
    network = marian.model
    given = marian.tokenizer(TEXT, return_tensors="pt", return_token_type_ids=False)
    ids = network.generate(**given, max_new_tokens=3, do_sample=False, num_beams=1)[0].tolist()
    written = list(result.source.ids[result.source.decoder :])
    assert written == ids[: len(written)]
    assert {*ids[len(written) :]} <= {network.config.eos_token_id}


def test_the_length_of_a_config_is_not_spoken_of(marian, monkeypatch, caplog):
    """transformers would say that two lengths were set, though the user gave one."""
    monkeypatch.setattr(marian.model.generation_config, "max_length", 20)
    transformers_log = logging.getLogger("transformers")
    monkeypatch.setattr(transformers_log, "propagate", True)
    assert len(marian.explain(TEXT, generate=3)) == 3
    assert not caplog.records


def test_a_prediction_does_not_rest_on_what_is_written_later(marian):
    result = marian.explain(TEXT, answer=ANSWER)
    for k, row in enumerate(result.scores):
        assert not row[result.source.answer + k :].any()


def test_the_source_share(marian):
    result = marian.explain(TEXT, answer=ANSWER)
    split = result.source.decoder
    torch.testing.assert_close(result.source_share, result.scores[:, :split].sum(-1))
    signed = marian.explain(TEXT, answer=ANSWER, method="linear")
    parts = signed.scores.abs()
    torch.testing.assert_close(signed.source_share, parts[:, :split].sum(-1) / parts.sum(-1))
    with pytest.raises(alti.UsageError, match="has no source and prefix"):
        alti.load().explain("a film", target=None).source_share  # noqa: B018


@pytest.mark.parametrize("method", ["alti", "attention", "attention_rollout", "norms", "random",
                                    "globenc", "alti_ln2"])  # fmt: skip
def test_methods_with_maps_in_batches(marian, method):
    alone = marian.explain(TEXT, answer=ANSWER, method=method)
    assert alone.scores.shape == (len(alone), len(alone.source))
    batch = list(
        marian.explain_all([TEXT, OTHER[0]], answer=[ANSWER, OTHER[1]], method=method, layers=True)
    )
    if method == "random":
        assert all(bool((one.scores[:, : len(one.source)] > 0).all()) for one in batch)
        return
    torch.testing.assert_close(batch[0].scores, alone.scores)
    rows = [one.position for one in batch[0].predictions]
    if METHODS[method].shares and method != "attention":
        torch.testing.assert_close(batch[0].relevance()[rows], alone.scores)


def test_attention_is_that_to_the_source(marian):
    result = marian.explain(TEXT, answer=ANSWER, method="attention")
    blocks = alti.trace(
        marian.model,
        {
            "input_ids": torch.tensor([result.source.ids[: result.source.decoder]]),
            "decoder_input_ids": torch.tensor([result.source.ids[result.source.decoder :]]),
        },
    )
    rows = [one.position - result.source.decoder for one in result.predictions]
    expected = blocks[-1].attn[0].mean(0)[rows]
    torch.testing.assert_close(result.scores[:, : result.source.decoder], expected)
    assert not result.scores[:, result.source.decoder :].any()


CLASS_SPECIFIC = [name for name, each in METHODS.items() if each.class_specific]


@pytest.mark.parametrize("method", CLASS_SPECIFIC)
def test_class_specific_methods_in_batches(marian, method):
    options = {"steps": 3} if method == "integrated_gradients" else {}
    alone = marian.explain(TEXT, answer=ANSWER, method=method, **options)
    batch = list(
        marian.explain_all([TEXT, OTHER[0]], answer=[ANSWER, OTHER[1]], method=method, **options)
    )
    torch.testing.assert_close(batch[0].scores, alone.scores, rtol=1e-6, atol=1e-9)
    assert alone.scores[:, : alone.source.decoder].abs().sum() > 0
    for k, row in enumerate(alone.scores):
        assert not row[alone.source.answer + k :].any()  # nothing rests on what comes later
    if METHODS[method].takes_groups:
        words = marian.explain(TEXT, answer=ANSWER, method=method, groups="word")
        assert words.scores.shape == (len(alone), 3)  # of the source


@pytest.mark.parametrize("family", [*PREFIXED, "t5, gated"])
def test_the_linear_view_is_complete_through_both_stacks(family):
    name, config = tiny.VARIANTS.get(family, (family, {}))
    model = loaded(name, **config)
    assert model.completeness() < 1e-9
    result = model.explain(TEXT, answer=ANSWER, method="linear", of="log_prob")
    # scores and the remainder are what is explained: log p with the probabilities held constant
    inputs = {
        "input_ids": torch.tensor([result.source.ids[: result.source.decoder]]),
        "decoder_input_ids": torch.tensor([result.source.ids[result.source.decoder :]]),
    }
    rows = [one.position - result.source.decoder for one in result.predictions]
    logits = model.model(**inputs).logits[0, rows]
    index = torch.tensor([one.index for one in result.predictions])
    own = logits.gather(-1, index[:, None])[:, 0] - (logits.softmax(-1) * logits).sum(-1)
    whole = result.scores.sum(-1) + torch.tensor(
        [one["remainder"] for one in result.extra], dtype=torch.float64
    )
    torch.testing.assert_close(whole, own.detach(), rtol=1e-9, atol=1e-9)


def test_a_head_constant_that_is_left_out_is_told(marian, monkeypatch):
    from contextlib import nullcontext

    from alti.read import linear_view

    monkeypatch.setattr(linear_view, "output_bias", lambda model: nullcontext([]))
    with pytest.raises(alti.DecompositionError, match=r"leaves .* of a prediction unexplained"):
        loaded("marian").completeness()


@slow
def test_integrated_gradients_add_up(marian):
    result = marian.explain(
        TEXT, answer=ANSWER, method="integrated_gradients", aggregate="sum", steps=300, of="logit"
    )
    assert max(abs(one["gap"]) for one in result.extra) < 1e-3


def test_leaving_out_is_what_the_model_says_of_a_shorter_text(marian):
    result = marian.explain(TEXT, answer=ANSWER, method="leave_one_out")
    ids, split = list(result.source.ids), result.source.decoder
    network = marian.model

    def log_p(source: list[int], prefix: list[int], index: int) -> float:
        inputs = {
            "input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([prefix])
        }  # fmt: skip
        return float(network(**inputs).logits[0, -1].log_softmax(-1)[index].detach())

    k = 2
    end = result.source.answer + k
    prefix, index = ids[split:end], result.predictions[k].index
    whole = log_p(ids[:split], prefix, index)
    for gone in (1, split - 2, end - 2, end - 1):
        left = [i for place, i in enumerate(ids) if place != gone]
        shorter = split - (gone < split)
        without = log_p(left[:shorter], left[shorter : end - 1], index)
        assert float(result.scores[k, gone]) == pytest.approx(whole - without, abs=1e-9)


def test_masking_keeps_the_length(marian):
    deleted = marian.explain(TEXT, answer=ANSWER, method="occlusion")
    masked = marian.explain(TEXT, answer=ANSWER, method="occlusion", removal="mask")
    assert not torch.allclose(deleted.scores, masked.scores)
    ids = list(masked.source.ids)
    whole = masked.predictions[0].probability
    ids[2] = marian.tokenizer.mask_token_id
    split = masked.source.decoder
    logits = marian.model(
        input_ids=torch.tensor([ids[:split]]), decoder_input_ids=torch.tensor([ids[split:]])
    ).logits[0, masked.source.answer - 1 - split]
    without = float(logits.softmax(-1)[masked.predictions[0].index].detach())
    assert float(masked.scores[0, 2]) == pytest.approx(whole - without, abs=1e-9)


def test_a_source_that_is_taken_away_as_a_whole(marian):
    encoded = marian.read(Question(ids=[30, 31], answer_ids=[40]), Request()).encoded
    inputs = marian.encoder.collate([encoded])
    gone = torch.zeros(1, inputs.special.shape[1], dtype=torch.bool)
    gone[0, : inputs.split] = True
    target = Target(index=torch.tensor([[40]]), position=torch.tensor([[0]]))
    values = of_both(marian.model, inputs, target, 0, gone, "log_prob")
    assert values.shape == (1, 1)
    assert bool(values.isfinite().all())


BAD = {
    "an empty source": ({"text": "  ", "answer": ANSWER}, "text is empty: give at least one word"),
    "no ids": ({"ids": [], "answer_ids": [4]}, "ids is empty: give at least one token id"),
    "an empty answer": ({"text": TEXT, "answer": " "}, "answer is empty: give at least one word"),
    "no answer": ({"text": TEXT}, "token by token of what it writes: give that as answer="),
    "an answer in text_pair": (
        {"text": TEXT, "text_pair": ANSWER},
        "text_pair was given to an encoder–decoder, .* give what it writes as answer=",
    ),
    "a long prefix": (
        {"text": TEXT, "answer_ids": [5] * 40},
        "the decoder reads 41 tokens, .* 1 more than the 40 that the model takes: shorten",
    ),
    "too much to write": (
        {"text": TEXT, "generate": 40},
        "the decoder reads 41 tokens, .* 1 more than the 40 that the model takes: shorten",
    ),
    "a token that is none": ({"text": TEXT, "answer_ids": [10**6]}, "holds token id 1000000"),
    "another kind of answer": ({"text": TEXT, "answer": 7}, "answer is int, expected a str"),
    "a long source": ({"text": "film " * 50, "answer": "a"}, "more than the 40 that the model"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(marian, case):
    asked, message = BAD[case]
    with pytest.raises(alti.UsageError, match=message):
        marian.explain(**asked)


def test_a_long_source_can_be_cut(marian):
    result = marian.explain("film " * 50, answer="a", truncate=True)
    assert result.source.cut
    assert result.source.decoder == 40


def test_a_decoder_that_does_not_say_how_it_begins():
    model = loaded("t5", decoder_start_token_id=None)
    model.model.generation_config.decoder_start_token_id = None
    with pytest.raises(
        alti.UnsupportedModelError, match=r"set model\.config\.decoder_start_token_id"
    ):
        model.explain(TEXT, answer=ANSWER)


def test_a_model_without_a_head_is_refused():
    model = alti.Model(tiny.speaking("bart", "AutoModel"), tiny.tokenizer())
    with pytest.raises(alti.UnsupportedModelError, match=r"has no head for that: load .*Seq2SeqLM"):
        model.explain(TEXT, answer=ANSWER)


@pytest.mark.parametrize("family", PREFIXED)
def test_check_makes_its_own_decoder_ids(family):
    model = loaded(family)
    inputs = tiny.inputs(model.model)
    alone = {name: x for name, x in inputs.items() if not name.startswith("decoder")}
    assert len(alti.check(model.model.base_model, alone)) == tiny.LAYERS + 4
    assert max(model.check()) < 1e-12


def test_one_answer_against_another(marian):
    result = marian.explain(TEXT, answer=ANSWER, against="a film", method="linear")
    one, other = (
        marian.explain(TEXT, answer=each, method="linear", of="log_prob", total=True)
        for each in (ANSWER, "a film")
    )
    split = one.source.decoder
    assert len(result) == split
    torch.testing.assert_close(result.scores, one.scores[:split] - other.scores[:split])


def test_results_are_stored_and_read(marian, tmp_path):
    result = marian.explain(TEXT, answer=ANSWER, layers=True)
    result.save(tmp_path / "written.alti")
    again = alti.Attributions.load(tmp_path / "written.alti")
    assert again.source.decoder == result.source.decoder
    assert torch.equal(again.source_share, result.source_share)
    plain = result.to_dict()
    plain["source"]["decoder"] = 100
    with pytest.raises(alti.LoadError, match="decoder is behind the answer"):
        alti.Attributions.from_dict(plain)


def test_what_an_answer_rests_on_through_itself(marian):
    """A passed-on prefix leaves all of a prediction to the source and the decoder's first token."""
    result = marian.explain(TEXT, answer=ANSWER)
    passed = result.total(through_answer=True)
    assert not passed.scores[result.source.answer :].any()
    assert float(passed.scores.sum()) == pytest.approx(1)


@slow
def test_dimming_is_complete_through_both_stacks(marian):
    """On the way from all tokens dark to all bright, scores add up to what is gained."""
    result = marian.explain(TEXT, answer=ANSWER, method="dimming", points=400)
    encoded = marian.read(Question(text=TEXT, answer=ANSWER), Request())
    inputs, target = marian.batch([encoded], Request())
    with torch.no_grad():
        ends = [
            explained(
                dimmed(marian.model, inputs, inputs.sources_at(level).double()),
                target,
                marian.model.config,
                "log_prob",
            )[0]
            for level in (0.0, 1.0)
        ]
    torch.testing.assert_close(result.scores.sum(-1), ends[1] - ends[0], rtol=1e-6, atol=1e-6)


def test_the_model_is_left_as_it_was(marian):
    network = marian.model
    before = {name: x.clone() for name, x in network.state_dict().items()}
    own = network.final_logits_bias
    wrong = {"input_ids": torch.tensor([[5]]), "decoder_input_ids": torch.tensor([[10**6]])}
    with pytest.raises(IndexError):
        linear_view(network, wrong)
    for method in ("alti", "linear", "dimming", "gradient"):
        marian.explain(TEXT, answer=ANSWER, method=method)
    assert network.final_logits_bias is own
    assert not own.requires_grad
    assert all(torch.equal(x, before[name]) for name, x in network.state_dict().items())
    hooks = [hook for module in network.modules() for hook in module._forward_hooks.values()]
    assert all(hook.__module__.startswith("transformers") for hook in hooks)


# Speech


def speaker(**config: object) -> alti.Model:
    """A tiny model that hears."""
    roles = {"vocab_size": len(tiny.tokenizer()), "decoder_start_token_id": 0, **config}
    network = tiny.build("whisper", "AutoModelForSpeechSeq2Seq", **roles)
    return alti.Model(network, tiny.tokenizer(), name="tiny")


@pytest.fixture(scope="session")
def whisper() -> alti.Model:
    return speaker()


@pytest.fixture(scope="session")
def features() -> torch.Tensor:
    return torch.randn(8, 18, generator=torch.Generator().manual_seed(0))


def test_what_generate_logs_of_itself_is_not_shown(features, caplog, monkeypatch):
    model = speaker()
    logger = transformers.logging.get_logger("transformers.generation")

    def generate(**options: object) -> torch.Tensor:
        logger.warning("set by the model itself")
        return torch.tensor([[0, 9, 10]])

    monkeypatch.setattr(model.model, "generate", generate)
    logger.addHandler(caplog.handler)
    try:
        assert len(model.explain(features=features, generate=2)) > 0
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records


def test_frames_of_a_sound_are_tokens(whisper, features):
    result = whisper.explain(features=features, answer=ANSWER, layers=True)
    source = result.source
    assert source.decoder == 9
    assert source.offsets[:9] == tuple((i, i + 1) for i in range(9))
    assert source.tokens[:3] == ("0.00s", "0.02s", "0.04s")
    assert source.seconds == 0.02
    split, total = source.decoder, len(source)
    blocks = alti.trace(
        whisper.model,
        {
            "input_features": features[None].double(),
            "decoder_input_ids": torch.tensor([source.ids[split:]]),
        },
    )
    product = torch.eye(total, dtype=torch.float64)
    for number, block in enumerate(blocks):
        own = alti.contributions(block, kernel="reference")[0]
        whole = torch.eye(total, dtype=torch.float64)
        if number < tiny.LAYERS:
            whole[:split, :split] = own
        elif block.cross:
            whole[split:, :split] = own[:, :-1]
            whole[split:, split:] = own[:, -1].diag()
        else:
            whole[split:, split:] = own
        product = whole @ product
    rows = [one.position for one in result.predictions]
    assert (result.scores - product[rows]).abs().max() < 1e-10


@pytest.mark.parametrize("method", ["linear", "absence", "dimming", "gradient", "leave_one_out"])
def test_class_specific_methods_hear(whisper, features, method):
    result = whisper.explain(features=features, answer=ANSWER, method=method)
    assert result.scores[:, : result.source.decoder].abs().sum() > 0
    if method == "linear":
        assert whisper.completeness() < 1e-9


def test_silence_in_the_place_of_frames(whisper, features):
    result = whisper.explain(features=features, answer=ANSWER, method="leave_one_out")
    quiet = features.clone()
    quiet[:, 6:8] = features.min()
    without = whisper.explain(features=quiet, answer=ANSWER)
    for k in range(len(result)):
        fall = result.predictions[k].probability / without.predictions[k].probability
        assert float(result.scores[k, 3]) == pytest.approx(torch.tensor(fall).log().item(), 1e-4)


def test_frames_behind_a_sound_are_special():
    model = speaker(max_source_positions=50)
    wave = torch.sin(torch.arange(8000) / 8)
    result = model.explain(audio=wave, rate=16000, answer=ANSWER)
    assert result.source.special[:50].tolist() == [False] * 25 + [True] * 25
    shown = result.render().splitlines()
    assert shown[-2].split() == ["0", "s", "0.5", "s"]
    assert len(shown) == 3 + len(result)
    page = result.to_html()
    assert page.count('class="cell"') == 25 * len(result)
    assert "0.4 s" in page
    assert result.to_latex().count(" s & ") == len(result)
    assert r"\begin{document}" in result.to_latex(document=True)
    (ax,) = result.plot().axes
    assert ax.get_xlabel() == "seconds"
    assert ax.images[0].get_extent()[:2] == [0.0, 0.5]
    assert result.total().render().count("\n") == 3


@pytest.mark.parametrize("method", ["alti", "linear"])
def test_pictures_of_a_sound_name_what_they_show(whisper, features, method):
    result = whisper.explain(features=features, answer=ANSWER, method=method)
    unit = {"alti": "shares of 1", "linear": "logits"}[method]
    by = f"{method} · {result.model} · {unit}"
    (ax,) = result.plot().axes
    texts = [ax.get_title(loc="left"), *(text.get_text() for text in ax.texts)]
    page, latex = result.to_html(), result.to_latex()
    assert result.render().splitlines()[0] == by
    assert by in texts[0]
    assert by in page
    assert latex.count(unit) == 1
    said = "each row relative to its largest window of "
    assert said in result.render()
    assert said.capitalize() in page
    assert said in texts[1]
    against = "against" if method == "linear" else ""
    assert all(against in view for view in (result.render(), page, texts[1]))
    assert ("░" in result.render()) == ("cell against" in page) == bool(against)
    lowest = float(ax.images[0].get_array().min())
    assert (lowest < 0) == bool(against)


BAD_SOUNDS = {
    "a wrong rate": (
        {"audio": [0.0] * 100, "rate": 8000},
        "the audio has 8000 numbers a second, and the model hears 16000: resample it",
    ),
    "no rate": ({"audio": [0.0] * 100}, "audio was given without its rate: say rate=16000"),
    "no sound": ({}, "explain takes audio= with its rate=, or features=: neither was given"),
    "a text": ({"text": TEXT}, "a text was given to a model that hears"),
    "a long sound": ({"audio": [0.0] * 4000, "rate": 16000}, "the sound lasts 0.2 seconds, and"),
    "stereo": ({"audio": [[0.0, 1.0]] * 9, "rate": 16000}, r"audio has the shape \[9, 2\]"),
    "an empty sound": ({"audio": [], "rate": 16000}, r"audio has the shape \[0\]"),
    "no numbers": ({"audio": [float("nan")], "rate": 16000}, "numbers that are not finite"),
    "other features": (
        {"features": torch.zeros(8, 20)},
        r"features have the shape \[8, 20\], and the model takes \[8, 18\]",
    ),
    "features and a rate": ({"features": torch.zeros(8, 18), "rate": 16000}, "leave it out"),
}


@pytest.mark.parametrize("case", BAD_SOUNDS)
def test_a_bad_sound_is_one_sentence(whisper, case):
    asked, message = BAD_SOUNDS[case]
    with pytest.raises(alti.UsageError, match=message):
        whisper.explain(**asked, answer=ANSWER)


def test_a_sound_for_a_model_that_reads(marian):
    with pytest.raises(alti.UsageError, match="a sound was given to a model that reads text"):
        marian.explain(audio=[0.0], rate=16000, answer=ANSWER)


def test_check_hears_noise(whisper):
    assert len(whisper.check()) == tiny.LAYERS + 4
    assert max(whisper.check()) < 1e-12

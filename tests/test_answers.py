"""Answers of language models: given, generated, to chats and to questions about documents."""

import copy
import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig

import alti
from alti.model.answers import JoinedByTokens
from alti.model.model import Model
from alti.model.tokenize import Encoder, FirstTokenAdded
from test_untouched import assert_untouched, snapshot

import tiny
from speed import mostly_slow

pytestmark = pytest.mark.filterwarnings("ignore::alti.model.request.SameForEveryClass")
FAMILIES = [
    *((family, torch.float64) for family in ("gpt2", "gpt_neox", "bloom", "opt")),
    *((family, torch.float32) for family in ("gpt2", "bloom", "llama", "mistral")),
]  # norms of llama and mistral compute in float32 whatever the dtype
METHODS = [name for name in alti.METHODS if name != "random"]
SUITED = [name for name in METHODS if not alti.METHODS[name].second_norm]
FEW = {"integrated_gradients": {"steps": 4}}
# a norm of sums is no sum of norms, and no more so a sparse fit or one from a scaled start
NOT_ADDITIVE = ("consensus", "gradient", "contextcite", "surrogate")
PROMPT = [7, 12, 9, 33, 21, 8]
ANSWER = [14, 40, 5, 9]
CHAT = (
    "{% for message in messages %}[CLS]{{ message['role'] }}\n{{ message['content'] }}[SEP]\n"
    "{% endfor %}{% if add_generation_prompt %}[CLS]assistant\n{% endif %}"
)
TRIMS = CHAT.replace("message['content']", "message['content'] | trim")
MESSAGES = [
    {"role": "system", "content": "The acting is better."},
    {"role": "user", "content": "It's not a bad film. The plot is funny."},
    {"role": "assistant", "content": "A clever blend"},
    {"role": "user", "content": " user "},
]


def causal(family="gpt2", dtype=torch.float64, **config):
    return Model(tiny.build(family, "AutoModelForCausalLM", dtype=dtype, **config), None)


def speaking(kind="bpe", template=CHAT, **roles):
    tokenizer = copy.deepcopy(tiny.tokenizer(kind))
    tokenizer.chat_template = template
    for role, token in roles.items():
        setattr(tokenizer, role, token)
    model = tiny.speaking("gpt2", "AutoModelForCausalLM", kind, n_positions=400)
    return Model(model, tokenizer)


# --- one row for each token of an answer ---


@mostly_slow(("family", "dtype"), FAMILIES, quick=[FAMILIES[0]])
@pytest.mark.parametrize("method", [m for m in SUITED if m != "surrogate"])  # one design for all
def test_each_row_is_the_explanation_of_that_token_alone(method, family, dtype):
    model = causal(family, dtype)
    options = {"method": method, **FEW.get(method, {})}
    found = model.explain(ids=PROMPT, answer_ids=ANSWER, **options)
    assert len(found) == len(ANSWER)
    assert found.scores.shape == (len(ANSWER), len(PROMPT) + len(ANSWER))
    limit = 1e-9 if dtype == torch.float64 else 1e-4
    for k, token in enumerate(ANSWER):
        alone = model.explain(ids=PROMPT + ANSWER[:k], target=token, **options)
        row, seen = found[k], len(alone)
        assert (row.scores[seen:] == 0).all()
        largest = alone.scores.abs().max()
        assert (row.scores[:seen] - alone.scores).abs().max() <= limit * largest
        assert largest > 0
        assert row.prediction.index == token
        assert row.position == alone.position == len(PROMPT) + k - 1
        assert row.probability == pytest.approx(alone.probability, rel=1e-5)
        assert row.prediction.of == alone.prediction.of


@pytest.mark.parametrize("removal", ["delete", "mask"])
def test_occlusion_of_a_prompt_of_one_token(removal):
    model = speaking()
    for of in ("probability", "logit", "log_prob"):
        options = {"method": "occlusion", "removal": removal, "of": of}
        found = model.explain(ids=[9], answer_ids=ANSWER, **options)
        for k, token in enumerate(ANSWER):
            alone = model.explain(ids=[9, *ANSWER[:k]], target=token, **options)
            torch.testing.assert_close(found.scores[k, : k + 1], alone.scores)
            assert (found.scores[k, k + 1 :] == 0).all()


@pytest.mark.parametrize("method", SUITED)
@pytest.mark.parametrize("of", ["logit", "log_prob", "probability", None])
def test_a_total_is_made_of_the_rows_or_in_one_pass(method, of):
    model = causal()
    options = dict(FEW.get(method, {}))
    if of is not None:
        if of not in alti.METHODS[method].choices.get("of", ()):
            pytest.skip(f"{method} does not explain a {of}")
        options["of"] = of
    if "aggregate" in alti.METHODS[method].options and method != "gradient":
        options["aggregate"] = "sum"
    rows = model.explain(ids=PROMPT, answer_ids=ANSWER, method=method, **options)
    whole = model.explain(ids=PROMPT, answer_ids=ANSWER, method=method, total=True, **options)
    added = rows.total()
    assert isinstance(whole, alti.Attribution)
    assert whole.prediction == added.prediction
    expected = "relative" if method == "consensus" else alti.METHODS[method].of({})
    assert whole.prediction.of == (of or expected)
    assert whole.label == " " + " ".join(map(str, ANSWER))
    assert whole.probability == pytest.approx(
        torch.tensor([row.probability for row in rows]).double().prod().item()
    )
    assert whole.extra["log_prob"] == pytest.approx(added.extra["log_prob"])
    assert whole.extra["log_prob"] == pytest.approx(math.log(whole.probability))
    if method in NOT_ADDITIVE:
        assert (whole.scores - added.scores).abs().max() > 1e-6
    else:
        torch.testing.assert_close(whole.scores, added.scores)
    if alti.METHODS[method].shares_of_input:
        assert whole.scores.sum() == pytest.approx(1)
        torch.testing.assert_close(added.scores, rows.scores.mean(0))


def test_absence_divides_after_adding():
    model = causal()
    rows = [
        alti.methods.run(
            "absence",
            model.model,
            *model.batch(*_task(model, total)),
        )
        for total in (False, True)
    ]
    vectors = rows[0].vectors.sum(1, keepdim=True)
    torch.testing.assert_close(rows[1].vectors, vectors)
    mask = torch.ones(1, vectors.shape[2], dtype=torch.bool)
    expected = alti.METHODS["absence"].aggregated(vectors, mask, {})
    torch.testing.assert_close(rows[1].tokens, expected)


def _task(model, total):
    from alti.model.question import Question
    from alti.model.request import Request

    request = Request(method="absence", total=total)
    question = Question(ids=PROMPT, answer_ids=ANSWER)
    return [model.read(question, request)], request


@pytest.mark.parametrize("method", ["linear", "input_x_gradient", "occlusion", "absence"])
def test_log_prob_is_the_logarithm_of_the_probability(method):
    """The gradient of the declared number, by finite differences where the method is a gradient."""
    model = causal()
    options = {"aggregate": "sum"} if method == "input_x_gradient" else {}
    log = model.explain(ids=PROMPT, target=3, method=method, of="log_prob", **options)
    assert log.prediction.of == "log_prob"
    if method == "input_x_gradient":
        chance = model.explain(ids=PROMPT, target=3, method=method, of="probability", **options)
        torch.testing.assert_close(log.scores, chance.scores / chance.probability)
    if method == "occlusion":
        whole = model.model(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)[3]
        left = model.model(torch.tensor([PROMPT[:2] + PROMPT[3:]])).logits[0, -1].log_softmax(-1)[3]
        assert log.scores[2].item() == pytest.approx((whole - left).item())
    if method == "linear":
        logits = model.model(torch.tensor([PROMPT])).logits[0, -1].detach()
        value = logits[3] - (logits.softmax(-1) * logits).sum()
        assert log.scores.sum().item() + log.extra["remainder"] == pytest.approx(value.item())


def test_answers_of_different_lengths_go_in_one_batch():
    model = speaking("bpe")
    prompts = ["A clever blend", "The acting is better than the plot", "It costs"]
    answers = [" of fact and fiction", " and funny", " 3.14 dollars!"]
    for method in ("alti", "linear", "absence", "occlusion", "input_x_gradient"):
        for total in (False, True):
            options = {"method": method, "total": total}
            together = list(model.explain_all(prompts, answer=answers, **options))
            for one, prompt, answer in zip(together, prompts, answers, strict=True):
                alone = model.explain(prompt, answer=answer, **options)
                assert one.source.tokens == alone.source.tokens
                torch.testing.assert_close(one.scores, alone.scores, rtol=1e-6, atol=1e-8)
                assert type(one) is type(alone)


def test_a_total_of_one_prediction_is_that_prediction():
    model = speaking()
    one, total = (model.explain("A film", total=total) for total in (False, True))
    assert one.prediction == total.prediction
    torch.testing.assert_close(one.scores, total.scores)


def test_the_model_is_left_as_it_was():
    model = speaking()
    batch = model.encoder.collate([model.encoder.encode("A clever blend")]).tensors
    model.explain("A clever blend")  # transformers adds hooks of its own once
    before, again = snapshot(model.model, batch)
    state = torch.random.get_rng_state()
    model.explain("A clever", generate={"max_new_tokens": 3, "do_sample": True, "seed": 3})
    model.explain("A clever", generate=3, method="absence", total=True)
    assert torch.equal(state, torch.random.get_rng_state())
    assert_untouched(model.model, before, again)
    assert model.model.config._attn_implementation == "sdpa"


def test_half_precision_and_grouped_heads():
    half = causal("mistral", torch.float32)
    half.model.to(torch.bfloat16)
    for method in ("alti", "input_x_gradient"):
        options = {"ids": PROMPT, "answer_ids": ANSWER, "method": method}
        exact = causal("mistral", torch.float32).explain(**options)
        stacked = torch.stack([exact.scores.flatten(), half.explain(**options).scores.flatten()])
        assert torch.corrcoef(stacked)[0, 1] > 0.97


def test_an_adapter_is_read_through_itself():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    network = tiny.build("llama", "AutoModelForCausalLM", dtype=torch.float32)
    plain = Model(copy.deepcopy(network), None).explain(ids=PROMPT, answer_ids=ANSWER)
    model = Model(peft.get_peft_model(network, config).eval(), None)
    for method in ("alti", "absence"):
        found = model.explain(ids=PROMPT, answer_ids=ANSWER, method=method)
        alone = model.explain(ids=PROMPT + ANSWER[:2], target=ANSWER[2], method=method)
        limit = float(1e-4 * alone.scores.abs().max())
        torch.testing.assert_close(found.scores[2, :8], alone.scores, rtol=0, atol=limit)
    assert (model.explain(ids=PROMPT, answer_ids=ANSWER).scores - plain.scores).abs().max() > 1e-3
    assert len(model.explain(ids=PROMPT, generate=2)) == 2


# --- what flows through the answer ---


def test_what_the_answer_took_is_passed_on_to_the_prompt():
    found = causal().explain(ids=PROMPT, answer_ids=ANSWER)
    passed = found.total(through_answer=True)
    assert passed.scores.sum() == pytest.approx(1)
    start = len(PROMPT)
    assert (passed.scores[start:] == 0).all()
    prompt, own = found.scores[:, :start], found.scores[:, start:]
    series, power = prompt.clone(), prompt.clone()
    for _ in ANSWER:  # I + A + A² + …, which ends: A is strictly lower triangular
        power = own.tril(-1) @ power
        series += power
    torch.testing.assert_close(passed.scores[:start], series.mean(0))
    # token by token: what answer token j rests on is what its own row says
    rows = []
    for k in range(len(ANSWER)):
        rows.append(prompt[k] + sum((own[k, j] * rows[j] for j in range(k)), torch.zeros(start)))
    torch.testing.assert_close(passed.scores[:start], torch.stack(rows).mean(0))


def test_through_the_answer_is_refused_for_signed_scores_and_groups():
    model = causal()
    signed = model.explain(ids=PROMPT, answer_ids=ANSWER, method="linear")
    with pytest.raises(alti.UsageError, match="linear gives none: use alti"):
        signed.total(through_answer=True)
    found = model.explain(ids=PROMPT, answer_ids=ANSWER)
    with pytest.raises(alti.UsageError, match="before grouping"):
        found.grouped("word").total(through_answer=True)
    with pytest.raises(alti.UsageError, match="every token of an answer"):
        model.explain(ids=PROMPT, positions="all").total(through_answer=True)


# --- one answer against another ---


CONTRASTING = [m for m in SUITED if "log_prob" in alti.METHODS[m].choices.get("of", ())]


@pytest.mark.parametrize("method", CONTRASTING)
def test_one_answer_against_another(method):
    model = speaking()
    options = dict(FEW.get(method, {}))
    if method in ("input_x_gradient", "integrated_gradients"):
        options["aggregate"] = "sum"
    prompt, ours, theirs = "The acting is", " better", " not a bad film"
    found = model.explain(prompt, answer=ours, against=theirs, method=method, **options)
    assert isinstance(found, alti.Attribution)
    assert found.source.texts == (prompt,)
    assert found.label == f"{ours!r} rather than {theirs!r}"
    assert found.prediction.of == "log_prob"
    parts = [
        model.explain(prompt, answer=a, method=method, of="log_prob", total=True, **options)
        for a in (ours, theirs)
    ]
    logs = [part.probability for part in parts]
    assert found.extra["log_prob"] == pytest.approx(torch.tensor(logs[0]).log().item(), rel=1e-5)
    assert found.extra["log_prob_against"] == pytest.approx(
        torch.tensor(logs[1]).log().item(), rel=1e-5
    )
    count = len(found)
    if method != "gradient":
        expected = parts[0].scores[:count] - parts[1].scores[:count]
        torch.testing.assert_close(found.scores, expected)
    swapped = model.explain(prompt, answer=theirs, against=ours, method=method, **options)
    sign = 1 if method == "gradient" else -1
    torch.testing.assert_close(swapped.scores, sign * found.scores)


def test_absence_against_another_answer_divides_after_subtracting():
    found = speaking().explain("The acting is", answer=" better", against=" bad", method="absence")
    assert found.scores.abs().sum() <= 1.5 + 1e-9


def test_what_cannot_be_set_against_another_answer():
    model = speaking()
    with pytest.raises(alti.UsageError, match="are both ' better'"):
        model.explain("The acting is", answer=" better", against=" better", method="linear")
    with pytest.raises(alti.UsageError, match="alti is the same for every answer"):
        model.explain("The acting is", answer=" better", against=" bad")
    with pytest.raises(alti.UsageError, match="difference of log p"):
        model.explain("The", answer=" better", against=" bad", method="linear", of="logit")
    with pytest.raises(alti.UsageError, match="answer_ids is no list of token ids"):
        model.explain("The", answer=" better", against=3, method="linear")
    found = causal().explain(ids=PROMPT, answer_ids=[3], against=[5], method="linear")
    assert len(found) == len(PROMPT)


# --- ids ---


def test_ids_without_a_tokenizer():
    model = causal()
    found = model.explain(ids=PROMPT, method="linear")
    assert found.tokens == tuple(map(str, PROMPT))
    assert found.text == " ".join(map(str, PROMPT))
    assert [found.text[slice(*span)] for span in found.offsets] == list(found.tokens)
    assert found.label == str(found.target)
    assert len(found.words()) == len(PROMPT)
    assert "linear" in str(model.explain(ids=PROMPT, answer_ids=ANSWER, method="linear"))
    assert model.explain(ids=PROMPT, target=5).target == 5
    assert len(model.explain(ids=PROMPT, positions="all")) == len(PROMPT)
    assert len(model.explain(ids=PROMPT, generate=3)) == 3
    with pytest.raises(alti.UsageError, match="there is no tokenizer: give an id"):
        model.explain(ids=PROMPT, target="film")
    with pytest.raises(alti.LoadError, match=r"no tokenizer, and text cannot .* give it beside"):
        model.explain("A film")
    with pytest.raises(alti.LoadError, match="has no tokenizer"):
        model.explain(ids=PROMPT, answer="good")


@pytest.mark.parametrize("head", ["SequenceClassification", "MaskedLM", "TokenClassification"])
def test_ids_for_every_kind_of_target(head):
    model = Model(tiny.build("bert", f"AutoModelFor{head}"), None)
    options = {} if head == "SequenceClassification" else {"position": 2}
    found = model.explain(ids=torch.tensor(PROMPT), **options)
    assert len(found) == len(PROMPT)


def test_ids_in_every_shape():
    model = speaking("wordpiece")
    tokenizer = model.tokenizer
    encoding = tokenizer("A clever film", return_tensors="pt")
    ids = encoding["input_ids"]
    expected = model.explain(ids=ids[0].tolist())
    assert expected.source.ids == tuple(ids[0].tolist())
    plain = tokenizer("A clever film")
    for given in (encoding, plain, ids, ids[0], ids.numpy(), tuple(ids[0].tolist())):
        torch.testing.assert_close(model.explain(ids=given).scores, expected.scores)
    text = model.explain("A clever film", bos=False)
    torch.testing.assert_close(text.scores, expected.scores)
    assert text.source.ids == expected.source.ids


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "is empty"),
        ([1.5], "no list of token ids"),
        ("text", "no list of token ids"),
        ([[1], [2]], "no list of token ids"),
        ([-1], "no list of token ids"),
        ([10_000], "only 60 embeddings"),
        (list(range(5, 50)), "45 tokens, 5 more than the 40"),
        ({"ids": [1]}, "without input_ids"),
    ],
)
def test_ids_that_are_none(given, message):
    with pytest.raises(alti.UsageError, match=message):
        causal().explain(ids=given)


def test_a_text_and_ids_are_one_too_many():
    model = speaking()
    with pytest.raises(alti.UsageError, match="both were given"):
        model.explain("A film", ids=[7])
    with pytest.raises(alti.UsageError, match="neither was given"):
        model.explain()


def test_padding_is_no_text():
    model = speaking()
    text = "The acting is better."
    padded = model.tokenizer(text, padding="max_length", max_length=20)
    assert len(padded["input_ids"]) == 20
    plain = model.explain(ids=model.tokenizer(text)["input_ids"])
    found = model.explain(ids=padded)
    assert found.source.ids == plain.source.ids
    assert found.prediction == plain.prediction


# --- the tokens of an answer ---


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece", "wordpiece"])
def test_an_answer_is_tokenized_behind_its_prompt(kind):
    model = speaking(kind)
    whole = model.tokenizer("The acting is better than the plot", add_special_tokens=False)
    found = model.explain("The acting is", answer=" better than the plot")
    own = [i for i, at in zip(found.source.ids, found.source.segments, strict=True) if at >= 0]
    assert own == whole["input_ids"]
    assert found.source.texts == ("The acting is", " better than the plot")
    assert found.grouped("word").source.tokens[-4:] == ("better", "than", "the", "plot")
    assert found.source.special.tolist()[found.source.answer :] == [False] * len(found)
    # what a tokenizer adds at the end of a text does not stand between prompt and answer
    between = found.source.special.tolist()[1 : found.source.answer]
    assert not any(between)


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece", "wordpiece"])
def test_decoding_gives_every_token_its_characters(kind):
    model = speaking(kind)
    text = "The naïve café owner doesn't expect 😀 日本 an ending ..."
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    for cut in range(1, len(ids)):
        before, behind = ids[:cut], ids[cut:]
        shown, offsets = model.encoder.decoded(behind, before)
        assert len(offsets) == len(behind)
        assert offsets[-1][1] == len(shown)
        assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(offsets))
        assert {start for start, _ in offsets} | {len(shown)} == {end for _, end in offsets} | {0}
    shown, offsets = model.encoder.decoded(ids)
    if kind == "bpe":
        assert shown == text
        emoji = [i for i, span in enumerate(offsets) if "😀" in shown[slice(*span)]]
        assert len(emoji) > 1  # its bytes share it
        assert len({offsets[i] for i in emoji}) == 1


def test_bytes_that_are_no_character_are_decoded_too():
    model = speaking("bpe")
    lone = model.tokenizer("é", add_special_tokens=False)["input_ids"][:1]
    found = model.explain("A film", answer_ids=lone * 12)
    assert len(found) == 12
    assert str(found)


def test_an_answer_that_would_be_other_tokens_is_joined_as_it_is():
    model = speaking("bpe")
    whole = model.tokenizer.encode("The acting")
    head, tail = "The acti", "ng"
    assert model.tokenizer.encode(head) + model.tokenizer.encode(tail) != whole
    with pytest.warns(JoinedByTokens, match="token by token"):
        found = model.explain(head, answer=tail)
    assert list(found.source.ids[found.source.answer :]) == model.tokenizer.encode(tail)


def test_given_ids_and_a_text_for_an_answer():
    model = speaking("bpe")
    ids = model.tokenizer.encode("The acting is")
    found = model.explain(ids=ids, answer=" better")
    assert found.source.ids == tuple(model.tokenizer.encode("The acting is better"))
    assert found.source.texts == ("The acting is", " better")


def test_an_unknown_word_does_not_swallow_the_answer():
    model = speaking("wordpiece")
    with pytest.warns(JoinedByTokens):
        found = model.explain("the 😀", answer="x film", bos=False)
    assert found.grouped("word").source.tokens[-2:] == ("x", "film")


# --- generation ---


def test_what_is_generated_is_what_is_explained():
    model = speaking()
    found = model.explain("A clever blend", generate=6)
    prompt = found.source.ids[: found.source.answer]
    written = model.model.generate(
        torch.tensor([prompt]), max_new_tokens=6, do_sample=False, pad_token_id=0
    )[0].tolist()
    assert list(found.source.ids) == [*written[: len(written)]]
    again = model.explain(ids=list(prompt), answer_ids=written[len(prompt) :])
    torch.testing.assert_close(found.scores, again.scores)


def test_the_end_token_is_written_but_not_explained():
    model = speaking()
    prompt = [7, 12]
    first = model.explain(ids=prompt, generate={"max_new_tokens": 2, "eos_token_id": None})
    one, two = first.source.ids[-2:]
    assert one != two
    model.model.generation_config.eos_token_id = two
    assert len(model.explain(ids=prompt, generate=20)) == 1
    assert len(model.explain(ids=prompt, answer_ids=[one, two])) == 2
    model.model.generation_config.eos_token_id = [one]
    with pytest.raises(alti.AltiError, match="nothing but the end token"):
        model.explain(ids=prompt, generate=20)


def test_sampling_has_a_seed():
    model = speaking()
    options = {"max_new_tokens": 8, "do_sample": True, "temperature": 2.0}
    texts = [
        model.explain("A film", generate={**options, "seed": seed}).source.ids for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (0, "not a number of tokens"),
        (True, "neither a number"),
        ("5", "neither a number"),
        ({"max_new_tokens": 2, "num_return_sequences": 2, "do_sample": True}, "several answers"),
        ({"max_new_tokens": 2, "nope": 1}, "transformers refuses generate = .*: .*'nope'"),
        (1000, "the model takes 400 in all"),
        ({"max_length": 900}, "the model takes 400 in all"),
        ({"generation_config": GenerationConfig(max_new_tokens=900)}, "takes 400 in all"),
    ],
)
def test_wrong_generation(asked, message):
    with pytest.raises(alti.UsageError, match=message):
        speaking().explain("A clever blend", generate=asked)


def test_a_generation_config_says_how_to_write():
    model = speaking()
    config = GenerationConfig(max_new_tokens=6, do_sample=True, temperature=3.0)
    options = {"generation_config": config}
    written = {model.explain("A", generate={**options, "seed": i}).source.ids for i in range(4)}
    assert len(written) > 1
    first = model.explain("A", generate=1).source.ids[-1]
    ends = GenerationConfig(max_new_tokens=6, eos_token_id=first, do_sample=False)
    with pytest.raises(alti.AltiError, match="nothing but the end token"):
        model.explain("A", generate={"generation_config": ends})
    with pytest.raises(alti.UsageError, match="nothing can be written behind it"):
        model.explain(ids=[9] * 400, generate=1)


# --- chats and documents ---


@pytest.mark.parametrize("template", [CHAT, TRIMS])
@pytest.mark.parametrize("kind", ["bpe", "sentencepiece", "wordpiece"])
def test_a_chat_is_read_through_the_tokenizers_template(kind, template):
    model = speaking(kind, template)
    found = model.explain(MESSAGES, answer="funny.")
    expected = model.tokenizer.apply_chat_template(
        MESSAGES, tokenize=False, add_generation_prompt=True
    )
    text = found.source.texts[0]
    assert text == expected
    parts = {part.name: text[slice(*part.span)] for part in found.source.parts}
    last = " user " if template == CHAT else "user"
    assert parts == {
        "system 1": MESSAGES[0]["content"],
        "user 1": MESSAGES[1]["content"],
        "assistant 1": MESSAGES[2]["content"],
        "user 2": last,
    }
    assert found.source.parts[-1].span[0] > text.rindex("[CLS]user")  # not the role's own name
    by_message = found.grouped("message")
    assert [group.name for group in by_message.source.groups] == list(parts)
    outside = [one["ungrouped"] for one in by_message.extra]
    totals = by_message.scores.sum(1) + torch.tensor(outside, dtype=by_message.scores.dtype)
    torch.testing.assert_close(totals, found.scores.sum(1))
    words = found.grouped("word").source.tokens
    assert words.count("user") == 1  # the message; the template's are no words
    assert "assistant" not in words
    assert not any("\n" in word for word in words)
    sentences = found.grouped("sentence").source
    assert sentences.tokens[:3] == (
        "The acting is better.",
        "It's not a bad film.",
        "The plot is funny.",
    )
    ids = model.tokenizer(expected, add_special_tokens=False)["input_ids"]
    assert list(found.source.ids[: found.source.answer]) == ids


def test_a_chat_of_two_messages_is_no_pair():
    model = speaking()
    (one,) = model.explain_all([MESSAGES[:2]], answer="funny")
    alone = model.explain(MESSAGES[:2], answer="funny")
    torch.testing.assert_close(one.scores, alone.scores)
    assert [part.name for part in one.source.parts] == ["system 1", "user 1"]


SPACED = (  # spaces and line breaks of its own around what it strips
    "{% for m in messages %}[CLS] {{ m['content'].strip() }} \n[SEP]{% endfor %}[CLS]\n"
)
SYSTEM_LAST = (  # the system's message goes into the last user's
    "{% for m in messages[1:] %}[CLS]{% if loop.last %}{{ messages[0]['content'] }} {% endif %}"
    "{{ m['content'] }}[SEP]{% endfor %}"
)
WITHOUT_EMPTY = (
    "{% for m in messages %}{% if m['content'] %}[CLS]{{ m['content'] }}[SEP]"
    "{% endif %}{% endfor %}"
)


@pytest.mark.parametrize("template", [SPACED, SYSTEM_LAST, WITHOUT_EMPTY])
def test_messages_are_found_in_every_template(template):
    model = speaking(template=template)
    contents = ["The acting ", "The plot\n", "bad", "film "]
    roles = ["system", "user", "assistant", "user"]
    if template == WITHOUT_EMPTY:
        contents[0] = ""
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
    found = model.explain(messages, answer="funny")
    text = found.source.texts[0]
    shown = {part.name: text[slice(*part.span)] for part in found.source.parts}
    names = ["system 1", "user 1", "assistant 1", "user 2"]
    strips = template == SPACED
    expected = dict(zip(names, (c.strip() if strips else c for c in contents), strict=True))
    assert shown == {name: content for name, content in expected.items() if content}


def test_a_template_that_leaves_users_out():
    silent = (
        "{% for m in messages if m['role'] != 'user' %}{{ m['content'] }}{% endfor %}[CLS]assistant"
    )
    with pytest.raises(alti.UsageError, match="leaves out what a user says"):
        speaking(template=silent).explain("Why?", documents=["film"], answer=" bad")


def test_a_template_that_changes_messages_is_refused():
    shouting = CHAT.replace("message['content']", "message['content'] | upper")
    with pytest.raises(alti.UsageError, match="changes what the messages say"):
        speaking(template=shouting).explain(MESSAGES, answer="funny")
    refusing = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(alti.UsageError, match="refuses these messages: roles must alternate"):
        speaking(template=refusing).explain(MESSAGES, answer="funny")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "user"}], "message 1 is .*give each a role and a content"),
        ([{"role": "user", "content": [{"type": "image"}]}], "message 1 is"),
    ],
)
def test_wrong_messages(messages, message):
    with pytest.raises(alti.UsageError, match=message):
        speaking().explain(messages, answer="funny")


def test_a_chat_needs_a_template():
    with pytest.raises(alti.UsageError, match="no template for chats"):
        speaking(template=None).explain(MESSAGES, answer="funny")
    bert = Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer("wordpiece")
    )
    with pytest.raises(alti.UsageError, match="no template for chats"):
        bert.explain(MESSAGES)


DOCUMENTS = ["The keys are on the table. It costs 3.14 dollars.", "The plot is funny"]


@pytest.mark.parametrize("template", [None, CHAT, TRIMS])
def test_documents_are_groups_of_the_prompt(template):
    model = speaking(template=template)
    found = model.explain("What is funny?", documents=DOCUMENTS, answer=" the plot")
    text = found.source.texts[0]
    body = "\n\n".join([*DOCUMENTS, "What is funny?"])
    if template is None:
        assert text == body
    else:
        chat = [{"role": "user", "content": body}]
        assert text == model.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True
        )
    documents = found.grouped("document")
    assert documents.source.tokens == tuple(DOCUMENTS)
    assert [group.name for group in documents.source.groups] == ["document 1", "document 2"]
    assert len(documents.total().top(3)) == 2
    sentences = found.grouped("sentence").source.tokens
    assert sentences == (
        "The keys are on the table.",
        "It costs 3.14 dollars.",
        "The plot is funny",
        "What is funny?",
        "the plot",
    )
    assert found.grouped("document").total().label == " the plot"
    ranked = [text for text, _ in found.grouped("sentence").total().top(9)]
    assert sorted(ranked) == sorted(sentences[:-1])  # of the prompt alone
    assert len(found.total().top(999)) < len(found[-1].top(999))


def test_documents_in_a_template_of_the_users():
    model = speaking(template=None)
    form = "Read this:\n{documents}\nNow say. {question} Say:"
    found = model.explain(
        "What is funny?", documents=DOCUMENTS, template=form, answer=" the plot", total=True
    )
    assert found.text == form.format(documents="\n\n".join(DOCUMENTS), question="What is funny?")
    assert found.grouped("document").tokens == tuple(DOCUMENTS)
    assert "Read" in found.words().tokens
    assert "Now say." in found.grouped("sentence").tokens


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "", "documents": DOCUMENTS}, "without a question"),
        ({"text": "Why?", "documents": []}, "is no list of texts"),
        ({"text": "Why?", "documents": "one"}, "is no list of texts"),
        ({"text": "Why?", "documents": ["a", " "]}, "document 2 is empty"),
        ({"text": "Why?", "documents": ["a"], "template": "{documents}"}, "once each"),
        ({"text": "Why?", "template": "{documents} {question}"}, "there are none"),
        ({"text": "Why?", "documents": ["a"], "template": 3}, "template is int"),
        ({"text": MESSAGES, "documents": ["a"]}, "with a chat"),
        ({"ids": [7], "documents": ["a"]}, "with ids="),
        ({"text": "Why?", "text_pair": "So.", "answer": " Yes"}, "text_pair was given with"),
        ({"text": "Why?", "answer": ""}, "answer is empty"),
        ({"text": "Why?", "answer": 3}, "answer is int"),
        ({"text": "Why?", "answer": " a", "generate": 3}, "answer and generate were given"),
        ({"text": "Why?", "answer": " a", "target": 3}, "and so does an answer"),
        ({"text": "Why?", "answer": " a", "positions": "all"}, "and so does an answer"),
        ({"text": "Why?", "answer": " a", "truncate": True}, "where its answer begins"),
        ({"text": "Why?", "answer": " a " * 300}, "tokens, .* more than the 400"),
        ({"text": "Why?", "answer_ids": [9999]}, "the answer holds token id 9999"),
    ],
)
def test_what_does_not_go_together(arguments, message):
    with pytest.raises(alti.UsageError, match=message):
        speaking().explain(**arguments)


def test_an_encoder_writes_no_answers():
    model = Model(tiny.speaking("bert", "AutoModelForMaskedLM"), tiny.tokenizer("wordpiece"))
    for asked in ({"generate": 5}, {"answer": "film"}, {"answer_ids": [7]}):
        with pytest.raises(alti.UsageError, match="this model writes no text"):
            model.explain("A film", **asked)


def test_groups_that_are_not_there():
    found = speaking().explain("A film. A plot.", answer=" funny")
    for unit in ("document", "message"):
        with pytest.raises(alti.UsageError, match=f"the text has no {unit}s"):
            found.grouped(unit)
    assert found.grouped("sentence").source.tokens == ("A film.", "A plot.", "funny")


# --- the first token ---


def test_a_first_token_is_put_in_front():
    model = speaking(bos_token="[CLS]")
    with pytest.warns(FirstTokenAdded, match=r"\[CLS\] was put in front"):
        found = model.explain("A film")
    assert found.tokens[0] == "[CLS]"
    assert found.special.tolist()[0]
    assert found.segments[0] == -1
    assert found.position == len(found) - 1
    assert "[CLS]" not in dict(found.top(100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.explain("A plot")  # said once
        typed = model.explain("A film", bos=False)
        ids = model.explain(ids=list(typed.source.ids))
        chat = model.explain(MESSAGES)
        own = model.explain("[CLS]A film")
        named = model.explain("A film", bos="[MASK]")
    assert typed.tokens == found.tokens[1:] == ids.tokens
    assert chat.tokens[:2].count("[CLS]") == 1
    assert own.tokens == found.tokens
    torch.testing.assert_close(own.scores, found.scores)
    assert named.tokens[0] == "[MASK]"
    position = model.explain("A film", position=1)
    assert position.tokens[position.position] == found.tokens[1]


def test_which_token_comes_first():
    def first(**roles):
        model = speaking(**{"bos_token": None, "eos_token": None, **roles})
        return model.encoder.first, model.tokenizer

    assert first()[0] is None
    number, tokenizer = first(eos_token="[SEP]")
    assert number == tokenizer.convert_tokens_to_ids("[SEP]")
    number, tokenizer = first(eos_token="[SEP]", bos_token="[CLS]")
    assert number == tokenizer.convert_tokens_to_ids("[CLS]")


def test_the_separator_of_the_training_comes_first_also_as_unknown_word():
    tokenizer = copy.deepcopy(tiny.tokenizer("bpe"))
    tokenizer.add_special_tokens({"unk_token": "<|endoftext|>", "bos_token": "[CLS]"})
    network = tiny.speaking("gpt2", "AutoModelForCausalLM", "bpe", vocab_size=len(tokenizer) + 2)
    model = Model(network, tokenizer)
    found = model.explain("A film", method="occlusion")
    assert found.tokens[0] == "<|endoftext|>"
    assert found.special.tolist()[0]
    assert found.scores[0] == 0
    typed = model.explain("<|endoftext|>A film", method="occlusion")
    assert typed.special.tolist() == found.special.tolist()
    torch.testing.assert_close(typed.scores, found.scores)


def test_a_tokenizer_that_adds_its_own_first_token_gets_no_other():
    found = speaking("sentencepiece", bos_token="[CLS]").explain("A film")
    assert found.tokens[0] == "[CLS]"
    assert found.tokens.count("[CLS]") == 1


def test_wrong_first_tokens():
    model = speaking(bos_token=None, eos_token=None)
    assert len(model.explain("A film")) == len(model.explain("A film", bos=False))
    with pytest.raises(alti.UsageError, match="has no token to begin with"):
        model.explain("A film", bos=True)
    with pytest.raises(alti.UsageError, match="'<x>' is no token"):
        model.explain("A film", bos="<x>")
    bert = Model(tiny.speaking("bert", "AutoModelForMaskedLM"), tiny.tokenizer("wordpiece"))
    with pytest.raises(alti.UsageError, match="no causal language model"):
        bert.explain("A film [MASK]", bos=True)


def test_the_first_token_counts_for_the_limit():
    model = speaking(bos_token="[CLS]")
    text = "film " * 500
    with pytest.raises(alti.UsageError, match="more than the 400"):
        model.explain(text)
    found = model.explain(text, truncate=True, method="input_x_gradient")
    assert len(found) == 400
    assert found.tokens[0] == "[CLS]"


def test_the_encoder_of_a_benchmark_sees_the_same_tokens():
    model = speaking(bos_token="[CLS]")
    from alti.model.request import Request

    task = model.task("A film", None, Request())
    assert tuple(task.encoded.tokens) == model.explain("A film").tokens
    assert isinstance(model.encoder, Encoder)


# --- many texts ---


def test_one_target_position_or_rival_for_each_text():
    model = speaking()
    texts = ["A clever blend", "The acting", "It costs 3.14"]
    targets, rivals, positions = [9, 10, 11], [20, 21, 22], [1, -1, 2]
    found = list(
        model.explain_all(
            texts, method="linear", target=targets, against=rivals, position=positions
        )
    )
    for one, text, *own in zip(found, texts, targets, rivals, positions, strict=True):
        names = ("target", "against", "position")
        alone = model.explain(text, method="linear", **dict(zip(names, own, strict=True)))
        assert one.prediction == alone.prediction
        torch.testing.assert_close(one.scores, alone.scores)


def test_lists_of_another_length_are_refused():
    model = speaking()
    for given in ({"target": [None, 9]}, {"target": [9, None]}, {"answer": [" film", None]}):
        with pytest.raises(alti.UsageError, match="holds None: give a value for every text"):
            list(model.explain_all(["A film", "B film"], method="linear", **given))
    with pytest.raises(alti.UsageError, match="target holds 1 values for 2 texts"):
        list(model.explain_all(["A", "B"], target=[3], method="linear"))
    with pytest.raises(alti.UsageError, match="holds fewer values"):
        list(model.explain_all(iter(["A film", "B film"]), target=[3], method="linear"))


def test_an_error_names_the_text():
    model = speaking()
    results = model.explain_all(["A film", "A plot", ""], batch_size=1)
    assert next(results).text == "A film"
    next(results)
    with pytest.raises(alti.UsageError, match=r"texts\[2\]: text is empty"):
        next(results)


class Column(Sequence):
    """As `datasets` gives one: a sequence, and no list."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return self.values[i]


def test_columns_and_series():
    model = speaking()
    texts, answers = ["A film", "A plot"], [" is funny", " is bad"]
    tables = [{"text": Column(texts), "answer": Column(answers)}]
    refused = [{"text": texts}, SimpleNamespace(columns=["text"], __iter__=lambda: iter(["text"]))]
    if find_spec("pandas"):
        import pandas

        tables.append(pandas.DataFrame({"text": texts, "answer": answers}))
        refused.append(tables[-1])
    pairs = zip(texts, answers, strict=True)
    expected = [model.explain(text, answer=answer) for text, answer in pairs]
    for table in tables:
        found = list(model.explain_all(table["text"], answer=table["answer"]))
        for one, alone in zip(found, expected, strict=True):
            torch.testing.assert_close(one.scores, alone.scores)
    for whole in refused:
        with pytest.raises(alti.UsageError, match="texts is a"):
            model.explain_all(whole)


def test_many_texts_are_generated_one_by_one():
    model = speaking()
    texts = ["A clever blend", "The acting"]
    found = list(model.explain_all(texts, generate=3))
    for one, text in zip(found, texts, strict=True):
        alone = model.explain(text, generate=3)
        assert one.source.ids == alone.source.ids
        torch.testing.assert_close(one.scores, alone.scores)


# --- stored ---


def test_answers_are_stored_with_their_parts(tmp_path):
    model = speaking()
    found = model.explain("Why?", documents=DOCUMENTS, answer=" So.", method="linear")
    for result in (found, found.grouped("document")):
        result.save(tmp_path / "found.alti")
        for again in (
            alti.Attributions.load(tmp_path / "found.alti"),
            alti.Attributions.from_dict(result.to_dict(checksum=True)),
        ):
            assert again.source.parts == result.source.parts
            assert again.source.groups == result.source.groups
            assert again.source.answer == result.source.answer
            assert again.predictions == result.predictions
            assert torch.equal(again.scores, result.scores)
            assert again.total().label == " So."
    plain = found.to_dict()
    plain["source"]["parts"][0]["span"] = [0, 10_000]
    with pytest.raises(alti.LoadError, match="parts lie outside the text"):
        alti.Attributions.from_dict(plain)
    plain = found.to_dict()
    plain["source"]["answer"] = 10_000
    with pytest.raises(alti.LoadError, match="answer is behind the last token"):
        alti.Attributions.from_dict(plain)

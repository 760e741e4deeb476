"""Heads and layers: what each head brings, and what would have been said after each layer."""

import json
import re
import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

import alti
import alti.read.attention_call as attention_call
import alti.read.lens
import alti.read.long as long
from alti import Block, UsageError
from alti.mix.heads import attention_by_head, head_parts
from alti.model.lens import Lens
from alti.model.model import Model
from alti.read.lens import layer_logits
from test_mixing import BLOCKS, kernels, random_block

import tiny

MASKED = [
    name
    for name in tiny.CONFIGS
    if name in MODEL_FOR_MASKED_LM_MAPPING_NAMES and name not in tiny.ENCODER_DECODERS
]
SPEAKERS = [(name, "AutoModelForCausalLM") for name in tiny.DECODERS]
SPEAKERS += [(name, "AutoModelForMaskedLM") for name in MASKED]
FLOAT32_LOGITS = ("gptj", "gpt_neo", "codegen")  # whatever their weights are
PLACES = torch.tensor([[3, 5], [2, 6]])


def textbook(block: Block, p: int) -> Tensor:
    """The contributions of heads with a loop over every number of the formula: [B, H, T, S]."""
    batch, heads, targets, sources = block.attn.shape
    c = torch.zeros(batch, heads, targets, sources).double()
    for b in range(batch):
        for i in range(targets):
            if block.mask is not None and not block.mask[b, i]:
                continue
            y = block.output[b, i]
            for h in range(heads):
                for j in range(sources):
                    vector = block.attn[b, h, i, j] * (block.value[b, h, j] @ block.weight[h])
                    t = block.scale[b, i] * vector
                    c[b, h, i, j] = max(0.0, y.norm(p) - (y - t).norm(p))
            residual = max(0.0, y.norm(p) - (y - block.residual[b, i]).norm(p))
            if (total := c[b, :, i].sum() + residual) > 0:
                c[b, :, i] /= total
    return c


@pytest.mark.parametrize(("kernel", "task"), kernels("l1", "l2"))
@pytest.mark.parametrize("name", [*BLOCKS, "63 tokens"])
def test_contributions_of_heads_are_the_formula(name, kernel, task):
    block = {**BLOCKS, "63 tokens": random_block(1, 2, 63, d=3, width=9, causal=True)}[name]
    found = alti.contributions(block, p=int(task[1]), kernel=kernel, heads=True)
    assert found.shape == block.attn.shape
    torch.testing.assert_close(found, textbook(block, int(task[1])), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", BLOCKS)
def test_vectors_of_heads_add_up_and_what_is_missing_to_1_is_the_residual(name):
    block = BLOCKS[name]
    vectors = head_parts(block).sum((1, 3)) + block.residual + block.bias
    torch.testing.assert_close(vectors, block.output, rtol=0, atol=1e-9)
    shares = alti.contributions(block, heads=True).sum((1, 3))
    assert ((shares >= 0) & (shares <= 1 + 1e-12)).all()
    whole = alti.contributions(block)
    assert not torch.allclose(
        alti.contributions(block, heads=True).sum(1), whole[..., : block.attn.shape[-1]]
    )  # norms do not add up


def test_one_token_that_no_head_changes_stays_what_it_was():
    block = random_block(targets=3)
    still = replace(block, value=torch.zeros_like(block.value), output=block.residual + block.bias)
    assert not alti.contributions(still, heads=True).any()


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gpt_bigcode", "gemma2"])
def test_heads_of_a_model_are_its_own(family):
    """Post-norm, pre-norm, biases, grouped and single keys and values."""
    model = tiny.build(family)
    model.set_attn_implementation("eager")
    inputs = tiny.inputs(model)
    blocks = alti.trace(model, inputs)
    own = model(**inputs, output_attentions=True).attentions
    assert len(blocks) == len(own)
    for block, probabilities in zip(blocks, own, strict=True):
        mask = inputs["attention_mask"].bool()[:, None, :, None]
        torch.testing.assert_close(
            attention_by_head(block), probabilities.double().where(mask, 0), rtol=0, atol=1e-6
        )
        found = alti.contributions(block, heads=True)
        torch.testing.assert_close(found, textbook(block, 1), rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def classifier():
    return Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification").double(), tiny.tokenizer()
    )


@pytest.fixture(scope="module")
def speaker():
    return Model(
        tiny.speaking("llama", "AutoModelForCausalLM", "bpe").double(), tiny.tokenizer("bpe")
    )


TEXT = "the film is a clever blend of fact"


def test_heads_of_a_text(classifier):
    maps = classifier.heads(TEXT, layer=1)
    found = classifier.explain(TEXT)
    assert (maps.layer, len(maps)) == (1, tiny.HEADS)
    assert maps.source == found.source
    shares = maps.contributions.sum((0, 2)) + maps.residual
    torch.testing.assert_close(shares, torch.ones_like(shares), rtol=0, atol=1e-12)
    rows = maps.attention.sum(2)
    torch.testing.assert_close(rows, torch.ones_like(rows), rtol=0, atol=1e-6)
    last = classifier.heads(TEXT)
    assert last.layer == tiny.LAYERS - 1
    some = classifier.heads(TEXT, layer=1, positions=[2, -1])
    assert some.rows == (2, len(found) - 1)
    torch.testing.assert_close(some.contributions, maps.contributions[:, [2, -1]])
    one = classifier.heads(ids=[5])
    assert one.attention.shape == (tiny.HEADS, 1, 1)
    json.dumps(maps.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"layer": 9}, "layer = 9 does not exist: the model has 3 layers"),
        ({"layer": -4}, "layer = -4 does not exist"),
        ({"layer": "last"}, "layer = 'last' is no layer: give its number"),
        ({"positions": [99]}, "positions: 99 is outside the text"),
        ({"positions": []}, "positions: empty is outside the text"),
        ({"p": 3}, "p = 3 is not a norm of ALTI"),
    ],
)
def test_heads_that_do_not_exist(classifier, asked, sentence):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        classifier.heads(TEXT, **asked)


def test_heads_of_an_encoder_decoder_have_rows_and_columns_of_two_texts():
    model = Model(tiny.speaking("t5", "AutoModelForSeq2SeqLM").double(), tiny.tokenizer())
    maps = model.heads(TEXT, answer="a blend", layer=-1)  # cross-attention of the last layer
    start = maps.source.decoder
    assert (maps.columns[0], maps.columns[-1]) == (0, start - 1)
    assert maps.rows[0] == start
    assert maps.contributions.shape[1:] == (len(maps.rows), len(maps.columns))
    with pytest.raises(UsageError, match="positions choose rows of one stack"):
        model.heads(TEXT, answer="a blend", positions=[0])


def test_heads_of_a_long_text_say_their_size_and_are_the_same(speaker, monkeypatch):
    """To 1e-6, as in test_long.py: the softmax of a llama is one of float32."""
    plain = speaker.heads(TEXT, layer=1)
    monkeypatch.setattr(long, "LONG", 1)
    monkeypatch.setattr(attention_call, "LEAST", 3)
    monkeypatch.setattr(attention_call, "NUMBERS", {"cpu": 1})
    count = len(plain.source)
    size = 2 * tiny.HEADS * count**2 * 4
    with pytest.warns(alti.AltiWarning, match=f"{size:,} bytes"):
        rows = speaker.heads(TEXT, layer=1)
    torch.testing.assert_close(rows.contributions, plain.contributions, rtol=0, atol=1e-6)
    torch.testing.assert_close(rows.attention, plain.attention, rtol=0, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = speaker.heads(TEXT, layer=1, positions=[3])
    torch.testing.assert_close(one.contributions, plain.contributions[:, [3]], rtol=0, atol=1e-6)


def test_views_of_heads(classifier, monkeypatch):
    maps = classifier.heads(TEXT, layer=1)
    text = maps.render(position=1)
    assert text.startswith(f"layer 2 · {tiny.HEADS} heads · contributions from 0 (·) to ")
    assert f" to {float(maps.contributions.max()):.3f}" in text.splitlines()[0]
    assert "what each head brings, for 'the' (1)" in text
    assert text.count("\n  head") >= 2
    assert "no head" in text
    assert "attends to" in maps.render(attention=True)
    for width, tokens in ((60, 1), (80, 2), (100, 3)):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = [line for line in maps.render(position=1).splitlines() if " of it  " in line]
        assert len(lines) == tiny.HEADS + 1
        assert all(len(line) <= width for line in lines)
        assert len(re.findall(r"\d\.\d{3}", lines[0])) == 1 + tokens
    titles = [ax.get_title(loc="left") for ax in maps.plot().axes]
    assert titles[0].startswith("head 1 · ")
    with pytest.raises(UsageError, match="position = 77 has no row here"):
        maps.render(position=77)


# What would have been said


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("family", "head"), SPEAKERS)
def test_after_the_last_layer_a_model_says_what_it_says(family, head, side):
    model = tiny.build(family, head)
    inputs = tiny.inputs(model, side=side)
    with torch.no_grad():
        own = model(**inputs).logits[torch.arange(2)[:, None], PLACES]
    if not own.isfinite().all():  # what some models make of padding on the left
        with pytest.raises(alti.DecompositionError, match="not finite for this input"):
            list(layer_logits(model, inputs, PLACES))
        return
    logits = list(layer_logits(model, inputs, PLACES))
    # one of them holds one layer that it uses several times
    assert len(logits) >= tiny.LAYERS
    exact = 1e-6 if family in FLOAT32_LOGITS else 1e-12
    torch.testing.assert_close(logits[-1], own, rtol=0, atol=exact)
    assert not torch.allclose(logits[0], own, atol=1e-3)


def test_the_lens_is_the_final_norm_and_the_head():
    for family, head in (("llama", "AutoModelForCausalLM"), ("bert", "AutoModelForMaskedLM")):
        model = tiny.build(family, head)
        inputs = tiny.inputs(model)
        with torch.no_grad():
            states = model(**inputs, output_hidden_states=True).hidden_states
            for layer, logits in enumerate(layer_logits(model, inputs, PLACES)):
                state = states[layer + 1][torch.arange(2)[:, None], PLACES]
                if family == "bert":
                    expected = model.cls(state)
                elif layer + 1 < tiny.LAYERS:
                    expected = model.lm_head(model.model.norm(state))
                else:  # the last of these is normed already
                    expected = model.lm_head(state)
                torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)


def test_a_model_that_mixes_tokens_behind_its_last_layer_is_noticed(monkeypatch):
    model = tiny.build("llama", "AutoModelForCausalLM")
    norm = type(model.model.norm)
    forward = norm.forward

    def whole(self, x):
        return forward(self, x + x.mean(1, keepdim=True))

    monkeypatch.setattr(norm, "forward", whole)
    with pytest.raises(alti.DecompositionError, match="does not look at one position alone"):
        list(layer_logits(model, tiny.inputs(model), PLACES))


def test_a_model_is_left_as_it_was_also_after_an_exception(monkeypatch):
    model = tiny.build("gpt2", "AutoModelForCausalLM").train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    monkeypatch.setattr(alti.read.lens, "relative", lambda *args: torch.tensor(1.0))
    with pytest.raises(alti.DecompositionError):
        list(layer_logits(model, tiny.inputs(model), PLACES))
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert all((x == before[name]).all() for name, x in model.state_dict().items())


def test_a_result_with_a_lens(speaker, tmp_path):
    found = speaker.explain(TEXT, lens=True)
    lens = found.lens
    assert isinstance(lens, Lens)
    assert len(lens) == tiny.LAYERS
    assert lens.ids[-1][0] == found.target
    assert lens.tokens[-1][0] == found.label
    assert lens.probabilities[-1][0] == pytest.approx(found.probability, abs=1e-6)
    assert lens.own[-1] == pytest.approx(found.probability, abs=1e-6)
    assert lens.ranks[-1] == 1
    assert all(sorted(row, reverse=True) == list(row) for row in lens.probabilities)
    found.save(tmp_path / "lens.alti")
    assert alti.Attribution.load(tmp_path / "lens.alti") == found
    again = alti.Attribution.from_dict(json.loads(found.to_json(checksum=True)))
    assert again == found
    assert again.lens == lens
    assert "lens" not in json.dumps(speaker.explain(TEXT).to_dict())


def test_each_prediction_has_a_lens_of_its_own(speaker):
    several = speaker.explain(TEXT, positions=[1, 4], lens=True, groups="word")
    for one, place in zip(several, (1, 4), strict=True):
        alone = speaker.explain(TEXT, position=place, lens=True)
        assert one.lens.ids == alone.lens.ids
    answer = speaker.explain(TEXT, answer=" film is", lens=True)
    assert [len(one.lens) for one in answer] == [tiny.LAYERS] * len(answer)
    assert [one.lens.own[-1] for one in answer] == pytest.approx(
        [one.probability for one in answer]
    )
    assert answer.total().lens is None
    texts = [TEXT, "a dull film"]
    batch = list(speaker.explain_all(texts, lens=True))
    for text, one in zip(texts, batch, strict=True):
        alone = speaker.explain(text, lens=True, layers=False)
        assert one.lens.ids == alone.lens.ids
        assert one.lens.own == pytest.approx(alone.lens.own)


def test_a_long_text_has_the_same_lens(speaker, monkeypatch):
    plain = speaker.explain(TEXT, positions=[2, 5], lens=True, layers=False)
    monkeypatch.setattr(long, "LONG", 1)
    by_rows = speaker.explain(TEXT, positions=[2, 5], lens=True, layers=False)
    for one, other in zip(plain, by_rows, strict=True):
        assert one.lens.ids == other.lens.ids
        assert one.lens.own == pytest.approx(other.lens.own, abs=1e-9)


def test_from_which_layer_on_it_is_said():
    def lens(*ranks: int) -> Lens:
        count = len(ranks)
        return Lens((("a",),) * count, ((1,),) * count, ((0.5,),) * count, (0.5,) * count, ranks)

    assert [lens(3, 1, 2, 1, 1).settled, lens(1, 1).settled, lens(1, 2).settled] == [3, 0, 2]


def test_a_stored_lens_is_checked(speaker):
    plain = speaker.explain(TEXT, lens=True, layers=False).to_dict()
    wrong = [
        {"tokens": 3},
        {"ids": [[-1]] * tiny.LAYERS},
        {"own": [2.0] * tiny.LAYERS},
        {"ranks": [1]},
        {"more": 1},
    ]
    for change in wrong:
        prediction = {**plain["predictions"][0]}
        prediction["lens"] = {**prediction["lens"], **change}
        with pytest.raises(alti.LoadError, match="lens is not what was said after each layer"):
            alti.Attribution.from_dict({**plain, "predictions": [prediction]})


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"total": True, "positions": "all"}, "joins several"),
        ({"answer": "a", "against": "b"}, "joins several"),
    ],
)
def test_a_lens_of_several_predictions_at_once_is_refused(speaker, asked, sentence):
    with pytest.raises(UsageError, match=sentence):
        speaker.explain(TEXT, lens=True, **asked)


def test_models_without_words_have_no_lens(classifier):
    with pytest.raises(UsageError, match="its head is of the kind sequence"):
        classifier.explain(TEXT, lens=True)
    with pytest.raises(UsageError, match="this is none"):
        list(classifier.explain_all([TEXT], lens=True))


def test_views_of_a_lens(speaker):
    found = speaker.explain(TEXT, lens=True)
    names = ("<script>alert(1)</script>", "$x_%", *"abc")
    hostile = replace(found.lens, tokens=(names,) * tiny.LAYERS)
    shown = replace(found, prediction=replace(found.prediction, lens=hostile))
    assert "what the model would have said after each layer" in found.render()
    page = shown.to_html()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count('<tr><th scope="row">') == tiny.LAYERS
    table = shown.to_latex()
    assert r"\$x\_\%" in table
    assert table.count("layer ") >= tiny.LAYERS
    names = [text.get_text() for text in shown.plot("lens").axes[0].texts]
    assert names[0] == "<script>alert(1"[:15] + "…"
    answer = speaker.explain(TEXT, answer=" film is", lens=True)
    assert "stays from" in answer.render()
    assert answer.to_html().count('class="alti-lens"') == len(answer)
    assert answer.plot("lens").axes
    with pytest.raises(UsageError, match="this result has no lens"):
        speaker.explain(TEXT).plot("lens")


def test_heads_and_lens_on_the_command_line(run, tmp_path):
    folder = tmp_path / "llama"
    tiny.speaking("llama", "AutoModelForCausalLM", "bpe").save_pretrained(folder)
    tiny.tokenizer("bpe").save_pretrained(folder)
    asked = ("explain", TEXT, "-m", folder, "--no-bos")
    code, out, _ = run(*asked, "--lens")
    assert code == 0
    assert "after each layer" in out
    _, out, _ = run(*asked, "--lens", "--json")
    assert len(json.loads(out)["predictions"][0]["lens"]["own"]) == tiny.LAYERS
    _, out, _ = run(*asked, "--heads", "2")
    assert out.startswith(f"layer 2 · {tiny.HEADS} heads")
    _, out, _ = run(*asked, "--heads", "-1", "--json")
    assert json.loads(out)["layer"] == tiny.LAYERS - 1
    for more, name in ((("--heads", "1"), "heads.png"), (("--kind", "lens"), "lens.svg")):
        code, _, _ = run(*asked, *more, "--plot", tmp_path / name)
        assert code == 0
        assert (tmp_path / name).stat().st_size > 1000
    wrong = {
        ("--heads", "9"): "--heads 9 does not exist: the model has 3 layers",
        ("--heads", "0"): "--heads 0 is no layer",
        ("--heads", "1", "--html", tmp_path / "x.html"): "--heads prints, or draws",
    }
    for more, sentence in wrong.items():
        code, _, err = run(*asked, *more)
        assert (code, sentence in err) == (2, True)

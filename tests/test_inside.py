"""Language models inside models that also see or hear, asked with text alone."""

import copy

import pytest
import torch
import transformers

import alti
from alti.model.inside import language_model

import tiny
from speed import slow

LLAMA = {**tiny.CONFIGS["llama"], "vocab_size": len(tiny.tokenizer())}
SLIDING = {**tiny.CONFIGS["gemma3_text"], "vocab_size": len(tiny.tokenizer())}
GEMMA4 = {**tiny.CONFIGS["gemma4_text"], "vocab_size": len(tiny.tokenizer())}
LLAMA4 = {**tiny.CONFIGS["llama4_text"], "vocab_size": len(tiny.tokenizer())}
IMAGE = {"image_token_index": 59}
SIGLIP = {**tiny.CONFIGS["vit"], "model_type": "siglip_vision_model"}

WHOLE = {  # text, images, the rest
    "gemma3": (SLIDING, SIGLIP, IMAGE | {"mm_tokens_per_image": 1}),
    "gemma4": (GEMMA4, None, {"audio_config": None}),
    "llama4": (LLAMA4, {**tiny.CONFIGS["vit"], "vision_output_dim": tiny.WIDTH}, {}),
    "llava": (
        {**LLAMA, "model_type": "llama"},
        {**tiny.CONFIGS["vit"], "model_type": "clip_vision_model"},
        IMAGE,
    ),
    "mistral3": (
        {**LLAMA, "model_type": "mistral"},
        {**tiny.CONFIGS["vit"], "model_type": "pixtral", "head_dim": 6},
        IMAGE,
    ),
    "aya_vision": ({**SLIDING, "model_type": "cohere2"}, SIGLIP, IMAGE),
    "blip-2": ({**tiny.CONFIGS["opt"], "model_type": "opt"}, tiny.CONFIGS["vit"], {}),
}


def build(family):
    text, vision, more = WHOLE[family]
    config = transformers.AutoConfig.for_model(
        family, text_config=text, vision_config=vision, **more
    )
    torch.manual_seed(0)
    return transformers.AutoModelForImageTextToText.from_config(config).eval()


@pytest.mark.parametrize(
    "family",
    ["gemma3", *(pytest.param(f, marks=slow) for f in ("gemma4", "llama4", "llava", "mistral3"))],
)
def test_it_is_explained_as_the_language_model_it_is(family):
    whole = build(family)
    before = copy.deepcopy(whole.state_dict()), whole.config.to_json_string()
    model = alti.load(whole, tiny.tokenizer())
    assert max(model.check()) < 1e-6
    found = model.explain("A clever film.", method="absence")
    ids = torch.tensor([found.source.ids])
    with torch.no_grad():
        logits = whole(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, -1]
    assert found.target == int(logits.argmax())
    assert found.probability == pytest.approx(float(logits.softmax(-1).max()), rel=1e-5)
    assert len(model.explain("A clever film.", generate=2)) > 0
    state, config = before
    assert whole.config.to_json_string() == config
    assert all(torch.equal(value, state[name]) for name, value in whole.state_dict().items())


def test_the_whole_is_not_read_but_says_where_the_language_model_is():
    whole = build("gemma3")
    inputs = {"input_ids": torch.tensor([[5, 6, 7]])}
    with pytest.raises(
        alti.UnsupportedModelError, match=r"the gemma3_text model inside a gemma3 .* takes it out"
    ):
        alti.check(whole, inputs)
    assert max(alti.check(alti.load(whole, tiny.tokenizer()).model, inputs)) < 1e-6


def test_it_is_loaded_from_a_folder(tmp_path):
    build("gemma3").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    model = alti.load(tmp_path, device="cpu")
    assert model.family == "gemma3_text"
    assert model.name == tmp_path.name
    given = alti.explain(build("gemma3"), tiny.tokenizer(), "A clever film.")
    torch.testing.assert_close(model.explain("A clever film.").scores, given.scores)


@pytest.mark.parametrize("family", ["aya_vision", "blip-2"])
def test_one_that_computes_something_else_is_refused(family):
    """The first scales its logits elsewhere; the second takes no text without an image."""
    with pytest.raises(alti.UnsupportedModelError, match="given text alone, does not compute"):
        alti.load(build(family), tiny.tokenizer())


def test_one_whose_language_model_is_refused_says_why():
    config = transformers.Qwen3_5Config(
        text_config={**LLAMA, "linear_num_value_heads": 2, "linear_num_key_heads": 2},
        vision_config={"depth": 1, "hidden_size": 8, "num_heads": 2, "intermediate_size": 8},
    )
    with pytest.raises(
        alti.UnsupportedModelError, match=r"qwen3_5_text models: some of its layers"
    ):
        alti.load(transformers.Qwen3_5ForConditionalGeneration(config), tiny.tokenizer())


def test_any_other_model_is_left_as_it_is():
    model = tiny.build("bert")
    assert language_model(model) is model

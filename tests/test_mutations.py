"""The exactness check can fail: each of these mistakes must be caught, in every family it fits."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import alti
from alti.family import Family, Site
from alti.read import affine, assembly, attention_hook
from alti.read import walk as blocks

import tiny


def mutated(family: str, monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Change a family's entry in FAMILIES."""
    entry = alti.FAMILIES[family]
    stacks = tuple(
        replace(s, sites=tuple(replace(site, **changes) for site in s.sites)) for s in entry.stacks
    )
    monkeypatch.setitem(alti.FAMILIES, family, replace(entry, stacks=stacks))


def assert_caught(family: str, match: str = "relative error", **config: object) -> None:
    model = tiny.build(family, **config)
    with pytest.raises(alti.DecompositionError, match=rf"{family} block \d+: .*{match}"):
        alti.check(model, tiny.inputs(model))
    with pytest.raises(alti.DecompositionError):
        alti.walk(model, tiny.inputs(model), lambda block: None)


# Wrong entries

WRONG_ENTRIES = {
    "norm left out": ("bert", {"norm": None, "then": "intermediate"}, "relative error"),
    "the other norm": ("distilbert", {"norm": "output_layer_norm"}, "relative error"),
    "branch norm left out": ("gemma2", {"branch_norm": None}, "relative error"),
    "branch norm of something else": (
        "olmo2", {"branch_norm": "post_feedforward_layernorm"}, "its branch_norm"
    ),
    "branch scale forgotten": ("granite", {"branch_scale": None}, "relative error"),
    "sum read too early": ("llama", {"then": "self_attn"}, "ends before its out"),
    "sum read after the feed-forward": ("llama", {"then": "mlp.down_proj"}, "ends in a tensor"),
    "parallel residual taken for a sequence": (
        "gpt_neox", {"parallel": None, "then": "mlp"}, "relative error"
    ),
    "no end named": ("bert", {"norm": None}, "none of norm, then and parallel"),
    "no such module": (
        "bert", {"out": "attention.o"}, r"names out = 'attention\.o', which BertLayer"
    ),
    "residual of something else": ("bloom", {"residual": "input_layernorm"}, "relative error"),
    "values of the keys": ("mpnet", {"value": "attention.attn.k"}, "relative error"),
    "the wrong third of a fused projection": ("bloom", {"value_part": (1, 3)}, "relative error"),
    "attention not named": ("mpnet", {"probs": None, "value": None}, "must name probs and value"),
    "probabilities of another dropout": ("mpnet", {"probs": "attention.dropout"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG_ENTRIES)
def test_wrong_entries_are_caught(mistake, monkeypatch):
    family, changes, match = WRONG_ENTRIES[mistake]
    mutated(family, monkeypatch, **changes)
    if mistake == "probabilities of another dropout":
        model = tiny.build(family)
        with pytest.raises((alti.AltiError, RuntimeError)):
            alti.check(model, tiny.inputs(model))
        return
    assert_caught(family, match)


@pytest.mark.parametrize("family", ["bert", "distilbert", "albert", "mpnet", "deberta-v2"])
def test_a_wrong_second_norm_is_caught(family, monkeypatch):
    (stack,) = alti.FAMILIES[family].stacks
    mutated(family, monkeypatch, ffn_norm=stack.sites[0].norm)
    model = tiny.build(family)
    assert max(alti.check(model, tiny.inputs(model))) < 1e-12
    with pytest.raises(
        alti.DecompositionError, match="ffn_norm that is not computed after the block"
    ):
        alti.check(model, tiny.inputs(model), through="ffn")


def test_self_attention_taken_for_cross_attention_is_refused(monkeypatch):
    mutated("bert", monkeypatch, cross=True)
    model = alti.Model(tiny.speaking("bert", "AutoModel"), tiny.tokenizer())
    with pytest.raises(alti.UnsupportedModelError, match="met cross-attention"):
        model.explain("a long film")


def test_a_missing_site_is_caught(monkeypatch):
    encoder, decoder = alti.FAMILIES["bart"].stacks
    without_cross = replace(decoder, sites=decoder.sites[:1])
    monkeypatch.setitem(alti.FAMILIES, "bart", Family((encoder, without_cross)))
    assert_caught("bart", "attention was computed again")
    monkeypatch.setitem(alti.FAMILIES, "bart", Family((encoder,)))
    assert_caught("bart", "attention was computed again")


def test_a_last_site_that_is_missing_is_caught(monkeypatch):
    (stack,) = alti.FAMILIES["llama"].stacks
    monkeypatch.setitem(alti.FAMILIES, "llama", Family((replace(stack, blocks="layers.0"),)))
    with pytest.raises(alti.DecompositionError):
        alti.check(model := tiny.build("llama", num_hidden_layers=1), tiny.inputs(model))


def test_layers_in_another_place_are_caught(monkeypatch):
    (stack,) = alti.FAMILIES["bert"].stacks
    monkeypatch.setitem(alti.FAMILIES, "bert", Family((replace(stack, blocks="encoder.blocks"),)))
    with pytest.raises(
        alti.DecompositionError, match=r"BertModel has no layers at the Stack\.blocks"
    ):
        alti.check(model := tiny.build("bert"), tiny.inputs(model))


# Wrong code

POST_NORM = ["bert", "distilbert", "albert", "mpnet", "bart"]


@pytest.mark.parametrize("family", POST_NORM)
def test_forgotten_scale_is_caught(family, monkeypatch):
    norm = affine.norm
    monkeypatch.setattr(
        affine,
        "norm",
        lambda *args: replace(norm(*args), scale=torch.ones_like(norm(*args).scale)),
        raising=True,
    )
    assert_caught(family)


@pytest.mark.parametrize("family", POST_NORM)
def test_sample_deviation_instead_of_the_population_one_is_caught(family, monkeypatch):
    norm = affine.norm
    factor = ((tiny.WIDTH - 1) / tiny.WIDTH) ** 0.5
    monkeypatch.setattr(
        affine, "norm", lambda *args: replace(norm(*args), scale=norm(*args).scale * factor)
    )
    assert_caught(family)


@pytest.mark.parametrize("family", ["bert", "gemma2"])
def test_a_norm_that_is_not_centred_as_the_model_does_is_caught(family, monkeypatch):
    norm = affine.norm
    monkeypatch.setattr(
        affine, "norm", lambda *args: replace(norm(*args), centred=not norm(*args).centred)
    )
    assert_caught(family)


@pytest.mark.parametrize("side", ["right", "left"])
def test_an_error_in_one_short_text_of_many_is_caught(side, monkeypatch):
    after_attention = blocks.BlockReader.after_attention

    def wrong(self, probs, value):
        value = value.clone()
        value[7] *= 1.5
        after_attention(self, probs, value)

    monkeypatch.setattr(blocks.BlockReader, "after_attention", wrong)
    model = tiny.build("bert")
    with pytest.raises(alti.DecompositionError):
        alti.walk(model, tiny.inputs(model, side=side, lengths=(9, *[5] * 20)), lambda block: None)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "gemma3_text"])
def test_wrong_head_grouping_is_caught(family, monkeypatch):
    after_attention = blocks.BlockReader.after_attention

    def tiled(self, probs, value):
        heads = value[:, :: value.shape[1] // 2]  # the two key heads
        after_attention(self, probs, heads.repeat(1, probs.shape[1] // 2, 1, 1))

    monkeypatch.setattr(blocks.BlockReader, "after_attention", tiled)
    assert_caught(family)


@pytest.mark.parametrize("family", ["bert", "gpt2", "gpt_neox", "vit"])
def test_a_transposed_projection_is_caught(family, monkeypatch):
    def transposed(*args):
        weight, bias = affine.projection(*args)
        return weight.T, bias

    monkeypatch.setattr(assembly, "projection", transposed)
    assert_caught(family)


@pytest.mark.parametrize(
    "family",
    [f for f in tiny.CONFIGS if f not in tiny.UNBIASED],
)
def test_a_forgotten_bias_is_caught(family, monkeypatch):
    def unbiased(*args):
        weight, bias = affine.projection(*args)
        return weight, torch.zeros_like(bias)

    monkeypatch.setattr(assembly, "projection", unbiased)
    assert_caught(family)


@pytest.mark.parametrize(
    ("family", "field"), [("deberta", "value_bias"), ("dinov2", "branch_gain")]
)
def test_a_forgotten_part_of_an_entry_is_caught(family, field, monkeypatch):
    mutated(family, monkeypatch, **{field: None})
    assert_caught(family)


def test_attention_that_is_not_watched_is_caught(monkeypatch):
    mutated("falcon", monkeypatch, own=None)
    assert_caught("falcon", "must name probs and value, or own")


def test_a_wrong_branch_beside_a_huge_residual_is_caught(monkeypatch):
    """The sum alone would hide it: the residual is ten thousand times the branch."""
    mutated("granite", monkeypatch, branch_scale=None)
    model = tiny.build("granite", dtype=torch.float32)
    with torch.no_grad():
        model.embed_tokens.weight.mul_(1e4)
    with pytest.raises(alti.DecompositionError, match="relative error of"):
        alti.check(model, tiny.inputs(model))


def test_an_output_that_is_not_finite_is_caught():
    model = tiny.build("bert")
    with torch.no_grad():
        model.encoder.layer[1].output.dense.bias[0] = float("nan")
    with pytest.raises(
        alti.DecompositionError, match=r"bert block 2: .* not finite .*: look at its weights"
    ):
        alti.check(model, tiny.inputs(model))


def test_the_message_names_block_error_and_paths(monkeypatch):
    mutated("bert", monkeypatch, norm="output.LayerNorm")
    with pytest.raises(alti.DecompositionError) as caught:
        alti.check(model := tiny.build("bert"), tiny.inputs(model))
    message = str(caught.value)
    assert message.startswith("bert block 0: ")
    assert "out='attention.output.dense'" in message
    assert "norm='output.LayerNorm'" in message


# Modules that are not plain ones


class RootMeanSquare(nn.Module):
    """A norm of another make: no weight called weight, eps under another name."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.g, self.tiny = nn.Parameter(torch.randn(width).double()), 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.tiny).rsqrt() * (self.g - 3)


class CentredWithoutWeights(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:])


class Centred(nn.LayerNorm):
    """A subclass, so read through itself."""


@pytest.mark.parametrize("width", [24, 15])
@pytest.mark.parametrize("make", [RootMeanSquare, lambda width: CentredWithoutWeights(), Centred])
def test_norms_are_read_through_themselves(make, width):
    torch.manual_seed(0)
    norm = make(width).double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    model = tiny.build("bert", hidden_size=width, num_attention_heads=3)
    for layer in model.encoder.layer:
        layer.attention.output.LayerNorm = norm
    assert max(alti.check(model, tiny.inputs(model))) < 1e-8


def test_a_norm_is_asked_once_whether_it_centres_but_not_while_its_gain_is_zero():
    norm, x = Centred(15).double(), torch.randn(1, 4, 15, dtype=torch.float64)
    nn.init.zeros_(norm.weight)
    assert not affine.norm(norm, x, norm(x)).centred
    nn.init.ones_(norm.weight)
    found = affine.norm(norm, x, norm(x).detach())
    assert found.centred
    torch.testing.assert_close(found.linear(x) * found.scale[..., None], norm(x).detach())
    nn.init.zeros_(norm.weight)
    assert affine.norm(norm, x, norm(x)).centred


class MeansAsOnAGPU(nn.LayerNorm):
    """Its mean is off by a digit, as that of a width that is no power of two."""

    def forward(self, x):
        moved = x - x.mean(-1, keepdim=True) * (1 + 1e-7)
        variance = (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)
        return moved * (variance + self.eps).rsqrt() * self.weight + self.bias


@pytest.mark.parametrize("width", [1, 2, 3, 24, 63])
def test_a_norm_with_a_small_eps_is_seen_to_centre(width):
    x = torch.randn(1, 4, width)
    norm = MeansAsOnAGPU(width, eps=1e-12)
    assert affine.norm(norm, x, norm(x)).centred == (width > 1)  # of one number nothing is left
    root = RootMeanSquare(width)
    assert not affine.norm(root, x, root(x)).centred


class Halved(nn.Module):
    """A projection that keeps its weight in a way of its own."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.halves, self.shift = nn.Parameter(linear.weight / 2), nn.Parameter(linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (2 * self.halves).T + self.shift


def test_projections_are_read_through_themselves():
    model = tiny.build("bert")
    for layer in model.encoder.layer:
        layer.attention.output.dense = Halved(layer.attention.output.dense)
    assert max(alti.check(model, tiny.inputs(model))) < 1e-12


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_lora_is_read_through_itself(family):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    names = {"llama": ["o_proj", "v_proj"], "gpt2": ["c_proj", "c_attn"]}[family]
    config = peft.LoraConfig(
        r=2, target_modules=names, init_lora_weights=False, fan_in_fan_out=family == "gpt2"
    )
    model = peft.get_peft_model(tiny.build(family), config).double().eval()
    plain = tiny.build(family)
    batch = tiny.inputs(plain)
    assert max(alti.check(model, batch)) < 1e-12
    assert not torch.allclose(
        alti.trace(model, batch)[0].weight, alti.trace(plain, batch)[0].weight
    )


def test_virtual_tokens_are_refused():
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    model = peft.get_peft_model(tiny.speaking("bert", "AutoModelForSequenceClassification"), config)
    with pytest.raises(alti.UnsupportedModelError, match="puts virtual tokens before the text"):
        alti.explain(model, tiny.tokenizer(), "a long film")


def test_chunked_feed_forward_layers():
    model = tiny.build("bert", chunk_size_feed_forward=1)
    assert max(alti.check(model, tiny.inputs(model))) < 1e-12
    with pytest.raises(
        alti.UnsupportedModelError, match="in chunks: load it with chunk_size_feed_forward=0"
    ):
        alti.check(model, tiny.inputs(model), through="ffn")


def test_site_paths_are_all_its_module_fields():
    site = Site(
        "a",
        norm="b",
        then="c",
        parallel="d",
        branch_norm="e",
        residual="f",
        ffn_norm="g",
        probs="h",
        value="i",
    )
    assert list(site.paths().values()) == list("abcdefghi")
    assert attention_hook.PREFIX == "alti_over_"

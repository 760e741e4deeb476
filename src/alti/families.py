"""Where each model family keeps its parts. Data only: a new family is one entry of FAMILIES.

A path is relative to the layer it belongs to; `alti check MODEL` tells whether an entry is right.
"""

from dataclasses import dataclass, replace

from alti._errors import UsageError
from alti.refused import CONVOLUTION

# positions a classifier can read; last: before padding; first_and_mean: of an image, its first
# token and, beside that, the mean of its patches
POOLS = ("first", "last", "eos", "mean", "first_and_mean")

# the fields of a Site that are module paths
PATHS = (
    "out", "norm", "then", "parallel", "branch_norm", "residual", "ffn_norm", "probs", "value",
    "own", "added",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Site:
    """One attention sublayer: where its parts live inside a layer.

    The sum of residual and attention branch ends in `norm` (post-norm), is read by `then`
    (pre-norm), or is only formed together with a `parallel` MLP.
    """

    out: str  # output projection W_O
    norm: str | None = None  # post-norm: the norm applied to the residual sum
    then: str | None = None  # pre-norm: the module that next reads the residual sum
    parallel: str | None = None  # parallel residual: the MLP whose output is added in the same sum
    branch_norm: str | None = None  # a norm on the branch before the sum (Gemma 2, OLMo 2)
    branch_scale: str | None = None  # config field that multiplies the branch (Granite)
    branch_gain: str | None = None  # parameter [D] that multiplies the branch (DINOv2)
    residual: str | None = None  # module whose output is the residual, if not the layer's input
    ffn_norm: str | None = None  # post-norm: the second norm, for Globenc and ALTI + LN2
    added: str | None = (
        None  # what is added to the sum next, if not `then` alone reads it (Gemma 4)
    )
    cross: bool = False  # attends to the encoder
    # Only for attention that does not pass through transformers' attention interface:
    probs: str | None = None  # the Dropout module that every probability passes through
    value: str | None = None  # the module that computes the values, heads side by side
    value_part: tuple[int, int] = (0, 1)  # which of how many parts of each head's `value` it is
    value_bias: str | None = None  # a parameter that is added to the values afterwards
    own: str | None = None  # or the module that takes the softmax and multiplies values with it

    def paths(self) -> dict[str, str]:
        """The module paths of this site by field name."""
        return {field: path for field in PATHS if (path := getattr(self, field))}


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers of an encoder or a decoder, all alike, and their attention sites in order."""

    blocks: str  # path of the list of layers inside the base model; * stands for any one name
    sites: tuple[Site, ...]
    when: str | None = None  # "field" or "not field" of the config: whether the stack exists
    scale: str | None = None  # a buffer that multiplies what leaves a layer (Gemma 4)


@dataclass(frozen=True, slots=True)
class Family:
    """How a family is built, and which position its sequence classifier reads."""

    stacks: tuple[Stack, ...]
    pool: str = "first"  # one of POOLS, or "config:FIELD", which holds "cls" or "mean"
    # the MLP multiplies an activated gate with a second projection; or the config field that tells
    gated: bool | str = False
    routers: tuple[str, ...] = ()  # modules of a layer that weigh experts or gate them as a whole
    nonlinear: str = ""  # why there is no linear view of it; linear and its kin are refused
    offset_positions: bool = False  # padding_idx + 1 rows of the position table hold no token
    refuse: tuple[tuple[str, str], ...] = ()  # (config field, why it cannot be read where set)

    def __post_init__(self) -> None:
        if self.pool not in POOLS and not self.pool.startswith("config:"):
            raise UsageError(
                f"pool = {self.pool!r} is no position: give {', '.join(POOLS)} or config:FIELD"
            )


def _post_norm(blocks: str, out: str, norm: str, ffn_norm: str) -> Stack:
    return Stack(blocks, (Site(out, norm=norm, ffn_norm=ffn_norm),))


def _pre_norm(blocks: str, out: str, then: str) -> Stack:
    return Stack(blocks, (Site(out, then=then),))


_BERT_SITE = Site(
    "attention.output.dense", norm="attention.output.LayerNorm", ffn_norm="output.LayerNorm"
)
_BERT = Family((Stack("encoder.layer", (_BERT_SITE,)),))
_ROBERTA = replace(_BERT, offset_positions=True)
_MPNET_SITE = Site(
    "attention.attn.o",
    norm="attention.LayerNorm",
    ffn_norm="output.LayerNorm",
    probs="attention.attn.dropout",
    value="attention.attn.v",
)
_DEBERTA_SITE = replace(
    _BERT_SITE, probs="attention.self.dropout", value="attention.self.value_proj"
)
_DEBERTA_V1_SITE = replace(
    _DEBERTA_SITE,
    value="attention.self.in_proj",
    value_part=(2, 3),
    value_bias="attention.self.v_bias",
)
_REMBERT_SITE = replace(_BERT_SITE, probs="attention.self.dropout", value="attention.self.value")
_MEGATRON_SITE = replace(_REMBERT_SITE, norm=None, ffn_norm=None, then="ln")

_NOMIC = Family(
    (_post_norm("layers", "self_attn.o_proj", "post_attention_layernorm", "post_mlp_layernorm"),)
)

_LLAMA = Family(
    (_pre_norm("layers", "self_attn.o_proj", "post_attention_layernorm"),), pool="last", gated=True
)
_LLAMA4 = Family(  # its language models keep the layers one level deeper than its headless ones
    (*_LLAMA.stacks, replace(_LLAMA.stacks[0], blocks="model.layers")),
    pool="last",
    gated=True,
    routers=("feed_forward.router",),
)
_GRANITE_SITE = Site(
    "self_attn.o_proj", then="post_attention_layernorm", branch_scale="residual_multiplier"
)
_GEMMA2_SITE = Site(
    "self_attn.o_proj", then="pre_feedforward_layernorm", branch_norm="post_attention_layernorm"
)
_GEMMA4_SITE = replace(_GEMMA2_SITE, added="post_feedforward_layernorm")
_GEMMA4 = Family(
    (Stack("layers", (_GEMMA4_SITE,), scale="layer_scalar"),),
    pool="last",
    gated=True,
    routers=("router",),
    refuse=(
        ("num_kv_shared_layers", "its last layers read keys and values of earlier ones"),
        ("hidden_size_per_layer_input", "each layer reads the tokens again, beside the text's way"),
    ),
)
_COHERE = Family(
    (Stack("layers", (Site("self_attn.o_proj", parallel="mlp"),)),), pool="last", gated=True
)
_GLM4_SITE = Site(
    "self_attn.o_proj", then="post_attention_layernorm", branch_norm="post_self_attn_layernorm"
)
_MIXTRAL = replace(_LLAMA, routers=("mlp.gate",))
_GRANITE = Family((Stack("layers", (_GRANITE_SITE,)),), pool="last", gated=True)
_GRANITE_MOE = replace(_GRANITE, routers=("block_sparse_moe.router",))
_GEMMA2 = Family((Stack("layers", (_GEMMA2_SITE,)),), pool="last", gated=True)
_OLMO2_SITE = Site("self_attn.o_proj", then="mlp", branch_norm="post_attention_layernorm")
_OLMO2 = Family((Stack("layers", (_OLMO2_SITE,)),), pool="last", gated=True)
_OPT = (
    replace(
        _pre_norm("decoder.layers", "self_attn.out_proj", "final_layer_norm"),
        when="do_layer_norm_before",
    ),
    replace(
        _post_norm(
            "decoder.layers", "self_attn.out_proj", "self_attn_layer_norm", "final_layer_norm"
        ),
        when="not do_layer_norm_before",
    ),
)
_GPT_NEOX = (
    Stack("layers", (Site("attention.dense", parallel="mlp"),), when="use_parallel_residual"),
    replace(
        _pre_norm("layers", "attention.dense", "post_attention_layernorm"),
        when="not use_parallel_residual",
    ),
)
_BLOOM_SITE = Site(
    "self_attention.dense",
    then="post_attention_layernorm",
    probs="self_attention.attention_dropout",
    value="self_attention.query_key_value",
    value_part=(2, 3),
)
_BLOOM = (
    Stack("h", (_BLOOM_SITE,), when="not apply_residual_connection_post_layernorm"),
    Stack(
        "h",
        (replace(_BLOOM_SITE, residual="input_layernorm"),),
        when="apply_residual_connection_post_layernorm",
    ),
)
_FALCON_SITE = Site("self_attention.dense", parallel="mlp", own="self_attention")
_FALCON_IN_SEQUENCE = replace(_FALCON_SITE, parallel=None, then="post_attention_layernorm")
_FALCON = (
    Stack("h", (_FALCON_SITE,), when="parallel_attn"),
    Stack("h", (_FALCON_IN_SEQUENCE,), when="not parallel_attn"),
)
_STABLELM = (
    Stack("layers", (Site("self_attn.o_proj", parallel="mlp"),), when="use_parallel_residual"),
    replace(_LLAMA.stacks[0], when="not use_parallel_residual"),
)
_GPTJ_SITE = Site("attn.out_proj", parallel="mlp", probs="attn.attn_dropout", value="attn.v_proj")
_GPT_NEO_SITE = Site(
    "attn.attention.out_proj",
    then="ln_2",
    probs="attn.attention.attn_dropout",
    value="attn.attention.v_proj",
)

_BART_CROSS = Site(
    "encoder_attn.out_proj", norm="encoder_attn_layer_norm", ffn_norm="final_layer_norm", cross=True
)
_BART = Family(
    (
        _post_norm(
            "encoder.layers", "self_attn.out_proj", "self_attn_layer_norm", "final_layer_norm"
        ),
        Stack(
            "decoder.layers", (Site("self_attn.out_proj", norm="self_attn_layer_norm"), _BART_CROSS)
        ),
    ),
    pool="eos",
)
_M2M_CROSS = Site("encoder_attn.out_proj", then="final_layer_norm", cross=True)
_M2M_100 = Family(
    (
        _pre_norm("encoder.layers", "self_attn.out_proj", "final_layer_norm"),
        Stack(
            "decoder.layers",
            (Site("self_attn.out_proj", then="encoder_attn_layer_norm"), _M2M_CROSS),
        ),
    ),
)
_T5_SELF = Site("layer.0.SelfAttention.o", then="layer.1.layer_norm")
_T5_CROSS = Site("layer.1.EncDecAttention.o", then="layer.2.layer_norm", cross=True)
_T5 = Family(
    (Stack("encoder.block", (_T5_SELF,)), Stack("decoder.block", (_T5_SELF, _T5_CROSS))),
    pool="eos",
    gated="is_gated_act",
)
_VIT = Family((_pre_norm("layers", "attention.o_proj", "layernorm_after"),))
_DINOV2_SITE = Site("attention.o_proj", then="norm2", branch_gain="layer_scale1.lambda1")

_ALBERT = "encoder.albert_layer_groups.*.albert_layers"
_TALKING = "its heads are mixed after the softmax, which probabilities alone cannot show"
_TWICE = "transformers adds its position bias twice where probabilities can be read, else once"
_TRAINED = "its activation has trained numbers of its own"
_PLUS_ONE = "its experts add 1 to what an activated gate is multiplied with, which is no bias"

FAMILIES: dict[str, Family] = {  # the key is model.config.model_type
    # encoders
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Family(
        (
            _post_norm(
                "transformer.layer", "attention.out_lin", "sa_layer_norm", "output_layer_norm"
            ),
        )
    ),
    "albert": Family(
        (_post_norm(_ALBERT, "attention.dense", "attention.LayerNorm", "full_layer_layer_norm"),)
    ),
    "mpnet": Family((Stack("encoder.layer", (_MPNET_SITE,)),), offset_positions=True),
    "deberta-v2": Family(
        (Stack("encoder.layer", (_DEBERTA_SITE,)),), refuse=(("conv_kernel_size", CONVOLUTION),)
    ),
    "deberta": Family(
        (Stack("encoder.layer", (_DEBERTA_V1_SITE,)),), refuse=(("talking_head", _TALKING),)
    ),
    "ernie": _BERT,
    "data2vec-text": _ROBERTA,
    "rembert": Family((Stack("encoder.layer", (_REMBERT_SITE,)),)),
    "megatron-bert": Family((Stack("encoder.layer", (_MEGATRON_SITE,)),)),
    "roberta-prelayernorm": replace(
        _ROBERTA,
        stacks=(_pre_norm("encoder.layer", "attention.output.dense", "intermediate.LayerNorm"),),
    ),
    "xlm-roberta-xl": replace(
        _ROBERTA, stacks=(_pre_norm("encoder.layer", "attention.output.dense", "LayerNorm"),)
    ),
    "modernbert": Family(
        (_pre_norm("layers", "attn.Wo", "mlp_norm"),), pool="config:classifier_pooling", gated=True
    ),
    "esm": Family((_pre_norm("encoder.layer", "attention.output.dense", "LayerNorm"),)),
    "eurobert": replace(_LLAMA, pool="config:classifier_pooling"),
    "gte": replace(_NOMIC, gated=True),
    "jina_embeddings_v3": _NOMIC,
    "nomic_bert": replace(_NOMIC, gated=True),
    "roformer": Family((Stack("encoder.layer", (_REMBERT_SITE,)),)),
    # decoders
    "gpt2": Family((_pre_norm("h", "attn.c_proj", "ln_2"),), pool="last"),
    "opt": Family(_OPT, pool="last"),
    "gpt_neox": Family(_GPT_NEOX, pool="last"),
    "bloom": Family(_BLOOM, pool="last"),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "phi3": _LLAMA,
    "gemma": _LLAMA,
    "granite": _GRANITE,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2,
    "gemma4_text": _GEMMA4,
    "olmo2": _OLMO2,
    "olmo": _LLAMA,
    "olmo3": _OLMO2,
    "smollm3": _LLAMA,
    "seed_oss": _LLAMA,
    "helium": _LLAMA,
    "ernie4_5": _LLAMA,
    "glm": _LLAMA,
    "glm4": Family((Stack("layers", (_GLM4_SITE,)),), pool="last", gated=True),
    "exaone4": _OLMO2,
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "stablelm": Family(_STABLELM, pool="last", gated=True),
    "starcoder2": replace(_LLAMA, gated=False),
    "nemotron": replace(_LLAMA, gated=False),
    "arcee": replace(_LLAMA, gated=False),
    "jais2": replace(_LLAMA, gated=False),
    "nanochat": replace(_LLAMA, gated=False),
    "cwm": _LLAMA,
    "hunyuan_v1_dense": _LLAMA,
    "ministral": _LLAMA,
    "ministral3": _LLAMA,
    "apertus": Family(
        (_pre_norm("layers", "self_attn.o_proj", "feedforward_layernorm"),),
        pool="last",
        nonlinear=_TRAINED,
    ),
    "modernbert-decoder": Family(
        (_pre_norm("layers", "attn.Wo", "mlp_norm"),), pool="last", gated=True
    ),
    "phi": Family((Stack("layers", (Site("self_attn.dense", parallel="mlp"),)),), pool="last"),
    "falcon": Family(_FALCON, pool="last", refuse=(("alibi", _TWICE),)),
    "gptj": Family((Stack("h", (_GPTJ_SITE,)),), pool="last"),
    "gpt_neo": Family((Stack("h", (_GPT_NEO_SITE,)),), pool="last"),
    "gpt_bigcode": Family((_pre_norm("h", "attn.c_proj", "ln_2"),), pool="last"),
    "biogpt": Family((_pre_norm("layers", "self_attn.out_proj", "final_layer_norm"),), pool="last"),
    # decoders with experts
    "mixtral": _MIXTRAL,
    "qwen2_moe": replace(_LLAMA, routers=("mlp.gate", "mlp.shared_expert_gate")),
    "qwen3_moe": _MIXTRAL,
    "olmoe": _MIXTRAL,
    "flex_olmo": replace(_OLMO2, routers=("mlp.gate",)),
    "deepseek_v2": _MIXTRAL,
    "deepseek_v3": _MIXTRAL,
    "ernie4_5_moe": _MIXTRAL,
    "exaone_moe": _MIXTRAL,
    "glm4_moe": _MIXTRAL,
    "glm4_moe_lite": _MIXTRAL,
    "granitemoe": _GRANITE_MOE,
    "granitemoeshared": _GRANITE_MOE,
    "hunyuan_v1_moe": _MIXTRAL,
    "llama4_text": _LLAMA4,
    "minimax_m2": _MIXTRAL,
    "phimoe": replace(_LLAMA, routers=("mlp.router",)),
    "solar_open": _MIXTRAL,
    "gpt_oss": replace(_LLAMA, routers=("mlp.router",), nonlinear=_PLUS_ONE),
    # encoder–decoders
    "mbart": replace(_M2M_100, pool="eos"),
    "pegasus": _M2M_100,
    "mt5": _T5,
    "bart": _BART,
    "marian": _BART,
    "m2m_100": _M2M_100,
    "t5": _T5,
    "blenderbot": _M2M_100,
    "blenderbot-small": _BART,
    "plbart": _BART,
    "whisper": _M2M_100,
    # images
    "vit": _VIT,
    "deit": _VIT,
    "dinov2": Family((Stack("encoder.layer", (_DINOV2_SITE,)),), pool="first_and_mean"),
}

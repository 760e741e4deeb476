"""Where each model family keeps its parts. Data only: a new family is one entry of FAMILIES.

A path is relative to the layer it belongs to; `alti check MODEL` tells whether an entry is right.
"""

from dataclasses import replace

from alti.family import Family, Site, Stack
from alti.refused import CONVOLUTION


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
_HYPERCLOVAX_SITE = replace(_GRANITE_SITE, branch_norm="post_norm1")
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
_GLM4 = Family((Stack("layers", (_GLM4_SITE,)),), pool="last", gated=True)
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
_CODEGEN_SITE = Site("attn.out_proj", parallel="mlp", own="attn")
_MPT_SITE = Site("attn.out_proj", then="norm_2", own="attn")
_OPENAI_SITE = Site("attn.c_proj", norm="ln_1", ffn_norm="ln_2", own="attn")

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
_NLLB_MOE_CROSS = Site("cross_attention.out_proj", then="ff_layer_norm", cross=True)
_NLLB_MOE = Family(
    (
        _pre_norm("encoder.layers", "self_attn.out_proj", "ff_layer_norm"),
        Stack(
            "decoder.layers",
            (Site("self_attn.out_proj", then="cross_attention_layer_norm"), _NLLB_MOE_CROSS),
        ),
    ),
    routers=("ffn.router",),
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
_DINOV2 = Family((Stack("encoder.layer", (_DINOV2_SITE,)),), pool="first_and_mean")
_BEIT_SITE = Site("attention.o_proj", then="layernorm_after", branch_gain="lambda_1")
_BEIT = Family((Stack("layers", (_BEIT_SITE,)),), pool="patches")

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
    "xmod": _ROBERTA,
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
    "glm4": _GLM4,
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
    "mpt": Family((Stack("blocks", (_MPT_SITE,)),), pool="last"),
    "openai-gpt": Family((Stack("h", (_OPENAI_SITE,)),), pool="last"),
    "persimmon": Family(
        (_pre_norm("layers", "self_attn.dense", "post_attention_layernorm"),), pool="last"
    ),
    "vaultgemma": replace(
        _LLAMA, stacks=(_pre_norm("layers", "self_attn.o_proj", "pre_feedforward_layernorm"),)
    ),
    "gemma4_unified_text": _GEMMA4,
    "youtu": _LLAMA,
    "hyperclovax": Family((Stack("layers", (_HYPERCLOVAX_SITE,)),), pool="last", gated=True),
    "codegen": Family((Stack("h", (_CODEGEN_SITE,)),), pool="last"),
    "ctrl": Family((_pre_norm("h", "multi_head_attention.dense", "layernorm2"),), pool="last"),
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
    "aria_text": replace(_LLAMA, routers=("mlp.router",)),
    "cohere2_moe": replace(_COHERE, routers=("mlp.gate",)),
    "dbrx": replace(
        _LLAMA,
        stacks=(_pre_norm("blocks", "norm_attn_norm.attn.out_proj", "norm_attn_norm.norm_2"),),
        routers=("ffn.router",),
    ),
    "dots1": _MIXTRAL,
    "hy_v3": _MIXTRAL,
    "mellum": _MIXTRAL,
    "mimo_v2_flash": _MIXTRAL,
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
    "umt5": _T5,
    "switch_transformers": replace(_T5, routers=("layer.1.mlp.router", "layer.2.mlp.router")),
    "nllb-moe": _NLLB_MOE,
    "whisper": _M2M_100,
    # images
    "vit": _VIT,
    "deit": _VIT,
    "dinov2": _DINOV2,
    "dinov2_with_registers": _DINOV2,
    "vit_msn": _VIT,
    "ijepa": replace(_VIT, pool="mean"),
    "beit": _BEIT,
}

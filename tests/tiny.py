"""Tiny random models of every family, and tokenizers that need no download."""

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
import transformers
from packaging.version import Version
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

import alti
import alti.methods

transformers.utils.logging.disable_progress_bar()  # stderr is part of what is tested

VOCAB, HEADS, WIDTH, LAYERS, PAD = 60, 4, 24, 3, 0

_BERT = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": PAD,
}
_LLAMA = {**_BERT, "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2}
_BART = {
    "vocab_size": VOCAB,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 40,
    "pad_token_id": PAD,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
_T5 = {
    "vocab_size": VOCAB, "d_model": WIDTH, "d_kv": 5, "d_ff": 32, "num_layers": LAYERS,
    "num_decoder_layers": 2, "num_heads": HEADS, "pad_token_id": PAD, "eos_token_id": 2,
    "decoder_start_token_id": PAD,
}  # fmt: skip
_VIT = {
    **{k: v for k, v in _BERT.items() if k != "vocab_size"}, "image_size": 12, "patch_size": 4,
}  # fmt: skip
_EXPERTS = {
    **_LLAMA, "num_experts": 3, "num_local_experts": 3, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "norm_topk_prob": True,
}  # fmt: skip
_SHARED = {  # the first layer has no experts, the others one that every token goes through
    **_EXPERTS, "n_shared_experts": 1, "n_routed_experts": 4, "num_experts": 4,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
_LATENT = {  # keys and values from a narrow vector
    **{k: v for k, v in _SHARED.items() if k != "head_dim"}, "num_key_value_heads": HEADS,
    "num_local_experts": 4, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 6,
}  # fmt: skip
_GPTJ = {
    "vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 40,
    "n_inner": 32, "rotary_dim": 4, "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]

CONFIGS: dict[str, dict] = {
    "bert": _BERT,
    "electra": {**_BERT, "embedding_size": 12},
    "roberta": {**_BERT, "pad_token_id": PAD},
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "distilbert": {
        "vocab_size": VOCAB, "dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 32,
        "max_position_embeddings": 40, "pad_token_id": PAD,
    },
    "albert": {
        **_BERT, "embedding_size": 12, "num_hidden_groups": 2, "num_hidden_layers": 4,
        "inner_group_num": 1,
    },
    "mpnet": {**_BERT, "pad_token_id": 1},
    "deberta-v2": {
        **_BERT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
        "position_biased_input": False, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    },
    "modernbert": {
        **_BERT, "local_attention": 6, "global_attn_every_n_layers": 2, "attention_bias": True,
        "norm_bias": True, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "deberta": {
        **_BERT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
        "max_relative_positions": 8, "position_biased_input": False,
    },
    "ernie": _BERT,
    "data2vec-text": _BERT,
    "rembert": {**_BERT, "input_embedding_size": 12, "output_embedding_size": 12},
    "megatron-bert": _BERT,
    "roberta-prelayernorm": _BERT,
    "xlm-roberta-xl": _BERT,
    "esm": {
        **_BERT, "position_embedding_type": "rotary", "mask_token_id": 3, "token_dropout": False,
    },
    "eurobert": {**_LLAMA, "mask_token_id": 3, "classifier_pooling": "bos"},
    "gte": _BERT,
    "jina_embeddings_v3": _BERT,
    "nomic_bert": _BERT,
    "roformer": {**_BERT, "embedding_size": 12},
    "xmod": {**_BERT, "languages": ["en_XX"], "default_language": "en_XX"},
    "vit": _VIT,
    "deit": _VIT,
    "dinov2": _VIT,
    "dinov2_with_registers": {**_VIT, "num_register_tokens": 2},
    "vit_msn": _VIT,
    "ijepa": _VIT,
    "beit": _VIT,
    "gpt2": {
        "vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS,
        "n_positions": 40, "n_inner": 32, "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2,
    },
    "opt": {
        **_BERT, "ffn_dim": 32, "word_embed_proj_dim": WIDTH, "bos_token_id": 1, "eos_token_id": 2,
    },
    "gpt_neox": {**_BERT, "bos_token_id": 1, "eos_token_id": 2},
    "bloom": {
        "vocab_size": VOCAB, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS,
        "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2,
    },
    "llama": {**_LLAMA, "attention_bias": True},
    "mistral": {**_LLAMA, "sliding_window": 5},
    "qwen2": _LLAMA,
    "qwen3": {**_LLAMA, "attention_bias": True},
    "phi3": {**{k: v for k, v in _LLAMA.items() if k != "head_dim"}},
    "gemma": _LLAMA,
    "granite": {**_LLAMA, "residual_multiplier": 0.3, "attention_bias": True},
    "gemma2": {**_LLAMA, "sliding_window": 5, "layer_types": _SLIDING},
    "gemma3_text": {**_LLAMA, "sliding_window": 5, "layer_types": _SLIDING},
    "olmo2": _LLAMA,
    "olmo": _LLAMA,
    "olmo3": {**_LLAMA, "sliding_window": 5, "layer_types": _SLIDING},
    "smollm3": {**_LLAMA, "no_rope_layers": [1, 0, 1]},
    "seed_oss": _LLAMA,
    "helium": {**_LLAMA, "head_dim": WIDTH // HEADS},
    "ernie4_5": _LLAMA,
    "glm": _LLAMA,
    "glm4": _LLAMA,
    "exaone4": {**_LLAMA, "sliding_window": 5, "layer_types": _SLIDING},
    "cohere": _LLAMA,
    "cohere2": {**_LLAMA, "sliding_window": 5, "layer_types": _SLIDING},
    "stablelm": {**_BERT, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2},
    "starcoder2": {**_LLAMA, "sliding_window": 5},
    "nemotron": _LLAMA,
    "arcee": _LLAMA,
    "jais2": _LLAMA,
    "nanochat": _LLAMA,
    "cwm": {**_LLAMA, "sliding_window": 5, "layer_types": _SLIDING},
    "hunyuan_v1_dense": _LLAMA,
    "ministral": {**_LLAMA, "sliding_window": 5, "layer_types": _SLIDING},
    "ministral3": _LLAMA,
    "apertus": _LLAMA,
    "gemma4_text": {
        **_EXPERTS, "sliding_window": 5, "layer_types": _SLIDING, "global_head_dim": 8,
        "num_global_key_value_heads": 2, "hidden_size_per_layer_input": 0,
        "enable_moe_block": True, "top_k_experts": 2,
    },
    "modernbert-decoder": {
        **_BERT, "local_attention": 6, "global_attn_every_n_layers": 2, "attention_bias": True,
        "norm_bias": True, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "phi": {
        **_BERT, "num_attention_heads": 3, "num_key_value_heads": 1, "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "falcon": {**_BERT, "bos_token_id": 1, "eos_token_id": 2},
    "gptj": _GPTJ,
    "gpt_neo": {
        **_BERT, "num_layers": LAYERS, "num_heads": HEADS, "window_size": 5,
        "attention_types": [[["global", "local", "global"], 1]], "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "gpt_bigcode": {k: v for k, v in _GPTJ.items() if k != "rotary_dim"},
    "biogpt": {**_BERT, "bos_token_id": 1, "eos_token_id": 2},
    "mpt": {
        "vocab_size": VOCAB, "d_model": WIDTH, "n_heads": HEADS, "n_layers": LAYERS,
        "max_seq_len": 80, "expansion_ratio": 2, "pad_token_id": PAD, "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "openai-gpt": {k: v for k, v in _GPTJ.items() if k != "rotary_dim"},
    "persimmon": {**_BERT, "num_attention_heads": 3, "bos_token_id": 1, "eos_token_id": 2},
    "vaultgemma": {**_LLAMA, "sliding_window": 5, "layer_types": _SLIDING},
    "gemma4_unified_text": {
        **_LLAMA, "sliding_window": 5, "layer_types": _SLIDING, "global_head_dim": 8,
        "num_global_key_value_heads": 2, "hidden_size_per_layer_input": 0,
    },
    "youtu": _LATENT,
    "hyperclovax": {**_LLAMA, "residual_multiplier": 0.3, "use_post_norm": True},
    "codegen": _GPTJ,
    "ctrl": {**{k: v for k, v in _GPTJ.items() if k != "n_inner"}, "dff": 32},
    "mixtral": _EXPERTS,
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 16},
    "qwen3_moe": _EXPERTS,
    "olmoe": {k: v for k, v in _EXPERTS.items() if k != "head_dim"},
    "flex_olmo": _EXPERTS,
    "deepseek_v2": {**_LATENT, "topk_method": "greedy"},
    "deepseek_v3": _LATENT,
    "ernie4_5_moe": {**_EXPERTS, "moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 1},
    "exaone_moe": {
        **_SHARED, "num_shared_experts": 1, "sliding_window": 5, "layer_types": _SLIDING,
    },
    "glm4_moe": _SHARED,
    "glm4_moe_lite": _LATENT,
    "granitemoe": {**_EXPERTS, "residual_multiplier": 0.3},
    "granitemoeshared": {
        **_EXPERTS, "residual_multiplier": 0.3, "shared_intermediate_size": 16,
    },
    "hunyuan_v1_moe": {**_EXPERTS, "moe_topk": 2},
    "llama4_text": {
        **_EXPERTS, "intermediate_size_mlp": 32, "interleave_moe_layer_step": 2,
        "attention_chunk_size": 5,
    },
    "minimax_m2": _EXPERTS,
    "phimoe": _EXPERTS,
    "solar_open": _SHARED,
    "gpt_oss": {**_EXPERTS, "sliding_window": 5, "layer_types": _SLIDING},
    "aria_text": {**_EXPERTS, "moe_num_experts": 3, "moe_topk": 2},
    "dbrx": {
        "vocab_size": VOCAB, "d_model": WIDTH, "n_heads": HEADS, "n_layers": LAYERS,
        "max_seq_len": 80, "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2,
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {
            "ffn_hidden_size": 16, "moe_num_experts": 3, "moe_top_k": 2, "hidden_size": WIDTH,
        },
    },
    "cohere2_moe": {**_EXPERTS, "sliding_window": 5, "layer_types": _SLIDING},
    "dots1": {**_SHARED, "num_experts_per_tok": 3},
    "hy_v3": _EXPERTS,
    "mellum": _EXPERTS,
    "mimo_v2_flash": {**_EXPERTS, "sliding_window": 5},
    "bart": _BART,
    "mbart": _BART,
    "pegasus": _BART,
    "marian": _BART,
    "m2m_100": _BART,
    "t5": _T5,
    "mt5": _T5,
    "blenderbot": _BART,
    "blenderbot-small": _BART,
    "plbart": _BART,
    "umt5": {**_T5, "d_kv": 3},  # with 5 its softmax is so sharp that float16 itself is 5 % off
    "switch_transformers": {
        **_T5, "num_experts": 3, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1,
    },
    "nllb-moe": {
        **_BART, "num_experts": 3, "encoder_sparse_step": 2, "decoder_sparse_step": 2,
    },
    "whisper": {
        **{k: v for k, v in _BART.items() if k not in ("max_position_embeddings",)},
        "num_mel_bins": 8, "max_source_positions": 9, "max_target_positions": 40,
        "begin_suppress_tokens": None,
    },
}  # fmt: skip

# The first transformers that has a family, or builds it as alti reads it. Older ones than
# pyproject.toml asks for are met on machines with a GPU, which keep their own.
SINCE = dict.fromkeys(("gte", "dinov2", "dinov2_with_registers", "aria_text"), "5.18")

VARIANTS: dict[str, tuple[str, dict]] = {  # the same family, built differently
    "opt, norm after the sum": ("opt", {"do_layer_norm_before": False}),
    "opt, norms without weights": (
        "opt",
        {"do_layer_norm_before": False, "layer_norm_elementwise_affine": False},
    ),
    "gpt_neox, residuals in sequence": ("gpt_neox", {"use_parallel_residual": False}),
    "bloom, normed residual": ("bloom", {"apply_residual_connection_post_layernorm": True}),
    "albert, two layers in a group": ("albert", {"inner_group_num": 2}),
    "deberta-v2, own position keys": ("deberta-v2", {"share_att_key": False}),
    "gpt2, upcast attention": (
        "gpt2",
        {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    ),
    "llama, one key head": ("llama", {"num_key_value_heads": 1, "attention_bias": False}),
    "falcon, one key for several heads": (
        "falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True},
    ),
    "falcon, in sequence": (
        "falcon",
        {"parallel_attn": False, "multi_query": False, "bias": True},
    ),
    "stablelm, a parallel MLP": ("stablelm", {"use_parallel_residual": True, "use_qkv_bias": True}),
    "deberta, content only": ("deberta", {"relative_attention": False, "pos_att_type": []}),
    "gemma4, without experts": ("gemma4_text", {"enable_moe_block": False}),
    "t5, gated": ("t5", {"feed_forward_proj": "gated-gelu"}),
}

ENCODER_DECODERS = (
    "bart", "marian", "m2m_100", "t5", "mbart", "pegasus", "mt5", "blenderbot", "blenderbot-small",
    "plbart", "whisper", "umt5", "switch_transformers", "nllb-moe",
)  # fmt: skip
IMAGES = ("vit", "deit", "dinov2", "dinov2_with_registers", "vit_msn", "ijepa", "beit")
DECODERS = (
    "gpt2", "opt", "gpt_neox", "bloom", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma",
    "granite", "gemma2", "gemma3_text", "olmo2", "olmo", "olmo3", "smollm3", "seed_oss", "helium",
    "ernie4_5", "glm", "glm4", "exaone4", "cohere", "cohere2", "stablelm", "starcoder2", "nemotron",
    "arcee", "phi", "falcon", "gptj", "gpt_neo", "gpt_bigcode", "biogpt", "mixtral", "qwen2_moe",
    "qwen3_moe", "olmoe", "gpt_oss", "jais2", "nanochat", "cwm", "hunyuan_v1_dense", "ministral",
    "ministral3", "apertus", "gemma4_text", "modernbert-decoder",
    "flex_olmo", "deepseek_v2", "deepseek_v3", "ernie4_5_moe", "exaone_moe", "glm4_moe",
    "glm4_moe_lite", "granitemoe", "granitemoeshared", "hunyuan_v1_moe", "llama4_text",
    "minimax_m2", "phimoe", "solar_open", "mpt", "openai-gpt", "persimmon",
    "vaultgemma", "gemma4_unified_text", "youtu", "aria_text", "cohere2_moe",
    "dots1", "hy_v3", "mellum",
    "mimo_v2_flash",
    "hyperclovax", "codegen", "ctrl", "dbrx",
)  # fmt: skip

FEW = ("bert", "roberta", "gpt2", "llama", "t5")  # the ways that Transformers differ most

UNBIASED = (
    "mistral", "qwen2", "phi3", "gemma", "gemma2", "gemma3_text", "olmo2", "olmo", "olmo3",
    "smollm3", "seed_oss", "helium", "ernie4_5", "glm", "glm4", "exaone4", "cohere", "cohere2",
    "stablelm", "nemotron", "arcee", "falcon", "gptj", "mixtral", "qwen2_moe", "qwen3_moe",
    "olmoe", "t5", "mt5", "umt5", "switch_transformers", "apertus", "cwm", "deepseek_v2",
    "deepseek_v3", "ernie4_5_moe",
    "eurobert", "exaone_moe", "flex_olmo", "gemma4_text", "glm4_moe", "glm4_moe_lite",
    "granitemoe", "granitemoeshared", "hunyuan_v1_dense", "hunyuan_v1_moe", "llama4_text",
    "minimax_m2", "ministral3", "ministral", "nanochat", "nomic_bert", "phimoe", "solar_open",
    "codegen", "dbrx", "hyperclovax", "mpt", "vaultgemma", "gemma4_unified_text", "youtu",
    "aria_text", "cohere2_moe", "dots1", "hy_v3", "mellum", "mimo_v2_flash",
)  # output projections  # fmt: skip
LAYER_NORM_DECODERS = (
    "gpt2", "opt", "gpt_neox", "bloom", "falcon", "biogpt", "starcoder2", "phi", "stablelm", "gptj",
    "gpt_neo", "gpt_bigcode", "nemotron", "jais2", "modernbert-decoder", "mpt", "openai-gpt",
    "persimmon", "codegen", "ctrl", "dbrx",
)  # fmt: skip
# norms that compute in float32, whatever the weights are
FLOAT32_NORMS = (
    *(name for name in DECODERS if name not in LAYER_NORM_DECODERS),
    "deberta",
    "eurobert",
)
# the same, or the softmax of their eager attention
FLOAT32_SCORES = ("gptj", "gpt_neo", "codegen", "mpt")  # of their attention
# and of their routers, where the last digit of what experts add up to decides: in float64 the
# two sides differ by 3e-14
FLOAT32_ROUTERS = (
    "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5_moe", "exaone_moe", "glm4_moe",
    "glm4_moe_lite", "hy_v3", "llama4_text", "mimo_v2_flash", "minimax_m2", "solar_open",
)  # fmt: skip
EXACT_DECODERS = ("gpt2", "falcon", "biogpt")
ROUNDED = (
    *(name for name in DECODERS if name not in EXACT_DECODERS), "modernbert", "deberta", "esm",
    "eurobert",
)  # fmt: skip


def classifies(family: str) -> bool:
    """Whether transformers has a sequence classifier of a family."""
    return family in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES


def missing(family: str) -> str | None:
    """Why a family is not there, if it is not."""
    since, here = SINCE.get(family, "0"), transformers.__version__
    if Version(here) >= Version(since):
        return None
    return f"{family} is read from transformers {since} on, and this is {here}"


def build(
    family: str,
    head: str = "AutoModel",
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    **config: object,
):
    """A model whose every weight is random: biases that are not 0, gains that are not 1."""
    if why := missing(family):
        import pytest  # here, as benchmarks build models where there is none

        pytest.skip(why)
    torch.manual_seed(seed)
    auto = getattr(transformers, head)
    model = auto.from_config(AutoConfig.for_model(family, **{**CONFIGS[family], **config}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            fan_in = parameter.shape[-1] if parameter.dim() > 1 else 1
            if parameter.dim() == 1 and name.endswith("weight"):
                parameter.copy_(1 + 0.3 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.3 * noise)
            else:
                parameter.copy_(noise if "embed" in name else 1.5 * noise / fan_in**0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.fill_(0.7)
    model = model.to(dtype).eval()
    if family in ("gemma2", "vaultgemma"):  # sdpa before transformers 5.21 leaves out a soft cap
        model.set_attn_implementation("eager")
    if dtype == torch.float64 and "num_experts_per_tok" in CONFIGS[family]:
        model.set_experts_implementation("eager")  # torch's grouped product knows no float64
    return model


def inputs(
    model: PreTrainedModel, *, side: str = "right", lengths: tuple[int, ...] = (9, 7), seed: int = 1
):
    """A padded batch for any family: ids and mask, decoder ids too, or pictures."""
    generator = torch.Generator().manual_seed(seed)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, 3, 12, 12, generator=generator, dtype=model.dtype)}
    if model.main_input_name == "input_features":
        sounds = torch.randn(2, 8, 18, generator=generator, dtype=model.dtype)
        batch = {"input_features": sounds}
    else:
        batch = dict(
            zip(("input_ids", "attention_mask"), _ids(model, lengths, side, generator), strict=True)
        )
    if model.config.model_type in ENCODER_DECODERS:
        ids, mask = _ids(model, (7, 8), side, generator)
        batch |= {"decoder_input_ids": ids, "decoder_attention_mask": mask}
    return batch


def _ids(model: PreTrainedModel, lengths: tuple[int, ...], side: str, generator: torch.Generator):
    ids = torch.randint(5, VOCAB, (len(lengths), max(lengths)), generator=generator)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        mask[row, slice(length) if side == "right" else slice(max(lengths) - length, None)] = 1
    return ids.where(mask.bool(), torch.tensor(model.config.pad_token_id)), mask


CORPUS = [
    "A clever blend of fact and fiction, and unbelievably funny.",
    "It's not a bad film; the acting is better than the plot.",
    "The naïve café owner doesn't expect a long and clumsy ending ...",
    "The keys to the cabinet are on the table. It costs 3.14 dollars!",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROLES = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


TOKENIZERS = Path(__file__).with_name(
    "trained"
)  # trained once, by running this file: training draws lots for ties


@cache
def tokenizer(kind: str = "wordpiece") -> PreTrainedTokenizerFast:
    """A tokenizer: wordpiece (BERT's), bpe (GPT-2's, on bytes) or sentencepiece (Llama's)."""
    made = Tokenizer.from_file(str(TOKENIZERS / f"{kind}.json"))
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * (kind == "wordpiece")
    return PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=10**30, model_input_names=names, **ROLES
    )


def trained(kind: str) -> Tokenizer:
    if kind == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer, made.pre_tokenizer = (
            normalizers.BertNormalizer(),
            pre_tokenizers.BertPreTokenizer(),
        )
        trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIAL)
    elif kind == "bpe":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer, made.decoder = (
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            decoders.ByteLevel(),
        )
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet
        )
    else:
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=SPECIAL, unk_token="[UNK]")
    made.train_from_iterator(CORPUS, trainer)
    if kind != "bpe":
        ends = [(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
        single, pair = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
        made.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=ends
        )
    return made


def speaking(family: str, head: str, kind: str = "wordpiece", **config: object) -> PreTrainedModel:
    """A tiny model with room for a tokenizer's vocabulary."""
    roles = {
        "pad_token_id": 0,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    return build(family, head, **{"vocab_size": len(tokenizer(kind)), **roles, **config})


def saved(
    folder: Path,
    family: str = "bert",
    head: str = "AutoModelForSequenceClassification",
    **config: object,
) -> Path:
    """A folder with a tiny model and its tokenizer, as from_pretrained reads it."""
    labels = {
        "id2label": {0: "negative", 1: "positive"},
        "label2id": {"negative": 0, "positive": 1},
    }
    speaking(family, head, dtype=torch.float32, **{**labels, **config}).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


CHAT = (
    "{% for message in messages %}[CLS]{{ message['role'] }}\n{{ message['content'] }}[SEP]\n"
    "{% endfor %}{% if add_generation_prompt %}[CLS]assistant\n{% endif %}"
)


def writer(folder: Path) -> Path:
    """A folder with a tiny model that writes: tiny-chat has long positions, tiny-t5 translates."""
    made = copy.deepcopy(tokenizer("bpe"))
    if folder.name == "tiny-chat":
        made.chat_template = CHAT
        config = {"max_position_embeddings": 8192, "dtype": torch.float32}
        model = speaking("llama", "AutoModelForCausalLM", "bpe", **config)
    else:
        config = {"decoder_start_token_id": 0, "dtype": torch.float32}
        model = speaking("t5", "AutoModelForSeq2SeqLM", "bpe", **config)
    model.save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def run(name: str, model, inputs, target, **options) -> alti.Scores:
    """A method on one prediction of each text: targets [B] and scores [B, T] without the axis K."""
    several = alti.Target(
        *(
            None if t is None else t[:, None]
            for t in (target.index, target.position, target.against)
        )
    )
    return unaxed(alti.methods.run(name, model, inputs, several, **options))


def unaxed(scores: alti.Scores) -> alti.Scores:
    """The scores of the only prediction about each text."""
    vectors = None if scores.vectors is None else scores.vectors[:, 0]
    extra = {name: values[:, 0] for name, values in scores.extra.items()}
    return replace(scores, tokens=scores.tokens[:, 0], vectors=vectors, extra=extra)


def attribution(**changes) -> alti.Attribution:
    """A result from its fields side by side, as format 1 has them."""
    fields = {"text_pair": None, "segments": (), "cut": (), **changes}
    pair = () if fields["text_pair"] is None else (fields["text_pair"],)
    source = alti.Source(
        texts=(fields["text"], *pair),
        **{name: fields[name] for name in ("tokens", "offsets", "special", "segments", "cut")},
    )
    prediction = alti.Prediction(
        index=fields.get("target"),
        **{name: fields.get(name) for name in ("label", "probability", "position")},
    )
    rest = ("scores", "method", "layers", "model", "options", "extra")
    own = {name: fields[name] for name in rest if name in fields}
    return alti.Attribution(source=source, prediction=prediction, **own)


def of_format_1(found: alti.Attribution) -> dict:
    """What to_dict() gave before results could hold several predictions."""
    plain = found.to_dict()
    source, (prediction,) = plain["source"], plain["predictions"]
    names = ("tokens", "offsets", "special", "segments", "cut")
    return {
        "format": 1,
        "text": source["texts"][0],
        "text_pair": source["texts"][1] if len(source["texts"]) > 1 else None,
        **{name: source[name] for name in names},
        **{name: prediction[name] for name in ("label", "probability", "position")},
        "target": prediction["index"],
        "scores": plain["scores"][0],
        "extra": plain["extra"][0],
        **{name: plain[name] for name in ("dtype", "layers", "method", "model", "options")},
    }


if __name__ == "__main__":
    TOKENIZERS.mkdir(exist_ok=True)
    for kind in ("wordpiece", "bpe", "sentencepiece"):
        trained(kind).save(str(TOKENIZERS / f"{kind}.json"))

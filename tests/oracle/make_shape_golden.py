#!/usr/bin/env python3
"""Writes tests/unit/model/shape_golden.txt: configurations, and the layers that they mean.

    pip install transformers
    tests/oracle/make_shape_golden.py > tests/unit/model/shape_golden.txt

Each configuration is one that a class of transformers makes, once with its keys and once with only
those that differ from the class's defaults (as nested configurations are saved); the layers are
what the object says: layer_types, per_layer_config, num_key_value_heads, head_dim,
sliding_window, kv_lora_rank. A line: model_type, JSON, layers, separated by tabs. A layer is
F:heads:key:value (whole context), W:heads:key:value:window, C:heads:key:value:chunk, L:row (latent;
:index behind it), R (a state), S (shared), N (nothing); F may end in + (a state too); x3 behind a
layer: three of them in a row.
"""
import json
import logging
import warnings
from itertools import groupby

from transformers import CONFIG_MAPPING

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

FAMILIES = """llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text
qwen3_5_moe_text gemma gemma2 gemma3_text gemma3n_text gemma4_text cohere cohere2 gpt_oss
llama4_text phi phi3 phimoe starcoder2 gpt2 gpt_neox gptj opt mpt dbrx stablelm olmo olmo2 olmo3
olmoe exaone4 smollm3 granite granitemoe granitemoehybrid jamba bamba zamba zamba2 nemotron
nemotron_h falcon_h1 lfm2 lfm2_moe minimax minimax_m2 deepseek_v3 deepseek_v32 kimi_linear glm glm4
glm4_moe glm4_moe_lite glm_moe_dsa longcat_flash mistral4 mamba mamba2 falcon_mamba recurrent_gemma
gpt_bigcode apertus arcee ernie4_5 ernie4_5_moe hunyuan_v1_dense seed_oss afmoe mimo_v2_flash
ministral ministral3 persimmon biogpt codegen dots1 gpt_neo helium vaultgemma gemma3 llava
qwen2_5_vl qwen3_vl paligemma mllama gemma3n""".split()

# What is not as the class has it: the kinds of windows and heads that real models use.
CHANGES = {
    "llama": {"num_key_value_heads": 8, "num_hidden_layers": 5},
    "mistral": {"sliding_window": None, "head_dim": 160},
    "mixtral": {"sliding_window": 4096},
    "phi3": {"sliding_window": 2047},
    "starcoder2": {"sliding_window": 4096},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 3, "num_hidden_layers": 7},
    "gemma3_text": {"num_hidden_layers": 9, "sliding_window": 1024},
    "gemma4_text": {"num_global_key_value_heads": 2, "attention_k_eq_v": True},
    "cohere2": {"sliding_window_pattern": 3, "num_hidden_layers": 8},
    "llama4_text": {"no_rope_layer_interval": 3, "num_hidden_layers": 7},
    "jamba": {"attn_layer_period": 4, "attn_layer_offset": 1, "num_hidden_layers": 9},
    "bamba": {"attn_layer_indices": [1, 3], "num_hidden_layers": 5},
    "nemotron_h": {"hybrid_override_pattern": "M-M*-ME"},
    "lfm2": {"full_attn_idxs": [2, 5], "num_hidden_layers": 8},
    "qwen3_next": {"full_attention_interval": 3, "num_hidden_layers": 7},
    "gemma3n_text": {"num_kv_shared_layers": 10, "num_hidden_layers": 20},
}

NOISE = """id2label label2id vision_config audio_config rope_parameters _name_or_path
chunk_size_feed_forward output_attentions output_hidden_states return_dict problem_type bos_token_id
eos_token_id pad_token_id initializer_range attention_dropout hidden_act hidden_activation
rms_norm_eps tie_word_embeddings use_cache transformers_version router_aux_loss_coef
output_router_logits mlp_layer_types attention_bias architectures dtype mlp_bias resid_pdrop
embd_pdrop attn_pdrop layer_norm_epsilon layer_norm_eps summary_type summary_use_proj
summary_activation summary_first_dropout summary_proj_to_labels activation_sparsity_pattern
activation_function bos_token sep_token_id decoder_start_token_id mamba_dt_init_floor
intermediate_size classifier_dropout""".split()

# Families whose real configurations always say everything.
NO_DEFAULTS = """nemotron_h biogpt codegen dbrx hunyuan_v1_dense mamba mamba2 falcon_mamba
kimi_linear longcat_flash deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa mistral4 mimo_v2_flash
paligemma mllama""".split()

KINDS = {
    "full_attention": "F", "sliding_attention": "W", "chunked_attention": "C", "hybrid": "F+",
    "linear_attention": "R", "conv": "R", "moe": "N", "mlp": "N", "indexed_attention": "F",
}
ALL_WINDOWED = ("mistral", "mixtral", "phi3", "phimoe", "starcoder2", "ministral3")


def part(config):
    return getattr(config, "text_config", None) or config


def kinds(c):
    listed = getattr(c, "layer_types", None)
    if listed:
        return [KINDS[t] for t in listed]
    if c.model_type in ALL_WINDOWED and getattr(c, "sliding_window", None):
        return ["W"] * c.num_hidden_layers
    return ["F"] * c.num_hidden_layers


def layer(c, kind, i):
    rank = getattr(c, "kv_lora_rank", None)
    if kind in ("R", "N"):
        return kind
    if i >= c.num_hidden_layers - (getattr(c, "num_kv_shared_layers", 0) or 0):
        return "S"
    if i in (getattr(c, "cross_attention_layers", None) or []):
        return "N"
    if rank:
        index = getattr(c, "index_head_dim", None)
        types = getattr(c, "indexer_types", None)
        own = index and (not types or types[i] == "full")
        return f"L:{rank + c.qk_rope_head_dim}" + (f":{index}" if own else "")
    one = c.per_layer_config[i] if getattr(c, "per_layer_config", None) else c
    heads = getattr(one, "num_key_value_heads", None) or c.num_attention_heads
    key = getattr(one, "head_dim", None) or c.hidden_size // c.num_attention_heads
    value = getattr(c, "v_head_dim", None) or key
    window = {"W": getattr(c, "sliding_window", None), "C": getattr(c, "attention_chunk_size", None)}
    bound = window.get(kind[0])
    return f"{kind[0]}:{heads}:{key}:{value}" + (f":{bound}" if bound else "") + kind[1:]


def put(name, config, changes):
    c = part(config)
    data = json.loads(config.to_json_string(use_diff=False))
    object.__setattr__(c, "allow_global_per_layer_attribute_access", True)
    runs = [[k, len(list(g))] for k, g in groupby(layer(c, k, i) for i, k in enumerate(kinds(c)))]
    layers = " ".join(k if n == 1 else f"{k}x{n}" for k, n in runs)
    for place in (data, data.get("text_config") or {}):
        for noise in NOISE:
            place.pop(noise, None)
    least = {"model_type": config.model_type, **changes}
    if c is not config:
        least["text_config"] = {"model_type": c.model_type}
    for variant in (data, least):
        if variant is data or name not in NO_DEFAULTS:
            print(name, json.dumps(variant, separators=(",", ":")), layers, sep="\t")


if __name__ == "__main__":
    for family in FAMILIES:
        put(family, CONFIG_MAPPING[family](), {})
        if family in CHANGES:
            put(family, CONFIG_MAPPING[family](**CHANGES[family]), CHANGES[family])

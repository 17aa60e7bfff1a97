# SPDX-License-Identifier: Apache-2.0
"""Small models of any class, made from the class's own config with few and odd sizes."""
import libraries as lib
from libraries import torch, transformers

SIZES = {  # taken where a config has the key
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "embed_dim": 64, "dim": 64, "emb_dim": 64,
    "embedding_size": 64, "word_embed_proj_dim": 48, "hidden_dim": 176,
    "intermediate_size": 176, "ffn_dim": 176, "d_ff": 176, "n_inner": 176, "ffn_hidden_size": 176,
    "encoder_ffn_dim": 176, "decoder_ffn_dim": 176, "mlp_hidden_size": 176,
    "moe_intermediate_size": 48, "shared_expert_intermediate_size": 80,
    "shared_intermediate_size": 80, "intermediate_size_mlp": 176,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_encoder_layers": 2, "depth": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "attention_head_size": 16,
    "vocab_size": 130, "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64,
    "max_source_positions": 64, "max_target_positions": 64, "max_seq_len": 64,
    "num_experts": 3, "num_local_experts": 3, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
    "v_head_dim": 16, "type_vocab_size": 2, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 0, "image_size": 32, "patch_size": 8,
    "projection_dim": 32, "rotary_dim": 8, "time_step_rank": 8, "state_size": 8,
    "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 130,
}


def shrink(values):
    """The same keys with small numbers, in nested configs too."""
    small = {}
    for key, value in values.items():
        if isinstance(value, dict):
            small[key] = shrink(value) if "config" in key else value
        elif isinstance(value, list):
            small[key] = value
        else:
            small[key] = SIZES.get(key, value)
    if "kv_lora_rank" in small:  # latent attention has one key a head
        small["num_key_value_heads"] = small["num_attention_heads"]
    for key in ("layer_types", "mlp_layer_types", "block_types", "kv_source_layers"):
        if isinstance(small.get(key), list):
            small[key] = small[key][:2]
    if isinstance(small.get("vision_feature_layer"), list):  # of two layers
        small["vision_feature_layer"] = [1, 0]
    return small


def class_of(name):
    """Of `Class` or `Class:part=type,...`."""
    return getattr(transformers, name.partition(":")[0])


def part_of(key, model_type):
    values = shrink(transformers.CONFIG_MAPPING[model_type]().to_dict())
    values["model_type"] = model_type
    if key == "decoder":
        values.update(is_decoder=True, add_cross_attention=True)
    return values


def config_for(name, **changes):
    """Of the class, and of other types those parts that the name has behind it."""
    class_ = class_of(name).config_class
    parts = dict(part.split("=") for part in name.partition(":")[2].split(",") if part)
    values = {} if "encoder" in parts else shrink(class_().to_dict())
    for key in ("transformers_version", "model_type", "architectures"):
        values.pop(key, None)
    values.update((key, part_of(key, model_type)) for key, model_type in parts.items())
    values.update(changes)  # now: some classes look at once whether all goes together
    return class_(**values)


def make(name, folder, most=4_000_000, **changes):
    """Saves a random bf16 model of this class, or raises."""
    class_ = class_of(name)
    config = config_for(name, **changes)
    for key, value in changes.items():
        setattr(config, key, value)
    with torch.device("meta"):
        count = sum(tensor.numel() for tensor in class_(config).parameters())
    if count > most:
        raise ValueError(f"{count} parameters")
    torch.manual_seed(len(name))
    config.dtype = torch.bfloat16
    model = class_(config).to(torch.bfloat16)
    for tensor in model.parameters():  # nothing but zeros would be a case of its own
        tensor.data.normal_(0, 0.02)
    model.save_pretrained(folder)
    return model

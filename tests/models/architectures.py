"""Small configurations of Hugging Face's architectures, how they are run and compared."""

import numpy
import torch
import transformers

# Every configuration takes of these what it has.
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size"), 32),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "hidden_dim"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_local_experts", "num_experts"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 64),
    **dict.fromkeys(("head_dim", "d_kv", "patch_size"), 8),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
    **dict.fromkeys(("dropout", "hidden_dropout", "attention_dropout", "dropout_rate"), 0.0),
    **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop", "activation_dropout"), 0.0),
    **dict.fromkeys(("layerdrop", "encoder_layerdrop", "decoder_layerdrop"), 0.0),
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "image_size": 32,
    "rotary_dim": 4,
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

TOKENS = {
    name: {}
    for name in (
        *("albert", "bart", "bert", "big_bird", "biogpt", "blenderbot", "bloom"),
        *("codegen", "cohere", "convbert", "ctrl", "deberta", "deberta-v2", "distilbert"),
        *("electra", "ernie", "fnet", "gemma", "glm", "gpt2", "gpt_neox", "gptj", "granite"),
        *("helium", "ibert", "lfm2", "llama", "m2m_100", "marian", "mistral", "mixtral"),
        *("modernbert", "mpnet", "nystromformer", "olmo2", "olmoe", "opt", "pegasus", "phi"),
        *("phi3", "qwen2", "qwen2_moe", "qwen3", "rembert", "roformer", "smollm3"),
        *("squeezebert", "stablelm", "switch_transformers", "t5", "umt5", "xlm-roberta", "yoso"),
    )
} | {"gpt_neo": {"attention_types": [[["global", "local"], 1]]}}
IMAGES = {
    "beit": {},
    "data2vec-vision": {},
    "deit": {},
    "dinov2": {},
    "ijepa": {},
    "poolformer": {"image_size": 64, "patch_size": 7, "hidden_sizes": [8, 16, 16, 16]},
    "segformer": {"image_size": 64, "hidden_sizes": [8, 16, 24, 32]},
    "vit": {},
}
SOUNDS = {
    "unispeech": {"conv_dim": (8,) * 7},
    "wav2vec2": {"conv_dim": (8,) * 7},
    "wavlm": {"conv_dim": (8,) * 7},
}


def config_of(name, overrides):
    default = transformers.AutoConfig.for_model(name)
    values = {
        key: value
        for key, value in SMALL.items()
        if isinstance(getattr(default, key, ()), int | float | None)
        and key not in getattr(default, "attribute_map", {})
    }
    if getattr(default, "layer_types", None):
        values["layer_types"] = list(default.layer_types)[:2]
    return transformers.AutoConfig.for_model(name, **values | overrides)


def inputs_of(name, config):
    if name in IMAGES:
        return {"pixel_values": torch.randn(2, config.num_channels, *[config.image_size] * 2)}
    if name in SOUNDS:
        return {"input_values": torch.randn(1, 4000)}
    inputs = {"input_ids": torch.randint(3, 100, (2, 16))}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, 100, (2, 7))
    return inputs


def tensors_of(output):
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        output = output.values()
    if isinstance(output, list | tuple) or hasattr(output, "__iter__"):
        return [tensor for item in output for tensor in tensors_of(item)]
    return []


def run(model, inputs):
    """The outputs, and after backward() of their squares the gradients, by name."""
    numpy.random.seed(0)  # which masks of sounds are drawn from
    outputs = tensors_of(model(**inputs))
    sum(x.square().mean() for x in outputs if x.requires_grad).backward()
    results = {f"output {i}": x.detach() for i, x in enumerate(outputs)}
    return results | {k: p.grad for k, p in model.named_parameters() if p.grad is not None}


def distances(actual, expected):
    """Relative to the norm of what is expected; gradients that are nearly 0 to that of them all."""
    scale = max(value.double().norm() for value in expected.values())
    return {
        name: float(
            (actual[name].cpu().double() - value.double()).norm()
            / (value.double().norm() + 1e-3 * scale)
        )
        for name, value in expected.items()
    }

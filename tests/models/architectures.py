"""Small configurations of Hugging Face's architectures, how they are run and compared."""

import diffusers
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
    "convnext": {
        "image_size": 64,
        "patch_size": 4,
        "depths": [1, 1, 1, 1],
        "hidden_sizes": [8, 8, 16, 16],
    },
    "data2vec-vision": {},
    "deit": {},
    "dinov2": {},
    "ijepa": {},
    "poolformer": {"image_size": 64, "patch_size": 7, "hidden_sizes": [8, 16, 16, 16]},
    "resnet": {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 16, 16]},
    "segformer": {"image_size": 64, "hidden_sizes": [8, 16, 24, 32]},
    "vit": {},
}
SPECTRA = {"whisper": {"max_source_positions": 32, "num_mel_bins": 8}}
SOUNDS = {
    "unispeech": {"conv_dim": (8,) * 7},
    "wav2vec2": {"conv_dim": (8,) * 7},
    "wavlm": {"conv_dim": (8,) * 7},
}


ALL = TOKENS | IMAGES | SPECTRA | SOUNDS | {"unet": {}}


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
        side = getattr(config, "image_size", SMALL["image_size"])
        return {"pixel_values": torch.randn(2, config.num_channels, side, side)}
    if name in SOUNDS:
        return {"input_values": torch.randn(1, 4000)}
    if name in SPECTRA:
        frames = 2 * config.max_source_positions
        inputs = {"input_features": torch.randn(2, config.num_mel_bins, frames)}
    else:
        inputs = {"input_ids": torch.randint(3, 100, (2, 16))}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, 100, (2, 7))
    return inputs


def denoiser():
    """The UNet of diffusers that is conditioned on a text, as in Stable Diffusion; its inputs."""
    model = diffusers.UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        mid_block_type=None,
        up_block_types=("UpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=8,
        norm_num_groups=4,
    )
    inputs = {
        "sample": torch.randn(2, 4, 8, 8),
        "timestep": torch.tensor([3, 500]),
        "encoder_hidden_states": torch.randn(2, 5, 16),
    }
    return model.train(), inputs


def make(name, overrides):
    """A model in training mode, and its inputs."""
    if name == "unet":
        return denoiser()
    config = config_of(name, overrides)
    model = transformers.AutoModel.from_config(config).float().train()
    return model, inputs_of(name, config)


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

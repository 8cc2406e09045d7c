"""PEFT: adapters of a small language model, trained on the device and on the CPU."""

import copy

import pytest
import torch

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from peft import (  # noqa: E402
    AdaLoraConfig,
    IA3Config,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    OFTConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptTuningConfig,
    VeraConfig,
    get_peft_model,
)

DEVICE = "webgpu"
TARGETS = {"target_modules": ["q_proj", "v_proj"]}


def language_model():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config).eval()


def tokens():
    return torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(2))


def perturb(model):
    """Adapters begin as the identity: an error in them would not show."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def train(model, device, steps=3):
    ids = tokens().to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


CONFIGS = {
    "LoRA": lambda: LoraConfig(r=4, **TARGETS),
    "LoRA of embeddings": lambda: LoraConfig(r=4, target_modules=["embed_tokens", "lm_head"]),
    "rsLoRA and saved modules": lambda: LoraConfig(
        r=4, use_rslora=True, modules_to_save=["lm_head"], **TARGETS
    ),
    "DoRA": lambda: LoraConfig(r=4, use_dora=True, **TARGETS),
    "IA3": lambda: IA3Config(feedforward_modules=["v_proj"], **TARGETS),
    "LoHa": lambda: LoHaConfig(r=4, **TARGETS),
    "LoKr": lambda: LoKrConfig(r=4, **TARGETS),
    "OFT": lambda: OFTConfig(oft_block_size=8, **TARGETS),
    "VeRA": lambda: VeraConfig(r=4, target_modules=["q_proj"]),
    "AdaLoRA": lambda: AdaLoraConfig(init_r=4, target_r=2, total_step=20, tinit=1, **TARGETS),
    "prompts": lambda: PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "prefixes": lambda: PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_training(name):
    torch.manual_seed(4)
    model = perturb(get_peft_model(language_model(), CONFIGS[name]()))
    here = copy.deepcopy(model).to(DEVICE)
    expected, actual = train(model, "cpu"), train(here, DEVICE)
    assert actual == pytest.approx(expected, rel=1e-4)
    assert expected[-1] < expected[0]


def test_adapters_move_between_devices(tmp_path):
    model = perturb(get_peft_model(language_model(), LoraConfig(r=4, **TARGETS))).to(DEVICE)
    ids = tokens().to(DEVICE)
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        model.save_pretrained(tmp_path)
        # Read to the device of the model that they are for.
        for device in (DEVICE, "cpu"):
            read = PeftModel.from_pretrained(language_model().to(device), tmp_path)
            assert {p.device.type for p in read.parameters()} == {device}
            torch.testing.assert_close(
                read(input_ids=ids.to(device)).logits.cpu(), expected.cpu(), rtol=1e-4, atol=1e-5
            )
        named = PeftModel.from_pretrained(language_model().to(DEVICE), tmp_path, "one")
        named.load_adapter(tmp_path, "other", torch_device=DEVICE)
        named.add_weighted_adapter(["one", "other"], [0.5, 0.5], "mean", combination_type="cat")
        named.set_adapter("mean")
        torch.testing.assert_close(named(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-5)
        with named.disable_adapter():
            assert not torch.allclose(named(input_ids=ids).logits, expected, atol=1e-3)


def test_merged_weights_and_generation():
    model = perturb(get_peft_model(language_model(), LoraConfig(r=4, **TARGETS)))
    here = copy.deepcopy(model).to(DEVICE)
    ids = tokens()
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(input_ids=ids, **options)
    assert torch.equal(here.generate(input_ids=ids.to(DEVICE), **options).cpu(), expected)
    merged = here.merge_and_unload()
    assert not isinstance(merged, PeftModel)
    with torch.no_grad():
        logits = merged(input_ids=ids.to(DEVICE)).logits.cpu()
        torch.testing.assert_close(logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    torch.manual_seed(4)
    model = perturb(get_peft_model(language_model(), LoraConfig(r=4, **TARGETS)))
    here, ids = copy.deepcopy(model).to(DEVICE), tokens()
    with torch.autocast(DEVICE, dtype=dtype):
        loss = here(input_ids=ids.to(DEVICE), labels=ids.to(DEVICE)).loss
    loss.backward()
    expected = model(input_ids=ids, labels=ids).loss
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-2)
    pairs = zip(here.parameters(), model.parameters(), strict=True)
    for one, other in [pair for pair in pairs if pair[0].requires_grad]:
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=0.1, atol=2e-2)

"""torch.webgpu.export of Hugging Face models, compared with them on the CPU."""

import copy

import pytest
import torch
from common import DEVICE

transformers = pytest.importorskip("transformers")

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "vocab_size": 50}
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}


def gpt2():
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=32, vocab_size=50, n_positions=16, **NO_TOKENS
    )
    return transformers.GPT2LMHeadModel(config).eval()


def llama():
    config = transformers.LlamaConfig(intermediate_size=64, **SIZES, **NO_TOKENS)
    return transformers.LlamaForCausalLM(config).eval()


def bert():
    return transformers.BertModel(transformers.BertConfig(intermediate_size=64, **SIZES)).eval()


def function_of(model, **options):
    def forward(input_ids, **others):
        with torch.no_grad():
            found = model(input_ids=input_ids, **others, **options)
        return {"y": found[0]}

    return forward


def example(batch=2, length=8):
    return torch.randint(0, 50, (batch, length))


@pytest.mark.parametrize("make", [gpt2, llama])
def test_without_a_cache(tmp_path, make):
    torch.manual_seed(0)
    model = make()
    near = function_of(copy.deepcopy(model).to(DEVICE), use_cache=False)
    torch.webgpu.export(near, {"input_ids": example()}, tmp_path / "m.twg")
    ids = example()
    result = torch.webgpu.Graph.load(tmp_path / "m.twg")(input_ids=ids)["y"].cpu()
    torch.testing.assert_close(result, function_of(model)(ids)["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [gpt2, bert])
def test_masks_are_what_a_call_gives(tmp_path, make):
    """The model reads whether the mask masks anything, unless it knows that it is recorded."""
    torch.manual_seed(0)
    model = make()
    near = function_of(copy.deepcopy(model).to(DEVICE))
    mask = torch.ones(2, 8, dtype=torch.long)
    torch.webgpu.export(near, {"input_ids": example(), "attention_mask": mask}, tmp_path / "m.twg")
    graph = torch.webgpu.Graph.load(tmp_path / "m.twg")
    for length in (8, 5):
        mask[1, length:] = 0
        ids = example()
        result = graph(input_ids=ids, attention_mask=mask)["y"].cpu()
        wanted = function_of(model)(ids, attention_mask=mask)["y"]
        torch.testing.assert_close(result[:, :length], wanted[:, :length], rtol=1e-4, atol=1e-4)


def test_sizes_that_a_call_decides(tmp_path):
    """With its cache of keys and values, into which the model joins them."""
    torch.manual_seed(0)
    model = gpt2()
    near = function_of(copy.deepcopy(model).to(DEVICE))
    batch = torch.export.Dim("batch", min=2, max=4)
    length = torch.export.Dim("length", min=2, max=16)
    shapes = {"input_ids": {0: batch, 1: length}}
    torch.webgpu.export(near, {"input_ids": example()}, tmp_path / "m.twg", dynamic_shapes=shapes)
    graph = torch.webgpu.Graph.load(tmp_path / "m.twg")
    for batch, length in ((2, 2), (3, 7), (4, 16)):
        ids = example(batch, length)
        result = graph(input_ids=ids)["y"].cpu()
        torch.testing.assert_close(result, function_of(model)(ids)["y"], rtol=1e-4, atol=1e-4)

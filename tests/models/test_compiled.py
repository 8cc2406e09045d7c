"""The same architectures compiled: outputs and gradients equal eager mode's on the device."""

import copy

import pytest
import torch
from architectures import ALL, distances, make, run
from common import DEVICE

MODELS = (
    *("mixtral", "bert", "convnext", "unet", "gpt2", "llama", "t5", "qwen2", "resnet", "whisper"),
    "vit",
)


@pytest.mark.sampled("mixtral", "resnet")
@pytest.mark.parametrize("name", MODELS)
def test_compiled_model(name):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = make(name, ALL[name])
    eager = model.to(DEVICE)
    compiled = copy.deepcopy(eager)
    compiled.forward = torch.compile(compiled.forward)
    inputs = {key: value.to(DEVICE) for key, value in inputs.items()}
    expected = {key: value.cpu() for key, value in run(eager, inputs).items()}
    actual = run(compiled, inputs)
    assert actual.keys() == expected.keys()
    far = {key: d for key, d in distances(actual, expected).items() if not d <= 1e-3}
    assert not far

"""The same architectures compiled: outputs and gradients equal eager mode's on the device."""

import copy

import pytest
import torch
import transformers
from architectures import config_of, distances, inputs_of, run
from common import DEVICE

MODELS = ("bert", "gpt2", "llama", "qwen2", "t5", "vit")


@pytest.mark.parametrize("name", MODELS)
def test_compiled_model(name):
    torch.manual_seed(0)
    torch._dynamo.reset()
    config = config_of(name, {})
    eager = transformers.AutoModel.from_config(config).float().train().to(DEVICE)
    compiled = copy.deepcopy(eager)
    compiled.forward = torch.compile(compiled.forward)
    inputs = {key: value.to(DEVICE) for key, value in inputs_of(name, config).items()}
    expected = {key: value.cpu() for key, value in run(eager, inputs).items()}
    actual = run(compiled, inputs)
    assert actual.keys() == expected.keys()
    far = {key: d for key, d in distances(actual, expected).items() if not d <= 1e-3}
    assert not far

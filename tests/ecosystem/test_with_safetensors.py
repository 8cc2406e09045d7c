"""safetensors files are read onto the device."""

import pytest
import safetensors
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn


@pytest.fixture
def path(tmp_path):
    tensors = {
        "matrix": torch.randn(5, 7),
        "half": torch.randn(3).half(),
        "long": torch.arange(4),
        "empty": torch.empty(0, 2),
        "scalar": torch.tensor(2.5).bfloat16(),
    }
    save_file(tensors, tmp_path / "file.safetensors", {"made": "here"})
    return tmp_path / "file.safetensors"


@pytest.mark.parametrize("device", ["webgpu", "webgpu:0", torch.device("webgpu"), 0])
def test_load_file(path, device):
    loaded = load_file(path, device=device)
    expected = load_file(path)
    assert loaded.keys() == expected.keys()
    for name, tensor in loaded.items():
        assert tensor.device == torch.device("webgpu", 0)
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor.cpu(), expected[name])


def test_safe_open(path):
    expected = load_file(path)["matrix"]
    with safetensors.safe_open(path, framework="pt", device="webgpu") as file:
        assert isinstance(file, safetensors.safe_open)
        assert "matrix" in list(file.keys()) and file.metadata() == {"made": "here"}
        tensor, part = file.get_tensor("matrix"), file.get_slice("matrix")
        assert part.get_shape() == [5, 7]
        assert torch.equal(part[1:3, 2:].cpu(), expected[1:3, 2:])
        assert tensor.device.type == part[:].device.type == "webgpu"
    with safetensors.safe_open(path, framework="pt") as file:
        assert isinstance(file, safetensors.safe_open)
        assert file.get_tensor("matrix").device.type == "cpu"


def test_models(tmp_path):
    model = nn.Linear(3, 4).webgpu()
    save_model(model, tmp_path / "model.safetensors")
    other = nn.Linear(3, 4).webgpu()
    load_model(other, tmp_path / "model.safetensors", device="webgpu")
    assert torch.equal(other.weight.cpu(), model.weight.cpu())


@pytest.mark.parametrize("device", [None, "cpu"])
def test_other_devices_are_for_the_library_to_judge(path, device):
    assert load_file(path, device=device)["matrix"].device.type == "cpu"
    with safetensors.safe_open(path, framework="pt", device=device) as file:
        assert file.get_tensor("matrix").device.type == "cpu"


def test_a_wrong_device_is_refused(path):
    with pytest.raises(Exception, match=r"9|invalid"):
        load_file(path, device="webgpu:9")
    with pytest.raises(FileNotFoundError):
        load_file(path.parent / "missing", device="webgpu")

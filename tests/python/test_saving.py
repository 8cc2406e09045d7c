"""torch.save, torch.load, pickle and copies of webgpu tensors."""

import copy
import io
import pickle

import pytest
import torch


def saved(obj) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return file


@pytest.fixture
def host():
    return torch.arange(12.0).view(3, 4)


def test_save_and_load_on_the_device(host):
    x = host.webgpu()
    loaded = torch.load(saved({"x": x, "row": x[1]}))
    assert loaded["x"].device == torch.device("webgpu:0")
    assert torch.equal(loaded["x"].cpu(), host)
    assert loaded["row"].data_ptr() - loaded["x"].data_ptr() == 16  # still a view


def test_load_on_the_cpu_what_was_saved_on_the_device(host):
    loaded = torch.load(saved(host.webgpu()), map_location="cpu", weights_only=True)
    assert loaded.device.type == "cpu"
    assert torch.equal(loaded, host)


@pytest.mark.parametrize(
    "location", ["webgpu", "webgpu:0", torch.device("webgpu"), {"cpu": "webgpu:0"}]
)
def test_load_on_the_device_what_was_saved_on_the_cpu(host, location):
    loaded = torch.load(saved(host), map_location=location)
    assert loaded.device == torch.device("webgpu:0")
    assert torch.equal(loaded.cpu(), host)


def test_load_on_a_device_that_is_not_there(host):
    with pytest.raises(RuntimeError, match=r"device 3 but torch\.webgpu\.device_count\(\) is 1"):
        torch.load(saved(host), map_location="webgpu:3")


def test_corrupt_file(host):
    file = io.BytesIO(saved(host.webgpu()).getvalue()[:-200])
    with pytest.raises(RuntimeError, match="PytorchStreamReader failed"):
        torch.load(file)
    assert torch.equal(host.webgpu().cpu(), host)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bool, torch.int64, torch.uint8, torch.float64]
)
def test_every_way_of_copying(dtype):
    host = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    x = host.webgpu()
    for clone in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert clone.device == x.device
        assert torch.equal(clone.cpu(), host)
    assert copy.deepcopy(x).data_ptr() != x.data_ptr()


def test_module_and_optimizer_state():
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 2).webgpu()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter, device="cpu").webgpu()
    optimizer.step()
    file = saved({"module": module.state_dict(), "optimizer": optimizer.state_dict()})
    loaded = torch.load(file, map_location="cpu", weights_only=True)
    fresh = torch.nn.Linear(4, 2)
    fresh.load_state_dict(loaded["module"])
    assert torch.equal(fresh.weight, module.weight.cpu())
    buffers = [state["momentum_buffer"] for state in loaded["optimizer"]["state"].values()]
    assert all(torch.equal(buffer, torch.ones_like(buffer)) for buffer in buffers)


def test_copies_keep_what_belongs_to_the_tensor(host):
    parameter = torch.nn.Parameter(host.webgpu())
    clone = copy.deepcopy(parameter)
    assert isinstance(clone, torch.nn.Parameter)
    assert clone.requires_grad
    strided = host.webgpu().t()
    assert copy.deepcopy(strided).stride() == strided.stride()


def test_generator_state_is_saved():
    torch.webgpu.manual_seed(77)
    state = torch.load(saved(torch.webgpu.get_rng_state()))
    torch.webgpu.manual_seed(78)
    torch.webgpu.set_rng_state(state)
    assert torch.webgpu.initial_seed() == 77


@pytest.mark.parametrize("new_format", [True, False])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_tensors(layout, new_format, host):
    sparse = {
        "coo": host.to_sparse,
        "csr": host.to_sparse_csr,
        "csc": host.to_sparse_csc,
        "bsr": lambda: host.to_sparse_bsr((1, 2)),
        "bsc": lambda: host.to_sparse_bsc((1, 2)),
    }[layout]()
    file = io.BytesIO()
    torch.save(sparse.webgpu(), file, _use_new_zipfile_serialization=new_format)
    places = (None, "webgpu"), ("cpu", "cpu"), (lambda storage, place: storage, "cpu")
    for location, device in places:
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded.device.type == device and loaded.layout == sparse.layout
        assert torch.equal(loaded.cpu().to_dense(), host)

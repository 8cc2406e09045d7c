"""Tensors as Python objects: placement, printing, views, storage, bad input."""

import copy

import pytest
import torch
from common import FLOATS, INTEGERS

DTYPES = [*FLOATS, torch.float64, *INTEGERS, torch.bool, torch.complex64, torch.complex128]


@pytest.fixture
def host():
    return torch.arange(12.0).view(3, 4)


@pytest.fixture
def device(host):
    return host.webgpu()


def test_placement(host):
    moved = host.to("webgpu")
    assert str(moved.device) == "webgpu:0"
    assert moved.is_webgpu
    assert not host.is_webgpu
    assert moved.to("webgpu") is moved
    assert moved.cpu().device.type == "cpu"
    assert torch.tensor([1.0], device="webgpu").device == torch.device("webgpu:0")
    assert torch.as_tensor([1], device="webgpu").is_webgpu
    assert host.webgpu(device=0).is_webgpu


def test_modules_move():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).webgpu()
    tensors = [*module.parameters(), *module.buffers()]
    assert all(tensor.is_webgpu for tensor in tensors)
    assert all(p.is_leaf and p.requires_grad for p in module.parameters())
    clone = copy.deepcopy(module).cpu()
    for name, value in module.state_dict().items():
        assert torch.equal(clone.state_dict()[name], value.cpu())


def test_moved_modules_keep_their_parameters():
    """As on CUDA: shared weights stay shared, and an optimizer made before the move still works."""
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    module = torch.nn.Sequential(first, second)
    before = list(module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    module(torch.ones(2, 3)).sum().backward()  # its gradients and their nodes move too
    module.to("webgpu")
    assert all(old is new for old, new in zip(before, module.parameters(), strict=True))
    assert first.weight is second.weight
    assert first.weight.is_webgpu
    assert first.weight.grad.is_webgpu
    module.zero_grad()
    module(torch.ones(2, 3, device="webgpu")).sum().backward()
    old = first.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(old, first.weight)
    module.to("cpu")
    assert all(old is new for old, new in zip(before, module.parameters(), strict=True))
    assert before[0].device.type == "cpu"


def test_data_moves_between_devices(host):
    tensor = torch.nn.Parameter(host.clone())
    tensor.data = host.webgpu()
    assert tensor.is_webgpu
    tensor.data = host
    assert not tensor.is_webgpu
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        tensor.data = torch.empty(3, 4, device="meta")
    moved = host.webgpu()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        moved.data = host.to_sparse()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_item_and_tolist(dtype):
    host = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    device = host.webgpu()
    assert device.tolist() == host.tolist()
    assert device[1, 1].item() == host[1, 1].item()
    assert type(device[1, 1].item()) is type(host[1, 1].item())


def test_item_wants_one_element(device):
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        device.item()


def test_printing_runs_no_kernel(host, device):
    dispatches = torch.webgpu.stats()["dispatches"]
    text = repr(device)
    assert torch.webgpu.stats()["dispatches"] == dispatches
    assert text == repr(host)[:-1] + ", device='webgpu:0')"
    assert str(device[1]) == str(host[1])[:-1] + ", device='webgpu:0')"
    assert "requires_grad=True" in repr(torch.nn.Parameter(device))
    assert "..." in repr(torch.zeros(50, 50).webgpu().t().expand(9, 50, 50))
    assert repr(torch.empty(0, device="webgpu")) == "tensor([], device='webgpu:0')"
    assert f"{device[2, 3]:.1f}" == "11.0"


def test_numpy_is_refused_as_on_other_devices(device):
    with pytest.raises(TypeError, match=r"can't convert webgpu:0 device type tensor to numpy"):
        device.numpy()
    assert device.cpu().numpy().shape == (3, 4)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1:, ::2],
        lambda x: x.t(),
        lambda x: x.view(2, 6),
        lambda x: x.reshape(-1)[3:9].view(2, 3),
        lambda x: x.as_strided((2, 2), (3, 1), 4),
        lambda x: x.unfold(1, 2, 1),
        lambda x: x.expand(2, 3, 4),
        lambda x: x.diagonal(),
        lambda x: x.unsqueeze(1).squeeze(),
        lambda x: x.movedim(0, 1).swapaxes(0, 1),
        lambda x: x.view(torch.int32),
        lambda x: torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2))),
        lambda x: torch.view_as_complex(x.view(3, 2, 2)).conj(),
        lambda x: torch.view_as_complex(x.view(3, 2, 2)).conj().imag,
        lambda x: x.split(2, dim=1)[1],
        lambda x: x.detach(),
    ],
)
def test_views_alias(host, device, view):
    got, want = view(device), view(host)
    assert (got.shape, got.stride(), got.storage_offset()) == (
        want.shape,
        want.stride(),
        want.storage_offset(),
    )
    assert got.untyped_storage().data_ptr() == device.untyped_storage().data_ptr()
    assert torch.equal(got.cpu().resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg())


def test_addresses_are_arithmetic(device):
    assert device[1, 2].data_ptr() - device.data_ptr() == 6 * 4


def test_resize(host, device):
    device.resize_(5, 5)
    assert torch.equal(device.flatten()[:12].cpu(), host.flatten())
    device.resize_(2, 3)
    assert device.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
    image = torch.empty(1, device="webgpu").resize_(1, 2, 3, 4, memory_format=torch.channels_last)
    assert image.is_contiguous(memory_format=torch.channels_last)


def test_set(host, device):
    x = torch.empty(0, device="webgpu").set_(device)
    assert x.is_set_to(device)
    x.set_(device.untyped_storage(), 2, (2, 2), (4, 1))
    assert torch.equal(x.cpu(), host.as_strided((2, 2), (4, 1), 2))
    x.set_(device.untyped_storage())
    assert x.shape == (12,)
    assert x.set_().numel() == 0
    with pytest.raises(RuntimeError, match="different device"):
        x.set_(host)


def test_storage(host, device):
    storage = device.untyped_storage()
    assert storage.device == torch.device("webgpu:0")
    assert storage.is_webgpu
    storage.resize_(1 << 12)
    assert storage.nbytes() == 1 << 12
    assert torch.equal(device.cpu(), host)
    assert storage.clone().device.type == "webgpu"
    assert storage.cpu()[4 : 4 + 4].tolist() == host.untyped_storage()[4 : 4 + 4].tolist()
    fresh = torch.UntypedStorage(64, device="webgpu")
    fresh.copy_(torch.UntypedStorage([7] * 64))
    assert fresh.cpu().tolist() == [7] * 64


def test_memory_formats():
    image = torch.empty(2, 3, 4, 5, device="webgpu", memory_format=torch.channels_last)
    assert image.stride() == torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).stride()
    assert torch.empty_like(image).stride() == image.stride()
    assert torch.empty_strided((2, 3), (1, 2), device="webgpu").stride() == (1, 2)


def test_deterministic_mode_fills_new_memory():
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(5, device="webgpu").cpu().isnan().all()
        assert torch.empty_strided((2,), (1,), dtype=torch.int8, device="webgpu").tolist() == [
            127,
            127,
        ]
    finally:
        torch.use_deterministic_algorithms(False)


def test_pinned_memory(host):
    pinned = host.pin_memory()
    assert pinned.is_pinned()
    assert pinned[1:].is_pinned()
    assert not host.is_pinned()
    assert torch.equal(pinned.webgpu(non_blocking=True).cpu(), host)
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(2, device="webgpu", pin_memory=True)


def test_dlpack_round_trip(device):
    for source in (device, device[1:, 1:]):
        back = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(source))
        assert back.data_ptr() == source.data_ptr()
        assert torch.equal(back.cpu(), source.cpu())
    back += 1
    assert torch.equal(device[1:, 1:].cpu(), back.cpu())
    assert device.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 0)
    assert torch.from_dlpack(device).data_ptr() == device.data_ptr()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_of_a_type(tmp_path):
    """As torch.cuda.FloatStorage, which is deprecated too."""
    storage = torch.webgpu.FloatStorage([1, 2, 3])
    assert storage.device.type == "webgpu" and storage.dtype == torch.float32
    storage[1] = 5
    assert storage.tolist() == [1, 5, 3] and torch.is_storage(storage)
    of_tensor = torch.arange(4, device="webgpu").storage()
    assert isinstance(of_tensor, torch.webgpu.LongStorage)
    assert not isinstance(of_tensor, torch.webgpu.IntStorage | torch.LongStorage)
    assert of_tensor.type() == "torch.webgpu.LongStorage"
    torch.save(of_tensor, tmp_path / "storage.pt")
    loaded = torch.load(tmp_path / "storage.pt", weights_only=False)
    assert isinstance(loaded, torch.webgpu.LongStorage) and loaded.tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="Not available for webgpu storage"):
        torch.webgpu.FloatStorage.from_buffer(b"1234")


def test_types_by_name():
    x = torch.webgpu.FloatTensor([1, 2])
    assert x.is_webgpu and x.type() == "torch.webgpu.FloatTensor" and x.tolist() == [1, 2]
    assert torch.webgpu.LongTensor(2, 3).shape == (2, 3)
    assert torch.webgpu.HalfTensor().shape == (0,)
    assert x.cpu().type(torch.webgpu.HalfTensor).dtype == torch.float16
    assert isinstance(x, torch.webgpu.FloatTensor)
    assert not isinstance(x, torch.webgpu.IntTensor)
    assert not isinstance(x.cpu(), torch.webgpu.FloatTensor)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: torch.empty(-1, device="webgpu"), RuntimeError, "negative dimension"),
        (lambda: torch.ones(3).webgpu().view(2, 2), RuntimeError, "invalid for input of size"),
        (
            lambda: torch.ones(3).webgpu() + torch.ones(4).webgpu(),
            RuntimeError,
            "must match the size",
        ),
        (
            lambda: torch.ones(3).webgpu() + torch.ones(3),
            RuntimeError,
            "Expected all tensors to be on the same device",
        ),
        (lambda: torch.ones(3).webgpu().expand(2), RuntimeError, "must match the existing size"),
        (lambda: torch.ones(2, 2).webgpu()[5], IndexError, "out of bounds"),
    ],
)
def test_bad_input_gets_pytorchs_message(make, error, message):
    with pytest.raises(error, match=message):
        make()
    assert torch.ones(2).webgpu().tolist() == [1, 1]


def test_subclasses_answer_for_dlpack():
    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    seen = []
    x = torch.ones(2, device="webgpu").as_subclass(Wrapped)
    assert x.__dlpack_device__() == torch.ones(2, device="webgpu").__dlpack_device__()
    assert seen[0] == "__dlpack_device__"

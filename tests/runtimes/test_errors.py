"""Bad input gets PyTorch's own message, and the device is usable afterwards."""

import pytest
import torch
from common import check_error, to_device
from torch.nn import functional as F

# Name -> function, arguments. On the CPU the same call raises the same error.
WRONG = {
    "shapes that do not broadcast": (torch.add, torch.ones(2, 3), torch.ones(4)),
    "in-place result of a wrong shape": (torch.Tensor.add_, torch.ones(3), torch.ones(2, 3)),
    "in-place result of a wrong type": (
        torch.Tensor.add_,
        torch.ones(3, dtype=torch.int32),
        torch.ones(3),
    ),
    "in-place on an expanded tensor": (lambda x: x.expand(4, 3).add_(1), torch.ones(3)),
    "result that overlaps an input": (
        lambda x: torch.add(x[1:], 1, out=x[:-1]),
        torch.ones(5),
    ),
    "copy of a wrong shape": (torch.Tensor.copy_, torch.ones(3), torch.ones(2)),
    "subtraction of bool": (torch.sub, torch.ones(2) > 0, torch.ones(2) > 0),
    "bitwise on floats": (torch.bitwise_and, torch.ones(2), torch.ones(2)),
    "order of complex numbers": (torch.lt, torch.ones(2) * 1j, torch.ones(2) * 1j),
    "function of integers": (torch.hypot, torch.arange(3), torch.arange(3)),
    "matrix shapes": (torch.mm, torch.ones(2, 3), torch.ones(2, 3)),
    "matrix of one dimension": (torch.mm, torch.ones(3), torch.ones(3, 2)),
    "matrix types": (torch.mm, torch.ones(2, 2), torch.ones(2, 2, dtype=torch.int64)),
    "dimension out of range": (lambda x: x.sum(2), torch.ones(2, 3)),
    "dimension twice": (lambda x: x.sum((0, 0)), torch.ones(2, 3)),
    "extreme of nothing": (lambda x: x.amax(0), torch.ones(0, 3)),
    "mean of integers": (torch.mean, torch.ones(3, dtype=torch.int64)),
    "convolution channels": (F.conv2d, torch.ones(1, 3, 5, 5), torch.ones(2, 4, 3, 3)),
    "convolution larger than its input": (F.conv2d, torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 3)),
    "view of a wrong size": (lambda x: x.view(4), torch.ones(3)),
    "view across strides": (lambda x: x.t().view(6), torch.ones(2, 3)),
    "index of a slice out of range": (lambda x: x[3], torch.ones(3)),
    "in-place on a leaf": (lambda x: x.add_(1), torch.ones(3, requires_grad=True)),
    "gradient of no scalar": (lambda x: (x * 2).backward(), torch.ones(3, requires_grad=True)),
}


# What has no kernel, and no meaning either, is refused by the CPU's kernel.
@pytest.mark.usefixtures("silent_fallbacks")
@pytest.mark.parametrize("name", WRONG)
def test_errors_are_the_cpus(name):
    check_error(*WRONG[name])
    assert torch.ones(3).webgpu().add(1).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "function",
    [torch.add, torch.mul, torch.mm, torch.maximum, torch.Tensor.add_, torch.Tensor.mul_],
)
@pytest.mark.parametrize("first_on_device", [True, False])
def test_mixed_devices_are_refused(function, first_on_device):
    operands = [torch.ones(2, 2), torch.ones(2, 2)]
    operands[0 if first_on_device else 1] = to_device(operands[0 if first_on_device else 1])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device") as info:
        function(*operands)
    assert "webgpu:0" in str(info.value)
    assert "cpu" in str(info.value)


def test_out_of_memory_names_sizes_and_passes():
    held = torch.ones(1000).webgpu()
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate [\d.]+ .iB"):
        held.expand(1 << 34, 1000).contiguous()
    assert torch.ones(1000).webgpu().add(held).sum().item() == 2000


def test_an_operand_that_the_device_cannot_hold_is_refused():
    with pytest.raises(RuntimeError):
        torch.empty(1 << 62, device="webgpu")
    with pytest.raises(RuntimeError, match="negative"):
        torch.empty(-1, device="webgpu")
    assert torch.ones(2).webgpu().tolist() == [1, 1]

"""max_unpool1d, 2d and 3d."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, FLOATS, check, check_error, check_gradients, to_device

UNPOOL = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}
POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def pooled(dims, dtype=torch.float32):
    torch.manual_seed(dims)
    x = torch.randn(2, 3, *(7, 8, 6)[:dims]).to(dtype)
    values, indices = POOL[dims](x, 2, return_indices=True)
    return values, indices, x.shape[2:]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_determinism_is_refused(dims):
    values, indices, size = pooled(dims)
    torch.use_deterministic_algorithms(True)
    try:
        check_error(lambda v, i: UNPOOL[dims](v, i, 2, output_size=size), values, indices)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_values_and_gradients(dims, dtype):
    values, indices, size = pooled(dims, dtype)
    unpool = lambda v, i: UNPOOL[dims](v, i, 2, output_size=size)  # noqa: E731
    check_gradients(unpool, values.requires_grad_(), indices)
    values = values.detach()
    check(unpool, values[1], indices[1])
    check(unpool, values.transpose(0, 1), indices.transpose(0, 1))
    check(unpool, values[:0], indices[:0])


def test_second_gradient():
    values, indices, size = pooled(2)

    def second(v, i):
        out = F.max_unpool2d(v, i, 2, output_size=size)
        (gradient,) = torch.autograd.grad((out**2).sum(), v, create_graph=True)
        return torch.autograd.grad((gradient**2).sum(), v)[0]

    check(second, values.requires_grad_(), indices)


def test_out_and_channels_last():
    values, indices, size = pooled(2)
    a, i = to_device((values, indices))
    out = torch.empty(2, 3, *size, device=DEVICE).to(memory_format=torch.channels_last)
    torch.ops.aten.max_unpool2d(a, i, size, out=out)
    assert torch.equal(out.cpu(), torch.ops.aten.max_unpool2d(values, indices, size))
    result = torch.ops.aten.max_unpool2d(a.to(memory_format=torch.channels_last), i, size)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_errors():
    values, indices, size = pooled(2)
    unpool = torch.ops.aten.max_unpool2d
    check_error(lambda v, i: unpool(v, i.int(), size), values, indices)
    check_error(lambda v, i: unpool(v, i, (4,)), values, indices)
    check_error(lambda v, i: unpool(v[0, 0], i[0, 0], size), values, indices)
    check_error(lambda v, i: unpool(v, i[:1], size), values, indices)
    check_error(lambda v, i: unpool(v[:, :0], i[:, :0], size), values, indices)
    check_error(lambda v, i: unpool(v.int(), i, size), values, indices)
    with pytest.raises(RuntimeError):  # by the device, at the next wait
        unpool(*to_device((values, indices)), (2, 2)).cpu()
    values, indices, size = pooled(3)
    unpool = torch.ops.aten.max_unpool3d
    twos, zeros = (2, 2, 2), (0, 0, 0)
    check_error(lambda v, i: unpool(v, i.int(), size, twos, zeros), values, indices)
    check_error(lambda v, i: unpool(v, i, size[:2], twos, zeros), values, indices)
    check_error(lambda v, i: unpool(v, i, size, (2, 2), zeros), values, indices)
    check_error(lambda v, i: unpool(v, i, size, twos, (0, 0)), values, indices)
    check_error(lambda v, i: unpool(v, i, size, (2, 0, 2), zeros), values, indices)

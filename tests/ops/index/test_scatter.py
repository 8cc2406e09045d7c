"""gather and the scatter family."""

import pytest
import torch
from common import DEVICE, FLOATS, INTEGERS, check, check_error, check_gradients

NUMBERS = [*FLOATS, *INTEGERS]


def sample(dtype, size=(4, 3, 6)):
    """A tensor, values for it, and indices along dimension 1 that may repeat."""
    torch.manual_seed(size[0])
    x = torch.randn(4, 7, 6).mul(3).to(dtype)
    return x, torch.randn(size).mul(3).to(dtype), torch.randint(0, 7, size)


def distinct(size, extent):
    """Indices along dimension 1 that do not repeat within a line."""
    lines = [torch.randperm(extent)[: size[1]] for _ in range(size[0] * size[2])]
    return torch.stack(lines).view(size[0], size[2], size[1]).transpose(1, 2)


@pytest.mark.parametrize("dtype", [*NUMBERS, torch.bool, torch.complex64, torch.float64])
def test_moves(dtype):
    x, values, index = sample(dtype)
    check(lambda x, i: x.gather(1, i), x, index)
    check(lambda x, i: x.transpose(0, 2).gather(1, i.transpose(0, 2)), x, index)
    check(lambda x, i: x.scatter(1, i, 1), x, index)
    check(lambda x, i, v: x.scatter(1, i, v), x, distinct((4, 3, 6), 7), values)


@pytest.mark.parametrize("dtype", [*NUMBERS, torch.complex64])
@pytest.mark.parametrize("deterministic", [False, True])
def test_scatter_add(dtype, deterministic):
    x, values, index = sample(dtype)
    torch.use_deterministic_algorithms(deterministic)
    try:
        check(lambda x, i, v: x.scatter_add(1, i, v), x, index, values)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(dtype, reduce):
    x, values, index = sample(dtype)
    for include in (True, False):
        check(
            lambda x, i, v, include=include: x.scatter_reduce(
                1, i, v, reduce, include_self=include
            ),
            x,
            index,
            values,
            # Half types are rounded after every step, in whatever order the steps come.
            **({"rtol": 2e-2, "atol": 2e-2} if x.dtype.itemsize == 2 else {}),
        )


def test_the_older_reductions():
    x, values, index = sample(torch.float32)
    for reduce in ("add", "multiply"):
        check(lambda x, i, v, reduce=reduce: x.scatter(1, i, v, reduce=reduce), x, index, values)
        check(lambda x, i, reduce=reduce: x.scatter(1, i, 2.5, reduce=reduce), x, index)


def test_sums_beyond_32_bits():
    x = torch.zeros(3, dtype=torch.int64)
    index = torch.tensor([0, 1, 0, 0, 1])
    values = torch.tensor([2**32 - 1, -1, 1, 2**40, -(2**33)])
    check(lambda x, i, v: x.scatter_add(0, i, v), x, index, values)
    check(lambda x, i, v: x.scatter_reduce(0, i, v, "amin"), x, index, values)


def test_many_updates_of_few_elements():
    index = torch.randint(0, 3, (5000,))
    check(
        lambda i: torch.zeros(3, device=i.device).scatter_add(0, i, torch.ones_like(i).float()),
        index,
    )
    halves = torch.rand(5000).bfloat16()
    check(
        lambda x, i: torch.zeros(3, dtype=x.dtype, device=x.device).scatter_reduce(0, i, x, "amax"),
        halves,
        index,
    )


def test_neighbours_of_narrow_elements_stay():
    base = torch.arange(64, dtype=torch.uint8)
    index = torch.tensor([0, 2, 4])
    check(lambda b, i: b[5:12].scatter_(0, i, 255).new_tensor(0) + b, base, index)


@pytest.mark.parametrize("reduce", ["prod", "amin", "amax"])
def test_one_wide_element(reduce):
    x, values = torch.tensor([5]), torch.tensor([2**40])
    index = torch.tensor([0])
    check(lambda x, i, v: x.index_reduce(0, i, v, reduce), x, index, values)
    check(lambda x, i, v: x.scatter_reduce(0, i, v, reduce), x, index, values)


def test_empty_and_0d():
    x = torch.randn(3, 4)
    check(lambda x, i: x.gather(0, i), x, torch.empty(0, 4, dtype=torch.int64))
    check(lambda x, i: x.scatter(0, i, x), x, torch.empty(0, 4, dtype=torch.int64))
    check(lambda x, i: x.gather(0, i), torch.tensor(2.0), torch.tensor(0))
    check(lambda x, i: x.scatter_add(0, i, x), torch.tensor(2.0), torch.tensor([0]))


def test_gradients():
    x, values, index = sample(torch.float32)
    x.requires_grad_()
    values.requires_grad_()
    check_gradients(lambda x, i: x.gather(1, i), x, index)
    check_gradients(lambda x, i, v: x.scatter_add(1, i, v), x, index, values)
    check_gradients(lambda x, i, v: x.scatter_reduce(1, i, v, "amax"), x, index, values)


@pytest.mark.parametrize(
    "broken",
    [
        lambda x, i: x.gather(3, i),
        lambda x, i: x.gather(0, i.float()),
        lambda x, i: x.gather(0, i[0]),
        lambda x, i: x.scatter(1, i, x.long()),
        lambda x, i: x.scatter_reduce(1, i, x, "median"),
    ],
)
def test_error_texts(broken):
    x, _, i = sample(torch.float32)
    check_error(broken, x, i)


def test_index_on_another_device():
    x, _, i = sample(torch.float32)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x.to(DEVICE).gather(1, i)

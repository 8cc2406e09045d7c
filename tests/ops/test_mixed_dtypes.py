"""Numbers and tensors of wider dtypes, which do not promote the narrower dtype of the others."""

import pytest
import torch
from common import DEVICE, check

HALVES = (torch.float16, torch.bfloat16)


def values(dtype, *numbers):
    """Random values, and those that the numbers become in the dtype."""
    torch.manual_seed(0)
    return torch.cat([(3 * torch.randn(500)).to(dtype), torch.tensor(numbers, dtype=dtype)])


CONVERTED = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "remainder of a number": lambda x, number: torch.remainder(number, x),
    "pow": lambda x, number: torch.pow(x.abs(), number),
    "power of a number": lambda x, number: torch.pow(abs(number), x),
    "atan2": lambda x, number: torch.atan2(x, torch.tensor(number)),
    "isin": torch.isin,
    "hardshrink": lambda x, number: torch.nn.functional.hardshrink(x, abs(number)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CONVERTED)
def test_number_is_converted_to_the_dtype(name, dtype):
    numbers = (0.1, 2.3, -1.7, 2049)
    x = values(dtype, *numbers)
    for number in numbers:
        check(CONVERTED[name], x, number)


@pytest.mark.parametrize("dtype", HALVES)
def test_arithmetic_takes_a_number_as_it_is(dtype):
    x = values(dtype).to(DEVICE)
    for function in (torch.add, torch.sub, torch.mul, torch.div):
        assert torch.equal(function(x, 0.1), function(x.float(), 0.1).to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("wide", [torch.float32, torch.int64, torch.int32, torch.int16])
def test_wider_tensor_is_converted_to_the_dtype(wide, dtype):
    x = values(dtype, 2049, -513)
    scalar = torch.tensor(2049.3).to(wide)
    for function in (torch.eq, torch.lt, torch.add, torch.maximum, torch.fmod):
        check(function, x, scalar)
    if not wide.is_floating_point:
        check(torch.eq, x, torch.arange(len(x)).to(wide))
        check(torch.add, x, (torch.arange(len(x)) * 10 - 2500).to(wide))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_wider_integer_wraps(dtype):
    x = torch.arange(-128, 128).to(dtype)
    for function in (torch.lt, torch.eq, torch.maximum, torch.floor_divide, torch.bitwise_or):
        check(function, x, torch.tensor(-300 if dtype is torch.uint8 else 70000))


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("scalar", INTEGERS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_scalar_takes_the_dtype_of_the_tensor(dtype, scalar):
    x = torch.tensor([0, 1, 7, 77, 127, 128, 200, 251, 255]).to(dtype)
    for number in (-5, 127, 200, 255, -70001):
        y = torch.tensor(number).to(scalar)
        for function in (torch.maximum, torch.eq, torch.gt, torch.bitwise_and, torch.clamp):
            check(function, x, y)
        if y.to(dtype):
            check(torch.floor_divide, x, y)
            check(torch.remainder, x, y)


def test_celu_of_a_negative_alpha():
    check(torch.nn.functional.celu, torch.linspace(-4, 4, 33), -1.7)

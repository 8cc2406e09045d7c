"""Comparisons into outputs of other dtypes, and the neighbours of numbers."""

import itertools

import pytest
import torch
from common import DEVICE, check

NATIVE = (torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)


@pytest.mark.parametrize("function", [torch.eq, torch.lt, torch.logical_and, torch.maximum])
def test_out_of_another_dtype(function):
    for dtype, out in itertools.product(NATIVE, (*NATIVE, torch.float64, torch.complex64)):
        a, b = torch.tensor([1, 2, 3]).to(dtype), torch.tensor([1, 3, 2]).to(dtype)
        if torch.can_cast(dtype if function is torch.maximum else torch.bool, out):
            check(lambda x, y, o: function(x, y, out=o), a, b, torch.zeros(3, dtype=out))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nextafter(dtype):
    inf, nan = torch.inf, torch.nan
    values = torch.tensor([0.0, -0.0, 1.0, -3.0, 1e-40, -1e-38, 3.3e38, inf, -inf, nan]).to(dtype)
    a, b = (x.contiguous() for x in torch.meshgrid(values, values, indexing="ij"))
    actual = torch.nextafter(a.to(DEVICE), b.to(DEVICE)).cpu()
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    expected = torch.nextafter(a, b)
    number = ~expected.isnan()
    assert torch.equal(actual.isnan(), ~number)
    assert torch.equal(actual[number].view(bits), expected[number].view(bits))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_quotients_are_rounded_before_they_are_cut(dtype):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(40_000, generator=generator).add(0.01).to(dtype) for _ in range(2))
    check(lambda x, y: torch.div(50 * x, y, rounding_mode="trunc"), a, b)
    for number in (0.1, 2.3, -1.7):
        check(lambda x, n=number: torch.div(x, n, rounding_mode="trunc"), a)
    check(lambda x, y: torch.div(x, y, rounding_mode="trunc"), torch.tensor([0.0, 1, -1]), a[:1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_beyond_half_types(dtype):
    """As operands they are infinite."""
    number = 1e6 if dtype == torch.float16 else 1e39
    x = torch.tensor([1.0, -2.0, float("inf")], dtype=dtype)
    for function in (
        lambda x: x < number,
        lambda x: x == number,
        lambda x: x.fmod(number),
        lambda x: x.copysign(-number),
        lambda x: torch.maximum(x, torch.tensor(number)),
        lambda x: torch.hypot(x, torch.tensor(number)),
        lambda x: x.xlogy(number),
    ):
        torch.testing.assert_close(function(x.to(DEVICE)).cpu(), function(x), equal_nan=True)

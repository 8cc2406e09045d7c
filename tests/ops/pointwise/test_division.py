"""Division of float32: the quotient that is nearest, at any exponent."""

import pytest
import torch
from common import DEVICE

# Biased exponents: all, moderate ones, those of denormals, those near infinity.
RANGES = [(1, 254), (100, 150), (0, 3), (252, 254)]
COUNT = 100_000


def numbers(low, high, generator):
    exponent = torch.randint(low, high + 1, (COUNT,), generator=generator)
    mantissa = torch.randint(0, 1 << 23, (COUNT,), generator=generator)
    sign = torch.randint(0, 2, (COUNT,), generator=generator)
    bits = (sign << 31) | (exponent << 23) | mantissa
    return bits.to(torch.uint32).view(torch.float32)


@pytest.mark.parametrize("divisors", RANGES, ids=str)
@pytest.mark.parametrize("dividends", RANGES, ids=str)
def test_quotients_are_rounded_as_on_the_cpu(dividends, divisors):
    generator = torch.Generator().manual_seed(0)
    a, b = numbers(*dividends, generator), numbers(*divisors, generator)
    expected = a / b
    actual = (a.to(DEVICE) / b.to(DEVICE)).cpu()
    # Devices may flush denormal results, and denormal operands.
    normal = torch.finfo(torch.float32).tiny
    kept = (expected.abs() >= normal) & (a.abs() >= normal) & (b.abs() >= normal)
    assert torch.equal(actual[kept], expected[kept])
    tiny = expected.abs() < normal
    torch.testing.assert_close(actual[tiny], expected[tiny], rtol=0, atol=normal)


def test_a_number_over_itself():
    generator = torch.Generator().manual_seed(1)
    x = numbers(1, 254, generator).to(DEVICE)
    assert (x / x == 1).all()
    assert ((x / -x) == -1).all()


def test_zeros_infinities_and_nan():
    special = torch.tensor([0.0, -0.0, 1.0, -2.5, 1e-30, 1e37, float("inf"), -float("inf")])
    special = torch.cat([special, torch.tensor([float("nan")])])
    a, b = special[:, None], special[None, :]
    expected, actual = a / b, (a.to(DEVICE) / b.to(DEVICE)).cpu()
    assert torch.equal(actual.isnan(), expected.isnan())
    known = ~expected.isnan()
    assert torch.equal(actual[known], expected[known])
    assert torch.equal(actual[known].signbit(), expected[known].signbit())

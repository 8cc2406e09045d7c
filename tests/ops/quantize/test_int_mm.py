"""_int_mm: int8 matrices multiplied into int32."""

import pytest
import torch
from common import DEVICE, check, check_error, to_device

SIZES = [(1, 1, 1), (4, 4, 4), (3, 70, 5), (17, 33, 1), (1, 40, 9), (40, 300, 50), (128, 1500, 96)]


def random(*size, dtype=torch.int8):
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, size, dtype=dtype)


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_product(m, k, n):
    torch.manual_seed(0)
    a, b = random(m, k), random(k, n)
    unsigned = random(m, k, dtype=torch.uint8)
    for x, y in [(a, b), (a, random(n, k).t()), (random(k, m).t(), b), (unsigned, b)]:
        # Not against the CPU's own, which misreads a transposed row.
        expected = torch.mm(x.int(), y.int())
        assert torch.equal(torch._int_mm(*to_device((x, y))).cpu(), expected)


def test_accumulates_in_32_bits():
    a = torch.full((2, 5000), -128, dtype=torch.int8)
    check(torch._int_mm, a, a.t())


def test_out_and_empty():
    a, b = random(6, 9), random(9, 4)
    out = torch.full((8, 4), 7, dtype=torch.int32, device=DEVICE)
    torch._int_mm(*to_device((a, b)), out=out[1:7])
    assert torch.equal(out[1:7].cpu(), torch._int_mm(a, b))
    assert (out[[0, 7]] == 7).all()
    check(torch._int_mm, random(0, 9), b)
    check(torch._int_mm, random(2, 0), random(0, 3))


def test_errors():
    a, b = random(4, 4), random(4, 4)
    check_error(lambda a, b: torch._int_mm(a, b[:3]), a, b)
    check_error(lambda a, b: torch._int_mm(a.float(), b), a, b)
    check_error(lambda a, b: torch._int_mm(a, b.float()), a, b)
    check_error(lambda a, b: torch._int_mm(a[0], b), a, b)
    check_error(lambda a, b: torch._int_mm(a, b, out=b[:3].int()), a, b)
    check_error(lambda a, b: torch._int_mm(a, b, out=b.float()), a, b)

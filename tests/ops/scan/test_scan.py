import pytest
import torch
from common import DEVICE, FLOATS, INTEGERS, check, check_error, to_device

SUMS = [torch.cumsum, torch.cumprod, torch.logcumsumexp]
EXTREMES = [torch.cummax, torch.cummin]
NEAR = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 6e-2, "atol": 6e-2},
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", SUMS + EXTREMES)
def test_any_dim(op, dtype):
    x = torch.rand(3, 5, 4, 6).to(dtype)
    for view in (x, x.transpose(0, 3), x[:, 1:, :, ::2]):
        for dim in range(-4, 4):
            check(lambda t, dim=dim: op(t, dim), view, **NEAR[dtype])


@pytest.mark.parametrize(
    "length", [1, 2, 3, 4, 5, 31, 255, 256, 257, 1023, 1024, 1025, 4099, 8192, 40001]
)
def test_no_element_is_skipped(length):
    ones = torch.ones(length + 1, dtype=torch.int64)[1:]
    check(lambda t: t.cumsum(0), ones)
    check(lambda t: t.cumsum(0), torch.randint(-9, 9, (length, 3)))
    check(lambda t: t.cumsum(1), torch.randint(-9, 9, (2, length), dtype=torch.int32))
    for op in EXTREMES:
        check(lambda t, op=op: op(t, 0), torch.randint(0, 50, (length,)).float())
        check(lambda t, op=op: op(t, 0), torch.randint(-(2**40), 2**40, (length, 2)))


def test_long_rows():
    x = torch.randint(-5, 6, (300_007,)).float()
    check(lambda t: t.cumsum(0), x)  # whole numbers: exact in any order
    check(lambda t: t.logcumsumexp(0), torch.randn(20_000), rtol=1e-4, atol=1e-4)
    check(lambda t: t.cummax(0), torch.rand(70_001))
    check(lambda t: t.cumsum(1), torch.randint(-5, 6, (3, 50_001)))


def test_many_rows():
    check(lambda t: t.cumsum(1), torch.randint(-5, 6, (70_000, 3)))
    check(lambda t: t.cumsum(0), torch.randint(-5, 6, (3, 70_000)))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    limits = torch.iinfo(dtype)
    x = torch.randint(limits.min // 2, limits.max // 2, (4, 40), dtype=dtype)
    check(lambda t: t.cumsum(1), x)
    check(lambda t: t.cumprod(1), x)
    check(lambda t: t.cumsum(1, dtype=t.dtype), x)
    # Terms cancel: the error is that of float32 sums of the largest magnitudes.
    check(lambda t: t.cumsum(1, dtype=torch.float32), x, rtol=1e-5, atol=limits.max * 1e-5)
    for op in EXTREMES:
        check(lambda t, op=op: op(t, 0), x)


def test_special_values():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, 3, 3, 2], [2, nan, 5, nan], [-inf, inf, -inf, 0], [0, -inf, -inf, 1]])
    for op in SUMS + EXTREMES:
        check(lambda t, op=op: op(t, 1), x)
    check(lambda t: t.logcumsumexp(0), torch.tensor([-inf, -inf, 1000.0, -1000.0, 1001.0]))
    check(lambda t: t.cummax(0), torch.tensor([False, True, False]))


def test_complex():
    x = torch.randn(4, 30, dtype=torch.complex64)
    check(lambda t: t.cumsum(1), x)
    check(lambda t: t.cumprod(0), x)
    check(lambda t: t.logcumsumexp(1), x, rtol=1e-4, atol=1e-4)


def test_in_place_and_out():
    x = torch.randn(5, 300)
    check(lambda t: t.clone().cumsum_(1), x, rtol=1e-4, atol=1e-4)
    check(lambda t: t.clone().cumsum_(0), x, rtol=1e-4, atol=1e-4)
    out = torch.zeros(300, 10, device=DEVICE)
    torch.cumsum(to_device(x), 1, out=out[:, 1:6].t())
    torch.testing.assert_close(out[:, 1:6].t().cpu(), x.cumsum(1), rtol=1e-4, atol=1e-4)
    assert out[:, 6:].sum().item() == 0
    resized = torch.logcumsumexp(to_device(x), 1, out=torch.empty(0, device=DEVICE))
    torch.testing.assert_close(resized.cpu(), x.logcumsumexp(1), rtol=1e-4, atol=1e-4)


def test_small_and_wrong():
    for op in SUMS + EXTREMES:
        check(lambda t, op=op: op(t, 0), torch.tensor(2.0))
        check(lambda t, op=op: op(t, 0), torch.empty(0, 3))
        check_error(lambda t, op=op: op(t, 2), torch.ones(2, 2))

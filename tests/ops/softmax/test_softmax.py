import pytest
import torch
from common import DEVICE, FLOATS, check, check_error, check_gradients, to_device
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("planned")

OPS = [F.softmax, F.log_softmax]
NEAR = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
    torch.float16: {"rtol": 2e-3, "atol": 1e-3},
    torch.bfloat16: {"rtol": 2e-2, "atol": 1e-2},
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", OPS)
def test_any_dim(op, dtype):
    x = (torch.randn(3, 5, 4, 6) * 4).to(dtype)
    for view in (x, x.transpose(1, 3), x[:, 1:, :, ::2]):
        for dim in range(-4, 4):
            check(lambda t, dim=dim: op(t, dim), view, **NEAR[dtype])


@pytest.mark.parametrize(
    "length", [1, 2, 3, 31, 32, 33, 255, 257, 1000, 1024, 4097, 8192, 8193, 20001]
)
@pytest.mark.parametrize("op", OPS)
def test_row_lengths(op, length):
    check(lambda t: op(t, 1), torch.randn(3, length), rtol=1e-5, atol=1e-6)
    check(lambda t: op(t, 0), torch.randn(length, 3), rtol=1e-5, atol=1e-6)
    half = torch.randn(2, length + length % 2).bfloat16()
    check(lambda t: op(t, 1), half, **NEAR[torch.bfloat16])
    sums = to_device(torch.randn(2, length)).softmax(1).sum(1).tolist()
    assert sums == pytest.approx([1, 1], rel=1e-5)


def test_many_rows():
    x = torch.randn(70001, 3)
    check(lambda t: t.softmax(1), x, rtol=1e-5, atol=1e-6)
    check(lambda t: t.log_softmax(0), x, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("op", OPS)
def test_extreme_values(op):
    inf, nan = float("inf"), float("nan")
    rows = [[1e4, -1e4, 9999.0], [-1e4, -1e4, -10001.0], [-inf, 0.0, 1.0], [-inf, -inf, -inf]]
    rows += [[inf, 0.0, 1.0], [inf, -inf, inf], [nan, 0.0, 1.0], [3e38, -3e38, 0.0]]
    check(lambda t: op(t, 1), torch.tensor(rows))
    check(lambda t: op(t, 0), torch.tensor(rows).t())


@pytest.mark.parametrize("op", OPS)
def test_gradients(op):
    for shape, dim in (((4, 7), 1), ((3, 5, 4), 1), ((2, 4099), 1), ((600, 3), 0)):
        x = torch.randn(shape, requires_grad=True)
        check_gradients(lambda t, dim=dim: op(t, dim), x, rtol=1e-4, atol=1e-5)
    half = torch.randn(4, 6).half().requires_grad_()
    check_gradients(lambda t: op(t, 1), half, rtol=5e-3, atol=5e-3)


def test_scalars_empty_and_dtype():
    for op in OPS:
        check(lambda t, op=op: op(t, 0), torch.tensor(2.0))
        check(lambda t, op=op: op(t, 0), torch.empty(0, 3))
        check(lambda t, op=op: op(t, 1, dtype=torch.float32), torch.randn(3, 4).half())
        check(lambda t, op=op: op(t, 1, dtype=torch.float32), torch.arange(6).reshape(2, 3))
        check_error(lambda t, op=op: op(t, 2), torch.randn(3, 4))


def test_out():
    x = torch.randn(4, 6)
    out = torch.zeros(6, 9, device=DEVICE)
    torch.softmax(to_device(x), 1, out=out[:, 1:5].t())
    expected = torch.zeros(6, 9)
    expected[:, 1:5] = x.softmax(1).t()
    torch.testing.assert_close(out.cpu(), expected)


def test_neighbours_of_half_rows_stay():
    storage = torch.full((2, 8), 7.0, dtype=torch.float16, device=DEVICE)
    view = storage[:, 1:6]
    torch.softmax(torch.zeros(2, 5, dtype=torch.float16, device=DEVICE), 1, out=view)
    assert storage[:, 0].tolist() == [7, 7]
    assert storage[:, 6:].flatten().tolist() == [7] * 4


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("length", [7, 64, 1000])  # alone, and in vectors that end in the row
def test_rows_that_are_not_finite(op, dtype, length):
    x = torch.randn(8, length)
    x[1, 5], x[2, 3], x[3, 0] = float("nan"), float("inf"), -float("inf")
    x[4] = -float("inf")
    x[5], x[6, 1:] = 1e4, -1e4
    check(lambda t: op(t, 1), x.to(dtype), **NEAR[dtype])

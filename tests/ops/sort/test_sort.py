"""Sorting, selection by rank, search in sorted rows, unique values, counting."""

import pytest
import torch
from common import (
    DEVICE,
    FLOATS,
    INTEGERS,
    assert_same,
    check,
    check_error,
    check_gradients,
    to_device,
)

REALS = [*FLOATS, *INTEGERS, torch.bool]
# Both sides of a block (1024) and of a power of two, and rows of several blocks.
LENGTHS = [1, 2, 3, 31, 64, 65, 1023, 1024, 1025, 2048, 5000]


def random_tensor(size, dtype=torch.float32):
    return torch.randn(size).mul(40).to(dtype)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("descending", [False, True])
def test_dtypes(dtype, descending):
    x = random_tensor((3, 1500), dtype)
    check(lambda x: x.sort(dim=-1, descending=descending, stable=True), x)
    check(lambda x: x[:, :70].t().sort(dim=0, descending=descending, stable=True), x)


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(length):
    x = random_tensor((3, length)).round()
    check(lambda x: x.sort(dim=-1, stable=True), x)
    check(lambda x: x.sort(dim=-1, stable=True, descending=True), x)


def test_dimensions():
    x = random_tensor((4, 6, 5))
    for dim in range(-3, 3):
        check(lambda x, dim=dim: x.sort(dim), x)
        check(lambda x, dim=dim: x.transpose(0, 2).sort(dim), x)
    check(torch.msort, x)
    check(lambda x: x.argsort(dim=1, stable=True), x)
    check(torch.sort, torch.tensor(3.0))
    check(torch.sort, torch.empty(0, 4))
    check(lambda x: x.sort(1), torch.empty(3, 0))


@pytest.mark.parametrize("length", [16, 3000])
def test_special_values(length):
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-42, -1e-42])
    x = special[torch.randint(0, 7, (length,))]
    for descending in (False, True):
        check(lambda x, d=descending: x.sort(stable=True, descending=d), x)
        moved, expected = (
            to_device(x).sort(descending=descending)[0],
            x.sort(descending=descending, stable=True)[0],
        )
        # Zeros keep their signs and their order.
        assert torch.equal(moved.cpu().signbit(), expected.signbit())


def test_64_bit_keys():
    x = torch.tensor([2**40, -(2**40), 2**32 + 1, 2**32, -1, 0, 2**63 - 1, -(2**63)])
    check(torch.sort, x)
    check(lambda x: x.repeat(300).sort(stable=True, descending=True), x)


@pytest.mark.parametrize("length", [5, 1000, 1025, 40_000])
@pytest.mark.parametrize("k", [1, 5, 300])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(length, k, largest):
    x = torch.stack([torch.randperm(length) for _ in range(2)]).float()
    check(lambda x: x.topk(min(k, length), largest=largest), x)


def test_topk_dimensions_and_errors():
    x = torch.randperm(120).view(4, 6, 5)
    check(lambda x: x.topk(3, 1), x)
    check(lambda x: x.transpose(0, 1).topk(0, 2), x)
    check(lambda x: x.int().topk(2, 0), x)
    check_error(lambda x: x.topk(7, 1), x)
    check_error(lambda x: x.kthvalue(7, 1), x)
    check_error(lambda x: x[:, :0].median(1), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_order_statistics(dtype):
    x = torch.randperm(124).view(4, 31).to(dtype)
    for name in ("median", "nanmedian"):
        check(getattr(torch, name), x)
        check(lambda x, name=name: getattr(torch, name)(x, 1), x)
        check(lambda x, name=name: getattr(torch, name)(x.t(), 0, True), x[:, :30])
    check(lambda x: x.kthvalue(7, 1), x)
    check(lambda x: x.kthvalue(2, 0, keepdim=True), x)
    check(torch.median, x[0, 0])


def test_median_of_nans():
    x = torch.randn(5, 6)
    x[1, 2] = x[1, 4] = x[3] = float("nan")
    check(lambda x: x.median(1).values, x)
    check(lambda x: x.median(1).indices[1], x)
    check(lambda x: x.nanmedian(1).values, x)
    check(torch.median, x)
    check(torch.nanmedian, x)


def test_mode():
    x = torch.randint(0, 5, (6, 40))
    for dim in (0, 1):
        check(lambda x, dim=dim: x.mode(dim).values, x)
        found = to_device(x).mode(dim, keepdim=True)
        assert_same(to_device(x).gather(dim, found.indices), found.values.cpu())
        out = (
            torch.empty(0, dtype=x.dtype, device=DEVICE),
            torch.empty(0, 1, device=DEVICE).long(),
        )
        torch.mode(to_device(x), dim, keepdim=True, out=out)
        assert_same(list(out), [found.values.cpu(), found.indices.cpu()])
    check_error(lambda x: torch.mode(x, out=(x.float(), x)), x)
    check_error(lambda x: torch.mode(x, out=(x.clone(), x.int())), x)
    values = torch.zeros(6, 2, dtype=x.dtype, device=DEVICE)[:, 1]
    torch.mode(to_device(x), 1, out=(values, torch.empty(0, dtype=torch.long, device=DEVICE)))
    assert_same(values, x.mode(1).values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
def test_searchsorted(dtype):
    rows = random_tensor((3, 50), dtype).sort(-1).values
    values = torch.cat([rows[:, ::7], random_tensor((3, 9), dtype)], 1)
    for right in (False, True):
        check(lambda r, v, right=right: torch.searchsorted(r, v, right=right), rows, values)
        check(
            lambda r, v, right=right: torch.bucketize(v, r[0], right=right, out_int32=True),
            rows,
            values,
        )
    check(lambda r: torch.searchsorted(r[0], 3), rows)
    check(lambda r: torch.searchsorted(r[0], 2.5, side="right"), rows)
    check(lambda r, v: torch.searchsorted(r, v.float()), rows, values)


def test_searchsorted_with_sorter():
    rows = torch.randn(3, 20)
    check(lambda r, o: torch.searchsorted(r, r, sorter=o), rows, rows.argsort(-1))
    check_error(lambda r: torch.searchsorted(r, r[:2]), rows)
    check_error(lambda r: torch.bucketize(r, r), rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.float16])
@pytest.mark.parametrize("size", [(0,), (1,), (60, 2), (3000,)])
def test_unique(dtype, size):
    x = torch.randint(-9, 9, size).to(dtype)
    check(lambda x: x.unique(return_inverse=True, return_counts=True), x)
    check(lambda x: x.unique(), x)
    check(lambda x: x.unique_consecutive(return_inverse=True, return_counts=True), x)


def test_unique_rows():
    x = torch.randint(0, 2, (30, 3, 2))
    for dim in (0, 1, 2):
        check(lambda x, d=dim: x.unique(dim=d, return_inverse=True, return_counts=True), x)
        check(
            lambda x, d=dim: x.unique_consecutive(dim=d, return_inverse=True, return_counts=True), x
        )


def test_isin():
    x = torch.randint(0, 50, (8, 9))
    check(torch.isin, x, torch.arange(3, 40, 7))
    check(torch.isin, x, torch.randint(0, 50, (100,)))
    check(torch.isin, x, x[:0])
    check(lambda x, t: torch.isin(x, t, invert=True), x, x[:0])
    check(torch.isin, x[:0], x)
    check(lambda x: torch.isin(x, 7), x)
    check(lambda x: torch.isin(x, x[:1], invert=True), x.float())


def test_counting():
    x = torch.randint(0, 30, (500,))
    check(torch.bincount, x)
    check(lambda x: torch.bincount(x, minlength=50), x)
    check(lambda x: torch.bincount(x, x.float()), x)
    check(lambda x: torch.bincount(x.to(torch.uint8)), x)
    check_error(lambda x: torch.bincount(x - 1), x)
    values = torch.randint(-40, 40, (1000,)) / 8
    check(lambda v: torch.histc(v, 10), values)
    check(lambda v: torch.histc(v, 16, -4, 4), values)


def test_gradients():
    x = torch.randperm(60).view(6, 10).float().requires_grad_()
    check_gradients(lambda x: x.sort(1)[0], x)
    check_gradients(lambda x: x.topk(3, 0)[0], x)
    check_gradients(lambda x: x.median(1)[0], x)
    check_gradients(lambda x: x.kthvalue(4)[0], x)


def test_outputs_of_other_strides():
    x = to_device(random_tensor((4, 9)))
    values = torch.empty(9, 4, device=DEVICE).t()
    indices = torch.empty(9, 4, dtype=torch.int64, device=DEVICE).t()
    torch.sort(x, 1, out=(values, indices))
    assert_same(values, x.cpu().sort(1).values)
    torch.sort(x, 1, out=(x, indices))
    assert_same(x, values.cpu())


def test_mode_of_nans():
    """Each NaN is a value of its own."""
    nan = torch.nan
    check(torch.mode, torch.tensor([nan, nan, nan, 2.0, 2.0]))
    check(lambda x: x.mode(1), torch.tensor([[nan], [1.0]]))
    rows = torch.tensor([[1.0, 1, nan, nan, nan], [0, 0, -1, -1, -1], [3, 3, 3, nan, nan]])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        check(lambda x: x.mode(1), rows.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("right", [False, True])
def test_search_among_nans(dtype, right):
    nan = torch.nan
    sought = torch.tensor([0.0, 1, 1.5, 2, 5, 8, torch.inf, nan], dtype=dtype)
    for row in ([1.0, 2, nan], [nan, 2, nan, 7], [nan, nan], [1, nan, 3, 4, 5, nan, 6]):
        boundaries = torch.tensor(row, dtype=dtype)
        check(lambda b, v: torch.searchsorted(b, v, right=right), boundaries, sought)
        check(lambda b, v: torch.bucketize(v, b, right=right, out_int32=True), boundaries, sought)
        order = torch.arange(len(row)).flip(0)
        check(
            lambda b, v, o: torch.searchsorted(b, v, right=right, sorter=o),
            boundaries,
            sought,
            order,
        )


def test_isin_in_float64(silent_fallbacks):
    x = torch.randint(0, 9, (5, 6)).double() / 3
    check(torch.isin, x, x[0])
    check(lambda x, t: torch.isin(x, t, invert=True), x, x[1].float())
    check(torch.isin, x[0].float(), x)
    assert silent_fallbacks()["aten::isin"]


def test_isin_among_nans():
    nan = torch.nan
    elements = torch.tensor([nan, 2.0, 3.0, torch.inf, 7.0, -1.0])
    for among in ([nan, 2.0, nan, 7.0], [nan], [torch.inf, nan, nan, nan]):
        check(torch.isin, elements, torch.tensor(among))
        check(lambda e, s: torch.isin(e, s, invert=True), elements, torch.tensor(among))


def test_unique_rows_with_nan():
    """Rows with NaN differ from all others; the others meet whatever lies between them. (On the CPU
    and with CUDA, that and the order depend on the algorithm.)"""
    nan = torch.nan
    rows = torch.tensor([[1.0, 2], [nan, 0], [0, nan], [0, 1], [nan, 0], [1, 2]])
    values, inverse, counts = torch.unique(
        rows.to(DEVICE), dim=0, return_inverse=True, return_counts=True
    )
    assert_same(values[inverse], rows)
    assert_same(values, torch.tensor([[0.0, 1], [0, nan], [1, 2], [nan, 0], [nan, 0]]))
    assert_same(counts, torch.tensor([1, 1, 2, 1, 1]))
    check(lambda x: torch.unique_consecutive(x, dim=0, return_inverse=True), rows)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_median_of_nothing(name, dtype):
    check(getattr(torch, name), torch.empty(0, dtype=dtype))
    check(getattr(torch, name), torch.empty(3, 0, 2, dtype=dtype))


@pytest.mark.parametrize(
    ("name", "arguments"), [("kthvalue", (1,)), ("median", ()), ("median", (0,)), ("mode", ())]
)
def test_complex_numbers_have_no_rank(name, arguments):
    x = torch.tensor([1 + 1j, 2 - 1j])
    for host in (x, to_device(x)):
        with pytest.raises(NotImplementedError, match=f"{name}.*not implemented for"):
            getattr(torch, name)(host, *arguments)

"""Factories: everything is computed on the device, and equals the CPU's."""

import pytest
import torch
from common import check, check_error

DEVICE = "webgpu"
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def compare(function, *args, **kwargs):
    expected = function(*args, **kwargs)
    got = function(*args, device=DEVICE, **kwargs)
    assert got.device.type == DEVICE
    torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize(
    "arguments", [(5,), (0,), (2, 11), (10, 1, -2), (0, 100, 7), (0.5, 9.7, 0.3), (-1, 1, 0.1)]
)
def test_arange(arguments, dtype):
    if dtype in INTEGERS and isinstance(arguments[-1], float) and abs(arguments[-1]) < 1:
        pytest.skip("a step of 0")
    if dtype == torch.uint8 and min(arguments) < 0:
        pytest.skip("negative")
    compare(torch.arange, *arguments, dtype=dtype)


def test_arange_keeps_the_digits():
    compare(torch.arange, 2**60, 2**60 + 1000, 3)
    compare(torch.arange, -(2**61), 2**61, 2**57)
    assert torch.equal(torch.arange(1_000_000, device=DEVICE).cpu(), torch.arange(1_000_000))
    # float32 cannot add these; both ends must be right
    for args in ((1e8, 1e8 + 1e5, 0.1), (0, 1, 1e-6), (-3e30, 3e30, 1e28), (1e-30, 1e-29, 1e-31)):
        expected = torch.arange(*args)
        got = torch.arange(*args, device=DEVICE).cpu()
        torch.testing.assert_close(got, expected, rtol=1.2e-7, atol=1e-7 * abs(args[0]))


def test_arange_into_views():
    base = torch.zeros(5, 4, dtype=torch.int8, device=DEVICE)
    torch.arange(5, out=base[:, 1])
    expected = torch.zeros(5, 4, dtype=torch.int8)
    torch.arange(5, out=expected[:, 1])
    assert torch.equal(base.cpu(), expected)
    odd = torch.full((11,), 9, dtype=torch.int8, device=DEVICE)
    torch.arange(6, out=odd[3:9])
    assert odd.cpu().tolist() == [9, 9, 9, 0, 1, 2, 3, 4, 5, 9, 9]
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        torch.arange(0, 1, 0, device=DEVICE)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "arguments", [(0, 1, 11), (-3.5, 7.25, 100), (5, -5, 7), (2, 3, 1), (2, 3, 0), (4, 4, 3)]
)
def test_linspace(arguments, dtype):
    expected = torch.linspace(*arguments, dtype=dtype)
    got = torch.linspace(*arguments, dtype=dtype, device=DEVICE).cpu()
    # The CPU rounds sums to halves now and then.
    largest = max(map(abs, arguments[:2]))
    torch.testing.assert_close(got, expected, rtol=0, atol=2 * torch.finfo(dtype).eps * largest)
    assert torch.equal(got[:1], expected[:1]) and torch.equal(got[-1:], expected[-1:])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "arguments", [(0, 10, 11), (0, 10, 4), (100, 3, 17), (7, 7, 3), (0, 1, 5), (3, 9, 1)]
)
def test_linspace_of_integers(arguments, dtype):
    compare(torch.linspace, *arguments, dtype=dtype)


@pytest.mark.parametrize("ends", [(0, 300), (-300, 0)])
def test_linspace_of_ends_that_do_not_fit(ends):
    errors = []
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError) as error:
            torch.linspace(*ends, 4, dtype=torch.int8, device=device)
        errors.append(str(error.value).splitlines()[0])
    assert errors[0] == errors[1]


def test_linspace_of_negative_integers():
    compare(torch.linspace, -10, 10, 7, dtype=torch.int64)
    # Exact here; the CPU's float64 falls short of some integers.
    got = torch.linspace(-(2**40), 2**41, 1001, dtype=torch.int64, device=DEVICE).cpu()
    exact = [-(2**40) + i * 3 * 2**40 / 1000 for i in range(1001)]
    assert max(abs(int(e) - g) for e, g in zip(exact, got.tolist(), strict=True)) <= 1
    assert got[250] == -(2**38)


def test_fills():
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        compare(torch.zeros, 3, 4, dtype=dtype)
        compare(torch.ones, 3, 4, dtype=dtype)
        compare(torch.full, (2, 3), 1, dtype=dtype)
        compare(torch.scalar_tensor, 3, dtype=dtype)
    x = torch.ones(4, 4, device=DEVICE)
    x[:, 1].zero_()
    assert x.cpu().sum() == 12
    assert torch.zeros_like(x).cpu().sum() == 0
    assert x.new_full((2,), 5.0).cpu().tolist() == [5, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_new_memory_is_filled_where_determinism_is_asked_for(dtype):
    def grown(x):
        return x.clone().resize_(7, 3)[2:]

    torch.use_deterministic_algorithms(True)
    try:
        check(grown, torch.ones(2, 3, dtype=dtype))
    finally:
        torch.use_deterministic_algorithms(False)


def test_item_of_nothing():
    check_error(torch.ops.aten._local_scalar_dense, torch.ones(0))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_linspace_over_the_whole_range(dtype):
    def element(first, last, steps, i):
        exact = first * (steps - 1) + (last - first) * i
        magnitude = abs(exact) // (steps - 1)  # rounded towards zero
        return magnitude if exact > 0 else -magnitude

    limits = torch.iinfo(dtype)
    for first, last in ((limits.min, limits.max), (limits.max, limits.min)):
        for steps in (2, 15):
            got = torch.linspace(first, last, steps, dtype=dtype, device=DEVICE).tolist()
            assert got == [element(first, last, steps, i) for i in range(steps)]


def test_logspace_of_one_step():
    compare(torch.logspace, 0, 1, 1)
    compare(torch.logspace, 2, 5, 1, base=2.0, dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("periodic", [False, True])
def test_kaiser_window(dtype, periodic):
    for length in (0, 1, 2, 3, 40):
        expected = torch.kaiser_window(length, periodic, 12.0, dtype=torch.float64).to(dtype)
        got = torch.kaiser_window(length, periodic, 12.0, dtype=dtype, device=DEVICE)
        torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
def test_randperm_of_every_dtype(dtype):
    drawn = torch.empty(0, dtype=dtype, device=DEVICE)
    torch.randperm(100, out=drawn)
    assert drawn.dtype == dtype and drawn.long().sort().values.tolist() == list(range(100))


def test_ends_that_half_types_do_not_have():
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.linspace(0, 1e9, 3, dtype=torch.float16, device=device)

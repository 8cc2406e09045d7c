"""Conversions between dtypes, exact bit for bit, and fills of every dtype."""

import pytest
import torch
from common import DEVICE, FLOATS, INTEGERS

# Denormals and ties of float32, its largest value, integer limits, and what is no number.
EDGES = [0.0, -0.0, 2.0**-150, 2.0**-149, 1.5 * 2.0**-149, 3.4028235677973366e38, 0.9999]
LIMITS = [2.0**31, -(2.0**31), -(2.0**31) - 1, 2.0**63, -(2.0**63), 1e300, 1e-320]
SPECIAL = [float("inf"), float("-inf"), float("nan")]
SPREAD = torch.randn(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
SPREAD *= 10.0 ** torch.arange(-50, 50, dtype=torch.float64).repeat(200)
FLOAT64 = torch.cat([SPREAD, torch.tensor([*EDGES, *LIMITS, *SPECIAL], dtype=torch.float64)])
DTYPES = [*FLOATS, torch.float64, *INTEGERS, torch.bool, torch.complex64]


def assert_same(actual, expected):
    actual = actual.cpu()
    assert actual.dtype == expected.dtype
    if expected.is_complex():
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    same = actual == expected
    if expected.is_floating_point():
        same |= actual.isnan() & expected.isnan()
    assert same.all(), (actual[~same][:5], expected[~same][:5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32, torch.bool])
def test_from_float64(dtype):
    assert_same(FLOAT64.to("webgpu").to(dtype), FLOAT64.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_to_float64(dtype):
    source = torch.arange(-40, 40).to(dtype)
    if dtype == torch.int64:
        source = torch.cat([source, torch.tensor([2**63 - 1, -(2**63), 2**53 + 1, 2**54 + 3])])
    assert_same(source.to("webgpu").to(torch.float64), source.to(torch.float64))


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_every_pair(source, target):
    values = torch.arange(0, 117).to(source)
    assert_same(values.to("webgpu").to(target), values.to(target))
    strided = values.reshape(9, 13).t()[1:, ::2]
    moved = values.to("webgpu").reshape(9, 13).t()[1:, ::2]
    assert_same(moved.to(target), strided.to(target))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32])
def test_unsigned(dtype):
    values = torch.randint(0, 2**16, (100,))
    assert_same(values.to("webgpu").to(dtype).to(torch.int64), values)
    assert_same(values.to(dtype).to("webgpu").float(), values.float())


FLOAT8 = [
    *(torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]


@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.parametrize("source", FLOAT8, ids=str)
def test_from_float8(source, target):
    values = torch.arange(256, dtype=torch.uint8).view(source)
    if not target.is_floating_point and target != torch.bool:
        whole = values.float()  # others have no value of their own as integers
        values = values[(whole == whole.round()) & (whole.abs() < 100)]
    assert_same(values.to("webgpu").to(target), values.to(target))


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", FLOAT8, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_to_float8(source, target):
    if source == torch.float16:
        values = torch.arange(-(2**15), 2**15).to(torch.int16).view(source)  # all there are
    elif source.is_floating_point or source.is_complex:
        eighths = torch.arange(256, dtype=torch.uint8).view(target).double()
        eighths = eighths[eighths.isfinite()]
        # Each number, those between two, where both are as near, and their neighbours.
        places = torch.cat([eighths, (eighths[1:] + eighths[:-1]) / 2, torch.tensor(SPECIAL)])
        values = torch.cat([places, places * (1 + 2**-20), places * (1 - 2**-20), SPREAD])
        values = values.to(source)
    else:
        values = torch.arange(-600, 70_000, 7).to(source)
    if target == torch.float8_e4m3fn:
        # Versions of PyTorch differ in what becomes of numbers that are too large.
        whole = values.to(torch.float64)
        values = values[(whole.abs() < 464) | whole.isnan()]
    actual, expected = values.to("webgpu").to(target), values.to(target)
    assert actual.dtype == target
    assert_same(actual.cpu().float(), expected.float())
    zeros = expected.float() == 0
    assert torch.equal(actual.cpu().float()[zeros].signbit(), expected.float()[zeros].signbit())


def test_float8_e4m3fn_has_no_infinity():
    values = torch.tensor([463.0, 464, 500, 1e30, float("inf")])
    values = torch.cat([values, -values])
    actual = values.to("webgpu").to(torch.float8_e4m3fn).to(torch.bfloat16)
    assert torch.equal(actual.cpu(), values.sign().bfloat16() * 448)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128, *FLOAT8], ids=str)
def test_fill(dtype):
    expected = torch.zeros(13, dtype=dtype)
    actual = torch.zeros(13, dtype=dtype, device="webgpu")
    for tensor in (expected, actual):
        tensor.fill_(1)
        tensor[3:8].fill_(2 if dtype != torch.bool else 0)
    assert torch.equal(actual.cpu().view(torch.uint8), expected.view(torch.uint8))


NARROW = [torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_fill_takes_and_refuses_what_the_cpu_does(dtype):
    info = torch.iinfo(dtype)
    for value in (info.max, info.min, -1, info.max + 1, info.min - 2**40, 2.5, float("nan"), 1e20):

        def fill(x, value=value):
            return x.fill_(value)

        def full(x, value=value):
            return torch.full((3,), value, dtype=x.dtype, device=x.device)

        for function in (fill, full):
            x = torch.zeros(3, dtype=dtype)
            try:
                expected = function(x)
            except RuntimeError:
                with pytest.raises(RuntimeError, match="cannot be converted to type"):
                    function(x.to("webgpu"))
            else:
                assert torch.equal(function(x.to("webgpu")).cpu(), expected)


@pytest.mark.parametrize("to", [torch.complex32, torch.complex128])
def test_complex_by_parts(to):
    z = torch.randn(4, 5, dtype=torch.complex64)
    for source in (z, z.t(), z.conj(), z.real, torch.arange(6)):
        moved = source.to("webgpu").to(to)
        assert_same(moved.to(torch.complex64), source.to(to).to(torch.complex64))
        assert moved.stride() == source.to(to).stride()
    target = torch.zeros(3, 4, 5, dtype=to, device="webgpu")
    target[1:] = z.to("webgpu")
    assert_same(target.real.float()[2], z.to(to).real.float())


@pytest.mark.parametrize("to", [torch.complex32, torch.complex128])
def test_complex_is_true_where_either_part_is(to):
    z = torch.tensor([0, 1, 1j, 1 + 1j, -0.0], dtype=to)
    assert_same(z.to("webgpu").bool(), z.bool())


def test_wider_outputs_hold_what_the_common_dtype_does():
    def outputs(device):
        big = torch.tensor([33000, 1000.5], dtype=torch.half, device=device)
        byte = torch.full((5,), 100, dtype=torch.int8, device=device)
        for dtype in (torch.float32, torch.float64, torch.int64, torch.complex64):
            out = torch.empty(0, dtype=dtype, device=device)
            if dtype != torch.int64:
                yield torch.add(big, big, out=out).clone()
            yield torch.mul(byte, byte, out=out.resize_(0))

    for actual, expected in zip(outputs("webgpu"), outputs("cpu"), strict=True):
        assert_same(actual, expected)


# Copies between two accelerators pass through the host; those that this machine has are tried.
OTHERS = [name for name in ("cuda", "mps", "xpu") if getattr(torch, name).is_available()]


@pytest.mark.parametrize("other", ["cpu", "meta", *OTHERS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_other_devices(other, dtype):
    host = torch.arange(24).view(4, 6).to(dtype)
    there = host.webgpu()[:, ::2].to(other)
    assert (there.device.type, there.dtype, tuple(there.shape)) == (other, dtype, (4, 3))
    if other == "meta":  # it has no values to compare, or to give back
        return
    assert torch.equal(there.cpu(), host[:, ::2])
    back = torch.zeros(3, 4, dtype=dtype, device="webgpu").t()
    back.copy_(host.to(other)[:, 1::2])
    assert torch.equal(back.cpu(), host[:, 1::2])


def test_any_byte_but_zero_is_true():
    """Bytes seen as truth values by view(dtype) need not be 0 and 1."""
    truth = torch.rand(7, 12) > 0.5
    number = torch.arange(84, device=DEVICE).view(7, 12)
    bytes_ = torch.randint(2, 255, (7, 12), dtype=torch.uint8).mul(truth).to(DEVICE)
    loose, strict = bytes_.view(torch.bool), truth.to(DEVICE)
    for function in (
        lambda x: x == strict,
        lambda x: x ^ x.flip(0),
        lambda x: ~x,
        lambda x: x.float(),
        lambda x: x.to(torch.uint8),
        lambda x: x.long().cumsum(1),
        lambda x: x.sum(),
        lambda x: x.sum(1),
        lambda x: x.any(0),
        lambda x: x.all(1),
        lambda x: x.amax(1),
        lambda x: x.cumsum(0),
        lambda x: torch.where(x, number, 0),
        lambda x: number.masked_fill(x, -1),
        lambda x: number[x],
        lambda x: x.nonzero(),
        lambda x: x.sort(dim=1, stable=True).values,
        lambda x: x.sort(dim=1, stable=True).indices,
        lambda x: x.unique(),
        lambda x: torch.cat([x, x.t().reshape(7, 12)]).sum(0),
        lambda x: x[:, ::2].logical_and(x[:, 1::2]),
        lambda x: torch.bincount(x.flatten().long()),
        lambda x: x.count_nonzero(1),
        lambda x: x.index_add(0, number[0, :2], x[:2]),
        lambda x: x.scatter_reduce(1, number[:, :1] * 0, x[:, :1], "sum"),
        lambda x: x.take(number).equal(strict),
        lambda x: x.equal(strict),
        lambda x: x.tril().sum(),
    ):
        actual, expected = function(loose), function(strict)
        if isinstance(actual, torch.Tensor):
            assert torch.equal(actual.cpu(), expected.cpu())
        else:
            assert actual == expected

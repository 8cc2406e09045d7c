"""Quantized tensors: making them, their values, views and copies."""

import copy

import pytest
import torch
from common import DEVICE, check_error, error_text, to_device

TYPES = [torch.qint8, torch.quint8, torch.qint32]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def assert_same(actual, expected):
    assert actual.device.type == DEVICE and actual.is_quantized
    assert actual.dtype == expected.dtype and actual.qscheme() == expected.qscheme()
    assert actual.stride() == expected.stride()
    assert torch.equal(actual.int_repr().cpu(), expected.int_repr())
    torch.testing.assert_close(actual.dequantize().cpu(), expected.dequantize())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("scale", "zero_point"), [(0.1, 3), (0.25, 0), (1.7, 100)])
def test_per_tensor(dtype, scale, zero_point):
    x = torch.randn(7, 11) * 20
    x[0, 0] = 1e6
    quantize = lambda t: torch.quantize_per_tensor(t, scale, zero_point, dtype)  # noqa: E731
    if dtype is torch.qint32:
        x[0, 0] = 1e5
    actual, expected = quantize(x.to(DEVICE)), quantize(x)
    assert actual.q_scale() == expected.q_scale()
    assert actual.q_zero_point() == expected.q_zero_point()
    assert_same(actual, expected)
    assert_same(quantize(x.to(DEVICE).t()), quantize(x.t()))
    assert_same(quantize(x.to(DEVICE)[:0]), quantize(x[:0]))


def test_parameters_in_tensors():
    x = torch.randn(30)
    scale, zero_point = torch.tensor(0.05), torch.tensor(7)
    quantize = lambda t, s, z: torch.quantize_per_tensor(t, s, z, torch.quint8)  # noqa: E731
    actual = quantize(x.to(DEVICE), scale.to(DEVICE), zero_point.to(DEVICE))
    assert_same(actual, quantize(x, scale, zero_point))
    dynamic = torch.quantize_per_tensor_dynamic(x.to(DEVICE), torch.qint8, False)
    assert_same(dynamic, torch.quantize_per_tensor_dynamic(x, torch.qint8, False))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_per_channel(dtype, axis):
    x = torch.randn(4, 5, 3)
    count = x.shape[axis]
    scales, zero_points = torch.rand(count) * 0.1 + 0.01, torch.arange(count) * 3
    moved = [t.to(DEVICE) for t in (x, scales, zero_points)]
    actual = torch.quantize_per_channel(*moved, axis, dtype)
    expected = torch.quantize_per_channel(x, scales, zero_points, axis, dtype)
    assert_same(actual, expected)
    assert actual.q_per_channel_axis() == axis
    assert torch.equal(actual.q_per_channel_scales().cpu(), expected.q_per_channel_scales())


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8])
@pytest.mark.parametrize("axis", [0, 1])
def test_per_channel_with_float_zero_points(dtype, axis):
    x = torch.randn(4, 5, 3)
    x[1, 1] = torch.tensor([0.0, 900.0, -900.0])
    count = x.shape[axis]
    scales, zero_points = torch.rand(count) * 0.1 + 0.01, torch.arange(count) * 3 + 0.3
    scales[0] = 0  # is taken for 1
    for host in (x, x.transpose(1, 2).contiguous().transpose(1, 2)):
        expected = torch.quantize_per_channel(host, scales, zero_points, axis, dtype)
        moved = [t.to(DEVICE) for t in (host, scales, zero_points)]
        actual = torch.quantize_per_channel(*moved, axis, dtype)
        assert actual.qscheme() == torch.per_channel_affine_float_qparams
        for one, other in (
            (actual, expected),
            (actual.cpu().to(DEVICE), expected),
            (expected.to(DEVICE), expected),
        ):
            assert_same(one, other)
            assert torch.equal(one.q_per_channel_zero_points().cpu(), zero_points)
        assert torch.equal(actual, expected.to(DEVICE))
        # qint32, of which the CPU's kernel ends the process.
        wide = torch.quantize_per_channel(*moved, axis, torch.qint32)
        shape = [count if d == axis else 1 for d in range(3)]
        scale, zero = scales.view(shape), zero_points.view(shape)
        inverse = torch.where(scale == 0, 1, 1 / scale)
        numbers = torch.round(host * inverse + zero).to(torch.int32)
        assert torch.equal(wide.int_repr().cpu(), numbers)
        torch.testing.assert_close(wide.dequantize().cpu(), (numbers - zero) * scale)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zero_point", [-200, 300, 1 << 31, -(1 << 31) - 1])
def test_zero_points_out_of_range(dtype, zero_point):
    given = torch.randn(2, 3), torch.ones(2), torch.tensor([3, zero_point]), 0, dtype
    if dtype is torch.qint32 and abs(zero_point) < 1 << 31:
        assert_same(
            torch.quantize_per_channel(*to_device(given)), torch.quantize_per_channel(*given)
        )
    else:
        check_error(torch.quantize_per_channel, *given)


def test_lists():
    x = [torch.randn(4), torch.randn(2, 3)]
    scales, zero_points = torch.tensor([0.1, 0.05]), torch.tensor([3, 0])
    quantize = lambda x, *at: torch.quantize_per_tensor(x, *at, torch.qint8)  # noqa: E731
    expected = quantize(x, scales, zero_points)
    actual = quantize([t.to(DEVICE) for t in x], scales.to(DEVICE), zero_points.to(DEVICE))
    for one, other in zip(actual, expected, strict=True):
        assert_same(one, other)
    for one, other in zip(torch.dequantize(actual), torch.dequantize(expected), strict=True):
        torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("dtype", [torch.quint4x2, torch.quint2x4])
def test_parts_of_bytes_are_refused(dtype):
    x = torch.randn(3, 4)
    host = torch.quantize_per_tensor(x, 0.1, 3, dtype)
    ones = torch.ones(3, device=DEVICE)
    for function in (
        lambda: torch.quantize_per_tensor(x.to(DEVICE), 0.1, 3, dtype),
        lambda: torch.quantize_per_channel(x.to(DEVICE), ones, ones, 0, dtype),
        lambda: host.to(DEVICE),
    ):
        with pytest.raises(NotImplementedError, match="webgpu has no kernels for QUInt"):
            function()


@pytest.mark.parametrize("dtype", TYPES)
def test_copies_and_views(dtype):
    x = torch.randn(6, 4)
    host = torch.quantize_per_tensor(x, 0.1, 3, dtype)
    device = torch.quantize_per_tensor(x.to(DEVICE), 0.1, 3, dtype)
    assert torch.equal(device.cpu().int_repr(), host.int_repr())
    assert device.cpu().q_scale() == host.q_scale()
    assert_same(host.to(DEVICE), host)
    assert_same(device.clone(), host.clone())
    assert_same(device.view(4, 6), host.view(4, 6))
    assert_same(device[2:], host[2:])
    assert_same(device.t(), host.t())
    made = torch._make_per_tensor_quantized_tensor(device.int_repr(), 0.1, 3)
    assert_same(made, host)


def test_dequantize_of_what_is_not_quantized():
    x = torch.randn(3, dtype=torch.float16, device=DEVICE)
    assert torch.equal(x.dequantize(), x.float())


def test_errors():
    check_error(lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), torch.ones(3).long())
    check_error(lambda t: torch.quantize_per_tensor(t, 0.1, 500, torch.qint8), torch.ones(3))


MOVES = {
    "flip": lambda q: q.flip(1),
    "flip of two": lambda q: q.flip([0, 3]),
    "rot90": lambda q: q.rot90(1, (2, 3)),
    "index_select": lambda q: q.index_select(0, torch.tensor([1, 0, 1], device=q.device)),
    "index": lambda q: q[torch.tensor([1, 0], device=q.device)],
    "mask": lambda q: q[q.dequantize() > 0],
    "cat": lambda q: torch.cat([q, q.clone()], 1),
    "stack": lambda q: torch.stack([q, q]),
    "unfold": lambda q: q.unfold(2, 2, 2),
    "repeat": lambda q: q.repeat(2, 1, 1, 1),
    "squeeze": lambda q: q[:1].squeeze(),
    "squeeze one": lambda q: q[:1].squeeze(0),
    "squeeze some": lambda q: q[:1].squeeze((0, 1)),
    "relu": lambda q: q.relu(),
    "relu_": lambda q: q.clone().relu_(),
    "min": lambda q: q.min(),
    "max": lambda q: q.max(),
    "fill_": lambda q: q.clone().fill_(0.5),
    "masked_fill": lambda q: q.masked_fill(q.dequantize() > 0, 0.52),
    "pad": lambda q: torch.nn.functional.pad(q, (1, 2)),
    "index_put_": lambda q: q.clone().index_put_(
        (torch.tensor([0], device=q.device),), torch.tensor(0.33, device=q.device)
    ),
    "copy of numbers": lambda q: q.clone().copy_(q.dequantize().neg()),
    "deep copy": copy.deepcopy,
}
POOLS = {
    "max_pool1d": lambda q: torch.nn.functional.max_pool1d(q[0], 2),
    "max_pool2d": lambda q: torch.nn.functional.max_pool2d(q, 3, stride=2, padding=1),
    "max_pool3d": lambda q: torch.nn.functional.max_pool3d(q.unsqueeze(0), 2),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [*MOVES, *POOLS])
def test_moving_and_ordering(name, dtype):
    if name in POOLS and dtype == torch.qint32:
        pytest.skip("the CPU has no reference")
    host = torch.quantize_per_tensor(torch.randn(2, 4, 6, 5), 0.1, 3, dtype)
    function = (MOVES | POOLS)[name]
    actual, expected = function(host.to(DEVICE)), function(host)
    assert actual.is_quantized and actual.dtype == expected.dtype
    assert actual.q_scale() == expected.q_scale()
    assert actual.q_zero_point() == expected.q_zero_point()
    assert torch.equal(actual.int_repr().cpu(), expected.int_repr())


def test_joining_other_parameters():
    parts = [torch.quantize_per_tensor(torch.randn(3, 2), s, 1, torch.qint8) for s in (0.1, 0.03)]
    assert_same(torch.cat([part.to(DEVICE) for part in parts]), torch.cat(parts))
    shuffled = torch.quantize_per_tensor(torch.rand(1, 4, 2, 2), 0.1, 3, torch.quint8)
    assert_same(torch.channel_shuffle(shuffled.to(DEVICE), 2), torch.channel_shuffle(shuffled, 2))


def test_equality():
    x = torch.randn(3, 4)
    scales, zeros = torch.rand(3) + 0.1, torch.zeros(3, dtype=torch.long)
    makers = [
        lambda scale: torch.quantize_per_tensor(x, scale, 0, torch.qint8),
        lambda scale: torch.quantize_per_channel(x, scales * scale, zeros, 0, torch.qint8),
    ]
    for make in makers:
        one, other = make(0.1).to(DEVICE), make(0.2).to(DEVICE)
        assert torch.equal(one, make(0.1).to(DEVICE))
        assert not torch.equal(one, other)
    assert not torch.equal(makers[0](0.1).to(DEVICE), makers[1](0.1).to(DEVICE))


def test_what_quantized_tensors_refuse():
    q = torch.quantize_per_tensor(torch.randn(3), 0.1, 3, torch.qint8)
    channels = torch.quantize_per_channel(
        torch.randn(3, 2), torch.ones(3), torch.zeros(3).long(), 0, torch.qint8
    )
    one = torch.zeros(1, dtype=torch.long)
    for function, tensor in (
        (lambda t: torch.zeros(3, device=t.device).copy_(t), q),
        (lambda t: t.copy_(torch.zeros(3, device=t.device, dtype=torch.float16)), q),
        (lambda t: t.index_put_((one.to(t.device),), t[:1]), q),
        (lambda t: t.index_put_((one.to(t.device),), t[:1].dequantize(), accumulate=True), q),
        (lambda t: torch.cat([t, t]), channels),
        (lambda t: t.index_put_((one.to(t.device),), t[:1].dequantize()), channels),
    ):
        assert error_text(function, tensor.to(DEVICE)) == error_text(function, tensor)
    with pytest.raises(RuntimeError, match="per tensor"):
        channels.to(DEVICE).flip(0)

"""Quantized tensors: making them, their values, views and copies."""

import pytest
import torch
from common import DEVICE, check_error

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

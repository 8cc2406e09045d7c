"""Convolutions of 3 x 3 taps by Winograd's algorithm, a row of the table of products."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE

import torch_webgpu
from torch_webgpu.wgsl import target

ROW = "convolution_winograd"
CHANNELS_LAST = {"first": torch.contiguous_format, "last": torch.channels_last}
# Images, channels, height, width, filters, padding.
CASES = [
    (2, 8, 8, 8, 8, 1),  # whole tiles
    (2, 16, 14, 10, 20, (1, 2)),
    (3, 4, 7, 9, 8, 0),
    (1, 4, 3, 3, 4, 0),  # one result
    (2, 12, 13, 16, 8, 2),
    (1, 8, 5, 4, 4, 3),  # the first tile begins in the padding
    (4, 64, 28, 28, 32, 1),
    # Software adapters evaluate many values in another way than few: those of one operand, of the
    # other one, of both.
    (1, 132, 4, 4, 132, 1),
    (1, 8, 184, 184, 8, 1),
    (1, 132, 46, 50, 132, 1),
]


def both(padding):
    return [padding, padding] if isinstance(padding, int) else list(padding)


def gradients(y, x, w, padding):
    options = ([1, 1], both(padding), [1, 1], False, [0, 0], 1, [True, True, False])
    return torch.ops.aten.convolution_backward(y, x, w, None, *options)[:2]


def given(images, channels, height, width, filters, padding):
    torch.manual_seed(0)
    x, w = torch.randn(images, channels, height, width), torch.randn(filters, channels, 3, 3)
    bias = torch.randn(filters)
    y = torch.randn(F.conv2d(x, w, padding=padding).shape)
    return x, w, bias, y


def assert_close(actual, expected, magnitude, depth):
    """Within some roundings of the largest sum of magnitudes."""
    bound = 4 * torch.finfo(torch.float32).eps * (depth + 4) ** 0.5 * magnitude.amax()
    assert ((actual.cpu().double() - expected).abs() <= bound).all()


@pytest.mark.parametrize("layout", CHANNELS_LAST)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_float64(case, layout, force):
    x, w, bias, y = given(*case)
    padding = case[-1]
    wide = [t.double() for t in (x, w, y)]
    sizes = [t.abs() for t in wide]
    force(ROW)
    last = {"memory_format": CHANNELS_LAST[layout]}
    moved, gradient = (t.to(DEVICE, **last) for t in (x, y))
    result = F.conv2d(moved, w.to(DEVICE), bias.to(DEVICE), padding=padding)
    assert result.is_contiguous(**last)
    expected = F.conv2d(wide[0], wide[1], bias.double(), padding=padding)
    magnitude = F.conv2d(sizes[0], sizes[1], padding=padding)
    assert_close(result, expected, magnitude, 9 * x.shape[1])
    actual = gradients(gradient, moved, w.to(DEVICE), padding)
    expected = gradients(wide[2], wide[0], wide[1], padding)
    magnitudes = gradients(sizes[2], sizes[0], sizes[1], padding)
    depths = 9 * w.shape[0], y[:, 0].numel()
    for one, other, magnitude, depth in zip(actual, expected, magnitudes, depths, strict=True):
        assert_close(one, other, magnitude, depth)


def test_mean_errors(force):
    """As large as those of the CPU's gradients of weights."""
    x, w, _, y = given(4, 64, 28, 28, 64, 1)
    x = x.relu()
    wide = [t.double() for t in (x, w, y)]
    expected = F.conv2d(wide[0], wide[1], padding=1), *gradients(wide[2], *wide[:2], 1)
    force(ROW)
    moved = [t.to(DEVICE) for t in (x, w, y)]
    found = F.conv2d(moved[0], moved[1], padding=1), *gradients(moved[2], *moved[:2], 1)
    for actual, other in zip(found, expected, strict=True):
        assert (actual.cpu().double() - other).norm() < 1.5e-6 * other.norm()


@pytest.mark.parametrize("layout", CHANNELS_LAST)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 1.5e38])
def test_what_is_not_finite_reaches_what_it_is_a_part_of(value, layout, force):
    """Nothing else in its tile, neither as it is nor by overflow of the points.

    Errors are relative to the largest element of a tile.
    """
    x, w, bias, y = given(2, 8, 9, 12, 4, 1)
    x, w, y = (t.clamp(-1, 1) for t in (x, w, y))  # so that no sum of two products overflows
    x[1, 3, 4, 6] = y[0, 2, 3, 5] = value
    last = {"memory_format": CHANNELS_LAST[layout]}
    moved, gradient = (t.to(DEVICE, **last) for t in (x, y))
    expected = F.conv2d(x, w, bias, padding=1), *gradients(y, x, w, 1)
    force(ROW)
    weight = w.to(DEVICE)
    result = F.conv2d(moved, weight, bias.to(DEVICE), padding=1)
    for actual, other in zip(
        (result, *gradients(gradient, moved, weight, 1)), expected, strict=True
    ):
        atol = 1e-5 * abs(value) if abs(value) < torch.inf else 1e-4
        torch.testing.assert_close(actual.cpu(), other, rtol=1e-4, atol=atol, equal_nan=True)


def test_weights_that_are_not_finite(force):
    """Their taps do not reach results where they lie in the padding."""
    x, w, _, _ = given(1, 8, 9, 9, 8, 1)
    is_special = torch.zeros(w.shape, dtype=torch.bool)
    is_special[3, 2, 0, 0] = is_special[5, 1, 2, 1] = True
    reached = F.conv2d(torch.ones_like(x), is_special.float(), padding=1) > 0.5
    w[3, 2, 0, 0], w[5, 1, 2, 1] = torch.inf, torch.nan
    force(ROW)
    result = F.conv2d(x.to(DEVICE), w.to(DEVICE), padding=1).cpu()
    expected = F.conv2d(x, w.masked_fill(is_special, 0), padding=1)
    assert torch.equal(result.isfinite(), ~reached)
    torch.testing.assert_close(result[~reached], expected[~reached], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", CHANNELS_LAST)
def test_tiles_are_stored_in_parts(layout, force):
    """Where bindings are small, all tiles are not stored at once, and sums go on."""
    x, w, bias, y = given(5, 8, 18, 21, 12, 1)
    expected = F.conv2d(x, w, bias, padding=1), *gradients(y, x, w, 1)
    last = {"memory_format": CHANNELS_LAST[layout]}
    force(ROW)
    moved, gradient, weight = x.to(DEVICE, **last), y.to(DEVICE, **last), w.to(DEVICE)
    before = torch.webgpu.stats()["dispatches"]
    with target(limits={"max_storage_binding_size": 300_000}):
        result = (
            F.conv2d(moved, weight, bias.to(DEVICE), padding=1),
            *gradients(gradient, moved, weight, 1),
        )
    assert torch.webgpu.stats()["dispatches"] - before > 12
    for actual, other in zip(result, expected, strict=True):
        torch.testing.assert_close(actual.cpu(), other, rtol=1e-4, atol=2e-4)


def fused(expression, second):
    statements = f"result.value = {expression};\nresult.second = {second};"
    return torch_webgpu._C.FusedConvolution(
        statements, ROW, stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=False,
        output_padding=[0, 0], groups=1,
    )  # fmt: skip


@pytest.mark.parametrize("width", [12, 9])
@pytest.mark.parametrize("layout", CHANNELS_LAST)
def test_fused_expressions(layout, width):
    x, w, bias, _ = given(2, 8, 10, width, 12, 1)
    value = F.conv2d(x.double(), w.double(), bias.double(), padding=1)
    e, f = torch.randn(value.shape), torch.randn(1, 12, 1, 1)
    moved = [t.to(DEVICE) for t in (x, w, bias, e, f)]
    out, second = (
        torch.empty(value.shape).to(DEVICE, memory_format=CHANNELS_LAST[layout]) for _ in range(2)
    )
    call = fused("max_f(value, -1.0) * e + f", "value - e")
    assert call.accepts(out, *moved[:2])
    call(out, *moved, second=second)
    torch.testing.assert_close(
        out.cpu().double(), value.clamp(min=-1) * e + f, rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(second.cpu().double(), value - e, rtol=1e-4, atol=1e-4)


def test_what_it_does_not_take(force):
    force(ROW)

    def refused(x, w, **options):
        with pytest.raises(NotImplementedError, match="does not take this product"):
            F.conv2d(x.to(DEVICE), w.to(DEVICE), **options)

    x, w = torch.ones(2, 8, 9, 9), torch.ones(8, 8, 3, 3)
    refused(x, w, stride=2)
    refused(x, w, dilation=2)
    refused(x, w[:, :4], groups=2)
    refused(x, w[:, :, :2])
    refused(x, torch.ones(8, 8, 5, 5))
    refused(x, w[:6])  # no group of four filters
    refused(x.half(), w.half())
    with pytest.raises(NotImplementedError):
        F.conv3d(torch.ones(1, 8, 4, 4, 4).to(DEVICE), torch.ones(8, 8, 1, 3, 3).to(DEVICE))


def test_operands_larger_than_a_binding_take_other_rows():
    x, w, bias, y = given(1, 16, 64, 64, 16, 1)
    expected = F.conv2d(x, w, bias, padding=1), *gradients(y, x, w, 1)
    moved = [t.to(DEVICE) for t in (x, w, bias, y)]
    for bytes_of_binding, buffers in ((140_000, 8), (100_000, 10), (200_000, 8)):
        limits = {"max_storage_binding_size": bytes_of_binding, "max_storage_buffers": buffers}
        with target(limits=limits):
            actual = F.conv2d(*moved[:3], padding=1), *gradients(moved[3], *moved[:2], 1)
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-3)


def test_it_is_taken_where_it_pays(force):
    for size, pays in ((28, True), (4, False)):
        x, w = torch.randn(2, 64, size, size).to(DEVICE), torch.randn(64, 64, 3, 3).to(DEVICE)
        force("")
        chosen = F.conv2d(x, w, padding=1)
        force(ROW)
        assert torch.equal(chosen, F.conv2d(x, w, padding=1)) == pays

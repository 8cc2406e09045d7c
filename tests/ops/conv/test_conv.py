"""Convolutions and their gradients against the CPU."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, check, check_error, check_gradients, error_text, to_device
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import torch_webgpu
from torch_webgpu import wgsl

pytestmark = pytest.mark.usefixtures("planned")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def run(function, tensors, device):
    """The result and the gradients of all tensors, in double on the CPU."""
    leaves = [t.detach().to(device).requires_grad_() for t in tensors]
    result = function(*leaves)
    weights = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape)
    gradients = torch.autograd.grad(result, leaves, weights.to(result))
    return [t.detach().cpu().double() for t in (result, *gradients)]


def check_all(function, *tensors, tolerance=1e-5):
    actual = run(function, tensors, DEVICE)
    expected = run(function, [t.double() for t in tensors], "cpu")
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        scale = other.abs().max().clamp(min=1.0) if other.numel() else 1.0
        torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=tolerance)


CASES = {
    "plain": {},
    "strided": {"stride": 2},
    "padded": {"padding": 1},
    "dilated": {"padding": (2, 1), "dilation": 2},
    "uneven": {"stride": (2, 3), "padding": (1, 0)},
    "grouped": {"groups": 2, "padding": 1},
    "depthwise": {"groups": 6, "padding": 1},
    "same": {"padding": "same"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("bias", [False, True])
def test_conv2d(options, bias):
    x = torch.randn(2, 6, 9, 11)
    w = torch.randn(12, 6 // options.get("groups", 1), 3, 2)
    tensors = [x, w, torch.randn(12)] if bias else [x, w]
    check_all(lambda *t: F.conv2d(*t, **options), *tensors)


TRANSPOSED = {
    "plain": {},
    "strided": {"stride": 2, "output_padding": 1},
    "dilated": {"stride": 3, "padding": 1, "dilation": 2, "output_padding": (2, 0)},
    "grouped": {"groups": 2, "padding": 1},
}


@pytest.mark.parametrize("options", TRANSPOSED.values(), ids=TRANSPOSED)
def test_conv_transpose2d(options):
    w = torch.randn(6, 4, 3, 3)
    bias = torch.randn(4 * options.get("groups", 1))
    check_all(lambda *t: F.conv_transpose2d(*t, **options), torch.randn(2, 6, 5, 7), w, bias)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda *t: F.conv1d(*t, stride=2, padding=1), [(2, 3, 20), (5, 3, 4), (5,)]),
        (lambda *t: F.conv_transpose1d(*t, stride=2), [(2, 3, 9), (3, 5, 4), (5,)]),
        (lambda *t: F.conv3d(*t, stride=2, padding=1), [(2, 3, 5, 6, 7), (5, 3, 2, 3, 3), (5,)]),
        (
            lambda *t: F.conv_transpose3d(*t, stride=2, output_padding=1),
            [(1, 3, 3, 4, 2), (3, 5, 2, 3, 3), (5,)],
        ),
        (F.conv2d, [(3, 6, 7), (4, 3, 3, 3), (4,)]),
        (F.conv2d, [(2, 40, 5, 5), (70, 40, 1, 1), (70,)]),
    ],
    ids=["1d", "transposed1d", "3d", "transposed3d", "unbatched", "1x1"],
)
def test_other_dimensions(function, shapes):
    check_all(function, *[torch.randn(shape) for shape in shapes])


# Sizes of x and the result's channels: groups of four and eight, rows that are none, one position.
POINTWISE = [
    ((3, 40, 8, 8), 36), ((2, 33, 7, 7), 70), ((1, 64, 6, 6), 64), ((3, 64, 14, 14), 132),
    ((5, 24, 1, 1), 48), ((2, 3, 9, 5), 1), ((4, 36, 5, 4), 40), ((2, 36, 6, 6, 4), 40),
    ((130, 32, 12), 32),
]  # fmt: skip


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("size", "channels"), POINTWISE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_one_tap(size, channels, dtype):
    """Products of plain matrices, where images lie apart or not."""
    dims = len(size) - 2
    function = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    x = torch.randn(size).to(dtype)
    w = (torch.randn(channels, size[1], *[1] * dims) / 4).to(dtype)
    last = (None, torch.channels_last, torch.channels_last_3d)[dims - 1]
    formats = [torch.contiguous_format] + ([last] if last else [])
    for of_x, of_w in itertools.product(formats, formats):
        tensors = x.to(memory_format=of_x), w.to(memory_format=of_w), torch.randn(channels)
        tolerance = max(1e-5, 4 * torch.finfo(dtype).eps)
        check_all(function, *[t.to(dtype) for t in tensors], tolerance=tolerance)
    check_all(lambda a, b: function(a[1:], b), x, w, tolerance=tolerance)
    check_all(lambda a, b: function(a, b, stride=2), x, w, tolerance=tolerance)


def test_one_tap_of_transposed_convolutions():
    x, w = torch.randn(3, 40, 6, 6), torch.randn(40, 36, 1, 1)
    check_all(F.conv_transpose2d, x, w, torch.randn(36))
    check_all(lambda *t: F.conv_transpose2d(*t, stride=2), x, w)
    check_all(lambda *t: F.conv_transpose2d(*t, groups=4), x, w)


def test_one_tap_of_views():
    x, w = torch.randn(3, 80, 12, 9), torch.randn(40, 40, 1, 1)
    check_all(lambda a, b: F.conv2d(a[1:, ::2], b), x, w)
    check_all(lambda a, b: F.conv2d(a[:, 40:].mT, b.transpose(0, 1)), x, w)
    check_all(lambda a, b: F.conv2d(a[:, :40, :1].expand(3, 40, 5, 9), b), x, w)


def test_long_sums_are_cut_into_pieces():
    check_all(
        lambda *t: F.conv2d(*t, padding=1), torch.randn(8, 3, 24, 24), torch.randn(4, 3, 3, 3)
    )
    check_all(F.conv2d, torch.randn(1, 200, 4, 4), torch.randn(3, 200, 3, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(dtype):
    # An output whose rows are whole words, and one whose rows are not.
    for width in (10, 9):
        tensors = [torch.randn(2, 4, 6, width), torch.randn(8, 4, 3, 3) / 6, torch.randn(8)]
        check_all(F.conv2d, *[t.to(dtype) for t in tensors], tolerance=4 * torch.finfo(dtype).eps)


def test_channels_last_is_kept():
    x = torch.randn(2, 6, 7, 8).to(memory_format=torch.channels_last)
    w = torch.randn(4, 6, 3, 3)
    for weight in (w, w.to(memory_format=torch.channels_last)):
        check_all(F.conv2d, x, weight)
    moved = x.to(DEVICE).requires_grad_()
    result = F.conv2d(moved, w.to(DEVICE))
    assert result.is_contiguous(memory_format=torch.channels_last)
    (gradient,) = torch.autograd.grad(result.sum(), moved)
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    v = w.to(DEVICE).requires_grad_()
    (gradient,) = torch.autograd.grad(F.conv2d(x.detach().to(DEVICE), v).sum(), v)
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    last3d = torch.randn(1, 4, 3, 4, 5).to(DEVICE, memory_format=torch.channels_last_3d)
    result = F.conv3d(last3d, torch.randn(2, 4, 2, 2, 2).to(DEVICE))
    assert result.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((2, 1, 40, 40, 32, (4, 4)), {"stride": 2, "padding": 1}),
        ((2, 3, 31, 38, 24, (7, 7)), {"stride": 2, "padding": 3}),
        ((2, 2, 24, 33, 16, (3, 5)), {"padding": (1, 2), "dilation": (2, 1)}),
    ],
    ids=str,
)
def test_few_channels_beside_images_with_channels_last(sizes, options, dtype):
    """The images with many channels are copied to contiguous lines, also those that are a part."""
    images, channels, height, width, filters, taps = sizes
    x = torch.randn(images, channels, height, width)
    w = torch.randn(filters, channels, *taps)
    many = F.conv2d(x, w, **options)
    for further in (0, 3):
        wide = torch.randn(images, filters + further, *many.shape[2:]).to(dtype)
        wide = wide.to(memory_format=torch.channels_last)
        for function, weight, how in (
            (F.conv_transpose2d, w.to(dtype), options),
            (F.conv2d, w.to(dtype).transpose(0, 1), {**options, "stride": 1}),
        ):
            expected = function(wide[:, :filters].double(), weight.double(), **how)
            actual = function(wide.to(DEVICE)[:, :filters], weight.to(DEVICE), **how)
            scale = expected.abs().max()
            tolerance = 4 * torch.finfo(dtype).eps if dtype == torch.float16 else 1e-5
            error = (actual.cpu().double() - expected).abs().max() / scale
            assert error < tolerance


def test_views():
    x, w = torch.randn(3, 12, 20, 9), torch.randn(8, 12, 3, 3)
    check_all(lambda a, b: F.conv2d(a[1:, ::2, 1::2].mT, b[::2, 1::2].mT), x, w)
    # A gradient without memory of its own (sum's is expanded).
    moved = x.to(DEVICE).requires_grad_()
    (gradient,) = torch.autograd.grad(F.conv2d(moved, w.to(DEVICE)).sum(), moved)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(F.conv2d(x, w).sum(), x)
    torch.testing.assert_close(gradient.cpu(), expected)


def test_integers_and_complex_numbers():
    x, w = torch.randint(-99, 99, (2, 3, 6, 7)), torch.randint(-99, 99, (4, 3, 2, 3))
    check(F.conv2d, x, w)
    x, w = (torch.randn(s, dtype=torch.complex64) for s in [(1, 3, 6, 6), (2, 3, 3, 3)])
    check(F.conv2d, x, w)


def test_double_backward():
    def penalty(x, w):
        result = F.conv2d(x, w, stride=2, padding=1)
        gradients = torch.autograd.grad(result.square().sum(), (x, w), create_graph=True)
        return sum(g.square().sum() for g in gradients)

    check_all(penalty, torch.randn(2, 4, 5, 5) / 4, torch.randn(6, 4, 3, 3) / 4)


def test_empty():
    w = torch.randn(2, 3, 3, 3).to(DEVICE)
    x = torch.randn(0, 3, 5, 5).to(DEVICE).requires_grad_()
    result = F.conv2d(x, w)
    assert result.shape == (0, 2, 3, 3)
    result.sum().backward()
    assert x.grad.shape == x.shape


ERRORS = [
    ((1, 3, 5, 5), (2, 4, 3, 3), {}),
    ((1, 3, 2, 2), (2, 3, 3, 3), {}),
    ((1, 3, 5, 5), (2, 3, 3, 3), {"stride": 0}),
    ((1, 3, 5, 5), (2, 3, 3, 3), {"padding": -1}),
    ((1, 3, 5, 5), (3, 1, 3, 3), {"groups": 2}),
]


@pytest.mark.parametrize(("x", "w", "options"), ERRORS)
def test_errors_are_those_of_the_cpu(x, w, options):
    check_error(lambda a, b: F.conv2d(a, b, **options), torch.ones(x), torch.ones(w))


def test_type_errors_are_those_of_the_cpu():
    x, w = torch.ones(1, 3, 5, 5), torch.ones(2, 3, 3, 3)
    check_error(F.conv2d, x, w.long())
    check_error(F.conv2d, x.bool(), w.bool())
    check_error(F.conv2d, x, w, torch.ones(3))
    assert error_text(F.conv2d, *to_device((x, w)), torch.ones(2))[0] is RuntimeError


KINDS = [
    (F.conv1d, (2, 3, 6), (4, 3, 2)),
    (F.conv2d, (2, 3, 5, 6), (4, 3, 2, 3)),
    (F.conv3d, (1, 3, 3, 4, 3), (4, 3, 2, 1, 2)),
    (F.conv_transpose1d, (2, 3, 6), (3, 4, 2)),
    (F.conv_transpose2d, (2, 3, 5, 6), (3, 4, 2, 3)),
    (F.conv_transpose3d, (1, 3, 3, 4, 3), (3, 4, 2, 1, 2)),
]


@pytest.mark.parametrize(("function", "x", "w"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("elsewhere", ["x", "w", "bias", "parameters"])
def test_mixed_devices_are_refused(function, x, w, dtype, elsewhere):
    tensors = {name: torch.ones(s, dtype=dtype) for name, s in [("x", x), ("w", w), ("bias", 4)]}
    moved = ("w", "bias") if elsewhere == "parameters" else (elsewhere,)
    tensors.update({name: tensors[name].to(DEVICE) for name in moved})
    # The second text is for larger problems, which oneDNN would get.
    with pytest.raises(RuntimeError, match=r"to be on the same device|should be the same"):
        function(*tensors.values())


def test_a_module_on_the_device_refuses_host_input():
    for module in (torch.nn.Conv2d(1, 1, 1), torch.nn.ConvTranspose2d(1, 1, 1)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            module.to(DEVICE)(torch.ones(1, 1, 2, 2))


@pytest.mark.parametrize(("function", "x", "w"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_what_has_no_kernel_runs_on_the_cpu(function, x, w, dtype, silent_fallbacks):
    tensors = [torch.randn(s, dtype=dtype).requires_grad_() for s in (x, w, (4,))]
    check_gradients(lambda *t: function(*t, stride=2, padding=1).abs(), *tensors)
    counts = silent_fallbacks()
    assert counts["aten::convolution"] and counts["aten::convolution_backward"]


def test_double_backward_in_double(silent_fallbacks):
    def penalty(x, w):
        (gradient,) = torch.autograd.grad(F.conv2d(x, w).square().sum(), x, create_graph=True)
        return gradient.square().sum()

    tensors = [torch.randn(s, dtype=torch.float64) for s in [(2, 3, 5, 6), (4, 3, 2, 3)]]
    check_gradients(penalty, *[t.requires_grad_() for t in tensors])
    assert silent_fallbacks()["aten::convolution"]


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_random_geometries(data):
    def number(low, high):
        return data.draw(st.integers(low, high))

    groups = number(1, 3)
    shape = (number(1, 3), groups * number(1, 3), number(1, 12), number(1, 12))
    kernel = (groups * number(1, 3), shape[1] // groups, number(1, 4), number(1, 4))
    options = {
        name: (number(low, 3), number(low, 3))
        for name, low in [("stride", 1), ("padding", 0), ("dilation", 1)]
    }
    for d in range(2):
        span = options["dilation"][d] * (kernel[d + 2] - 1) + 1
        assume(shape[d + 2] + 2 * options["padding"][d] >= span)
    check_all(
        lambda x, w: F.conv2d(x, w, groups=groups, **options),
        torch.randn(shape),
        torch.randn(kernel),
    )


def with_nan(tensor, place):
    """A copy with NaN at one place, and infinity next to it in memory order."""
    changed = tensor.clone()
    changed.view(-1)[place % changed.numel()] = torch.nan
    changed.view(-1)[(place + 1) % changed.numel()] = torch.inf
    return changed


def reached(function, one, other):
    """Where the result has a term with what is not finite in `one` or in `other`."""
    marks = [torch.isfinite(t.float()).logical_not().float() for t in (one, other)]
    ones = [torch.ones_like(mark) for mark in marks]
    return (function(marks[0], ones[1]) + function(ones[0], marks[1])) > 0.5


NOT_FINITE = [
    (F.conv1d, (2, 4, 9), (6, 4, 3), {"padding": 2, "stride": 2}),
    (F.conv2d, (1, 1, 4, 4), (1, 1, 3, 3), {"padding": 1}),
    (F.conv2d, (2, 6, 5, 6), (10, 3, 3, 2), {"padding": 2, "dilation": 2, "groups": 2}),
    (F.conv2d, (2, 40, 9, 9), (40, 40, 3, 3), {"padding": 1}),
    (F.conv3d, (1, 3, 3, 4, 4), (4, 3, 2, 3, 2), {"padding": 1, "stride": (1, 2, 3)}),
    (F.conv2d, (2, 8, 6, 5), (8, 4, 3, 3), {"padding": 1, "groups": 2}),
    (F.conv_transpose2d, (1, 8, 4, 4), (8, 8, 3, 3), {"stride": 2}),
    (F.conv_transpose1d, (2, 4, 5), (4, 3, 3), {"stride": 2, "padding": 1}),
    (F.conv_transpose2d, (1, 1, 4, 4), (1, 1, 3, 3), {"stride": 3}),
    (F.conv_transpose2d, (1, 1, 4, 4), (1, 1, 3, 3), {}),
    (F.conv_transpose2d, (2, 6, 4, 5), (6, 5, 3, 3), {"stride": 2, "dilation": 3, "groups": 2}),
    (F.conv_transpose2d, (2, 40, 5, 5), (40, 40, 3, 3), {"stride": 2, "output_padding": 1}),
    (F.conv_transpose3d, (1, 3, 2, 3, 3), (3, 4, 2, 3, 2), {"stride": 2}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", range(len(NOT_FINITE)))
def test_what_is_not_finite_reaches_what_it_is_a_part_of(case, dtype):
    check_not_finite(case, dtype)


IN_GROUPS = [case for case, (_, x, w, _) in enumerate(NOT_FINITE) if not (x[1] % 8 or w[1] % 4)]


@pytest.mark.parametrize("case", IN_GROUPS)
def test_what_is_not_finite_in_groups_of_channels(case, force):
    force("convolution_registers")
    check_not_finite(case, torch.float32)


# Sizes of x and of the weight, options: strides with and without a factor in common with the
# dilation, phases of x without taps, sizes that the stride does not divide, padding beyond taps.
PHASES = [
    ((2, 8, 12, 14), (12, 8, 3, 3), {"stride": 2, "padding": 1}),
    ((9, 8, 11, 13), (20, 8, 5, 4), {"stride": (2, 3), "padding": (4, 0), "dilation": (3, 2)}),
    ((3, 5, 11, 15), (8, 5, 1, 1), {"stride": 2}),
    ((5, 16, 9, 16), (16, 8, 3, 2), {"stride": (4, 2), "dilation": 2, "padding": 3, "groups": 2}),
    ((8, 4, 37), (8, 4, 6), {"stride": 3, "padding": 2}),
    ((4, 4, 22, 23), (8, 4, 4, 3), {"stride": (4, 3), "padding": 5, "dilation": (6, 9)}),
    ((2, 4, 7, 6, 9), (8, 4, 3, 2, 3), {"stride": 2, "padding": (1, 0, 1)}),
    ((2, 8, 5, 4), (8, 8, 2, 2), {"stride": 2}),  # few positions: not by phases
]


@pytest.mark.parametrize("case", range(len(PHASES)))
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_phases_of_strided_input_gradients(case, last, force):
    size, weight, options = PHASES[case]
    dims = len(size) - 2
    layout = (None, torch.channels_last, torch.channels_last_3d)[dims - 1] if last else None
    x, w = torch.randn(size), torch.randn(weight)
    function = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    wide = x.double().requires_grad_()
    result = function(wide, w.double(), **options)
    weights = torch.randn(result.shape)
    (expected,) = torch.autograd.grad(result, wide, weights.double())
    leaf = x.to(DEVICE, memory_format=layout or torch.contiguous_format).requires_grad_()
    result = function(leaf, w.to(DEVICE), **options)
    force("convolution_registers")
    (actual,) = torch.autograd.grad(result, leaf, weights.to(DEVICE))
    scale = expected.abs().max()
    torch.testing.assert_close(actual.cpu().double() / scale, expected / scale, rtol=0, atol=1e-5)


def check_not_finite(case, dtype):
    """Neither padding nor what lies between the elements of a strided input is multiplied. (The
    CPU does so too in some dtypes and sizes; not in float32 here.)"""
    function, x_shape, w_shape, options = NOT_FINITE[case]
    run = lambda *t: function(*t, **options)  # noqa: E731
    x, w = torch.ones(x_shape, dtype=dtype), torch.ones(w_shape, dtype=dtype)
    y = torch.ones_like(run(x.float(), w.float())).to(dtype)
    on_device = [t.to(DEVICE) for t in (x, w, y)]
    for place in (0, 4, x.numel() // 2):
        for what, (one, other) in {
            "x": (with_nan(x, place), w),
            "w": (x, with_nan(w, place)),
        }.items():
            found = run(one.to(DEVICE), other.to(DEVICE)).isfinite().logical_not().cpu()
            assert torch.equal(found, reached(run, one, other)), what
        # By the weight, and by the input: both are products with the gradient.
        weight = with_nan(w, place).to(DEVICE)
        x_in = on_device[0].clone().requires_grad_()
        (found,) = torch.autograd.grad(run(x_in, weight), x_in, on_device[2])
        expected = reached(
            lambda g, k: torch.autograd.grad(run(a := x.float().requires_grad_(), k), a, g)[0],
            y,
            with_nan(w, place),
        )
        assert torch.equal(found.isfinite().logical_not().cpu(), expected)
        gradient = with_nan(y, place)
        w_in = on_device[1].clone().requires_grad_()
        (found,) = torch.autograd.grad(run(on_device[0], w_in), w_in, gradient.to(DEVICE))
        expected = reached(
            lambda g, a: torch.autograd.grad(run(a, k := w.float().requires_grad_()), k, g)[0],
            gradient,
            x,
        )
        assert torch.equal(found.isfinite().logical_not().cpu(), expected)


def test_one_tap_of_a_strided_transposed_convolution():
    w = torch.ones(1, 1, 3, 3)
    w[0, 0, 1, 2] = torch.nan
    result = F.conv_transpose2d(torch.ones(1, 1, 4, 4, device=DEVICE), w.to(DEVICE), stride=3)
    assert result.isnan().sum().item() == 16
    check(lambda x, w: F.conv_transpose2d(x, w, stride=3), torch.ones(1, 1, 4, 4), w)


def test_complex_products_reach_what_they_are_a_part_of():
    """Straight to the operator: convolutions of complex numbers are made of real ones above it."""
    w = torch.ones(33, 33, 3, dtype=torch.complex64)
    w[0, 0, 0] = torch.nan
    x = torch.ones(1, 33, 33, dtype=torch.complex64)
    result = torch.convolution(x.to(DEVICE), w.to(DEVICE), None, [3], [0], [1], True, [0], 1).cpu()
    expected = torch.zeros(1, 33, 99, dtype=torch.bool)
    expected[0, 0, ::3] = True
    assert torch.equal(result.isnan(), expected)
    assert (result[~expected] == 33).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_gradients_of_one_tap_with_a_stride(channels_last, dtype):
    """Of large images: a product without stride, of copies of the positions that the tap meets."""
    torch.manual_seed(0)
    cases = [
        (2, (28, 28), 32),
        ((2, 1), (29, 27), 32),
        (3, (31, 32), 32),
        ((1, 2), (40, 56), 16),
        (2, (48, 44), 10),
    ]
    for stride, size, channels in cases:
        x = torch.randn(4, channels, *size)
        w = torch.randn(6, channels, 1, 1)
        wide = [t.to(dtype).double().requires_grad_() for t in (x, w)]
        layout = torch.channels_last if channels_last else torch.contiguous_format
        moved = [t.to(dtype).to(memory_format=layout).to(DEVICE).requires_grad_() for t in (x, w)]
        expected = F.conv2d(*wide, stride=stride)
        gradient = torch.randn(expected.shape).to(dtype)
        expected.backward(gradient.double())
        result = F.conv2d(*moved, stride=stride)
        result.backward(gradient.to(DEVICE))
        actual = [(result, expected)]
        for one, other in zip(moved, wide, strict=True):
            assert one.grad.stride() == one.stride()
            actual.append((one.grad, other.grad))
        for one, wanted in actual:
            error = (one.detach().cpu().double() - wanted).abs().max()
            assert error <= wanted.abs().max() * (1e-5 if dtype == torch.float32 else 2e-3)


def test_gradients_of_one_tap_with_strides_in_three_dimensions():
    torch.manual_seed(0)
    for last in (torch.contiguous_format, torch.channels_last_3d):
        x, w = torch.randn(2, 8, 15, 18, 20), torch.randn(4, 8, 1, 1, 1)
        wide = [t.double().requires_grad_() for t in (x, w)]
        moved = [t.to(memory_format=last).to(DEVICE).requires_grad_() for t in (x, w)]
        expected = F.conv3d(*wide, stride=(2, 3, 2))
        expected.sum().backward()
        F.conv3d(*moved, stride=(2, 3, 2)).sum().backward()
        for one, other in zip(moved, wide, strict=True):
            torch.testing.assert_close(one.grad.cpu().double(), other.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("size", "stride"), [(8, 1), (14, 2)])
def test_single_small_images_use_a_whole_gpu(size, stride):
    """Fewer positions than a tile has columns: K is cut, or a few workgroups compute all of it."""
    x, w = torch.randn(1, 256, size, size), torch.randn(512, 256, 3, 3)
    expected = F.conv2d(x.double(), w.double(), None, stride, 1)
    tensors = to_device([x, w])
    with (
        wgsl.target(limits={"workgroups_to_fill": 2048}),
        wgsl.record() as dispatches,
    ):
        actual = F.conv2d(*tensors, None, stride, 1)
    sums = [d for d in dispatches if len(d.bindings) >= 3]
    assert max(math.prod(d.grid) for d in sums) >= 40
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [5, 7, 10, 11, 13])
def test_lines_of_halves_that_start_inside_words(width, dtype):
    """Neighbouring lines share words, whose halves different invocations store."""
    torch.manual_seed(0)
    x, w = torch.randn(2, 5, 7, width).to(dtype), torch.randn(5, 1, 3, 3).to(dtype)
    room = torch.full((x.numel() + 3,), 7.0, dtype=dtype, device=DEVICE)
    out = room[1:-2].view(x.shape)
    options = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False}
    torch_webgpu._C._force_product_strategy("convolution_few")
    try:
        torch.ops.aten.convolution.out(
            x.to(DEVICE), w.to(DEVICE), None, **options, output_padding=[0, 0], groups=5, out=out
        )
    finally:
        torch_webgpu._C._force_product_strategy("")
    expected = F.conv2d(x.double(), w.double(), padding=1, groups=5)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=2e-2, atol=2e-2)
    assert (room[[0, -2, -1]].cpu() == 7).all()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("to_fill", [1, 100_000])
@pytest.mark.parametrize("channels", [1, 3, 4, 9])
@pytest.mark.parametrize(
    ("dims", "kernel", "options"),
    [
        (1, 5, {"stride": 2, "padding": 1}),
        (1, 16, {"stride": 2, "padding": 7, "output_padding": 1}),
        (2, 7, {"stride": 2, "padding": 3, "output_padding": 1}),
        (2, 4, {"stride": (1, 2), "padding": (0, 1), "dilation": (3, 1)}),
        (2, 2, {"stride": 2, "groups": 2}),
        (3, 3, {"stride": (1, 2, 2), "padding": 1}),
    ],
)
def test_squares_of_positions(dims, kernel, options, channels, to_fill):
    """With and without slices of the channels, of which there are several chunks, and with weights
    that must not meet what is missing."""
    torch.manual_seed(0)
    groups = options.get("groups", 1)
    convolve = getattr(F, f"conv_transpose{dims}d")
    x = torch.randn(2, 24 * groups, *[11, 9, 6][:dims])
    w, bias = torch.randn(24 * groups, channels, *[kernel] * dims), torch.randn(channels * groups)
    torch_webgpu._C._force_product_strategy("convolution_few")
    try:
        with wgsl.target(limits={"workgroups_to_fill": to_fill}):
            for special in (None, torch.inf, torch.nan):
                if special is not None:
                    w.view(-1)[::331] = special
                expected = convolve(x.double(), w.double(), bias.double(), **options)
                actual = convolve(*to_device([x, w, bias]), **options)
                torch.testing.assert_close(
                    actual.cpu().double(), expected, rtol=1e-4, atol=1e-4, equal_nan=True
                )
    finally:
        torch_webgpu._C._force_product_strategy("")


@pytest.mark.parametrize(
    ("x_size", "w_size", "message"),
    [
        ((2, 4, 6, 0), (4, 1, 3, 5), "Only zero batch or zero channel inputs are supported"),
        ((2, 4, 6, 6), (4, 1, 0, 3), "kernel size should be greater than zero"),
    ],
)
def test_sizes_of_zero_are_refused(x_size, w_size, message):
    """Also where a program calls the operators themselves."""
    x, w = torch.randn(x_size, device=DEVICE), torch.randn(w_size, device=DEVICE)
    options = [1, 1], [3, 4], [1, 1], False, [0, 0], 4
    with pytest.raises(RuntimeError, match=message):
        F.conv2d(x, w, padding=(3, 4), groups=4)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.aten.convolution_overrideable(x, w, None, *options)
    y = torch.randn(2, 4, 9, 8, device=DEVICE)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.aten.convolution_backward_overrideable(y, x, w, *options, [True] * 3)
    assert torch.ones(2, device=DEVICE).sum().item() == 2

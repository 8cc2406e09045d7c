"""Depthwise convolutions of images whose channels are innermost, rows of the table of products."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import torch_webgpu

ROW, ROW_OF_WEIGHT = "convolution_depthwise", "convolution_depthwise_weight"
EPSILONS = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SIDES = st.integers(1, 17)


def last(tensor):
    return tensor.to(memory_format=torch.channels_last)


def convolve(x, w, bias, transposed, **options):
    function = F.conv_transpose2d if transposed else F.conv2d
    return function(x, w, bias, groups=x.shape[1], **options)


def results(device, x, w, bias, y, transposed, options, force=None):
    """The result, and the gradients of all. With `force` by the rows of this file alone."""
    force = force or (lambda name: None)
    force(ROW)
    leaves = [t.to(device).requires_grad_() for t in (x, w, bias)]
    result = convolve(*leaves, transposed, **options)
    inputs = torch.autograd.grad(result, [leaves[0], leaves[2]], y.to(device), retain_graph=True)
    force(ROW_OF_WEIGHT)
    weights = torch.autograd.grad(result, leaves[1], y.to(device))
    force("")
    return [t.detach().cpu() for t in (result, *inputs, *weights)]


def check(x, w, bias, y, transposed, options, force):
    actual = results(DEVICE, x, w, bias, y, transposed, options, force)
    exact = [t.double() for t in (x, w, bias, y)]
    expected = results("cpu", *exact, transposed, options)
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        error = (one.double() - other).abs().max() / other.abs().max().clamp(min=1.0)
        assert error < EPSILONS[x.dtype]


def tensors(sizes, taps, dtype, transposed, options):
    x = torch.randn(sizes).to(dtype)
    w = torch.randn(sizes[1], 1, *taps).to(dtype)
    y = torch.randn_like(convolve(x.float(), w.float(), None, transposed, **options)).to(dtype)
    return last(x), w, torch.randn(sizes[1]).to(dtype), last(y)


CONVOLUTIONS = {
    "images": st.integers(1, 3),
    "channels": st.sampled_from([8, 16, 24, 40, 72, 136]),
    "sides": st.tuples(SIDES, SIDES),
    "taps": st.tuples(st.integers(1, 7), st.integers(1, 7)),
    "stride": st.tuples(st.integers(1, 2), st.integers(1, 2)),
    "padding": st.tuples(st.integers(0, 4), st.integers(0, 4)),
    "dtype": st.sampled_from(list(EPSILONS)),
    "transposed": st.booleans(),
}


def check_against_float64(images, channels, sides, taps, stride, padding, dtype, transposed):
    for side, step, tap, pad in zip(sides, stride, taps, padding, strict=True):
        of_result = (side - 1) * step - 2 * pad + tap if transposed else side + 2 * pad - tap + 1
        assume(of_result > 0)
    options = {"stride": stride, "padding": padding}
    given_tensors = tensors((images, channels, *sides), taps, dtype, transposed, options)
    check(*given_tensors, transposed, options, torch_webgpu._C._force_product_strategy)


# Each example compiles three kernels.
@settings(max_examples=3, deadline=None)
@given(**CONVOLUTIONS)
def test_against_float64(**convolution):
    check_against_float64(**convolution)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(**CONVOLUTIONS)
def test_more_against_float64(**convolution):
    check_against_float64(**convolution)


def test_many_positions_are_cut_into_pieces(force):
    options = {"padding": 1}
    check(*tensors((3, 8, 90, 110), (3, 3), torch.float32, False, options), False, options, force)


def test_output_padding(force):
    options = {"stride": 2, "padding": 1, "output_padding": 1}
    check(*tensors((2, 16, 6, 7), (3, 3), torch.float16, True, options), True, options, force)


@pytest.mark.parametrize("taken", ["lines", "columns", "channels", "images"])
def test_parts_of_images(taken, force):
    part = {
        "lines": lambda t: t[:, :32, 3:12],
        "columns": lambda t: t[:, :32, :, 1:14],
        "channels": lambda t: t[:, 8:40],
        "images": lambda t: t[::2, :32],
    }[taken]
    whole = last(torch.randn(4, 48, 16, 18))
    w, bias = torch.randn(32, 1, 3, 3), torch.randn(32)
    force(ROW)
    actual = convolve(part(whole.to(DEVICE)), w.to(DEVICE), bias.to(DEVICE), False)
    expected = convolve(part(whole).double(), w.double(), bias.double(), False)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-5)


def test_channels_that_fill_no_vector_take_another_row():
    x, w = last(torch.randn(2, 6, 9, 9)), torch.randn(6, 1, 3, 3)
    actual = convolve(x.to(DEVICE), w.to(DEVICE), None, False, padding=1)
    expected = convolve(x, w, None, False, padding=1)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
def test_padding_is_not_multiplied(stride, transposed, force):
    """As in the kernel that multiplies one element at a time: zero times infinity would be NaN."""
    options = {"stride": stride, "padding": 2}
    x, w, bias, y = tensors((2, 16, 9, 10), (3, 5), torch.float32, transposed, options)
    x[0, 1, 0, 0] = x[1, 2, -1, -1] = torch.inf
    w[3, 0, 0, 0] = w[4, 0, 2, 4] = -torch.inf
    x[0, 5, 4, 4] = w[6, 0, 1, 2] = torch.nan
    y[0, 7, 0, 0] = y[1, 8, -1, -1] = torch.inf
    actual = results(DEVICE, x, w, bias, y, transposed, options, force)
    force("convolution_direct")
    expected = results(DEVICE, x, w, bias, y, transposed, options)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert all(t.isfinite().float().mean() > 0.5 for t in expected)

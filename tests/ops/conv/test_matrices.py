"""float16 convolutions on subgroup matrices, two rows of the table of products."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, has_matrices

ROWS = "convolution_rows_f16"  # stages images once for all taps
GROUPS = "convolution_matrix_f16"
HAS_MATRICES = has_matrices()
needs_matrices = pytest.mark.skipif(not HAS_MATRICES, reason="the adapter has no subgroup matrices")
# Images, channels, height, width, filters, taps; options.
CASES = [
    ((2, 32, 14, 14, 64, (3, 3)), {"padding": 1}),  # a tile for each image
    ((5, 64, 3, 3, 64, (3, 3)), {"padding": 1}),  # many images in a tile
    ((3, 40, 9, 6, 72, (3, 3)), {}),  # half a block of channels
    ((1, 8, 5, 7, 8, (3, 3)), {"padding": 2}),
    ((2, 3, 20, 20, 65, (2, 4)), {"padding": (0, 3)}),
    ((9, 72, 8, 8, 96, (3, 2)), {"padding": (1, 0)}),
    ((2, 24, 56, 56, 16, (3, 3)), {"padding": 1}),  # tiles of lines
    ((2, 16, 13, 17, 16, (3, 3)), {"padding": 2, "dilation": (2, 1)}),
    ((2, 48, 7, 7, 32, (3, 3)), {"padding": 1, "groups": 2}),
    ((1, 16, 1, 300, 64, (1, 9)), {"padding": (0, 4)}),
]


def given(sizes, options, last):
    torch.manual_seed(0)
    images, channels, height, width, filters, taps = sizes
    x = torch.randn(images, channels, height, width).half()
    w = torch.randn(filters, channels // options.get("groups", 1), *taps).half()
    y = torch.randn_like(F.conv2d(x.float(), w.float(), **options)).half()
    if last:
        x, w, y = (t.to(memory_format=torch.channels_last) for t in (x, w, y))
    return x, w, torch.randn(filters).half(), y


def both(x, w, bias, y, options):
    """The result, and the gradient of x."""
    leaf = x.detach().requires_grad_()
    result = F.conv2d(leaf, w, bias, **options)
    return result.detach(), *torch.autograd.grad(result, leaf, y)


def on_device(tensors):
    return [t.to(DEVICE) for t in tensors]


def assert_near(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        error = (one.cpu().double() - other).abs().max() / other.abs().max()
        assert error < 2 * torch.finfo(torch.float16).eps


# Strides and further channels, of which the taps of a step of K are the same, are not in CASES.
STRIDED = [
    ((2, 64, 15, 18, 136, (3, 3)), {"stride": 2, "padding": 1}),
    ((3, 32, 12, 31, 200, (5, 4)), {"stride": (1, 2), "padding": (2, 0)}),
    ((2, 96, 14, 17, 160, (2, 3)), {"stride": (3, 2), "padding": 1, "dilation": (1, 2)}),
    ((2, 128, 9, 20, 320, (3, 3)), {"stride": 2, "padding": 1, "groups": 2}),
    ((2, 32, 20, 21, 144, (6, 5)), {"padding": 2}),  # 30 taps
    ((2, 32, 20, 21, 144, (8, 4)), {"padding": 2}),  # 32, which have no bit each
]


@needs_matrices
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(
    ("row", "case"),
    [(ROWS, case) for case in CASES] + [(GROUPS, case) for case in CASES[:8] + STRIDED],
    ids=str,
)
def test_against_float64(row, case, last, force):
    tensors = given(*case, last)
    expected = both(*(t.double() for t in tensors), case[1])
    force(row)
    assert_near(both(*on_device(tensors), case[1]), expected)


@needs_matrices
@pytest.mark.parametrize("taken", ["lines", "columns", "channels", "images"])
def test_parts_of_images(taken, force):
    x, w, bias, y = given((4, 48, 16, 18, 64, (3, 3)), {}, True)
    part = {
        "lines": lambda t: t[:, :32, 3:12, :],
        "columns": lambda t: t[:, :32, :, 1:14],
        "channels": lambda t: t[:, 5:37],
        "images": lambda t: t[::2, :32],
    }[taken]
    w = w[:, :32]
    y = y[: part(x).shape[0], :, : part(x).shape[2] - 2, : part(x).shape[3] - 2]
    expected = both(*(t.double() for t in (part(x), w, bias, y)), {})
    force(ROWS)
    assert_near(both(part(x.to(DEVICE)), *on_device((w, bias, y)), {}), expected)


@needs_matrices
def test_transposed_convolutions(force):
    x, w = torch.randn(2, 48, 10, 9).half(), torch.randn(48, 32, 3, 3).half()
    expected = F.conv_transpose2d(x.double(), w.double(), padding=1)
    force(ROWS)
    assert_near([F.conv_transpose2d(x.to(DEVICE), w.to(DEVICE), padding=1)], [expected])


@needs_matrices
@pytest.mark.parametrize(("row", "channels"), [(ROWS, 16), (GROUPS, 16), (GROUPS, 32)])
def test_padding_is_not_multiplied(row, channels, force):
    x, w = torch.randn(9, channels, 14, 14).half(), torch.randn(136, channels, 3, 3).half()
    w[3, 2, 0, 0], w[5, 1, 1, 1] = torch.inf, torch.nan
    x[0, 4, 0, 0] = -torch.inf
    results = []
    for forced in (row, "convolution_64"):
        force(forced)
        results.append(F.conv2d(x.to(DEVICE), w.to(DEVICE), padding=1).cpu())
    assert 0 < results[1].isfinite().sum() < results[1].numel()
    torch.testing.assert_close(*results, equal_nan=True, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "options",
    [{"stride": 2}, {"padding": 1, "dilation": 60}, {"groups": 4}],
    ids=["stride", "far apart", "parts of groups"],
)
def test_other_convolutions_are_refused(options, force):
    force(ROWS)
    x = torch.randn(1, 16, 140, 140, device=DEVICE, dtype=torch.half)
    w = torch.randn(16, 16 // options.get("groups", 1), 3, 3, device=DEVICE, dtype=torch.half)
    with pytest.raises(NotImplementedError, match="does not take this product"):
        F.conv2d(x, w, **options)


@pytest.mark.skipif(HAS_MATRICES, reason="the adapter has subgroup matrices")
def test_devices_without_matrices_do_not_take_it(force):
    force(ROWS)
    x, w, bias, _ = on_device(given(*CASES[0], False))
    with pytest.raises(NotImplementedError, match="does not take this product"):
        F.conv2d(x, w, bias, padding=1)

"""Resampling in every mode, with gradients."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, FLOATS, assert_same, check, check_error, check_gradients

SIZES = (7, 6, 5)
MODES = {
    1: ("nearest", "nearest-exact", "linear"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic", "bilinear-aa", "bicubic-aa"),
    3: ("nearest", "nearest-exact", "trilinear"),
}
CASES = [(dims, mode) for dims, modes in MODES.items() for mode in modes]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def options_of(mode):
    """Keyword arguments of interpolate, with corners aligned and not where there is a choice."""
    name, _, antialias = mode.partition("-aa")
    options = {"mode": name, "antialias": mode.endswith("-aa")}
    assert antialias == ""
    if name.startswith("nearest"):
        return [options]
    return [dict(options, align_corners=align) for align in (False, True)]


@pytest.mark.parametrize(("dims", "mode"), CASES)
def test_sizes(dims, mode):
    x = torch.randn(2, 3, *SIZES[:dims], requires_grad=True)
    for options in options_of(mode):
        for size in ((10, 6, 3), (14, 12, 10), (3, 2, 1), (1, 17, 4)):
            check_gradients(
                lambda t, s=size[:dims], o=options: F.interpolate(t, size=s, **o),
                x,
                rtol=1e-4,
                atol=1e-5,
            )


@pytest.mark.parametrize(("dims", "mode"), CASES)
@pytest.mark.parametrize("factor", [1.0, 1.7, 2.0, 0.6])
def test_factors(dims, mode, factor):
    x = torch.randn(1, 2, *SIZES[:dims], requires_grad=True)
    for options in options_of(mode):
        check_gradients(
            lambda t, o=options: F.interpolate(t, scale_factor=factor, **o), x, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", MODES[2])
def test_dtypes_and_memory_format(mode, dtype):
    if mode.endswith("-aa") and dtype != torch.float32:
        pytest.skip("the CPU has no reference")
    tolerance = (
        {"rtol": 3e-2, "atol": 3e-2} if dtype != torch.float32 else {"rtol": 1e-4, "atol": 1e-5}
    )
    x = torch.randn(2, 4, 6, 7).to(dtype).contiguous(memory_format=torch.channels_last)
    options = options_of(mode)[0]
    function = lambda t: F.interpolate(t, size=(9, 5), **options)  # noqa: E731
    check_gradients(function, x.requires_grad_(), **tolerance)
    assert function(x.detach().to("webgpu")).is_contiguous(memory_format=torch.channels_last)
    view = torch.randn(3, 15, 2, 9).to(dtype)[:, 1::2, :, 2:].permute(2, 0, 3, 1)
    check_gradients(function, view.detach().requires_grad_(), **tolerance)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_bytes_are_copied(mode):
    x = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8)
    check(lambda t: F.interpolate(t, size=(9, 4), mode=mode), x)


def test_empty_and_errors():
    empty = torch.empty(0, 3, 4, 4, requires_grad=True)
    check_gradients(lambda t: F.interpolate(t, size=8, mode="bilinear"), empty)
    x = torch.randn(1, 1, 4, 4)
    check_error(lambda t: torch.ops.aten.upsample_bilinear2d(t, [0, 2], False), x)
    check_error(lambda t: torch.ops.aten.upsample_nearest2d(t, [2]), x)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("factor", [1.1, 1.3, 2.01, 2.3])
def test_a_given_factor_counts_where_sizes_would_say_another(mode, dims, factor):
    """Sizes that stay or double although the factor is neither 1 nor 2."""
    x = torch.randn(2, 5, *(3, 6, 3)[:dims])
    check(lambda t: F.interpolate(t, scale_factor=factor, mode=mode), x)


@pytest.mark.parametrize("factor", [1.3, 2.3])
def test_the_gradient_of_nearest_is_that_of_its_result(factor):
    """As with CUDA. The CPU's takes no notice of the factor where sizes stay or double."""
    x = torch.arange(3.0).view(1, 1, 3)
    taken = F.interpolate(x, scale_factor=factor).long().flatten()
    moved = x.to(DEVICE).requires_grad_()
    weights = torch.linspace(0.5, 1.5, len(taken))
    F.interpolate(moved, scale_factor=factor).backward(weights.view(1, 1, -1).to(DEVICE))
    assert_same(moved.grad.flatten(), torch.zeros(3).index_add(0, taken, weights))


def test_an_infinite_cell_of_cubic_resampling():
    x = torch.zeros(1, 1, 3, 3)
    x[0, 0, 1, 1] = torch.inf
    for size in ((1, 5), (5, 5), (6, 3), (1, 1)):
        check(lambda t, s=size: F.interpolate(t, size=s, mode="bicubic"), x)

"""Sampling at coordinates, with gradients of the input and the coordinates."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from common import check, check_error, check_gradients

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def grid(*shape):
    """Coordinates inside and outside, away from the places where a gradient jumps."""
    return torch.rand(shape).mul(3.4).sub(1.7)


@pytest.mark.parametrize(("mode", "padding"), itertools.product(MODES, PADDINGS))
@pytest.mark.parametrize("align", [False, True])
def test_images(mode, padding, align):
    x = torch.randn(2, 3, 5, 6, requires_grad=True)
    check_gradients(
        lambda t, g: F.grid_sample(t, g, mode, padding, align),
        x,
        grid(2, 4, 7, 2).requires_grad_(),
        **TOLERANCE,
    )


@pytest.mark.parametrize(("mode", "padding"), itertools.product(MODES[:2], PADDINGS))
def test_volumes(mode, padding):
    x = torch.randn(2, 2, 4, 5, 6, requires_grad=True)
    for align in (False, True):
        check_gradients(
            lambda t, g, a=align: F.grid_sample(t, g, mode, padding, a),
            x,
            grid(2, 3, 2, 4, 3).requires_grad_(),
            **TOLERANCE,
        )


def test_strides_and_affine_grid():
    theta = torch.randn(2, 2, 3, requires_grad=True)
    x = torch.randn(5, 2, 6, 3).permute(1, 3, 0, 2)
    check_gradients(
        lambda t, a: F.grid_sample(t, F.affine_grid(a, (2, 3, 4, 4), False), align_corners=False),
        x.detach().requires_grad_(),
        theta,
        **TOLERANCE,
    )
    # The gradient of the coordinates alone.
    check_gradients(
        lambda t, g: F.grid_sample(t, g.transpose(1, 2), align_corners=True),
        x,
        grid(2, 3, 4, 2).requires_grad_(),
        **TOLERANCE,
    )


def test_unusual_coordinates():
    g = grid(1, 2, 2, 2)
    g[0, 0, 0] = 1e30
    g[0, 0, 1] = -1e30
    check_gradients(
        lambda t, c: F.grid_sample(t, c, align_corners=False),
        torch.randn(1, 2, 3, 3, requires_grad=True),
        g,
    )


def test_errors():
    x = torch.randn(1, 1, 3, 3)
    check_error(lambda t, g: F.grid_sample(t, g), x, grid(2, 2, 2, 2))
    check_error(lambda t, g: F.grid_sample(t, g), x, grid(1, 2, 2, 3))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("place", [torch.nan, torch.inf, -torch.inf, 1e20])
def test_places_that_are_not_finite(padding, place):
    """Cubic weights there are NaN, whatever the padding."""
    x = torch.ones(1, 1, 3, 3)
    grid = torch.tensor([[[[place, 0.0], [0.0, place], [place, 5.0], [0.1, 0.2]]]])
    for mode in ("bicubic", "nearest"):
        check(
            lambda x, g, m=mode: F.grid_sample(
                x, g, mode=m, padding_mode=padding, align_corners=False
            ),
            x,
            grid,
        )

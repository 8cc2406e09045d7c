"""Distances between sets of vectors; small linear algebra."""

import pytest
import torch
from common import DEVICE, assert_same, check, check_error, check_gradients

POWERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("p", POWERS)
def test_cdist(p):
    a = torch.randn(2, 1, 6, 5, requires_grad=True)
    b = torch.randn(3, 4, 5, requires_grad=True)
    check_gradients(lambda x, y: torch.cdist(x, y, p), a, b, **TOLERANCE)
    wide = torch.randn(5, 6)  # read across
    check(lambda x, y: torch.cdist(x.T, y, p), wide, torch.randn(7, 5), **TOLERANCE)


@pytest.mark.parametrize("p", POWERS)
def test_pdist(p):
    x = torch.randn(7, 3, requires_grad=True)
    check_gradients(lambda t: torch.pdist(t, p), x, **TOLERANCE)
    check_gradients(lambda t: torch.pdist(t[:, 1:], p), x, **TOLERANCE)


def test_distances_of_nothing():
    check(torch.cdist, torch.empty(0, 3), torch.empty(2, 3))
    check(torch.cdist, torch.empty(2, 0), torch.empty(3, 0))
    for shape in ((0, 3), (1, 3), (4, 0)):
        check(torch.pdist, torch.empty(shape))


def test_equal_vectors():
    x = torch.ones(3, 2, requires_grad=True)
    for p in POWERS:
        check_gradients(lambda t, p=p: torch.cdist(t, t.detach(), p), x)


def test_cross_trace_renorm_addr():
    a = torch.randn(4, 3, 5, requires_grad=True)
    b = torch.randn(1, 3, 5, requires_grad=True)
    check_gradients(lambda x, y: torch.linalg.cross(x, y, dim=1), a, b)
    check(torch.linalg.cross, *torch.randint(-9, 9, (2, 4, 3)))
    check(torch.trace, torch.randn(4, 6))
    for p in (1.0, 2.0, float("inf")):
        # Its gradient asks for norms in float64, on every device but CUDA.
        check(lambda x, p=p: torch.renorm(x, p, 1, 1.5), a.detach(), rtol=1e-5, atol=1e-5)
    m, u, v = (torch.randn(s, requires_grad=True) for s in ((3, 4), (3,), (4,)))
    check_gradients(lambda *t: torch.addr(*t, beta=0.5, alpha=2), m, u, v)
    nan = torch.full((3, 4), torch.nan)
    check(lambda *t: torch.addr(*t, beta=0), nan, u.detach(), v.detach())
    whole = torch.randint(-5, 5, (3, 4)), torch.randint(-5, 5, (3,)), torch.randint(-5, 5, (4,))
    check(lambda *t: torch.addr(*t, beta=2, alpha=3), *whole)


def test_errors():
    check_error(torch.cdist, torch.randn(2, 3), torch.randn(2, 4))
    check_error(torch.trace, torch.randn(3))


@pytest.mark.parametrize("values", [[torch.nan, 1.0, 2.0], [torch.inf, 1.0, torch.nan]])
def test_nan_as_cuda_has_it(values):
    """CUDA counts NaN as a difference for p = 0 and leaves it out for p = inf. The CPU's cdist and
    pdist differ from each other."""
    a, b = torch.tensor([values]), torch.tensor([[0.0, 1.0, 1.0]])
    difference = (a - b).abs()
    expected = {
        0.0: difference.ne(0).sum().float(),
        torch.inf: torch.where(difference.isnan(), 0, difference).max(),
    }
    for p, distance in expected.items():
        assert_same(torch.cdist(a.to(DEVICE), b.to(DEVICE), p), distance.view(1, 1))
        assert_same(torch.pdist(torch.cat([a, b]).to(DEVICE), p), distance.view(1))
    for p in (0.5, 1.0, 2.0, 3.0):
        check(lambda x, y, p=p: torch.cdist(x, y, p), a, b)
        check(lambda x, y, p=p: torch.pdist(torch.cat([x, y]), p), a, b)

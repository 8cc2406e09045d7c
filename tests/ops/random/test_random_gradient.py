"""Gradients of gamma and Dirichlet numbers by their parameters."""

import pytest
import torch
from common import DEVICE, check

special = pytest.importorskip("scipy.special")
stats = pytest.importorskip("scipy.stats")

SHAPES = [1e-3, 0.1, 0.5, 1.0, 2.5, 8.5, 30.0, 1e5]


def by_differences(lower, upper, density, parameter):
    """-(dF/da) / f in float64, by differences of the smaller tail."""
    step = 1e-5 * parameter

    def slope(tail):
        near = tail(parameter + step) - tail(parameter - step)
        far = tail(parameter + 2 * step) - tail(parameter - 2 * step)
        return (8 * near - far) / (12 * step)

    is_low = torch.from_numpy(lower(parameter)) < 0.5
    tails = [torch.as_tensor(slope(tail)) for tail in (lower, upper)]
    return torch.where(is_low, -tails[0], tails[1]) / torch.as_tensor(density)


@pytest.mark.parametrize("alpha", SHAPES)
def test_gamma(alpha):
    torch.manual_seed(1)
    a = torch.full((500,), alpha)
    x = torch._standard_gamma(a).clamp_min(1e-20)
    actual = torch._standard_gamma_grad(a.to(DEVICE), x.to(DEVICE)).cpu().double()
    at = x.double().numpy()
    expected = by_differences(
        lambda a: special.gammainc(a, at),
        lambda a: special.gammaincc(a, at),
        stats.gamma(a.double().numpy()).pdf(at),
        a.double().numpy(),
    )
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=0)
    check(torch._standard_gamma_grad, a, x, rtol=0.01, atol=0)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 3.0, 50.0, 1000.0])
@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0, 3.0, 50.0, 1000.0])
def test_dirichlet(alpha, beta):
    torch.manual_seed(2)
    a = torch.full((300,), alpha)
    total = a + beta
    x = torch.distributions.Beta(a, torch.full_like(a, beta)).sample().clamp(1e-12, 1 - 1e-5)
    actual = torch._dirichlet_grad(x.to(DEVICE), a.to(DEVICE), total.to(DEVICE)).cpu().double()
    at, b = x.double().numpy(), (total.double() - a.double()).numpy()
    expected = by_differences(
        lambda a: special.betainc(a, b, at),
        lambda a: special.betaincc(a, b, at),
        stats.beta(a.double().numpy(), b).pdf(at) * (1 - at),
        a.double().numpy(),
    )
    torch.testing.assert_close(actual, expected, rtol=2e-4, atol=0)
    check(torch._dirichlet_grad, x, a, total, rtol=0.01, atol=1e-6)


def test_shapes_dtypes_and_ends():
    a, x = torch.rand(4, 1) + 0.5, torch.rand(4, 5).mT.contiguous().mT + 0.1
    check(torch._standard_gamma_grad, a.expand(4, 5), x, rtol=0.01, atol=0)
    check(torch._standard_gamma_grad, a[:0], x[:0])
    ends = torch.tensor([0.0, -1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])
    assert torch._standard_gamma_grad(ends[0].to(DEVICE), ends[1].to(DEVICE)).tolist() == [0, 0, 0]
    for dtype in (torch.float16, torch.bfloat16):
        halves = [t.to(dtype) for t in (a.expand(4, 5), x)]
        actual = torch._standard_gamma_grad(*(t.to(DEVICE) for t in halves))
        expected = torch._standard_gamma_grad(*(t.float() for t in halves))
        assert actual.dtype == dtype
        torch.testing.assert_close(actual.float().cpu(), expected, rtol=0.02, atol=0.01)


def test_reparameterized_samples():
    """The mean of a Dirichlet is alpha / sum(alpha), and so is its gradient's."""
    torch.manual_seed(3)
    alpha = torch.tensor([0.5, 2.0, 4.0], device=DEVICE, requires_grad=True)
    distribution = torch.distributions.Dirichlet(alpha.expand(20000, 3))
    (actual,) = torch.autograd.grad(distribution.rsample()[:, 0].mean(), alpha)
    (expected,) = torch.autograd.grad(alpha[0] / alpha.sum(), alpha)
    torch.testing.assert_close(actual, expected, rtol=0.05, atol=0.005)
    (slope,) = torch.autograd.grad(
        torch._standard_gamma(alpha.expand(20000, 3)).mean(0).sum(), alpha
    )
    torch.testing.assert_close(slope, torch.ones_like(slope), rtol=0.1, atol=0)

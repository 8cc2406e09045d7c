"""Distributions that are drawn by rejection: gamma, Dirichlet, Poisson, binomial."""

import pytest
import torch
from common import DEVICE, check, check_error

stats = pytest.importorskip("scipy.stats")

COUNT = 50_001  # not a multiple of anything


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)  # a pass is not a matter of luck


def check_discrete_law(samples, law):
    observed = torch.bincount(samples.cpu().to(torch.int64))
    expected = law.pmf(range(len(observed))) * samples.numel()
    common = expected > 5
    error = (observed.numpy() - expected)[common]
    statistic = (error**2 / expected[common]).sum()
    assert stats.chi2(common.sum()).sf(statistic) > 1e-3
    assert observed.numpy()[~common].sum() < 0.01 * samples.numel() + 10


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0, 2.5, 40.0, 1e4])
def test_gamma(alpha):
    x = torch._standard_gamma(torch.full((COUNT,), alpha, device=DEVICE)).cpu()
    assert (x > 0).all()
    assert stats.kstest(x.double().numpy(), stats.gamma(alpha).cdf).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.1, 1.0, 9.5, 10.5, 60.0, 5000.0])
def test_poisson(rate):
    check_discrete_law(
        torch.poisson(torch.full((COUNT,), rate, device=DEVICE)), stats.poisson(rate)
    )


@pytest.mark.parametrize("n", [1, 20, 300, 20000])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.9])
def test_binomial(n, p):
    x = torch.full((COUNT,), float(n), device=DEVICE)
    check_discrete_law(torch.binomial(x, torch.full_like(x, p)), stats.binom(n, p))


def test_dirichlet():
    x = torch._sample_dirichlet(torch.tensor([0.5, 2.0, 3.0], device=DEVICE).expand(20000, 3)).cpu()
    torch.testing.assert_close(x.sum(1), torch.ones(20000))
    assert stats.kstest(x[:, 0].double().numpy(), stats.beta(0.5, 5).cdf).pvalue > 1e-3


def test_each_element_has_its_parameters():
    rates = torch.tensor([[0.0, 3.0, 50.0], [1000.0, 1e6, 1e7]])
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.poisson(rates.to(DEVICE, dtype).mT.expand(500, 3, 2))
        assert x.dtype == dtype and x.shape == (500, 3, 2)
        mean = x.float().mean(0).mT.cpu()
        torch.testing.assert_close(mean, rates, atol=0.5, rtol=0.01)
    n = torch.tensor([0.0, 5.0, float("nan"), 7.0, 1e5], device=DEVICE)
    p = torch.tensor([0.5, 1.0, 0.5, 0.0, 0.5], device=DEVICE)
    x = torch.binomial(n, p).tolist()
    assert x[:2] == [0, 5] and x[2] != x[2] and x[3] == 0 and 48000 < x[4] < 52000
    assert torch.poisson(rates[:0].to(DEVICE)).shape == (0, 3)


def test_the_generator_is_followed():
    alpha = torch.rand(100, device=DEVICE)
    for draw in (
        torch._standard_gamma,
        torch.poisson,
        torch._sample_dirichlet,
        lambda x, **options: torch.binomial(x * 40, x, **options),
    ):
        state = torch.webgpu.get_rng_state()
        first, second = draw(alpha), draw(alpha)
        assert not torch.equal(first, second)
        torch.webgpu.set_rng_state(state)
        assert torch.equal(draw(alpha), first)
        one, other = (
            draw(alpha, generator=torch.Generator(DEVICE).manual_seed(5)) for _ in range(2)
        )
        assert torch.equal(one, other)


def test_errors():
    check_error(lambda x: torch.poisson(x).cpu(), torch.tensor([1.0, -1.0]))
    check_error(lambda x: torch.binomial(x, x.float()), torch.tensor([1]))


def test_distributions():
    one = torch.tensor([1.5, 2.5], device=DEVICE)
    for law in (
        torch.distributions.Beta(one, one),
        torch.distributions.StudentT(one),
        torch.distributions.NegativeBinomial(one, one / 4),
        torch.distributions.Poisson(one),
    ):
        mean = law.sample((20000,)).mean(0)
        torch.testing.assert_close(mean, law.mean, atol=0.15, rtol=0.1)


def test_dirichlet_of_extreme_concentrations():
    # Too small for float32, all the mass is in one place, evenly often; zeros share.
    x = torch._sample_dirichlet(torch.full((3000, 3), 1e-4, device=DEVICE)).cpu()
    assert ((x > 0) & (x < 1)).all() and (x.amax(1) > 0.999).float().mean() > 0.95
    assert (x.argmax(1).bincount() - 1000).abs().max() < 120
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        zeros = torch._sample_dirichlet(torch.zeros(2, 3, device=DEVICE, dtype=dtype)).cpu()
        torch.testing.assert_close(zeros, torch.full((2, 3), 1 / 3, dtype=dtype))
    with_one = torch._sample_dirichlet(torch.tensor([0.0, 1.0, 0.0], device=DEVICE)).tolist()
    assert with_one[1] > 0.999999 and 0 < with_one[0] < 1e-30


def test_arguments():
    check_error(lambda x: torch.poisson(x).cpu(), torch.tensor([1.0, float("nan")]))
    check_error(lambda x: torch.poisson(x).cpu(), torch.tensor([1.0, -1.0]))
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64):
        x = torch.ones(3, dtype=dtype)
        check_error(torch.bernoulli, x)
        check_error(lambda p, x: x.bernoulli_(p), x, torch.ones(3))
    check_error(lambda x: x.bernoulli_(0.5), torch.ones(3, dtype=torch.complex64))
    for n, p in (((2, 1), (3,)), ((3,), (2, 3)), ((), (3,)), ((3,), ()), ((0, 3), (3,))):
        check(torch.binomial, torch.full(n, 5.0), torch.ones(p))
    check_error(torch.binomial, torch.full((2,), 5.0), torch.ones(3))

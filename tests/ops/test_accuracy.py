"""How near results in float32 are to float64's, at sizes and arguments where that is hard."""

import math

import pytest
import torch
from common import DEVICE, check
from torch.testing import assert_close

special = torch.special
INF = math.inf
NAN = math.nan


# ---- Long sums. The error of a tree grows with its depth: 3e7 elements stand for 1e8.


@pytest.fixture(scope="module")
def long_vector():
    """3e7 numbers around 1, and their sum in float64."""
    x = torch.rand(30_000_000)
    return x.to(DEVICE), x


def relative_error(actual, expected):
    return abs(actual.double().item() - expected) / abs(expected)


def test_long_reductions(long_vector):
    x, host = long_vector
    total = host.sum(dtype=torch.float64).item()
    assert relative_error(x.sum(), total) < 1e-6
    assert relative_error(x.mean(), total / host.numel()) < 1e-6
    assert relative_error(x.norm(), math.sqrt((host.double() ** 2).sum().item())) < 1e-6
    assert relative_error(x.var(), host.double().var().item()) < 1e-5
    assert (
        relative_error(x.view(3, -1).sum(1)[1], host.view(3, -1).double().sum(1)[1].item()) < 1e-6
    )
    assert (
        relative_error(x.view(-1, 3).sum(0)[1], host.view(-1, 3).double().sum(0)[1].item()) < 1e-6
    )
    assert relative_error(x.logsumexp(0), host.double().logsumexp(0).item()) < 1e-6


def test_a_sum_of_equal_elements():
    """Added up one after the other, these would stop at 2^24."""
    ones = torch.ones(1, device=DEVICE)
    assert ones.expand(40_000_000).sum().item() == 40_000_000
    assert ones.half().expand(60_000).sum().item() == 60_000
    assert ones.half().expand(40_000_000).mean().item() == 1
    assert ones.expand(2**24 + 2).cumsum(0)[-1].item() == 2**24 + 2


def test_moments_of_numbers_far_from_zero():
    x = torch.randn(100_000) + 1e4
    for keep in ({}, {"dim": 0}):
        assert_close(
            x.to(DEVICE).var(**keep).cpu().double(), x.double().var(**keep), rtol=1e-4, atol=0
        )
    assert_close(
        (x.view(100, -1).to(DEVICE).std(1)).cpu().double(),
        x.view(100, -1).double().std(1),
        rtol=1e-4,
        atol=0,
    )
    huge = torch.tensor([1e18, 2e18, 3e18, 5e18])
    check(torch.var, huge)
    check(torch.norm, torch.tensor([3e18, 4e18]))


# ---- Softmax


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_softmax_of_large_numbers(offset):
    x = torch.randn(50, 300) * 10 + offset
    double = x.double()
    assert_close(x.to(DEVICE).softmax(1).cpu().double(), double.softmax(1), atol=1e-7, rtol=1e-5)
    assert_close(x.to(DEVICE).softmax(0).cpu().double(), double.softmax(0), atol=1e-7, rtol=1e-5)
    # The result is as large as the differences, whatever the offset.
    assert_close(
        x.to(DEVICE).log_softmax(1).cpu().double(), double.log_softmax(1), atol=2e-5, rtol=1e-5
    )
    assert_close(
        x.to(DEVICE).logsumexp(1).cpu().double(), double.logsumexp(1), atol=1e-6, rtol=1e-6
    )
    assert_close(
        x.to(DEVICE).logcumsumexp(1).cpu().double(), double.logcumsumexp(1), atol=1e-5, rtol=1e-6
    )


def test_softmax_of_extremes():
    x = torch.tensor(
        [
            [1e4, -1e4, 0],
            [-INF, 0, 1],
            [-INF, -INF, -INF],
            [INF, 0, 1],
            [NAN, 0, 1],
            [3e38, -3e38, 3e38],
        ]
    )
    for function in (torch.softmax, torch.log_softmax, torch.logsumexp, torch.logcumsumexp):
        check(lambda t, f=function: f(t, 1), x)
        check(lambda t, f=function: f(t, 0), x.t().contiguous())


# ---- Functions over dense grids


def grid(low, high, count=20_011):
    return torch.linspace(low, high, count)


def powers(low, high, count=2_001):
    x = torch.logspace(low, high, count)
    return torch.cat([-x.flip(0), x])


# By ulp-like tolerance: relative to the result, and absolute where it passes through zero.
UNARY = [
    (torch.erf, grid(-6, 6), 1e-6, 1e-7),
    (torch.erf, powers(-30, 1), 1e-6, 0),
    (torch.erfc, grid(-4, 9), 4e-6, 1e-38),
    (torch.erfinv, grid(-0.99999, 0.99999), 4e-6, 1e-7),
    (torch.erfinv, powers(-30, -1), 4e-6, 0),
    (special.erfcx, grid(-5, 50), 1e-5, 0),
    (special.erfcx, grid(50, 1e5), 2e-6, 0),
    (torch.lgamma, grid(0.01, 30), 4e-6, 1e-6),
    (torch.lgamma, powers(1, 30).abs(), 2e-6, 0),
    (torch.lgamma, grid(-20.3, -0.01), 1e-4, 2e-5),
    (torch.digamma, grid(0.01, 50), 4e-6, 2e-6),
    (torch.digamma, powers(1, 30).abs(), 2e-6, 0),
    (torch.digamma, grid(-5.47, -5.03), 1e-4, 1e-4),
    (special.i0, grid(-80, 80), 4e-6, 0),
    (special.i0e, grid(-200, 200), 4e-6, 0),
    (special.i1, grid(-80, 80), 8e-6, 1e-7),
    (special.i1e, grid(-200, 200), 4e-6, 1e-7),
    (special.ndtri, grid(1e-5, 1 - 1e-5), 1e-5, 1e-6),
    (special.ndtri, powers(-36, -1).abs(), 4e-6, 0),
    (special.ndtr, grid(-12, 8), 1e-6, 1e-7),
    (special.log_ndtr, grid(-100, 8), 1e-5, 1e-20),
    (special.log_ndtr, powers(-10, 15), 1e-5, 1e-30),
    (lambda x: torch.polygamma(1, x), grid(0.05, 60), 1e-5, 0),
    (lambda x: torch.polygamma(2, x), grid(0.05, 60), 1e-5, 0),
    (lambda x: torch.polygamma(4, x), grid(0.05, 60), 2e-5, 0),
    (lambda x: special.zeta(x, 0.7), grid(1.01, 30), 1e-5, 0),
    (lambda x: special.zeta(x, 25.0), grid(1.01, 25), 2e-5, 1e-37),
    (lambda x: special.zeta(torch.full_like(x, 2.5), x), grid(0.05, 80), 1e-5, 0),
    (torch.exp, grid(-87, 88), 1e-6, 0),
    (torch.expm1, grid(-20, 88), 1e-6, 0),
    (torch.expm1, powers(-37, 0), 1e-6, 0),
    (torch.exp2, grid(-125, 127), 1e-6, 0),
    (torch.log, powers(-37, 38).abs(), 1e-6, 1e-7),
    (torch.log, grid(0.5, 2), 1e-6, 1e-7),
    (torch.log2, grid(0.5, 2), 1e-6, 1e-7),
    (torch.log10, powers(-37, 38).abs(), 1e-6, 1e-7),
    (torch.log1p, powers(-37, -1), 1e-6, 0),
    (torch.log1p, grid(-0.999, 100), 1e-6, 0),
    (torch.sinh, powers(-37, 1.9), 2e-6, 0),
    (torch.cosh, grid(-88, 88), 2e-6, 0),
    (torch.tanh, powers(-37, 3), 1e-6, 0),
    (torch.asinh, powers(-37, 38), 1e-6, 0),
    (torch.acosh, powers(0.001, 38).abs() + 1, 2e-6, 0),
    (torch.atanh, powers(-37, -0.01), 1e-6, 0),
    (torch.sin, grid(-100, 100), 2e-6, 2e-7),
    (torch.cos, grid(-1e4, 1e4), 2e-6, 2e-7),
    (torch.tan, grid(-1.57, 1.57), 2e-6, 1e-38),
    (torch.tan, grid(-1e3, 1e3), 1e-5, 1e-6),
    (torch.sigmoid, grid(-87, 87), 1e-6, 1e-38),
    (torch.nn.functional.softplus, grid(-80, 80), 1e-6, 1e-38),
    (torch.rsqrt, powers(-37, 38).abs(), 1e-6, 0),
    (torch.sqrt, powers(-37, 38).abs(), 2e-7, 0),
    (torch.reciprocal, powers(-37, 37), 2e-7, 0),
]


@pytest.mark.parametrize(("function", "x", "rtol", "atol"), UNARY)
def test_functions_of_one_number(function, x, rtol, atol):
    actual = function(x.to(DEVICE)).cpu().double()
    assert_close(actual, function(x.double()), rtol=rtol, atol=atol)


@pytest.mark.parametrize("a", [0.05, 0.7, 1.0, 4.5, 30.0, 200.0])
def test_incomplete_gamma(a):
    x = torch.cat([grid(1e-3, 3 * a + 10, 5001), torch.logspace(-20, 0, 200)])
    for function in (torch.igamma, torch.igammac):
        actual = function(torch.full_like(x, a).to(DEVICE), x.to(DEVICE)).cpu().double()
        assert_close(
            actual, function(torch.full_like(x, a).double(), x.double()), rtol=2e-5, atol=1e-7
        )


def test_pow():
    base = torch.logspace(-30, 30, 301)
    exponent = torch.linspace(-4, 4, 161)
    b, e = torch.meshgrid(base, exponent, indexing="ij")
    expected = b.double() ** e.double()
    inside = (expected > 1e-37) & (expected < 1e38)
    actual = (b.to(DEVICE) ** e.to(DEVICE)).cpu().double()
    assert_close(actual[inside], expected[inside], rtol=2e-6, atol=0)
    near_one = torch.linspace(0.99, 1.01, 2001)
    assert_close(
        (near_one.to(DEVICE) ** 3000.0).cpu().double(),
        near_one.double() ** 3000.0,
        rtol=2e-6,
        atol=0,
    )


# ---- Extreme arguments: zeros of both signs, the ends of the range, infinities, no number.

EXTREMES = [
    0.0,
    1.0,
    0.5,
    2.0,
    3.0,
    1e-38,
    1.2e-38,
    1e-20,
    1e20,
    1e38,
    3.4e38,
    88.8,
    89.0,
    104.0,
    INF,
]
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny
EXTREMES = torch.tensor([*EXTREMES, *[-x for x in EXTREMES], NAN])


@pytest.mark.parametrize(
    "function",
    [
        torch.exp,
        torch.expm1,
        torch.exp2,
        torch.log,
        torch.log2,
        torch.log10,
        torch.log1p,
        torch.sinh,
        torch.cosh,
        torch.tanh,
        torch.asinh,
        torch.acosh,
        torch.atanh,
        torch.asin,
        torch.acos,
        torch.atan,
        torch.sqrt,
        torch.rsqrt,
        torch.reciprocal,
        torch.sigmoid,
        torch.erf,
        torch.erfc,
        torch.erfinv,
        torch.lgamma,
        torch.digamma,
        torch.round,
        torch.floor,
        torch.ceil,
        torch.trunc,
        torch.sign,
        torch.abs,
        torch.neg,
        torch.square,
        special.i0,
        special.i0e,
        special.i1,
        special.i1e,
        special.ndtr,
        special.ndtri,
        special.log_ndtr,
        special.erfcx,
        special.entr,
        torch.logit,
        torch.nan_to_num,
        torch.isfinite,
        torch.signbit,
        torch.nn.functional.silu,
        torch.nn.functional.gelu,
        torch.nn.functional.softplus,
        torch.nn.functional.mish,
        torch.nn.functional.logsigmoid,
    ],
    ids=lambda f: f.__name__,
)
def test_extreme_arguments(function):
    actual, expected = function(EXTREMES.to(DEVICE)).cpu(), function(EXTREMES)
    if not expected.is_floating_point():
        assert torch.equal(actual, expected)
        return
    if function is torch.nan_to_num:  # writes the dtype's largest number
        assert torch.equal(actual, expected)
        return
    expected = function(EXTREMES.double()).float()
    if function is torch.nn.functional.gelu:  # where the CPU's is NaN, also in float64
        expected[EXTREMES == INF] = INF
    # A driver may take denormal numbers for zeros, and factors that underflow too.
    denormal = (EXTREMES != 0) & (EXTREMES.abs() < SMALLEST_NORMAL)
    of_zeros = function(torch.where(denormal, EXTREMES * 0, EXTREMES).double()).float()
    as_zeros = torch.isclose(actual, of_zeros, rtol=1e-5, atol=1e-36, equal_nan=True)
    expected = torch.where(denormal & as_zeros, of_zeros, expected)
    assert_close(actual, expected, rtol=1e-5, atol=1e-36, equal_nan=True)
    zero = (EXTREMES == 0) & (expected == 0)
    if function not in (special.i1, special.i1e):  # where the CPU has +0
        assert torch.equal(actual[zero].signbit(), expected[zero].signbit())


@pytest.mark.parametrize(
    "function",
    [
        torch.pow,
        torch.atan2,
        torch.hypot,
        torch.fmin,
        torch.maximum,
        torch.minimum,
        torch.div,
        torch.mul,
        torch.logaddexp,
        torch.xlogy,
        torch.copysign,
        torch.floor_divide,
    ],
    ids=lambda f: f.__name__,
)
def test_extreme_pairs(function):
    a, b = torch.meshgrid(EXTREMES, EXTREMES, indexing="ij")
    a, b = a.contiguous(), b.contiguous()
    actual, expected = function(a.to(DEVICE), b.to(DEVICE)).cpu(), function(a, b)
    # What underflows, or comes from a denormal number, may be zero.
    usual = ~(expected.abs() < SMALLEST_NORMAL)
    for x in (a, b):
        usual &= (x == 0) | ~(x.abs() < SMALLEST_NORMAL)
    assert_close(actual[usual], expected[usual], rtol=1e-5, atol=SMALLEST_NORMAL, equal_nan=True)


@pytest.mark.parametrize("function", [torch.fmod, torch.remainder])
def test_remainders_of_extremes_are_exact(function):
    a, b = torch.meshgrid(EXTREMES, EXTREMES, indexing="ij")
    # Against Python: the CPU's vectors give up where the quotient is not finite.
    python = math.fmod if function is torch.fmod else lambda x, y: x % y
    usual = a.isfinite() & b.isfinite() & (b.abs() > 1e-30) & (a.abs() > 1e-30)
    a, b = a[usual], b[usual]
    actual = function(a.to(DEVICE), b.to(DEVICE)).cpu()
    expected = [python(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert_close(actual, torch.tensor(expected), rtol=1e-6, atol=1e-30)


# ---- NaN and infinity


def with_extremes(*shape):
    x = torch.randn(shape)
    x.view(-1)[::7] = NAN
    x.view(-1)[3::11] = INF
    x.view(-1)[5::13] = -INF
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.amin(1),
        lambda x: x.amax(0),
        lambda x: x.min(1),
        lambda x: x.max(0),
        torch.min,
        torch.max,
        lambda x: x.aminmax(dim=1),
        lambda x: x.argmin(1),
        lambda x: x.argmax(),
        lambda x: x.clamp(-1, 1),
        lambda x: x.clamp(min=x.flip(0)),
        lambda x: x.clamp(NAN, 1),
        lambda x: torch.where(x > 0, x, -x),
        lambda x: torch.maximum(x, x.flip(0)),
        lambda x: torch.fmax(x, x.flip(1)),
        lambda x: x.sort(dim=1, stable=True),
        lambda x: x.sort(dim=0, descending=True, stable=True),
        lambda x: x.argsort(dim=1, stable=True),
        lambda x: x.topk(5, sorted=True).values,
        lambda x: x.cumsum(1),
        lambda x: x.cumprod(0),
        lambda x: x.cummax(1),
        lambda x: x.cummin(0),
        lambda x: x.logcumsumexp(1),
        lambda x: x.softmax(1),
        lambda x: x.log_softmax(0),
        lambda x: x.logsumexp(1),
        lambda x: x.sum(1),
        lambda x: x.mean(0),
        lambda x: x.prod(1),
        lambda x: x.norm(dim=1),
        lambda x: x.var(1),
        lambda x: x.nansum(1),
        lambda x: x.nanmean(1),
        lambda x: x.median(1).values,
        lambda x: x.nanmedian(1).values,
        lambda x: x.kthvalue(3, 1).values,
        pytest.param(
            lambda x: x.quantile(0.3, 1),
            marks=pytest.mark.skipif(
                torch.__version__ >= "2.14",
                reason="ATen computes places in float64, in which the CPU computes",
            ),
        ),
        lambda x: x.nan_to_num(),
        lambda x: (x == x, x < 0, x.isnan(), x.isinf()),
        lambda x: x.relu(),
        lambda x: x.sign(),
        lambda x: torch.nn.functional.max_pool2d(x[None], 2, return_indices=True),
        lambda x: x.any(1),
        lambda x: x.all(),
    ],
)
def test_nan_and_infinity(function):
    for x in (
        with_extremes(12, 30),
        torch.full((4, 6), NAN),
        torch.full((4, 6), -INF),
        torch.full((4, 6), INF),
    ):
        check(
            lambda t: tuple(r) if isinstance(r := function(t), tuple) else r,
            x,
            rtol=1e-5,
            atol=1e-5,
        )

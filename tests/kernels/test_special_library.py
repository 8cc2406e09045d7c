"""Special functions of the WGSL library against CPU PyTorch in float64."""

import numpy as np
import pytest
import torch
import wgsl_library as library
from test_math_library import check, unary_inputs

RNG = np.random.default_rng(0)
special = torch.special

# name: (PyTorch's function, condition on the arguments)
UNARY = {
    "sinc_f": (torch.sinc, lambda x: np.abs(x) < 1e38),
    "erfinv_f": (torch.erfinv, None),
    "ndtri_f": (special.ndtri, None),
    "log_ndtr_f": (special.log_ndtr, None),
    "entr_f": (special.entr, None),
    "lgamma_f": (torch.lgamma, None),
    "digamma_f": (torch.digamma, None),
    # At its poles PyTorch's is some large number.
    "trigamma_f": (
        lambda x: torch.polygamma(1, x),
        lambda x: (np.abs(x) > 1e-18) & ((x > 0) | (x != np.round(x))),
    ),
    # Infinity times zero makes PyTorch's NaN at infinity.
    "i0_f": (special.i0, np.isfinite),
    "i1_f": (special.i1, np.isfinite),
    # Further left float32 does not hold the phase.
    "airy_ai_f": (special.airy_ai, lambda x: (x > -30) & np.isfinite(x)),
    "i0e_f": (special.i0e, None),
    "i1e_f": (special.i1e, None),
    "k0_f": (special.modified_bessel_k0, None),
    "k1_f": (special.modified_bessel_k1, None),
    "scaled_k0_f": (special.scaled_modified_bessel_k0, None),
    "scaled_k1_f": (special.scaled_modified_bessel_k1, None),
    "bessel_j0_f": (special.bessel_j0, None),
    "bessel_j1_f": (special.bessel_j1, None),
    "bessel_y0_f": (special.bessel_y0, None),
    "bessel_y1_f": (special.bessel_y1, None),
    "spherical_bessel_j0_f": (special.spherical_bessel_j0, None),
}


def test_unary():
    x = unary_inputs()
    for name, got in zip(UNARY, library.evaluate(list(UNARY), (x,)), strict=True):
        function, condition = UNARY[name]
        kept = np.ones_like(x, bool) if condition is None else condition(x)
        want = function(torch.tensor(x[kept]).double()).float()
        check(name, got[kept], want, (x[kept],), atol=5e-6 if name == "airy_ai_f" else 1e-6)


def test_incomplete_gamma():
    size = 10000
    shape = np.concatenate([10 ** RNG.uniform(-2, 4, size), RNG.uniform(0, 40, size)])
    # Around the transition, whose width is sqrt(a), and far from it.
    ratio = [RNG.uniform(0, 2, size), 1 + RNG.normal(size=size) / np.sqrt(shape[:size])]
    x = np.abs(shape * np.concatenate(ratio))
    extremes = [g.ravel() for g in np.meshgrid([0, 0.5, 3, np.inf, np.nan, -1], [0, 1, 4, np.inf])]
    a, x = (np.concatenate(p).astype(np.float32) for p in zip((shape, x), extremes, strict=True))
    names = ["igamma_f", "igammac_f"]
    functions = (torch.igamma, torch.igammac)
    for name, got, function in zip(names, library.evaluate(names, (a, x)), functions, strict=True):
        want = function(torch.tensor(a).double(), torch.tensor(x).double()).float()
        check(name, got, want, (a, x), atol=1e-6)


def test_zeta():
    x = np.concatenate([RNG.uniform(1, 30, 5000), RNG.integers(1, 30, 5000), [1, 0.5, 3, 3]])
    q = np.concatenate([RNG.uniform(0, 30, 10000), [2, 2, 0, -1.0]])
    # Left of zero the order must be whole; midway between poles odd orders cancel to zero.
    x = np.concatenate([x, np.repeat([2, 3, 6, 9], 500)])
    left = RNG.integers(-20, 0, 2000) + RNG.uniform(0.1, 0.4, 2000)
    left[:200] = RNG.uniform(-0.4, -1e-3, 200)
    q = np.concatenate([q, left])
    x, q = x.astype(np.float32), q.astype(np.float32)
    (got,) = library.evaluate(["zeta_f"], (x, q))
    want = special.zeta(torch.tensor(x).double(), torch.tensor(q).double())
    check("zeta_f", got, want.float(), (x, q), rtol=3e-6)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 6])
def test_polygamma(order):
    x = np.concatenate([RNG.uniform(0.05, 20, 5000), RNG.uniform(-0.45, -0.2, 500)])
    x = x.astype(np.float32)
    (got,) = library.evaluate(["polygamma_f"], (np.full(x.shape, order), x))
    # At -1/2, which the range avoids, functions of even order are zero by cancellation.
    want = torch.polygamma(order, torch.tensor(x).double())
    check("polygamma_f", got, want.float(), (x,), rtol=1e-5, atol=1e-5)


POLYNOMIALS = [
    *(f"{shifted}chebyshev_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *("hermite_h", "hermite_he", "laguerre_l", "legendre_p"),
]


def test_polynomials():
    """About as close to float64 as PyTorch's own float32."""
    x = np.concatenate([RNG.uniform(-1, 1, 4000), RNG.uniform(-3, 3, 2000), [1, -1, 0, 0.5] * 4])
    n = np.concatenate([RNG.integers(-1, 15, 6000), np.repeat([-1, 0, 3, 4], 4)])
    x, n = torch.tensor(x, dtype=torch.float32), torch.tensor(n, dtype=torch.float32)
    results = library.evaluate([f"{name}_f" for name in POLYNOMIALS], (x.numpy(), n.numpy()))
    for name, got in zip(POLYNOMIALS, results, strict=True):
        family, kind = name.rsplit("_", 1)
        function = getattr(special, f"{family}_polynomial_{kind}")
        exact, peer = function(x.double(), n.double()), function(x, n)
        scale = 1 + exact.abs()
        error = ((torch.tensor(got) - exact).abs() / scale).max()
        assert error <= 5 * ((peer - exact).abs() / scale).max() + 1e-6, name


def test_polynomials_of_huge_degree():
    """Asymptotic forms, or NaN after an overflow: no loop of 2^31 steps."""
    x = torch.tensor([0.0, 1e-6, 0.3, -0.9, 0.9999, -1e-6, -0.001])
    n = torch.full_like(x, 2**21)
    names = ("laguerre_l_f", "legendre_p_f")
    laguerre, legendre = library.evaluate(names, (x.numpy(), n.numpy()))
    exact = special.laguerre_polynomial_l(x.double(), n.double())
    keep = exact.abs() < 1e38
    error = torch.tensor(laguerre) - exact
    assert (error / exact.abs().clamp(min=0.05))[keep].abs().max() < 2e-3
    # The argument's rounding, times the degree, turns the phase.
    exact = special.legendre_polynomial_p(x.double(), n.double())
    assert (torch.tensor(legendre) - exact).abs().max() < 0.2 * exact.abs().max()
    far = np.array([-300.0, -2.0, 1e5, 3e38, np.inf, np.nan], np.float32)
    for got in library.evaluate(names, (far, np.full(6, 2.0**30, np.float32))):
        assert not np.isfinite(got).any()


def test_polygamma_of_huge_order():
    (got,) = library.evaluate(["polygamma_f"], (np.array([2**31 - 1]), np.array([2.0], np.float32)))
    assert not np.isfinite(got[0]) or got[0] == 0


def test_hermite_limit():
    """PyTorch gives NaN above degree 128 in float32."""
    n = np.array([20, 129, 1000], np.float32)
    for name in ("hermite_h_f", "hermite_he_f"):
        (got,) = library.evaluate([name], (np.full(3, 0.5), n))
        assert np.isnan(got).tolist() == [False, True, True]

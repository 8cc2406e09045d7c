"""Complex functions of the WGSL library against CPU PyTorch in complex128."""

import numpy as np
import torch
import wgsl_library as library

RNG = np.random.default_rng(0)


def plane():
    """Both axes with both signs of zero, branch points, every magnitude and direction."""
    axis = np.array([0, 1e-30, 1e-3, 0.05, 0.3, 0.5, 1, 1.5, 2, 3.12, 7, 30, 89, 1e4, 1e18, 1e38])
    axis = np.concatenate([axis, -axis])
    grid = np.empty((len(axis), len(axis)), complex)
    grid.real, grid.imag = axis[:, None], axis
    near = RNG.normal(size=8000) * 3 + 1j * RNG.normal(size=8000) * 3
    wide = 10.0 ** RNG.uniform(-6, 6, 8000) * np.exp(1j * RNG.uniform(0, 2 * np.pi, 8000))
    return np.concatenate([grid.ravel(), near, wide]).astype(np.complex64)


def sigmoid(z):
    """PyTorch's own overflows to NaN left of -710."""
    return torch.where(z.real < -100, torch.exp(z), torch.sigmoid(z))


def log1p(z):
    """numpy's, which keeps the digits of small numbers; it warns of the pole at -1."""
    with np.errstate(divide="ignore"):
        return torch.tensor(np.log1p(z.numpy()))


UNARY = {
    "reciprocal_c": torch.reciprocal,
    "abs_c": torch.abs,
    "angle_c": torch.angle,
    "sgn_c": torch.sgn,
    "conj_c": torch.conj_physical,
    "exp_c": torch.exp,
    "expm1_c": lambda z: torch.where(z.real > 80, torch.exp(z), torch.expm1(z)),
    "log_c": torch.log,
    "log2_c": torch.log2,
    "log10_c": torch.log10,
    "log1p_c": log1p,
    "sqrt_c": torch.sqrt,
    "rsqrt_c": torch.rsqrt,
    "sigmoid_c": sigmoid,
    "sinh_c": torch.sinh,
    "cosh_c": torch.cosh,
    "tanh_c": torch.tanh,
    "sin_c": torch.sin,
    "cos_c": torch.cos,
    "tan_c": torch.tan,
    "asin_c": torch.asin,
    "acos_c": torch.acos,
    "asinh_c": torch.asinh,
    "acosh_c": torch.acosh,
    "atanh_c": torch.atanh,
    "atan_c": torch.atan,
}


def parts(x):
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def check(name, got, want, inputs):
    """Compares the parts, each with a tolerance from the magnitude of the whole number."""
    got, scale = torch.tensor(got), want.abs()[..., None] if want.is_complex() else want.abs()
    got, want = parts(got), parts(want)
    # An infinite magnitude would accept any finite part.
    scale = torch.where(scale.isfinite(), scale, want.abs())
    close = (got - want).abs() <= 1e-6 + 1.3e-6 * scale
    close |= (got == want) | (got.isnan() & want.isnan())
    wrong = torch.nonzero(~close)[:5, 0]
    text = [x[wrong] for x in inputs]
    assert not len(wrong), f"{name}{text} = {got[wrong]}, not {want[wrong]}"


def test_unary():
    z = plane()
    tensor = torch.tensor(z).to(torch.complex128)
    for name, got in zip(UNARY, library.evaluate(list(UNARY), (z,)), strict=True):
        want = UNARY[name](tensor)
        check(name, got, want.to(torch.complex64 if want.is_complex() else torch.float32), (z,))


def test_binary():
    z = plane()[-16000:]
    other = RNG.permutation(z)
    a, b = torch.tensor(z).to(torch.complex128), torch.tensor(other).to(torch.complex128)
    product, quotient = library.evaluate(["mul_c", "div_c"], (z, other))
    check("mul_c", product, (a * b).to(torch.complex64), (z, other))
    check("div_c", quotient, (a / b).to(torch.complex64), (z, other))
    exponent = (RNG.normal(size=z.shape) * 2 + 1j * RNG.normal(size=z.shape)).astype(np.complex64)
    (power,) = library.evaluate(["pow_c"], (z, exponent))
    want = torch.pow(a, torch.tensor(exponent).to(torch.complex128))
    # The phase is known only as well as float32 holds b log|a|.
    error = (torch.tensor(power) - want).abs() / (1e-6 + want.abs())
    assert error[want.abs() < 1e38].max() < 5e-6


def test_division_by_zero():
    z = np.array([1 + 1j, 0, 1, np.nan], np.complex64)
    (got,) = library.evaluate(["div_c"], (z, np.zeros_like(z)))
    want = torch.tensor(z) / torch.zeros(4, dtype=torch.complex64)
    torch.testing.assert_close(
        torch.view_as_real(torch.tensor(got)), torch.view_as_real(want), equal_nan=True
    )


def test_sign_of_nan():
    z = np.array([complex(a, b) for a in (np.nan, 0, 1) for b in (np.nan, 0, -1)], np.complex64)
    (got,) = library.evaluate(["sgn_c"], (z,))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(z))
    np.testing.assert_allclose(got[4:6], [0, -1j])


INFINITE_OR_NAN = {
    "exp_c": np.exp,
    "log_c": np.log,
    "log1p_c": np.log1p,
    "sqrt_c": np.sqrt,
    "cosh_c": np.cosh,
    "tanh_c": np.tanh,
    "tan_c": np.tan,
    "asin_c": np.arcsin,
    "acos_c": np.arccos,
    "asinh_c": np.arcsinh,
    "acosh_c": np.arccosh,
    "atanh_c": np.arctanh,
    "atan_c": np.arctan,
}


def test_infinity_and_nan():
    """As C99's annex G has it, and numpy; where it leaves no sign open, as sinh's."""
    special = np.array([np.inf, -np.inf, np.nan], np.float32)
    z = np.empty((3, 3), np.complex64)
    z.real, z.imag = special[:, None], special
    z = z.ravel()
    for name, got in zip(
        INFINITE_OR_NAN, library.evaluate(list(INFINITE_OR_NAN), (z,)), strict=True
    ):
        with np.errstate(all="ignore"):
            want = INFINITE_OR_NAN[name](z)
        np.testing.assert_allclose(got.real, want.real, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(got.imag, want.imag, rtol=1e-6, err_msg=name)


def test_predicates():
    special = np.array([0, 1, np.nan, np.inf, -np.inf], np.float32)
    z = np.empty((5, 5), np.complex64)
    z.real, z.imag = special[:, None], special
    z = z.ravel()
    names = ["is_nan_c", "is_inf_c", "is_finite_c"]
    functions = (torch.isnan, torch.isinf, torch.isfinite)
    for got, function in zip(library.evaluate(names, (z,)), functions, strict=True):
        assert np.array_equal(function(torch.tensor(z)).numpy(), got != 0)
    finite = plane()[:200]
    other = np.where(np.arange(200) % 3 == 0, finite, finite[::-1])
    (got,) = library.evaluate(["eq_c"], (finite, other))
    assert np.array_equal(finite == other, got != 0)

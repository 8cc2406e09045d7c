"""Float functions of the WGSL library against CPU PyTorch in float64, at float32 tolerances."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import wgsl_library as library

RNG = np.random.default_rng(0)
special = torch.special


def unary_inputs():
    """Dense near zero, every magnitude, and the values where branches or rules change."""
    logarithmic = np.logspace(-37.9, 38.5, 8000)
    around = np.array([0, 0.25, 0.5, 0.625, 0.75, 1, 1.5, 2, 3, 20, 88.02, 88.7228, 103.9, 4096])
    near = around[:, None] * (1 + np.arange(-2, 3) * 2.0**-23)
    values = np.concatenate([np.linspace(0, 30, 15001), logarithmic, near.ravel(), [np.inf]])
    # NaN comes first. The scalar loops of elu's and hardswish's gradients on the CPU, which compute
    # what is left of a vector at the end, give 1 for it.
    return np.concatenate([[np.nan], values, -values]).astype(np.float32)


def binary_inputs():
    grid = np.array(
        [0, 1e-30, 0.3, 0.5, 1, 1.5, 2, 3, 7, 1e3, 16777217, 1e30, 3.4e38, np.inf, np.nan]
    )
    grid = np.concatenate([grid, -grid])
    a, b = (x.ravel() for x in np.meshgrid(grid, grid))
    wide = RNG.normal(size=(2, 8000)) * 10.0 ** RNG.uniform(-8, 8, (2, 8000))
    narrow = RNG.normal(size=(2, 8000)) * 10
    whole = np.round(RNG.normal(size=(2, 4000)) * 20)
    pairs = (np.concatenate(x) for x in zip((a, b), wide, narrow, whole, strict=True))
    return tuple(x.astype(np.float32) for x in pairs)


def rsqrt(x):
    return torch.where(x == 0, torch.copysign(torch.tensor(torch.inf), x), x.rsqrt())


def gradient(function):
    """PyTorch's derivative of an elementwise function."""

    def derivative(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]

    return derivative


UNARY = {
    "exp_f": torch.exp,
    "exp2_f": torch.exp2,
    "expm1_f": torch.expm1,
    "log_f": torch.log,
    "log2_f": torch.log2,
    "log10_f": torch.log10,
    "log1p_f": torch.log1p,
    "sqrt_f": torch.sqrt,
    "rsqrt_f": rsqrt,
    "reciprocal_f": torch.reciprocal,
    "sin_f": torch.sin,
    "cos_f": torch.cos,
    "tan_f": torch.tan,
    "asin_f": torch.asin,
    "acos_f": torch.acos,
    "atan_f": torch.atan,
    "sinh_f": torch.sinh,
    "cosh_f": torch.cosh,
    "tanh_f": torch.tanh,
    "asinh_f": torch.asinh,
    "acosh_f": torch.acosh,
    "atanh_f": torch.atanh,
    "erf_f": torch.erf,
    "erfc_f": torch.erfc,
    "erfcx_f": special.erfcx,
    "sigmoid_f": torch.sigmoid,
    "log_sigmoid_f": F.logsigmoid,
    "logit_f": torch.logit,
    "ndtr_f": special.ndtr,
    "sign_f": torch.sign,
    "frac_f": torch.frac,
    "relu_f": torch.relu,
    "abs_f": torch.abs,
    "neg_f": torch.neg,
    "silu_f": F.silu,
    "silu_grad_f": gradient(F.silu),
    "gelu_f": F.gelu,
    "gelu_grad_f": gradient(F.gelu),
    "gelu_tanh_f": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_tanh_grad_f": gradient(lambda x: F.gelu(x, approximate="tanh")),
    "mish_f": F.mish,
    "mish_grad_f": gradient(F.mish),
    "hardsigmoid_f": F.hardsigmoid,
    "hardsigmoid_grad_f": gradient(F.hardsigmoid),
    "hardswish_f": F.hardswish,
    "hardswish_grad_f": gradient(F.hardswish),
    "frexp_mantissa_f": lambda x: torch.frexp(x)[0],
}


def check(name, got, want, inputs, rtol=1.3e-6, atol=1e-7):
    """Results smaller than the least normal number may be flushed to zero by the driver."""

    def describe(message):
        error = np.abs(got - want.numpy()) / (atol + rtol * np.abs(want.numpy()))
        wrong = np.flatnonzero(~((error <= 1) | (got == want.numpy())))[:5]
        return f"{name}({', '.join(str(x[wrong]) for x in inputs)}) = {got[wrong]}: {message}"

    torch.testing.assert_close(
        torch.tensor(got), want, rtol=rtol, atol=atol, equal_nan=True, msg=describe
    )


def test_unary():
    x = unary_inputs()
    for name, got in zip(UNARY, library.evaluate(list(UNARY), (x,)), strict=True):
        check(name, got, UNARY[name](torch.tensor(x).double()).float(), (x,))


def floor_divide(a, b):
    return torch.div(a, b, rounding_mode="floor")


BINARY = {
    "pow_f": torch.pow,
    "div_f": torch.div,
    "div_trunc_f": lambda a, b: torch.div(a.float(), b.float(), rounding_mode="trunc"),
    "fmod_f": torch.fmod,
    "remainder_f": torch.remainder,
    "floor_div_f": lambda a, b: floor_divide(a.float(), b.float()),
    "atan2_f": torch.atan2,
    "hypot_f": torch.hypot,
    "copysign_f": torch.copysign,
    "nextafter_f": lambda a, b: torch.nextafter(a.float(), b.float()),
    "max_f": torch.maximum,
    "min_f": torch.minimum,
    "fmax_f": torch.fmax,
    "fmin_f": torch.fmin,
    "heaviside_f": torch.heaviside,
    "logaddexp_f": torch.logaddexp,
    "logaddexp2_f": torch.logaddexp2,
    "xlogy_f": torch.xlogy,
    "xlog1py_f": special.xlog1py,
}


def test_binary():
    a, b = binary_inputs()
    for name, got in zip(BINARY, library.evaluate(list(BINARY), (a, b)), strict=True):
        want = BINARY[name](torch.tensor(a).double(), torch.tensor(b).double()).float()
        check(name, got, want, (a, b))


def test_quotients_are_correctly_rounded():
    a, b = binary_inputs()
    small = np.arange(1, 200, dtype=np.float32)
    a, b = np.concatenate([a, small, small * 7]), np.concatenate([b, small, small])
    with np.errstate(all="ignore"):
        want = a / b
        # Results that are neither denormal nor near it.
        moderate = np.isfinite(want) & (np.abs(want) > 1e-18) & (np.abs(want) < 1e18)
        moderate &= (np.abs(a) > 1e-18) & (np.abs(a) < 1e18)
    (got,) = library.evaluate(["div_f"], (a, b))
    assert moderate.sum() > 1000
    assert np.array_equal(got[moderate], want[moderate])


PREDICATES = {
    "is_nan_f": torch.isnan,
    "is_inf_f": torch.isinf,
    "is_finite_f": torch.isfinite,
    "is_posinf_f": torch.isposinf,
    "is_neginf_f": torch.isneginf,
    "signbit_f": torch.signbit,
}


def test_predicates():
    x = np.concatenate([unary_inputs(), -unary_inputs()])
    for name, got in zip(PREDICATES, library.evaluate(list(PREDICATES), (x,)), strict=True):
        assert np.array_equal(PREDICATES[name](torch.tensor(x)).numpy(), got != 0), name
    (exponent,) = library.evaluate(["frexp_exponent_i"], (x,))
    finite = np.isfinite(x)
    assert np.array_equal(torch.frexp(torch.tensor(x)).exponent.numpy()[finite], exponent[finite])


# function, arguments after x, PyTorch's function
WITH_PARAMETERS = [
    ("clamp_f", (-1.5, 2.5), lambda x: x.clamp(-1.5, 2.5)),
    ("clamp_f", (2.5, -1.5), lambda x: x.clamp(2.5, -1.5)),
    ("hardtanh_f", (-1.5, 2.5), lambda x: F.hardtanh(x, -1.5, 2.5)),
    ("logit_eps_f", (0.1,), lambda x: torch.logit(x, 0.1)),
    ("logit_eps_f", (0.6,), lambda x: torch.logit(x, 0.6)),
    ("logit_eps_f", (-1.0,), torch.logit),
    ("softplus_f", (2.0, 15.0), lambda x: F.softplus(x, 2.0, 15.0)),
    ("softplus_grad_f", (2.0, 15.0), gradient(lambda x: F.softplus(x, 2.0, 15.0))),
    ("elu_f", (1.5, 1.1, 0.7), lambda x: torch.ops.aten.elu(x, 1.5, 1.1, 0.7)),
    (
        "smooth_l1_f",
        (0.7,),
        lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=0.7),
    ),
    (
        "smooth_l1_f",
        (0.0,),
        lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=0.0),
    ),
    (
        "huber_f",
        (0.7,),
        lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=0.7),
    ),
    (
        "smooth_l1_grad_f",
        (0.7,),
        gradient(lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=0.7)),
    ),
    (
        "elu_grad_f",
        (1.5, 1.1, 0.7, 0),
        lambda x: torch.ops.aten.elu_backward(torch.ones_like(x), 1.5, 1.1, 0.7, False, x),
    ),
    (
        "elu_grad_f",
        (1.5, 1.1, 0.7, 1),
        lambda x: torch.ops.aten.elu_backward(torch.ones_like(x), 1.5, 1.1, 0.7, True, x),
    ),
]


@pytest.mark.parametrize(("name", "parameters", "function"), WITH_PARAMETERS)
def test_with_parameters(name, parameters, function):
    x = unary_inputs()
    (got,) = library.evaluate([name], (x, *(np.full(x.shape, p) for p in parameters)))
    check(name, got, function(torch.tensor(x).double()).float(), (x,), atol=1e-6)


@pytest.mark.parametrize("eps", [-1.0, 0.0, 0.1])
def test_logit_grad(eps):
    x = np.linspace(-1, 2, 3001, dtype=np.float32)
    (got,) = library.evaluate(["logit_grad_f"], (np.full(x.shape, 2), x, np.full(x.shape, eps)))
    tensor = torch.tensor(x).double()
    # float32 eps: the bounds must be the same numbers on both sides.
    bound = None if eps < 0 else float(np.float32(eps))
    want = torch.ops.aten.logit_backward(torch.full_like(tensor, 2), tensor, bound)
    inside = (x != np.float32(eps)) & (x != 1 - np.float32(eps))
    check("logit_grad_f", got[inside], want.float()[torch.tensor(inside)], (x[inside],))


def test_round_decimals():
    """Compared in float32: ties of the scaled value are not ties in float64."""
    x = unary_inputs()
    x = x[np.abs(x) < 1e30]
    for decimals in (0, 2, -1):
        (got,) = library.evaluate(["round_decimals_f"], (x, np.full(x.shape, decimals)))
        check("round_decimals_f", got, torch.round(torch.tensor(x), decimals=decimals), (x,))


@pytest.mark.parametrize("runtime", ["wgpudawn", "wgpu"])
def test_every_file_is_valid(runtime):
    """Tint and naga accept each file together with what it uses."""
    result = library.validate(runtime)
    assert result.returncode == 0, result.stderr

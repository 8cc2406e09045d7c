"""Prints the polynomial coefficients used in this folder's WGSL.

Each entry of FITS is a function computed by mpmath, an interval and a number of coefficients. The
fit minimizes the maximum error relative to the function (Lawson's reweighted least squares).
Usage: python fit_coefficients.py [name ...]
"""

import sys

import mpmath as mp
import numpy as np

mp.mp.dps = 60
LN2 = mp.log(2)


def fit(function, low, high, terms, weight=None, nodes=300, rounds=60):
    """Coefficients of the powers of t, and the largest error relative to the function."""
    t = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
    exact = np.array([float(function(mp.mpf(float(v)))) for v in t])
    scale = 1 / np.abs(exact) if weight is None else np.array([float(weight(v)) for v in t])
    lawson = np.full(nodes, 1.0 / nodes)
    best = (np.inf, None)
    for _ in range(rounds):
        w = np.sqrt(lawson) * scale
        poly = np.polynomial.Chebyshev.fit(t, exact, terms - 1, w=w)
        error = np.abs(poly(t) - exact) * scale
        if error.max() < best[0]:
            best = (error.max(), poly)
        lawson = lawson * error
        lawson /= lawson.sum()
    return best[1].convert(kind=np.polynomial.Polynomial).coef, best[0]


def odd(function):
    """Of an odd function: g with function(x) = x g(x^2)."""
    return lambda t: function(mp.sqrt(t)) / mp.sqrt(t)


def log1p_tail(x):
    """(log1p(x) - x + x^2/2) / x^3"""
    return (mp.log1p(x) - x + x * x / 2) / x**3 if abs(x) > 1e-9 else mp.mpf(1) / 3


def expm1_tail(x):
    """(exp(x) - 1 - x) / x^2"""
    return (mp.expm1(x) - x) / x**2 if abs(x) > 1e-9 else mp.mpf(1) / 2


def tail(function):
    """Of an odd function x + O(x^3): g with function(x) = x + x^3 g(x^2)."""
    return lambda t: (odd(function)(t) - 1) / t


def erfcx_scaled(t):
    """(1 + 2x) exp(x^2) erfc(x) with t = (x - 2) / (x + 2) (Shepherd and Laframboise, 1981)"""
    x = 2 * (1 + t) / (1 - t)
    if x < 30:
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)
    series = mp.nsum(lambda k: (-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k, [0, 12])
    return (1 + 2 * x) / (x * mp.sqrt(mp.pi)) * series


def erfinv_ratio(w):
    """erfinv(x) / x with w = -log(1 - x^2) (Giles, 2010)"""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def lgamma_ratio(t):
    """lgamma(x) / ((x - 1) (x - 2)) with t = x - 2"""
    if abs(t) < 1e-9:
        return 1 - mp.euler
    return mp.loggamma(2 + t) / (t * (1 + t))


def temme(order):
    """Temme's c_k(eta) of the incomplete gamma function (DLMF 8.12.8, 8.12.11)."""
    series = temme_series(order)
    return lambda eta: mp.polyval(series[::-1], eta)


def temme_series(order, terms=60):
    """Power series by c_0 = 1/(l - 1) - 1/eta and eta c_k = c_(k-1)' + gamma_k eta/(l - 1)."""
    # l - 1 = sum a_n eta^n solves eta^2/2 = l - 1 - log(l), so eta l = (l - 1) l'.
    a = [mp.mpf(0), mp.mpf(1)]
    size = terms + order + 4
    for n in range(2, size):
        known = sum(k * a[k] * a[n + 1 - k] for k in range(2, n))
        a.append((a[n - 1] - known) / (n + 1))
    inverse = [mp.mpf(1)]  # eta / (lambda - 1)
    for n in range(1, size - 1):
        inverse.append(-sum(a[k + 1] * inverse[n - k] for k in range(1, n + 1)))
    c = [inverse[n + 1] for n in range(size - 2)]
    for _ in range(order):
        gamma = -c[1]  # no pole at 0
        derivative = [(n + 1) * c[n + 1] for n in range(len(c) - 1)]
        c = [derivative[n + 1] + gamma * inverse[n + 1] for n in range(len(derivative) - 2)]
    return c[:terms]


def modulus_j(order):
    """sqrt(x) |J + iY| with t = 3 / x"""
    return lambda t: mp.sqrt(3 / t) * abs(mp.hankel1(order, 3 / t))


def phase_j(order):
    """The phase of J + iY less its limit x - (2 order + 1) pi/4, over t = 3 / x"""

    def phase(t):
        x = 3 / t
        turned = mp.hankel1(order, x) * mp.expj(-(x - (2 * order + 1) * mp.pi / 4))
        return mp.arg(turned) / t

    return phase


def y0_rest(t):
    """Y0(x) - 2/pi log(x/2) J0(x) with t = x^2"""
    x = mp.sqrt(t)
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x / 2) * mp.besselj(0, x)


def y1_rest(t):
    """(Y1(x) - 2/pi (log(x/2) J1(x) - 1/x)) / x with t = x^2"""
    x = mp.sqrt(t)
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x / 2) * mp.besselj(1, x) - 1 / x)) / x


def k0_rest(t):
    """K0(x) + log(x/2) I0(x) with t = x^2"""
    x = mp.sqrt(t)
    return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def k1_rest(t):
    """(K1(x) - log(x/2) I1(x) - 1/x) / x with t = x^2"""
    x = mp.sqrt(t)
    return (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x) - 1 / x) / x


def scaled_i(order):
    """sqrt(x) e^-x I(x) with t = 8 / x"""
    return lambda t: mp.sqrt(8 / t) * mp.exp(-8 / t) * mp.besseli(order, 8 / t)


def scaled_k(order):
    """sqrt(x) e^x K(x) with t = 2 / x"""
    return lambda t: mp.sqrt(2 / t) * mp.exp(2 / t) * mp.besselk(order, 2 / t)


def airy_right(t):
    """2 sqrt(pi) x^(1/4) e^zeta Ai(x) with zeta = 2/3 x^(3/2), t = 1 / zeta"""
    x = (mp.mpf(3) / (2 * t)) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * x**0.25 * mp.exp(1 / t) * mp.airyai(x)


def airy_turned(t):
    """sqrt(pi) z^(1/4) (Ai - i Bi)(-z) turned back by the limit of its phase; t = 1 / zeta^2"""
    zeta = 1 / mp.sqrt(t)
    z = (1.5 * zeta) ** (mp.mpf(2) / 3)
    value = mp.sqrt(mp.pi) * z**0.25 * mp.mpc(mp.airyai(-z), -mp.airybi(-z))
    return value * mp.expj(mp.pi / 4 - zeta)


R2 = float(mp.sqrt(2))
HALF_LN2 = float(LN2 / 2) * 1.01
# name: (function, low, high, number of coefficients, weight of errors if not one by the function)
FITS = {
    "exp": (expm1_tail, -HALF_LN2, HALF_LN2, 5),
    "exp2": (lambda x: mp.expm1(x * LN2) / x, -0.505, 0.505, 6),
    "log": (log1p_tail, R2 / 2 - 1, R2 - 1, 9),
    "pow_log": (tail(mp.atanh), 1e-6, ((R2 - 1) / (R2 + 1)) ** 2 * 1.01, 3),
    "tanh": (tail(mp.tanh), 1e-6, 0.625**2, 5),
    "sinh": (tail(mp.sinh), 1e-6, 1.0, 4),
    "sin": (tail(mp.sin), 1e-6, 0.62, 4),
    "sin_half_turn": (tail(mp.sin), 1e-6, 2.47, 5),
    "cos": (lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2, 1e-4, 0.62, 3),
    "asin": (tail(mp.asin), 1e-6, 0.25, 5),
    "atan": (tail(mp.atan), 1e-6, 1.0, 9),
    "erf": (odd(mp.erf), 1e-9, 1.0, 7),
    "erf_tail": (lambda t: mp.log(mp.erfc(t)), 1.0, 4.1, 7, mp.erfc),
    "erfinv": (erfinv_ratio, 0.0, 5.0, 9),
    "erfinv_tail": (lambda t: erfinv_ratio((t + 3) ** 2), -0.8, 1.2, 9),
    "ndtri_tail": (lambda t: erfinv_ratio((t + 6.5) ** 2), -2.4, 3.0, 8),
    "lgamma": (lgamma_ratio, -1.0, 1.0, 12),
    "temme0": (temme(0), -1.35, 1.35, 10),
    "temme1": (temme(1), -1.35, 1.35, 7),
    "temme2": (temme(2), -1.35, 1.35, 5),
    "i0": (lambda t: mp.besseli(0, 8 * mp.sqrt(t)), 0.0, 1.0, 11),
    "i0_large": (scaled_i(0), 1e-3, 1.0, 7),
    "i1": (lambda t: mp.besseli(1, 8 * mp.sqrt(t)) / (8 * mp.sqrt(t)), 1e-9, 1.0, 11),
    "i1_large": (scaled_i(1), 1e-3, 1.0, 7),
    "k0": (k0_rest, 1e-9, 4.0, 6),
    "k0_large": (scaled_k(0), 1e-3, 1.0, 8),
    "k1": (k1_rest, 1e-9, 4.0, 6),
    "k1_large": (scaled_k(1), 1e-3, 1.0, 8),
    "j0": (lambda t: mp.besselj(0, mp.sqrt(t)), 0.0, 9.0, 7),
    "j1": (lambda t: mp.besselj(1, mp.sqrt(t)) / mp.sqrt(t), 1e-9, 9.0, 7),
    "y0": (y0_rest, 1e-9, 9.0, 7),
    "y1": (y1_rest, 1e-9, 9.0, 7),
    "j0_modulus": (modulus_j(0), 1e-3, 1.0, 7),
    "j0_phase": (phase_j(0), 1e-3, 1.0, 7),
    "j1_modulus": (modulus_j(1), 1e-3, 1.0, 7),
    "j1_phase": (phase_j(1), 1e-3, 1.0, 7),
    "airy": (mp.airyai, -2.0, 2.0, 13),
    "airy_right": (airy_right, 1e-3, 0.54, 8),
    "airy_modulus": (lambda t: abs(airy_turned(t)), 1e-6, 0.29, 6),
    "airy_phase": (lambda t: mp.arg(airy_turned(t)) / mp.sqrt(t), 1e-6, 0.29, 6),
    "erfcx": (erfcx_scaled, -0.6, 0.9999, 12),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        coefficients, error = fit(*FITS[name])
        print(f"{name}: max error {error:.2e}")
        print("  " + ", ".join(f"{c:.9g}" for c in coefficients))

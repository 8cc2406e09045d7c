"""torch.special, activations, and what takes numbers apart."""

import torch

from ..model import COMPUTED, FLOATS
from . import maker, new
from .pointwise import formed

# Of the whole line; of what is positive; of what lies between 0 and 1.
ANYWHERE = ("erf", "erfc", "expit", "i0e", "i1e", "i0", "i1", "ndtr", "log_ndtr", "sinc", "exp2")
POSITIVE = ("digamma", "gammaln", "entr", "psi", "log1p", "erfcx")
UNIT = ("logit", "ndtri", "erfinv", "entr", "log1p")
PAIRS = ("xlog1py", "xlogy", "zeta", "gammainc", "gammaincc")
FLOAT32_ONLY = ("i1", "i1e", "erfcx", "ndtri", "log_ndtr", "zeta", "gammainc", "gammaincc", "psi")

ACTIVATIONS = (
    *("relu6", "hardtanh", "hardshrink", "softshrink", "leaky_relu", "celu", "selu", "hardsigmoid"),
    *("tanhshrink", "softsign", "sigmoid", "tanh", "relu", "elu", "hardswish"),
)


@maker(3)
def specials(m):
    name = m.pick(lambda x: x.dtype in FLOATS)
    if not name or not m.is_tame(name, 8.0):
        return None
    x, detached = m.tensor(name), f"{name}.detach()"
    magnitude = f"({detached}.abs() + 0.5)"
    functions = m.choice((ANYWHERE, POSITIVE, UNIT, PAIRS))
    function = m.choice(functions)
    if function in FLOAT32_ONLY and x.dtype != torch.float32:
        return None
    if functions is ANYWHERE:
        arguments = detached
    elif functions is POSITIVE:
        arguments = magnitude
    elif functions is UNIT:
        arguments = f"({detached}.abs() / 16 + 0.125)"
    elif function == "zeta":
        arguments = f"({detached}.abs() + 1.5), {magnitude}"
    else:
        arguments = f"{magnitude}, ({detached}.abs().flip({[0] if x.dim() else []}) + 0.25)"
    scale = 64.0 if function in ("i0", "i1", "zeta") else 8.0
    return new(m, function, f"torch.special.{function}({arguments})", "sums", scale)


@maker(4)
def activations(m):
    name = m.pick(lambda x: x.dtype in FLOATS)
    if not name or not m.is_tame(name, 8.0):
        return None
    x = m.tensor(name)
    slopes = x.size(1) if x.dim() > 1 else 1
    weight = f"(data({m.integer(0, 99)}, ({slopes},), {x.dtype}) / 8).to(device)"
    number = m.choice((0.25, 1, 2))
    kind, text = m.choice(
        (
            *(((f, f"F.{f}({name})")) for f in m.sample(ACTIVATIONS, 4)),
            ("leaky_relu", f"F.leaky_relu({name}, {number})"),
            ("elu", f"F.elu({name}, {number})"),
            ("hardtanh", f"F.hardtanh({name}, -{number}, {number})"),
            ("softshrink", f"F.softshrink({name}, {number})"),
            ("threshold", f"F.threshold({name}, {number}, -1)"),
            ("softplus", f"F.softplus({name}, {number}, 4)"),
            ("gelu", f'F.gelu({name}, approximate="tanh")'),
            ("prelu", f"F.prelu({name}, {weight})"),
            ("rrelu", f"F.rrelu({name}, 0.25, 0.25)"),
            ("glu", f"F.glu({name}, {m.integer(-1, max(x.dim() - 1, 0))})"),
            ("softmin", f"F.softmin({name}, {m.integer(-1, max(x.dim() - 1, 0))})"),
            ("dropout", f"F.dropout({name}, {m.choice((0.0, 1.0))})"),
        )
    )
    if kind == "rrelu" and x.requires_grad:
        return None
    return new(m, kind, text, "close", m.largest(name))


@maker(3)
def taken_apart(m):
    name = m.pick(lambda x: x.dtype in COMPUTED)
    if not name or not m.is_plain(name):
        return None
    x = m.tensor(name)
    floating, complex_ = x.is_floating_point(), x.is_complex()
    options = []
    if floating:
        options += [
            ("nan_to_num", f"torch.nan_to_num({name}, 2.0, 3.0, -1.0)"),
            ("nan_to_num_", None),
            ("frac", f"torch.frac({name})"),
            ("clamp_min", f"torch.clamp_min({name}, 0.5)"),
            ("clamp_max", f"torch.clamp_max({name}, 0.5)"),
            ("round", f"torch.round({name}, decimals=0)"),
        ]
        if m.is_tame(name) and not bool((x == 0).any()):
            options += [
                ("frexp", f"torch.frexp({name})[{m.integer(0, 1)}]"),
                ("ldexp", f"torch.ldexp({name}, torch.tensor(2, device=device))"),
                ("reciprocal", f"torch.reciprocal({name})"),
            ]
        if m.is_tame(name):
            options += [
                ("deg2rad", f"torch.deg2rad({name})"),
                ("rad2deg", f"torch.rad2deg({name})"),
            ]
    if x.dtype == torch.float32 and m.is_tame(name):
        options += [
            ("polar", f"torch.polar({name}.abs(), {name})"),
            ("complex", f"torch.complex({name}, {name}.flip({[0] if x.dim() else []}))"),
            ("float_power", f"torch.float_power({name}, 2)"),
        ]
    if complex_ and m.is_tame(name):
        options += [("angle", f"torch.angle({name}).detach()"), ("real", f"torch.real({name}) + 1")]
    if not complex_:
        options += [
            ("sign", f"torch.sign({name})"),
            ("isin", f"torch.isin({name}, 1)"),
            ("where", f"torch.where({name} > 0, {name}, {m.choice((0, 1, 2))})"),
            ("where", f"torch.where({name} > 0, {m.choice((0, 1.5))}, {name})"),
        ]
    if not options:
        return None
    kind, text = m.choice(options)
    if kind == "nan_to_num_":
        return formed(m, name, "nan_to_num")
    return new(m, kind, text, "close", m.largest(name))

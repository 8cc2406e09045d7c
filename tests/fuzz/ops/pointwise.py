"""Pointwise operators: functional, in place and into out=, with operands that share memory."""

import torch

from ..model import COMPUTED, FLOATS, same_storage
from . import change, maker, new
from .networks import CONTIGUOUS

# Of what is tame; the result is rounded.
SMOOTH = (
    *("sin", "cos", "tanh", "sigmoid", "exp", "expm1", "atan", "erf", "sinh", "cosh", "asinh"),
    *("exp2", "square", "sinc", "tan"),
)
POSITIVE = ("sqrt", "log", "log2", "log1p", "rsqrt", "log10")
UNIT = ("asin", "acos", "atanh", "erfinv")
FLOAT_ONLY = ("F.gelu", "F.silu", "F.mish", "F.softplus", "F.elu", "F.hardswish", "F.logsigmoid")
# Exact, also of NaN and infinities.
EXACT = (
    "abs",
    "neg",
    "sign",
    "sgn",
    "floor",
    "ceil",
    "trunc",
    "round",
    "relu",
    "signbit",
    "positive",
)
TESTS = ("isnan", "isinf", "isfinite", "logical_not", "isposinf", "isneginf", "isreal")
ARITHMETIC = ("add", "sub", "mul", "add", "mul", "rsub")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "fmax", "fmin")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
QUOTIENTS = ("div", "true_divide", "floor_divide", "remainder", "fmod", "div_floor", "div_trunc")
TRANSCENDENTAL = ("atan2", "hypot", "logaddexp", "xlogy", "copysign", "nextafter", "heaviside")
INPLACE_NAMES = {"rsub"}  # without an in-place form


def computed(x):
    return x.dtype in COMPUTED


def operand(m, name, same_dtype=0.6):
    """Text of something that fits to the tensor of that name, and the variable that it reads."""
    x = m.tensor(name)
    chance = m.random.random()
    if chance < 0.45:
        found = [
            n
            for n in m.alive
            if n not in m.hosts and fits(m.tensor(n), x) and computed(m.tensor(n))
        ]
        if found:
            other = m.choice(found)
            return other, other
    if chance < 0.6:
        return m.choice((name, f"{name}.flip({[0] if x.dim() else []})", f"{name}.clone()")), name
    if chance < 0.66 and x.dim() >= 2 and x.size(-1) == x.size(-2):
        return f"{name}.mT", name
    if chance < 0.72 and x.dim():
        return f"{name}[..., :1]", name
    if chance < 0.75 and x.dim() and x.size(0):
        return f"{name}[-1]", name
    if chance < 0.80:
        return f"torch.tensor({m.choice((2, 1.5, True, -3))})", None
    if chance < 0.93:
        integral = not (x.is_floating_point() or x.is_complex())
        return str(
            m.choice((2, 3, -1, 0.5, 1.25, True) if not integral else (2, 3, -1, 7, 0.5))
        ), None
    other = m.pick(computed)
    return other, other


def fits(y, x):
    try:
        return torch.broadcast_shapes(y.shape, x.shape).numel() <= 400
    except RuntimeError:
        return False


def tensors(m, operands):
    with torch.no_grad():  # autograd has no views of floats as integers
        values = [eval(operand, m.names) for operand in operands]
    return [value for value in values if isinstance(value, torch.Tensor)]


def casts_repeated(m, *operands):
    """Whether a tensor whose elements share memory is cast. The CPU does that before it chooses
    the strides of the result, CUDA and the device while they compute."""
    values = tensors(m, operands)
    repeated = any(torch._debug_has_internal_overlap(value) == 1 for value in values)
    return repeated and len({value.dtype for value in values}) > 1


def resizes(m, out, *operands):
    """Whether the result has another shape, and an operand lies in its memory."""
    values = tensors(m, operands)
    if not any(same_storage(value, m.tensor(out)) for value in values):
        return False
    try:
        shape = torch.broadcast_shapes(*(value.shape for value in values))
    except RuntimeError:
        return False
    return shape != m.tensor(out).shape


def formed(m, name, function, others=(), rest="", rule="equal", scale=1.0, inplace=True):
    """The operator in one of its forms. `function`: its name; "F.name" has only one. `others`: the
    operands after the first, as text."""
    kind = function.split(".")[-1]
    arguments = ", ".join(others) + rest
    joined = f"{name}, {arguments}" if arguments else name
    if function.startswith("F."):
        return new(m, kind, f"{function}({joined})", rule, scale)
    chance = m.random.random()
    if chance < 0.3 and inplace:
        if not m.may_write(name) or not m.may_read_while(name, *others):
            return None
        text = f"{name}.{kind}_({arguments})"
        if m.chance(0.1):
            text = f"with torch.no_grad(): {text}"
        return change(kind + "_", text, name, rule=rule, scale=scale)
    if chance < 0.45:
        shape = m.tensor(name).shape
        out = m.pick(lambda x: x.shape == shape and x.dtype in COMPUTED)
        if not out or resizes(m, out, name, *others):
            return None  # what would then become of operands in its memory is not defined
        if m.may_write(out) and m.may_read_while(out, name, *others):
            text = f"torch.{kind}({joined}, out={out})"
            return change(kind + " out", text, out, rule=rule, scale=scale)
    contiguous = CONTIGUOUS if casts_repeated(m, name, *others) else ""
    return new(m, kind, f"torch.{kind}({joined}){contiguous}", rule, scale)


@maker(9)
def unary(m):
    function = m.choice(
        (SMOOTH, SMOOTH, POSITIVE, UNIT, EXACT, EXACT, TESTS, FLOAT_ONLY)[m.integer(0, 7)]
    )
    name = m.pick(computed)
    if not name:
        return None
    x = m.tensor(name)
    if function in EXACT or function in TESTS:
        if not m.is_plain(name):
            return None
        if x.is_complex() and function in ("sgn", "abs"):
            return formed(m, name, function, rule="close") if m.is_tame(name) else None
        return formed(
            m,
            name,
            function,
            inplace=function
            not in (
                "isnan",
                "isinf",
                "isfinite",
                "isreal",
                "signbit",
                "isposinf",
                "isneginf",
                "positive",
            ),
        )
    if not m.is_tame(name, 8.0):
        return None
    if function in FLOAT_ONLY:
        return formed(m, name, function, rule="close")
    magnitudes = x.is_floating_point() or x.is_complex()
    if (function in POSITIVE or function in UNIT) and magnitudes:
        if x.is_complex():
            return None
        bad = x <= 0.1 if function in POSITIVE else (x.abs() >= 0.95) | (x.abs() < 0.01)
        if x.numel() and bool(bad.any()):
            return None
    if function in ("tan", "sinc") and (x.is_complex() or not magnitudes or m.largest(name) > 1.25):
        return None
    return formed(m, name, function, rule="close", scale=m.largest(name))


@maker(16)
def binary(m):
    name = m.pick(computed)
    if not name:
        return None
    function = m.choice(
        m.choice((ARITHMETIC, ARITHMETIC, ARITHMETIC, COMPARE, COMPARE, LOGICAL, BITWISE))
    )
    other, read = operand(m, name)
    reads = [read] if read else []
    if function in ARITHMETIC:
        if not all(m.is_tame(n, 1e3) for n in [name, *reads]):
            return None
        rest = (
            f", alpha={m.choice((2, -1, 3))}"
            if function in ("add", "sub", "rsub") and m.chance(0.15)
            else ""
        )
        scale = m.largest(name, *reads)
        if function == "mul":
            scale *= scale
        inplace = function not in INPLACE_NAMES
        return formed(m, name, function, [other], rest, "close", scale, inplace)
    if not all(m.is_plain(n) for n in [name, *reads]):
        return None
    inplace = function not in ("maximum", "minimum", "fmax", "fmin")
    return formed(m, name, function, [other], inplace=inplace)


@maker(5)
def quotient(m):
    name = m.pick(computed)
    function = m.choice(QUOTIENTS)
    if not name or not m.is_tame(name):
        return None
    x = m.tensor(name)
    other = m.choice(("2", "3", "-4", "0.5", "1.5", f"({name} * 0 + 3)", f"({name} == {name}) * 2"))
    if m.chance(0.5):
        candidates = [
            n
            for n in m.alive
            if n not in m.hosts and fits(m.tensor(n), x) and computed(m.tensor(n))
        ]
        candidates = [n for n in candidates if divides(m.tensor(n), x) and m.is_tame(n)]
        if candidates:
            other = m.choice(candidates)
    reads = [other] if other[0] == "v" else []
    # Of numbers that are not multiples of 1/8 the quotient may lie on either side of an integer.
    operands = [m.tensor(n) for n in [name, *reads]]
    jumps = function not in ("div", "true_divide") and any(t.is_floating_point() for t in operands)
    if jumps and not all(coarse(t) for t in operands):
        return None
    mode = ""
    if function.startswith("div_"):
        function, mode = "div", f', rounding_mode="{function[4:]}"'
    return formed(m, name, function, [other], mode, "close", m.largest(name))


def divides(y, x):
    """Whether no element is zero, nor becomes zero in the dtype of the quotient: the CPU refuses to
    divide integers by zero, GPUs do not."""
    return not bool((y == 0).any()) and not bool((y.to(torch.result_type(x, y)) == 0).any())


def coarse(x):
    if x.is_complex():
        return False
    return not x.is_floating_point() or bool((x.double() * 8 == (x.double() * 8).round()).all())


@maker(4)
def transcendental(m):
    name = m.pick(lambda x: x.dtype in FLOATS)
    if not name or not m.is_tame(name):
        return None
    other, read = operand(m, name)
    if other[0] != "v" or m.tensor(read).dtype not in FLOATS or not m.is_tame(read):
        return None
    function = m.choice(TRANSCENDENTAL)
    if function == "xlogy":
        if not bool((m.tensor(read) > 0.1).all()):
            return None
        return formed(m, name, function, [other], "", "close", 64.0)
    if function in ("nextafter", "copysign", "heaviside"):
        return formed(m, name, function, [other])
    return formed(m, name, function, [other], "", "close", m.largest(name, read))


@maker(3)
def powers(m):
    name = m.pick(computed)
    if not name or not m.is_tame(name, 8.0):
        return None
    x = m.tensor(name)
    exponent = m.choice((2, 3, 2.0, 0, 1))
    if x.is_floating_point() and x.numel() and bool((x > 0.1).all()):
        exponent = m.choice((0.5, -1, -0.5, 2.5, 3))
    scale = m.largest(name) ** 3
    return formed(m, name, "pow", [str(exponent)], "", "close", scale)


@maker(2)
def shifts(m):
    name = m.pick(
        lambda x: not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    )
    if not name:
        return None
    function = m.choice(
        ("bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm", "bitwise_not", "clamp")
    )
    if function == "bitwise_not":
        return formed(m, name, function)
    if function == "clamp":
        return (
            formed(m, name, function, ["-3", "4"]) if m.tensor(name).dtype != torch.uint8 else None
        )
    if function in ("gcd", "lcm"):
        x = m.tensor(name)
        other = m.pick(lambda y: y.dtype == x.dtype and fits(y, x))
        if not other:
            return None
        small = all(bool((m.tensor(n).long().abs() <= 100).all()) for n in (name, other))
        return formed(m, name, function, [other]) if small else None
    return formed(m, name, function, [str(m.integer(0, 7))])


@maker(5)
def ternary(m):
    name = m.pick(computed)
    if not name:
        return None
    (a, read_a), (b, read_b) = operand(m, name), operand(m, name)
    reads = [r for r in (read_a, read_b) if r]
    if not all(m.is_tame(n) for n in [name, *reads]):
        return None
    kind = m.choice(("where", "where", "addcmul", "lerp", "clamp", "clamp", "addcdiv"))
    x = m.tensor(name)
    if kind == "where":
        masks = [
            n
            for n in m.alive
            if n not in m.hosts and m.tensor(n).dtype == torch.bool and fits(m.tensor(n), x)
        ]
        mask = m.choice(masks) if masks else f"({name} == {name}.flip({[0] if x.dim() else []}))"
        return new(m, kind, f"torch.where({mask}, {name}, {a})", "equal")
    scale = m.largest(name, *reads) ** 2
    if kind == "addcmul" and a[0] == b[0] == "v":
        return formed(m, name, kind, [a, b], ", value=2" if m.chance(0.3) else "", "close", scale)
    if kind == "addcdiv" and a[0] == "v" and x.is_floating_point():
        return formed(m, name, kind, [a, f"({name} * 0 + 4)"], "", "close", scale)
    if kind == "lerp" and a[0] == "v" and x.is_floating_point():
        return formed(m, name, kind, [a, m.choice(("0.25", "0.75", b))], "", "close", scale)
    if kind == "clamp" and not x.is_complex():
        if a[0] == "v" and b[0] != "v":
            b = "None"
        return formed(m, name, kind, [a, b])
    return None


@maker(2)
def lists(m):
    """Multi-tensor functions."""
    names = [
        n for n in m.alive if n not in m.hosts and m.tensor(n).dtype in FLOATS and m.is_tame(n)
    ]
    if len(names) < 2:
        return None
    names = m.sample(names, min(len(names), m.integer(2, 4)))
    listed = f"[{', '.join(names)}]"
    if not all(m.may_write(n, refused=False) for n in names):
        return None
    for n in names:
        if not m.may_read_while(n, *(o for o in names if o != n)) or any(
            o != n and m.tensor(o).untyped_storage()._cdata == m.tensor(n).untyped_storage()._cdata
            for o in names
        ):
            return None
    text = m.choice(
        (
            f"torch._foreach_add_({listed}, 2)",
            f"torch._foreach_mul_({listed}, 0.5)",
            f"torch._foreach_neg_({listed})",
            f"torch._foreach_add_({listed}, torch._foreach_mul({listed}, 2), alpha=0.5)",
            f"torch._foreach_lerp_({listed}, torch._foreach_neg({listed}), 0.25)",
            f"torch._foreach_clamp_min_({listed}, -1)",
            f"torch._foreach_zero_({listed})",
            f"torch._foreach_copy_({listed}, torch._foreach_abs({listed}))",
        )
    )
    if m.chance(0.5):
        text = f"with torch.no_grad(): {text}"
    kind = text[text.index("_foreach") :].split("(")[0]
    return change(kind, text, *names, rule="close", scale=64.0)

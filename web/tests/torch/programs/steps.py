"""Makers of steps, by family. A maker looks at the program and returns a step, or None if nothing
fits; `@maker(weight)` adds one. Makers with `gradients=False` are left out of programs that ask for
gradients: web/torch says that it has none, or changes tensors in place."""

import torch

from .model import Literal, Program, Ref, Slice, Step

FLOATS = (torch.float32, torch.float16)
INTS = (torch.int32, torch.int64)
ALL = (*FLOATS, *INTS, torch.bool)
MAKERS: list[tuple[float, bool, object]] = []


def maker(weight, gradients=True):
    def add(function):
        MAKERS.append((weight, gradients, function))
        return function

    return add


def is_float(value):
    return value.dtype.is_floating_point


def is_single(value):
    return value.dtype == torch.float32


def is_int(value):
    return value.dtype in INTS


def is_wide(value):
    return value.dim() > 0 and value.numel() > 0


def both(*conditions):
    return lambda value: all(condition(value) for condition in conditions)


def some_dim(p, x, wraps=True):
    d = p.rng.randrange(max(x.dim(), 1))
    return d - max(x.dim(), 1) if wraps and p.rng.random() < 0.3 else d


def some_dims(p, x):
    """None for all dimensions, one, or several."""
    if x.dim() == 0 or p.rng.random() < 0.25:
        return None
    count = p.rng.randint(1, x.dim())
    dims = p.rng.sample(range(x.dim()), count)
    return dims[0] if count == 1 and p.rng.random() < 0.7 else dims


def fraction(p):
    """A number that is no whole one: those count as ints in JavaScript."""
    return p.rng.choice([0.5, -0.75, 1.25, 2.5, -3.5, 0.125])


def number(p, x):
    return fraction(p) if is_float(x) and p.rng.random() < 0.6 else p.rng.choice([2, 3, -1, -2, 5])


def broadcasts(x):
    def fits(y):
        try:
            shape = torch.broadcast_shapes(x.shape, y.shape)
        except RuntimeError:
            return False
        return torch.Size(shape).numel() <= 400

    return fits


def other(p, x, condition=lambda value: True):
    """A value that broadcasts with x, or a new one of x's shape."""
    found = p.pick(both(broadcasts(x), condition))
    return found


# ---- New tensors ----


@maker(2)
def factory(p: Program):
    shape = [p.rng.randint(1, 4) for _ in range(p.rng.randint(0, 3))]
    dtype = p.rng.choice([torch.float32, torch.float32, *ALL])
    kind = p.rng.choice(["arange", "zeros", "ones", "full", "eye", "linspace", "like", "like"])
    if kind == "arange":
        start, step = p.rng.randint(-3, 3), p.rng.choice([1, 1, 2, 3])
        return Step("arange", [start, start + p.rng.randint(1, 12), step])
    if kind == "full":
        value = True if dtype == torch.bool else (fraction(p) if dtype in FLOATS else 7)
        return Step("full", [shape, value], {"dtype": dtype})
    if kind == "eye":
        return Step("eye", [p.rng.randint(1, 5), p.rng.randint(1, 5)], {"dtype": dtype})
    if kind == "linspace":
        return Step("linspace", [fraction(p), 4.75, p.rng.randint(1, 9)], rounds=True)
    if kind == "like":
        ref = p.pick()
        if p.rng.random() < 0.5:
            return Step("full_like", [ref, 1])
        return Step(p.rng.choice(["zeros_like", "ones_like"]), [ref], {"dtype": dtype})
    return Step(kind, [shape], {"dtype": dtype})


# ---- Views ----


@maker(14)
def view(p: Program):
    ref = p.pick(is_wide)
    if ref is None:
        return None
    x = p[ref]
    d, e = some_dim(p, x), some_dim(p, x)
    size = x.shape[d]
    kind = p.rng.choice(
        [
            "transpose",
            "permute",
            "expand",
            "squeeze",
            "unsqueeze",
            "select",
            "slice",
            "slice",
            "narrow",
            "diagonal",
            "view",
            "reshape",
            "flatten",
            "unflatten",
            "movedim",
            "swapaxes",
            "broadcast_to",
            "split",
            "chunk",
            "unbind",
            "at",
            "at",
            "t",
            "contiguous",
            "ravel",
        ]
    )
    if kind in ("transpose", "swapaxes", "movedim"):
        return Step(kind, [ref, d, e])
    if kind == "permute":
        return Step(kind, [ref, p.rng.sample(range(x.dim()), x.dim())])
    if kind in ("expand", "broadcast_to"):
        front = [p.rng.randint(1, 3)] if p.rng.random() < 0.4 else []
        return Step(kind, [ref, [*front, *(p.rng.randint(1, 3) if n == 1 else n for n in x.shape)]])
    if kind == "squeeze":
        return Step(kind, [ref] if p.rng.random() < 0.4 else [ref, d])
    if kind == "unsqueeze":
        return Step(kind, [ref, p.rng.randrange(-x.dim() - 1, x.dim() + 1)])
    if kind == "select":
        return Step(kind, [ref, d, p.rng.randrange(-size, size)])
    if kind == "slice":
        start = p.rng.randrange(0, size)
        return Step(kind, [ref, d, start, p.rng.randint(start, size + 1), p.rng.randint(1, 3)])
    if kind == "narrow":
        start = p.rng.randrange(size)
        return Step(kind, [ref, d, start, p.rng.randint(0 if size > 2 else 1, size - start)])
    if kind == "diagonal":
        return Step(kind, [ref, p.rng.randint(-2, 2), d, e])
    if kind in ("view", "reshape"):
        return Step(kind, [ref, reshaped(p, x)])
    if kind == "flatten":
        first = p.rng.randrange(x.dim())
        return Step(kind, [ref, first, p.rng.randrange(first, x.dim())])
    if kind == "unflatten":
        parts = [k for k in range(1, size + 1) if size % k == 0]
        part = p.rng.choice(parts)
        return Step(kind, [ref, d, p.rng.choice([[part, -1], [part, size // part]])])
    if kind == "split":
        return Step(kind, [ref, p.rng.randint(1, size), d])
    if kind == "chunk":
        return Step(kind, [ref, p.rng.randint(1, 4), d])
    if kind == "unbind":
        return Step(kind, [ref, d]) if size <= 4 else None
    if kind == "at":
        return Step(kind, [ref, *places(p, x)])
    if kind == "t" and x.dim() > 2:
        return None
    return Step(kind, [ref])


def reshaped(p, x):
    """A shape with as many elements, sometimes with a -1."""
    left, shape = x.numel(), []
    while left > 1 and len(shape) < 3:
        part = p.rng.choice([k for k in range(1, left + 1) if left % k == 0])
        shape.append(part)
        left //= part
    shape.append(left)
    if p.rng.random() < 0.4:
        shape[p.rng.randrange(len(shape))] = -1
    return shape


def places(p, x):
    """Indices of x.at(): numbers, slices, "..." and null."""
    made, d, dots = [], 0, False
    while d < x.dim():
        size, kind = x.shape[d], p.rng.randrange(6)
        if kind == 0:
            made.append(p.rng.randrange(-size, size))
        elif kind == 1:
            made.append(Slice(p.rng.randrange(size), None, p.rng.randint(1, 2)))
        elif kind == 2:
            made.append(Slice(None, p.rng.choice([-1, size, 2]), 1))
        elif kind == 3:
            made.append(None)
            continue
        elif kind == 4 and not dots:
            made.append("...")
            dots = True
            break
        else:
            break
        d += 1
    return made or [None]


@maker(2, gradients=False)
def windows(p: Program):
    ref = p.pick(is_wide)
    if ref is None:
        return None
    x = p[ref]
    d = some_dim(p, x)
    if p.rng.random() < 0.6:
        return Step("unfold", [ref, d, p.rng.randint(1, x.shape[d]), p.rng.randint(1, 3)])
    room = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    n = p.rng.randint(1, room + 1)
    return Step("as_strided", [ref, [n, p.rng.randint(1, 2)], [1, 0]])


# ---- Pointwise ----

SMOOTH = ["atan", "cos", "erf", "erfc", "expm1", "sigmoid", "sin", "sinc", "sinh", "tanh", "asinh"]
SMOOTH += ["exp", "exp2", "cosh"]
POSITIVE = ["log", "log10", "log1p", "log2", "sqrt", "rsqrt", "reciprocal", "digamma", "lgamma"]
INSIDE = ["acos", "asin", "atanh", "erfinv", "logit"]
SAME = ["abs", "ceil", "floor", "frac", "neg", "round", "trunc", "sign", "square"]
ACTIVATIONS = [
    "hardsigmoid",
    "hardswish",
    "mish",
    "silu",
    "gelu",
    "elu",
    "celu",
    "selu",
    "softplus",
]
ACTIVATIONS += ["logsigmoid", "softsign", "tanhshrink", "leaky_relu"]
KINKED = ["relu", "relu6", "hardtanh", "hardshrink"]
SPECIAL = ["special_entr", "special_erfcx", "special_i0e", "special_i1", "special_i1e", "i0"]
SPECIAL += ["special_log_ndtr", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0"]
SPECIAL += ["special_modified_bessel_i0", "special_modified_bessel_k0", "special_airy_ai"]


@maker(14)
def unary(p: Program):
    kind = p.rng.randrange(10)
    if kind < 3:
        ref = p.pick(lambda x: is_float(x) or (is_int(x) and not p.gradients))
        return ref and Step(p.rng.choice(SMOOTH), [ref], rounds=True)
    if kind == 3:
        ref = p.pick(lambda x: is_float(x) and (x > 0.05).all())
        return ref and Step(p.rng.choice(POSITIVE), [ref], rounds=True)
    if kind == 4:
        ref = p.pick(lambda x: is_float(x) and ((x > 0.02) & (x < 0.98)).all())
        return ref and Step(p.rng.choice(INSIDE), [ref], rounds=True)
    if kind < 7:
        ref = p.pick(lambda x: x.dtype != torch.bool)
        return ref and Step(p.rng.choice(SAME), [ref])
    if kind < 9:
        ref = p.pick(is_float)
        return ref and Step(p.rng.choice(ACTIVATIONS), [ref], rounds=True)
    ref = p.pick(is_float)
    return ref and Step(p.rng.choice(KINKED), [ref], rounds=True)


@maker(2, gradients=False)
def special(p: Program):
    ref = p.pick(lambda x: is_single(x) and (x > 0.1).all() and (x < 20).all())
    return ref and Step(p.rng.choice(SPECIAL), [ref], rounds=True)


@maker(3)
def predicates(p: Program):
    name = p.rng.choice(
        ["isnan", "isinf", "isfinite", "isneginf", "isposinf", "logical_not", "signbit"]
    )
    ref = p.pick()
    return Step(name, [ref])


ARITHMETIC = ["add", "add", "sub", "sub", "mul", "mul", "rsub", "maximum", "minimum"]
ARITHMETIC += ["fmax", "fmin"]
ROUNDING = ["div", "atan2", "hypot", "logaddexp", "logaddexp2", "true_divide"]
COMPARE = ["eq", "ge", "gt", "le", "lt", "ne", "logical_and", "logical_or", "logical_xor"]


def pair(p, condition=lambda value: True, second=None):
    ref = p.pick(condition)
    if ref is None:
        return None
    found = other(p, p[ref], second or condition)
    return None if found is None else (ref, found)


@maker(16)
def binary(p: Program):
    name = p.rng.choice(ARITHMETIC + ARITHMETIC + ROUNDING)
    condition = (
        (lambda x: x.dtype != torch.bool) if name not in ("add", "mul") else (lambda x: True)
    )
    if name in ("hypot", "logaddexp", "logaddexp2"):
        condition = is_single
    operands = pair(p, condition)
    if operands is None:
        return None
    ref, second = operands
    if name in ("div", "true_divide", "atan2") and (p[second] == 0).any() and not p.special:
        return None
    numbers = name in ("add", "sub", "mul", "div", "rsub")
    value = second if p.rng.random() < 0.7 or not numbers else number(p, p[ref])
    options = {}
    if name in ("add", "sub") and p.rng.random() < 0.2:
        options["alpha"] = 2
    return Step(name, [ref, value], options, rounds=name in ROUNDING or bool(options))


@maker(6)
def compare(p: Program):
    name = p.rng.choice(COMPARE)
    operands = pair(p)
    if operands is None:
        return None
    value = operands[1]
    if p.rng.random() < 0.4 and not name.startswith("logical"):
        value = number(p, p[operands[0]])
    return Step(name, [operands[0], value])


@maker(5)
def division(p: Program):
    name = p.rng.choice(["floor_divide", "remainder", "fmod", "div"])
    options = {"rounding_mode": p.rng.choice(["floor", "trunc"])} if name == "div" else {}
    condition = is_single if p.gradients else lambda x: x.dtype != torch.bool
    ref = p.pick(condition)
    if ref is None:
        return None
    second = other(p, p[ref], lambda y: condition(y) and bool((y != 0).all()))
    value = number(p, p[ref]) if second is None or p.rng.random() < 0.4 else second
    return Step(name, [ref, value], options)


@maker(3)
def power(p: Program):
    if p.rng.random() < 0.6:
        ref = p.pick(lambda x: x.dtype != torch.bool)
        exponents = [0.5, 1.5, 2, 3, 1, 0] if ref and is_float(p[ref]) else [2, 3, 1, 0]
        exponent = p.rng.choice(exponents)
        if ref and exponent != int(exponent) and bool((p[ref] <= 0.01).any()):
            return None
        return ref and Step("pow", [ref, exponent], rounds=True)
    base = p.pick(lambda x: is_float(x) and bool((x > 0.05).all()))
    if base is None:
        return None
    exponent = other(p, p[base], lambda y: is_float(y) or (is_int(y) and not p.gradients))
    return exponent and Step("pow", [base, exponent], rounds=True)


@maker(4, gradients=False)
def integers(p: Program):
    name = p.rng.choice(
        [
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "bitwise_not",
            "gcd",
            "lcm",
            "bitwise_left_shift",
            "bitwise_right_shift",
            "copysign",
            "heaviside",
            "nextafter",
            "xlogy",
        ]
    )
    if name in ("heaviside", "nextafter", "copysign", "xlogy"):
        operands = pair(
            p, is_single, lambda y: is_single(y) and (name != "xlogy" or bool((y > 0.1).all()))
        )
        return operands and Step(name, [*operands], rounds=name == "xlogy")
    condition = is_int if name in ("gcd", "lcm") or "shift" in name else lambda x: not is_float(x)
    if name == "bitwise_not":
        ref = p.pick(condition)
        return ref and Step(name, [ref])
    operands = pair(p, condition)
    if operands is None:
        return None
    if "shift" in name:
        return Step(name, [operands[0], p.rng.randint(0, 5)])
    return Step(name, [*operands])


@maker(8)
def ternary(p: Program):
    kind = p.rng.choice(
        ["where", "where", "clamp", "clamp", "lerp", "addcmul", "addcdiv", "masked_fill"]
    )
    ref = p.pick(is_float if p.gradients else lambda x: x.dtype != torch.bool)
    if ref is None:
        return None
    x = p[ref]
    mask = other(p, x, lambda y: y.dtype == torch.bool)
    if kind in ("where", "masked_fill") and mask is None:
        return Step("gt", [ref, number(p, x)])
    if kind == "where":
        second = other(p, x)
        value = number(p, x) if p.rng.random() < 0.3 or second is None else second
        return Step(kind, [mask, ref, value] if p.rng.random() < 0.5 else [mask, value, ref])
    if kind == "masked_fill":
        return Step(kind, [ref, mask, number(p, x)])
    if kind == "clamp":
        low = number(p, x)
        choice = p.rng.randrange(5)
        if choice == 0:
            return Step("clamp_min", [ref, low])
        if choice == 1:
            return Step("clamp_max", [ref, low])
        if choice == 2:
            second = other(p, x, lambda y: y.dtype == x.dtype)
            return second and Step(p.rng.choice(["clamp_min", "clamp_max"]), [ref, second])
        return Step(kind, [ref, low, low + 2])
    second = other(p, x, lambda y: y.dtype == x.dtype)
    if second is None:
        return None
    if kind == "lerp":
        if not is_single(x):
            return None
        weight = 0.25 if p.rng.random() < 0.6 else other(p, x, is_single)
        return Step(kind, [ref, second, weight], rounds=True)
    third = other(p, x, lambda y: y.dtype == x.dtype)
    if third is None or (kind == "addcdiv" and (not is_float(x) or bool((p[third] == 0).any()))):
        return None
    options = {"value": 2} if p.rng.random() < 0.5 else {}
    return Step(kind, [ref, second, third], options, rounds=True)


@maker(6)
def cast(p: Program):
    ref = p.pick(is_wide) or p.pick()
    dtypes = (
        [torch.float32, torch.float32, torch.float16] if p.gradients and is_float(p[ref]) else ALL
    )
    dtype = p.rng.choice(dtypes)
    if p.special and dtype in INTS and is_float(p[ref]):
        return None
    return Step("to", [ref, dtype]) if p.rng.random() < 0.9 else Step("clone", [ref])


# ---- Reductions and scans ----


@maker(12)
def reduction(p: Program):
    name = p.rng.choice(
        [
            "sum",
            "sum",
            "mean",
            "prod",
            "amax",
            "amin",
            "max",
            "min",
            "all",
            "any",
            "argmax",
            "argmin",
            "var",
            "std",
            "logsumexp",
            "norm",
            "count_nonzero",
            "nansum",
            "max",
            "min",
        ]
    )
    floats = ("mean", "var", "std", "logsumexp", "norm")
    ref = p.pick(both(is_wide, is_float) if name in floats else is_wide)
    if ref is None:
        return None
    x = p[ref]
    dims, keep = some_dims(p, x), p.rng.random() < 0.5
    if name in ("argmax", "argmin", "max", "min", "prod"):
        d = some_dim(p, x)
        if name in ("max", "min"):
            args = [ref] if p.rng.random() < 0.3 else [ref, d, keep]
        else:
            args = [ref] if p.rng.random() < 0.3 else [ref, d, keep]
        if name in ("argmax", "argmin") and x.dtype == torch.bool:
            return None
        ties = len(args) > 1 and name in ("max", "min") and has_ties(x, d)
        if ties and p.gradients and is_float(x):
            return None
        if name in ("argmax", "argmin") and (
            has_ties(x, d) if len(args) > 1 else has_ties(x.flatten(), 0)
        ):
            return None
        return Step(name, args, rounds=name == "prod", loose=(1,) if ties else ())
    if name == "count_nonzero":
        return Step(name, [ref] if dims is None else [ref, dims])
    if name in ("var", "std"):
        args = list([dims] if isinstance(dims, int) else dims or range(x.dim()))
        count = torch.Size([x.shape[d] for d in args]).numel()
        if count < 2:
            return None
        return Step(
            name, [ref, dims], {"correction": p.rng.choice([0, 1]), "keepdim": keep}, rounds=True
        )
    if name == "norm":
        orders = (
            [2, 1, 3, float("inf")] if p.gradients else [2, 1, 3, 0, float("inf"), -float("inf")]
        )
        return Step(name, [ref, p.rng.choice(orders), dims, keep], rounds=True)
    if name == "logsumexp":
        return Step(name, [ref, list(range(x.dim())) if dims is None else dims, keep], rounds=True)
    if name in ("amax", "amin"):
        return Step(name, [ref, [] if dims is None else dims, keep])
    options = {}
    if name == "sum" and p.rng.random() < 0.15:
        options["dtype"] = torch.float32
    if name in ("all", "any") and dims is None:
        return Step(name, [ref])
    args = [ref, dims, keep]
    return Step(name, args, options, rounds=name in ("sum", "mean", "nansum"))


def has_ties(x, d):
    """Whether a slice along d has equal elements, of which PyTorch may choose any."""
    if x.dim() == 0 or x.shape[d] < 2:
        return False
    ordered = x.detach().to(torch.float64).movedim(d, -1).sort(-1).values
    return bool((ordered[..., 1:] == ordered[..., :-1]).any()) or bool(ordered.isnan().any())


@maker(4)
def scan(p: Program):
    names = ["cumsum", "cumsum", "cumprod", "cummax", "cummin"]
    name = p.rng.choice(names if p.gradients else [*names, "logcumsumexp"])
    ref = p.pick(both(is_wide, is_float) if name == "logcumsumexp" else is_wide)
    if ref is None:
        return None
    x = p[ref]
    if name in ("cummax", "cummin") and x.dtype == torch.bool:
        return None
    return Step(name, [ref, some_dim(p, x)], rounds=name[3:] not in ("max", "min"))


@maker(5)
def order(p: Program):
    name = p.rng.choice(["sort", "sort", "argsort", "topk", "kthvalue", "msort"])
    ref = p.pick(lambda x: is_wide(x) and x.dtype != torch.bool)
    if ref is None:
        return None
    x, d = p[ref], some_dim(p, p[ref])
    if name in ("sort", "argsort"):
        return Step(name, [ref, d, p.rng.random() < 0.5])
    if name == "msort":
        return Step(name, [ref])
    ties = has_ties(x, d)
    if ties and p.gradients and is_float(x):
        return None
    loose = (1,) if ties else ()
    if name == "topk":
        return Step(name, [ref, p.rng.randint(1, x.shape[d]), d, p.rng.random() < 0.5], loose=loose)
    return Step(name, [ref, p.rng.randint(1, x.shape[d]), d, p.rng.random() < 0.5], loose=loose)


# ---- Products ----


@maker(8)
def product(p: Program):
    name = p.rng.choice(
        [
            "matmul",
            "matmul",
            "mm",
            "bmm",
            "mv",
            "dot",
            "outer",
            "addmm",
            "addmv",
            "baddbmm",
            "addbmm",
            "linear",
            "linear",
        ]
    )
    ranks = {"mm": 2, "addmm": 2, "bmm": 3, "baddbmm": 3, "addbmm": 3, "mv": 2, "addmv": 2}
    rank = ranks.get(name, 1)
    kinds = both(
        is_wide,
        lambda x: x.dtype != torch.bool and (x.dim() == rank or name in ("matmul", "linear")),
    )
    ref = p.pick(kinds)
    if ref is None:
        return None
    x = p[ref]

    def new(*shape):
        return Literal(p.random(list(shape), x.dtype))

    n, m = p.rng.randint(1, 5), x.shape[0]
    if name == "matmul":
        second = p.pick(lambda y: y.dtype == x.dtype and y.dim() > 0 and matches(x, y))
        if second is None:
            second = new(x.shape[-1], n) if p.rng.random() < 0.7 else new(x.shape[-1])
        return Step(name, [ref, second], rounds=True)
    if name == "linear":
        weight = new(n, x.shape[-1])
        return Step(
            name, [ref, weight, new(n)] if p.rng.random() < 0.5 else [ref, weight], rounds=True
        )
    if name in ("dot", "outer"):
        length = x.shape[0] if name == "dot" else n
        second = p.pick(lambda y: y.dtype == x.dtype and y.dim() == 1 and y.shape[0] == length)
        return Step(name, [ref, second or new(length)], rounds=True)
    options = {"beta": p.rng.choice([1, 2]), "alpha": p.rng.choice([1, 3])}
    if name == "mm":
        return Step(name, [ref, new(x.shape[1], n)], rounds=True)
    if name == "mv":
        return Step(name, [ref, new(x.shape[1])], rounds=True)
    if name == "addmm":
        first = new(m, n) if p.rng.random() < 0.5 else new(n)
        return Step(name, [first, ref, new(x.shape[1], n)], options, rounds=True)
    if name == "addmv":
        return Step(name, [new(m), ref, new(x.shape[1])], options, rounds=True)
    second = new(m, x.shape[2], n)
    if name == "bmm":
        return Step(name, [ref, second], rounds=True)
    if name == "baddbmm":
        return Step(name, [new(m, x.shape[1], n), ref, second], options, rounds=True)
    return Step(name, [new(x.shape[1], n), ref, second], options, rounds=True)


def matches(x, y):
    try:
        return torch.matmul(x.detach(), y.detach()).numel() <= 400
    except RuntimeError:
        return False


# ---- Normalization ----


@maker(6)
def normalization(p: Program):
    name = p.rng.choice(
        [
            "softmax",
            "log_softmax",
            "softmin",
            "layer_norm",
            "rms_norm",
            "group_norm",
            "batch_norm",
            "normalize",
            "cosine_similarity",
        ]
    )
    ref = p.pick(both(is_wide, is_single))
    if ref is None:
        return None
    x = p[ref]
    d = some_dim(p, x)
    if name in ("softmax", "log_softmax", "softmin"):
        return Step(name, [ref, d], rounds=True)
    made = normalized(p, name, ref, d)
    if made is not None:
        made.cancels = True
    return made


def normalized(p, name, ref, d):
    x = p[ref]
    if name == "normalize":
        return Step(name, [ref, 2, d], rounds=True)
    if name == "cosine_similarity":
        second = other(p, x, both(is_single, lambda y: y.dim() == x.dim()))
        return second and Step(name, [ref, second, d], rounds=True)
    if name in ("layer_norm", "rms_norm"):
        shape = list(x.shape[p.rng.randrange(x.dim()) :])
        if torch.Size(shape).numel() < 3:
            return None
        tail = [Literal(p.random(shape))] if p.rng.random() < 0.5 else []
        if tail and name == "layer_norm":
            tail.append(Literal(p.random(shape)))
        return Step(name, [ref, shape, *tail], rounds=True)
    if x.dim() < 2:
        return None
    channels = x.shape[1]
    affine = [Literal(p.random([channels])), Literal(p.random([channels]))]
    if name == "batch_norm":
        if x.numel() // channels < 3 or x.dim() > 4:
            return None
        return Step(
            name,
            [ref, None, None, *(affine if p.rng.random() < 0.5 else [None, None]), True],
            rounds=True,
        )
    groups = p.rng.choice([k for k in range(1, channels + 1) if channels % k == 0])
    if x.numel() // (x.shape[0] * groups) < 3:
        return None
    return Step(name, [ref, groups, *(affine if p.rng.random() < 0.5 else [])], rounds=True)


# ---- Images ----


@maker(5)
def image(p: Program):
    name = p.rng.choice(
        [
            "conv1d",
            "conv2d",
            "conv2d",
            "conv_transpose1d",
            "conv_transpose2d",
            "max_pool1d",
            "max_pool2d",
            "avg_pool1d",
            "avg_pool2d",
            "adaptive_avg_pool1d",
            "adaptive_avg_pool2d",
            "unfold_image",
            "fold",
        ]
    )
    flat = name.endswith("1d")
    shape = [2, 4, 6] if flat else [1, 4, 5, 6]
    ref = p.pick(lambda x: is_single(x) and x.dim() == len(shape) and min(x.shape) > 1)
    kernel, stride = p.rng.randint(1, 3), p.rng.randint(1, 2)
    padding, dilation = p.rng.randint(0, 1), p.rng.randint(1, 2)
    first = Literal(p.random(shape)) if ref is None or name == "fold" else ref
    x = first.tensor if isinstance(first, Literal) else p[ref]
    channels = x.shape[1]
    window = [kernel] if flat else [kernel, p.rng.randint(1, 3)]
    if name.startswith("conv"):
        groups = p.rng.choice([g for g in (1, 1, 2, 4) if channels % g == 0])
        out = groups * p.rng.randint(1, 2)
        if "transpose" in name:
            weight = p.random([channels, out // groups, *window])
            options = [stride, padding, p.rng.randrange(stride), groups, 1]
        else:
            weight = p.random([out, channels // groups, *window])
            options = [stride, padding, dilation, groups]
        bias = Literal(p.random([out])) if p.rng.random() < 0.5 else None
        return Step(name, [first, Literal(weight), bias, *options], rounds=True)
    if name.startswith("max_pool"):
        if p.gradients and isinstance(first, Ref) and x.unique().numel() < x.numel():
            return None
        padding = min(padding, min(window) // 2)
        ceil = p.rng.random() < 0.3
        return Step(name, [first, window if not flat else kernel, stride, padding, dilation, ceil])
    if name.startswith("avg_pool"):
        padding = min(padding, min(window) // 2)
        args = [
            first,
            window if not flat else kernel,
            stride,
            padding,
            p.rng.random() < 0.3,
            p.rng.random() < 0.5,
        ]
        return Step(name, args, rounds=True)
    if name.startswith("adaptive"):
        size = p.rng.randint(1, 4)
        return Step(name, [first, size if flat else [size, p.rng.randint(1, 4)]], rounds=True)
    if name == "unfold_image":
        return Step(name, [first, window, dilation, padding, stride])
    columns = p.random([1, 4 * 4, 4 * 5])
    return Step(name, [Literal(columns), [5, 6], [2, 2], 1, 0, 1], rounds=True)


# ---- Movement ----


@maker(8)
def movement(p: Program):
    name = p.rng.choice(
        [
            "cat",
            "cat",
            "stack",
            "vstack",
            "hstack",
            "repeat",
            "tile",
            "flip",
            "roll",
            "tril",
            "triu",
            "constant_pad",
            "constant_pad",
            "repeat_interleave",
            "diag",
        ]
    )
    ref = p.pick(is_wide)
    if ref is None:
        return None
    x = p[ref]
    d = some_dim(p, x)
    if name == "cat":
        fits = p.pick(lambda y: y.dim() == x.dim() and without(y, d) == without(x, d))
        parts = [ref, fits, ref][: p.rng.randint(2, 3)]
        return Step(name, [parts, d])
    if name == "stack":
        same = p.pick(lambda y: y.shape == x.shape)
        return Step(name, [[ref, same], p.rng.randrange(-x.dim() - 1, x.dim() + 1)])
    if name in ("vstack", "hstack"):
        same = p.pick(lambda y: y.shape == x.shape)
        return Step(name, [[ref, same]])
    if name == "repeat":
        return Step(name, [ref, [p.rng.randint(1, 2) for _ in range(x.dim() + p.rng.randrange(2))]])
    if name == "tile":
        return Step(
            name, [ref, [p.rng.randint(1, 2) for _ in range(p.rng.randint(1, x.dim() + 1))]]
        )
    if name == "flip":
        return Step(name, [ref, p.rng.sample(range(x.dim()), p.rng.randint(1, x.dim()))])
    if name == "roll":
        if p.rng.random() < 0.3:
            return Step(name, [ref, p.rng.randint(-5, 5)])
        return Step(name, [ref, p.rng.randint(-5, 5), d])
    if name in ("tril", "triu"):
        return Step(name, [ref, p.rng.randint(-2, 2)]) if x.dim() > 1 else None
    if name == "constant_pad":
        pads = [p.rng.randint(-1, 2) for _ in range(2 * p.rng.randint(1, x.dim()))]
        value = [] if x.dtype == torch.bool else [number(p, x)]
        return Step(name, [ref, pads, *value])
    if name == "repeat_interleave":
        return Step(name, [ref, p.rng.randint(1, 3), d] if p.rng.random() < 0.7 else [ref, 2])
    return Step(name, [ref, p.rng.randint(-2, 2)]) if x.dim() <= 2 else None


def without(x, d):
    shape = list(x.shape)
    del shape[d]
    return shape


# ---- Indexing ----


def positions(p, size, shape, unique=False, negative=False):
    """A tensor of places below size; `unique` ones differ along the last dimension."""
    dtype = torch.int64
    if unique:
        count = shape[-1]
        rows = torch.Size(shape[:-1]).numel()
        data = [p.rng.sample(range(size), count) for _ in range(rows)]
    else:
        low = -size if negative else 0
        data = [p.rng.randrange(low, size) for _ in range(torch.Size(shape).numel())]
    return torch.tensor(data, dtype=dtype).reshape(shape)


@maker(10)
def indexing(p: Program):
    name = p.rng.choice(
        ["index_select", "index_add", "index_copy", "index_fill", "gather", "gather", "scatter"]
        + [
            "scatter_add",
            "take_along_dim",
            "take",
            "index_get",
            "index_get",
            "index_put",
            "embedding",
        ]
        + ([] if p.gradients else ["scatter_reduce", "one_hot", "scatter_number"])
    )
    ref = p.pick(is_wide)
    if ref is None:
        return None
    x = p[ref]
    d = some_dim(p, x)
    size, count = x.shape[d], p.rng.randint(1, 4)
    part = list(x.shape)
    part[d] = count
    rounds = is_float(x)
    if name == "index_select":
        return Step(name, [ref, d, Literal(positions(p, size, [count]))])
    if name == "index_add":
        if x.dtype == torch.bool:
            return None
        source = Literal(p.random(part, x.dtype))
        options = {"alpha": 2} if p.rng.random() < 0.3 else {}
        return Step(
            name, [ref, d, Literal(positions(p, size, [count])), source], options, rounds=rounds
        )
    if name in ("index_copy", "index_fill"):
        count = min(count, size)
        part[d] = count
        index = Literal(positions(p, size, [count], unique=True))
        if name == "index_copy":
            return Step(name, [ref, d, index, Literal(p.random(part, x.dtype))])
        return Step(name, [ref, d, index, True if x.dtype == torch.bool else number(p, x)])
    if name in ("gather", "take_along_dim"):
        index = Literal(positions(p, size, part, negative=name == "take_along_dim"))
        return Step(name, [ref, d, index] if name == "gather" else [ref, index, d])
    if name in ("scatter", "scatter_number", "scatter_add", "scatter_reduce"):
        count = min(count, size)
        moved = [n for k, n in enumerate(x.shape) if k != d % x.dim()]
        unique = name.startswith("scatter") and name not in ("scatter_add", "scatter_reduce")
        index = positions(p, size, [*moved, count], unique=unique).movedim(-1, d).contiguous()
        source = Literal(p.random(index.shape, x.dtype))
        if name == "scatter_number":
            return (
                Step("scatter", [ref, d, Literal(index), number(p, x)])
                if x.dtype != torch.bool
                else None
            )
        if name == "scatter":
            return Step(name, [ref, d, Literal(index), source])
        if x.dtype == torch.bool:
            return None
        if name == "scatter_add":
            return Step(name, [ref, d, Literal(index), source], rounds=rounds)
        kinds = ["sum", "prod", "amin", "amax"] if x.dtype != torch.int64 else ["sum"]
        return Step(name, [ref, d, Literal(index), source, p.rng.choice(kinds)], rounds=rounds)
    if name == "take":
        return Step(name, [ref, Literal(positions(p, x.numel(), [2, count]))])
    if name == "embedding":
        if x.dim() != 2 or not is_float(x):
            return None
        return Step(name, [Literal(positions(p, x.shape[0], [2, count])), ref])
    if name == "one_hot":
        return Step(name, [Literal(positions(p, 5, [2, count])), 5])
    indices = [None] * x.dim()
    for k in p.rng.sample(range(x.dim()), p.rng.randint(1, min(x.dim(), 2))):
        shape = p.rng.choice([[count], [2, 1], [2, count]])
        indices[k] = Literal(positions(p, x.shape[k], shape, negative=True))
    if name == "index_get":
        return Step(name, [ref, indices])
    if x.dtype == torch.bool:
        return None
    used = tuple(slice(None) if i is None else i.tensor for i in indices)
    values = Literal(p.random(x.detach()[used].shape, x.dtype))
    return Step(name, [ref, indices, values, True], rounds=rounds)


# ---- Losses ----


@maker(3)
def loss(p: Program):
    name = p.rng.choice(
        [
            "mse_loss",
            "l1_loss",
            "smooth_l1_loss",
            "huber_loss",
            "cross_entropy",
            "nll_loss",
            "binary_cross_entropy_with_logits",
            "kl_div",
            "scaled_dot_product_attention",
        ]
    )
    ref = p.pick(both(is_wide, is_single))
    if ref is None:
        return None
    x = p[ref]
    options = {"reduction": p.rng.choice(["mean", "sum", "none"])}
    if name in ("cross_entropy", "nll_loss"):
        if x.dim() != 2:
            return None
        return Step(
            name, [ref, Literal(positions(p, x.shape[1], [x.shape[0]]))], options, rounds=True
        )
    if name == "scaled_dot_product_attention":
        if x.dim() < 3:
            return None
        key = Literal(p.random([*x.shape[:-2], 3, x.shape[-1]]))
        return Step(name, [ref, key, Literal(p.random([*x.shape[:-2], 3, 2]))], rounds=True)
    target = p.random(x.shape)
    if name in ("binary_cross_entropy_with_logits", "kl_div"):
        target = target.sigmoid()
    return Step(name, [ref, Literal(target)], options, rounds=True)


# ---- In place ----


def overlaps(x):
    """Whether elements share memory: what a change in place gives then depends on its order."""
    span = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
    return torch.arange(span).as_strided(x.shape, x.stride()).unique().numel() < x.numel()


@maker(14, gradients=False)
def in_place(p: Program):
    name = p.rng.choice(
        [
            "add_",
            "add_",
            "sub_",
            "mul_",
            "div_",
            "clamp_",
            "fill_",
            "zero_",
            "copy_",
            "copy_",
            "masked_fill_",
            "relu_",
            "exp_",
            "tanh_",
            "neg_",
            "abs_",
            "floor_",
            "sqrt_",
            "lerp_",
            "addcmul_",
            "scatter_",
            "scatter_add_",
            "index_put_",
            "pow_",
            "remainder_",
            "bitwise_and_",
            "sigmoid_",
            "round_",
            "silu_",
            "atan2_",
            "bitwise_xor_",
            "fmod_",
        ]
    )
    ref = p.pick(lambda x: is_wide(x) and not overlaps(x))
    if ref is None:
        return None
    x = p[ref]
    rounds = is_float(x)

    def fits(y):
        try:
            return torch.broadcast_shapes(x.shape, y.shape) == x.shape
        except RuntimeError:
            return False

    def step(*args, rounds=rounds, **options):
        return Step(name, [ref, *args], options, rounds=rounds, in_place=True)

    second = p.pick(fits)
    apart = p.pick(
        lambda y: (
            fits(y)
            and all(p.roots[k] != p.roots[ref.index] for k, v in enumerate(p.values) if v is y)
        )
    )
    if name in ("add_", "sub_", "mul_"):
        return step(number(p, x) if p.rng.random() < 0.4 else second)
    if name == "div_":
        return step(number(p, x))
    if name == "clamp_":
        low = number(p, x)
        return step(low, low + 3, rounds=False)
    if name == "fill_":
        return step(True if x.dtype == torch.bool else number(p, x), rounds=False)
    if name == "copy_":
        if apart is None or (is_float(p[apart]) and not is_float(x) and p.special):
            return None
        return step(apart, rounds=False)
    if name == "masked_fill_":
        mask = p.pick(lambda y: fits(y) and y.dtype == torch.bool)
        return mask and step(mask, number(p, x), rounds=False)
    if name == "lerp_":
        end = p.pick(lambda y: fits(y) and y.dtype == x.dtype)
        return end and step(end, 0.25)
    if name == "addcmul_":
        one, two = (p.pick(lambda y: fits(y) and y.dtype == x.dtype) for _ in range(2))
        return one and two and step(one, two)
    if name in ("scatter_", "scatter_add_"):
        d = some_dim(p, x)
        moved = [n for k, n in enumerate(x.shape) if k != d % x.dim()]
        count = p.rng.randint(1, x.shape[d])
        index = positions(p, x.shape[d], [*moved, count], unique=True).movedim(-1, d).contiguous()
        source = Literal(p.random(index.shape, x.dtype))
        return (
            None
            if name == "scatter_add_" and x.dtype == torch.bool
            else step(d, Literal(index), source)
        )
    if name == "index_put_":
        index = positions(p, x.shape[0], [p.rng.randint(1, x.shape[0])], unique=True)
        return step(
            [Literal(index)], Literal(p.random([index.numel(), *x.shape[1:]], x.dtype)), False
        )
    if name in ("pow_", "remainder_", "fmod_"):
        return step(p.rng.choice([2, 3]))
    if name in ("bitwise_and_", "bitwise_xor_", "atan2_"):
        return second and step(second)
    return step()


# ---- Errors ----


def meeting(p: Program) -> Step | None:
    """A change in place by an operand that has a part of the changed memory."""
    if p.gradients:
        return None
    steps = []
    for a, x in enumerate(p.values):
        if not is_wide(x) or overlaps(x):
            continue
        for b, y in enumerate(p.values):
            if a == b or p.roots[a] != p.roots[b] or not is_wide(y) or not broadcasts(x)(y):
                continue
            names = ["add_", "mul_", "copy_", "eq_"] + (["lerp_", "hypot_"] if is_float(x) else [])
            name = p.rng.choice(names)
            rest = [0.5] if name == "lerp_" else []
            # Tried elsewhere: not all that meets raises.
            base = p.values[p.roots[a]].detach().clone()
            try:
                one, two = (
                    base.as_strided(v.shape, v.stride(), v.storage_offset()) for v in (x, y)
                )
                getattr(one, name)(two, *rest)
            except RuntimeError:
                steps.append(Step(name, [Ref(a), Ref(b), *rest]))
    return p.rng.choice(steps) if steps else None


def wrong(p: Program) -> Step | None:
    """A step for which PyTorch raises."""
    ref = p.pick(is_wide)
    if ref is None:
        return None
    x = p[ref]
    far = x.dim() + 1
    leaf = p.pick(lambda y: y.requires_grad and y.is_leaf)
    choices = [
        Step("sum", [ref, far, False]),
        Step("transpose", [ref, 0, far]),
        Step("select", [ref, 0, x.shape[0]]),
        Step("add", [ref, Literal(torch.ones([*x.shape[:-1], x.shape[-1] + 2]))]),
        Step("view", [ref, [x.numel() + 1]]),
        Step("matmul", [ref, Literal(torch.ones([x.shape[-1] + 1, 2], dtype=x.dtype))]),
        Step("expand", [ref, [*x.shape[:-1], x.shape[-1] + 3]]),
        Step("cat", [[ref, Literal(torch.ones([1] * far))], 0]),
        Step("softmax", [ref, far]),
        Step("mean", [Literal(torch.ones([2], dtype=torch.int64))]),
        Step("gather", [ref, 0, Literal(torch.zeros([1] * far, dtype=torch.int64))]),
        Step("narrow", [ref, 0, 0, x.shape[0] + 1]),
        Step("permute", [ref, [0] * x.dim()]) if x.dim() > 1 else Step("permute", [ref, [0, 0]]),
        Step("sub", [Literal(torch.tensor([True])), Literal(torch.tensor([False]))]),
        Step("add_", [Literal(torch.zeros([2], dtype=torch.int64)), 0.5]),
        Step("topk", [ref, x.shape[-1] + 1, -1, True]),
        Step("unflatten", [ref, 0, [x.shape[0] + 1, 1]]),
        Step("masked_fill", [ref, Literal(torch.ones(x.shape)), 1]),
        Step("where", [Literal(torch.ones([1])), ref, ref]),
    ]
    if leaf is not None:
        choices += 3 * [Step("add_", [leaf, 1])]
    if (met := meeting(p)) is not None:
        choices += 8 * [met]
    return p.rng.choice(choices)

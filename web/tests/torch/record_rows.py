"""Records what PyTorch gives for the pointwise rows of csrc/ops/pointwise/rows.yaml, for single
elements, special values among them: web/tests/files/torch/rows.json.

A row is compared with PyTorch's function of its name, or with the one that REFERENCE says. Of a row
that rounds, both float64, rounded once, and float32 are recorded: they differ where a step of the
computation overflows in float32, and either is right.
"""

import base64
import itertools
import json
import pathlib
import random
import sys
import warnings

import torch
import torch.nn.functional as F

TESTS = pathlib.Path(__file__).parents[1]
OUT = TESTS / "files" / "torch"
TABLES = TESTS.parents[1] / "torch_webgpu" / "share" / "wgsl" / "tables.json"
aten = torch.ops.aten

LARGEST = torch.finfo(torch.float32).max
TINY = torch.finfo(torch.float32).tiny
INF, NAN = float("inf"), float("nan")
FLOATS = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, -2.0, 3.0, -3.0]
FLOATS += [0.1, -0.7, 0.99, 7.25, 20.5, -20.5, 100.0, -100.0, 1e-6, -1e-6, 16777216.0, 16777217.0]
FLOATS += [1e10, -1e10, 1e-20, 3e38, LARGEST, -LARGEST, TINY, -TINY, 4097.5, 88.0, -87.0, 0.3]
INTS = [0, 1, -1, 2, -2, 3, 5, 7, -7, 31, 33, 100, -100, 46341, 2**31 - 1, -(2**31)]
LONGS = [2**31, -(2**31) - 1, 2**32 + 5, 2**62, 2**63 - 1, -(2**63)]
MOST = 700

# Exact rows: PyTorch's float32 result, bit by bit (but for NaN, of which JavaScript has one).
EXACT = {
    *("abs", "neg", "ceil", "floor", "trunc", "round", "sign", "copy", "where", "masked_fill"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"),
    *("logical_not", "isposinf", "isneginf", "signbit", "copysign", "nextafter", "heaviside"),
    *("maximum", "minimum", "fmax", "fmin", "clamp", "clamp_scalar", "clamp_min_scalar"),
    *("clamp_max_scalar", "mul", "fmod", "remainder", "div_trunc", "div_floor"),
    *("hardshrink", "threshold", "nan_to_num", "frexp_mantissa", "frexp_exponent", "zero"),
    *("conj_physical", "frac", "prelu", "leaky_relu"),
}
# Rows that are exact in float64 too, where the CPU's float32 gives NaN for large quotients.
EXACT_IN_DOUBLE = {"fmod", "remainder"}
# Sums and products whose steps a compiler may fuse: values that overflow in between are left out.
STEPS = {
    *("add", "addcmul", "addr", "addcdiv", "lerp_kernel_tensor_weight", "sigmoid_backward"),
    *("lerp_kernel_scalar_weight", "scale_shift"),
}
# Rows whose zeros have any sign.
ANY_ZERO = {
    *("maximum", "minimum", "fmax", "fmin", "clamp", "clamp_scalar", "clamp_min_scalar"),
    "clamp_max_scalar",
}


def grad_of(function):
    """The gradient of a function, as the rows called _backward take it: grad, then the input."""

    def gradient(grad, x, *scalars):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(function(x, *scalars), x, grad)[0]

    return gradient


REFERENCE = {
    "add": lambda a, b, s: torch.add(a, b, alpha=s),
    "div_true": torch.div,
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "pow_tensor_tensor": torch.pow,
    "pow_tensor_scalar": torch.pow,
    "pow_square": lambda a: a.pow(2),
    "pow_cube": lambda a: a.pow(3),
    "pow_inverse_square": lambda a: a.pow(-2),
    "addcmul": lambda a, b, c, s: torch.addcmul(a, b, c, value=s),
    "addcdiv": lambda a, b, c, s: torch.addcdiv(a, b, c, value=s),
    "lerp_kernel_tensor_weight": torch.lerp,
    "lerp_kernel_scalar_weight": torch.lerp,
    "round_decimals": lambda a, s: torch.round(a, decimals=int(s)),
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "clamp_scalar": torch.clamp,
    "clamp_min_scalar": torch.clamp_min,
    "clamp_max_scalar": torch.clamp_max,
    "polygamma": lambda a, s: torch.polygamma(int(s), a),
    "zeta": torch.special.zeta,
    "xlog1py": torch.special.xlog1py,
    "logit": lambda a, s: torch.logit(a, None if s < 0 else s),
    "logit_backward": lambda g, a, s: aten.logit_backward(g, a, None if s < 0 else s),
    "silu": F.silu,
    "mish": F.mish,
    "elu": lambda a, s0, s1, s2: aten.elu(a, s0, s1, s2),
    "softplus": F.softplus,
    "threshold": lambda a, b, s0, s1: torch.where(a <= s0, torch.full_like(b, s1), b),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "leaky_relu": F.leaky_relu,
    "glu": lambda a, b: a * torch.sigmoid(b),
    "prelu": lambda a, b: torch.where(a > 0, a, a * b),
    "mse": lambda a, b: (a - b) ** 2,
    "smooth_l1": lambda a, b, s: F.smooth_l1_loss(a, b, beta=s, reduction="none"),
    "huber": lambda a, b, s: F.huber_loss(a, b, delta=s, reduction="none"),
    "binary_cross_entropy": lambda a, b: F.binary_cross_entropy(a, b, reduction="none"),
    "copy": torch.clone,
    "where": lambda a, b, c: torch.where(a != 0, b, c),
    "log_sigmoid": F.logsigmoid,
    "masked_fill": lambda a, b, s: a.masked_fill(b != 0, s),
    "nan_to_num": lambda a, *s: torch.nan_to_num(a, *s),
    "frexp_mantissa": lambda a: torch.frexp(a).mantissa,
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "addr": lambda a, b, c, s0, s1: s0 * a + s1 * b * c,
    "scale_shift": lambda a, b, c: a * b + c,
    "masked_scale": lambda a, b, s: torch.where(b != 0, a * s, torch.zeros_like(a)),
    "hardtanh_backward": aten.hardtanh_backward,
    "elu_backward": lambda g, a, s0, s1, s2, _: aten.elu_backward(g, s0, s1, s2, False, a),
    "mse_backward": None,
    "gelu_backward": grad_of(F.gelu),
    "gelu_tanh_backward": grad_of(lambda x: F.gelu(x, approximate="tanh")),
    "silu_backward": grad_of(F.silu),
    "mish_backward": grad_of(F.mish),
    "hardsigmoid_backward": grad_of(F.hardsigmoid),
    "hardswish_backward": grad_of(F.hardswish),
    "softplus_backward": grad_of(F.softplus),
    "leaky_relu_backward": lambda a, g, s: aten.leaky_relu_backward(g, a, s, False),
    "shrink_backward": lambda g, a, s: aten.hardshrink_backward(g, a, s),
    "fill_bits": None,
    "zero": None,
}

# Rows without a reference of one element, each with its reason.
WITHOUT = {
    "fill_bits": "has no input; its scalar is the result",
    "zero": "has no input",
    **dict.fromkeys(
        ["div_trunc_f16", "div_trunc_bf16", "nextafter_f16", "nextafter_bf16"],
        "has its values in half types; tests of the operators in these dtypes compare it",
    ),
    **dict.fromkeys(
        ["mse_backward", "smooth_l1_backward", "huber_backward", "binary_cross_entropy_backward"],
        "is scaled by the reduction; tests of the losses' gradients compare it",
    ),
    **dict.fromkeys(
        [
            "glu_backward",
            "glu_jvp",
            "prelu_grad_input",
            "prelu_grad_weight",
            "log_sigmoid_backward",
        ],
        "takes what the forward operator kept; tests of its gradient compare it",
    ),
    **dict.fromkeys(
        [
            "quantize",
            "dequantize",
            "fake_quantize",
            "fake_quantize_mask",
            "quantize_by",
            "dequantize_by",
            "fake_quantize_by",
            "fake_quantize_mask_by",
            "fake_quantize_grad_input",
            "fake_quantize_grad_scale",
            "fake_quantize_grad_zero_point",
        ],
        "is part of an operator on quantized tensors, whose tests compare it",
    ),
    "cross": "has the four factors of one element of a cross product",
    "renorm_scale_factor": "is a step of renorm, whose tests compare it",
    "scale_two_shift": "is a step of batch normalization, whose tests compare it",
    **dict.fromkeys(
        ["round_decimals i32", "round_decimals i64"],
        "PyTorch refuses integers",
    ),
    "frexp_exponent": "gives the exponent as a float for the integer output of frexp",
    "standard_gamma_grad": "is random sampling's gradient; its tests compare it",
    "dirichlet_grad": "is random sampling's gradient; its tests compare it",
}

# Elements for which a row and PyTorch's CPU differ, each with its reason.
KNOWN = {
    # The limit is zero, which the row gives; PyTorch gives NaN.
    "special_airy_ai": lambda a: a.isinf() | (a < -1e6),
    "zeta": lambda a, b: b.isinf(),
    # As on CUDA, NaN is not outside of a range; the CPU's vector code says that it is.
    "logit_backward": lambda g, a: a.isnan(),
    "hardtanh_backward": lambda g, a: a.isnan(),
    "shrink_backward": lambda g, a: a.isnan(),
    # The same, in the vector code of some CPUs only.
    "hardswish_backward": lambda g, a: a.isnan(),
    "elu_backward": lambda g, a: a.isnan(),
}

# Scalar arguments to try, where the default is not of use.
SCALARS = {
    "add": [[1], [-1], [2]],
    "pow_tensor_scalar": [[2.5], [-1.5], [5.0]],
    "addcmul": [[1], [2]],
    "addcdiv": [[1.0], [-0.5]],
    "lerp_kernel_scalar_weight": [[0.25], [0.75]],
    "round_decimals": [[1], [-1]],
    "clamp_scalar": [[-1, 2]],
    "clamp_min_scalar": [[-1], [1]],
    "clamp_max_scalar": [[1]],
    "polygamma": [[1], [2]],
    "logit": [[-1.0], [0.1]],
    "logit_backward": [[-1.0], [0.1]],
    "elu": [[1.0, 1.0, 1.0], [0.5, 2.0, 3.0]],
    "elu_backward": [[1.0, 1.0, 1.0, 0.0]],
    "softplus": [[1.0, 20.0], [2.0, 5.0]],
    "softplus_backward": [[1.0, 20.0]],
    "threshold": [[1, 7]],
    "hardtanh_backward": [[-1.0, 1.0]],
    "nan_to_num": [[0.0, LARGEST, -LARGEST], [1.5, 2.0, -3.0]],
    "masked_fill": [[3]],
    "addr": [[2, 3]],
    "masked_scale": [[2.0]],
    "leaky_relu": [[0.125]],
    "leaky_relu_backward": [[0.125]],
}
# Where sums of a series, or differences of large numbers, leave fewer digits.
LOOSE = (
    "gamma",
    "zeta",
    "bessel",
    "airy",
    "polynomial",
    "digamma",
    "lgamma",
    "ndtr",
    "erfcx",
    "i0",
)


def reference(name):
    if name in REFERENCE:
        return REFERENCE[name]
    if hasattr(torch, name):
        return getattr(torch, name)
    short = name.removeprefix("special_")
    if hasattr(torch.special, short):
        return getattr(torch.special, short)
    return getattr(aten, name) if hasattr(aten, name) else None


def grid(name, row, kind):
    """Columns of inputs: all combinations of special values, or a part of them."""
    rng = random.Random(name)
    values = FLOATS if kind == "f32" else INTS if kind == "i32" else INTS + LONGS
    lists = [[0, 1] if one in row["bool_inputs"] else list(values) for one in row["inputs"]]
    if name in ("masked_fill", "masked_scale"):
        lists[1] = [0, 1]
    if kind == "f32":
        for one in lists:
            if len(one) > 2:
                one += [rng.uniform(-4, 4) for _ in range(20)] + [
                    rng.uniform(0, 1) for _ in range(10)
                ]
    combined = list(itertools.product(*lists))
    rng.shuffle(combined)
    dtype = {"f32": torch.float32, "i32": torch.int32, "i64": torch.int64}[kind]
    columns = zip(*combined[:MOST], strict=True)
    return [
        torch.tensor(column, dtype=torch.float64 if kind == "f32" else torch.int64).to(dtype)
        for column in columns
    ]


def allowed(name, kind, columns):
    """The places for which PyTorch defines a result."""
    kept = torch.ones(len(columns[0]), dtype=torch.bool)
    if kind != "f32" and name in ("div_floor", "div_trunc", "remainder", "fmod"):
        lowest = torch.iinfo(columns[0].dtype).min
        kept &= (columns[1] != 0) & ~((columns[0] == lowest) & (columns[1] == -1))
    if kind != "f32" and name in ("gcd", "lcm"):
        # Their absolute value is no number of the dtype.
        for column in columns:
            kept &= (column > -(2**15)) & (column < 2**15)
    if "polynomial" in name:
        # PyTorch counts up to the degree, however large it is.
        kept &= (columns[1].abs() < 60) & columns[0].isfinite()
    if name in ("zeta", "polygamma"):
        kept &= columns[0].abs() < 1e6
    if name == "polygamma":
        # At its poles float32 is a large number that says nothing.
        kept &= (columns[0] > 0) | (columns[0] != columns[0].round())
    if kind == "f32" and name in STEPS:
        for column in columns:
            kept &= column.isnan() | column.isinf() | (column.abs() < 1e15)
            kept &= (column == 0) | (column.abs() > 1e-15) | column.isnan()
    if name in KNOWN:
        kept &= ~KNOWN[name](*columns)
    if name == "binary_cross_entropy":
        for column in columns:
            kept &= (column >= 0) & (column <= 1)
    return kept


def bits(tensor):
    return base64.b64encode(tensor.contiguous().numpy().tobytes()).decode()


def wanted(name, kind, columns, scalars):
    """The results that are right, and whether they must be equal."""
    function = reference(name)
    floats = [function(*columns, *scalars)]
    if kind != "f32" or floats[0].dtype == torch.bool:
        return floats, True
    double = function(*(column.double() for column in columns), *scalars).float()
    if name in EXACT_IN_DOUBLE:
        return [double], True
    return (floats, True) if name in EXACT else ([double, *floats], False)


def main():
    warnings.filterwarnings("ignore")
    rows = json.loads(TABLES.read_text())["pointwise"]
    cases, failed = [], {}
    for name, row in rows.items():
        if name in WITHOUT:
            continue
        for kind in ("f32", "i32", "i64", "raw"):
            if kind not in row["expressions"] or (kind == "raw" and name != "where"):
                continue
            if f"{name} {kind}" in WITHOUT:
                continue
            typed = "i32" if kind == "raw" else kind
            columns = grid(name, row, typed)
            kept = allowed(name, typed, columns)
            columns = [column[kept] for column in columns]
            for scalars in SCALARS.get(name, [[1.0] * row["scalars"]]):
                if typed != "f32":
                    if any(s != int(s) or (s < 0 and name.startswith("pow")) for s in scalars):
                        continue
                    scalars = [int(s) for s in scalars]
                try:
                    outs, exact = wanted(name, typed, columns, scalars)
                except (RuntimeError, TypeError, AttributeError) as error:
                    failed[f"{name} {kind}"] = str(error).split("\n")[0]
                    continue
                case = {"row": name, "kind": kind, "scalars": scalars, "exact": exact}
                case["inputs"] = [bits(column) for column in columns]
                case["bool"] = outs[0].dtype == torch.bool
                case["any_zero"] = name in ANY_ZERO
                case["loose"] = any(word in name for word in LOOSE)
                case["results"] = [
                    bits(out.to(torch.uint8) if case["bool"] else out) for out in outs
                ]
                cases.append(case)
    for name, why in failed.items():
        print(f"rows without a reference: {name}: {why}", file=sys.stderr)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "rows.json").write_text(
        json.dumps({"cases": cases, "without": WITHOUT}, separators=(",", ":"))
    )


if __name__ == "__main__":
    main()

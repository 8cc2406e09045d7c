"""Operators that must run on the device, by name; test_required.py runs every row.

A row is a function of its operands. An operand is a shape, filled with distinct numbers between 0.5
and 2 (integers: 1 to 9), or a function that makes a tensor of a dtype.
"""

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
ALL = (*FLOATS, torch.int64)
INTEGERS = (torch.int64,)
COMPLEX = (torch.complex64,)
ROWS = {}


@dataclasses.dataclass(frozen=True)
class Row:
    function: Callable
    operands: tuple
    dtypes: tuple = FLOATS
    gradient: bool = True
    values: bool = True  # else only shape, dtype and device are compared


def row(name, function, *operands, **settings):
    assert name not in ROWS
    ROWS[name] = Row(function, operands, **settings)


def integers(*values):
    return lambda dtype: torch.tensor(values)


def mask(*shape):
    return lambda dtype: torch.arange(torch.Size(shape).numel()).reshape(shape) % 3 == 0


def float32(*shape):
    return lambda dtype: torch.linspace(0.5, 1.5, torch.Size(shape).numel()).reshape(shape)


def spd(*shape):
    """A symmetric positive definite matrix."""

    def make(dtype):
        matrix = torch.linspace(-1, 1, torch.Size(shape).numel()).sin().reshape(shape)
        return (matrix @ matrix.mT + 3 * torch.eye(shape[-1])).to(dtype)

    return make


M, V, IMAGE = (4, 6), (6,), (2, 4, 8, 8)
POSITION = integers(3, 0, 2)

# Factories, copies, conversions
row(
    "empty",
    lambda x: torch.empty(3, 4, dtype=x.dtype, device=x.device),
    V,
    dtypes=ALL,
    gradient=False,
    values=False,
)
row(
    "empty_strided",
    lambda x: torch.empty_strided((3, 4), (1, 3), dtype=x.dtype, device=x.device),
    V,
    dtypes=ALL,
    gradient=False,
    values=False,
)
row("empty_like", torch.empty_like, M, dtypes=ALL, gradient=False, values=False)
row("as_strided", lambda x: x.as_strided((2, 3), (1, 2), 1), M, dtypes=ALL)
row("copy_", lambda x, y: torch.zeros_like(x).copy_(y), M, V, dtypes=ALL, gradient=False)
row("_copy_from", lambda x: x.t().contiguous().cpu(), M, dtypes=ALL, gradient=False)
row("to device", lambda x: x.cpu().to(x.device), M, dtypes=ALL, gradient=False)
row(
    "to dtype",
    lambda x: (x.to(torch.float32), x.to(torch.int64), x.to(torch.bool), x.half()),
    M,
    dtypes=ALL,
    gradient=False,
)
row("zeros_like", torch.zeros_like, M, dtypes=ALL, gradient=False)
row("ones_like", torch.ones_like, M, dtypes=ALL, gradient=False)
row(
    "arange",
    lambda x: torch.arange(1, 9, 2, dtype=x.dtype, device=x.device),
    V,
    dtypes=ALL,
    gradient=False,
)
row(
    "full",
    lambda x: torch.full((3, 4), 7, dtype=x.dtype, device=x.device),
    V,
    dtypes=ALL,
    gradient=False,
)
row(
    "rand",
    lambda x: torch.rand(3, 4, dtype=x.dtype, device=x.device),
    V,
    gradient=False,
    values=False,
)
row(
    "randn",
    lambda x: torch.randn(3, 4, dtype=x.dtype, device=x.device),
    V,
    gradient=False,
    values=False,
)
row("clone", torch.clone, M, dtypes=ALL)
row(
    "quantize_per_tensor",
    lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).int_repr(),
    M,
    dtypes=FLOATS[:1],
    gradient=False,
)
row(
    "quantize_per_channel",
    lambda x, s, z: torch.quantize_per_channel(x, s, z, 0, torch.qint8).int_repr(),
    M,
    float32(4),
    lambda _: torch.zeros(4, dtype=torch.long),
    dtypes=FLOATS[:1],
    gradient=False,
)
row(
    "dequantize",
    lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).dequantize(),
    M,
    dtypes=FLOATS[:1],
    gradient=False,
)
row("fake_quantize", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -10, 10), M)

# Arithmetic
for name in ("add", "sub", "mul", "maximum", "minimum"):
    row(name, getattr(torch, name), M, V, dtypes=ALL)
row("div", torch.div, M, V)
row(
    "integer division",
    lambda x, y: (x // y, x % y, -x // y, -x % y, torch.fmod(-x, y)),
    M,
    V,
    dtypes=INTEGERS,
    gradient=False,
)
row("neg", torch.neg, M, dtypes=ALL)
row("pow Tensor_Scalar", lambda x: x**3, M, dtypes=ALL)
row("pow Tensor_Tensor", torch.pow, M, M, dtypes=ALL)
row("pow Scalar", lambda x: 2**x, M, dtypes=ALL)
for name in ("sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid"):
    row(name, getattr(torch, name), M)
for name in ("gelu", "silu", "relu"):
    row(name, getattr(F, name), M)
for name in ("abs", "round", "floor", "ceil"):
    row(name, getattr(torch, name), M, dtypes=ALL)
row("clamp", lambda x: x.clamp(1, 2), M, dtypes=ALL)
row("clamp_min", lambda x: x.clamp_min(1), M, dtypes=ALL)
row("where", torch.where, mask(*M), M, M, dtypes=ALL)
row("masked_fill", lambda x, m: x.masked_fill(m, 2), M, mask(*M), dtypes=ALL)
row("masked_select", torch.masked_select, M, mask(*M), dtypes=ALL)
for name in (
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
):
    row(name, getattr(torch, name), M, V, dtypes=INTEGERS, gradient=False)
row("bitwise_not", torch.bitwise_not, M, dtypes=INTEGERS, gradient=False)
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    function = getattr(torch, name)
    row(f"{name} Tensor", function, M, V, dtypes=ALL, gradient=False)
    row(f"{name} Scalar", lambda x, f=function: f(x, 1), M, dtypes=ALL, gradient=False)

# Reductions
for name in ("sum", "amax", "amin"):
    function = getattr(torch, name)
    row(name, function, M, dtypes=ALL)
    row(f"{name} dim", lambda x, f=function: f(x, 1, keepdim=True), M, dtypes=ALL)
for name in ("argmax", "argmin"):
    function = getattr(torch, name)
    row(name, function, M, dtypes=FLOATS, gradient=False)
    row(f"{name} dim", lambda x, f=function: f(x, 1), M, gradient=False)
row("mean", torch.mean, M)
row("mean dim", lambda x: x.mean(0), M)
row("var_mean", lambda x: torch.var_mean(x, 1), M)
row("topk", lambda x: x.topk(3, 1), M)

# Views and movement
row("view", lambda x: x.view(3, 8), M, dtypes=ALL)
row("resize", lambda x: x.clone().resize_(2, 3), M, dtypes=ALL, gradient=False)
row("reshape", lambda x: x.t().reshape(3, 8), M, dtypes=ALL)
row("flatten", torch.flatten, IMAGE, dtypes=ALL)
row("permute", lambda x: x.permute(2, 0, 3, 1), IMAGE, dtypes=ALL)
row("transpose", lambda x: x.transpose(0, 1), M, dtypes=ALL)
row("contiguous", lambda x: x.t().contiguous(), M, dtypes=ALL)
row("unsqueeze", lambda x: x.unsqueeze(1), M, dtypes=ALL)
row("squeeze", torch.squeeze, (1, 4, 1), dtypes=ALL)
row("cat", lambda x, y: torch.cat((x, y), 0), M, (1, 6), dtypes=ALL)
row("stack", lambda x, y: torch.stack((x, y), 1), M, M, dtypes=ALL)
row("slice", lambda x: x[1:, ::2], M, dtypes=ALL)
row("select", lambda x: x.select(1, 2), M, dtypes=ALL)
row("narrow", lambda x: x.narrow(1, 2, 3), M, dtypes=ALL)
row("expand", lambda x: x.expand(4, 6), V, dtypes=ALL)
row("broadcast_to", lambda x: x.broadcast_to(4, 6), V, dtypes=ALL)
row("index_select", lambda x, i: x.index_select(0, i), M, POSITION, dtypes=ALL)

# Products, attention, normalization
row("addmm", torch.addmm, (4, 3), M, (6, 3), dtypes=ALL)
row("mm", torch.mm, M, (6, 3), dtypes=ALL)
row("bmm", torch.bmm, (2, 4, 3), (2, 3, 5), dtypes=ALL)
row("matmul", torch.matmul, (2, 4, 3), (3, 5), dtypes=ALL)
row(
    "scaled_dot_product_attention",
    F.scaled_dot_product_attention,
    (2, 2, 5, 8),
    (2, 2, 5, 8),
    (2, 2, 5, 8),
)
row("softmax", lambda x: x.softmax(1), M)
row("log_softmax", lambda x: x.log_softmax(1), M)
row("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), M, V, V)
row("rms_norm", lambda x, w: F.rms_norm(x, (6,), w), M, V)
row("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), M, V, V)
row("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 5), (4,), (4,))
row("embedding", lambda w, i: F.embedding(i, w), M, POSITION)

# Convolutions, pooling, resampling
for d in (1, 2, 3):
    x, w = (2, 3, *(6,) * d), (4, 3, *(3,) * d)
    function = getattr(F, f"conv{d}d")
    row(f"conv{d}d", lambda x, w, b, f=function: f(x, w, b, padding=1), x, w, (4,))
    transposed = getattr(F, f"conv_transpose{d}d")
    row(f"conv_transpose{d}d", lambda x, w, f=transposed: f(x, w, stride=2), (2, 4, *(3,) * d), w)
row("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 5)), IMAGE)
row("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), (1, 2, 7, 7))
row("max_pool2d with indices", lambda x: F.max_pool2d(x, 2, return_indices=True), (1, 2, 7, 7))
row("interpolate nearest", lambda x: F.interpolate(x, scale_factor=2), IMAGE)
row("interpolate area", lambda x: F.interpolate(x, size=(3, 5), mode="area"), IMAGE)
for mode in ("bilinear", "bicubic"):
    row(f"interpolate {mode}", lambda x, m=mode: F.interpolate(x, size=(5, 11), mode=m), IMAGE)
    row(
        f"interpolate {mode} antialias",
        lambda x, m=mode: F.interpolate(x, size=(5, 11), mode=m, antialias=True),
        IMAGE,
        dtypes=FLOATS[:1],
    )

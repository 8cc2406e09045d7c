"""Element types of operands, and the types that their values have in registers.

WGSL converts nothing by itself. A value in a kernel is of one of five kinds, with the letters of
the function library: f (f32; also of halves), i (i32; also of narrower integers), l (vec2<u32>,
int64; also uint32), b (bool) and c (vec2<f32>, complex64). Inductor's kernels copy complex numbers
only. What computes a narrower integer wraps it, so that a register holds a value of the type.
"""

import math
import struct

import torch

# Names of the dtypes as kernels know them.
OPERAND_TYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",  # only read, mostly a number on the host
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.bool: "bool",
    torch.complex64: "c64",
}
# Dtypes that generated kernels neither load nor store as tensors: eager kernels take such ops.
EAGER_ONLY = frozenset({torch.float64, torch.uint64})

_KINDS = {
    torch.float32: "f",
    torch.float16: "f",
    torch.bfloat16: "f",
    torch.float64: "f",
    torch.int64: "l",
    torch.uint32: "l",
    torch.uint64: "l",
    torch.int32: "i",
    torch.int16: "i",
    torch.int8: "i",
    torch.uint8: "i",
    torch.uint16: "i",
    torch.bool: "b",
    torch.complex64: "c",
}
WGSL_TYPES = {"f": "f32", "i": "i32", "l": "vec2<u32>", "b": "bool", "c": "vec2<f32>"}
# The dtype that stands for a kind.
DTYPES = {
    "f": torch.float32,
    "i": torch.int32,
    "l": torch.int64,
    "b": torch.bool,
    "c": torch.complex64,
}
HALVES = {torch.float16: "f16", torch.bfloat16: "bf16"}

_WRAP = {
    torch.int8: "i_from_i8(bitcast<u32>({}) & 0xffu)",
    torch.uint8: "i_from_u8(bitcast<u32>({}) & 0xffu)",
    torch.int16: "i_from_i16(bitcast<u32>({}) & 0xffffu)",
    torch.uint16: "bitcast<i32>(bitcast<u32>({}) & 0xffffu)",
    torch.uint32: "l_from_u(({}).x)",
}
_LARGEST_F32 = struct.unpack("f", struct.pack("I", 0x7F7FFFFF))[0]
_ROUNDS_TO_INFINITY = 3.4028235677973366e38


def kind_of(dtype: torch.dtype) -> str:
    """The kind of a dtype's values in registers. Raises NotImplementedError for a dtype that
    kernels have no registers for."""
    if dtype not in _KINDS:
        raise NotImplementedError(f"generated kernels do not compute in {dtype}")
    return _KINDS[dtype]


def wgsl_type(dtype: torch.dtype) -> str:
    return WGSL_TYPES[kind_of(dtype)]


def convert(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """A value of the register type of `source` as one of `target`'s. Raises NotImplementedError
    between complex and other numbers."""
    a, b = kind_of(source), kind_of(target)
    if a != b and "c" in (a, b):
        raise NotImplementedError(f"generated kernels do not convert {source} to {target}")
    return text if a == b else f"{b}_from_{a}({text})"


def wrap(text: str, dtype: torch.dtype) -> str:
    """An integer as its type holds it, if that is narrower than the register; any other value
    unchanged."""
    return _WRAP[dtype].format(text) if dtype in _WRAP else text


def is_integer_type(dtype: torch.dtype) -> bool:
    return dtype in _KINDS and kind_of(dtype) in "il"


def wrap_number(value: int, dtype: torch.dtype) -> int:
    """A Python integer as an integer type holds it."""
    info = torch.iinfo(dtype)
    return (value - info.min) % (1 << info.bits) + info.min


def round_to_half(text: str, dtype: torch.dtype) -> str:
    """An f32 as a half type holds it; any other value unchanged."""
    return f"round_{HALVES[dtype]}_f({text})" if dtype in HALVES else text


def from_operand(text: str, dtype: torch.dtype) -> str:
    """What an operand's accessor loads, as a value in a register."""
    if dtype == torch.bool:
        return f"({text} != 0)"
    return f"f_from_d({text})" if dtype == torch.float64 else text


def to_operand(text: str, dtype: torch.dtype) -> str:
    """The reverse, for the accessor that stores."""
    return f"i_from_b({text})" if dtype == torch.bool else text


def literal(value: complex | float | int | bool, dtype: torch.dtype) -> str:
    """A Python number as a WGSL expression of the register type of `dtype`."""
    kind = kind_of(dtype)
    if kind == "c":
        number = complex(value)
        return f"vec2<f32>({_float_literal(number.real)}, {_float_literal(number.imag)})"
    assert not isinstance(value, complex)
    if kind == "b":
        return "true" if value else "false"
    if kind == "f":
        return _float_literal(float(value))
    value = wrap_number(int(value), dtype)
    if kind == "l":
        bits = value & (1 << 64) - 1
        return f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)"
    if value == -(1 << 31):
        return "lowest_i"
    return f"({value})" if value < 0 else str(value)


def _float_literal(value: float) -> str:
    if math.isnan(value):
        return "nan_f()"
    if abs(value) >= _ROUNDS_TO_INFINITY:
        return "inf_f()" if value > 0 else "(-inf_f())"
    if value == 0 and math.copysign(1, value) < 0:
        return "neg_f(0.0f)"  # compilers may take the constants 0.0 and -0.0 for one
    rounded = nearest_f32(value)
    text = f"{rounded!r}f"
    return f"({text})" if text.startswith("-") else text


def nearest_f32(value: float) -> float:
    """A finite number rounded to float32; beyond its range the largest number of that sign."""
    bounded = min(max(value, -_LARGEST_F32), _LARGEST_F32)
    return struct.unpack("f", struct.pack("f", bounded))[0]

"""Inductor's ops as WGSL expressions, from the rows of the eager kernels' op tables.

An op of Inductor is served by the row of the same name, with or without ``special_``, or by the one
that `_ROWS` names. `_DIRECT` has what no row says: ops that a row computes with one more argument
(``add``), or that eager mode composes of others. Truth values are ``bool`` in registers here, so
ops on them stand in `_LOGIC`.
"""

import functools
import re

from torch_webgpu import wgsl
from torch_webgpu.inductor.registers import DTYPES

_ROWS = {
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
    "bitwise_left_shift": "lshift",
    "bitwise_right_shift": "rshift",
    "truediv": "div_true",
    "div_rn": "div_true",
    "truncdiv": "div_trunc",
    "floordiv": "div_floor",
    "mod": "fmod",
    "mul_rn": "mul",
    "pow": "pow_tensor_tensor",
    "gammainc": "igamma",
    "gammaincc": "igammac",
}
_DIRECT = {
    "add": {"f": "a + b", "i": "a + b", "l": "add_l(a, b)"},
    "sub": {"f": "a - b", "i": "a - b", "l": "sub_l(a, b)"},
    "relu": {"f": "relu_f(a)", "i": "max(a, 0)", "l": "max_l(a, vec2<u32>(0u))"},
    "square": {"f": "a * a", "i": "a * a", "l": "mul_l(a, a)"},
    "fma": {"f": "fma(a, b, c)"},
    "ndtr": {"f": "ndtr_f(a)"},
    "polygamma": {"f": "polygamma_f(i32(a), b)"},
    "isnan": {"f": "is_nan_f(a)", "i": "false", "l": "false"},
    "isinf": {"f": "is_inf_f(a)", "i": "false", "l": "false"},
}
_LOGIC = {
    "logical_and": "a && b",
    "logical_or": "a || b",
    "logical_xor": "a != b",
    "logical_not": "!a",
    "and_": "a && b",
    "or_": "a || b",
    "xor": "a != b",
    "bitwise_and": "a && b",
    "bitwise_or": "a || b",
    "bitwise_xor": "a != b",
    "bitwise_not": "!a",
    "maximum": "a || b",
    "minimum": "a && b",
    "mul": "a && b",
    "add": "a || b",
    "eq": "a == b",
    "ne": "a != b",
    "lt": "!a && b",
    "le": "!a || b",
    "gt": "a && !b",
    "ge": "a || !b",
}
_TAKES_SCALARS = re.compile(r"\bs[0-3]\b")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def _row(op: str) -> str:
    rows = wgsl.tables()["pointwise"]
    name = _ROWS.get(op, op)
    return f"special_{name}" if name not in rows and f"special_{name}" in rows else name


@functools.cache
def expression(op: str, kind: str) -> str | None:
    """The WGSL of an op on values of a kind, in terms of a, b, c; None if there is none."""
    if kind == "b":
        return _LOGIC.get(op)
    if op in _DIRECT:
        return _DIRECT[op].get(kind)
    try:
        text = wgsl.expression(_row(op), DTYPES[kind])
    except (KeyError, NotImplementedError):
        return None
    return None if _TAKES_SCALARS.search(text) else text


@functools.cache
def gives_bool(op: str) -> bool:
    """Whether the op's expression is a bool for operands of any kind."""
    if op in ("isnan", "isinf"):
        return True
    row = wgsl.tables()["pointwise"].get(_row(op))
    return row is not None and row["result"] == "bool"


@functools.cache
def keeps_numbers(op: str) -> bool:
    """Whether a number as operand is used in float32 beside half operands, not rounded to their
    dtype first: x + 0.1, but x == 0.1 is true for the 0.1 of float16."""
    if op in _DIRECT:
        return True
    row = wgsl.tables()["pointwise"].get(_row(op))
    return row is None or len(row["inputs"]) == 1 or row["keeps_numbers"]


def fill_in(text: str, operands: list[str]) -> str:
    """An expression with its inputs a, b, ... replaced by operands."""
    return substitute(text, dict(zip("abcde", operands, strict=False)))


def substitute(text: str, names: dict[str, str]) -> str:
    """A text with words replaced, all at once: what replaces one may contain another."""
    return _WORD.sub(lambda match: names.get(match[0], match[0]), text)


def reduction(row: str, kind: str) -> dict[str, str] | None:
    """The texts of a row of the reductions' table for values of a kind; None if there is none."""
    field = {"f": "f32", "i": "i32", "l": "i64"}.get(kind)
    return wgsl.tables()["reduce"][row]["by_type"].get(field)

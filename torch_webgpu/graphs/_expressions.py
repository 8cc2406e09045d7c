"""The expressions of a graph file: integers from 0 to 2^64 - 1, names, and operators."""

import operator
import struct
from collections.abc import Callable, Mapping

from torch_webgpu.graphs._format import Expression, Number

Values = Mapping[str, int]
_WORD = (1 << 32) - 1
_MOST = (1 << 64) - 1
_DEEPEST = 32


def _quotient_up(a: int, b: int) -> int:
    return -(-a // b)


def _bits_of_quotient(a: int, b: int) -> int:
    """The bits of an f32, by way of f64."""
    return int.from_bytes(struct.pack("<f", float(a) / float(b)), "little")


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "ceil/": _quotient_up,
    "%": operator.mod,
    "min": min,
    "max": max,
    ">>": operator.rshift,
    "f32": _bits_of_quotient,
}


def names_in(expression: Expression) -> set[str]:
    """The names that an expression uses. Raises ValueError for what is not an expression."""
    found: set[str] = set()
    pending = [(expression, 0)]
    while pending:
        part, depth = pending.pop()
        if isinstance(part, str):
            found.add(part)
        elif isinstance(part, list):
            if len(part) != 3 or part[0] not in _OPERATORS or depth > _DEEPEST:
                raise ValueError(f"{part!r} is not an expression")
            pending += ((operand, depth + 1) for operand in part[1:])
        elif not isinstance(part, int) or isinstance(part, bool) or not 0 <= part <= _MOST:
            raise ValueError(f"{part!r} is not an expression")
    return found


def evaluate(expression: Expression, values: Values) -> int:
    """The value of an expression that names_in() accepted. Sums and products wrap at 2^64.

    Raises ValueError if an intermediate result is negative, a divisor is 0 or a shift is above 63,
    and for a name without a value.
    """
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        if expression not in values:
            raise ValueError(f"nothing is called {expression!r}")
        return values[expression]
    sign, *operands = expression
    a, b = (evaluate(operand, values) for operand in operands)
    if (b == 0 and sign in ("/", "ceil/", "%", "f32")) or (sign == ">>" and b > 63):
        raise ValueError(f"[{sign!r}, {a}, {b}] has no value")
    result = _OPERATORS[sign](a, b)
    if sign in ("+", "*"):
        result &= _MOST  # counters wrap
    if result < 0:
        raise ValueError(f"[{sign!r}, {a}, {b}] is negative")
    return result


def word(expression: Expression, values: Values) -> int:
    """A parameter: the low 32 bits."""
    return evaluate(expression, values) & _WORD


def bits_of(number: Number, value: object) -> int:
    """A number's value in expressions: its bits for i32 and f32, the number itself otherwise.
    Raises TypeError or OverflowError for a value that its type does not have."""
    if number.type == "f32":
        if not isinstance(value, (int, float)):
            raise TypeError(f"expected a real number, got {type(value).__name__}")
        return int.from_bytes(struct.pack("<f", value), "little")
    if number.type == "u64" and isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected an integer, got {type(value).__name__}")
    low, high = {"u32": (0, _WORD), "u64": (0, _MOST), "i32": (-(1 << 31), (1 << 31) - 1)}[
        number.type
    ]
    if not low <= value <= high:
        raise OverflowError(f"{value} is no {number.type}")
    return value & _WORD if number.type == "i32" else value

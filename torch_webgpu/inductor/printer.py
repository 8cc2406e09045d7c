"""Index expressions, which are sympy's, as WGSL."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import CeilToInt, FloorToInt, RoundToInt, TruncToInt
from torch.utils._sympy.printers import ExprPrinter
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from torch_webgpu.inductor.registers import literal

HOST_INTEGERS = (SymT.SIZE, SymT.UNBACKED_INT, SymT.PRECOMPUTED_SIZE)
_KNOWN_TO_THE_HOST = (*HOST_INTEGERS, SymT.FLOAT, SymT.UNBACKED_FLOAT)
_ROUNDED = (CeilToInt, FloorToInt, RoundToInt, TruncToInt, sympy.floor, sympy.ceiling)


def is_integer(expr: sympy.Basic) -> bool:
    """Whether an expression's WGSL is an i32. Otherwise it is an f32, or a bool.

    To sympy 0.0 is an integer, and so is the larger of 0.0 and one."""
    if isinstance(expr, sympy.Float) or not getattr(expr, "is_integer", False):
        return False
    terms = [part for part in expr.args if isinstance(part, sympy.Expr)]
    return isinstance(expr, _ROUNDED) or all(map(is_integer, terms))


class low_word(sympy.Function):  # named as the wrapper's function
    """The lower 32 bits of an integer that the host computes, as an i32."""

    is_integer = True


class high_word(sympy.Function):
    """The upper 32 bits of such an integer of 64, as an i32."""

    is_integer = True


def is_host_integer(expr: sympy.Expr) -> bool:
    """Whether an integer depends on sizes, or other integers of the program, alone."""
    return is_integer(expr) and all(
        symbol_is_type(symbol, HOST_INTEGERS) for symbol in expr.free_symbols
    )


def host_numbers(expr: sympy.Basic) -> Iterator[sympy.Expr]:
    """The largest parts of an expression that depend on sizes alone and compute real numbers,
    their result or on the way to it: to be computed by the host, in double precision."""
    if not expr.free_symbols:
        return
    is_known = all(symbol_is_type(symbol, _KNOWN_TO_THE_HOST) for symbol in expr.free_symbols)
    if is_known and isinstance(expr, sympy.Expr) and _computes_reals(expr):
        yield expr
        return
    for part in expr.args:
        yield from host_numbers(part)


def _computes_reals(expr: sympy.Expr) -> bool:
    parts = sympy.preorder_traversal(expr)
    return any(isinstance(part, sympy.Expr) and not is_integer(part) for part in parts)


# No index is larger; other integers of the program may be.
_INDICES = ValueRanges(-(1 << 31), (1 << 31) - 1)


def indices_below(size: Any) -> ValueRanges[Any]:
    """What an index of a dimension may be. Launches check that no size passes 31 bits."""
    most = int(size) - 1 if isinstance(size, (int, sympy.Integer)) else _INDICES.upper
    return ValueRanges(0, max(most, 0))


def may_change(
    expr: Any, dtype: torch.dtype, ranges: Mapping[sympy.Symbol, ValueRanges[Any]]
) -> bool:
    """Whether a type may not hold the value of an expression of indices, for `ranges` of its
    symbols: integers wrap, floats are rounded, and a bool tells only whether a number is 0.

    A symbol without a range is taken for an index, because kernels have no more elements. Integers
    that the host passes are no indices. Only int64 assumes that of them too, because each of its
    sums would otherwise be taken to overflow.
    """
    if not isinstance(expr, sympy.Expr) or expr.is_number or dtype.is_complex:
        return False
    known = {symbol: ranges.get(symbol, _INDICES) for symbol in expr.free_symbols}
    for symbol, bounds in known.items():
        is_index = bounds.lower <= _INDICES.upper and bounds.upper >= _INDICES.lower
        if is_index and (dtype == torch.int64 or not symbol_is_type(symbol, HOST_INTEGERS)):
            known[symbol] = bounds & _INDICES
    return not lies_within(bound_sympy(expr, known), range_of(dtype))


@functools.cache
def range_of(dtype: torch.dtype) -> ValueRanges[Any]:
    """The integers that a type holds, each of them."""
    if dtype.is_floating_point:
        largest = round(2 / torch.finfo(dtype).eps)
        return ValueRanges(-largest, largest)
    if dtype == torch.bool:
        return ValueRanges(0, 1)
    info = torch.iinfo(dtype)
    return ValueRanges(info.min, info.max)


def lies_within(bounds: ValueRanges[Any], limits: ValueRanges[Any]) -> bool:
    return bool(bounds.lower >= limits.lower and bounds.upper <= limits.upper)


class _ConditionPrinter(ExprPrinter):
    """What is WGSL's bool, whatever the numbers are."""

    def _print_And(self, expr: sympy.Expr) -> str:
        return "(" + " && ".join(map(self._print, expr.args)) + ")"

    def _print_Or(self, expr: sympy.Expr) -> str:
        return "(" + " || ".join(map(self._print, expr.args)) + ")"

    def _print_Not(self, expr: sympy.Expr) -> str:
        return f"!({self._print(expr.args[0])})"

    def _print_BooleanTrue(self, expr: sympy.Expr) -> str:
        return "true"

    def _print_BooleanFalse(self, expr: sympy.Expr) -> str:
        return "false"


class IndexPrinter(_ConditionPrinter):
    """On i32, in which kernels count elements."""

    def _call(self, name: str, *args: sympy.Expr) -> str:
        return f"{name}({', '.join(map(self._print, args))})"

    def _fold(self, name: str, args: tuple[sympy.Expr, ...]) -> str:
        text = self._print(args[0])
        for arg in args[1:]:
            text = f"{name}({text}, {self._print(arg)})"
        return text

    def _quotient(self, x: sympy.Expr, divisor: sympy.Expr) -> str:
        if divisor == 1:
            return f"({self._print(x)})"
        if x.is_nonnegative and divisor.is_nonnegative:
            return f"(({self._print(x)}) / ({self._print(divisor)}))"
        return self._call("floor_div_i", x, divisor)

    def _remainder(self, text: str, is_nonnegative: bool, modulus: sympy.Expr) -> str:
        if is_nonnegative and modulus.is_nonnegative:
            return f"(({text}) % ({self._print(modulus)}))"
        return f"remainder_i({text}, {self._print(modulus)})"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        return self._quotient(*expr.args)

    _print_CleanDiv = _print_FloorDiv

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = expr.args
        return self._remainder(self._quotient(x, divisor), bool(x.is_nonnegative), modulus)

    def _print_PythonMod(self, expr: sympy.Expr) -> str:
        x, modulus = expr.args
        return self._remainder(self._print(x), bool(x.is_nonnegative), modulus)

    _print_Mod = _print_PythonMod

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._fold("min", expr.args)

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._fold("max", expr.args)

    def _print_Abs(self, expr: sympy.Expr) -> str:
        return self._call("abs", expr.args[0])

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        return self._call("pow_i", *expr.args)

    def _print_Where(self, expr: sympy.Expr) -> str:
        condition, yes, no = expr.args
        return self._call("select", no, yes, condition)

    def _print_Relational(self, expr: sympy.Expr) -> str:
        return f"(({self._print(expr.lhs)}) {expr.rel_op} ({self._print(expr.rhs)}))"

    def _print_Identity(self, expr: sympy.Expr) -> str:
        return f"({self._print(expr.args[0])})"

    def _print_Integer(self, expr: sympy.Expr) -> str:
        value = int(expr)
        if value == -(1 << 31):
            return "lowest_i"
        if not -(1 << 31) <= value < 1 << 31:
            raise NotImplementedError(f"the index constant {value} needs more than 32 bits")
        return str(value)

    _print_int = _print_Integer

    # Real numbers: the coordinates of interpolation and the like.
    def _print_Float(self, expr: sympy.Expr) -> str:
        return f"{float(expr)!r}f"

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return self._call("f32", expr.args[0])

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:
        a, b = map(self._print, expr.args)
        return f"div_f(f32({a}), f32({b}))"

    def _print_FloatTrueDiv(self, expr: sympy.Expr) -> str:
        return self._call("div_f", *expr.args)

    def _to_int(self, function: str, expr: sympy.Expr) -> str:
        return f"i32({self._call(function, expr.args[0])})"

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return self._to_int("trunc", expr)

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:
        return self._to_int("floor", expr)

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:
        return self._to_int("ceil", expr)

    def _print_RoundToInt(self, expr: sympy.Expr) -> str:
        return self._to_int("round", expr)

    _print_floor = _print_FloorToInt
    _print_ceiling = _print_CeilToInt


class LongPrinter(_ConditionPrinter):
    """On int64: integer values that may pass 32 bits. Symbols are i32 still."""

    def _fold(self, name: str, args: tuple[sympy.Expr, ...]) -> str:
        text = self._print(args[0])
        for arg in args[1:]:
            text = f"{name}({text}, {self._print(arg)})"
        return text

    def _print_Symbol(self, expr: sympy.Expr) -> str:
        return f"l_from_i({expr})"

    def _print_Integer(self, expr: sympy.Expr) -> str:
        return literal(int(expr), torch.int64)

    _print_int = _print_Integer

    def _print_Add(self, expr: sympy.Expr, order: object = None) -> str:
        return self._fold("add_l", expr.args)

    def _print_Mul(self, expr: sympy.Expr) -> str:
        return self._fold("mul_l", expr.args)

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        return self._fold("floor_div_l", expr.args)

    _print_CleanDiv = _print_FloorDiv

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = map(self._print, expr.args)
        return f"remainder_l(floor_div_l({x}, {divisor}), {modulus})"

    def _print_PythonMod(self, expr: sympy.Expr) -> str:
        return self._fold("remainder_l", expr.args)

    _print_Mod = _print_PythonMod

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._fold("min_l", expr.args)

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._fold("max_l", expr.args)

    def _print_Abs(self, expr: sympy.Expr) -> str:
        return f"abs_l({self._print(expr.args[0])})"

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        return self._fold("pow_l", expr.args)

    _print_Pow = _print_PowByNatural

    def _print_Where(self, expr: sympy.Expr) -> str:
        condition, true, false = map(self._print, expr.args)
        return f"select({false}, {true}, {condition})"

    def _print_Relational(self, expr: sympy.Expr) -> str:
        a, b = map(self._print, expr.args)
        if isinstance(expr, sympy.Eq):
            return f"all({a} == {b})"
        if isinstance(expr, sympy.Ne):
            return f"any({a} != {b})"
        if isinstance(expr, (sympy.Gt, sympy.Ge)):
            a, b = b, a
        return f"{'lt_l' if isinstance(expr, (sympy.Lt, sympy.Gt)) else 'le_l'}({a}, {b})"

    def _print_Identity(self, expr: sympy.Expr) -> str:
        return self._print(expr.args[0])


index_text = IndexPrinter().doprint
long_text = LongPrinter().doprint

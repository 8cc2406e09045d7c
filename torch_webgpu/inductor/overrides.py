"""Inductor's ops as typed WGSL.

Most ops go by the tables; those with rules of their own have a method. Every value is a variable
with a dtype, whose kind says what it is in a register (`registers`).
"""

import math
from typing import Any

import sympy
import torch
from torch._inductor.bounds import ValueRangeAnalysis
from torch._inductor.codegen.common import CSEVariable, OpDecompositions
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler, promote_types
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.utils import boolean_ops, get_bounds_index_expr, sympy_index_symbol
from torch._inductor.virtualized import OpsValue, V
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from torch_webgpu import _torch_versions
from torch_webgpu.inductor import registers, tables
from torch_webgpu.inductor.printer import (
    is_host_integer,
    is_integer,
    lies_within,
    long_text,
    range_of,
)

_ON_TRUTH = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
_INDICES_ARE_APART = _torch_versions.indices_are_apart()
# Ops of which it is known what their result lies between, if it does not wrap.
_BOUNDED = frozenset(
    {"add", "sub", "mul", "neg", "abs", "square", "minimum", "maximum", "bitwise_and"}
)
_RANGES = ValueRangeAnalysis()
# Dynamic sizes are taken to be at most this, so that sums and small multiples of them count as 32
# bits.
_USUAL_SIZE = 1 << 28


def emit(text: str, dtype: torch.dtype, bounds: ValueRanges[Any] | None = None) -> CSEVariable:
    """The variable that holds an expression's value; a new one if there is none yet."""
    cse = V.kernel.cse
    known = cse.try_get(text)
    if known is not None and known.dtype != dtype:
        text = f"{text} /* {str(dtype).removeprefix('torch.')} */"
    given = {} if bounds is None else {"bounds": bounds}
    return cse.generate(V.kernel.compute, text, dtype=dtype, shape=(), **given)


def _unwrapped(value: Any) -> Any:
    """The variable of a value that computes with operators; other values as they are."""
    return value.value if isinstance(value, OpsValue) else value


def as_register(value: Any, dtype: torch.dtype) -> str:
    """A variable or a Python number as text of the register type of `dtype`."""
    value = _unwrapped(value)
    if isinstance(value, CSEVariable):
        if (value.dtype, dtype) == (torch.int32, torch.int64) and value.bounds.lower >= 0:
            return f"l_from_u(bitcast<u32>({value}))"  # the upper word is known
        return registers.convert(str(value), value.dtype, dtype)
    return registers.literal(value, dtype)


def _within(bounds: ValueRanges[Any], dtype: torch.dtype) -> ValueRanges[Any]:
    """Bounds of an integer before it wraps as those of what an integer type holds."""
    limits = range_of(dtype)
    return bounds if bounds.is_int and lies_within(bounds, limits) else limits


def bounds_of(value: Any, dtype: torch.dtype) -> ValueRanges[Any]:
    """What a variable or a Python number lies between, converted to an integer type."""
    value = _unwrapped(value)
    if not isinstance(value, CSEVariable):
        is_number = isinstance(value, (int, sympy.Integer))
        number = registers.wrap_number(int(value), dtype) if is_number else None
        return range_of(dtype) if number is None else ValueRanges.wrap(number)
    if value.dtype == torch.bool:
        return ValueRanges(0, 1)
    if not registers.is_integer_type(value.dtype):
        return range_of(dtype)
    limits = range_of(value.dtype)
    # Ranges without a common number have no intersection, which raises.
    is_apart = value.bounds.lower > limits.upper or value.bounds.upper < limits.lower
    return _within(limits if is_apart else value.bounds & limits, dtype)


def _loses_digits(value: Any, dtype: torch.dtype) -> bool:
    """Whether an integer is to be rounded, converted to a float type."""
    if not isinstance(value, CSEVariable) or not registers.is_integer_type(value.dtype):
        return False
    bounds = bounds_of(value, value.dtype)
    return dtype.is_floating_point and not lies_within(bounds, range_of(dtype))


class WgslVariable(CSEVariable):
    """A variable with what is known of its value.

    Variables of different scopes may have one name, so nothing is looked up by names.
    """

    number: float | None = None  # of a finite constant of a float type
    held_by_half: float | None = None  # what a half type holds of the constant
    exact: "WgslVariable | None" = None  # of a size that a half type holds: before it was rounded
    raised: tuple[str, str] | None = None  # the maximum of what: a text, and a finite constant's


class WgslVariables:
    """Makes a kernel's variables `WgslVariable`s."""

    def create_cse_var(self, *args: Any, **kwargs: Any) -> CSEVariable:
        return WgslVariable(*args, **kwargs)


def _variable(value: Any) -> WgslVariable | None:
    """The variable that an argument is; None for numbers."""
    value = _unwrapped(value)
    return value if isinstance(value, WgslVariable) else None


def number_of(value: Any) -> float | None:
    """The finite number that a variable of a float type is known to hold."""
    variable = _variable(value)
    return None if variable is None else variable.number


def as_held_by_half(value: Any) -> Any:
    """What a half type holds of a constant; other values as they are."""
    variable = _variable(value)
    held = None if variable is None else variable.held_by_half
    return value if held is None else held


def as_number(value: Any) -> Any:
    """A size that a half type holds before it was rounded; other values as they are."""
    variable = _variable(value)
    return value if variable is None or variable.exact is None else variable.exact


def _is_zero(value: Any, sign: float | None = None) -> bool:
    """Whether a value is known to be 0; with `sign` (1.0 or -1.0), the zero of that sign."""
    number = number_of(value)
    return number == 0 and sign in (None, math.copysign(1.0, number))


class WgslOverrides(DefaultHandler):
    """The ops handler of a kernel."""

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = getattr(DtypePropagationOpsHandler(), name, None)
        if rule is None:
            raise NotImplementedError(f"Inductor's op {name} has no WGSL")
        result = rule(*args, **kwargs)
        compute = result
        if name in _ON_TRUTH:
            compute = torch.bool
        elif result == torch.bool and (name in boolean_ops() or tables.gives_bool(name)):
            compute = promote_types(args)
        return self._from_table(name, args, kwargs, compute, result)

    def _from_table(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        compute: torch.dtype,
        result: torch.dtype,
    ) -> Any:
        text = tables.expression(name, registers.kind_of(compute))
        if text is None and compute == torch.bool:  # arithmetic on truth values
            compute = torch.int32
            text = tables.expression(name, "i")
        if text is None:
            return self._decomposed(name, args, kwargs, compute)
        if not tables.keeps_numbers(name):
            args = tuple(as_held_by_half(arg) for arg in args)
        elif len(args) > 1:
            args = tuple(as_number(arg) for arg in args)
        text = tables.fill_in(text, [as_register(arg, compute) for arg in args])
        if result == torch.bool:
            is_bool = compute == torch.bool or tables.gives_bool(name)
            return emit(text if is_bool else registers.convert(text, compute, result), result)
        bounds = None
        if name in _BOUNDED and registers.is_integer_type(result):
            found = getattr(_RANGES, name)(*(bounds_of(arg, compute) for arg in args))
            bounds = _within(found, result)
        return emit(registers.wrap(text, result), result, bounds)

    def _decomposed(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], compute: torch.dtype
    ) -> Any:
        decomposition = getattr(OpDecompositions, name, None)
        if decomposition is None:
            raise NotImplementedError(f"Inductor's op {name} has no WGSL for {compute}")
        return _unwrapped(decomposition(*args, **kwargs))

    # ---- Values ----

    def constant(self, value: Any, dtype: torch.dtype) -> CSEVariable:
        if isinstance(value, sympy.Expr) and not value.is_number:
            return self.value_expr(value, dtype)
        text = registers.literal(value, dtype)
        if isinstance(value, int) and registers.kind_of(dtype) == "f" and abs(value) < 2**127:
            value = float(value)
        if isinstance(value, float) and math.isfinite(value):
            # Variables have bounds: doubles that round to one float must stay apart.
            if registers.nearest_f32(value) != value:
                text += f" /* {value!r} */"
            if dtype in registers.HALVES:
                held = torch.tensor(value, dtype=dtype).item()
                text = f"{text} /* {dtype} */"
                variable = emit(text, torch.float32)
                variable.held_by_half = held
            else:
                variable = emit(text, dtype)
            variable.number = value
            return variable
        if registers.is_integer_type(dtype):
            return emit(text, dtype, bounds_of(value, dtype))
        return emit(text, torch.float32 if dtype in registers.HALVES else dtype)

    # Between constant bounds, one test for NaN is enough.

    def maximum(self, a: Any, b: Any) -> Any:
        result = self._default("maximum", (a, b), {})
        if self._is_finite(b) and registers.kind_of(result.dtype) == "f":
            result.raised = (as_register(a, result.dtype), self._bound(b))
        return result

    def minimum(self, a: Any, b: Any) -> Any:
        variable = _variable(a)
        if variable is not None and variable.raised is not None and self._is_finite(b):
            value, low = variable.raised
            return emit(f"bound_f({value}, {low}, {self._bound(b)})", torch.float32)
        return self._default("minimum", (a, b), {})

    def _is_finite(self, value: Any) -> bool:
        return number_of(value) is not None

    def _bound(self, value: Any) -> str:
        return as_register(as_held_by_half(value), torch.float32)

    def identity(self, x: CSEVariable) -> CSEVariable:
        return x

    def to_dtype(
        self,
        x: Any,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> CSEVariable:
        text = as_register(x, dtype)
        source = x.dtype if isinstance(x, CSEVariable) else None
        if source not in (dtype, torch.bool):
            text = registers.wrap(text, dtype)
        if source != dtype and (not use_compute_types or _loses_digits(x, dtype)):
            text = registers.round_to_half(text, dtype)
        held = torch.float32 if dtype in registers.HALVES else dtype
        if isinstance(x, CSEVariable) and text == str(x) and x.dtype == held:
            return x
        return emit(text, held, bounds_of(x, dtype) if registers.is_integer_type(dtype) else None)

    def to_dtype_bitcast(
        self, x: CSEVariable, dtype: torch.dtype, src_dtype: torch.dtype
    ) -> CSEVariable:
        if registers.kind_of(src_dtype) == registers.kind_of(dtype) == "l":
            return emit(str(x), dtype)
        bits = f"bitcast<u32>({x})"
        if src_dtype in registers.HALVES:
            bits = f"{registers.HALVES[src_dtype]}_from_f({x})"
        elif registers.kind_of(src_dtype) == "l":
            bits = f"{x}.x"
        if dtype in registers.HALVES:
            return emit(f"f_from_{registers.HALVES[dtype]}({bits} & 0xffffu)", torch.float32)
        if registers.kind_of(dtype) == "l":
            return emit(f"l_from_u({bits})", dtype)
        return emit(registers.wrap(f"bitcast<{registers.wgsl_type(dtype)}>({bits})", dtype), dtype)

    def where(self, condition: CSEVariable, a: Any, b: Any) -> CSEVariable:
        dtype = promote_types([a, b])
        no, yes = as_register(b, dtype), as_register(a, dtype)
        bounds = None
        if registers.is_integer_type(dtype):
            bounds = bounds_of(a, dtype) | bounds_of(b, dtype)
        return emit(f"select({no}, {yes}, {as_register(condition, torch.bool)})", dtype, bounds)

    # Drivers take x + 0.0 for x, and 0.0 - x for the opposite of x. But -0.0 + 0.0 is 0.0.

    def add(self, a: Any, b: Any) -> CSEVariable:
        dtype = promote_types([a, b])
        if registers.kind_of(dtype) == "f":
            for x, zero in ((a, b), (b, a)):
                if _is_zero(zero, 1.0):
                    return self._without_negative_zero(as_register(x, dtype), dtype)
        return self._default("add", (a, b), {})

    def sub(self, a: Any, b: Any) -> CSEVariable:
        # A driver that assumes finite numbers would fold this to 0.
        if isinstance(a, CSEVariable) and a == b and registers.kind_of(a.dtype) == "f":
            return emit(f"select(nan_f(), 0.0, is_finite_f({a}))", a.dtype)
        dtype = promote_types([a, b])
        if registers.kind_of(dtype) == "f":
            if _is_zero(b, -1.0):
                return self._without_negative_zero(as_register(a, dtype), dtype)
            if _is_zero(a, 1.0):
                opposite = emit(f"neg_f({as_register(b, dtype)})", dtype)
                return self._without_negative_zero(str(opposite), dtype)
        return self._default("sub", (a, b), {})

    def _without_negative_zero(self, x: str, dtype: torch.dtype) -> CSEVariable:
        """x + 0.0, by the bits, which no driver takes for those of 0.0."""
        return emit(f"select({x}, 0.0, bitcast<u32>({x}) == 0x80000000u)", dtype)

    def mul(self, a: Any, b: Any) -> CSEVariable:
        # Drivers would fold a product with 0 to 0, of whatever sign, also one of infinity.
        if _is_zero(a):
            a, b = b, a
        dtype = promote_types([a, b])
        if not _is_zero(b) or registers.kind_of(dtype) != "f":
            return self._default("mul", (a, b), {})
        x = as_register(a, dtype)
        zero = f"copysign_f(0.0, {x})"
        signed = f"select({zero}, neg_f({zero}), signbit_f({b}))"
        return emit(f"select(nan_f(), {signed}, is_finite_f({x}))", dtype)

    def frexp(self, x: CSEVariable) -> tuple[CSEVariable, CSEVariable]:
        return (
            emit(f"frexp_mantissa_f({x})", torch.float32),
            emit(f"frexp_exponent_i({x})", torch.int32),
        )

    # ---- Quotients and powers: true division of integers gives a float ----

    def truediv(self, a: Any, b: Any) -> CSEVariable:
        dtype = promote_types([a, b])
        if registers.kind_of(dtype) != "f":
            dtype = torch.float32
        return self._from_table("truediv", (a, b), {}, dtype, dtype)

    def int_truediv(self, a: Any, b: Any) -> CSEVariable:
        return self._from_table("truediv", (a, b), {}, torch.float32, torch.float32)

    def reciprocal(self, x: CSEVariable) -> CSEVariable:
        dtype = x.dtype if registers.kind_of(x.dtype) == "f" else torch.float32
        return self._from_table("reciprocal", (x,), {}, dtype, dtype)

    def pow(self, a: Any, b: Any) -> CSEVariable:
        dtype = promote_types([a, b])
        return self._from_table("pow", (a, b), {}, dtype, dtype)

    # ---- Rounding: integers stay as they are ----

    def _rounded(self, name: str, x: CSEVariable) -> CSEVariable:
        if registers.kind_of(x.dtype) != "f":
            return x
        return self._from_table(name, (x,), {}, x.dtype, x.dtype)

    def floor(self, x: CSEVariable) -> CSEVariable:
        return self._rounded("floor", x)

    def ceil(self, x: CSEVariable) -> CSEVariable:
        return self._rounded("ceil", x)

    def trunc(self, x: CSEVariable) -> CSEVariable:
        return self._rounded("trunc", x)

    def round(self, x: CSEVariable) -> CSEVariable:
        return self._rounded("round", x)

    # ---- Indices ----

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> CSEVariable:
        # An index may be computed from larger numbers, which 32 bits would cut.
        is_wide = isinstance(expr, sympy.Expr) and not _fits_32_bits(expr, _USUAL_SIZE)
        is_wide = is_wide and dtype == torch.int64 and is_integer(expr)
        if not _INDICES_ARE_APART or is_wide:
            return self.value_expr(expr, dtype)
        value = self._index(expr)
        return value if dtype in (torch.int32, torch.int64) else self.to_dtype(value, dtype)

    def _number_beside_halves(self, expr: sympy.Expr, dtype: torch.dtype) -> CSEVariable:
        """A size as a half type holds it. Operators that keep numbers take it as a float32."""
        exact = self.value_expr(expr, torch.float32)
        variable = emit(registers.round_to_half(str(exact), dtype), torch.float32)
        variable.exact = exact
        return variable

    def _index(self, expr: sympy.Expr) -> CSEVariable:
        kernel = V.kernel
        prepared = kernel.prepare_indexing(expr)
        dtype = torch.int32 if is_integer(prepared) else torch.float32
        if not isinstance(prepared, sympy.Expr):  # a comparison
            dtype = torch.bool
        return emit(kernel.index_to_str(prepared), dtype, get_bounds_index_expr(expr))

    def value_expr(self, expr: Any, dtype: torch.dtype) -> CSEVariable:
        """An index expression as a value: of int64 it must not be cut to the 32 bits of an
        index."""
        if isinstance(expr, (int, float)) or expr.is_number:
            number = float(expr) if dtype.is_floating_point else int(expr)
            return emit(registers.literal(number, dtype), dtype)
        if dtype in registers.HALVES:
            return self._number_beside_halves(expr, dtype)
        if is_host_integer(expr):
            value = emit(V.kernel.host_integer(expr), torch.int64, get_bounds_index_expr(expr))
            return self.to_dtype(value, dtype)
        if not is_integer(expr) or _fits_32_bits(expr):
            return self.to_dtype(self._index(expr), dtype)
        kernel = V.kernel
        text = long_text(kernel.rename_indexing(kernel.prepare_indexing(expr)))
        return self.to_dtype(emit(text, torch.int64, get_bounds_index_expr(expr)), dtype)

    def indirect_indexing(
        self, var: CSEVariable, size: Any, check: bool = True, wrap_neg: bool = True
    ) -> sympy.Symbol:
        return sympy_index_symbol(str(V.kernel.checked_index(var, size, check)))

    # ---- Branches ----

    def masked(self, mask: CSEVariable, body: Any, other: Any) -> CSEVariable:
        return V.kernel.branch(mask, body, other)

    # ---- Random numbers: Philox with the seed as key and the element as counter ----

    def load_seed(self, name: str, offset: Any) -> CSEVariable:
        return V.kernel.load(name, sympy.sympify(offset))

    def rand(self, seed: CSEVariable, offset: Any) -> CSEVariable:
        return emit(f"uniform_f({_random_words(seed, offset)}.x)", torch.float32)

    def randn(self, seed: CSEVariable, offset: Any) -> CSEVariable:
        words = _random_words(seed, offset)
        return emit(f"normal_pair_f({words}.x, {words}.y).x", torch.float32)

    def randint64(self, seed: CSEVariable, offset: Any, low: Any, high: Any) -> CSEVariable:
        words = _random_words(seed, offset)
        low, high = (as_register(bound, torch.int64) for bound in (low, high))
        below = f"random_below_l({words}.xy, sub_l({high}, {low}))"
        return emit(f"add_l({low}, {below})", torch.int64)


def _random_words(seed: CSEVariable, offset: Any) -> CSEVariable:
    # Four words in one variable, whose dtype nobody asks for.
    place = f"vec2<u32>(bitcast<u32>({as_register(offset, torch.int32)}), 0u)"
    return emit(f"philox_at({as_register(seed, torch.int64)}, 0u, {place})", torch.uint32)


def _fits_32_bits(expr: sympy.Expr, most: int = (1 << 31) - 1) -> bool:
    """Whether a value, and each one that it is computed from, fits an int32 for all sizes and
    indices up to `most`. By default that is 2^31 - 1, and launches check that none is larger."""
    ranges = V.kernel.symbol_ranges(expr)
    for symbol, bounds in ranges.items():
        if bounds.upper == (1 << 31) - 1:
            ranges[symbol] = bounds & ValueRanges(-most, most)

    def fits(part: sympy.Expr) -> bool:
        bounds = bound_sympy(part, ranges)
        return lies_within(bounds, range_of(torch.int32))

    parts = sympy.preorder_traversal(expr)
    return all(fits(part) for part in parts if isinstance(part, sympy.Expr) and is_integer(part))

"""Integers that depend on the sizes of a call, while commands are recorded.

The code that the compiler wrote for a graph computes parameters and numbers of workgroups from
sizes. It is run with these integers in place of sizes, which remember how they were computed, as an
expression of the graph file.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import sympy
import torch
from torch.utils._sympy.functions import (
    CleanDiv,
    FloorDiv,
    Max,
    Min,
    Mod,
    ModularIndexing,
    PythonMod,
)
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import TensorReferenceAnalysis
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from torch_webgpu.graphs._format import Expression

_MODULUS = 1 << 64
# Combinations of sizes for which an expression is computed, where intervals say too little, and the
# values with which that is exact.
_MOST_VALUES = 1 << 16
_LARGEST = 1 << 62


def is_sized(*tensors: torch.Tensor) -> bool:
    """Whether a size of the tensors is one that a call decides, while a function is traced."""
    return not all(isinstance(n, int) for tensor in tensors for n in tensor.shape)


class Symbols:
    """The sizes of a function, by the symbols that the compiler has for them."""

    def __init__(self, names: Mapping[sympy.Symbol, str], ranges: Mapping[str, Any]) -> None:
        """`ranges` has the least and the largest size by name."""
        self.names = dict(names)
        self.ranges = {s: ValueRanges(*ranges[name]) for s, name in names.items()}
        self.most = {s: int(bounds.upper) for s, bounds in self.ranges.items()}
        self._bounds: dict[sympy.Expr, tuple[int, int] | None] = {}

    def size(self, expr: Any) -> "int | Size":
        expr = sympy.sympify(expr)
        return int(expr) if expr.is_Integer else Size(expr, self)

    def bounds(self, expr: Any) -> tuple[int, int] | None:
        """Between which integers the expression lies for all sizes. None: that is not known."""
        expr = sympy.sympify(expr)
        if expr not in self._bounds:
            self._bounds[expr] = self._found_bounds(expr)
        return self._bounds[expr]

    def _found_bounds(self, expr: sympy.Expr) -> tuple[int, int] | None:
        found = self._interval(expr)
        if found is not None and found[0] < 0:
            # A product of differences is not negative where its parts are not; multiplied out, its
            # terms are.
            better = self._interval(_factored(expr))
            if better is not None:
                found = max(found[0], better[0]), min(found[1], better[1])
        if found is None or found[0] < 0:
            values = self._values(expr)
            if values is not None:
                return int(values.min()), int(values.max())
        return found

    def _interval(self, expr: sympy.Expr) -> tuple[int, int] | None:
        found = bound_sympy(expr, self.ranges)
        low, high = found.lower, found.upper
        return (int(low), int(high)) if low.is_Integer and high.is_Integer else None

    def always(self, relation: Any) -> bool:
        """Whether a relation holds for all sizes. False: that is not known."""
        if bound_sympy(relation, self.ranges).lower is sympy.true:
            return True
        values = self._values(relation)
        return values is not None and bool(values.all())

    def _values(self, expr: Any) -> torch.Tensor | None:
        """The values for all sizes. None if these are too many, or if a value may be too large."""
        symbols = sorted(expr.free_symbols, key=str)
        if not symbols or not all(symbol in self.ranges for symbol in symbols):
            return None
        ranges = [(int(self.ranges[s].lower), int(self.ranges[s].upper)) for s in symbols]
        if math.prod(high - low + 1 for low, high in ranges) > _MOST_VALUES:
            return None
        for part in sympy.preorder_traversal(expr):
            if isinstance(part, sympy.Expr):
                bounds = self._interval(part)
                if bounds is None or bounds[0] < -_LARGEST or bounds[1] > _LARGEST:
                    return None
        numbers = [torch.arange(low, high + 1, device="cpu") for low, high in ranges]
        sizes = torch.meshgrid(*numbers, indexing="ij")
        try:
            values = sympy_interp(_OfTensors, dict(zip(symbols, sizes, strict=True)), expr)
        except (AttributeError, NotImplementedError, RuntimeError):  # an operation that it lacks
            return None
        return values if values.dtype in (torch.int64, torch.bool) else None

    def at_most(self, expr: sympy.Expr) -> int:
        """The value for the largest sizes."""
        return int(expr.xreplace({s: sympy.Integer(n) for s, n in self.most.items()}))

    def text(self, expr: sympy.Expr) -> str:
        return str(expr.xreplace({s: sympy.Symbol(name) for s, name in self.names.items()}))

    # ---- As expressions of the file

    def word(self, expr: Any) -> Expression:
        """The expression of a parameter, of which only the low 32 bits count: what is negative is
        as large as modulo 2^64. Raises RuntimeError for what the format cannot express."""
        expr = sympy.expand(sympy.sympify(expr)) if _is_polynomial(expr) else sympy.sympify(expr)
        bounds = self.bounds(expr)
        if bounds is None or not -(1 << 31) <= bounds[0] <= bounds[1] < 1 << 31:
            raise RuntimeError(f"{self.text(expr)} may need more than 31 bits")
        return self._modular(expr)

    def real(self, expr: Any) -> Expression:
        """The expression of a parameter that is an f32, a quotient of integers."""
        numerator, denominator = sympy.fraction(sympy.together(sympy.sympify(expr)))
        self._check_divisors(denominator)
        return ["f32", self._exact(numerator), self._exact(denominator)]

    def count(self, expr: Any) -> Expression:
        """The expression of an integer that is not negative for any size."""
        return self._exact(sympy.sympify(expr))

    def _modular(self, expr: sympy.Expr) -> Expression:
        bounds = self.bounds(expr)
        if bounds is not None and bounds[0] >= 0:
            try:
                return self._exact(expr)
            except _NegativeError:
                pass
        if expr.is_Integer:
            return int(expr) % _MODULUS
        if isinstance(expr, (sympy.Add, sympy.Mul)):
            sign = "+" if isinstance(expr, sympy.Add) else "*"
            return _joined(sign, [self._modular(part) for part in expr.args])
        return self._exact(expr)

    def _exact(self, expr: sympy.Expr) -> Expression:
        """Every part of it has a value that is not negative, and is computed without wrapping."""
        if expr.is_Integer and expr >= 0:
            return int(expr)
        if isinstance(expr, sympy.Symbol) and expr in self.names:
            return self.names[expr]
        bounds = self.bounds(expr)
        if bounds is None or bounds[0] < 0:
            raise _NegativeError(f"{self.text(expr)} may be negative")
        if bounds[1] >= 1 << 63:
            raise RuntimeError(f"{self.text(expr)} may need more than 63 bits")
        if isinstance(expr, sympy.Add):
            return self._exact_sum(expr)
        if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and 0 < expr.exp <= 8:
            return _joined("*", [self._exact(expr.base)] * int(expr.exp))
        if isinstance(expr, sympy.Mul):
            return _joined("*", [self._exact(part) for part in expr.args])
        if isinstance(expr, ModularIndexing):
            x, divisor, modulus = map(self._exact, expr.args)
            self._check_divisors(*expr.args[1:])
            return ["%", x if divisor == 1 else ["/", x, divisor], modulus]
        for kinds, sign in _SIGNS:
            if isinstance(expr, kinds):
                if sign in ("/", "%"):
                    self._check_divisors(expr.args[1])
                return functools.reduce(
                    lambda a, b: [sign, a, b], [self._exact(part) for part in expr.args]
                )
        raise RuntimeError(f"a graph file cannot express {self.text(expr)}")

    def _exact_sum(self, expr: sympy.Expr) -> Expression:
        """A difference of two sums, each of which is not negative."""
        sums: tuple[list[Expression], list[Expression]] = ([], [])
        try:
            for part in expr.args:
                is_minus = part.could_extract_minus_sign()
                sums[is_minus].append(self._exact(-part if is_minus else part))
        except _NegativeError:
            factored = _factored(expr)
            if factored == expr:
                raise
            return self._exact(factored)
        plus, minus = sums
        total = _joined("+", plus) if plus else 0
        return ["-", total, _joined("+", minus)] if minus else total

    def _check_divisors(self, *divisors: sympy.Expr) -> None:
        for divisor in divisors:
            bounds = self.bounds(divisor)
            if bounds is None or bounds[0] < 1:
                raise RuntimeError(f"the divisor {self.text(divisor)} may be 0")


class _OfTensors(TensorReferenceAnalysis):  # type: ignore[misc]
    """Computes an expression of tensors, with PyTorch's remainders of integers that are not
    negative, and Python's."""

    @staticmethod
    def modular_indexing(
        x: torch.Tensor, divisor: torch.Tensor, modulus: torch.Tensor
    ) -> torch.Tensor:
        return torch.remainder(torch.div(x, divisor, rounding_mode="floor"), modulus)

    mod = python_mod = staticmethod(torch.remainder)


class _NegativeError(RuntimeError):
    """A part of an expression may be negative."""


_SIGNS: list[tuple[Any, str]] = [
    ((FloorDiv, CleanDiv), "/"),
    ((Mod, PythonMod), "%"),
    (Max, "max"),
    (Min, "min"),
]


def _factored(expr: sympy.Expr) -> sympy.Expr:
    """The same with sums as products, but for what is added to them. What is added to an extreme is
    added to its operands, as n - max(0, n - 3) is min(n, 3)."""

    def product(total: sympy.Expr) -> sympy.Expr:
        extremes = [part for part in total.args if part.as_coeff_Mul()[1].func in (Max, Min)]
        if len(extremes) == 1:
            factor, extreme = extremes[0].as_coeff_Mul()
            rest = total - extremes[0]
            kinds = (Max, Min) if factor > 0 else (Min, Max)
            kind = kinds[extreme.func is Min]
            return kind(*(sympy.expand(rest + factor * part) for part in extreme.args))
        constant, rest = total.as_coeff_Add()
        return constant + sympy.factor(rest)

    found: sympy.Expr = expr.replace(lambda part: isinstance(part, sympy.Add), product)
    return found


def _is_polynomial(expr: Any) -> bool:
    parts = sympy.preorder_traversal(sympy.sympify(expr))
    return all(
        isinstance(part, (sympy.Integer, sympy.Symbol, sympy.Add, sympy.Mul)) for part in parts
    )


def _joined(sign: str, parts: Sequence[Expression]) -> Expression:
    """The sum or product of several, as a tree that is no deeper than it must be."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return [sign, _joined(sign, parts[:half]), _joined(sign, parts[half:])]


def _binary(compute: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: "Size", other: Any) -> Any:
        return self._with(other, compute)

    def reverse(self: "Size", other: Any) -> Any:
        return self._with(other, lambda a, b: compute(b, a))

    return forward, reverse


class _OfSizes:
    """What is computed from sizes."""

    def __init__(self, expr: sympy.Expr, symbols: Symbols) -> None:
        self.expr = expr
        self.symbols = symbols

    def __repr__(self) -> str:
        return self.symbols.text(self.expr)


class Size(_OfSizes):
    """An integer that depends on sizes."""

    def _with(self, other: Any, compute: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, float):
            return self._real()._with(other, compute)
        if isinstance(other, Size):
            return self.symbols.size(compute(self.expr, other.expr))
        if isinstance(other, int) and not isinstance(other, bool):
            return self.symbols.size(compute(self.expr, sympy.Integer(other)))
        return NotImplemented

    def _real(self) -> "Real":
        return Real(self.expr, self.symbols)

    __add__, __radd__ = _binary(lambda a, b: a + b)
    __sub__, __rsub__ = _binary(lambda a, b: a - b)
    __mul__, __rmul__ = _binary(lambda a, b: a * b)
    __floordiv__, __rfloordiv__ = _binary(FloorDiv)
    __mod__, __rmod__ = _binary(PythonMod)
    __pow__, __rpow__ = _binary(lambda a, b: a**b)

    def __neg__(self) -> Any:
        return self * -1

    def __truediv__(self, other: Any) -> Any:
        return self._real() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._real()

    def _difference(self, other: Any) -> tuple[int, int]:
        """Between which integers self - other lies for all sizes."""
        difference = self - other
        if isinstance(difference, int):
            return difference, difference
        bounds = self.symbols.bounds(difference.expr)
        if bounds is None:
            raise self._undecided(other)
        return bounds

    def _undecided(self, other: Any) -> RuntimeError:
        return RuntimeError(f"what is done depends on how {self!r} compares with {other!r}")

    def __lt__(self, other: Any) -> bool:
        low, high = self._difference(other)
        if high < 0 or low >= 0:
            return high < 0
        raise self._undecided(other)

    def __le__(self, other: Any) -> bool:
        low, high = self._difference(other)
        if high <= 0 or low > 0:
            return high <= 0
        raise self._undecided(other)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        low, high = self._difference(other)
        if low == high == 0 or low > 0 or high < 0:
            return low == high == 0
        raise self._undecided(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def _fixed(self, *_: Any) -> NoReturn:
        raise RuntimeError(f"what is done needs a fixed number in place of {self!r}")

    __index__ = __int__ = __float__ = __bool__ = _fixed


class Real(_OfSizes):
    """A quotient of integers that depend on sizes, which stands for a real number."""

    def _with(self, other: Any, compute: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, (Size, Real)):
            number = other.expr
        elif isinstance(other, (int, float)) and math.isfinite(other):
            number = sympy.Rational(other)
        else:
            raise self._refused()
        return Real(compute(self.expr, number), self.symbols)

    def _refused(self, *_: Any) -> RuntimeError:
        return RuntimeError(
            f"a real number is computed from {self!r}, and a graph file has quotients only"
        )

    __add__, __radd__ = _binary(lambda a, b: a + b)
    __sub__, __rsub__ = _binary(lambda a, b: a - b)
    __mul__, __rmul__ = _binary(lambda a, b: a * b)
    __truediv__, __rtruediv__ = _binary(lambda a, b: a / b)

    def __neg__(self) -> Any:
        return self * -1

    def _other(self, *_: Any) -> NoReturn:
        raise self._refused()

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _other
    __lt__ = __le__ = __gt__ = __ge__ = __index__ = __int__ = __float__ = __bool__ = _other
    __eq__ = __ne__ = _other
    __hash__ = None  # type: ignore[assignment]


def largest(*values: Any) -> Any:
    """Python's max() of sizes and integers."""
    return _extreme(Max, max, values)


def smallest(*values: Any) -> Any:
    """Python's min()."""
    return _extreme(Min, min, values)


def _extreme(of_sizes: Any, of_numbers: Any, values: Sequence[Any]) -> Any:
    if len(values) == 1:
        values = list(values[0])
    sizes = [value for value in values if isinstance(value, Size)]
    if not sizes:
        return of_numbers(values)
    # A real number, such as 0.0, that is certainly not the result makes the result real only.
    reals = [value for value in values if isinstance(value, float)]
    found = functools.reduce(
        lambda a, b: a._with(b, of_sizes),
        [sizes[0], *(value for value in values if not isinstance(value, float))],
    )
    for value in reals:
        bounds = found.symbols.bounds(_expr_of(found))
        if bounds is None or of_numbers(bounds[0], value) == value != bounds[0]:
            raise RuntimeError(f"a real number is computed from {found!r} and {value!r}")
        if of_numbers(bounds[1], value) == value != bounds[1]:
            raise RuntimeError(f"a real number is computed from {found!r} and {value!r}")
    return found._real() if reals and isinstance(found, Size) else found


def _expr_of(value: Any) -> Any:
    return value.expr if isinstance(value, Size) else value

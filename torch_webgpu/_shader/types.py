"""WGSL's types: their layout in memory, and Python values packed in that layout."""

import math
import operator
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

SCALARS = ("f32", "i32", "u32", "f16", "bool")
_FORMATS = {"f32": "<f", "i32": "<i", "u32": "<I", "f16": "<e"}

# The dtypes that a storage buffer of these scalars takes. u32 also takes the dtypes that WGSL has
# no type for, as words.
_WORDS = {
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float64,
    torch.int16,
    torch.uint16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.float16,
    torch.bfloat16,
    torch.complex32,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
}
DTYPES = {
    "f32": {torch.float32, torch.complex64},
    "i32": {torch.int32},
    "u32": _WORDS,
    "f16": {torch.float16, torch.complex32},
}


@dataclass(frozen=True)
class Scalar:
    name: str


@dataclass(frozen=True)
class Vector:
    count: int
    scalar: Scalar


@dataclass(frozen=True)
class Matrix:
    columns: int
    column: Vector


@dataclass(frozen=True)
class Atomic:
    scalar: Scalar


@dataclass(frozen=True)
class Array:
    element: "Type"
    text: str  # the element's type as the program writes it
    count: str | None  # an expression; None: as long as the buffer


@dataclass(frozen=True)
class Pointer:
    target: "Type"


@dataclass(frozen=True)
class Other:
    """A type that no buffer holds: a texture, a sampler."""

    name: str


@dataclass(frozen=True)
class Member:
    name: str
    type: "Type"
    align: int | None = None  # @align
    size: int | None = None  # @size
    builtin: str = ""  # @builtin


@dataclass(frozen=True)
class Struct:
    name: str
    members: tuple[Member, ...] = field(compare=False)


Type = Scalar | Vector | Matrix | Atomic | Array | Pointer | Other | Struct


def element_of(kind: Type | None) -> Type | None:
    """The type of ``x[i]``."""
    match kind:
        case Array(element):
            return element
        case Vector(_, scalar):
            return scalar
        case Matrix(_, column):
            return column
    return None


def scalars_of(kind: Type) -> set[str]:
    """The names of the scalars that a value of this type consists of."""
    match kind:
        case Scalar(name) | Other(name):
            return {name}
        case Vector(_, scalar) | Atomic(scalar):
            return {scalar.name}
        case Matrix(_, column):
            return {column.scalar.name}
        case Array(element):
            return scalars_of(element)
        case Struct():
            return set().union(*(scalars_of(member.type) for member in kind.members))
    return set()


def has_atomics(kind: Type) -> bool:
    match kind:
        case Atomic():
            return True
        case Array(element):
            return has_atomics(element)
        case Struct():
            return any(has_atomics(member.type) for member in kind.members)
    return False


class Layout:
    """Sizes in bytes, as WGSL's section on memory layout defines them.

    ``evaluate`` gives the value of an array's element count.
    """

    def __init__(self, evaluate: Callable[[str], int]) -> None:
        self._evaluate = evaluate

    def align(self, kind: Type) -> int:
        match kind:
            case Scalar(name):
                return 2 if name == "f16" else 4
            case Atomic(scalar):
                return self.align(scalar)
            case Vector(count, scalar):
                return (2 if count == 2 else 4) * self.align(scalar)
            case Matrix(_, column):
                return self.align(column)
            case Array(element):
                return self.align(element)
            case Struct():
                return max(m.align or self.align(m.type) for m in kind.members)
        raise NotImplementedError(f"a buffer cannot hold a {kind}")

    def size(self, kind: Type) -> int:
        """The size; of an array as long as its buffer, that of one element."""
        match kind:
            case Scalar():
                return self.align(kind)
            case Atomic(scalar):
                return self.align(scalar)
            case Vector(count, scalar):
                return count * self.align(scalar)
            case Matrix(columns, column):
                return columns * _round_up(self.size(column), self.align(column))
            case Array(_, _, count):
                return self.stride(kind) * (1 if count is None else self._evaluate(count))
            case Struct():
                *_, (member, offset) = self.members(kind)
                end = offset + (member.size or self.size(member.type))
                return _round_up(end, self.align(kind))
        raise NotImplementedError(f"a buffer cannot hold a {kind}")

    def stride(self, array: Array) -> int:
        return _round_up(self.size(array.element), self.align(array.element))

    def members(self, kind: Struct) -> Iterator[tuple[Member, int]]:
        """Each member with its offset."""
        offset = 0
        for member in kind.members:
            offset = _round_up(offset, member.align or self.align(member.type))
            yield member, offset
            offset += member.size or self.size(member.type)

    def growth(self, kind: Type) -> tuple[int, int]:
        """The smallest size of a buffer, and the bytes in whose multiples it may be larger (0: any
        larger one will do)."""
        if isinstance(kind, Array) and kind.count is None:
            return self.stride(kind), self.stride(kind)
        if isinstance(kind, Struct):
            *_, (last, offset) = self.members(kind)
            if isinstance(last.type, Array) and last.type.count is None:
                return offset + self.stride(last.type), 0
        return self.size(kind), 0

    def pack(self, kind: Type, value: object, name: str) -> bytes:
        """The bytes of a value.

        A vector, matrix or array takes a sequence, a struct a sequence or a mapping by member.
        Raises TypeError and OverflowError, which call the value `name`.
        """
        out = bytearray(self.size(kind))
        self._pack(out, 0, kind, value, name)
        return bytes(out)

    def _pack(self, out: bytearray, offset: int, kind: Type, value: object, name: str) -> None:
        match kind:
            case Scalar(scalar):
                struct.pack_into(_FORMATS[scalar], out, offset, _number(scalar, value, name))
            case Vector(count, scalar):
                step = self.align(scalar)
                self._pack_each(out, offset, step, scalar, _sequence(value, count, name), name)
            case Matrix(columns, column):
                step = _round_up(self.size(column), self.align(column))
                self._pack_each(out, offset, step, column, _sequence(value, columns, name), name)
            case Array(element, _, count):
                values = _sequence(value, self._evaluate(count or "0"), name)
                self._pack_each(out, offset, self.stride(kind), element, values, name)
            case Struct():
                names = [member.name for member in kind.members]
                if isinstance(value, Mapping):
                    if set(value) != set(names):
                        raise TypeError(
                            f"'{name}' has the members {', '.join(names)}, got {', '.join(value)}"
                        )
                    values = [value[member] for member in names]
                else:
                    values = _sequence(value, len(names), name)
                for (member, place), item in zip(self.members(kind), values, strict=True):
                    self._pack(out, offset + place, member.type, item, f"{name}.{member.name}")
            case _:
                raise NotImplementedError(f"'{name}': a uniform cannot hold a {kind}")

    def _pack_each(
        self, out: bytearray, offset: int, step: int, kind: Type, values: list[object], name: str
    ) -> None:
        for i, item in enumerate(values):
            self._pack(out, offset + i * step, kind, item, f"{name}[{i}]")


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _sequence(value: object, count: int, name: str) -> list[object]:
    if isinstance(value, torch.Tensor | str | bytes) or not hasattr(value, "__len__"):
        raise TypeError(f"'{name}' takes a sequence of {count}, got {type(value).__name__}")
    values = list(value)  # type: ignore[call-overload]
    if len(values) != count:
        raise TypeError(f"'{name}' takes a sequence of {count}, got {len(values)}")
    return values


def _number(scalar: str, value: object, name: str) -> float | int:
    if isinstance(value, torch.Tensor) and (value.device.type != "cpu" or value.dim() > 0):
        raise TypeError(f"'{name}' takes a number, got a tensor; .item() gives its value")
    if scalar in ("f32", "f16"):
        if not hasattr(value, "__float__"):
            raise TypeError(f"'{name}' takes a number, got {type(value).__name__}")
        number = float(value)
        # struct refuses finite numbers that are too large, where a cast would give infinity.
        limit = 65520.0 if scalar == "f16" else 3.4028235677973366e38
        overflows = math.isfinite(number) and abs(number) >= limit
        return math.copysign(math.inf, number) if overflows else number
    try:
        integer = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"'{name}' is {scalar} and takes an integer, got {type(value).__name__}"
        ) from None
    low, high = (0, 2**32) if scalar == "u32" else (-(2**31), 2**31)
    if not low <= integer < high:
        raise OverflowError(f"'{name}' is {scalar}, which {integer} does not fit")
    return integer

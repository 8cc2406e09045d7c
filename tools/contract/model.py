"""What a kernel's .wgsl file states about itself."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, field

# Access of an operand -> the accessors that the assembler writes for it, besides load_NAME.
ACCESS = {
    "in": "none",
    "out": "store_NAME",
    "sum": "store_NAME and atomic_add_NAME",
    "update": "store_NAME and atomic_update_NAME",
    # Where owns_NAME holds, the kernel writes whole words, without atomics: store2_NAME and
    # store4_NAME store neighbours, and there is no store_NAME for 1- and 2-byte types.
    "words": "store_NAME, store2_NAME, store4_NAME",
    # Where vectors_NAME holds: load_vector_NAME(i), 16 bytes, and NAME_in_vector(vector, lane).
    "vectors": "none",
}
# Of an operand that is a list of tensors. The elements of `in`, `out` and `words` are members of
# Elements; where owns_NAME holds, what the tensors held is neither read nor kept.
LIST_ACCESS = {
    "in": "none",
    "out": "update_vector stores",
    "words": "update_vector stores",
    # Each tensor has one element.
    "numbers": "NAME_of(tensor)",
}
# Tensors of each list in a dispatch, at most: kMaxBindings of csrc/runtime/pipeline.h.
MAX_LIST_TENSORS = 16

FLOATS = ("f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
NATIVE = (*FLOATS, *INTEGERS, "bool", "c64")
BITS = ("bits8", "bits16", "bits32", "bits64", "bits128")
CONVERTED = ("f64", "u16", "u32", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")

# Names for sets of dtypes, as operands declare them.
DTYPE_SETS = {
    "float": FLOATS,
    "integer": INTEGERS,
    "index": ("i64", "i32"),
    "number": (*FLOATS, *INTEGERS, "c64"),
    "real": (*FLOATS, *INTEGERS, "bool"),
    "any": NATIVE,
    "stored": (*NATIVE, *CONVERTED),
    "bits": BITS,
}
# In the order of the enumeration DType of csrc/wgsl/dtype.h.
DTYPES = (*NATIVE, *CONVERTED, *BITS)

# Of the values in registers: the enumeration Kind of csrc/wgsl/dtype.h.
KINDS = ("float", "int", "long", "complex", "raw", "double")


# What a kernel may `@enable`.
EXTENSIONS = ("f16", "subgroups", "chromium_experimental_subgroup_matrix")


class ContractError(Exception):
    """A kernel file states something that cannot be; the text names file and line."""


@dataclass(frozen=True)
class Operand:
    name: str
    access: str
    dtypes: tuple[str, ...]
    optional: bool = False
    # The operand whose dtype this one has.
    like: str = ""
    # A list of tensors: several of each list in a dispatch.
    many: bool = False
    # A type of the kernel's, such as a struct, that the elements have instead of a dtype.
    element: str = ""
    # The operand whose register type this one has.
    akin: str = ""

    @property
    def is_written(self) -> bool:
        return self.access not in ("in", "vectors", "numbers")


@dataclass(frozen=True)
class Const:
    """A number or choice that the launch sets and the text is specialized for.

    ``values`` are all that it may have; of a bool False and True, of an enumeration the indices of
    ``names``.
    """

    name: str
    kind: str  # "u32", "bool", "enum"
    values: tuple[int, ...]
    names: tuple[str, ...] = ()

    @property
    def zero_bits(self) -> int:
        """Low bits that are 0 in all values, and left out of the pipeline key."""
        union = functools.reduce(operator.or_, self.values)
        return (union & -union).bit_length() - 1 if union else 0

    @property
    def key_bits(self) -> int:
        """Bits that its value takes in the pipeline key."""
        return (max(self.values) >> self.zero_bits).bit_length() or 1


@dataclass(frozen=True)
class Field:
    """A field of Params. ``count`` is 0 for a scalar or a vec4, else the array's length."""

    name: str
    base: str  # "u32", "i32", "f32"
    is_vector: bool
    count: int
    offset: int
    comment: str = ""

    @property
    def size(self) -> int:
        return (16 if self.is_vector else 4) * max(self.count, 1)


@dataclass
class Kernel:
    name: str
    family: str  # folder below csrc/ops
    doc: str
    operands: list[Operand] = field(default_factory=list)
    consts: list[Const] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    # The text of a region where the launch supplies none.
    region_defaults: dict[str, str] = field(default_factory=dict)
    # Extensions of WGSL that it cannot do without.
    enables: list[str] = field(default_factory=list)
    # What must hold between constants and optional operands, as expressions of C.
    requirements: list[str] = field(default_factory=list)
    params: list[Field] = field(default_factory=list)
    params_bytes: int = 0
    # What the grid counts, "groups" or "invocations", and how many there are: an expression of
    # integers over the u32 fields of Params and the constants. Empty where the launch gives the
    # grid.
    grid_unit: str = ""
    grid_count: str = ""
    workgroup: int = 0  # invocations; 0 where constants decide
    reports_errors: bool = False
    text: str = ""  # imports expanded, declarations of the build added

    @property
    def lists(self) -> list[Operand]:
        """The operands that are lists of tensors, in the order of their words in Params.lists."""
        return [operand for operand in self.operands if operand.many]

    @property
    def random_at(self) -> int:
        """Where Params has the place in a stream of random numbers, in bytes; -1: nowhere."""
        return next((f.offset for f in self.params if f.name == "philox"), -1)

    @property
    def list_stride(self) -> int:
        """Vectors of Params.lists for each tensor: a head, and where it starts in its bindings."""
        return 1 + -(-len(self.lists) // 4) if self.lists else 0

    def condition_names(self) -> set[str]:
        """What an `@if` may ask."""
        names = {f"has_{operand.name}" for operand in self.operands if operand.optional}
        names |= {f"owns_{operand.name}" for operand in self.operands if operand.access == "words"}
        names |= {f"vectors_{o.name}" for o in self.operands if o.access == "vectors"}
        for const in self.consts:
            if const.kind == "bool":
                names.add(const.name)
            names.update(const.names)
        return names | TARGET_CONDITIONS

    def dtype_conditions(self) -> set[str]:
        """What an `@if` may ask of dtypes: NAME_is_KIND and NAME_is_DTYPE. An absent operand is
        none of them."""
        return {
            f"{operand.name}_is_{word}"
            for operand in self.operands
            for word in (*KINDS, *operand.dtypes)
        }


# What else an `@if` may ask: features of the shader target, and whether an operand is complex.
TARGET_CONDITIONS = {
    *("subgroups", "equal_subgroups", "native_f16", "is_complex"),
    *(f"subgroups_of_{size}" for size in (2, 4, 8, 16, 32, 64, 128)),
}

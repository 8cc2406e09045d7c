"""What a graph file says, as docs/graph-format.md specifies it: the program's JSON as classes.

Decoding checks types, unknown members and the signs of numbers. _load.py checks that members agree
with each other, and the device's runtime checks what commands do to buffers.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
import torch

VERSIONS = ("1", "2")
# The name of the function of a file of version 1, which has one without a name.
ONLY_FUNCTION = "run"
# Keys of the metadata of the safetensors file.
VERSION_KEY = "torch_webgpu.graph"
PROGRAM_KEY = "torch_webgpu.program"

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
# A number, the name of a number or of a dimension, or [operator, operand, operand].
Expression = int | str | list[Any]


class _Strict(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    pass


class Dimension(_Strict):
    """A size that the inputs of a call decide."""

    min: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    max: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]


class Number(_Strict):
    """A number that parameters and grids are made of."""

    type: Literal["u32", "i32", "f32", "u64"]
    value: int | float | str  # of u64: decimal digits
    input: bool = False  # whether a call may set it


class CountingNumber(Number):
    """A number in a file of version 1."""

    step: str | None = None  # of u64: what each replay adds, decimal digits


class Buffer(_Strict):
    """A buffer that all programs use, and that keeps its contents between replays."""

    bytes: Count
    entry: str | None = None  # the tensor of the file that it starts with; else zeros


class View(_Strict):
    """A contiguous tensor in a buffer, or one of the file that no command uses."""

    dtype: str
    shape: list[Expression]
    buffer: Count | None = None
    offset: Count = 0
    entry: str | None = None


class InputView(View):
    """An input in a file of version 2."""

    optional: bool = False  # whether a call may leave it out; it keeps what it holds then


class Shader(_Strict):
    """A compute shader."""

    label: str
    wgsl: str
    entry: str
    buffers: Annotated[int, msgspec.Meta(ge=0, le=16)]
    writes: list[Count]  # the bindings that are read_write
    reports: bool = False  # whether it binds the error words
    constants: dict[str, float] = {}


class Scratch(_Strict):
    """A buffer of one program that holds nothing between replays."""

    bytes: Count
    first: Count  # the first and the last command that use it
    last: Count
    # Where it may lie: in the memory of others of the same slot, or in this buffer of the program.
    slot: Count | None = None
    within: Count | None = None


class Dispatch(_Strict, tag_field="do", tag="dispatch"):
    """Runs a shader."""

    shader: Count
    bind: list[tuple[Count, Count, Count]]  # buffer, offset, bytes
    grid: tuple[Expression, Expression, Expression]
    words: list[Expression]


class Copy(_Strict, tag_field="do", tag="copy"):
    """Copies bytes from one buffer to another."""

    source: tuple[Count, Count]  # buffer, offset
    target: tuple[Count, Count]
    bytes: Count


class Clear(_Strict, tag_field="do", tag="clear"):
    """Fills bytes with zeros."""

    target: tuple[Count, Count, Count]  # buffer, offset, bytes


class Requirements(_Strict):
    """What a device must have."""

    features: list[str] = []  # of WebGPU
    limits: dict[str, Count] = {}
    subgroup_size: tuple[Count, Count] | None = None  # the device's may not leave this range


class LanguageRequirements(Requirements):
    """What a device must have, in a file of version 2."""

    language_features: list[str] = []  # of WGSL
    software: bool = False  # whether the adapter must be one that computes on cores of a CPU


class Variant(_Strict):
    """The commands of a replay, for devices that have what they require."""

    requires: LanguageRequirements
    scratch: list[Scratch]
    commands: list[Dispatch | Copy | Clear]


class Function(_Strict):
    """What a caller calls. All functions of a program use its buffers."""

    inputs: dict[str, InputView]
    outputs: dict[str, View]
    variants: list[Variant]
    steps: dict[str, str] = {}  # by number, which is u64: what a replay adds, decimal digits


class Program(_Strict):
    """The whole of a file of version 2."""

    producer: str
    buffers: list[Buffer]
    shaders: list[Shader]
    functions: dict[str, Function]
    dimensions: dict[str, Dimension] = {}
    numbers: dict[str, Number] = {}
    state: dict[str, Any] = {}  # trees, see _state.py
    messages: dict[str, tuple[str, str]] = {}  # by error code: exception, text


class Variant1(_Strict):
    """A variant in a file of version 1."""

    requires: Requirements
    scratch: list[Scratch]
    commands: list[Dispatch | Copy | Clear]


class Program1(_Strict):
    """The whole of a file of version 1, which has one function."""

    producer: str
    buffers: list[Buffer]
    shaders: list[Shader]
    inputs: dict[str, View]
    outputs: dict[str, View]
    variants: list[Variant1]
    dimensions: dict[str, Dimension] = {}
    numbers: dict[str, CountingNumber] = {}
    state: dict[str, Any] = {}  # trees, see _state.py
    messages: dict[str, tuple[str, str]] = {}  # by error code: exception, text


_COMMON = ("producer", "buffers", "shaders", "dimensions", "state", "messages")


def decode(version: str | None, text: str) -> Program:
    """The program of a file. Raises ValueError for a version that is not read here, and msgspec's
    errors for what is no program."""
    if version is None:
        raise ValueError("it has no program")
    if version not in VERSIONS:
        raise ValueError(
            f"it has version {version!r} of the format, and this is a reader of versions "
            + " and ".join(VERSIONS)
        )
    if version == "2":
        return msgspec.json.decode(text, type=Program)
    old = msgspec.json.decode(text, type=Program1)
    function = Function(
        inputs={name: _as(InputView, view) for name, view in old.inputs.items()},
        outputs=old.outputs,
        variants=[
            Variant(
                requires=_as(LanguageRequirements, variant.requires),
                scratch=variant.scratch,
                commands=variant.commands,
            )
            for variant in old.variants
        ],
        steps={name: n.step for name, n in old.numbers.items() if n.step is not None},
    )
    numbers = {
        name: Number(type=n.type, value=n.value, input=n.input) for name, n in old.numbers.items()
    }
    return Program(functions={ONLY_FUNCTION: function}, numbers=numbers, **_members(old, _COMMON))


def as_version_1(program: Program) -> Program1:
    """The same program, which has one function and nothing that is new in version 2."""
    (function,) = program.functions.values()
    return Program1(
        inputs={name: _as(View, view) for name, view in function.inputs.items()},
        outputs=function.outputs,
        variants=[
            Variant1(
                requires=_as(Requirements, variant.requires),
                scratch=variant.scratch,
                commands=variant.commands,
            )
            for variant in function.variants
        ],
        numbers={
            name: CountingNumber(
                **_members(n, Number.__struct_fields__), step=function.steps.get(name)
            )
            for name, n in program.numbers.items()
        },
        **_members(program, _COMMON),
    )


def _members(value: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _as(kind: Any, value: msgspec.Struct) -> Any:
    """A struct as one of a class that has more members, or fewer."""
    common = [name for name in kind.__struct_fields__ if name in value.__struct_fields__]
    return kind(**_members(value, common))

"""What a graph file says, as docs/graph-format.md specifies it: the program's JSON as classes.

Decoding checks types, unknown members and the signs of numbers. _load.py checks that members agree
with each other, and the device's runtime checks what commands do to buffers.
"""

from typing import Annotated, Any, Literal

import msgspec
import torch

VERSION = "1"
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
    step: str | None = None  # of u64: what each replay adds, decimal digits
    input: bool = False  # whether a call may set it


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


class Variant(_Strict):
    """The commands of a replay, for devices that have what they require."""

    requires: Requirements
    scratch: list[Scratch]
    commands: list[Dispatch | Copy | Clear]


class Program(_Strict):
    """The whole."""

    producer: str
    buffers: list[Buffer]
    shaders: list[Shader]
    variants: list[Variant]
    inputs: dict[str, View]
    outputs: dict[str, View]
    dimensions: dict[str, Dimension] = {}
    numbers: dict[str, Number] = {}
    state: dict[str, Any] = {}  # trees, see _state.py
    messages: dict[str, tuple[str, str]] = {}  # by error code: exception, text

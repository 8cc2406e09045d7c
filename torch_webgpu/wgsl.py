"""What the build knows of the shaders, as data: the kernels' contracts, the op tables, the library.

A kernel's .wgsl file states its operands, constants, regions and parameters; `kernels` gives them
as the build read them, and `assemble` makes the text of a shader for any target.

`tables` gives the rows of the op tables and `library` the functions that their expressions call. A
shader of one's own is made of `expression`, between `load` and `store`, and `library_for`.

Dtypes have the names of the contracts (f32, f16, bf16, i64, i32, i16, i8, u8, bool, c64; f64, u16,
u32, f8e4m3, f8e5m2, f8e4m3fnuz and f8e5m2fnuz, which are only converted; bits8 to bits128), or are
given as torch.dtype.
"""

import contextlib
import functools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from torch_webgpu import _C

_DATA = pathlib.Path(__file__).parent / "share" / "wgsl"
_DTYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.float64: "f64",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
}


class OperandForm(NamedTuple):
    """One operand of a form. `dtype` is a name from the contract, empty for an absent operand."""

    dtype: str
    slot: int
    whole_words: bool = False


@functools.cache
def kernels() -> dict[str, Any]:
    """The contracts of all kernels, by name.

    Each has ``family``, ``doc``, ``workgroup`` (invocations; 0 where constants decide),
    ``operands`` (name, access, dtypes, optional; ``like`` names the operand of the same dtype,
    ``akin`` one of the same register type; ``many`` for a list of tensors), ``consts`` (name, kind,
    values), ``regions``, ``region_defaults``, ``enables`` (extensions of WGSL), ``requirements``,
    ``params`` (name, type, count, offset in bytes), ``reports_errors`` and ``text``.
    """
    return json.loads((_DATA / "kernels.json").read_text(encoding="utf-8"))


def assemble(
    kernel: str,
    consts: Mapping[str, int | bool | str],
    operands: Mapping[str, OperandForm],
    regions: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    *,
    target: str = "browser",
    limits: Mapping[str, int] | None = None,
    tensors: int = 1,
) -> str:
    """The complete WGSL of a kernel in one form. `target`, `features` and `limits` say for which
    target, as the arguments of the function `target` do.

    Of a kernel whose operands are lists, a dispatch takes `tensors` of each. The slots of other
    operands are then counted behind the lists.

    Raises KeyError or ValueError for names that the contract does not have, RuntimeError for a
    form that it does not allow.
    """
    contract = kernels()[kernel]
    values = []
    for const in contract["consts"]:
        value = consts[const["name"]]
        values.append(const["values"].index(value) if const["kind"] == "enum" else int(value))
    absent = OperandForm("", 0)
    names = [operand["name"] for operand in contract["operands"]]
    if unknown := [
        *(set(operands) - set(names)),
        *(set(consts) - {c["name"] for c in contract["consts"]}),
    ]:
        raise ValueError(f"kernel {kernel} declares no {', '.join(sorted(unknown))}")
    return _C.assemble_kernel(
        kernel,
        values,
        [operands.get(name, absent) for name in names],
        [{**contract["region_defaults"], **(regions or {})}[name] for name in contract["regions"]],
        target,
        _changes(features, limits),
        tensors,
    )


def assemble_text(
    text: str,
    *,
    target: str = "browser",
    features: Sequence[str] = (),
    limits: Mapping[str, int] | None = None,
) -> str:
    """The shader of a text with conditions that ask for the target, such as those of compiled
    kernels: conditions resolved, with its `enable` line and what it uses of the library. `target`,
    `features` and `limits` say for which target, as the arguments of the function `target` do.

    Raises RuntimeError for a condition that asks for anything else.
    """
    return _C.assemble_text(text, target, _changes(features, limits))


@contextlib.contextmanager
def target(
    base: str = "device",
    *,
    features: Sequence[str] = (),
    limits: Mapping[str, int] | None = None,
) -> Iterator[None]:
    """Operations inside are planned, and their shaders made, for another device than the one in
    use: what they record runs there too.

    ``base`` is ``"device"`` (the one in use), ``"browser"`` (what a browser gives without being
    asked for more: 8 storage buffers of 128 MiB, workgroups of 256 invocations and 16 KiB, no
    optional feature) or ``"swiftshader"``. ``features`` are added to its own, ``limits`` replace
    its own; both have the names of `torch.webgpu.get_device_properties`.

    Holds for this thread and for the backward passes that it starts. An operation inside raises
    RuntimeError if the target asks for more than the device in use grants. While a graph is
    captured, subgroups may have other sizes than the device's; the graph can be saved then, and a
    replay raises RuntimeError. Raises ValueError for names that do not exist.
    """
    _C.push_target(base, _changes(features, limits))
    try:
        yield
    finally:
        _C.pop_target()


def enables(
    base: str = "device",
    *,
    features: Sequence[str] = (),
    limits: Mapping[str, int] | None = None,
) -> str:
    """The ``enable`` and ``requires`` lines for a shader of one's own that uses every feature of a
    target. The arguments are those of `target`."""
    return _C.target_enables(base, _changes(features, limits))


def _changes(features: Sequence[str], limits: Mapping[str, int] | None) -> dict[str, int]:
    return {**dict.fromkeys(features, 1), **(limits or {})}


class Dispatch(NamedTuple):
    """A dispatch that `record` saw."""

    label: str  # the operation, or its kernel
    bindings: list[int]  # bytes of each storage binding
    grid: list[int]  # workgroups in each dimension


@contextlib.contextmanager
def record(*, execute: bool = True) -> Iterator[list[Dispatch]]:
    """Collects the dispatches of the operations inside, of all threads. The list is filled at the
    end.

    Without `execute` they are not carried out: results are undefined, and reading them inside
    raises RuntimeError.
    """
    dispatches: list[Dispatch] = []
    _C.start_recording(execute)
    try:
        yield dispatches
    finally:
        dispatches += (Dispatch(*dispatch) for dispatch in _C.stop_recording())


@functools.cache
def tables() -> dict[str, Any]:
    """The rows of the op tables, by family (factory, foreach, pointwise, random, reduce, scan) and
    by op.

    A row has the fields that the top of csrc/ops/<family>/rows.yaml describes, with what it leaves
    to a default. ``stub`` is empty for a row behind no DispatchStub. Pointwise rows have their WGSL
    in ``expressions``, by register type (f32, i32, i64, c64, raw), and in ``scalars`` how many of
    s0, s1, ... these name. Rows of reduce and scan have their texts in ``by_type``. The keys of
    ``for_argument`` are numbers as text.
    """
    return json.loads((_DATA / "tables.json").read_text(encoding="utf-8"))


@functools.cache
def library() -> dict[str, dict[str, str]]:
    """The declarations of the WGSL function library, by name and in the library's order.

    Each has ``file`` (in csrc/wgsl/lib, without .wgsl), ``doc`` (the comment above it) and
    ``text``.
    """
    return json.loads((_DATA / "library.json").read_text(encoding="utf-8"))


def library_for(text: str) -> str:
    """The library declarations that a text needs, also through others, in the library's order.

    A name that the text declares itself, in column 0, is not taken from the library. The text with
    these behind it is a complete shader, if it was one but for the library.
    """
    return _C.library_for(text)


def row(op: str, dtype: str | torch.dtype) -> dict[str, Any]:
    """The pointwise row that serves an op in a dtype: its own, or the one that its ``for_dtype``
    names, whose ``result`` may be another (bitwise_not of bool is logical_not).

    Raises KeyError for an op without a row.
    """
    rows = tables()["pointwise"]
    return rows[rows[op]["for_dtype"].get(_dtype_name(dtype), op)]


def expression(op: str, dtype: str | torch.dtype) -> str:
    """The WGSL expression of a pointwise op that is computed in a dtype.

    It names the inputs a, b, ... and the scalar arguments s0, s1, ..., all of the type that
    `register_type` gives. The expression has that type too; but bool where the result of `row`
    is ``bool``, and f32 for complex64 where it is ``real``. Half types are computed in f32, and
    bool in i32 (0 or 1).

    Raises KeyError for an op without a row, ValueError for an unknown dtype, NotImplementedError
    for a dtype that the row has no expression for: PyTorch refuses it, or the CPU computes it.
    """
    dtype = _dtype_name(dtype)
    expressions = row(op, dtype)["expressions"]
    field = _C.dtype_info(dtype)[2]
    if field not in expressions:
        raise NotImplementedError(f"{op} has no expression for {dtype}")
    return expressions[field]


def register_type(dtype: str | torch.dtype) -> str:
    """The WGSL type in which a value of a dtype is computed: f32, i32, vec2<u32> or vec2<f32>.

    Of raw bits: u32, vec2<u32> or vec4<u32>. Raises ValueError for an unknown dtype.
    """
    return _C.dtype_info(_dtype_name(dtype))[1]


def load(dtype: str | torch.dtype, word: str) -> str:
    """The WGSL expression of `register_type(dtype)` for an element's bits as they lie in memory.

    `word` is an expression of u32; of vec2<u32> for 8 bytes, of vec4<u32> for 16. The bits of a
    narrower element are the low ones, and the others must be 0. Raises ValueError for an unknown
    dtype. The expression may call the library: see `library_for`.
    """
    return _C.load_expression(_dtype_name(dtype), word)


def store(dtype: str | torch.dtype, value: str) -> str:
    """The reverse of `load`: the bits of a value, an expression of `register_type(dtype)`.

    Float types are rounded, integers wrapped to their width; of bool every number but 0 is true.
    The bits of a narrower element are the low ones, and the others are 0. Raises ValueError for an
    unknown dtype.
    """
    return _C.store_expression(_dtype_name(dtype), value)


def _dtype_name(dtype: str | torch.dtype) -> str:
    if isinstance(dtype, str):
        return dtype
    if dtype not in _DTYPES:
        raise ValueError(f"kernels know no {dtype}")
    return _DTYPES[dtype]

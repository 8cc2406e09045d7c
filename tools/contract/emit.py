"""Writes the C++ headers, the texts and the JSON of kernel contracts, with the templates here."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path

import jinja2

from contract.model import ACCESS, DTYPES, LIST_ACCESS, Const, Field, Kernel

ACCESS_ENUM = {
    "in": "kIn",
    "out": "kOut",
    "sum": "kSum",
    "update": "kUpdate",
    "words": "kWords",
    "vectors": "kVectors",
    "numbers": "kNumbers",
}
assert set(ACCESS_ENUM) == {*ACCESS, *LIST_ACCESS}
CONST_ENUM = {"u32": "kNumber", "bool": "kBool", "enum": "kEnum"}
SCALARS = {"u32": "uint32_t", "i32": "int32_t", "f32": "float"}
# MSVC stops at 16,380 bytes a literal; pieces this short suit every compiler.
PIECE = 8000


def header(kernel: Kernel) -> str:
    """The header of one kernel: its parameters, and a launch with its operands and constants."""
    return _templates().get_template("kernel.h.j2").render(kernel=kernel)


def definitions(kernels: list[Kernel]) -> str:
    """One C++ file with the text and the contract of every kernel."""
    return _templates().get_template("kernels.cpp.j2").render(kernels=kernels, dtypes=DTYPES)


def contracts(kernels: list[Kernel]) -> str:
    """The same facts as JSON, for Python and other players of the kernels."""
    return json.dumps({kernel.name: _json(kernel) for kernel in kernels}, indent=1) + "\n"


def write_if_changed(path: Path, text: str) -> None:
    """Leaves an unchanged file's time alone, so that nothing is compiled again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _json(kernel: Kernel) -> dict:
    out = dataclasses.asdict(kernel)
    del out["name"]
    for const in out["consts"]:
        names = const.pop("names")
        const["values"] = names or const["values"]
    for field in out["params"]:
        base = field.pop("base")
        field["type"] = f"vec4<{base}>" if field.pop("is_vector") else base
    return out


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        camel=_camel,
        wrap=lambda text: textwrap.wrap(text, 96),
        cpp_type=_cpp_type,
        const_type=_const_type,
        access_enum=ACCESS_ENUM.__getitem__,
        const_enum=CONST_ENUM.__getitem__,
        dtype_mask=lambda dtypes: f"{sum(1 << DTYPES.index(dtype) for dtype in dtypes):#x}",
        dtype_enum=lambda name: (
            f"k{name.capitalize() if name[:4] in ('bool', 'bits') else name.upper()}"
        ),
        index_of=_index_of,
        required_mask=lambda kernel: hex(
            sum(1 << k for k, operand in enumerate(kernel.operands) if not operand.optional)
        ),
        key_shift=_key_shift,
        quoted=lambda names: ", ".join(f'"{name}"' for name in names),
        requirements=_requirements,
        grid_count=_grid_count,
        raw_string=_raw_string,
    )
    return environment


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _cpp_type(field: Field) -> str:
    kind = SCALARS[field.base]
    if field.is_vector:
        kind = f"std::array<{kind}, 4>"
    return f"std::array<{kind}, {field.count}>" if field.count else kind


def _const_type(kernel: Kernel, const: Const) -> str:
    """Enumerations with their namespace: the class may have a member of that name."""
    scope = f"kernels::{kernel.name}::{_camel(const.name)}"
    return {"u32": "uint32_t", "bool": "bool"}.get(const.kind, scope)


def _index_of(kernel: Kernel, operand: str) -> int:
    names = [other.name for other in kernel.operands]
    return names.index(operand) if operand else -1


def _key_shift(kernel: Kernel, const: Const) -> int:
    before = kernel.consts[: kernel.consts.index(const)]
    return sum(other.key_bits for other in before)


def _requirements(kernel: Kernel) -> str:
    """The requirements in C++, over the constants' values and the mask of present operands."""
    terms = {}
    for number, const in enumerate(kernel.consts):
        terms[const.name] = f"consts[{number}]"
        for value, name in enumerate(const.names):
            terms[name] = f"(consts[{number}] == {value}u)"
    for number, operand in enumerate(kernel.operands):
        terms[f"has_{operand.name}"] = f"((present >> {number} & 1u) != 0)"
        terms[f"owns_{operand.name}"] = f"((owned >> {number} & 1u) != 0)"
        terms[f"vectors_{operand.name}"] = terms[f"owns_{operand.name}"]
    texts = [
        "(" + re.sub(r"[A-Za-z_]\w*", lambda match: terms[match[0]], text) + ")"
        for text in kernel.requirements
    ]
    return " && ".join(texts) or "true"


def _grid_count(kernel: Kernel) -> str:
    """In C++, in 64 bits: a product of 32-bit numbers may wrap."""
    consts = [const.name for const in kernel.consts]

    def term(match: re.Match) -> str:
        name = match[0]
        if name == "ceil_div":
            return "at::ceil_div<uint64_t>"
        return f"uint64_t{{{name}}}" if name.startswith("p.") else f"value({consts.index(name)})"

    return re.sub(r"[A-Za-z_][\w.]*", term, kernel.grid_count)


def _raw_string(text: str) -> str:
    if ')wgsl"' in text:
        raise ValueError("a shader may not contain the closing delimiter of a raw string")
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)] or [""]
    return "\n".join(f'R"wgsl({piece})wgsl"' for piece in pieces)

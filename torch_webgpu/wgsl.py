"""What the build knows of the shaders, as data: the kernels' contracts.

A kernel's .wgsl file states its operands, constants, regions and parameters; `kernels` gives them
as the build read them, and `assemble` makes the text of a shader for any target.
"""

import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch_webgpu import _C

_DATA = pathlib.Path(__file__).parent / "share" / "wgsl"


class OperandForm(NamedTuple):
    """One operand of a form. `dtype` is a name from the contract, empty for an absent operand."""

    dtype: str
    slot: int
    whole_words: bool = False


@functools.cache
def kernels() -> dict[str, Any]:
    """The contracts of all kernels, by name.

    Each has ``family``, ``doc``, ``workgroup`` (invocations), ``operands`` (name, access, dtypes,
    optional), ``consts`` (name, kind, values), ``regions``, ``requirements``, ``params`` (name,
    type, count, offset in bytes), ``reports_errors`` and ``text``.
    """
    return json.loads((_DATA / "kernels.json").read_text(encoding="utf-8"))


def assemble(
    kernel: str,
    consts: Mapping[str, int | bool | str],
    operands: Mapping[str, OperandForm],
    regions: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
) -> str:
    """The complete WGSL of a kernel in one form, for a target with `features`.

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
        [tuple(operands.get(name, absent)) for name in names],
        [(regions or {})[name] for name in contract["regions"]],
        dict.fromkeys(features, 1),
    )

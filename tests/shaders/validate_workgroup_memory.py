"""Compares the workgroup memory that we count in shaders with what Dawn counts.

The Null adapter grants 16 KiB. A shader that is padded to use exactly that, by our count, must make
a pipeline; with four bytes more it must not. Prints a JSON object from shader to complaint.
"""

import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.shaders.forms import forms, kernels_with_text
from tests.shaders.row_forms import row_forms
from tests.shaders.validate_targets import (  # sets the backend
    TARGETS,
    gpu,
    has_few_invocations,
    set_instance_extras,
)
from torch_webgpu import _C, wgsl

BASE, FEATURES = TARGETS["h200"]
LIMIT = 16384


def shaders() -> Iterator[tuple[str, str]]:
    """One shader for each kernel and size of its workgroup memory."""
    for kernel in kernels_with_text():
        contract = wgsl.kernels()[kernel]
        if "var<workgroup>" not in contract["text"]:
            continue
        seen = set()
        for form in forms(contract):
            if len({operand.slot for operand in form.operands.values()}) > 8:
                continue  # more storage buffers than the adapter grants
            if not has_few_invocations(form):
                continue
            source = wgsl.assemble(
                kernel, form.consts, form.operands, form.regions, FEATURES, target=BASE
            )
            size = _C.workgroup_memory(source)
            if size not in seen:
                seen.add(size)
                yield f"{kernel} of {size} bytes", source
    yield from row_forms("scan")


def padded(source: str, words: int) -> str:
    if words == 0:
        return source
    used = re.sub(r"(fn main\(.*?\)\s*\{)", r"\1\n  pad[0] = 1u;", source, count=1, flags=re.DOTALL)
    return f"{used}\nvar<workgroup> pad: array<u32, {words}>;\n"


def makes_pipeline(device: Any, source: str) -> bool:
    module = device.create_shader_module(code=source)
    compute = {"module": module, "entry_point": "main"}
    try:
        device.create_compute_pipeline(layout="auto", compute=compute)
    except Exception as error:
        if "workgroup" not in str(error):
            raise
        return False
    return True


def main() -> None:
    set_instance_extras(enable_toggles=["allow_unsafe_apis"])  # lists subgroup matrices
    device = gpu.request_adapter_sync().request_device_sync(required_features=FEATURES)
    complaints = {}
    for label, source in shaders():
        words = (LIMIT - _C.workgroup_memory(source)) // 4
        complaints[label] = ""
        if words >= 0 and not makes_pipeline(device, padded(source, words)):
            complaints[label] = f"Dawn counts more:\n{source}"
        elif makes_pipeline(device, padded(source, words + 1) if words >= 0 else source):
            complaints[label] = f"Dawn counts less:\n{source}"
    json.dump(complaints, sys.stdout)


if __name__ == "__main__":
    main()

"""Compiles every kernel in its forms for several targets, to pipelines, on Dawn's Null adapter.

The adapter needs no driver. It grants the optional features, and no more than the limits of a
browser, which the pipelines must keep to. Its argument: of how many forms one is compiled, where a
kernel asks for no features. Prints a JSON object from kernel to target and form to complaint, ""
where there is none.
"""

import json
import os
import pathlib
import sys
from typing import Any

os.environ["WGPU_BACKEND_TYPE"] = "Null"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from wgpudawn import gpu
from wgpudawn.backends.dawn.extras import set_instance_extras

from tests.shaders.forms import Form, forms, kernels_with_text
from torch_webgpu import _C, wgsl

# The feature of the device that an extension of WGSL needs.
FEATURES = {
    "f16": "shader-f16",
    "subgroups": "subgroups",
    "chromium_experimental_subgroup_matrix": "chromium-experimental-subgroup-matrix",
}
# Target and the features that it has beyond a browser's.
TARGETS: dict[str, tuple[str, list[str]]] = {
    "browser": ("browser", []),
    "halves": ("browser", ["shader-f16"]),
    "swiftshader": ("swiftshader", ["subgroups"]),
    "h200": ("browser", ["shader-f16", "subgroups", "chromium-experimental-subgroup-matrix"]),
}


def has_few_invocations(form: Form) -> bool:
    """Whether a workgroup has no more than the 256 invocations that the adapter grants."""
    return form.consts.get("row_slots", 0) <= 256


def is_planned(kernel: str, form: Form, source: str) -> bool:
    """Whether operations planned for such targets use the form. The others need more than 8 storage
    buffers, 16 KiB of workgroup memory or 256 invocations; they only have to be valid WGSL."""
    if len({operand.slot for operand in form.operands.values()}) > 8:
        return False  # structured_cat_out joins fewer tensors at once
    if form.tensors > 1:
        return False  # a launch takes as many tensors as there are buffers for
    if kernel == "conv_product":
        return form.consts["tile"] == 8 or form.operands["a"].dtype != "c64"  # fits_tiles
    large = (
        "gemm_registers",
        "gemm_registers_small",
        "gemm_matrix",
        "gemm_bf16",
        "gemm_high",
        "conv_registers",
        "conv_matrix",
        "conv_rows",
    )
    if kernel in large:
        return False  # registers::fits, matrix::fits
    if kernel.startswith("attention_"):
        return _C.workgroup_memory(source) <= 16384  # find_attention
    if kernel == "fft":
        return form.consts["capacity"] <= 1024  # fft_capacity
    if not has_few_invocations(form):
        return False  # gradient_workgroup of norm_rows.cpp
    if kernel == "linalg_triangular":
        return form.consts["block"] == 16 or form.operands["a"].dtype != "c64"  # linalg_block
    return True


def complaint_of(device: Any, source: str, to_pipeline: bool) -> str:
    try:
        module = device.create_shader_module(code=source)
        if to_pipeline:
            compute = {"module": module, "entry_point": "main"}
            device.create_compute_pipeline(layout="auto", compute=compute)
    except Exception as error:
        return f"{error}\n{source}"
    return ""


def main() -> None:
    set_instance_extras(enable_toggles=["allow_unsafe_apis"])  # lists subgroup matrices
    step = int(sys.argv[1])
    # To find them takes longer than to compile them.
    found_forms = {}
    for kernel in kernels_with_text():
        contract = wgsl.kernels()[kernel]
        # What asks for features is compiled nowhere else where no driver has them.
        found_forms[kernel] = list(forms(contract))[:: 1 if contract["enables"] else step]
    complaints: dict[str, dict[str, str]] = {kernel: {} for kernel in found_forms}
    checked: dict[str, str] = {}  # most texts do not depend on the target
    for name, (base, features) in TARGETS.items():
        # An adapter gives one device.
        device = gpu.request_adapter_sync().request_device_sync(required_features=features)
        for kernel, found in complaints.items():
            contract = wgsl.kernels()[kernel]
            if not {FEATURES[name] for name in contract["enables"]} <= set(features):
                continue
            for form in found_forms[kernel]:
                source = wgsl.assemble(
                    *(kernel, form.consts, form.operands, form.regions, features),
                    target=base,
                    tensors=form.tensors,
                )
                if source not in checked:
                    checked[source] = complaint_of(device, source, is_planned(kernel, form, source))
                found[f"{name}: {form}"] = checked[source]
    json.dump(complaints, sys.stdout)


if __name__ == "__main__":
    main()

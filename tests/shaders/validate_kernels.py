"""Compiles kernels in their forms with naga. validate_targets.py does it with Tint.

Prints a JSON object from kernel to form to complaint, "" where there is none.
"""

import json
import pathlib
import sys

from wgpu import gpu

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.shaders.forms import forms, kernels_with_text
from torch_webgpu import wgsl


def main() -> None:
    device = gpu.enumerate_adapters_sync()[0].request_device_sync()
    complaints = {}
    for name in kernels_with_text():
        if wgsl.kernels()[name]["enables"]:
            continue
        complaints[name] = {}
        for form in forms(wgsl.kernels()[name]):
            # Without features: naga has no bitcast from u32 to vec2<f16>.
            source = wgsl.assemble(
                name, form.consts, form.operands, form.regions, (), tensors=form.tensors
            )
            try:
                device.create_shader_module(code=source)
                complaint = ""
            except Exception as error:
                complaint = f"{error}\n{source}"
            complaints[name][str(form)] = complaint
    json.dump(complaints, sys.stdout)


if __name__ == "__main__":
    main()

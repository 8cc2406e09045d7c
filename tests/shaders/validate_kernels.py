"""`python validate_kernels.py wgpudawn` compiles kernels in their forms with Tint, `... wgpu` naga.

Prints a JSON object from kernel to form to complaint, "" where there is none.
"""

import importlib
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.shaders.forms import forms, kernels_with_text
from torch_webgpu import wgsl

# naga has no bitcast from u32 to vec2<f16>.
TARGETS = {"wgpudawn": [(), ("shader-f16",), ("subgroups",)], "wgpu": [()]}


def main() -> None:
    compiler = sys.argv[1]
    adapter = importlib.import_module(compiler).gpu.enumerate_adapters_sync()[0]
    wanted = {"shader-f16", "subgroups"} & set(adapter.features)
    device = adapter.request_device_sync(required_features=sorted(wanted))
    complaints = {}
    for name in kernels_with_text():
        if wgsl.kernels()[name]["enables"]:
            continue  # validate_targets.py compiles it
        complaints[name] = {}
        for form in forms(wgsl.kernels()[name]):
            for target in TARGETS[compiler]:
                if not set(target) <= wanted:
                    continue
                source = wgsl.assemble(
                    name, form.consts, form.operands, form.regions, target, tensors=form.tensors
                )
                try:
                    device.create_shader_module(code=source)
                    complaint = ""
                except Exception as error:
                    complaint = f"{error}\n{source}"
                complaints[name][f"{form} {' '.join(target)}"] = complaint
    json.dump(complaints, sys.stdout)


if __name__ == "__main__":
    main()

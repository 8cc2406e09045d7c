"""`python validate.py wgpudawn` compiles every shader with Tint, `... wgpu` with naga.

Prints a JSON object from label to complaint, "" where there is none. A program of its
own, because the two packages do not share a process.
"""

import importlib
import json
import sys

import torch_webgpu

# naga has no bitcast from u32 to vec2<f16>.
FEATURES = {"wgpudawn": ["shader-f16"], "wgpu": []}


def shaders(features: list[str]) -> dict[str, str]:
    found = dict(torch_webgpu._C._shader_sources("browser", {}))
    for feature in features:
        for label, source in torch_webgpu._C._shader_sources("browser", {feature: 1}):
            if found[label] != source:
                found[f"{label} ({feature})"] = source
    return found


def main() -> None:
    compiler = sys.argv[1]
    adapter = importlib.import_module(compiler).gpu.enumerate_adapters_sync()[0]
    wanted = [feature for feature in FEATURES[compiler] if feature in adapter.features]
    device = adapter.request_device_sync(required_features=wanted)
    complaints = {}
    checked = {}  # texts recur: many rows do not depend on the dtype
    for label, source in shaders(wanted).items():
        if source not in checked:
            try:
                device.create_shader_module(code=source)
                checked[source] = ""
            except Exception as error:
                checked[source] = f"{error}\n{source}"
        complaints[label] = checked[source]
    json.dump(complaints, sys.stdout)


if __name__ == "__main__":
    main()

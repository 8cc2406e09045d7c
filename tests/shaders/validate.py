"""`python validate.py wgpudawn` compiles every shader with Tint, `... wgpu` with naga.

Prints a JSON object from label to complaint, "" where there is none. A program of its
own, because the two packages do not share a process.
"""

import importlib
import json
import sys

import torch_webgpu


def shaders(compiler: str) -> dict[str, str]:
    # Before the device starts, shaders are those of a device without features.
    found = dict(torch_webgpu._C._shader_sources())
    if compiler == "wgpudawn":
        torch_webgpu._C.init()
        for label, source in torch_webgpu._C._shader_sources():
            if found[label] != source:
                found[f"{label} (shader-f16)"] = source
    return found


def main() -> None:
    compiler = sys.argv[1]
    sources = shaders(compiler)
    adapter = importlib.import_module(compiler).gpu.enumerate_adapters_sync()[0]
    wanted = {"shader-f16"} & set(adapter.features)
    device = adapter.request_device_sync(required_features=sorted(wanted))
    complaints = {}
    checked = {}  # texts recur: many rows do not depend on the dtype
    for label, source in sources.items():
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

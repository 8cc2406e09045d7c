"""`python validate.py wgpudawn 1` compiles every shader with Tint, `... wgpu 1` with naga.

The second argument: of how many shaders of a row one is compiled. Prints a JSON object from label
to complaint, "" where there is none. A program of its own, because the two packages do not share a
process.
"""

import collections
import importlib
import json
import sys

import torch_webgpu

# What targets have beyond a browser's. naga has no bitcast from u32 to vec2<f16>.
TARGETS = {
    "wgpudawn": [{"shader-f16": 1}, {"shader-f16": 1, "f16-bitcast": 0}],
    "wgpu": [{"shader-f16": 1, "f16-bitcast": 0}],
}


def row_of(label: str) -> str:
    """What the label of a shader starts with: the table row."""
    return label.split()[0]


def shaders(targets: list[dict[str, int]]) -> dict[str, str]:
    found = dict(torch_webgpu._C._shader_sources("browser", {}))
    plain = dict(found)
    for target in targets:
        for label, source in torch_webgpu._C._shader_sources("browser", target):
            if plain[label] != source:
                found[f"{label} ({target})"] = source
    return found


def main() -> None:
    compiler, step = sys.argv[1], int(sys.argv[2])
    adapter = importlib.import_module(compiler).gpu.enumerate_adapters_sync()[0]
    has_halves = "shader-f16" in adapter.features
    device = adapter.request_device_sync(required_features=["shader-f16"] if has_halves else [])
    complaints = {}
    checked = {}  # texts recur: many rows do not depend on the dtype
    seen = collections.Counter()
    for label, source in shaders(TARGETS[compiler] if has_halves else []).items():
        row = row_of(label)
        seen[row] += 1
        if seen[row] % step != 1 % step:
            continue
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

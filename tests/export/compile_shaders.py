"""`python compile_shaders.py FILE...` compiles the shaders of graph files of version 2 with naga:
those of variants that a browser with naga would take. It has no subgroups.

Prints a JSON list of complaints. A program of its own, because naga's library and Dawn's do not
share a process.
"""

import json
import struct
import sys

import wgpu


def program(path: str) -> dict:
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(json.loads(file.read(length))["__metadata__"]["torch_webgpu.program"])


def used(listed: dict, features: set[str]) -> list[dict]:
    numbers = {
        command["shader"]
        for function in listed["functions"].values()
        for variant in function["variants"]
        if set(variant["requires"].get("features", [])) <= features
        for command in variant["commands"]
        if command["do"] == "dispatch"
    }
    return [listed["shaders"][number] for number in sorted(numbers)]


def main() -> None:
    adapter = wgpu.gpu.enumerate_adapters_sync()[0]
    features = {"shader-f16"} & set(adapter.features)
    device = adapter.request_device_sync(required_features=sorted(features))
    complaints = []
    for path in sys.argv[1:]:
        shaders = used(program(path), features)
        if not shaders:
            complaints.append(f"{path} has no shaders for a browser without features")
        for shader in shaders:
            try:
                device.create_shader_module(code=shader["wgsl"])
            except Exception as error:
                complaints.append(f"{path}: {shader['label']}: {error}")
    json.dump(complaints, sys.stdout)


if __name__ == "__main__":
    main()

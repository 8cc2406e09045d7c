"""`python compile_shaders.py wgpu FILE` compiles shaders with naga, `... wgpudawn FILE` with Tint.

FILE is a JSON list of shaders: `wgsl`, and the `features` that the variants which use it require.
Nothing else may be needed to compile it. WGSL demands no `requires` line of what uses a language
feature, so that texts do not tell: Tint compiles with those only that follow FILE, naga with all
that it knows.

Prints a JSON list of complaints, "" for what is valid. A program of its own, because naga's library
and Dawn's do not share a process.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

# Tint lets every text use these two, so that names are looked for, and what is done with pointers.
_PACKED = re.compile(r"\b(?:dot4[IU]8Packed|pack4x[IU]8(?:Clamp)?|unpack4x[IU]8)\b")
_POINTER = re.compile(r"\b(?:let\s+(\w+)\s*=\s*&|(\w+)\s*:\s*ptr<)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# An instance without language features: WGPUSType_DawnWGSLBlocklist.
_BLOCKLIST = 0x00050017
_LANGUAGE_FEATURES = (
    *("readonly_and_readwrite_storage_textures", "packed_4x8_integer_dot_product"),
    *("unrestricted_pointer_parameters", "pointer_composite_access", "linear_indexing"),
    *("uniform_buffer_standard_layout", "subgroup_id", "subgroup_uniformity"),
    *("texture_and_sampler_let", "texture_formats_tier1", "swizzle_assignment"),
)


def untold(wgsl: str, allowed: list[str]) -> str:
    """What a text uses of the language features that Tint does not tell of."""
    code = _COMMENT.sub("", wgsl)
    found = []
    if _PACKED.search(code) and "packed_4x8_integer_dot_product" not in allowed:
        found.append("packed_4x8_integer_dot_product")
    for function in re.split(r"\bfn\b", code):
        names = {name for pair in _POINTER.findall(function) for name in pair if name}
        for name in names:
            part = re.search(rf"(?<![\w.*]){name}\s*[.\[].*", function)
            if part and "pointer_composite_access" not in allowed:
                found.append(f"pointer_composite_access: {part[0]}")
    return ", ".join(found)


def naga() -> Callable[[dict[str, Any]], str]:
    import wgpu

    adapter = wgpu.gpu.enumerate_adapters_sync()[0]
    features = {"shader-f16", "subgroup"} & set(adapter.features)
    device = adapter.request_device_sync(required_features=sorted(features))

    def complaint(shader: dict[str, Any]) -> str:
        # naga has subgroups, and refuses WGSL's line for them.
        wgsl = re.sub(r"^enable subgroups;$", "", shader["wgsl"], flags=re.MULTILINE)
        if "subgroups" in shader["features"] and "subgroup" not in features:
            return ""
        try:
            device.create_shader_module(code=wgsl)
        except Exception as error:
            return str(error)
        return ""

    return complaint


def tint(allowed: list[str]) -> Callable[[dict[str, Any]], str]:
    os.environ["WGPU_BACKEND_TYPE"] = "Null"
    from wgpudawn import gpu
    from wgpudawn._lib import ffi
    from wgpudawn.backends.dawn._helpers import get_wgpu_instance

    blocked = [name for name in _LANGUAGE_FEATURES if name not in allowed]
    texts = [ffi.new("char[]", name.encode()) for name in blocked]
    names = ffi.new("char*[]", texts)
    address = int(ffi.cast("uintptr_t", names))
    # WGPUDawnWGSLBlocklist: a WGPUChainedStruct, a count and strings.
    get_wgpu_instance(ffi.new("uint64_t[4]", [0, _BLOCKLIST, len(texts), address]))
    devices: dict[tuple[str, ...], Any] = {}

    def complaint(shader: dict[str, Any]) -> str:
        features = tuple(shader["features"])
        if features not in devices:
            adapter = gpu.request_adapter_sync()
            devices[features] = adapter.request_device_sync(required_features=list(features))
        try:
            devices[features].create_shader_module(code=shader["wgsl"])
        except Exception as error:
            return str(error)
        return untold(shader["wgsl"], allowed)

    return complaint


def main() -> None:
    compiler, path, *allowed = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        shaders = json.load(file)
    complaint = naga() if compiler == "wgpu" else tint(allowed)
    found = [complaint(shader) for shader in shaders]
    print(json.dumps(found))  # the last line: Dawn says which backend it takes


if __name__ == "__main__":
    main()

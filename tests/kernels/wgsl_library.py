"""Parses csrc/wgsl/lib/*.wgsl and evaluates its functions on a WebGPU device."""

import functools
import itertools
import pathlib
import re
import subprocess
import sys

import numpy as np

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "csrc" / "wgsl" / "lib"
_DECLARATION = re.compile(r"^(?:fn|const|var<private>|struct|alias|override) *(\w+)", re.MULTILINE)
_SIGNATURE = re.compile(r"fn \w+\(([^)]*)\) -> ([\w<>]+) \{")

# type -> (words, WGSL to load from words w0, w1, ..., WGSL to store the value v as words, numpy)
TYPES = {
    "f32": (1, "bitcast<f32>(w0)", ["bitcast<u32>(v)"], np.float32),
    "i32": (1, "bitcast<i32>(w0)", ["bitcast<u32>(v)"], np.int32),
    "u32": (1, "w0", ["v"], np.uint32),
    "bool": (1, "w0 != 0u", ["select(0u, 1u, v)"], np.uint32),
    "vec2<u32>": (2, "vec2<u32>(w0, w1)", ["v.x", "v.y"], np.int64),
    "vec2<f32>": (
        2,
        "vec2<f32>(bitcast<f32>(w0), bitcast<f32>(w1))",
        ["bitcast<u32>(v.x)", "bitcast<u32>(v.y)"],
        np.complex64,
    ),
    "vec4<u32>": (4, "vec4<u32>(w0, w1, w2, w3)", ["v.x", "v.y", "v.z", "v.w"], np.uint32),
}


@functools.lru_cache(None)
def declarations():
    """Name -> text of every top-level declaration; they start and close in column 0."""
    found = {}
    for path in files():
        text = re.sub(r"//.*", "", path.read_text())
        starts = [m.start() for m in _DECLARATION.finditer(text)] + [len(text)]
        for begin, end in itertools.pairwise(starts):
            body = text[begin:end].rstrip() + "\n"
            name = _DECLARATION.match(body)[1]
            assert name not in found, f"{path.name}: {name} is declared twice"
            found[name] = body
    return found


def files():
    return sorted(LIBRARY.glob("*.wgsl"))


def names_in(path):
    return _DECLARATION.findall(re.sub(r"//.*", "", path.read_text()))


def closure(names):
    """WGSL text of the named declarations and everything they use."""
    table, seen, stack = declarations(), {}, list(names)
    while stack:
        name = stack.pop()
        if name not in seen:
            seen[name] = table[name]
            stack += [w for w in set(re.findall(r"\w+", table[name])) if w in table]
    return "\n".join(seen[name] for name in table if name in seen)


def signature(name):
    """Argument types and result type of a library function."""
    arguments, result = _SIGNATURE.match(declarations()[name]).groups()
    return [a.split(":")[1].strip() for a in arguments.split(",")], result


@functools.lru_cache(None)
def device():
    """A software adapter where there is one, so that results do not depend on the machine."""
    import wgpudawn

    adapters = wgpudawn.gpu.enumerate_adapters_sync()
    adapters.sort(key=lambda a: a.info["adapter_type"] != "CPU")
    return adapters[0].request_device_sync()


def _words(array):
    return np.ascontiguousarray(array).view(np.uint32).ravel()


def evaluate(names, inputs):
    """Runs functions of one signature in one dispatch; returns a list of arrays."""
    import wgpudawn

    arguments, _ = signature(names[0])
    count = len(inputs[0])
    data = [np.asarray(x, TYPES[t][3]) for x, t in zip(inputs, arguments, strict=True)]
    lines, offset = [], 0
    for k, kind in enumerate(arguments):
        words, load, _, _ = TYPES[kind]
        for w in range(words):
            load = load.replace(f"w{w}", f"source[{offset}u + i * {words}u + {w}u]")
        lines.append(f"  let a{k} = {load};")
        offset += count * words
    slots, offset = [], 0
    call = ", ".join(f"a{k}" for k in range(len(arguments)))
    for name in names:
        result = signature(name)[1]
        words, _, stores, dtype = TYPES[result]
        lines.append(f"  {{ let v = {name}({call});")
        for w, store in enumerate(stores):
            lines.append(f"    target_[{offset}u + i * {words}u + {w}u] = {store};")
        lines.append("  }")
        slots.append((offset, count * words, dtype, result))
        offset += count * words
    code = (
        closure(names)
        + "@group(0) @binding(0) var<storage, read> source: array<u32>;\n"
        + "@group(0) @binding(1) var<storage, read_write> target_: array<u32>;\n"
        + "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        + f"  let i = id.x;\n  if (i >= {count}u) {{ return; }}\n"
        + "\n".join(lines)
        + "\n}\n"
    )
    gpu = device()
    usage = wgpudawn.BufferUsage.STORAGE | wgpudawn.BufferUsage.COPY_SRC
    source = gpu.create_buffer_with_data(
        data=np.concatenate([_words(d) for d in data]), usage=usage
    )
    target = gpu.create_buffer(size=4 * offset, usage=usage)
    pipeline = gpu.create_compute_pipeline(
        layout="auto",
        compute={"module": gpu.create_shader_module(code=code), "entry_point": "main"},
    )
    buffers = [{"binding": b, "resource": {"buffer": x}} for b, x in enumerate((source, target))]
    group = gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=buffers)
    encoder = gpu.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups((count + 63) // 64)
    compute.end()
    gpu.queue.submit([encoder.finish()])
    words = np.frombuffer(gpu.queue.read_buffer(target), np.uint32)
    results = []
    for begin, length, dtype, result in slots:
        value = words[begin : begin + length].view(dtype)
        results.append(value.reshape(-1, 4) if result == "vec4<u32>" else value)
    return results


def validate(runtime):
    """Compiles every library file with what it uses: Tint in `wgpudawn`, naga in `wgpu`.

    In a subprocess, because the two modules do not share one.
    """
    script = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import {runtime} as wgpu
import wgsl_library as library
device = wgpu.gpu.enumerate_adapters_sync()[0].request_device_sync()
for path in library.files():
    try:
        device.create_shader_module(code=library.closure(library.names_in(path)))
    except Exception as error:
        sys.exit(f"{{path.name}}: {{error}}")
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

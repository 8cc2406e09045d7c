"""torch_webgpu.wgsl: what it gives makes shaders that compute the same as the device."""

import functools

import numpy as np
import pytest
import torch

from torch_webgpu import wgsl

COUNT = 64

# Row, dtype, scalar arguments, and what PyTorch calls the op.
ROWS = [
    ("hypot", torch.float32, [], torch.hypot),
    ("softplus", torch.float32, [2.0, 1.5], lambda a: torch.nn.functional.softplus(a, 2.0, 1.5)),
    ("sin", torch.float16, [], torch.sin),
    ("nextafter", torch.float16, [], torch.nextafter),
    ("sigmoid", torch.bfloat16, [], torch.sigmoid),
    ("eq", torch.bfloat16, [], torch.eq),
    ("add", torch.int64, [3], lambda a, b: torch.add(a, b, alpha=3)),
    ("remainder", torch.int32, [], torch.remainder),
    ("mul", torch.int8, [], torch.mul),
    ("bitwise_not", torch.bool, [], torch.bitwise_not),
    ("mul", torch.complex64, [], torch.mul),
    ("abs", torch.complex64, [], torch.abs),
]


def words(tensor: torch.Tensor) -> np.ndarray:
    """Elements as words of their own: narrow ones in the low bits, wide ones in several."""
    raw = tensor.contiguous().view(torch.uint8).numpy().reshape(len(tensor), -1)
    size = raw.shape[1]
    return raw.view(f"u{size}").astype(np.uint32) if size < 4 else raw.view(np.uint32)


def from_words(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    raw = array.view(np.uint8).reshape(COUNT, -1)[:, : dtype.itemsize]
    return torch.from_numpy(raw.copy()).view(dtype)[:, 0]


def random_inputs(count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    low, high = (-9, 9) if dtype.is_floating_point or dtype.is_complex else (1, 2**7)
    if dtype == torch.bool:
        low, high = 0, 2
    make = functools.partial(torch.testing.make_tensor, COUNT, dtype=dtype, device="cpu")
    return [make(low=low, high=high) for _ in range(count)]


def shader(op: str, dtype: torch.dtype, scalars: list[float], out: torch.dtype) -> str:
    row = wgsl.row(op, dtype)
    kind = wgsl.register_type(dtype)
    word = {1: "u32", 2: "vec2<u32>"}
    names = row["inputs"]
    text = "".join(
        f"@group(0) @binding({k}) var<storage, read> in_{name}: "
        f"array<{word[max(dtype.itemsize // 4, 1)]}>;\n"
        for k, name in enumerate(names)
    )
    text += (
        f"@group(0) @binding({len(names)}) var<storage, read_write> out: "
        f"array<{word[max(out.itemsize // 4, 1)]}>;\n"
    )
    result = {"same": kind, "bool": "bool", "real": "f32"}[row["result"]]
    text += f"fn op({', '.join(f'{name}: {kind}' for name in names)}) -> {result} {{\n"
    for k, value in enumerate(scalars):
        literal = f"vec2<u32>({value}u, 0u)" if kind == "vec2<u32>" else f"{kind}({value})"
        text += f"  let s{k} = {literal};\n"
    text += f"  return {wgsl.expression(op, dtype)};\n}}\n"
    value = f"op({', '.join(wgsl.load(dtype, f'in_{name}[id.x]') for name in names)})"
    if result == "bool":
        value = f"select(0, 1, {value})"
    text += (
        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        f"  out[id.x] = {wgsl.store(out, value)};\n}}\n"
    )
    return text + wgsl.library_for(text)


@pytest.mark.parametrize(
    ("op", "dtype", "scalars", "function"),
    ROWS,
    ids=[f"{row[0]}-{str(row[1]).removeprefix('torch.')}" for row in ROWS],
)
def test_a_shader_of_the_pieces_computes_the_same(op, dtype, scalars, function):
    from wgpudawn.utils.compute import compute_with_buffers

    inputs = random_inputs(len(wgsl.tables()["pointwise"][op]["inputs"]), dtype)
    expected = function(*(x.to("webgpu") for x in inputs)).cpu()
    found = compute_with_buffers(
        {k: words(x) for k, x in enumerate(inputs)},
        {len(inputs): words(expected).nbytes},
        shader(op, dtype, scalars, expected.dtype),
        n=1,
    )
    array = np.frombuffer(found[len(inputs)], np.uint32)
    torch.testing.assert_close(from_words(array, expected.dtype), expected)


def test_rows_have_all_fields():
    tables = wgsl.tables()
    assert set(tables) == {"factory", "foreach", "pointwise", "random", "reduce", "scan"}
    pow_scalar = tables["pointwise"]["pow_tensor_scalar"]
    assert pow_scalar["stub"] == "pow_tensor_scalar_stub"
    assert pow_scalar["inputs"] == ["a"]
    assert pow_scalar["scalars"] == 1
    assert pow_scalar["for_argument"]["0.5"] == "sqrt"
    assert tables["pointwise"]["copy"]["stub"] == ""
    assert tables["reduce"]["max_with_index"]["by_type"]["i64"]["accumulator_bytes"] == 16
    assert tables["scan"]["cummax"]["indexed"]
    assert tables["random"]["normal"]["source"] == "normal"
    assert tables["foreach"]["abs"]["row"] == "abs"
    assert tables["factory"]["arange_integer"]["kind"] == "i64"


def test_expressions_follow_the_dtype():
    assert wgsl.expression("sin", "f16") == wgsl.expression("sin", torch.float32) == "sin_f(a)"
    assert wgsl.expression("add", "u8") == "a + s0 * b"
    assert wgsl.expression("bitwise_not", "i8") == "~a"
    assert wgsl.expression("bitwise_not", "bool") == "!b_from_i(a)"
    assert wgsl.expression("where", "bits64") == "select(c, b, a != 0)"
    assert wgsl.register_type("bf16") == "f32"
    assert wgsl.register_type("bits128") == "vec4<u32>"


def test_what_does_not_exist_is_refused():
    with pytest.raises(KeyError, match="sine"):
        wgsl.expression("sine", "f32")
    with pytest.raises(NotImplementedError, match="sin has no expression for i32"):
        wgsl.expression("sin", torch.int32)
    with pytest.raises(ValueError, match="there is no dtype f8"):
        wgsl.load("f8", "w")
    with pytest.raises(ValueError, match=r"kernels know no torch\.complex128"):
        wgsl.store(torch.complex128, "v")


def test_the_library_is_what_shaders_get():
    """The build's reader of the library and the device's agree on every declaration."""
    library = wgsl.library()
    assert library["hypot_f"]["file"] == "float"
    assert library["hypot_f"]["text"].startswith("fn hypot_f(")
    whole = "".join(f"{entry['text']}\n" for entry in library.values())
    assert wgsl.library_for(" ".join(library)) == whole


def test_a_text_gets_what_it_needs_and_does_not_have():
    assert wgsl.library_for("fn f(a: f32) -> f32 { return a; }") == ""
    text = "fn op(a: vec2<f32>) -> f32 { return abs_c(a); }\n"
    assert "fn hypot_f(" in wgsl.library_for(text)
    own = text + "fn hypot_f(a: f32, b: f32) -> f32 { return a + b; }\n"
    assert "fn hypot_f(" not in wgsl.library_for(own)

"""Reductions of generated kernels with subgroups of any size, and without."""

import json
import re

import pytest
import safetensors
import torch
from compiled import DEVICE, compile
from torch._inductor.utils import run_and_get_code
from torch.testing import assert_close

import torch_webgpu
from torch_webgpu import wgsl
from torch_webgpu.inductor import runtime

# Changes of the device's target. "varying" has sizes that are not known.
TARGETS = {
    "device": {},
    "varying": {"subgroup_min_size": 4, "subgroup_max_size": 128},
    "without": {"subgroups": 0},
}
# Rows of 2, 8, 32 and 256 invocations; several rows a workgroup but for the last.
LENGTHS = [7, 31, 100, 5000]
DTYPES = [torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool]
ROWS = [("device", dtype) for dtype in DTYPES]
ROWS += [("varying", dtype) for dtype in (torch.float32, torch.int64, torch.bool)]
ROWS += [("without", torch.int32)]

needs_subgroups = pytest.mark.skipif(
    "subgroups" not in torch_webgpu._C.properties()[1],
    reason="the device has no subgroups",
)


def operand(rows, length, dtype):
    generator = torch.Generator().manual_seed(length)
    if dtype.is_floating_point:
        return torch.randn(rows, length, generator=generator).to(dtype)
    low, high = {torch.bool: (0, 2), torch.uint8: (0, 9)}.get(dtype, (-9, 9))
    x = torch.randint(low, high, (rows, length), generator=generator)
    return (x << 33 if dtype == torch.int64 else x).to(dtype)


def reductions_of(dtype, dim):
    """Functions of one tensor, which reduce it along `dim` in each way that kernels know."""

    def floats(x):
        return (
            x.sum(dim),
            (x.float() * 0.1 + 1).prod(dim),
            x.amax(dim),
            x.amin(dim),
            x.argmax(dim),
            x.argmin(dim),
            *torch.var_mean(x.float(), dim, correction=0),
            x.float().softmax(dim),
            x.float().logsumexp(dim),
            (x > 1).any(dim),
            (x > -2).all(dim),
        )

    def integers(x):
        return (
            x.sum(dim),
            (x % 3 + 1).prod(dim),
            x.amax(dim),
            x.amin(dim),
            x.argmax(dim),
            x.argmin(dim),
            (x > 7).any(dim),
        )

    def truths(x):
        return x.sum(dim), x.any(dim), x.all(dim)

    if dtype == torch.bool:
        return truths
    return floats if dtype.is_floating_point else integers


def assert_reduces(x, dim):
    function = reductions_of(x.dtype, dim)
    expected = function(x)
    actual = compile(function)(x.to(DEVICE))
    exact = not x.dtype.is_floating_point
    for one, other in zip(actual, expected, strict=True):
        wide = other.dtype in (torch.float16, torch.bfloat16)
        tolerance = 0 if exact else 2e-2 if wide else 1e-4
        assert_close(one.cpu(), other, rtol=tolerance, atol=tolerance)


def kernels_of(function, *args):
    """The texts of a compiled function's kernels, with their conditions."""
    _, (code,) = run_and_get_code(compile(function), *args)
    return re.findall(r"text='''(.*?)'''", code, re.S)


def shaders_of(function, *args):
    """The shaders that a call of a compiled function dispatches, for the target in force."""
    function(*args)
    graph = torch.webgpu.Graph(keep_graph=True)
    with torch.webgpu.graph(graph):
        function(*args)
    return [shader.source for shader in torch_webgpu._C.list_graph(graph._graph).shaders]


@pytest.mark.sampled(
    "device-torch.float32",
    "device-torch.int64",
    "device-torch.uint8",
    "device-torch.bool",
    "varying-torch.float32",
    "varying-torch.bool",
    "without-torch.int32",
)
@needs_subgroups
@pytest.mark.parametrize(("target", "dtype"), ROWS, ids=str)
def test_rows(dtype, target):
    with wgsl.target(limits=TARGETS[target]):
        for length in LENGTHS if target == "device" else LENGTHS[1::2]:
            assert_reduces(operand(37, length, dtype), 1)


@needs_subgroups
@pytest.mark.parametrize("target", ["device", "varying"])
@pytest.mark.parametrize("shape", [(300, 3), (1000, 132)])
def test_columns_of_subgroups(shape, target):
    with wgsl.target(limits=TARGETS[target]):
        assert_reduces(operand(*shape, torch.float32), 0)


@needs_subgroups
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", [16, 1000])
def test_nan_and_infinity(length, target):
    x = torch.randn(9, length)
    for row, value in enumerate(("nan", "inf", "-inf")):
        x[row, row * 5] = float(value)
        x[3 + row, -1 - row] = float(value)
    x[6] = -float("inf")

    def function(x):
        return x.amax(1), x.amin(1), x.argmax(1), x.argmin(1), x.sum(1), x.softmax(1)

    with wgsl.target(limits=TARGETS[target]):
        actual = compile(function)(x.to(DEVICE))
    for one, other in zip(actual, function(x), strict=True):
        assert_close(one.cpu(), other, equal_nan=True, rtol=1e-4, atol=1e-5)


@needs_subgroups
@pytest.mark.parametrize("length", [16, 5000])
def test_all_invocations_of_a_row_get_the_same_bits(length):
    """Also of accumulators that are rounded otherwise in another order."""

    def spread(x):
        variance, mean = torch.var_mean(x, 1, keepdim=True)
        most = x.logsumexp(1, keepdim=True)
        return x * 0 + variance, x * 0 + mean, x * 0 + most

    for target in TARGETS.values():
        with wgsl.target(limits=target):
            for result in compile(spread)(torch.randn(40, length, device=DEVICE) + 3):
                assert torch.equal(result, result[:, :1].expand_as(result))


# ---- Texts


@needs_subgroups
def test_target_decides_the_text():
    x = torch.randn(50, 1000, device=DEVICE)
    compiled = compile(lambda x: x.softmax(1))
    with_subgroups = shaders_of(compiled, x)
    with wgsl.target(limits={"subgroups": 0}):
        without = shaders_of(compiled, x)
    assert all(text.startswith("enable subgroups;") for text in with_subgroups)
    assert any("subgroupAdd(" in text for text in with_subgroups)
    assert not any("subgroup" in text for text in without)
    assert shaders_of(compiled, x) == with_subgroups


def text_for(text, width):
    sizes = {"subgroup_min_size": width, "subgroup_max_size": width}
    return wgsl.assemble_text(text, features=["subgroups"], limits=sizes)


def test_rows_within_a_subgroup_need_no_barrier():
    (text,) = kernels_of(lambda x: x.softmax(1), torch.randn(60, 100, device=DEVICE))  # 32 lanes
    assert "workgroupBarrier" not in text_for(text, 32)
    assert "var<workgroup>" not in text_for(text, 32)
    assert text_for(text, 32).count("subgroupAdd(") == 1
    # Other rows lie in the subgroup too.
    assert "workgroupBarrier" not in text_for(text, 64)
    assert "subgroupAdd(" not in text_for(text, 64)
    # A row has four of these.
    assert text_for(text, 8).count("workgroupBarrier") == 2
    assert "array<f32, 32>;" in text_for(text, 8)
    browser = wgsl.assemble_text(text)
    assert "subgroup" not in browser
    assert browser.count("workgroupBarrier") == 4


@needs_subgroups
@pytest.mark.parametrize("dim", [0, 1])
def test_texts_for_subgroups_of_any_size_are_valid(dim, monkeypatch):
    real = torch_webgpu._C.CompiledKernel
    texts = []

    def kernel(name, operands, num_integers, checks, make_text):
        def text(places, declarations):
            texts.append(make_text(places, declarations))
            return texts[-1]

        return real(name, operands, num_integers, checks, text)

    monkeypatch.setattr(runtime._C, "CompiledKernel", kernel)
    x = operand(70, 100, torch.float32).to(DEVICE)
    compile(reductions_of(x.dtype, dim))(x)
    assert any("@if(subgroups)" in text for text in texts)
    for text in texts:
        for least in (1, 4, 8, 16, 32, 64, 128):
            for most in (least, 256):
                sizes = {"subgroup_min_size": least, "subgroup_max_size": most}
                shader = wgsl.assemble_text(text, features=["subgroups"], limits=sizes)
                assert not torch_webgpu._C.shader_error(shader)


def test_kernels_without_rows_of_several_invocations_do_not_ask():
    x = torch.randn(60, 100, device=DEVICE)
    for text in kernels_of(lambda x: x * 2 + 1, x):
        assert "subgroup" not in text


def test_unknown_conditions_are_refused():
    with pytest.raises(RuntimeError, match="a condition asks for vectors"):
        wgsl.assemble_text("@if(vectors) const a = 1;")
    with pytest.raises(RuntimeError, match="a condition asks for subgroups_of_"):
        wgsl.assemble_text("@if(subgroups_of_many) const a = 1;")


# ---- Subgroups of sizes that the device does not have

_FIELD_TYPES = {"index": "u32", "mean": "f32", "squares": "f32", "count": "f32"}
_FIELD_TYPES |= {"most": "f32", "total": "f32"}
_VALUES = {"Indexed_f": "f32", "Indexed_i": "i32", "Indexed_l": "vec2<u32>", "bool": "u32"}
_INVOCATION = re.compile(r"struct Invocation \{.*?\}", re.S)
_FUNCTION = re.compile(r"fn across_row_\d+\(value: ([^,]+),.*?\n\}", re.S)
_SHUFFLE = re.compile(
    r"(subgroupShuffle|subgroupShuffleXor)\((acc\.(\w+)|acc|select\(0u, 1u, acc\)), "
)


def emulated(text, width):
    """The text for subgroups of at least `width`, with shuffles through workgroup memory."""
    sizes = {"subgroup_min_size": width, "subgroup_max_size": 256}
    text = wgsl.assemble_text(text, features=["subgroups"], limits=sizes)
    used = set()

    def function(match):
        def shuffle(found):
            kind = _FIELD_TYPES.get(found[3], _VALUES.get(match[1], match[1]))
            kind = kind.removeprefix("vec2<").removesuffix(">") + "2" * kind.startswith("vec2")
            used.add(kind)
            return f"{found[1].replace('subgroup', 'emulated')}_{kind}({found[2]}, "

        return _SHUFFLE.sub(shuffle, match[0])

    text = _FUNCTION.sub(function, text).removeprefix("enable subgroups;\n")
    text = _INVOCATION.sub(
        "struct Invocation { @builtin(local_invocation_index) index: u32 }", text
    )
    text = text.replace(
        "let lid = at.subgroup * at.subgroup_size + at.subgroup_lane;",
        "let lid = at.index; emulated_lid = at.index;",
    ).replace("at.subgroup_lane", f"at.index % {width}u")
    text += "var<private> emulated_lid: u32;\n"
    for kind in sorted(used):
        wgsl_type = "vec2<u32>" if kind == "u322" else kind
        text += f"""
var<workgroup> emulated_{kind}: array<{wgsl_type}, 256>;
fn emulatedShuffle_{kind}(v: {wgsl_type}, lane: u32) -> {wgsl_type} {{
  workgroupBarrier();
  emulated_{kind}[emulated_lid] = v;
  workgroupBarrier();
  return emulated_{kind}[emulated_lid / {width}u * {width}u + lane];
}}
fn emulatedShuffleXor_{kind}(v: {wgsl_type}, mask: u32) -> {wgsl_type} {{
  return emulatedShuffle_{kind}(v, (emulated_lid ^ mask) % {width}u);
}}
"""
    assert not re.search("subgroup[A-Z]", text)
    return text


@pytest.fixture(params=[16, 32, 128])
def width(request, monkeypatch):
    """The number of invocations of a subgroup in what is compiled."""
    real = torch_webgpu._C.CompiledKernel
    texts = []

    def kernel(name, operands, num_integers, checks, make_text):
        def text(places, declarations):
            texts.append(emulated(make_text(places, declarations), request.param))
            return texts[-1]

        return real(name, operands, num_integers, checks, text)

    monkeypatch.setattr(runtime._C, "CompiledKernel", kernel)
    yield request.param
    assert any("emulatedShuffleXor" in text for text in texts)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "dim"), [((37, 64), 1), ((9, 5000), 1), ((300, 12), 0)])
def test_wider_subgroups(width, shape, dim):
    x, n, t = (operand(*shape, dtype) for dtype in (torch.float32, torch.int64, torch.bool))

    def function(x, n, t):
        moments = torch.var_mean(x, dim, correction=0)
        return (
            *(x.sum(dim), x.amax(dim), x.argmin(dim), x.logsumexp(dim), *moments),
            *(n.sum(dim), n.argmax(dim), t.any(dim)),
        )

    actual = compile(function)(x.to(DEVICE), n.to(DEVICE), t.to(DEVICE))
    for one, other in zip(actual, function(x, n, t), strict=True):
        assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)


# ---- Files


def program_of(path):
    with safetensors.safe_open(path, "pt") as file:
        return json.loads(file.metadata()["torch_webgpu.program"])


@needs_subgroups
def test_export_has_a_portable_variant(tmp_path):
    function = compile(lambda x: x.softmax(1) * x.amax(1, keepdim=True))
    x = torch.randn(50, 1000, device=DEVICE)
    expected = function(x)
    path = tmp_path / "softmax.twg"
    torch.webgpu.export(function, {"x": x}, path)
    program = program_of(path)
    (saved,) = program["functions"].values()
    features = [variant["requires"].get("features", []) for variant in saved["variants"]]
    assert ["subgroups"] in features
    assert features[-1] == []
    for variant in saved["variants"]:
        uses = "subgroups" in variant["requires"].get("features", [])
        for command in variant["commands"]:
            assert ("subgroup" in program["shaders"][command["shader"]]["wgsl"]) == uses
    played = torch.webgpu.Graph.load(path)
    name = next(iter(program["functions"]))
    (result,) = (played[name] if len(program["functions"]) > 1 else played)(x=x).values()
    # A CPU's subgroups are smaller than those that variants are for.
    torch.testing.assert_close(result, expected)


@needs_subgroups
def test_a_graph_for_a_target_without_subgroups_plays_there(tmp_path):
    function = compile(lambda x: x.softmax(1))
    x = torch.randn(50, 1000, device=DEVICE)
    path = tmp_path / "softmax.graph"
    graph = torch.webgpu.Graph()
    with wgsl.target("browser"):
        expected = function(x)
        with torch.webgpu.graph(graph):
            y = function(x)
    graph.save(path, inputs={"x": x}, outputs={"y": y})
    program = program_of(path)
    assert "subgroups" not in json.dumps(program)
    played = torch.webgpu.Graph.load(path)(x=x)["y"]
    assert torch.equal(played, expected)

"""The reader of kernel contracts: what it takes from a file, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from contract import emit  # noqa: E402
from contract.model import ContractError  # noqa: E402
from contract.parse import declarations, parse  # noqa: E402
from contract.repeat import expand  # noqa: E402

KERNEL = """\
// Doubles.
//
// @operand y: words float
// @operand x: in like y
// @operand w: in {f32, i64} optional
// @const   mode: {plain, twice}
// @const   items: u32 in {1, 2, 8}
// @const   fast: bool // a comment
// @require !fast || items >= 2
// @require !owns_y || fast
// @region  weight: fn weight(v: f32) -> f32
// @errors

struct Params {
  count: u32, // elements
  scale: f32,
  sizes: array<vec4<u32>, 3>,
}

@compute @workgroup_size(64, 2)
fn main() {
  @if(has_w && !plain) let a = 1u;
}
"""


@pytest.fixture
def read(tmp_path):
    def read(text: str, name: str = "double"):
        path = tmp_path / "family" / f"{name}.wgsl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return parse(path, tmp_path)

    return read


def test_what_a_file_states(read):
    kernel = read(KERNEL)
    assert (kernel.name, kernel.family, kernel.doc) == ("double", "family", "Doubles.")
    assert kernel.workgroup == 128
    assert kernel.reports_errors
    y, x, w = kernel.operands
    assert (y.access, y.dtypes, y.optional) == ("words", ("f32", "f16", "bf16"), False)
    assert (x.access, x.dtypes, x.like) == ("in", y.dtypes, "y")
    assert (w.dtypes, w.optional) == (("f32", "i64"), True)
    assert [(c.name, c.kind, c.values, c.names) for c in kernel.consts] == [
        ("mode", "enum", (0, 1), ("plain", "twice")),
        ("items", "u32", (1, 2, 8), ()),
        ("fast", "bool", (0, 1), ()),
    ]
    assert kernel.regions == ["weight"]


def test_the_layout_is_that_of_a_uniform_buffer(read):
    kernel = read(KERNEL)
    # Where operands start is added behind the scalars; vectors lie at multiples of 16.
    assert [(f.name, f.offset, f.size) for f in kernel.params] == [
        ("count", 0, 4),
        ("scale", 4, 4),
        ("y_at", 8, 4),
        ("x_at", 12, 4),
        ("w_at", 16, 4),
        ("sizes", 32, 48),
    ]
    assert kernel.params_bytes == 80
    order = [
        line.split(":")[0].strip()
        for line in kernel.text.split("struct Params {\n")[1].split("\n}")[0].split("\n")
    ]
    assert order == ["count", "scale", "y_at", "x_at", "w_at", "sizes"]
    header = emit.header(kernel)
    assert "static_assert(offsetof(Params, sizes) == 32);" in header
    assert "std::array<std::array<uint32_t, 4>, 3> sizes" in header


def test_requirements_become_cpp(read):
    text = emit.definitions([read(KERNEL)])
    owned = "((owned >> 0 & 1u) != 0)"
    assert f"return (!consts[2] || consts[1] >= 2) && (!{owned} || consts[2]);" in text


def test_imports_bring_what_they_use(read, tmp_path):
    (tmp_path / "family").mkdir(exist_ok=True)
    (tmp_path / "family" / "part.wgsl").write_text(
        "const a = 1u;\n\nfn unused() -> u32 { return 0u; }\n\n"
        "fn inner() -> u32 {\n  return a;\n}\n\nfn outer() -> u32 { return inner(); }\n"
    )
    kernel = read(
        "import package::family::part::{outer};\n@compute @workgroup_size(1)\nfn main() {}\n"
    )
    assert [*declarations(kernel.text)] == ["a", "inner", "outer", "main"]


def test_imports_bring_all_alternatives(read, tmp_path):
    (tmp_path / "family").mkdir(exist_ok=True)
    (tmp_path / "family" / "part.wgsl").write_text(
        "@if(is_complex) alias num = vec2<f32>;\n@else alias num = f32;\n\n"
        "const other = 1u;\n\n"
        "@if(x_is_complex)\nfn twice(a: num) -> num { return 2.0 * a; }\n"
        "@else\nfn twice(a: num) -> num {\n  return a + a;\n}\n"
    )
    kernel = read(
        "// @operand x: in {f32, c64}\nimport package::family::part::{twice};\n"
        "@compute @workgroup_size(1)\nfn main() {}\n"
    )
    brought = kernel.text.split("@compute")[0]
    assert "@if(is_complex) alias num = vec2<f32>;\n@else alias num = f32;" in brought
    assert "@if(x_is_complex)\nfn twice" in brought
    assert "@else\nfn twice(a: num) -> num {\n  return a + a;\n}" in brought
    assert "other" not in brought


SHARED = """\
// @operand e: in like d optional
// @const   scaled: bool
// @const   mode: {plain, other}

struct Params {
  m: u32,
  alpha: vec4<u32>,
}

fn epilogue(v: f32) -> f32 {
  return (
// @region fused = v: an expression of v
  );
}

fn step() -> u32 { return 1u; }
"""
SHARING = """\
// @operand d: in float
// @const   mode: {fast, slow}
// @enable  f16, subgroups
import package::family::shared::{Params, epilogue};
@if(fast) import package::family::shared::{step};
import package::family::shared::{epilogue};
// @const tile: u32 in {8, 16}
// @require scaled || tile == 8

struct Params {
  size: vec4<u32>,
}

@compute @workgroup_size(tile * tile, 2)
fn main() {}
"""


def test_imports_bring_directives_and_parameters(read, tmp_path):
    (tmp_path / "family").mkdir(exist_ok=True)
    (tmp_path / "family" / "shared.wgsl").write_text(SHARED)
    kernel = read(SHARING)
    assert [operand.name for operand in kernel.operands] == ["d", "e"]
    # The kernel's own declaration of a name stands.
    assert [(c.name, c.names) for c in kernel.consts] == [
        ("mode", ("fast", "slow")),
        ("scaled", ()),
        ("tile", ()),
    ]
    assert (kernel.regions, kernel.region_defaults) == (["fused"], {"fused": "v"})
    assert kernel.enables == ["f16", "subgroups"]
    # One struct: the imported fields, then its own; where operands start is behind the scalars.
    assert [f.name for f in kernel.params] == ["m", "d_at", "e_at", "alpha", "size"]
    assert kernel.text.count("struct Params {") == 1
    assert kernel.text.count("fn epilogue(") == 1
    assert "@if(fast) fn step()" in kernel.text
    assert kernel.workgroup == 0  # constants decide
    assert "kWorkgroup" not in emit.header(kernel)
    assert "With the defaults of the regions." in emit.header(kernel)


def test_operands_of_one_register_type(read):
    kernel = read(KERNEL.replace("w: in {f32, i64} optional", "w: in any akin x optional"))
    assert kernel.operands[2].akin == "x"
    assert kernel.operands[2].dtypes[:2] == ("f32", "f16")
    assert 'OperandInfo{"w", Access::kIn, true,\n                -1, 1, ' in emit.definitions(
        [kernel]
    )


def test_like_of_like_is_the_first(read):
    kernel = read(KERNEL.replace("w: in {f32, i64} optional", "w: in like x optional"))
    assert kernel.operands[2].like == "y"


def test_conditions_on_dtypes(read):
    read(KERNEL.replace("has_w && !plain", "is_complex || w_is_i64 || y_is_float"))
    with pytest.raises(ContractError, match="asks for y_is_i64"):
        read(KERNEL.replace("has_w && !plain", "y_is_i64"))


LISTS = """\
// Adds.
//
// @operand y[]: words float
// @operand x[]: in like y optional
// @operand step[]: numbers {f32}
// @operand lr: in {f32} optional

struct Params {
  rate: f32,
}

@compute @workgroup_size(256)
fn main() {
  @if(has_x && !owns_y) let a = 1u;
}
"""


def test_lists_of_tensors(read):
    kernel = read(LISTS)
    assert [o.name for o in kernel.lists] == ["y", "x", "step"]
    # A head and where each list starts, of 16 tensors at most. Lists have no NAME_at.
    assert kernel.list_stride == 2
    assert [(f.name, f.offset, f.size) for f in kernel.params] == [
        ("rate", 0, 4),
        ("lr_at", 4, 4),
        ("lists", 16, 512),
    ]
    header = emit.header(kernel)
    assert "Launch& y(at::TensorList tensors)" in header
    assert "Launch& own_y()" in header
    assert "Launch& lr(const at::Tensor& number)" in header


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("x[]: in like y", "x[]: in float", "the list x must be `like y`"),
        ("y[]: words", "y[]: sum", "ACCESS one of"),
        ("lr: in", "lr: numbers", "ACCESS one of"),
        ("rate: f32", "lists: f32", "lists is added by the build"),
    ],
)
def test_what_is_refused_of_lists(read, old, new, complaint):
    assert old in LISTS
    with pytest.raises(ContractError, match=complaint):
        read(LISTS.replace(old, new))


def test_elements_of_a_type_and_vectors(read):
    kernel = read(
        "// @operand x: vectors float\n// @operand part: out of acc_t optional\n"
        "struct Params {\n  count: u32,\n}\n\n@compute @workgroup_size(1)\nfn main() {\n"
        "  @if(vectors_x && has_part) let a = 1u;\n}\n"
    )
    x, part = kernel.operands
    assert (x.access, part.element, part.dtypes, part.optional) == (
        "vectors", "acc_t", ("bits8",), True,
    )  # fmt: skip
    assert [f.name for f in kernel.params] == ["count", "x_at"]  # part starts with its buffer
    assert "Launch& read_vectors_of_x()" in emit.header(kernel)
    with pytest.raises(ContractError, match="`of TYPE` goes with"):
        read("// @operand x: sum of acc_t\n@compute @workgroup_size(1)\nfn main() {}\n")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("count: u32,", "count: vec2<u32>,", "a field is u32, i32, f32, a vec4"),
        ("array<vec4<u32>, 3>", "array<u32, 3>", "a field is u32, i32, f32, a vec4"),
        ("array<vec4<u32>, 3>", "array<vec4<u32>, 99>", "Params take"),
        ("count: u32,", "count: u32", "a comma is missing behind `count: u32 // elements`"),
        ("// @errors", "//@errors", "a directive starts in column 0 with"),
        ("let a = 1u", "let a = p.cuont", "p.cuont: Params has no such field, only count, scale"),
        ("let a = 1u", "@if(plain) var a: vec2<u32>", "var a needs a value"),
        ("let a = 1u", "let a = load_z(0u)", "load_z: no operand is called z, only y, x, w"),
        ("count: u32,", "x_at: u32,", "x_at is added by the build"),
        ("x: in like y", "x: in like z", "x is like z, but no operand above"),
        ("x: in like y", "x: in like y akin w", "`like` and `akin` exclude each other"),
        ("x: in like y", "x: in float akin z", "akin to z, which is no operand"),
        ("x: in like y", "x: from float", "an operand is"),
        ("x: in like y", "x: in f23", "f23 is no dtype"),
        ("x: in like y", "y: in float", "two operands have one name"),
        ("in {1, 2, 8}", "in {a}", "the values of a u32"),
        ("items: u32", "plain: u32", "declared already"),
        ("has_w && !plain", "has_x", "asks for has_x"),
        ("items >= 2", "rows >= 2", "asks for rows"),
        ("@workgroup_size(64, 2)", "@workgroup_size(n)", "one entry point"),
        ("// @errors", "// @error", "unknown directive @error"),
        ("// @errors", "// @grid p.count", "@grid wants `groups COUNT`"),
        ("// @errors", "// @grid groups p.other", "@grid: p.other is no number of Params"),
        ("// @errors", "// @grid groups p.scale", "@grid: p.scale is no number of Params"),
        ("// @errors", "// @grid groups mode", "@grid: mode is no number of Params"),
        ("// @errors", "// @grid groups p.count ? 1 : 2", r"@grid: .\?:. in"),
        ("// @errors", "// @enable f23", "@enable f23: the extensions are"),
        ("// @errors", "// @region two words", "a region is `NAME"),
        ("// @errors", "import package::family::none::x;", "there is no family/none.wgsl"),
    ],
)
def test_what_is_refused(read, old, new, complaint):
    assert old in KERNEL
    with pytest.raises(ContractError, match=complaint):
        read(KERNEL.replace(old, new))


def test_functions_without_operands_give_their_variables_values():
    with pytest.raises(ContractError, match="sum_all: var rest needs a value"):
        declarations("fn sum_all() -> u32 {\n  var rest: u32;\n  return rest;\n}\n")


def test_a_file_without_entry_point_must_be_imported(tmp_path):
    (tmp_path / "family").mkdir()
    part = tmp_path / "family" / "part.wgsl"
    part.write_text("// Doubles.\n//\n// @operand x: in float\n\nfn twice() {\n}\n")
    command = [sys.executable, TOOLS / "kernels.py", "--root", tmp_path, "--out", tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert f"{part}: it declares operands, but has no entry point" in result.stderr
    (tmp_path / "family" / "double.wgsl").write_text(
        "// Doubles.\n//\n// @operand y: out float\n\nimport package::family::part::{twice};\n\n"
        "@compute @workgroup_size(1)\nfn main() {\n  twice();\n}\n"
    )
    subprocess.run(command, check=True)


@pytest.mark.parametrize(
    ("grid", "cpp"),
    [
        ("groups p.count", "return grid_of_groups(uint64_t{p.count});"),
        (
            "invocations ceil_div(p.count << items, 1 + fast)",
            "return grid_of(at::ceil_div<uint64_t>(uint64_t{p.count} << value(1), 1 + value(2)));",
        ),
    ],
)
def test_the_grid_is_a_formula(read, grid, cpp):
    kernel = read(KERNEL.replace("// @errors", f"// @grid {grid}"))
    header = emit.header(kernel)
    assert cpp in header
    assert "void run(Params params, MakeRegions&& make_regions" in header
    unit, count = grid.split(" ", 1)
    facts = json.loads(emit.contracts([kernel]))[kernel.name]
    assert (facts["grid_unit"], facts["grid_count"]) == (unit, count)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "@repeat(i, 3) var s$i = f($i, 4u * $i);",
            "var s0 = f(0, 4u * 0);\nvar s1 = f(1, 4u * 1);\nvar s2 = f(2, 4u * 2);",
        ),
        (
            "@repeat(i, 2) if (a) { f($i); } else if (b) {} else { g(); }\nrest",
            "if (a) { f(0); } else if (b) {} else { g(); }\n"
            "if (a) { f(1); } else if (b) {} else { g(); }\nrest",
        ),
        (
            "@repeat(i, 2) @repeat(j, 2) a$i0 = $iu + $j;",
            "a00 = 0u + 0;\na00 = 0u + 1;\na10 = 1u + 0;\na10 = 1u + 1;",
        ),
        (
            "@repeat(x, {a, bits})\nfn load_$x() {\n  ${x}_at($x);\n}\nrest",
            "fn load_a() {\n  a_at(a);\n}\nfn load_bits() {\n  bits_at(bits);\n}\nrest",
        ),
        ("  @repeat(i, 1..3) a[$i] = 0;", "  a[1] = 0;\n  a[2] = 0;"),
        ("@repeat(i, 2) @repeat(j, 2) s$i$j();", "s00();\ns01();\ns10();\ns11();"),
        ("@repeat(i, 2) @if(wide) f($i);\nrest", "@if(wide) f(0);\n@if(wide) f(1);\nrest"),
        (
            "  @repeat(i, 2) {\n    let a$i = 1;\n    @repeat(j, 1..3) b(a$i, $j); // of both\n  }",
            "  let a0 = 1;\n  b(a0, 1);\n  b(a0, 2); // of both\n"
            "  let a1 = 1;\n  b(a1, 1);\n  b(a1, 2); // of both",
        ),
        (
            "@repeat(i, 2) for (var k = 0u; k < 4u; k++) {\n  f(k, $i);\n}",
            "for (var k = 0u; k < 4u; k++) {\n  f(k, 0);\n}\n"
            "for (var k = 0u; k < 4u; k++) {\n  f(k, 1);\n}",
        ),
        (
            "// @repeat(i, 2) in a remark, as is $i\nf();",
            "// @repeat(i, 2) in a remark, as is $i\nf();",
        ),
    ],
)
def test_repetitions(text, expected):
    assert expand(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("@if(wide) @repeat(i, 2) f($i);", "write the condition behind"),
        ("@if(a && (b || c)) // of both\n@repeat(i, 2) f($i);", "2: write the condition behind"),
        ("@else @repeat(i, 2) f($i);", "write the condition behind"),
        ("@repeat(i, 2) @else f($i);", "in one block"),
        ("@repeat(i, 2) @if(wide) f($i);\n@else g();", "in one block"),
        ("@repeat(i, 2) f();", r"nothing in it depends on \$i"),
        ("@repeat(i, 2..2) f($i);", "there are no such numbers"),
        ("@repeat(i, 2) { f(); // $i\n}", r"nothing in it depends on \$i"),
        ("g();\n\n@repeat(i, 2) f($i, $j);", r"^3: \$j is nothing that is repeated"),
        ("@repeat(i, 2) f($i, $index);", r"\$index is nothing that"),
        ("@repeat(i, 2) {\n  f($i);\n  @repeat(i, 2) g($i);\n}", "^3: i is the letter of"),
        ("f($i);", r"\$i is nothing that"),
        ("@repeat(i, 2) f($i, $iu2, $i_x);", r"\$iu2 is nothing that"),
        ("@repeat(x, {a, b}) f($x, ${y});", r"\$\{y\} is nothing that"),
        ("@repeat(x, {}) f($x);", "it is @repeat"),
        ("@repeat(row, 2) f($row);", "it is @repeat"),
        ("@repeat(i,2) f($i);", "it is @repeat"),
        ("@repeat(i, n) f($i);", "it is @repeat"),
        ("/* @repeat(i, 2) */ f();", "has no comments in"),
        ("struct S {\n  @repeat(i, 2) a$i: u32,\n}", "a statement that ends with"),
        ("@repeat(i, 2) f($i)", "a statement that ends with"),
        ("fn g() {\n  @repeat(i, 2) f($i)\n}", "^2: what is repeated is a statement"),
    ],
)
def test_repetitions_that_are_refused(text, why):
    with pytest.raises(ContractError, match=why):
        expand(text)


def test_a_repetition_in_a_kernel_and_in_what_it_imports(read, tmp_path):
    (tmp_path / "family").mkdir()
    (tmp_path / "family" / "shared.wgsl").write_text(
        "fn sums() {\n  @repeat(i, 2) var s$i = 0u;\n}\n"
    )
    text = KERNEL.replace("struct Params", "import package::family::shared::{sums};\nstruct Params")
    kernel = read(
        text.replace("let a =", "@repeat(i, 2) let a$i =").replace("@if(has_w && !plain) ", "")
    )
    assert "  let a0 = 1u;\n  let a1 = 1u;" in kernel.text
    assert "  var s0 = 0u;\n  var s1 = 0u;" in kernel.text
    with pytest.raises(ContractError, match=r"other\.wgsl:22: \$x is nothing that"):
        read(KERNEL.replace("1u", "$x"), "other")

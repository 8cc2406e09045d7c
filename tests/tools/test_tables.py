"""The reader of the op tables: what it takes from a row, and what it refuses."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from rows.model import FAMILIES, RowError, load, load_all, wgsl_size  # noqa: E402

CSRC = TOOLS.parent / "csrc"
STRUCTS = {"Indexed": ["vec2<u32>", "u32"], "Pair": ["Indexed", "f32"], "Odd": ["texture_2d"]}


def read(tmp_path: Path, family: str, text: str):
    path = tmp_path / family / "rows.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return load(path)


def test_a_row_leaves_much_to_defaults(tmp_path):
    row = read(tmp_path, "pointwise", '- {op: scale, inputs: [a], f32: "a * s0"}')["scale"]
    assert (row.stub, row.result, row.scalars) == ("scale_stub", "same", 1)
    assert row.expressions == {"f32": "a * s0"}
    table = read(tmp_path, "reduce", '- {op: sum, i64: {identity: "zero", combine: "a"}}')
    reduction = table["sum"].by_type["i64"]
    assert (reduction.accumulator, reduction.accumulator_bytes) == ("vec2<u32>", 8)
    assert (reduction.lift, reduction.finish) == ("x", "a")


def test_gradients(tmp_path):
    text = '- {op: f, inputs: [a, b], f32: "a", grad: ["let x = sin_of(b); g * x", null]}'
    row = read(tmp_path, "pointwise", text)["f"]
    assert row.grad == ("let x = sin_of(b); g * x", None)
    assert row.grad_as == {}


def test_only_whole_words_name_inputs_and_scalars(tmp_path):
    text = '- {op: f, inputs: [a], f32: "bess0(a.b, vec2<f32>(a).e)"}'
    assert read(tmp_path, "pointwise", text)["f"].scalars == 0


@pytest.mark.parametrize(
    ("family", "text", "message"),
    [
        ("pointwise", '- {inputs: [a], f32: "a"}', "row 1: the field op is missing"),
        ("pointwise", '- {op: sin, f32: "a"}', "sin: the field inputs is missing"),
        ("pointwise", '- {op: sin, inputs: [a], f23: "a"}', "sin: the row has no expression"),
        ("pointwise", '- {op: sin, inputs: [a], f32: "a", color: 1}', "sin: unknown field color"),
        ("pointwise", "- {op: sin, inputs: [a], f32: 0.0}", "sin: f32 must be str, not 0.0"),
        ("pointwise", '- {op: sin, inputs: [a], f32: ""}', "sin: f32 is empty"),
        ("pointwise", '- {op: sin, inputs: [x], f32: "x"}', "sin: inputs are called a, b, c, d, e"),
        ("pointwise", '- {op: sin, inputs: [a], f32: "b"}', "sin: an expression names b"),
        ("pointwise", '- {op: sin, inputs: [a], f32: "s4"}', "sin: an expression names s4"),
        (
            "pointwise",
            '- {op: sin, inputs: [a], f32: "a", grad: [g, g]}',
            "2 gradients of 1 inputs",
        ),
        (
            "pointwise",
            '- {op: sin, inputs: [a], f32: "a", grad: [0.0]}',
            "sin: a gradient is a form",
        ),
        ("pointwise", '- {op: sin, inputs: [a], f32: "a", grad: ["g * b"]}', "a gradient names b"),
        (
            "pointwise",
            '- {op: sin, inputs: [a], f32: "a", grad_as: {cos: ["s0 * g"]}}',
            "sin: a gradient names s0",
        ),
        ("pointwise", '- {op: sin, inputs: [a], result: int, f32: "a"}', "sin: result must be one"),
        (
            "pointwise",
            '- {op: sin, inputs: [a], f32: "a"}\n- {op: sin, inputs: [a], f32: "a"}',
            "sin: there are two rows of that name",
        ),
        (
            "pointwise",
            '- {op: sin, inputs: [a], f32: "a", f32: "b"}',
            "line 1: f32 is given twice",
        ),
        (
            "pointwise",
            '- {op: sin, inputs: [a], for_dtype: {f16: cos}, f32: "a"}',
            "sin: for_dtype names cos, which is no row",
        ),
        ("reduce", '- {op: sum, f32: {combine: "a"}}', "sum: f32: the field identity is missing"),
        ("reduce", "- {op: sum}", "sum: the row says nothing for any of f32, i32, i64, c64"),
        (
            "reduce",
            '- {op: sum, f32: {accumulator: "Odd", identity: "0", combine: "a"}}',
            "sum: f32: csrc/wgsl/lib declares no struct Odd",
        ),
        ("scan", '- {op: scan, f32: {combine: "a"}}', "scan: f32: the field identity is missing"),
        ("random", '- {op: noise, source: dice, value: "x"}', "noise: source must be one of bits"),
        ("foreach", "- {op: neg, forms: [unari]}", "neg: forms are some of unary, scalar"),
        ("factory", '- {op: eye, kind: c64, value: "i"}', "eye: kind must be one of f32, i32, i64"),
        ("matmul", "[]", "only factory, foreach, pointwise, random, reduce, scan have tables"),
        ("scan", "{}", "a table is a list of rows"),
    ],
)
def test_mistakes_are_named(tmp_path, family, text, message):
    with pytest.raises(RowError) as error:
        read(tmp_path, family, text)
    assert str(error.value).startswith(f"{family}/rows.yaml: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("family", "row", "message"),
    [
        ("pointwise", 'op: sin, inputs: [a], f32: "sin_q(a)"', "lib declares no function sin_q"),
        ("pointwise", 'op: sin, inputs: [a], f32: "sin_f(x)"', "an expression names x, which is"),
        ("pointwise", "op: sin, inputs: [a], f32: atan_f(a, b)", "stands in quotes"),
        ("pointwise", 'op: sin, inputs: [a], f32: "sin_f(a) * unit.x"', ""),
        ("scan", 'op: s, f32: {identity: "0.0", combine: "m_f(a, b)"}', "no function m_f"),
    ],
)
def test_names_in_expressions_are_there(tmp_path, family, row, message):
    path = tmp_path / family / "rows.yaml"
    path.parent.mkdir()
    path.write_text("- {" + row + "}")
    library = "const unit = vec2<f32>(1.0);\nfn sin_f(x: f32) -> f32 {\n}\n"
    if not message:
        load(path, library)
        return
    with pytest.raises(RowError, match=message):
        load(path, library)


def test_sizes_are_those_of_wgsl():
    assert wgsl_size("f32", STRUCTS) == (4, 4)
    assert wgsl_size("vec3<f32>", STRUCTS) == (12, 16)
    assert wgsl_size("Indexed", STRUCTS) == (16, 8)
    assert wgsl_size("Pair", STRUCTS) == (24, 8)
    assert wgsl_size("Odd", STRUCTS) is None


def test_the_tables_of_this_repository(tmp_path):
    assert set(load_all(CSRC)) == set(FAMILIES)
    command = [sys.executable, TOOLS / "tables.py", "--csrc", CSRC, "--out", tmp_path]
    subprocess.run(command, check=True)
    written = {path for path in tmp_path.rglob("*") if path.is_file()}
    listed = subprocess.run([*command, "--list"], check=True, capture_output=True, text=True)
    assert written == {Path(line) for line in listed.stdout.split()}


def test_an_error_ends_the_run_in_one_line(tmp_path):
    (tmp_path / "ops" / "scan").mkdir(parents=True)
    (tmp_path / "ops" / "scan" / "rows.yaml").write_text("- {op: scan}\n")
    command = [sys.executable, TOOLS / "tables.py", "--csrc", tmp_path, "--out", tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("tables: scan/rows.yaml: scan: ")
    assert not (tmp_path / "out").exists()

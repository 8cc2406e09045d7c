"""The generator of operator registrations: its tables are true of the installed torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from codegen import emit, plan  # noqa: E402
from codegen.native import Natives  # noqa: E402

CSRC = ROOT / "csrc"
CODEGEN = ROOT / "tools" / "codegen.py"
TORCH = Path(torch.__file__).parent

# The version that ops.yaml was written for: older ones lack some of its functions and stubs.
TABLE_VERSION = (2, 13)
TORCH_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
# What ops.yaml names and later versions of torch no longer have.
GONE = [((2, 14), ["cholesky", "cholesky.out"])]


@pytest.fixture(scope="module")
def natives() -> Natives:
    return Natives.of_installed_torch()


def generate(csrc: Path, natives: Natives) -> dict[str, str]:
    return emit.generate(plan.make_plan(csrc, natives))


def registered(texts: dict[str, str]) -> dict[str, dict]:
    return {op["name"]: op for op in json.loads(texts[emit.RECORD])["ops"]}


def shards(texts: dict[str, str]) -> str:
    return "".join(text for name, text in texts.items() if name.startswith("register_ops_"))


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CODEGEN), *map(str, arguments)], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def table() -> dict:
    return yaml.safe_load((CSRC / "ops" / "ops.yaml").read_text())


def change_ops(csrc: Path, **sections: object) -> None:
    """Replaces sections of the ops.yaml below `csrc`."""
    path = csrc / "ops" / "ops.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **sections}))


def write_rows(csrc: Path, *ops: str) -> None:
    """A table of unary rows."""
    rows = [{"op": op, "inputs": ["a"], "f32": "a"} for op in ops]
    (csrc / "ops" / "pointwise" / "rows.yaml").write_text(yaml.safe_dump(rows))


def make_sources(csrc: Path) -> Path:
    (csrc / "ops" / "pointwise").mkdir(parents=True)
    shutil.copy(CSRC / "ops" / "ops.yaml", csrc / "ops")
    change_ops(csrc, stubs_by_hand={}, plain={})
    return csrc


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A source folder with the real stubs of ops.yaml, no rows and nothing registered by hand."""
    return make_sources(tmp_path / "csrc")


@pytest.fixture(scope="module")
def everything(table: dict, natives: Natives, tmp_path_factory: pytest.TempPathFactory):
    """The plan in which every stub of the table has a row, and its files."""
    csrc = make_sources(tmp_path_factory.mktemp("everything") / "csrc")
    write_rows(csrc, *table["stubs"])
    whole = plan.make_plan(csrc, natives)
    return whole, emit.generate(whole)


@pytest.fixture(scope="module")
def exported() -> list[str]:
    library = TORCH / "lib" / "libtorch_cpu.so"
    if not library.exists() or shutil.which("nm") is None:
        pytest.skip("needs nm and an ELF libtorch_cpu")
    symbols = subprocess.run(
        ["nm", "-DC", str(library)], capture_output=True, text=True, check=True
    )
    return re.findall(r"^\S+ [A-Z] (at::native::.*)$", symbols.stdout, re.MULTILINE)


def stub_symbol(name: str, declared: set[str]) -> str:
    return name if name in declared else f"{name}_stub"


@pytest.mark.skipif(TORCH_VERSION < TABLE_VERSION, reason="the table is newer than this torch")
def test_every_stub_exists_and_can_be_linked(table: dict, exported: list[str]) -> None:
    headers = (TORCH / "include" / "ATen" / "native").rglob("*.h")
    declared = set()
    # PyTorch does not ship all headers: some stubs are declared in csrc.
    for header in (*headers, *(ROOT / "csrc" / "ops").rglob("*.cpp")):
        declared.update(
            re.findall(r"DECLARE_DISPATCH\([^;]*?(\w+)\s*\)\s*;?\n", header.read_text())
        )
    symbols = {stub_symbol(name, declared) for name in table["stubs"]}
    assert symbols <= declared
    assert {f"at::native::{symbol}" for symbol in symbols} <= set(exported)


@pytest.mark.skipif(TORCH_VERSION < TABLE_VERSION, reason="the table is newer than this torch")
def test_every_function_exists_and_has_a_shared_kernel(everything) -> None:
    gone = [name for version, names in GONE if version <= TORCH_VERSION for name in names]
    note = f"left out (not in this torch): {', '.join(gone)}"
    assert everything[0].notes == ([note] if gone else [])


def test_every_generated_symbol_is_exported(everything, exported: list[str]) -> None:
    text = shards(everything[1])
    classes = set(re.findall(r"final : public (at::native::structured_\w+)", text))
    layouts = everything[1][emit.LAYOUTS]
    functions = set(re.findall(r"return (at::native::\w+)\(", text + layouts))
    assert all(f"{name}PrivateUse1" in layouts for name in ("SparseCsr", "NestedTensor"))
    assert layouts.count("m.impl(") > 300
    assert len(classes) > 100
    assert len(functions) > 50
    names = {symbol.split("(")[0] for symbol in exported}
    assert {f"{name}::impl" for name in classes} | functions <= names


def test_the_record_lists_what_is_registered(everything) -> None:
    names = re.findall(r'm\.impl\("([^"]+)"', shards(everything[1]))
    assert len(names) == len(set(names))
    assert set(names) == set(registered(everything[1]))


def test_one_row_brings_all_forms_and_only_what_it_completes(
    sources: Path, natives: Natives
) -> None:
    write_rows(sources, "sin", "clamp_min_scalar")
    ops = registered(generate(sources, natives))
    assert {"sin", "sin.out", "sin_", "clamp_min", "relu"} <= set(ops)
    assert ops["sin"] == {"name": "sin", "route": "shared", "stubs": ["sin"]}
    # clamp calls two more stubs.
    assert not {"clamp", "cos"} & set(ops)

    write_rows(sources, "sin", "clamp_min_scalar", "clamp_max_scalar")
    change_ops(sources, stubs_by_hand={"clamping": ["clamp_scalar"], "choice": ["where_kernel"]})
    ops = registered(generate(sources, natives))
    assert {"clamp", "clamp.out", "clamp_", "where.self"} <= set(ops)


def test_a_row_behind_no_stub_registers_nothing(sources: Path, natives: Natives) -> None:
    rows = [{"op": "sin", "stub": "none", "inputs": ["a"], "f32": "a"}]
    (sources / "ops" / "pointwise" / "rows.yaml").write_text(yaml.safe_dump(rows))
    assert "sin" not in registered(generate(sources, natives))


def test_a_registration_by_hand_replaces_the_generated_one(sources: Path, natives: Natives) -> None:
    write_rows(sources, "sin")
    change_ops(sources, plain={"pointwise": ["sin_"], "storage": ["resize_"]})
    texts = generate(sources, natives)
    ops = registered(texts)
    assert ops["sin_"] == {"name": "sin_", "route": "plain"}
    assert ops["resize_"]["route"] == "plain"
    assert ops["sin"]["route"] == ops["sin.out"]["route"] == "shared"
    assert 'm.impl("sin_"' not in shards(texts)


# A block of more than one line ends with the first brace in column 0 (clang-format sees to it).
PLAIN_BLOCK = re.compile(
    r"^TW_LIBRARY_IMPL\(aten, PrivateUse1, \w+\) \{(.*\}$|[\s\S]*?^\})", re.MULTILINE
)
PLAIN_NAME = re.compile(r'\(\s*"(?:aten::)?(\w+(?:\.\w+)?)"')
STUB_BY_HAND = re.compile(
    r"(?:\bRegisterStub<decltype\(|\bREGISTER_PRIVATEUSE1_DISPATCH\()\s*(\w+)\s*[,)]"
)
# A macro names a parameter.
COMMENT_OR_MACRO = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/|#define (?:.*\\\n)*.*\n")


def in_sources() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """What the .cpp files register: stubs and plain functions, by family."""
    stubs, plain = defaultdict(set), defaultdict(set)
    for path in (CSRC / "ops").rglob("*.cpp"):
        text = COMMENT_OR_MACRO.sub("", path.read_text())
        family = path.relative_to(CSRC / "ops").parts[0]
        stubs[family].update(s.removesuffix("_stub") for s in STUB_BY_HAND.findall(text))
        for block in PLAIN_BLOCK.findall(text):
            plain[family].update(PLAIN_NAME.findall(block))
    return stubs, plain


def by_family(section: dict[str, list[str]]) -> dict[str, set[str]]:
    return {family: set(names) for family, names in section.items()}


def test_stubs_by_hand_are_those_of_the_sources(table: dict) -> None:
    found = {family: names for family, names in in_sources()[0].items() if names}
    assert by_family(table["stubs_by_hand"]) == found


def test_plain_functions_are_those_of_the_sources(table: dict) -> None:
    declared = by_family(table["plain"])
    del declared["backend"]
    # Macros write out the names of foreach functions: the next test compares these.
    for names in declared.values():
        names -= {name for name in names if name.startswith("_foreach_")}
    found = in_sources()[1]
    for names in found.values():
        names -= {name for name in names if name.startswith("_foreach_")}
    assert declared == {family: names for family, names in found.items() if names}


@pytest.mark.skipif(TORCH_VERSION < TABLE_VERSION, reason="the table is newer than this torch")
def test_the_dispatcher_has_what_the_plan_says(natives: Natives) -> None:
    from torch_webgpu import _C

    _C.register_operators()
    names = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    aten = {name.removeprefix("aten::") for name in names if name.startswith("aten::")}
    assert set(registered(generate(CSRC, natives))) == aten


def test_factories_of_layouts_are_registered_at_load(natives: Natives) -> None:
    """They may come first of all. The others are registered when the device is first used."""
    text = generate(CSRC, natives)[emit.LAYOUTS]
    blocks = re.findall(r"^(TORCH|TW)_LIBRARY_IMPL\(aten, (\w+), m\) \{(.*?)^\}", text, re.M | re.S)
    found: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for macro, key, block in blocks:
        found[macro][key.removesuffix("PrivateUse1")] = set(re.findall(r'impl\("([^"]+)"', block))
    assert found["TORCH"] == {
        "Sparse": {
            "_sparse_coo_tensor_with_dims",
            "_sparse_coo_tensor_with_dims_and_tensors",
            "empty.memory_format",
        },
        "SparseCsr": {"empty.memory_format"},
        "NestedTensor": {"_to_copy"},
    }
    assert set(found["TW"]) == {"Sparse", "SparseCsr", "NestedTensor"}


def test_our_structured_ops_are_declared(sources: Path, natives: Natives) -> None:
    change_ops(sources, webgpu=["mm"])
    texts = generate(sources, natives)
    header = " ".join(texts[emit.CLASSES].split())
    assert "struct structured_mm_out : public at::meta::structured_mm {" in header
    assert (
        "impl(const at::Tensor & self, const at::Tensor & mat2, const at::Tensor & out)" in header
    )
    ops = registered(texts)
    assert ops["mm"]["route"] == ops["mm.out"]["route"] == "structured"


@pytest.mark.parametrize(
    ("row", "sections", "message"),
    [
        ("sine", {}, "pointwise/rows.yaml: sine: ops.yaml knows no stub"),
        ("sin", {"webgpu": ["nonzero"]}, "webgpu: nonzero is not a structured operator"),
        ("sin", {"stubs_by_hand": {"trig": ["sin"]}}, "trig: sin is a row of pointwise/rows.yaml"),
        ("sin", {"plain": {"a": ["cos"], "b": ["cos"]}}, "plain: cos stands under a and under b"),
    ],
)
def test_mistakes_in_the_tables_are_named(
    sources: Path, natives: Natives, row: str, sections: dict, message: str
) -> None:
    write_rows(sources, row)
    change_ops(sources, **sections)
    with pytest.raises(plan.PlanError) as error:
        plan.make_plan(sources, natives)
    assert message in str(error.value)


def test_this_repository_generates_the_same_twice(tmp_path: Path) -> None:
    assert run("--out", tmp_path).returncode == 0
    first = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    # An unchanged file keeps its time, so nothing is recompiled.
    assert run("--out", tmp_path).returncode == 0
    assert first == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in first}
    assert run("--out", tmp_path, "--list").stdout.split() == [
        str(tmp_path / name) for name in emit.output_names()
    ]
    assert set(first) == {tmp_path / name for name in emit.output_names()}


def test_an_error_ends_the_run_in_one_line(sources: Path, tmp_path: Path) -> None:
    write_rows(sources, "sine")
    result = run("--csrc", sources, "--out", tmp_path / "generated")
    assert result.returncode == 1
    assert result.stderr.startswith("codegen: pointwise/rows.yaml: sine")
    assert not (tmp_path / "generated").exists()

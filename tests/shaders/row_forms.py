"""The shaders of kernels whose regions are filled from rows of tables, a few forms a row."""

from collections.abc import Iterator
from typing import Any

from torch_webgpu.wgsl import OperandForm, assemble, tables

FAMILIES = ["factory", "foreach", "random", "scan"]
# A dtype for each kind of values that a table computes.
KINDS = {"f32": "floats", "i32": "ints", "i64": "longs"}


def row_forms(family: str) -> Iterator[tuple[str, str]]:
    """A label and the WGSL of each form."""
    yield from {"factory": factory, "foreach": foreach, "random": random, "scan": scan}[family]()


def generated(
    table: str, number: int, row: dict[str, Any], source: str, dtype: str, name: str
) -> Iterator[tuple[str, str]]:
    for whole in (False, True):
        operands = {"out": OperandForm(dtype, 0)}
        if source in ("tensor", "draws"):
            operands["x"] = OperandForm("f16", 1)
        consts = {
            "table": table, "row": number, "source": source, "kind": KINDS[dtype], "whole": whole,
        }  # fmt: skip
        regions = {"value": row["value"], "stored": "v"}
        yield f"{name} whole={whole}", assemble("generate", consts, operands, regions)


def factory() -> Iterator[tuple[str, str]]:
    for number, (name, row) in enumerate(tables()["factory"].items()):
        yield from generated("factory_rows", number, row, "position", row["kind"], name)


def random() -> Iterator[tuple[str, str]]:
    for number, (name, row) in enumerate(tables()["random"].items()):
        dtype = "i64" if row["source"] == "bits64" else "f32"
        yield from generated("random_rows", number, row, row["source"], dtype, name)


def foreach() -> Iterator[tuple[str, str]]:
    rows = tables()["pointwise"]
    numbers = {name: number for number, name in enumerate(rows)}
    for name, of in tables()["foreach"].items():
        for form in of["forms"]:
            row = rows[of["row"]]
            for dtype, field in (("f32", "f32"), ("bf16", "f32"), ("i64", "i64"), ("c64", "c64")):
                if field not in row["expressions"] or (dtype == "c64" and row["result"] != "same"):
                    continue
                yield from foreach_forms(f"{name} {form}", form, row, numbers[of["row"]], dtype)


def foreach_forms(
    label: str, form: str, row: dict[str, Any], number: int, dtype: str
) -> Iterator[tuple[str, str]]:
    field = "f32" if dtype == "bf16" else dtype
    for in_place in (False, True):
        operands = {"y": OperandForm(dtype, 0, not in_place)}
        if not in_place:
            operands["a"] = OperandForm(dtype, 0)
        if form in ("list", "scaled_list", "ternary"):
            operands["b"] = OperandForm(dtype, 0)
        if form == "ternary":
            operands["c"] = OperandForm(dtype, 0)
        if form == "tensor":
            operands["other"] = OperandForm(dtype, 0)
        consts = {
            "row": number, "a_is_number": False, "b_is_number": form == "scalar",
            "s0_is_own": form == "ternary",
        }  # fmt: skip
        regions = {"expression": row["expressions"][field]}
        yield (
            f"{label} {dtype} in_place={in_place}",
            assemble("foreach_rows", consts, operands, regions, tensors=3),
        )
        if form == "list" and not in_place:
            del operands["a"]
            consts["a_is_number"] = True
            yield (
                f"{label} {dtype}, a number first",
                assemble("foreach_rows", consts, operands, regions, tensors=3),
            )


def scan() -> Iterator[tuple[str, str]]:
    for number, (name, row) in enumerate(tables()["scan"].items()):
        for dtype, texts in row["by_type"].items():
            operands = {"y": OperandForm(dtype, 0), "x": OperandForm(dtype, 1)}
            if row["indexed"]:
                operands["z"] = OperandForm("i64", 2)
            consts = {"table_row": number, "indexed": row["indexed"]}
            yield f"{name} {dtype}", assemble("scan", consts, operands, texts)

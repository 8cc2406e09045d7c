"""What a row of an op table may say, and the checks of it.

The fields' meaning is described at the top of each csrc/ops/<family>/rows.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

# The types of values in registers -> their names in WGSL.
REGISTERS = {"f32": "f32", "i32": "i32", "i64": "vec2<u32>", "c64": "vec2<f32>"}
POINTWISE_INPUTS = ["a", "b", "c", "d", "e"]
POINTWISE_SCALARS = 4
FOREACH_FORMS = ("unary", "scalar", "list", "scaled_list", "tensor", "ternary")
# Computed dtypes as for_dtype names them, with the expressions that serve them.
DTYPES = {
    "f32": "f32",
    "f16": "f32",
    "bf16": "f32",
    "i64": "i64",
    "i32": "i32",
    "i16": "i32",
    "i8": "i32",
    "u8": "i32",
    "bool": "i32",
    "c64": "c64",
}


class RowError(Exception):
    """A table says something that cannot be; the text names file and row."""


@dataclass(frozen=True)
class PointwiseRow:
    op: str
    # In C++; empty for a row that is asked for by name. So in all families.
    stub: str
    inputs: tuple[str, ...]
    scalars: int  # s0, s1, ... that the expressions name
    result: str
    expressions: dict[str, str]
    keeps_numbers: bool
    converts_arguments: bool
    any_argument: bool
    is_cast: bool
    mixed_dtypes: bool
    unsigned_dtypes: bool
    bool_inputs: tuple[str, ...]
    for_dtype: dict[str, str]
    for_argument: dict[float, str]
    # Formulas by input; those of operators that differentiate otherwise, by their names.
    grad: tuple[str | None, ...]
    grad_as: dict[str, tuple[str | None, ...]]


@dataclass(frozen=True)
class Reduction:
    """How elements of one register type are reduced."""

    accumulator: str
    accumulator_bytes: int  # as an element of an array in a storage buffer
    identity: str
    lift: str
    combine: str
    finish: str
    second: str


@dataclass(frozen=True)
class ReduceRow:
    op: str
    stub: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    indexed: bool
    by_type: dict[str, Reduction]


@dataclass(frozen=True)
class ScanRow:
    op: str
    stub: str
    indexed: bool
    by_type: dict[str, dict[str, str]]  # identity and combine


@dataclass(frozen=True)
class RandomRow:
    op: str
    stub: str
    source: str
    value: str
    complex_refused_by: str


@dataclass(frozen=True)
class FactoryRow:
    op: str
    stub: str
    name: str
    kind: str
    value: str


@dataclass(frozen=True)
class ForeachRow:
    op: str
    stub: str
    row: str  # of the pointwise table
    slow: str
    negated: bool
    forms: tuple[str, ...]


Row = FactoryRow | ForeachRow | PointwiseRow | RandomRow | ReduceRow | ScanRow
Table = dict[str, Row]  # by op


class _Loader(yaml.SafeLoader):
    """Refuses a field that is given twice, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            line = node.start_mark.line + 1
            raise RowError(f"line {line}: {', '.join(sorted(twice))} is given twice")
        return super().construct_mapping(node, deep)


class _Fields:
    """The fields of one row. Each is taken once; done() refuses those that are left."""

    def __init__(self, where: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise RowError(f"{where}: a row is a mapping of fields, not {values!r}")
        self.where = where
        self._left = dict(values)

    def fail(self, why: str) -> None:
        raise RowError(f"{self.where}: {why}")

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        """The field, or the default. Without a default the field must be there."""
        if name not in self._left:
            if default is None:
                self.fail(f"the field {name} is missing")
            return default
        value = self._left.pop(name)
        if not isinstance(value, kind):
            self.fail(f"{name} must be {kind.__name__}, not {value!r}")
        if value == "":
            self.fail(f"{name} is empty; leave the field out")
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.take(name, str, default)
        if value not in choices:
            self.fail(f"{name} must be one of {', '.join(choices)}, not {value}")
        return value

    def by_type(self, make: Callable[[str, _Fields], Any]) -> dict[str, Any]:
        """What the row says for each register type."""
        out = {}
        for register in REGISTERS:
            if values := self.take(register, dict, {}):
                fields = _Fields(f"{self.where}: {register}", values)
                out[register] = make(register, fields)
                fields.done()
        if not out:
            self.fail(f"the row says nothing for any of {', '.join(REGISTERS)}")
        return out

    def done(self) -> None:
        if self._left:
            hint = " (an expression stands in quotes)" if None in self._left.values() else ""
            self.fail(f"unknown field {', '.join(map(str, self._left))}{hint}")


def load(path: Path, library: str = "") -> Table:
    """The table of the family whose folder holds `path`. Raises RowError.

    `library` is the text of the WGSL function library, which declares the accumulators of
    reductions.
    """
    family = path.parent.name
    where = f"{family}/{path.name}"
    if family not in FAMILIES:
        raise RowError(f"{where}: only {', '.join(FAMILIES)} have tables")
    try:
        rows = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except RowError as error:
        raise RowError(f"{where}: {error}") from None
    except yaml.YAMLError as error:
        raise RowError(f"{where}: {error}") from error
    if not isinstance(rows, list):
        raise RowError(f"{where}: a table is a list of rows")
    structs = _structs(library)
    declared = set(re.findall(r"^(?:fn|const|struct) (\w+)", library, re.MULTILINE))
    table: Table = {}
    for number, values in enumerate(rows, 1):
        fields = _Fields(f"{where}: row {number}", values)
        op = fields.take("op", str)
        fields.where = f"{where}: {op}"
        if not re.fullmatch(r"[A-Za-z_]\w*", op):
            fields.fail("op is no name")
        if op in table:
            fields.fail("there are two rows of that name")
        stub = fields.take("stub", str, f"{op}_stub")
        stub = "" if stub == "none" else stub
        table[op] = FAMILIES[family](fields, op, stub, structs)
        fields.done()
        if library:
            _check_names(fields, values, table[op], declared)
    for row in table.values():
        if isinstance(row, PointwiseRow):
            _check_others(where, row, table)
    return table


def load_all(csrc: Path) -> dict[str, Table]:
    """The tables of all families, by family."""
    library = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((csrc / "wgsl/lib").glob("*.wgsl"))
    )
    paths = sorted((csrc / "ops").glob("*/rows.yaml"))
    tables = {path.parent.name: load(path, library) for path in paths}
    for row in tables.get("foreach", {}).values():
        if row.row not in tables["pointwise"]:
            raise RowError(f"foreach/rows.yaml: {row.op}: {row.row} is no row of pointwise")
    return tables


def _check_names(fields: _Fields, values: Mapping, row: Row, declared: set[str]) -> None:
    """The names in the row's WGSL are there. A shader's compiler would say the same, but only when
    the operator first runs."""
    # WGSL's own functions have no underscore.
    texts = _texts({key: text for key, text in values.items() if key not in ("grad", "grad_as")})
    for name in re.findall(r"\b([A-Za-z]\w*_\w+)\(", " ".join(texts)):
        if name not in declared:
            fields.fail(f"csrc/wgsl/lib declares no function {name}")
    if not isinstance(row, PointwiseRow):
        return
    scalars = {f"s{k}" for k in range(row.scalars)}
    known = {*row.inputs, *scalars, *declared, "true", "false", "f32", "i32", "u32", "bool"}
    for text in row.expressions.values():
        for name in re.findall(r"(?<![\w.])[A-Za-z_]\w*(?![\w(<])", text):
            if name not in known:
                fields.fail(f"an expression names {name}, which is neither input nor scalar")


def _texts(values: Mapping) -> list[str]:
    """The strings of a row, those of its mappings too."""
    out: list[str] = []
    for value in values.values():
        out += _texts(value) if isinstance(value, Mapping) else [str(value)]
    return out


def _structs(library: str) -> dict[str, list[str]]:
    """The types of the members of each struct that the library declares."""
    return {
        name: re.findall(r"^\s*\w+\s*:\s*([^/]+?)\s*,", body, re.MULTILINE)
        for name, body in re.findall(
            r"^struct (\w+) \{\n(.*?)^\}", library, re.MULTILINE | re.DOTALL
        )
    }


def wgsl_size(kind: str, structs: Mapping[str, list[str]]) -> tuple[int, int] | None:
    """Size and alignment in bytes of a WGSL type, as WGSL lays it out; None for an unknown one."""
    if kind in ("f32", "i32", "u32"):
        return 4, 4
    if vector := re.fullmatch(r"vec([234])<[fiu]32>", kind):
        count = int(vector[1])
        return 4 * count, 8 if count == 2 else 16
    size, align = 0, 1
    for member in structs.get(kind, ()):
        part = wgsl_size(member, structs)
        if part is None:
            return None
        size = -(-size // part[1]) * part[1] + part[0]
        align = max(align, part[1])
    return (-(-size // align) * align, align) if size else None


def _pointwise(fields: _Fields, op: str, stub: str, structs: Mapping) -> PointwiseRow:
    inputs = fields.take("inputs", list)
    if inputs != POINTWISE_INPUTS[: len(inputs)]:
        fields.fail(f"inputs are called {', '.join(POINTWISE_INPUTS)}, in this order")
    expressions = {}
    for register in (*REGISTERS, "raw"):
        if text := fields.take(register, str, ""):
            expressions[register] = text
    if not expressions:
        fields.fail("the row has no expression")
    # What follows a dot is a component of a vector.
    words = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", " ".join(expressions.values())))
    if unknown := words & set(POINTWISE_INPUTS[len(inputs) :]):
        fields.fail(f"an expression names {', '.join(sorted(unknown))}, which is no input")
    named = [int(word[1:]) for word in words if re.fullmatch(r"s\d", word)]
    scalars = max(named, default=-1) + 1
    if scalars > POINTWISE_SCALARS:
        fields.fail(f"an expression names s{scalars - 1}; there are s0 to s{POINTWISE_SCALARS - 1}")
    bool_inputs = fields.take("bool_inputs", list, [])
    if not set(bool_inputs) <= set(inputs):
        fields.fail("bool_inputs names what is no input")
    grad_as = fields.take("grad_as", dict, {})
    return PointwiseRow(
        op,
        stub,
        tuple(inputs),
        scalars,
        fields.choice("result", ("same", "bool", "real"), "same"),
        expressions,
        keeps_numbers=fields.take("keeps_numbers", bool, False),
        converts_arguments=fields.take("converts_arguments", bool, False),
        any_argument=fields.take("any_argument", bool, False),
        is_cast=fields.take("is_cast", bool, False),
        mixed_dtypes=fields.take("mixed_dtypes", bool, False),
        unsigned_dtypes=fields.take("unsigned_dtypes", bool, False),
        bool_inputs=tuple(bool_inputs),
        for_dtype=fields.take("for_dtype", dict, {}),
        for_argument=fields.take("for_argument", dict, {}),
        grad=_gradients(fields, inputs, scalars, fields.take("grad", list, [])),
        grad_as={
            name: _gradients(fields, inputs, scalars, formulas)
            for name, formulas in grad_as.items()
        },
    )


def _gradients(
    fields: _Fields, inputs: list[str], scalars: int, formulas: list
) -> tuple[str | None, ...]:
    """The formulas of the inputs' gradients. What their functions are, web/tools/gradients.mjs
    knows."""
    if formulas and len(formulas) != len(inputs):
        fields.fail(f"{len(formulas)} gradients of {len(inputs)} inputs")
    for text in formulas:
        if text is None:
            continue
        if not isinstance(text, str):
            fields.fail(f"a gradient is a formula in quotes, or null, not {text!r}")
        known = {"g", "out", "pi", "nan", "let", *inputs, *(f"s{k}" for k in range(scalars))}
        known |= set(re.findall(r"\blet (\w+) =", text))
        for name in re.findall(r"(?<![\w.])[A-Za-z_]\w*(?![\w(])", text):
            if name not in known:
                fields.fail(f"a gradient names {name}, which is neither input nor scalar")
    return tuple(formulas)


def _check_others(where: str, row: PointwiseRow, table: Table) -> None:
    """The rows that serve `row` in some cases."""
    for field, others in (("for_dtype", row.for_dtype), ("for_argument", row.for_argument)):
        for other in others.values():
            if other not in table:
                raise RowError(f"{where}: {row.op}: {field} names {other}, which is no row")
            if table[other].inputs != row.inputs:
                raise RowError(f"{where}: {row.op}: {field} names {other}, which has other inputs")
    for dtype, other in row.for_dtype.items():
        if DTYPES.get(dtype) not in table[other].expressions:
            raise RowError(f"{where}: {row.op}: for_dtype: {other} has no expression for {dtype}")
    for value in row.for_argument:
        if not isinstance(value, int | float):
            raise RowError(f"{where}: {row.op}: for_argument: {value!r} is no number")


def _reduce(fields: _Fields, op: str, stub: str, structs: Mapping) -> ReduceRow:
    inputs = fields.take("inputs", list, ["x"])
    if inputs not in (["x"], ["x", "w", "m", "r"]):
        fields.fail("inputs are [x] or [x, w, m, r]")
    results = fields.take("results", list, ["same"])
    if not 1 <= len(results) <= 2 or not set(results) <= {"same", "real", "index"}:
        fields.fail("results are one or two of same, real and index")

    def reduction(register: str, of: _Fields) -> Reduction:
        accumulator = of.take("accumulator", str, REGISTERS[register])
        size = wgsl_size(accumulator, structs)
        if size is None:
            of.fail(f"csrc/wgsl/lib declares no struct {accumulator}")
        return Reduction(
            accumulator,
            -(-size[0] // size[1]) * size[1],
            of.take("identity", str),
            of.take("lift", str, "x"),
            of.take("combine", str),
            of.take("finish", str, "a"),
            of.take("second", str) if len(results) == 2 else "",
        )

    indexed = fields.take("indexed", bool, False)
    return ReduceRow(op, stub, tuple(inputs), tuple(results), indexed, fields.by_type(reduction))


def _scan(fields: _Fields, op: str, stub: str, structs: Mapping) -> ScanRow:
    def texts(register: str, of: _Fields) -> dict[str, str]:
        return {"identity": of.take("identity", str), "combine": of.take("combine", str)}

    return ScanRow(op, stub, fields.take("indexed", bool, False), fields.by_type(texts))


def _random(fields: _Fields, op: str, stub: str, structs: Mapping) -> RandomRow:
    return RandomRow(
        op,
        stub,
        fields.choice("source", ("bits", "bits64", "normal", "tensor", "draws")),
        fields.take("value", str),
        fields.take("complex_refused_by", str, ""),
    )


def _factory(fields: _Fields, op: str, stub: str, structs: Mapping) -> FactoryRow:
    # ATen's stubs take arguments that no row could describe.
    return FactoryRow(
        op,
        "",
        fields.take("name", str, op),
        fields.choice("kind", ("f32", "i32", "i64")),
        fields.take("value", str),
    )


def _foreach(fields: _Fields, op: str, stub: str, structs: Mapping) -> ForeachRow:
    forms = fields.take("forms", list)
    if not forms or not set(forms) <= set(FOREACH_FORMS):
        fields.fail(f"forms are some of {', '.join(FOREACH_FORMS)}")
    return ForeachRow(
        op,
        "",
        fields.take("row", str, op),
        fields.take("slow", str, op),
        fields.take("negated", bool, False),
        tuple(forms),
    )


FAMILIES = {
    "factory": _factory,
    "foreach": _foreach,
    "pointwise": _pointwise,
    "random": _random,
    "reduce": _reduce,
    "scan": _scan,
}

"""The forms of a kernel that its contract allows: few that show each choice beside each other."""

import ast
import hashlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from allpairspy import AllPairs

from torch_webgpu.wgsl import OperandForm, kernels, register_type

# u16 and the types of float8 are left out: only the conversions in accessors differ, which the
# pointwise rows compile.
DTYPES = {
    "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool", "c64", "f64", "u32",
    "bits8", "bits16", "bits32", "bits64", "bits128",
}  # fmt: skip
ABSENT = ""
# For a region with a default, whose text a constant numbers: one that is no default.
SELECTION = "result.value = select(value, e + f, row + batch > column);"
TEXTS = {
    "fused": ("fused_text", SELECTION + " result.second = f32(row);"),
    "score": (
        "score_text",
        "result = score + bitcast<f32>(captured_32(0u, h)) + f_from_l(captured_64(1u, q - k));",
    ),
    "mask": ("score_text", "result = captured_8(2u, b) != 0u && captured_16(0u, k) < 9u;"),
    "gradient": ("score_text", "result = given * score;"),
}


class Form(NamedTuple):
    consts: dict[str, int | bool | str]
    operands: dict[str, OperandForm]
    regions: dict[str, str]
    tensors: int = 1  # of each list

    def __str__(self) -> str:
        consts = [f"{name}={value}" for name, value in self.consts.items()]
        operands = [
            f"{name}: {form.dtype}@{form.slot}{' words' if form.whole_words else ''}"
            for name, form in self.operands.items()
        ]
        lists = [f"{self.tensors} tensors"] if self.tensors > 1 else []
        return ", ".join(consts + operands + lists)


def kernels_with_text() -> list[str]:
    """Those whose whole text is theirs, regions with a default included; what fills other regions
    is compiled with the rows of tables."""
    return sorted(
        name
        for name, contract in kernels().items()
        if set(contract["regions"]) == set(contract["region_defaults"])
    )


def choices(contract: dict[str, Any]) -> list[tuple[str, list]]:
    """What differs between forms of a kernel, with its values except those that no form has."""
    free = [operand for operand in contract["operands"] if not operand["like"]]
    single = [o for o in contract["operands"] if not o["many"] and not o["element"]]
    writable = [o["name"] for o in single if o["access"] not in ("in", "vectors")]
    inputs = [o["name"] for o in single if o["access"] in ("in", "vectors")]
    # Each operand in a buffer of its own, or an input in the buffer of an output. First, because
    # what an operand owns depends on it: the search leaves a row as soon as a requirement fails.
    pairs = [f"{a}={b}" for a, b in itertools.product(writable, inputs)]
    found: list[tuple[str, list]] = [("alias", ["none", *pairs])]
    found += [(f"const {const['name']}", _values(const)) for const in contract["consts"]]
    for operand in free:
        dtypes = [dtype for dtype in operand["dtypes"] if dtype in DTYPES]
        found.append((f"dtype {operand['name']}", dtypes))
    for operand in contract["operands"]:
        if operand["optional"]:
            found.append((f"has {operand['name']}", [True, False]))
        if operand["access"] in ("words", "vectors"):
            found.append((f"words {operand['name']}", [False, True]))
    lists = [o for o in contract["operands"] if o["many"]]
    if lists:
        found.append(("tensors", [1, 2]))
    # The search would try again and again to pair a value that no form has.
    requirements = _requirements(contract)
    found = [
        (name, [value for value in values if _is_form(contract, requirements, {name: value})])
        for name, values in found
    ]
    return [(name, values if len(values) else [None]) for name, values in found]


class _LongSearchError(Exception):
    """The search for forms tried many rows in vain."""


def forms(contract: dict[str, Any]) -> Iterator[Form]:
    """Every pair of choices (constants, dtypes of operands, absence, aliasing) in some form."""
    for chosen in _chosen(contract):
        yield _form(contract, chosen)


def _chosen(contract: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of each form. Several programs of this folder ask for them, and the search takes
    half a minute for all kernels: a file keeps them for this contract and this text."""
    own = pathlib.Path(__file__)
    key = hashlib.sha256(json.dumps([contract, own.read_text()]).encode()).hexdigest()
    file = own.parents[2] / "build" / "forms" / f"{key}.json"
    if file.exists():
        return json.loads(file.read_text())
    found = _search(contract)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")  # others may be writing the same
    part.write_text(json.dumps(found))
    part.replace(file)
    return found


def _search(contract: dict[str, Any]) -> list[dict[str, Any]]:
    given = choices(contract)
    # The search leaves a row as soon as a requirement fails. Where it takes long, the choices that
    # no requirement names come last.
    for order in (given, sorted(given, key=lambda choice: _is_free(contract, choice[0]))):
        try:
            rows = _rows(contract, order, most=None if order is not given else _MOST_TRIALS)
        except _LongSearchError:
            continue
        names = [name for name, _ in order]
        return [dict(zip(names, row, strict=True)) for row in rows]
    return []


_MOST_TRIALS = 60_000


def _is_free(contract: dict[str, Any], choice: str) -> bool:
    """Whether no requirement names it."""
    kind, _, name = choice.partition(" ")
    required = set().union(*(requirement.names for requirement in _requirements(contract)))
    prefix = {"has": "has_", "words": "owns_"}.get(kind, "")
    return kind in ("const", "has", "words") and prefix + name not in required


def _rows(
    contract: dict[str, Any], given_choices: list[tuple[str, list]], most: int | None
) -> list[list]:
    names = [name for name, _ in given_choices]
    requirements = _requirements(contract)
    trials = itertools.count()

    def allowed(row: list) -> bool:
        if most is not None and next(trials) > most:
            raise _LongSearchError
        given = dict(zip(names, row, strict=False))
        return _are_akin(contract, given) and _is_form(contract, requirements, given)

    if len(names) == 1:
        return [[value] for value in given_choices[0][1] if allowed([value])]
    return list(AllPairs([values for _, values in given_choices], filter_func=allowed))


def _values(const: dict[str, Any]) -> list:
    values = const["values"]
    if const["kind"] == "bool":
        return [bool(value) for value in values]
    # Of a long range the ends and the middle.
    return values if len(values) <= 8 else [values[0], values[len(values) // 2], values[-1]]


def _are_akin(contract: dict[str, Any], given: dict[str, Any]) -> bool:
    types = {
        operand["name"]: register_type(given[f"dtype {operand['like'] or operand['name']}"])
        for operand in contract["operands"]
        if f"dtype {operand['like'] or operand['name']}" in given
    }
    return all(
        types[operand["name"]] == types[operand["akin"]]
        for operand in contract["operands"]
        if operand["akin"] in types and operand["name"] in types
    )


class _Requirement:
    """A part of a `@require` of a kernel file, as a condition of Python."""

    def __init__(self, condition: ast.expr) -> None:
        self.names = {part.id for part in ast.walk(condition) if isinstance(part, ast.Name)}
        self.code = compile(ast.Expression(condition), "@require", "eval")

    def fails(self, names: dict[str, Any]) -> bool:
        """Whether it does not hold. False as long as not all of its names have values."""
        if not self.names <= names.keys():
            return False
        return not eval(self.code, {"__builtins__": {}}, names)  # text of our own kernel files


def _requirements(contract: dict[str, Any]) -> list[_Requirement]:
    """Conditions that must all hold are taken apart: the fewer names one has, the sooner it can
    fail. With a few long ones the search may take hours."""
    found = []
    for text in contract["requirements"]:
        python = re.sub(r"!(?!=)", " not ", text).replace("&&", " and ").replace("||", " or ")
        condition = ast.parse(python.strip(), mode="eval").body
        is_list = isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And)
        found += [_Requirement(part) for part in (condition.values if is_list else [condition])]
    return found


def _is_form(
    contract: dict[str, Any], requirements: list[_Requirement], given: dict[str, Any]
) -> bool:
    """Whether the choices, some of which may not be made yet, can be those of a form."""
    names: dict[str, Any] = {}
    for const in contract["consts"]:
        if f"const {const['name']}" not in given:
            continue
        value = given[f"const {const['name']}"]
        names[const["name"]] = const["values"].index(value) if const["kind"] == "enum" else value
        if const["kind"] == "enum":
            names.update({name: name == value for name in const["values"]})
    for operand in contract["operands"]:
        name = operand["name"]
        if operand["optional"] and f"has {name}" not in given:
            continue
        names[f"has_{name}"] = given.get(f"has {name}", True)
        # A dtype `like` another operand's may be one of fewer.
        dtype = given.get(f"dtype {operand['like']}") if operand["like"] else None
        if dtype is not None and names[f"has_{name}"] and dtype not in operand["dtypes"]:
            return False
        if operand["access"] not in ("words", "vectors"):
            names[f"owns_{name}"] = names[f"vectors_{name}"] = False
        elif f"words {name}" in given:
            words = given[f"words {name}"] and given.get("alias", "none") == "none"
            names[f"owns_{name}"] = names[f"vectors_{name}"] = words
    return not any(requirement.fails(names) for requirement in requirements)


def _form(contract: dict[str, Any], given: dict[str, Any]) -> Form:
    consts = {c["name"]: given[f"const {c['name']}"] for c in contract["consts"]}
    operands: dict[str, OperandForm] = {}
    target, _, source = given["alias"].partition("=")
    slots: dict[str, int] = {}
    for operand in contract["operands"]:
        name = operand["name"]
        if not given.get(f"has {name}", True):
            continue
        dtype = given[f"dtype {operand['like'] or name}"]
        if operand["many"]:
            operands[name] = OperandForm(dtype, 0, bool(given.get(f"words {name}", False)))
            continue
        shared = slots.get(target) if name == source else None
        slots[name] = len(set(slots.values())) if shared is None else shared
        words = bool(given.get(f"words {name}", False))
        # A word that neighbours share is nobody's own.
        operands[name] = OperandForm(dtype, slots[name], words and given["alias"] == "none")
    regions = {
        region: TEXTS[region][1]
        for region in contract["region_defaults"]
        if consts.get(TEXTS[region][0], 0)
    }
    return Form(consts, operands, regions, given.get("tensors", 1))

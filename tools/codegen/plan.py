"""Decides which native functions are registered, and by which route.

shared      ATen's own device-independent implementation, which calls DispatchStubs of ours
structured  ATen's meta function, then an `impl` written in csrc/ops
plain       TORCH_LIBRARY_IMPL written by hand in csrc/ops; only listed here
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torchgen.api.meta as meta
import yaml
from torchgen.model import BackendMetadata, DispatchKey, NativeFunctionsGroup

from codegen.native import Natives, Unit, function_names, primary_name

# TW_UNARY(sin, ...): the first argument is the stub's name without `_stub`.
ROW = re.compile(r"^[ \t]*TW_(\w+)\(\s*(\w+)", re.MULTILINE)
STUB_BY_HAND = re.compile(
    r"(?:\bRegisterStub<decltype\(|\bREGISTER_PRIVATEUSE1_DISPATCH\()\s*(\w+)\s*[,)]"
)
# A block of more than one line ends with the first brace in column 0 (clang-format sees to it).
PLAIN_BLOCK = re.compile(
    r"^TORCH_LIBRARY_IMPL\(aten, PrivateUse1, \w+\) \{(.*\}$|[\s\S]*?^\})", re.MULTILINE
)
PLAIN_NAME = re.compile(r'\(\s*"(?:aten::)?(\w+(?:\.\w+)?)"')
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

OUR_NAMESPACE = "torch_webgpu"


class PlanError(Exception):
    """A table names something that does not exist, or contradicts another table."""


@dataclass(frozen=True)
class Registration:
    unit: Unit
    route: str
    kernel: BackendMetadata
    stubs: tuple[str, ...]
    # Forms of a group that a plain registration replaces are left out.
    functions: tuple[str, ...]

    @property
    def name(self) -> str:
        return primary_name(self.unit)


@dataclass
class Plan:
    registrations: list[Registration] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class OpsYaml:
    stubs: dict[str, list[str]]
    always: list[str]
    follows_device: frozenset[str]
    structured: list[str]

    @staticmethod
    def load(path: Path) -> OpsYaml:
        table = yaml.safe_load(path.read_text())
        return OpsYaml(
            stubs={stub: names or [] for stub, names in table["stubs"].items()},
            always=table["always"] or [],
            follows_device=frozenset(table["follows_device"] or ()),
            structured=table["webgpu"] or [],
        )

    def needs(self) -> dict[str, list[str]]:
        """Native function -> the stubs its implementation may call."""
        needs: dict[str, list[str]] = {name: [] for name in self.always}
        for stub, names in self.stubs.items():
            for name in names:
                needs.setdefault(name, []).append(stub)
        return needs


def row_name(stub_symbol: str) -> str:
    return stub_symbol.removesuffix("_stub")


def read_rows(csrc: Path) -> dict[str, str]:
    """Stubs that have a kernel of ours -> where that is said."""
    rows: dict[str, str] = {}
    for path in sorted((csrc / "ops").rglob("*.inc")):
        for kind, name in ROW.findall(COMMENT.sub("", path.read_text())):
            if kind != "VARIANT":  # a row that C++ asks for by name, behind no stub
                rows[row_name(name)] = f"{path.name}: TW_{kind}({name}, ...)"
    for path in sorted((csrc / "ops").rglob("*.cpp")):
        for symbol in STUB_BY_HAND.findall(COMMENT.sub("", path.read_text())):
            rows[row_name(symbol)] = f"{path.name}: the kernel of {symbol}"
    return rows


def read_plain(csrc: Path) -> dict[str, str]:
    """Hand-written registrations -> the file that has them."""
    plain: dict[str, str] = {}
    for path in sorted((csrc / "ops").rglob("*.cpp")):
        for block in PLAIN_BLOCK.findall(COMMENT.sub("", path.read_text())):
            for name in PLAIN_NAME.findall(block):
                if name in plain:
                    raise PlanError(f"{name} is registered in {plain[name]} and in {path.name}")
                plain[name] = path.name
    return plain


def make_plan(csrc: Path, natives: Natives) -> Plan:
    table = OpsYaml.load(csrc / "ops" / "ops.yaml")
    rows = read_rows(csrc)
    plain = read_plain(csrc)
    plan = Plan(plain=sorted(plain))

    for stub, where in rows.items():
        if stub not in table.stubs:
            raise PlanError(f"{where}: ops.yaml knows no stub of that name; add it under `stubs:`")
    for name in plain:
        if name not in natives.units:
            plan.notes.append(f"{plain[name]} registers {name}, which this torch does not have")

    taken = set(plain)

    def add(unit: Unit, route: str, kernel: BackendMetadata, stubs: list[str]) -> None:
        forms = tuple(name for name in function_names(unit) if name not in taken)
        if forms:
            taken.update(forms)
            plan.registrations.append(Registration(unit, route, kernel, tuple(stubs), forms))

    for name in table.structured:
        unit = natives.units.get(name)
        if not isinstance(unit, NativeFunctionsGroup):
            raise PlanError(f"webgpu: {name} is not a structured operator of this torch")
        add(unit, "structured", _our_kernel(unit), [])

    missing = defaultdict(list)
    for name, stubs in table.needs().items():
        if any(stub not in rows for stub in stubs):
            continue
        unit = natives.units.get(name)
        kernel = None
        if unit is not None and name in table.follows_device:
            kernel = natives.kernel(unit, DispatchKey.CPU)
        elif unit is not None:
            kernel = natives.shared_kernel(unit)
        if kernel is None:
            missing["not in this torch" if unit is None else "no shared kernel"].append(name)
        else:
            add(unit, "shared", kernel, stubs)
    for reason, names in missing.items():
        # Older and newer versions of torch lack some entries of the table: say so, and go on.
        plan.notes.append(f"left out ({reason}): {', '.join(names)}")

    plan.registrations.sort(key=lambda registration: registration.name)
    return plan


def _our_kernel(group: NativeFunctionsGroup) -> BackendMetadata:
    return BackendMetadata(
        kernel=f"{meta.name(group)}_out", structured=True, cpp_namespace=OUR_NAMESPACE
    )

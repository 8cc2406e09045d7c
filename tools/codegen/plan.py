"""Decides which native functions are registered, and by which route.

shared      ATen's own device-independent implementation, which calls DispatchStubs of ours
structured  ATen's meta function, then an `impl` written in csrc/ops
plain       TW_LIBRARY_IMPL written by hand in csrc; only listed here
layout      ATen's own implementation for a sparse layout, or for nested tensors
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torchgen.api.meta as meta
import yaml
from rows.model import RowError, load_all
from torchgen.model import BackendMetadata, DispatchKey, NativeFunctionsGroup

from codegen.native import Natives, Unit, function_names, primary_name

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


# Layouts whose tensors consist of dense ones, as dispatch keys name them.
LAYOUTS = ("Sparse", "SparseCsr", "NestedTensor")


@dataclass
class Plan:
    registrations: list[Registration] = field(default_factory=list)
    # By layout.
    layouts: dict[str, list[Registration]] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class OpsYaml:
    stubs: dict[str, list[str]]
    always: list[str]
    follows_device: frozenset[str]
    structured: list[str]
    # Name -> the family whose sources register it.
    stubs_by_hand: dict[str, str]
    plain: dict[str, str]
    # Layout -> native functions.
    layouts_left_out: dict[str, list[str]]

    @staticmethod
    def load(path: Path) -> OpsYaml:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        return OpsYaml(
            stubs={stub: names or [] for stub, names in table["stubs"].items()},
            always=table["always"] or [],
            follows_device=frozenset(table["follows_device"] or ()),
            structured=table["webgpu"] or [],
            stubs_by_hand=_by_name("stubs_by_hand", table["stubs_by_hand"]),
            plain=_by_name("plain", table["plain"]),
            layouts_left_out=table["layouts_left_out"] or {},
        )

    def needs(self) -> dict[str, list[str]]:
        """Native function -> the stubs its implementation may call."""
        needs: dict[str, list[str]] = {name: [] for name in self.always}
        for stub, names in self.stubs.items():
            for name in names:
                needs.setdefault(name, []).append(stub)
        return needs


def _by_name(section: str, families: dict[str, list[str]] | None) -> dict[str, str]:
    out: dict[str, str] = {}
    for family, names in (families or {}).items():
        for name in names:
            if name in out:
                raise PlanError(f"{section}: {name} stands under {out[name]} and under {family}")
            out[name] = family
    return out


def stubs_with_rows(csrc: Path) -> dict[str, str]:
    """Stubs that a row of a table serves -> the table."""
    tables = load_all(csrc)
    return {
        op: f"{family}/rows.yaml"
        for family, table in tables.items()
        for op, row in table.items()
        if row.stub
    }


def make_plan(csrc: Path, natives: Natives) -> Plan:
    table = OpsYaml.load(csrc / "ops" / "ops.yaml")
    try:
        served = stubs_with_rows(csrc)
    except RowError as error:
        raise PlanError(str(error)) from error
    for stub, family in table.stubs_by_hand.items():
        if stub in served:
            raise PlanError(f"stubs_by_hand: {family}: {stub} is a row of {served[stub]}")
        served[stub] = f"stubs_by_hand: {family}"
    for stub, where in served.items():
        if stub not in table.stubs:
            raise PlanError(
                f"{where}: {stub}: ops.yaml knows no stub of that name; add it under `stubs:`"
            )
    plan = Plan(plain=sorted(table.plain))
    for name, family in table.plain.items():
        if name not in natives.units:
            plan.notes.append(f"{family} registers {name}, which this torch does not have")

    taken = set(table.plain)

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
        if any(stub not in served for stub in stubs):
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

    for layout in LAYOUTS:
        left_out = table.layouts_left_out.get(layout, [])
        plan.layouts[layout] = [
            Registration(function, "layout", kernel, (), (str(function.func.name),))
            for function, kernel in natives.layout_kernels(layout)
            if str(function.func.name) not in left_out
        ]
        plan.layouts[layout].sort(key=lambda registration: registration.name)
    plan.registrations.sort(key=lambda registration: registration.name)
    return plan


def _our_kernel(group: NativeFunctionsGroup) -> BackendMetadata:
    return BackendMetadata(
        kernel=f"{meta.name(group)}_out", structured=True, cpp_namespace=OUR_NAMESPACE
    )

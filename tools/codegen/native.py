"""What the installed torch says about its native functions, through the torchgen package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import (
    BackendIndex,
    BackendMetadata,
    DispatchKey,
    NativeFunction,
    NativeFunctionsGroup,
)

# A unit of registration: a structured group (functional, out and in-place forms share one kernel),
# or one unstructured function.
Unit = NativeFunction | NativeFunctionsGroup


@dataclass(frozen=True)
class Natives:
    """All native functions, looked up by schema name (`add.Tensor`, `abs.out`)."""

    units: dict[str, Unit]
    indices: dict[DispatchKey, BackendIndex]

    @staticmethod
    def of_installed_torch() -> Natives:
        aten = Path(torchgen.__file__).parent / "packaged/ATen/native"
        parsed = parse_native_yaml(str(aten / "native_functions.yaml"), str(aten / "tags.yaml"))
        units: dict[str, Unit] = {}
        for unit in get_grouped_native_functions(parsed.native_functions):
            if isinstance(unit, NativeFunctionsGroup):
                for function in unit.functions():
                    units[str(function.func.name)] = unit if unit.structured else function
            else:
                units[str(unit.func.name)] = unit
        return Natives(units, parsed.backend_indices)

    def kernel(self, unit: Unit, key: DispatchKey) -> BackendMetadata | None:
        return self.indices[key].get_kernel(unit)

    def shared_kernel(self, unit: Unit) -> BackendMetadata | None:
        """The kernel that CPU and CUDA both name. It cannot assume a device, so ours may use it."""
        return self._common(unit, DispatchKey.CPU, DispatchKey.CUDA)

    def layout_kernels(self, layout: str) -> Iterator[tuple[NativeFunction, BackendMetadata]]:
        """The kernels of a layout that CPU and CUDA share: `Sparse`, which is COO, `SparseCsr`,
        which is all compressed ones, or `NestedTensor`. They call operators on the dense tensors
        that a tensor of the layout consists of."""
        keys = DispatchKey.parse(f"{layout}CPU"), DispatchKey.parse(f"{layout}CUDA")
        for name, unit in self.units.items():
            forms = unit.functions() if isinstance(unit, NativeFunctionsGroup) else [unit]
            function = next(form for form in forms if str(form.func.name) == name)
            kernel = self._common(function, *keys)
            if kernel is not None:
                yield function, kernel

    def _common(self, unit: Unit, *keys: DispatchKey) -> BackendMetadata | None:
        first, *others = (self.kernel(unit, key) for key in keys)
        return first if first is not None and all(first == other for other in others) else None


def function_names(unit: Unit) -> list[str]:
    functions = unit.functions() if isinstance(unit, NativeFunctionsGroup) else [unit]
    return [str(function.func.name) for function in functions]


def primary_name(unit: Unit) -> str:
    """One name for the unit: a group goes by its functional form."""
    function = unit.functional if isinstance(unit, NativeFunctionsGroup) else unit
    return str(function.func.name)

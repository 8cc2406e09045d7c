"""Kernels of a user's own, written in WGSL. docs/custom-kernels.md has examples."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_webgpu import _C
from torch_webgpu._shader.prepare import Prepared, entry_points, prepare
from torch_webgpu._shader.program import Program, Variable
from torch_webgpu._shader.types import DTYPES, scalars_of

Extent = int | Sequence[int]


def compile_shader(source: str, *, constants: Mapping[str, float] | None = None) -> "ShaderLibrary":
    """Compiles a WGSL program. Each of its ``@compute`` functions is an attribute of the result.

    After ``torch.mps.compile_shader``. `constants` gives values to ``override`` declarations, by
    name. The program's storage buffers and uniforms stand in ``@group(0)``.

    Raises SyntaxError with the compiler's message if the program is not valid WGSL or needs a
    feature that the device lacks, RuntimeError if it exceeds a limit of the device, ValueError for
    a constant that it does not declare, and NotImplementedError for kernels with other arguments
    than storage buffers and uniforms.

    Example::

        lib = torch.webgpu.compile_shader('''
            @group(0) @binding(0) var<storage, read_write> out: array<f32>;
            @group(0) @binding(1) var<uniform> value: f32;
            @compute @workgroup_size(64)
            fn full(@builtin(global_invocation_id) id: vec3u) {
              if (id.x < arrayLength(&out)) { out[id.x] = value; }
            }
        ''')
        x = torch.zeros(16, device="webgpu")
        lib.full(x, 3.14)
    """
    if not isinstance(source, str):
        raise TypeError(f"compile_shader() takes WGSL as a str, got {type(source).__name__}")
    if error := _C.shader_error(source):
        raise SyntaxError(error)
    program = Program(source, dict(constants or {}))
    if unknown := set(program.constants) - set(program.overrides):
        raise ValueError(f"the program declares no override {', '.join(sorted(unknown))}")
    names = entry_points(program)
    if not names:
        raise ValueError("the program has no @compute function")
    return ShaderLibrary({name: Kernel(name, program) for name in names})


class ShaderLibrary:
    """What `compile_shader` returns: a `Kernel` as attribute for each ``@compute`` function."""

    def __init__(self, kernels: dict[str, "Kernel"]) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> "Kernel":
        kernels = self.__dict__.get("_kernels", {})
        if name in kernels:
            return kernels[name]
        raise AttributeError(f"the program has no kernel '{name}', but {', '.join(kernels)}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._kernels})

    def __repr__(self) -> str:
        return f"ShaderLibrary({', '.join(map(repr, self._kernels.values()))})"


class Kernel:
    """One ``@compute`` function. Calling it appends a launch to the device's stream."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self._prepared: Prepared = prepare(program, name)
        self._layout = self._prepared.layout
        self._max_workgroups = _C.properties()[2]["max_workgroups_per_dimension"]
        writable = sum(1 << i for i, v in enumerate(self._prepared.storage) if v.writable)
        constants = [(program.overrides[key], float(v)) for key, v in program.constants.items()]
        text = repr((name, self._prepared.source, constants))
        self._kernel = _C.UserKernel(
            name,
            self._prepared.source,
            constants,
            [v.name for v in self._prepared.storage],
            writable,
            hashlib.blake2b(text.encode(), digest_size=24).digest(),
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments, in order."""
        return tuple(variable.name for variable in self._prepared.arguments)

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations of a workgroup in x, y and z."""
        return self._prepared.workgroup_size

    def __call__(
        self, *args: Any, threads: Extent | None = None, workgroups: Extent | None = None
    ) -> None:
        """Launches the kernel.

        The arguments fill the bindings that the function uses, in the order of their numbers.

        A storage buffer takes a contiguous webgpu tensor of any shape. Its dtype is that of the
        buffer's scalars: float32 or complex64 for f32, int32 for i32, uint32 for u32, float16 for
        f16. For dtypes that WGSL lacks, u32 takes the tensor's bytes as words. ``arrayLength`` is
        the tensor's size in elements of the array. Where the elements do not fill the last word,
        what the kernel writes behind them is lost.

        A uniform takes a number, and a sequence of numbers for a vector, a matrix or an array. A
        struct takes a sequence, or a dict by member.

        `threads` is the number of invocations in x, y and z, an int or up to three; it is rounded
        up to whole workgroups. `workgroups` is the number of workgroups instead. Without either,
        there is an invocation for each element of the first tensor.

        Raises TypeError for the wrong number, kind or dtype of arguments, OverflowError for an
        integer out of range, and RuntimeError for a tensor that is not contiguous, overlaps another
        one that is written, or requires grad where it is written.
        """
        variables = self._prepared.arguments
        if len(args) != len(variables):
            raise TypeError(
                f"{self.name}() takes {len(variables)} arguments ({', '.join(self.arguments)}), "
                f"got {len(args)}"
            )
        tensors = []
        uniforms = {}
        for variable, value in zip(variables, args, strict=True):
            if variable.space == "storage":
                tensors.append(self._check_tensor(variable, value))
            else:
                uniforms[variable.name] = self._pack(variable, value)
        grid = self._grid(threads, workgroups, tensors)
        if 0 not in grid:
            self._check_sizes(tensors)
            data = b"".join(uniforms[variable.name] for variable in self._prepared.uniforms)
            self._kernel.launch(tensors, data, *grid)

    def __repr__(self) -> str:
        kinds = (f"{v.name}: {_describe(v)}" for v in self._prepared.arguments)
        return f"{self.name}({', '.join(kinds)})"

    def _check_tensor(self, variable: Variable, value: object) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{self.name}(): '{variable.name}' takes a tensor, got {type(value).__name__}"
            )
        if value.device.type != "webgpu":
            raise TypeError(
                f"{self.name}(): '{variable.name}' takes a webgpu tensor, got one on {value.device}"
            )
        assert variable.type is not None
        scalars = scalars_of(variable.type)
        # A struct of several types takes bytes as they are.
        if len(scalars) == 1:
            (scalar,) = scalars
            if value.dtype not in DTYPES[scalar]:
                raise TypeError(
                    f"{self.name}(): '{variable.name}' is of {scalar}, got a tensor of "
                    f"{value.dtype}; .to() converts it, .view() takes its bytes as another dtype"
                )
        return value

    def _check_sizes(self, tensors: list[torch.Tensor]) -> None:
        for variable, tensor in zip(self._prepared.storage, tensors, strict=True):
            assert variable.type is not None
            least, step = self._layout.growth(variable.type)
            size = -(-tensor.numel() * tensor.element_size() // 4) * 4
            if size < least or (step and size % step):
                wanted = f"a multiple of {step}" if step else f"at least {least}"
                raise RuntimeError(
                    f"{self.name}(): '{variable.name}' ({variable.type_text}) takes {wanted} bytes,"
                    f" got a tensor of {size}"
                )

    def _pack(self, variable: Variable, value: object) -> bytes:
        assert variable.type is not None
        try:
            data = self._layout.pack(variable.type, value, variable.name)
        except (TypeError, OverflowError) as error:
            raise type(error)(f"{self.name}(): {error}") from None
        return data + bytes(-len(data) % 16)

    def _grid(
        self, threads: Extent | None, workgroups: Extent | None, tensors: list[torch.Tensor]
    ) -> tuple[int, int, int]:
        if threads is not None and workgroups is not None:
            raise TypeError(f"{self.name}() takes threads or workgroups, not both")
        if workgroups is not None:
            grid = self._extent(workgroups, "workgroups")
        else:
            if threads is None:
                if not tensors:
                    raise TypeError(
                        f"{self.name}() has no tensor that says how many threads to run"
                    )
                threads = tensors[0].numel()
            counts = self._extent(threads, "threads")
            x, y, z = (-(-n // size) for n, size in zip(counts, self.workgroup_size, strict=True))
            grid = (x, y, z)
        if max(grid) > self._max_workgroups:
            raise RuntimeError(
                f"{self.name}(): {grid} workgroups, where this device runs at most "
                f"{self._max_workgroups} in a dimension; spread them over several"
            )
        return grid

    def _extent(self, value: Extent, name: str) -> tuple[int, int, int]:
        sizes = [value] if isinstance(value, int) else list(value)
        if not 1 <= len(sizes) <= 3 or any(not isinstance(n, int) or n < 0 for n in sizes):
            raise TypeError(
                f"{self.name}(): {name} takes an int or up to three, none negative, got {value!r}"
            )
        x, y, z = [*sizes, 1, 1][:3]
        return x, y, z


def _describe(variable: Variable) -> str:
    access = "uniform" if variable.space == "uniform" else "out" if variable.writable else "in"
    return f"{access} {variable.type_text}"

"""Graph files read, checked and played (docs/graph-format.md).

Files are untrusted: nothing that a file says is used before it is checked, here or by the runtime
(csrc/runtime/graph/program.h), and nothing runs before everything is checked.
"""

import math
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from torch_webgpu import _C
from torch_webgpu.graphs import _format as form
from torch_webgpu.graphs._expressions import bits_of, evaluate, names_in, word
from torch_webgpu.graphs._state import from_tree

# Names of WebGPU's limits, and what the device says of them.
_LIMITS = {
    "maxStorageBuffersPerShaderStage": "max_storage_buffers",
    "maxStorageBufferBindingSize": "max_storage_binding_size",
    "maxBufferSize": "max_buffer_size",
    "maxComputeWorkgroupsPerDimension": "max_workgroups_per_dimension",
    "maxComputeWorkgroupStorageSize": "max_workgroup_storage",
    "maxComputeInvocationsPerWorkgroup": "max_workgroup_invocations",
}
_ALIGNMENT = "minStorageBufferOffsetAlignment"
_FEATURES = {"chromium-experimental-subgroup-matrix": "subgroup-matrix"}
_EXCEPTIONS = {
    "IndexError": IndexError,
    "RuntimeError": RuntimeError,
    "NotImplementedError": NotImplementedError,
}


_MOST_DIMENSIONS = 64  # of PyTorch
# Exceptions that a damaged or malicious file leads to: those of the parsers, of the checks here,
# and of the runtime's checks.
_REFUSALS = (
    SafetensorError,
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    RuntimeError,
)


_LONGEST = 4000  # characters of an error that may quote the file


def load_graph(path: str | os.PathLike[str], *, trusted: bool = False) -> "LoadedGraph":
    """See `Graph.load`."""
    _C.properties()  # raises if there is no device, which is not the file's fault
    _check_not_capturing()
    path = os.fsdecode(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            text = metadata.get(form.PROGRAM_KEY, "")
            program = form.decode(metadata.get(form.VERSION_KEY), text)
            return LoadedGraph(program, file, trusted)
    except _REFUSALS as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        text = str(error)
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
        raise ValueError(f"cannot load the graph file {path!r}: {text}") from error


def _check_not_capturing() -> None:
    if _C.is_capturing():
        raise RuntimeError(
            "a graph file cannot be loaded, played or read while a graph is captured"
        )


class LoadedFunction:
    """A function of a `LoadedGraph`. Call it with its inputs by name."""

    def __init__(self, graph: "LoadedGraph", name: str, number: int) -> None:
        self._graph = graph
        self._name = name
        self._number = number
        self._function = graph._file_program.functions[name]
        self._varying: list[tuple[int, form.Dispatch]] = []

    def __repr__(self) -> str:
        def names(views: Mapping[str, form.View]) -> str:
            return ", ".join(f"{name}: {v.dtype}{v.shape}" for name, v in views.items())

        function = self._function
        return f"{self._name}(({names(function.inputs)}) -> ({names(function.outputs)}))"

    @property
    def inputs(self) -> dict[str, tuple[torch.dtype, tuple[int | str, ...]]]:
        """dtype and shape of each input; a dimension that a call decides has a name."""
        views = self._function.inputs.items()
        return {name: (form.DTYPES[view.dtype], tuple(view.shape)) for name, view in views}  # type: ignore[arg-type]

    def __call__(self, /, **given: Any) -> dict[str, torch.Tensor]:
        """Calls the function.

        given: a tensor for each input, on any device, and any of `LoadedGraph.numbers`. An input
        that is optional keeps what it holds if it is left out. Raises TypeError for names that do
        not fit and for other dtypes, ValueError for other shapes, and what the kernels raise
        (IndexError for an index out of range). Arguments that are refused change nothing.
        """
        _check_not_capturing()
        with self._graph._lock:
            return self._graph._play(self, given)


class LoadedGraph:
    """A graph from a file. Call it with its inputs by name; it returns its outputs by name. Of a
    file with several functions, ``g["step"](x=...)`` calls one.

    The results are new tensors on ``webgpu``. What the program keeps between calls (parameters,
    states of optimizers, caches, counters of random numbers) is in `state`.
    """

    def __init__(self, program: form.Program, file: Any, trusted: bool) -> None:
        self._file_program = program
        self._check_names()
        variants = [self._choose(name) for name in program.functions]
        # Where results are put. The buffers of a trusted program lie there too.
        self._device = torch.device("webgpu", _C.current_device())
        self._is_near = trusted
        self._program = _C.Program(not trusted)
        self._values = {
            name: bits_of(number, number.value) for name, number in program.numbers.items()
        }
        self._lock = threading.Lock()
        self._sizes = {name: size.max for name, size in program.dimensions.items()}
        self._functions = {
            name: LoadedFunction(self, name, k) for k, name in enumerate(program.functions)
        }
        places = self._add_buffers(variants)
        self._entries = self._load_entries(file)
        self._check_views()
        self._add_shaders()
        for function, variant, place in zip(
            self._functions.values(), variants, places, strict=True
        ):
            self._add_commands(function, variant, place)
        self._program.finish()
        self._upload(file)
        self._check_state()

    def __repr__(self) -> str:
        return f"LoadedGraph({'; '.join(map(repr, self._functions.values()))})"

    def __getitem__(self, name: str) -> LoadedFunction:
        """The function of that name. Raises KeyError if there is none."""
        return self._functions[name]

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions. A file that `Graph.save` wrote has one, ``run``."""
        return tuple(self._functions)

    def _only(self) -> LoadedFunction:
        if len(self._functions) != 1:
            names = ", ".join(self._functions)
            raise TypeError(f"the file has the functions {names}: say which, as in g[name]")
        return next(iter(self._functions.values()))

    @property
    def inputs(self) -> dict[str, tuple[torch.dtype, tuple[int | str, ...]]]:
        """`LoadedFunction.inputs` of a file with one function. Raises TypeError for others."""
        return self._only().inputs

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the numbers that a call may set. They keep their values until it does."""
        numbers = self._file_program.numbers.items()
        return tuple(name for name, number in numbers if number.input)

    def __call__(self, /, **given: Any) -> dict[str, torch.Tensor]:
        """Calls the function of a file with one, as `LoadedFunction` says. Raises TypeError for a
        file with several."""
        return self._only()(**given)

    def _play(self, function: LoadedFunction, given: dict[str, Any]) -> dict[str, torch.Tensor]:
        tensors, values, sizes = self._arguments(function, given)
        known = {**values, **sizes}
        outputs = function._function.outputs.items()
        for _, view in outputs:
            self._check_place(view, sizes)
        dispatches = [(n, _params(c, known), _grid(c, known)) for n, c in function._varying]
        for number, params, grid in dispatches:
            self._program.set_dispatch(function._number, number, params, grid)
        self._values, self._sizes = values, sizes
        for view, tensor in tensors:
            self._program.write(view.buffer or 0, view.offset, tensor)
        self._program.replay(function._number)
        for name, step in function._function.steps.items():
            self._values[name] = (self._values[name] + int(step)) & ((1 << 64) - 1)
        results = {name: self._read(view) for name, view in outputs}
        self._raise_errors()
        return results

    def state(self) -> dict[str, Any]:
        """Copies of the states as they are now, by the names that `Graph.save` was given: for
        ``model.load_state_dict(g.state()["model"])``.

        All are of one moment: calls of other threads wait until they are copied.
        """

        def tensor(view: object) -> torch.Tensor:
            place = msgspec.convert(view, form.View)
            self._check_place(place, self._sizes)
            return self._read(place)

        _check_not_capturing()
        trees = self._file_program.state.items()
        with self._lock:
            return {name: from_tree(tree, tensor) for name, tree in trees}

    # ---- Checks

    def _check_names(self) -> None:
        program = self._file_program
        for name, function in program.functions.items():
            names = [*function.inputs, *program.numbers, *program.dimensions]
            if len(set(names)) != len(names):
                raise ValueError(f"inputs of {name!r}, numbers and dimensions have names in common")
            for counter, step in function.steps.items():
                number = program.numbers.get(counter)
                if number is None or number.type != "u64":
                    raise ValueError(f"the number {counter!r} counts, and is no u64")
                bits_of(number, step)
        for name, size in program.dimensions.items():
            if size.min > size.max:
                raise ValueError(f"the dimension {name!r} has no size")
        for name, number in program.numbers.items():
            if number.type == "u64" and not isinstance(number.value, str):
                raise ValueError(f"the number {name!r} is no string of digits")

    def _choose(self, name: str) -> form.Variant:
        """The first variant of a function that the device can execute."""
        refused = []
        for variant in self._file_program.functions[name].variants:
            missing = _missing(variant.requires)
            if not missing:
                return variant
            refused.append(" and ".join(missing))
        raise ValueError(
            f"this device cannot execute {name!r}: it requires "
            + ", or ".join(refused or ["a variant"])
        )

    def _check_views(self) -> None:
        program = self._file_program
        for function in program.functions.values():
            for views in (function.inputs, function.outputs):
                for name, view in views.items():
                    if view.buffer is None:
                        raise ValueError(f"{name!r} is in no buffer")
                    self._check_view(view)
            for name, view in function.inputs.items():
                for size in view.shape:
                    if isinstance(size, list) or (
                        isinstance(size, str) and size not in program.dimensions
                    ):
                        raise ValueError(f"the input {name!r} has a size {size!r}")

    def _check_state(self) -> None:
        def tensor(view: object) -> torch.Tensor:
            self._check_view(msgspec.convert(view, form.View))
            return torch.empty(0)

        for tree in self._file_program.state.values():
            from_tree(tree, tensor)

    def _check_view(self, view: form.View) -> None:
        """Raises ValueError for what is no view. Once, when the file is loaded."""
        if view.dtype not in form.DTYPES:
            raise ValueError(f"there is no dtype {view.dtype!r}")
        for size in view.shape:
            names_in(size)
        if len(view.shape) > _MOST_DIMENSIONS:
            raise ValueError(f"a tensor has {len(view.shape)} dimensions")
        if (view.buffer is None) == (view.entry is None):
            raise ValueError("a tensor is in no place, or in two")
        if view.buffer is None:
            tensor = self._entries.get(view.entry or "")
            if tensor is None:
                raise ValueError(f"the file has no tensor {view.entry!r}, or a buffer has it")
            if tensor.dtype != form.DTYPES[view.dtype] or list(tensor.shape) != view.shape:
                raise ValueError(f"the tensor {view.entry!r} is not {view.dtype}{view.shape}")
            return
        if view.buffer >= len(self._file_program.buffers):
            raise ValueError(f"there is no buffer {view.buffer}")
        self._check_place(view, self._sizes)

    def _check_place(self, view: form.View, sizes: dict[str, int]) -> None:
        """Raises ValueError if the view leaves its buffer with these sizes of the dimensions."""
        if view.buffer is None:
            return
        end = view.offset + _bytes(view, sizes)
        if view.offset % 4 or end > self._file_program.buffers[view.buffer].bytes:
            raise ValueError(f"a tensor does not lie in buffer {view.buffer}")

    # ---- The program

    def _add_buffers(self, variants: list[form.Variant]) -> list[list[int]]:
        """Makes the buffers. Returns, for each variant, where each of its buffers lies."""
        program = self._file_program
        base = len(program.buffers)
        shared: list[int] = []  # scratch of one function may lie where another's did
        places = []
        for variant in variants:
            sizes: list[int] = []
            places.append(self._places(variant, sizes))
            self._check_lifetimes(variant, places[-1])
            order = sorted(range(len(sizes)), key=lambda k: -sizes[k])
            shared += [0] * (len(sizes) - len(shared))
            for at, k in enumerate(order):
                shared[at] = max(shared[at], sizes[k])
            moved = {base + k: base + at for at, k in enumerate(order)}
            places[-1] = [moved.get(place, place) for place in places[-1]]
        sizes = [*(buffer.bytes for buffer in program.buffers), *shared]
        limit = _C.properties()[2]["max_buffer_size"]
        if max(sizes, default=0) > limit:
            raise ValueError(f"it has a buffer of {max(sizes)} bytes; the device allows {limit}")
        _, memory, is_guess = _C.memory_budget(_C.current_device())
        if sum(sizes) > memory and not is_guess:
            raise ValueError(f"its buffers are {sum(sizes)} bytes; the device has {memory}")
        for size in sizes:
            self._program.add_buffer(size)
        return places

    def _places(self, variant: form.Variant, sizes: list[int]) -> list[int]:
        """The place of each buffer that commands name: a buffer of the program, or behind those the
        memory of scratch buffers, whose sizes are appended to `sizes`."""
        buffers = self._file_program.buffers
        place: list[int] = list(range(len(buffers)))
        slots: dict[int, int] = {}
        for scratch in variant.scratch:
            if scratch.within is not None:
                if scratch.slot is not None or scratch.within >= len(buffers):
                    raise ValueError("a scratch buffer has no place")
                if scratch.bytes > buffers[scratch.within].bytes:
                    raise ValueError("a scratch buffer is larger than the buffer that it lies in")
                place.append(scratch.within)
                continue
            at = len(sizes)
            if scratch.slot is not None:
                at = slots.setdefault(scratch.slot, at)
            if at == len(sizes):
                sizes.append(0)
            sizes[at] = max(sizes[at], scratch.bytes)
            place.append(len(buffers) + at)
        return place

    def _load_entries(self, file: Any) -> dict[str, torch.Tensor]:
        """The tensors of the file that no buffer starts with."""
        keys = set(file.keys())
        in_buffers = {buffer.entry for buffer in self._file_program.buffers}
        if missing := in_buffers - keys - {None}:
            raise ValueError(f"the file has no tensor {min(map(str, missing))!r}")
        return {key: file.get_tensor(key) for key in keys - in_buffers}

    def _check_lifetimes(self, variant: form.Variant, place: list[int]) -> None:
        """Checks that scratch buffers which share memory are used one after the other."""
        program = self._file_program
        base = len(program.buffers)
        first_use = [len(variant.commands)] * base
        for at, command in enumerate(variant.commands):
            for number, _, _ in _parts(command):
                if number >= base + len(variant.scratch):
                    raise ValueError(f"there is no buffer {number}")
                if number < base:
                    first_use[number] = min(first_use[number], at)
                else:
                    scratch = variant.scratch[number - base]
                    if not scratch.first <= at <= scratch.last:
                        raise ValueError("a scratch buffer is used outside of its lifetime")
        free: dict[int, int] = {}  # by place: the first command that may use it
        inputs = {v.buffer for f in program.functions.values() for v in f.inputs.values()}
        order = sorted(range(len(variant.scratch)), key=lambda k: variant.scratch[k].first)
        for k in order:
            scratch, at = variant.scratch[k], place[base + k]
            late = at < base and (
                first_use[at] <= scratch.last
                or program.buffers[at].entry is not None
                or at in inputs
            )
            if late or scratch.last < scratch.first or free.get(at, 0) > scratch.first:
                raise ValueError("buffers that are in use at the same time share memory")
            free[at] = scratch.last + 1

    def _add_shaders(self) -> None:
        for shader in self._file_program.shaders:
            if any(at >= shader.buffers for at in shader.writes):
                raise ValueError(f"the shader {shader.label!r} writes a binding that it has not")
            writable = sum(1 << at for at in set(shader.writes))
            self._program.add_pipeline(
                _C.ListedShader(
                    shader.label,
                    shader.wgsl,
                    shader.entry,
                    shader.constants,
                    shader.buffers,
                    writable,
                    shader.reports,
                )
            )

    def _add_commands(
        self, function: LoadedFunction, variant: form.Variant, place: list[int]
    ) -> None:
        def at(part: tuple[int, int]) -> tuple[int, int]:
            return place[part[0]], part[1]

        known = {**self._values, **self._sizes}
        number = 0
        self._program.add_function()
        for command in variant.commands:
            if isinstance(command, form.Copy):
                source = (*at(command.source), command.bytes)
                self._program.copy(source, (*at(command.target), command.bytes))
            elif isinstance(command, form.Clear):
                self._program.clear((*at(command.target[:2]), command.target[2]))
            else:
                taken = set().union(*map(names_in, (*command.grid, *command.words)))
                grid, params = _grid(command, known), _params(command, known)
                parts = [(*at(part[:2]), part[2]) for part in command.bind]
                self._program.dispatch(command.shader, parts, params, grid, bool(taken))
                if taken:
                    function._varying.append((number, command))
                number += bool(taken) or 0 not in grid

    def _upload(self, file: Any) -> None:
        for number, buffer in enumerate(self._file_program.buffers):
            if buffer.entry is not None:
                tensor = file.get_tensor(buffer.entry).contiguous()
                if tensor.nbytes > buffer.bytes:
                    raise ValueError(f"{buffer.entry!r} is larger than its buffer")
                if tensor.nbytes:
                    self._program.write(number, 0, tensor)

    # ---- A call

    def _arguments(
        self, function: LoadedFunction, given: dict[str, Any]
    ) -> tuple[list[tuple[form.View, torch.Tensor]], dict[str, int], dict[str, int]]:
        """The tensors of a call with their places, the numbers and the dimensions."""
        inputs, numbers = function._function.inputs, self._file_program.numbers
        values = dict(self._values)
        sizes: dict[str, int] = {}
        tensors: list[tuple[form.View, torch.Tensor]] = []
        for name, value in given.items():
            if name in inputs:
                tensors.append((inputs[name], self._input(name, inputs[name], value, sizes)))
            elif name in numbers and numbers[name].input:
                values[name] = bits_of(numbers[name], value)
            else:
                raise TypeError(f"the graph has no input {name!r}; {function!r}")
        needed = {name for name, view in inputs.items() if not view.optional}
        if missing := needed - given.keys():
            raise TypeError(f"the graph needs {', '.join(sorted(missing))}; {function!r}")
        return tensors, values, {**self._sizes, **sizes}

    def _input(
        self, name: str, view: form.View, value: object, sizes: dict[str, int]
    ) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not a {type(value).__name__}")
        if value.dtype != form.DTYPES[view.dtype]:
            raise TypeError(f"{name} must be of {form.DTYPES[view.dtype]}, not {value.dtype}")
        if value.dim() != len(view.shape):
            raise self._wrong_shape(name, view, value)
        for wanted, size in zip(view.shape, value.shape, strict=True):
            if not isinstance(wanted, str):
                if wanted != size:
                    raise self._wrong_shape(name, view, value)
                continue
            limits = self._file_program.dimensions[wanted]
            if not limits.min <= size <= limits.max:
                raise self._wrong_shape(name, view, value)
            if sizes.setdefault(wanted, size) != size:
                raise ValueError(
                    f"{name} has {size} for {wanted}, which is {sizes[wanted]} in this call"
                )
        tensor = value.detach().resolve_conj().resolve_neg().contiguous()
        near = tensor.device == self._device and self._is_near
        aligned = near and _C.byte_offset(tensor) % 4 == 0 and tensor.nbytes % 4 == 0
        return tensor if aligned else tensor.cpu()

    def _wrong_shape(self, name: str, view: form.View, value: torch.Tensor) -> ValueError:
        dimensions = self._file_program.dimensions
        ranges = [
            f"{size} from {dimensions[size].min} to {dimensions[size].max}"
            for size in dict.fromkeys(view.shape)
            if isinstance(size, str)
        ]
        having = f" with {' and '.join(ranges)}" if ranges else ""
        shape = ", ".join(map(str, view.shape))
        return ValueError(f"{name} must have the shape [{shape}]{having}, not {list(value.shape)}")

    def _read(self, view: form.View) -> torch.Tensor:
        dtype = form.DTYPES[view.dtype]
        if view.buffer is None:
            return self._entries[view.entry or ""].clone()
        shape = [evaluate(size, self._sizes) for size in view.shape]
        result = torch.empty(shape, dtype=dtype, device=self._device if self._is_near else "cpu")
        if result.numel():
            self._program.read(view.buffer, view.offset, result)
        return result.to(self._device)

    def _raise_errors(self) -> None:
        code, low, high, dimension, size, *_ = self._program.take_errors()
        if code == 0:
            return
        name, text = self._file_program.messages.get(str(code), ("RuntimeError", "a check failed"))
        index = (high << 32 | low) - (high >> 31 << 64)
        for key, value in (("{index}", index), ("{dim}", dimension), ("{size}", size)):
            text = text.replace(key, str(value), 1)
        raise _EXCEPTIONS.get(name, RuntimeError)(text)


def _parts(command: form.Dispatch | form.Copy | form.Clear) -> Iterable[tuple[int, int, int]]:
    if isinstance(command, form.Dispatch):
        return command.bind
    if isinstance(command, form.Copy):
        return [(*command.source, command.bytes), (*command.target, command.bytes)]
    return [command.target]


def _params(command: form.Dispatch, known: dict[str, int]) -> bytes:
    return b"".join(word(part, known).to_bytes(4, "little") for part in command.words)


def _grid(command: form.Dispatch, known: dict[str, int]) -> tuple[int, ...]:
    return tuple(word(part, known) for part in command.grid)


def _bytes(view: form.View, sizes: dict[str, int]) -> int:
    shape = [evaluate(size, sizes) for size in view.shape]
    if math.prod(max(size, 1) for size in shape) >= 1 << 53:
        raise ValueError(f"a tensor cannot have the shape {shape}")
    return math.prod(shape) * form.DTYPES[view.dtype].itemsize


def _missing(requires: form.LanguageRequirements) -> list[str]:
    """What the device does not have."""
    adapter, features, limits = _C.properties()
    missing = [
        f"the feature {name!r}"
        for name in requires.features
        if _FEATURES.get(name, name) not in features
    ]
    missing += [
        f"the WGSL language feature {name!r}"
        for name in requires.language_features
        if name not in features
    ]
    for name, value in requires.limits.items():
        if name == _ALIGNMENT:
            if limits["storage_offset_alignment"] > value:
                missing.append(f"{name} of {value}")
        elif name not in _LIMITS:
            missing.append(f"the limit {name!r}, which is not known here")
        elif limits[_LIMITS[name]] < value:
            missing.append(f"{name} of {value}, and the device has {limits[_LIMITS[name]]}")
    if requires.software and adapter["type"] != "software":
        missing.append("an adapter that computes on cores of a CPU")
    if requires.subgroup_size is not None:
        least, most = requires.subgroup_size
        if not least <= limits["subgroup_min_size"] <= limits["subgroup_max_size"] <= most:
            missing.append(f"subgroups of {least} to {most}")
    return missing

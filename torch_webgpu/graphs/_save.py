"""A captured graph as a graph file (docs/graph-format.md)."""

import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import torch
from safetensors.torch import save_file

from torch_webgpu import _C
from torch_webgpu._shader.prepare import workgroup_size
from torch_webgpu._shader.program import Program as ShaderProgram
from torch_webgpu.graphs import _format as form
from torch_webgpu.graphs._state import state_dict_of, to_tree

_ENABLE = re.compile(r"^\s*enable\s+([^;]+);", re.MULTILINE)
_REQUIRE = re.compile(r"^\s*requires\s+([^;]+);", re.MULTILINE)
# Built-in values that only some compilers have, and the language features of WGSL that have them. A
# text may use them without a `requires` line.
_BUILTIN = re.compile(r"@builtin\(\s*(\w+)")
_LANGUAGE = {
    "subgroup_id": "subgroup_id",
    "num_subgroups": "subgroup_id",
    "global_invocation_index": "linear_indexing",
    "workgroup_index": "linear_indexing",
}
# `enable` names of WGSL and the features of WebGPU that have them.
_FEATURES = {
    "f16": "shader-f16",
    "subgroups": "subgroups",
    "chromium_experimental_subgroup_matrix": "chromium-experimental-subgroup-matrix",
}
_NAME = re.compile(r"[^\W\d]\w*")


class SizedLaunch(NamedTuple):
    """What sizes of a call decide of a dispatch: its first parameters, and its grid."""

    words: list[form.Expression]
    grid: tuple[form.Expression, form.Expression, form.Expression]


class Recording(NamedTuple):
    """A capture of a function, for one kind of device."""

    captured: Any  # the runtime's graph
    outputs: Mapping[str, torch.Tensor]
    launches: Mapping[int, SizedLaunch] = {}  # by the number of the command
    software: bool = False  # for adapters that compute on cores of a CPU only
    subgroup_size: tuple[int, int] | None = None  # least and most; without it this device's


class SizedShapes(NamedTuple):
    """Shapes of a function whose sizes a call decides. Its tensors are as large as they get."""

    dimensions: Mapping[str, form.Dimension]
    inputs: Mapping[str, list[form.Expression]]
    outputs: Mapping[str, list[form.Expression]]


class SavedFunction(NamedTuple):
    """A function of a file. Its recordings have the same inputs, and outputs of the same names,
    dtypes and shapes; the one that a player should prefer comes first."""

    inputs: Mapping[str, torch.Tensor]
    recordings: Sequence[Recording]
    optional: frozenset[str] = frozenset()  # inputs that a call may leave out
    sized: SizedShapes | None = None  # None: all shapes are those of the tensors


def save_graph(
    captured: Any,
    path: str | os.PathLike[str],
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    state: Mapping[str, Any],
) -> None:
    """Writes a file of version 1. `captured` is the runtime's graph; the rest as `Graph.save` has
    it.

    Raises RuntimeError during a capture.
    """
    function = SavedFunction(inputs, [Recording(captured, outputs)])
    save_functions(path, {form.ONLY_FUNCTION: function}, state, version="1")


def save_functions(
    path: str | os.PathLike[str],
    functions: Mapping[str, SavedFunction],
    state: Mapping[str, Any],
    *,
    version: str = "2",
) -> form.Program:
    """Writes a file and returns its program. `state` as `Graph.save` has it. Raises RuntimeError
    during a capture."""
    if _C.is_capturing():
        raise RuntimeError("a graph cannot be saved while a graph is captured")
    # Of a graph a caller names tensors, so that one which it does not use is a mistake.
    writer = _Writer(functions, takes_unused=version != "1")
    program = writer.program(state)
    written = form.as_version_1(program) if version == "1" else program
    metadata = {
        form.VERSION_KEY: version,
        form.PROGRAM_KEY: msgspec.json.encode(written).decode(),
    }
    # The old file, if there is one, stays until the new one is complete.
    path = os.fsdecode(path)
    partial = f"{path}.partial"
    try:
        # A file of safetensors is its owner's only. This one gets the mode of any new file, so that
        # web servers may read it.
        with open(partial, "wb") as file:
            mode = os.fstat(file.fileno()).st_mode
        save_file(writer.entries, partial, metadata=metadata)
        os.chmod(partial, stat.S_IMODE(mode))
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return program


class _Capture:
    """A recording with the numbers that its tensors have in the file."""

    def __init__(self, recording: Recording) -> None:
        self.listing = _C.list_graph(recording.captured)
        self.outputs = recording.outputs
        self.launches = recording.launches
        self.software = recording.software
        self.subgroup_size = recording.subgroup_size
        self.number: dict[int, int] = {}  # of a listed tensor: its buffer
        self.shader: list[int] = []  # of a listed shader: its number in the file


class _Allocation:
    """A tensor's memory, as all captures use it."""

    def __init__(self) -> None:
        self.uses: list[tuple[_Capture, int]] = []  # number in the capture's listing

    @property
    def listed(self) -> list[Any]:
        return [capture.listing.tensors[k] for capture, k in self.uses]

    @property
    def own(self) -> bool:
        """Whether it holds nothing before a replay."""
        return all(tensor.own for tensor in self.listed)

    @property
    def requested(self) -> int:
        return self.listed[0].requested

    @property
    def bytes(self) -> int:
        size = max(max(t.extent, t.requested) for t in self.listed)
        return -(-size // 4) * 4

    def contents(self) -> torch.Tensor:
        """The bytes of the tensor. Its block may be larger: what lies behind belonged to others."""
        capture, k = max(self.uses, key=lambda use: use[0].listing.tensors[use[1]].extent)
        size = max(t.requested for t in self.listed)
        contents: torch.Tensor = capture.listing.read(k)[: -(-size // 4) * 4]
        contents[size:] = 0
        return contents


class _Writer:
    """The buffers of a file: those that all replays share come first, then the scratch of each
    capture."""

    def __init__(self, functions: Mapping[str, SavedFunction], *, takes_unused: bool) -> None:
        self.functions = functions
        self.takes_unused = takes_unused
        self.captures = {
            name: [_Capture(recording) for recording in function.recordings]
            for name, function in functions.items()
        }
        self.allocations: dict[int, _Allocation] = {}
        for captures in self.captures.values():
            for capture in captures:
                for k, tensor in enumerate(capture.listing.tensors):
                    at = self.allocations.setdefault(tensor.allocation, _Allocation())
                    at.uses.append((capture, k))
        self.entries: dict[str, torch.Tensor] = {}
        self.buffers: list[form.Buffer] = []
        self.number: dict[int, int] = {}  # of an allocation: its buffer
        self.empty: int | None = None  # the buffer of tensors without elements
        self.shaders: list[form.Shader] = []
        self.shader_numbers: dict[object, int] = {}
        self.numbers: dict[str, form.Number] = {}
        self.streams: dict[object, tuple[str, str]] = {}  # of a generator: its numbers
        self.stored: dict[tuple[object, ...], str] = {}
        self.dimensions: dict[str, form.Dimension] = {}
        for function in functions.values():
            if function.sized is not None:
                self.dimensions.update(function.sized.dimensions)
        self.alive: list[torch.Tensor] = []  # so that no other tensor gets its address

    def program(self, state: Mapping[str, Any]) -> form.Program:
        for function in self.functions.values():
            for name in (*function.inputs, *function.recordings[0].outputs):
                if not isinstance(name, str) or not _NAME.fullmatch(name):
                    raise ValueError(
                        f"{name!r} cannot name an input or output: it is no identifier"
                    )
        input_views = {
            label: {
                name: _with_shape(
                    self._input(name, tensor, name in function.optional),
                    function.sized and function.sized.inputs.get(name),
                )
                for name, tensor in function.inputs.items()
            }
            for label, function in self.functions.items()
        }
        trees = {}
        for name, holder in state.items():
            states = state_dict_of(holder)
            trees[name] = to_tree(states, name, self._state)
        output_views = {label: self._outputs(label) for label in self.functions}
        for allocation, at in self.allocations.items():
            if allocation not in self.number and not at.own:
                entry = self._contents(allocation, f"constant.{len(self.buffers)}")
                self._add(allocation, entry=entry)
        functions = {}
        messages: dict[str, tuple[str, str]] = {}
        for label, captures in self.captures.items():
            steps: dict[str, str] = {}
            variants = [self._variant(capture, steps) for capture in captures]
            functions[label] = form.Function(
                inputs=input_views[label],
                outputs=output_views[label],
                variants=variants,
                steps=steps,
            )
            for capture in captures:
                messages |= {str(code): m for code, m in capture.listing.messages.items()}
        return form.Program(
            producer=f"torch-webgpu {_version()}",
            buffers=self.buffers,
            shaders=self.shaders,
            functions=functions,
            dimensions=self.dimensions,
            numbers=self.numbers,
            state=trees,
            messages=messages,
        )

    def _variant(self, capture: _Capture, steps: dict[str, str]) -> form.Variant:
        for k, tensor in enumerate(capture.listing.tensors):
            if tensor.allocation in self.number:
                capture.number[k] = self.number[tensor.allocation]
        capture.shader = [self._shader(shader) for shader in capture.listing.shaders]
        scratch = self._scratch(capture)
        commands = self._commands(capture, steps)
        requires = self._requirements(capture)
        return form.Variant(requires=requires, scratch=scratch, commands=commands)

    # ---- Tensors

    def _allocation_of(self, tensor: torch.Tensor) -> int | None:
        """The tensor's memory, if commands use it."""
        allocation = _C.allocation_of(tensor)
        return allocation if allocation in self.allocations else None

    def _add(self, allocation: int, *, entry: str | None) -> None:
        self.number[allocation] = len(self.buffers)
        self.buffers.append(form.Buffer(bytes=self.allocations[allocation].bytes, entry=entry))

    def _used(self, what: str, tensor: torch.Tensor, how: str) -> int:
        """The memory of an input or output."""
        allocation = self._allocation_of(tensor)
        if allocation is None:
            raise ValueError(f"{what} is not {how} by the graph")
        return allocation

    def _empty(self, what: str, tensor: torch.Tensor) -> form.View:
        """The view of a tensor without elements. It has to name a buffer, and has no memory."""
        if not self.takes_unused:
            raise ValueError(f"{what} is empty")
        if self.empty is None:
            self.empty = len(self.buffers)
            self.buffers.append(form.Buffer(bytes=4))
        dtype = _dtype_name(what, tensor.dtype)
        return form.View(buffer=self.empty, dtype=dtype, shape=list(tensor.shape))

    def _view(self, what: str, tensor: torch.Tensor, allocation: int) -> form.View:
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            raise ValueError(f"{what} is not contiguous; capture the .contiguous() of it instead")
        offset = _C.byte_offset(tensor)
        if offset % 4:
            raise ValueError(f"{what} does not start at a multiple of 4 bytes in its storage")
        return form.View(
            buffer=self.number[allocation],
            offset=offset,
            dtype=_dtype_name(what, tensor.dtype),
            shape=list(tensor.shape),
        )

    def _input(self, name: str, tensor: torch.Tensor, optional: bool) -> form.InputView:
        what = f"the input {name!r}"
        _check_tensor(what, tensor)
        if tensor.numel() == 0:
            return _input_view(self._empty(what, tensor), optional)
        if self.takes_unused and self._allocation_of(tensor) is None:
            return self._unused_input(what, tensor, optional)
        allocation = self._used(what, tensor, "used")
        at = self.allocations[allocation]
        if at.own:
            raise ValueError(f"{what} was made in the capture; an input must exist before it")
        if allocation not in self.number:
            covers = tensor.nbytes == at.requested and not optional
            entry = None if covers else self._contents(allocation, f"storage.{name}")
            self._add(allocation, entry=entry)
        elif optional:
            self._fill(allocation, f"storage.{name}")
        view = self._view(what, tensor, allocation)
        if tensor.nbytes % 4 and view.offset + tensor.nbytes != at.requested:
            raise ValueError(f"{what} ends within a word that belongs to other elements as well")
        return _input_view(view, optional)

    def _unused_input(self, what: str, tensor: torch.Tensor, optional: bool) -> form.InputView:
        """An input that no command reads. Callers give it, as they call the function in Python."""
        self.number[_C.allocation_of(tensor)] = len(self.buffers)
        self.buffers.append(form.Buffer(bytes=-(-tensor.nbytes // 4) * 4))
        return _input_view(self._view(what, tensor, _C.allocation_of(tensor)), optional)

    def _outputs(self, label: str) -> dict[str, form.View]:
        """The outputs of a function: the first recording says where they are, and those of the
        others lie in the same buffers."""
        first, *others = self.captures[label]
        views = {name: self._output(name, tensor) for name, tensor in first.outputs.items()}
        for capture in others:
            if capture.outputs.keys() != views.keys():
                raise ValueError(f"recordings of {label!r} have different outputs")
            homes: dict[int, int] = {}  # of a buffer of the file: the memory that it stands for
            for name, tensor in capture.outputs.items():
                what = f"the output {name!r}"
                _check_tensor(what, tensor)
                if tensor.numel() == 0 or self._is_unused_input(tensor):
                    if self._output(name, tensor) != views[name]:
                        raise ValueError(f"{what} lies elsewhere in another recording of {label!r}")
                    continue
                allocation = self._used(what, tensor, "written")
                wanted = views[name].buffer or 0
                number = self.number.setdefault(allocation, wanted)
                same = number == wanted and homes.setdefault(wanted, allocation) == allocation
                if not same or self._view(what, tensor, allocation) != views[name]:
                    raise ValueError(f"{what} lies elsewhere in another recording of {label!r}")
                self._enlarge(wanted, self.allocations[allocation].bytes)
        sized = self.functions[label].sized
        if sized is not None:
            views = {name: _with_shape(view, sized.outputs[name]) for name, view in views.items()}
        return views

    def _output(self, name: str, tensor: torch.Tensor) -> form.View:
        what = f"the output {name!r}"
        _check_tensor(what, tensor)
        if tensor.numel() == 0:
            return self._empty(what, tensor)
        if self._is_unused_input(tensor):
            return self._view(what, tensor, _C.allocation_of(tensor))
        allocation = self._used(what, tensor, "written")
        if allocation not in self.number:
            own = self.allocations[allocation].own
            entry = None if own else self._contents(allocation, f"storage.{name}")
            self._add(allocation, entry=entry)
        return self._view(what, tensor, allocation)

    def _is_unused_input(self, tensor: torch.Tensor) -> bool:
        return self._allocation_of(tensor) is None and _C.allocation_of(tensor) in self.number

    def _enlarge(self, number: int, size: int) -> None:
        if self.buffers[number].bytes < size:
            self.buffers[number] = msgspec.structs.replace(self.buffers[number], bytes=size)

    def _fill(self, allocation: int, name: str) -> None:
        """Has a buffer start with what its memory holds."""
        number = self.number[allocation]
        if self.buffers[number].entry is None:
            self.buffers[number] = msgspec.structs.replace(
                self.buffers[number], entry=self._contents(allocation, name)
            )

    def _state(self, tensor: torch.Tensor, path: str) -> form.View:
        near = tensor.device.type == "webgpu" and tensor.numel() > 0
        allocation = self._allocation_of(tensor) if near else None
        if allocation is None or not tensor.is_contiguous():
            if allocation is not None:
                raise ValueError(f"{path} is not contiguous, so a graph file cannot hold it")
            return form.View(
                entry=self._store(path, tensor),
                dtype=_dtype_name(path, tensor.dtype),
                shape=list(tensor.shape),
            )
        if allocation not in self.number:
            requested = self.allocations[allocation].requested
            covers = _C.byte_offset(tensor) == 0 and tensor.nbytes == requested
            name = f"storage.{path}"
            entry = self._store(path, tensor) if covers else self._contents(allocation, name)
            self._add(allocation, entry=entry)
        else:
            # An input that is part of the state as well starts with what it holds.
            self._fill(allocation, f"storage.{path}")
        return self._view(path, tensor, allocation)

    def _store(self, name: str, tensor: torch.Tensor) -> str:
        address = tensor.untyped_storage().data_ptr()
        place = (address, tensor.storage_offset(), *tensor.stride())
        key = (*place, tensor.dtype, tensor.shape, tensor.is_conj(), tensor.is_neg())
        if tensor.numel() and key in self.stored:
            return self.stored[key]
        self.alive.append(tensor)
        name = self._new_entry(name)
        plain = tensor.detach().resolve_conj().resolve_neg()
        self.entries[name] = plain.cpu().contiguous().clone()
        self.stored[key] = name
        return name

    def _new_entry(self, name: str) -> str:
        while name in self.entries or name == "__metadata__":
            name += "_"
        return name

    def _contents(self, allocation: int, name: str) -> str:
        """Stores the bytes of a tensor's memory."""
        name = self._new_entry(name)
        self.entries[name] = _without_zeros(self.allocations[allocation].contents())
        return name

    def _scratch(self, capture: _Capture) -> list[form.Scratch]:
        """The tensors that hold nothing between replays. Those that lay in one buffer of the
        capture share memory, so that a replay needs no more than the capture did."""
        tensors = capture.listing.tensors
        # Buffers of outputs also hold nothing before their first command, so scratch may use them.
        homes = {
            tensors[k].place: k
            for k, number in capture.number.items()
            if self.allocations[tensors[k].allocation].own and self.buffers[number].entry is None
        }
        slots: dict[int, int] = {}
        scratch: list[form.Scratch] = []
        for k, tensor in enumerate(tensors):
            if k in capture.number:
                continue
            capture.number[k] = len(self.buffers) + len(scratch)
            home = homes.get(tensor.place)
            within = None
            if home is not None and tensor.last_command < tensors[home].first_command:
                within = capture.number[home]
                self._enlarge(within, tensor.extent)
            slot = None if within is not None else slots.setdefault(tensor.place, len(slots))
            scratch.append(
                form.Scratch(
                    bytes=tensor.extent,
                    first=tensor.first_command,
                    last=tensor.last_command,
                    slot=slot,
                    within=within,
                )
            )
        return scratch

    def _commands(self, capture: _Capture, steps: dict[str, str]) -> list[Any]:
        """The commands of a capture. Adds to `steps` what its replays add to counters."""
        names = self._streams(capture, steps)
        commands: list[Any] = []
        for number, command in enumerate(capture.listing.commands):
            parts = [(capture.number[k], offset, size) for k, offset, size in command.parts]
            if command.kind == "copy":
                commands.append(
                    form.Copy(source=parts[0][:2], target=parts[1][:2], bytes=parts[0][2])
                )
                continue
            if command.kind == "clear":
                commands.append(form.Clear(target=parts[0]))
                continue
            data = command.params + bytes(-len(command.params) % 4)
            words: list[form.Expression] = [
                int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)
            ]
            if command.draw is not None:
                seed, offset = names[command.draw.stream]
                moved: form.Expression = ["+", offset, command.draw.counter]
                at = command.draw.at // 4
                words[at : at + 4] = [seed, [">>", seed, 32], moved, [">>", moved, 32]]
            grid: tuple[form.Expression, ...] = tuple(command.grid)
            if number in capture.launches:
                sized = capture.launches[number]
                words[: len(sized.words)] = sized.words
                grid = sized.grid
            commands.append(
                form.Dispatch(
                    shader=capture.shader[command.shader],
                    bind=parts,
                    grid=grid,  # type: ignore[arg-type]
                    words=words,
                )
            )
        return commands

    def _streams(self, capture: _Capture, steps: dict[str, str]) -> dict[int, tuple[str, str]]:
        """The names of the key and the counter of each generator that the capture draws from."""
        drawn = {c.draw.stream for c in capture.listing.commands if c.draw is not None}
        names: dict[int, tuple[str, str]] = {}
        seen: dict[tuple[int, int], int] = {}
        for stream in sorted(drawn):
            key, counter, increment = capture.listing.streams[stream]
            # A generator has one key and counter for all captures, and another one may have equal
            # ones: it comes after it.
            nth = seen[key, counter] = seen.get((key, counter), -1) + 1
            names[stream] = self._stream(key, counter, nth)
            if steps.setdefault(names[stream][1], str(increment)) != str(increment):
                raise ValueError("recordings of a function draw different numbers")
        return names

    def _stream(self, key: int, counter: int, nth: int) -> tuple[str, str]:
        if (key, counter, nth) not in self.streams:
            number = len(self.streams)
            seed, offset = f"seed{number}", f"offset{number}"
            taken = {name for function in self.functions.values() for name in function.inputs}
            taken |= self.dimensions.keys()
            while {seed, offset} & taken:
                seed, offset = f"{seed}_", f"{offset}_"
            self.numbers[seed] = form.Number(type="u64", value=str(key), input=True)
            self.numbers[offset] = form.Number(type="u64", value=str(counter), input=True)
            self.streams[key, counter, nth] = (seed, offset)
        return self.streams[key, counter, nth]

    def _shader(self, shader: Any) -> int:
        """The number of a shader in the file; recordings share equal ones."""
        found = form.Shader(
            label=shader.label,
            wgsl=shader.source,
            entry=shader.entry,
            buffers=shader.num_buffers,
            writes=[k for k in range(shader.num_buffers) if shader.writable >> k & 1],
            reports=shader.checks,
            constants=shader.constants,
        )
        key = msgspec.json.encode(found)
        if key not in self.shader_numbers:
            self.shader_numbers[key] = len(self.shaders)
            self.shaders.append(found)
        return self.shader_numbers[key]

    def _requirements(self, capture: _Capture) -> form.LanguageRequirements:
        limits = _C.properties()[2]
        enabled: set[str] = set()
        language: set[str] = set()
        memory = buffers = workgroups = binding = invocations = 0
        alignment = 256  # of a browser: no device has a larger one
        for shader in capture.listing.shaders:
            for names in _REQUIRE.findall(shader.source):
                language.update(name.strip() for name in names.split(","))
            builtins = _LANGUAGE.keys() & set(_BUILTIN.findall(shader.source))
            language.update(_LANGUAGE[name] for name in builtins)
            for names in _ENABLE.findall(shader.source):
                enabled.update(name.strip() for name in names.split(","))
            buffers = max(buffers, shader.num_buffers + shader.checks)
            program = ShaderProgram(shader.source, shader.constants)
            invocations = max(invocations, math.prod(workgroup_size(program, shader.entry)))
            try:
                memory = max(memory, _C.workgroup_memory(shader.source))
            except RuntimeError:  # a user's kernel in syntax that workgroup_memory() cannot read
                memory = limits["max_workgroup_storage"]
        for command in capture.listing.commands:  # of sizes that a call decides, the largest
            if command.kind == "dispatch":
                workgroups = max(workgroups, *command.grid)
                binding = max([binding, *(size for _, _, size in command.parts)])
                for _, offset, _ in command.parts:
                    alignment = math.gcd(alignment, offset)
        sizes = [buffer.bytes for buffer in self.buffers]
        sizes += [tensor.extent for tensor in capture.listing.tensors]
        uses_subgroups = bool(enabled - {"f16"})
        sizes_here = limits["subgroup_min_size"], limits["subgroup_max_size"]
        return form.LanguageRequirements(
            features=sorted(_FEATURES.get(name, name) for name in enabled),
            limits={
                "maxStorageBuffersPerShaderStage": buffers,
                "maxStorageBufferBindingSize": binding,
                "maxBufferSize": max(sizes, default=0),
                "maxComputeWorkgroupsPerDimension": workgroups,
                "maxComputeWorkgroupStorageSize": memory,
                "maxComputeInvocationsPerWorkgroup": invocations,
                "minStorageBufferOffsetAlignment": alignment,
            },
            subgroup_size=(capture.subgroup_size or sizes_here) if uses_subgroups else None,
            language_features=sorted(language),
            software=capture.software,
        )


def _input_view(view: form.View, optional: bool) -> form.InputView:
    members = {name: getattr(view, name) for name in view.__struct_fields__}
    return form.InputView(**members, optional=optional)


_AnyView = TypeVar("_AnyView", bound=form.View)


def _with_shape(view: _AnyView, shape: list[form.Expression] | None) -> _AnyView:
    return view if shape is None else msgspec.structs.replace(view, shape=shape)


def _without_zeros(contents: torch.Tensor) -> torch.Tensor:
    """Bytes without the zeros at their end, which a buffer has by itself: memory is given out in
    larger blocks than tensors need."""
    words = contents.view(torch.int64) if contents.numel() % 8 == 0 else contents.view(torch.int32)
    # From the end in parts: most tensors end with another number, and a mask of all would be large.
    end, part = words.numel(), 1 << 16
    while end > 1:
        found = words[max(end - part, 0) : end].nonzero()
        if found.numel():
            end = max(end - part, 0) + int(found[-1]) + 1
            break
        end = max(end - part, 1)
    return words[:end].view(torch.uint8).clone()


def _version() -> str:
    import torch_webgpu

    return torch_webgpu.__version__


def _check_tensor(what: str, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} must be a tensor, not a {type(tensor).__name__}")
    if tensor.device.type != "webgpu":
        raise ValueError(f"{what} is on {tensor.device}, not on webgpu")


def _dtype_name(what: str, dtype: torch.dtype) -> str:
    if dtype not in form.DTYPE_NAMES:
        raise ValueError(f"{what} is of {dtype}, which a graph file cannot hold")
    return form.DTYPE_NAMES[dtype]

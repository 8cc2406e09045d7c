"""A captured graph as a graph file (docs/graph-format.md)."""

import math
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from safetensors.torch import save_file

from torch_webgpu import _C
from torch_webgpu._shader.prepare import workgroup_size
from torch_webgpu._shader.program import Program as ShaderProgram
from torch_webgpu.graphs import _format as form
from torch_webgpu.graphs._state import to_tree

_ENABLE = re.compile(r"^\s*enable\s+([^;]+);", re.MULTILINE)
# `enable` names of WGSL and the features of WebGPU that have them.
_FEATURES = {
    "f16": "shader-f16",
    "subgroups": "subgroups",
    "chromium_experimental_subgroup_matrix": "chromium-experimental-subgroup-matrix",
}
_NAME = re.compile(r"[^\W\d]\w*")


def save_graph(
    captured: Any,
    path: str | os.PathLike[str],
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    state: Mapping[str, Any],
) -> None:
    """Writes the file. `captured` is the runtime's graph; the rest as `Graph.save` has it.

    Raises RuntimeError during a capture.
    """
    if _C.is_capturing():
        raise RuntimeError("a graph cannot be saved while a graph is captured")
    writer = _Writer(_C.list_graph(captured))
    program = writer.program(inputs, outputs, state)
    metadata = {
        form.VERSION_KEY: form.VERSION,
        form.PROGRAM_KEY: msgspec.json.encode(program).decode(),
    }
    # The old file, if there is one, stays until the new one is complete.
    path = os.fsdecode(path)
    partial = f"{path}.partial"
    try:
        save_file(writer.entries, partial, metadata=metadata)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


class _Writer:
    """The buffers of a file: those that all replays share come first, then the scratch."""

    def __init__(self, listing: Any) -> None:
        self.listing = listing
        self.entries: dict[str, torch.Tensor] = {}
        self.buffers: list[form.Buffer] = []
        self.by_allocation = {t.allocation: k for k, t in enumerate(listing.tensors)}
        self.input_names: set[str] = set()
        self.number: dict[int, int] = {}  # of a listed tensor: its buffer
        self.stored: dict[tuple[object, ...], str] = {}
        self.alive: list[torch.Tensor] = []  # so that no other tensor gets its address

    def program(
        self,
        inputs: Mapping[str, torch.Tensor],
        outputs: Mapping[str, torch.Tensor],
        state: Mapping[str, Any],
    ) -> form.Program:
        for name in (*inputs, *outputs):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot name an input or output: it is no identifier")
        self.input_names = set(inputs)
        input_views = {name: self._input(name, tensor) for name, tensor in inputs.items()}
        trees = {}
        for name, holder in state.items():
            states = holder.state_dict() if hasattr(holder, "state_dict") else holder
            trees[name] = to_tree(states, name, self._state)
        output_views = {name: self._output(name, tensor) for name, tensor in outputs.items()}
        for k, tensor in enumerate(self.listing.tensors):
            if k not in self.number and not tensor.own:
                self._add(k, entry=self._contents(k, f"constant.{len(self.buffers)}"))
        scratch = self._scratch()
        numbers, commands = self._commands()
        return form.Program(
            producer=f"torch-webgpu {_version()}",
            buffers=self.buffers,
            shaders=[self._shader(shader) for shader in self.listing.shaders],
            variants=[
                form.Variant(
                    requires=self._requirements(commands), scratch=scratch, commands=commands
                )
            ],
            inputs=input_views,
            outputs=output_views,
            numbers=numbers,
            state=trees,
            messages={str(code): message for code, message in self.listing.messages.items()},
        )

    # ---- Tensors

    def _listed(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage among those that commands use."""
        return self.by_allocation.get(_C.allocation_of(tensor))

    def _add(self, k: int, *, entry: str | None) -> None:
        tensor = self.listing.tensors[k]
        self.number[k] = len(self.buffers)
        size = max(tensor.extent, tensor.requested)
        self.buffers.append(form.Buffer(bytes=-(-size // 4) * 4, entry=entry))

    def _used(self, what: str, tensor: torch.Tensor, how: str) -> int:
        """The number of an input's or output's storage among those that commands use."""
        _check_tensor(what, tensor)
        k = self._listed(tensor)
        if k is None:
            raise ValueError(f"{what} is not {how} by the graph")
        return k

    def _view(self, what: str, tensor: torch.Tensor, k: int) -> form.View:
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            raise ValueError(f"{what} is not contiguous; capture the .contiguous() of it instead")
        offset = _C.byte_offset(tensor)
        if offset % 4:
            raise ValueError(f"{what} does not start at a multiple of 4 bytes in its storage")
        return form.View(
            buffer=self.number[k],
            offset=offset,
            dtype=_dtype_name(what, tensor.dtype),
            shape=list(tensor.shape),
        )

    def _input(self, name: str, tensor: torch.Tensor) -> form.View:
        what = f"the input {name!r}"
        k = self._used(what, tensor, "used")
        if self.listing.tensors[k].own:
            raise ValueError(f"{what} was made in the capture; an input must exist before it")
        if k not in self.number:
            covers = tensor.nbytes == self.listing.tensors[k].requested
            self._add(k, entry=None if covers else self._contents(k, f"storage.{name}"))
        view = self._view(what, tensor, k)
        end = view.offset + tensor.nbytes
        if tensor.nbytes % 4 and end != self.listing.tensors[k].requested:
            raise ValueError(f"{what} ends within a word that belongs to other elements as well")
        return view

    def _output(self, name: str, tensor: torch.Tensor) -> form.View:
        what = f"the output {name!r}"
        k = self._used(what, tensor, "written")
        if k not in self.number:
            own = self.listing.tensors[k].own
            self._add(k, entry=None if own else self._contents(k, f"storage.{name}"))
        return self._view(what, tensor, k)

    def _state(self, tensor: torch.Tensor, path: str) -> form.View:
        k = self._listed(tensor) if tensor.device.type == "webgpu" and tensor.numel() else None
        if k is None or not tensor.is_contiguous():
            if k is not None:
                raise ValueError(f"{path} is not contiguous, so a graph file cannot hold it")
            return form.View(
                entry=self._store(path, tensor),
                dtype=_dtype_name(path, tensor.dtype),
                shape=list(tensor.shape),
            )
        listed = self.listing.tensors[k]
        if k not in self.number:
            covers = _C.byte_offset(tensor) == 0 and tensor.nbytes == listed.requested
            entry = self._store(path, tensor) if covers else self._contents(k, f"storage.{path}")
            self._add(k, entry=entry)
        elif self.buffers[self.number[k]].entry is None:
            # An input that is part of the state as well: it starts with what it holds.
            number = self.number[k]
            self.buffers[number] = msgspec.structs.replace(
                self.buffers[number], entry=self._contents(k, f"storage.{path}")
            )
        return self._view(path, tensor, k)

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

    def _contents(self, k: int, name: str) -> str:
        """Stores the bytes of a listed tensor."""
        name = self._new_entry(name)
        self.entries[name] = self.listing.read(k)
        return name

    def _scratch(self) -> list[form.Scratch]:
        """The tensors that hold nothing between replays. Those that lay in one buffer of the
        capture share memory, so that a replay needs no more than the capture did."""
        # Buffers of outputs also hold nothing before their first command, so scratch may use them.
        homes = {
            self.listing.tensors[k].place: k
            for k, number in self.number.items()
            if self.listing.tensors[k].own and self.buffers[number].entry is None
        }
        slots: dict[int, int] = {}
        scratch: list[form.Scratch] = []
        for k, tensor in enumerate(self.listing.tensors):
            if k in self.number:
                continue
            self.number[k] = len(self.buffers) + len(scratch)
            home = homes.get(tensor.place)
            within = None
            if home is not None and (
                tensor.last_command < self.listing.tensors[home].first_command
            ):
                within = self.number[home]
            if within is not None and self.buffers[within].bytes < tensor.extent:
                self.buffers[within] = msgspec.structs.replace(
                    self.buffers[within], bytes=tensor.extent
                )
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

    # ---- Commands

    def _commands(self) -> tuple[dict[str, form.Number], list[Any]]:
        numbers: dict[str, form.Number] = {}
        names: dict[int, tuple[str, str]] = {}  # of the numbers of a stream that is drawn from
        commands: list[Any] = []
        for command in self.listing.commands:
            parts = [(self.number[k], offset, size) for k, offset, size in command.parts]
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
                stream = command.draw.stream
                if stream not in names:
                    names[stream] = self._add_stream(stream, numbers)
                seed, offset = names[stream]
                moved: form.Expression = ["+", offset, command.draw.counter]
                at = command.draw.at // 4
                words[at : at + 4] = [seed, [">>", seed, 32], moved, [">>", moved, 32]]
            commands.append(
                form.Dispatch(
                    shader=command.shader, bind=parts, grid=tuple(command.grid), words=words
                )
            )
        return numbers, commands

    def _add_stream(self, stream: int, numbers: dict[str, form.Number]) -> tuple[str, str]:
        """The names of a random stream's key and counter, as new numbers."""
        key, counter, increment = self.listing.streams[stream]
        seed, offset = f"seed{stream}", f"offset{stream}"
        while {seed, offset} & self.input_names:
            seed, offset = f"{seed}_", f"{offset}_"
        numbers[seed] = form.Number(type="u64", value=str(key), input=True)
        step = str(increment)
        numbers[offset] = form.Number(type="u64", value=str(counter), step=step, input=True)
        return seed, offset

    def _shader(self, shader: Any) -> form.Shader:
        return form.Shader(
            label=shader.label,
            wgsl=shader.source,
            entry=shader.entry,
            buffers=shader.num_buffers,
            writes=[k for k in range(shader.num_buffers) if shader.writable >> k & 1],
            reports=shader.checks,
            constants=shader.constants,
        )

    def _requirements(self, commands: list[Any]) -> form.Requirements:
        limits = _C.properties()[2]
        enabled: set[str] = set()
        memory = buffers = workgroups = binding = invocations = 0
        alignment = 256  # of a browser: no device has a larger one
        for shader in self.listing.shaders:
            for names in _ENABLE.findall(shader.source):
                enabled.update(name.strip() for name in names.split(","))
            buffers = max(buffers, shader.num_buffers + shader.checks)
            program = ShaderProgram(shader.source, shader.constants)
            invocations = max(invocations, math.prod(workgroup_size(program, shader.entry)))
            try:
                memory = max(memory, _C.workgroup_memory(shader.source))
            except RuntimeError:  # a user's kernel in syntax that workgroup_memory() cannot read
                memory = limits["max_workgroup_storage"]
        for command in commands:
            if isinstance(command, form.Dispatch):
                workgroups = max(workgroups, *(int(n) for n in command.grid))  # type: ignore[arg-type]
                binding = max([binding, *(size for _, _, size in command.bind)])
                for _, offset, _ in command.bind:
                    alignment = math.gcd(alignment, offset)
        sizes = [buffer.bytes for buffer in self.buffers]
        sizes += [tensor.extent for tensor in self.listing.tensors]
        uses_subgroups = bool(enabled - {"f16"})
        return form.Requirements(
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
            subgroup_size=(
                (limits["subgroup_min_size"], limits["subgroup_max_size"])
                if uses_subgroups
                else None
            ),
        )


def _version() -> str:
    import torch_webgpu

    return torch_webgpu.__version__


def _check_tensor(what: str, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} must be a tensor, not a {type(tensor).__name__}")
    if tensor.device.type != "webgpu":
        raise ValueError(f"{what} is on {tensor.device}, not on webgpu")
    if tensor.numel() == 0:
        raise ValueError(f"{what} is empty")


def _dtype_name(what: str, dtype: torch.dtype) -> str:
    if dtype not in form.DTYPE_NAMES:
        raise ValueError(f"{what} is of {dtype}, which a graph file cannot hold")
    return form.DTYPE_NAMES[dtype]

"""What a call computes of what, step by step."""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_webgpu import _C
from torch_webgpu.export._alive import parts_of
from torch_webgpu.export._lines import Line, current, innermost
from torch_webgpu.export._values import (
    Held,
    Layout,
    Memory,
    Operation,
    Values,
    View,
    base_name,
    constant,
    named_arguments,
)

# Operators that in place give all elements of their first argument new values.
_FILLS = {
    *("zero", "fill", "copy", "_foreach_zero", "_foreach_copy"),
    *("uniform", "normal", "log_normal", "cauchy", "exponential", "geometric", "random"),
}
# Whose operators are functions of their arguments. Others may ask Python for more.
_PURE = ("aten::", "prims::", "torch_webgpu::")


def place_of(tensor: torch.Tensor) -> Hashable:
    """The place of a tensor from before the call."""
    return _C.allocation_of(tensor) if is_on_device(tensor) else id(tensor)


def is_on_device(value: Any) -> bool:
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.device.type == "webgpu"
        and value.layout == torch.strided
        and not value.is_nested
        and not value._is_zerotensor()
        and value.numel() > 0
        # Wrappers of functorch and of functionalization, which compilers leave, have no memory.
        and torch._C._has_storage(value)
        and not torch._is_functional_tensor(value)
        and value.untyped_storage().nbytes() > 0
    )


def is_plain_tensor(value: Any) -> bool:
    """Whether it is a strided tensor with memory, on the device or the CPU."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return False
    if value.is_nested or value._is_zerotensor():
        return False
    if value.numel() > 0 and value.device.type == "webgpu":
        return is_on_device(value)
    return value.device.type in ("cpu", "webgpu") and not torch._is_functional_tensor(value)


class Flow(NamedTuple):
    """What a call does. Places are memory, that of a tensor with all its views."""

    outputs: Mapping[str, int]  # values
    changed: Mapping[Hashable, int]  # what lasts, by place: its value after the call
    lines: Mapping[int, Line | None]  # by value
    attributes: Mapping[Hashable, Held] = {}  # the memory of tensors that the call has assigned


def _flow(memory: Memory, outputs: Mapping[str, Any], made: frozenset[Hashable]) -> Flow:
    found = {}
    for name, operand in outputs.items():
        if isinstance(operand, View):
            content = memory.content(operand)
            label = "output", operand.layout.dtype, operand.layout.shape
            found[name] = memory.values.number(label, [content])
            memory.lines.setdefault(found[name], memory.lines.get(content))
        else:
            found[name] = memory.values.number(("output", operand))
    changed = {place: memory.all_of(place) for place in memory.written() - made}
    return Flow(found, changed, memory.lines)


def layout_of(tensor: torch.Tensor) -> Layout:
    def sizes(numbers: Sequence[Any]) -> tuple[Hashable, ...]:
        return tuple(n if isinstance(n, int) else str(n) for n in numbers)

    (offset,) = sizes([tensor.storage_offset()])
    bits = tensor.is_conj(), tensor.is_neg()
    return Layout(tensor.dtype, offset, sizes(tensor.shape), sizes(tensor.stride()), bits)


def _has_all(tensor: torch.Tensor) -> bool:
    """Whether it has all elements of its memory."""
    is_all = tensor.nbytes == tensor.untyped_storage().nbytes()
    return is_all and torch.ops.aten.is_non_overlapping_and_dense.default(tensor)


def unchanging(value: Any) -> Hashable:
    """What is no memory of the device as a label."""
    if not isinstance(value, torch.Tensor):
        return constant(value)
    shape = None if value.is_nested else tuple(value.shape)
    kind = type(value), str(value.device), value.dtype, value.layout, shape
    parts = parts_of(value)
    if list(map(id, parts)) != [id(value)]:
        return *kind, *map(unchanging, parts)
    if value.device.type != "cpu" or value.layout != torch.strided or value._is_zerotensor():
        return kind
    if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return *kind, id(value)  # it is not known what it holds
    if value.is_nested:
        return *kind, *map(unchanging, value.unbind())
    plain = value.dequantize() if value.is_quantized else value.detach()
    plain = plain.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return *kind, hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).digest()


# ---- Of a capture


class Marks(TorchDispatchMode):
    """During a capture, notes which of its commands are those of an operator, and of what line."""

    def __init__(self) -> None:
        super().__init__()
        self._mark = torch.zeros(1, device="webgpu")
        # What follows a mark: commands of an operator, or if None others.
        self._noted: list[tuple[Line | None, Operation | None]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        line = innermost(line for line, _ in current())
        at = len(self._noted)
        self._note(line)
        arguments = self._arguments(func, args, kwargs)
        result = func(*args, **kwargs)
        if arguments is not None:
            self._noted[at] = line, self._operation(func, arguments, args, kwargs, result)
        self._note(line)
        return result

    def _note(self, line: Line | None) -> None:
        self._noted.append((line, None))
        self._mark.zero_()  # the command that stands for it

    def _arguments(self, func: Any, args: Any, kwargs: Any) -> list[tuple[str, Any]] | None:
        """What the operator computes with, or None if that is not all that it may depend on."""
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if not func._schema.name.startswith(_PURE) or not all(map(_is_plain, tensors)):
            return None
        return [
            (name, pytree.tree_map(_operand, value))
            for name, value in _read(func._schema, args, kwargs)
        ]

    def _operation(
        self, func: Any, arguments: list[tuple[str, Any]], args: Any, kwargs: Any, result: Any
    ) -> Operation | None:
        schema = func._schema
        changed = _changed(schema, args, kwargs)
        results: list[Any] = [pytree.tree_map(_operand, value) for value in changed]
        values = result if isinstance(result, tuple) else (result,)
        for returned, value in zip(schema.returns, values, strict=False):
            if returned.alias_info is None:
                if not all(map(_is_plain, pytree.tree_leaves(value))):
                    return None
                results.append(pytree.tree_map(_operand, value))
        return _operation(schema, arguments, results)

    @property
    def place(self) -> Hashable:
        return _C.allocation_of(self._mark)

    @property
    def noted(self) -> Sequence[tuple[Line | None, Operation | None]]:
        return self._noted


def _is_plain(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or (
        type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided
    )


def _operand(value: Any) -> Any:
    if not is_on_device(value):
        return unchanging(value)
    return View(_C.allocation_of(value), layout_of(value), _has_all(value))


def _read(schema: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    """The arguments that an operator reads: not those that it fills."""
    for k, (argument, value) in enumerate(named_arguments(schema, args, kwargs)):
        is_changed = argument.alias_info is not None and argument.alias_info.is_write
        is_filled = k == 0 and is_changed and base_name(schema) in _FILLS
        if not argument.is_out and not is_filled:
            yield argument.name, value


def _changed(schema: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """The arguments that an operator changes in place."""
    for argument, value in named_arguments(schema, args, kwargs):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield value


def _operation(
    schema: Any,
    arguments: Sequence[tuple[str, Any]],
    results: Sequence[Any],
    draws: tuple[Hashable, ...] = (),
) -> Operation:
    name = base_name(schema)
    if name.endswith("_like") or name.startswith("new_"):  # asks for shapes only
        arguments = [
            (label, tuple(value.layout) if isinstance(value, View) else value)
            for label, value in arguments
        ]
    return Operation(name, tuple(arguments), tuple(results), draws)


def of_capture(
    values: Values,
    captured: Any,
    outputs: Mapping[str, torch.Tensor],
    attributes: Mapping[Hashable, torch.Tensor],
    marks: Marks | None = None,
) -> Flow:
    listing = _C.list_graph(captured)
    places = [tensor.allocation for tensor in listing.tensors]
    made = frozenset(tensor.allocation for tensor in listing.tensors if tensor.own)
    memory = Memory(values, made)
    line: Line | None = None
    for line, operation, commands in _segments(listing, places, marks):
        if operation is not None and commands:
            draws = tuple(draw for command in commands for draw in _draws(command))
            memory.operate(operation._replace(draws=draws), line)
            continue
        for command in commands:
            _execute(memory, listing, places, command, line)
    flow = _flow(memory, {name: _operand(x) for name, x in outputs.items()}, made)
    held = {key: memory.at(_C.allocation_of(tensor)) for key, tensor in attributes.items()}
    return flow._replace(attributes=held)


def _draws(command: Any) -> list[Hashable]:
    """Where in a generator's sequence a command begins to draw."""
    return [] if command.draw is None else [(command.draw.stream, command.draw.counter)]


def _segments(
    listing: Any, places: Sequence[Hashable], marks: Marks | None
) -> Iterator[tuple[Line | None, Operation | None, list[Any]]]:
    """The commands between marks."""
    noted = iter(marks.noted if marks is not None else ())
    line: Line | None = None
    operation: Operation | None = None
    commands: list[Any] = []
    for command in listing.commands:
        if marks is not None and [places[k] for k, _, _ in command.parts] == [marks.place]:
            yield line, operation, commands
            line, operation = next(noted)
            commands = []
        else:
            commands.append(command)
    yield line, operation, commands
    if next(noted, None) is not None:
        raise RuntimeError("a capture has other marks than were made")


def _execute(
    memory: Memory, listing: Any, places: Sequence[Hashable], command: Any, line: Line | None
) -> None:
    """A command of which nothing is known but itself."""
    bound = [places[k] for k, _, _ in command.parts]
    # A kernel binds all of a block, which may be larger than the tensor.
    ranges = tuple(
        (offset, min(size, listing.tensors[k].requested - offset))
        for k, offset, size in command.parts
    )
    # Which parts are the same memory.
    same = tuple(bound.index(place) for place in bound)
    label: tuple[Hashable, ...] = command.kind, ranges, same
    written = bound[-1:]  # a copy has its source first
    if command.kind == "dispatch":
        shader = listing.shaders[command.shader]
        constants = tuple(sorted(shader.constants.items()))
        text = shader.source, shader.entry, constants
        label = *label, text, command.params, tuple(command.grid)
        written = [place for k, place in enumerate(bound) if shader.writable >> k & 1]
    draws = map(memory.values.draw, _draws(command))
    computed = memory.values.number(label, [*map(memory.all_of, bound), *draws])
    for k, place in enumerate(dict.fromkeys(written)):
        memory.write_all(place, memory.values.number(("written", k), [computed]), line)


# ---- Of a traced graph


def of_graph(
    values: Values,
    graph: fx.Graph,
    constants: Sequence[torch.Tensor],
    names: Sequence[str],
    line_of: Callable[[fx.Node], Line | None],
) -> Flow:
    """`constants` are the tensors of the last placeholders, `names` those of the outputs."""
    return _Graph(values, graph, constants, line_of).flow(names)


class _Graph:
    def __init__(
        self,
        values: Values,
        graph: fx.Graph,
        constants: Sequence[torch.Tensor],
        line_of: Callable[[fx.Node], Line | None],
    ) -> None:
        self._values = values
        self._graph = graph
        self._line_of = line_of
        self._owners = owners_of(graph)
        placeholders = graph.find_nodes(op="placeholder")
        lasting = placeholders[len(placeholders) - len(constants) :]
        self._tensors = dict(zip(lasting, constants, strict=True))
        inputs = placeholders[: len(placeholders) - len(constants)]
        self._inputs = {node: ("input", k) for k, node in enumerate(inputs)}
        # What the function makes of numbers, as by torch.tensor(0.5), is a new tensor in each run.
        self._lifted = {
            node.args[0]
            for target in (
                torch.ops.aten.lift_fresh.default,
                torch.ops.aten.lift_fresh_copy.default,
            )
            for node in graph.find_nodes(op="call_function", target=target)
        }
        self._draws = 0

    def flow(self, names: Sequence[str]) -> Flow:
        lasting = {*map(place_of, self._tensors.values()), *self._inputs.values()}
        memory = Memory(self._values, ())
        for node in self._graph.nodes:
            if node.op == "call_function" and node.target is not getitem:
                memory.operate(self._operation(node), self._line_of(node))
        (output,) = self._graph.find_nodes(op="output")
        results: Any = output.args[0]
        outputs = {n: self._operand(node) for n, node in zip(names, results, strict=True)}
        return _flow(memory, outputs, frozenset(memory.written() - lasting))

    def _place(self, node: fx.Node) -> Hashable:
        owner = self._owners.get(node, node)
        if owner in self._tensors:
            return place_of(self._tensors[owner])
        if owner in self._inputs:
            return self._inputs[owner]
        if owner.target is getitem:  # one of several results
            return owner.args
        return owner

    def _operand(self, value: Any) -> Any:
        if isinstance(value, fx.Node) and value.op == "get_attr":
            part = getattr(self._graph.owning_module, str(value.target))
            return constant(part.code if isinstance(part, fx.GraphModule) else part)
        if not isinstance(value, fx.Node):
            return constant(value)
        owner = self._owners.get(value, value)
        known = self._tensors.get(owner)
        if known is not None and owner in self._lifted:
            return "lifted", unchanging(known.cpu())
        if known is not None and not is_on_device(known):
            return unchanging(known)
        found = self._tensors.get(value, value.meta.get("val"))
        if not isinstance(found, torch.Tensor):  # a size, or what is computed from some
            return "size", str(found)
        return View(self._place(value), layout_of(found), self._has_all(value, owner))

    def _has_all(self, node: fx.Node, owner: fx.Node) -> bool:
        if owner in self._tensors and not _has_all(self._tensors[owner]):
            return False
        if node is owner:
            return True
        view = node.meta.get("val")
        whole = self._tensors.get(owner, owner.meta.get("val"))
        if not isinstance(view, torch.Tensor) or not isinstance(whole, torch.Tensor):
            return False
        layouts = layout_of(view), layout_of(whole)
        if layouts[0] == layouts[1]:
            return True
        in_order = all(layout.is_contiguous and layout.offset == 0 for layout in layouts)
        return in_order and view.numel() == whole.numel()

    def _operation(self, node: fx.Node) -> Operation:
        is_higher = isinstance(node.target, torch._ops.HigherOrderOperator)
        schema = None if is_higher else getattr(node.target, "_schema", None)
        draws: tuple[Hashable, ...] = ()
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            self._draws += 1
            draws = (self._draws,)
        made = [] if node in self._owners else self._results(node)
        if schema is None:  # may change whatever it is given
            arguments = ("args", self._tree(node.args)), ("kwargs", self._tree(node.kwargs))
            results = (*map(self._operand, node.all_input_nodes), *made)
            return Operation(str(node.target), arguments, results, draws)
        read = [(x, self._tree(value)) for x, value in _read(schema, node.args, node.kwargs)]
        changed = [self._tree(value) for value in _changed(schema, node.args, node.kwargs)]
        return _operation(schema, read, [*changed, *made], draws)

    def _results(self, node: fx.Node) -> list[Any]:
        found = node.meta.get("val")
        if isinstance(found, torch.Tensor):
            return [View(node, layout_of(found), True)]
        if not isinstance(found, (list, tuple)):
            return []
        views = [
            View((node, k), layout_of(x), True) if isinstance(x, torch.Tensor) else constant(x)
            for k, x in enumerate(found)
        ]
        return [views] if isinstance(found, list) else list(views)

    def _tree(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._tree(part) for part in value]
        if isinstance(value, dict):
            return [self._tree(part) for part in value.values()]
        return self._operand(value)


def owners_of(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Of nodes whose results are memory of another node's: that node."""
    owners: dict[fx.Node, fx.Node] = {}
    parts: dict[object, fx.Node] = {}  # of the results of operators that have several
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is getitem:
            whole: Any = node.args[0]
            owner = owners.get(whole) or parts.setdefault(node.args, node)
            if owner is not node:
                owners[node] = owner
        elif _shares(node):
            for _, value in _aliased(node):
                owners[node] = owners.get(value, value)
                break
    return owners


def written_by(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operator changes in place."""
    if isinstance(node.target, torch._ops.HigherOrderOperator):  # which do not say
        return node.all_input_nodes
    return [value for is_write, value in _aliased(node) if is_write]


def _shares(node: fx.Node) -> bool:
    """Whether an operator returns memory of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(x.alias_info is not None for x in schema.returns)


def _aliased(node: fx.Node) -> Iterator[tuple[bool, fx.Node]]:
    """The arguments that an operator changes, or returns memory of, and whether it changes them."""
    schema = getattr(node.target, "_schema", None)
    for k, argument in enumerate(schema.arguments if schema else ()):
        if argument.alias_info is None:
            continue
        value = node.args[k] if k < len(node.args) else node.kwargs.get(argument.name)
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(part, fx.Node):
                yield argument.alias_info.is_write, part

"""Which memory a call reads and writes, step by step."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_webgpu import _C
from torch_webgpu.export._lines import Line, current, innermost

Places = frozenset[Hashable]

# Operators that give all elements of their first argument new values.
_FILLS = {"zero_", "fill_", "copy_", "_foreach_zero_", "_foreach_copy_", "uniform_", "normal_"}


def place_of(tensor: torch.Tensor) -> Hashable:
    """The place of a tensor from before the call."""
    return _C.allocation_of(tensor) if _is_on_device(tensor) else id(tensor)


def _is_on_device(value: Any) -> bool:
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.device.type == "webgpu"
        and value.layout == torch.strided
        and not value._is_zerotensor()
        and value.numel() > 0
    )


class Step(NamedTuple):
    reads: Places
    writes: Places
    fresh: Places = frozenset()  # those written of which nothing is left from before
    line: Line | None = None  # of the user's, if it was noted


class Flow(NamedTuple):
    """What a call does. Places are memory, that of a tensor with all its views."""

    steps: Sequence[Step]
    outputs: Mapping[str, Hashable]
    lasting: Places  # those from before the call

    @property
    def changed(self) -> Counter[Hashable]:
        """How often it writes what it writes of what lasts."""
        return Counter(x for step in self.steps for x in step.writes if x in self.lasting)


class Reached(NamedTuple):
    """Where the contents of some memory get to."""

    sources: Places
    line: Line | None


def reached(flow: Flow, sources: Iterable[Hashable]) -> list[Reached]:
    """Where what `sources` hold before the call gets to: outputs, and what lasts besides them."""
    found: list[Reached] = []
    held: dict[Hashable, set[Hashable]] = {place: {place} for place in sources}
    lasting = flow.lasting - held.keys()
    lines: dict[Hashable, Line | None] = {}
    for step in flow.steps:
        read: set[Hashable] = set().union(*(held.get(place, ()) for place in step.reads))
        for place in step.writes:
            held[place] = read if place in step.fresh else read | held.get(place, set())
            lines[place] = step.line
        if read and step.writes & lasting:
            found.append(Reached(frozenset(read), step.line))
    for place in flow.outputs.values():
        if held.get(place):
            found.append(Reached(frozenset(held[place]), lines.get(place)))
    return found


# ---- Of a capture


class Marks(TorchDispatchMode):
    """During a capture, notes between which of its commands a line was executed, and which of them
    give memory wholly new contents, which the commands themselves do not tell."""

    def __init__(self) -> None:
        super().__init__()
        self._mark = torch.zeros(1, device="webgpu")
        self._noted: list[tuple[Line | None, frozenset[int]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        filled = _filled(func, args, kwargs)
        line = innermost(line for line, _ in current())
        self._note(line, filled)
        result = func(*args, **kwargs)
        if filled:
            self._note(line, frozenset())
        return result

    def _note(self, line: Line | None, filled: frozenset[int]) -> None:
        if not self._noted or self._noted[-1] != (line, filled):
            self._noted.append((line, filled))
            self._mark.zero_()  # the command that stands for it

    @property
    def place(self) -> Hashable:
        return _C.allocation_of(self._mark)

    def read(self) -> Iterator[tuple[Line | None, frozenset[int]]]:
        """What was noted, mark by mark."""
        yield from self._noted
        raise RuntimeError("a capture has other marks than were made")


def _filled(func: Any, args: Any, kwargs: Any) -> frozenset[int]:
    """The memory of which all elements get new values, whatever they were."""
    if func._schema.name.partition("::")[2] not in _FILLS:
        return frozenset()
    first, *others = args
    targets = first if isinstance(first, (list, tuple)) else [first]
    found = {_C.allocation_of(x) for x in targets if _is_on_device(x) and _has_all(x)}
    read = {_C.allocation_of(x) for x in pytree.tree_leaves((others, kwargs)) if _is_on_device(x)}
    return frozenset(found - read)


def _has_all(tensor: torch.Tensor) -> bool:
    """Whether it has all elements of its memory."""
    is_all = tensor.nbytes == tensor.untyped_storage().nbytes()
    return is_all and torch.ops.aten.is_non_overlapping_and_dense.default(tensor)


def of_capture(
    captured: Any, outputs: Mapping[str, torch.Tensor], marks: Marks | None = None
) -> Flow:
    listing = _C.list_graph(captured)
    places = [tensor.allocation for tensor in listing.tensors]
    noted = iter(()) if marks is None else marks.read()
    line: Line | None = None
    filled: frozenset[int] = frozenset()
    steps = []
    for command in listing.commands:
        bound = [places[k] for k, _, _ in command.parts]
        if marks is not None and bound == [marks.place]:
            line, filled = next(noted)
            continue
        if command.kind == "dispatch":
            writable = listing.shaders[command.shader].writable
            writes = {place for k, place in enumerate(bound) if writable >> k & 1}
        else:  # a copy has its source first
            writes = {bound[-1]}
        fresh = frozenset(writes & filled)
        steps.append(Step(frozenset(bound) - fresh, frozenset(writes), fresh, line))
    return Flow(
        steps,
        {name: _C.allocation_of(x) for name, x in outputs.items() if _is_on_device(x)},
        frozenset(tensor.allocation for tensor in listing.tensors if not tensor.own),
    )


# ---- Of a traced graph


def of_graph(
    graph: fx.Graph,
    constants: Sequence[torch.Tensor],
    names: Sequence[str],
    line_of: Callable[[fx.Node], Line | None],
) -> Flow:
    """`constants` are the tensors of the last placeholders, `names` those of the outputs."""
    owners = owners_of(graph)
    placeholders = graph.find_nodes(op="placeholder")
    tensors = dict(zip(placeholders[len(placeholders) - len(constants) :], constants, strict=True))
    lasting = {node: place_of(tensor) for node, tensor in tensors.items()}

    def place(node: fx.Node) -> Hashable:
        owner = owners.get(node, node)
        return lasting.get(owner, owner)

    def has_all(node: fx.Node) -> bool:
        """Whether it has all elements of its memory. Others than those of `constants` need not be
        known to be filled."""
        view, whole = node.meta.get("val"), tensors.get(owners.get(node, node))
        if whole is None or not _has_all(whole):
            return False
        return node in tensors or (view is not None and view.numel() == whole.numel())

    steps = []
    for node in graph.nodes:
        if node.op != "call_function" or node.target is getitem:
            continue
        writes = frozenset(map(place, written_by(node)))
        filled, read = _filled_by(node)
        fresh = frozenset(map(place, filter(has_all, filled))) - frozenset(map(place, read))
        if node not in owners:  # memory of its own
            writes |= {node}
            fresh |= {node}
        inputs = [] if _reads_nothing(node) else node.all_input_nodes
        steps.append(Step(frozenset(map(place, inputs)) - fresh, writes, fresh, line_of(node)))
    (output,) = graph.find_nodes(op="output")
    results: Any = output.args[0]
    outputs = {name: place(node) for name, node in zip(names, results, strict=True)}
    return Flow(steps, outputs, frozenset(lasting.values()))


def owners_of(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Of nodes whose results are memory of another node's: that node."""
    owners: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is getitem:
            whole = node.args[0]
            owners[node] = owners.get(whole, whole)
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


def _filled_by(node: fx.Node) -> tuple[list[fx.Node], list[fx.Node]]:
    """The arguments of which an operator gives all elements new values, and the others."""
    filled: list[fx.Node] = []
    read: list[fx.Node] = []
    if _name_of(node) in _FILLS:
        first, *others = node.args
        fx.map_arg(first, filled.append)
        fx.map_arg((others, node.kwargs), read.append)
    return filled, read


def _reads_nothing(node: fx.Node) -> bool:
    """Whether an operator asks its arguments for their shapes only."""
    name = _name_of(node)
    return name.endswith("_like") or name.startswith("new_")


def _name_of(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return schema.name.partition("::")[2] if schema else ""

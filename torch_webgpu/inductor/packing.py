"""Which parts share a dispatch, where each binds some of a kernel's few storage buffers.

The parts of an optimizer's step are of two kinds: step counts, of one buffer each, and tensors with
their state, which read them. Inductor makes a list of each. What is left of a dispatch of tensors
is filled with step counts of later ones, so that both together take as few as their buffers need.

Elsewhere, small kernels that stand near each other and do not depend on each other share one, such
as the products of one token's vector with the weights of query, key and value.
"""

import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch_webgpu.inductor import lanes
from torch_webgpu.inductor.interface import buffer_budget

# Parts of a dispatch: each is a function of its own in the shader.
_MOST_PARTS = 24
# Small kernels that share a dispatch, and how many nodes one of them may pass on its way there: the
# farther it moves, the longer lives what it computes.
_MOST_NEIGHBOURS = 8
_FARTHEST = 8
# Elements that a small kernel visits at most. A larger one runs much longer than a dispatch costs,
# and needs registers of its own only.
_MOST_ELEMENTS = 1 << 24


class Part(NamedTuple):
    """What is known of a part before its code is written."""

    node: Any
    buffers: set[str]
    may_raise: bool
    operations: set[str]
    ancestors: set[str]  # operations that are done before


def packed(parts: list[Part]) -> list[list[Part]]:
    """The parts in as few dispatches as are found, each after what its parts depend on."""
    largest_first = sorted(parts, key=lambda part: -len(part.buffers))
    return min(_filled(parts), _filled(largest_first), key=len)


def _filled(waiting: list[Part]) -> list[list[Part]]:
    """Fills dispatches greedily: each takes parts that are ready and fit, in the order given."""
    dispatches = []
    while waiting:
        undone = {name for part in waiting for name in part.operations}
        dispatch: list[Part] = []
        rest = []
        used: set[str] = set()
        may_raise = False
        for part in waiting:
            together = used | part.buffers
            fits = len(together) <= buffer_budget(may_raise or part.may_raise)
            is_ready = undone.isdisjoint(part.ancestors - part.operations)
            if is_ready and (fits or not dispatch) and len(dispatch) < _MOST_PARTS:
                dispatch.append(part)
                used = together
                may_raise |= part.may_raise
            else:
                rest.append(part)
        assert dispatch, "parts of a dispatch wait for each other"
        dispatches.append(dispatch)
        waiting = rest
    return dispatches


def pack_lists(scheduler: Any, nodes: list[Any]) -> list[Any]:
    """The scheduler's nodes, with lists of parts that follow each other packed together."""
    result: list[Any] = []
    for is_list, run in itertools.groupby(nodes, key=_is_list):
        lists = list(run)
        result += _repacked(scheduler, lists) if is_list and len(lists) > 1 else lists
    return result


class _Dispatch:
    """Parts that are to share one."""

    def __init__(self, part: Part) -> None:
        self.parts = [part]
        self.buffers = part.buffers
        self.may_raise = part.may_raise
        self.operations = part.operations

    def takes(self, part: Part) -> bool:
        budget = buffer_budget(self.may_raise or part.may_raise)
        return len(self.parts) < _MOST_NEIGHBOURS and len(self.buffers | part.buffers) <= budget

    def add(self, part: Part) -> None:
        self.parts.append(part)
        self.buffers = self.buffers | part.buffers
        self.may_raise |= part.may_raise
        self.operations = self.operations | part.operations


def combine_neighbours(scheduler: Any, nodes: list[Any]) -> list[Any]:
    """The scheduler's nodes, with small independent ones that stand near each other combined."""
    entries: list[Any] = []  # nodes, and dispatches of small ones
    for node in nodes:
        if not _is_small(node):
            entries.append(node)
            continue
        part = scheduler.get_backend(node.get_device()).part(node)
        chosen = None  # the earliest, so that what waits for the node can follow it
        for entry in reversed(entries[-_FARTHEST:]):
            is_dispatch = type(entry) is _Dispatch
            before = entry.operations if is_dispatch else entry.get_operation_names()
            if not part.ancestors.isdisjoint(before):
                break
            if is_dispatch and entry.takes(part):
                chosen = entry
        if chosen is None:
            entries.append(_Dispatch(part))
        else:
            chosen.add(part)
    result = []
    for entry in entries:
        if type(entry) is not _Dispatch:
            result.append(entry)
        elif len(entry.parts) == 1:
            result.append(entry.parts[0].node)
        else:
            result.append(_combined(scheduler, entry.parts))
    return result


def _is_small(node: Any) -> bool:
    """Whether the node is a kernel of few elements."""
    from torch._inductor.scheduler import FusedSchedulerNode, SchedulerNode

    if type(node) not in (SchedulerNode, FusedSchedulerNode) or node.is_template():
        return False
    if node.get_device() is None or node.get_device().type != "webgpu":
        return False
    elements = max(math.prod(map(lanes.size_hint, each.group[1])) for each in node.get_nodes())
    return elements <= _MOST_ELEMENTS


def _combined(scheduler: Any, parts: list[Part]) -> Any:
    from torch._inductor.scheduler import ForeachKernelSchedulerNode

    members = [part.node for part in parts]
    node = ForeachKernelSchedulerNode(scheduler, members, use_custom_partition_algo=False)
    scheduler.name_to_fused_node.update({each.get_name(): node for each in node.get_nodes()})
    return node


def _is_list(node: Any) -> bool:
    return bool(node.is_foreach() and node.get_device().type == "webgpu")


def _repacked(scheduler: Any, lists: Iterable[Any]) -> list[Any]:
    parts = [part for node in lists for part in node.get_subkernel_nodes()]
    backend = scheduler.get_backend(parts[0].get_device())
    return [
        _combined(scheduler, dispatch)
        for dispatch in packed([backend.part(node) for node in parts])
    ]

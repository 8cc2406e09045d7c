"""Which parts share a dispatch, where each binds some of a kernel's few storage buffers.

The parts of an optimizer's step are of two kinds: step counts, of one buffer each, and tensors with
their state, which read them. Inductor makes a list of each. What is left of a dispatch of tensors
is filled with step counts of later ones, so that both together take as few as their buffers need.
"""

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch_webgpu.inductor.interface import buffer_budget

# Parts of a dispatch: each is a function of its own in the shader.
_MOST_PARTS = 24


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


def _is_list(node: Any) -> bool:
    return bool(node.is_foreach() and node.get_device().type == "webgpu")


def _repacked(scheduler: Any, lists: Iterable[Any]) -> list[Any]:
    from torch._inductor.scheduler import ForeachKernelSchedulerNode

    parts = [part for node in lists for part in node.get_subkernel_nodes()]
    backend = scheduler.get_backend(parts[0].get_device())
    result = []
    for dispatch in packed([backend.part(node) for node in parts]):
        members = [part.node for part in dispatch]
        node = ForeachKernelSchedulerNode(scheduler, members, use_custom_partition_algo=False)
        scheduler.name_to_fused_node.update({each.get_name(): node for each in node.get_nodes()})
        result.append(node)
    return result

"""torch.compile(mode="reduce-overhead"): graphs of what Inductor would give to CUDA graphs.

A compiled function runs as it is at its first call, is captured at the second, and is replayed from
then on. Unlike on CUDA no result is ever overwritten while somebody holds it: such a call runs
without the graph.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

from torch_webgpu import _C
from torch_webgpu.graphs import Graph, graph

Function = Callable[[list[Any]], Any]
MOST_SHAPES = 8  # for which a function with dynamic sizes is captured


class Replayed:
    """A compiled function, replayed where that is safe.

    static: numbers of the inputs that may lie at the same place in every call, such as parameters.
    Those that turn out to move are copied, as all other inputs are.
    mutated: numbers of the inputs that the function writes into.
    """

    def __init__(self, function: Function, static: Sequence[int], mutated: Sequence[int]) -> None:
        self.function = function
        self.static = set(static)
        self.mutated = tuple(mutated)
        self.places: dict[int, int] = {}  # of static inputs
        self.seen: set[Any] = set()
        self.captures: dict[Any, _Capture | None] = {}  # None: cannot be captured

    def __call__(self, inputs: list[Any]) -> Any:
        if _C.is_capturing():  # a graph of the user's
            return self.function(inputs)
        shapes = tuple(None if isinstance(x, torch.Tensor) else x for x in inputs)
        self._forget_what_moved(inputs)
        if shapes not in self.seen:
            if len(self.seen) < MOST_SHAPES:
                self.seen.add(shapes)
            return self.function(inputs)
        if shapes not in self.captures:
            self.captures[shapes] = self._capture(inputs)
        capture = self.captures[shapes]
        if capture is None:
            return self.function(inputs)
        if capture.is_in_use():
            counters["inductor"]["webgpu_graph_passed_over"] += 1
            return self.function(inputs)
        counters["inductor"]["webgpu_graph_replays"] += 1
        return capture.replay(inputs)

    def _forget_what_moved(self, inputs: list[Any]) -> None:
        places = {
            k: inputs[k].data_ptr() for k in self.static if isinstance(inputs[k], torch.Tensor)
        }
        moved = [k for k, place in places.items() if self.places.setdefault(k, place) != place]
        if moved:
            self.static.difference_update(moved)
            for shapes in [s for s, capture in self.captures.items() if capture is not None]:
                del self.captures[shapes]

    def _capture(self, inputs: list[Any]) -> "_Capture | None":
        try:
            return _Capture(self, inputs)
        except RuntimeError as error:
            log_cudagraph_skip_and_bump_counter(f"skipping graphs due to {error}")
            return None


class _Capture:
    """One graph: of one set of sizes."""

    def __init__(self, owner: Replayed, inputs: list[Any]) -> None:
        self.own = list(inputs)
        self.copied = []
        for k, x in enumerate(inputs):
            if not isinstance(x, torch.Tensor):
                continue
            if x.device.type != "webgpu":
                raise RuntimeError("an input on another device")
            if k not in owner.static:
                if torch._debug_has_internal_overlap(x) != 0:
                    raise RuntimeError("an input whose elements share memory")
                self.own[k] = torch.empty_strided(
                    x.size(), x.stride(), dtype=x.dtype, device=x.device
                )
                self.copied.append(k)
        self.written_back = [k for k in owner.mutated if k in self.copied]
        self.graph = Graph()
        with graph(self.graph):
            self.outputs = owner.function(list(self.own))
        # By output: the input whose memory it shares (holders), or its storage's reference count
        # while the caller holds no result (uses).
        self.holders: dict[int, int] = {}
        self.uses: dict[int, int] = {}
        storages = {
            x.untyped_storage()._cdata: k
            for k, x in enumerate(self.own)
            if isinstance(x, torch.Tensor)
        }
        for number, output in enumerate(self.outputs):
            if isinstance(output, torch.Tensor):
                holder = storages.get(output.untyped_storage()._cdata)
                if holder is None:
                    self.uses[number] = self._uses(number)
                else:
                    self.holders[number] = holder

    def _uses(self, number: int) -> int:
        return torch._C._storage_Use_Count(self.outputs[number].untyped_storage()._cdata)

    def is_in_use(self) -> bool:
        """Whether somebody holds a result of the last replay."""
        return any(self._uses(number) != uses for number, uses in self.uses.items())

    def replay(self, inputs: list[Any]) -> list[Any]:
        for k in self.copied:
            self.own[k].copy_(inputs[k])
        self.graph.replay()
        for k in self.written_back:
            inputs[k].copy_(self.own[k])
        outputs = [self._result(number, inputs) for number in range(len(self.outputs))]
        inputs.clear()
        return outputs

    def _result(self, number: int, inputs: list[Any]) -> Any:
        output = self.outputs[number]
        if number in self.uses:
            return output.detach()  # whoever holds it keeps the memory in use
        if number not in self.holders:
            return output  # not a tensor
        k = self.holders[number]
        offset = output.storage_offset() - self.own[k].storage_offset()
        return inputs[k].as_strided(
            output.size(), output.stride(), inputs[k].storage_offset() + offset
        )

"""torch.compile(mode="reduce-overhead"): graphs of what Inductor would give to CUDA graphs.

A compiled function runs as it is at its first call, is captured at the second, and is replayed from
then on. Unlike on CUDA no result is ever overwritten while somebody holds it: such a call runs
without the graph.

What a graph computed lies in its private pool until nobody holds it, always at the same place. So
another graph can read it there: the backward graph reads what the forward graph saved, and a graph
behind a graph break what the one before it returned.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

from torch_webgpu import _C, webgpu
from torch_webgpu.graphs import Graph, graph

Function = Callable[[list[Any]], Any]
MOST_SHAPES = 8  # for which a function with dynamic sizes is captured
# Calls in a row with inputs elsewhere than at the capture, after which the function is captured
# again; and captures after which an input that was elsewhere each time is copied instead.
_MOST_MISSES = 2
_MOST_MOVES = 2
# Bytes of a result that is copied for the caller, so that the next call can be replayed while the
# result of this one is held.
_MOST_COPIED_OUT = 1 << 20

# For callers in several threads. Held during a capture, which would record their work too, and from
# the copies of a replay's inputs until the caller holds its results.
_lock = threading.RLock()
# The storages of what graphs computed.
_in_pools: set[int] = set()


class Replayed:
    """A compiled function, replayed where that is safe.

    static: numbers of the inputs that may lie at the same place in every call, such as parameters
    and what the forward pass saved. A graph reads them there; it copies all other inputs.
    mutated: numbers of the inputs that the function writes into.
    device: that of the tensors. A call with tensors on another one runs without a graph.
    """

    def __init__(
        self,
        function: Function,
        static: Sequence[int],
        mutated: Sequence[int],
        device: torch.device,
    ) -> None:
        self.function = function
        self.static = set(static)
        self.mutated = tuple(mutated)
        self.device = device
        self.copied: set[int] = set()  # inputs that moved too often to be read where they lie
        self.moves: Counter[int] = Counter()
        # By sizes: where inputs lay at the first call, then the graph. None: cannot be captured.
        self.first: dict[Any, dict[int, int]] = {}
        self.captures: dict[Any, _Capture | None] = {}

    def __call__(self, inputs: list[Any]) -> Any:
        with _lock:
            in_capture = _C.is_capturing()  # of a graph of the user's
            outputs = None if in_capture else self._replay(inputs)
        return self.function(inputs) if outputs is None else outputs

    def _replay(self, inputs: list[Any]) -> list[Any] | None:
        """The results of a graph. None: none is to be replayed."""
        shapes = tuple(None if isinstance(x, torch.Tensor) else x for x in inputs)
        if shapes not in self.first:
            if len(self.first) < MOST_SHAPES:
                self.first[shapes] = {k: p for k in self.static if (p := _place(inputs[k]))}
            return None
        if shapes not in self.captures:
            self.captures[shapes] = self._capture(shapes, inputs)
        capture = self.captures[shapes]
        if capture is not None and (moved := capture.moved(inputs)):
            capture = self._after_a_miss(shapes, capture, moved, inputs)
        if capture is None:
            return None
        if capture.is_in_use():
            capture.copy_out()
            counters["inductor"]["webgpu_graph_passed_over"] += 1
            return None
        counters["inductor"]["webgpu_graph_replays"] += 1
        return capture.replay(inputs)

    def _capture(self, shapes: Any, inputs: list[Any]) -> "_Capture | None":
        """Inputs are read where they lie if they lay there before, or where a graph left them."""
        first = self.first[shapes]
        places = {}
        for k, x in enumerate(inputs):
            place = _place(x)
            if place is None or k in self.copied:
                continue
            if first.get(k) == place or x.untyped_storage()._cdata in _in_pools:
                places[k] = place
        try:
            return _Capture(self, inputs, places)
        except RuntimeError as error:
            log_cudagraph_skip_and_bump_counter(f"skipping graphs due to {error}")
            return None

    def _after_a_miss(
        self, shapes: Any, capture: "_Capture", moved: list[int], inputs: list[Any]
    ) -> "_Capture | None":
        """The graph for inputs that are not where it reads them. None: none for this call."""
        counters["inductor"]["webgpu_graph_inputs_moved"] += 1
        capture.misses += 1
        if capture.misses < _MOST_MISSES:
            return None
        self.moves.update(moved)
        self.copied.update(k for k in moved if self.moves[k] >= _MOST_MOVES)
        self.first[shapes] = {k: p for k in self.static if (p := _place(inputs[k]))}
        self.captures[shapes] = self._capture(shapes, inputs)
        return self.captures[shapes]


def _place(x: Any) -> int | None:
    return x.data_ptr() if isinstance(x, torch.Tensor) else None


class _Capture:
    """One graph: of one set of sizes. `places`: where it reads inputs, by their numbers."""

    def __init__(self, owner: Replayed, inputs: list[Any], places: dict[int, int]) -> None:
        self.own = list(inputs)
        self.places = places
        self.misses = 0  # in a row
        self.copied = []
        for k, x in enumerate(inputs):
            if not isinstance(x, torch.Tensor):
                continue
            if x.device != owner.device:
                raise RuntimeError("an input on another device")
            if k not in places:
                if torch._debug_has_internal_overlap(x) != 0:
                    raise RuntimeError("an input whose elements share memory")
                self.own[k] = torch.empty_strided(
                    x.size(), x.stride(), dtype=x.dtype, device=x.device
                )
                self.copied.append(k)
        self.written_back = [k for k in owner.mutated if k in self.copied]
        self.graph = Graph()
        with webgpu.device(owner.device), graph(self.graph):
            self.outputs = list(owner.function(list(self.own)))
        # By output: its storage's reference count while the caller holds no result; or where it
        # lies in an input: the input's number, size, stride, distance from the input's start.
        self.uses: dict[int, int] = {}
        self.views: dict[int, tuple[int, Any, Any, int]] = {}
        self.copied_out: set[int] = set()
        storages = {
            x.untyped_storage()._cdata: k
            for k, x in enumerate(self.own)
            if isinstance(x, torch.Tensor)
        }
        for number, output in enumerate(self.outputs):
            if not isinstance(output, torch.Tensor):
                continue
            storage = output.untyped_storage()._cdata
            if storage not in storages:
                self.uses[number] = self._uses(number)
                continue
            k = storages[storage]
            if output.dtype != inputs[k].dtype:
                raise RuntimeError("a result that is an input in another dtype")
            distance = output.storage_offset() - self.own[k].storage_offset()
            self.views[number] = (k, output.size(), output.stride(), distance)
            self.outputs[number] = None
        # What lies in the pool of another graph is not to be held from here.
        for k in places:
            self.own[k] = None
        made = {self.outputs[number].untyped_storage()._cdata for number in self.uses}
        _in_pools.update(made)
        weakref.finalize(self, _in_pools.difference_update, made)

    def moved(self, inputs: list[Any]) -> list[int]:
        """The inputs that are not where the graph reads them."""
        moved = [k for k, place in self.places.items() if inputs[k].data_ptr() != place]
        if not moved:
            self.misses = 0
        return moved

    def _uses(self, number: int) -> int:
        return torch._C._storage_Use_Count(self.outputs[number].untyped_storage()._cdata)

    def is_in_use(self) -> bool:
        """Whether somebody holds a result of the last replay."""
        return any(self._uses(number) != uses for number, uses in self.uses.items())

    def copy_out(self) -> None:
        """Has later replays copy the small ones of the results that somebody holds."""
        for number in [n for n, uses in self.uses.items() if self._uses(n) != uses]:
            output = self.outputs[number]
            small = output.untyped_storage().nbytes() <= _MOST_COPIED_OUT
            if small and torch._debug_has_internal_overlap(output) == 0:
                self.copied_out.add(number)

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
        if number in self.copied_out:
            copy = torch.empty_strided(
                output.size(), output.stride(), dtype=output.dtype, device=output.device
            )
            return copy.copy_(output)
        if number in self.uses:
            return output.detach()  # whoever holds it keeps the memory in use
        if number not in self.views:
            return output  # not a tensor
        k, size, stride, distance = self.views[number]
        return inputs[k].as_strided(size, stride, inputs[k].storage_offset() + distance)

"""Gradients that stay from one call to the next.

A capture makes a gradient that is None, and every call of the file makes it anew. In PyTorch the
next call would find it: backward() adds to it, and step() uses it. So a file is right if what a
call finds in `.grad` gets to nothing but what it leaves there: no output, and nothing else that
lasts. To know that, functions run once more, with gradients as a call leaves them, and what these
hold is followed through all that the function does.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_webgpu.export._alive import alive, leaves
from torch_webgpu.export._flows import Flow, Places, place_of, reached
from torch_webgpu.export._lines import KnownLineError

_KEPT = (
    "Call zero_grad() before backward(). "
    "Gradients that stay from one call to another must exist before the export "
    "(p.grad = torch.zeros_like(p)) and be zeroed in place, by zero_grad(set_to_none=False)"
)
_MOST_NAMES = 4


class Traced(NamedTuple):
    """A function as its first recording has it."""

    flow: Flow
    # Runs it once more, with the gradients that there are. If `marked`, with lines, and with what
    # memory is filled wholly.
    again: Callable[[bool], Flow]


class _Leaf(NamedTuple):
    tensor: torch.Tensor
    gradient: torch.Tensor | None  # before the export


class Gradients:
    """Finds functions whose results depend on what a call has left in `.grad`."""

    def __init__(self, holders: Mapping[str, Any]) -> None:
        self._holders = holders
        self._replaced: dict[int, _Leaf] = {}  # leaves that functions give other gradients
        self._is_dropped = False  # whether a function leaves None of what was a gradient
        self._tried = 0

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """A run of a function. Leaves have the gradients of before at its end."""
        before = [_Leaf(leaf, leaf.grad) for leaf in leaves()]
        is_over = False
        try:
            yield
            is_over = True
        finally:
            for leaf in before:
                left = leaf.tensor.grad
                if left is leaf.gradient:
                    continue
                leaf.tensor.grad = leaf.gradient
                if is_over and _is_followed(leaf.tensor):
                    self._replaced.setdefault(id(leaf.tensor), leaf)
                    self._is_dropped |= left is None

    def has_more(self) -> bool:
        """Whether functions were found to replace gradients that no `check` knew of."""
        tried, self._tried = self._tried, len(self._replaced) + self._is_dropped
        return self._tried > tried

    def check(self, traced: Traced) -> None:
        """Raises RuntimeError if what the function computes depends on gradients of the call
        before, or on whether there are any."""
        before = [leaf.gradient for leaf in self._replaced.values()]
        kept = _kept_by(traced.flow, before)
        left: list[torch.Tensor | None] = [
            torch.empty_like(leaf.tensor, requires_grad=False) for leaf in self._replaced.values()
        ]
        states = [left]
        if self._is_dropped and any(gradient is not None for gradient in before):
            states.append([None] * len(before))
        for state in states:
            flow = self._followed(traced, state)
            if flow.outputs.keys() != traced.flow.outputs.keys():
                raise KnownLineError(
                    "which outputs a call has depends on whether one before has left gradients. "
                    + _KEPT
                )
            now = _kept_by(flow, state)
            if differing := (now - kept) | (kept - now):
                raise KnownLineError(
                    f"whether a call changes {self._names(differing)} depends on whether one "
                    f"before has left gradients. {_KEPT}"
                )

    def _followed(self, traced: Traced, state: Sequence[torch.Tensor | None]) -> Flow:
        """A run with these gradients. Raises RuntimeError if what they hold gets anywhere."""
        known = list(self._replaced.values())  # the run may find more
        for is_marked in (False, True):
            with self.kept():
                for leaf, gradient in zip(known, state, strict=True):
                    leaf.tensor.grad = gradient
                flow = traced.again(is_marked)
            found = reached(flow, _places(state))
            if not found:  # as is usual without the marks
                return flow
        sources = frozenset().union(*(one.sources for one in found))
        read = [
            leaf.tensor
            for leaf, gradient in zip(known, state, strict=True)
            if gradient is not None and place_of(gradient) in sources
        ]
        names = self._names({place_of(tensor) for tensor in read})
        line = next((one.line for one in found if one.line is not None), None)
        text = f"a call reads gradients that one before has left, those of {names}. {_KEPT}"
        raise KnownLineError(text, line)

    def _names(self, places: Collection[Hashable]) -> str:
        """The tensors there, by their names in state dicts where they have one."""
        names: dict[Hashable, str] = {}
        for label, holder in self._holders.items():
            if isinstance(holder, nn.Module):
                for name, tensor in (*holder.named_parameters(), *holder.named_buffers()):
                    names.setdefault(place_of(tensor), f"{name!r} of {label!r}")
            elif isinstance(holder, Mapping):
                for name, tensor in holder.items():
                    if isinstance(tensor, torch.Tensor):
                        names.setdefault(place_of(tensor), f"{name!r} of {label!r}")
        # A module within another one has shorter names.
        modules = sorted(alive(nn.Module), key=lambda module: -len(list(module.modules())))
        for module in modules:
            for name, tensor in module.named_parameters():
                names.setdefault(place_of(tensor), f"{name!r} of a {type(module).__name__}")
        found = [names[place] for place in names if place in places]
        if not found:  # they have no names
            return f"{len(places)} tensor{'s' * (len(places) > 1)}"
        if len(found) > _MOST_NAMES:
            found[_MOST_NAMES:] = [f"{len(found) - _MOST_NAMES} more"]
        return ", ".join(found[:-1]) + " and " * (len(found) > 1) + found[-1]


def _places(tensors: Iterable[torch.Tensor | None]) -> Places:
    return frozenset(place_of(x) for x in tensors if x is not None)


def _kept_by(flow: Flow, gradients: Iterable[torch.Tensor | None]) -> Counter[Hashable]:
    """What a call changes besides gradients, and how often: a parameter may be changed in any case,
    and by a step of its optimizer where it has a gradient alone."""
    places = _places(gradients)
    return Counter({x: count for x, count in flow.changed.items() if x not in places})


def _is_followed(leaf: torch.Tensor) -> bool:
    """Whether its gradient is memory of the device's own."""
    if is_fake(leaf) or is_traceable_wrapper_subclass(leaf):
        return False
    return leaf.device.type == "webgpu" and leaf.layout == torch.strided and leaf.numel() > 0

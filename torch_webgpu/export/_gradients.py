"""Gradients that stay from one call to the next."""

from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_webgpu import _C
from torch_webgpu.export._alive import leaves

KEPT_GRADIENTS = (
    "Call zero_grad() before backward(). "
    "Gradients that stay from one call to another must exist before the export "
    "(p.grad = torch.zeros_like(p)) and be zeroed in place, by zero_grad(set_to_none=False)"
)

_READ = f"a call reads gradients that one before has made. {KEPT_GRADIENTS}"


def _place(gradient: torch.Tensor | None) -> int | None:
    """The memory of a gradient; None if it has none of the device's own."""
    if gradient is None or gradient.device.type != "webgpu" or gradient.layout != torch.strided:
        return None
    if is_fake(gradient) or is_traceable_wrapper_subclass(gradient) or gradient._is_zerotensor():
        return None
    return _C.allocation_of(gradient)


class Gradients:
    """Finds functions that read what a call has left in `.grad`.

    A capture makes a gradient that is None, and every call makes it anew. So what reads the one of
    the call before, or another function's, as accumulation does, would read other memory. Functions
    are captured several times, each time with what the captures before have left.
    """

    def __init__(self) -> None:
        self._left: dict[int, torch.Tensor] = {}  # those that captures made and leaves still have
        self._used: set[int] = set()
        self._replaced: set[int] = set()  # those of before that a function dropped

    def watched(self) -> Callable[[_C.CapturedGraph], None]:
        """Before a capture. What is returned is to be told of it."""
        before = [(leaf, leaf.grad) for leaf in leaves()]

        def watch(captured: _C.CapturedGraph) -> None:
            self._use({tensor.allocation for tensor in _C.list_graph(captured).tensors})
            changed = {id(leaf) for leaf in self._changed(before)}
            found = [(_place(leaf.grad), leaf.grad, id(leaf) in changed) for leaf, _ in before]
            self._left = {
                place: gradient
                for place, gradient, is_new in found
                if place is not None and gradient is not None and (is_new or place in self._left)
            }

        return watch

    def traced(
        self, used_by_trace: Callable[[], list[torch.Tensor]]
    ) -> Callable[[list[torch.Tensor]], None]:
        """Before a function is compiled. What is returned is to be told which tensors it uses;
        `used_by_trace` traces it again, with gradients as a call leaves them."""
        before = [(leaf, leaf.grad) for leaf in leaves()]

        def watch(used: list[torch.Tensor]) -> None:
            self._use({place for x in used if (place := _place(x)) is not None})
            left = [leaf for leaf in self._changed(before) if leaf.grad is not None]
            if not left:
                return
            zeros = [torch.zeros_like(leaf) for leaf in left]
            for leaf, zero in zip(left, zeros, strict=True):
                leaf.grad = zero
            if {id(x) for x in zeros} & {id(x) for x in used_by_trace()}:
                raise RuntimeError(_READ)

        return watch

    def _use(self, used: set[int]) -> None:
        if used & self._left.keys():
            raise RuntimeError(_READ)
        self._used |= used

    def _changed(
        self, before: list[tuple[torch.Tensor, torch.Tensor | None]]
    ) -> list[torch.Tensor]:
        """The leaves that have another gradient than before."""
        changed = [(leaf, gradient) for leaf, gradient in before if leaf.grad is not gradient]
        places = {_place(gradient) for _, gradient in changed} - {None, *self._left}
        self._replaced |= {place for place in places if place is not None}
        return [leaf for leaf, _ in changed]

    def check(self) -> None:
        """Raises RuntimeError if what one function reads is replaced by a function."""
        if self._used & self._replaced:
            raise RuntimeError(f"cannot export: {_READ}")

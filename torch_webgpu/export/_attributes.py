"""Attributes of modules that calls assign.

A later call in PyTorch finds them. So they are put back after each run, and other runs begin with
what a run has left.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils import _pytree as pytree

from torch_webgpu.export._flows import is_plain_tensor, layout_of, unchanging
from torch_webgpu.export._values import constant

# A module's id, and the attribute's name.
Attribute = tuple[int, str]
# The same, and which leaf of its value a tensor is.
Leaf = tuple[int, str, int]

_NUMBERS = (bool, int, float, complex, str, type(None))
_CONTAINERS = (tuple, list, dict)
# Where a module keeps tensors and modules. They are no attributes of their own.
_REGISTRIES = ("_parameters", "_buffers", "_modules")


def _leaves(value: Any, above: tuple[int, ...] = ()) -> list[Any]:
    """The parts of tuples, lists and dicts, also nested. One that contains itself is a part there,
    and as such of no type that another run can begin with."""
    if type(value) in _CONTAINERS and id(value) not in above:
        parts = value.values() if isinstance(value, dict) else value
        return [leaf for part in parts for leaf in _leaves(part, (*above, id(value)))]
    return [value]


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """The same with another value for each of these parts."""
    if type(value) is dict:
        return {key: _map(function, part) for key, part in value.items()}
    if type(value) in _CONTAINERS:
        return type(value)(_map(function, part) for part in value)
    return function(value)


def _is_known(value: Any) -> bool:
    """Whether another run can begin with an equal value: numbers, texts and plain tensors, and
    tuples, lists and dicts of these."""
    return all(type(leaf) in _NUMBERS or is_plain_tensor(leaf) for leaf in _leaves(value))


def _is_same(value: Any, before: Any) -> bool:
    """Whether it is the same object, or an equal number or text."""
    if value is before:
        return True
    if type(value) in _NUMBERS and type(before) in _NUMBERS:
        return constant(value) == constant(before)
    return False


def kind_of(value: Any, contents: Mapping[int, Hashable]) -> Hashable:
    """Equal for values with which functions run alike. `contents` says of the leaves that are
    tensors of the device what they hold."""
    labels: list[Hashable] = []
    for k, leaf in enumerate(_leaves(value)):
        if not isinstance(leaf, torch.Tensor):
            labels.append(constant(leaf))
        elif leaf.device.type == "cpu":
            labels.append(unchanging(leaf))
        else:
            labels.append((type(leaf), layout_of(leaf), contents.get(k)))
    return str(pytree.tree_structure(value)), tuple(labels)


def with_own_memory(value: Any) -> Any:
    """The value with other tensors, so that what a run reads of them is known."""

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.device.type == "cpu":
            return leaf.detach().clone()
        # As large as the tensor's memory, which it may be a view of.
        elements = leaf.untyped_storage().nbytes() // leaf.itemsize
        memory = torch.empty(elements, dtype=leaf.dtype, device=leaf.device)
        view = memory.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())
        return view.conj() if leaf.is_conj() else view

    return _map(own, value)


def tensors_of(key: Attribute, value: Any) -> Iterator[tuple[Leaf, torch.Tensor]]:
    """The tensors of the device that a value consists of."""
    for k, leaf in enumerate(_leaves(value)):
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "webgpu" and leaf.numel() > 0:
            yield (*key, k), leaf


class Attributes(NamedTuple):
    """Those of a module before the export."""

    module: nn.Module
    values: Mapping[str, Any]
    registries: Mapping[str, Mapping[str, Any]]
    is_lazy: bool  # its first call makes another module of it

    @classmethod
    def of(cls, module: nn.Module) -> "Attributes":
        values = dict(vars(module))
        registries = {name: dict(values[name]) for name in _REGISTRIES if name in values}
        return cls(module, values, registries, isinstance(module, LazyModuleMixin))

    def assigned(self) -> Iterator[tuple[Attribute, Any]]:
        """The attributes that have other values now, which another run can begin with."""
        if self.is_lazy:
            return
        now = vars(self.module)
        for name in now.keys() | self.values.keys():
            if name == "training" or name in self.registries:
                continue
            value, before = now.get(name), self.values.get(name)
            if not _is_same(value, before) and _is_known(value) and _is_known(before):
                yield (id(self.module), name), value

    def registered(self) -> str:
        """What a run has registered or removed that was not so before, if anything."""
        if not self.is_lazy:
            for registry, before in self.registries.items():
                for name in vars(self.module)[registry].keys() ^ before.keys():
                    return f"{type(self.module).__name__}.{name}"
        return ""

    def restore(self, names: Iterable[str]) -> None:
        """Puts back some attributes, between two runs."""
        now = vars(self.module)
        for name in names:
            if name in self.values:
                now[name] = self.values[name]
            else:
                now.pop(name, None)

    def restore_all(self) -> None:
        """Puts back all, also what another run could not begin with."""
        if self.is_lazy:
            return
        now = vars(self.module)
        if now.keys() != self.values.keys() or any(
            now[name] is not value for name, value in self.values.items()
        ):
            now.clear()
            now.update(self.values)
        for registry, before in self.registries.items():
            found = now[registry]
            if found.keys() != before.keys() or any(found[k] is not before[k] for k in before):
                found.clear()
                found.update(before)

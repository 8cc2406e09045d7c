"""Parameters as neighbours in one buffer, so that an optimizer's step takes few dispatches.

A kernel has few storage buffers, and a parameter of AdamW with its gradient and its state takes
five. A flat parameter takes as many, however many parameters lie in it.
"""

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.weak import WeakIdKeyDictionary

from torch_webgpu import _C

# Where a parameter starts: kernels move vectors of 16 bytes from there.
_ALIGNMENT = 16
# Optimizers that look at a parameter as a whole, such as at its norm.
_BY_TENSOR = ("Adafactor", "Muon")

# The flat parameter that a parameter lies in, weakly.
_flat_of = WeakIdKeyDictionary()


class _Place(NamedTuple):
    """Where a parameter lies in its flat parameter, in elements."""

    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    padding: int  # elements behind it that are nobody's


class FlatParameter(torch.nn.Parameter):
    """A parameter of one dimension, whose elements are those of others: what `flatten_parameters`
    returns, for an optimizer.

    ``grad`` belongs to the parameters. To read it gathers their gradients in one tensor, whose
    parts then are their gradients; None if none of them has one. To set it sets theirs: None
    removes them, a tensor is copied.

    Reading ``grad`` raises RuntimeError if some of the parameters have a gradient and some have
    none, if a gradient is sparse, or if a parameter has left the storage (``model.to``, or
    ``p.data =``).
    """

    _parts: list[torch.nn.Parameter]
    _places: list[_Place]
    _gradient: torch.Tensor | None  # a buffer that stays
    _views: list[torch.Tensor]  # its parts

    @property
    def grad(self) -> torch.Tensor | None:
        found = [part.grad for part in self._parts]
        if any(gradient is not None for gradient in found):
            self._check_parts()
        if self._gradient is not None:
            self._renew_moved_views()
            if all(map(_is_same, found, self._views)):
                return self._gradient
        missing = [k for k, gradient in enumerate(found) if gradient is None]
        if len(missing) == len(found):
            return None
        if missing:
            raise RuntimeError(
                f"{len(missing)} of the {len(found)} parameters of a flat parameter have no "
                f"gradient, the first of them of shape {tuple(self._parts[missing[0]].shape)}. An "
                "optimizer steps a flat parameter as a whole: give it parameters that are not used "
                "in every step as they are. zero_grad() of the model removes what is there"
            )
        self._gather(cast("list[torch.Tensor]", found))
        return self._gradient

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        if value is None:
            for part in self._parts:
                part.grad = None
            return
        if value.shape != self.shape or value.dtype != self.dtype or value.device != self.device:
            raise RuntimeError(
                f"the gradient of a flat parameter has {value.numel()} elements of {value.dtype} "
                f"on {value.device} in shape {tuple(value.shape)}; the parameter has "
                f"{self.numel()} of {self.dtype} on {self.device}"
            )
        buffer = self._make_gradient()
        if value is not buffer:
            buffer.copy_(value.detach())
        self._give_views()

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _renew_moved_views(self) -> None:
        """A view whose memory was assigned (``p.grad.data =``) is a gradient like any other."""
        buffer = cast("torch.Tensor", self._gradient)
        start, size = buffer.data_ptr(), buffer.element_size()
        for k, (view, place) in enumerate(zip(self._views, self._places, strict=True)):
            is_there = view.dtype == buffer.dtype and view.stride() == place.stride
            if view.numel() and not (is_there and view.data_ptr() == start + place.offset * size):
                self._views[k] = _view(buffer, place)

    def _gather(self, gradients: list[torch.Tensor]) -> None:
        for gradient in gradients:
            if gradient.layout is not torch.strided:
                raise RuntimeError(
                    f"a flat parameter takes no gradient of layout {gradient.layout}: give the "
                    "optimizer parameters with sparse gradients as they are"
                )
        buffer = self._make_gradient()
        memory = buffer.untyped_storage().data_ptr()
        gradients = [
            # Such as a detached view: it would be overwritten while it is read.
            gradient.clone()
            if gradient is not view and gradient.untyped_storage().data_ptr() == memory
            else gradient
            for gradient, view in zip(gradients, self._views, strict=True)
        ]
        with torch.no_grad():
            if any(map(_is_same, gradients, self._views)):
                for gradient, view in zip(gradients, self._views, strict=True):
                    if gradient is not view:
                        view.copy_(gradient)
            else:
                _join(gradients, self._places, buffer)
        self._give_views()

    def _make_gradient(self) -> torch.Tensor:
        if self._gradient is None:
            # What is nobody's stays zero.
            self._gradient = torch.zeros_like(self.data)
            self._views = [_view(self._gradient, place) for place in self._places]
            # Dynamo's guards look there, past the property.
            cast("Any", torch._C.TensorBase).grad.__set__(self, self._gradient)
        return self._gradient

    def _give_views(self) -> None:
        for part, view in zip(self._parts, self._views, strict=True):
            if part.grad is not view:
                part.grad = view

    def _check_parts(self) -> None:
        start, size = self.data_ptr(), self.element_size()
        for part, place in zip(self._parts, self._places, strict=True):
            if part.numel() == 0:
                continue
            if part.data_ptr() != start + place.offset * size or part.dtype != self.dtype:
                raise RuntimeError(
                    f"a parameter of shape {tuple(part.shape)} does not lie in its flat parameter "
                    "any more: after model.to(...) or an assignment to .data call "
                    "torch.webgpu.flatten_parameters again, and make a new optimizer"
                )

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise RuntimeError(
            "a flat parameter cannot be copied: copy the model, and flatten the copy's parameters"
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise RuntimeError(
            "a flat parameter cannot be saved: save the state_dict() of the model and of the "
            "optimizer"
        )


def flatten_parameters(params: Iterable[Any]) -> list[Any]:
    """Lays parameters side by side in one buffer, and returns flat parameters for an optimizer::

        optimizer = torch.optim.AdamW(torch.webgpu.flatten_parameters(model.parameters()))

    params: parameters of any shapes, floating dtypes and devices, or parameter groups, which are
    dicts with ``"params"``. A parameter that occurs twice in a group is taken once.

    Returns for parameters a list of `FlatParameter` of shape ``(n,)``: one for each dtype and
    device, and more where one would not fit a storage binding. For groups it returns groups that
    have these, and their other options.

    The parameters stay the model's: the same objects with the same names, shapes, strides and
    values, whose memory is a view now. A flat parameter's gradient is gathered from theirs when the
    optimizer asks for it, in a dispatch for as many as storage buffers allow. Between a parameter
    and the next there may be up to 15 bytes, which stay zero.

    The optimizer must compute each element by itself, as SGD, Adam and AdamW do, in each of their
    forms. Clipping by norm, weight decay by parameter and the like are the groups' or the model's.

    Raises TypeError for what is no parameter, ValueError for one that needs no gradient, that
    shares memory with another, or that lies in a flat parameter or in another group already.
    """
    if isinstance(params, torch.Tensor):
        raise TypeError(
            "flatten_parameters takes an iterable of parameters or of groups, such as "
            "model.parameters(), not one tensor"
        )
    given = list(params)
    if given and all(isinstance(group, Mapping) for group in given):
        groups = [list(_as_list(group["params"])) for group in given]
        _check(groups)
        return [
            {**group, "params": _flatten(parts)} for group, parts in zip(given, groups, strict=True)
        ]
    _check([given])
    return list(_flatten(given))


def _is_same(one: object, other: object) -> bool:
    return one is other


def _as_list(params: Any) -> Iterable[Any]:
    return [params] if isinstance(params, torch.Tensor) else params


def _check(groups: list[list[Any]]) -> None:
    seen: dict[int, int] = {}
    ranges: dict[int, list[tuple[int, int]]] = {}
    for number, group in enumerate(groups):
        for part in group:
            if not isinstance(part, torch.nn.Parameter) or isinstance(part, FlatParameter):
                raise TypeError(f"flatten_parameters takes parameters, not {type(part).__name__}")
            if seen.setdefault(id(part), number) != number:
                raise ValueError("a parameter is in two groups")
            if not part.requires_grad:
                raise ValueError(
                    f"a parameter of shape {tuple(part.shape)} needs no gradient: leave it out"
                )
            known = _flat_of.get(part)
            if known is not None and known() is not None:
                raise ValueError(
                    f"a parameter of shape {tuple(part.shape)} lies in a flat parameter already"
                )
    for part in {id(part): part for group in groups for part in group}.values():
        if part.numel() != 0:
            last = sum((n - 1) * s for n, s in zip(part.shape, part.stride(), strict=True))
            first = part.data_ptr()
            span = (first, first + (last + 1) * part.element_size())
            ranges.setdefault(part.untyped_storage().data_ptr(), []).append(span)
    for spans in ranges.values():
        spans.sort()
        if any(one[1] > other[0] for one, other in itertools.pairwise(spans)):
            raise ValueError("two parameters share memory, and would not any more")


def _flatten(group: Sequence[torch.nn.Parameter]) -> list[FlatParameter]:
    kinds: dict[tuple[torch.device, torch.dtype], list[torch.nn.Parameter]] = {}
    for part in dict.fromkeys(group):
        kinds.setdefault((part.device, part.dtype), []).append(part)
    flat: list[FlatParameter] = []
    for (device, _), parts in kinds.items():
        for some in _that_fit(parts, _most_bytes(device)):
            flat.append(_make(some))
    if flat:
        _install_hooks()
    return flat


def _most_bytes(device: torch.device) -> int:
    """Kernels bind a larger buffer in several windows, which are storage buffers."""
    if device.type != "webgpu":
        return 1 << 62
    index = -1 if device.index is None else device.index
    return _C.properties(index)[2]["max_storage_binding_size"]


def _padded_bytes(part: torch.Tensor) -> int:
    return -(-part.numel() * part.element_size() // _ALIGNMENT) * _ALIGNMENT


def _that_fit(parts: list[torch.nn.Parameter], most: int) -> list[list[torch.nn.Parameter]]:
    found: list[list[torch.nn.Parameter]] = []
    size = most
    for part in parts:
        size += _padded_bytes(part)
        if size > most or not found:
            found.append([])
            size = _padded_bytes(part)
        found[-1].append(part)
    return found


def _make(parts: list[torch.nn.Parameter]) -> FlatParameter:
    places = []
    offset = 0
    itemsize = parts[0].element_size()
    for part in parts:
        taken = _padded_bytes(part) // itemsize
        places.append(_Place(part.shape, _strides(part), offset, taken - part.numel()))
        offset += taken
    with torch.no_grad():
        data = parts[0].data.new_empty(offset)
        _join([part.data for part in parts], places, data)
    flat: FlatParameter = torch.Tensor._make_subclass(FlatParameter, data, True)
    flat._parts, flat._places, flat._gradient, flat._views = parts, places, None, []
    for part, place in zip(parts, places, strict=True):
        part.data = _view(data, place)
        _flat_of[part] = weakref.ref(flat)
    return flat


def _strides(part: torch.Tensor) -> tuple[int, ...]:
    """The parameter's own, if its elements fill its memory; else those of a contiguous one."""
    return torch.empty_like(part, device="meta").stride()


def _view(flat: torch.Tensor, place: _Place) -> torch.Tensor:
    return flat.as_strided(place.size, place.stride, flat.storage_offset() + place.offset)


def _join(tensors: list[torch.Tensor], places: list[_Place], out: torch.Tensor) -> None:
    """Writes tensors to their places, and zeros behind them."""
    zeros: torch.Tensor | None = None
    pieces = []
    for tensor, place in zip(tensors, places, strict=True):
        pieces.append(_in_memory_order(tensor.detach(), place))
        if place.padding:
            if zeros is None:
                zeros = out.new_zeros(_ALIGNMENT)
            pieces.append(zeros[: place.padding])
    torch.cat(pieces, out=out)


def _in_memory_order(tensor: torch.Tensor, place: _Place) -> torch.Tensor:
    """The elements in one dimension, in the order of the place's memory; a view if they lie so."""
    if tensor.stride() != place.stride:
        order = sorted(range(tensor.dim()), key=lambda d: place.stride[d], reverse=True)
        return tensor.permute(order).reshape(-1)
    return tensor.as_strided((tensor.numel(),), (1,))


# ---- Hooks of optimizers

_hooks: list[Any] = []


def _flat_parameters(optimizer: Optimizer) -> list[FlatParameter]:
    return [
        param
        for group in optimizer.param_groups
        for param in group["params"]
        if isinstance(param, FlatParameter)
    ]


def _install_hooks() -> None:
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_before_step))
        _hooks.append(register_optimizer_step_post_hook(_after_step))


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if type(optimizer).__name__ in _BY_TENSOR and _flat_parameters(optimizer):
        raise RuntimeError(
            f"{type(optimizer).__name__} computes with whole parameters, and would take a flat "
            "parameter for one: give it the model's parameters"
        )


def _after_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    # So that a backward pass through what the step has overwritten raises, as it does of parameters
    # that an optimizer changes itself.
    for flat in _flat_parameters(optimizer):
        torch.autograd.graph.increment_version(flat._parts)

"""Strides of the eager kernels' results, where PyTorch's fake tensors guess another device's.

A wrong guess shows: compiled modules assert the strides of what eager kernels return.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import (
    compute_elementwise_output_logical_to_physical_perm,
    suggest_memory_format,
)
from torch.fx.operator_schemas import normalize_function

from torch_webgpu import _torch_versions

aten = torch.ops.aten


def install() -> None:
    """Wraps the entries of PyTorch's table, those that it has."""
    from torch._subclasses.fake_impls import op_implementations_dict as table

    rules = {
        aten.convolution.default: _convolution,
        aten._convolution.default: _convolution,
        aten.convolution_backward.default: _convolution,
        aten.nonzero.default: _nonzero,
        aten.index.Tensor: _index,
    }
    for op, rule in _torch_versions.listed_in(table, rules).items():
        table[op] = _on_webgpu(table[op], rule)
    table[aten._fft_c2c.default] = _fft_c2c
    table[aten._fft_r2c.default] = _fft_r2c


def _on_webgpu(original: Callable[..., Any], rule: Callable[..., Any]) -> Callable[..., Any]:
    def implementation(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(fake_mode, func, *args, **kwargs)
        tensors = result if isinstance(result, tuple) else (result,)
        if not any(t is not None and t.device.type == "webgpu" for t in tensors):
            return result
        with fake_mode:
            return rule(result, func, args, kwargs)

    return implementation


def _convolution(result: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Channels last if the input has them, or else the weight. One dimension counts as two."""
    normalized = normalize_function(
        func, args=args, kwargs=kwargs, normalize_to_only_use_kwargs=True
    )
    assert normalized is not None
    given = [normalized.kwargs["input"], normalized.kwargs["weight"]]
    if given[0].dim() == 3:  # whose input ATen makes contiguous, which changes no single channel
        given = [given[0].contiguous().unsqueeze(2), given[1].unsqueeze(2)]
    formats = {suggest_memory_format(tensor) for tensor in given}
    formats.discard(torch.contiguous_format)
    memory_format = formats.pop() if formats else torch.contiguous_format

    def place(tensor: torch.Tensor | None) -> torch.Tensor | None:
        if tensor is None or tensor.dim() == 1:  # a bias's gradient
            return tensor
        if tensor.dim() == 3:
            return _empty(tensor.unsqueeze(2), memory_format).squeeze(2)
        return _empty(tensor, memory_format)

    return tuple(map(place, result)) if isinstance(result, tuple) else place(result)


def _empty(like: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    # Not contiguous(): it keeps the strides of a tensor of one channel.
    return torch.empty(
        like.shape, dtype=like.dtype, device=like.device, memory_format=memory_format
    )


def _nonzero(result: torch.Tensor, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """Row by row; CUDA's result has strides (1, n)."""
    return result.new_empty(result.shape)


def _index(result: torch.Tensor, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """As the tensor and the indices lie. PyTorch's own function asks the tensor alone, so that the
    CPU's results differ from its guess too."""
    x, given = args
    indices = [index for index in given if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
        return result  # of places that data decide, in order
    places = [d for d, index in enumerate(given) if index is not None]
    rest = [d for d in range(x.dim()) if d not in places]
    # Indices of dimensions that are not neighbours come first.
    first = places[0] if places[-1] - places[0] + 1 == len(places) else 0
    before, after = rest[:first], rest[first:]
    indices = list(torch.broadcast_tensors(*indices))
    strides = [
        *(x.stride(d) for d in before),
        *[0] * indices[0].dim(),
        *(x.stride(d) for d in after),
    ]
    shape = result.shape
    operands = [torch.empty_strided(shape, strides, dtype=x.dtype, device=x.device)]
    for index in indices:
        own = [*[0] * len(before), *index.stride(), *[0] * len(after)]
        operands.append(torch.empty_strided(shape, own, dtype=index.dtype, device=x.device))
    order, _ = compute_elementwise_output_logical_to_physical_perm(*operands)
    dense = torch.empty([shape[d] for d in order], dtype=x.dtype, device=x.device)
    return dense.permute([order.index(d) for d in range(len(order))])


def _fft_c2c(
    fake_mode: Any,
    func: Any,
    self: torch.Tensor,
    dim: Sequence[int],
    normalization: int,
    forward: bool,
) -> Any:
    """PyTorch's own function did not always sort the dimensions."""
    if self.device.type != "webgpu" or not dim:
        return NotImplemented
    with fake_mode:
        return _transformed(self, self.shape, _outermost_first(self, dim))


def _fft_r2c(
    fake_mode: Any,
    func: Any,
    self: torch.Tensor,
    dim: Sequence[int],
    normalization: int,
    onesided: bool,
) -> Any:
    """PyTorch's own function took the result for contiguous, which it is without MKL only."""
    if self.device.type != "webgpu" or not torch.backends.mkl.is_available():
        return NotImplemented
    *others, last = dim
    sizes = list(self.shape)
    if onesided:
        sizes[last] = sizes[last] // 2 + 1
    with fake_mode:
        return _transformed(self, sizes, [*_outermost_first(self, others), last])


def _transformed(self: torch.Tensor, sizes: Sequence[int], dims: Sequence[int]) -> torch.Tensor:
    """Complex, with the transformed dimensions innermost: `empty_output` of csrc/ops/fft."""
    inner = [d % self.dim() for d in dims]
    outer = [d for d in range(self.dim()) if d not in inner]
    strides: list[int] = [1] * self.dim()
    stride = 1
    for d in reversed([*_outermost_first(self, outer), *inner]):
        strides[d] = stride
        stride *= sizes[d]
    dtype = self.dtype.to_complex()
    return torch.empty_strided(sizes, strides, dtype=dtype, device=self.device)


def _outermost_first(self: torch.Tensor, dims: Sequence[int]) -> list[int]:
    return sorted(dims, key=self.stride, reverse=True)

"""Operators with dynamic sizes, by others that the compiler makes kernels of for any size."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator. They return NotImplemented, which leaves the operator, if no size is dynamic."""
    return {
        aten.convolution_backward.default: _convolution_backward,
        aten.cumsum.default: _cumsum,
        aten.addmm.default: functools.partial(_added_product, aten.mm),
        aten.baddbmm.default: functools.partial(_added_product, aten.bmm),
    }


def _is_sized(*tensors: torch.Tensor) -> bool:
    return not all(isinstance(n, int) for tensor in tensors for n in tensor.shape)


def _added_product(
    multiply: Callable[..., torch.Tensor],
    added: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Any:
    """With factors, which no generated kernel of a product has."""
    if (beta == 1 and alpha == 1) or not _is_sized(added, a, b):
        return NotImplemented
    product = multiply(a, b)
    if alpha != 1:
        product = product * alpha
    if beta == 0:  # what is added may be NaN
        return product
    return product + (added if beta == 1 else added * beta)


def _cumsum(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Each element sums what precedes it: work that is quadratic in the length, but no memory."""
    if not _is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    places = torch.arange(row.shape[-1], device=x.device)
    precedes = places[:, None] >= places
    return torch.where(precedes, row.unsqueeze(-2), 0).sum(-1, dtype=dtype).movedim(-1, dim)


def _convolution_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """A convolution's gradients are convolutions."""
    if not _is_sized(gradient, x, weight):
        return NotImplemented
    of_x, of_weight, of_bias = output_mask
    stride, padding, dilation = (
        list(values) * (x.dim() - 2) if len(values) == 1 else values
        for values in (stride, padding, dilation)
    )
    results: list[torch.Tensor | None] = [None, None, None]
    if of_x:
        none = [0] * (x.dim() - 2)
        left_over = (
            none if transposed else _left_over(gradient, x, weight, stride, padding, dilation)
        )
        # Where sizes decide how many are left over: as many as there can be, and then fewer.
        ends = [n if isinstance(n, int) else s - 1 for n, s in zip(left_over, stride, strict=True)]
        found = aten.convolution(
            gradient, weight, None, stride, padding, dilation, not transposed, ends, groups
        )
        for d, n in enumerate(left_over):
            if not isinstance(n, int):
                found = found.narrow(d + 2, 0, x.shape[d + 2])
        results[0] = found
    if of_weight:
        # The larger image is the input, the smaller one the weight.
        large, small = (gradient, x) if transposed else (x, gradient)
        results[1] = _of_weight(large, small, weight, stride, padding, dilation, groups)
    if of_bias:
        results[2] = gradient.sum([0, *range(2, gradient.dim())])
    return tuple(results)


def _left_over(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[Any]:
    """Positions at the end of the input that no tap of the last position reaches."""
    return [
        x.shape[d + 2]
        - ((gradient.shape[d + 2] - 1) * stride[d] - 2 * padding[d])
        - (dilation[d] * (weight.shape[d + 2] - 1) + 1)
        for d in range(x.dim() - 2)
    ]


def _of_weight(
    large: torch.Tensor,
    small: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """A convolution that sums over images: they are its channels, and channels are its images."""
    images, channels, *positions = large.shape
    in_groups = large.reshape(images, groups, channels // groups, *positions)
    dims = range(3, in_groups.dim())
    swapped = in_groups.permute(2, 1, 0, *dims).reshape(
        channels // groups, groups * images, *positions
    )
    none = [0] * len(positions)
    taps = aten.convolution(
        swapped, small.transpose(0, 1), None, dilation, padding, stride, False, none, groups
    )
    for d, size in enumerate(weight.shape[2:]):  # positions beyond the last tap
        taps = taps.narrow(d + 2, 0, size)
    return taps.transpose(0, 1).contiguous()

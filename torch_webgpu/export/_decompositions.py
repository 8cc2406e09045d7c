"""Operators with dynamic sizes, by others that the compiler makes kernels of for any size."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from torch_webgpu.export import _order
from torch_webgpu.export._composites import for_each
from torch_webgpu.export._sizes import is_sized

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator. They return NotImplemented, which leaves the operator, if no size is dynamic."""
    return {
        aten.convolution_backward.default: _convolution_backward,
        aten.addmm.default: functools.partial(_added_product, aten.mm),
        aten.baddbmm.default: functools.partial(_added_product, aten.bmm),
        aten._trilinear.default: _trilinear,
        aten.isin.Tensor_Tensor: _isin,
        aten.replication_pad1d_backward.default: _replication_backward,
        aten.replication_pad2d_backward.default: _replication_backward,
        aten.replication_pad3d_backward.default: _replication_backward,
        aten._cdist_forward.default: _distances,
        aten._cdist_backward.default: _distances_backward,
        aten.cumsum.default: functools.partial(_order.scan, torch.sum, 0),
        aten.cumprod.default: functools.partial(_order.scan, torch.prod, 1),
        aten.logcumsumexp.default: functools.partial(_order.scan, torch.logsumexp, -torch.inf),
        aten.cummax.default: functools.partial(_order.running_extreme, True),
        aten.cummin.default: functools.partial(_order.running_extreme, False),
        aten.sort.default: _order.sort,
        aten.sort.stable: _order.stable_sort,
        aten.topk.default: _order.topk,
        aten.kthvalue.default: _order.kthvalue,
        aten.median.default: functools.partial(_order.median_of_all, False),
        aten.median.dim: functools.partial(_order.median, False),
        aten.nanmedian.default: functools.partial(_order.median_of_all, True),
        aten.nanmedian.dim: functools.partial(_order.median, True),
        aten.mode.default: _order.mode,
        aten.bucketize.Tensor: _order.bucketize,
        aten.searchsorted.Tensor: _order.searchsorted,
        aten.searchsorted.Scalar: _order.searchsorted_of_number,
    }


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
    if (beta == 1 and alpha == 1) or not is_sized(added, a, b):
        return NotImplemented
    product = multiply(a, b)
    if alpha != 1:
        product = product * alpha
    if beta == 0:  # what is added may be NaN
        return product
    return product + (added if beta == 1 else added * beta)


def _trilinear(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    if not is_sized(a, b, c):
        return NotImplemented
    for d in expand1:
        a = a.unsqueeze(d)
    for d in expand2:
        b = b.unsqueeze(d)
    for d in expand3:
        c = c.unsqueeze(d)
    product = a * b * c
    return product.sum(list(sumdim)) if sumdim else product


def _isin(
    elements: torch.Tensor,
    others: torch.Tensor,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Any:
    if not is_sized(elements, others):
        return NotImplemented
    found = (elements.unsqueeze(-1) == others.reshape(-1)).any(-1)
    return ~found if invert else found


def _replication_backward(gradient: torch.Tensor, x: torch.Tensor, padding: Sequence[int]) -> Any:
    """Elements at an edge have the gradients of their copies as well."""
    if not is_sized(gradient, x):
        return NotImplemented
    for k in range(len(padding) // 2):
        d, (left, right) = gradient.dim() - 1 - k, padding[2 * k : 2 * k + 2]
        inner = F.pad(gradient, [*[0, 0] * k, -left, -right])
        places = torch.arange(x.shape[d], device=x.device).reshape([-1, *[1] * k])
        if left > 0:
            copies = gradient.narrow(d, 0, left).sum(d, keepdim=True)
            inner = inner + torch.where(places == 0, copies, 0)
        if right > 0:
            copies = gradient.narrow(d, gradient.shape[d] - right, right).sum(d, keepdim=True)
            inner = inner + torch.where(places == x.shape[d] - 1, copies, 0)
        gradient = inner
    return gradient


def _distances(a: torch.Tensor, b: torch.Tensor, p: float, compute_mode: int | None) -> Any:
    if not is_sized(a, b):
        return NotImplemented
    apart = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).sum(-1).to(a.dtype)
    if p == 1:
        return apart.sum(-1)
    if p == 2:
        return (apart * apart).sum(-1).sqrt()
    if p == torch.inf:
        return apart.amax(-1)
    return (apart**p).sum(-1) ** (1 / p)


def _distances_backward(
    gradient: torch.Tensor, a: torch.Tensor, b: torch.Tensor, p: float, distances: torch.Tensor
) -> Any:
    """That of `a`. As PyTorch has it, which is 0 where two vectors are the same."""
    if not is_sized(a, b):
        return NotImplemented
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    gradient, distances = gradient.unsqueeze(-1), distances.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(a)
    if p == 1:
        parts = apart.sign()
    elif p == torch.inf:
        parts = torch.where(apart.abs() == distances, apart.sign(), 0)
    else:
        same = (distances == 0) | (apart == 0) if p < 1 else distances == 0
        parts = apart.sign() * apart.abs() ** (p - 1) / distances ** (p - 1)
        parts = torch.where(same, 0, parts)
    return (gradient * parts).sum(-2)


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
    if not is_sized(gradient, x, weight):
        return NotImplemented
    of_x, of_weight, of_bias = output_mask
    stride, padding, dilation = (
        for_each(x.dim() - 2, values) for values in (stride, padding, dilation)
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

"""The gradients of convolutions as convolutions, which the compiler has for dynamic sizes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    return {aten.convolution_backward.default: _convolution_backward}


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
    """For a convolution with dynamic sizes; else NotImplemented, which leaves the operator."""
    tensors = (gradient, x, weight)
    if all(isinstance(n, int) for tensor in tensors for n in tensor.shape):
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
        results[0] = aten.convolution(
            gradient, weight, None, stride, padding, dilation, not transposed, left_over, groups
        )
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

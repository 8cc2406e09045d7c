"""Operators with dynamic sizes, by others that the compiler makes kernels of for any size."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator. They return NotImplemented, which leaves the operator, if no size is dynamic."""
    return {
        aten.convolution_backward.default: _convolution_backward,
        aten.cumsum.default: functools.partial(_scan, torch.sum, 0),
        aten.cumprod.default: functools.partial(_scan, torch.prod, 1),
        aten.logcumsumexp.default: functools.partial(_scan, torch.logsumexp, -torch.inf),
        aten.sort.default: _sort,
        aten.sort.stable: _stable_sort,
        aten.topk.default: _topk,
        aten.bucketize.Tensor: _bucketize,
        aten.addmm.default: functools.partial(_added_product, aten.mm),
        aten.baddbmm.default: functools.partial(_added_product, aten.bmm),
    }


class SizedFunctions(TorchFunctionMode):
    """Replaces functions of which PyTorch's own form asks for sizes on its way."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        replaced = _functions().get(func)
        found = replaced(*args, **(kwargs or {})) if replaced else NotImplemented
        return func(*args, **(kwargs or {})) if found is NotImplemented else found


@functools.cache
def _functions() -> dict[Any, Callable[..., Any]]:
    """By the function of PyTorch's. They return NotImplemented as decompositions do."""
    return {
        torch.linspace: _linspace,
        **{
            function: functools.partial(_adaptive_pool, dims)
            for dims, function in enumerate(
                (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d), 1
            )
        },
    }


def _linspace(start: Any, end: Any, steps: Any, **options: Any) -> Any:
    dtype = options.get("dtype") or torch.get_default_dtype()
    if isinstance(steps, int) or any(isinstance(x, torch.Tensor) for x in (start, end)):
        return NotImplemented
    if options.get("out") is not None or not dtype.is_floating_point:
        return NotImplemented
    requires_grad = options.pop("requires_grad", False)
    places = torch.arange(steps, **{**options, "dtype": dtype})
    # From both ends, as PyTorch does, so that the last element is `end`.
    to_end, from_end = places, places - (steps - 1)
    if start > end:  # a file's quotients of sizes are not negative
        to_end, from_end = -to_end, -from_end
    step = abs(end - start) / torch.sym_max(steps - 1, 1)
    found = torch.where(2 * places < steps, start + to_end * step, end + from_end * step)
    return found.requires_grad_(requires_grad)


def _adaptive_pool(dims: int, x: torch.Tensor, output_size: Any) -> Any:
    """For each dimension, a result sums those of all elements that are its part."""
    if not _is_sized(x):
        return NotImplemented
    sizes = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size] * dims
    for d, size in enumerate(sizes, x.dim() - dims):
        length = x.shape[d]
        if size is None:
            continue
        if size == 1:
            x = x.mean(d, keepdim=True)
            continue
        results = torch.arange(size, device=x.device)[:, None]
        first, end = results * length // size, ((results + 1) * length + size - 1) // size
        places = torch.arange(length, device=x.device)
        is_part = (places >= first) & (places < end)
        sums = torch.where(is_part, x.movedim(d, -1).unsqueeze(-2), 0).sum(-1)
        x = (sums / (end - first).squeeze(1)).movedim(-1, d)
    return x


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


# An element of what follows is computed from all elements of its row. That is work which is
# quadratic in the length, but no memory, and one kernel for all lengths.


def _scan(
    reduce: Callable[..., torch.Tensor], start: float, x: torch.Tensor, dim: int, **options: Any
) -> Any:
    """Each element reduces what precedes it, and itself. Others count as `start`."""
    if not _is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    places = torch.arange(row.shape[-1], device=row.device)
    before = torch.where(places[:, None] >= places, row.unsqueeze(-2), start)
    return reduce(before, -1, **options).movedim(-1, dim)


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    return _stable_sort(x, stable=False, dim=dim, descending=descending)


def _stable_sort(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    """Each element goes to the place of which the number is how many come before it."""
    if not _is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    keys = row.int() if row.dtype == torch.bool else row
    one, other = keys.unsqueeze(-1), keys.unsqueeze(-2)
    is_before, is_equal = (other > one if descending else other < one), other == one
    if keys.is_floating_point():  # NaN is the largest
        nans = one.isnan(), other.isnan()
        largest, smaller = reversed(nans) if descending else nans
        is_before = is_before | (largest & ~smaller)
        is_equal = is_equal | (nans[0] & nans[1])
    places = torch.arange(row.shape[-1], device=x.device)
    is_before = is_before | (is_equal & (places < places[:, None]))
    indices = torch.empty_like(row, dtype=torch.int64, memory_format=torch.contiguous_format)
    indices = indices.scatter(-1, is_before.sum(-1), places.expand(row.shape))
    return row.gather(-1, indices).movedim(-1, dim), indices.movedim(-1, dim)


def _topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    found = _stable_sort(x, stable=False, dim=dim, descending=largest)
    return found if found is NotImplemented else tuple(each.narrow(dim, 0, k) for each in found)


def _bucketize(
    x: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False
) -> Any:
    if not _is_sized(x, boundaries):
        return NotImplemented
    value = x.unsqueeze(-1)
    is_left = ~(value < boundaries) if right else ~(value <= boundaries)
    return is_left.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


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

"""Scans, sorts and searches along dynamic rows.

An element of a result is computed from all elements of its row. That is work which is quadratic
in the length, but no memory, and one kernel for all lengths.
"""

from collections.abc import Callable
from typing import Any

import torch

from torch_webgpu.export._sizes import is_sized


def scan(
    reduce: Callable[..., torch.Tensor], start: float, x: torch.Tensor, dim: int, **options: Any
) -> Any:
    """Each element reduces what precedes it, and itself. Others count as `start`."""
    if not is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    places = torch.arange(row.shape[-1], device=row.device)
    before = torch.where(places[:, None] >= places, row.unsqueeze(-2), start)
    return reduce(before, -1, **options).movedim(-1, dim)


def running_extreme(is_largest: bool, x: torch.Tensor, dim: int) -> Any:
    """Of what precedes an element, and itself, the last that is the largest, or the smallest."""
    if not is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    keys = row.int() if row.dtype == torch.bool else row
    places = torch.arange(row.shape[-1], device=x.device)
    precedes = places[:, None] >= places
    before = torch.where(precedes, keys.unsqueeze(-2), end_of(keys.dtype, not is_largest))
    extremes = before.amax(-1) if is_largest else before.amin(-1)
    is_found = keys.unsqueeze(-2) == extremes.unsqueeze(-1)
    if keys.is_floating_point():  # NaN is both
        is_found = is_found | keys.isnan().unsqueeze(-2)
    indices = torch.where(precedes & is_found, places, -1).amax(-1)
    return row.gather(-1, indices).movedim(-1, dim), indices.movedim(-1, dim)


def end_of(dtype: torch.dtype, is_largest: bool) -> Any:
    """What no value of the dtype is beyond."""
    if dtype.is_floating_point:
        return torch.inf if is_largest else -torch.inf
    limits = torch.iinfo(dtype)
    return limits.max if is_largest else limits.min


def sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    return stable_sort(x, stable=False, dim=dim, descending=descending)


def stable_sort(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    """Each element goes to the place of which the number is its rank."""
    if not is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    ranks = _ranks(row, descending=descending)
    places = torch.arange(row.shape[-1], device=x.device)
    indices = torch.empty_like(row, dtype=torch.int64, memory_format=torch.contiguous_format)
    indices = indices.scatter(-1, ranks, places.expand(row.shape))
    return row.gather(-1, indices).movedim(-1, dim), indices.movedim(-1, dim)


def _ranks(row: torch.Tensor, *, descending: bool = False) -> torch.Tensor:
    """How many elements of the row come before each one."""
    keys = row.int() if row.dtype == torch.bool else row
    one, other = keys.unsqueeze(-1), keys.unsqueeze(-2)
    is_before, is_equal = (other > one if descending else other < one), _equal(one, other)
    if keys.is_floating_point():  # NaN is the largest
        nans = one.isnan(), other.isnan()
        largest, smaller = reversed(nans) if descending else nans
        is_before = is_before | (largest & ~smaller)
    places = torch.arange(row.shape[-1], device=row.device)
    return (is_before | (is_equal & (places < places[:, None]))).sum(-1)


def _equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """NaN is itself."""
    found = one == other
    return found | (one.isnan() & other.isnan()) if one.is_floating_point() else found


def topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    found = stable_sort(x, stable=False, dim=dim, descending=largest)
    return found if found is NotImplemented else tuple(each.narrow(dim, 0, k) for each in found)


def _of_rank(
    row: torch.Tensor, ranks: torch.Tensor, rank: Any, dim: int, keepdim: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row the element that has the rank, and its place."""
    places = torch.arange(row.shape[-1], device=row.device)
    indices = torch.where(ranks == rank, places, 0).sum(-1, keepdim=True)
    found = row.gather(-1, indices), indices
    values, indices = (x.movedim(-1, dim) if keepdim else x.squeeze(-1) for x in found)
    return values, indices


def kthvalue(x: torch.Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    if not is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    torch._check(k >= 1)
    torch._check(k <= row.shape[-1])
    return _of_rank(row, _ranks(row), k - 1, dim, keepdim)


def median(ignores_nan: bool, x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    if not is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    length = row.shape[-1]
    rank: Any = (length - 1) // 2
    if row.is_floating_point():
        numbers = (~row.isnan()).sum(-1, keepdim=True)
        if ignores_nan:
            rank = (numbers - 1).clamp(min=0) // 2
        else:  # the first NaN, if there is one
            rank = torch.where(numbers == length, rank, numbers)
    return _of_rank(row, _ranks(row), rank, dim, keepdim)


def median_of_all(ignores_nan: bool, x: torch.Tensor) -> Any:
    if not is_sized(x):
        return NotImplemented
    return median(ignores_nan, x.reshape(-1), 0)[0]


def mode(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The smallest of the most frequent elements, and its last place."""
    if not is_sized(x) or x.dim() == 0:
        return NotImplemented
    row = x.movedim(dim, -1)
    ranks, length = _ranks(row), row.shape[-1]
    counts = (row.unsqueeze(-1) == row.unsqueeze(-2)).sum(-1).clamp(min=1)  # of NaN as well
    most = counts.amax(-1, keepdim=True)
    first = torch.where(counts == most, ranks, length).amin(-1, keepdim=True)
    return _of_rank(row, ranks, first + most - 1, dim, keepdim)


def bucketize(
    x: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False
) -> Any:
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


def searchsorted(
    boundaries: torch.Tensor,
    x: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> Any:
    if not is_sized(x, boundaries):
        return NotImplemented
    if sorter is not None:
        boundaries = boundaries.gather(-1, sorter)
    if boundaries.dim() > 1:  # rows of their own for each row of what is searched for
        boundaries = boundaries.unsqueeze(-2)
    value = x.unsqueeze(-1)
    is_right = right or side == "right"
    is_left = ~(value < boundaries) if is_right else ~(value <= boundaries)
    return is_left.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def searchsorted_of_number(boundaries: torch.Tensor, x: Any, **options: Any) -> Any:
    if not is_sized(boundaries):
        return NotImplemented
    return searchsorted(boundaries, torch.full((), x, device=boundaries.device), **options)

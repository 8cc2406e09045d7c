"""Strategies: tensors of any layout in a larger buffer, with something to lose around them."""

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, torch.complex64)
MAX_ELEMENTS = 600


@dataclass(frozen=True)
class Layout:
    """A view by its shape, strides and offset, of a buffer of `length` elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    length: int

    def of(self, base: torch.Tensor) -> torch.Tensor:
        return base.as_strided(self.shape, self.strides, self.offset)

    def surroundings(self, base: torch.Tensor) -> torch.Tensor:
        """The bytes of the elements outside of the view."""
        outside = torch.ones(self.length, dtype=torch.bool)
        self.of(outside).fill_(False)
        return base.view(torch.uint8).view(self.length, -1)[outside]


def shapes(max_dims: int = 6) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of 0 to max_dims dimensions, also with sizes 0 and 1."""
    sizes = st.one_of(st.integers(1, 4), st.sampled_from([0, 1, 7, 8, 16, 33]))
    shape = st.lists(sizes, max_size=max_dims).map(tuple)
    return shape.filter(lambda shape: math.prod(shape) <= MAX_ELEMENTS)


@st.composite
def layouts(draw, shape: tuple[int, ...], overlapping: bool = False) -> Layout:
    """A layout of that shape: dimensions in any order, with gaps and an offset. With `overlapping`,
    elements may share memory: expanded dimensions, windows that slide by less than their size."""
    strides = [0] * len(shape)
    step = draw(st.sampled_from([1, 1, 1, 2, 3]))
    for dim in draw(st.permutations(range(len(shape)))):
        strides[dim] = step
        gap = draw(st.sampled_from([0, 0, 0, 1, 3]))
        step *= max(1, shape[dim])
        step += gap
    if overlapping:
        for dim in range(len(shape)):
            strides[dim] = draw(st.sampled_from([strides[dim]] * 4 + [0, 1]))
    offset = draw(st.integers(0, 9))
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    extent = last + 1 if math.prod(shape) else 0
    return Layout(shape, tuple(strides), offset, offset + extent + draw(st.integers(1, 9)))


@st.composite
def broadcast_shapes(draw, count: int, max_dims: int = 5) -> tuple[tuple[int, ...], ...]:
    """Shapes that broadcast together; the first one is the result's."""
    full = draw(shapes(max_dims))
    found = [full]
    for _ in range(count - 1):
        kept = [1 if draw(st.integers(0, 3)) == 0 else size for size in full]
        found.append(tuple(kept[draw(st.integers(0, len(full))) :]))
    return tuple(found)


def numbers(length: int, dtype: torch.dtype, seed: int, bound: int = 100) -> torch.Tensor:
    """A flat tensor. Integers up to `bound`, for int64 also beyond 32 bits; floats with halves,
    zeros of both signs and values far apart."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.complex64:
        return torch.view_as_complex(torch.randn(length, 2, generator=generator))
    low = 0 if dtype in (torch.uint8, torch.bool) else -bound
    whole = torch.randint(low, bound + 1, (length,), generator=generator)
    if dtype == torch.bool:
        return whole % 2 == 1
    if dtype.is_floating_point:
        near = torch.randn(length, generator=generator)
        return torch.where(whole % 3 == 0, whole / 2, near * (whole % 5)).to(dtype)
    if dtype == torch.int64 and bound >= 100:
        return torch.where(whole % 3 == 0, whole << 34, whole)
    return whole.to(dtype)


seeds = st.integers(0, 99)

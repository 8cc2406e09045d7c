"""Joining, gathering and scattering over layouts, dtypes and dimensions."""

import torch
from comparison import check_in_place, check_result
from hypothesis import assume, given
from hypothesis import strategies as st
from layouts import DTYPES, broadcast_shapes, layouts, numbers, seeds, shapes

MOVABLE = (*DTYPES, torch.float64)


def operand(data, shape, dtype, overlapping=True):
    layout = data.draw(layouts(shape, overlapping))
    return numbers(layout.length, dtype, data.draw(seeds), 20), layout


def indices(data, shape, size, distinct=False):
    """Indices into `size` elements; negative ones are the caller's business."""
    layout = data.draw(layouts(shape))
    generator = torch.Generator().manual_seed(data.draw(seeds))
    if distinct:
        base = torch.randperm(size, generator=generator).repeat(layout.length // max(size, 1) + 1)
        base = base[: layout.length].clone()
        flat = torch.zeros(layout.length, dtype=torch.int64)
        layout.of(flat).copy_(base[: layout.of(flat).numel()].view(layout.shape))
        return flat, layout
    return torch.randint(0, size, (layout.length,), generator=generator), layout


@st.composite
def dims_of(draw, max_dims=4):
    """A shape of at least one dimension, all of some size, and a dimension."""
    shape = draw(shapes(max_dims))
    assume(shape and all(shape))
    return shape, draw(st.integers(0, len(shape) - 1))


@given(st.data(), dims_of(), st.sampled_from(MOVABLE), st.integers(1, 3))
def test_cat(data, found, dtype, count):
    shape, dim = found
    parts = []
    for _ in range(count):
        size = data.draw(st.sampled_from([0, 1, 3, shape[dim]]))
        parts.append(operand(data, (*shape[:dim], size, *shape[dim + 1 :]), dtype))
    check_result(lambda *parts: torch.cat(parts, dim), *parts)


@given(st.data(), dims_of(), st.sampled_from(MOVABLE))
def test_index_select(data, found, dtype):
    shape, dim = found
    chosen = indices(data, (data.draw(st.integers(0, 9)),), shape[dim])
    check_result(lambda x, i: x.index_select(dim, i), operand(data, shape, dtype), chosen)


@given(st.data(), dims_of(), st.sampled_from(MOVABLE))
def test_gather(data, found, dtype):
    shape, dim = found
    taken = tuple(data.draw(st.integers(0, size)) for size in shape)
    check_result(
        lambda x, i: x.gather(dim, i),
        operand(data, shape, dtype),
        indices(data, taken, shape[dim]),
    )


@given(st.data(), dims_of(3), st.sampled_from(DTYPES))
def test_index_by_tensors(data, found, dtype):
    shape, dim = found
    rows, columns = data.draw(broadcast_shapes(2, max_dims=2))
    first = indices(data, rows, shape[0])
    second = indices(data, columns, shape[dim])
    if dim == 0:
        check_result(lambda x, i: x[i], operand(data, shape, dtype), first)
    else:
        between = (slice(None),) * (dim - 1)
        check_result(
            lambda x, i, j: x[(i, *between, j)], operand(data, shape, dtype), first, second
        )


@given(st.data(), dims_of(3), st.sampled_from(MOVABLE))
def test_index_by_a_mask(data, found, dtype):
    shape, _ = found
    depth = data.draw(st.integers(1, len(shape)))
    mask = operand(data, shape[:depth], torch.bool)
    check_result(lambda x, mask: x[mask], operand(data, shape, dtype), mask)


@given(st.data(), dims_of(3), st.sampled_from(DTYPES), st.booleans())
def test_index_put(data, found, dtype, accumulate):
    """Distinct places unless added up, since the order of writes to one is not promised."""
    shape, _ = found
    places = data.draw(st.integers(0, shape[0] if not accumulate else 9))
    chosen = indices(data, (places,), shape[0], distinct=not accumulate)
    near = {"rtol": 2e-2, "atol": 2e-1} if dtype.is_floating_point or dtype.is_complex else {}
    check_in_place(
        lambda x, i, values: x.index_put_((i,), values, accumulate=accumulate),
        operand(data, shape, dtype, overlapping=False),
        chosen,
        operand(data, (places, *shape[1:]), dtype),
        **near,
    )


@given(st.data(), dims_of(3), st.sampled_from(MOVABLE))
def test_scatter(data, found, dtype):
    shape, dim = found
    count = data.draw(st.integers(0, shape[dim]))
    chosen = indices(data, (count,), shape[dim], distinct=True)
    source = operand(data, (*shape[:dim], count, *shape[dim + 1 :]), dtype)

    def scatter(x, i, source):
        columns = i.view(-1, *[1] * (len(shape) - dim - 1)).expand(source.shape)
        return x.scatter_(dim, columns, source)

    check_in_place(scatter, operand(data, shape, dtype, overlapping=False), chosen, source)


@given(st.data(), dims_of(3), st.sampled_from(DTYPES))
def test_scatter_add(data, found, dtype):
    shape, dim = found
    assume(dtype != torch.bool)
    taken = tuple(
        data.draw(st.integers(0, 9 if d == dim else size)) for d, size in enumerate(shape)
    )
    near = {"rtol": 2e-2, "atol": 2e-1} if dtype.is_floating_point or dtype.is_complex else {}
    check_in_place(
        lambda x, i, source: x.scatter_add_(dim, i, source),
        operand(data, shape, dtype, overlapping=False),
        indices(data, taken, shape[dim]),
        operand(data, taken, dtype),
        **near,
    )


@given(st.data(), broadcast_shapes(2, max_dims=4), st.sampled_from(DTYPES))
def test_masked_fill(data, found, dtype):
    shape, mask = found
    check_in_place(
        lambda to, mask: to.masked_fill_(mask, 1),
        operand(data, shape, dtype, overlapping=False),
        operand(data, mask, torch.bool),
    )

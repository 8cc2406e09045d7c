"""Copies between layouts, dtypes and devices, and filling."""

import torch
from comparison import check_in_place, check_result
from hypothesis import given
from hypothesis import strategies as st
from layouts import DTYPES, layouts, numbers, seeds, shapes
from torch.testing import assert_close

# Small enough to be converted to any dtype without wrapping.
BOUND = 15
ALL_DTYPES = (*DTYPES, torch.float64)


def source(data, shape, dtype, overlapping=True):
    layout = data.draw(layouts(shape, overlapping))
    base = numbers(layout.length, dtype, data.draw(seeds), BOUND)
    return base.abs() if not dtype.is_complex and dtype != torch.bool else base, layout


def target(data, shape, dtype):
    layout = data.draw(layouts(shape))
    return numbers(layout.length, dtype, data.draw(seeds), BOUND), layout


@given(st.data(), shapes(), st.sampled_from(DTYPES))
def test_copy_on_the_device(data, shape, dtype):
    check_in_place(
        lambda to, what: to.copy_(what), target(data, shape, dtype), source(data, shape, dtype)
    )


@given(st.data(), shapes(4), st.sampled_from(ALL_DTYPES), st.sampled_from(ALL_DTYPES))
def test_copy_with_conversion(data, shape, to, source_dtype):
    if source_dtype.is_complex and not to.is_complex:
        source_dtype = torch.float32  # would warn of the discarded imaginary part
    check_in_place(
        lambda to, what: to.copy_(what),
        target(data, shape, to),
        source(data, shape, source_dtype),
    )


@given(st.data(), shapes(4), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_copy_from_the_host(data, shape, to, source_dtype):
    if source_dtype.is_complex and not to.is_complex:
        source_dtype = to
    base, layout = source(data, shape, source_dtype)
    check_in_place(
        lambda to, what: to.copy_(what), target(data, shape, to), (layout.of(base), None)
    )


@given(st.data(), shapes(4), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_copy_to_the_host(data, shape, to, source_dtype):
    if source_dtype.is_complex and not to.is_complex:
        source_dtype = to
    host, layout = target(data, shape, to)
    base, view = source(data, shape, source_dtype)
    before = host.clone()
    layout.of(host).copy_(view.of(base.to("webgpu")))
    assert torch.equal(layout.surroundings(host), layout.surroundings(before))
    layout.of(before).copy_(view.of(base))
    assert_close(layout.of(host), layout.of(before))


@given(st.data(), st.sampled_from(DTYPES), st.integers(1, 20), st.integers(1, 3))
def test_copy_between_interleaved_views(data, dtype, length, step):
    """Views of one buffer that do not overlap, which lie in one binding."""
    base = numbers(2 * step * length, dtype, data.draw(seeds))
    device = base.to("webgpu")
    for x in (base, device):
        x[:: 2 * step].copy_(x[step :: 2 * step])
    assert torch.equal(device.cpu(), base)


@given(st.data(), shapes(), st.sampled_from(DTYPES), st.sampled_from([0, 1, 7, 100, True]))
def test_fill(data, shape, dtype, value):
    check_in_place(lambda to: to.fill_(value), target(data, shape, dtype))


@given(st.data(), shapes(), st.sampled_from(DTYPES))
def test_zero(data, shape, dtype):
    check_in_place(lambda to: to.zero_(), target(data, shape, dtype))


@given(st.data(), shapes(), st.sampled_from(DTYPES))
def test_contiguous(data, shape, dtype):
    check_result(lambda x: x.contiguous(), source(data, shape, dtype))

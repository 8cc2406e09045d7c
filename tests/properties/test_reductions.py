"""Reductions over layouts, dtypes and sets of dimensions."""

import torch
from comparison import check_result
from hypothesis import assume, given
from hypothesis import strategies as st
from layouts import DTYPES, FLOATS, INTEGERS, layouts, numbers, seeds, shapes

NEAR = {"rtol": 2e-3, "atol": 2e-3}


@st.composite
def problems(draw, dtypes, max_dims=5):
    """An operand, and the dimensions to reduce."""
    shape = draw(shapes(max_dims))
    dtype = draw(st.sampled_from(dtypes))
    layout = draw(layouts(shape, overlapping=True))
    dims = draw(st.sets(st.integers(0, len(shape) - 1))) if shape else ()
    base = numbers(layout.length, dtype, draw(seeds), 20)
    return (base, layout), tuple(dims)


@given(problems(DTYPES), st.booleans())
def test_sum(problem, keepdim):
    operand, dims = problem
    near = NEAR if operand[0].is_floating_point() or operand[0].is_complex() else {}
    check_result(lambda x: x.sum(dims, keepdim=keepdim), operand, **near)


@given(problems(FLOATS), st.sampled_from([None, torch.float32, torch.float16]))
def test_mean(problem, dtype):
    operand, dims = problem
    near = {"rtol": 1e-2, "atol": 1e-2} if operand[0].dtype == torch.bfloat16 else NEAR
    check_result(lambda x: x.mean(dims, dtype=dtype), operand, **near)


@given(problems((*FLOATS, *INTEGERS, torch.bool)), st.sampled_from(["amax", "amin"]))
def test_extremes(problem, name):
    operand, dims = problem
    assume(operand[1].length and all(operand[1].shape))  # of nothing there is none
    check_result(lambda x: getattr(x, name)(dims), operand)


@given(problems(DTYPES), st.sampled_from(["any", "all"]))
def test_truth(problem, name):
    operand, dims = problem
    check_result(lambda x: getattr(torch, name)(x, dim=dims), operand)


@given(st.data(), shapes(4), st.sampled_from(["argmax", "argmin"]), st.booleans())
def test_place_of_the_extreme(data, shape, name, keepdim):
    assume(all(shape))
    layout = data.draw(layouts(shape))
    # All different: which of equal elements is found is not promised.
    base = torch.randperm(layout.length, generator=torch.Generator().manual_seed(data.draw(seeds)))
    dim = data.draw(st.sampled_from([None, *range(len(shape))]))
    dtype = data.draw(st.sampled_from([torch.float32, torch.int32, torch.int64]))
    check_result(lambda x: getattr(x, name)(dim, keepdim=keepdim), (base.to(dtype), layout))

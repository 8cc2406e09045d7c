"""Pointwise operations over layouts, dtypes, broadcasting and promotion."""

import torch
from comparison import check_in_place, check_result
from hypothesis import assume, given
from hypothesis import strategies as st
from layouts import DTYPES, FLOATS, INTEGERS, broadcast_shapes, layouts, numbers, seeds, shapes

ORDERED = (torch.lt, torch.ge, torch.maximum, torch.minimum)
ANY = (torch.add, torch.mul, torch.eq, torch.ne, torch.logical_xor)
# Operations by what the operands are promoted to.
OPERATIONS = {
    "bool": (*ANY, *ORDERED, torch.bitwise_and, torch.bitwise_xor),
    "integer": (*ANY, *ORDERED, torch.sub, torch.bitwise_or, torch.true_divide),
    "float": (*ANY, *ORDERED, torch.sub, torch.true_divide),
    "complex": (*ANY, torch.sub),
}
# A product of two rounded halves may round the other way; sums of complex products cancel.
COMPLEX = {"rtol": 1e-4, "atol": 1e-4}


def kind(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "bool"
    if dtype.is_complex:
        return "complex"
    return "float" if dtype.is_floating_point else "integer"


def tolerances(*dtypes: torch.dtype) -> dict[str, float]:
    return COMPLEX if torch.complex64 in dtypes else {}


def operand(data, shape, dtype, overlapping=True):
    layout = data.draw(layouts(shape, overlapping))
    return numbers(layout.length, dtype, data.draw(seeds)), layout


@given(st.data(), broadcast_shapes(3), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_binary(data, found, left, right):
    operations = OPERATIONS[kind(torch.promote_types(left, right))]
    if torch.bool in (left, right):
        operations = [operation for operation in operations if operation is not torch.sub]
    operation = data.draw(st.sampled_from(operations))
    operands = [
        operand(data, shape, dtype) for shape, dtype in zip(found[1:], (left, right), strict=True)
    ]
    # Complex halves, to which a single complex number and halves promote, have no kernels.
    assume(torch.result_type(*(layout.of(base) for base, layout in operands)) != torch.complex32)
    if torch.promote_types(left, right) == torch.float16:
        # An integer that is no finite half: the CPU multiplies a single one as float32, CUDA and
        # this device as a half.
        operands = [
            (base.clamp(-65504, 65504) if base.dtype == torch.int64 else base, layout)
            for base, layout in operands
        ]
    check_result(operation, *operands, **tolerances(left, right))


@given(
    st.data(),
    shapes(4),
    st.sampled_from(DTYPES),
    st.sampled_from([2, -3, True, 0.5, torch.tensor(3), torch.tensor(1.5)]),
)
def test_with_a_number(data, shape, dtype, number):
    """Python numbers and 0-d CPU tensors are passed to the kernel with its parameters."""
    promoted = torch.result_type(torch.empty(1, dtype=dtype), number)
    operation = data.draw(st.sampled_from(OPERATIONS[kind(promoted)][:4]))
    x = operand(data, shape, dtype)
    check_result(lambda x: operation(x, number), x, **tolerances(promoted))


@given(st.data(), shapes(), st.sampled_from(DTYPES), st.sampled_from(["add_", "mul_"]))
def test_in_place(data, shape, dtype, name):
    check_in_place(
        lambda to, other: getattr(to, name)(other),
        operand(data, shape, dtype, overlapping=False),
        operand(data, shape, dtype),
        **tolerances(dtype),
    )


@given(st.data(), shapes(4), st.sampled_from([*INTEGERS, *FLOATS]))
def test_result_into_a_view(data, shape, dtype):
    check_in_place(
        lambda out, a, b: torch.sub(a, b, out=out),
        operand(data, shape, torch.promote_types(dtype, torch.int16), overlapping=False),
        operand(data, shape, dtype),
        operand(data, shape, torch.int16),
    )


@given(st.data(), st.sampled_from(DTYPES), st.integers(1, 40), st.integers(1, 5))
def test_operands_of_one_buffer(data, dtype, length, distance):
    """Output and both inputs are views of one tensor; the inputs overlap each other."""
    base = numbers(3 * length + 2 * distance, dtype, data.draw(seeds))
    device = base.to("webgpu")
    for x in (base, device):
        torch.mul(x[:length], x[distance : length + distance], out=x[-length:])
    torch.testing.assert_close(device.cpu(), base, equal_nan=True, **tolerances(dtype))


UNARY = {
    "negative": (torch.neg, (*FLOATS, *INTEGERS, torch.complex64)),
    "absolute": (torch.abs, (*FLOATS, *INTEGERS)),
    "complement": (torch.bitwise_not, (*INTEGERS, torch.bool)),
    "not": (torch.logical_not, DTYPES),
    "sign": (torch.sign, (*FLOATS, *INTEGERS, torch.bool)),
    "square root": (lambda x: x.abs().sqrt(), FLOATS),
}


@given(st.data(), shapes(), st.sampled_from(sorted(UNARY)))
def test_unary(data, shape, name):
    function, dtypes = UNARY[name]
    dtype = data.draw(st.sampled_from(dtypes))
    check_result(function, operand(data, shape, dtype), **tolerances(dtype))


@given(st.data(), shapes(4), st.sampled_from([*FLOATS, *INTEGERS]), st.integers(0, 2))
def test_clamp(data, shape, dtype, sides):
    low, high = sorted((data.draw(st.integers(0, 50)), data.draw(st.integers(0, 50))))
    limits = [{"min": low}, {"max": high}, {"min": low, "max": high}][sides]
    check_result(lambda x: x.clamp(**limits), operand(data, shape, dtype))


@given(st.data(), broadcast_shapes(4, max_dims=4), st.sampled_from(DTYPES))
def test_where(data, found, dtype):
    condition, left, right = found[1:]
    check_result(
        torch.where,
        operand(data, condition, torch.bool),
        operand(data, left, dtype),
        operand(data, right, dtype),
    )


@given(st.data(), shapes(3), st.sampled_from(FLOATS))
def test_special_values(data, shape, dtype):
    """NaN, infinities and zeros of both signs, at any place of a vector."""
    base, layout = operand(data, shape, dtype)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0], dtype=dtype)
    chosen = numbers(layout.length, torch.int32, data.draw(seeds)).remainder(9)
    base = torch.where(chosen < 5, special[chosen.clamp_max(4)], base)
    other = (base.flip(0).contiguous(), layout)
    operations = (torch.eq, torch.lt, torch.maximum, torch.minimum, torch.add, torch.mul)
    check_result(data.draw(st.sampled_from(operations)), (base, layout), other)

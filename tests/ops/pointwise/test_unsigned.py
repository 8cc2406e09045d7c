"""Unsigned integers and complex32: of the few operators that PyTorch has, what runs on the device,
and what does not."""

import operator

import pytest
import torch
from common import DEVICE, check, check_error

TYPES = {torch.uint16: 1 << 16, torch.uint32: 1 << 32}
OPERATORS = [
    *(operator.eq, operator.ne, operator.mul),
    *(operator.and_, operator.or_, operator.xor),
]


def numbers(dtype):
    """With the halves of the range beside each other, and both ends."""
    end = TYPES[dtype]
    half = end // 2
    values = [0, 1, 2, 3, 7, half - 1, half, half + 1, end - 2, end - 1]
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("function", OPERATORS)
@pytest.mark.parametrize("dtype", TYPES)
def test_operators(dtype, function):
    a = numbers(dtype)
    b = torch.cat([a[1:], a[:1]])
    check(function, a, b)
    check(function, a, a)
    check(function, a[:, None], b)  # every pair
    check(function, a[::2], b[1::2])
    for number in (0, 3, -1, TYPES[dtype] - 1, TYPES[dtype] // 2):
        check(lambda a, n=number: function(a, n), a)
    if function not in (operator.eq, operator.ne):
        name = f"__i{function.__name__.strip('_')}__"
        check(lambda a, b: getattr(a.clone(), name)(b), a, b)


@pytest.mark.parametrize("dtype", TYPES)
def test_bounds(dtype):
    """The CPU has these since torch 2.15: they are compared with those of int64."""
    a = numbers(dtype)
    b, low, high = a.to(torch.int64).flip(0).to(dtype), 3, TYPES[dtype] // 2
    for function in (
        torch.minimum,
        torch.maximum,
        lambda a, b: a.clamp(low, high),
        lambda a, b: a.clamp(min=high),
        lambda a, b: a.clamp(max=high),
        lambda a, b: a.clamp(b, a),
    ):
        actual = function(a.to(DEVICE), b.to(DEVICE))
        assert actual.dtype == dtype
        assert torch.equal(actual.cpu().long(), function(a.long(), b.long()))


@pytest.mark.parametrize("dtype", TYPES)
def test_negative_bounds_do_not_wrap(dtype):
    x = numbers(dtype).to(DEVICE)
    if torch.__version__ < "2.15":
        with pytest.raises(RuntimeError, match="without overflow"):
            x.clamp(-1, 5)
    else:  # from then on PyTorch takes the nearest bound that the dtype has
        assert torch.equal(x.clamp(-1, 5).cpu().long(), x.cpu().long().clamp(-1, 5))


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_made_of_them(dtype):
    a = numbers(dtype)
    x = a.to(DEVICE)
    assert torch.equal(x, x.clone()) and not torch.equal(x, x.roll(1))
    assert x.nonzero().flatten().tolist() == list(range(1, len(a)))


def counted(function, *args):
    torch.webgpu.reset_fallbacks()
    function(*(x.to(DEVICE) for x in args))
    return set(torch.webgpu.fallbacks())


WIDE = torch.tensor([3, 1, 2], dtype=torch.uint64)
HALVES = torch.tensor([1 + 2j, 3j], dtype=torch.complex64).to(torch.complex32)
# Operators that run on the CPU, counted.
ON_THE_CPU = {
    "sort of uint16": (torch.sort, numbers(torch.uint16), "sort"),
    "sort of uint32": (torch.sort, numbers(torch.uint32), "sort"),
    "conversion of uint64": (lambda x: x.to(torch.int64), WIDE, "_copy_from"),
    "== of uint64": (lambda x: x == x, WIDE, "eq"),
    "* of uint64": (lambda x: x * x, WIDE, "mul"),
    "& of uint64": (lambda x: x & x, WIDE, "bitwise_and"),
    "sort of uint64": (torch.sort, WIDE, "sort"),
    "+ of complex32": (lambda x: x + x, HALVES, "add"),
    "* of complex32": (lambda x: x * x, HALVES, "mul"),
    "- of complex32": (torch.neg, HALVES, "neg"),
    "== of complex32": (lambda x: x == x, HALVES, "eq"),
    "abs of complex32": (torch.abs, HALVES, "abs"),
    "conj of complex32": (lambda x: x.conj().resolve_conj(), HALVES, "_copy_from"),
}


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_what_runs_on_the_cpu(name, silent_fallbacks):
    function, x, operator_name = ON_THE_CPU[name]
    assert counted(function, x) == {f"aten::{operator_name}"}


@pytest.mark.parametrize("dtype", TYPES)
def test_what_pytorch_does_not_have(dtype, silent_fallbacks):
    a = numbers(dtype)
    for function in (torch.add, torch.sub, torch.lt):
        check_error(function, a, a)
    check_error(torch.neg, a)

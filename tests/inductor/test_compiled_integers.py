"""Integers of all widths: what no operator stores is as it would be in a tensor of its type.

The reference is the CPU's eager mode. It has few operators of uint16 and uint32; the others are
computed in int64 there, of which each result is then converted.
"""

import random

import pytest
import torch
from compiled import DEVICE, compile

F = torch.nn.functional
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32]
DTYPES = [*SIGNED, *UNSIGNED]
SIZE = 1030

# By name: functions of two tensors of one type. None has a result between that int64 does not wrap
# but the type does and that decides about more than the lower bits.
OPS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a, b: -a,
    "square": lambda a, b: a.square(),
    "abs": lambda a, b: a.abs(),
    "not": lambda a, b: ~a,
    "and": lambda a, b: a & ~b,
    "or": lambda a, b: ~a | b,
    "xor": lambda a, b: ~a ^ b,
    "left": lambda a, b: a << (b & 7),
    "right": lambda a, b: a >> (b & 7),
    "number": lambda a, b: a * 117 + 100,
    "from_number": lambda a, b: 3 - a,
    "scaled": lambda a, b: torch.add(a, b, alpha=5),
    "maximum": lambda a, b: torch.maximum(a, b),
    "minimum": lambda a, b: torch.minimum(a, b),
    "where": lambda a, b: torch.where(a < b, a + 1, b - 1),
    "floor": lambda a, b: torch.div(a, b & 7 | 2, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b & 7 | 2, rounding_mode="trunc"),
    "remainder": lambda a, b: a % (b & 7 | 2),
    "flipped": lambda a, b: (a + b).flip(0),
}


def values(dtype, count=SIZE):
    """Some of all sizes, and the extremes."""
    info = torch.iinfo(dtype)
    bits = torch.randint(-(2**63), 2**63 - 1, (count,), dtype=torch.int64)
    wide = bits >> torch.randint(0, info.bits, (count,))
    return torch.cat([wide.to(dtype), torch.tensor([0, 1, info.min, info.max], dtype=dtype)])


def wrapped(function, dtype, *args):
    """function(*args) on the CPU, in int64 if it has no kernel of the type."""
    try:
        return function(*args)
    except NotImplementedError:
        return function(*(x.to(torch.int64) for x in args)).to(dtype)


def seen(x):
    """What a value is as seen by wider types, which no store has wrapped before."""
    return x.to(torch.int64), x.to(torch.float32), x == 1, x.to(torch.int32)


def assert_same(actual, expected, names):
    for name, one, other in zip(names, actual, expected, strict=True):
        for x, y in zip(one, other, strict=True):
            assert torch.equal(x.cpu(), y), name


@pytest.mark.sampled("torch.int32", "torch.int64", "torch.uint8")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_operator_wraps(dtype):
    torch.manual_seed(0)
    a, b = values(dtype), values(dtype)
    expected = [seen(wrapped(op, dtype, a, b)) for op in OPS.values()]
    compiled = compile(lambda a, b: [seen(op(a, b)) for op in OPS.values()])
    assert_same(compiled(a.to(DEVICE), b.to(DEVICE)), expected, OPS)


@pytest.mark.sampled("torch.int8", "torch.int64")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_chains_of_operators_wrap(dtype):
    torch.manual_seed(1)
    choose = random.Random(str(dtype))
    a, b = values(dtype), values(dtype)
    chains = [
        [(choose.choice(list(OPS)), choose.random() < 0.5) for _ in range(8)] for _ in range(8)
    ]

    def run(chain, apply, a, b):
        for name, is_first in chain:
            result = apply(OPS[name], a, b)
            a, b = (result, b) if is_first else (a, result)
        return a ^ b

    def on_cpu(op, a, b):
        return wrapped(op, dtype, a, b)

    expected = [seen(run(chain, on_cpu, a, b)) for chain in chains]
    compiled = compile(lambda a, b: [seen(run(c, lambda op, a, b: op(a, b), a, b)) for c in chains])
    assert_same(compiled(a.to(DEVICE), b.to(DEVICE)), expected, map(str, chains))


@pytest.mark.sampled("torch.int8", "torch.uint32")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conversions_wrap(dtype):
    torch.manual_seed(2)
    integers = [values(source) for source in DTYPES]
    # No float that the type's 64-bit relatives do not hold: that is no number in C++.
    floats = (torch.rand(SIZE) - 0.5) * 2.0 ** torch.randint(1, 31, (SIZE,))

    def converted(floats, *integers):
        every = [x.to(dtype) for x in (floats, *integers)]
        sums = [(x.to(torch.int64) * 3 - 2**40).to(dtype) for x in every]
        return [seen(x) for x in (*every, *sums)]

    expected = converted(floats, *integers)
    actual = compile(converted)(floats.to(DEVICE), *(x.to(DEVICE) for x in integers))
    assert_same(actual, expected, range(len(expected)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((1000,), 0), ((70, 12), 0), ((12, 70), 1)], ids=str)
def test_reductions_wrap(dtype, shape, dim):
    torch.manual_seed(3)
    x = values(dtype, 836 if len(shape) > 1 else 996).reshape(shape)

    def reduced(x):
        results = [x.sum(dim, dtype=dtype), x.prod(dim, dtype=dtype), x.sum(dim), (x + x).sum(dim)]
        return [seen(result) for result in (*results, x.amax(dim), x.amin(dim))]

    # The CPU lacks some of them for some types; of what wraps, the order of steps does not matter.
    wide = x.to(torch.int64)
    doubled = (wide + wide).to(dtype).to(torch.int64)
    narrow = [wide.sum(dim), wide.prod(dim), wide.amax(dim), wide.amin(dim)]
    total, product, most, least = (result.to(dtype) for result in narrow)
    results = [total, product, wide.sum(dim), doubled.sum(dim), most, least]
    actual = compile(reduced)(x.to(DEVICE))
    assert_same(actual, [seen(result) for result in results], range(len(results)))


@pytest.mark.sampled(
    "False-torch.int8",
    "True-torch.int16",
    "False-torch.int32",
    "True-torch.uint8",
    "False-torch.uint16",
    "True-torch.uint32",
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, *UNSIGNED], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_indices_as_values_wrap(dtype, dynamic):
    """Inductor computes with what arange gives as with integers without limits."""

    def indices(x, dtype):
        i = torch.arange(x.numel(), dtype=torch.int64, device=x.device)
        narrow = i.to(dtype)
        return [seen(y) for y in (narrow, narrow * narrow, (narrow * 3 - i).to(dtype))]

    def in_int64(x):
        i = torch.arange(x.numel())
        narrow = i.to(dtype).to(torch.int64)
        every = (narrow, narrow * narrow, narrow * 3 - i)
        return [seen(y.to(dtype)) for y in every]

    x = torch.zeros(70_000)
    actual = compile(lambda x: indices(x, dtype), dynamic=dynamic)(x.to(DEVICE))
    assert_same(actual, in_int64(x), range(3))


def test_large_numbers_beside_indices_wrap():
    def shifted(x):
        i = torch.arange(x.numel(), device=x.device)
        return i * 2**62 // 2**60 + x

    x = torch.zeros(1000, dtype=torch.int64)
    assert torch.equal(compile(shifted)(x.to(DEVICE)).cpu(), shifted(x))


def test_int64_of_what_has_wrapped_stays_int64():
    """Inductor computes in int32 where an index that never wraps would fit."""

    def quotients(x):
        i = torch.arange(x.numel(), device=x.device)
        narrow = (i - 5).to(torch.uint32).to(torch.int64)
        return narrow // 3, narrow % 100 + x, x[narrow % 100]

    x = torch.zeros(100, dtype=torch.int64)
    for one, other in zip(compile(quotients)(x.to(DEVICE)), quotients(x), strict=True):
        assert torch.equal(one.cpu(), other)


@pytest.mark.long  # the next test has numbers as large, of fewer indices
def test_large_indices_as_floats_are_rounded():
    def rounded(x):
        i = torch.arange(x.numel(), device=x.device)
        return i.float().to(torch.int64) - x, (i.float() * i.float()).to(torch.int64) + x

    x = torch.zeros(2**24 + 10, dtype=torch.int64)
    for one, other in zip(compile(rounded)(x.to(DEVICE)), rounded(x), strict=True):
        assert torch.equal(one.cpu(), other)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_integers_as_floats_are_rounded(dtype, dynamic):
    """Also of indices, of which Inductor takes a float for the number itself."""
    factor = 9 if dtype == torch.float16 else 3501  # of which the results are finite

    def rounded(x):
        i = torch.arange(x.numel(), device=x.device)
        numbers = (i, x, i * factor, x * factor)
        return [
            y
            for floats in (n.to(dtype) for n in numbers)
            for y in (floats.to(torch.int64), floats.float() - 1, floats == x, floats.amax())
        ]

    x = torch.arange(7000).flip(0)
    compiled = compile(rounded, dynamic=dynamic)(x.to(DEVICE))
    for k, (one, other) in enumerate(zip(compiled, rounded(x), strict=True)):
        assert torch.equal(one.cpu(), other), k


def test_products_of_indices_wrap_in_int64():
    def wrapped(x):
        i = torch.arange(x.numel(), device=x.device) + (1 << 31) - 2000
        return i * i * i * 8 // 8 + x

    x = torch.arange(1000)
    assert torch.equal(compile(wrapped)(x.to(DEVICE)).cpu(), wrapped(x))


def test_index_that_wraps_is_checked_as_what_it_became():
    """Bounds of a sum before it wraps said that the index is never negative."""

    def take(table, x):
        i = (torch.arange(10, dtype=torch.int32, device=x.device) + 120).to(torch.int8)
        j = (x.clamp(0, 100) + x.clamp(0, 100)).to(torch.int64)
        return table[i.to(torch.int64)], table[j]

    table, x = torch.arange(300.0), torch.full((10,), 100, dtype=torch.int8)
    expected = take(table, x)
    for one, other in zip(compile(take)(table.to(DEVICE), x.to(DEVICE)), expected, strict=True):
        assert torch.equal(one.cpu(), other)


BOUNDS = {
    "clamp": lambda x, bound: x.clamp(bound, bound),
    "minimum": lambda x, bound: x.clamp(min=bound),
    "maximum": lambda x, bound: x.clamp(max=bound),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.int64], ids=str)
@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_that_do_not_fit(dtype, name):
    """As in eager mode, which raises, wraps (-255 to -1 of uint8) or, since torch 2.15, takes the
    nearest that fits. Inductor wraps all of them."""
    info = torch.iinfo(dtype)
    for bound in (info.min - 1, info.max + 1, info.max + 45, 2 * info.min - 3):
        if info.min <= bound <= info.max:
            continue
        x = values(dtype).to(DEVICE)
        compiled = compile(lambda x, bound=bound: BOUNDS[name](x, bound))
        try:
            expected = BOUNDS[name](x, bound)
        except RuntimeError:
            with pytest.raises(RuntimeError, match="without overflow"):
                compiled(x)
        else:
            assert torch.equal(compiled(x).cpu(), expected.cpu())


@pytest.mark.sampled("torch.int64", "torch.uint16")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bounds_that_fit(dtype):
    info = torch.iinfo(dtype)
    x = values(dtype)
    bounds = [info.min, info.min + 1, 3, info.max - 1, info.max]
    compiled = compile(lambda x: [seen(op(x, b)) for op in BOUNDS.values() for b in bounds])
    wide = x.to(torch.int64)
    expected = [seen(op(wide, b).to(dtype)) for op in BOUNDS.values() for b in bounds]
    assert_same(compiled(x.to(DEVICE)), expected, range(len(expected)))


@pytest.mark.sampled("torch.int16", "torch.uint8")
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.int64], ids=str)
def test_numbers_that_do_not_fit(dtype):
    """As operands they wrap, in eager mode too."""
    info = torch.iinfo(dtype)
    x = values(dtype)

    def with_numbers(x):
        numbers = (info.max + 2, 3 * info.max + 3, -5)
        return [seen(y) for n in numbers for y in (x + n, x * n, x - n, x == n, n - x, x & n)]

    actual = compile(with_numbers)(x.to(DEVICE))
    numbers = [torch.tensor(n).to(dtype).item() for n in (info.max + 2, 3 * info.max + 3, -5)]
    wide = x.to(torch.int64)
    expected = [
        seen(y.to(y.dtype if y.dtype == torch.bool else dtype))
        for n in numbers
        for y in (wide + n, wide * n, wide - n, wide == n, n - wide, wide & n)
    ]
    assert_same(actual, expected, range(len(expected)))


# By name: functions of a tensor's values and of its indices, which lie around 0.
OF_INDICES = {
    "bool": lambda x, i: (i.bool() + i, i.bool().cumsum(0), i.bool().half() + x, i.bool() * x),
    "remainder": lambda x, i: (torch.fmod(i, 3) + x, torch.fmod(i, -7) + x, torch.fmod(5 - i, 3)),
    "quotient": lambda x, i: (torch.div(i, 3, rounding_mode="trunc") + x, i // -3 + x, i % -3),
    "truncated": lambda x, i: (
        torch.div(i, 7, rounding_mode="trunc") // 2 + x,
        torch.div(i, -3, rounding_mode="trunc") // -4 + x,
        x[torch.div(i * 10**8, 10**8, rounding_mode="trunc") // 3],
    ),
    "quotients": lambda x, i: (i // 5 // -7 + x, i // -5 // 7 + x, x[i // 5 // -7]),
    "beyond 32 bits": lambda x, i: ((i * 10**8).abs() // 3 + x, (i * 10**8).square() % 7 + x),
    "extremes": lambda x, i: torch.maximum(i * 10**8, i * -(10**9)) // 7 + x,
    "choice": lambda x, i: torch.where(i * 10**8 > 2**33, i * 10**8, -i) // 3 + x,
}


@pytest.mark.sampled(
    "bool-True",
    "remainder-False",
    "quotient-True",
    "truncated-False",
    "quotients-True",
    "beyond 32 bits-False",
    "extremes-True",
    "choice-False",
)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", OF_INDICES)
def test_functions_of_indices(name, dynamic):
    def apply(x):
        result = OF_INDICES[name](x, torch.arange(x.numel(), device=x.device) - 20)
        return result if isinstance(result, tuple) else (result,)

    x = values(torch.int64, 60) >> 8
    compiled = compile(apply, dynamic=dynamic)(x.to(DEVICE))
    for k, (one, other) in enumerate(zip(compiled, apply(x), strict=True)):
        assert torch.equal(one.cpu(), other), k


def filled(function):
    """The function of a tensor and a number, of which what it returns shows all values."""
    return lambda x, n: function(x, n) + x[:3].sum(dtype=x.dtype)


# What makes a number one of the tensor's type, by name.
CONVERSIONS = {
    "clamp": lambda x, n: x.clamp(-n, n),
    "clamp_max": lambda x, n: x.clamp(max=n),
    "full": filled(lambda x, n: torch.full((3,), n, dtype=x.dtype, device=x.device)),
    "full_like": filled(torch.full_like),
    "new_full": filled(lambda x, n: x.new_full((3,), n)),
    "fill": filled(torch.fill),
    "scalar_tensor": filled(lambda x, n: torch.scalar_tensor(n, dtype=x.dtype, device=x.device)),
    "tensor": filled(lambda x, n: torch.tensor([n, 1], dtype=x.dtype, device=x.device)),
    "pad": lambda x, n: F.pad(x, (1, 2), value=n),
    "masked_fill": lambda x, n: x.masked_fill(x > 3, n),
    "where": lambda x, n: torch.where(x > 3, x, n) + torch.where(x > 4, n, x),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([1], device=x.device), n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([1], device=x.device), n),
    "index_add": lambda x, n: x.index_add(0, torch.tensor([1], device=x.device), x[:1], alpha=n),
    "setitem": lambda x, n: set_item(x + 1, 2, n),
    "add": lambda x, n: torch.add(x, x, alpha=n),
    "add_number": lambda x, n: torch.add(x, 3, alpha=n),
    "sub": lambda x, n: torch.sub(x, x + 1, alpha=n),
    "rsub": lambda x, n: torch.rsub(x, x + 1, alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "addr": lambda x, n: torch.addr(torch.outer(x, x), x, x, alpha=n),
    "threshold": lambda x, n: F.threshold(x, 3, n),
    "threshold_at": lambda x, n: F.threshold(x, n, 3),
    "addmv": lambda x, n: torch.addmv(x, torch.outer(x, x), x, beta=n),
    "pow": lambda x, n: x**n,
}


def set_item(x, index, value):
    x[index] = value
    return x


def outcome(function, x):
    try:
        return function(x).cpu()
    except RuntimeError as error:
        is_expected = "without overflow" in str(error) or "negative integer powers" in str(error)
        return "raises" if is_expected else str(error)


@pytest.mark.sampled(4, 2)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_converted_numbers_that_do_not_fit(name, dtype):
    """They raise. Inductor wraps them."""
    conversion = CONVERSIONS[name]
    limits = torch.iinfo(dtype)
    x = torch.arange(6).to(dtype).to(DEVICE)
    numbers = {limits.min, limits.min - 1, -limits.max, -limits.max - 2, limits.max, limits.max + 1}
    for n in (*numbers, limits.max + 45):
        compiled = compile(lambda x, n=n: conversion(x, n))
        expected = outcome(lambda x, n=n: conversion(x, n), x)
        actual = outcome(compiled, x)
        assert isinstance(actual, str) == isinstance(expected, str), n
        if isinstance(expected, str):
            assert actual == expected == "raises"
        else:
            assert torch.equal(actual, expected), n


@pytest.mark.sampled(4, 1)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_converted_sizes_that_do_not_fit(name, dtype):
    compiled = compile(lambda x: CONVERSIONS[name](x, x.shape[0]), dynamic=True)
    for size in (100, 300, 200, 90, 260, 256):
        x = torch.arange(size).to(dtype).to(DEVICE)
        expected = outcome(lambda x: CONVERSIONS[name](x, x.shape[0]), x)
        actual = outcome(compiled, x)
        if isinstance(expected, str):
            assert actual == expected == "raises", size
        else:
            assert torch.equal(actual, expected), size


@pytest.mark.parametrize("name", ["clamp_max", "full", "tensor", "masked_fill", "where", "pow"])
def test_conditions_on_sizes_as_numbers(name):
    def convert(x):
        return CONVERSIONS[name](x, x.shape[0] > 80)

    compiled = compile(convert, dynamic=True)
    for size in (70, 90):
        x = torch.arange(size).to(torch.int8)
        assert torch.equal(compiled(x.to(DEVICE)).cpu(), convert(x))


def test_numbers_beyond_64_bits():
    x = torch.arange(6, device=DEVICE)
    for name in ("clamp_max", "add", "scatter"):
        for n in (2**63, 2**64 - 1):
            compiled = compile(lambda x, n=n, name=name: CONVERSIONS[name](x, n))
            assert outcome(compiled, x) == "raises"
    # Floats are compared as such.
    compiled = compile(lambda x: F.pad(x, (0, 1), value=2.0**63))
    assert torch.equal(compiled(x).cpu(), F.pad(x.cpu(), (0, 1), value=2.0**63))


def test_ends_of_linspace_that_do_not_fit():
    def convert(x, last):
        return torch.linspace(0, last, 4, dtype=x.dtype, device=x.device) + x[:4]

    x = torch.arange(6, dtype=torch.int8, device=DEVICE)
    assert torch.equal(compile(convert)(x, 120).cpu(), convert(x.cpu(), 120))
    assert outcome(lambda x: compile(convert)(x, 300), x) == "raises"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64], ids=str)
def test_numbers_computed_from_sizes(dtype):
    def convert(x):
        n = x.shape[0]
        names, numbers = ("scatter", "pad", "add"), (n // 3, 2 * n, max(n, 90), n % 7)
        return [seen(CONVERSIONS[name](x, number)) for name in names for number in numbers]

    x = torch.arange(70).to(dtype)
    expected, actual = convert(x), compile(convert, dynamic=True)(x.to(DEVICE))
    assert_same(actual, expected, range(len(expected)))


@pytest.mark.parametrize("name", ["clamp_max", "full", "tensor", "masked_fill", "add"])
def test_converted_data_that_do_not_fit(name):
    def convert(x, n):
        return CONVERSIONS[name](x, n.item())

    x = torch.arange(6).to(torch.int8).to(DEVICE)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = compile(convert, fullgraph=True)
        for n in (5, 127, -128, 128, -129):
            data = torch.tensor(n, device=DEVICE)
            if -128 <= n <= 127:
                assert torch.equal(compiled(x, data).cpu(), convert(x, data).cpu())
            else:
                with pytest.raises(RuntimeError, match=r"u0 <= 127|u0 >= -128"):
                    compiled(x, data)


@pytest.mark.parametrize("name", ["full", "fill", "masked_fill", "setitem", "threshold", "scatter"])
def test_complex_numbers(name):
    for dtype in (torch.int8, torch.float32):
        x = torch.arange(6).to(dtype).to(DEVICE)
        with pytest.raises(Exception, match=r"without overflow|complex"):
            compile(lambda x: CONVERSIONS[name](x, 1 + 2j))(x)


# By name: functions of a list and a number.
OF_LISTS = {
    "add_alpha": lambda xs, n: torch._foreach_add(xs, xs, alpha=n),
    "add_tensor": lambda xs, n: torch._foreach_add(xs, xs[0][1], alpha=n),
    "sub": lambda xs, n: torch._foreach_sub(xs, n),
    "sub_alpha": lambda xs, n: torch._foreach_sub(xs, xs, alpha=n),
    "mul": lambda xs, n: torch._foreach_mul(xs, n),
    "clamp_max": lambda xs, n: torch._foreach_clamp_max(xs, n),
    "clamp_min": lambda xs, n: torch._foreach_clamp_min(xs, n),
    "maximum": lambda xs, n: torch._foreach_maximum(xs, n),
    "minimum": lambda xs, n: torch._foreach_minimum(xs, n),
    "minimum_": lambda xs, n: set_list(torch._foreach_minimum_, xs, n),
    "pow": lambda xs, n: torch._foreach_pow(xs, n),
    "pow_of_number": lambda xs, n: torch._foreach_pow(n, xs),
    "addcmul": lambda xs, n: torch._foreach_addcmul(xs, xs, xs, value=n),
}


def set_list(function, xs, n):
    xs = torch._foreach_add(xs, 1)
    function(xs, n)
    return xs


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", OF_LISTS)
def test_numbers_for_lists(name, dtype):
    """As an operator on one tensor. Inductor wraps what does not fit."""
    xs = [torch.arange(6).to(dtype), torch.arange(3, 9).to(dtype)]
    for n in (-300, -200, -1, 3, 127, 128, 256, 300, True):
        on_device = [x.to(DEVICE) for x in xs]
        compiled = compile(lambda xs, n=n: OF_LISTS[name](xs, n))
        try:
            expected = OF_LISTS[name](xs, n)
        except RuntimeError as error:
            text = str(error).split(" type ")[0]
            with pytest.raises(RuntimeError) as raised:
                compiled(on_device)
            assert text in str(raised.value), n
        else:
            for one, other in zip(compiled(on_device), expected, strict=True):
                assert torch.equal(one.cpu(), other), n


REFUSED = {
    "alpha_of_add": lambda x: torch.add(x, x, alpha=True),
    "alpha_of_number": lambda x: torch.add(x, 3, alpha=True),
    "alpha_of_sub": lambda x: torch.sub(x, x, alpha=True),
    "alpha_of_rsub": lambda x: torch.rsub(x, x, alpha=True),
    "floating_alpha": lambda x: torch.add(x.long(), x.long(), alpha=2.5),
    "floating_alpha_of_bool": lambda x: torch.add(x > 1, x > 1, alpha=2.5),
    "boolean_number": lambda x: x - True,
    "from_boolean_number": lambda x: True - x,
    "boolean_tensor": lambda x: (x > 1) - 3,
    "condition_on_sizes": lambda x: x - (x.shape[0] > 3),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.float32], ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_booleans_and_fractions_in_sums(name, dtype):
    x = torch.arange(6).to(dtype)
    with pytest.raises(RuntimeError) as expected:
        REFUSED[name](x)
    with pytest.raises(RuntimeError) as raised:
        compile(REFUSED[name], dynamic=True)(x.to(DEVICE))
    assert str(expected.value)[:40] in str(raised.value)


@pytest.mark.sampled("torch.int8", "torch.uint8", "torch.bool", "torch.float16")
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int32, torch.bool, torch.float16], ids=str
)
def test_limits_of_random_integers(dtype):
    def draw(x, low, high):
        drawn = torch.randint(low, high, (5,), dtype=x.dtype, device=x.device)
        return drawn, torch.randint_like(x, low, high)

    limits = ((0, 2), (0, 128), (0, 129), (-128, 3), (-129, 3), (250, 256), (0, 256), (0, 257))
    for low, high in (*limits, (0, 65505), (0, 65506), (0, 2**31), (0, 2**31 + 1)):
        x = torch.zeros(3, dtype=dtype)
        compiled = compile(lambda x, low=low, high=high: draw(x, low, high))
        try:
            draw(x, low, high)
        except RuntimeError as error:
            text = str(error).split(" for ")[0]
        else:
            text = None
        if text is not None:
            with pytest.raises(RuntimeError, match=text):
                compiled(x.to(DEVICE))
            continue
        for drawn in compiled(x.to(DEVICE)):
            assert drawn.dtype == dtype
            numbers = [int(n) for n in drawn.tolist()]
            assert low <= min(numbers) <= max(numbers) < high, (low, high)


ELEMENTS = {
    "masked_fill": lambda x, value: x.masked_fill(x > 1, value),
    "index_fill": lambda x, value: x.index_fill(0, torch.tensor([1], device=x.device), value),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16], ids=str
)
@pytest.mark.parametrize("source", [torch.int64, torch.int16, torch.float32], ids=str)
@pytest.mark.parametrize("place", ["cpu", DEVICE])
@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_that_do_not_fit(name, place, source, dtype):
    """A single element becomes a number of the tensor's type. What does not fit raises, on the
    device at the next synchronization."""
    x = torch.arange(4).to(dtype)
    compiled = compile(ELEMENTS[name])
    numbers = [3, -3, 127, 128, 255, 256, -128, -129, -255, -256, 2**15 - 1]
    if source != torch.int16:
        numbers += [65504, 65505, 2**31 - 128, 2**31, -(2**31), -(2**32)]
    if source == torch.float32:
        numbers += [2.5, 127.5, -0.5, float("inf"), float("nan"), 2.0**62, 2.0**65]
    for n in numbers:
        value = torch.tensor(n, dtype=source)
        expected = outcome(lambda x, value=value: ELEMENTS[name](x, value), x)
        actual = outcome(lambda x, value=value: compiled(x, value.to(place)), x.to(DEVICE))
        if isinstance(expected, str):
            assert actual == expected == "raises", n
        else:
            assert torch.equal(actual, expected) or actual.isnan().any(), n


@pytest.mark.parametrize("name", ["full", "fill", "scatter", "addcmul"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float32], ids=str)
def test_complex_numbers_without_imaginary_part(name, dtype):
    x = torch.arange(6).to(dtype).to(DEVICE)
    expected = CONVERSIONS[name](x, 2 + 0j)
    assert torch.equal(compile(lambda x: CONVERSIONS[name](x, 2 + 0j))(x).cpu(), expected.cpu())


@pytest.mark.parametrize("alpha", [2, 0, -1, 2.5, True, False])
def test_factors_of_truth_values(alpha):
    def add(x):
        return CONVERSIONS["index_add"](x, alpha)

    x = torch.tensor([True, False, True])
    assert torch.equal(compile(add)(x.to(DEVICE)).cpu(), add(x))


def test_lists_of_exponents():
    for dtype in DTYPES[:5]:
        x, exponents = torch.arange(-2, 5).to(dtype), torch.arange(7).to(dtype)
        compiled = compile(lambda a, b: torch._foreach_pow([a, b], [b, b]))
        expected = torch._foreach_pow([x, exponents], [exponents, exponents])
        actual = compiled(x.to(DEVICE), exponents.to(DEVICE))
        for one, other in zip(actual, expected, strict=True):
            assert torch.equal(one.cpu(), other)

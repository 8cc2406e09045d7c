"""Pointwise kernels: fusion over strides and broadcasts, dtypes, words shared by elements."""

import math

import pytest
import torch
from compiled import DEVICE, assert_equal, check, compile, dispatches, tensors
from torch.utils._pytree import tree_leaves

from torch_webgpu import wgsl
from torch_webgpu.inductor import lanes

F = torch.nn.functional


def make(*shape, dtype=torch.float32, low=-5, high=5):
    return torch.testing.make_tensor(*shape, dtype=dtype, device="cpu", low=low, high=high).to(
        DEVICE
    )


@pytest.mark.parametrize("size", [1, 3, 1023, 1025, 4096, 70001])
def test_sizes(size):
    check(lambda x, y: x * y + 1, make(size), make(size))


def test_broadcast_and_strided_inputs():
    def mix(a, b, c, d):
        return a * b + c - d

    a, b = make(32, 48, 40), make(40)
    c, d = make(48, 40, 32).permute(2, 0, 1), make(32, 96, 40)[:, ::2]
    check(mix, a, b, c, d)
    assert dispatches(compile(mix), a, b, c, d) == 1


def test_expanded_input_and_offset():
    base = make(5000)
    check(lambda x, y: x + y, base[3:4099], base[:1].expand(4096), exact=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_computed_in_float32_and_rounded_when_stored(dtype):
    x, y = make(2048, dtype=dtype), make(2048, dtype=dtype)
    check(lambda x, y: x * y, x, y, exact=True)
    check(lambda x: torch.sigmoid(x), x, exact=True)
    # 300 * 300 / 300: infinite in float16 if the product is rounded in between.
    large = torch.full((2048,), 300.0, dtype=dtype, device=DEVICE)
    result = compile(lambda x: x * x / x)(large)
    assert torch.equal(result, large)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_number_is_compared_as_the_half_that_it_rounds_to(dtype):
    x = torch.full((2048,), 0.1, dtype=dtype, device=DEVICE)
    check(lambda x: x == 0.1, x, exact=True)
    check(lambda x: x + 0.1, x, exact=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str
)
def test_integers_wrap_as_in_eager_mode(dtype):
    info = torch.iinfo(dtype)
    x, y = (make(1999, dtype=dtype, low=info.min, high=info.max) for _ in range(2))
    shift = make(1999, dtype=dtype, low=0, high=7)
    check(lambda x, y: x * y + x - y, x, y, exact=True)
    check(lambda x, y: (x & y) | (x ^ ~y), x, y, exact=True)
    check(lambda x, s: (x << s) >> 1, x, shift, exact=True)
    check(lambda x, y: torch.where(x > y, x, y).to(torch.float32), x, y, exact=True)
    check(lambda x, y: torch.div(x, y | 1, rounding_mode="floor") + x % (y | 1), x, y, exact=True)


def test_int64_is_never_cut():
    x = torch.tensor([2**40 + 7, -(2**50), 2**62, -1] * 300, device=DEVICE)
    check(lambda x: x * 3 + (x >> 5), x, exact=True)
    check(lambda x: (x.to(torch.int32), x.to(torch.float32), x == 2**62), x, exact=True)


def test_index_values_pass_32_bits():
    def squares(x):
        i = torch.arange(0, 100_000, 7, device=DEVICE)
        return i * i * i + x

    check(squares, torch.zeros((), dtype=torch.int64, device=DEVICE), exact=True)
    check(lambda: torch.arange(0, 2**40, 2**38, device=DEVICE) + 1, exact=True)


def test_truth_values():
    x, y = make(1001, dtype=torch.bool), make(1001, dtype=torch.bool)
    check(lambda x, y: (x & y) | ~x ^ y, x, y, exact=True)
    check(lambda x, y: (x * y, x + y, x < y, torch.maximum(x, y), x.to(torch.int8)), x, y)


def test_double_runs_eagerly_and_is_not_cut_to_float():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, device=DEVICE)
    with pytest.raises(Exception, match="CPU"):  # as in eager mode: fallbacks are errors here
        compile(lambda x: (x + 1e-12) * 3)(x)


def test_nan_and_infinity():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0] * 300, device=DEVICE)

    def classify(x):
        return x - x, x.isnan(), x.isinf(), x.clamp(-1, 1), torch.maximum(x, x.flip(0)), 1 / x

    check(classify, x, exact=True)


@pytest.mark.parametrize("offset", range(5))
def test_neighbours_in_a_word_are_left_alone(offset):
    """In-place results in views of narrow types, which share words with what lies around."""
    for dtype in (torch.uint8, torch.bool, torch.float16):
        whole = make(5000, dtype=dtype, low=0, high=2)
        expected = whole.clone()

        def add(x):
            return x.logical_not_()

        for buffer, function in ((whole, compile(add)), (expected, add)):
            function(buffer[offset : offset + 2049])
        assert torch.equal(whole, expected)


def test_operands_of_one_buffer():
    base = make(8192)

    def update(x, y):
        x.add_(y)
        return x * 2

    other = base.clone()
    update(other[:4096], other[4096:])
    compile(update)(base[:4096], base[4096:])
    assert torch.equal(base, other)


def test_concatenation_and_padding():
    parts = [make(4, n) for n in (3, 5, 8, 1)]
    check(lambda *parts: torch.cat(parts, 1).sin(), *parts, exact=True)
    check(lambda x: torch.nn.functional.pad(x + 1, (2, 3, 1, 1), value=7), parts[0], exact=True)
    check(lambda x: torch.nn.functional.pad(x, (2, 2), mode="reflect"), parts[2], exact=True)
    halves = [p.half() for p in parts]
    check(lambda *parts: torch.cat(parts, 1) * 2, *halves, exact=True)


def test_more_operands_than_storage_buffers():
    many = [make(256) for _ in range(40)]
    # The sums that are rounded are as large as 40 products of up to 195.
    rounding = {"rtol": 0, "atol": 40 * 195 * 2**-23}
    check(lambda *many: sum(x * k for k, x in enumerate(many)), *many, tolerances=rounding)
    check(lambda *many: torch.cat(many), *many, exact=True)
    check(lambda *many: [x + 1 for x in many], *many, exact=True)
    check(lambda *many: sum((x * x).sum() for x in many), *many)
    check(lambda *numbers: sum(numbers), *(x[0] for x in many))


@pytest.mark.parametrize("buffers", [16, 12, 8])
def test_kernels_fit_the_storage_buffers(buffers):
    many = [make(64) for _ in range(20)]

    def program(*many):
        left = sum(x.sin() for x in many[:7])
        right = sum(x.cos() for x in many[7:14])
        parts = [x * y + z for x, y, z in zip(many, many[5:], many[9:], strict=False)]
        return torch.where(left > right, left, right) + many[19], torch.cat(parts[:8])

    with wgsl.target(limits={"max_storage_buffers": buffers}), wgsl.record() as dispatches:
        check(program, *many)
    assert max(len(dispatch.bindings) for dispatch in dispatches) <= buffers


def test_kernel_that_cannot_raise_uses_the_last_storage_buffer():
    many = [make(256) for _ in range(15)]
    compiled = check(lambda *many: sum(many), *many)
    with wgsl.record() as recorded:
        compiled(*many)
    budget = min(16, torch.webgpu.get_device_properties().limits["max_storage_buffers"])
    assert len(recorded) == (1 if budget == 16 else 2)


def test_numbers_from_the_cpu():
    scalar = torch.tensor(3, dtype=torch.int32)
    check(lambda x, s: x * s, make(100), scalar)
    check(lambda x, s: x * s, make(100), torch.tensor(0.25, dtype=torch.float64))


@pytest.mark.parametrize("threshold", [1, 1 << 30])
def test_lanes_change_no_result(threshold, monkeypatch):
    """An invocation with several elements, also of a tile, and with one."""
    monkeypatch.setattr(lanes, "MIN_RESULTS", threshold)
    monkeypatch.setattr(lanes, "MIN_TILED", threshold)
    for dtype in (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool):
        x, y = (make(12, 20, dtype=dtype, low=0, high=2) for _ in range(2))
        check(lambda x, y: torch.maximum(x, y), x, y, exact=True)
        check(lambda x, y: torch.maximum(x, y[0]), x, y, exact=True)
        check(lambda x, y: torch.maximum(x[1:], y[:-1]), x, y, exact=True)
        check(lambda x, y: torch.maximum(x.t(), y.t()), x, y, exact=True)
        check(lambda x, y: torch.maximum(x, y.t().reshape(12, 20)), x, y.t().contiguous().t())


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((256, 128), torch.float32),
        ((132, 260), torch.float16),
        ((256, 128), torch.int64),
        ((3, 100, 132), torch.bool),
    ],
)
def test_tiles_of_transposed_operands(shape, dtype):
    def program(x, y, row, column):
        turned = y.transpose(-1, -2)
        return torch.maximum(x, turned), torch.maximum(torch.maximum(turned, row), column) > 0

    x = make(*shape, dtype=dtype, low=0, high=2)
    y = make(*shape[:-2], shape[-1], shape[-2], dtype=dtype, low=0, high=2)
    compiled = check(program, x, y, x[..., :1, :], x[..., :1], exact=True)
    assert dispatches(compiled, x, y, x[..., :1, :], x[..., :1]) == 1


def test_tile_beside_gathered_and_masked_operands():
    x, places = make(4, 64, 32, 32), torch.tensor([3, 1, 0, 0], device=DEVICE)
    check(lambda x: x.permute(0, 2, 3, 1).contiguous() * 2, x, exact=True)
    check(lambda x, i: x.permute(0, 2, 3, 1) + x.permute(0, 2, 3, 1)[i], x, places, exact=True)
    check(lambda x: x[0, 0].t() + x[0, 1].tril() + x[0, 2].flip(0), x.repeat(1, 1, 4, 4))


def test_operands_of_tiles_may_be_unaligned():
    base = make(256 * 256 + 3)
    x, y = base[3:].view(256, 256), base[1:-2].view(256, 256)
    check(lambda x, y: x + y.t(), x, y, exact=True)
    check(lambda x, y: x + y.t(), base[:-3].view(256, 256), x, exact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_bounds_keep_nan_and_their_order(dtype):
    numbers = [float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 2.9, 3.1, -3.1]
    x = torch.tensor(numbers * 300, dtype=dtype).to(DEVICE)

    def function(x):
        y = x.clamp(-3, 3)
        return y, x.clamp(2, -2), x.clamp_min(0.1).clamp_max(3.05), x.relu(), F.hardtanh(x) + y

    check(function, x, exact=True)


@pytest.mark.parametrize("divisor", [3, 41, 0.1, 0, -7.0])
def test_quotients_by_constants_are_exact(divisor):
    """41 times the nearest number to 1 / 41 is less than 1."""
    x = torch.cat([torch.randn(5000), torch.arange(5000.0) * divisor]).to(DEVICE)
    check(lambda x: (x / divisor, (x / divisor).floor(), x.long() / divisor), x, exact=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * n,
        lambda x, n: x.float() + n,
        lambda x, n: x + torch.full((3,), n, device=x.device),
        lambda x, n: (x + 7) // n,
        lambda x, n: x * (n * 3 + 1) + n // 2,
        lambda x, n: torch.where(x * 10**12 > n, x, n),
    ],
)
def test_integers_that_vary_are_int64(function):
    compiled = compile(function)
    x = torch.arange(3, device=DEVICE)
    for n in (3, 4, 10**12, -5, -(10**12), 2**31, 2**61 + 1):
        assert_equal(compiled(x, n), function(x, n), rtol=0, atol=0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.add_(x.sort()[0]),
        lambda x: x.add_(x.cumsum(-1)),
        lambda x: x.masked_fill_(x < x.topk(10)[0][:, -1:], -torch.inf).softmax(-1),
        lambda x: x.add_(torch.fft.fft(x).real),
    ],
)
def test_writes_that_wait_for_eager_kernels(function):
    """To be written only after an operator of several results has read it."""
    x = torch.randn(2, 5000)
    own, others = x.to(DEVICE), x.to(DEVICE)
    assert_equal(compile(function)(own), function(others))
    assert_equal(own, others)


def assert_close_on_cpu(actual, expected):
    for one, other in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        if other is not None:
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["convolution", "addmm"])
def test_lists_change_in_place_after_their_readers(kind):
    """The sum with the bias is computed where it is read, unless the bias changes before."""

    def function(x, weight, bias, other):
        if kind == "convolution":
            y = torch.nn.functional.conv2d(x, weight, bias)
        else:
            y = torch.addmm(bias, x[0, 0], weight[:, 0].reshape(5, -1)[:, :4])
        change = y.reshape(-1, 4).sum(0)
        torch._foreach_add_([bias, other], [change, change])
        return 2 * y

    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in ((2, 3, 5, 5), (4, 3, 3, 3), (4,), (4,))]
    if kind == "addmm":
        inputs[1] = torch.randn(5, 1, 4)
    near = [x.to(DEVICE) for x in inputs]
    result = compile(function)(*near)
    assert_close_on_cpu((result, near), (function(*inputs), inputs))


def swap(a, b):
    before = a.clone()
    a.copy_(b)
    b.copy_(before)


def swap_lists(a, b):
    torch._foreach_copy_([a, b], [b.clone(), a.clone()])


def swap_computed_lists(a, b):
    torch._foreach_copy_([a, b], [2 * b, 2 * a])
    return 3 * a


def add_to_the_first(a, b):
    before = a.clone()
    a.add_(b)
    b.copy_(before)


def return_what_was(a, b):
    before, other = torch.cat([a]), a.to(a.dtype, copy=True)
    torch._foreach_add_([a, b], [b, b])
    return before, 2 * other


def multiply_by_an_own_element(a, b):
    torch._foreach_mul_([a, b], a[0, 0] * 1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        swap,
        swap_lists,
        swap_computed_lists,
        add_to_the_first,
        return_what_was,
        multiply_by_an_own_element,
    ],
)
def test_copies_keep_what_changes(function, dynamic):
    torch.manual_seed(0)
    inputs = [torch.randn(5, 6), torch.randn(5, 6)]
    near = [x.to(DEVICE) for x in inputs]
    results = compile(function, dynamic=dynamic)(*near)
    assert_close_on_cpu((results, near), (function(*inputs), inputs))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x @ w).add(x, alpha=0.1),
        lambda x, w: x.add(x @ w, alpha=0.1),
        lambda x, w: (x @ w).add(w[0], alpha=3),
        lambda x, w: torch.sub(x / 2.0, (x / 2.0).amax(1, keepdim=True), alpha=3),
        lambda x, w: x.half().add((3 * w[:5]).int(), alpha=0.5),
        lambda x, w: x.int().add((3 * w[:5]).int(), alpha=2),
        lambda x, w: torch.add(x, 2, alpha=3),
        lambda x, w: torch.addmm(w[0], x, w, beta=0.5, alpha=2).relu(),
        lambda x, w: torch.baddbmm(x[None], x[None], w[None], beta=0.5).relu(),
        lambda x, w: torch.full_like(x, 1.9).cumsum(0, dtype=torch.int64) + x,
    ],
)
def test_factors_and_dtypes_of_operators(function):
    torch.manual_seed(0)
    inputs = [torch.randn(5, 6), torch.randn(6, 6)]
    result = compile(function)(*(x.to(DEVICE) for x in inputs))
    torch.testing.assert_close(result.cpu(), function(*inputs), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("size", [40, 130])
@pytest.mark.parametrize(
    "update",
    [
        lambda x: x.copy_(x.t() + 1),
        lambda x: x.add_(x.t().clone()),
        lambda x: x.copy_(x.t().flip(0) * 2),
        lambda x: x.copy_(x.flip(0) + x.flip(1)),
        lambda x: x.copy_(torch.roll(x, 3, 1) - x),
        lambda x: x[1:].add_(x[:-1].clone()),
        lambda x: x[:, 0].copy_((x * x[:, :1]).mean(1)),
        lambda x: x.diagonal().copy_(x.mean(1)),
        lambda x: (x.mul_(x.amax(1, keepdim=True)), x.sub_(x.amin(0, keepdim=True)))[1],
        lambda x: (x.mean() * x[3, 3], x[3, 3].copy_(x.mean()), x * x[3, 3])[2],
    ],
)
def test_updates_from_other_elements_of_the_same_tensor(update, size):
    """A kernel must not store an element that another invocation has still to load."""
    x = torch.rand(size, size)
    actual = x.to(DEVICE)
    expected = update(x)
    result = compile(update)(actual)
    torch.testing.assert_close(actual.cpu(), x)
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda n: torch.arange(n, device=DEVICE) * 100000 % 7,
        lambda n: torch.arange(n, device=DEVICE) * 100000 // 100001,
        lambda n: torch.arange(n, device=DEVICE).clamp(max=2**33),
        lambda n: torch.arange(n, device=DEVICE).clamp(-(2**33), 2**31),
        lambda n: (torch.arange(n, device=DEVICE) * n - 3) % 70001,
    ],
)
def test_indices_computed_from_numbers_beyond_32_bits(function, dynamic):
    """The result fits 32 bits, what it is computed from does not."""
    compiled = compile(function, dynamic=dynamic)
    for n in (100_000, 90_001):
        assert torch.equal(compiled(n), function(n))


HALVES = {
    "pad": lambda x, n: torch.nn.functional.pad(x, (1, 2), value=n),
    "pow": lambda x, n: x**n,
    "scatter": lambda x, n: x.scatter(0, torch.tensor([1], device=x.device), n),
}


@pytest.mark.parametrize("name", HALVES)
def test_numbers_that_halves_do_not_have(name):
    """They raise, as in eager mode. Inductor makes them infinite."""
    x = torch.linspace(0, 1, 9, dtype=torch.float16, device=DEVICE)
    for n in (65504, float("inf"), 65505, -1e9):
        compiled = compile(lambda x, n=n: HALVES[name](x, n))
        if abs(n) in (65504, float("inf")):
            assert_equal(compiled(x), HALVES[name](x, n))
        else:
            with pytest.raises(RuntimeError, match="without overflow"):
                compiled(x)


@pytest.mark.sampled("torch.float32", "torch.bfloat16")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_floats_divided_and_rounded_down(dtype):
    """What is rounded is not the rounded quotient, which is 10 for 1 and 0.1."""
    a = torch.tensor([1, -1, 0.3, -0.5, 6, -6, 1e4, float("inf"), 0, -0.0, 5, 0], dtype=dtype)
    b = torch.tensor([0.1, 0.1, 0.1, float("inf"), 0.2, 0.3, 3, 2, -3, 3, 0, 0], dtype=dtype)

    def divide(a, b):
        return a // b, a // 0.1, torch.div(a, -0.3, rounding_mode="floor"), a // 0

    def divide_integers(a, b):
        return a // 0.1, a // b

    check(divide, a.to(DEVICE), b.to(DEVICE), exact=True)
    check(divide_integers, torch.arange(-12, 12, device=DEVICE), b[:1].to(DEVICE), exact=True)


@pytest.mark.sampled("torch.float16-False", "torch.int32-True")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
def test_numbers_divided_and_rounded_down(dtype, dynamic):
    """Numbers, also such that the type of the tensor does not have, are dividends and divisors."""
    x = torch.tensor([1, -2, 3000, 7, -1], dtype=dtype, device=DEVICE)
    if dtype.is_floating_point:
        x = torch.cat([x, x * 0.1, x * 0])
    for n in (1.0, 2, 0.0, -0.0, 5.5, True, float("inf"), 1e6, 1e39):
        if not dtype.is_floating_point and not isinstance(n, float):
            continue
        if dynamic and math.copysign(1, n) < 0:
            continue  # PyTorch takes the argument for the number 0
        check(lambda x, n=n: (n // x, x // n), x, exact=True, dynamic=dynamic)
    compiled = compile(lambda x, n: (n // x, x // n), dynamic=dynamic)
    for n in (7.5, 9.25):
        assert_equal(compiled(x, n), (n // x, x // n), rtol=0, atol=0)


# By name: functions of a tensor and a zero.
OF_ZERO = {
    "mul": lambda x, zero: (x * zero, zero * x),
    "div": lambda x, zero: x / zero,
    "add": lambda x, zero: x + zero if math.copysign(1, zero) < 0 else x - zero,
    "where": lambda x, zero: (torch.where(x > 0, zero, x), torch.where(x > 1, x, zero)),
    "both": lambda x, zero: torch.where(x > 1, zero, -zero),
    "masked_fill": lambda x, zero: x.masked_fill(x > 0, zero),
    "pad": lambda x, zero: torch.nn.functional.pad(x, (1, 1), value=zero),
    "full": torch.full_like,
    "remainder": lambda x, zero: torch.remainder(zero, x),
    "sum": lambda x, zero: (x + zero, zero + x, 1 / (x + zero), zero + (x - x)),
    "difference": lambda x, zero: (x - zero, zero - x, zero - (x + zero)),
    "whole_number": lambda x, zero: (x + 0, x - 0, 0 - x, x * 0, 0 * x),
    "zeros": lambda x, zero: (x + torch.full_like(x, zero), x - torch.full_like(x, zero)),
    "both_zeros": lambda x, zero: torch.full_like(x, -0.0) + torch.full_like(x, zero),
    "softshrink": lambda x, zero: torch.nn.functional.softshrink(torch.where(x == 0, 1.0, x), 0.5),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OF_ZERO)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_zeros_have_signs(name, dtype):
    numbers = [1.5, -2, 0, -0.0, float("inf"), float("-inf"), float("nan")]
    x = torch.tensor(numbers, dtype=dtype, device=DEVICE)
    for zero in (-0.0, 0.0):
        expected = tensors(OF_ZERO[name](x, zero))
        actual = tensors(compile(lambda x, zero=zero: OF_ZERO[name](x, zero))(x))
        assert_equal(actual, expected, rtol=0, atol=0)
        for one, other in zip(actual, expected, strict=True):
            is_number = ~other.cpu().isnan()
            assert torch.equal(one.cpu().signbit()[is_number], other.cpu().signbit()[is_number])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_operands_that_halves_do_not_have(dtype):
    """They are infinite."""

    def compute(x, n):
        comparisons = x < n, x > n, x == n, x != n
        return *comparisons, x.fmod(n), x.remainder(n), x + n, n - x, x * n, x / n, n / x, n**x

    x = torch.tensor([1.5, -2, 3000, 0.1, float("inf"), float("-inf")], dtype=dtype, device=DEVICE)
    for n in (1e6, 1e39):
        check(lambda x, n=n: compute(x, n), x)
        check(lambda x, n=n: compute(x, -n)[:-1], x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_exponents_beyond_float32(dtype):
    """Of halves they raise, as in eager mode."""
    x = torch.tensor([0.5, 1, 2, 3], dtype=dtype, device=DEVICE)
    for n in (1e39, -1e39):
        if dtype == torch.float32:
            check(lambda x, n=n: x**n, x)
        else:
            for function in (lambda x, n=n: x**n, compile(lambda x, n=n: x**n)):
                with pytest.raises(RuntimeError, match="without overflow"):
                    function(x)


def test_factors_of_floats_that_are_arguments():
    """PyTorch makes a tensor of such a number, and loses its factor."""
    x = torch.arange(5.0, device=DEVICE)

    def add(x, n):
        return torch.add(x, n, alpha=2), torch.sub(x, n, alpha=3), torch.rsub(x, n, alpha=3), x // n

    for tensor in (x, x.half(), x.int(), x[2]):
        compiled = compile(add, dynamic=True)
        for n in (2.5, 0.25, -0.75):
            assert_equal(compiled(tensor, n), add(tensor, n))


# By name: functions of a tensor and a number that becomes a float32 in eager mode.
IN_FLOAT32 = {
    "clamp": lambda x, n: x.clamp(-1, n),
    "clamp_min": lambda x, n: x.clamp(min=n),
    "hardtanh": lambda x, n: torch.nn.functional.hardtanh(x, -1, n),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "add": lambda x, n: torch.add(x, x, alpha=n),
    "add_number": lambda x, n: torch.add(x, 2, alpha=n),
    "sub": lambda x, n: torch.sub(x, x, alpha=n),
    "rsub": lambda x, n: torch.rsub(x, x, alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "leaky_relu": torch.nn.functional.leaky_relu,
    "elu": torch.nn.functional.elu,
    "celu": torch.nn.functional.celu,
    "softplus": torch.nn.functional.softplus,
    "index_add": lambda x, n: x.index_add(0, torch.tensor([1], device=DEVICE), x[:1], alpha=n),
}


@pytest.mark.parametrize("name", IN_FLOAT32)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_numbers_beyond_float32(name, dtype):
    """They raise, as in eager mode. Inductor makes them infinite."""
    x = torch.tensor([-1.0, 0.5, 2, 3], dtype=dtype, device=DEVICE)
    check(lambda x: IN_FLOAT32[name](x, 1e4), x)
    for function in (IN_FLOAT32[name], compile(lambda x, n: IN_FLOAT32[name](x, n))):
        with pytest.raises(RuntimeError, match="without overflow"):
            function(x, 1e39)


# By name: operators that Inductor composes of others, with a number as operand.
COMPOSED = {
    "xlogy": lambda x, n: (torch.xlogy(x, n), torch.special.xlogy(n, x)),
    "xlog1py": lambda x, n: (torch.special.xlog1py(x, n), torch.special.xlog1py(n, x)),
    "nan_to_num": torch.nan_to_num,
    "infinity": lambda x, n: torch.nan_to_num(x, posinf=n, neginf=-n),
}


@pytest.mark.sampled(
    "torch.float32-xlogy",
    "torch.float16-xlog1py",
    "torch.bfloat16-nan_to_num",
    "torch.float32-infinity",
)
@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_composed_operators_round_numbers(name, dtype):
    numbers = [0.5, 2, 0, 3, float("inf"), float("-inf"), float("nan")]
    x = torch.tensor(numbers, dtype=dtype, device=DEVICE)
    for n in (0.1, 7, 65519.0, 1e6, 1e39):
        check(lambda x, n=n: COMPOSED[name](x, n), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.cat((a + 0.0, a + b)),
        lambda a, b: torch.cat((a - -0.0, a - b)),
        lambda a, b: torch.cat((a * 0.0, a * b)),
        lambda a, b: torch.cat((a.maximum(torch.full_like(a, 0.5)).exp(), a.maximum(b).exp())),
        lambda a, b: torch.cat((a.clamp(-0.5, 0.5), (a + b).minimum(torch.full_like(a, 0.1)))),
        lambda a, b: torch.cat((a + 0.1, a + b)),
    ],
    ids=["add", "sub", "mul", "maximum", "clamp", "add number"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_variables_of_two_branches_are_apart(function, dtype):
    """The parts of a concatenation are branches, whose variables have the same names."""
    a, b = torch.randn(2, 5, 3, dtype=dtype)
    expected = function(a, b)
    actual = torch.compile(function)(a.to(DEVICE), b.to(DEVICE)).cpu()
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.shape[0],
        lambda x: x / x.shape[0],
        lambda x: x.shape[0] - x,
        lambda x: x == x.shape[0],
        lambda x: torch.full_like(x, x.shape[0]),
        lambda x: torch.full_like(x, x.shape[0]).sqrt(),
        lambda x: torch.full_like(x, x.shape[0]).to(torch.float32),
    ],
    ids=["mul", "div", "rsub", "eq", "full", "sqrt", "float32"],
)
@pytest.mark.parametrize("size", [2049, 4099])
def test_sizes_that_halves_do_not_have(function, size):
    """As operands they are float32 numbers, as elements they are rounded."""
    x = torch.full((size,), 3, dtype=torch.float16, device=DEVICE)
    x[1] = size
    check(function, x, exact=True, dynamic=True)

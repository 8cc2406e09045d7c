"""Reductions, and what is fused around them: softmax, norms, losses."""

import pytest
import torch
from compiled import DEVICE, check, compile, dispatches
from torch._inductor.utils import run_and_get_code
from torch.utils._pytree import tree_leaves

F = torch.nn.functional


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (64, 128), (7, 1000), (300, 12), (2, 40000)])
@pytest.mark.parametrize("dim", [0, -1, None])
def test_sums_and_extremes(shape, dim):
    x = randn(*shape)

    def reduce(x):
        options = {} if dim is None else {"dim": dim}
        return x.sum(**options), x.mean(**options), x.amax(dim or 0), x.prod(-1)

    check(reduce, x, tolerances={"rtol": 1e-4, "atol": 1e-4})


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_integer_reductions(dtype):
    x = torch.testing.make_tensor(37, 130, dtype=dtype, device="cpu").to(DEVICE)
    check(lambda x: (x.sum(1), x.sum(0), x.amax(1), x.amin(0)), x, exact=True)
    # Not of uint8, of which eager mode's result is uint8 and Inductor's bool, on any device.
    check(lambda x: ((x != 0).any(1), (x != 0).all(0)), x, exact=True)


@pytest.mark.sampled(5, 1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (3, 2000), (2000, 3)], ids=str)
def test_sums_and_products_that_are_truth_values(dtype, shape):
    x = (torch.rand(shape) < 0.4).to(dtype).mul(2).to(DEVICE)
    x[0] = 0
    x[:, -1] = 2

    def reduce(x):
        return [f(d, dtype=torch.bool) for f in (x.sum, x.prod) for d in (0, 1)]

    check(reduce, x, exact=True)


def test_sum_of_int64_passes_32_bits():
    x = torch.full((5, 1000), 2**33 + 1, device=DEVICE)
    check(lambda x: x.sum(1), x, exact=True)


def test_indices_of_extremes():
    x = torch.randint(0, 5, (40, 300)).to(DEVICE)  # with ties
    for dtype in (torch.float32, torch.float16, torch.int32, torch.int64):
        check(lambda x: (x.argmax(1), x.argmin(0), x.argmax()), x.to(dtype), exact=True)
    x = randn(8, 100)
    x[3, 50] = float("nan")
    check(lambda x: (x.argmax(1), x.argmin(1), x.max(1), x.amin(1)), x, exact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [1, 7, 64, 1000, 5000])
def test_moments(dtype, length):
    x = (randn(6, length) + 100).to(dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    check(
        lambda x: torch.var_mean(x, 1, correction=0),
        x,
        tolerances={"rtol": tolerance, "atol": tolerance},
    )


@pytest.mark.parametrize("length", [512, 1000, 2044])
def test_later_loops_take_what_earlier_ones_computed(length):
    """A row that stays in registers keeps its exponentials from the sum to the results."""
    x = torch.randn(40, length, device=DEVICE)

    def function(x, y):
        weights = torch.softmax(x, -1)
        return weights, (torch.tanh(x * 2) + y).sum(-1, keepdim=True) * torch.tanh(x * 2)

    y = torch.randn(40, length, device=DEVICE)
    check(function, x, y, tolerances={"rtol": 1e-4, "atol": 1e-5})
    _, (text,) = run_and_get_code(compile(function), x, y)
    for call, array in (("exp_f(", "computed0["), ("tanh_f(", "computed1[")):
        assert text.count(call) > 0
        assert text.count(array) == 2 * text.count(call)  # a store and a load each


def test_softmax_of_a_number():
    x = torch.randn((), device=DEVICE)
    check(lambda x: (torch.softmax(x, 0), torch.log_softmax(x, -1)), x)


def test_softmax_of_infinities():
    x = randn(4, 200)
    x[1, 3:] = -float("inf")
    x[2] = -float("inf")
    x[3, 0] = float("inf")
    check(lambda x: (torch.softmax(x, -1), torch.log_softmax(x, -1), x.logsumexp(-1)), x)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shape", "dim"), [((1025, 7), 0), ((4099, 3), 0), ((2, 1025, 8), 1), ((1025, 33), 0)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_softmax_of_long_columns(shape, dim, dtype):
    """In parts, whose maxima and sums are combined."""
    x = randn(*shape, dtype=dtype) * 5
    check(lambda x: x.softmax(dim), x)
    y = x.float().clone()
    y[: shape[0] // 2] = -torch.inf
    check(lambda y: (y.softmax(dim), y.log_softmax(dim)), y)


def test_cross_entropy_that_ignores_a_class():
    logits, target = randn(64, 1000), torch.randint(0, 10, (64,)).to(DEVICE)
    check(lambda x, t: F.cross_entropy(x, t, ignore_index=5), logits, target)


def test_norms():
    x = randn(4, 8, 6, 6)
    wide = {"rtol": 1e-4, "atol": 1e-4}
    check(lambda x: F.group_norm(x, 4), x, tolerances=wide)
    check(lambda x: F.instance_norm(x), x, tolerances=wide)
    check(lambda x: F.rms_norm(x, (6, 6)), x, tolerances=wide)
    norm = torch.nn.BatchNorm2d(8).to(DEVICE)
    check(lambda x: norm(x), x, tolerances=wide)


def test_long_reductions_are_split():
    x = randn(1 << 20)
    compiled = check(lambda x: (x * 2).sum(), x, tolerances={"rtol": 1e-3, "atol": 1e-1})
    assert dispatches(compiled, x) == 2


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3000, 132), torch.float32),
        ((70, 4096), torch.float16),
        ((8, 300, 64), torch.int64),
    ],
)
def test_columns(shape, dtype):
    """An invocation takes several columns, with an accumulator for each."""
    x = torch.testing.make_tensor(*shape, dtype=dtype, device="cpu", low=-9, high=9).to(DEVICE)
    bias = x[..., :1, :]
    tolerances = {"rtol": 1e-2, "atol": 1e-2} if dtype.is_floating_point else {}

    def reduce(x, bias):
        return (x * 2).sum(-2) + bias[..., 0, :], x.amax(-2), x.argmin(-2)

    check(reduce, x, bias, tolerances=tolerances)
    check(lambda x: (x > 3).any(-2), x, exact=True)
    if dtype != torch.int64:
        check(lambda x: torch.var_mean(x, -2), x, tolerances={"rtol": 1e-3, "atol": 1e-3})
        check(lambda x: torch.log_softmax(x, -2), x, tolerances={"rtol": 1e-3, "atol": 1e-3})
    compiled = compile(lambda x: x.sum(-2))
    compiled(x)
    assert dispatches(compiled, x) <= 2


@pytest.mark.sampled("shape0-dtype0", "shape2-dtype2")
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((300, 64), torch.float32),
        ((5, 3000), torch.float32),
        ((7, 8192), torch.float16),
    ],
)
def test_rows_in_registers(shape, dtype):
    """Rows that several loops of a kernel read, and that one of them stores in place."""
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    tolerances = {"rtol": tolerance, "atol": tolerance}
    x, weight = randn(*shape, dtype=dtype), randn(shape[1], dtype=dtype)
    check(lambda x: (torch.softmax(x, -1), F.log_softmax(x * 2, -1)), x, tolerances=tolerances)
    check(lambda x, w: F.rms_norm(x, w.shape, w), x, weight, tolerances=tolerances)

    def in_place(x, weight):
        x.mul_(torch.rsqrt(x.float().square().mean(1, keepdim=True)).to(x.dtype))
        y = x - x.amax(1, keepdim=True)
        return y / y.abs().sum(1, keepdim=True), x.sum(1)

    expected, actual = x.clone(), x.clone()
    results = in_place(expected, weight), compile(in_place)(actual, weight)
    for one, other in zip((actual, *results[1]), (expected, *results[0]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=100 * tolerance)


def test_several_reductions_of_one_row():
    def standardize(x):
        x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        return x / x.abs().amax(1, keepdim=True)

    x = randn(50, 333)
    compiled = check(standardize, x, tolerances={"rtol": 1e-4, "atol": 1e-4})
    assert dispatches(compiled, x) == 1


def test_scan_and_sort_run_eagerly_on_the_device():
    x = randn(10, 100)
    check(lambda x: (x + 1).cumsum(1) * 2, x)
    check(lambda x: (x * 2).sort(1), x, exact=True)
    check(lambda x: (x * 2).topk(5, 1), x, exact=True)


def test_empty_reductions():
    x = randn(0, 5)
    check(lambda x: (x.sum(), x.sum(0), x.prod(1), (x + 1).any()), x, exact=True)
    with pytest.raises(Exception, match=r"zero-size|empty|numel"):
        compile(lambda x: x.amax(0))(x)


def _scaled_by_maximum(row, x, dim):
    moved = x + row.unsqueeze(dim)
    most = moved.abs().amax(dim)
    result = moved / most.unsqueeze(dim)
    row.copy_(most)
    return result


def _factored_moment(row, x, dim):
    row.lerp_(x.square().mean(dim), 0.25)
    return x * (row + 0.1).rsqrt().unsqueeze(dim)


def _balanced(row, x, dim):
    weights = (x - row.unsqueeze(dim)).exp()
    row.add_(weights.sum(dim).log())
    return weights, (x - row.unsqueeze(dim)).softmax(dim) + row.unsqueeze(dim)


def _running_mean(row, x, dim):
    difference = x - row.unsqueeze(dim)
    row.add_(difference.mean(dim), alpha=0.5)
    return difference.square().sum(dim), difference - row.unsqueeze(dim)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(64, 512), (5, 48), (3, 3000), (1, 100), (1, 5000), (200, 64)])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(
    "function", [_scaled_by_maximum, _factored_moment, _balanced, _running_mean]
)
def test_all_lanes_of_a_row_read_what_one_of_them_updates(function, dim, shape, dtype):
    """Invocations of a row load its element in several loops of the kernel that stores it."""
    x = randn(*shape, dtype=dtype)
    x = x if dim else x.t().contiguous()
    row = torch.rand(shape[0]).to(DEVICE, dtype)
    expected_row = row.cpu().float()
    expected = function(expected_row, x.cpu().float(), dim)
    actual = compile(function, dynamic=False)(row, x, dim)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    leaves = tree_leaves([actual, row]), tree_leaves([expected, expected_row])
    for one, other in zip(*leaves, strict=True):
        torch.testing.assert_close(one.cpu().float(), other, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("length", [5000, 20011, 32768])
@pytest.mark.parametrize("at", [0, 1, 4999])
def test_extremes_of_long_rows_keep_nan(length, at):
    x = randn(3, length)
    x[1, at] = float("nan")
    x[2, at] = float("inf")
    check(lambda x: (x.amax(1), x.amin(1), x.softmax(1), x.log_softmax(1)), x)


@pytest.mark.parametrize("length", [1023, 4096, 4097, 20011, 50257])
def test_rows_that_no_vector_divides(length):
    """Long ones take several elements a turn and the rest one by one."""
    x, y = randn(3, length), randn(length)

    def function(x, y):
        z = x * y
        return z.sum(1), z.amin(1), z.var(1), z.argmax(1), z - z.mean(1, keepdim=True)

    check(function, x, y, tolerances={"rtol": 1e-4, "atol": 1e-3})


def test_long_rows_of_any_length():
    check_all = compile(lambda x: (x.exp().sum(1), x.amax(1)), dynamic=True)
    for length in (2000, 5001, 9999, 10000):
        x = randn(4, length)
        total, most = check_all(x)
        torch.testing.assert_close(total, x.exp().sum(1), rtol=1e-4, atol=1e-3)
        assert torch.equal(most, x.amax(1))


@pytest.mark.parametrize("rows", [1, 255, 256, 1024, 4100])
def test_columns_of_many_rows(rows):
    x = randn(rows, 2048)
    check(lambda x: (x.sum(0), x.amax(0)), x, tolerances={"rtol": 1e-4, "atol": 1e-3})


def test_a_chain_of_reductions_of_one_row():
    """Each waits for the one before; all exchange their parts through workgroup memory."""

    def function(x):
        a = x - x.mean(1, keepdim=True)
        b = a / (a.abs().amax(1, keepdim=True) + 1)
        c = b - b.amin(1, keepdim=True)
        d = c * c.sum(1, keepdim=True)
        return d - d.mean(1, keepdim=True), (d > 0).sum(1)

    check(function, randn(37, 1000), tolerances={"rtol": 1e-4, "atol": 1e-3})


def test_softmax_multiplies_by_a_reciprocal_as_eager_does():
    x = randn(64, 4096)
    _, code = run_and_get_code(compile(lambda x: x.softmax(1)), x)
    assert "reciprocal_f" in code[0] and "div_f" not in code[0]


def test_a_quotient_of_the_program_stays_exact():
    x = randn(64, 1000).abs() + 1
    check(lambda x: x / x.sum(0, keepdim=True).round(), x, exact=True)


def test_parts_of_a_row_are_all_of_its_inner_dimensions():
    """As in the sums of a norm of batches: images and positions. Inductor wants 13 parts."""
    from torch_webgpu.inductor.compat import _whole_parts

    assert _whole_parts([32, 3136], 13) == 32
    assert _whole_parts([2, 16, 4096], 13) == 32  # two are far below 13
    assert _whole_parts([32, 49], 13) == 13  # parts of 49 are short
    assert _whole_parts([1 << 20], 13) == 13
    assert _whole_parts(["s0", 3136], 13) == 13  # dynamic


@pytest.mark.parametrize("dynamic", [False, True])
def test_sum_of_what_reads_a_reduction_of_as_many(dynamic):
    """Inductor would take the parts of the first reduction for the second one, but it has one."""

    def total(x, y):
        moved = x.argmax() + y
        return moved.sum() + moved

    compiled = compile(total, dynamic=dynamic)
    for count, others in ((20001, 20001), (20001, 30001), (30001, 20001)):
        x, y = torch.randint(0, 10**6, (count,)), torch.arange(others)
        assert torch.equal(compiled(x.to(DEVICE), y.to(DEVICE)).cpu(), total(x, y))


def test_any_of_bytes():
    """Its result is uint8, as in eager mode."""
    x = torch.tensor([[0, 0, 2], [0, 0, 0]], dtype=torch.uint8, device=DEVICE)
    check(
        lambda x: (x.any(), x.any(1, keepdim=True), torch.any(x, (0, 1)), x.all(0)), x, exact=True
    )

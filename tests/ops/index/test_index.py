"""Indexing by tensors: index, index_put, take, put, index_select and relatives, masks."""

import pytest
import torch
from common import DEVICE, assert_same, check, check_error, check_gradients, to_device
from hypothesis import given, settings
from hypothesis import strategies as st

MOVED = [torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64]
NUMBERS = [torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.uint8]


def random_tensor(size, dtype=torch.float32):
    return torch.randn(size).mul(4).to(dtype)


def finish(function, *args):
    """Index errors of the device show at the next synchronization."""
    function(*args)
    torch.webgpu.synchronize()


def put(x, where, value, accumulate=False):
    return x.clone().index_put_(where, value, accumulate=accumulate)


@pytest.mark.parametrize("dtype", [*MOVED, torch.float64])
def test_index_dtypes(dtype):
    x = random_tensor((5, 6, 8), dtype)
    rows = torch.tensor([[0, 4], [-1, 2]])
    check(lambda x, i: x[i], x, rows)
    check(lambda x, i: x[:, i], x, rows)
    check(lambda x, i: x[..., i], x, rows)
    check(lambda x, i: x[i, :, i], x, rows)
    check(lambda x, i: x[i, 1:, 3], x, rows)
    check(lambda x, i: x.transpose(0, 2)[i], x, rows)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_index_random(data):
    size = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    x = random_tensor(size).permute(*data.draw(st.permutations(range(len(size)))))
    shape = data.draw(st.lists(st.integers(1, 3), max_size=2))
    indices = []
    for extent in x.shape:
        kind = data.draw(st.sampled_from(["all", "tensor", "int32", "slice"]))
        if kind == "all":
            indices.append(slice(None))
        elif kind == "slice":
            indices.append(slice(data.draw(st.integers(0, extent - 1)), None))
        else:
            index = torch.randint(-extent, extent, shape)
            indices.append(index.int() if kind == "int32" else index)
    check(lambda x, i: x[i], x, tuple(indices))


@pytest.mark.parametrize("dtype", MOVED)
def test_index_put(dtype):
    x = random_tensor((5, 6, 4), dtype)
    i = torch.tensor([3, 0])
    check(lambda x, i, v: put(x, (i,), v), x, i, random_tensor((2, 6, 4), dtype))
    check(lambda x, i, v: put(x, (i, i - 1), v), x, i, random_tensor((4,), dtype))
    check(lambda x, i, v: put(x.transpose(0, 2), (i,), v), x, i, random_tensor((1, 5), dtype))


def test_sums_of_halves_do_not_stop_growing():
    x = torch.zeros(2, dtype=torch.bfloat16, device=DEVICE)
    indices = torch.zeros(1000, dtype=torch.long, device=DEVICE)
    assert put(x, (indices,), x.new_ones(1000), True).tolist() == [1000, 0]


@pytest.mark.parametrize("dtype", [*NUMBERS, torch.bool, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("deterministic", [False, True])
def test_index_put_accumulate(dtype, deterministic):
    x = random_tensor((5, 6), dtype)
    i = torch.tensor([1, -1, 1, 1])
    j = torch.tensor([[0], [3]])
    torch.use_deterministic_algorithms(deterministic)
    # The CPU rounds to the half after every addition.
    bounds = {"rtol": 2e-2, "atol": 2e-1} if dtype in (torch.float16, torch.bfloat16) else {}

    def compare(function, *args):
        check(function, x, *args, **bounds)

    try:
        compare(lambda x, i, v: put(x, (i,), v, True), i, random_tensor((4, 6), dtype))
        compare(lambda x, i, j, v: put(x, (i, j), v, True), i, j, random_tensor((4,), dtype))
        compare(lambda x, i, v: put(x.t(), (i,), v, True), i, random_tensor((1,), dtype))
    finally:
        torch.use_deterministic_algorithms(False)


def test_masks():
    x = torch.randn(4, 5, 3)
    mask = x > 0.3
    check(lambda x, m: x[m], x, mask)
    check(lambda x, m: x[:, m[0, :, 0]], x, mask)
    check(lambda x, m: x[m[..., 0].logical_not()], x, mask)
    check(lambda x, m: put(x, (m,), torch.tensor(2.0)), x, mask)


@pytest.mark.parametrize("dtype", [*MOVED, torch.float64, torch.int16])
def test_masked_fill(dtype):
    x = random_tensor((5, 7), dtype)
    check(lambda x, m: x.masked_fill(m, 1), x, torch.rand(5, 7) > 0.5)
    check(lambda x, m: x.t().masked_fill_(m, 1), x, torch.rand(5) > 0.5)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_one_dimension(dtype):
    x = random_tensor((4, 6, 3), dtype)
    i = torch.tensor([5, 0, 0, 2])
    check(lambda x, i: x.index_select(1, i), x, i)
    check(lambda x, i: x.transpose(0, 1).index_select(0, i.int()), x, i)
    check(lambda x, i: x.index_add(1, i, x[:, :4], alpha=2), x, i)
    check(lambda x, i: x.index_fill(1, i - 1, 3), x, i)
    check(lambda x, i: x.index_copy(1, i[:2], x[:, 1:3]), x, i)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_index_reduce(reduce, dtype):
    x = random_tensor((4, 6), dtype)
    i = torch.tensor([5, 0, 0, 2])
    for include in (True, False):
        check(
            lambda x, i, include=include: x.index_reduce(
                1, i, x[:, :4], reduce, include_self=include
            ),
            x,
            i,
        )


def test_index_reduce_is_in_beta(warn_always):
    x, index = torch.zeros(3, device=DEVICE), torch.tensor([0, 1], device=DEVICE)
    with pytest.warns(UserWarning, match=r"index_reduce\(\) is in beta"):
        x.index_reduce_(0, index, torch.ones(2, device=DEVICE), "amax")


@pytest.mark.parametrize("reduce", ["prod", "amax", "amin"])
@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:scatter_reduce")
def test_reductions_of_long_integers_over_one_index(reduce):
    x, source = torch.arange(12).view(4, 3), torch.arange(5, 8).view(1, 3)
    check(lambda x, i, s: x.index_reduce(0, i, s, reduce), x, torch.tensor([2]), source)
    index = torch.tensor([[3, 0, 1]])
    check(lambda x, i, s: x.scatter_reduce(0, i, s, reduce), x, index, source)


def test_take_and_put():
    x = torch.randn(4, 5).t()
    i = torch.tensor([[0, 19], [-1, 7]])
    check(torch.take, x, i)
    check(lambda x, i, v: x.put(i[0], v), x, i, torch.tensor([5.0, 6.0]))
    check(lambda x, i, v: x.put(i, v, accumulate=True), x, i, torch.randn(2, 2))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x.to(DEVICE).put_(i, torch.ones(2, 2, device=DEVICE))


def test_sums_in_double_run_on_the_cpu(silent_fallbacks):
    x, i, v = torch.randn(4, 5).double().t(), torch.tensor([[0, 19], [-1, 0]]), torch.ones(2, 2)
    check(lambda x, i, v: x.put_(i, v, accumulate=True), x, i, v.double())
    assert silent_fallbacks() == {"aten::put_": 1}
    # Indices may be on the CPU, and so may a value without dimensions.
    for value in (torch.ones(2, dtype=x.dtype, device=DEVICE), torch.ones((), dtype=x.dtype)):
        where = (torch.tensor([1, 1]), torch.tensor([2, 2]))
        result = x.to(DEVICE).index_put_(where, value, accumulate=True)
        assert_same(result, x.clone().index_put_(where, value.cpu(), accumulate=True))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x.to(DEVICE).index_put_((i[0] % 4,), torch.ones(2, 4, dtype=x.dtype), accumulate=True)


def test_gradients():
    x = torch.randn(5, 6, requires_grad=True)
    i = torch.tensor([1, 4, 1])
    check_gradients(lambda x, i: x[i], x, i)
    check_gradients(lambda x, i: x[:, i] * 2, x, i)
    check_gradients(lambda x, i: x.index_select(1, i), x, i)
    check_gradients(lambda x, i: x.take(i), x, i)
    check_gradients(lambda x, m: x.masked_fill(m, 0), x, torch.rand(5, 6) > 0.5)


BOUNDS = "index {bad} is out of bounds for dimension {dim} with size 4"
IN_SELF = "index out of range in self: {bad}, for dimension {dim} with size 4"
ACCESS = "out of range: tried to access index {bad} on a tensor of 8 elements."


@pytest.mark.parametrize(
    ("name", "text", "error", "broken"),
    [
        ("index", BOUNDS, IndexError, lambda x, i: x[torch.zeros_like(i), i]),
        ("index_put_", BOUNDS, IndexError, lambda x, i: x.index_put_((i * 0, i), x[0, 0].clone())),
        ("index_copy_", BOUNDS, IndexError, lambda x, i: x.index_copy_(1, i, x[:, :2].clone())),
        ("index_fill_", BOUNDS, IndexError, lambda x, i: x.index_fill_(1, i, 2.0)),
        ("gather", BOUNDS, RuntimeError, lambda x, i: x.gather(-1, i.view(1, 2))),
        ("scatter", BOUNDS, RuntimeError, lambda x, i: x.scatter(1, i.view(1, 2), 1.0)),
        ("index_select", IN_SELF, IndexError, lambda x, i: x.index_select(1, i)),
        ("index_add", IN_SELF, IndexError, lambda x, i: x.index_add(1, i, x[:, :2])),
        ("take", ACCESS, IndexError, lambda x, i: x.take(i)),
        ("put_", ACCESS, IndexError, lambda x, i: x.put_(i, x[0, :2].clone())),
    ],
)
def test_out_of_range(name, text, error, broken):
    x = to_device(torch.randn(2, 4))
    for bad in (9, 2**32, -(2**40)):
        with pytest.raises(error) as raised:
            finish(broken, x, torch.tensor([0, bad], device=DEVICE))
        assert str(raised.value) == f"{name}(): " + text.format(bad=bad, dim=1)
    assert_same(x.index_select(0, torch.tensor([1], device=DEVICE)), x.cpu()[1:2])


@pytest.mark.parametrize(
    "broken",
    [
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.mT.index_select(1, i),
        lambda x, i: torch.nn.functional.embedding(i, x),
        lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
    ],
)
def test_out_of_range_of_nothing(broken):
    """There is nothing to move, but the CPU checks the indices."""
    x = to_device(torch.randn(4, 0))
    assert broken(x, torch.tensor([0, 3], device=DEVICE)).numel() == 0
    torch.webgpu.synchronize()
    with pytest.raises(IndexError, match=r"out of range in self: 9, for dimension . with size 4"):
        finish(broken, x, torch.tensor([0, 9], device=DEVICE))


def test_index_add_to_nothing():
    """The CPU checks the indices in one dimension only."""

    def add(x, i):
        return x.index_add(-1, i, torch.ones(*x.shape[:-1], 1, device=x.device))

    for shape in ((3, 0), (0, 2), (0, 0)):
        x = torch.zeros(shape)
        result = add(x.to(DEVICE), torch.tensor([5], device=DEVICE))
        torch.webgpu.synchronize()
        assert_same(result, add(x, torch.tensor([5])))
    with pytest.raises(IndexError, match="out of range in self: 0, for dimension 0 with size 0"):
        finish(add, torch.zeros(0, device=DEVICE), torch.tensor([0], device=DEVICE))


@pytest.mark.parametrize(
    "broken",
    [
        lambda x, i: x[i, i, i],
        lambda x, i: x[i.float()],
        lambda x, i: x[i > 0],
        lambda x, i: x.index_select(2, i),
        lambda x, i: x.index_select(0, i.float()),
        lambda x, i: x.index_select(0, i.view(1, -1)),
        lambda x, i: x.index_put_((i,), x[:1, :2]),
        lambda x, i: x.index_put_((i,), x[:1, :2], accumulate=True),
        lambda x, i: x.masked_fill(x > 0, x),
    ],
)
def test_error_texts(broken):
    x, i = torch.randn(4, 5), torch.tensor([0, 1, 1])
    check_error(broken, x, i)

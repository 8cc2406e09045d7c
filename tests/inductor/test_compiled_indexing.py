"""Indices that are data: gathers, scatters, embeddings, and their errors."""

import random

import pytest
import torch
from compiled import DEVICE, check, compile
from torch._subclasses.fake_tensor import FakeTensorMode

F = torch.nn.functional
aten = torch.ops.aten


def randn(*shape):
    return torch.randn(*shape, device=DEVICE)


def indices(high, *shape, low=0):
    return torch.randint(low, high, shape).to(DEVICE)


def test_loads_by_index():
    x = randn(20, 30)
    check(lambda x, i: x[i].sin(), x, indices(20, 50, low=-20), exact=True)
    check(lambda x, i, j: x[i, j] + 1, x, indices(20, 50), indices(30, 50), exact=True)
    check(lambda x, i: x.gather(1, i) * 2, x, indices(30, 20, 7), exact=True)
    check(lambda x, i: x.index_select(1, i), x, indices(30, 9).to(torch.int32), exact=True)
    check(lambda x, i: F.embedding(i, x) + 1, x, indices(20, 4, 5), exact=True)


def test_stores_by_index():
    x = randn(20, 30)

    def accumulate(x, i, v):
        return (x * 2).index_put((i,), v, accumulate=True)

    check(accumulate, x, indices(20, 64), randn(64, 30))
    check(lambda x, i, v: x.scatter_add(1, i, v) + 1, x, indices(30, 20, 9), randn(20, 9))
    check(lambda x, i, v: x.index_add(0, i, v), x, indices(20, 50), randn(50, 30))
    check(lambda x, i, v: x.scatter(1, i, v), x, indices(30, 20, 1), randn(20, 1), exact=True)
    check(lambda x: x.index_fill(0, torch.tensor([1, 3], device=DEVICE), 7.0), x, exact=True)


# What is stored to in place, because nothing else reads it afterwards.
CONCATENATED = {
    "cat": lambda x: torch.cat([x, x[:2]]),
    "twice": lambda x: torch.cat([x[:2] + 1, x, x]),
    "pad": lambda x: F.pad(x, (0, 3)),
    "pad rows": lambda x: F.pad(x, (0, 0, 0, 3)),
}


@pytest.mark.sampled("cat-True", "twice-False", "pad-True", "pad rows-False")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CONCATENATED)
def test_stores_beside_concatenations(name, dynamic):
    """Inductor computes an operand where it lies in the concatenation, which the stores changed."""

    def of_operand(x, y, i):
        z = x * y
        return CONCATENATED[name](z), z.index_put((i,), y[:2])

    def of_result(x, y, i):
        z = x * y
        whole = CONCATENATED[name](z)
        return whole.index_fill(0, i, 7.0), z, whole[3:]

    def of_product(x, y, i):
        z = x @ y.T
        return CONCATENATED[name](z), z.index_fill(0, i, 7.0)

    x, y, i = randn(12, 5), randn(12, 5), torch.tensor([1, 4], device=DEVICE)
    check(of_operand, x, y, i, exact=True, dynamic=dynamic)
    check(of_result, x, y, i, exact=True, dynamic=dynamic)
    check(of_product, x, y, i, dynamic=dynamic)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float16], ids=str)
def test_atomic_sums(dtype):
    x = torch.zeros(5, dtype=dtype, device=DEVICE)
    ones = torch.ones(300, dtype=dtype, device=DEVICE)
    check(lambda x, i, v: x.index_add(0, i, v), x, indices(5, 300), ones, exact=True)


def test_gradient_of_embedding():
    weight = randn(50, 16).requires_grad_()
    check(lambda w, i: F.embedding(i, w).sin(), weight, indices(50, 8, 6), backward=True)


def test_masked_loads():
    x = randn(6, 10)
    check(lambda x: torch.where(x > 0, x, x.flip(0)).tril(), x, exact=True)
    check(lambda x: torch.cat([x.sin() * 0.7, x.cos() * 0.7, x + 1], 1) * 0.7, x, exact=True)
    check(lambda x: x.roll(3, 1) + x.diagonal(), x[:, :6], exact=True)
    check(lambda x: F.max_pool2d(x[None, None], 3, padding=1), x, exact=True)
    check(lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"), x)


@pytest.mark.parametrize("index", [20, -21, 2**32 + 1])
def test_index_out_of_range_is_an_error_at_the_next_synchronization(index):
    x = randn(20, 3)
    compiled = compile(lambda x, i: x[i] + 1)
    compiled(x, indices(20, 4))
    compiled(x, torch.tensor([0, 1, index, 2], device=DEVICE))
    with pytest.raises(IndexError, match="is out of bounds for dimension"):
        torch.webgpu.synchronize()
    torch.webgpu.synchronize()  # reported once


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (lambda x, i: x.gather(-2, i[:, None]) + 1, RuntimeError),
        (lambda x, i: (x + 0).scatter(0, i[:, None], 1.0) + 1, RuntimeError),
        (lambda x, i: (x + 0).scatter_add(0, i[:, None], x) + 1, RuntimeError),
        (lambda x, i: x.gather(0, i[:, None]) + x[i], IndexError),
        (lambda x, i: x.gather(0, i[:, None]) + x.t().gather(1, i[None]).t(), RuntimeError),
        (lambda x, i: F.nll_loss(x.t(), i[:3]), IndexError),
    ],
    ids=["gather", "scatter", "scatter_add", "gather and index", "gathers", "nll_loss"],
)
def test_errors_have_the_types_of_eager_mode(program, error):
    compile(program)(randn(20, 3), torch.tensor([20, 1, 2], device=DEVICE))
    with pytest.raises(
        error, match=r"index 20 is out of bounds for dimension.* with size 20"
    ) as info:
        torch.webgpu.synchronize()
    assert type(info.value) is error
    assert "gather" not in str(info.value) or "dimension 0 with" in str(info.value)


def test_errors_of_negative_indices():
    """They count from the end, but in gather and scatter."""
    i = torch.tensor([[-1, 2]], device=DEVICE)
    compile(lambda x, i: x.gather(0, i) + 1)(randn(20, 3), i)
    with pytest.raises(RuntimeError, match=r"index -1 is out of bounds .* size 20"):
        torch.webgpu.synchronize()


def test_error_names_index_and_size():
    compile(lambda x, i: x[i] + 1)(randn(20, 3), torch.tensor([-21], device=DEVICE))
    with pytest.raises(IndexError, match=r"index -21 is out of bounds .* size 20"):
        torch.webgpu.synchronize()


@pytest.fixture
def sizes_of_data():
    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        yield


@pytest.mark.usefixtures("sizes_of_data")
def test_sizes_that_are_data():
    x, w = randn(9, 4), randn(4, 5)

    def whole(function, *args, **options):
        check(function, *args, fullgraph=True, **options)

    def chosen(x):
        return x[x[:, 0] > 0]

    whole(lambda x: x[x > 0].sum() + x[x > 0].mean(), x)
    whole(lambda x: torch.cat([x[x > 0].sort()[0].cumsum(0), x[x <= 0] * 2]), x)
    whole(lambda x: (x[x > 100] * 2, x[x > 100].sum()), x)
    whole(lambda x: chosen(x).softmax(0).sum(1), x)
    whole(lambda x, n: torch.arange(n.item(), device=DEVICE) * x[0, 0], x, indices(8, low=7))
    whole(lambda x, n: (x.narrow(0, 0, n.item()) * 2).sum(0), x, indices(8, low=7))
    times = torch.tensor([1, 0, 3, 2, 0, 1, 1, 0, 2], device=DEVICE)
    whole(lambda x: x.repeat_interleave(times, 0).sum(1), x)
    # Products whose readers may join them.
    whole(lambda x, w: (chosen(x) @ w).relu(), x.requires_grad_(), w, backward=True)
    whole(lambda x: (chosen(x).T @ chosen(x)).sin(), x)

    def one_expert(x, w):
        rows = (x[:, 0] > 0).nonzero()[:, 0]
        return torch.zeros_like(x).index_add(0, rows, x[rows] @ w)

    whole(one_expert, x, randn(4, 4).requires_grad_(), backward=True)


def test_indices_of_triangles():
    x = randn(7, 7)

    def pairs(x):
        rows, columns = torch.tril_indices(x.shape[0], x.shape[1], -1, device=x.device)
        return x[rows, columns] + torch.triu_indices(6, 4, 1, device=x.device).sum()

    check(pairs, x, fullgraph=True)
    check(pairs, x, fullgraph=True, dynamic=True)


def test_operator_with_transposed_indices():
    """Of complex numbers it is an operator, whose strides compiled modules assert."""
    x = torch.randn(4, 3, dtype=torch.complex64, device=DEVICE)
    for shape, order in (((7, 5), (1, 0)), ((7, 5, 2), (2, 0, 1)), ((1, 6), (1, 0))):
        places = torch.randint(0, 3, shape, device=DEVICE).permute(order)
        check(lambda x, i: (x[i], x[:, i], x[i, i]), x, places, exact=True)


def test_fake_results_lie_as_real_ones():
    compile(lambda x: x + 1)(torch.ones(2, device=DEVICE))  # installs the rules
    choose = random.Random(0)
    fake_mode = FakeTensorMode()

    def permuted(sizes, dtype):
        order = choose.sample(range(len(sizes)), len(sizes))
        back = [order.index(d) for d in range(len(sizes))]
        return torch.zeros([sizes[d] for d in order], dtype=dtype, device=DEVICE).permute(back)

    def strides(x):
        return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]

    for _ in range(100):
        x = permuted([choose.choice([1, 2, 3]) for _ in range(choose.randint(1, 3))], torch.float32)
        sizes = [choose.choice([1, 2, 5]) for _ in range(choose.randint(0, 3))]
        indices = [
            permuted([choose.choice([1, n]) for n in sizes], torch.int64)
            if choose.random() < 0.6
            else None
            for _ in range(x.dim())
        ]
        if all(index is None for index in indices):
            continue
        real = aten.index.Tensor(x, indices)
        with fake_mode:
            faked = [index if index is None else fake_mode.from_tensor(index) for index in indices]
            fake = aten.index.Tensor(fake_mode.from_tensor(x), faked)
        assert fake.shape == real.shape
        assert strides(fake) == strides(real)


@pytest.mark.sampled("torch.int64", "torch.bool")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.float16], ids=str)
def test_numbers_of_other_types_where_a_mask_is_set(dtype):
    """The result has the tensor's type. Inductor's has the type that both have in common."""

    def put(x, value):
        y = x.clone()
        y[x > 0] = value
        return y, x.index_put((x > 1,), value), x.index_fill(0, (x > 2).nonzero()[:, 0], value)

    x = torch.arange(5).to(dtype)
    for value in (torch.tensor(2.75), torch.tensor(7), torch.tensor(True)):
        compiled = compile(put)(x.to(DEVICE), value)
        for one, other in zip(compiled, put(x, value), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("accumulate", [False, True])
def test_values_of_other_types_are_not_put(accumulate):
    """Only a number on the CPU is converted, and only where a mask is set."""
    n, value = torch.arange(6, device=DEVICE), torch.tensor(2.5)
    cases = [(n > 3, value.to(DEVICE)), (n[:2], value), (n[:2], value.to(DEVICE).expand(2))]
    for index, values in cases:
        compiled = compile(lambda n, i, v: n.index_put((i,), v, accumulate=accumulate))
        with pytest.raises(RuntimeError, match="dtypes match"):
            compiled(n, index, values)


# By name: functions of a computed tensor and of rows, which read the tensor that they change.
OF_THEMSELVES = {
    "index_add": lambda y, rows: y.index_add(0, rows, y),
    "index_add_part": lambda y, rows: y.index_add(0, rows[3:], y[:-3]),
    "index_add_copy": lambda y, rows: y.index_add_(0, rows, y.clone()),
    "index_copy": lambda y, rows: y.index_copy(0, rows.argsort(stable=True), y),
    "index_put": lambda y, rows: y.index_put((rows.argsort(stable=True),), y.flip(0)),
    "accumulate": lambda y, rows: y.index_put((rows,), y[:1], accumulate=True),
    "expression": lambda y, rows: y.index_add(0, rows, y * 2 + 1),
    "index": lambda y, rows: y.index_put((y[:, 0].long() % 40,), torch.full_like(y[0], 7)),
    "whole_index": lambda y, rows: (z := y[0] % 40).index_put((z.long(),), torch.full_like(z, 41)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("name", OF_THEMSELVES)
def test_puts_what_is_read_of_the_tensor_itself(name, dtype):
    """It is read before anything is put. Inductor reads and puts in one kernel."""

    def put(x, rows):
        return OF_THEMSELVES[name](x * 2 + 1, rows)

    x, rows = torch.randint(0, 100, (40, 70)).to(dtype), torch.randint(0, 40, (40,))
    compiled = compile(put)(x.to(DEVICE), rows.to(DEVICE))
    assert torch.equal(compiled.cpu(), put(x, rows))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("is_last", [False, True], ids=["starts", "starts and end"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode, is_last, dynamic):
    indices = torch.tensor([4, 0, 2, 3, 3], device=DEVICE)
    offsets = torch.tensor([0, 1, 3, 3, 5], device=DEVICE)
    weight = torch.randn(6, 3, device=DEVICE, requires_grad=True)

    def bags(indices, offsets, weight):
        found = F.embedding_bag(indices, weight, offsets, mode=mode, include_last_offset=is_last)
        return found * 2, F.embedding_bag(indices.view(1, -1), weight, mode=mode)

    check(bags, indices, offsets, weight, backward=True, dynamic=dynamic)

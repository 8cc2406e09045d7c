"""Tensors larger than one storage binding: operators split them, or say that they cannot.

The limit is lowered, so that a few kilobytes are large; two tests go beyond a real one.
"""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, check, check_gradients

from torch_webgpu.wgsl import target

LIMIT = 8192


@pytest.fixture
def small_bindings():
    """A storage binding holds 8 KiB."""
    with target(limits={"max_storage_binding_size": LIMIT}):
        yield


@pytest.fixture
def few_elements():
    """A kernel counts 1000 elements."""
    with target(limits={"max_elements": 1000}):
        yield


def large(*shape, dtype=torch.float32, **options):
    return torch.randn(shape).to(dtype).requires_grad_(options.get("requires_grad", False))


def grad(*shape, **options):
    return large(*shape, requires_grad=True, **options)


FLOATS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)


@FLOATS
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(300, 40, 8), (8, 300, 40), (8, 40, 300), (70, 70, 70), (1, 2000, 3), (130, 33, 1)],
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.usefixtures("small_bindings")
def test_mm(dtype, m, k, n, layout):
    scale = 3 if dtype == torch.int64 else 1
    a = (large(m, k) * scale).to(dtype)
    b = (large(k, n) * scale).to(dtype)
    if layout[0] == "t":
        a = a.t().contiguous().t()
    if layout[1] == "t":
        b = b.t().contiguous().t()
    tolerances = (
        {"atol": 0.5, "rtol": 0.02} if dtype == torch.bfloat16 else {"atol": 1e-3, "rtol": 1e-4}
    )
    check(torch.mm, a, b, **tolerances)
    bias = torch.ones(n, dtype=dtype)
    check(lambda d, x, y: torch.addmm(d, x, y, beta=2, alpha=3), bias, a, b, **tolerances)


@pytest.mark.usefixtures("small_bindings")
def test_products_and_their_gradients():
    tight = {"atol": 1e-3, "rtol": 1e-4}
    check_gradients(torch.bmm, grad(5, 40, 30), grad(5, 30, 50), **tight)
    check_gradients(torch.bmm, grad(3, 40, 70), grad(3, 70, 50), **tight)
    check_gradients(torch.baddbmm, grad(5, 40, 50), grad(5, 40, 30), grad(5, 30, 50), **tight)
    check_gradients(torch.mv, grad(70, 90), grad(90), **tight)
    check_gradients(torch.mv, grad(2, 4000), grad(4000), **tight)
    check_gradients(torch.dot, grad(3000), grad(3000), **tight)
    check_gradients(F.linear, grad(40, 64), grad(100, 64), grad(100), **tight)
    check_gradients(torch.matmul, grad(2, 3, 40, 30), grad(30, 60), **tight)
    check(lambda d, a, b: d.addmm_(a, b), large(60, 60), large(60, 50), large(50, 60), **tight)
    out = torch.empty(70, 60, device=DEVICE)
    a, b = large(70, 40), large(40, 60)
    torch.mm(a.to(DEVICE), b.to(DEVICE), out=out)
    torch.testing.assert_close(out.cpu(), a @ b, **tight)


@pytest.mark.usefixtures("small_bindings")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_embedding(dtype):
    table = large(300, 16, dtype=dtype, requires_grad=True)
    index = torch.randint(0, 300, (7, 40))
    tolerances = {"atol": 1e-2, "rtol": 1e-2} if dtype == torch.float16 else {}
    check_gradients(lambda i, w: F.embedding(i, w), index, table, **tolerances)
    check_gradients(
        lambda i, w: F.embedding(i, w, padding_idx=5, scale_grad_by_freq=True),
        index,
        table,
        **tolerances,
    )
    check_gradients(lambda i, w: F.embedding_bag(i, w), index, table, **tolerances)


def index(high, *shape):
    return torch.randint(0, high, shape)


# A name, the function, and its arguments; gradients are compared where an argument requires them.
CASES = [
    ("flip", lambda x: x.flip(0, 1), grad(60, 50)),
    ("flip_bool", lambda x: x.flip(0), torch.rand(9001) > 0.5),
    ("roll", lambda x: x.roll(37), grad(3000)),
    ("cat", lambda x, y: torch.cat([x, y, x], 1), grad(60, 50), grad(60, 3)),
    ("cat_small", lambda x: torch.cat([x] * 20), grad(10, 10)),
    ("stack", lambda x, y: torch.stack([x, y], 1), grad(60, 50), grad(60, 50)),
    ("tril", torch.tril, grad(60, 50)),
    ("pad", lambda x: F.pad(x, (3, 2, 1, 4), "reflect"), grad(2, 40, 50)),
    ("index", lambda x, i: x[i, :, i], grad(20, 5, 30), index(20, 400)),
    (
        "index_put",
        lambda x, i, v: x.index_put((i,), v),
        large(90, 30),
        torch.randperm(90),
        large(90, 30),
    ),
    (
        "index_put_accumulate",
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        grad(90, 30),
        index(90, 50),
        grad(50, 30),
    ),
    (
        "index_add_half",
        lambda x, i, v: x.index_add(0, i, v),
        torch.ones(3000).half(),
        index(3000, 900),
        torch.ones(900).half(),
    ),
    (
        "index_copy",
        lambda x, i, v: x.index_copy(0, i, v),
        grad(90, 30),
        torch.randperm(90)[:60],
        grad(60, 30),
    ),
    ("index_fill", lambda x, i: x.index_fill(1, i, 2), grad(90, 30), index(30, 4)),
    ("index_select", lambda x, i: x.index_select(1, i), grad(30, 90), index(90, 50)),
    ("take", torch.take, grad(60, 50), index(3000, 40, 40)),
    ("take_along_dim", lambda x, i: x.take_along_dim(i, 1), grad(60, 50), index(50, 60, 70)),
    ("gather", lambda x, i: x.gather(0, i), grad(60, 50), index(60, 70, 50)),
    (
        "scatter",
        lambda x, i, v: x.scatter(1, i, v),
        large(60, 50),
        torch.rand(60, 50).argsort(1),
        large(60, 50),
    ),
    (
        "scatter_add",
        lambda x, i, v: x.scatter_add(1, i, v),
        grad(60, 50),
        index(50, 60, 70),
        grad(60, 70),
    ),
    (
        "scatter_amax",
        lambda x, i, v: x.scatter_reduce(0, i, v, "amax"),
        large(3000).byte(),
        index(3000, 5000),
        large(5000).byte(),
    ),
    ("masked_select", lambda x: x.masked_select(x > 0), grad(60, 50)),
    ("masked_scatter", lambda x, v: x.masked_scatter(x > 0, v), large(60, 50), large(3000)),
    ("nonzero", lambda x: (x > 0).nonzero(), large(60, 50)),
    ("softmax", lambda x: x.softmax(1), grad(60, 50)),
    ("softmax_long", lambda x: x.softmax(1), grad(3, 2000)),
    ("log_softmax", lambda x: x.log_softmax(0), grad(60, 50)),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (50,), w, b), grad(60, 50), grad(50), grad(50)),
    ("rms_norm", lambda x, w: F.rms_norm(x, (50,), w), grad(60, 50), grad(50)),
    ("group_norm", lambda x, w: F.group_norm(x, 2, w), grad(9, 4, 50), grad(4)),
    (
        "batch_norm",
        lambda x, w: F.batch_norm(x, None, None, w, training=True),
        grad(9, 4, 50),
        grad(4),
    ),
    ("cumsum", lambda x: x.cumsum(0), grad(60, 50)),
    ("cumsum_long", lambda x: x.cumsum(0), torch.arange(3000)),
    ("cumprod", lambda x: x.cumprod(1), grad(60, 50)),
    ("logcumsumexp", lambda x: x.logcumsumexp(0), grad(60, 50)),
    ("cummax", lambda x: tuple(x.cummax(1)), large(60, 50)),
    ("sort", lambda x: tuple(x.sort(1)), grad(60, 50)),
    ("sort_long", lambda x: tuple(x.sort(stable=True)), index(100, 2000)),
    ("topk", lambda x: tuple(x.topk(7)), grad(3, 2000)),
    ("kthvalue", lambda x: x.kthvalue(7).values, large(3, 1000)),
    ("median", torch.median, large(3001)),
    (
        "unique",
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        index(100, 1500),
    ),
    ("searchsorted", lambda s, v: torch.searchsorted(s.sort().values, v), large(3000), large(2000)),
    ("bincount", torch.bincount, index(1100, 3000)),
    (
        "conv2d",
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        grad(6, 3, 14, 15),
        grad(5, 3, 3, 3),
        grad(5),
    ),
    ("conv2d_strided", lambda x, w: F.conv2d(x, w, stride=2), grad(6, 3, 14, 15), grad(5, 3, 3, 3)),
    ("conv1d", lambda x, w: F.conv1d(x, w, groups=2), grad(8, 4, 60), grad(6, 2, 5)),
    (
        "conv_transpose2d",
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        grad(6, 3, 7, 8),
        grad(3, 5, 3, 3),
    ),
    ("max_pool2d", lambda x: F.max_pool2d(x, 2), grad(6, 3, 14, 16)),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2), grad(6, 3, 14, 16)),
    ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 3), grad(6, 3, 14, 16)),
    ("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 3), grad(6, 3, 14, 16)),
    (
        "interpolate",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        grad(6, 3, 14, 16),
    ),
    (
        "grid_sample",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        grad(6, 3, 14, 16),
        grad(6, 20, 20, 2),
    ),
    ("unfold", lambda x: F.unfold(x, 3), grad(6, 1, 10, 12)),
    ("cdist", torch.cdist, grad(60, 20), grad(70, 20)),
    ("cross_entropy", F.cross_entropy, grad(60, 50), index(50, 60)),
    ("repeat_interleave", lambda x, i: x.repeat_interleave(i, 0), grad(60, 20), index(4, 60)),
    ("sum", lambda x: (x.sum(), x.sum(0), x.amax(1), x.argmax()), large(60, 50)),
    ("copy", lambda x: x.t().contiguous().half(), large(60, 50)),
    ("where", lambda x: torch.where(x > 0, x, 2), grad(60, 50)),
    ("dropout", lambda x: F.dropout(x, 1.0), grad(60, 50)),
]


@pytest.mark.parametrize(
    ("function", "args"), [(*case[1:2], case[2:]) for case in CASES], ids=[c[0] for c in CASES]
)
@pytest.mark.usefixtures("small_bindings")
def test_operators(function, args):
    compare = check_gradients if any(a.requires_grad for a in args) else check
    compare(function, *args, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("small_bindings")
def test_copies_inside_a_buffer():
    x = torch.randn(60, 100)
    y = x.to(DEVICE)
    for t in (x, y):
        t[:2] = t[-2:]
        t[:, 1:3] = t[:, 97:99].clone()
        t[30:].copy_(t[5])
    assert torch.equal(y.cpu(), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8], ids=str)
def test_random_numbers_of_many_bindings(dtype):
    def draw():
        torch.manual_seed(5)
        x = torch.empty(LIMIT * 4 // dtype.itemsize + 3, dtype=dtype, device=DEVICE)
        return x.normal_() if dtype.is_floating_point else x.random_()

    expected = draw().cpu()
    with target(limits={"max_storage_binding_size": LIMIT}):
        found = draw().cpu()
    assert torch.equal(found, expected)


@pytest.mark.usefixtures("small_bindings")
def test_what_does_not_fit_all_bindings_is_refused():
    x = torch.zeros(100_000, device=DEVICE)
    with pytest.raises(
        NotImplementedError, match="does not fit into the storage bindings of target"
    ):
        x.cumsum(0)


@pytest.mark.usefixtures("small_bindings")
def test_training_step():
    model = torch.nn.Sequential(torch.nn.Linear(40, 70), torch.nn.GELU(), torch.nn.Linear(70, 40))
    copy = torch.nn.Sequential(torch.nn.Linear(40, 70), torch.nn.GELU(), torch.nn.Linear(70, 40))
    copy.load_state_dict(model.state_dict())
    copy.to(DEVICE)
    x = torch.randn(50, 40)
    for each, inputs in ((model, x), (copy, x.to(DEVICE))):
        optimizer = torch.optim.AdamW(each.parameters(), lr=0.01)
        F.mse_loss(each(inputs), inputs).backward()
        torch.nn.utils.clip_grad_norm_(each.parameters(), 0.1)
        optimizer.step()
    for one, other in zip(copy.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.cpu(), other, atol=1e-4, rtol=1e-4)


def test_a_product_beyond_128_mib():
    """The true limit of a software driver: 140 MB of A, and of B."""
    a = (
        torch.arange(2100 * 16700, device=DEVICE, dtype=torch.float32)
        .remainder_(7)
        .view(2100, 16700)
    )
    left = torch.ones(2, 2100, device=DEVICE)
    right = torch.ones(16700, 2, device=DEVICE)
    assert torch.equal((left @ a)[1], a.sum(0))
    assert torch.equal((a @ right)[:, 0], a.sum(1))


def test_an_embedding_beyond_128_mib():
    table = (
        torch.arange(1_100_000 * 32, device=DEVICE, dtype=torch.float32)
        .view(1_100_000, 32)
        .requires_grad_()
    )
    rows = torch.tensor([0, 1_048_575, 1_048_576, 1_099_999, 524_288], device=DEVICE)
    found = F.embedding(rows, table)
    torch.testing.assert_close(found.cpu(), (rows.cpu()[:, None] * 32 + torch.arange(32)).float())
    found.sum().backward()
    assert table.grad.sum().item() == 5 * 32
    assert torch.equal(table.grad.amax(1).nonzero().flatten().cpu(), rows.cpu().sort().values)


@pytest.mark.usefixtures("small_bindings")
def test_sums_between_kept_dimensions():
    """Cut along kept dimensions, until one of them has a single element left."""
    for x in (large(3, 13, 400), large(3, 13, 17, 19), large(13, 17, 19).transpose(0, 2)):
        check(lambda t: t.sum(1), x, rtol=1e-5, atol=1e-5)
        check(lambda t: t.amax(1), x)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool], ids=str
)
@pytest.mark.usefixtures("small_bindings")
def test_operands_far_apart_in_one_buffer(dtype):
    x = large(400, 100).mul(3).to(dtype)
    check(lambda x: x[0].ne(x[-1]), x)
    check(lambda x: torch.where(x[:3] != 0, x[200:203], x[-3:]), x)
    check(lambda x: torch.maximum(x[:200], x[200:]), x)
    check(lambda x: torch.maximum(x[:, 0], x[:, 99]), x)
    check(lambda x: x.clone()[::399].eq_(x[1]), x)

    def into_itself(x):
        y = x.clone()
        torch.maximum(y[:2], y[-2:], out=y[200:202])
        y[:150].logical_or_(y[250:])
        return y

    check(into_itself, x)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool], ids=str
)
@pytest.mark.parametrize("shape", [(3, 3001), (3001, 3), (9001,)], ids=str)
@pytest.mark.usefixtures("small_bindings")
def test_reductions(dtype, shape):
    x = large(*shape).mul(3).to(dtype)
    spread = torch.cat([x, x], -1)[..., ::2]
    for one in (x, spread, x.transpose(0, -1)):
        for dim in (0, -1):
            check(lambda x, dim=dim: x.amax(dim), one)
            check(lambda x, dim=dim: x.sum(dim, dtype=torch.float32), one, rtol=1e-4, atol=1e-3)
            check(lambda x, dim=dim: x.float().var(dim), one, rtol=1e-4, atol=1e-4)
            check(lambda x, dim=dim: x.all(dim), one)
        check(lambda x: x.amin(), one)
        check(lambda x: torch.aminmax(x), one)
    far = torch.zeros(3, 4001, dtype=dtype)
    far[:, 7] = x.flatten()[:3]
    check(lambda x: x[:, 7].amax(), far)  # a row longer than a binding between the elements

    def into_itself(x):
        y = x.flatten().clone()
        torch.amax(y[:10], 0, out=y[9000])
        return y

    check(into_itself, x)


@pytest.mark.parametrize(
    "reduce",
    [torch.sum, torch.var, torch.prod, lambda x: x.sum(1), lambda x: x.long().sum()],
    ids=["sum", "var", "prod", "rows", "int64"],
)
@pytest.mark.usefixtures("small_bindings")
def test_reductions_of_expanded_tensors(reduce):
    """Elements far apart in a large buffer, each of them several times."""
    a = torch.zeros(3, 40001)
    a[:, 7] = torch.tensor([1.0, 2.0, 3.0])
    check(lambda x: reduce(x[:, 7:8].expand(3, 5)), a)


@pytest.mark.usefixtures("small_bindings")
def test_a_reduction_into_the_buffer_of_its_expanded_input():
    def run(x):
        torch.sum(x[:10].expand(7, 10), 0, out=x[50000:50010])
        return x[50000:50010]

    check(run, torch.arange(6.0).repeat(10000))


@pytest.mark.usefixtures("small_bindings")
def test_operands_of_a_kernel_far_apart_in_one_buffer():
    def run(buffer):
        torch.cumsum(buffer[:60], 0, out=buffer[4900:4960])
        torch.softmax(buffer[100:160], 0, out=buffer[3000:3060])
        torch.triu(buffer[400:500].view(10, 10), out=buffer[4500:4600].view(10, 10))
        return buffer

    check(run, large(5000))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8], ids=str)
@pytest.mark.usefixtures("small_bindings")
def test_operands_about_as_long_as_a_binding(dtype):
    x = large(4 * LIMIT).mul(3).to(dtype)
    elements = LIMIT // x.itemsize
    for begin in (0, 1, 5, 256, 1000):
        for length in (elements - 300, elements - 1, elements, elements + 1):
            check(lambda x, begin, end: x[begin:end] + 1, x, begin, begin + length)


@pytest.mark.usefixtures("small_bindings")
def test_reversed_operands_in_a_large_buffer():
    x = large(400, 100)
    check(lambda x: x[200:203].flip(1), x)
    check(lambda x: x[-3:, 7].flip(0), x)

    def into_the_same_buffer(x):
        y = x.clone()
        y[20:23] = y[200:203].flip(1)
        return y

    check(into_the_same_buffer, x)


# What kernels with 32-bit indices cannot count is cut into parts.
@pytest.mark.usefixtures("few_elements")
@pytest.mark.parametrize(
    "shape",
    [(5000,), (70, 60), (3, 40, 50), (2, 5000), (5000, 2)],
    ids=lambda s: "x".join(map(str, s)),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_reductions_of_many_elements(dtype, shape):
    x = torch.randint(-9, 9, shape).to(dtype)
    dims = [None, *range(len(shape)), *([(0, len(shape) - 1)] if len(shape) > 1 else [])]
    for dim in dims:
        for reduce in (torch.sum, torch.amax, torch.amin, torch.any, torch.all):
            check(lambda a, r=reduce, d=dim: r(a) if d is None else r(a, dim=d), x)
        if not isinstance(dim, tuple):
            for reduce in (torch.argmax, torch.argmin):
                check(lambda a, r=reduce, d=dim: r(a, dim=d), x)
        if dim is None:
            check(lambda a: torch.stack([a.max(), a.min()]), x)
            check(lambda a: a.clamp(1, 2)[..., :8].contiguous().prod(), x)
        elif not isinstance(dim, tuple):
            check(lambda a, d=dim: a.max(d), x)
            check(lambda a, d=dim: a.min(d), x)
        if dtype == torch.float32:
            for reduce in (torch.mean, torch.var, torch.linalg.vector_norm):
                check(
                    lambda a, r=reduce, d=dim: r(a) if d is None else r(a, dim=d),
                    x,
                    atol=1e-4,
                    rtol=1e-5,
                )


@pytest.mark.usefixtures("few_elements")
@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded"])
def test_reductions_of_many_strided_elements(layout):
    x = torch.randn(60, 70)
    x = {"transposed": x.t(), "sliced": x[::2, 1::2], "expanded": x[:1].expand(300, 70)}[layout]
    for dim in (None, 0, 1):
        check(lambda a, d=dim: a.sum(dim=d), x, atol=1e-4, rtol=1e-5)
        check(lambda a, d=dim: a.argmax(dim=d), x)


@pytest.mark.usefixtures("few_elements")
def test_an_index_is_counted_over_all_pieces():
    x = torch.zeros(5000)
    for place in (0, 999, 1250, 2500, 3749, 4999):
        x[place] = 1
        for function in (torch.argmax, lambda a: torch.max(a, 0)):
            check(function, x)
        x[place] = float("nan")
        check(lambda a: torch.argmin(a), x)
        x[place] = 0


MANY = [
    ("softmax", lambda x: F.softmax(x, -1), grad(40, 60)),
    ("softmax_rows", lambda x: F.softmax(x, 0), grad(40, 60)),
    ("softmax_long", lambda x: F.softmax(x, 0), grad(3000)),
    ("log_softmax", lambda x: F.log_softmax(x, 1), grad(3, 60, 20)),
    ("log_softmax_long", lambda x: F.log_softmax(x, 0), grad(3000)),
    ("cumsum", lambda x: x.cumsum(1), grad(40, 60)),
    ("cumsum_long", lambda x: x.cumsum(0), grad(5000)),
    ("cumprod_long", lambda x: x.cumprod(0), torch.rand(3000) * 0.1 + 0.95),
    ("logcumsumexp_long", lambda x: x.logcumsumexp(0), grad(3000)),
    ("cummax", lambda x: x.cummax(0), index(9, 60, 40)),
    ("cummax_long", lambda x: x.cummax(0), index(9999, 5000)),
    ("cummin_long", lambda x: x.cummin(0), torch.randn(5000)),
    ("roll", lambda x: x.roll(37), grad(3000)),
    ("roll_dims", lambda x: x.roll((3, -5), (0, 2)), grad(10, 20, 30)),
    ("flip", lambda x: x.flip(0, 1), grad(60, 50)),
    ("pad", lambda x: F.pad(x, (3, 2, 1, 4), "reflect"), grad(2, 40, 50)),
    ("pad_batches", lambda x: F.pad(x, (3, 2), "replicate"), grad(20, 3, 40)),
    ("tril", lambda x: x.tril(2), grad(3, 40, 50)),
    ("triu", lambda x: x.triu(-3), grad(60, 50)),
    (
        "masked_select",
        lambda x, m: x.masked_select(m),
        torch.randn(60, 50),
        torch.rand(60, 50) > 0.5,
    ),
    ("nonzero", lambda x: x.nonzero(), torch.rand(60, 50) > 0.9),
    ("nonzero_row", lambda x: x.nonzero(), torch.rand(1, 4000) > 0.9),
    ("sort", lambda x: x.sort(dim=1, stable=True), index(99, 60, 50)),
    ("topk", lambda x: x.topk(3, 0)[0], torch.randn(60, 50)),
    ("pointwise", lambda x: (x + 1) * x.t(), grad(60, 60)),
]


@pytest.mark.usefixtures("few_elements")
@pytest.mark.parametrize(
    ("function", "args"), [(c[1], c[2:]) for c in MANY], ids=[c[0] for c in MANY]
)
def test_operators_on_many_elements(function, args):
    wants_gradients = any(a.requires_grad for a in args)
    (check_gradients if wants_gradients else check)(function, *args, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("few_elements")
def test_equal_on_many_elements():
    x = torch.arange(5000, device=DEVICE)
    assert torch.equal(x, x.clone())
    for place in (0, 2500, 4999):
        y = x.clone()
        y[place] = -1
        assert not torch.equal(x, y)

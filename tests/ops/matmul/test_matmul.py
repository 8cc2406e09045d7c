"""Matrix products against the CPU: in float64 for floating types, exactly for integers."""

import itertools

import common
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = "webgpu"
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def values(*shape, dtype=torch.float32):
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(*shape, dtype=dtype)
    # Products and sums that wrap around in every type.
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, shape, dtype=dtype)


def exact(tensor):
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def assert_product(actual, function, a, b, *others, depth):
    """actual is function(a, b, *others) up to the rounding of sums of `depth` products."""
    assert actual.device.type == DEVICE
    actual = actual.cpu()
    expected = function(exact(a), exact(b), *map(exact, others))
    assert actual.shape == expected.shape
    if not (a.is_floating_point() or a.is_complex()):
        assert torch.equal(actual, expected)
        return
    absolute = function(exact(a).abs(), exact(b).abs(), *[exact(o).abs() for o in others])
    bound = torch.finfo(torch.float32).eps * (depth + 4) * absolute.abs()
    info = torch.finfo(actual.dtype)
    bound += info.eps * expected.abs() + info.smallest_normal * info.eps
    assert ((exact(actual) - expected).abs() <= bound).all()


def check(function, a, b, *others, depth=None):
    actual = function(a.to(DEVICE), b.to(DEVICE), *[o.to(DEVICE) for o in others])
    assert actual.dtype == a.dtype
    assert_product(actual, function, a, b, *others, depth=depth or a.shape[-1])


SHAPES = [(1, 1, 1), (3, 5, 4), (64, 64, 64), (33, 70, 101), (130, 17, 65), (200, 1, 3)]
DEEP = [(1, 5000, 1), (5, 3000, 7), (70, 1030, 2)]  # K is cut into pieces


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_mm(dtype):
    for m, k, n in SHAPES + DEEP:
        check(torch.mm, values(m, k, dtype=dtype), values(k, n, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_transposed_and_strided_operands(dtype):
    for m, k, n in [(5, 7, 9), (66, 35, 40)]:
        for flip_a, flip_b in itertools.product([False, True], repeat=2):
            a = values(k, m, dtype=dtype).t() if flip_a else values(m, k, dtype=dtype)
            b = values(n, k, dtype=dtype).t() if flip_b else values(k, n, dtype=dtype)
            check(torch.mm, a, b)
        # Views: odd offsets, gaps, zero strides.
        big = values(2 * m + 1, 3 * k + 1, dtype=dtype)
        narrow = values(k, 1, dtype=dtype)
        on_device = big.to(DEVICE)[1::2, 1::3] @ narrow.to(DEVICE).expand(k, n)
        assert_product(on_device, torch.mm, big[1::2, 1::3], narrow.expand(k, n), depth=k)


def test_transposed_operands_are_not_copied():
    a, weight = torch.randn(40, 30).to(DEVICE), torch.randn(20, 30).to(DEVICE)
    before = torch.webgpu.memory_stats()
    result = a @ weight.t()
    after = torch.webgpu.memory_stats()
    assert result.shape == (40, 20)
    key = "allocation.all.allocated"
    assert after[key] - before[key] == 1


def test_large_tiles():
    # Groups of four in every order, edges within a tile, pieces of K, batches, D in C's memory.
    for m, k, n in [(128, 8, 128), (100, 36, 132), (260, 44, 96), (96, 2000, 100)]:
        for flip_a, flip_b in itertools.product([False, True], repeat=2):
            a = values(2, k, m).mT if flip_a else values(2, m, k)
            b = values(2, n, k).mT if flip_b else values(2, k, n)
            check(torch.bmm, a, b)
        d, row = values(2, m, n), values(n)
        expected = 0.5 * d.double() + 2 * a.double() @ b.double()
        actual = d.to(DEVICE).baddbmm_(a.to(DEVICE), b.to(DEVICE), beta=0.5, alpha=2)
        torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-3)
        actual = torch.addmm(row.to(DEVICE), a[1].to(DEVICE), b[1].to(DEVICE))
        torch.testing.assert_close(actual.cpu(), row + a[1] @ b[1], rtol=1e-5, atol=1e-3)
    # The same sizes where groups of four are not aligned.
    a, b = values(130, 101)[1:129, 1:], values(100, 129)[:, 1:]
    actual = values(130, 101).to(DEVICE).copy_(torch.nn.functional.pad(a, (1, 0, 1, 1)))[1:129, 1:]
    assert_product(actual @ b.to(DEVICE), torch.mm, a, b, depth=100)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_bmm(dtype):
    check(torch.bmm, values(3, 5, 6, dtype=dtype), values(3, 6, 8, dtype=dtype))
    a, b = values(2, 4, 33, dtype=dtype), values(2, 33, 40, dtype=dtype)
    check(torch.bmm, a, b)
    check(lambda x, y: torch.bmm(x.expand(4, 4, 33), y.expand(4, 33, 40)), a[:1], b[:1], depth=33)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (0.5, 2), (-1, 0), (0, 1.5)])
def test_added_products(dtype, alpha, beta):
    def addmm(a, b, d):
        return torch.addmm(d, a, b, alpha=alpha, beta=beta)

    a, b = values(9, 20, dtype=dtype), values(20, 12, dtype=dtype)
    for d in [values(9, 12, dtype=dtype), values(12, dtype=dtype), values(9, 1, dtype=dtype)]:
        actual = addmm(a.to(DEVICE), b.to(DEVICE), d.to(DEVICE))
        expected = alpha * exact(a) @ exact(b) + beta * exact(d)
        tolerance = 8 * torch.finfo(dtype).eps * 10
        torch.testing.assert_close(exact(actual.cpu()), expected, rtol=tolerance, atol=tolerance)
        batched = torch.baddbmm(
            d.to(DEVICE).expand(2, 9, 12),
            a.to(DEVICE).expand(2, 9, 20),
            b.to(DEVICE).expand(2, 20, 12),
            alpha=alpha,
            beta=beta,
        )
        assert torch.equal(batched[1].cpu(), actual.cpu())


def test_integer_scalars():
    a, b, d = (values(4, 4, dtype=torch.int64) for _ in range(3))
    expected = torch.addmm(d, a, b, alpha=3, beta=-2)
    assert torch.equal(
        torch.addmm(d.to(DEVICE), a.to(DEVICE), b.to(DEVICE), alpha=3, beta=-2).cpu(), expected
    )


def test_zero_beta_ignores_nan():
    nan = torch.full((3, 3), float("nan")).to(DEVICE)
    a, b = torch.randn(3, 4), torch.randn(4, 3)
    x, y = a.to(DEVICE), b.to(DEVICE)
    torch.testing.assert_close(torch.addmm(nan, x, y, beta=0).cpu(), a @ b)
    torch.testing.assert_close(nan.clone().addmm_(x, y, beta=0).cpu(), a @ b)
    torch.testing.assert_close(torch.addmv(nan[0], x, y[:, 0], beta=0).cpu(), a @ b[:, 0])
    # An alpha of 0 ignores the product likewise.
    one = torch.ones(3, 3).to(DEVICE)
    assert torch.equal(torch.addmm(one, nan, nan, alpha=0).cpu(), torch.ones(3, 3))


def test_infinities_and_nan_stay_where_they_are():
    # Elements beyond the edge of a tile must not meet them: 0 * inf is NaN.
    a, b = torch.ones(3, 5), torch.ones(5, 6)
    a[1, 4], b[0, 2] = float("inf"), float("nan")
    torch.testing.assert_close((a.to(DEVICE) @ b.to(DEVICE)).cpu(), a @ b, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_empty(shape):
    m, k, n = shape
    a, b = torch.ones(m, k).to(DEVICE), torch.ones(k, n).to(DEVICE)
    assert torch.equal((a @ b).cpu(), torch.ones(m, k) @ torch.ones(k, n))
    d = torch.ones(m, n).to(DEVICE)
    expected = torch.addmm(torch.ones(m, n), torch.ones(m, k), torch.ones(k, n), beta=3)
    assert torch.equal(torch.addmm(d, a, b, beta=3).cpu(), expected)
    batched = torch.bmm(a.expand(2, m, k), b.expand(2, k, n))
    assert torch.equal(batched.cpu(), (torch.ones(m, k) @ torch.ones(k, n)).expand(2, m, n))


def test_out_variants():
    a, b = torch.randn(6, 7), torch.randn(7, 5)
    x, y = a.to(DEVICE), b.to(DEVICE)
    # Column-major, strided, and of a size that must change.
    for out in [torch.empty(5, 6).t(), torch.empty(12, 10)[::2, 1::2], torch.empty(0)]:
        target = out.to(DEVICE) if out.numel() == 0 else torch.zeros(12, 10).to(DEVICE)
        if out.numel():
            target = target.as_strided(out.size(), out.stride(), 1)
        torch.mm(x, y, out=target)
        torch.testing.assert_close(target.cpu(), a @ b)
    # Neighbours of a half-precision view survive.
    whole = torch.full((4, 9), 7.0, dtype=torch.float16).to(DEVICE)
    torch.mm(x[:4].half(), y.half(), out=whole[:, 1:6])
    assert (whole.cpu()[:, [0, 6, 7, 8]] == 7).all()


def test_aliases():
    a = torch.randn(8, 8)
    x = a.to(DEVICE)
    torch.mm(x, x, out=x)
    torch.testing.assert_close(x.cpu(), a @ a)
    x = a.to(DEVICE)
    x.addmm_(x, x)
    torch.testing.assert_close(x.cpu(), a + a @ a)
    # self, both factors and the result in one buffer.
    pool = torch.randn(4, 8, 8)
    y = pool.to(DEVICE)
    torch.addmm(y[0], y[1], y[2], out=y[3])
    torch.testing.assert_close(y[3].cpu(), pool[0] + pool[1] @ pool[2])
    for dtype in (torch.float16, torch.float32):
        z = a.to(DEVICE, dtype)
        z.addmm_(pool[0].to(DEVICE, dtype), pool[1].to(DEVICE, dtype), beta=0.5)
        torch.testing.assert_close(
            z.cpu().float(), 0.5 * a + pool[0] @ pool[1], rtol=1e-2, atol=3e-2
        )


def test_conjugates():
    a, b = values(4, 5, dtype=torch.complex64), values(6, 5, dtype=torch.complex64)
    x, y = a.to(DEVICE), b.to(DEVICE)
    torch.testing.assert_close((x @ y.mH).cpu(), a @ b.mH)
    torch.testing.assert_close((x.conj() @ y.t()).cpu(), a.conj() @ b.t())
    torch.testing.assert_close(torch.vdot(x[0], y[0]).cpu(), torch.vdot(a[0], b[0]))
    torch.testing.assert_close(torch.dot(x[0], y[0].conj()).cpu(), torch.dot(a[0], b[0].conj()))


@pytest.mark.parametrize("product", [torch.dot, torch.vdot, torch.inner])
def test_conjugate_vectors(product):
    """A conjugate product is as lazy as the CPU's."""
    a, b = values(2, 5, dtype=torch.complex64)
    x, y = a.to(DEVICE), b.to(DEVICE)
    for lazy in ((a, b, x, y), (a, b.conj(), x, y.conj()), (a.conj(), b, x.conj(), y)):
        c, d, z, w = lazy
        for expected, result in ((product(c, d), product(z, w)), (product(c, c), product(z, z))):
            assert result.is_conj() == expected.is_conj()
            torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_vectors(dtype):
    check(torch.mv, values(40, 33, dtype=dtype), values(33, dtype=dtype))
    check(torch.mv, values(300, 7, dtype=dtype).t(), values(300, dtype=dtype))
    check(torch.dot, values(1000, dtype=dtype), values(1000, dtype=dtype))
    check(torch.dot, values(0, dtype=dtype), values(0, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64])
@pytest.mark.parametrize("product", [torch.dot, torch.vdot, torch.mv, torch.inner])
def test_zeros_without_memory(product, dtype):
    """A ZeroTensor, as forward AD passes for an operand without a tangent."""

    def with_zeros(x, place):
        zeros = torch._efficientzerotensor((3,), dtype=x.dtype, device=x.device)
        other = torch.stack([x, x]) if product is torch.mv else x
        operands = [other, zeros] if place or product is torch.mv else [zeros, x]
        return product(*operands) + 1

    for place in (0, 1):
        common.check(lambda x, place=place: with_zeros(x, place), torch.tensor([2, 3, 5]).to(dtype))


@pytest.mark.parametrize("product", [torch.dot, torch.vdot])
def test_tangents_of_one_vector(product):
    def tangent(x, y, t, first):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x if first else y, t)
            result = product(dual, y) if first else product(x, dual)
            return forward_ad.unpack_dual(result).tangent

    vectors = [torch.randn(5), torch.randn(5), torch.randn(5)]
    for first in (False, True):
        common.check(lambda x, y, t, first=first: tangent(x, y, t, first), *vectors)


def test_addbmm():
    d, a, b = torch.randn(4, 6), torch.randn(3, 4, 5), torch.randn(3, 5, 6)
    expected = torch.addbmm(d, a, b, beta=0.5, alpha=2)
    x = [t.to(DEVICE) for t in (d, a, b)]
    torch.testing.assert_close(torch.addbmm(*x, beta=0.5, alpha=2).cpu(), expected)
    x[0].addbmm_(x[1], x[2], beta=0.5, alpha=2)
    torch.testing.assert_close(x[0].cpu(), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, c, v: a @ b,
        lambda a, b, c, v: torch.addmm(v, a, b, alpha=0.5, beta=2),
        lambda a, b, c, v: torch.nn.functional.linear(a.expand(2, 4, 5), b.t(), v),
        lambda a, b, c, v: c @ b,
        lambda a, b, c, v: torch.baddbmm(a @ b, c, b.expand(3, 5, 6)),
        lambda a, b, c, v: torch.mv(b, v),
        lambda a, b, c, v: torch.dot(v, b[0]),
    ],
    ids=["mm", "addmm", "linear", "matmul", "baddbmm", "mv", "dot"],
)
def test_gradients(function):
    inputs = [torch.randn(4, 5), torch.randn(5, 6), torch.randn(3, 4, 5), torch.randn(6)]
    results = []
    for device in ("cpu", DEVICE):
        leaves = [t.detach().to(device).requires_grad_() for t in inputs]
        result = function(*leaves)
        weights = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape).to(device)
        gradients = torch.autograd.grad(result, leaves, weights, allow_unused=True)
        results.append([None if g is None else g.cpu() for g in gradients])
    for expected, actual in zip(*results, strict=True):
        assert (expected is None) == (actual is None)
        if expected is not None:
            torch.testing.assert_close(actual, expected)


ERRORS = [
    (torch.mm, (2, 3), (4, 2)),
    (torch.mm, (2, 3), (3,)),
    (torch.bmm, (2, 2, 3), (1, 3, 2)),
    (torch.dot, (3,), (4,)),
    (torch.dot, (3, 2), (4,)),
    (torch.mv, (2, 3), (2,)),
    (lambda a, b: torch.addmm(torch.ones(5, device=a.device), a, b), (2, 3), (3, 2)),
    (lambda a, b: torch.addbmm(a[0], a, b), (2, 2, 3), (2, 4, 3)),
    (lambda a, b: torch.mm(a, b.long()), (2, 3), (3, 2)),
    (lambda a, b: torch.bmm(a, b.long()), (1, 2, 3), (1, 3, 2)),
    (lambda a, b: torch.dot(a, b.long()), (3,), (3,)),
    (lambda a, b: torch.mm(a.bool(), b.bool()), (2, 3), (3, 2)),
    (lambda a, b: torch.mm(a, b, out=a.new_empty(1).expand(2, 2)), (2, 3), (3, 2)),
]


@pytest.mark.parametrize(("function", "first", "second"), ERRORS)
def test_errors_are_those_of_the_cpu(function, first, second):
    texts = []
    for device in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, NotImplementedError)) as error:
            function(torch.ones(first).to(device), torch.ones(second).to(device))
        texts.append((error.type, str(error.value).splitlines()[0]))
    assert texts[0] == texts[1]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_products(data):
    size = st.integers(0, 70)
    m, k, n = data.draw(size), data.draw(size), data.draw(size)
    dtype = data.draw(st.sampled_from(FLOATS + INTEGERS))

    def operand(rows, columns):
        row_step, column_step = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
        offset = data.draw(st.integers(0, 3))
        flip = data.draw(st.booleans())
        shape = (rows * row_step, columns * column_step)
        whole = values(*(shape[::-1] if flip else shape), dtype=dtype)
        flat = torch.cat([whole.new_zeros(offset), whole.flatten()])

        def view(storage):
            stride = (1, shape[0]) if flip else (shape[1], 1)
            size_ = storage.as_strided(shape, stride, offset)
            return size_[::row_step, ::column_step]

        return view(flat), view(flat.to(DEVICE))

    (a, x), (b, y) = operand(m, k), operand(k, n)
    assert_product(x @ y, torch.matmul, a, b, depth=k)


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked):
    inputs = [torch.randn(2, 3, 8, 16) for _ in range(3)]
    mask = torch.randn(8, 8)
    results = []
    for device in ("cpu", DEVICE):
        leaves = [t.to(device).requires_grad_() for t in inputs]
        result = torch.nn.functional.scaled_dot_product_attention(
            *leaves, attn_mask=mask.to(device) if masked else None
        )
        results.append([g.cpu() for g in torch.autograd.grad(result.square().sum(), leaves)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)

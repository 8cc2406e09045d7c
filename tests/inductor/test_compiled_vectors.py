"""Products of a vector with a matrix, which are generated reductions and take part in fusion."""

import pytest
import torch
import torch.nn.functional as F
from compiled import DEVICE, assert_equal, check, compile, dispatches
from torch.testing import assert_close

TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    # Eager mode rounds to the half between its operators.
    torch.float16: {"rtol": 5e-3, "atol": 2e-2},
    torch.bfloat16: {"rtol": 4e-2, "atol": 2e-1},
}
WIDE = TOLERANCES[torch.float32]


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


K, N = 300, 36
PROGRAMS = {
    "row": (lambda a, b: a @ b, [(1, K), (K, N)]),
    "row and transposed matrix": (lambda a, b: a @ b.t(), [(1, K), (N, K)]),
    "column": (lambda a, b: b @ a, [(K, 1), (N, K)]),
    "column and transposed matrix": (lambda a, b: b.t() @ a, [(K, 1), (K, N)]),
    "both": (lambda a, b: a @ b.t(), [(1, K), (1, K)]),
    "mv": (lambda a, b: b @ a, [(K,), (N, K)]),
    "linear": (F.linear, [(1, 1, K), (N, K), (N,)]),
    "addmm": (
        lambda a, b, c: torch.addmm(c, a, b, alpha=0.5, beta=-2),
        [(1, K), (K, N), (1, N)],
    ),
    "rows of a batch": (lambda a, b: a @ b, [(5, 1, K), (5, K, N)]),
    "columns of a batch": (lambda a, b: b @ a, [(5, K, 1), (5, N, K)]),
    "baddbmm": (
        lambda a, b, c: torch.baddbmm(c, a, b, alpha=2, beta=0.5),
        [(5, 1, K), (5, K, N), (1, N)],
    ),
    "one element": (lambda a, b: a @ b, [(1, 1), (1, N)]),
    "parts": (lambda a, b: a[:, 1:] @ b[2:-1, 3:], [(1, K - 2), (K, N)]),
}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_vector(name, dtype):
    program, shapes = PROGRAMS[name]
    args = [randn(*shape, dtype=dtype) for shape in shapes]
    compiled = check(program, *args, tolerances=TOLERANCES[dtype])
    assert dispatches(compiled, *args) == 1


def test_sums_are_as_exact_as_those_of_eager_mode():
    a, b = torch.randn(1, 20000), torch.randn(20000, 5)
    exact = (a.double() @ b.double()).float()
    actual = compile(torch.mm)(a.to(DEVICE), b.to(DEVICE))
    assert_close(actual.cpu(), exact, rtol=1e-5, atol=1e-3)


def test_half_products_do_not_overflow_before_they_are_scaled():
    a, b = torch.full((1, 64), 100.0), torch.full((64, 8), 100.0)
    c = torch.ones(8)
    args = [x.to(DEVICE, torch.float16) for x in (c, a, b)]
    actual = compile(torch.addmm)(*args, alpha=0.01)
    assert_close(actual.cpu().float(), torch.full((1, 8), 6401.0), rtol=1e-3, atol=0)


def test_a_beta_of_zero_ignores_what_is_not_finite():
    c = torch.full((N,), torch.nan, device=DEVICE)
    args = randn(1, K), randn(K, N)
    actual = compile(lambda a, b: torch.addmm(c, a, b, beta=0))(*args)
    assert_close(actual, args[0] @ args[1], **WIDE)


def test_infinities_and_nan():
    a = torch.tensor([[1.0, torch.inf, 2.0], [0.0, torch.nan, 1.0], [-torch.inf, 1.0, torch.inf]])
    for row in a:
        check(lambda a, b: a @ b, row[None].to(DEVICE), a.to(DEVICE))


@pytest.mark.parametrize("shape", [(1, 0, 4), (1, 4, 0), (0, 4, 1)])
def test_empty(shape):
    m, k, n = shape
    check(lambda a, b: (a @ b).exp(), randn(m, k), randn(k, n))


def test_other_dtypes_stay_products():
    for dtype in (torch.int64, torch.int32, torch.complex64):
        a, b = (torch.randint(-9, 9, shape).to(DEVICE, dtype) for shape in ((1, 9), (9, 4)))
        check(torch.mm, a, b, exact=True)


def test_dynamic_sizes():
    compiled = compile(lambda a, b, c: F.relu(F.linear(a, b) + c), dynamic=True, fullgraph=True)
    for k, n in [(5, 7), (640, 33), (300, 2)]:
        args = randn(1, k), randn(n, k), randn(n)
        assert_close(compiled(*args), F.relu(F.linear(args[0], args[1]) + args[2]), **WIDE)


def test_gradients():
    args = [randn(*shape).requires_grad_() for shape in ((1, K), (N, K), (N,))]
    check(lambda *args: F.linear(*args).sigmoid(), *args, backward=True, tolerances=WIDE)


def norm_and_products(x, norm, query, key, value):
    y = F.rms_norm(x, (K,), norm)
    return F.linear(y, query), F.linear(y, key), F.linear(y, value)


def gated(x, gate, up):
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


FUSED = {
    "products of one vector": (
        2,  # the norm, and all products
        norm_and_products,
        [(1, K), (K,), (4 * N, K), (N, K), (N, K)],
    ),
    "a gate": (1, gated, [(1, K), (N, K), (N, K)]),
    "many operands": (
        1,
        lambda x, w, a, b, c, d: torch.where(a > 0, F.linear(x, w) * b + c, d).sin(),
        [(1, K), (N, K), *[(N,)] * 4],
    ),
    "two results": (
        1,
        lambda x, w: (F.linear(x, w).sin(), F.linear(x, w).half()),
        [(1, K), (N, K)],
    ),
    "a weight that is computed": (1, lambda x, w: F.linear(x, w * 2 + 1), [(1, K), (N, K)]),
}


@pytest.mark.parametrize("name", FUSED)
def test_dispatches(name):
    count, program, shapes = FUSED[name]
    args = [randn(*shape) for shape in shapes]
    compiled = check(program, *args, tolerances=WIDE)
    assert dispatches(compiled, *args) == count


def test_a_row_of_a_cache():
    """What a product computes can go to a place that is data."""

    def program(x, w, cache, place):
        cache.index_copy_(0, place, F.linear(x, w))
        return cache.sum(0)

    place = torch.tensor([3], device=DEVICE)
    x, w, cache = randn(1, K), randn(N, K), randn(8, N)
    other = cache.clone()
    actual = compile(program)(x, w, cache, place)
    assert_equal([actual, cache], [program(x, w, other, place), other], **WIDE)

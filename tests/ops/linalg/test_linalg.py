"""Dense linear algebra: triangular solves, factorizations, and what is solved with them."""

import pytest
import torch
from common import DEVICE, check, check_error, check_gradients, to_device

DTYPES = (torch.float32, torch.complex64)
# Within a block, a block and a part of one, several blocks; batches.
SIZES = ((1,), (5,), (32,), (33,), (100,), (2, 3, 7), (3, 40))
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}

linalg = torch.linalg


def conditioned(*shape, dtype=torch.float32):
    """Square matrices far from singular."""
    n = shape[-1]
    return torch.randn(*shape, n, dtype=dtype) / n**0.5 + 2 * torch.eye(n, dtype=dtype)


def positive(*shape, dtype=torch.float32):
    a = conditioned(*shape, dtype=dtype)
    return a @ a.mH + torch.eye(shape[-1], dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_solve_triangular(dtype, upper, left):
    for size in SIZES:
        n = size[-1]
        a = conditioned(*size, dtype=dtype)
        b = torch.randn(*size[:-1], *((n, 3) if left else (3, n)), dtype=dtype)
        for unit in (False, True):
            # A unit triangle of large elements grows exponentially.
            matrix = a / n if unit else a

            def solve(x, y, unit=unit):
                return linalg.solve_triangular(x, y, upper=upper, left=left, unitriangular=unit)

            check(solve, matrix, b, **TOLERANCE)
        check(lambda x, y: linalg.solve_triangular(x.mT, y, upper=not upper, left=left), a, b)
        check(lambda x, y: linalg.solve_triangular(x.mH, y, upper=not upper, left=left), a, b)


def test_solve_triangular_broadcasts():
    a = conditioned(2, 1, 6).requires_grad_()
    b = torch.randn(3, 6, 70, requires_grad=True)  # more columns than a workgroup takes
    check_gradients(lambda x, y: linalg.solve_triangular(x, y, upper=True), a, b, **TOLERANCE)
    check(lambda x, y: linalg.solve_triangular(x, y, upper=False), a[0, 0], b)
    check(lambda x, y: linalg.solve_triangular(x[:, :, ::2, ::2], y[:, 1:4], upper=True), a, b)
    c = to_device(b.detach())
    out = torch.empty(2, 3, 6, 70, device=DEVICE)
    linalg.solve_triangular(to_device(a.detach()), c, upper=True, out=out)
    torch.testing.assert_close(
        out.cpu(), linalg.solve_triangular(a.detach(), b.detach(), upper=True), **TOLERANCE
    )


@pytest.mark.filterwarnings("ignore:torch.triangular_solve")
def test_legacy_triangular_solve():
    a = conditioned(2, 5).requires_grad_()
    b = torch.randn(2, 5, 3, requires_grad=True)
    for upper in (False, True):
        for transpose in (False, True):
            check_gradients(
                lambda y, x, u=upper, t=transpose: torch.triangular_solve(y, x, u, t).solution,
                *(b, a),
                **TOLERANCE,
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(dtype, upper):
    for size in SIZES:
        a = positive(*size, dtype=dtype)
        check(lambda x: linalg.cholesky(x, upper=upper), a, **TOLERANCE)
        check(lambda x: linalg.cholesky_ex(x, upper=upper), a, **TOLERANCE)
        factor = linalg.cholesky(a, upper=upper)
        check(lambda x: torch.cholesky_inverse(x, upper=upper), factor, **TOLERANCE)
        b = torch.randn(*size, 4, dtype=dtype)
        check(lambda x, y: torch.cholesky_solve(x, y, upper=upper), b, factor, **TOLERANCE)


def test_cholesky_gradients():
    a = positive(2, 6).requires_grad_()
    check_gradients(linalg.cholesky, a, **TOLERANCE)
    b = torch.randn(2, 6, 3, requires_grad=True)
    check_gradients(lambda x, y: torch.cholesky_solve(x, y), b, a, **TOLERANCE)
    check_gradients(torch.cholesky_inverse, a, **TOLERANCE)


def test_cholesky_of_what_is_not_positive():
    a = positive(3, 40)
    a[1, 3, 3] = -1
    a[2, 37, 37] = torch.nan  # in the second block
    check(lambda x: linalg.cholesky_ex(x).info, a)
    check_error(linalg.cholesky, a)
    check_error(linalg.cholesky, a[1])
    check_error(lambda x: linalg.cholesky_ex(x, check_errors=True), a)


def test_nothing():
    for size in ((0, 0), (2, 0, 0), (0, 3, 3)):
        a = torch.empty(size)
        b = torch.empty(*size[:-1], 2)
        check(linalg.cholesky_ex, a)
        check(lambda x, y: linalg.solve_triangular(x, y, upper=True), a, b)
        check(lambda x, y: torch.cholesky_solve(x, y), b, a)
        check(torch.cholesky_inverse, a)
        check(linalg.lu_factor_ex, a)
        check(linalg.lu, a)
        check(linalg.solve, a, b)
        check(linalg.inv, a)
        check(linalg.det, a)
        check(linalg.slogdet, a)
        check(linalg.matrix_exp, a)
        check(linalg.qr, a)
    for size in ((0, 3), (3, 0)):
        check(linalg.lu, torch.empty(size))
        for mode in ("reduced", "complete", "r"):
            check(lambda x, mode=mode: linalg.qr(x, mode), torch.empty(size))
    check(lambda x, y: linalg.solve_triangular(x, y, upper=True), torch.eye(3), torch.empty(3, 0))


def test_errors():
    functions = (
        linalg.cholesky,
        torch.cholesky_inverse,
        lambda x: torch.cholesky_solve(x, x),
        linalg.lu,
        linalg.inv,
        linalg.det,
        linalg.qr,
        lambda x: torch.ormqr(x, x[0], x),
    )
    for function in functions:
        check_error(function, torch.eye(3, dtype=torch.float16))
        check_error(function, torch.eye(3, dtype=torch.int64))
    for function in (linalg.cholesky, linalg.inv, linalg.det, linalg.matrix_exp):
        check_error(function, torch.randn(3, 4))
    check_error(lambda x, y: linalg.solve_triangular(x, y, upper=True), torch.eye(3), torch.eye(4))
    check_error(linalg.solve, torch.eye(3), torch.eye(4))


def in_fallback(function, *args, checked=check):
    """Runs on the CPU, counted, with the CPU's result."""
    mode = torch.webgpu.get_fallback_mode()
    torch.webgpu.set_fallback_mode("silent")
    torch.webgpu.reset_fallbacks()
    try:
        checked(function, *args, **TOLERANCE)
        assert torch.webgpu.fallbacks()
    finally:
        torch.webgpu.set_fallback_mode(mode)


def test_float64_runs_on_the_cpu():
    a = positive(2, 4, dtype=torch.float64)
    b = torch.randn(2, 4, 3, dtype=torch.float64)
    in_fallback(linalg.cholesky, a)
    in_fallback(torch.cholesky_inverse, a)
    in_fallback(torch.cholesky_solve, b, a)
    in_fallback(lambda x, y: linalg.solve_triangular(x, y, upper=True), a, b)
    in_fallback(linalg.lu, a)
    in_fallback(linalg.solve, a, b)
    in_fallback(linalg.inv, a)
    in_fallback(linalg.det, a)
    in_fallback(linalg.qr, a)
    in_fallback(linalg.matrix_exp, a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lu(dtype):
    for size in ((1, 1), (5, 3), (3, 5), (32, 32), (33, 70), (100, 40), (2, 3, 6, 6), (3, 40, 40)):
        a = torch.randn(size, dtype=dtype)
        check(linalg.lu_factor_ex, a, **TOLERANCE)
        check(linalg.lu, a, **TOLERANCE)
        check(lambda x: torch.lu_unpack(*linalg.lu_factor(x)), a.mT, **TOLERANCE)
    a = torch.randint(-2, 3, (64, 300, 2)).to(dtype)
    check(lambda x: linalg.lu_factor_ex(x).pivots[:, 0], a)  # of equals, the first


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_lu_solve(dtype, adjoint, left):
    for size in SIZES:
        n = size[-1]
        lu, pivots = linalg.lu_factor(torch.randn(*size, n, dtype=dtype) + torch.eye(n))
        b = torch.randn(*size[:-1], *((n, 3) if left else (3, n)), dtype=dtype)

        def solve(*args):
            return linalg.lu_solve(*args, left=left, adjoint=adjoint)

        check(solve, lu, pivots, b, rtol=1e-2, atol=1e-3)
        if len(size) > 1:
            check(solve, lu[:1], pivots[:1], b, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solve_inv_det(dtype):
    for size in SIZES:
        a = conditioned(*size, dtype=dtype)
        vector = torch.randn(size, dtype=dtype)
        check(linalg.solve, a, torch.randn(*size, 3, dtype=dtype), **TOLERANCE)
        check(linalg.solve, a, vector, **TOLERANCE)
        check(
            lambda x, y: linalg.solve(x, y.mT, left=False),
            *(a, torch.randn(*size, 3, dtype=dtype)),
            **TOLERANCE,
        )
        check(linalg.inv, a, **TOLERANCE)
        check(linalg.inv, a.mT, **TOLERANCE)
        check(linalg.slogdet, a, **TOLERANCE)
        check(linalg.det, a / 2, **TOLERANCE)
        check(lambda x: linalg.matrix_power(x, -2), a, **TOLERANCE)


def test_solve_gradients():
    a = conditioned(2, 5).requires_grad_()
    b = torch.randn(2, 5, 3, requires_grad=True)
    check_gradients(linalg.solve, a, b, **TOLERANCE)
    check_gradients(linalg.inv, a, **TOLERANCE)
    check_gradients(linalg.det, a, **TOLERANCE)
    check_gradients(linalg.slogdet, a, **TOLERANCE)
    check_gradients(linalg.lu, a, **TOLERANCE)
    check_gradients(linalg.matrix_exp, a, **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_exp(dtype):
    a = torch.randn(4, 6, 6, dtype=dtype)
    a *= torch.tensor([0, 1e-3, 0.5, 3]).reshape(4, 1, 1)
    check(linalg.matrix_exp, a, **TOLERANCE)
    check(linalg.matrix_exp, a[3].mT, **TOLERANCE)
    check(linalg.matrix_exp, a[:, :1, :1])
    if not dtype.is_complex:
        for half in (torch.float16, torch.bfloat16):  # of which CPU makes NaN
            expected = linalg.matrix_exp(a[:3].to(half).float()).to(half)
            actual = linalg.matrix_exp(a[:3].to(half).to(DEVICE))
            torch.testing.assert_close(actual.cpu(), expected)


def test_lu_without_pivoting():
    """CPU has none of this; CUDA has."""
    a = conditioned(2, 40)
    pivots = linalg.lu_factor(a.to(DEVICE), pivot=False).pivots
    assert torch.equal(pivots.cpu(), torch.arange(1, 41, dtype=torch.int32).expand(2, 40))
    _, lower, upper = linalg.lu(a.to(DEVICE), pivot=False)
    torch.testing.assert_close((lower @ upper).cpu(), a, **TOLERANCE)


def test_singular():
    a = conditioned(3, 40)
    a[1] = 0
    a[2, :, 36] = 0
    b = torch.randn(3, 40)
    check(lambda x: linalg.lu_factor_ex(x).info, a)
    check(lambda x: linalg.inv_ex(x).info, a)
    check(lambda x: linalg.lu(x).U[2].isnan().any(), a)
    check(linalg.det, a, rtol=1e-3, atol=1e-3)
    check(linalg.slogdet, a, **TOLERANCE)
    for function in (linalg.lu_factor, linalg.inv):
        check_error(function, a)
        check_error(function, a[1])
    check_error(linalg.solve, a, b)
    check_error(lambda x: linalg.inv_ex(x, check_errors=True), a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_qr(dtype):
    for size in ((1, 1), (5, 3), (3, 5), (40, 33), (33, 70), (100, 20), (2, 3, 6, 6), (3, 40, 17)):
        a = torch.randn(size, dtype=dtype)
        check(torch.geqrf, a, **TOLERANCE)
        for mode in ("reduced", "complete", "r"):
            check(lambda x, mode=mode: linalg.qr(x, mode), a, **TOLERANCE)
        factors, tau = torch.geqrf(a)
        if size[-2] >= size[-1]:
            check(linalg.householder_product, factors, tau, **TOLERANCE)
            check(linalg.householder_product, factors, tau[..., : size[-1] // 2], **TOLERANCE)
        right = torch.randn(*size[:-2], 4, size[-2], dtype=dtype)
        for transpose in (False, True):
            check(
                lambda *x, t=transpose: torch.ormqr(*x, left=False, transpose=t),
                *(factors, tau, right),
                **TOLERANCE,
            )
            check(
                lambda x, y, z, t=transpose: torch.ormqr(x, y, z.mT, left=True, transpose=t),
                *(factors, tau, right),
                **TOLERANCE,
            )


def test_qr_of_special_columns():
    a = torch.randn(5, 6, 4)
    a[1] = 0
    a[2] *= 1e-30  # squares leave the range
    a[3] *= 1e30
    a[4] = torch.eye(6, 4)  # nothing to reflect
    check(torch.geqrf, a, rtol=1e-3, atol=0)
    check(lambda x: linalg.qr(x)[0], a, **TOLERANCE)


def test_qr_gradients():
    a = torch.randn(2, 6, 4, requires_grad=True)
    check_gradients(linalg.qr, a, **TOLERANCE)
    tau = torch.rand(2, 4, requires_grad=True)
    check_gradients(linalg.householder_product, a, tau, **TOLERANCE)
    c = torch.randn(2, 6, 3, requires_grad=True)
    check_gradients(lambda x, y, z: torch.ormqr(x, y, z), a, tau, c, **TOLERANCE)


def test_decompositions_left_to_the_cpu():
    """LAPACK's, through the fallback: the CPU's results, and gradients through them."""
    a = torch.randn(2, 4, 3, requires_grad=True)
    b = torch.randn(2, 4, 2, requires_grad=True)
    square = conditioned(2, 4).requires_grad_()

    def in_fallback_with_gradients(function, *args):
        in_fallback(function, *args, checked=check_gradients)

    in_fallback_with_gradients(lambda x, y: linalg.lstsq(x, y).solution, a, b)
    in_fallback_with_gradients(lambda x: linalg.eigvals(x).abs(), square)
    in_fallback(lambda x: linalg.eig(x)[0], square.detach())
    in_fallback(linalg.matrix_rank, a.detach())  # its tolerances are float64
    in_fallback(lambda x: linalg.svdvals(x.double()), a.detach())
    in_fallback(lambda x: linalg.eigvalsh(x.double()), square.detach())
    in_fallback(
        lambda x, y: linalg.ldl_solve(*linalg.ldl_factor(x), y), square.detach(), b.detach()
    )


def test_linear_combinations_of_matrices():
    combine = torch.ops.aten._compute_linear_combination
    for dtype in (torch.float32, torch.complex64):
        inputs, coefficients = torch.randn(3, 4, 5, dtype=dtype), torch.randn(2, 3)
        check(combine, inputs, coefficients)
        sums = torch.ones(2, 4, 5, dtype=dtype)
        check(lambda i, c, out: combine(i, c, out=out), inputs, coefficients, sums)
    check_error(combine, torch.tensor(1.0), torch.randn(2, 2))
    check_error(combine, torch.empty(2, 0), torch.randn(2, 2))

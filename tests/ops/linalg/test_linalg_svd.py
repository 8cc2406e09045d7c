"""Singular values, eigenvalues of Hermitian matrices, and what ATen makes of them."""

import pytest
import torch
from common import DEVICE, check, check_error, check_gradients, to_device

DTYPES = (torch.float32, torch.complex64)
EPSILON = torch.finfo(torch.float32).eps

linalg = torch.linalg


def matrices(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


def wide(dtype):
    return torch.complex128 if dtype.is_complex else torch.float64


def check_unitary(q):
    identity = torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1)
    assert (q.mH @ q - identity).abs().max() < 20 * EPSILON


def check_svd(a, full_matrices):
    expected = linalg.svd(a, full_matrices=full_matrices)
    found = linalg.svd(to_device(a), full_matrices=full_matrices)
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
    u, s, vh = (t.cpu().to(wide(t.dtype)) for t in found)
    true = linalg.svdvals(a.to(wide(a.dtype)))
    scale = true.amax().item() if true.numel() else 1.0
    k = s.shape[-1]
    tolerance = 4 * EPSILON * (k + 4) ** 0.5 * scale
    assert (s - true).abs().max() <= tolerance
    product = (u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :]
    assert (product - a).abs().max() <= tolerance
    check_unitary(u)
    check_unitary(vh.mH)


# One workgroup to a matrix, several; odd and even numbers of columns; tall and wide; batches.
SHAPES = ((1, 1), (4, 1), (1, 4), (5, 5), (7, 3), (3, 7), (2, 3, 12, 12), (66, 66), (20, 90))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full_matrices", [False, True])
def test_svd(dtype, full_matrices):
    for shape in SHAPES:
        check_svd(matrices(*shape, dtype=dtype), full_matrices)


HARD = {
    "zeros": torch.zeros(6, 4),
    "identity": torch.eye(20),
    "low rank": matrices(30, 3) @ matrices(3, 40),
    "ones": torch.ones(4, 5),
    "many ones": torch.ones(33, 33),
    "equal rows": matrices(1, 16).repeat(8, 1),
    "steeply graded": torch.diag(torch.logspace(0, -30, 8)) @ linalg.qr(matrices(8, 8))[0],
    "equal values": linalg.qr(matrices(16, 16))[0],
    "graded": matrices(30, 30) * torch.logspace(0, -9, 30),
    "ill-conditioned": 1 / (torch.arange(20)[:, None] + torch.arange(20) + 1.0),
    "squares beyond float32": matrices(8, 8) * 1e30,
    "squares below float32": matrices(8, 8) * 1e-30,
}


@pytest.mark.parametrize("name", HARD)
def test_svd_of_hard_matrices(name):
    check_svd(HARD[name], full_matrices=True)


def test_svd_reads_any_strides():
    a = matrices(3, 20, 20, dtype=torch.complex64)
    check(lambda x: linalg.svdvals(x[:, ::2, 1::3]), a, rtol=1e-5, atol=1e-5)
    check(lambda x: linalg.svdvals(x.mT.conj()), a, rtol=1e-5, atol=1e-5)
    check(lambda x: linalg.svdvals(x[:1].expand(4, -1, -1)), a, rtol=1e-5, atol=1e-5)


def test_svd_of_nothing():
    for shape in ((0, 0), (0, 3), (3, 0), (0, 3, 3)):
        for full in (False, True):
            found = linalg.svd(torch.empty(shape, device=DEVICE), full_matrices=full)
            for one, other in zip(found, linalg.svd(torch.empty(shape), full), strict=True):
                torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigh(dtype, uplo):
    for shape in ((1,), (2,), (5,), (2, 3, 12), (66,)):
        a = matrices(*shape, shape[-1], dtype=dtype)  # only a triangle of it is read
        expected = linalg.eigh(a, uplo)
        found = linalg.eigh(to_device(a), uplo)
        for one, other in zip(found, expected, strict=True):
            assert (one.stride(), one.dtype) == (other.stride(), other.dtype)
        values, vectors = (t.cpu().to(wide(t.dtype)) for t in found)
        below = (a if uplo == "L" else a.mH).to(wide(dtype)).tril(-1)
        whole = below + below.mH + torch.diag_embed(a.diagonal(0, -2, -1).real)
        true = linalg.eigvalsh(whole)
        scale = true.abs().max().item()
        assert (values - true).abs().max() <= 8 * EPSILON * scale
        residual = whole @ vectors - vectors * values.unsqueeze(-2)
        assert residual.abs().max() <= 4 * EPSILON * (shape[-1] + 4) ** 0.5 * scale
        check_unitary(vectors)


SYMMETRIC = {
    "values that differ in sign only": torch.kron(torch.eye(8), torch.tensor([[0.0, 1], [1, 0]])),
    "many equal values": torch.diag(torch.tensor([1.0, -1, 1, -1, 2])),
    "rank one": torch.ones(10, 10),
    "zeros": torch.zeros(4, 4),
    "large": torch.full((3, 3), 1e30),
}


@pytest.mark.parametrize("name", SYMMETRIC)
def test_eigh_of_hard_matrices(name):
    a = SYMMETRIC[name]
    values, vectors = (t.cpu() for t in linalg.eigh(to_device(a)))
    scale = max(a.abs().max().item(), 1e-30) * len(a)
    assert (values - linalg.eigvalsh(a)).abs().max() <= 4 * EPSILON * scale
    assert ((vectors * values) @ vectors.mT - a).abs().max() <= 4 * EPSILON * scale
    check_unitary(vectors)


def test_svd_of_ones():
    """Columns that are rounding errors of each other."""
    for m in range(1, 12):
        for n in range(1, 12):
            a = torch.ones(m, n)
            check(linalg.svdvals, a, rtol=1e-5, atol=1e-5)
            check(lambda x: linalg.svd(x)[1], a * 0.3, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite(bad):
    a = matrices(3, 4, 4)
    a[1, 2, 1] = bad
    x = to_device(a)
    with pytest.raises(linalg.LinAlgError, match=r"linalg.svd: \(Batch element 1\).*non-finite"):
        linalg.svd(x)
    with pytest.raises(linalg.LinAlgError, match=r"linalg.eigh: \(Batch element 1\)"):
        linalg.eigh(x)
    check(linalg.svdvals, a[0], rtol=1e-5, atol=1e-5)  # the device goes on


def test_gradients():
    a = matrices(2, 5, 4).requires_grad_()
    symmetric = matrices(5, 5) + matrices(5, 5).mT + torch.diag(torch.arange(5) * 4.0)
    tolerance = {"rtol": 1e-3, "atol": 1e-4}
    check_gradients(linalg.svdvals, a, **tolerance)
    check_gradients(lambda x: linalg.svd(x, full_matrices=False)[0].abs(), a, **tolerance)
    check_gradients(lambda x: linalg.matrix_norm(x, "nuc"), a, **tolerance)
    check_gradients(linalg.eigvalsh, symmetric.requires_grad_(), **tolerance)
    check_gradients(lambda x: linalg.eigh(x)[1].abs(), symmetric, **tolerance)
    check_gradients(linalg.pinv, a, **tolerance)


def test_pinv():
    a = matrices(3, 6, 2) @ matrices(3, 2, 5)
    tolerance = {"rtol": 1e-3, "atol": 1e-4}
    check(lambda x: linalg.pinv(x, rtol=1e-4), a, **tolerance)
    check(lambda x: linalg.pinv(x, atol=1e-3), a, **tolerance)
    check(lambda x: linalg.pinv(x, atol=torch.tensor([1e-3, 0.5, 1.5], device=x.device)), a)
    check(lambda x: linalg.pinv(x @ x.mT, rtol=1e-4, hermitian=True), a, **tolerance)
    check(lambda x: torch.pinverse(x, 1e-4), a, **tolerance)
    check(linalg.pinv, torch.empty(2, 0, 3))
    check_error(linalg.pinv, torch.ones(3))
    check_error(lambda x: linalg.pinv(x, atol=torch.tensor(1j, device=x.device)), a)


def test_errors():
    check_error(linalg.svd, torch.ones(3))
    check_error(linalg.svd, torch.ones(3, 3, dtype=torch.half))
    check_error(lambda x: linalg.svd(x, driver="gesvd"), torch.ones(3, 3))
    check_error(linalg.eigh, torch.ones(3, 4))
    check_error(lambda x: linalg.eigh(x, "X"), torch.ones(3, 3))
    check_error(linalg.eigh, torch.ones(3, 3, dtype=torch.int64))

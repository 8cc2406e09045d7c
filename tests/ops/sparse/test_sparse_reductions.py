"""CSR matrices that are reduced or sampled, and rows of COO products, against the CPU's."""

import pytest
import torch
from common import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def matrix(*shape, dtype=torch.float32):
    """The second row has no elements."""
    dense = torch.randint(-3, 4, shape).to(dtype)
    dense[..., 1, :] = 0
    return dense


def same(actual, expected, **tolerances):
    assert actual.layout == expected.layout and actual.shape == expected.shape
    assert actual.device.type == DEVICE and actual.dtype == expected.dtype
    if expected.layout == torch.sparse_csr:
        for indices in ("crow_indices", "col_indices"):
            one, other = getattr(actual, indices)(), getattr(expected, indices)()
            assert one.dtype == other.dtype and torch.equal(one.cpu(), other)
        actual, expected = actual.values(), expected.values()
    elif expected.layout == torch.sparse_coo:
        assert actual.dense_dim() == expected.dense_dim()
        actual, expected = actual.to_dense(), expected.to_dense()
    torch.testing.assert_close(actual.cpu(), expected, **tolerances)


def check(function, *tensors, **tolerances):
    same(function(*(t.to(DEVICE) for t in tensors)), function(*tensors), **tolerances)


def gradients(function, *tensors, device):
    leaves = [t.detach().to(device).requires_grad_() for t in tensors]
    result = function(*leaves)
    result = result.to_dense() if result.layout != torch.strided else result
    weights = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(device)
    return torch.autograd.grad((result * weights).abs().sum(), leaves)


def check_gradients(function, *tensors):
    actual = gradients(function, *tensors, device=DEVICE)
    for one, other in zip(actual, gradients(function, *tensors, device="cpu"), strict=True):
        assert one.layout == other.layout and one.device.type == DEVICE
        torch.testing.assert_close(one.to_dense().cpu(), other.to_dense())


@pytest.mark.parametrize("reduce", [torch._sparse_csr_sum, torch._sparse_csr_prod])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.complex64])
def test_sums_and_products_of_rows_and_columns(reduce, dtype):
    csr = matrix(4, 5, dtype=dtype).to_sparse_csr()
    for dims in ([0], [1], [-1], [0, 1], []):
        check(lambda c, d=dims: reduce(c, d, True), csr)
    check(lambda c: reduce(c, [0], True), torch.zeros(2, 3).to_sparse_csr())


def test_options_of_sums():
    csr = matrix(4, 5).to_sparse_csr()
    check(lambda c: torch._sparse_csr_sum(c, [1], True, dtype=torch.int64), csr)
    check(lambda c: torch.masked.sum(c, 0, keepdim=True), csr)
    check(lambda c: c.sum(1, keepdim=True), csr)
    small = torch.sparse_csr_tensor(
        csr.crow_indices().int(), csr.col_indices().int(), csr.values(), (4, 5)
    )
    check(lambda c: torch._sparse_csr_sum(c, [0], True), small)
    halves = torch.sparse_csr_tensor([0, 5], range(5), torch.tensor([2048, 1, 1, 1, 1]).half())
    assert torch._sparse_csr_sum(halves.to(DEVICE), [1], True).values().tolist() == [2052]


def test_errors_of_sums():
    csr = matrix(4, 5).to_sparse_csr().to(DEVICE)
    with pytest.raises(RuntimeError, match="keepdim=False is unsupported"):
        torch._sparse_csr_sum(csr, [0], False)
    with pytest.raises(IndexError, match="out of range"):
        torch._sparse_csr_prod(csr, [2], True)
    with pytest.raises(RuntimeError, match="multiple times"):
        torch._sparse_csr_sum(csr, [0, 0], True)
    with pytest.raises(RuntimeError, match="SparseCsr, but got SparseCsc"):
        torch._sparse_csr_sum(matrix(3, 3).to_sparse_csc().to(DEVICE), [0], True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_sampled_products(dtype, batch):
    one = matrix(4, 5, dtype=dtype)
    sample = one.expand(*batch, 4, 5).to_sparse_csr()
    left, right = (torch.randn(*batch, *shape).to(dtype) for shape in ((4, 3), (3, 5)))
    check(torch.sparse.sampled_addmm, sample, left, right)
    check(
        lambda s, x, y: torch.sparse.sampled_addmm(s, x, y, beta=2, alpha=-3), sample, left, right
    )
    if not batch:
        check_gradients(torch.sparse.sampled_addmm, sample, left, right)
        out = torch.eye(4, 5).to(dtype).to_sparse_csr()
        check(
            lambda s, x, y, o: torch.sparse.sampled_addmm(s, x, y, out=o), sample, left, right, out
        )
        check(
            lambda s, x, y: torch.sparse.sampled_addmm(s, x, y, out=s), sample.clone(), left, right
        )


def test_sampled_products_of_halves():
    """The CPU has none. Sums are float32."""
    sample, left, right = torch.eye(3).to_sparse_csr(), torch.randn(3, 40), torch.randn(40, 3)
    halves = [t.half() for t in (sample, left, right)]
    actual = torch.sparse.sampled_addmm(*(t.to(DEVICE) for t in halves)).values().cpu()
    assert actual.dtype == torch.float16
    expected = torch.sparse.sampled_addmm(*(t.float() for t in halves)).values()
    torch.testing.assert_close(actual.float(), expected, rtol=2e-3, atol=2e-3)


def test_errors_of_sampled_products():
    sample, left, right = (
        t.to(DEVICE) for t in (torch.eye(4).to_sparse_csr(), torch.ones(4, 2), torch.ones(2, 4))
    )
    cases = {
        "cannot be multiplied": (sample, left, left),
        "product of size": (sample, left, right[:, :3]),
        "same dtype": (sample, left.int(), right),
        "floating-point or complex": (sample.to(torch.int64), left.long(), right.long()),
        "strided layout": (sample, left.to_sparse(), right),
        "same batch size": (sample, left.expand(2, 4, 2), right),
        "SparseCsr, but got SparseCsc": (sample.to_dense().to_sparse_csc(), left, right),
    }
    for message, arguments in cases.items():
        with pytest.raises(RuntimeError, match=message):
            torch.sparse.sampled_addmm(*arguments)


def test_products_of_batches_as_on_cuda():
    """The CPU has none."""
    one = torch.tensor([[0.0, 2, 0], [3, 0, 4]])
    batch = torch.stack([one, -one])
    dense, added = torch.randn(2, 3, 4), torch.randn(2, 2, 4)
    csr = batch.to_sparse_csr().to(DEVICE)
    same(torch.bmm(csr, dense.to(DEVICE)), torch.bmm(batch, dense))
    actual = torch.baddbmm(added.to(DEVICE), csr, dense.to(DEVICE), beta=2, alpha=3)
    same(actual, torch.baddbmm(added, batch, dense, beta=2, alpha=3))
    wrong, out = torch.ones(2, 2, 4, device=DEVICE), torch.ones(2, 2, 4, device=DEVICE)
    with pytest.raises(RuntimeError, match="Expected size"):
        torch.bmm(csr, wrong)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.bmm(csr, wrong, out=out)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "max", "min"])
def test_products_that_reduce(reduce):
    csr, dense = matrix(4, 5).to_sparse_csr(), torch.randn(5, 3)
    check(lambda c, d: torch.sparse.mm(c, d, reduce), csr, dense)
    check_gradients(lambda c, d: torch.sparse.mm(c, d, reduce), csr, dense)
    none = torch.zeros(4, 5).to_sparse_csr()
    check(lambda c, d: torch.sparse.mm(c, d, reduce), none, dense)


def test_gradients_of_equal_maxima_go_to_the_first():
    csr = torch.ones(2, 3).to_sparse_csr()
    check_gradients(lambda c, d: torch.sparse.mm(c, d, "amax"), csr, torch.ones(3, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_products_as_sparse_rows(dtype):
    sparse = matrix(4, 5, dtype=dtype).to_sparse()
    dense, added = torch.ones(5, 3).to(dtype), torch.eye(4, 3).to(dtype).to_sparse()
    check(torch.hspmm, sparse, dense)
    check(torch.smm, sparse, dense)
    check(lambda a, s, d: torch.sspaddmm(a, s, d, beta=2, alpha=3), added, sparse, dense)
    out = torch.zeros(2, 2, dtype=dtype).to_sparse()
    check(lambda s, d, o: torch.hspmm(s, d, out=o), sparse, dense, out)
    check(lambda a, s, d, o: torch.sspaddmm(a, s, d, out=o), added, sparse, dense, out)
    with pytest.raises(RuntimeError, match="Expected a sparse matrix of size"):
        torch.sspaddmm(sparse.to(DEVICE), sparse.to(DEVICE), dense.to(DEVICE))


COMPRESSED = {
    "to_sparse_csr": lambda x, y: x.to_sparse_csr().to_dense(),
    "to_sparse_csc": lambda x, y: x.to_sparse_csc().to_dense(),
    "to_sparse_bsr": lambda x, y: x.to_sparse_bsr((2, 2)).to_dense(),
    "COO to CSR": lambda x, y: x.to_sparse().to_sparse_csr().to_dense(),
    "CSR to COO": lambda x, y: x.to_sparse_csr().to_sparse().to_dense(),
    "mm": lambda x, y: x.to_sparse_csr() @ y,
    "sparse.mm": lambda x, y: torch.sparse.mm(x.to_sparse_csr(), y),
    "mv": lambda x, y: torch.mv(x.to_sparse_csr(), y[:, 0]),
    "addmm": lambda x, y: torch.addmm(y[:4], x.to_sparse_csr(), y, beta=2),
    "CSR times CSR": lambda x, y: (x.to_sparse_csr() @ y.to_sparse_csr()).to_dense(),
    "add": lambda x, y: (x.to_sparse_csr() + x.flip(0).to_sparse_csr()).to_dense(),
    "linear": lambda x, y: torch.nn.functional.linear(y.t(), x.to_sparse_csr()),
    "sum": lambda x, y: x.to_sparse_csr().sum(),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_gradients_through_compressed_matrices(name):
    def function(x, y):
        return COMPRESSED[name](x, y) + 0 * y.sum()

    check_gradients(function, matrix(4, 6), torch.randn(6, 3))


def test_gradients_of_compressed_leaves():
    csr, dense = matrix(4, 5).to_sparse_csr(), torch.randn(5, 3)
    check_gradients(torch.mm, csr, dense)
    check_gradients(torch.sparse.mm, csr, dense)
    check_gradients(lambda c: c.to_dense(), csr)
    check_gradients(lambda c: c.values(), csr)

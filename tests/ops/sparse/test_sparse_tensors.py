"""Sparse tensors of both layouts against the CPU's."""

import pytest
import torch
from common import DEVICE
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
DTYPES = [torch.float32, torch.float16, torch.int64, torch.complex64]


def coo(*shape, sparse_dims=None, count=7, dtype=torch.float32, seed=0):
    """Elements stand several times at some places."""
    generator = torch.Generator().manual_seed(seed)
    sparse_dims = sparse_dims or len(shape)
    indices = torch.stack(
        [torch.randint(0, size, (count,), generator=generator) for size in shape[:sparse_dims]]
    )
    values = torch.randint(-9, 9, (count, *shape[sparse_dims:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(
        indices, values / 2 if dtype.is_floating_point else values, shape
    )


def same(actual, expected, **tolerances):
    assert actual.layout == expected.layout and actual.shape == expected.shape
    assert actual.device.type == DEVICE
    if expected.layout == torch.sparse_coo:
        assert actual.is_coalesced() or not expected.is_coalesced()
    if expected.layout != torch.strided:
        assert actual.dense_dim() == expected.dense_dim()
        actual, expected = actual.to_dense(), expected.to_dense()
    torch.testing.assert_close(actual.cpu(), expected, **tolerances)


def check(function, *tensors, **tolerances):
    same(function(*(t.to(DEVICE) for t in tensors)), function(*tensors), **tolerances)


@pytest.mark.parametrize("dtype", DTYPES)
def test_construction_and_copies(dtype):
    cpu = coo(4, 5, 3, sparse_dims=2, dtype=dtype)
    device = cpu.to(DEVICE)
    made = torch.sparse_coo_tensor(cpu._indices(), cpu._values(), cpu.shape, device=DEVICE)
    for one in (device, made, device.clone(), device.cpu().to(DEVICE)):
        same(one, cpu)
    same(device.coalesce(), cpu.coalesce())
    assert torch.equal(device.coalesce().indices().cpu(), cpu.coalesce().indices())
    assert torch.equal(device.coalesce().values().cpu(), cpu.coalesce().values())
    assert "device='webgpu:0'" in repr(device) and "layout=torch.sparse_coo" in repr(device)
    assert device.clone().zero_()._nnz() == 0
    empty = torch.sparse_coo_tensor(torch.zeros(2, 0).long(), torch.zeros(0), (3, 4))
    check(lambda x: x.to_dense(), empty)
    check(lambda x: x.coalesce(), empty)


def test_bool_as_in_the_buffers_of_whisper():
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1, 2] = mask[0, 3] = True
    check(lambda x: x, mask.to_sparse())
    same(mask.to(DEVICE).to_sparse().coalesce(), mask.to_sparse().coalesce())
    same(mask.to_sparse().to(DEVICE).to_dense(), mask)


def test_dense_to_sparse_and_back():
    x = torch.randn(6, 8).relu()
    check(lambda x: x.to_sparse(), x)
    check(lambda x: x.to_sparse(1), x)
    for make in ("to_sparse_csr", "to_sparse_csc"):
        check(lambda x, make=make: getattr(x, make)(), x)
        check(lambda x, make=make: getattr(x.to_sparse(), make)(), x)
        check(lambda x, make=make: getattr(x, make)().to_sparse(), x)
    for make in ("to_sparse_bsr", "to_sparse_bsc"):
        check(lambda x, make=make: getattr(x, make)((2, 4)), x)
        check(lambda x, make=make: getattr(x, make)((2, 4)).to_sparse(), x)
    check(
        lambda x: x.to_sparse_csr(), torch.stack([x, x.flip(0).abs()]).mul(0).add(torch.eye(6, 8))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
def test_sums_and_products(dtype):
    a, b = coo(4, 5, dtype=dtype), coo(4, 5, dtype=dtype, seed=1)
    dense = torch.arange(20).reshape(4, 5).to(dtype)
    check(torch.add, a, b)
    check(lambda a, b: torch.sub(a, b, alpha=3), a, b)
    check(torch.add, dense, a)
    check(torch.mul, a, b)
    check(torch.mul, a, dense)
    check(torch.mul, dense[:1], a)
    check(lambda a: -a * 3, a)
    check(lambda a, b: torch.cat([a, b], 1), a, b)
    check(lambda a: a.t(), a)
    check(lambda x, a: x.add_(a, alpha=2), dense.clone(), a)
    check(lambda a, b: a.add_(b).coalesce(), a.clone(), b)
    if dtype != torch.int64:
        check(lambda a: a / 2, a)
    hybrid = coo(4, 5, 3, sparse_dims=1, dtype=dtype)
    check(torch.add, hybrid, coo(4, 5, 3, sparse_dims=1, dtype=dtype, seed=2))
    check(torch.mul, hybrid, dense[:, :, None].expand(4, 5, 3))


def test_sums_of_halves():
    """The CPU has none. 2048 + 1 is no half: sums are float32."""
    indices = torch.tensor([[1] * 5])
    values = torch.tensor([2048, 1, 1, 1, 1], dtype=torch.float16)
    a = torch.sparse_coo_tensor(indices, values, (3,), device=DEVICE)
    assert a.coalesce().values().tolist() == [2052]
    assert (a + a).to_dense().tolist() == [0, 4104, 0]
    assert torch.ones(3, dtype=torch.float16, device=DEVICE).add(a)[1].item() > 2048


def test_functions_of_elements():
    a = coo(4, 5).coalesce()
    for function in (torch.abs, torch.sin, torch.tanh, torch.sign, torch.relu, torch.floor):
        check(function, a)
    check(lambda a: a.pow(2), a)
    check(lambda a: a.to(torch.float64).float(), a)
    check(lambda a: torch.sparse.sum(a), a)
    check(lambda a: torch.sparse.sum(a, 0), a)
    check(lambda a: torch.sparse.sum(a, 1), coo(4, 5, 3, sparse_dims=2))
    check(lambda a: a.norm(), a)


def test_indices():
    a, dense = coo(4, 5, 3, sparse_dims=2), torch.randn(4, 5, 3)
    for dim, index in ((0, [3, 0, 3]), (1, [4]), (2, [2, 2]), (0, [])):
        index = torch.tensor(index, dtype=torch.int64)
        check(lambda a, i, d=dim: a.index_select(d, i).coalesce(), a, index)
    check(lambda a, i: a.index_select(0, i).coalesce(), a, torch.tensor([-1, 1]).remainder(4))
    with pytest.raises(IndexError, match="out of range"):
        a.to(DEVICE).index_select(0, torch.tensor([4], device=DEVICE))
    check(lambda x, a: x.sparse_mask(a), dense, a.coalesce())
    check(lambda x, a: x.sparse_mask(a), dense, a)
    check(
        lambda x, a: x.sparse_mask(a).coalesce(), coo(4, 5, 3, sparse_dims=2, seed=3), a.coalesce()
    )
    check(lambda a: a[1].coalesce(), a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64])
def test_matrix_products(dtype):
    a, b = coo(6, 5, count=9, dtype=dtype), coo(5, 4, count=8, dtype=dtype, seed=1)
    dense = torch.randn(5, 3).to(dtype)
    near = {"rtol": 2e-3, "atol": 1e-2} if dtype == torch.float16 else {}
    if dtype == torch.float16:  # which the CPU has not
        wide = [t.float() for t in (a, dense)]
        actual = torch.sparse.mm(a.to(DEVICE), dense.to(DEVICE))
        torch.testing.assert_close(actual.cpu().float(), torch.sparse.mm(*wide), **near)
        return
    check(torch.sparse.mm, a, dense)
    check(torch.mv, a, dense[:, 0])
    check(torch.sparse.mm, a, b)
    check(
        lambda x, a, y: torch.sparse.addmm(x, a, y, beta=2, alpha=3),
        torch.ones(6, 3).to(dtype),
        a,
        dense,
    )
    check(lambda a, y: torch.bmm(torch.stack([a, a * 2]), torch.stack([y, -y])), a, dense)
    csr = a.to_sparse_csr()
    check(torch.mm, csr, dense)
    check(torch.mv, csr, dense[:, 0])
    check(
        lambda x, a, y: torch.addmm(x, a, y, beta=2, alpha=3),
        torch.ones(6, 3).to(dtype),
        csr,
        dense,
    )
    check(torch.add, csr, csr)
    check(torch.mm, csr, b.to_sparse_csr())
    check(lambda y, a: y @ a, dense.t().contiguous(), b.to_sparse_csr())


@pytest.mark.parametrize("function", [torch.sparse.softmax, torch.sparse.log_softmax])
def test_softmax(function):
    for x in (coo(4, 5, count=12), coo(4, 5, 3, sparse_dims=2, count=12)):
        for dim in range(x.dim()):
            check(lambda x, d=dim: function(x, d), x)


def test_no_warnings_of_operators_that_others_are_made_of(check_python):
    # index_reduce warns once in each process, of its own use.
    check_python(
        "import warnings, torch\n"
        "x = torch.eye(3, device='webgpu')\n"
        "coo, csr = x.to_sparse(), x.to_sparse_csr()\n"
        "warnings.simplefilter('error')\n"
        "torch.sparse.softmax(coo, 0)\n"
        "torch.sparse.sum(torch.sparse.log_softmax(coo.requires_grad_(), 1)).backward()\n"
        "torch._sparse_csr_prod(csr, 0, keepdim=True)\n"
        "torch.sparse.mm(csr.requires_grad_(), x, 'amax').sum().backward()\n"
        "torch.webgpu.set_fallback_mode('silent')\n"
        "doubles = torch.sparse.softmax(x.double().to_sparse(), 0)\n"
        "assert torch.equal(doubles.cpu().to_dense(), x.double().cpu())\n"
        "try:\n"
        "    x.index_reduce_(0, torch.tensor([0], device='webgpu'), x[:1].clone(), 'amax')\n"
        "except UserWarning as warning:\n"
        "    assert 'in beta' in str(warning)\n"
        "else:\n"
        "    raise AssertionError('no warning')\n"
    )


def gradients(function, *tensors, device):
    leaves = [t.detach().to(device).requires_grad_() for t in tensors]
    result = function(*leaves)
    result = result.to_dense() if result.layout != torch.strided else result
    weights = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(device)
    return torch.autograd.grad((result * weights).sum(), leaves)


FUNCTIONS = {
    "mm": (torch.sparse.mm, lambda: (coo(4, 5).coalesce(), torch.randn(5, 3))),
    "sparse mm": (torch.sparse.mm, lambda: (coo(4, 5).coalesce(), coo(5, 3, seed=1).coalesce())),
    "to_dense": (lambda a: a.to_dense(), lambda: (coo(4, 5).coalesce(),)),
    "to_sparse": (lambda x: x.to_sparse(), lambda: (torch.randn(4, 5).relu(),)),
    "sum": (torch.sparse.sum, lambda: (coo(4, 5).coalesce(),)),
    "sum of a dimension": (lambda a: torch.sparse.sum(a, 0), lambda: (coo(4, 5).coalesce(),)),
    "softmax": (lambda a: torch.sparse.softmax(a, 1), lambda: (coo(4, 5).coalesce(),)),
    "log_softmax": (lambda a: torch.sparse.log_softmax(a, 1), lambda: (coo(4, 5).coalesce(),)),
    "add": (torch.add, lambda: (coo(4, 5).coalesce(), coo(4, 5, seed=1).coalesce())),
    "mul": (torch.mul, lambda: (coo(4, 5).coalesce(), coo(4, 5).coalesce())),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function, make = FUNCTIONS[name]
    tensors = make()
    actual = gradients(function, *tensors, device=DEVICE)
    expected = gradients(function, *tensors, device="cpu")
    for one, other in zip(actual, expected, strict=True):
        assert one.layout == other.layout and one.device.type == DEVICE
        torch.testing.assert_close(one.to_dense().cpu(), other.to_dense())


@pytest.mark.parametrize("optimizer", ["SGD", "SparseAdam", "Adagrad"])
def test_training_of_embeddings(optimizer):
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        table = nn.Embedding(20, 4, sparse=True).to(device)
        bag = nn.EmbeddingBag(20, 4, sparse=True, mode="sum").to(device)
        update = getattr(torch.optim, optimizer)([*table.parameters(), *bag.parameters()], lr=0.1)
        for step in range(3):
            words = torch.tensor([3, 7, 3, step, 19]).to(device)
            update.zero_grad()
            loss = (
                table(words).square().sum()
                + bag(words, torch.tensor([0, 2]).to(device)).sin().sum()
            )
            loss.backward()
            assert table.weight.grad.is_sparse and bag.weight.grad.is_sparse
            update.step()
        results.append([table.weight.detach().cpu(), bag.weight.detach().cpu()])
    torch.testing.assert_close(results[1], results[0])


INDICES = {
    "unsorted": [[2, 0, 1]],
    "several times": [[1, 0, 1]],
    "missing in the mask": [[3, 1, 0]],
}


@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES)
def test_gradients_of_values(indices):
    """They stand in the order of the values."""
    results = []
    for device in ("cpu", DEVICE):
        values = torch.tensor([1.0, 2.0, 3.0], device=device).requires_grad_()
        x = torch.sparse_coo_tensor(torch.tensor(indices, device=device), values, (4,))
        weights = torch.tensor([10.0, 20.0, 30.0, 40.0], device=device)
        mask = torch.eye(4, device=device)[:3].sum(0).to_sparse().coalesce()
        loss = (x.to_dense() * weights).sum() + torch.sparse.sum(x.coalesce().sparse_mask(mask))
        loss = loss + (x * x).to_dense().sum() + x.coalesce().values().sum()
        results.append(torch.autograd.grad(loss, values)[0].cpu())
    torch.testing.assert_close(results[1], results[0])


def test_masks_keep_their_pattern():
    a = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (4,))
    for indices in ([[0, 1, 3]], [[3, 0, 0]]):
        mask = torch.sparse_coo_tensor(torch.tensor(indices), torch.ones(3), (4,))
        for m in (mask, mask.coalesce()):
            expected, actual = a.sparse_mask(m), a.to(DEVICE).sparse_mask(m.to(DEVICE))
            same(actual, expected)
            assert torch.equal(actual._indices().cpu(), expected._indices())
            assert torch.equal(actual._values().cpu(), expected._values())
    check(
        lambda x, m: x.sparse_mask(m),
        torch.ones(3),
        torch.sparse_coo_tensor(torch.zeros(0, 2).long(), torch.ones(2, 3), (3,)),
    )


def test_broadcasts_and_numbers():
    eye = torch.eye(4, 5).to_sparse()
    check(torch.mul, eye, torch.randn(2, 4, 5))
    check(torch.mul, eye, torch.tensor(2.0).to_sparse())
    check(torch.mul, eye, torch.tensor(2.0))
    none = torch.sparse_coo_tensor(torch.zeros(0, 2).long(), torch.ones(2, 3), (3,))
    check(torch.mul, none, torch.randn(3))
    check(lambda x, i: x.index_select(0, i), eye, torch.tensor([2]))
    check(lambda x, y: torch.bmm(x, y), torch.stack([eye, eye]), torch.zeros(2, 5, 0))
    i = coo(3, 3, dtype=torch.int64)
    o = torch.ones(3, 3, dtype=torch.int64)
    check(lambda i, o: torch.sparse.addmm(o, i, o, alpha=1.5), i, o)
    csr = torch.eye(3).to_sparse_csr()
    check(torch.add, csr, torch.ones(3, 3))
    check(torch.add, torch.ones(3, 3), csr)
    batch = torch.eye(2).expand(3, 2, 2).to_sparse_csr()
    check(torch.add, batch, batch)


def test_fractions_of_integers():
    i = torch.eye(3, dtype=torch.int64, device=DEVICE)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.sparse.addmm(i, i.to_sparse(), i, beta=2.5)


def test_invariants_of_compressed_tensors():
    arguments = [torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2)]
    moved = [t.to(DEVICE) for t in arguments]
    x = torch.sparse_csr_tensor(*moved, (2, 2), check_invariants=True)
    same(x, torch.sparse_csr_tensor(*arguments, (2, 2)))
    moved[0] = torch.tensor([0, 3, 2], device=DEVICE)
    with pytest.raises(RuntimeError, match="crow_indices"):
        torch.sparse_csr_tensor(*moved, (2, 2), check_invariants=True)


def test_dtypes_of_products():
    e = torch.eye(2, device=DEVICE).to_sparse()
    ints = torch.ones(2, 2, dtype=torch.int64, device=DEVICE)
    for product in (
        lambda: e.to_sparse_csr() @ ints,
        lambda: e @ ints,
        lambda: torch.bmm(e.unsqueeze(0), ints.unsqueeze(0)),
        lambda: torch.mm(e, ints.float(), out=ints.clone()),
        lambda: torch.mv(e.to_sparse_csr(), ints[0]),
    ):
        with pytest.raises(RuntimeError, match=r"expected scalar type|same dtype"):
            product()
    with pytest.raises(RuntimeError, match=r"[Cc]an't convert|can't be cast"):
        ints.clone().add_(e.to_sparse_csr())


def test_errors():
    a = coo(4, 5).to(DEVICE)
    dense = torch.ones(4, 5, device=DEVICE)
    with pytest.raises(RuntimeError, match="sizes"):
        a + coo(5, 4).to(DEVICE)
    with pytest.raises(RuntimeError, match="same size"):
        dense[:1] + a
    with pytest.raises(RuntimeError, match=r"add\(sparse, dense\) is not supported"):
        torch.add(a, dense)
    with pytest.raises(RuntimeError, match="size"):
        torch.sparse.mm(a, dense)
    with pytest.raises(RuntimeError):
        torch.sparse_coo_tensor(
            torch.tensor([[0, 9]]), torch.ones(2), (3,), device=DEVICE, check_invariants=True
        )
    with pytest.raises(RuntimeError, match="coalesced"):
        a.indices()
    index = torch.tensor([0], device=DEVICE)
    with pytest.raises(IndexError, match="0-dim"):
        torch.sparse_coo_tensor(torch.zeros(0, 1).long(), torch.ones(1), ()).to(
            DEVICE
        ).index_select(0, index)
    for wrong in (index.int(), index[0]):
        with pytest.raises(IndexError, match="long-tensor"):
            a.index_select(0, wrong)
    with pytest.raises(RuntimeError, match="size"):
        torch.sparse.addmm(torch.ones(1, 4, 3, device=DEVICE), a, torch.ones(5, 3, device=DEVICE))
    with pytest.raises(RuntimeError, match="strided"):
        torch.sparse.addmm(
            torch.ones(4, 3, device=DEVICE).to_sparse(), a, torch.ones(5, 3, device=DEVICE)
        )
    same(a.coalesce(), coo(4, 5).coalesce())  # the device is usable


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_dense_sums_do_not_go_into_compressed_tensors(layout):
    dense = torch.ones(2, 2, device=DEVICE)
    compressed, coo = dense.to_sparse(layout=layout), dense.to_sparse()
    for call in (
        lambda: compressed.add_(dense),
        lambda: torch.add(dense, compressed, out=compressed),
        lambda: torch.add(dense, dense, out=compressed),
        lambda: torch.add(coo, dense, out=compressed),
        lambda: torch.add(dense, coo, out=compressed),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert torch.equal((dense + compressed).cpu(), torch.full((2, 2), 2.0))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_products_of_integers(layout):
    sparse, dense = torch.tensor([[1, 2], [0, 3]]), torch.tensor([[1, 2], [3, 4]])
    product = sparse.to_sparse(layout=layout).to(DEVICE) @ dense.to(DEVICE)
    assert torch.equal(product.cpu(), sparse @ dense)

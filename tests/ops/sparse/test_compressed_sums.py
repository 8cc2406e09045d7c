"""Sums of compressed sparse tensors with unlike indices, and what PyTorch says of products that no
device computes.

The CPU has these sums for CSR matrices alone: others are compared with sums of dense tensors.
"""

import itertools

import pytest
import torch
from common import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
COMPRESSED = {
    torch.sparse_csr: {},
    torch.sparse_csc: {},
    torch.sparse_bsr: {"blocksize": (2, 3)},
    torch.sparse_bsc: {"blocksize": (2, 3)},
}
LAYOUTS = {torch.strided: {}, torch.sparse_coo: {}, **COMPRESSED}


def matrices(*batch, first=0, dtype=torch.float32):
    """Matrices of 4 x 3 blocks of 2 x 3 elements. The matrix of number n has three full blocks,
    which begin with the block of number `first` + n."""
    result = torch.zeros(*batch, 12, 2, 3, dtype=dtype)
    for n, blocks in enumerate(result.view(-1, 12, 2, 3)):
        chosen = torch.arange(3).add(first + n) % 12
        blocks[chosen] = torch.arange(18).add(first + n).remainder(7).add(1).to(dtype).view(3, 2, 3)
    return result.view(*batch, 4, 3, 2, 3).transpose(-3, -2).reshape(*batch, 8, 9)


def to_layout(x, layout, **options):
    return (
        x if layout == torch.strided else x.to_sparse(layout=layout, **LAYOUTS[layout], **options)
    )


def check_sum(one, other, layout, alpha=1, **options):
    a, b = (to_layout(x, layout, **options).to(DEVICE) for x in (one, other))
    total = torch.add(a, b, alpha=alpha)
    assert total.layout == layout and total.device.type == DEVICE
    assert total.dense_dim() == a.dense_dim()
    with torch.sparse.check_sparse_tensor_invariants():
        total.cpu().clone()
    expected = torch.add(one, other, alpha=alpha)
    torch.testing.assert_close(total.to_dense().cpu(), expected)
    assert a.add_(b, alpha=alpha) is a
    torch.testing.assert_close(a.to_dense().cpu(), expected)


@pytest.mark.parametrize("layout", COMPRESSED)
@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3)], ids=str)
def test_sums(layout, batch):
    for first in (0, 2, 5):  # with all blocks in common, with one and with none
        check_sum(matrices(*batch), matrices(*batch, first=first), layout, alpha=0.5)
    for dtype in (torch.float16, torch.int64, torch.complex64):
        check_sum(matrices(*batch, dtype=dtype), matrices(*batch, first=2, dtype=dtype), layout)


@pytest.mark.parametrize("layout", COMPRESSED)
def test_what_no_batch_can_hold(layout):
    # As to_sparse() says of a dense batch with matrices of unlike numbers of elements.
    one, other = matrices(2), matrices(2, first=2)
    other[0] = one[0]
    a, b = (to_layout(x, layout).to(DEVICE) for x in (one, other))
    message = "Expect the same number of specified elements per batch"
    with pytest.raises(RuntimeError, match=message):
        a + b
    with pytest.raises(RuntimeError, match=message):
        to_layout(one + other, layout)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_dense_dimensions(layout):
    one, other = torch.zeros(3, 4, 2), torch.zeros(3, 4, 2)
    one[0, 1], one[2, 2], other[0, 1], other[1, 2] = 1, 2, 3, 4
    check_sum(one, other, layout, alpha=2, dense_dim=1)


def test_indices_and_dtypes_as_the_cpus():
    sums = []
    for device in ("cpu", DEVICE):
        a, b = (
            torch.sparse_csr_tensor(
                torch.tensor(begins, dtype=torch.int32),
                torch.tensor(columns, dtype=torch.int32),
                torch.tensor(numbers),
                (2, 3),
                device=device,
            )
            for begins, columns, numbers in (
                ([0, 2, 2], [0, 2], [1.0, -3.0]),
                ([0, 1, 2], [2, 1], [3.0, 5.0]),
            )
        )
        total = a + b
        sums.append([x.cpu() for x in (total.crow_indices(), total.col_indices(), total.values())])
    for expected, actual in zip(*sums, strict=True):
        assert actual.dtype == expected.dtype and torch.equal(actual, expected)


@pytest.mark.parametrize("first", [0, 2])
def test_gradients(first):
    functions = (
        lambda total: total.to_dense().square().sum(),
        lambda total: total.values().square().sum(),
        lambda total: (total @ torch.ones(9, 2, device=total.device)).square().sum(),
        torch.sum,
    )
    for function in functions:
        gradients = []
        for device in ("cpu", DEVICE):
            a, b = (
                matrices(first=k).to_sparse_csr().to(device).requires_grad_() for k in (0, first)
            )
            function(torch.add(a, b, alpha=2)).backward()
            gradients.append([a.grad, b.grad])
        for expected, actual in zip(*gradients, strict=True):
            assert actual.layout == expected.layout and actual.device.type == DEVICE
            torch.testing.assert_close(actual.to_dense().cpu(), expected.to_dense())


def test_sums_of_unlike_structure():
    a = matrices().to_sparse_bsr((2, 3)).to(DEVICE)
    for b in (matrices().to_sparse_bsr((4, 3)), matrices().to_sparse_csr()):
        with pytest.raises(RuntimeError, match="add: expected both tensors to have the "):
            a + b.to(DEVICE)


@pytest.mark.parametrize("layout", [*LAYOUTS][:4])
def test_mixed_products(layout):
    """What neither has is refused in PyTorch's words; here are some products that the CPU lacks."""
    x, y = matrices(), matrices().t().contiguous()
    for other, result in itertools.product([*LAYOUTS][:4], repeat=2):
        cpu = [to_layout(*pair) for pair in ((x @ y, result), (x, layout), (y, other))]
        here = [operand.to(DEVICE) for operand in cpu]
        if result == torch.strided:
            refused = other == torch.sparse_coo and layout in (torch.strided, torch.sparse_coo)
        else:
            refused = result == torch.sparse_coo or torch.strided in (layout, other)
        if refused:
            for operands in (cpu, here):
                with pytest.raises(RuntimeError, match=r"^addmm.*(not implemented|expected)"):
                    torch.addmm(*operands)
            continue
        total = torch.addmm(*here)
        assert total.layout == result
        torch.testing.assert_close(total.to_dense().cpu(), x @ y * 2)


def test_shapes_of_mixed_products():
    for layout, other in itertools.product(LAYOUTS, LAYOUTS):
        operands = to_layout(matrices(), layout), to_layout(matrices(), other)
        messages = []
        for device in ("cpu", DEVICE):
            with pytest.raises(RuntimeError) as info:
                torch.mm(*(t.to(device) for t in operands))
            messages.append(str(info.value))
        assert messages[1] == messages[0] or "not implemented" in messages[0]

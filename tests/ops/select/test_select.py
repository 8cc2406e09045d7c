"""Elements that a mask selects: nonzero, masked_select, masked_scatter."""

import pytest
import torch
from common import check, check_error, check_gradients


def test_masks():
    x = torch.randn(4, 5, 3)
    mask = x > 0.3
    check(lambda x, m: x.masked_select(m[:, :1]), x, mask)
    check(lambda x, m: x.masked_scatter(m, x.flip(0)), x, mask)
    check(lambda x, m: x.transpose(0, 1).masked_scatter(m[0, :, :1], x), x[..., 0], mask)


@pytest.mark.parametrize("size", [(), (0,), (1,), (2049,), (3, 4, 5), (70, 90), (2, 0, 3)])
def test_nonzero(size):
    x = (torch.rand(size) > 0.6).float()
    check(torch.nonzero, x)
    check(torch.nonzero, x.bool())
    check(lambda x: torch.nonzero(x.permute(list(range(x.dim()))[::-1])), x.long())
    check(lambda x: torch.nonzero_static(x, size=9, fill_value=-1), x.bool())
    check_error(lambda x, o: torch.nonzero_static(x, size=9, out=o), x.bool(), torch.empty(9, 2))
    check(lambda x: torch.where(x), x)


def test_nonzero_has_dense_columns():
    """where() and indexing by masks pass them on one by one."""
    x = torch.tensor([[0, 1, 2], [3, 0, 4]])
    moved = x.to("webgpu")
    assert torch.nonzero(moved).stride() == torch.nonzero(x).stride() == (1, 4)
    assert all(t.is_contiguous() for t in torch.where(moved > 0))
    assert torch.nonzero(moved[:0]).stride() == torch.nonzero(x[:0]).stride()
    for shape in ((4, 2), (2, 4)):  # of which one must be resized
        out = torch.zeros(shape, dtype=torch.int64)
        moved_out = out.to("webgpu")[:]
        assert torch.nonzero(moved, out=moved_out).stride() == torch.nonzero(x, out=out).stride()
        assert torch.equal(moved_out.cpu(), out)
    wide = torch.full((4, 2, 3), -1).to("webgpu")
    torch.nonzero(moved, out=wide[..., 1])
    assert torch.equal(wide[..., 1].cpu(), torch.nonzero(x))
    assert bool((wide[..., ::2] == -1).all())


def test_nonzero_takes_nan_and_ignores_negative_zero():
    check(torch.nonzero, torch.tensor([0.0, -0.0, float("nan"), 1e-45, -3.0]))


def test_many_nonzeros():
    check(torch.nonzero, torch.rand(600_000) > 0.4)


def test_many_blocks_of_a_mask():
    """More blocks than the invocations that add their counts up."""
    x = torch.randn(1_100_000)
    check(lambda x: x.masked_select(x > 0), x)


def test_gradient():
    x = torch.randn(5, 6, requires_grad=True)
    check_gradients(lambda x, m: x.masked_select(m), x, torch.rand(5, 6) > 0.5)


def test_a_source_too_small_for_its_mask():
    check_error(lambda x: x.masked_scatter_(x == x, x[:2].clone()), torch.randn(4))
    check_error(lambda x: x.masked_scatter_(x, x.clone()), torch.randn(4))


def test_a_mask_of_another_dtype_is_refused():
    check_error(lambda x, i: x.masked_select(i), torch.randn(4, 5), torch.tensor([0, 1, 1]))

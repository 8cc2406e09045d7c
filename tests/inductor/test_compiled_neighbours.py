"""Small kernels that do not depend on each other share a dispatch."""

import pytest
import torch
from compiled import DEVICE, assert_equal, check, compile, dispatches

from torch_webgpu import wgsl
from torch_webgpu.inductor import packing

TOLERANCES = {"rtol": 1e-5, "atol": 1e-5}


def randn(*shape):
    return torch.randn(*shape).to(DEVICE)


def several(x, y, z):
    return x.sin() + 1, y.sum(0), torch.softmax(z, -1)


def args_of_several():
    return randn(10), randn(20, 30), randn(7, 65)


def test_kernels_of_any_kind():
    args = args_of_several()
    assert dispatches(check(several, *args, tolerances=TOLERANCES), *args) == 1


def test_dynamic_sizes():
    compiled = compile(several, dynamic=True)
    for size in (5, 9, 70):
        args = randn(size), randn(size, 3), randn(2, size)
        assert_equal(compiled(*args), several(*args), **TOLERANCES)
    assert dispatches(compiled, *args) == 1


def test_large_kernels_have_dispatches_of_their_own(monkeypatch):
    monkeypatch.setattr(packing, "_MOST_ELEMENTS", 400)
    args = args_of_several()
    assert dispatches(check(several, *args, tolerances=TOLERANCES), *args) == 3


def test_storage_buffers_are_counted():
    """Ten kernels of two buffers each: 8 in a dispatch where 16 are granted, 4 where 8 are."""
    args = [randn(3 + n) for n in range(10)]

    def program(*args):
        return [x.sin() for x in args]

    assert dispatches(check(program, *args), *args) == 2
    with wgsl.target(limits={"max_storage_buffers": 8}):
        compiled = compile(program)
        assert_equal(compiled(*args), program(*args))
        assert dispatches(compiled, *args) == 3


def test_what_depends_comes_after():
    """The second sum reads the first; the third kernel can stand beside either."""

    def program(x, y):
        total = x.sum(0)
        return (x * total).sum(1), y.cos()

    args = randn(30, 40), randn(9)
    assert dispatches(check(program, *args, tolerances=TOLERANCES), *args) == 2


@pytest.mark.parametrize("reads_first", [True, False])
def test_changes_in_place_keep_their_order(reads_first):
    def program(x, y):
        before = x.sum(0) if reads_first else None
        x.mul_(y.sum())
        return before, x.sum(1), y.sin()

    args, others = [randn(20, 30), randn(7)], None
    others = [each.clone() for each in args]
    compiled = compile(program)
    for _ in range(2):
        assert_equal([compiled(*args), *args], [program(*others), *others], **TOLERANCES)


def test_parts_of_one_result():
    """They lie in one buffer, and share its words where elements are narrow."""
    for dtype in (torch.float32, torch.float16, torch.bool):
        args = [torch.randn(3 + n, 5).gt(0).to(DEVICE, dtype) for n in range(4)]
        check(lambda *xs: torch.cat([x.logical_not().to(x.dtype) for x in xs]), *args, exact=True)
        check(
            lambda *xs: torch.cat([x.sum(0).to(x.dtype) for x in xs]),
            *args,
            exact=True,
        )


def test_indices_that_are_checked():
    index = torch.tensor([3, 1], device=DEVICE)
    args = randn(5, 4), randn(6), index
    compiled = check(lambda x, y, i: (x[i].sin(), y.cumsum(0)[i], y.exp()), *args)
    compiled(*args)
    compiled(args[0], args[1], index + 2)
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension with size 5"):
        torch.webgpu.synchronize()

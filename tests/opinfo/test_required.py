"""Every operator of required.py on the device alone, forward and backward, against the CPU."""

import pytest
import required_families  # noqa: F401 - adds its rows
import torch
from required import ROWS
from torch.testing import assert_close

DEVICE = "webgpu"
HALVES = (torch.float16, torch.bfloat16)
CASES = [(name, dtype) for name, row in ROWS.items() for dtype in row.dtypes]


def make(operand, dtype):
    if callable(operand):
        return operand(dtype)
    count = torch.Size(operand).numel()
    order = torch.randperm(count)
    if not dtype.is_floating_point and not dtype.is_complex:
        return (order % 9 + 1).reshape(operand).to(dtype)
    values = torch.linspace(0.5, 2, count)[order].reshape(operand)
    return (torch.complex(values, values.flip(0) - 1) if dtype.is_complex else values).to(dtype)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors(item)]


def is_differentiable(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def run(row, operands):
    """Results and gradients."""
    leaves = [x.detach().requires_grad_(row.gradient and is_differentiable(x)) for x in operands]
    results = tensors(row.function(*leaves))
    gradients = []
    if row.gradient:
        smooth = [r for r in results if r.requires_grad]
        weights = [torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape).to(r) for r in smooth]
        inputs = [leaf for leaf in leaves if leaf.requires_grad]
        if inputs:
            assert smooth, "the result has no gradient"
            found = torch.autograd.grad(smooth, inputs, weights, allow_unused=True)
            gradients = [g for g in found if g is not None]
    return [t.detach() for t in (*results, *gradients)]


def compare(row, actual, expected, dtype):
    assert len(actual) == len(expected)
    for got, want in zip(actual, expected, strict=True):
        assert got.shape == want.shape
        if not row.values:
            assert got.device.type == DEVICE
        elif dtype in HALVES and is_differentiable(want):
            bound = 4e-3 if dtype is torch.float16 else 3e-2
            scale = want.float().abs().max().item() if want.numel() else 0
            assert_close(got.cpu().float(), want.float(), rtol=bound, atol=bound * max(scale, 1))
        else:
            exact = not is_differentiable(want)
            assert_close(got.cpu(), want, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-4)


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda value: str(value).split(".")[-1])
def test_runs_on_the_device(name, dtype):
    row = ROWS[name]
    operands = [make(operand, dtype) for operand in row.operands]
    torch.webgpu.reset_fallbacks()
    actual = run(row, [x.to(DEVICE) for x in operands])
    assert not torch.webgpu.fallbacks()
    # The CPU rounds halves after every step, and lacks them in places: float32 is the measure.
    wide = [x.float() if x.dtype in HALVES else x for x in operands]
    compare(row, actual, run(row, wide), dtype)


@pytest.mark.parametrize("name", ["scatter_add", "index_add", "index_put accumulate", "gather"])
def test_deterministic_on_request(name):
    row = ROWS[name]
    operands = [make(operand, torch.float32) for operand in row.operands]
    torch.use_deterministic_algorithms(True)
    try:
        compare(row, run(row, [x.to(DEVICE) for x in operands]), run(row, operands), torch.float32)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "name", [name for name, row in ROWS.items() if not row.values and "empty" not in name]
)
def test_random_numbers_follow_the_seed(name):
    row = ROWS[name]
    operands = [make(operand, row.dtypes[0]).to(DEVICE) for operand in row.operands]

    def draw():
        torch.manual_seed(7)
        return row.function(*operands).cpu()

    assert draw().equal(draw())

"""segment_reduce by lengths and by offsets, and its gradients."""

import pytest
import torch
from common import FLOATS, check, check_error, check_gradients

REDUCTIONS = ["sum", "mean", "max", "min", "prod"]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def by_lengths(reduce, **options):
    return lambda x, lengths: torch.segment_reduce(
        x, reduce, lengths=lengths, axis=lengths.dim() - 1, **options
    )


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_lengths(reduce, dtype):
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 2e-2}
    tolerance.setdefault("atol", 2e-2)
    x = torch.rand(9, 3, dtype=dtype, requires_grad=True)
    lengths = torch.tensor([2, 0, 4, 3])
    check_gradients(by_lengths(reduce, initial=1, unsafe=False), x, lengths, **tolerance)
    check_gradients(by_lengths(reduce), x, torch.tensor([4, 5], dtype=torch.int32), **tolerance)
    rows = torch.tensor([[3, 1, 2], [1, 4, 1]])
    x = torch.rand(2, 6, 4, 2, dtype=dtype, requires_grad=True)
    check_gradients(by_lengths(reduce), x, rows, **tolerance)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_offsets(reduce):
    run = lambda x, o: torch.segment_reduce(x, reduce, offsets=o, axis=0, initial=0.5)  # noqa: E731
    x = torch.rand(10, 2, requires_grad=True)
    check_gradients(run, x, torch.tensor([0, 3, 3, 10]), rtol=1e-5, atol=1e-6)
    check_gradients(run, x, torch.tensor([0, 3, 7]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_long_segments_ties_and_special_values(reduce):
    x = 1 + 0.01 * torch.randint(-3, 4, (700,)).float()
    lengths = torch.tensor([500, 200])
    check_gradients(by_lengths(reduce), x.clone().requires_grad_(), lengths, rtol=1e-4, atol=1e-5)
    negative = lambda x, n: -by_lengths(reduce)(x, n)  # noqa: E731
    check_gradients(negative, x.clone().requires_grad_(), lengths, rtol=1e-4, atol=1e-5)
    x = torch.tensor([1.0, 0.0, 3.0, 0.0, 2.0, float("nan"), 5.0, 4.0], requires_grad=True)
    check_gradients(by_lengths(reduce), x, torch.tensor([3, 1, 3, 1]))
    check(by_lengths(reduce), torch.rand(3, 2), torch.tensor([0, 0, 3]))


def test_errors():
    x, lengths = torch.rand(5), torch.tensor([2, 2])
    check_error(by_lengths("sum"), x, lengths)
    check_error(by_lengths("sum"), x, torch.tensor([6, -1]))
    check_error(by_lengths("median"), x, lengths)

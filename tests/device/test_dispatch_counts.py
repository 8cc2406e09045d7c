"""Operations take the dispatches and allocations they need, and leave the host alone."""

import pytest
import torch
from counted import Counted
from torch.nn import functional as F

# Name -> function of x (6, 8), y (8, 6) and a row r (8); dispatches; allocations.
COSTS = {
    "in-place add of a number": (lambda x, y, r: x.add_(1), 1, 0),
    "in-place add of a row": (lambda x, y, r: x.add_(r), 1, 0),
    "in-place on a view": (lambda x, y, r: x[1:, ::2].mul_(2), 1, 0),
    "add": (lambda x, y, r: x + x, 1, 1),
    "add with broadcasting": (lambda x, y, r: x + r, 1, 1),
    "add to a transpose": (lambda x, y, r: x.t() + y, 1, 1),
    "add a number": (lambda x, y, r: x + 1.5, 1, 1),
    "add a CPU scalar": (lambda x, y, r: x + torch.tensor(2.0), 1, 1),
    "add into out": (lambda x, y, r: torch.add(x, r, out=y.t()), 1, 0),
    "promotion": (lambda x, y, r: x.int() * r, 2, 2),
    "cast": (lambda x, y, r: x.half(), 1, 1),
    "cast to the same type": (lambda x, y, r: x.float(), 0, 0),
    "clone": (lambda x, y, r: x.clone(), 1, 1),
    "contiguous": (lambda x, y, r: x.t().contiguous(), 1, 1),
    "contiguous already": (lambda x, y, r: x.contiguous(), 0, 0),
    "copy between tensors": (lambda x, y, r: x.copy_(y.t()), 1, 0),
    "empty": (lambda x, y, r: torch.empty_like(x), 0, 1),
    "zeros": (lambda x, y, r: torch.zeros_like(x), 1, 1),
    "fill": (lambda x, y, r: x.fill_(3), 1, 0),
    "where": (lambda x, y, r: torch.where(x > 0, x, r), 2, 2),
    "clamp": (lambda x, y, r: x.clamp(-1, 1), 1, 1),
    "gelu": (lambda x, y, r: F.gelu(x), 1, 1),
    "addcmul": (lambda x, y, r: torch.addcmul(x, x, r, value=2), 1, 1),
    "sum": (lambda x, y, r: x.sum(), 1, 1),
    "mean of rows": (lambda x, y, r: x.mean(1), 1, 1),
    "variance and mean": (lambda x, y, r: torch.var_mean(x, 0), 1, 2),
    "softmax": (lambda x, y, r: x.softmax(-1), 1, 1),
    "matrix product": (lambda x, y, r: x @ y, 1, 1),
    "product with a transpose": (lambda x, y, r: x @ x.t(), 1, 1),
    "linear with bias": (lambda x, y, r: F.linear(y.t(), x.t() @ x, r), 2, 2),
}


@pytest.mark.parametrize("name", COSTS)
def test_cost(name):
    function, dispatches, allocations = COSTS[name]
    x, y, r = (torch.randn(shape).webgpu() for shape in ((6, 8), (8, 6), (8,)))
    with Counted() as count:
        result = function(x, y, r)
    assert (count.dispatches, count.allocations) == (dispatches, allocations)
    assert (count.uploads, count.readbacks, count.copies) == (0, 0, 0)
    del result


def test_a_number_is_one_readback():
    x = torch.ones(1).webgpu()
    with Counted() as count:
        assert x.item() == 1
    assert (count.readbacks, count.dispatches, count.uploads, count.allocations) == (1, 0, 0, 0)


def test_nothing_is_done_for_no_elements():
    x = torch.empty(0, 3, device="webgpu")
    with Counted() as count:
        (x + x).t().contiguous().add_(1)
    assert (count.dispatches, count.allocations) == (0, 0)


def test_training_step_of_three_layers():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 4),
    ).to("webgpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch.randn(24, 20).webgpu(), torch.randn(24, 4).webgpu()

    def gradients() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()

    gradients()
    with Counted() as forward_and_backward:
        gradients()
    # Forward: 3 products (with bias), 2 relu, the loss and its mean. Backward: the gradient 1, the
    # loss (which ATen fills with zeros first), 3 + 2 products, 3 sums for the biases, 2 relu.
    assert forward_and_backward.dispatches == 3 + 2 + 2 + 1 + 2 + 5 + 3 + 2
    with Counted() as update:
        optimizer.step()
    assert update.dispatches == 1  # all six parameters in one multi-tensor dispatch
    assert update.allocations == 0
    for count in (forward_and_backward, update):
        assert (count.uploads, count.readbacks, count.copies) == (0, 0, 0)

"""Activations that are flat somewhere: no gradient comes back from there, whatever arrives."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE

GRADIENTS = [float("inf"), -float("inf"), float("nan"), 2.0]


@pytest.mark.parametrize("function", [F.hardsigmoid, F.hardswish, F.relu6, F.hardtanh, F.relu])
def test_gradients_that_are_not_finite(function):
    points = torch.tensor([-100.0, -3.5, -1.0, 0.5, 2.5, 7.0, float("nan")])
    x = points.repeat_interleave(len(GRADIENTS))
    gradient = torch.tensor(GRADIENTS).repeat(len(points))

    def backward(device):
        leaf = x.to(device).requires_grad_()
        return torch.autograd.grad(function(leaf), leaf, gradient.to(device))[0].cpu()

    torch.testing.assert_close(backward(DEVICE), backward("cpu"), equal_nan=True)

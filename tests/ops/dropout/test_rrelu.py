"""rrelu: slopes drawn at random in training, their mean otherwise."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, FLOATS, check_error, check_gradients

rrelu_with_noise = torch.ops.aten.rrelu_with_noise


@pytest.mark.parametrize("dtype", FLOATS)
def test_slopes(dtype):
    torch.manual_seed(0)
    x = torch.randn(100, 101).to(dtype).to(DEVICE).requires_grad_()
    noise = torch.empty_like(x)
    out = rrelu_with_noise(x, noise, 0.25, 0.5, True)
    (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out))
    x, out, noise, gradient = (t.detach().cpu().float() for t in (x, out, noise, gradient))
    negative = x <= 0
    assert (noise[~negative] == 1).all() and (out[~negative] == x[~negative]).all()
    slopes = noise[negative]
    assert slopes.min() >= 0.25 and slopes.max() <= 0.5
    assert (slopes.mean() - 0.375).abs() < 0.005 and slopes.unique().numel() > 50
    torch.testing.assert_close(out, x * noise, rtol=1e-2, atol=1e-5)
    torch.testing.assert_close(gradient, noise)


@pytest.mark.parametrize("training", [False, True])
def test_strides(training):
    x = torch.ones(4, 3).t()
    strides = [F.rrelu(y, 0.25, 0.25, training).stride() for y in (x, x.to(DEVICE))]
    assert strides == [(4, 1), (4, 1)]


def test_seed_and_in_place():
    x = torch.randn(50, device=DEVICE)
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(F.rrelu_(x.clone(), training=True))
    assert torch.equal(*results)
    torch.manual_seed(3)
    assert torch.equal(F.rrelu(x, training=True), results[0])


def test_evaluation():
    x = torch.randn(4, 6, requires_grad=True)
    check_gradients(lambda x: F.rrelu(x, 0.1, 0.4), x)
    check_gradients(lambda x: F.rrelu(x.t(), 0.1, 0.4), x)


def test_errors():
    check_error(lambda x: rrelu_with_noise(x, x[:1], 0.1, 0.2, True), torch.randn(3))

"""torch.webgpu.make_graphed_callables."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "webgpu"


def sample(*shape):
    return torch.randn(*shape, device=DEVICE, requires_grad=True)


@pytest.mark.parametrize("copy_outputs", [False, True])
def test_a_module_trains_as_before(copy_outputs):
    torch.manual_seed(0)
    expected = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(DEVICE)
    module = copy.deepcopy(expected)
    graphed = torch.webgpu.make_graphed_callables(
        module, (sample(4, 6),), copy_outputs=copy_outputs
    )
    assert graphed is module
    for _ in range(3):  # gradients accumulate
        x = sample(4, 6)
        y = x.detach().clone().requires_grad_()
        graphed(x).square().sum().backward()
        expected(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
        for p, q in zip(module.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    module.eval()  # another mode than that of the capture
    torch.testing.assert_close(module(torch.ones(2, 6, device=DEVICE)),
                               expected(torch.ones(2, 6, device=DEVICE)))  # fmt: skip


def test_results_are_overwritten_or_copied():
    function = torch.webgpu.make_graphed_callables(lambda x: x * 2, (torch.ones(3, device=DEVICE),))
    copied = torch.webgpu.make_graphed_callables(
        lambda x: x * 2, (torch.ones(3, device=DEVICE),), copy_outputs=True
    )
    x = torch.ones(3, device=DEVICE)
    first, kept = function(x), copied(x)
    function(x + 1), copied(x + 1)
    assert first.tolist() == [4] * 3 and kept.tolist() == [2] * 3


def test_several_share_a_pool():
    def loss(x, target):
        return F.mse_loss(x, target)

    torch.manual_seed(0)
    layer = nn.Linear(5, 5).to(DEVICE)
    expected = copy.deepcopy(layer)
    x, target = sample(2, 5), torch.randn(2, 5, device=DEVICE)
    one, two = torch.webgpu.make_graphed_callables(
        (layer, loss), ((sample(2, 5),), (sample(2, 5), target.clone()))
    )
    for _ in range(2):
        layer.zero_grad(), expected.zero_grad()
        two(one(x), target).backward()
        F.mse_loss(expected(x), target).backward()
        torch.testing.assert_close(layer.weight.grad, expected.weight.grad)


def test_structured_results_and_unused_inputs():
    def function(x, y):
        return {"a": x * 2, "b": [x.detach() + 1]}

    with pytest.raises(RuntimeError, match=r"not have been used"):
        torch.webgpu.make_graphed_callables(function, (sample(3), sample(3)))
    graphed = torch.webgpu.make_graphed_callables(
        function, (sample(3), sample(3)), allow_unused_input=True
    )
    x = sample(3)
    out = graphed(x, sample(3))
    out["a"].sum().backward()
    assert x.grad.tolist() == [2] * 3 and torch.equal(out["b"][0], x + 1)


def test_bad_arguments():
    module = nn.Linear(3, 3).to(DEVICE)
    x = sample(2, 3)
    with pytest.raises(RuntimeError, match="tensors only"):
        torch.webgpu.make_graphed_callables(module, (x, 3))
    hooked = nn.Linear(3, 3).to(DEVICE)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="hooks"):
        torch.webgpu.make_graphed_callables(hooked, (x,))
    with pytest.raises(RuntimeError, match="cannot be captured"):
        torch.webgpu.make_graphed_callables(lambda t: t * t.sum().item(), (x,))
    graphed = torch.webgpu.make_graphed_callables(module, (x,))
    with pytest.raises(RuntimeError, match=r"argument 0 .* must be torch\.float32 of shape"):
        graphed(sample(5, 3))
    with pytest.raises(TypeError, match="expected 1 tensors"):
        graphed(x, x)
    assert torch.isfinite(graphed(x)).all()

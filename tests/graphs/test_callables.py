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


def test_calls_that_would_be_wrong():
    def square(x):
        return x * x

    graphed = torch.webgpu.make_graphed_callables(square, (sample(3),))
    total = graphed(sample(3)) + graphed(sample(3))
    with pytest.raises(RuntimeError, match="before its next call"):
        total.sum().backward()

    exp = torch.webgpu.make_graphed_callables(torch.exp, (sample(3),))
    y = exp(sample(3))
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    double = torch.webgpu.make_graphed_callables(lambda x: x * 2, (sample(3),))
    x = sample(3)
    double(x).relu_().sum().backward()  # this result is not read
    torch.testing.assert_close(x.grad, (x > 0) * 2.0)

    plain = torch.webgpu.make_graphed_callables(square, (torch.ones(3, device=DEVICE),))
    with pytest.raises(RuntimeError, match=r"argument 0 .* requires grad"):
        plain(sample(3))
    assert not plain(torch.ones(3, device=DEVICE)).requires_grad
    with torch.no_grad():
        without = torch.webgpu.make_graphed_callables(square, (sample(3),))
        assert without(sample(3)).shape == (3,)
    with pytest.raises(RuntimeError, match="under no_grad"):
        without(sample(3))

    z = torch.randn(4, dtype=torch.complex64, device=DEVICE)
    turned = torch.webgpu.make_graphed_callables(lambda t: t * 1j, (z,))
    expected = z.conj() * 1j
    torch.testing.assert_close(turned(z.conj()), expected)  # the sample's memory, conjugated


def test_hooks_of_tensors_run_once():
    module, x = nn.Linear(2, 2).to(DEVICE), sample(1, 2)
    module.weight.register_hook(lambda g: g * 100)
    x.register_hook(lambda g: g * 100)
    graphed = torch.webgpu.make_graphed_callables(module, (x,))
    y = torch.ones(1, 2, device=DEVICE, requires_grad=True)
    graphed(y).sum().backward()
    assert module.weight.grad.tolist() == [[100.0] * 2] * 2
    torch.testing.assert_close(y.grad, module.weight.detach().sum(0, keepdim=True))


def test_structures_of_arguments():
    graphed = torch.webgpu.make_graphed_callables(
        lambda d: d["a"] - d["b"], ({"a": sample(3), "b": sample(3)},)
    )
    ones, fives = torch.ones(3, device=DEVICE), torch.full((3,), 5.0, device=DEVICE)
    assert graphed({"a": ones, "b": fives}).tolist() == [-4] * 3
    for wrong in ({"p": ones, "q": fives}, [ones, fives], {"b": fives, "a": ones}):
        with pytest.raises(TypeError, match="structure"):
            graphed(wrong)


def test_modules_that_change():
    module, x = nn.Linear(3, 3).to(DEVICE), sample(2, 3)
    graphed = torch.webgpu.make_graphed_callables(module, (x,))
    with pytest.raises(TypeError, match="copied"):
        copy.deepcopy(graphed)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.fill_(2)
    assert graphed(x).unique().tolist() == [2]
    module.load_state_dict({k: v.clone() for k, v in module.state_dict().items()}, assign=True)
    with pytest.raises(RuntimeError, match="not the tensor of the capture"):
        graphed(x)


def test_tied_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    module = Tied().to(DEVICE)
    expected = copy.deepcopy(module)
    graphed = torch.webgpu.make_graphed_callables(module, (sample(2, 3),))
    x = sample(2, 3)
    graphed(x).sum().backward()
    expected(x).sum().backward()
    for p, q in zip(module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


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
    with pytest.raises(TypeError, match="structure"):
        graphed(x, x)
    with pytest.raises(TypeError, match="argument 0 must be a tensor"):
        graphed(5)
    with pytest.raises(TypeError, match="must be a tuple"):
        torch.webgpu.make_graphed_callables(lambda t: t, x)
    with pytest.raises(RuntimeError, match="on webgpu"):
        torch.webgpu.make_graphed_callables(lambda t: t, (torch.ones(3),))
    with pytest.raises(RuntimeError, match="return tensors only"):
        torch.webgpu.make_graphed_callables(lambda t: (t, 3), (x,))
    with pytest.raises(RuntimeError, match="only once"):
        torch.webgpu.make_graphed_callables((module, module), ((x,), (x,)))
    for shared in ((x, x), (x, x[:1]), (x[:1].expand(2, 3),)):
        with pytest.raises(RuntimeError, match="must not share memory"):
            torch.webgpu.make_graphed_callables(lambda *t: t[0] * 2, shared)
    assert torch.isfinite(graphed(x)).all()

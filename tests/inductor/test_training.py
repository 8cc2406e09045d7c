"""Backward passes, optimizers and dynamic shapes."""

import copy

import pytest
import torch
from compiled import DEVICE, check, compile
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.variables.optimizer import OptimizerVariable

from torch_webgpu import wgsl
from torch_webgpu.inductor import packing

F = nn.functional


def randn(*shape, **options):
    return torch.randn(*shape, device=DEVICE, **options)


def test_gradients_equal_eager_ones():
    def program(x, weight, bias):
        return F.gelu(F.layer_norm(x, (48,), weight, bias)) * torch.sigmoid(x)

    arguments = [randn(*shape, requires_grad=True) for shape in [(8, 48), (48,), (48,)]]
    check(program, *arguments, backward=True, tolerances={"rtol": 1e-4, "atol": 1e-4})


def test_gradient_of_cross_entropy():
    logits = randn(16, 100, requires_grad=True)
    target = torch.randint(0, 100, (16,)).to(DEVICE)
    check(F.cross_entropy, logits, target, backward=True)


def test_gradients_by_broadcast_operands():
    x, y = randn(6, 5, 7, requires_grad=True), randn(5, 1, requires_grad=True)
    check(lambda x, y: (x * y).tanh() / (1 + y * y), x, y, backward=True)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 16, 32),
        nn.LayerNorm(32),
        nn.GELU(),
        nn.Linear(32, 10),
    ).to(DEVICE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_training_step_of_a_network(dtype):
    eager = network()
    compiled = copy.deepcopy(eager)
    x, target = randn(4, 3, 8, 8), torch.randint(0, 10, (4,)).to(DEVICE)

    def loss_of(model, x):
        with torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
            return F.cross_entropy(model(x).float(), target)

    expected = loss_of(eager, x)
    actual = loss_of(compile(compiled), x)
    for loss in (expected, actual):
        loss.backward()
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(actual.cpu(), expected.cpu(), rtol=tolerance, atol=tolerance)
    for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad.cpu(), rtol=tolerance, atol=tolerance)
    for one, other in zip(compiled.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-4, atol=1e-4)


def test_dropout_masks_forward_and_backward_alike():
    x = torch.ones(4096, device=DEVICE, requires_grad=True)
    result = compile(lambda x: F.dropout(x, 0.3))(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(gradient, result.detach())
    kept = (result > 0).float().mean().item()
    assert abs(kept - 0.7) < 0.03
    assert result.max().item() == pytest.approx(1 / 0.7)


def test_random_numbers_follow_the_seed():
    program = compile(lambda x: (torch.rand_like(x), torch.randn_like(x)))
    x = torch.empty(10000, device=DEVICE)
    torch.manual_seed(3)
    first = program(x)
    second = program(x)
    torch.manual_seed(3)
    again = program(x)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], second[0])
    uniform, normal = (t.cpu() for t in first)
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05


def test_random_numbers_of_eager_mode_on_request():
    with torch._inductor.config.patch(fallback_random=True):
        program = compile(lambda x: torch.rand_like(x) + x)
        x = torch.zeros(1000, device=DEVICE)
        torch.manual_seed(3)
        actual = program(x)
        torch.manual_seed(3)
        assert torch.equal(actual, torch.rand_like(x))


# ---- Optimizers ----


def trained(optimizer_of, steps, use_compiler):
    torch.manual_seed(0)
    parameters = [torch.randn(n, 7).to(DEVICE).requires_grad_() for n in (3, 20, 40)]
    optimizer = optimizer_of(parameters)
    step = compile(optimizer.step) if use_compiler else optimizer.step
    for k in range(steps):
        for parameter in parameters:
            parameter.grad = torch.sin(parameter.detach() * (k + 1))
        step()
    return [parameter.detach() for parameter in parameters]


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "Adam, amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    eager, compiled = (trained(OPTIMIZERS[name], 4, use) for use in (False, True))
    for one, other in zip(compiled, eager, strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(
    not hasattr(OptimizerVariable, "_safe_to_set_capturable"),
    reason="before torch 2.15, Dynamo sets the flag and leaves it",
)
def test_groups_are_left_alone():
    parameter = randn(8, requires_grad=True)
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW([parameter])
    compile(optimizer.step)()
    assert optimizer.param_groups[0]["capturable"] is False
    assert optimizer.state[parameter]["step"].device.type == DEVICE


def limited_to(buffers):
    return wgsl.target(limits={"max_storage_buffers": buffers})


@pytest.mark.sampled("16-8")
@pytest.mark.parametrize(("buffers", "most"), [(16, 8), (12, 11), (8, 21)])
def test_dispatches_of_adamw(buffers, most):
    """A tensor with its state is 5 buffers, and its step count is advanced in a dispatch before."""
    with limited_to(buffers):
        expected, actual = (trained(OPTIMIZERS["AdamW"], 3, use) for use in (False, True))
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        parameters = [torch.randn(64, 3 + n % 5).to(DEVICE).requires_grad_() for n in range(20)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer = torch.optim.AdamW(parameters)
        step = compile(optimizer.step)
        step()
        with wgsl.record() as dispatches:
            step()
    assert len(dispatches) <= most
    assert max(len(dispatch.bindings) for dispatch in dispatches) <= buffers
    assert all(optimizer.state[parameter]["step"].item() == 2 for parameter in parameters)


@pytest.mark.parametrize(("buffers", "count"), [(16, 38), (12, 51), (8, 101)])
def test_packing_of_a_hundred_parameters(buffers, count):
    steps = [packing.Part(None, {f"step{n}"}, False, {f"add{n}"}, set()) for n in range(100)]
    tensors = [
        packing.Part(
            None,
            {f"{name}{n}" for name in ("parameter", "gradient", "mean", "square", "step")},
            False,
            {f"update{n}"},
            {f"add{n}"},
        )
        for n in range(100)
    ]
    with limited_to(buffers):
        dispatches = packing.packed(steps + tensors)
    assert len(dispatches) == count
    done = set()
    for dispatch in dispatches:
        assert len(set().union(*(part.buffers for part in dispatch))) <= buffers
        assert all(part.ancestors <= done for part in dispatch)
        done.update(name for part in dispatch for name in part.operations)
    assert len(done) == 200


# ---- Dynamic shapes ----


def test_one_graph_and_one_shader_for_all_sizes():
    def program(x, y):
        return torch.softmax(x * y, -1).sum(0) + x.shape[0]

    counter = CompileCounterWithBackend("inductor")
    compiled = compile(program, backend=counter, dynamic=True, fullgraph=True)
    for rows, columns in [(3, 50), (10, 333), (64, 64), (7, 1500)]:
        x, y = randn(rows, columns), randn(columns)
        torch.testing.assert_close(compiled(x, y), program(x, y), rtol=1e-4, atol=1e-4)
        assert counter.frame_count == 1


def test_dynamic_training():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    model.to(DEVICE)
    compiled = compile(model, dynamic=True)
    for batch in (3, 5, 17):
        x = randn(batch, 8)
        gradients = []
        for function in (model, compiled):
            loss = function(x).square().mean()
            gradients.append(torch.autograd.grad(loss, list(model.parameters())))
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.cat([x, x * 2], 0) + 1,
        lambda x: F.interpolate(x[None], scale_factor=2, mode="linear"),
        lambda x: x[:, x.shape[1] // 2 :].cumsum(1) * x.shape[0],
        lambda x: F.pad(x, (1, 2)).mean(1),
        lambda x: x.t().reshape(-1).sin(),
    ],
)
def test_dynamic_programs(program):
    compiled = compile(program, dynamic=True)
    for shape in [(4, 6), (7, 9), (12, 30)]:
        x = randn(*shape)
        torch.testing.assert_close(compiled(x).cpu(), program(x).cpu(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * (x.shape[1] * 0.3) + x.shape[2] ** 0.5,
        lambda x: F.group_norm(x, 2).sin(),
        lambda x: torch.native_group_norm(x, None, None, *x.shape, 1, 1e-5)[0],
        lambda x: torch.var(x, 2) * x.shape[1],
        lambda x: torch.var_mean(x)[0].sqrt(),
        lambda x: F.interpolate(x, size=(x.shape[2] + 3,), mode="nearest"),
        lambda x: F.interpolate(x, size=(9,), mode="nearest-exact"),
        lambda x: F.interpolate(x, scale_factor=1.7, mode="linear"),
    ],
)
def test_sizes_as_real_numbers(program):
    """As constants of a kernel for one size, they are computed in double precision."""
    compiled = compile(program, dynamic=True)
    for shape in [(2, 4, 6), (5, 8, 10), (3, 6, 31)]:
        x = randn(*shape, requires_grad=True)
        expected, actual = program(x), compiled(x)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        gradients = [torch.autograd.grad(y.square().sum(), x) for y in (actual, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)

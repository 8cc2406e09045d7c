"""torch.optim on the device: equal to the CPU's, and in a bounded number of dispatches."""

import copy

import pytest
import torch

from torch_webgpu.wgsl import target

DEVICE = "webgpu"
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "dampening": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "maximize": (torch.optim.SGD, {"lr": 0.1, "maximize": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.99), "maximize": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}),
    "radam": (torch.optim.RAdam, {"lr": 0.01}),
    "asgd": (torch.optim.ASGD, {"lr": 0.1}),
    "rprop": (torch.optim.Rprop, {"lr": 0.1}),
}
FUSED = ["sgd", "momentum", "nesterov", "dampening", "maximize", "adam", "amsgrad", "adamw"]
SHAPES = [(3, 5), (7,), (2, 3, 4, 4), (1,), (33,), (16, 16), ()]


def parameters(device, dtype=torch.float32, shapes=SHAPES):
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(s, generator=generator).to(device, dtype) for s in shapes]
    return [torch.nn.Parameter(v) for v in values]


def train(device, name, steps=4, dtype=torch.float32, shapes=SHAPES, **kwargs):
    """Parameters after some steps of given gradients, and the dispatches of the last step."""
    make, settings = OPTIMIZERS[name]
    params = parameters(device, dtype, shapes)
    optimizer = make(params, **settings, **kwargs)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(device, dtype)
        before = torch.webgpu.stats()["dispatches"]
        optimizer.step()
        used = torch.webgpu.stats()["dispatches"] - before
    return [p.detach().cpu() for p in params], optimizer, used


def compare(name, dtype=torch.float32, **kwargs):
    expected, on_cpu, _ = train("cpu", name, dtype=dtype, foreach=False)
    got, on_device, used = train(DEVICE, name, dtype=dtype, **kwargs)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-5 if dtype == torch.float32 else 2e-2,
                                   atol=2e-6 if dtype == torch.float32 else 2e-2)  # fmt: skip
    state, wanted = on_device.state_dict()["state"], on_cpu.state_dict()["state"]
    for index, entries in wanted.items():
        for key, value in entries.items():
            if isinstance(value, torch.Tensor) and dtype == torch.float32:
                torch.testing.assert_close(
                    state[index][key].cpu(), value, rtol=1e-5, atol=2e-6, check_dtype=False
                )
    return used


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("foreach", [True, False])
def test_equals_the_cpu(name, foreach):
    compare(name, foreach=foreach)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FUSED)
def test_fused(name, dtype):
    compare(name, dtype=dtype, fused=True)


def test_default_is_the_multi_tensor_path():
    shapes = [(8, 8)] * 30
    assert train(DEVICE, "sgd", shapes=shapes)[2] <= 5
    assert train(DEVICE, "momentum", shapes=shapes)[2] <= 16
    assert train(DEVICE, "adam", shapes=shapes)[2] <= 60
    assert train(DEVICE, "sgd", shapes=shapes, foreach=False)[2] >= 30


def test_fused_takes_few_dispatches():
    shapes = [(8, 8)] * 30
    assert train(DEVICE, "sgd", shapes=shapes, fused=True)[2] <= 5
    assert train(DEVICE, "momentum", shapes=shapes, fused=True)[2] <= 8
    # three parameters a dispatch at 16 bindings, and the step counters
    assert train(DEVICE, "adam", shapes=shapes, fused=True)[2] <= 13


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_step_counts_on_the_device(name):
    """Bias corrections are lists of numbers on the device, not a dispatch for each tensor."""
    results, used = [], []
    for device in ("cpu", DEVICE):
        generator = torch.Generator().manual_seed(0)
        parameters = [
            torch.rand(8, 3 + n % 5, generator=generator).to(device).requires_grad_()
            for n in range(40)
        ]
        for n, parameter in enumerate(parameters):
            gradient = torch.linspace(-1, 1 + n, parameter.numel()).view_as(parameter)
            parameter.grad = gradient.to(device)
        capturable = {"capturable": True} if device == DEVICE else {}
        optimizer = getattr(torch.optim, name)(parameters, foreach=True, **capturable)
        for _ in range(3):
            before = torch.webgpu.stats()["dispatches"]
            optimizer.step()
            used.append(torch.webgpu.stats()["dispatches"] - before)
        results.append([p.detach().cpu() for p in parameters])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert used[-1] <= 80


def test_tensor_rate_and_odd_layouts():
    lr = torch.tensor(0.01)
    for device_lr in (lr, lr.to(DEVICE)):
        params = [torch.nn.Parameter(torch.ones(6, 4).t().to(DEVICE)),
                  torch.nn.Parameter(torch.ones(9).to(DEVICE)[1:])]  # fmt: skip
        host = [torch.nn.Parameter(p.detach().cpu().clone()) for p in params]
        # The CPU's fused kernel would go by memory order, which differs here.
        for group, settings in ((params, {"lr": device_lr, "fused": True}), (host, {"lr": 0.01})):
            optimizer = torch.optim.Adam(group, **settings)
            for p in group:
                p.grad = torch.linspace(-1, 1, p.numel()).view(p.shape).to(p.device)
            optimizer.step()
        for p, h in zip(params, host, strict=True):
            torch.testing.assert_close(p.detach().cpu(), h.detach())


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("bad", [False, True])
def test_gradient_scaler(fused, bad, silent_fallbacks):
    # GradScaler inverts its scale, one number, in float64.
    params = parameters(DEVICE)
    before = [p.detach().cpu() for p in params]
    optimizer = torch.optim.SGD(params, lr=1.0, fused=fused)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=1)
    loss = sum((p * p).sum() for p in params)
    scaler.scale(loss).backward()
    if bad:
        params[1].grad[3:4].fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    for p, b in zip(params, before, strict=True):
        expected = b if bad else b - 2 * b
        torch.testing.assert_close(p.detach().cpu(), expected)
    assert scaler.get_scale() == (2.0 if bad else 8.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradient_scaler_looks_at_no_memory_behind_a_gradient(dtype):
    """A gradient that fills no vector lies where there was infinity."""
    for size in (1, 3, 5):
        memory = torch.full((16,), float("inf"), device=DEVICE, dtype=dtype)
        gradient = memory[:size]
        gradient.fill_(6)
        found, factor = torch.zeros((), device=DEVICE), torch.tensor(0.5, device=DEVICE)
        torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, factor)
        assert found.item() == 0
        assert gradient.tolist() == [3] * size
        assert memory[size:].isinf().all()
        gradient[-1] = float("nan")
        torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, factor)
        assert found.item() == 1


def test_clipping_and_zero_grad():
    model = torch.nn.Linear(5, 3)
    device_model = copy.deepcopy(model).to(DEVICE)
    norms = []
    for m in (model, device_model):
        x = torch.ones(2, 5, device=next(m.parameters()).device)
        m(x).pow(2).sum().backward()
        norms.append(torch.nn.utils.clip_grad_norm_(m.parameters(), 0.5).cpu())
    torch.testing.assert_close(norms[1], norms[0])
    for p, d in zip(model.parameters(), device_model.parameters(), strict=True):
        torch.testing.assert_close(d.grad.cpu(), p.grad)
    optimizer = torch.optim.SGD(device_model.parameters(), lr=1.0)
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.cpu().any() for p in device_model.parameters())


@pytest.fixture
def few_buffers():
    """A dispatch binds 8 storage buffers, as in a browser."""
    with target(limits={"max_storage_buffers": 8}):
        yield


@pytest.mark.usefixtures("few_buffers")
@pytest.mark.parametrize("amsgrad", [False, True])
def test_steps_with_the_buffers_of_a_browser(amsgrad):
    """A step with a learning rate, a loss scale and an overflow flag on the device has up to nine
    buffers for one tensor: the numbers are packed into one."""

    def stepped(device):
        generator = torch.Generator().manual_seed(3)
        made = [[torch.rand(5, generator=generator).to(device) for _ in range(3)] for _ in range(5)]
        parameters, gradients, means, squares, maxima = made
        torch._fused_adam_(
            parameters, gradients, means, squares, maxima if amsgrad else [],
            [torch.tensor(2.0, device=device) for _ in range(3)],
            lr=torch.tensor(0.1, device=device), beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8,
            amsgrad=amsgrad, maximize=False, grad_scale=torch.tensor(4.0, device=device),
            found_inf=torch.tensor(0.0, device=device),
        )  # fmt: skip
        return [t.cpu() for tensors in made for t in tensors]

    torch.testing.assert_close(stepped(DEVICE), stepped("cpu"), rtol=1e-5, atol=1e-6)


def test_a_target_with_fewer_buffers_takes_more_dispatches():
    def dispatches():
        tensors = [torch.ones(3, device=DEVICE) for _ in range(14)]
        before = torch.webgpu.stats()["dispatches"]
        torch._foreach_mul_(tensors, 2.0)
        used = torch.webgpu.stats()["dispatches"] - before
        assert all(t.tolist() == [2, 2, 2] for t in tensors)
        return used

    assert dispatches() == 1
    with target(limits={"max_storage_buffers": 8}):
        assert dispatches() == 2


def test_a_list_with_a_tensor_on_the_cpu_is_refused():
    gradients = [torch.ones(3, device=DEVICE), torch.ones(3)]
    found_inf, inv_scale = torch.zeros(1, device=DEVICE), torch.ones(1, device=DEVICE)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inv_scale)

"""torch.webgpu.flatten_parameters: the same steps, bit for bit, in fewer dispatches."""

import copy
import gc
import io

import pytest
import torch
import torch._dynamo.utils
from torch import nn

from torch_webgpu import wgsl

DEVICE = "webgpu"
F = nn.functional
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}
FORMS = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


class Network(nn.Module):
    """Sizes that fill no vectors, a tied weight, weights with channels last, a transposed one."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(5)
        self.first = nn.Linear(20, 7)
        self.second = nn.Linear(7, 7)
        self.second.weight = self.tied = nn.Parameter(torch.rand(7, 7).t())
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().flatten(1)
        x = self.second(self.first(x).tanh()) @ self.tied
        return x.sum(1) * self.scale


def network():
    torch.manual_seed(3)
    return Network().to(DEVICE)


def batches(steps):
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(6, 3, 4, 4, generator=generator).to(DEVICE) for _ in range(steps)]


def pair(name, form=None, **options):
    """Two equal models with an optimizer each, of which the second has flat parameters."""
    make, settings = OPTIMIZERS[name]
    settings = {**settings, **FORMS.get(form, {}), **options}
    plain, model = network(), network()
    flat = torch.webgpu.flatten_parameters(model.parameters())
    assert len(flat) == 1
    return (plain, make(plain.parameters(), **settings)), (model, make(flat, **settings))


def train(model, optimizer, steps=3, before_step=None):
    for x in batches(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if before_step is not None:
            before_step(model)
        optimizer.step()


def assert_same(one, other):
    first, second = one.state_dict(), other.state_dict()
    assert list(first) == list(second)
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert value.stride() == second[name].stride()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_the_same(name, form):
    plain, flat = pair(name, form)
    train(*plain)
    train(*flat)
    assert_same(plain[0], flat[0])


def test_step_counts_on_the_device():
    plain, flat = pair("adamw", "foreach", capturable=True)
    train(*plain)
    train(*flat)
    assert_same(plain[0], flat[0])


def test_halves():
    make, settings = OPTIMIZERS["adamw"]
    results = []
    for flatten in (False, True):
        model = network().to(torch.float16)
        params = list(model.parameters())
        params = torch.webgpu.flatten_parameters(params) if flatten else params
        optimizer = make(params, **settings, fused=True)
        for x in batches(2):
            optimizer.zero_grad()
            model(x.half()).square().mean().backward()
            optimizer.step()
        results.append(model)
    assert_same(*results)


def test_clipping_the_models_own_gradients():
    def clip(model):
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    plain, flat = pair("sgd")
    train(*plain, before_step=clip)
    train(*flat, before_step=clip)
    assert_same(plain[0], flat[0])


def test_gradients_add_up_over_several_passes():
    plain, flat = pair("adamw")
    for model, optimizer in (plain, flat):
        for step, x in enumerate(batches(6)):
            model(x).square().mean().backward()
            if step % 2:
                optimizer.step()
            if step == 3:  # the gradients of the first two steps are added to
                optimizer.zero_grad()
    assert_same(plain[0], flat[0])


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("by_model", [True, False])
def test_zero_grad(set_to_none, by_model):
    model = network()
    (flat,) = params = torch.webgpu.flatten_parameters(model.parameters())
    optimizer = torch.optim.SGD(params, lr=0.1)
    for x in batches(2):
        model(x).sum().backward()
        optimizer.step()
        (model if by_model else optimizer).zero_grad(set_to_none=set_to_none)
        for gradient in (flat.grad, *(p.grad for p in model.parameters())):
            assert gradient is None if set_to_none else not gradient.any()


def test_gradient_is_one_memory():
    model = network()
    (flat,) = torch.webgpu.flatten_parameters(model.parameters())
    assert flat.grad is None
    model(batches(1)[0]).sum().backward()
    first = flat.grad
    assert first is flat.grad
    first.mul_(2)
    total = sum(p.grad.cpu().double().square().sum().item() for p in model.parameters())
    assert total == pytest.approx(first.cpu().double().square().sum().item())
    one = next(model.parameters())
    one.grad = torch.ones_like(one)  # one of them is another tensor
    assert flat.grad is first
    assert torch.equal(one.grad, torch.ones_like(one))
    flat.grad = torch.full_like(flat, 3.0)
    assert all((p.grad == 3).all() for p in model.parameters())
    with pytest.raises(RuntimeError, match="gradient of a flat parameter has 1 elements"):
        flat.grad = torch.ones(1, device=DEVICE)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bad", [False, True])
def test_gradient_scaler(fused, bad, silent_fallbacks):
    models = []
    for model, optimizer in pair("adamw", **({"fused": True} if fused else {})):
        scaler = torch.amp.GradScaler(DEVICE, init_scale=64.0)
        for step, x in enumerate(batches(3)):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss * float("inf") if bad and step == 1 else loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == (32.0 if bad else 64.0)
        models.append(model)
    assert_same(*models)


def test_groups():
    results = []
    for flatten in (False, True):
        model = network()
        vectors = [p for p in model.parameters() if p.dim() < 2]
        groups = [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.3},
            {"params": vectors, "lr": 0.2},
        ]
        if flatten:
            groups = torch.webgpu.flatten_parameters(groups)
            assert [len(group["params"]) for group in groups] == [1, 1]
        train(model, torch.optim.AdamW(groups, lr=0.01))
        results.append(model)
    assert_same(*results)


def test_state_dicts():
    (plain, _), (model, optimizer) = pair("adamw")
    places = [p.data_ptr() for p in model.parameters()]
    saved = {name: value.cpu() + 1 for name, value in plain.state_dict().items()}
    model.load_state_dict(saved)
    assert [p.data_ptr() for p in model.parameters()] == places
    for name, value in model.state_dict().items():
        assert torch.equal(value.cpu(), saved[name])
    train(model, optimizer)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    # The parameters' memory is saved once.
    assert len(file.getvalue()) < 12 * sum(p.numel() * 4 for p in model.parameters()) + 8192
    file.seek(0)
    loaded = torch.load(file)
    _, (other, other_optimizer) = pair("adamw")
    other.load_state_dict(loaded["model"])
    other_optimizer.load_state_dict(loaded["optimizer"])
    train(model, optimizer)
    train(other, other_optimizer)
    assert_same(model, other)


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, other = (nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)) for _ in range(2))
    torch.webgpu.flatten_parameters(model.to(DEVICE).parameters())
    safetensors.save_file(model.state_dict(), tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").stat().st_size < 32 * 4 + 400
    other.load_state_dict(safetensors.load_file(tmp_path / "model.safetensors"))
    for loaded, part in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(loaded, part.cpu())


def test_copies_of_the_model_are_apart():
    _, (model, optimizer) = pair("adamw")
    other = copy.deepcopy(model)
    before = copy.deepcopy(other.state_dict())
    train(model, optimizer)
    for name, value in other.state_dict().items():
        assert torch.equal(value, before[name])
    flat = torch.webgpu.flatten_parameters(other.parameters())
    assert sum(p.numel() for p in flat) >= sum(p.numel() for p in other.parameters())


def test_dtypes_and_devices_lie_apart():
    shapes = [((3, 5), torch.float32, DEVICE), ((4,), torch.float16, DEVICE)]
    shapes += [((9,), torch.float32, "cpu"), ((0, 3), torch.float32, DEVICE)]
    parts = [nn.Parameter(torch.rand(s).to(d, t)) for s, t, d in shapes]
    values = [p.detach().cpu().clone() for p in parts]
    flat = torch.webgpu.flatten_parameters(iter(parts))
    assert [(p.dtype, p.device.type, tuple(p.shape)) for p in flat] == [
        (torch.float32, DEVICE, (16,)),
        (torch.float16, DEVICE, (8,)),
        (torch.float32, "cpu", (12,)),
    ]
    for part, value in zip(parts, values, strict=True):
        assert torch.equal(part.detach().cpu(), value)
    for part in parts:
        part.grad = torch.ones_like(part)
    torch.optim.SGD(flat, lr=1.0).step()
    for part, value in zip(parts, values, strict=True):
        assert torch.equal(part.detach().cpu(), value - 1)


def test_a_flat_parameter_fits_a_binding(monkeypatch):
    from torch_webgpu.webgpu import flat_parameters

    monkeypatch.setattr(flat_parameters, "_most_bytes", lambda device: 64)
    parts = [nn.Parameter(torch.rand(n, device=DEVICE)) for n in (8, 7, 3, 40, 1)]
    flat = torch.webgpu.flatten_parameters(parts)
    assert [p.numel() for p in flat] == [16, 4, 40, 4]


def test_parts_without_a_gradient_are_an_error():
    parts = [nn.Parameter(torch.rand(n, device=DEVICE)) for n in (3, 4)]
    optimizer = torch.optim.SGD(torch.webgpu.flatten_parameters(parts), lr=1.0)
    optimizer.step()  # there is no gradient at all: nothing to do
    parts[0].sum().backward()
    with pytest.raises(RuntimeError, match=r"1 of the 2 parameters .* no gradient.*shape \(4,\)"):
        optimizer.step()


def test_a_moved_parameter_is_an_error():
    model = nn.Linear(3, 4).to(DEVICE)
    (flat,) = torch.webgpu.flatten_parameters(model.parameters())
    model.half()
    model.to(torch.float32)
    model(torch.rand(2, 3, device=DEVICE)).sum().backward()
    with pytest.raises(RuntimeError, match="does not lie in its flat parameter any more"):
        _ = flat.grad


@pytest.mark.parametrize("move", ["model", "data"])
def test_a_parameter_moved_after_a_step_is_an_error(move):
    """Also where its gradient is the object that was gathered."""
    model = nn.Linear(3, 4).to(DEVICE)
    (flat,) = torch.webgpu.flatten_parameters(model.parameters())
    optimizer = torch.optim.SGD([flat], lr=0.1)
    model(torch.rand(2, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    if move == "model":
        model.half()
        model.float()
    else:
        model.weight.data = model.weight.data.clone()
    with pytest.raises(RuntimeError, match="does not lie in its flat parameter any more"):
        optimizer.step()


@pytest.mark.parametrize(
    "change",
    [
        lambda weight, bias: setattr(weight.grad, "data", weight.grad.data * 0),
        lambda weight, bias: setattr(weight, "grad", weight.grad.detach()),
        lambda weight, bias: (
            setattr(weight, "grad", bias.grad.expand(4, 4) * 2),
            setattr(bias, "grad", bias.grad.flip(0)),
        ),
        lambda weight, bias: setattr(weight, "grad", bias.grad.expand(4, 4)),
    ],
)
def test_gradients_that_are_assigned_after_a_step(change):
    results = []
    for flat in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 4).to(DEVICE)
        params = model.parameters()
        optimizer = torch.optim.SGD(
            torch.webgpu.flatten_parameters(params) if flat else params, lr=0.1
        )
        (model(torch.rand(2, 4, device=DEVICE)).sum() * model.bias.sum()).backward()
        optimizer.step()
        change(model.weight, model.bias)
        optimizer.step()
        results.append([p.detach().cpu() for p in model.parameters()])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_a_step_with_some_gradients_can_be_taken_back():
    model = nn.Linear(3, 4).to(DEVICE)
    optimizer = torch.optim.SGD(torch.webgpu.flatten_parameters(model.parameters()), lr=0.1)
    model.weight.sum().backward()
    with pytest.raises(RuntimeError, match=r"zero_grad\(\) of the model"):
        optimizer.step()
    model.zero_grad()
    model(torch.rand(2, 3, device=DEVICE)).sum().backward()
    optimizer.step()


def test_what_cannot_be_flattened():
    def parameter(*shape):
        return nn.Parameter(torch.rand(*shape, device=DEVICE))

    flatten = torch.webgpu.flatten_parameters
    assert flatten([]) == []
    with pytest.raises(TypeError, match="not one tensor"):
        flatten(parameter(3))
    with pytest.raises(TypeError, match="not Tensor"):
        flatten([torch.rand(3)])
    with pytest.raises(ValueError, match="needs no gradient"):
        flatten([parameter(3).requires_grad_(False)])
    whole = torch.rand(8, device=DEVICE)
    with pytest.raises(ValueError, match="share memory"):
        flatten([nn.Parameter(whole[:5]), nn.Parameter(whole[4:])])
    assert len(flatten([nn.Parameter(whole[:4]), nn.Parameter(whole[4:])])) == 1
    one = parameter(3)
    with pytest.raises(ValueError, match="two groups"):
        flatten([{"params": [one]}, {"params": one}])
    flat = flatten([one, one])
    with pytest.raises(ValueError, match="already"):
        flatten([one])
    with pytest.raises(TypeError, match="not FlatParameter"):
        flatten(flat)
    with pytest.raises(RuntimeError, match="cannot be copied"):
        copy.deepcopy(flat)
    with pytest.raises(RuntimeError, match="cannot be saved"):
        torch.save(flat[0], io.BytesIO())
    one.grad = torch.ones_like(one)
    with pytest.raises(RuntimeError, match="Adafactor computes with whole parameters"):
        torch.optim.Adafactor(flat).step()
    del flat
    gc.collect()
    assert len(flatten([one])) == 1


def test_sparse_gradients_are_an_error():
    table = nn.Embedding(5, 3, sparse=True)
    (flat,) = torch.webgpu.flatten_parameters(table.parameters())
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match=r"no gradient of layout torch\.sparse_coo"):
        _ = flat.grad


def test_a_step_between_forward_and_backward_is_seen():
    for model, optimizer in pair("sgd"):
        x = torch.rand(2, 3, 4, 4, device=DEVICE)
        model(x).sum().backward()
        loss = model(x).square().sum()
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


# ---- Dispatches


def dispatches(step):
    torch.webgpu.synchronize()
    before = torch.webgpu.stats()["dispatches"]
    step()
    return torch.webgpu.stats()["dispatches"] - before


@pytest.mark.parametrize(("buffers", "most"), [(16, 9), (12, 11), (8, 16)])
def test_adamw_over_a_hundred_parameters(buffers, most):
    """A dispatch for 13 gradients, or for as many as there are buffers but one; one for the step,
    one for the step count."""
    parts = [nn.Parameter(torch.rand(16, 16, device=DEVICE)) for _ in range(100)]
    optimizer = torch.optim.AdamW(torch.webgpu.flatten_parameters(parts), fused=True)
    with wgsl.target(limits={"max_storage_buffers": buffers}):
        for _ in range(2):
            for part in parts:
                part.grad = torch.ones_like(part)
            used = dispatches(optimizer.step)
    assert used == most + 1


# ---- Graphs and torch.compile


def test_in_a_graph():
    x = batches(1)[0]
    results = []
    for model, optimizer in pair("adamw", "fused", capturable=True):

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        step()
        graph = torch.webgpu.Graph()
        with torch.webgpu.graph(graph):
            step()
        for _ in range(3):
            graph.replay()
        results.append(model)
    assert_same(*results)


def test_compiled():
    results = []
    for model, optimizer in pair("adamw", "foreach", capturable=True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        step = torch.compile(optimizer.step)
        for x in batches(4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            step()
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
        results.append(model)
    assert_same(*results)
    torch._dynamo.reset()

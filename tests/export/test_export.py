"""torch.webgpu.export: files for browsers, played from Python."""

import copy
import gc
import importlib.util
import itertools
import json
import os
import pathlib
import random
import re
import stat
import sys
import warnings
from typing import NamedTuple

import pytest
import safetensors
import torch
import torch.nn.functional as F
from common import DEVICE
from safetensors.torch import load_file, save_file
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from torch_webgpu.export._alive import alive
from torch_webgpu.graphs._format import PROGRAM_KEY

HERE = pathlib.Path(__file__).parent
# Those with sizes that a call decides are compiled, which takes longer.
FIXED_OR_SIZED = pytest.mark.parametrize(
    "sized", [False, pytest.param(True, marks=pytest.mark.long)]
)


def program_of(path):
    with safetensors.safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()[PROGRAM_KEY])


def only(path, keep):
    """A file with those variants that `keep`, which gets their requirements, keeps."""
    program = program_of(path)
    for function in program["functions"].values():
        function["variants"] = [v for v in function["variants"] if keep(v["requires"])]
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = {**file.metadata(), PROGRAM_KEY: json.dumps(program)}
    other = path.with_name(f"only-{path.name}")
    save_file(load_file(path), other, metadata=metadata)
    return other


class Pair(NamedTuple):
    values: torch.Tensor
    place: torch.Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 32)
        self.dropout = nn.Dropout(0.25)
        self.second = nn.Linear(32, 4)

    def forward(self, x):
        return self.second(self.dropout(self.first(x).relu()))


def training(make_optimizer):
    torch.manual_seed(0)
    model = Net().to(DEVICE)
    optimizer = make_optimizer(model.parameters())

    def step(x, target):
        model.train()
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    def classify(x):
        model.eval()
        with torch.no_grad():
            return model(x).argmax(1)

    return model, optimizer, {"step": step, "classify": classify}


def example():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8, 12, generator=generator)
    return x, torch.randint(0, 4, (8,), generator=generator)


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "SGD without momentum": lambda p: torch.optim.SGD(p, lr=0.1),
}


def plain(state):
    """A state dict with numbers in place of scalars on any device."""
    return {
        key: {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in part.items()}
        for key, part in state["state"].items()
    }


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_and_inference_share_a_file(tmp_path, kind):
    model, optimizer, functions = training(OPTIMIZERS[kind])
    x, target = example()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    options = [dict(group) for group in optimizer.param_groups]
    samples = {"step": {"x": x, "target": target}, "classify": [x]}
    state = {"model": model, "optimizer": optimizer}
    torch.webgpu.export(functions, samples, tmp_path / "m.twg", state=state)
    # Nothing was executed, and the optimizer is as it was.
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert optimizer.state == {}
    assert [dict(group) for group in optimizer.param_groups] == options

    graph = torch.webgpu.Graph.load(tmp_path / "m.twg")
    assert graph.functions == ("step", "classify")
    with pytest.raises(TypeError, match="say which"):
        graph(x=x)
    near = x.to(DEVICE), target.to(DEVICE)
    for rate in (None, None, 1e-3, None):
        if rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate
        given = {} if rate is None else {"lr": torch.tensor(rate)}
        loss = graph["step"](x=x, target=target, **given)["loss"]
        torch.testing.assert_close(loss, functions["step"](*near)["loss"])
        predicted = graph["classify"](x=x)["output"]
        assert torch.equal(predicted, functions["classify"](near[0]))
    states = graph.state()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(states["model"][name], value)
    # The saved optimizer goes on where that of the file is.
    assert states["optimizer"]["param_groups"][0]["lr"] == options[0]["lr"]
    model.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    torch.testing.assert_close(
        plain(states["optimizer"]), plain(optimizer.state_dict()), rtol=1e-4, atol=1e-6
    )


def test_what_every_browser_can_play(tmp_path):
    _, optimizer, functions = training(OPTIMIZERS["Adam"])
    x, target = example()
    torch.webgpu.export(
        functions["step"], [x, target], tmp_path / "m.twg", state={"optimizer": optimizer}
    )
    variants = program_of(tmp_path / "m.twg")["functions"]["step"]["variants"]
    least = variants[-1]["requires"]
    assert "features" not in least and "language_features" not in least
    assert least["limits"]["maxStorageBuffersPerShaderStage"] <= 8
    assert least["limits"]["maxStorageBufferBindingSize"] <= 128 << 20
    assert least["limits"]["maxComputeInvocationsPerWorkgroup"] <= 256
    assert least["limits"]["maxComputeWorkgroupStorageSize"] <= 16384
    assert least["limits"]["minStorageBufferOffsetAlignment"] >= 256
    has = torch.webgpu.get_device_properties().features
    asked = [set(variant["requires"].get("features", [])) for variant in variants]
    assert ({"subgroups"} in asked) == ("subgroups" in has)


def test_a_variant_for_more_workgroup_memory(tmp_path):
    """Nearly all GPUs have more than the least, which the fastest products do not fit."""
    a, b = (torch.randn(256, 256, device=DEVICE) for _ in range(2))
    torch.webgpu.export(lambda a, b: a @ b, [a, b], tmp_path / "m.twg")
    (function,) = program_of(tmp_path / "m.twg")["functions"].values()
    limits = [variant["requires"]["limits"] for variant in function["variants"]]
    memory = [each["maxComputeWorkgroupStorageSize"] for each in limits]
    assert memory[-1] <= 16384 < memory[-2] <= 32768


def test_software_adapters_have_a_variant(tmp_path):
    """A file plays the same with that variant, which others decline, and without it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 64), nn.LayerNorm(64), nn.Linear(64, 10), nn.Softmax(-1))
    model.to(DEVICE).requires_grad_(False)
    x = torch.randn(5, 96)
    torch.webgpu.export(model, [x], tmp_path / "m.twg")
    program = program_of(tmp_path / "m.twg")
    (function,) = program["functions"].values()
    asked = [variant["requires"].get("software", False) for variant in function["variants"]]
    assert asked[0] and not any(asked[1:])
    used = {c["shader"] for c in function["variants"][0]["commands"] if c["do"] == "dispatch"}
    assert not any("workgroupBarrier" in program["shaders"][k]["wgsl"] for k in used)
    wanted = model(x.to(DEVICE))
    software = torch.webgpu.Graph.load(tmp_path / "m.twg")(input=x)["output"]
    torch.testing.assert_close(software, wanted)
    path = only(tmp_path / "m.twg", lambda r: not r.get("software"))
    others = torch.webgpu.Graph.load(path)(input=x)["output"]
    torch.testing.assert_close(others, wanted)


HALVES = {
    "product": lambda x, w: x @ w,
    "product of few rows": lambda x, w: x[:3] @ w,
    "pointwise": lambda x, w: (x.exp() + 1).sin(),
    "softmax": lambda x, w: x.softmax(-1),
    "norm": lambda x, w: F.layer_norm(x, (64,)),
    "convolution": lambda x, w: F.conv2d(x.view(1, 4, 32, 32), w.view(16, 4, 8, 8)[..., :3, :3]),
    "attention": lambda x, w: F.scaled_dot_product_attention(*[x.view(1, 2, 32, 64)] * 3),
}


@pytest.mark.parametrize("name", HALVES)
def test_half_floats_on_devices_with_and_without_them(tmp_path, name):
    x, w = torch.randn(64, 64).half(), torch.randn(64, 64).half()
    near = w.to(DEVICE)
    torch.webgpu.export(lambda x: HALVES[name](x, near), [x], tmp_path / "m.twg")
    program = program_of(tmp_path / "m.twg")
    (function,) = program["functions"].values()
    asked = [variant["requires"].get("features", []) for variant in function["variants"]]
    plain = [
        k
        for k, v in enumerate(function["variants"])
        if not asked[k] and not v["requires"].get("software")
    ]
    assert plain[-1] == len(asked) - 1
    has = torch.webgpu.get_device_properties().features
    if "shader-f16" in has:
        assert asked.index(["shader-f16"]) < plain[0]
        path = only(tmp_path / "m.twg", lambda r: r.get("features") == ["shader-f16"])
        (function,) = program_of(path)["functions"].values()
        commands = [c for v in function["variants"] for c in v["commands"]]
        numbers = {c["shader"] for c in commands if c["do"] == "dispatch"}
        texts = [program["shaders"][number]["wgsl"] for number in numbers]
        assert any("enable f16;" in text and "f16(" in text for text in texts)
        native = torch.webgpu.Graph.load(path)(x=x)["output"].cpu()
    path = only(tmp_path / "m.twg", lambda r: not r.get("features"))
    result = torch.webgpu.Graph.load(path)(x=x)["output"].cpu()
    torch.testing.assert_close(result, HALVES[name](x, w), rtol=5e-3, atol=5e-3)
    if "shader-f16" in has:
        torch.testing.assert_close(native, result, rtol=2e-3, atol=2e-3)


def test_programs_without_half_floats_ask_for_none(tmp_path):
    runs = []

    def forward(x):
        runs.append(1)
        return F.scaled_dot_product_attention(*[(x @ x).view(1, 2, 32, 64)] * 3)

    torch.webgpu.export(forward, [torch.randn(64, 64)], tmp_path / "m.twg")
    (function,) = program_of(tmp_path / "m.twg")["functions"].values()
    asked = {f for v in function["variants"] for f in v["requires"].get("features", [])}
    assert "shader-f16" not in asked
    # For all browsers, for those with more memory, with subgroups, for CPUs, and twice again.
    assert len(runs) <= 6


def test_every_half_float_is_converted(tmp_path):
    """All of them, and what lies between two."""
    if "shader-f16" not in torch.webgpu.get_device_properties().features:
        pytest.skip("the device has no half floats")
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16)
    halves = bits.view(torch.float16)
    floats = torch.cat([halves.float(), halves.float() * (1 + 2**-12), torch.randn(1000) * 65504])

    def forward(halves, floats):
        return {"floats": halves.float(), "halves": floats.half()}

    torch.webgpu.export(forward, [halves, floats], tmp_path / "m.twg")
    path = only(tmp_path / "m.twg", lambda r: r.get("features") == ["shader-f16"])
    results = torch.webgpu.Graph.load(path)(halves=halves, floats=floats)
    torch.testing.assert_close(
        results["floats"].cpu(), halves.float(), rtol=0, atol=0, equal_nan=True
    )
    torch.testing.assert_close(
        results["halves"].cpu(), floats.half(), rtol=0, atol=0, equal_nan=True
    )


def test_variants_for_the_subgroups_of_usual_gpus(tmp_path):
    """Whatever subgroups the device that exports has."""
    if "subgroups" not in torch.webgpu.get_device_properties().features:
        pytest.skip("the device has no subgroups")
    w = torch.randn(512, 512, device=DEVICE)
    torch.webgpu.export(lambda x: x @ w, [torch.randn(1, 512)], tmp_path / "m.twg")
    (function,) = program_of(tmp_path / "m.twg")["functions"].values()
    asked = [v["requires"] for v in function["variants"]]
    sizes = [r["subgroup_size"] for r in asked if "subgroups" in r.get("features", [])]
    assert [32, 128] in sizes
    # WGSL lets texts use it without a line that says so.
    program = program_of(tmp_path / "m.twg")
    for variant in function["variants"]:
        numbers = {c["shader"] for c in variant["commands"] if c["do"] == "dispatch"}
        uses = any("builtin(subgroup_id)" in program["shaders"][n]["wgsl"] for n in numbers)
        assert ("subgroup_id" in variant["requires"].get("language_features", [])) == uses
    assert all("subgroup_size" not in r for r in asked if not r.get("features"))


def test_shaders_that_need_more_than_they_say_are_found(no_shaders, tmp_path):
    head = "@group(0) @binding(0) var<storage, read_write> o: array<u32>;\n"
    main = "@compute @workgroup_size(1) fn main"
    texts = {
        "nothing": f"{head}{main}() {{ o[0] = 1u; }}",
        "f16": f"enable f16;\n{head}{main}() {{ o[0] = u32(f16(o[1])); }}",
        "indexing": f"{head}{main}(@builtin(global_invocation_index) i: u32) {{ o[i] = i; }}",
        "packed": f"{head}{main}() {{ o[0] = dot4U8Packed(o[1], o[2]); }}",
        "composite": f"{head}{main}() {{ var a = vec2(1u); let p = &a; o[0] = p.x; }}",
        "pointer": f"{head}fn f(p: ptr<storage, u32, read_write>) {{ *p = 1u; }}\n"
        f"{main}() {{ f(&o[1]); }}",
    }
    for label, text in texts.items():
        no_shaders.add(label, text, {"features": []})
    wrong = {
        text.partition(":")[0]
        for compiler in ("wgpu", "wgpudawn")
        for text in no_shaders.complaints(compiler, tmp_path)
    }
    assert wrong == texts.keys() - {"nothing"}


def test_names_of_outputs(tmp_path):
    x = torch.randn(4, device=DEVICE)
    for function, names in [
        (lambda x: x * 2, ["output"]),
        (lambda x: (x * 2, x.t() + 1), ["output0", "output1"]),
        (lambda x: {"twice": x * 2}, ["twice"]),
        (lambda x: Pair(x * 2, x.argmax()), ["values", "place"]),
    ]:
        torch.webgpu.export(function, {"x": x}, tmp_path / "f.twg")
        assert list(torch.webgpu.Graph.load(tmp_path / "f.twg")(x=x)) == names
    torch.webgpu.export(lambda x: x.view(2, 2).t(), [x + 0], tmp_path / "f.twg")
    result = torch.webgpu.Graph.load(tmp_path / "f.twg")(x=x)["output"]
    assert torch.equal(result, x.view(2, 2).t())


def test_types(tmp_path):
    _, optimizer, functions = training(OPTIMIZERS["Adam"])
    x, target = example()
    samples = {"step": {"x": x, "target": target}, "classify": {"x": x}}
    path = tmp_path / "m.twg"
    torch.webgpu.export(functions, samples, path, state={"optimizer": optimizer})
    text = (tmp_path / "m.twg.d.ts").read_text()
    step, classify = text.split("classify(")
    for line in ('x: InputOf<"F32">', 'target: InputOf<"I64">', 'lr?: InputOf<"F32">', "seed0?"):
        assert line in step
    assert "seed0" not in classify and 'output: OutputOf<"I64">' in classify
    assert 'export type States = "optimizer";' in text


def test_errors_name_the_line(tmp_path):
    x = torch.randn(4, device=DEVICE)

    def chosen(x):
        return x[x > 0]  # of a size that depends on the data

    with pytest.raises(RuntimeError, match=r"cannot export chosen(.|\n)*return x\[x > 0\]"):
        torch.webgpu.export(chosen, [x], tmp_path / "f.twg")
    assert not (tmp_path / "f.twg").exists()
    assert (x + 1).numel() == 4


def test_bad_arguments(tmp_path):
    x = torch.randn(4, device=DEVICE)
    path = tmp_path / "f.twg"
    with pytest.raises(TypeError, match="must be a tensor"):
        torch.webgpu.export(lambda x: x * 2, {"x": 3}, path)
    with pytest.raises(ValueError, match="another thing"):
        torch.webgpu.export({"state": lambda x: x * 2}, [x], path)
    with pytest.raises(ValueError, match="no identifier"):
        torch.webgpu.export({"a b": lambda x: x * 2}, [x], path)
    with pytest.raises(TypeError, match="by its name"):
        torch.webgpu.export({"a": torch.sin, "b": torch.cos}, {"a": [x]}, path)
    with pytest.raises(TypeError, match="is a float"):
        torch.webgpu.export(lambda x: {"y": 1.0}, [x], path)
    model = nn.Linear(4, 4).to(DEVICE)
    nadam = torch.optim.NAdam(model.parameters())

    def step(x):
        model(x).sum().backward()
        nadam.step()
        return x * 2

    with pytest.raises(ValueError, match="NAdam"):
        torch.webgpu.export(step, [x], path, state={"optimizer": nadam})


def test_generators_with_equal_seeds(tmp_path):
    first, second = (torch.Generator(DEVICE).manual_seed(5) for _ in range(2))

    def draw(x):
        a = torch.empty_like(x).uniform_(generator=first)
        b = torch.empty_like(x).uniform_(generator=second)
        return a + x, b + x, torch.empty_like(x).uniform_(generator=first) + x

    x = torch.zeros(100, device=DEVICE)
    torch.webgpu.export(draw, [x], tmp_path / "f.twg")
    graph = torch.webgpu.Graph.load(tmp_path / "f.twg")
    assert graph.numbers == ("seed0", "offset0", "seed1", "offset1")
    for _ in range(3):
        results = list(graph(x=x).values())
        for mine, wanted in zip(results, draw(x), strict=True):
            assert torch.equal(mine, wanted)


def test_load_state_refuses_what_is_none(tmp_path):
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "a")
    with pytest.raises(ValueError, match="holds no states"):
        torch.webgpu.load_state(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot load"):
        torch.webgpu.load_state(tmp_path / "b")


def test_a_first_step_needs_the_optimizer_in_state(tmp_path):
    model, optimizer, functions = training(OPTIMIZERS["Adam"])
    for group in optimizer.param_groups:
        group["capturable"] = True  # or the capture itself is refused
    x, target = example()
    path = tmp_path / "m.twg"
    samples = {"x": x, "target": target}
    with pytest.raises(RuntimeError, match=r"each call would start it anew(.|\n)*optimizer.step"):
        torch.webgpu.export(functions["step"], samples, path, state={"model": model})
    assert not path.exists()
    assert not optimizer.state

    # One that has stepped goes on from where it is, also outside of `state`.
    functions["step"](x.to(DEVICE), target.to(DEVICE))
    torch.webgpu.export(functions["step"], samples, path, state={"model": model})


def _sized(function, sized):
    return {"dynamic_shapes": {function: {"x": {0: torch.export.Dim("b", max=8)}}}} if sized else {}


def test_schedulers_and_optimizers_of_others(tmp_path):
    """Some schedulers count no steps. What a refused function changed is as before."""
    rates = torch.optim.lr_scheduler
    model = nn.Linear(4, 3).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = rates.ReduceLROnPlateau(optimizer, patience=0)
    halving = rates.ExponentialLR(optimizer, 0.5)
    chained = rates.ChainedScheduler([halving])
    torch.webgpu.export(model, torch.randn(2, 4), tmp_path / "m.twg")

    def halve():
        optimizer.param_groups[0]["lr"] *= 0.5

    for change, text in (
        (halve, "option 'lr' of a SGD"),
        (chained.step, "a ExponentialLR stepped"),
        (lambda: plateau.step(1.0), "a ReduceLROnPlateau stepped"),
    ):

        def step(x, change=change):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            change()

        with pytest.raises(RuntimeError, match=text):
            torch.webgpu.export(step, torch.randn(2, 4), tmp_path / "s.twg", state={"m": model})
        assert optimizer.param_groups[0]["lr"] == 0.1


def test_leaves_without_memory(tmp_path):
    """Dynamo keeps fake tensors with gradients, which are found among the leaves."""
    with FakeTensorMode():
        fake = torch.ones(10, device=DEVICE, requires_grad=True)
        fake.grad = torch.ones(10, device=DEVICE)
    empty = torch.ones(0, device=DEVICE, requires_grad=True)
    empty.grad = torch.ones(0, device=DEVICE)
    model = nn.Linear(4, 3).to(DEVICE)
    torch.webgpu.export(model, torch.randn(2, 4), tmp_path / "m.twg")
    assert fake.grad is not None and empty.grad is not None


def check_calls(path, functions, calls, state, sized=False):
    """Plays calls of exported functions, and makes them here: results and states are the same.

    functions: by name, with an example.
    """
    inputs = {name: example for name, (_, example) in functions.items()}
    shapes = {
        name: {label: {0: torch.export.Dim("b", min=2, max=8)} for label in example}
        for name, example in inputs.items()
    }
    dynamic = (shapes if len(shapes) > 1 else next(iter(shapes.values()))) if sized else None
    called = {name: function for name, (function, _) in functions.items()}
    torch.webgpu.export(called, inputs, path, state=state, dynamic_shapes=dynamic)
    played = torch.webgpu.Graph.load(path)
    generator = torch.Generator().manual_seed(2)
    for name in calls:
        given = {k: torch.randn(x.shape, generator=generator) for k, x in inputs[name].items()}
        expected = called[name](**{k: x.to(DEVICE) for k, x in given.items()})
        results = played[name](**given)
        assert results.keys() == expected.keys()
        for label, value in expected.items():
            torch.testing.assert_close(results[label], value.detach(), rtol=1e-4, atol=1e-5)
    for name, holder in state.items():
        if isinstance(holder, nn.Module):
            for label, value in holder.state_dict().items():
                kept = played.state()[name][label].to(DEVICE)
                torch.testing.assert_close(kept, value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("apart", "to_none", "sized"),
    [
        (False, False, False),
        (False, True, False),
        (True, False, False),
        (True, True, False),
        pytest.param(False, False, True, marks=pytest.mark.long),
        (True, True, True),
    ],
)
def test_gradients_that_another_step_leaves(tmp_path, apart, to_none, sized):
    """Each step of a GAN leaves gradients in the other network, which zeroes them first."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4)).to(DEVICE)
    judge = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).to(DEVICE)
    making = torch.optim.Adam(maker.parameters(), lr=1e-2)
    judging = torch.optim.Adam(judge.parameters(), lr=1e-2)

    def judged(x, z):
        judging.zero_grad(set_to_none=to_none)
        loss = F.softplus(-judge(x)).mean() + F.softplus(judge(maker(z))).mean()
        loss.backward()
        judging.step()
        return {"judged": loss}

    def made(z):
        making.zero_grad(set_to_none=to_none)
        loss = F.softplus(-judge(maker(z))).mean()
        loss.backward()
        making.step()
        return {"made": loss}

    def both(x, z):
        return {**judged(x, z), **made(z)}

    x, z = torch.randn(8, 4), torch.randn(8, 3)
    functions = {"made": (made, {"z": z}), "judged": (judged, {"x": x, "z": z})}
    calls = ["judged", "made", "made", "judged", "judged", "made"]
    if not apart:
        functions, calls = {"both": (both, {"x": x, "z": z})}, ["both"] * 3
    state = {"maker": maker, "judge": judge, "making": making, "judging": judging}
    check_calls(tmp_path / "m.twg", functions, calls, state, sized)


def small(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).to(DEVICE)
    return model, kind(model.parameters(), lr=0.1)


@FIXED_OR_SIZED
def test_gradients_that_nothing_reads(tmp_path, sized):
    model, optimizer = small(torch.optim.SGD)

    def slopes(x):
        x.requires_grad_()
        loss = model(x).square().sum()
        loss.backward()  # adds to gradients of parameters as well
        return {"loss": loss, "slopes": x.grad}

    def robust(x):
        slopes = torch.autograd.grad(model(x.requires_grad_()).sum(), x)[0]
        optimizer.zero_grad()
        loss = model((x + slopes.sign()).detach()).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return {"loss": loss, "norm": norm, "gradient": model[0].weight.grad}

    x = {"x": torch.randn(8, 4)}
    state = {"model": model, "optimizer": optimizer}
    functions = {"slopes": (slopes, x), "robust": (robust, x)}
    calls = ["slopes", "robust", "slopes", "slopes", "robust", "robust"]
    check_calls(tmp_path / "m.twg", functions, calls, state, sized)


@FIXED_OR_SIZED
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_steps_without_gradients_do_nothing(tmp_path, kind, sized):
    model, optimizer = small(kind)
    other = kind(model.parameters(), lr=0.1)  # which is not among the states

    def step(x):
        optimizer.step()
        other.step()
        return {"y": model(x)}

    state = {"model": model, "optimizer": optimizer}
    check_calls(
        tmp_path / "m.twg", {"step": (step, {"x": torch.randn(8, 4)})}, ["step"] * 2, state, sized
    )


def test_gradients_that_are_filled(tmp_path):
    """Of memory that is given new values wholly, nothing of before is read."""
    model, optimizer = small(torch.optim.Adam)

    def filled(x):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.fill_(0)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    def copied(x):
        loss = model(x).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            if p.grad is None:
                p.grad = torch.empty_like(p)
            p.grad.copy_(gradient)
        optimizer.step()
        return {"loss": loss}

    def partly(x):
        for p in model.parameters():
            if p.grad is not None:
                p.grad[:1].zero_()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    x = {"x": torch.randn(8, 4)}
    state = {"model": model, "optimizer": optimizer}
    functions = {"filled": (filled, x), "copied": (copied, x)}
    check_calls(tmp_path / "m.twg", functions, ["filled", "copied", "filled"], state)
    model.zero_grad()
    with pytest.raises(RuntimeError, match="a call reads gradients"):
        torch.webgpu.export(partly, x, tmp_path / "m.twg", state=state)


@FIXED_OR_SIZED
def test_gradients_of_the_call_before(tmp_path, sized):
    model = nn.Linear(8, 3).to("webgpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path, x = tmp_path / "step.twg", torch.randn(4, 8)
    state = {"model": model, "optimizer": optimizer}

    def add(x):
        loss = model(x).square().mean()
        loss.backward()
        return {"loss": loss}

    def size(x):
        return {**add(x), "size": model.weight.grad.norm()}

    def sum_up(x):
        add(x)
        return {"gradient": model.weight.grad}

    def begin(x):
        optimizer.zero_grad()
        return add(x)

    def forgetful(x):
        result = add(x)
        optimizer.step()
        return result

    def step():
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return {}

    def export(**functions):
        inputs = {name: {"x": x} if name != "step" else {} for name in functions}
        sizes = _sized(next(name for name in functions if name != "step"), sized)
        torch.webgpu.export(functions, inputs, path, state=state, **sizes)

    read = "a call reads gradients that an earlier call has left, those of 'weight' "
    for function in (size, sum_up):
        name = function.__name__
        with pytest.raises(RuntimeError, match=f"cannot export {name}: {read}of 'model'"):
            export(**{name: function})
    both = f"{read}of 'model' and 'bias' of 'model'"
    with pytest.raises(RuntimeError, match=rf"{both}(?s:.*)optimizer.step\(\)$"):
        export(forgetful=forgetful)
    for functions in (
        {"add": add, "step": step},
        {"begin": begin, "step": step},
        {"step": step, "begin": begin},
        {"begin": begin, "forgetful": forgetful},
    ):
        with pytest.raises(RuntimeError, match=both):
            export(**functions)
    export(begin=begin)
    export(add=add)
    assert all(p.grad is None for p in model.parameters())

    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    # What begin() computes is not where step() reads.
    with pytest.raises(RuntimeError, match=both):
        export(begin=begin, step=step)
    export(add=add, step=step)
    played = torch.webgpu.Graph.load(path)
    for _ in range(3):
        for _ in range(2):
            torch.testing.assert_close(
                played["add"](x=x.to("webgpu"))["loss"], add(x.to("webgpu"))["loss"]
            )
        played["step"]()
        step()


@FIXED_OR_SIZED
def test_whether_there_are_gradients(tmp_path, sized):
    """Adam moves by zeros that a call before has left, and skips what has none."""
    model, optimizer = small(torch.optim.Adam)

    def train(x, through):
        optimizer.zero_grad(set_to_none=False)
        loss = through(x).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    functions = {
        "first": lambda x: train(x, model[0]),
        "all": lambda x: train(x, model),
    }
    inputs = {name: {"x": torch.randn(8, 4)} for name in functions}
    state = {"model": model, "optimizer": optimizer}
    sizes = _sized("first", sized)
    with pytest.raises(RuntimeError, match=r"how a call changes '2\.weight' of 'model' and '2\.b"):
        torch.webgpu.export(functions, inputs, tmp_path / "m.twg", state=state, **sizes)

    def tells(x):
        has_one = model[0].weight.grad is not None
        train(x, model)
        return {"y": x, "again": x} if has_one else {"y": x}

    x = {"x": torch.randn(8, 4)}
    with pytest.raises(RuntimeError, match="which outputs a call has"):
        torch.webgpu.export(tells, x, tmp_path / "m.twg", state=state)


def step_of(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return step


@FIXED_OR_SIZED
def test_what_python_counts_is_no_part_of_a_step(tmp_path, sized):
    model = nn.Linear(8, 3).to("webgpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    path, x = tmp_path / "step.twg", torch.randn(4, 8)

    step = step_of(model, optimizer)

    def schedule(x):
        result = step(x)
        scheduler.step()
        return result

    def decay(x):
        result = step(x)
        optimizer.param_groups[0]["weight_decay"] += 0.5
        return result

    state = {"model": model, "optimizer": optimizer}
    for function, text in ((schedule, "a StepLR stepped"), (decay, "option 'weight_decay' of")):
        name = function.__name__
        with pytest.raises(RuntimeError, match=text):
            torch.webgpu.export(
                {name: function}, {"x": x}, path, state=state, **_sized(name, sized)
            )
        assert scheduler.last_epoch == 0
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert optimizer.param_groups[0]["weight_decay"] == 0.01
    assert not path.exists()


def test_zeros_at_the_end_of_memory_are_not_stored(tmp_path):
    weight = torch.zeros(100_003)
    weight[[5, 70_000, 70_001]] = torch.tensor([1.0, -2.0, 3.0])
    empty = torch.zeros(1000)
    on_device = weight.to(DEVICE), empty.to(DEVICE)

    def function(x):
        return {"a": on_device[0] + x, "b": on_device[1] + x}

    path = tmp_path / "f.twg"
    torch.webgpu.export(function, {"x": torch.zeros(1)}, path)
    assert 4 * 70_002 < path.stat().st_size < 4 * 70_002 + 40_000
    played = torch.webgpu.Graph.load(path)["function"](x=torch.ones(1))
    assert torch.equal(played["a"].cpu(), weight + 1)
    assert torch.equal(played["b"].cpu(), empty + 1)


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_adam_is_captured_in_its_fused_form(tmp_path, name, amsgrad):
    kind = getattr(torch.optim, name)
    model, optimizer, functions = training(
        lambda p: kind(p, lr=0.02, weight_decay=0.1, amsgrad=amsgrad)
    )
    model.dropout.p = 0.0
    reference = Net().double()
    reference.load_state_dict(model.state_dict())
    reference.dropout.p = 0.0
    exact = kind(reference.parameters(), lr=0.02, weight_decay=0.1, amsgrad=amsgrad)
    x, target = example()
    path = tmp_path / "m.twg"
    state = {"model": model, "optimizer": optimizer}
    before = [dict(group) for group in optimizer.param_groups]
    torch.webgpu.export(functions["step"], {"x": x, "target": target}, path, state=state)
    assert [dict(group) for group in optimizer.param_groups] == before
    labels = {shader["label"] for shader in program_of(path)["shaders"]}
    assert not labels & {"addcdiv", "lerp_kernel_scalar_weight"}, labels

    step = torch.webgpu.Graph.load(path)["step"]
    for _ in range(10):
        loss = F.cross_entropy(reference(x.cpu().double()), target.cpu())
        exact.zero_grad()
        loss.backward()
        exact.step()
        played = step(x=x, target=target)["loss"].cpu().double()
        torch.testing.assert_close(played, loss.detach(), rtol=1e-5, atol=1e-6)


def test_what_an_export_leaves_behind(tmp_path):
    torch.manual_seed(0)
    a, b, outside = (nn.Parameter(torch.randn(4).to(DEVICE)) for _ in range(3))
    optimizer = torch.optim.Adam([a, b])
    a.square().sum().backward()
    optimizer.step()  # b has no state
    before = {name: x.clone() for name, x in optimizer.state[a].items()}
    outside.grad = torch.ones(4, device=DEVICE)
    kept = outside.grad

    def step(x):
        optimizer.zero_grad()
        loss = (a * x + b * outside).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    path = tmp_path / "m.twg"
    torch.webgpu.export(step, {"x": torch.ones(4)}, path, state={"optimizer": optimizer})
    assert list(optimizer.state) == [a]
    for name, x in before.items():
        torch.testing.assert_close(optimizer.state[a][name], x)
    assert outside.grad is kept
    assert kept.cpu().tolist() == [1.0] * 4
    assert b.grad is None


def test_files_have_nothing_of_tensors_that_are_gone(tmp_path):
    secret = torch.full((520_000,), 12345.678).to(DEVICE)
    torch.webgpu.synchronize()
    del secret
    t = torch.zeros(500_003).to(DEVICE)
    t[0] = 1
    path = tmp_path / "f.twg"
    torch.webgpu.export(lambda x: x * 2 + t[:8], {"x": torch.zeros(8)}, path)
    with safetensors.safe_open(path, framework="pt") as file:
        stored = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118
    assert stored
    for x in stored:
        words = x[: x.numel() // 4 * 4].view(torch.float32)
        assert not words.eq(12345.678).any()


def test_an_optimizer_that_the_function_makes_starts_anew(tmp_path):
    target = torch.arange(4.0).to(DEVICE)

    def fit(x):
        value = x.clone().requires_grad_()
        optimizer = torch.optim.Adam([value], lr=0.1, capturable=True)
        for _ in range(3):
            optimizer.zero_grad()
            (value - target).square().sum().backward()
            optimizer.step()
        return value

    path = tmp_path / "f.twg"
    torch.webgpu.export(fit, {"x": torch.zeros(4)}, path)
    loaded = torch.webgpu.Graph.load(path)
    for start in (torch.zeros(4), torch.ones(4)):
        actual = loaded["fit"](x=start)["output"].cpu()
        torch.testing.assert_close(actual, fit(start.to(DEVICE)).detach().cpu())


def test_numbers_of_optimizers_move_to_the_device(tmp_path):
    # NAdam keeps two numbers for each parameter on the CPU, and does not start with zeros.
    model, optimizer, functions = training(lambda p: torch.optim.NAdam(p, lr=0.01))
    x, target = example()
    functions["step"](x.to(DEVICE), target.to(DEVICE))
    numbers = [s["mu_product"] for s in optimizer.state.values()]
    path = tmp_path / "m.twg"
    samples = {"x": x, "target": target}
    torch.webgpu.export(
        functions["step"], samples, path, state={"model": model, "optimizer": optimizer}
    )
    assert all(s["mu_product"] is n for s, n in zip(optimizer.state.values(), numbers, strict=True))
    loaded = torch.webgpu.Graph.load(path)
    for _ in range(2):
        loaded["step"](x=x, target=target)


def test_nested_and_absent_outputs(tmp_path):
    def step(x):
        return {"loss": x.sum(), "hidden": (x + 1, {"c": x - 1}), "pairs": [(x * 2,)], "none": None}

    x = torch.randn(3)
    torch.webgpu.export(step, [x], tmp_path / "m.twg")
    results = torch.webgpu.Graph.load(tmp_path / "m.twg")(x=x)
    assert list(results) == ["loss", "hidden0", "hidden1_c", "pairs0_0"]
    torch.testing.assert_close(results["hidden1_c"].cpu(), x - 1)
    torch.testing.assert_close(results["pairs0_0"].cpu(), x * 2)

    torch.webgpu.export(lambda x: None, [x], tmp_path / "m.twg")
    assert torch.webgpu.Graph.load(tmp_path / "m.twg")(x=x) == {}
    with pytest.raises(TypeError, match="the output 'a0' is a float"):
        torch.webgpu.export(lambda x: {"a": [0.5]}, [x], tmp_path / "m.twg")
    with pytest.raises(ValueError, match="two outputs are called 'a0'"):
        torch.webgpu.export(lambda x: {"a": [x], "a0": x + 1}, [x], tmp_path / "m.twg")


def test_inputs_that_are_not_used(tmp_path):
    def forward(x, mask, kinds):
        return {"y": x * 2, "mask": mask}

    given = {"x": torch.randn(3), "mask": torch.tensor([True, False]), "kinds": torch.arange(4)}
    torch.webgpu.export(forward, given, tmp_path / "m.twg")
    text = (tmp_path / "m.twg.d.ts").read_text()
    assert re.findall(r"/\*\* (.*); not used \*/\s*(\w+)", text) == [("I64[4]", "kinds")]
    graph = torch.webgpu.Graph.load(tmp_path / "m.twg")
    assert list(graph.inputs) == ["x", "mask", "kinds"]
    results = graph(**given)
    torch.testing.assert_close(results["y"].cpu(), given["x"] * 2)
    assert results["mask"].tolist() == [True, False]
    with pytest.raises(ValueError, match="kinds"):
        graph(**{**given, "kinds": torch.arange(5)})


def test_tensors_without_elements(tmp_path):
    def forward(x, rest):
        return {"all": torch.cat([x, rest]), "twice": rest * 2}

    given = {"x": torch.randn(3, 2), "rest": torch.zeros(0, 2)}
    torch.webgpu.export(forward, given, tmp_path / "m.twg")
    results = torch.webgpu.Graph.load(tmp_path / "m.twg")(**given)
    torch.testing.assert_close(results["all"].cpu(), given["x"])
    assert results["twice"].shape == (0, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no umask")
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_files_have_the_mode_of_other_new_files(tmp_path, mask):
    """Web servers, which run as other users, have to read them."""
    before = os.umask(mask)
    try:
        torch.webgpu.export(lambda x: x + 1, [torch.ones(2)], tmp_path / "m.twg")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m.twg").stat().st_mode) == 0o666 & ~mask


def test_adagrad(tmp_path):
    """It counts steps, and has a learning rate, that other forms of it read on the host."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    near = copy.deepcopy(model).to(DEVICE)

    def training(model):
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, lr_decay=0.2)

        def step(x):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        return optimizer, step

    optimizer, step = training(near)
    _, expected = training(model)
    state = {"model": near, "optimizer": optimizer}
    torch.webgpu.export(step, [torch.randn(5, 4)], tmp_path / "m.twg", state=state)
    assert optimizer.param_groups[0]["fused"] is None
    graph = torch.webgpu.Graph.load(tmp_path / "m.twg")
    for _ in range(4):
        x = torch.randn(5, 4)
        torch.testing.assert_close(graph(x=x)["loss"].cpu(), expected(x)["loss"])
    assert graph.state()["optimizer"]["state"][0]["step"].item() == 4


SCALED = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("kind", SCALED)
def test_gradient_scaling(tmp_path, kind, clips):
    """Steps with infinite gradients are left out on the device, and the scale follows."""
    torch.manual_seed(0)
    near = nn.Linear(4, 3).to(DEVICE)
    other = copy.deepcopy(near)

    def training(model):
        optimizer = SCALED[kind](model.parameters())
        scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0, growth_interval=2)

        def step(x):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if clips:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            return {"loss": loss}

        return optimizer, scaler, step

    optimizer, scaler, step = training(near)
    _, expected_scaler, expected = training(other)
    with pytest.raises(RuntimeError, match="GradScaler has not scaled before"):
        torch.webgpu.export(
            step, [torch.randn(5, 4)], tmp_path / "m.twg", state={"optimizer": optimizer}
        )
    optimizer, scaler, step = training(near)
    state = {"model": near, "optimizer": optimizer, "scaler": scaler}
    torch.webgpu.export(step, [torch.randn(5, 4)], tmp_path / "m.twg", state=state)
    assert scaler._scale is None
    graph = torch.webgpu.Graph.load(tmp_path / "m.twg")
    for is_infinite in (False, True, False, False, False):
        x = torch.full((5, 4), 1e30) if is_infinite else torch.randn(5, 4)
        torch.testing.assert_close(graph(x=x)["loss"], expected(x.to(DEVICE))["loss"])
    states = graph.state()
    scaler.load_state_dict(states["scaler"])
    scaler.scale(torch.ones(1, device=DEVICE))
    assert scaler.get_scale() == expected_scaler.get_scale() == 1024.0
    assert scaler._get_growth_tracker() == expected_scaler._get_growth_tracker() == 1
    for name, value in other.state_dict().items():
        torch.testing.assert_close(states["model"][name], value)


def test_errors_within_libraries_name_the_caller(tmp_path):
    """Here a folder of installed packages has the library."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "some_library.py").write_text("def pick(x):\n    return x[x.argmax().item() :]\n")
    spec = importlib.util.spec_from_file_location("some_library", folder / "some_library.py")
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)

    def forward(x):
        return library.pick(x)  # the caller

    wanted = r"some_library.py:2: return x.*\ncalled from .*test_export.py:\d+: .*# the caller"
    with pytest.raises(RuntimeError, match=wanted):
        torch.webgpu.export(forward, [torch.randn(4)], tmp_path / "m.twg")
    shapes = {"x": {0: torch.export.Dim("n", max=4)}}
    with pytest.raises(RuntimeError, match=wanted):
        torch.webgpu.export(forward, [torch.randn(4)], tmp_path / "m.twg", dynamic_shapes=shapes)


def test_a_step_that_another_change_hides(tmp_path):
    """From the second call on the step decays `other`, which each call changes anyway."""
    first, other = (torch.ones(3, device="webgpu", requires_grad=True) for _ in range(2))
    optimizer = torch.optim.SGD([first, other], lr=0.1, weight_decay=0.5)

    def train(x):
        optimizer.zero_grad(set_to_none=False)
        (first * x).sum().backward()
        optimizer.step()
        with torch.no_grad():
            other.clamp_(-1, 1)
        loss = (other * x).sum()
        loss.backward()
        return {"loss": loss}

    state = {"parameters": {"first": first, "other": other}, "optimizer": optimizer}
    inputs = {"x": torch.ones(3, device="webgpu")}
    with pytest.raises(RuntimeError, match=r"'loss' depends on whether(?s:.*)optimizer.step\(\)$"):
        torch.webgpu.export(train, inputs, tmp_path / "hidden.twg", state=state)


ASKING = {
    "a factor": lambda model, loss: loss * (1.0 if model[0].weight.grad is None else 2.0),
    "an operator": lambda model, loss: loss.exp() if model[0].weight.grad is None else loss.sin(),
    "a place": lambda model, loss: model[0].weight[0 if model[0].weight.grad is None else 1, 0],
    "one gradient of two": lambda model, loss: (
        loss * (2.0 if model[0].weight.grad is not None and model[2].bias.grad is None else 1.0)
    ),
}


@FIXED_OR_SIZED
@pytest.mark.parametrize("kind", ASKING)
def test_python_that_asks_for_gradients(tmp_path, kind, sized):
    model, _ = small(torch.optim.SGD)

    def asks(x):
        loss = model(x).square().mean()
        result = ASKING[kind](model, loss)
        loss.backward()
        model[2].bias.grad = None
        return {"loss": result}

    with pytest.raises(RuntimeError) as caught:
        torch.webgpu.export(
            asks, {"x": torch.randn(8, 4)}, tmp_path / "m.twg", **_sized("asks", sized)
        )
    text = str(caught.value)
    assert "how a call computes 'loss' depends on whether an earlier call has left grad" in text
    assert "'0.weight' of a Sequential" in text
    assert kind == "a place" or re.search(r"test_export.py:\d+: .*grad is", text)
    assert all(p.grad is None for p in model.parameters())


@FIXED_OR_SIZED
def test_flags_that_calls_leave(tmp_path, sized):
    torch.manual_seed(0)
    model = Net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {"model": model, "optimizer": optimizer}
    path, x = tmp_path / "m.twg", torch.randn(8, 12)

    step = step_of(model, optimizer)

    def trained(x):
        model.train()
        return step(x)

    def classify(x):
        model.eval()
        return {"y": model(x).argmax(1)}

    def frozen(x):
        model.first.weight.requires_grad_(False)
        return step(x)

    def freed(x):
        model.first.weight.requires_grad_(True)
        result = step(x)
        model.first.weight.requires_grad_(False)
        return result

    def export(**functions):
        names = list(functions)
        inputs = {name: {"x": x} for name in names}
        shapes = {n: {"x": {0: torch.export.Dim("b", min=2, max=8)}} for n in names}
        torch.webgpu.export(
            functions, inputs, path, state=state, dynamic_shapes=shapes if sized else None
        )

    export(trained=trained, classify=classify)
    assert model.training
    with pytest.raises(RuntimeError, match=r"used train\(\) or eval\(\) of Dropout, Linear"):
        export(step=step, classify=classify)
    assert model.training
    with pytest.raises(RuntimeError, match=r"requires_grad of 'first.weight' of 'model'"):
        export(step=step, frozen=frozen)
    export(freed=freed)
    assert model.first.weight.requires_grad
    model.first.weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"requires_grad of 'first.weight' of 'model'"):
        export(step=step, trained=lambda x: (model.first.weight.requires_grad_(), step(x))[1])
    export(freed=freed)
    assert not model.first.weight.requires_grad


@FIXED_OR_SIZED
def test_ways_to_replace_gradients(tmp_path, sized):
    """What functions leave differs from what they find, and makes no difference."""
    model, optimizer = small(lambda p, lr: torch.optim.AdamW(p, lr, foreach=True))
    weight = model[0].weight

    def clipped(x):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        for p in model.parameters():
            p.grad.mul_(0.5)
        optimizer.step()
        return {"loss": loss, "norm": norm, "gradient": weight.grad}

    def assigned(x):
        loss = model(x).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            p.grad = gradient * 2
        optimizer.step()
        return {"loss": loss}

    def written(x):
        loss = model(x).square().mean()
        (gradient,) = torch.autograd.grad(loss, [weight])
        optimizer.zero_grad()
        weight.grad = torch.empty_like(weight)
        torch.mul(gradient, 2, out=weight.grad)
        optimizer.step()
        return {"loss": loss}

    def accumulated(x):
        optimizer.zero_grad(set_to_none=False)
        for part in (x, x * 2):
            model(part).square().mean().backward()
        optimizer.step()
        return {"gradient": weight.grad.t()}

    x = {"x": torch.randn(8, 4)}
    functions = {f.__name__: (f, x) for f in (clipped, assigned, written, accumulated)}
    state = {"model": model, "optimizer": optimizer}
    if sized:
        del functions["written"]
    check_calls(tmp_path / "m.twg", functions, [*functions, *functions], state, sized)


def test_gradients_that_share_memory(tmp_path):
    """Those of parameters that cat() joins are parts of one tensor."""
    torch.manual_seed(0)
    first, second = (nn.Parameter(torch.randn(3, 4).to(DEVICE)) for _ in range(2))
    optimizer = torch.optim.Adam([first, second], lr=0.1)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = (x @ torch.cat([first, second]).t()).square().mean()
        loss.backward()
        size = torch.cat([p.grad.t().flatten() for p in (first, second)]).norm()
        optimizer.step()
        return {"loss": loss, "size": size}

    state = {"parameters": {"a": first, "b": second}, "optimizer": optimizer}
    check_calls(tmp_path / "m.twg", {"step": (step, {"x": torch.randn(5, 4)})}, ["step"] * 3, state)


def test_gradients_in_memory_that_lasts(tmp_path):
    model, _ = small(torch.optim.SGD)
    buffer = torch.zeros_like(model[0].weight)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()  # from the second call on this adds to `buffer`
        model[0].weight.grad = buffer
        return {"loss": loss}

    with pytest.raises(RuntimeError, match=r"reads gradients (?s:.*): loss.backward\(\)  # from"):
        torch.webgpu.export(step, {"x": torch.randn(8, 4)}, tmp_path / "m.twg")


def test_parameters_of_several_tensors(tmp_path):
    parameter = nn.Parameter(TwoTensor(torch.ones(4).to(DEVICE), torch.ones(4).to(DEVICE)))

    def adds(x):
        (parameter * x).sum().backward()
        return {"gradient": parameter.grad.a}

    with pytest.raises(RuntimeError, match="a call reads gradients that an earlier call has left"):
        torch.webgpu.export(adds, {"x": torch.ones(4)}, tmp_path / "m.twg")


def test_what_python_keeps_from_run_to_run(tmp_path):
    """A function runs several times for one file."""
    weight = nn.Parameter(torch.ones(3).to(DEVICE))
    kept, path, x = {"calls": 0}, tmp_path / "m.twg", {"x": torch.ones(3)}

    def counted(x):
        kept["calls"] += 1
        return x * kept["calls"]  # counted

    def first_only(x):
        is_first, kept["calls"] = kept["calls"] == 0, 1
        return x + 1 if is_first else x

    def cached(x):
        if "cache" not in kept:
            kept["cache"] = weight.exp()
        return x * kept["cache"]

    def assigned(x):
        weight.data = weight.data - x
        return x + weight

    def lasting(x):
        holder.cache = holder.cache if hasattr(holder, "cache") else weight.exp()
        return x * holder.cache

    with pytest.raises(RuntimeError, match=r"has left in Python(?s:.*)# counted$"):
        torch.webgpu.export(counted, x, path)
    for function in (first_only, cached):
        kept["calls"] = 0
        with pytest.raises(RuntimeError, match="earlier run of the function has left in Python"):
            torch.webgpu.export(function, x, path)
    with pytest.raises(RuntimeError, match="the data of 1 tensor is assigned"):
        torch.webgpu.export(assigned, x, path)
    assert weight.tolist() == [1, 1, 1]
    # Modules have the tensors of before in each run.
    holder = nn.Module()
    check_calls(path, {"lasting": (lambda x: {"y": lasting(x)}, x)}, ["lasting"] * 2, {})


class WithState(nn.Module):
    """Assigns an attribute in each call, by a function of the tests."""

    def __init__(self, forward, kept=None):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.computed, self.kept = forward, kept

    def forward(self, x):
        return self.computed(self, x)


def hidden(self, x):
    self.kept = self.linear(x) if self.kept is None else self.linear(x) + self.kept
    return self.kept * 1


def doubled(self, x):
    self.kept = torch.ones(3, device=x.device) if self.kept is None else self.kept * 2
    return x * self.kept


def drawn(self, x):
    if self.kept is None:
        self.kept = torch.rand(3, device=x.device)
    return x * self.kept


def previous(self, x):
    before, self.kept = self.kept, x
    return x if before is None else x + before


def alternating(self, x):
    self.kept = (self.kept or 0) + 1
    return x * (self.kept % 2)


def other_later(self, x):
    is_first, self.kept = self.kept is None, "called"
    return self.linear(x) if is_first else x


def hidden_in_a_tuple(self, x):
    h, c = self.kept or (x * 0, x * 0)
    self.kept = self.linear(x) + h, c + 1
    return self.kept[0] * 1


def counted_on_the_cpu(self, x):
    self.kept = torch.tensor(0) if self.kept is None else self.kept + 1
    return x * 2 if self.kept > 1 else x


def empty_as_a_flag(self, x):
    y = x if self.kept is None else x * 2
    self.kept = torch.empty(0, 3, device=x.device)
    return y


def other_constant_later(self, x):
    y = x if self.kept is None else x * self.kept
    self.kept = torch.full((3,), 1.0 if self.kept is None else 2.0, device=x.device)
    return y


def last(self, x):
    self.kept = x
    return self.linear(x)


@pytest.mark.parametrize(
    "forward",
    [
        *(hidden, doubled, drawn, previous, alternating, other_later, hidden_in_a_tuple),
        *(counted_on_the_cpu, empty_as_a_flag, other_constant_later),
    ],
    ids=lambda f: f.__name__,
)
def test_attributes_that_calls_assign_and_read(forward, tmp_path):
    model = WithState(forward).to(DEVICE)
    text = r"depends on what an earlier call has assigned to WithState\.kept"
    with pytest.raises(RuntimeError, match=text):
        torch.webgpu.export(model, {"x": torch.ones(3)}, tmp_path / "m.twg")
    assert model.kept is None


def test_attributes_of_one_function_in_another(tmp_path):
    model = nn.Dropout(0.1).to(DEVICE)

    def set_rate(x):
        model.p = 0.5
        return model(x)

    functions, x = {"set_rate": set_rate, "drop": lambda x: model(x)}, {"x": torch.ones(3)}
    with pytest.raises(RuntimeError, match=r"cannot export drop: .* assigned to Dropout\.p"):
        torch.webgpu.export(functions, dict.fromkeys(functions, x), tmp_path / "m.twg")
    assert model.p == 0.1


@pytest.mark.parametrize("names", ["abc", "cab", "bca"])
def test_constants_of_other_functions_in_attributes(names, tmp_path):
    """What an attribute holds is part of the state, not only that it holds a tensor."""
    holder = WithState(None).to(DEVICE)

    def assigns(number):
        def function(x):
            holder.kept = torch.full((3,), number, device=x.device)
            return x + 1

        return function

    def reads(x):
        return x * (torch.ones(3, device=x.device) if holder.kept is None else holder.kept)

    known = {"a": assigns(1.0), "b": assigns(0.0), "c": reads}
    functions, x = {name: known[name] for name in names}, {"x": torch.ones(3)}
    with pytest.raises(RuntimeError, match=r"cannot export c: .* assigned to WithState\.kept"):
        torch.webgpu.export(functions, dict.fromkeys(functions, x), tmp_path / "m.twg")
    del functions["b"]
    torch.webgpu.export(functions, dict.fromkeys(functions, x), tmp_path / "m.twg")


def test_what_attributes_have_after_an_export(tmp_path):
    """Also what another run cannot begin with."""
    path, x = tmp_path / "m.twg", {"x": torch.ones(3)}

    def changes(self, x):
        self.removed, self.cleared = None, None
        del self.removed
        self.kept = {"last": (x, 2)}
        self.other = object()
        return self.linear(x)

    model = WithState(changes).to(DEVICE)
    model.removed, model.cleared = 5, torch.ones(2, device=DEVICE)
    before = dict(vars(model))
    torch.webgpu.export(model, x, path)
    assert list(vars(model)) == list(before)
    assert all(vars(model)[name] is value for name, value in before.items())
    registers = WithState(lambda self, x: self.register_buffer("table", x * 2) or x).to(DEVICE)
    with pytest.raises(RuntimeError, match=r"WithState\.table is assigned"):
        torch.webgpu.export(registers, x, path)
    assert not hasattr(registers, "table")


def test_exports_do_not_add_up(tmp_path):
    """An export that kept its tensors would be looked through by the next one."""
    model = nn.Linear(3, 3).to(DEVICE)
    torch.webgpu.export(model, {"input": torch.ones(3)}, tmp_path / "m.twg")
    # Held, so that no tensor of another test is freed meanwhile and its address used again.
    (known,) = alive(torch.Tensor)
    for _ in range(2):
        torch.webgpu.export(model, {"input": torch.ones(3)}, tmp_path / "m.twg")
    gc.collect()  # what only cycles hold may be there still
    (tensors,) = alive(torch.Tensor)
    assert {id(x) for x in tensors} <= {id(x) for x in known}


def test_tensors_of_other_kinds_may_be_alive(tmp_path):
    """An export looks at all tensors of the process."""
    ones, rows = torch.ones(3), [torch.ones(2, 3), torch.ones(4, 3)]
    kinds = [
        torch.nested.nested_tensor(rows),
        torch.nested.nested_tensor(rows, requires_grad=True),
        torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True),
        torch.nested.nested_tensor(rows, device=DEVICE),
        torch.eye(3).to_sparse().requires_grad_(),
        torch.eye(3).to_sparse_csr(),
        torch.eye(3, device=DEVICE).to_sparse_csr(),
        torch.quantize_per_tensor(ones, 0.1, 0, torch.quint8),
        torch.quantize_per_channel(torch.eye(3), ones, torch.zeros(3), 0, torch.quint8),
        ones.to(torch.complex64).conj().imag,
        torch._efficientzerotensor((3,)),
        torch.masked.masked_tensor(ones, ones > 0),
        torch.ones(3, 3).to_mkldnn(),
        torch.ones(3, device="meta", requires_grad=True),
        nn.UninitializedParameter(),
        torch.empty(3, dtype=torch.bits8),
        torch.ones(1, requires_grad=True).expand(1 << 20),
    ]
    model = nn.Linear(3, 3).to(DEVICE)
    torch.webgpu.export(model, {"input": ones}, tmp_path / "m.twg")
    assert len(kinds) == 17


class Plain(torch.Tensor):
    """Of its own dispatch, with memory. Operators give plain tensors."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        raise NotImplementedError("asked")

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        with torch._C._DisableTorchDispatch():
            return function(*arguments, **(options or {}))


class Closed(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        raise NotImplementedError(f"{function}")


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_tensors_of_other_classes_may_be_alive(tmp_path, device):
    alive = [
        torch.Tensor._make_subclass(kind, torch.ones(3, device=device)) for kind in (Plain, Closed)
    ]
    model = nn.Linear(3, 3).to(DEVICE)
    torch.webgpu.export(model, {"input": torch.ones(3)}, tmp_path / "m.twg")
    (plain, _), ones = alive, torch.ones(3, device=device)

    def assigns(x):
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunctionSubclass():
            plain.data = ones * 5
        return x * 2

    with pytest.raises(RuntimeError, match="the data of 1 tensor is assigned"):
        torch.webgpu.export(assigns, {"x": torch.ones(3, device=DEVICE)}, tmp_path / "m.twg")
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunctionSubclass():
        assert plain.sum() == 3


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda x: torch.nested.nested_tensor([x, x[:1]]), torch.Tensor.values),
        (lambda x: x.to_sparse(), torch.Tensor._values),
        (lambda x: x.to_sparse_csr(), torch.Tensor.values),
        (lambda x: x.to_sparse_csc(), torch.Tensor.values),
    ],
)
def test_tensors_of_other_kinds_on_the_cpu_are_put_back(tmp_path, make, values):
    tensor, x = make(torch.ones(3, 3)), torch.ones(3, device=DEVICE)
    before = values(tensor).sum()

    def changes(x):
        values(tensor).add_(1)
        return x * 2

    with pytest.warns(UserWarning, match="a call changes a .*tensor.* does not keep because"):
        torch.webgpu.export(changes, {"x": x}, tmp_path / "m.twg")
    assert values(tensor).sum() == before

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = make(torch.ones(3, 3))

        def forward(self, x):
            self.table = self.table * 2
            return x * values(self.table).sum().item()

    with pytest.warns(UserWarning, match="Whether a later call reads it is not checked"):
        torch.webgpu.export(Reads(), {"x": x}, tmp_path / "m.twg")


def test_more_states_of_attributes_than_are_tried(tmp_path):
    models = [WithState(last).to(DEVICE) for _ in range(7)]
    functions = {f"call{k}": model for k, model in enumerate(models)}
    inputs = {name: {"x": torch.ones(3)} for name in functions}
    with pytest.warns(UserWarning, match="attributes of modules in more than 64 states"):
        torch.webgpu.export(functions, inputs, tmp_path / "m.twg")


def test_attributes_that_make_no_difference(tmp_path):
    """A cache of what is the same in each call, and what no later call reads."""

    def cached(self, x):
        if self.kept is None:
            self.kept = torch.arange(3, device=x.device).float().cos()
        return self.linear(x) * self.kept

    def cached_view(self, x):
        if self.kept is None:
            self.kept = torch.arange(6, device=x.device).float().cos()[3:]
        return self.linear(x) * self.kept

    def cached_mask(self, x):
        if self.kept is None:
            self.kept = torch.arange(3, device=x.device).float().expand(2, 3)
        return self.linear(x) * self.kept[:1][0]

    def cached_row(self, x):
        if self.kept is None:
            self.kept = self.linear.weight.t()[1:]
        return x * self.kept[0]

    def total(self, x):
        y = self.linear(x)
        if self.kept is None:
            self.kept = 0.0
        self.kept += y.mean().detach()
        return y

    path, x = tmp_path / "m.twg", torch.randn(3)
    for forward in (cached, cached_view, cached_mask, cached_row, total, last):
        model = WithState(forward).to(DEVICE)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.webgpu.export(model, {"x": x}, path)
        assert model.kept is None
        torch.testing.assert_close(
            torch.webgpu.Graph.load(path)["forward"](x=x)["output"].cpu(), model(x.to(DEVICE)).cpu()
        )


def test_a_cache_of_what_calls_change(tmp_path):
    """PyTorch's later calls compute with the weight of the first one."""

    def step(self, x):
        if self.kept is None:
            self.kept = self.linear.weight.detach() * 2
        with torch.no_grad():
            self.linear.weight.add_(1)
        return x @ self.kept

    with pytest.raises(RuntimeError, match="an earlier call has assigned"):
        torch.webgpu.export(WithState(step).to(DEVICE), {"x": torch.ones(3)}, tmp_path / "m.twg")


def test_data_that_is_assigned_with_other_strides(tmp_path):
    model = nn.Linear(3, 3).to(DEVICE)

    def transposed(x):
        y = model(x)
        model.weight.data = model.weight.data.t()
        return y

    with pytest.raises(RuntimeError, match="the data of 'weight' of 'model' is assigned"):
        torch.webgpu.export(
            transposed, {"x": torch.ones(3)}, tmp_path / "m.twg", state={"model": model}
        )
    assert model.weight.is_contiguous()


def test_a_gradient_among_the_states(tmp_path):
    """The first call adds to it. Then the parameter has another one."""
    model = nn.Linear(3, 3).to(DEVICE)
    model.weight.grad = torch.zeros_like(model.weight)
    state = {"model": model, "sums": {"weight": model.weight.grad}}

    def adds_once(x):
        model(x).sum().backward()
        model.zero_grad()
        return x + 1

    with pytest.raises(RuntimeError, match="how a call changes 'weight' of 'sums' depends on"):
        torch.webgpu.export(adds_once, {"x": torch.ones(3)}, tmp_path / "m.twg", state=state)


def test_grad_mode_that_a_call_leaves(tmp_path):
    weight = nn.Parameter(torch.ones(3, device=DEVICE))

    def left(x):
        y = weight * x
        torch.set_grad_enabled(False)
        return y * (2 if y.requires_grad else 1)

    with pytest.raises(RuntimeError, match=r"has called set_grad_enabled\(\)"):
        torch.webgpu.export(left, {"x": torch.ones(3)}, tmp_path / "m.twg")
    assert torch.is_grad_enabled()


def test_warnings_of_what_no_file_keeps(tmp_path):
    """Where nothing shows that a later call would compute something else."""
    path, x = tmp_path / "m.twg", {"x": torch.ones(3)}
    model = WithState(lambda self, x: x + count(self), kept=0).to(DEVICE)
    model.register_buffer("steps", torch.zeros(2))  # on the CPU

    def count(self):
        self.kept += 1
        return 2 if self.kept % 8 == 0 else 1

    def counted_on_host(x):
        model.steps.add_(1)
        return x + 1

    def drawn_on_host(x):
        return x if random.random() < 1e-9 or torch.rand([]) < 1e-9 else x + 1

    with pytest.warns(UserWarning, match=r"WithState\.kept has another value after each call"):
        torch.webgpu.export(model, x, path)
    assert model.kept == 0
    with pytest.warns(UserWarning, match=r"changes the buffer WithState\.steps"):
        torch.webgpu.export(counted_on_host, x, path)
    assert model.steps.tolist() == [0, 0]
    with pytest.warns(UserWarning, match="draws random numbers from") as found:
        torch.webgpu.export(drawn_on_host, x, path)
    assert len(found) == 2


def test_files_are_the_same_each_time(tmp_path):
    """Words of parameters that no shader reads are zero, and not what the host's memory held."""
    model, optimizer = small(torch.optim.Adam)

    def step(x):
        optimizer.zero_grad()
        loss = F.softplus(model(x).clamp(-1, 1) * 0.5 + 1).mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    state = {"model": model, "optimizer": optimizer}
    paths = [tmp_path / f"{k}.twg" for k in range(2)]
    for path in paths:
        torch.webgpu.export(step, {"x": torch.randn(8, 4)}, path, state=state)
    one, other = map(program_of, paths)
    assert one == other


def test_runs_in_blocks_of_other_sizes(tmp_path):
    """How much of a block a kernel binds is no part of what it computes."""
    kept = {"runs": 0}

    def grows(x):
        kept["runs"] += 1
        if kept["runs"] == 1:
            x.new_empty(1280).fill_(1)  # freed at once, so that its block is the next one's
        return (x * 2).tanh() + 1

    path = tmp_path / "m.twg"
    torch.webgpu.export(grows, {"x": torch.randn(1152)}, path)
    x = torch.randn(1152)
    played = torch.webgpu.Graph.load(path)["grows"](x=x)["output"].cpu()
    torch.testing.assert_close(played, (x * 2).tanh() + 1)


@pytest.mark.parametrize("period", [2, 3, 4, 5])
def test_what_python_counts_in_a_circle(tmp_path, period):
    calls = itertools.count()

    def function(x):
        return x.sum() if next(calls) % period else x.sum() + 1

    with pytest.raises(RuntimeError, match="depends on what"):
        torch.webgpu.export(function, {"x": torch.ones(3)}, tmp_path / "m.twg")


def test_what_python_counts_where_sizes_vary(tmp_path):
    calls, n = itertools.count(), torch.export.Dim("n")

    def function(x):
        return x * next(calls)

    def makes(x):
        return x + torch.tensor([1.0, 2.0, next(calls)], device=x.device)

    for counts in (function, makes):
        with pytest.raises(RuntimeError, match="has left in Python"):
            torch.webgpu.export(
                counts, {"x": torch.ones(4, 3)}, tmp_path / "m.twg", dynamic_shapes={"x": {0: n}}
            )


def test_attributes_that_calls_read_and_assign(tmp_path):
    module = nn.Linear(3, 3).to(DEVICE)
    module.kept, path, x = torch.zeros(3, device=DEVICE), tmp_path / "m.twg", torch.ones(3)
    before = module.kept

    def writes(x):
        module.kept = module(x)
        return {"y": module.kept * 2}

    def adds(x):
        module.kept = module.kept + x
        return {"y": module.kept * 2}

    def reads(x):
        return {"y": module.kept + x}

    check_calls(path, {"writes": (writes, {"x": x})}, ["writes"] * 2, {})
    assert module.kept is not before  # check_calls() calls it, too
    both = {"writes": writes, "reads": reads}
    for functions in ({"adds": adds}, both):
        inputs = {name: {"x": x} for name in functions}
        with pytest.raises(RuntimeError, match=r"the attribute Linear.kept is read, and assigned"):
            torch.webgpu.export(functions, inputs, path)


def test_what_cannot_be_captured_may_exist(tmp_path):
    class Frozen(nn.Module):
        def __setattr__(self, name, value):
            if name == "training" and "training" in vars(self):
                raise AttributeError("frozen")
            super().__setattr__(name, value)

    shrunk = torch.ones(3, device=DEVICE)
    shrunk.untyped_storage().resize_(0)
    ones = torch.ones(3, 2, device=DEVICE)
    wrappers = torch._to_functional_tensor(ones), torch._C._functorch._add_batch_dim(ones, 0, 1)
    others = nn.LazyLinear(3), Frozen(), shrunk, wrappers
    path = tmp_path / "m.twg"
    torch.webgpu.export(lambda x: {"y": x + 1}, {"x": torch.ones(3)}, path)
    assert torch.webgpu.Graph.load(path)(x=torch.ones(3).to(DEVICE))["y"].tolist() == [2, 2, 2]
    del others


def test_many_independent_functions(tmp_path):
    """Their states are as many as the functions have subsets."""

    models = [nn.Linear(2, 1).to(DEVICE) for _ in range(7)]
    functions = {
        f"step{k}": step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for k, model in enumerate(models)
    }
    inputs = {name: {"x": torch.ones(2)} for name in functions}
    torch.webgpu.export(functions, inputs, tmp_path / "m.twg")


def test_a_learning_rate_that_is_fixed(tmp_path):
    model, optimizer = small(torch.optim.SGD)
    step, x, path = step_of(model, optimizer), {"x": torch.randn(8, 4)}, tmp_path / "m.twg"
    with pytest.warns(UserWarning, match="the SGD is not among `state`, so that its learning rate"):
        torch.webgpu.export(step, x, path, state={"model": model})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.webgpu.export(step, x, path, state={"model": model, "optimizer": optimizer})


def test_optimizers_and_states_that_do_not_fit(tmp_path):
    model, optimizer = small(torch.optim.AdamW)
    step = step_of(model, optimizer)
    path, x = tmp_path / "m.twg", {"x": torch.randn(8, 4)}
    step(torch.randn(8, 4).to(DEVICE))  # so that it has state
    with pytest.raises(RuntimeError, match="AdamW is not among `state`, and keeps the number"):
        torch.webgpu.export(step, x, path, state={"model": model})

    def extended(x):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, device=DEVICE))]})
        return step(x)

    with pytest.raises(
        RuntimeError, match=r"parameter groups of the optimizer \(AdamW\) are others"
    ):
        torch.webgpu.export(extended, x, path, state={"model": model, "optimizer": optimizer})
    assert len(optimizer.param_groups) == 1
    for state, text in (
        ([model], "state must have objects by their names, not be a list"),
        ({"rate": 0.1}, "the state 'rate' must have a state_dict"),
        ({1: model}, "states are named by text, not by 1"),
    ):
        with pytest.raises(TypeError, match=text):
            torch.webgpu.export(model, x, path, state=state)
    with pytest.raises(TypeError, match="example_inputs must be tensors"):
        torch.webgpu.export(model, None, path)
    with pytest.raises(FileNotFoundError):
        torch.webgpu.export(model, x, tmp_path / "none" / "m.twg")
    with pytest.raises(IsADirectoryError):
        torch.webgpu.export(model, x, tmp_path)
    assert not list(tmp_path.iterdir())


@FIXED_OR_SIZED
@pytest.mark.parametrize("inside", [False, True])
def test_autocast(tmp_path, inside, sized):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        with torch.autocast(DEVICE, enabled=inside or torch.is_autocast_enabled(DEVICE)):
            loss = (model(x) + model(x)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def predict(x):
        with torch.no_grad():
            return model(x) + model(x)

    x = torch.randn(5, 8, device=DEVICE)
    before = copy.deepcopy(model.state_dict())
    functions = {"step": step, "predict": predict}
    shapes = {name: {"x": {0: torch.export.Dim("n", max=5)}} for name in functions}
    with torch.autocast(DEVICE, enabled=not inside):
        expected = predict(x)
        torch.webgpu.export(
            functions,
            {name: [x] for name in functions},
            tmp_path / "a.twg",
            state={"model": model, "optimizer": optimizer},
            dynamic_shapes=shapes if sized else None,
        )
        # Nothing of the capture is in autocast's cache.
        assert torch.equal(predict(x), expected)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    graph = torch.webgpu.Graph.load(tmp_path / "a.twg")
    for _ in range(3):
        with torch.autocast(DEVICE, enabled=not inside):
            expected = predict(x)
            assert expected.dtype == (torch.float32 if inside else torch.float16)
            # Compiled code rounds to halves elsewhere.
            near = {"rtol": 1e-2, "atol": 1e-3}
            torch.testing.assert_close(graph["predict"](x=x)["output"], expected, **near)
        with torch.autocast(DEVICE, enabled=not inside):
            torch.testing.assert_close(graph["step"](x=x)["output"], step(x), **near)


def test_states_of_other_types(tmp_path):
    x = torch.ones(3, device=DEVICE)

    def refuses(state, pattern):
        with pytest.raises(TypeError, match=pattern):
            torch.webgpu.export(lambda x: x + 1, [x], tmp_path / "s.twg", state=state)

    refuses({"m": nn.Linear}, "the state 'm' must be an object, not the class Linear")
    refuses({"m": torch.optim.SGD}, "not the class SGD")
    refuses({"m": nn.Linear(2, 2).parameters()}, "not a generator")
    refuses({"m": [x]}, "not a list")
    refuses({"m": None}, "not a NoneType")
    refuses({"m": x}, "not a Tensor")
    refuses([("m", x)], "not be a list")
    with pytest.raises(TypeError, match="not the class Linear"):
        torch.webgpu.export(nn.Linear, [x], tmp_path / "s.twg")
    refuses({"m": {"w": object()}}, "m.*object")
    refuses({"m": {"w": {x}}}, "m.*set")
    refuses({"m": {(1, 2): x}}, "m")
    assert not list(tmp_path.iterdir())


def test_attributes_that_contain_themselves(tmp_path):
    class Circle(nn.Module):
        def __init__(self):
            super().__init__()
            self.list = [1.0]
            self.list.append(self.list)
            self.dict = {}
            self.dict["self"] = self.dict

        def forward(self, x):
            self.list = [2.0]
            self.list.append(self.list)
            self.other = {"a": [self.dict]}
            return x * self.list[0]

    x = torch.ones(3, device=DEVICE)
    model = Circle()
    before = model.list
    torch.webgpu.export(model, [x], tmp_path / "c.twg")
    assert model.list is before
    assert not hasattr(model, "other")
    graph = torch.webgpu.Graph.load(tmp_path / "c.twg")
    assert torch.equal(graph(x=x)["output"], x * 2)


def test_tensors_on_the_cpu_that_calls_change(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = nn.Parameter(torch.zeros(2))
            self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
            self.register_buffer("calls", torch.zeros(2, dtype=torch.int64))
            self.plain = torch.zeros(2)

        def forward(self, x):
            with torch.no_grad():
                self.count += 1
                self.frozen.add_(1)
                self.calls += 1
                self.plain += 1
                self.count.data.mul_(2)
            return x + 1

    x = torch.ones(3, device=DEVICE)
    model = Counting()
    loose = torch.zeros(2)

    def call(x):
        loose.add_(1)
        return model(x)

    with pytest.warns(UserWarning, match="lies on the CPU") as warned:
        torch.webgpu.export(call, [x], tmp_path / "c.twg")
    texts = " ".join(str(one.message) for one in warned)
    for name in ("count", "frozen", "calls", "plain"):
        assert f"Counting.{name}" in texts
        assert not getattr(model, name).any(), name
    assert not loose.any()
    assert "a tensor of the shape [2]" in texts


def test_tensors_on_the_cpu_that_later_calls_read(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(4, 2).to(DEVICE)
    averaging = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=averaging)
    assert average.n_averaged.device.type == "cpu"

    def update(x):
        with torch.no_grad():
            model.weight.add_(x.mean())
        average.update_parameters(model)
        return average(x)

    x = torch.randn(3, 4, device=DEVICE)
    name = r"has left in the buffer AveragedModel\.n_averaged, on the CPU"
    with pytest.raises(RuntimeError, match=name):
        torch.webgpu.export(update, [x], tmp_path / "a.twg")
    assert average.n_averaged == 0

    def scale(x):
        is_first = average.n_averaged == 0
        average.n_averaged.fill_(1)
        return x * 2 if is_first else x

    with pytest.raises(RuntimeError, match=rf"how a call computes 'output' depends on .*{name}"):
        torch.webgpu.export(scale, [x], tmp_path / "a.twg")
    average.to(DEVICE)  # with the counter
    with pytest.raises(RuntimeError, match="reads a value on the host"):
        torch.webgpu.export(update, [x], tmp_path / "a.twg")


@pytest.mark.parametrize("first", ["none", "views"])
def test_gradients_that_share_memory_and_change_in_place(tmp_path, first):
    torch.manual_seed(0)
    a, b = (nn.Parameter(torch.randn(4, 8, device=DEVICE)) for _ in range(2))
    optimizer = torch.optim.SGD([a, b], lr=0.1)

    def step(x):
        if first == "views" and a.grad is None:
            a.grad, b.grad = torch.zeros(8, 8, device=DEVICE).split(4)
        optimizer.zero_grad(set_to_none=False)
        loss = (x @ torch.cat([a, b]).t()).square().mean()
        loss.backward()
        for p in (a, b):
            p.grad.mul_(2).clamp_(-1, 1)
        nn.utils.clip_grad_norm_([a, b], 0.5)
        optimizer.step()
        return loss

    x = torch.randn(5, 8, device=DEVICE)
    state = {"parameters": {"a": a, "b": b}, "optimizer": optimizer}
    torch.webgpu.export(step, [x], tmp_path / "m.twg", state=state)
    graph = torch.webgpu.Graph.load(tmp_path / "m.twg")
    for _ in range(3):
        torch.testing.assert_close(graph(x=x)["output"], step(x))


def test_gradients_that_are_views_of_one_buffer(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2)).to(DEVICE)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def flat_step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        flat = torch.cat([p.grad.reshape(-1) for p in parameters])
        at = 0
        for p in parameters:
            p.grad = flat[at : at + p.numel()].view_as(p)
            at += p.numel()
        flat.mul_(0.5)
        for p in parameters:
            p.grad.mul_(2).add_(0.1)
        optimizer.step()
        return loss

    x = torch.randn(5, 8, device=DEVICE)
    state = {"model": model, "optimizer": optimizer}
    torch.webgpu.export(flat_step, [x], tmp_path / "f.twg", state=state)
    graph = torch.webgpu.Graph.load(tmp_path / "f.twg")
    for _ in range(3):
        torch.testing.assert_close(graph(x=x)["output"], flat_step(x))


def test_changes_on_the_cpu_without_a_version(tmp_path):
    """NumPy, `Tensor.data` and inference mode change memory and no counter."""
    kept = [torch.zeros(2), nn.Parameter(torch.zeros(3)), torch.zeros(5)]
    numbers = kept[0].numpy()

    def call(x):
        numbers[0] = 1
        kept[1].data.fill_(1)
        with torch.inference_mode():
            kept[2].fill_(1)
        return x + 1

    with torch.device("webgpu"), pytest.warns(UserWarning, match="lies on the CPU") as warned:
        torch.webgpu.export(call, [torch.ones(2)], tmp_path / "c.twg")
    assert len([one for one in warned if "lies on the CPU" in str(one.message)]) == 3
    assert not any(x.any() for x in kept)


def test_errors_of_later_calls_name_their_cause(tmp_path):
    count, model = torch.zeros(1), nn.Linear(4, 4).to(DEVICE)

    def counts(x):
        count.fill_(1)
        return x + 1

    def reads(x):
        if model.weight.grad is not None:
            model.weight.grad.sum().item()
        model(x).sum().backward()
        return x * 2

    x = torch.ones(2, 4)
    with pytest.raises(RuntimeError, match="reads a value on the host") as raised:
        torch.webgpu.export(
            {"counts": counts, "reads": reads}, {"counts": [x], "reads": [x]}, tmp_path / "c.twg"
        )
    assert "on the CPU" not in str(raised.value)


def test_states_that_are_dicts_with_attributes(tmp_path):
    class Munch(dict):
        __getattr__ = dict.get

    state = {"kept": Munch(a=torch.zeros(2, device=DEVICE))}

    def call(x):
        return state["kept"]["a"].add_(x)

    torch.webgpu.export(call, [torch.ones(2)], tmp_path / "c.twg", state=state)
    graph = torch.webgpu.Graph.load(tmp_path / "c.twg")
    assert graph(x=torch.ones(2))["output"].cpu().tolist() == [1, 1]

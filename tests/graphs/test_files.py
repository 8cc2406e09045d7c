"""Graphs written to files and played in a process without the code that was captured."""

import contextlib
import gc
import json
import pathlib
import re
import subprocess
import sys
import textwrap
import threading

import msgspec
import pytest
import safetensors
import torch
from common import DEVICE
from safetensors.torch import load_file, save_file
from torch import nn

from torch_webgpu import _C
from torch_webgpu.graphs._format import PROGRAM_KEY, VERSION_KEY

ROOT = pathlib.Path(__file__).resolve().parents[2]


def captured(function):
    function()
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        result = function()
    return graph, result


def read(path):
    """The program of a file as Python objects, and its tensors."""
    with safetensors.safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()[PROGRAM_KEY]), load_file(path)


def write(path, program, tensors=None, version="1"):
    metadata = {VERSION_KEY: version, PROGRAM_KEY: json.dumps(program)}
    save_file(tensors or {}, path, metadata=metadata)


@pytest.fixture(params=[False, True], ids=["isolated", "trusted"])
def trusted(request):
    return request.param


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Linear(16, 3)

    def forward(self, x):
        return self.second(self.norm(self.first(x)).relu())


def test_model(tmp_path, trusted):
    torch.manual_seed(0)
    model = Net().eval().to(DEVICE)
    x = torch.randn(5, 12, device=DEVICE)
    with torch.no_grad():
        graph, y = captured(lambda: model(x).softmax(-1))
    path = tmp_path / "model.graph"
    graph.save(path, inputs={"x": x}, outputs={"y": y}, state={"model": model})
    loaded = torch.webgpu.Graph.load(path, trusted=trusted)
    assert loaded.inputs == {"x": (torch.float32, (5, 12))}
    for given in (torch.randn(5, 12), torch.randn(5, 12, device=DEVICE)):
        with torch.no_grad():
            expected = model(given.to(DEVICE)).softmax(-1)
        result = loaded(x=given)
        assert result.keys() == {"y"}
        assert result["y"].device == x.device
        assert torch.equal(result["y"], expected)
    state = loaded.state()["model"]
    assert state.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(state[name].cpu(), value.cpu())
        assert torch.equal(load_file(path)["model." + name], value.cpu())


def test_training_goes_on_in_a_process_without_the_model(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    model = model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, capturable=True)
    x = torch.randn(32, 8, device=DEVICE)
    target = torch.randint(0, 3, (32,), device=DEVICE)

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    step()
    graph, loss = captured(step)
    path = tmp_path / "train.graph"
    graph.save(
        path,
        inputs={"x": x, "target": target},
        outputs={"loss": loss},
        state={"model": model, "optimizer": optimizer},
    )
    save_file({"x": x.cpu(), "target": target.cpu()}, tmp_path / "data")
    code = f"""
        import torch, torch_webgpu
        from safetensors.torch import load_file
        data = load_file({str(tmp_path / "data")!r})
        graph = torch.webgpu.Graph.load({str(path)!r})
        losses = [graph(**data)["loss"].item() for _ in range(5)]
        torch.save((losses, graph.state()), {str(tmp_path / "result")!r})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd=ROOT)
    losses, state = torch.load(tmp_path / "result", map_location=DEVICE)
    expected = []
    for _ in range(5):
        graph.replay()
        expected.append(loss.item())
    assert losses == expected  # dropout draws the same numbers
    for name, value in model.state_dict().items():
        assert torch.equal(state["model"][name], value)
    mine, theirs = optimizer.state_dict(), state["optimizer"]
    assert theirs["param_groups"] == mine["param_groups"]
    for key, entries in mine["state"].items():
        for name, value in entries.items():
            assert torch.equal(theirs["state"][key][name].to(value.device), value)
    optimizer.load_state_dict(theirs)


def test_memory_is_that_of_the_capture(tmp_path):
    x = torch.randn(1 << 18, device=DEVICE)

    def chain():
        y = x
        for _ in range(20):
            y = torch.sin(y) + 1
        return y

    gc.collect()  # else graphs of other tests may go in between
    before = torch.webgpu.memory_stats().get("graph_bytes.all.current", 0)
    graph, y = captured(chain)
    held = torch.webgpu.memory_stats()["graph_bytes.all.current"] - before
    path = tmp_path / "chain.graph"
    graph.save(path, inputs={"x": x}, outputs={"y": y})
    program, _ = read(path)
    places = {b: program["buffers"][b]["bytes"] for b in range(len(program["buffers"]))}
    scratch = program["variants"][0]["scratch"]
    assert len(scratch) >= 20
    for k, buffer in enumerate(scratch):
        place = ("slot", buffer["slot"]) if "slot" in buffer else buffer.get("within", ("own", k))
        places[place] = max(places.get(place, 0), buffer["bytes"])
    # The input's buffer is not the capture's, and may be larger than the input.
    places.pop(program["inputs"]["x"]["buffer"])
    assert sum(places.values()) <= held
    torch.testing.assert_close(torch.webgpu.Graph.load(path)(x=x)["y"], chain())


def test_dtypes_views_and_copies(tmp_path, trusted):
    base = torch.arange(40, device=DEVICE, dtype=torch.int32)
    part = base[8:24].view(4, 4)
    flags = torch.tensor([True, False, True], device=DEVICE)
    halves = torch.randn(7, device=DEVICE).half()
    wide = torch.tensor([1 << 40, -3], device=DEVICE)

    def function():
        total = (part * 2).sum(0)
        return total, ~flags, halves * 2, wide + 1, torch.zeros(3, device=DEVICE), part.clone()

    graph, results = captured(function)
    path = tmp_path / "mixed.graph"
    names = ("total", "flags_out", "halves_out", "wide_out", "zeros", "copied")
    graph.save(
        path,
        inputs={"part": part, "flags": flags, "halves": halves, "wide": wide},
        outputs=dict(zip(names, results, strict=True)),
        state={"all": {"base": base, "nothing": torch.empty(0), 3: [1.5, float("inf"), None]}},
    )
    loaded = torch.webgpu.Graph.load(path, trusted=trusted)
    given = {
        "part": torch.arange(16, dtype=torch.int32).view(4, 4).t(),
        "flags": torch.tensor([False, False, True]),
        "halves": torch.arange(7.0).half(),
        "wide": torch.tensor([5, 1 << 50]),
    }
    actual = loaded(**given)
    assert torch.equal(actual["total"].cpu(), (given["part"] * 2).sum(0, dtype=torch.int64))
    assert torch.equal(actual["flags_out"].cpu(), ~given["flags"])
    assert torch.equal(actual["halves_out"].cpu(), given["halves"] * 2)
    assert torch.equal(actual["wide_out"].cpu(), given["wide"] + 1)
    assert torch.equal(actual["zeros"].cpu(), torch.zeros(3))
    assert torch.equal(actual["copied"].cpu(), given["part"])
    state = loaded.state()["all"]
    assert torch.equal(state["base"][8:24].view(4, 4).cpu(), given["part"])
    assert torch.equal(state["base"][24:], base[24:])
    assert state[3] == [1.5, float("inf"), None]


def test_index_errors_are_raised(tmp_path, trusted):
    table = torch.randn(10, 4, device=DEVICE)
    index = torch.tensor([1, 2, 3], device=DEVICE)
    graph, y = captured(lambda: nn.functional.embedding(index, table))
    path = tmp_path / "embedding.graph"
    graph.save(path, inputs={"index": index}, outputs={"y": y})
    loaded = torch.webgpu.Graph.load(path, trusted=trusted)
    with pytest.raises(IndexError, match="12"):
        loaded(index=torch.tensor([1, 12, 3]))
    assert torch.equal(loaded(index=torch.tensor([9, 0, 1]))["y"], table[[9, 0, 1]])


def test_arguments_are_checked(tmp_path):
    x = torch.randn(3, 4, device=DEVICE)
    graph, y = captured(lambda: x * 2)
    path = tmp_path / "double.graph"
    graph.save(path, inputs={"x": x}, outputs={"y": y})
    loaded = torch.webgpu.Graph.load(path)
    for given, error in [
        ({}, TypeError),
        ({"x": x, "z": x}, TypeError),
        ({"x": 3}, TypeError),
        ({"x": x.half()}, TypeError),
        ({"x": x.t()}, ValueError),
        ({"x": x[0]}, ValueError),
    ]:
        with pytest.raises(error, match=r"x|z"):
            loaded(**given)
    assert torch.equal(loaded(x=x)["y"], x * 2)


def test_what_cannot_be_saved(tmp_path):
    x = torch.randn(3, 4, device=DEVICE)
    graph, y = captured(lambda: (x * 2, (x * 3).t()))
    for inputs, outputs, state, text in [
        ({"x": torch.ones(3, device=DEVICE)}, {"y": y[0]}, {}, "not used"),
        ({"x": x.t()}, {"y": y[0]}, {}, "not contiguous"),
        ({"x": y[0]}, {}, {}, "made in the capture"),
        ({"x": x}, {"y": y[1]}, {}, "not contiguous"),
        ({"x": x.cpu()}, {"y": y[0]}, {}, "cpu"),
        ({"a b": x}, {"y": y[0]}, {}, "identifier"),
        ({"x": x}, {"y": torch.ones(3, device=DEVICE)}, {}, "not written"),
        ({"x": x}, {"y": y[0]}, {"model": {"f": print}}, "cannot hold model.f"),
    ]:
        with pytest.raises((ValueError, TypeError), match=re.escape(text)):
            graph.save(tmp_path / "bad", inputs=inputs, outputs=outputs, state=state)
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="has not been captured"):
        torch.webgpu.Graph().save(tmp_path / "bad")


def example():
    """The program of the page that specifies the format."""
    page = (ROOT / "docs" / "graph-format.md").read_text()
    return json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])


def test_the_example_of_the_page(tmp_path, trusted):
    path = tmp_path / "scale.graph"
    write(path, example())
    loaded = torch.webgpu.Graph.load(path, trusted=trusted)
    assert loaded.inputs == {"x": (torch.float32, ("n",))}
    assert loaded.numbers == ("a",)
    for count, (size, given) in enumerate([(5, {}), (1024, {"a": 0.5}), (1, {}), (65, {"a": -3})]):
        x = torch.randn(size)
        result = loaded(x=x, **given)
        factor = [2.0, 0.5, 0.5, -3][count]
        assert torch.equal(result["y"].cpu(), x * factor)
        assert result["count"].item() == count + 1
    for size in (0, 1025):
        with pytest.raises(ValueError, match="shape"):
            loaded(x=torch.ones(size))
    with pytest.raises(TypeError, match="replays"):
        loaded(x=torch.ones(3), replays=2)
    with pytest.raises(TypeError, match="real number"):
        loaded(x=torch.ones(3), a="1")


def change(program, path, value):
    """Sets, or with ... deletes, what a path of keys leads to."""
    *way, last = path
    for key in way:
        program = program[key]
    if value is ...:
        del program[last]
    else:
        program[last] = value


COMMAND = ("variants", 0, "commands", 0)
MALFORMED = {
    "no shaders": (("shaders",), ...),
    "an unknown member": (("colour",), "red"),
    "a count that is negative": (("buffers", 0, "bytes"), -4),
    "a count that is text": (("buffers", 0, "bytes"), "4096"),
    "a buffer that is too large": (("buffers", 0, "bytes"), 1 << 52),
    "more buffers than the device has memory": (("buffers",), [{"bytes": 1 << 30}] * 4096),
    "an entry that is missing": (("buffers", 0, "entry"), "w"),
    "an input in no buffer": (("inputs", "x", "buffer"), ...),
    "an input in a missing buffer": (("inputs", "x", "buffer"), 7),
    "an input beyond its buffer": (("inputs", "x", "offset"), 8),
    "an odd offset": (("outputs", "count", "offset"), 2),
    "an unknown dtype": (("inputs", "x", "dtype"), "F12"),
    "an unknown dimension": (("inputs", "x", "shape"), ["m"]),
    "an output of an unknown size": (("outputs", "y", "shape"), ["m"]),
    "an input with the name of a number": (("numbers", "x"), {"type": "u32", "value": 1}),
    "a dimension without sizes": (("dimensions", "n", "min"), 2048),
    "a number out of range": (("numbers", "replays", "value"), str(1 << 64)),
    "a number that is none": (("numbers", "replays", "value"), "one"),
    "a step of a float": (("numbers", "a", "step"), "1"),
    "no variant": (("variants",), []),
    "a feature that no device has": (("variants", 0, "requires", "features"), ["teleport"]),
    "a limit that no device has": (
        ("variants", 0, "requires", "limits", "maxStorageBuffersPerShaderStage"),
        1000,
    ),
    "an unknown limit": (("variants", 0, "requires", "limits", "maxFun"), 1),
    "an unknown command": ((*COMMAND, "do"), "explode"),
    "a missing shader": ((*COMMAND, "shader"), 1),
    "too few bindings": ((*COMMAND, "bind"), [[1, 0, 4096], [0, 0, 4096]]),
    "a binding of a missing buffer": ((*COMMAND, "bind", 2), [3, 0, 4]),
    "a binding beyond its buffer": ((*COMMAND, "bind", 2), [2, 0, 8]),
    "a binding far beyond its buffer": ((*COMMAND, "bind", 2), [2, 1 << 52, 4]),
    "a binding that is not aligned": ((*COMMAND, "bind", 0), [1, 4, 4092]),
    "a binding of nothing": ((*COMMAND, "bind", 2), [2, 0, 0]),
    "a written buffer bound twice": ((*COMMAND, "bind", 2), [1, 0, 4]),
    "a grid that is too large": ((*COMMAND, "grid"), [1 << 20, 1, 1]),
    "a grid of two": ((*COMMAND, "grid"), [1, 1]),
    "too many parameters": ((*COMMAND, "words"), [0] * 300),
    "too few parameters": ((*COMMAND, "words"), []),
    "a word that is negative": ((*COMMAND, "words", 0), -1),
    "a word that is a real number": ((*COMMAND, "words", 0), 1.5),
    "an unknown name": ((*COMMAND, "words", 0), "z"),
    "an unknown operator": ((*COMMAND, "words", 0), ["**", 2, 3]),
    "a division by zero": ((*COMMAND, "words", 0), ["/", 1, 0]),
    "a negative difference": ((*COMMAND, "words", 0), ["-", 1, 2]),
    "an endless expression": ((*COMMAND, "words", 0), None),
    "no WGSL": (("shaders", 0, "wgsl"), "fn main("),
    "a missing entry point": (("shaders", 0, "entry"), "start"),
    "a binding that is not declared": (("shaders", 0, "writes"), [0]),
    "a write of a missing binding": (("shaders", 0, "writes"), [0, 2, 3]),
    "a constant that is not declared": (("shaders", 0, "constants"), {"tile": 3}),
    "a shape that is no expression": (("outputs", "y", "shape"), [["**", 2, 3]]),
    "a shape that is negative": (("outputs", "y", "shape"), [-1]),
    "a shape that is huge": (("outputs", "y", "shape"), [0, 1 << 60, 1 << 60]),
    "a truth in an expression": ((*COMMAND, "words", 0), ["+", True, 1]),
    "an operand that is too large": ((*COMMAND, "words", 0), ["min", 1 << 70, 2]),
    "an output in two places": (("outputs", "y", "entry"), "w"),
    "an input that is an expression": (("inputs", "x", "shape"), [["+", "n", 1]]),
    "a u64 that is no text": (("numbers", "replays", "value"), 1),
    "a state that is malformed": (("state",), {"model": {"tensor": 3}}),
    "a state in a missing buffer": (
        ("state",),
        {"model": {"tensor": {"dtype": "F32", "shape": [1], "buffer": 9}}},
    ),
    "scratch that is used too late": (
        ("variants", 0, "scratch"),
        [{"bytes": 4, "first": 3, "last": 3}],
    ),
}


def malformed(case):
    """The program of a case. web/tests/make_files.py takes it for the player in TypeScript."""
    program = example()
    where, value = MALFORMED[case]
    if case == "an endless expression":
        value = 1
        for _ in range(40):
            value = ["+", value, 1]
    if "too late" in case:
        program["variants"][0]["commands"][0]["bind"][2] = [3, 0, 4]
    change(program, where, value)
    return program


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_programs(tmp_path, case):
    program = malformed(case)
    path = tmp_path / "bad.graph"
    write(path, program)
    x = torch.ones(3, device=DEVICE)
    # What lies behind the parameters is undefined, but there: a binding has 1,024 bytes.
    if case == "too few parameters":
        torch.webgpu.Graph.load(path)
    else:
        with pytest.raises(ValueError, match="cannot load the graph file"):
            torch.webgpu.Graph.load(path)
    torch.webgpu.synchronize()
    assert (x + 1).sum().item() == 6


def test_files_that_are_damaged(tmp_path):
    x = torch.randn(64, device=DEVICE)
    w = torch.randn(64, device=DEVICE)
    graph, y = captured(lambda: x * w)
    path = tmp_path / "whole"
    graph.save(path, inputs={"x": x}, outputs={"y": y})
    data = path.read_bytes()
    damaged = tmp_path / "damaged"
    for size in [*range(0, 64, 7), len(data) // 2, len(data) - 300, len(data) - 1]:
        damaged.write_bytes(data[:size])
        with pytest.raises(ValueError, match="cannot load the graph file"):
            torch.webgpu.Graph.load(damaged)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):  # a changed byte: an error, or a file that still plays
        at, byte = (int(torch.randint(n, (), generator=generator)) for n in (len(data), 256))
        damaged.write_bytes(data[:at] + bytes([byte]) + data[at + 1 :])
        with contextlib.suppress(ValueError, TypeError, RuntimeError):
            torch.webgpu.Graph.load(damaged)(x=x)
    save_file({"a": torch.ones(3)}, damaged)
    with pytest.raises(ValueError, match="no program"):
        torch.webgpu.Graph.load(damaged)
    write(damaged, example(), version="3")
    with pytest.raises(ValueError, match="version '3'"):
        torch.webgpu.Graph.load(damaged)
    with pytest.raises(FileNotFoundError):
        torch.webgpu.Graph.load(tmp_path / "missing")
    assert torch.equal(torch.webgpu.Graph.load(path)(x=x)["y"], x * w)


def test_a_shader_that_leaves_its_buffers(tmp_path):
    program = example()
    wgsl = program["shaders"][0]["wgsl"]
    program["shaders"][0]["wgsl"] = wgsl.replace("y[id.x] =", "y[id.x + 1000000u * p.n] =")
    path = tmp_path / "wild.graph"
    write(path, program)
    before = torch.arange(1 << 16, device=DEVICE)
    torch.webgpu.Graph.load(path)(x=torch.ones(1024))
    assert torch.equal(before.cpu(), torch.arange(1 << 16))


def test_variants_and_scratch(tmp_path):
    program = example()
    variant = program["variants"][0]
    command = variant["commands"][0]
    # x to scratch 3, scratch 3 to scratch 4, which share no command but the copy, then to y.
    variant["scratch"] = [
        {"bytes": 4096, "first": 0, "last": 1, "slot": 0},
        {"bytes": 4096, "first": 1, "last": 2, "slot": 1},
        {"bytes": 4096, "first": 2, "last": 3, "slot": 0},
    ]
    copies = [
        {"do": "copy", "source": [0, 0], "target": [3, 0], "bytes": 4096},
        {"do": "copy", "source": [3, 0], "target": [4, 0], "bytes": 4096},
        {"do": "copy", "source": [4, 0], "target": [5, 0], "bytes": 4096},
    ]
    command["bind"][1] = [5, 0, 4096]
    variant["commands"] = [*copies, command]
    program["variants"] = [{**variant, "requires": {"features": ["teleport"]}}, variant]
    path = tmp_path / "copies.graph"
    write(path, program)
    x = torch.randn(100)
    assert torch.equal(torch.webgpu.Graph.load(path)(x=x)["y"].cpu(), x * 2)
    variant["scratch"][2]["slot"] = 1  # now two in use at once share memory
    write(path, program)
    with pytest.raises(ValueError, match="share memory"):
        torch.webgpu.Graph.load(path)


def test_tensors_of_another_graph_of_the_pool(tmp_path):
    """They hold what the other graph left, also if the first command writes a part of them."""
    x = torch.arange(6.0, device=DEVICE).view(3, 2)
    pool = torch.webgpu.graph_pool_handle()
    first, second = torch.webgpu.Graph(), torch.webgpu.Graph()
    with torch.webgpu.graph(first, pool=pool):
        cache, total = x * 2, x + 1
    first.replay()
    with torch.webgpu.graph(second, pool=pool):
        cache[1].copy_(x[0])
        total.add_(1)
        y = cache.sum(0)
    second.save(tmp_path / "second", outputs={"y": y, "total": total})
    loaded = torch.webgpu.Graph.load(tmp_path / "second")
    for _ in range(2):
        second.replay()
        result = loaded()
        assert torch.equal(result["y"], y)
        assert torch.equal(result["total"], total)


def test_states_that_share_memory_or_are_made_when_asked_for(tmp_path):
    x = torch.ones(2, device=DEVICE)
    graph, y = captured(lambda: x * 2)
    w = torch.arange(9.0, device=DEVICE).view(3, 3)
    z = torch.randn(3, dtype=torch.complex64, device=DEVICE)

    class Fresh:
        def __init__(self, value):
            self.value = value

        def state_dict(self):
            return {"v": torch.full((100,), float(self.value), device=DEVICE)}

    fresh = {f"f{k}": Fresh(k) for k in range(6)}
    state = {"s": {"w": w, "wt": w.t(), "part": w[1], "z": z, "zc": z.conj()}, **fresh}
    graph.save(tmp_path / "states", inputs={"x": x}, outputs={"y": y}, state=state)
    loaded = torch.webgpu.Graph.load(tmp_path / "states").state()
    for name, value in state["s"].items():
        assert torch.equal(loaded["s"][name].cpu(), value.cpu().resolve_conj()), name
    assert [loaded[f"f{k}"]["v"][0].item() for k in range(6)] == list(range(6))


def test_an_output_that_is_state_as_well(tmp_path):
    x = torch.randn(100, device=DEVICE)

    def chain():
        y = x
        for _ in range(5):
            y = y.sin() + 1
        return y

    graph, y = captured(chain)
    graph.replay()
    graph.save(tmp_path / "g", inputs={"x": x}, outputs={"y": y}, state={"s": {"y": y}})
    loaded = torch.webgpu.Graph.load(tmp_path / "g")
    assert torch.equal(loaded.state()["s"]["y"], y)
    assert torch.equal(loaded(x=x)["y"], y)


def test_names_that_could_clash(tmp_path):
    inputs = {name: torch.ones(8, device=DEVICE) for name in ("seed0", "offset0", "self")}
    graph, y = captured(lambda: nn.functional.dropout(sum(inputs.values()), 0.5))
    state = {"__metadata__": torch.ones(2), "constant": {"0": torch.ones(3, device=DEVICE)}}
    graph.save(tmp_path / "g", inputs=inputs, outputs={"y": y}, state={"s": state, **state})
    loaded = torch.webgpu.Graph.load(tmp_path / "g")
    assert set(loaded(**inputs)["y"].tolist()) <= {0.0, 6.0}
    assert loaded.numbers == ("seed0_", "offset0_")
    assert loaded.state()["__metadata__"].tolist() == [1, 1]


def test_states_are_of_one_moment(tmp_path, trusted):
    """A call that another thread makes while states are read waits until all are."""
    first, second = (torch.zeros(4, device=DEVICE) for _ in range(2))

    def function():
        first.add_(1)
        second.add_(1)
        return first + second

    graph, y = captured(function)
    path = tmp_path / "counters"
    graph.save(path, outputs={"y": y}, state={"all": {"first": first, "second": second}})
    loaded = torch.webgpu.Graph.load(path, trusted=trusted)
    before = loaded.state()["all"]["first"][0].item()
    read, callers, here = loaded._read, [], threading.current_thread()

    def read_while_others_call(view):
        result = read(view)
        if threading.current_thread() is not here:
            return result
        callers.append(threading.Thread(target=loaded))
        callers[-1].start()
        callers[-1].join(0.3)
        return result

    loaded._read = read_while_others_call
    state = loaded.state()["all"]
    loaded._read = read
    for caller in callers:
        caller.join()
    assert torch.equal(state["first"], state["second"])
    later = loaded.state()["all"]["second"][0].item()
    assert (state["first"][0].item(), later) == (before, before + 2)


def test_a_listing_reads_the_tensors_of_its_graph():
    x = torch.arange(5.0, device=DEVICE)
    graph, _ = captured(lambda: x.sin() + 1)
    captured_graph = graph._graph
    listing = _C.list_graph(captured_graph)
    number = [t.allocation for t in listing.tensors].index(_C.allocation_of(x))
    assert torch.equal(listing.read(number).view(torch.float32)[:5], x.cpu())
    with pytest.raises(ValueError, match="there is no tensor"):
        listing.read(len(listing.tensors))
    graph.reset()
    with pytest.raises(RuntimeError, match="was reset"):
        listing.read(number)


def test_random_numbers_can_be_set(tmp_path):
    x = torch.ones(64, device=DEVICE)
    graph, y = captured(lambda: nn.functional.dropout(x, 0.5))
    graph.save(tmp_path / "g", inputs={"x": x}, outputs={"y": y})
    loaded = torch.webgpu.Graph.load(tmp_path / "g")
    torch.webgpu.manual_seed(5)
    expected = []
    for _ in range(2):
        graph.replay()
        expected.append(y.clone())
    assert torch.equal(loaded(x=x, seed0=5, offset0=0)["y"], expected[0])
    assert torch.equal(loaded(x=x)["y"], expected[1])


def test_nothing_of_a_file_during_a_capture(tmp_path):
    x = torch.ones(4, device=DEVICE)
    graph, y = captured(lambda: nn.functional.dropout(x, 0.5))
    graph.save(tmp_path / "g", inputs={"x": x}, outputs={"y": y})
    loaded = torch.webgpu.Graph.load(tmp_path / "g", trusted=True)
    other = torch.webgpu.Graph()
    with torch.webgpu.graph(other):
        z = nn.functional.dropout(x, 0.5)
        for refused in (
            lambda: graph.save(tmp_path / "h"),
            lambda: torch.webgpu.Graph.load(tmp_path / "g", trusted=True),
            lambda: loaded(x=x),
            loaded.state,
        ):
            with pytest.raises(RuntimeError, match="while a graph is captured"):
                refused()
    count = other.num_commands()
    other.replay()
    assert count == graph.num_commands()
    assert set(z.tolist()) <= {0.0, 2.0}


def test_a_refused_call_changes_nothing(tmp_path):
    program = example()
    program["variants"][0]["commands"][0]["words"][0] = ["-", "n", 2]
    path = tmp_path / "difference"
    write(path, program)
    loaded = torch.webgpu.Graph.load(path)
    x = torch.ones(4)
    assert loaded(x=x)["y"].tolist() == [2.0, 2.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="negative"):
        loaded(x=torch.full((1,), 9.0), a=7)
    assert loaded(x=x)["y"].tolist() == [2.0, 2.0, 0.0, 0.0]


def test_kernels_after_a_graph_that_is_gone(tmp_path):
    """A pipeline may get the address of one that a graph had."""
    x, out = torch.linspace(0, 1, 8, device=DEVICE), torch.empty(8, device=DEVICE)
    for old, new in [(torch.cos, torch.atan), (torch.expm1, torch.sinh), (torch.sin, torch.asinh)]:
        graph, _ = captured(lambda old=old: old(x, out=out))
        graph.save(tmp_path / "g", inputs={"x": x})
        loaded = torch.webgpu.Graph.load(tmp_path / "g", trusted=True)
        loaded(x=x)
        del loaded
        torch.testing.assert_close(new(x).cpu(), new(x.cpu()))


def test_a_capture_can_be_saved_twice_and_goes_on(tmp_path):
    state = torch.zeros(4, device=DEVICE)
    graph, _ = captured(lambda: state.add_(1))
    graph.replay()
    graph.save(tmp_path / "one", outputs={"state": state})
    graph.replay()
    graph.save(tmp_path / "two", outputs={"state": state})
    assert torch.webgpu.Graph.load(tmp_path / "one")()["state"].tolist() == [3.0] * 4
    loaded = torch.webgpu.Graph.load(tmp_path / "two")
    assert [loaded()["state"][0].item() for _ in range(3)] == [4.0, 5.0, 6.0]
    graph.replay()
    assert state.tolist() == [4.0] * 4


def test_program_structs_are_the_page(tmp_path):
    """Every member that the reader knows stands on the page."""
    page = (ROOT / "docs" / "graph-format.md").read_text()
    from torch_webgpu.graphs import _format

    for value in vars(_format).values():
        if isinstance(value, type) and issubclass(value, msgspec.Struct):
            for field in msgspec.structs.fields(value):
                assert f"`{field.name}`" in page or f'"{field.name}"' in page, field.name

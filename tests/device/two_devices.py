"""Checks of a process with two devices: a program that prints a JSON object, with the error of each
check ("" where it passed). Run by test_several_adapters.py."""

import inspect
import io
import json
import pathlib
import threading
import traceback

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

TWO = "Expected all tensors to be on the same device"


def dispatches(index: int) -> int:
    return torch.webgpu.profiler.stats(index)["dispatches"]


def check_a_backward_of_the_cpu_loads_no_driver():
    """autograd asks how many devices there are, to start its threads. Must be the first check."""
    x = torch.ones(3, requires_grad=True)
    x.square().sum().backward()
    maps = pathlib.Path("/proc/self/maps")
    assert not maps.exists() or "vulkan" not in maps.read_text()
    assert not torch.webgpu.is_initialized()


def check_there_are_two_devices():
    assert torch.webgpu.device_count() == torch.accelerator.device_count() == 2
    assert torch.webgpu.get_device_name(0) == torch.webgpu.get_device_name(1)
    for wrong in (
        lambda: torch.empty(1, device="webgpu:2"),
        lambda: torch.empty(0, device="webgpu:9"),
        lambda: torch.ones(1).to("webgpu:2"),
        lambda: torch.webgpu.set_device(2),
        lambda: torch.webgpu.device(77),
        lambda: torch.accelerator.set_device_index(2),
        lambda: torch.Generator(device="webgpu:2"),
        lambda: torch.webgpu.memory_allocated(2),
        lambda: torch.webgpu.Stream(2),
    ):
        with pytest.raises(RuntimeError, match="webgpu error: invalid device ordinal"):
            wrong()
    assert torch.webgpu.current_device() == 0


def check_the_current_device():
    def place():
        return torch.empty(1, device="webgpu").device.index

    with torch.webgpu.device(1):
        assert (
            torch.webgpu.current_device()
            == torch.accelerator.current_device_index()
            == place()
            == 1
        )
        with torch.accelerator.device_index(0):
            assert place() == 0
        with torch.webgpu.device(-1), torch.webgpu.device(None):
            assert place() == 1
        with torch.webgpu.device_of(torch.empty(1, device="webgpu:0")):
            assert place() == 0
        # Each thread has its own.
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.webgpu.current_device()))
        thread.start()
        thread.join()
        assert found == [0]
    assert place() == 0
    torch.webgpu.set_device("webgpu:1")
    assert place() == 1
    torch.accelerator.set_device_index(0)
    assert place() == 0
    with torch.device("webgpu:1"):
        assert torch.empty(1).device.index == 1


def check_copies():
    host = torch.randn(5, 7) * 50
    for there, back in (("webgpu:0", "webgpu:1"), ("webgpu:1", "webgpu:0")):
        near = host.to(there)
        for far in (near.to(back), near.to(back, non_blocking=True), near.webgpu(int(back[-1]))):
            assert far.device == torch.device(back)
            assert_close(far.cpu(), host, rtol=0, atol=0)
        assert_close(near.t()[1:, ::2].to(back).cpu(), host.t()[1:, ::2], rtol=0, atol=0)
        assert_close(near.to(back, torch.int32).cpu(), host.int())
        assert_close(near.to(back, torch.float16).cpu(), host.half(), rtol=0, atol=0)
        target = torch.zeros(5, 14, device=back)
        target[:, ::2].copy_(near[:1], non_blocking=True)
        expected = torch.zeros(5, 14)
        expected[:, ::2].copy_(host[:1])
        assert_close(target.cpu(), expected, rtol=0, atol=0)
        z = torch.view_as_complex(host[:4, :2].contiguous())
        assert_close(z.to(there).conj().to(back).cpu(), z.conj(), rtol=0, atol=0)
        bits = host > 0
        assert torch.equal(bits.to(there)[1:].to(back).cpu(), bits[1:])
        assert near[:0].to(back).shape == (0, 7)
    with pytest.raises(RuntimeError, match="must match the size"):
        near.copy_(torch.zeros(3, device="webgpu:1"))


def check_operands_of_two_devices():
    a = torch.randn(4, 4, device="webgpu:0")
    b = torch.randn(4, 4, device="webgpu:1")
    index = torch.tensor([0, 1], device="webgpu:1")
    for mix in (
        lambda: a + b,
        lambda: b.mul_(a),
        lambda: a @ b,
        lambda: torch.mm(a, a, out=b),
        lambda: torch.cat([a, b]),
        lambda: torch.where(a > 0, b, b),
        lambda: a.index_select(0, index),
        lambda: a.gather(0, index.view(1, 2)),
        lambda: F.layer_norm(a, (4,), b[0]),
        lambda: F.embedding(index, a),
        lambda: F.linear(a, a, b[0]),
        lambda: F.conv1d(a[None], b[..., None]),
        lambda: F.cross_entropy(a[:2], index),
        lambda: torch._foreach_add_([a], [b]),
        lambda: a + b.sum(),
    ):
        refusal = None
        try:
            mix()
        except RuntimeError as error:
            refusal = str(error)
        assert TWO in (refusal or ""), f"{refusal}: {inspect.getsource(mix)}"
    with pytest.raises(RuntimeError, match=r"at least two devices, webgpu:[01] and webgpu:[01]!"):
        a + b
    # Lists may hold tensors of both, if those at the same place are of one.
    sums = torch._foreach_add([a, b], [a, b])
    assert [s.device for s in sums] == [a.device, b.device]
    assert_close(sums[1].cpu(), 2 * b.cpu())
    # Numbers on the host may stand beside both.
    one = torch.tensor(1.0)
    assert_close((a + one).cpu(), a.cpu() + 1)
    assert_close((b + one).cpu(), b.cpu() + 1)


def check_operators_run_where_their_operands_lie():
    """The current device is webgpu:0; nothing may run there."""
    cases = {
        "norm": lambda x: F.layer_norm(x, x.shape[1:]),
        "scan": lambda x: x.cumsum(1),
        "sort": lambda x: x.sort(1)[1],
        "nonzero": lambda x: (x > 0).nonzero(),
        "product": lambda x: x @ x.t(),
        "sum": lambda x: x.sum(0),
        "fft": lambda x: torch.fft.rfft(x, dim=1).abs(),
        "factory": lambda x: (
            torch.arange(5, device=x.device) + torch.tril_indices(2, 2, device=x.device).sum()
        ),
        "resize": lambda x: x.clone().resize_(3, 3),
    }
    host = torch.randn(6, 9)
    x = host.to("webgpu:1")
    torch.webgpu.synchronize(1)
    before, others = dispatches(1), dispatches(0)
    for name, case in cases.items():
        result = case(x)
        assert result.device == x.device, name
        assert_close(result.cpu(), case(host), rtol=1e-4, atol=1e-4, msg=lambda m, n=name: n + m)
    assert dispatches(1) >= before + len(cases)
    assert dispatches(0) == others


def check_random_numbers():
    def draws(index):
        return torch.rand(8, device=f"webgpu:{index}").cpu()

    torch.manual_seed(5)
    assert torch.equal(draws(0), draws(1))  # both are seeded
    assert torch.webgpu.default_generators[1].device == torch.device("webgpu:1")
    assert len(torch.webgpu.default_generators) == len(torch.webgpu.get_rng_state_all()) == 2
    states = torch.webgpu.get_rng_state_all()
    first, second = draws(0), draws(1)
    torch.webgpu.set_rng_state_all(states)
    assert torch.equal(draws(0), first)
    assert torch.equal(torch.webgpu.get_rng_state(1), states[1])
    with torch.webgpu.device(1):
        torch.webgpu.manual_seed(9)
        assert torch.webgpu.initial_seed() == 9
    assert torch.webgpu.initial_seed() == 5
    assert not torch.equal(draws(1), second)
    generator = torch.Generator("webgpu:1").manual_seed(9)
    torch.webgpu.set_rng_state(generator.get_state(), "webgpu:1")
    own = torch.rand(8, device="webgpu:1", generator=generator)
    assert torch.equal(own.cpu(), draws(1))
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(8, device="webgpu:0", generator=generator)
    x = torch.ones(64, device="webgpu:1")
    torch.webgpu.manual_seed_all(3)
    kept = F.dropout(x).cpu()
    torch.webgpu.manual_seed_all(3)
    assert torch.equal(F.dropout(x.to("webgpu:0")).cpu(), kept)


def check_memory():
    memory = torch.webgpu
    memory.empty_cache()
    before = [memory.memory_allocated(i) for i in (0, 1)]
    x = torch.empty(1 << 20, device="webgpu:1")
    assert [memory.memory_allocated(i) for i in (0, 1)] == [before[0], before[1] + x.nbytes]
    assert torch.accelerator.memory_allocated(1) == memory.memory_allocated("webgpu:1")
    assert memory.max_memory_allocated(1) >= x.nbytes
    with memory.device(1):
        assert memory.memory_allocated() == before[1] + x.nbytes
    y = torch.empty_like(x, device="webgpu:0")
    del x, y
    reserved = [memory.memory_reserved(i) for i in (0, 1)]
    memory.empty_cache(1)
    assert memory.memory_reserved(0) == reserved[0]
    assert memory.memory_reserved(1) < reserved[1]
    memory.empty_cache()
    assert memory.memory_reserved(0) < reserved[0]
    memory.reset_peak_memory_stats(1)
    assert memory.max_memory_allocated(1) == memory.memory_allocated(1)
    assert 0 < memory.mem_get_info(1)[0] <= torch.accelerator.get_memory_info(1)[1]


def check_pinned_memory():
    """Each device copies from and to the same pinned memory."""
    features = [torch.webgpu.get_device_properties(index).features for index in (0, 1)]
    pinned = torch.zeros(100_000).pin_memory()
    for value in range(4):
        before = [torch.webgpu.profiler.stats(index)["host_copies"] for index in (0, 1)]
        pinned.fill_(value)
        copies = [pinned.to(f"webgpu:{index}", non_blocking=True) for index in (0, 1)]
        sums = [(copy + index).sum().item() for index, copy in enumerate(copies)]
        assert sums == [value * 100_000, (value + 1) * 100_000]
        for index, copy in enumerate(copies):
            pinned.copy_(copy + 1)
            assert pinned.unique().tolist() == [value + 1]
            after = torch.webgpu.profiler.stats(index)["host_copies"]
            is_direct = value > 0 and "host-mapped-pointer" in features[index]
            assert after - before[index] == 2 * is_direct


def check_saved_tensors():
    file = io.BytesIO()
    host = torch.randn(3, 4)
    torch.save({"x": host.to("webgpu:1")}, file)
    for location, index in ((None, 1), ("webgpu:0", 0), ({"webgpu:1": "webgpu:0"}, 0)):
        file.seek(0)
        x = torch.load(file, map_location=location)["x"]
        assert x.device == torch.device("webgpu", index)
        assert_close(x.cpu(), host, rtol=0, atol=0)
    capsule = torch.from_dlpack(host.to("webgpu:1"))
    assert capsule.device == torch.device("webgpu:1")
    assert_close(capsule.cpu(), host, rtol=0, atol=0)


def check_autograd():
    def run(first, second):
        torch.manual_seed(0)
        a, b = torch.nn.Linear(4, 6).to(first), torch.nn.Linear(6, 2).to(second)
        y = b(a(torch.ones(3, 4, device=first)).relu().to(second))
        y.square().sum().backward()
        optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
        optimizer.step()
        for module, device in ((a, first), (b, second)):
            for p in module.parameters():
                assert p.grad.device == torch.device(device)
        return [p.detach().cpu() for p in [*a.parameters(), *b.parameters()]]

    for actual, expected in zip(run("webgpu:0", "webgpu:1"), run("cpu", "cpu"), strict=True):
        assert_close(actual, expected)


def check_streams_and_events():
    streams = [torch.webgpu.current_stream(i) for i in (0, 1)]
    assert [s.device.index for s in streams] == [0, 1] and streams[0] != streams[1]
    with torch.webgpu.stream(streams[1]):
        assert torch.webgpu.current_device() == 1
        x = torch.ones(100, device="webgpu") * 2
        event = torch.webgpu.Event()
        event.record()
    streams[0].wait_event(event)
    assert event.query()
    event.synchronize()
    streams[1].synchronize()
    assert streams[1].query()
    torch.webgpu.synchronize(1)
    torch.accelerator.synchronize(1)
    timed = [torch.webgpu.Event(enable_timing=True) for _ in range(2)]
    for stream, end in zip(streams, timed, strict=True):
        end.record(stream)
        end.synchronize()
    with pytest.raises(RuntimeError, match="same device"):
        timed[0].elapsed_time(timed[1])
    assert x.sum().item() == 200
    # An error of a kernel is told by its device.
    torch.zeros(3, device="webgpu:1")[torch.tensor([5], device="webgpu:1")]
    torch.webgpu.synchronize(0)
    with pytest.raises(IndexError):
        torch.webgpu.synchronize(1)


def check_graphs():
    x = torch.ones(8, device="webgpu:1")
    y = torch.ones(8, device="webgpu:0")
    graph = torch.webgpu.Graph()
    with torch.webgpu.device(1), torch.webgpu.graph(graph):
        doubled = x * 2
        drawn = torch.rand(8, device="webgpu:1")
    x.fill_(3)
    results = []
    for _ in range(2):
        torch.webgpu.manual_seed_all(1)
        graph.replay()
        assert doubled.tolist() == [6] * 8
        results.append(drawn.cpu())
    assert torch.equal(*results) and results[0].std() > 0
    with pytest.raises(RuntimeError, match="operators ran on webgpu:1 while a graph of webgpu:0"):
        with torch.webgpu.graph(torch.webgpu.Graph()):
            x * 2
    other = torch.webgpu.Graph()
    with pytest.raises(RuntimeError, match="belongs to graphs of webgpu:1"):
        other.capture_begin(graph.pool())
    with torch.webgpu.graph(other, stream=torch.webgpu.current_stream(0)):
        z = y + 1
    other.replay()
    assert z.tolist() == [2] * 8


def check_compiled_functions():
    @torch.compile(fullgraph=True)
    def function(x):
        return (x.sin() + 1).sum(1)

    host = torch.randn(4, 8)
    others = dispatches(0)
    for index in (1, 0):
        result = function(host.to(f"webgpu:{index}"))
        assert result.device.index == index
        assert_close(result.cpu(), (host.sin() + 1).sum(1))
        if index:
            assert dispatches(0) == others


def check_kernels_of_users():
    library = torch.webgpu.compile_shader("""
        @group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @compute @workgroup_size(64)
        fn triple(@builtin(global_invocation_id) id: vec3<u32>) {
          if (id.x < arrayLength(&x)) { x[id.x] *= 3.0; }
        }
    """)
    for index in (0, 1, 1):
        x = torch.ones(64, device=f"webgpu:{index}")
        library.triple(x)
        assert x.tolist() == [3] * 64


def check_profiles():
    x = torch.ones(64, device="webgpu:1")
    with torch.webgpu.profile(1) as on_second:
        torch.ones(4, device="webgpu:0")
        x.add_(1)
    assert len(on_second.entries) == 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.PrivateUse1]) as p:
        x.add_(1)
        torch.ones(64, device="webgpu:0").add_(1)
    kernels = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.PrivateUse1]
    assert {k.device_index for k in kernels} == {0, 1}


def check_the_report():
    from torch_webgpu import _C, _environment

    is_one = len(set(_C.chosen_adapters())) == 1  # adapter, twice
    text = _environment.report(_environment.collect()).splitlines()
    summary = _environment.summary().splitlines()
    for devices in ["webgpu:0, webgpu:1"] if is_one else ["webgpu:0", "webgpu:1"]:
        assert any(line.endswith(f"<- {devices}") for line in text)
        assert any(line.endswith(f"used as {devices}") for line in summary)


def check_a_wait_submits_what_waits_elsewhere():
    """Else the other device would start its work when the first has finished."""
    x = torch.ones(8, device="webgpu:1")
    torch.webgpu.synchronize(1)
    before = torch.webgpu.profiler.stats(1)["submits"]
    y = x + 1
    assert torch.webgpu.profiler.stats(1)["submits"] == before
    torch.webgpu.synchronize(0)
    assert torch.webgpu.profiler.stats(1)["submits"] == before + 1
    assert y.tolist() == [2] * 8


CHECKS = {name.removeprefix("check_"): f for name, f in globals().items() if name[:6] == "check_"}


def failures() -> dict[str, str]:
    found = {}
    for name, check in CHECKS.items():
        try:
            check()
            found[name] = ""
        except (Exception, pytest.fail.Exception):
            found[name] = traceback.format_exc()
        torch.webgpu.set_device(0)
    return found


if __name__ == "__main__":
    print(json.dumps(failures()))

"""torch.profiler: kernels with device time, under the operators that launched them."""

import json

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from torch_webgpu import webgpu


def work(x):
    return ((x @ x).relu() * 2).sum()


@pytest.fixture
def x():
    x = torch.randn(128, 128, device="webgpu")
    work(x).item()  # pipelines are made
    return x


def kernels(prof):
    kind = torch.autograd.DeviceType.PrivateUse1
    return [event for event in prof.events() if event.device_type == kind]


def test_kernels_stand_under_their_operators(x):
    before = webgpu.stats()["dispatches"]
    with profile() as prof:
        work(x).item()
    dispatches = webgpu.stats()["dispatches"] - before
    ran = kernels(prof)
    assert len(ran) == dispatches >= 4
    assert all(event.time_range.elapsed_us() > 0 for event in ran)
    operators = {e.key: e for e in prof.key_averages()}
    for name in ("aten::mm", "aten::clamp_min", "aten::mul", "aten::sum"):
        assert operators[name].self_device_time_total > 0
    assert operators["aten::relu"].self_device_time_total == 0  # its clamp_min has the kernel
    assert operators["aten::relu"].device_time_total > 0
    total = sum(event.time_range.elapsed_us() for event in ran)
    by_operator = sum(
        e.self_device_time_total for e in operators.values() if e.key.startswith("aten::")
    )
    assert by_operator == pytest.approx(total, rel=1e-3)
    table = prof.key_averages().table(sort_by="self_device_time_total")
    if not torch.cuda.is_available():  # else the table names all columns after CUDA
        assert "Self WEBGPU" in table and "Self WEBGPU time total" in table


def test_kernels_of_backward_passes(x):
    model = nn.Sequential(nn.Linear(128, 64), nn.Tanh()).webgpu()
    with profile() as prof:
        model(x).square().mean().backward()
        webgpu.synchronize()
    operators = {e.key: e for e in prof.key_averages()}
    backward = operators["autograd::engine::evaluate_function: TanhBackward0"]
    assert backward.device_time_total > 0
    assert operators["aten::tanh_backward"].self_device_time_total > 0


def test_kernels_lie_within_the_trace(x):
    """The device's clock is that of the host, to the precision of a submission."""
    with profile() as prof:
        for _ in range(5):
            work(x).item()
    first, last = kernels(prof)[0], kernels(prof)[-1]
    host = [e for e in prof.events() if e.device_type == torch.autograd.DeviceType.CPU]
    begin = min(e.time_range.start for e in host)
    end = max(e.time_range.end for e in host)
    slack = 0.2 * (end - begin) + 2000  # microseconds
    assert begin - slack < first.time_range.start < last.time_range.end < end + slack
    starts = [e.time_range.start for e in kernels(prof)]
    assert starts == sorted(starts)


def test_chrome_trace(x, tmp_path):
    with profile() as prof:
        with record_function("the step"):
            work(x).item()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ran = [e for e in events if e.get("cat") == "kernel"]
    assert len(ran) == len(kernels(prof)) and all(e["dur"] > 0 for e in ran)
    names = {e["name"] for e in events}
    assert {"aten::mm", "the step"} <= names
    labels = [e["args"]["name"] for e in events if e.get("name") == "process_name"]
    assert webgpu.get_device_name() in labels
    operators = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "cpu_op"}
    assert {operators[e["args"]["External id"]] for e in ran} >= {"aten::mm", "aten::sum"}


def test_a_trace_that_ends_within_an_operator(x):
    """The next one does not take its kernels for that operator's."""
    trace = profile()
    with torch.autograd.profiler.record_function("outer"):
        trace.start()
        scope = torch.ops.profiler._record_function_enter_new("inner")
        work(x).item()
        trace.stop()
    torch.ops.profiler._record_function_exit._RecordFunction(scope)
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        work(x)
    with profile() as prof:
        graph.replay()
        webgpu.synchronize()
    replayed = kernels(prof)
    assert len(replayed) >= 4 and all(e.time_range.elapsed_us() > 0 for e in replayed)
    operators = [e for e in prof.key_averages() if e.key.startswith("aten::")]
    assert all(e.self_device_time_total == 0 for e in operators)


def test_a_device_that_starts_within_the_trace(check_python):
    check_python(
        "import torch\n"
        "from torch.profiler import profile\n"
        "assert not torch.webgpu.is_initialized()\n"
        "with profile() as prof:\n"
        "    torch.randn(9, 9, device='webgpu').softmax(1).cpu()\n"
        "assert any(e.self_device_time_total > 0 for e in prof.key_averages())\n"
    )


def test_a_trace_of_the_cpu_does_not_start_the_device(check_python):
    check_python(
        "import torch\n"
        "from torch.profiler import profile\n"
        "with profile() as prof:\n"
        "    torch.randn(9, 9).softmax(1)\n"
        "assert prof.key_averages() and not torch.webgpu.is_initialized()\n"
    )


def test_activities_without_the_device(x):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        work(x).item()
        with webgpu.profile():  # is free
            work(x)
    assert not kernels(prof)
    assert "aten::mm" in {e.key for e in prof.key_averages()}


def test_schedule(x):
    finished = []
    with profile(
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=finished.append
    ) as prof:
        for _ in range(8):
            work(x).item()
            prof.step()
    assert len(finished) == 2
    assert len(kernels(prof)) >= 8


def test_memory(x):
    del x
    with profile(profile_memory=True) as prof:
        kept = torch.zeros(1 << 20, device="webgpu")
        torch.zeros(1 << 18, device="webgpu")
    webgpu.synchronize()
    usage = {e.key: e for e in prof.key_averages()}
    assert usage["aten::zeros"].device_memory_usage == kept.nbytes + (4 << 18)
    freed = [e for e in prof.events() if e.name == "[memory]" and e.device_memory_usage < 0]
    assert sum(e.device_memory_usage for e in freed) == -(4 << 18)


def test_one_profiler_at_a_time(x, capfd):
    with webgpu.profile() as outer:
        with pytest.raises(RuntimeError, match="records this device already"):
            with webgpu.profile():
                pass
        with profile() as prof:
            work(x).item()
        printed = capfd.readouterr().err
        assert "torch.profiler records no kernels of the webgpu device: a profiler" in printed
        assert "frame #" not in printed
        work(x)
    assert not kernels(prof)
    assert outer.entries
    with profile() as prof:
        work(x).item()
    assert kernels(prof)


@pytest.mark.parametrize("use_kineto", [True, False])
def test_profiler_of_autograd(x, use_kineto, capfd):
    with torch.autograd.profiler.profile(use_device="webgpu", use_kineto=use_kineto) as prof:
        work(x).item()
    operators = {e.key: e for e in prof.key_averages()}
    assert operators["aten::mm"].device_time_total > 0
    assert "Error" not in capfd.readouterr().err


def test_profiler_of_autograd_before_the_device_starts(check_python):
    check_python(
        "import torch\n"
        "with torch.autograd.profiler.profile(use_device='webgpu', use_kineto=False) as prof:\n"
        "    x = torch.ones(64, 64) + 1\n"
        "    x.webgpu() @ x.webgpu()\n"
        "assert any(e.key == 'aten::mm' for e in prof.key_averages())\n"
    )

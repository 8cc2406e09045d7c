"""Hugging Face Accelerate: the device that it chooses, mixed precision, checkpoints."""

import os
import subprocess
import sys
import textwrap
import types

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerate = pytest.importorskip("accelerate")

from accelerate.state import AcceleratorState, PartialState  # noqa: E402
from accelerate.utils import ProfileKwargs, get_max_memory, infer_auto_device_map  # noqa: E402

from torch_webgpu.integrations.accelerate import would_choose_webgpu  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    """Accelerate keeps its choice in the process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_software_is_not_chosen_unasked(monkeypatch):
    monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
    if torch.webgpu.get_device_properties().type == "software":
        assert PartialState().device == torch.device("cpu")


def test_an_accelerator_is_chosen(hardware):
    assert PartialState().device == torch.device("webgpu", 0)


@pytest.mark.parametrize("how", ["argument", "variable", "device"])
def test_the_programs_choice_comes_first(hardware, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    if how == "device":
        monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    accelerator = accelerate.Accelerator(cpu=how == "argument")
    assert accelerator.device == torch.device("cpu")


@pytest.mark.parametrize("name", ["mps", "hpu", "xpu"])
def test_another_accelerator_comes_first(hardware, monkeypatch, name):
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
    assert would_choose_webgpu() and 0 in get_max_memory()
    find = f"is_{name}_available"
    monkeypatch.setattr(accelerate.state, find, lambda *args, **kwargs: True)
    assert not would_choose_webgpu()
    assert 0 not in get_max_memory()
    assert "PYTORCH_ENABLE_MPS_FALLBACK" not in os.environ


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 1))


def batches():
    inputs = torch.randn(64, 6, generator=torch.Generator().manual_seed(2))
    return DataLoader(TensorDataset(inputs, inputs.prod(1, keepdim=True)), batch_size=16)


def train(accelerator, model, optimizer, loader, epochs=1):
    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:
            with accelerator.autocast():
                loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).cpu()


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_training(enable, precision):
    enable("accelerate")
    runs = []
    for cpu in (True, False):
        fresh = accelerate.Accelerator(cpu=cpu, mixed_precision="no" if cpu else precision)
        model = network().eval()  # without dropout: its numbers are the device's own
        parts = fresh.prepare(model, torch.optim.SGD(model.parameters(), 0.05), batches())
        runs.append(train(fresh, *parts, epochs=3))
        weight = next(model.parameters())
        assert weight.device.type == ("cpu" if cpu else "webgpu")
        assert weight.dtype == torch.float32
        if not cpu:
            assert (fresh.scaler is not None) == (precision == "fp16")
            assert not parts[1].step_was_skipped
        AcceleratorState._reset_state(reset_partial_state=True)
    tolerance = {"no": 1e-5, "fp16": 5e-3, "bf16": 3e-2}[precision]
    torch.testing.assert_close(runs[1], runs[0], rtol=tolerance, atol=tolerance)
    assert runs[0].std() > 3 * tolerance * runs[0].mean()  # the losses do change


def test_forward_runs_in_half_precision(enable):
    enable("accelerate")
    accelerator = accelerate.Accelerator(mixed_precision="fp16")
    seen = []
    model = network()
    model[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    accelerator.prepare(model)(torch.randn(2, 6, device="webgpu"))
    assert seen == [torch.float16]


def test_a_checkpoint_continues_the_random_numbers(enable, tmp_path):
    enable("accelerate")
    accelerator = accelerate.Accelerator()
    model = network()
    parts = accelerator.prepare(model, torch.optim.Adam(model.parameters()), batches())
    train(accelerator, *parts)
    accelerator.save_state(tmp_path)
    first = train(accelerator, *parts)
    torch.manual_seed(99)
    accelerator.load_state(tmp_path)
    assert torch.equal(train(accelerator, *parts), first)


def test_memory_for_device_maps(enable):
    enable("accelerate")
    planned = get_max_memory()
    free, total = torch.webgpu.mem_get_info()
    assert 0.5 * free <= planned[0] <= total
    shared = torch.webgpu.get_device_properties().type != "discrete"
    assert ("cpu" in planned) == (not shared)
    assert get_max_memory({"cpu": "2KB", 0: "1KB"}) == {0: 1000, "cpu": 2000}
    with pytest.raises(ValueError, match="no device webgpu:7"):
        get_max_memory({7: "1KB"})


def test_memory_of_several_adapters(enable, monkeypatch):
    """A GPU has memory of its own, beside the host's; an adapter in main memory counts once."""
    enable("accelerate")
    kinds, free = ["discrete", "discrete", "integrated"], [3 << 30, 2 << 30, 1 << 30]
    properties = [types.SimpleNamespace(type=kind) for kind in kinds]
    monkeypatch.setattr(torch.webgpu, "device_count", lambda: len(kinds))
    monkeypatch.setattr(torch.webgpu, "get_device_properties", properties.__getitem__)
    monkeypatch.setattr(torch.webgpu, "mem_get_info", lambda index: (free[index], 4 << 30))
    planned = get_max_memory()
    assert planned.pop("cpu") > 0
    assert planned == {0: 3 << 30, 1: 2 << 30}
    assert get_max_memory({2: "1KB", 1: 5}) == {1: 5, 2: 1000}
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    layer = 64 * 65 * 4
    plan = infer_auto_device_map(model, max_memory={0: 3 * layer, 1: 3 * layer, "cpu": "1MB"})
    assert list(plan.values()) == sorted(plan.values()) and set(plan.values()) == {0, 1}


def test_a_model_beyond_the_device_is_split(enable):
    enable("accelerate")
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))).eval()
    inputs = torch.randn(3, 64)
    with torch.no_grad():
        expected = model(inputs)
        plan = infer_auto_device_map(model, max_memory={0: 2 * 64 * 65 * 4 + 20_000, "cpu": "1MB"})
        assert set(plan.values()) == {0, "cpu"}
        model = accelerate.dispatch_model(model, plan)
        assert model[0].weight.device == torch.device("webgpu", 0)
        torch.testing.assert_close(model(inputs).cpu(), expected)


def test_release_memory_empties_the_pool(enable):
    enable("accelerate")
    big = torch.empty(4 << 20, device="webgpu")
    before = torch.webgpu.memory_reserved()
    accelerate.utils.release_memory(big)
    del big
    accelerate.utils.memory.clear_device_cache()
    assert torch.webgpu.memory_reserved() <= before - (16 << 20)


def test_profile(enable, tmp_path):
    enable("accelerate")
    kwargs = ProfileKwargs(activities=["cpu", "webgpu"])
    accelerator = accelerate.Accelerator(kwargs_handlers=[kwargs])
    with accelerator.profile() as profile:
        torch.randn(8, 8, device="webgpu").softmax(1).cpu()
    assert any(e.device_time > 0 for e in profile.key_averages())


def test_launch(tmp_path):
    """`accelerate launch` starts the program on the device, told by the environment."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, accelerate\n"
        "accelerator = accelerate.Accelerator(mixed_precision='fp16')\n"
        "print(accelerator.device, accelerator.mixed_precision)\n"
    )
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes=1", str(script)]
    environment = {
        **os.environ,
        "TORCH_WEBGPU_INTEGRATIONS": "accelerate",
        "HF_HOME": str(tmp_path),
        "ACCELERATE_USE_CPU": "",
    }
    environment.pop("ACCELERATE_USE_CPU")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "webgpu:0 fp16" in done.stdout


# What a process prints at the end: the sum of its weights after a training with half of the data.
TWO = """
import os, sys, torch
from torch import nn
from accelerate import Accelerator

accelerator = Accelerator()
torch.manual_seed(accelerator.process_index)  # DDP makes the models equal
model = nn.Linear(6, 1)
inputs = torch.randn(64, 6, generator=torch.Generator().manual_seed(2))
data = torch.utils.data.TensorDataset(inputs, inputs.prod(1, keepdim=True))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), 0.05), loader
)
seen = 0
for x, y in loader:
    seen += len(x)
    optimizer.zero_grad()
    accelerator.backward(nn.functional.mse_loss(model(x), y))
    optimizer.step()
weights = [p.detach() for p in model.parameters()]
weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in weights]
weights = torch.cat([p.flatten() for p in weights])
if os.environ.get("KEEP") and accelerator.is_main_process:
    torch.save(weights.cpu(), os.environ["KEEP"])
everyone = accelerator.gather(torch.tensor([accelerator.process_index], device=weights.device))
total = accelerator.reduce(torch.ones(2, device=weights.device)).tolist()
accelerator.save_state(os.environ["FOLDER"] + "/state")
accelerator.wait_for_everyone()
accelerator.load_state(os.environ["FOLDER"] + "/state")
model(x.cpu())  # DDP brings it to the device of the model
line = f"rank {accelerator.process_index} {accelerator.device} {type(model).__name__} {seen} "
line += f"{everyone.tolist()} {total}"
sys.stdout.write(line + chr(10))
accelerator.end_training()
"""


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.further), 2])
def test_two_processes_train_one_model(run_two, tmp_path, devices):
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    end = "DistributedDataParallel 32 [0, 1] [2.0, 2.0]"
    expected = [f"rank {rank} webgpu:{rank % devices} {end}" for rank in range(2)]
    assert run_two(TWO, devices, KEEP=str(tmp_path / "kept")) == expected
    # One process, with batches of twice the size.
    torch.manual_seed(0)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    inputs = torch.randn(64, 6, generator=torch.Generator().manual_seed(2))
    for x in inputs.split(16):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x.prod(1, keepdim=True)).backward()
        optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    torch.testing.assert_close(torch.load(tmp_path / "kept"), weights, rtol=1e-5, atol=1e-6)


@pytest.mark.further
def test_launch_of_two_processes(run_two):
    # As the command `accelerate launch` does, without what its other commands import.
    main = "from accelerate.commands.launch import main; main()"
    launcher = ("-c", main, "--num_processes", "2", "--main_process_port", "0")
    lines = run_two(TWO, launcher=launcher)
    assert [line.split()[1:4] for line in lines] == [
        [str(rank), f"webgpu:{rank}", "DistributedDataParallel"] for rank in range(2)
    ]


def test_a_notebook_says_the_device(enable, capsys, monkeypatch):
    enable("accelerate")
    devices = []

    def launch():
        AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.notebook_launcher(lambda: devices.append(PartialState().device), num_processes=1)
        return capsys.readouterr().out

    assert launch() == "Launching training on one WebGPU device.\n"
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    assert launch() == "Launching training on CPU.\n"
    assert [device.type for device in devices] == ["webgpu", "cpu"]
    # What another version may print there: all that `print` takes.
    alone = "Launching training on CPU."
    for values, options in (((), {}), ((["list"],), {}), ((alone, 2), {"sep": "-", "flush": True})):
        accelerate.launchers.print(*values, **options)
        written = capsys.readouterr().out
        print(*values, **options)
        assert written == capsys.readouterr().out
    accelerate.launchers.print(alone, end="", file=sys.stderr)
    assert capsys.readouterr().err == alone
    monkeypatch.delenv("ACCELERATE_TORCH_DEVICE")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert launch() == "Launching training on CPU.\n"


# Its processes are forked, so nothing may load the drivers before.
NOTEBOOK = """
import contextlib, io, socket
from accelerate import notebook_launcher

def main():
    import sys
    sys.stdout = sys.__stdout__
{main}

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
said = io.StringIO()
with contextlib.redirect_stdout(said):
    notebook_launcher(main, num_processes=2, use_port=port)
print("rank -", said.getvalue())
"""


@pytest.mark.further
def test_two_processes_of_a_notebook(run_two):
    code = NOTEBOOK.format(main=textwrap.indent(TWO, "    "))
    said, *lines = run_two(code, launcher=("-u",))
    assert said == "rank - Launching training in 2 processes."
    assert [line.split()[1:4] for line in lines] == [
        [str(rank), f"webgpu:{rank}", "DistributedDataParallel"] for rank in range(2)
    ]


@pytest.mark.further
def test_two_processes_on_the_cpu_if_the_program_says_so(run_two):
    lines = run_two(TWO, devices=1, ACCELERATE_USE_CPU="true")
    assert [line.split()[3] for line in lines] == ["DistributedDataParallel"] * 2
    assert all(line.split()[2].startswith("cpu") for line in lines)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"FSDP_VERSION": "2"}, "FSDPLinear"),
        # The optimizer is made before the model is wrapped, and so has the original parameters.
        pytest.param(
            {"FSDP_VERSION": "1", "FSDP_USE_ORIG_PARAMS": "true"},
            "FullyShardedDataParallel",
            marks=pytest.mark.further,
        ),
    ],
)
def test_two_processes_shard_one_model(run_two, options, name):
    lines = run_two(TWO, ACCELERATE_USE_FSDP="true", **options)
    assert [line.split()[1:5] for line in lines] == [
        [str(rank), f"webgpu:{rank}", name, "32"] for rank in range(2)
    ]


@pytest.mark.parametrize("given", ["nccl", "mpi"])
def test_another_backend_is_refused(enable, monkeypatch, given):
    enable("accelerate")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(ValueError, match=f"backend {given} is not available, please use gloo"):
        PartialState(backend=given)

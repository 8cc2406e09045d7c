"""Exit, fork, worker processes, interrupts, and the GIL."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

# Forks a fresh child per round, which is far quicker than a new interpreter, since torch is loaded.
# The parent uses neither device nor autograd, so each child starts both and then exits.
EXITS = """
import os, sys
import torch
import torch_webgpu

statuses = {{}}
for _ in range({rounds}):
    pid = os.fork()
    if pid == 0:
        {body}
        sys.exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    statuses[status] = statuses.get(status, 0) + 1
print(statuses)
"""
BACKWARD = {
    "webgpu": "x = torch.ones(3).webgpu().requires_grad_(); "
    "(x * 2).t().backward(torch.ones(3).webgpu())",
    "cpu": "x = torch.ones(3, requires_grad=True); (x * 2).sum().backward(); "
    "torch.set_grad_enabled(False)",
}


@pytest.mark.parametrize("rounds", [4, pytest.param(28, marks=pytest.mark.long)])
@pytest.mark.parametrize("device", ["webgpu", "cpu"])
def test_exit_right_after_backward(check_python, device, rounds):
    # CPU too: autograd starts the webgpu device's thread with the first backward of any device.
    # Without the shutdown code a run aborts with a probability of a sixth to two thirds.
    printed = check_python(EXITS.format(rounds=rounds, body=BACKWARD[device]), timeout=400)
    assert printed.strip() == f"{{0: {rounds}}}"


@pytest.mark.parametrize("device", ["webgpu", "cpu"])
def test_exit_of_a_whole_program(check_python, device):
    check_python(f"import torch, torch_webgpu\n{BACKWARD[device]}\n")


def test_exit_with_work_under_way(check_python):
    check_python(
        "import torch, torch_webgpu\n"
        "x = torch.zeros(1 << 16).webgpu()\n"
        "for _ in range(200):\n"
        "    x.add_(1)\n"
    )


FORK = """
import os, pickle, sys
from multiprocessing.reduction import ForkingPickler
import torch
import torch_webgpu

x = torch.ones(3).webgpu()
x.requires_grad_().view(3).backward(torch.ones(3).webgpu())
sent = ForkingPickler.dumps(torch.ones(2).webgpu())
pid = os.fork()
if pid == 0:
    for use in ({use}):
        try:
            use()
            print("no error")
        except RuntimeError as error:
            print(error)
    assert torch.webgpu._is_in_bad_fork()
    assert not torch.webgpu.is_available()
    torch.manual_seed(0)
    del x
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert x.tolist() == [1, 1, 1]
"""


def test_forked_child_gets_cudas_kind_of_error(check_python):
    uses = [
        "lambda: torch.ones(3).webgpu()",
        "lambda: x.cpu()",
        "lambda: x + x",
        "lambda: torch.webgpu.synchronize()",
        "lambda: torch.webgpu.init()",
        "lambda: pickle.loads(sent)",
    ]
    lines = check_python(FORK.format(use=", ".join(uses))).splitlines()
    assert len(lines) == len(uses)
    for line in lines:
        assert line.startswith("Cannot re-initialize WebGPU in forked subprocess.")
        assert "'spawn' start method" in line


def test_fork_before_first_use(check_python):
    check_python(
        "import os, torch, torch_webgpu\n"
        "pid = os.fork()\n"
        "assert torch.ones(2).webgpu().tolist() == [1, 1]\n"
        "if pid:\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
    )


def test_fork_after_a_look_for_adapters(check_python):
    # The look loads the drivers, some of which do not work in a forked child.
    check_python(
        "import os, torch\n"
        "assert torch.webgpu.is_available()\n"
        "pid = os.fork()\n"
        "if pid:\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3\n"
        "else:\n"
        "    assert not torch.webgpu.is_available()\n"
        "    try:\n"
        "        torch.ones(2).webgpu()\n"
        "    except RuntimeError as error:\n"
        "        assert 'Cannot re-initialize WebGPU' in str(error)\n"
        "        raise SystemExit(3)\n"
    )


@pytest.mark.parametrize("pin_memory", [False, True])
def test_dataloader_workers(pin_memory):
    torch.ones(1).webgpu()  # the workers are forked from a process that uses the device
    data = TensorDataset(torch.arange(64.0).view(32, 2))
    loader = DataLoader(data, batch_size=8, num_workers=2, pin_memory=pin_memory)
    batches = [batch.webgpu(non_blocking=True) for (batch,) in loader]
    assert torch.equal(torch.cat([batch.cpu() for batch in batches]), data.tensors[0])


def test_spawned_process_uses_the_device(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch
            import torch_webgpu
            import torch.multiprocessing as mp

            def work(rank):
                assert torch.full((2,), float(rank)).webgpu().tolist() == [rank, rank]

            if __name__ == "__main__":
                torch.ones(1).webgpu()
                mp.spawn(work, nprocs=2)
            """
        )
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=180)


def test_interrupt_leaves_no_hang():
    code = textwrap.dedent(
        """
        import torch
        import torch_webgpu

        x = torch.zeros(1 << 16).webgpu()
        print("ready", flush=True)
        try:
            while True:
                x.add_(1)
                torch.webgpu.synchronize()
        except KeyboardInterrupt:
            print(x[:2].cpu().isfinite().all().item(), flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out == "True\n"
    assert process.returncode == 0


WAITS = {
    "synchronize": lambda x: torch.webgpu.synchronize(),
    "event": lambda x: recorded_event().synchronize(),
    "item": lambda x: x[0].item(),
    "cpu": lambda x: x.cpu(),
    "stream": lambda x: torch.webgpu.current_stream().synchronize(),
}


def recorded_event() -> torch.Event:
    event = torch.webgpu.Event()
    event.record()
    return event


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_waiting_releases_the_gil(wait):
    x = torch.zeros(1 << 22).webgpu()
    x.add_(1)
    torch.webgpu.synchronize()
    ticks: list[float] = []
    waiting, done = threading.Event(), threading.Event()

    def tick() -> None:
        waiting.wait()
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    for _ in range(60):
        x.add_(1)
    waiting.set()
    begin = time.perf_counter()
    wait(x)
    end = time.perf_counter()
    done.set()
    ticker.join()
    if end - begin < 0.02:
        pytest.skip("the device is too fast for the wait to be seen")
    inside = [t for t in ticks if begin + 0.005 < t < end - 0.005]
    assert len(inside) >= 3


def test_environment_is_left_alone(check_python):
    assert check_python(
        "import os; before = dict(os.environ)\n"
        "import torch, torch_webgpu\n"
        "torch.ones(1).webgpu()\n"
        "print(before == dict(os.environ))\n",
        env={"TORCH_WEBGPU_FALLBACK": os.environ.get("TORCH_WEBGPU_FALLBACK", "error")},
    ).endswith("True\n")

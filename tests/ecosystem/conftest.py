"""Libraries that users bring to the device. What is not installed is skipped: the `test` extra has
a part of them, `make ecosystem` installs all, and runs the tests that are marked `further`."""

import os
import subprocess
import sys

import pytest

from torch_webgpu import integrations
from torch_webgpu.integrations import _choice


def pytest_collection_modifyitems(items):
    """Starting programs that import a library is most of the time that this folder takes."""
    if os.environ.get("TORCH_WEBGPU_ECOSYSTEM") != "all":
        skip = pytest.mark.skip(reason="`make ecosystem` runs it")
        for item in items:
            if item.get_closest_marker("further"):
                item.add_marker(skip)


@pytest.fixture
def enable():
    """`integrations.enable`, undone at the end. Needed, for the suite's adapter is software."""
    before = set(_choice.enabled)
    yield integrations.enable
    _choice.enabled.clear()
    _choice.enabled.update(before)


@pytest.fixture
def hardware(monkeypatch):
    """Makes the adapter count as an accelerator, as one of a GPU does."""
    real = _choice._C.adapter()
    monkeypatch.setattr(_choice._C, "adapter", lambda: {**real, "type": "discrete"})
    monkeypatch.setattr(_choice, "_told", set())


@pytest.fixture
def run_two(tmp_path):
    """Runs a program in two processes, one for each of two devices, or in those that a launcher
    starts. Returns what the processes printed, a line each, sorted."""

    def run(code: str, devices: int = 2, launcher: tuple[str, ...] = (), **variables: str):
        script = tmp_path / "script.py"
        script.write_text(code)
        torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
        done = subprocess.run(
            [sys.executable, *(launcher or torchrun), str(script)],
            env={
                **os.environ,
                "TORCH_WEBGPU_ADAPTER": ",".join(["0"] * devices),
                "TORCH_WEBGPU_INTEGRATIONS": "all",
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
                "HF_HOME": str(tmp_path),
                "FOLDER": str(tmp_path),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        return sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))

    return run

"""Several devices in a process: one software adapter as two devices, in a process of their own."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from two_devices import CHECKS

import torch_webgpu

ADAPTER = os.environ.get("TORCH_WEBGPU_ADAPTER") or "0"


@functools.cache
def failures() -> dict[str, str]:
    program = pathlib.Path(__file__).with_name("two_devices.py")
    process = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "TORCH_WEBGPU_ADAPTER": f"{ADAPTER},{ADAPTER}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    result: dict[str, str] = json.loads(process.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("check", CHECKS)
def test_check(check):
    assert not failures()[check], failures()[check]


CPU_BACKWARD = """
import pathlib, torch
torch.manual_seed(3)
x = torch.ones(3, requires_grad=True)
x.square().sum().backward()
maps = pathlib.Path("/proc/self/maps")
assert not maps.exists() or "vulkan" not in maps.read_text()
assert not torch.webgpu.is_initialized()
"""


def test_a_backward_of_the_cpu_may_come_first(check_python):
    """Also where autograd has started threads for more devices than there are."""
    program = CPU_BACKWARD + (
        "y = torch.ones(3, device='webgpu', requires_grad=True)\n"
        "y.square().sum().backward()\n"
        "assert y.grad.tolist() == [2] * 3\n"
        "try:\n"
        "    torch.empty(1, device='webgpu:7')\n"
        "except RuntimeError as error:\n"
        "    assert 'invalid device ordinal 7, there ' in str(error)\n"
        "else:\n"
        "    raise AssertionError('there is a device webgpu:7')\n"
        "for choose in (torch.accelerator.set_device_index, torch.webgpu.set_device):\n"
        "    try:\n"
        "        choose(7)\n"
        "    except RuntimeError as error:\n"
        "        assert 'invalid device ordinal 7, there ' in str(error)\n"
        "    else:\n"
        "        raise AssertionError('webgpu:7 can be the current device')\n"
    )
    check_python(program)
    check_python(program, env={"TORCH_WEBGPU_ADAPTER": ""})


def test_a_wrong_list_of_adapters_is_refused(run_python):
    process = run_python(
        "import torch; torch.ones(1, device='webgpu')", env={"TORCH_WEBGPU_ADAPTER": "0,99"}
    )
    assert process.returncode != 0
    assert "'0,99': '99' names no adapter; there are: 0: " in process.stderr


EQUAL_ADAPTERS = """
import os, torch
assert torch.webgpu.device_count() == 2, torch.webgpu.list_adapters()
first, second = torch.webgpu.list_adapters()[:2]
assert first == second
a, b = torch.ones(3, device="webgpu:0"), torch.ones(3, device="webgpu:1")
assert (a + 1).tolist() == [2] * 3 and (b * 3).tolist() == [3] * 3
assert (a.to("webgpu:1") + b).tolist() == [2] * 3
assert "VK_INSTANCE_LAYERS" not in os.environ and "VK_LAYER_PATH" not in os.environ
"""


def test_equal_adapters_are_devices_of_their_own(check_python, tmp_path):
    """Dawn gives one of them. The driver is named twice, so that there are two."""
    found = sorted(pathlib.Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
    if not found or torch_webgpu._C.properties()[0]["backend"] != "vulkan":
        pytest.skip("no llvmpipe, or another backend")
    copy = shutil.copy(found[0], tmp_path / "copy.json")
    check_python(
        EQUAL_ADAPTERS,
        env={"VK_DRIVER_FILES": f"{found[0]}:{copy}", "TORCH_WEBGPU_ADAPTER": "0,1"},
    )


def test_nothing_is_written_about_limits(run_python):
    done = run_python("import torch; torch.ones(1, device='webgpu'); torch.webgpu.list_adapters()")
    assert done.returncode == 0 and "artificially" not in done.stderr

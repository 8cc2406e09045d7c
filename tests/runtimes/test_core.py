"""The checks of core_checks.py on the second runtime, on a second driver, and in debug mode."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest
from core_checks import CHECKS

PROGRAM = pathlib.Path(__file__).with_name("core_checks.py")
SWIFTSHADER = pathlib.Path(sys.prefix) / "share" / "swiftshader" / "vk_swiftshader_icd.json"

# Name -> environment of the process.
SETTINGS = {
    "wgpu-native": {"TORCH_WEBGPU_RUNTIME": "wgpu"},
    "SwiftShader": {
        "TORCH_WEBGPU_RUNTIME": "dawn",
        "VK_DRIVER_FILES": str(SWIFTSHADER),
        "VK_ICD_FILENAMES": str(SWIFTSHADER),
    },
    # With validation and robustness.
    "debug": {"TORCH_WEBGPU_RUNTIME": "dawn", "TORCH_WEBGPU_DEBUG": "1"},
}


@functools.lru_cache(None)
def report(setting: str) -> dict:
    if setting == "SwiftShader" and not SWIFTSHADER.exists():
        reason = f"{SWIFTSHADER} is missing: tools/ensure_swiftshader.sh fetches it on Debian"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    run = subprocess.run(
        [sys.executable, PROGRAM],
        env={**os.environ, **SETTINGS[setting]},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_check(setting, check):
    failure = report(setting)["failures"][check]
    assert not failure, failure


def test_the_second_runtime_was_used():
    assert "wgpu_native" in report("wgpu-native")["runtime"]


def test_the_second_driver_was_used():
    properties = report("SwiftShader")
    assert "SwiftShader" in properties["adapter"]
    # What makes it worth a run: no half floats in shaders, fewer bindings, smaller workgroups.
    assert "shader-f16" not in properties["features"]
    assert properties["limits"]["max_storage_buffers"] < 16
    assert properties["limits"]["max_workgroup_invocations"] == 256

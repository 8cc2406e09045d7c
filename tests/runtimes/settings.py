"""The other runtimes, drivers and modes, each in a process of its own."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

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
def report(program: str, setting: str, *arguments: str) -> dict:
    """What `program` of this folder prints, as JSON, when it runs under `setting`."""
    if setting == "SwiftShader" and not SWIFTSHADER.exists():
        reason = f"{SWIFTSHADER} is missing: tools/ensure_swiftshader.sh fetches it on Debian"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    run = subprocess.run(
        [sys.executable, pathlib.Path(__file__).with_name(program), *arguments],
        env={**os.environ, **SETTINGS[setting]},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)

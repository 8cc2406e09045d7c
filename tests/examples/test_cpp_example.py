"""The C++ example builds against the package, and learns without Python in its process."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import torch_webgpu

ROOT = Path(__file__).parents[2]
NO_LIBRARY = "/nonexistent/libwebgpu.so"
# LibTorch's headers take a minute to compile. `make check-wheel` builds and runs the example, too.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def spirals(tmp_path_factory):
    build = tmp_path_factory.mktemp("spirals")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_PREFIX_PATH={torch_webgpu.cmake_prefix_path}",
    ]
    source = str(ROOT / "examples" / "cpp")
    subprocess.run(["cmake", "-S", source, "-B", str(build), *generator, *options], check=True)
    subprocess.run(["cmake", "--build", str(build)], check=True)
    return build / "spirals"


def run(program, runtime, *args):
    env = {**os.environ, "TORCH_WEBGPU_RUNTIME": str(runtime)}
    return subprocess.run([program, *args], env=env, capture_output=True, text=True, timeout=600)


def test_learns_on_webgpu(spirals):
    wgpu = pytest.importorskip("wgpu", reason="the runtime of this test is PyPI's wgpu")
    (library,) = (Path(wgpu.__file__).parent / "resources").glob("*wgpu_native-release.*")
    result = run(spirals, library)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("device webgpu:0: ")
    assert "test accuracy 100 %" in result.stdout


def test_unknown_runtime_is_an_error(spirals):
    result = run(spirals, NO_LIBRARY)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert NO_LIBRARY in result.stderr


def test_cpu_needs_no_runtime(spirals):
    result = run(spirals, NO_LIBRARY, "cpu")
    assert result.returncode == 0, result.stderr

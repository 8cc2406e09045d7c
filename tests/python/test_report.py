"""`python -m torch_webgpu`, torch.utils.collect_env, and what a terminal shows."""

import json

import pytest
import torch

from torch_webgpu import _environment


def run(run_python, *arguments, **environment):
    code = f"import runpy, sys; sys.argv = ['x', *{arguments!r}]; "
    return run_python(code + "runpy.run_module('torch_webgpu', run_name='__main__')", **environment)


def test_report(run_python):
    done = run(run_python)
    assert done.returncode == 0, done.stderr
    properties = torch.webgpu.get_device_properties()
    lines = done.stdout.splitlines()
    assert any(properties.name in line and line.endswith("<- webgpu:0") for line in lines)
    for text in (torch.__version__, "max_storage_binding_size", *properties.features):
        assert text in done.stdout
    tests = lines[lines.index("Self-test") + 1 :]
    assert len(tests) == len(_environment.CHECKS)
    assert all(line.endswith("passed") for line in tests)


def test_report_as_json(run_python):
    done = run(run_python, "--json")
    facts = json.loads(done.stdout)
    assert facts["device"]["limits"] == torch.webgpu.get_device_properties().limits
    assert facts["adapters"] == torch.webgpu.list_adapters()
    assert set(facts["self_test"].values()) == {""}
    assert json.loads(run(run_python, "--json", "--no-test").stdout)["self_test"] == {}


def test_report_without_an_adapter(run_python):
    done = run(run_python, env={"TORCH_WEBGPU_ADAPTER": "no such adapter"})
    assert done.returncode == 1
    assert "No device: TORCH_WEBGPU_ADAPTER='no such adapter' names no adapter" in done.stdout
    assert "Self-test" not in done.stdout


def test_a_failing_check_fails_the_report(monkeypatch):
    def broken():
        raise AssertionError("wrong numbers")

    monkeypatch.setitem(_environment.CHECKS, "products", broken)
    results = _environment.self_test()
    assert results.pop("products") == "AssertionError: wrong numbers"
    assert set(results.values()) == {""}


@pytest.mark.parametrize("how", ["program", "function"])
def test_collect_env(run_python, how):
    program = "import runpy; runpy.run_module('torch.utils.collect_env', run_name='__main__')"
    function = "from torch.utils.collect_env import get_pretty_env_info as f; print(f())"
    done = run_python(f"import torch; {program if how == 'program' else function}")
    assert done.returncode == 0, done.stderr
    before, _, after = done.stdout.partition("WebGPU adapters:")
    assert "PyTorch version" in before
    assert torch.webgpu.get_device_name() in after and "used as webgpu:0" in after

"""The checks of core_checks.py on the second runtime, on a second driver, and in debug mode."""

import pytest
from core_checks import CHECKS
from settings import SETTINGS, report

PROGRAM = "core_checks.py"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_check(setting, check):
    failure = report(PROGRAM, setting)["failures"][check]
    assert not failure, failure


def test_the_second_runtime_was_used():
    assert "wgpu_native" in report(PROGRAM, "wgpu-native")["runtime"]


def test_the_second_driver_was_used():
    properties = report(PROGRAM, "SwiftShader")
    assert "SwiftShader" in properties["adapter"]
    # What makes it worth a run: no half floats in shaders, fewer bindings, smaller workgroups.
    assert "shader-f16" not in properties["features"]
    assert properties["limits"]["max_storage_buffers"] < 16
    assert properties["limits"]["max_workgroup_invocations"] == 256

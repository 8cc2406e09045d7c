"""Every kernel in its forms makes a pipeline for a browser, for SwiftShader and for an H200."""

import functools
import json
import pathlib
import subprocess
import sys

import pytest

from .forms import kernels_with_text

VALIDATE = pathlib.Path(__file__).with_name("validate_targets.py")


@functools.cache
def complaints() -> dict[str, dict[str, str]]:
    run = subprocess.run([sys.executable, VALIDATE], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("kernel", kernels_with_text())
def test_forms_make_pipelines(kernel):
    found = complaints()[kernel]
    assert found
    wrong = [f"{form}:\n{text}" for form, text in found.items() if text]
    assert not wrong, f"{len(wrong)} of {len(found)} forms are invalid; the first: {wrong[0]}"

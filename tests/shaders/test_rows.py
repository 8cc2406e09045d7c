"""Kernels whose regions are filled from rows of tables compile for each row."""

import functools
import json
import pathlib
import subprocess
import sys

import pytest

from .row_forms import FAMILIES, row_forms

VALIDATE = pathlib.Path(__file__).with_name("validate_rows.py")


@functools.cache
def complaints(compiler: str) -> dict[str, dict[str, str]]:
    run = subprocess.run([sys.executable, VALIDATE, compiler], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("compiler", ["wgpudawn", "wgpu"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_valid(family, compiler):
    found = complaints(compiler)[family]
    assert len(found) == sum(1 for _ in row_forms(family))
    wrong = [f"{form}:\n{text}" for form, text in found.items() if text]
    assert not wrong, f"{len(wrong)} of {len(found)} forms are invalid; the first: {wrong[0]}"

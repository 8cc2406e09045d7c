"""Tint and naga accept every kernel file and every form of every row of the op tables."""

import functools
import json
import pathlib
import subprocess
import sys

import pytest

import torch_webgpu

VALIDATE = pathlib.Path(__file__).with_name("validate.py")


def row_of(label: str) -> str:
    """What the label of a shader starts with: the table row, or the file."""
    return label.split()[0]


ROWS = sorted({row_of(label) for label, _ in torch_webgpu._C._shader_sources("browser", {})})


@functools.lru_cache(None)
def complaints(compiler: str) -> dict[str, str]:
    run = subprocess.run([sys.executable, VALIDATE, compiler], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("compiler", ["wgpudawn", "wgpu"])
@pytest.mark.parametrize("row", ROWS)
def test_shaders_are_valid(row, compiler):
    found = {k: v for k, v in complaints(compiler).items() if row_of(k) == row}
    assert found
    wrong = [f"{label}: {text}" for label, text in found.items() if text]
    assert not wrong, f"{len(wrong)} of {len(found)} shaders are invalid; the first:\n{wrong[0]}"


@pytest.mark.parametrize("compiler", ["wgpudawn", "wgpu"])
def test_every_kernel_file_is_among_them(compiler):
    folder = pathlib.Path(__file__).resolve().parents[2] / "csrc" / "ops"
    files = {path.name for path in folder.rglob("*.wgsl") if "// @operands\n" in path.read_text()}
    assert files <= complaints(compiler).keys()

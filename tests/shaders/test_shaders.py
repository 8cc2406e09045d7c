"""Tint and naga accept every kernel file and every form of every row of the op tables."""

import pathlib

import pytest

import torch_webgpu

from .programs import assert_valid, complaints


def row_of(label: str) -> str:
    """What the label of a shader starts with: the table row, or the file."""
    return label.split()[0]


ROWS = sorted({row_of(label) for label, _ in torch_webgpu._C._shader_sources("browser", {})})


@pytest.mark.parametrize("compiler", ["wgpudawn", "wgpu"])
@pytest.mark.parametrize("row", ROWS)
def test_shaders_are_valid(row, compiler):
    found = {k: v for k, v in complaints("validate", compiler).items() if row_of(k) == row}
    assert_valid(found)


@pytest.mark.parametrize("compiler", ["wgpudawn", "wgpu"])
def test_every_kernel_file_is_among_them(compiler):
    folder = pathlib.Path(__file__).resolve().parents[2] / "csrc" / "ops"
    files = {path.name for path in folder.rglob("*.wgsl") if "// @operands\n" in path.read_text()}
    assert files <= complaints("validate", compiler).keys()

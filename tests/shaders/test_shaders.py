"""Tint and naga accept every form of every row of the op tables."""

import collections
import functools

import pytest

import torch_webgpu

from .programs import assert_valid, complaints


def row_of(label: str) -> str:
    """What the label of a shader starts with: the table row."""
    return label.split()[0]


ROWS = sorted({row_of(label) for label, _ in torch_webgpu._C._shader_sources("browser", {})})


@functools.cache
def complaints_by_row(compiler: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for label, text in complaints("validate", compiler).items():
        found[row_of(label)][label] = text
    return found


@pytest.mark.parametrize("compiler", ["wgpudawn", "wgpu"])
@pytest.mark.parametrize("row", ROWS)
def test_shaders_are_valid(row, compiler):
    assert_valid(complaints_by_row(compiler)[row])

"""Tint and naga accept every form of every row of the op tables."""

import collections
import functools

import pytest

import torch_webgpu

from .programs import assert_valid, complaints
from .validate import row_of

ROWS = sorted({row_of(label) for label, _ in torch_webgpu._C._shader_sources("browser", {})})


@functools.cache
def complaints_by_row(compiler: str, step: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for label, text in complaints("validate", compiler, step).items():
        found[row_of(label)][label] = text
    return found


# Tint takes long for all. It compiles those that other tests run, too.
@pytest.mark.parametrize(
    ("compiler", "step"),
    [("wgpudawn", "3"), pytest.param("wgpudawn", "1", marks=pytest.mark.long), ("wgpu", "1")],
)
@pytest.mark.parametrize("row", ROWS)
def test_shaders_are_valid(row, compiler, step):
    assert_valid(complaints_by_row(compiler, step)[row])

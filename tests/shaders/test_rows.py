"""Kernels whose regions are filled from rows of tables compile for each row."""

import pytest

from .programs import assert_valid, complaints
from .row_forms import FAMILIES, row_forms


@pytest.mark.parametrize("compiler", ["wgpudawn", "wgpu"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_valid(family, compiler):
    found = complaints("validate_rows", compiler)[family]
    assert len(found) == sum(1 for _ in row_forms(family))
    assert_valid(found)

"""Every kernel in its forms makes a pipeline for a browser, for SwiftShader and for an H200."""

import pytest

from .forms import kernels_with_text
from .programs import assert_valid, complaints


# `make test` compiles one form of four, beside all of them with naga: test_kernels.py.
@pytest.mark.parametrize("step", ["4", pytest.param("1", marks=pytest.mark.long)])
@pytest.mark.parametrize("kernel", kernels_with_text())
def test_forms_make_pipelines(kernel, step):
    found = complaints("validate_targets", step)[kernel]
    assert_valid(found)

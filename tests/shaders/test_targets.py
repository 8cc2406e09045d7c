"""Every kernel in its forms makes a pipeline for a browser, for SwiftShader and for an H200."""

import pytest

from .forms import kernels_with_text
from .programs import assert_valid, complaints


@pytest.mark.parametrize("kernel", kernels_with_text())
def test_forms_make_pipelines(kernel):
    found = complaints("validate_targets")[kernel]
    assert_valid(found)

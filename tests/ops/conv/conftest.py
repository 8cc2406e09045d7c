import pytest

import torch_webgpu


@pytest.fixture
def force():
    """Forces a row of the table of products until the test ends."""
    yield torch_webgpu._C._force_product_strategy
    torch_webgpu._C._force_product_strategy("")

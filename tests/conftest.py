import os

import pytest

# An op that silently ran on the CPU would make a test of the device worthless. Set before torch is
# imported: the backend reads it once.
os.environ.setdefault("TORCH_WEBGPU_FALLBACK", "error")


@pytest.fixture(autouse=True)
def seeded():
    """Random inputs are the same in every run: a failure can be repeated."""
    import torch

    torch.manual_seed(0)

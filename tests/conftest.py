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


@pytest.fixture
def silent_fallbacks():
    """Lets the CPU stand in, for tests of exactly that. Its value: the function that counts."""
    import torch

    mode = torch.webgpu.get_fallback_mode()
    torch.webgpu.set_fallback_mode("silent")
    torch.webgpu.reset_fallbacks()
    yield torch.webgpu.fallbacks
    torch.webgpu.set_fallback_mode(mode)
    torch.webgpu.reset_fallbacks()

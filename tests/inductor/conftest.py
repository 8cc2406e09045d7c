import pytest


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Nothing that was compiled, or cached on disk, by another test."""
    import torch
    import torch._inductor.config

    with torch._inductor.config.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()

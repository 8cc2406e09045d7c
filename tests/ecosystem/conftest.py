"""Libraries that users bring to the device. What is not installed is skipped: the `test` extra has
a part of them, `make ecosystem` installs all."""

import pytest

from torch_webgpu import integrations
from torch_webgpu.integrations import _choice


@pytest.fixture
def enable():
    """`integrations.enable`, undone at the end. Needed, for the suite's adapter is software."""
    before = set(_choice.enabled)
    yield integrations.enable
    _choice.enabled.clear()
    _choice.enabled.update(before)


@pytest.fixture
def hardware(monkeypatch):
    """Makes the adapter count as an accelerator, as one of a GPU does."""
    real = _choice._C.adapter()
    monkeypatch.setattr(_choice._C, "adapter", lambda: {**real, "type": "discrete"})
    monkeypatch.setattr(_choice, "_told", set())

"""Programs as files that play in a page, in Node and in Python (docs/web.md)."""

from torch_webgpu.export._export import export
from torch_webgpu.export._states import load_state

__all__ = ["export", "load_state"]

"""Which torch a wheel can be used with: the minor version that it was built for.

PyTorch's C++ interface changes with every minor version: pip must not put a wheel beside another.
This is a provider for scikit-build-core's dynamic metadata. It adds one requirement to those of
pyproject.toml, which state what the sources can be built for.
"""

import importlib.metadata
from collections.abc import Mapping
from typing import Any


class Provider:
    """Adds nothing to a source distribution or a development install."""

    def __init__(self) -> None:
        self.is_wheel = False

    def build_state(self, build_state: str) -> None:
        self.is_wheel = build_state in ("wheel", "metadata_wheel")

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        return {"dependencies": True}

    def dynamic_metadata(
        self, settings: Mapping[str, Any], project: Mapping[str, Any]
    ) -> dict[str, list[str]]:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
        return {"dependencies": [f"torch=={major}.{minor}.*"] if self.is_wheel else []}

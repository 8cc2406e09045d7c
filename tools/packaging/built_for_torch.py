"""Which torch a wheel can be used with: the minor version that it was built for.

PyTorch's C++ interface changes with every minor version: pip must not put a wheel beside another.
This is a provider for scikit-build-core's dynamic metadata. It adds one requirement to those of
pyproject.toml, which state what the sources can be built for. The version gets a local part, as
those of PyTorch's own wheels have: ``0.1.0+torch2.13``. Without it the wheels for all versions of
torch had one name, and pip, which takes one wheel of each version, would not look for the one that
fits the installed torch.
"""

import importlib.metadata
import pathlib
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
    ) -> dict[str, Any]:
        if not self.is_wheel:
            return {"dependencies": []}
        major, minor = importlib.metadata.version("torch").split(".")[:2]
        found: dict[str, Any] = {"dependencies": [f"torch=={major}.{minor}.*"]}
        # pip refuses a wheel that has another version than the source distribution it is made of.
        if not pathlib.Path("PKG-INFO").exists():
            found["version"] = f"{project['version']}+torch{major}.{minor}"
        return found

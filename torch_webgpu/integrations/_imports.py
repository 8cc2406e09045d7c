"""Adapts the modules of libraries when they are imported."""

import functools
import importlib
import os
import sys
import types
import warnings

from torch_webgpu import _import_hook
from torch_webgpu.integrations._libraries import LIBRARIES

_VARIABLE = "TORCH_WEBGPU_INTEGRATIONS"
_NONE = "0"

# The first problem of each library that could not be adapted.
problems: dict[str, Exception] = {}
_installed: set[str] = set()


def install_chosen() -> None:
    """Awaits the libraries as TORCH_WEBGPU_INTEGRATIONS says. Imports none of them."""
    choice = os.environ.get(_VARIABLE, "")
    if choice == _NONE:
        return
    wanted = {name.strip() for name in choice.split(",")} - {""}
    if "all" in wanted:
        wanted = set(LIBRARIES)
    unknown = wanted - set(LIBRARIES)
    if unknown:
        warnings.warn(
            f"{_VARIABLE} names {', '.join(sorted(unknown))}; it takes 0, all, or some of "
            f"{', '.join(LIBRARIES)}",
            RuntimeWarning,
            stacklevel=2,
        )
    if wanted - unknown:
        from torch_webgpu.integrations import _choice

        _choice.enabled.update(wanted - unknown)
    for library in LIBRARIES:
        install(library)


def install(library: str) -> None:
    """Adapts the library's modules that are imported, and awaits the others. Once only."""
    if library in _installed:
        return
    _installed.add(library)
    for name in LIBRARIES[library][1]:
        _import_hook.when_imported(name, functools.partial(_adapt, library))


def install_by_entry_point(library: str) -> None:
    """`install`, for a library that calls this package itself while it is imported.

    It is adapted when it has been executed, as all are, so that its import succeeds also if it is
    of an unknown version. Does nothing if the environment says that libraries stay as they are.
    """
    if os.environ.get(_VARIABLE, "") != _NONE:
        install(library)


def _adapt(library: str, module: types.ModuleType) -> None:
    own, functions = LIBRARIES[library]
    try:
        adapters = importlib.import_module(f"torch_webgpu.integrations.{own}")
        getattr(adapters, functions[module.__name__])(module)
    except Exception as error:
        # A library that changed must still be importable.
        version = getattr(sys.modules.get(library), "__version__", "of unknown version")
        problem = RuntimeError(
            f"{library} {version} is not known to this version of torch_webgpu: "
            f"{module.__name__}: {error}"
        )
        problem.__cause__ = error
        problems.setdefault(library, problem)
        warnings.warn(str(problem), RuntimeWarning, stacklevel=2)

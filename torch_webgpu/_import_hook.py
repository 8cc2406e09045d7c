"""Calls functions when modules of others have been imported, and gives modules a second name.

Imports none of them.
"""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_awaited: dict[str, Callable[[ModuleType], None]] = {}
_aliases: dict[str, str] = {}


def when_imported(name: str, adapt: Callable[[ModuleType], None]) -> None:
    """Calls `adapt(module)` once the module is executed, before others get names from it.

    At once if it is imported already. There is one function for each module.
    """
    _awaited[name] = adapt
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    module = sys.modules.get(name)
    if module is not None:
        adapt(module)


def when_run(name: str, prepare: Callable[[], None]) -> None:
    """Calls `prepare()` before ``python -m name`` runs a module that is imported already."""
    spec = sys.modules[name].__spec__
    loader: Any = spec and spec.loader
    get_code = getattr(loader, "get_code", None)
    if get_code is None:
        return

    def get_code_to_run(fullname: str) -> Any:
        prepare()
        return get_code(fullname)

    loader.get_code = get_code_to_run


def alias(name: str, real: str) -> None:
    """Makes ``import name`` the same module as ``import real``. Imports neither."""
    _aliases[name] = real
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Alias(importlib.abc.Loader):
    """Loads a module under a second name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_aliases[spec.name])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has given it the second name's


class _Finder:
    """Finds awaited modules as the other finders do."""

    def __init__(self) -> None:
        self._searched: set[str] = set()

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name in _aliases:
            return ModuleSpec(name, _Alias())
        if name not in _awaited or name in self._searched:
            return None
        self._searched.add(name)  # the search must not end here again
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searched.discard(name)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader

        def execute_and_adapt(module: ModuleType) -> None:
            del loader.exec_module
            loader.exec_module(module)
            _awaited[name](module)

        # The loader belongs to this module alone. It stays of its class, which others look at.
        loader.exec_module = execute_and_adapt
        return spec


_finder = _Finder()

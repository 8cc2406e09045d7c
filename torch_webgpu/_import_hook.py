"""Calls functions when modules of others have been imported, and gives modules a second name.

Imports none of them.
"""

import importlib
import importlib.abc
import sys
import threading
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
    if module is None:
        return
    spec = getattr(module, "__spec__", None)
    if isinstance(spec, ModuleSpec) and getattr(spec, "_initializing", False):
        # The module is being executed, and has come to an `import torch`.
        _adapt_when_executed(spec)
    else:
        adapt(module)


def later(own: str, function: str) -> Callable[[ModuleType], None]:
    """For `when_imported`: a function of the module `own`, which is imported when it is called."""

    def adapt(module: ModuleType) -> None:
        getattr(importlib.import_module(own), function)(module)

    return adapt


def _adapt_when_executed(spec: ModuleSpec) -> None:
    """Adapts the module of the spec when its execution, which has begun, has succeeded."""
    own = type(spec)
    if getattr(own, "adapts", False):
        return

    # The import system tells nobody but the spec: it sets `_initializing` to False at the end, and
    # has taken the module out of `sys.modules` before if the execution failed.
    class Watched(own):  # type: ignore[misc, valid-type]
        adapts = True

        def __setattr__(self, attribute: str, value: object) -> None:
            if attribute != "_initializing" or value:
                super().__setattr__(attribute, value)
                return
            object.__setattr__(self, "__class__", own)
            try:
                module = sys.modules.get(spec.name)
                if module is not None and getattr(module, "__spec__", None) is spec:
                    _awaited[spec.name](module)
            finally:
                spec._initializing = value  # type: ignore[attr-defined]

    spec.__class__ = Watched


def when_run(name: str, prepare: Callable[[], None]) -> None:
    """Calls `prepare()` before ``python -m name`` runs a module that is imported already."""
    spec = sys.modules[name].__spec__
    loader: Any = spec and spec.loader
    get_code = getattr(loader, "get_code", None)
    if get_code is None:
        return

    def get_code_to_run(fullname: str) -> Any:
        if fullname == name:  # a loader may serve several modules
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


class _Adapting:
    """Executes a module with its own loader, and adapts it then. In all else it is the loader."""

    def __init__(self, spec: ModuleSpec) -> None:
        self._spec = spec
        self._loader: Any = spec.loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Others look at the loader of a module, and at its class.
        self._spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if module.__name__ == self._spec.name:
            _awaited[module.__name__](module)

    def __getattr__(self, name: str) -> Any:  # get_code, get_data, is_package
        if name.startswith("__"):  # copy asks for them before there is a loader
            raise AttributeError(name)
        return getattr(self._loader, name)


class _Finder:
    """Finds awaited modules as the other finders do."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name in _aliases:
            return ModuleSpec(name, _Alias())
        if name not in _awaited:
            return None
        searched: set[str] = self._thread.__dict__.setdefault("searched", set())
        if name in searched:
            return None  # another finder asks the others too
        searched.add(name)
        try:
            spec = self._ask_others(name, path, target)
        finally:
            searched.discard(name)
        loader: Any = spec and spec.loader
        # A loader of the old kind has no exec_module. One that wraps has been here.
        wrappable = hasattr(loader, "exec_module") and hasattr(loader, "create_module")
        if spec is not None and wrappable and not isinstance(loader, _Adapting):
            adapting: Any = _Adapting(spec)
            spec.loader = adapting
        return spec

    def _ask_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        # importlib.util.find_spec would import the parent, and wait for its lock while the import
        # system holds one for this search.
        for finder in list(sys.meta_path):
            find: Any = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find and find(name, path, target)
            if spec is not None:
                return spec
        return None


_finder = _Finder()

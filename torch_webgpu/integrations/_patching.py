"""Replacing functions of other packages."""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any


def replace(module: types.ModuleType, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces `module.name` by `make(old)`, also where loaded modules have imported it.

    `make` returns a function, or a class with the old one's place. Raises AttributeError if there
    is nothing of that name.
    """
    old = getattr(module, name)
    new = make(old)
    if isinstance(old, types.FunctionType):
        functools.update_wrapper(new, old)
    for loaded in list(sys.modules.values()):
        if isinstance(loaded, types.ModuleType):
            # vars(), because modules that import on access would import here.
            for alias, value in list(vars(loaded).items()):
                if value is old:
                    setattr(loaded, alias, new)


def check_method(owner: type, name: str) -> None:
    """Raises AttributeError if the class itself has no method of that name."""
    if name not in vars(owner):
        raise AttributeError(f"{owner.__qualname__} has no {name}")


def replace_method(owner: type, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces a method by `make(old)`; a static method by a static one.

    Raises AttributeError if the class itself has no method of that name.
    """
    check_method(owner, name)
    old = vars(owner)[name]
    if isinstance(old, staticmethod):
        setattr(owner, name, staticmethod(functools.update_wrapper(make(old.__func__), old)))
    else:
        setattr(owner, name, functools.update_wrapper(make(old), old))


def extend_constant(function: Callable[..., Any], members: set[str], new: str) -> None:
    """Adds `new` to the one tuple of names in the function's code that has all `members`.

    For `if device.type in ("cuda", "xpu")` in the middle of a long function. Raises LookupError
    unless exactly one tuple has them.
    """
    code = function.__code__
    lists = [c for c in code.co_consts if isinstance(c, tuple | frozenset) and members <= set(c)]
    if len(lists) != 1:
        raise LookupError(f"{function.__qualname__} has no list of the devices {sorted(members)}")
    (known,) = lists
    if new in known:
        return
    longer = known | {new} if isinstance(known, frozenset) else (*known, new)
    function.__code__ = code.replace(
        co_consts=tuple(longer if c is known else c for c in code.co_consts)
    )

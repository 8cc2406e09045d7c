"""Finds the WebGPU runtime that TORCH_WEBGPU_RUNTIME names: the address of its entry point or the
path of its library."""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import threading
from types import ModuleType
from typing import NamedTuple

_VARIABLE = "TORCH_WEBGPU_RUNTIME"
_ACCEPTED = (
    f"{_VARIABLE} accepts 'dawn' (the default: the wgpudawn package), 'wgpu' (the wgpu package) "
    f"or the path of a shared library that exports the webgpu.h functions"
)


class Runtime(NamedTuple):
    """One of the three is set. An error is raised when the device is first used, not before."""

    proc_address: int = 0
    library: str = ""
    error: str = ""


def resolve() -> Runtime:
    choice = os.environ.get(_VARIABLE) or "dawn"
    try:
        if choice == "dawn":
            return Runtime(proc_address=_dawn_proc_address())
        if choice == "wgpu":
            return Runtime(library=str(_wgpu_library()))
    except Exception as error:
        return Runtime(error=f"the WebGPU runtime '{choice}' cannot be used: {error}. {_ACCEPTED}.")
    if not os.path.isfile(choice):
        return Runtime(error=f"the WebGPU runtime '{choice}' does not exist. {_ACCEPTED}.")
    return Runtime(library=os.path.abspath(choice))


def _package_folder(name: str) -> pathlib.Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ImportError(f"the Python package {name} is not installed (pip install {name})")
    return pathlib.Path(spec.origin).parent


def _dawn_proc_address() -> int:
    module = _dawn_extension()
    address = module.ffi.addressof(module.lib, "wgpuGetProcAddress")
    return int(module.ffi.cast("uintptr_t", address))


# Threads that use the device first together all ask for the runtime. Without the lock, one would
# get the module that another one is still executing. A child that is forked meanwhile gets a new
# lock.
_loading = threading.Lock()


def _renew_lock() -> None:
    global _loading
    _loading = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _dawn_extension() -> ModuleType:
    """wgpudawn's cffi binding, without the rest of that package, which takes 80 ms to import."""
    with _loading:
        return _load_dawn_extension()


def _load_dawn_extension() -> ModuleType:
    name = "wgpudawn._lib"
    if name in sys.modules:
        return sys.modules[name]
    folder = _package_folder("wgpudawn")
    spec = importlib.machinery.PathFinder.find_spec(name, [str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} holds no package _lib")
    module = importlib.util.module_from_spec(spec)
    # Under its own name, so that `import wgpudawn` later uses this one and not a second copy. The
    # whole subpackage, because the import system makes its extension module an attribute of it.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _wgpu_library() -> pathlib.Path:
    folder = _package_folder("wgpu") / "resources"
    for pattern in ("libwgpu_native-release.*", "wgpu_native-release.dll"):
        for library in folder.glob(pattern):
            return library
    raise ImportError(f"{folder} holds no wgpu-native library")

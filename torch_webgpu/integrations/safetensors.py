"""safetensors: `load_file(path, device="webgpu")` and `safe_open(path, "pt", device="webgpu")`.

The library reads a file into main memory and has torch move it to the devices that it knows. For
webgpu each tensor is read and moved here.
"""

import types
from typing import Any

import torch

from torch_webgpu.integrations import _patching


class _Slice:
    """A part of a tensor, read when it is indexed."""

    def __init__(self, part: Any, device: torch.device) -> None:
        self._part = part
        self._device = device

    def __getitem__(self, index: Any) -> torch.Tensor:
        value: torch.Tensor = self._part[index].to(self._device)
        return value

    def __getattr__(self, name: str) -> Any:  # get_shape, get_dtype
        return getattr(self._part, name)


class _File:
    """An open file whose tensors are moved to the device when they are read."""

    def __init__(self, file: Any, device: torch.device) -> None:
        self._file = file
        self._device = device

    def __enter__(self) -> "_File":
        self._file = self._file.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._file.__exit__(*exception)

    def get_tensor(self, name: str) -> torch.Tensor:
        value: torch.Tensor = self._file.get_tensor(name).to(self._device)
        return value

    def get_tensors(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        tensors = self._file.get_tensors(*args, **kwargs)
        return {name: tensor.to(self._device) for name, tensor in tensors.items()}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self._file.get_slice(name), self._device)

    def __getattr__(self, name: str) -> Any:  # keys, metadata, offset_keys
        return getattr(self._file, name)


def adapt_package(package: types.ModuleType) -> None:
    """`safe_open`, which `load_file` and `load_model` call."""

    def make(original: Any) -> Any:
        class Kind(type):
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, (original, _File))

        class safe_open(metaclass=Kind):
            __doc__ = original.__doc__

            def __new__(
                cls, filename: Any, framework: str, device: Any = "cpu", **kwargs: Any
            ) -> Any:
                target = _webgpu(device) if framework in ("pt", "torch", "pytorch") else None
                if target is None:
                    return original(filename, framework=framework, device=device, **kwargs)
                file = original(filename, framework=framework, device="cpu", **kwargs)
                return _File(file, target)

        return safe_open

    _patching.replace(package, "safe_open", make)


def _webgpu(device: Any) -> torch.device | None:
    """The device, if it is one of webgpu's. All else is for the library to judge."""
    if isinstance(device, int):
        device = torch.device(device)  # an index of the current accelerator
    elif isinstance(device, str) and device.startswith("webgpu"):
        device = torch.device(device)
    is_ours = isinstance(device, torch.device) and device.type == "webgpu"
    return device if is_ours else None

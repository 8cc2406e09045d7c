"""DLPack's number for the device: PyTorch compares the device's name with ``privateuse1``, which a
renamed device no longer has."""

import functools
from typing import Any

import torch


def install() -> None:
    known = torch.Tensor.__dlpack_device__

    @functools.wraps(known)
    def dlpack_device(self: torch.Tensor) -> tuple[Any, int]:
        # Subclasses may handle the call themselves, as they may in PyTorch's own method.
        if torch.overrides.has_torch_function_unary(self):
            return torch.overrides.handle_torch_function(dlpack_device, (self,), self)
        if self.device.type == "webgpu":
            return torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index
        return known(self)

    torch.Tensor.__dlpack_device__ = dlpack_device  # type: ignore[method-assign]

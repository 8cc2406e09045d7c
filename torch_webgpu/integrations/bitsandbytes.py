"""bitsandbytes: layers of 4 and 8 bits, and optimizers with states of 8 bits.

The kernels are C++'s (csrc/ops/blockwise): the dispatcher keeps them for the operators that the
library declares. Here it learns the device's name, and that the device has no paged memory.
"""

import types
import warnings
from typing import Any

import torch

from torch_webgpu.integrations import _patching


def adapt_package(package: types.ModuleType) -> None:
    """The device is a known one, and optimizers with paged states keep them on it.

    A second time does nothing. Raises AttributeError, and changes nothing, if the package lacks
    what is adapted.
    """
    devices = package.supported_torch_devices
    if "webgpu" in devices:
        return
    optimizer = package.optim.optimizer.Optimizer8bit
    # AdEMAMix has a method of its own, for a state of two means.
    ademamix = package.optim.ademamix.AdEMAMix
    _patching.check_method(optimizer, "get_state_buffer")
    _patching.check_method(ademamix, "_get_state_double_buffer")

    def make(get_state_buffer: Any) -> Any:
        def get(self: Any, p: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            if p.device.type != "webgpu":
                buffer: torch.Tensor = get_state_buffer(self, p, dtype=dtype)
                return buffer
            if self.is_paged and not getattr(self, "_webgpu_paged_warned", False):
                warnings.warn(
                    "webgpu has no memory that moves by itself between device and host: the "
                    "optimizer's paged states lie in the device's memory",
                    stacklevel=2,
                )
                self._webgpu_paged_warned = True
            # A step makes the parameter contiguous, and reads its state in the same order.
            return torch.zeros_like(p, dtype=dtype, memory_format=torch.contiguous_format)

        return get

    def make_pair(get_state_buffer: Any) -> Any:
        def get(self: Any, p: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            paged = self.is_paged
            try:
                # Without pages it makes a tensor on the parameter's device.
                self.is_paged = paged and p.device.type != "webgpu"
                buffer: torch.Tensor = get_state_buffer(self, p, dtype=dtype)
            finally:
                self.is_paged = paged
            return buffer

        return get

    _patching.replace_method(optimizer, "get_state_buffer", make)
    _patching.replace_method(ademamix, "_get_state_double_buffer", make_pair)
    devices.add("webgpu")

"""repr() of webgpu tensors formats a CPU copy, as PyTorch itself does for XLA: formatting takes a
dozen small ops whose results the host waits for one by one."""

import functools

import torch


def install() -> None:
    format_on_device = torch._tensor_str._tensor_str

    @functools.wraps(format_on_device)
    def format_on_cpu(self: torch.Tensor, indent: int) -> str:
        return format_on_device(self.cpu() if self.device.type == "webgpu" else self, indent)

    torch._tensor_str._tensor_str = format_on_cpu

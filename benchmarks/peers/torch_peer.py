"""PyTorch on one of its devices."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..registry import WrongResult
from .base import Ops, Peer, Unavailable


class TorchOps(Ops):
    def add_(self, x: Tensor, y: Tensor) -> Tensor:
        return x.add_(y)

    def copy(self, x: Tensor) -> Tensor:
        return x.clone()

    def sum(self, x: Tensor) -> Tensor:
        return x.sum()

    def softmax(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, weight.shape, weight, bias)

    def conv2d(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight, padding=1)

    def conv2d_backward(self, gradient: Tensor, x: Tensor, weight: Tensor, operand: int) -> Tensor:
        """The gradient of one operand alone: 0 for the input, 1 for the weight."""
        mask = [operand == i for i in range(3)]
        gradients = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask
        )
        return gradients[operand]


def require_strict_float32() -> None:
    """No TF32 in this process, or the columns would not show the same work."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@torch.no_grad()
def reference(function: Callable, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """`function` in float64 on the CPU."""
    return function(TorchOps(), *(torch.from_numpy(x).double() for x in inputs)).numpy()


class TorchPeer(Peer):
    def __init__(self, device: str) -> None:
        try:
            self.device = torch.empty(1, device=device).device
        # AssertionError is what a build without CUDA raises.
        except (RuntimeError, AssertionError) as error:
            raise Unavailable(str(error).splitlines()[0]) from error
        self.module = getattr(torch, device)
        self.on_cpu = device == "cpu"
        self.no_transfers = "the host's memory is the device's" if self.on_cpu else ""
        # What a WebGPU device tells beyond its name.
        properties = None if self.on_cpu else self.module.get_device_properties(self.device)
        self._adapter = getattr(properties, "adapter", "")
        self._adapter_type = getattr(properties, "type", "")

    def describe(self) -> str:
        if self.on_cpu:
            return f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads"
        return f"torch {torch.__version__}, {self._adapter or self.module.get_device_name()}"

    def is_software(self) -> bool:
        return self._adapter_type == "software" or super().is_software()

    def array(self, value: np.ndarray) -> Tensor:
        return torch.from_numpy(value).to(self.device, copy=True)

    def to_numpy(self, handle: Tensor) -> np.ndarray:
        return handle.cpu().numpy()

    def compile(
        self, function: Callable, handles: Sequence[Tensor], *, stepwise: bool
    ) -> Callable[[], Tensor]:
        ops = TorchOps()

        @torch.no_grad()
        def run() -> Tensor:
            return function(ops, *handles)

        return run

    def synchronize(self) -> None:
        if not self.on_cpu:
            self.module.synchronize()

    def require_on_device(self, handle: Tensor) -> None:
        if handle.device != self.device:
            raise WrongResult(f"the result is on {handle.device}, not on {self.device}")
        self.require_no_fallback()

    def require_no_fallback(self) -> None:
        """A fallback would put the CPU's time into the device's column."""
        fallbacks = getattr(self.module, "fallbacks", dict)()
        if fallbacks:
            raise WrongResult(f"ran on the CPU: {', '.join(map(str, fallbacks))}")

    def release(self) -> None:
        if not self.on_cpu:
            self.module.empty_cache()
        getattr(self.module, "reset_fallbacks", lambda: None)()

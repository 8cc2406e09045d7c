"""PyTorch on one of its devices."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..registry import WrongResult
from .base import EPSILON, Ops, Peer, Unavailable


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

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, EPSILON)

    def gelu(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")

    def sort(self, x: Tensor) -> Tensor:
        return x.sort(-1).values

    def cumsum(self, x: Tensor) -> Tensor:
        return x.cumsum(-1)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    def attention(self, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        """Fewer heads of keys and values than of queries are shared by neighbouring queries."""
        shared = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=causal, enable_gqa=shared
        )

    def conv2d(
        self, x: Tensor, weight: Tensor, stride: int = 1, padding: int = 1, groups: int = 1
    ) -> Tensor:
        return F.conv2d(x, weight, stride=stride, padding=padding, groups=groups)


def require_strict_float32() -> None:
    """No TF32 in this process, or the columns would not show the same work."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def gradients_of(
    function: Callable, inputs: Sequence[Tensor], which: Sequence[int], with_forward: bool
) -> Callable[[], tuple[Tensor, ...]]:
    """What computes the gradients of half the sum of squares of `function(ops, *inputs)`, of the
    inputs with the numbers in `which`. `with_forward` computes the function each time as well."""
    inputs = [x.detach().requires_grad_(k in which) for k, x in enumerate(inputs)]
    wanted = [inputs[k] for k in which]

    def run(y: Tensor | None = None) -> tuple[Tensor, ...]:
        again = y is not None
        y = function(TorchOps(), *inputs) if y is None else y
        return torch.autograd.grad(y, wanted, y.detach(), retain_graph=again)

    if with_forward:
        return run
    kept = function(TorchOps(), *inputs)
    return lambda: run(kept)


def reference(
    function: Callable, inputs: Sequence[np.ndarray], which: Sequence[int] = ()
) -> list[np.ndarray]:
    """The result of `function` in float64 on the CPU, or its gradients."""
    doubles = [torch.from_numpy(x).double() for x in inputs]
    if which:
        return [x.numpy() for x in gradients_of(function, doubles, which, True)()]
    with torch.no_grad():
        return [function(TorchOps(), *doubles).numpy()]


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

    def array(self, value: np.ndarray, dtype: str = "") -> Tensor:
        tensor = torch.from_numpy(value)
        return tensor.to(self.device, getattr(torch, dtype) if dtype else None, copy=True)

    def to_numpy(self, handle: Tensor) -> np.ndarray:
        handle = handle.cpu()
        return (handle.float() if handle.dtype == torch.bfloat16 else handle).numpy()

    def compile(
        self, function: Callable, handles: Sequence[Tensor], *, stepwise: bool
    ) -> Callable[[], Tensor]:
        ops = TorchOps()

        @torch.no_grad()
        def run() -> Tensor:
            return function(ops, *handles)

        return run

    def compile_gradients(
        self,
        function: Callable,
        handles: Sequence[Tensor],
        which: Sequence[int],
        *,
        with_forward: bool,
    ) -> Callable[[], tuple[Tensor, ...]]:
        return gradients_of(function, handles, which, with_forward)

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

    def peak_bytes(self, run: Callable[[], object]) -> tuple[int, int] | None:
        if not hasattr(self.module, "max_memory_reserved"):
            return None
        self.synchronize()
        self.module.empty_cache()
        self.module.reset_peak_memory_stats()
        run()
        self.synchronize()
        return self.module.max_memory_allocated(), self.module.max_memory_reserved()

    def release(self) -> None:
        if not self.on_cpu:
            self.module.empty_cache()
        getattr(self.module, "reset_fallbacks", lambda: None)()

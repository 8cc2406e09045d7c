"""tinygrad's WEBGPU device."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version

import numpy as np

from ..registry import WrongResult
from .base import EPSILON, Ops, Peer, Unavailable

DEVICE = "WEBGPU"


class TinygradOps(Ops):
    def step(self, x):
        return x.realize()

    def add_(self, x, y):
        return x.assign(x + y).realize()

    def sum(self, x):
        return x.sum()

    def softmax(self, x):
        return x.softmax(-1)

    def layer_norm(self, x, weight, bias):
        return x.layernorm() * weight + bias

    def rms_norm(self, x, weight):
        return (
            x * (x.float().square().mean(-1, keepdim=True) + EPSILON).rsqrt().cast(x.dtype) * weight
        )

    def gelu(self, x):
        return x.gelu()

    def sort(self, x):
        return x.sort()[0]

    def cumsum(self, x):
        return x.cumsum(-1)

    def linear(self, x, weight, bias):
        return x.linear(weight.T, bias)

    def attention(self, query, key, value, causal):
        return query.scaled_dot_product_attention(key, value, is_causal=causal)

    def conv2d(self, x, weight, stride=1, padding=1, groups=1):
        return x.conv2d(weight, stride=stride, padding=padding, groups=groups)


class TinygradPeer(Peer):
    def __init__(self) -> None:
        if importlib.util.find_spec("tinygrad") is None:
            raise Unavailable("no module tinygrad")
        # Read when tinygrad is imported.
        os.environ.setdefault("DEV", DEVICE)
        try:
            import tinygrad

            self.tinygrad = tinygrad
            self.device = tinygrad.Device[DEVICE]
            self.array(np.zeros(1, np.float32))
        # The library may lack, or find no adapter: it says so with whatever exception it hits.
        except Exception as error:
            raise Unavailable(f"tinygrad has no {DEVICE}: {error!r}") from error

    def describe(self) -> str:
        return f"tinygrad {version('tinygrad')}, {DEVICE}"

    def array(self, value: np.ndarray, dtype: str = ""):
        return self.tinygrad.Tensor(self.in_dtype(value, dtype), device=DEVICE).realize()

    def to_numpy(self, handle) -> np.ndarray:
        return handle.numpy()

    def compile(self, function: Callable, handles: Sequence, *, stepwise: bool) -> Callable:
        ops = TinygradOps()
        if stepwise:
            return lambda: function(ops, *handles)
        # What its users do for speed: capture the kernels once, replay them afterwards.
        jitted = self.tinygrad.TinyJit(lambda *inputs: function(ops, *inputs).realize())
        return lambda: jitted(*handles)

    def synchronize(self) -> None:
        self.device.synchronize()

    def require_on_device(self, handle) -> None:
        if handle.device != DEVICE:
            raise WrongResult(f"the result is on {handle.device}")

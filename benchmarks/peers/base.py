"""What a peer must be able to do to be measured."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..registry import Skip

# Of RMS norms.
EPSILON = 1e-6
SOFTWARE_ADAPTERS = ("llvmpipe", "lavapipe", "swiftshader", "software", "basic render")


class Unavailable(Exception):
    """The peer does not exist on this machine; the text says why."""


class Ops:
    """The operators that have no Python operator; `+` and `@` come from the peer's own tensors."""

    def step(self, x):
        """Marks the end of one step of a chain, for peers that would otherwise fuse it."""
        return x

    def _missing(self, *_):
        raise Skip("this peer has no such operation, or would not execute it")

    add_ = copy = sum = softmax = layer_norm = rms_norm = conv2d = _missing
    gelu = sort = cumsum = linear = attention = _missing


class Peer(ABC):
    """One system on one device. A handle is the peer's own kind of device tensor."""

    # Why uploads and readbacks cannot be measured, where they cannot.
    no_transfers = ""

    @abstractmethod
    def describe(self) -> str:
        """Version and device, for the heading."""

    @abstractmethod
    def array(self, value: np.ndarray, dtype: str = "") -> Any:
        """A new handle that holds `value`, in the dtype of this name if one is given."""

    @staticmethod
    def in_dtype(value: np.ndarray, dtype: str) -> np.ndarray:
        """For peers that take numpy's arrays."""
        if dtype == "bfloat16":
            raise Skip("numpy, which this peer takes its inputs from, has no bfloat16")
        return value.astype(dtype or value.dtype)

    @abstractmethod
    def to_numpy(self, handle: Any) -> np.ndarray:
        """Waits for the handle's value and copies it to the host."""

    @abstractmethod
    def compile(
        self, function: Callable, handles: Sequence[Any], *, stepwise: bool
    ) -> Callable[[], Any]:
        """What runs `function(ops, *handles)` once, without waiting, and returns its result.

        `stepwise` keeps the operators apart where the peer would make one kernel of them all.
        """

    def compile_gradients(
        self,
        function: Callable,
        handles: Sequence[Any],
        which: Sequence[int],
        *,
        with_forward: bool,
    ) -> Callable[[], Any]:
        """What computes gradients of `function(ops, *handles)` by the handles with the numbers in
        `which`; see `torch_peer.gradients_of`."""
        raise Skip(
            "measured for PyTorch's devices only: this peer does not train, or in other steps"
        )

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until the device has finished everything that was run."""

    @abstractmethod
    def require_on_device(self, handle: Any) -> None:
        """Raises WrongResult if the handle, or what made it, is not on the device."""

    def peak_bytes(self, run: Callable[[], Any]) -> tuple[int, int] | None:
        """The most that is in use, and that is taken from the device, during a run; None where the
        peer does not tell."""
        return None

    def release(self) -> None:  # noqa: B027 - most peers keep nothing that could be released
        """Gives cached memory back, so that rows and peers do not disturb each other."""

    def is_software(self) -> bool:
        text = self.describe().lower()
        return any(name in text for name in SOFTWARE_ADAPTERS)

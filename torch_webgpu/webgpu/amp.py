"""Mixed precision, with the names of ``torch.cuda.amp``: those of ``torch.amp`` for this device.

New code writes ``torch.amp.GradScaler("webgpu")``, which runs with another device's name too.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast("webgpu", ...)``: a context manager, or a decorator."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("webgpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("webgpu", ...)``."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "webgpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None
) -> Any:
    """``torch.amp.custom_fwd(device_type="webgpu")``, for `forward` of an autograd function."""
    return functools.partial(torch.amp.custom_fwd, device_type="webgpu")(
        fwd=fwd, cast_inputs=cast_inputs
    )


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """``torch.amp.custom_bwd(device_type="webgpu")``, for its `backward`."""
    return torch.amp.custom_bwd(bwd, device_type="webgpu")

"""The stream and its events. There is one stream, so everything on the device is in order."""

import contextlib
from typing import Any

import torch

from ._device import DeviceLike, check_device


class Stream(torch.Stream):
    """The device's stream. All objects of this class stand for the same one."""

    def __new__(cls, device: DeviceLike = None, priority: int = 0) -> "Stream":
        check_device(device)
        return super().__new__(cls, device=torch.device("webgpu", 0), priority=priority)

    def __repr__(self) -> str:
        return "torch.webgpu.Stream(device=webgpu:0)"


class Event(torch.Event):
    """A point in the stream: `record` sets it, `query` and `synchronize` tell when it is reached.

    With ``enable_timing=True``, ``start.elapsed_time(end)`` is the device time between two events
    in milliseconds; it waits for both and raises RuntimeError where the device has no timestamps.
    """

    # A torch.Event of this device: its methods refuse subclasses.
    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        if interprocess:
            raise NotImplementedError("webgpu events cannot be shared between processes")
        return torch.Event(
            torch.device("webgpu", 0), enable_timing=enable_timing, blocking=blocking
        )


def current_stream(device: DeviceLike = None) -> Stream:
    """The stream that ops are queued on."""
    return Stream(device)


def default_stream(device: DeviceLike = None) -> Stream:
    """The same as `current_stream`."""
    return Stream(device)


def set_stream(stream: torch.Stream) -> None:
    """Checks the device; there is nothing to choose."""
    check_device(stream.device)


def stream(stream: torch.Stream | None) -> contextlib.AbstractContextManager[Any]:
    """Context manager for code written for several streams; there is nothing to choose."""
    if stream is not None:
        set_stream(stream)
    return contextlib.nullcontext(stream)

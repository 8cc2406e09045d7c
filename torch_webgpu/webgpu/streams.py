"""Streams and events. Each device has one stream, so everything on a device is in order."""

from typing import Any

import torch

from torch_webgpu import _C

from ._device import DeviceLike, index_of


class Stream(torch.Stream):
    """The stream of a device. All objects of this class for a device stand for the same one."""

    def __new__(cls, device: DeviceLike = None, priority: int = 0) -> "Stream":
        index = index_of(device)
        return super().__new__(cls, device=torch.device("webgpu", index), priority=priority)

    def __repr__(self) -> str:
        return f"torch.webgpu.Stream(device={self.device})"

    # Another object would stand for the same stream, so that a copy of what holds one needs none.
    def __copy__(self) -> "Stream":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Stream":
        return self


class _EventType(type):
    # What the class makes are objects of the base class.
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Event) and value.device.type == "webgpu"


class Event(torch.Event, metaclass=_EventType):
    """A point in a stream: `record` sets it, `query` and `synchronize` tell when it is reached.

    With ``enable_timing=True``, ``start.elapsed_time(end)`` is the device time between two events
    of a device in milliseconds; it waits for both and raises RuntimeError where the device has no
    timestamps.
    """

    # A torch.Event of this device: its methods refuse subclasses.
    def __new__(  # type: ignore[misc]
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> torch.Event:
        if interprocess:
            raise NotImplementedError("webgpu events cannot be shared between processes")
        if external:
            raise NotImplementedError("webgpu events cannot be nodes of a captured graph")
        return torch.Event(
            torch.device("webgpu", index_of(None)), enable_timing=enable_timing, blocking=blocking
        )


def current_stream(device: DeviceLike = None) -> Stream:
    """The stream that ops of the device are queued on."""
    return Stream(device)


def default_stream(device: DeviceLike = None) -> Stream:
    """The same as `current_stream`."""
    return Stream(device)


def set_stream(stream: torch.Stream) -> None:
    """Makes the stream's device the current one, as on CUDA."""
    _C.exchange_device(index_of(stream.device))


class StreamContext:
    """Context manager that makes the stream's device the current one. None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self.idx = -1 if stream is None else index_of(stream.device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *exception: Any) -> None:
        _C.exchange_device(self.prev_idx)


def stream(stream: torch.Stream | None) -> StreamContext:
    """`StreamContext` of the stream."""
    return StreamContext(stream)

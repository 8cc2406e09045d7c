"""Memory of the device's pool. All sizes are in bytes."""

from torch_webgpu import _C

from ._device import DeviceLike, check_device


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Counters of the pool, under the names of ``torch.cuda.memory_stats``.

    ``allocated_bytes`` is what live tensors asked for, ``reserved_bytes`` what is held from the
    driver; ``allocation`` counts requests, ``segment`` WebGPU buffers, ``num_ooms`` failures.
    """
    check_device(device)
    return dict(_C.memory_stats())


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that live tensors asked for."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The peak of `memory_allocated` since the start or `reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes held from the driver: by live tensors, with rounding, and by the cache."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The peak of `memory_reserved` since the start or `reset_peak_memory_stats`."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Makes the peaks start again from the current values."""
    check_device(device)
    _C.reset_peak_memory_stats()


def empty_cache() -> None:
    """Gives the buffers that no tensor uses back to the driver."""
    _C.empty_cache()


def memory_summary(device: DeviceLike = None) -> str:
    """The counters of `memory_stats` as a table."""
    counters = memory_stats(device)
    width = max(map(len, counters))
    return "\n".join(
        f"{name:<{width}}  {value:>20,}{' B' if '_bytes' in name else ''}"
        for name, value in counters.items()
    )

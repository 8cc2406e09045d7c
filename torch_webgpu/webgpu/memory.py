"""Memory of the devices' pools: each device has its own. All sizes are in bytes."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from typing_extensions import deprecated

from torch_webgpu import _C

from ._device import DeviceLike, index_of


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Counters of the pool, under the names of ``torch.cuda.memory_stats``.

    They are those of ``torch.accelerator.memory_stats``, and ``graph_bytes``, which captured graphs
    hold. ``allocated_bytes`` is what live tensors asked for, as ``active_bytes`` and
    ``requested_bytes`` are; ``reserved_bytes`` what is held from the driver. ``allocation`` and
    ``active`` count requests, ``segment`` WebGPU buffers, ``num_ooms`` failures. The pool has no
    parts for small and large requests, and splits no buffers: what it does not count is 0.
    """
    return dict(sorted(_flat("", memory_stats_as_nested_dict(device))))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """`memory_stats` with a dictionary for each part of a name."""
    index = index_of(device)
    stats: dict[str, Any] = torch._C._accelerator_getDeviceStats(index)
    stats["graph_bytes"] = {"all": {"current": _C.graph_bytes(index)}}
    return stats


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Makes ``allocated`` and ``freed`` of `memory_stats` start again from 0, and ``num_ooms`` and
    ``num_alloc_retries``."""
    torch._C._accelerator_resetAccumulatedStats(index_of(device))


def host_memory_stats() -> dict[str, int]:
    """Counters of pinned memory, under the names of ``torch.cuda.host_memory_stats``.

    ``active`` counts what tensors have (CUDA's also what a device still reads), ``allocations`` and
    ``allocated_bytes`` also what is kept until ``torch.accelerator.empty_host_cache()``. Times are
    in microseconds.
    """
    return dict(sorted(_flat("", host_memory_stats_as_nested_dict())))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """`host_memory_stats` with a dictionary for each part of a name."""
    stats: dict[str, Any] = _C.host_memory_stats()
    blocks = stats["allocations"]
    return stats | {"num_host_alloc": blocks["allocated"], "num_host_free": blocks["freed"]}


def reset_accumulated_host_memory_stats() -> None:
    """Makes ``allocated`` and ``freed`` of `host_memory_stats` start again from 0, and ``total``
    and ``count`` of times."""
    _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Makes ``peak`` of `host_memory_stats` start again from what is current, and ``min`` and
    ``max`` of times from 0."""
    _C.reset_peak_host_memory_stats()


def _bytes(device: DeviceLike, kind: str, which: str) -> int:
    stats = torch._C._accelerator_getDeviceStats(index_of(device))
    count: int = stats[f"{kind}_bytes"]["all"][which]
    return count


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else key, part)
    else:
        yield prefix, value


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that live tensors asked for."""
    return _bytes(device, "allocated", "current")


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The peak of `memory_allocated` since the start or `reset_peak_memory_stats`."""
    return _bytes(device, "allocated", "peak")


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes held from the driver: by live tensors, with rounding, and by the cache."""
    return _bytes(device, "reserved", "current")


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The peak of `memory_reserved` since the start or `reset_peak_memory_stats`."""
    return _bytes(device, "reserved", "peak")


@deprecated(
    "`torch.webgpu.memory_cached` has been renamed to `torch.webgpu.memory_reserved`",
    category=FutureWarning,
)
def memory_cached(device: DeviceLike = None) -> int:
    """The old name of `memory_reserved`."""
    return memory_reserved(device)


@deprecated(
    "`torch.webgpu.max_memory_cached` has been renamed to `torch.webgpu.max_memory_reserved`",
    category=FutureWarning,
)
def max_memory_cached(device: DeviceLike = None) -> int:
    """The old name of `max_memory_reserved`."""
    return max_memory_reserved(device)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Makes the peaks start again from the current values."""
    torch._C._accelerator_resetPeakStats(index_of(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """`reset_peak_memory_stats`, with a warning that it is all peaks."""
    _warn_of_all_peaks("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """`reset_peak_memory_stats`, with a warning that it is all peaks."""
    _warn_of_all_peaks("reset_max_memory_cached")
    reset_peak_memory_stats(device)


def _warn_of_all_peaks(name: str) -> None:
    warnings.warn(
        f"torch.webgpu.{name} now calls torch.webgpu.reset_peak_memory_stats, "
        "which resets /all/ peak memory stats.",
        FutureWarning,
        stacklevel=3,
    )


def empty_cache(device: DeviceLike = None) -> None:
    """Gives the buffers that no tensor uses back to the driver: of one device, or of all."""
    _C.empty_cache(None if device is None else index_of(device))


def ipc_collect() -> None:
    """Does nothing: no memory of the device is shared between processes."""


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """1.0: the pool has no limit of its own."""
    index_of(device)
    return 1.0


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Raises NotImplementedError for less than 1.0, since the pool has no limit of its own."""
    index_of(device)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if fraction < 0 or fraction > 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    if fraction < 1:
        raise NotImplementedError(
            "set_per_process_memory_fraction: the memory that a process takes on webgpu cannot be "
            "limited"
        )


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total memory of the device. Starts it.

    ``total`` is that of `get_device_properties`. WebGPU does not tell what other processes use, so
    ``free`` is what this process has not reserved; for an adapter that works in main memory, no
    more than the system has left. ``torch.accelerator.get_memory_info`` gives the same.
    """
    free, total, _ = _C.memory_budget(index_of(device))
    return free, total


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The memory of the device, and the counters of `memory_stats`, as a table. Starts the device.

    With ``abbreviated``, without the counts of allocations and buffers.
    """
    index = index_of(device)
    free, total, estimated = _C.memory_budget(index)
    stats = memory_stats(index)
    lines = [
        f"Memory of {_C.adapter(index)['name']}",
        f"{'':<22}{'current':>14}{'peak':>14}",
    ]
    for title, key in (("allocated by tensors", "allocated"), ("reserved", "reserved")):
        current, peak = (stats[f"{key}_bytes.all.{which}"] for which in ("current", "peak"))
        lines.append(f"{title:<22}{_size(current):>14}{_size(peak):>14}")
    lines += [
        f"{'held by graphs':<22}{_size(stats['graph_bytes.all.current']):>14}",
        f"{'free':<22}{_size(free):>14}",
        f"{'total':<22}{_size(total):>14}{'  (estimated)' if estimated else ''}",
        f"{'out of memory':<22}{stats['num_ooms']:>14,} times",
    ]
    if not abbreviated:
        lines.append(f"{'':<22}{'current':>14}{'in all':>14}{'freed':>14}")
        for title, key in (("allocations", "allocation"), ("buffers", "segment")):
            counts = (stats[f"{key}.all.{which}"] for which in ("current", "allocated", "freed"))
            lines.append(f"{title:<22}" + "".join(f"{count:>14,}" for count in counts))
    return "\n".join(lines)


def _size(count: int) -> str:
    """Bytes with the unit that leaves at most four digits before the point."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 10_000:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"

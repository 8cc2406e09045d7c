"""Memory of the devices' pools: each device has its own. All sizes are in bytes."""

from torch_webgpu import _C

from ._device import DeviceLike, index_of


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Counters of the pool, under the names of ``torch.cuda.memory_stats``.

    ``allocated_bytes`` is what live tensors asked for, ``reserved_bytes`` what is held from the
    driver; ``allocation`` counts requests, ``segment`` WebGPU buffers, ``num_ooms`` failures.
    """
    return dict(_C.memory_stats(index_of(device)))


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
    _C.reset_peak_memory_stats(index_of(device))


def empty_cache(device: DeviceLike = None) -> None:
    """Gives the buffers that no tensor uses back to the driver: of one device, or of all."""
    _C.empty_cache(None if device is None else index_of(device))


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

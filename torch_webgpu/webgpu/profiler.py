"""What the device did: counters and device time per dispatch."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch_webgpu import _C

from ._device import DeviceLike, index_of


def stats(device: DeviceLike = None) -> dict[str, int]:
    """Counts of a device since the start of the process.

    ``dispatches``, ``copies`` (between buffers), ``submits``, ``uploads``, ``readbacks``,
    ``bind_groups`` and ``pipelines`` (created).
    """
    return dict(_C.stream_stats(index_of(device)))


@dataclass(frozen=True)
class ProfileEntry:
    """One dispatch. Times are in nanoseconds of the device's clock."""

    name: str
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass
class Profile:
    """What a `profile` block recorded, in order. Filled when the block ends."""

    entries: list[ProfileEntry] = field(default_factory=list)

    def by_name(self) -> dict[str, tuple[int, int]]:
        """Number of dispatches and nanoseconds per name, longest first."""
        totals: dict[str, tuple[int, int]] = {}
        for entry in self.entries:
            count, duration = totals.get(entry.name, (0, 0))
            totals[entry.name] = (count + 1, duration + entry.duration_ns)
        return dict(sorted(totals.items(), key=lambda item: -item[1][1]))

    def __str__(self) -> str:
        lines = [f"{'ms':>10}  {'calls':>6}  name"]
        for name, (count, duration) in self.by_name().items():
            lines.append(f"{duration / 1e6:10.3f}  {count:6}  {name}")
        return "\n".join(lines)


@contextlib.contextmanager
def profile(device: DeviceLike = None) -> Iterator[Profile]:
    """Measures the device time of every dispatch of a device in the block.

    The block runs slower than without: each dispatch gets a pass of its own. Raises RuntimeError
    where the device has no timestamp queries.
    """
    result = Profile()
    index = index_of(device)
    _C.start_profiler(index)
    try:
        yield result
    finally:
        result.entries = [ProfileEntry(*entry) for entry in _C.stop_profiler(index)]

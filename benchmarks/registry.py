"""The table of benchmarks: a row is a name, a unit, sizes and one small function."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .timing import Measurement

SCALES = ("tiny", "small", "full")
# What a figure is made of: the amount of work in a run, and the seconds that the run took.
UNITS: dict[str, Callable[[float, float], float]] = {
    "TFLOP/s": lambda flops, seconds: flops / seconds / 1e12,
    "GB/s": lambda bytes_moved, seconds: bytes_moved / seconds / 1e9,
    "us/op": lambda ops, seconds: seconds / ops * 1e6,
    "ms": lambda runs, seconds: seconds / runs * 1e3,
    "tokens/s": lambda tokens, seconds: tokens / seconds,
}
HIGHER_IS_BETTER = ("TFLOP/s", "GB/s", "tokens/s")


class Skip(Exception):
    """This peer cannot take part in this row; the text says why."""


class WrongResult(Exception):
    """What would have been timed is not right, or not where it should be."""


@dataclass(frozen=True)
class Workload:
    """What a row's function hands over to be checked and then timed."""

    run: Callable[[], Any]
    # Raises WrongResult unless what the first run returned is right.
    verify: Callable[[Any], None]
    # Floating-point operations, bytes, or operations in one run, as the unit says.
    amount: float = 1.0


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    group: str
    # What exactly is timed; printed below the table.
    what: str
    setup: Callable[..., Workload | Measurement]
    arguments: dict[str, Any] = field(default_factory=dict)
    enqueue_only: bool = False


@dataclass(frozen=True)
class _Entry:
    row: Row
    sizes: dict[str, list[dict[str, Any]]]


_entries: list[_Entry] = []


def row(
    name: str,
    *,
    unit: str,
    group: str,
    what: str,
    tiny: list[dict[str, Any]],
    small: list[dict[str, Any]],
    full: list[dict[str, Any]],
    enqueue_only: bool = False,
) -> Callable:
    """Registers `setup(peer, **arguments)`; `name` is formatted with the arguments of each size.

    `setup` returns a Workload to check and time or, where the figure is no time, a Measurement.
    """

    def register(setup: Callable) -> Callable:
        base = Row(name, unit, group, what, setup, enqueue_only=enqueue_only)
        _entries.append(_Entry(base, {"tiny": tiny, "small": small, "full": full}))
        return setup

    return register


def every_scale(**arguments: Any) -> dict[str, list[dict[str, Any]]]:
    return {scale: [arguments] for scale in SCALES}


def rows(scale: str, size: int) -> list[Row]:
    """The rows of one scale; `size` (bytes) goes to those that have an argument of that name."""
    # They fill the table when first imported, in the order of the groups.
    from . import operators  # noqa: F401, I001
    from . import products, attention, convolutions, networks, training  # noqa: F401

    result = []
    for entry in _entries:
        for arguments in entry.sizes[scale]:
            if "size" in arguments:
                # Rows whose tensors come in several copies take a fraction of the size.
                arguments = {**arguments, "size": int(size * arguments["size"])}
            shown = {k: size_text(v) if k == "size" else v for k, v in arguments.items()}
            name = entry.row.name.format(**shown)
            result.append(replace(entry.row, name=name, arguments=arguments))
    return result


def size_text(size: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g} {unit}"
    return f"{size} B"


def parse_size(text: str) -> int:
    """Bytes in "1GiB", "64 MiB", "4096"."""
    for unit, shift in (("GIB", 30), ("MIB", 20), ("KIB", 10)):
        if text.strip().upper().endswith(unit):
            return int(float(text.strip()[: -len(unit)]) * (1 << shift))
    return int(text)

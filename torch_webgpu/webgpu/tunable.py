"""``torch.webgpu.tunable``: products of matrices by the kernels that are measured to be fastest.

The names and files of `torch.cuda.tunable`. A product that is met for the first time while tuning
is enabled is computed by each kernel that takes it. The fastest is remembered, for this process and
in a file for each device, which later processes read. Kernels add in different orders, so results
may differ by roundings. No choice makes them wrong: a product that its kernel does not take is
computed by the kernel that the built-in estimates choose.

Off until `enable()`; CUDA's environment variables are not read. Convolutions, products of up to
eight rows, and what a graph captures are not measured. A captured product takes the kernel that is
known for it.
"""

import atexit
import csv
from pathlib import Path

import torch

from torch_webgpu import _C

from .properties import get_device_properties

__all__ = [
    "enable",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_validators",
    "is_enabled",
    "read_file",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "tuning_enable",
    "tuning_is_enabled",
    "write_file",
    "write_file_on_exit",
]

_DEFAULT_NAME = "tunableop_results.csv"
_LAYOUT = "tn"  # by whether a factor's neighbours lie along K

_Result = tuple[int, str, str, int, int, int, int, int, str, float]


class _Files:
    """Where results are kept, and which devices' files have been read."""

    def __init__(self) -> None:
        self.name = _DEFAULT_NAME
        self.has_ordinal = True  # the device's index stands in the name
        self.read: set[int] = set()
        self.known: set[_Result] = set()  # results that stand in files
        self.on_exit = True

    def of(self, device: int) -> Path:
        path = Path(self.name)
        return path.with_name(f"{path.stem}{device}{path.suffix}") if self.has_ordinal else path


_files = _Files()


def enable(val: bool = True) -> None:
    """Turns choices by measurement on or off.

    Reads the current device's file the first time, if there is one.
    """
    if val:
        device = _C.current_device()
        if device not in _files.read and _files.of(device).exists():
            read_file()
        _files.read.add(device)
    _C._tuning_enable(val)


def is_enabled() -> bool:
    """Whether products take the kernels that are known to be the fastest."""
    return _C._tuning_is_enabled()


def tuning_enable(val: bool = True) -> None:
    """Whether products that are not known yet are measured. They are by default."""
    _C._set_tuning_settings(val, *_C._tuning_settings()[1:])


def tuning_is_enabled() -> bool:
    """Whether products that are not known yet are measured."""
    return _C._tuning_settings()[0]


def set_max_tuning_duration(duration: int) -> None:
    """About how many milliseconds each kernel is measured for. Raises ValueError below 0."""
    _require(duration, "duration")
    tunes, _, iterations = _C._tuning_settings()
    _C._set_tuning_settings(tunes, float(duration), iterations)


def get_max_tuning_duration() -> int:
    """About how many milliseconds each kernel is measured for: 30 unless set."""
    return int(_C._tuning_settings()[1])


def set_max_tuning_iterations(iterations: int) -> None:
    """How often each kernel is run at most. Raises ValueError below 0."""
    _require(iterations, "iterations")
    tunes, duration, _ = _C._tuning_settings()
    _C._set_tuning_settings(tunes, duration, int(iterations))


def get_max_tuning_iterations() -> int:
    """How often each kernel is run at most: 100 unless set."""
    return _C._tuning_settings()[2]


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Where results are kept; with `insert_device_ordinal` in a file for each device."""
    _files.name, _files.has_ordinal = str(filename), insert_device_ordinal
    _files.read.clear()


def get_filename() -> str:
    """The file of the current device."""
    return str(_files.of(_C.current_device()))


def get_validators() -> tuple[tuple[str, str], ...]:
    """Name and value of what the current device's file must have been written with to be read."""
    return _validators(_C.current_device())


def _validators(device: int) -> tuple[tuple[str, str], ...]:
    properties = get_device_properties(device)
    return (
        ("PT_VERSION", torch.__version__),
        ("TORCH_WEBGPU_KERNELS", ",".join(name for name, *_ in _C._product_strategies())),
        ("WEBGPU_ADAPTER", f"{properties.name} {properties.driver}"),
    )


def get_results() -> tuple[tuple[str, str, str, float], ...]:
    """Operator, parameters, kernel and milliseconds of all known products, on any device."""
    return tuple(_row_of(result) for result in sorted(_C._tuned_results()))


def write_file(filename: str | None = None) -> bool:
    """Writes the current device's results, to `filename` or its own file. False if it cannot."""
    device = _C.current_device()
    return _write(device, Path(filename or _files.of(device)))


def _write(device: int, path: Path) -> bool:
    results = [each for each in sorted(_C._tuned_results()) if each[0] == device]
    try:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows(("Validator", *each) for each in _validators(device))
            writer.writerows(map(_row_of, results))
    except OSError:
        return False
    _files.known.update(results)
    return True


def read_file(filename: str | None = None) -> bool:
    """Reads results for the current device. False, and nothing is read, if the file is of another
    adapter, driver or version, or damaged. Raises FileNotFoundError if there is none."""
    device = _C.current_device()
    with Path(filename or _files.of(device)).open(newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    validators = {tuple(line[1:]) for line in lines if line[0] == "Validator"}
    if validators != set(get_validators()):
        return False
    names = {name for name, *_ in _C._product_strategies()}
    try:
        results = [_result_of(line, device) for line in lines if line[0] != "Validator"]
    except ValueError:
        return False
    if any(result[-2] not in names for result in results):
        return False
    for result in results:
        _C._add_tuned_result(result)
    _files.known.update(results)
    return True


def write_file_on_exit(val: bool) -> None:
    """Whether the process writes what it measured when it ends. It does by default."""
    _files.on_exit = val


@atexit.register
def _write_what_is_new() -> None:
    new = set(_C._tuned_results()) - _files.known
    for device in {result[0] for result in new} if _files.on_exit else ():
        _write(device, _files.of(device))


def _require(number: int, name: str) -> None:
    if number < 0:
        raise ValueError(f"{name} must not be negative, but is {number}")


def _row_of(result: _Result) -> tuple[str, str, str, float]:
    _, dtype, out, batch, m, n, k, traits, kernel, milliseconds = result
    layout = _LAYOUT[traits & 1] + _LAYOUT[1 - (traits >> 1 & 1)]
    parameters = f"{layout}_{m}_{n}_{k}_B_{batch}_{out}_{traits:x}"
    return f"GemmTunableOp_{dtype}_{layout.upper()}", parameters, kernel, milliseconds


def _result_of(line: list[str], device: int) -> _Result:
    """Raises ValueError for a line that is none."""
    operator, parameters, kernel, milliseconds = line
    name, dtype, _ = operator.split("_")
    _, m, n, k, _, batch, out, traits = parameters.split("_")
    if name != "GemmTunableOp":
        raise ValueError(f"no operator of this file: {operator}")
    sizes = (int(batch), int(m), int(n), int(k))
    return device, dtype, out, *sizes, int(traits, 16), kernel, float(milliseconds)

"""``torch.webgpu.tunable``: products of matrices by the kernels that are measured to be fastest.

With the names of `torch.cuda.tunable`, but without offline tuning (`record_untuned_enable`,
`tune_gemm_in_file` and their relatives), rotating buffers and numerical checks. A product that is
met for the first time while tuning is enabled is computed by each kernel that takes it, which a
profile shows. The fastest is remembered, for this process and in a file for each device, which
later processes read. Kernels add in different orders, so results may differ by roundings. No choice
makes them wrong: a product that its kernel does not take is computed by the kernel that the
built-in estimates choose.

Off until `enable()`; CUDA's environment variables are not read. Not measured are convolutions other
than 1 x 1 ones, products with at most eight rows and more columns than rows, products into a result
that is spread over more than four times its elements, and what a graph captures. A captured product
takes the kernel that is known when it is captured.

A line of a file is an operator, its parameters, the kernel and its milliseconds, as in CUDA's. The
time may be missing, and the kernel `Default` is the one that the estimates choose.
"""

import atexit
import contextlib
import csv
import functools
import math
import os
import warnings
from pathlib import Path

import torch

import torch_webgpu
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
# To be raised when the meaning of a result's traits changes (csrc/ops/matmul/tuning.cpp).
_FORMAT = 1
_DEFAULT_KERNEL = "Default"

_Result = tuple[int, str, str, int, int, int, int, int, str, float]


class _Files:
    """Where results are kept."""

    def __init__(self) -> None:
        self.name = _DEFAULT_NAME
        self.has_ordinal = True  # the index of the first device, too, stands in its file's name
        self.read: set[Path] = set()
        self.kept: dict[Path, set[_Result]] = {}  # what stands in a file
        self.on_exit = True

    def of(self, device: int) -> Path:
        path = Path(self.name)
        has_ordinal = self.has_ordinal or device > 0
        return path.with_name(f"{path.stem}{device}{path.suffix}") if has_ordinal else path


_files = _Files()


def enable(val: bool = True) -> None:
    """Whether products take the kernels that were measured to be the fastest.

    When this is turned on, the current device's file is read, once, if it exists. Warns if it is
    of another adapter, driver or version, or damaged.
    """
    if val:
        _read_own_file()
    _C._tuning_enable(val)


def _read_own_file() -> None:
    path = _files.of(_C.current_device())
    if path.is_file() and path not in _files.read and not read_file(str(path)):
        warnings.warn(
            f"{path} is of another adapter, driver or version, or damaged: it is not read",
            stacklevel=3,
        )
    _files.read.add(path)


def is_enabled() -> bool:
    """Whether products take the kernels that were measured to be the fastest."""
    return _C._tuning_is_enabled()


def tuning_enable(val: bool = True) -> None:
    """Whether products without a remembered kernel are measured, while `is_enabled()`. By default
    they are."""
    _C._set_tuning_settings(val, *_C._tuning_settings()[1:])


def tuning_is_enabled() -> bool:
    """Whether products without a remembered kernel are measured, while `is_enabled()`."""
    return _C._tuning_settings()[0]


def set_max_tuning_duration(duration: int) -> None:
    """About how many milliseconds each kernel is measured for. Raises ValueError below 0."""
    duration = _require(duration, "duration")
    tunes, _, iterations = _C._tuning_settings()
    _C._set_tuning_settings(tunes, float(duration), iterations)


def get_max_tuning_duration() -> int:
    """About how many milliseconds each kernel is measured for: 30 unless set."""
    return int(_C._tuning_settings()[1])


def set_max_tuning_iterations(iterations: int) -> None:
    """How often each kernel is run at most. Raises ValueError below 0."""
    iterations = _require(iterations, "iterations")
    tunes, duration, _ = _C._tuning_settings()
    _C._set_tuning_settings(tunes, duration, iterations)


def get_max_tuning_iterations() -> int:
    """How often each kernel is run at most: 100 unless set."""
    return _C._tuning_settings()[2]


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Where results are kept; with `insert_device_ordinal`, the first device's index stands in the
    name, as the others' always do. Read at once if `is_enabled()`. Raises ValueError for ""."""
    if not Path(filename).name:
        raise ValueError("the name of the file is empty")
    _files.name, _files.has_ordinal = str(filename), insert_device_ordinal
    if is_enabled():
        _read_own_file()


def get_filename() -> str:
    """The file of the current device."""
    return str(_files.of(_C.current_device()))


def get_validators() -> tuple[tuple[str, str], ...]:
    """Name and value of the lines that the current device's file must begin with to be read."""
    return _validators(_C.current_device())


def _validators(device: int) -> tuple[tuple[str, str], ...]:
    properties = get_device_properties(device)
    return (
        ("PT_VERSION", torch.__version__),
        ("TORCH_WEBGPU_VERSION", f"{torch_webgpu.__version__} {_FORMAT}"),
        ("TORCH_WEBGPU_KERNELS", " ".join(_kernels())),
        ("WEBGPU_ADAPTER", f"{properties.name} {properties.driver}"),
    )


@functools.cache
def _kernels() -> tuple[str, ...]:
    return tuple(name for name, *_ in _C._product_strategies())


def _results_for(device: int) -> set[_Result]:
    return {each for each in _C._tuned_results() if each[0] == device}


def get_results() -> tuple[tuple[str, str, str, float], ...]:
    """Operator, parameters, kernel and milliseconds of all known products, on any device."""
    return tuple(_row_of(result) for result in sorted(_C._tuned_results()))


def write_file(filename: str | None = None) -> bool:
    """Writes the current device's results, to `filename` or its own file. False if it cannot.

    Results of the same adapter and versions that the file has stay in it. A file of others, or a
    damaged one, is kept beside it with the ending `.bak`.
    """
    device = _C.current_device()
    return _write(device, Path(filename or _files.of(device)))


def _write(device: int, path: Path) -> bool:
    current = _results_for(device)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        if path.exists():
            there = _results_in(path, device)
            if there is None:
                os.replace(path, path.with_name(f"{path.name}.bak"))
            known = {each[:-2] for each in current}
            current |= {each for each in there or () if each[:-2] not in known}
        with new.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerows(("Validator", *each) for each in _validators(device))
            writer.writerows(map(_row_of, sorted(current)))
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        return False
    _files.kept[path] = current
    return True


def read_file(filename: str | None = None) -> bool:
    """Reads results for the current device. False, and nothing is read, if the file is of another
    adapter, driver or version, or damaged. Raises FileNotFoundError if there is none."""
    device = _C.current_device()
    path = Path(filename or _files.of(device))
    results = _results_in(path, device)
    if results is None:
        return False
    try:
        _C._add_tuned_results(results)
    except ValueError:
        return False
    _files.kept[path] = set(results)
    return True


def _results_in(path: Path, device: int) -> list[_Result] | None:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.reader(file) if line]
        validators = {tuple(line[1:]) for line in lines if line[0] == "Validator"}
        if validators != set(_validators(device)):
            return None
        return [_result_of(line, device) for line in lines if line[0] != "Validator"]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, csv.Error):
        return None


def write_file_on_exit(val: bool) -> None:
    """Whether the process writes what it measured when it ends. It does by default."""
    _files.on_exit = val


@atexit.register
def _write_what_is_new() -> None:
    if not _files.on_exit:
        return
    for device in {each[0] for each in _C._tuned_results()}:
        path = _files.of(device)
        is_new = _results_for(device) - _files.kept.get(path, set())
        if is_new and not _write(device, path):
            warnings.warn(f"{path} cannot be written: what was measured is lost", stacklevel=2)


def _require(number: int, name: str) -> int:
    if not 0 <= number < 1 << 31:
        raise ValueError(f"{name} must be from 0 to 2^31 - 1, but is {number}")
    return int(number)


def _row_of(result: _Result) -> tuple[str, str, str, float]:
    _, dtype, out, batch, m, n, k, traits, kernel, milliseconds = result
    # n for a matrix whose rows lie one after another, t for one whose columns do. The first bits of
    # the traits say whether neighbours lie along K, in A and in B.
    layout = ("n" if traits & 1 else "t") + ("t" if traits & 2 else "n")
    parameters = f"{layout}_{m}_{n}_{k}_B_{batch}_{out}_{traits:x}"
    return f"GemmTunableOp_{dtype}_{layout.upper()}", parameters, kernel, milliseconds


def _result_of(line: list[str], device: int) -> _Result:
    """Raises ValueError for a line that is none."""
    operator, parameters, kernel, *rest = line
    name, dtype, _ = operator.split("_")
    _, *sizes, _, batch, out, bits = parameters.split("_")
    m, n, k, count = (int(number) for number in (*sizes, batch))
    traits = int(bits, 16)
    milliseconds = float(rest[0]) if rest else 0.0
    is_number = math.isfinite(milliseconds) and all(
        0 <= x < 1 << 63 for x in (m, n, k, count, traits)
    )
    is_known = kernel == _DEFAULT_KERNEL or kernel in _kernels()
    if name != "GemmTunableOp" or len(rest) > 1 or not is_number or not is_known:
        raise ValueError(f"no result: {','.join(line)}")
    return device, dtype, out, count, m, n, k, traits, kernel, milliseconds

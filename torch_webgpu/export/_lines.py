"""Lines of the user's code, for errors."""

import functools
import linecache
import pathlib
import sys
import sysconfig
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

_FOREIGN = tuple(
    str(folder)
    for folder in (
        pathlib.Path(torch.__file__).parent,
        pathlib.Path(__file__).parents[1],
        sysconfig.get_path("stdlib"),
    )
)


class Line(NamedTuple):
    file: str
    number: int

    def __str__(self) -> str:
        code = linecache.getline(self.file, self.number).strip()
        return f"{self.file}:{self.number}: {code}"


class SizedError(RuntimeError):
    """What a function does depends on sizes. Its text has the line, where that is known."""

    def __init__(self, text: str, line: Line | None = None) -> None:
        super().__init__(text if line is None else f"{text}\n{line}")


def is_users(file: str) -> bool:
    """Whether a file is neither PyTorch's, nor this package's, nor Python's, nor generated."""
    in_packages = "site-packages" in file.removeprefix(str(_FOREIGN[0]))
    is_generated = file.startswith(("<", _generated_files()))
    return not is_generated and (in_packages or not file.startswith(_FOREIGN))


@functools.cache
def _generated_files() -> str:
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # which takes a second

    return cache_dir()


def innermost(lines: Iterable[Line]) -> Line | None:
    """The last line, from the outermost to the innermost, that is the user's."""
    return next((line for line in reversed(list(lines)) if is_users(line.file)), None)


def current() -> tuple[Line, str] | None:
    """The line of the user's that is being executed, and the name of its function."""
    frame: Any = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    return Line(frame.f_code.co_filename, frame.f_lineno), frame.f_code.co_name

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
    # If this one is of an installed library: the line of the user's own that led to it.
    caller: "Line | None" = None

    @property
    def code(self) -> str:
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        text = f"{self.file}:{self.number}: {self.code}"
        return text if self.caller is None else f"{text}\ncalled from {self.caller}"


class KnownLineError(RuntimeError):
    """Its text has the line, where that is known: it is not where the error is raised."""

    def __init__(self, text: str, line: Line | None = None) -> None:
        super().__init__(text if line is None else f"{text}\n{line}")


class SizedError(KnownLineError):
    """What a function does depends on sizes."""


def is_users(file: str) -> bool:
    """Whether a file is neither PyTorch's, nor this package's, nor Python's, nor generated."""
    in_packages = "site-packages" in file.removeprefix(str(_FOREIGN[0]))
    is_generated = file.startswith(("<", _generated_files()))
    return not is_generated and (in_packages or not file.startswith(_FOREIGN))


@functools.cache
def _generated_files() -> str:
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # which takes a second

    return cache_dir()


def is_own(file: str) -> bool:
    """Whether a file of the user's is of no library that is installed."""
    return "site-packages" not in file and "dist-packages" not in file


def innermost(lines: Iterable[Line]) -> Line | None:
    """The last line, from the outermost to the innermost, that is the user's. Of a library's line,
    the last one of the user's own is the caller."""
    users = [line for line in lines if is_users(line.file)]
    if not users:
        return None
    own = next((line for line in reversed(users) if is_own(line.file)), None)
    return users[-1] if own == users[-1] else users[-1]._replace(caller=own)


def current() -> list[tuple[Line, str]]:
    """The line of the user's that is being executed, with the name of its function, after the line
    of the user's own that led to it if it is a library's."""
    found: list[tuple[Line, str]] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file) and (not found or is_own(file)):
            found.insert(0, (Line(file, frame.f_lineno), frame.f_code.co_name))
            if is_own(file):
                break
        frame = frame.f_back
    return found

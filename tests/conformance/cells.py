"""The cells of the table: an entry of a database, a dtype, a variant; and how one is run."""

import os
import random
import sys
import time
from typing import NamedTuple

import torch

from . import comparison
from .databases import entries, runner_of

DEVICE = "webgpu"
# What the device computes in without the CPU.
DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
)
NATIVE, FALLBACK, FAILS, SKIPPED = STATUSES = ("native", "fallback", "fails", "skipped")
# The exit status of a worker that wants to be replaced before it runs a cell.
REPLACE_ME = 75


class Cell(NamedTuple):
    database: str  # a section of databases.py
    op: str
    dtype: str
    variant: str


class Result(NamedTuple):
    status: str
    reason: str = ""
    detail: str = ""
    fallbacks: tuple[str, ...] = ()
    seconds: float = 0.0


def cells_of(databases, only, dtypes):
    """Every cell, the first dtype of all entries first: an interrupted run has seen them all."""
    for dtype in dtypes:
        for database in databases:
            for name, entry in entries(database).items():
                if only in name:
                    for variant in runner_of(database).variants_of(entry, getattr(torch, dtype)):
                        yield Cell(database, name, dtype, variant)


def start_worker(databases, log):
    """What a worker process does before its first cell, and outside of a cell's time."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    torch.set_num_threads(1)  # there are as many workers as cores
    torch.webgpu.set_fallback_mode("silent")  # counted still
    for database in databases:
        entries(database)
    device_works()


def run(cell, limit):
    """The result of one cell, from at most `limit` samples (0: all)."""
    if not device_works():
        os._exit(REPLACE_ME)
    start = time.perf_counter()
    torch.manual_seed(0)
    random.seed(0)  # of some samples
    torch.webgpu.reset_fallbacks()
    result = compare(cell, limit)
    return result._replace(
        fallbacks=tuple(sorted(torch.webgpu.fallbacks())),
        seconds=round(time.perf_counter() - start, 3),
    )


def compare(cell, limit):
    entry, dtype = entries(cell.database)[cell.op], getattr(torch, cell.dtype)
    compared, reason = 0, "there are no samples"
    runner = runner_of(cell.database)
    if cell.op in runner.LEFT_OUT:
        return Result(SKIPPED, runner.LEFT_OUT[cell.op])
    for described, check in runner.checks(entry, dtype, cell.variant, limit):
        try:
            check(DEVICE)
            compared += 1
        except comparison.NoReferenceError as error:
            reason = f"the CPU has no reference: {error}"
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            detail = " ".join(lines)[:400] + f" - {described[:300]}"
            return Result(FAILS, comparison.describe(error), detail)
    if not compared:
        return Result(SKIPPED, reason)
    return Result(FALLBACK if torch.webgpu.fallbacks() else NATIVE)


def device_works():
    """False after a lost device, whose error must not count against the cells that follow."""
    try:
        return torch.ones(2, device=DEVICE).add_(1).tolist() == [2, 2]
    except Exception:
        return False

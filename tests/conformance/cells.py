"""The cells of the table: an entry of a database, a dtype, a variant; and how one is run."""

import random
import time
from typing import NamedTuple

import torch

from . import comparison, runner
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
    runner.start_worker(log)
    for database in databases:
        entries(database)


def run(cell, limit):
    """The result of one cell, from at most `limit` samples (0: all)."""
    runner.require_device()
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
    section = runner_of(cell.database)
    if cell.op in section.LEFT_OUT:
        return Result(SKIPPED, section.LEFT_OUT[cell.op])
    for described, check in section.checks(entry, dtype, cell.variant, limit):
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

"""The cells of the table: an entry of a database, a dtype, a variant; and how one is run."""

import random
import time
from typing import NamedTuple

import torch

from . import comparison, runner
from .databases import SAMPLED, entries, runner_of

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
STATUSES = ("native", "fallback", "known", "fails", "skipped")
NATIVE, FALLBACK, KNOWN, FAILS, SKIPPED = STATUSES


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


def cells_of(databases, only, dtypes, every=1):
    """Every cell, the first dtype of all entries first: an interrupted run has seen them all.
    Without a name, one entry of `every` of the sampled databases."""
    for dtype in dtypes:
        for database in databases:
            step = every if database in SAMPLED and not only else 1
            for number, (name, entry) in enumerate(entries(database).items()):
                if only in name and number % step == 0:
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
            reason = f"there is no reference: {error}"
        except comparison.KnownError as error:
            said = f"{error} - {said_by(error.__cause__, described)}"
            return Result(KNOWN, str(error), said)
        except Exception as error:
            return Result(FAILS, comparison.describe(error), said_by(error, described))
    if not compared:
        return Result(SKIPPED, reason)
    return Result(FALLBACK if torch.webgpu.fallbacks() else NATIVE)


def said_by(error, described):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:400] + f" - {described[:300]}"

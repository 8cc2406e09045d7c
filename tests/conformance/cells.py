"""The cells of the table: an entry of the database, a dtype, a variant; and how one is run."""

import functools
import importlib
import os
import sys
import time
from typing import NamedTuple

import torch

from . import comparison

DEVICE = "webgpu"
DATABASE = "torch.testing._internal.common_methods_invocations:op_db"
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
    database: str  # "module:attribute"
    op: str
    dtype: str
    variant: str


class Result(NamedTuple):
    status: str
    reason: str = ""
    detail: str = ""
    fallbacks: tuple[str, ...] = ()
    seconds: float = 0.0


@functools.cache
def entries(database):
    """The entries of a database by their names."""
    module, attribute = database.split(":")
    return {op.formatted_name: op for op in getattr(importlib.import_module(module), attribute)}


def cells_of(database, only, dtypes):
    """Every cell, the first dtype of all entries first: an interrupted run has seen them all."""
    for dtype in dtypes:
        for name, op in entries(database).items():
            if only in name:
                for variant in variants_of(op, getattr(torch, dtype)):
                    yield Cell(database, name, dtype, variant)


def variants_of(op, dtype):
    if dtype in op.supported_dtypes("cpu"):
        yield "forward"
        if op.supports_out:
            yield "out"
        if op.inplace_variant:
            yield "inplace"
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
        yield "gradient"


def start_worker(database, log):
    """What a worker process does before its first cell, and outside of a cell's time."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    torch.set_num_threads(1)  # there are as many workers as cores
    torch.webgpu.set_fallback_mode("silent")  # counted still
    entries(database)
    device_works()


def run(cell, limit):
    """The result of one cell, from at most `limit` samples (0: all)."""
    if not device_works():
        os._exit(REPLACE_ME)
    start = time.perf_counter()
    torch.manual_seed(0)
    torch.webgpu.reset_fallbacks()
    result = compare(cell, limit)
    return result._replace(
        fallbacks=tuple(sorted(torch.webgpu.fallbacks())),
        seconds=round(time.perf_counter() - start, 3),
    )


def compare(cell, limit):
    op = entries(cell.database)[cell.op]
    dtype = getattr(torch, cell.dtype)
    compared, reason = 0, "there are no samples"
    for sample in comparison.samples_of(op, dtype, cell.variant == "gradient", limit):
        described = sample.summary()  # before an in-place variant writes to it
        try:
            comparison.check(cell.variant, op, sample, dtype, DEVICE)
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

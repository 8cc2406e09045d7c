"""What the modules that Inductor writes for this device import."""

import concurrent.futures
import ctypes
import functools
import logging
import os

from torch_webgpu import _C
from torch_webgpu.inductor.accessors import Accessors, vector_bytes
from torch_webgpu.inductor.module import Access, Operand

fused_product = _C.FusedProduct
fused_convolution = _C.FusedConvolution

# Pipelines that are built at a time: a driver's compiler takes memory.
_MOST_BUILDS = 8

_log = logging.getLogger(__name__)


def wgsl_kernel(
    name: str,
    *,
    operands: list[tuple[str, str, str]],
    integers: list[str],
    checks: list[tuple[str, bool]],
    lanes: int,
    text: str,
) -> _C.CompiledKernel:
    """A kernel to be called as ``kernel(tensors..., integers..., workgroups)``.

    Its pipeline for the usual way that operands lie is built in the background meanwhile, beside
    those of other kernels.
    """
    given = [Operand(*operand) for operand in operands]
    accessors = Accessors(given, integers, checks, lanes)
    kernel = _C.CompiledKernel(
        name,
        [_described(operand, lanes) for operand in given],
        len(integers),
        checks,
        lambda places, declarations: accessors.text(places, declarations) + text,
    )
    _background().submit(_prepare, kernel)
    return kernel


def float_bits(value: float) -> int:
    """A real number among a launch's integers: the bits of the nearest f32."""
    return ctypes.c_int32.from_buffer(ctypes.c_float(value)).value


def low_word(value: int) -> int:
    """The lower 32 bits of an integer of 64, among a launch's integers."""
    return ctypes.c_int32(value).value


def high_word(value: int) -> int:
    """The upper 32 bits. Raises OverflowError for an integer beyond 64 bits."""
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"the integer {value} needs more than 64 bits")
    return value >> 32


def _described(operand: Operand, lanes: int) -> tuple[str, str, bool, bool, int]:
    access = operand.access
    return (
        operand.name,
        operand.dtype,
        Access.STORES in access,
        Access.ADDS in access,
        vector_bytes(operand, lanes),
    )


@functools.cache
def _background() -> concurrent.futures.ThreadPoolExecutor:
    # Each waits for a pipeline that the runtime builds.
    workers = min(os.cpu_count() or 1, _MOST_BUILDS)
    return concurrent.futures.ThreadPoolExecutor(workers, "webgpu-shaders")


def _prepare(kernel: _C.CompiledKernel) -> None:
    try:
        kernel.prepare()
    except Exception:  # the launch meets it again, and raises it where somebody listens
        _log.debug("%s: not built ahead", kernel.name, exc_info=True)

"""Entries of op_db and of the foreach databases: forward, out=, in place and gradient."""

import functools

from . import comparison

SIDES = {"forward": ("forward", "out", "inplace"), "backward": ("gradient",)}
# Entries that are skipped, and why.
NO_KERNEL = "sparse tensors have no kernel for it on webgpu"
LEFT_OUT = dict.fromkeys(("sparse_mm_reduce", "sparse_sampled_addmm"), NO_KERNEL)


def name_of(op):
    return op.formatted_name


def variants_of(op, dtype):
    if dtype in op.supported_dtypes("cpu"):
        yield "forward"
        # Of a foreach function it says whether there is a form that is not in place.
        if op.supports_out and not op.name.startswith("_foreach"):
            yield "out"
        if op.inplace_variant:
            yield "inplace"
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
        yield "gradient"


def checks(op, dtype, variant, limit):
    for sample in comparison.samples_of(op, dtype, variant == "gradient", limit):
        described = sample.summary()  # before an in-place variant writes to it
        yield described, functools.partial(comparison.check, variant, op, sample, dtype)

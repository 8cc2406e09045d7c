"""Entries of op_db under torch.compile: forward and gradient, for one size and for dynamic sizes.

The reference is eager mode on the device. What is known to differ stands in compiled.yaml.
tests/inductor/test_opdb.py runs a sample of this.
"""

import contextlib
import functools
import pathlib
from unittest import mock

import torch
import torch._inductor.config
import yaml
from torch.utils._pytree import tree_map

from . import comparison, ledgers, operators

SIDES = {"forward": ("forward", "dynamic"), "backward": ("gradient", "dynamic gradient")}
LEFT_OUT = operators.LEFT_OUT
DTYPES = (torch.float32, torch.float16)
# Each is compiled anew.
MOST_SAMPLES = 2
LEDGER = ledgers.reasons(yaml.safe_load(pathlib.Path(__file__).with_suffix(".yaml").read_text()))
# Samples are tiny: at their own values these thresholds would let none take lanes or tiles, and
# few invocations share a row.
THRESHOLDS = {
    "torch_webgpu.inductor.lanes.MIN_RESULTS": 1,
    "torch_webgpu.inductor.lanes.MIN_TILED": 1,
    "torch_webgpu.inductor.kernel._ELEMENTS_OF_A_LANE": 4,  # a quarter, where results are few
    "torch_webgpu.inductor.kernel._ENOUGH_WORKGROUPS": 1,
}


name_of = operators.name_of


def variants_of(op, dtype):
    if dtype in DTYPES:
        plain = set(operators.variants_of(op, dtype))
        yield from (name for name in variant_names() if kind_of(name) in plain)


def variant_names():
    return (name for names in SIDES.values() for name in names)


def kind_of(variant):
    return "gradient" if "gradient" in variant else "forward"


def known(op, dtype, variant):
    """Why an entry differs from eager mode; None if it does not."""
    name = str(dtype).removeprefix("torch.")
    keys = (op.formatted_name, f"{variant}: {op.formatted_name}", f"{name}: {op.formatted_name}")
    return next((LEDGER[key] for key in keys if key in LEDGER), None)


def checks(op, dtype, variant, limit):
    limit = min(limit or MOST_SAMPLES, MOST_SAMPLES)
    for sample in comparison.samples_of(op, dtype, kind_of(variant) == "gradient", limit):
        yield sample.summary(), functools.partial(check, op, sample, dtype, variant)


def check(op, sample, dtype, variant, device):
    kind = kind_of(variant)
    try:
        expected = run(kind, op, op, sample, device)
    except Exception as error:
        raise comparison.NoReferenceError(comparison.describe(error)) from error
    actual = ()
    try:
        with settings():
            function = torch.compile(
                lambda *args, **kwargs: op.op(*args, **kwargs),
                dynamic=variant.startswith("dynamic"),
            )
            actual = run(kind, function, op, sample, device)
        comparison.assert_same(kind, actual, expected, op, sample, dtype)
    except Exception as error:
        if (
            isinstance(error, AssertionError)
            and dtypes(actual) == dtypes(expected)
            and is_more_exact(kind, actual, op, sample, dtype)
        ):
            return
        reason = known(op, dtype, variant)
        if reason is None:
            raise
        raise comparison.KnownError(reason) from error


def is_more_exact(kind, actual, op, sample, dtype):
    """Eager mode rounds to the half between its operators, a kernel of several does not."""
    widened = comparison.in_float32(sample)
    return dtype in comparison.HALVES and comparison.close_to_float32(
        kind, actual, widened, op, dtype
    )


def dtypes(result):
    return [tensor.dtype for tensor in comparison.tensors_of(result)]


def run(kind, function, op, sample, device):
    torch.manual_seed(0)
    result = comparison.VARIANTS[kind](function, comparison.on_device(op, sample, device))
    torch.webgpu.synchronize()  # which raises what kernels found
    return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf, result)


@contextlib.contextmanager
def settings():
    """Nothing of what was compiled before, and the least thresholds, which no cache knows of."""
    torch._dynamo.reset()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch._inductor.config.patch(force_disable_caches=True))
        for name, value in THRESHOLDS.items():
            stack.enter_context(mock.patch(name, value))
        yield

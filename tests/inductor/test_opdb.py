"""PyTorch's operator database, compiled against eager mode on the device.

A sample of the entries; TORCH_WEBGPU_COMPILED_ENTRIES=1 takes them all (an hour on two cores).
Entries that cannot pass stand in ledger.yaml with a reason; one that passes though listed is a
failure.
"""

import functools
import os
import pathlib

import pytest
import torch
import yaml
from compiled import assert_equal, compile, gradients
from conformance import comparison
from torch.testing._internal.common_methods_invocations import op_db

from torch_webgpu.inductor import lanes

# One entry of so many is taken.
STRIDE = int(os.environ.get("TORCH_WEBGPU_COMPILED_ENTRIES", "9"))
MAX_SAMPLES = 2
LEDGER = yaml.safe_load(pathlib.Path(__file__).with_name("ledger.yaml").read_text())
# What is run: dtype, with gradients, with dynamic shapes.
VARIANTS = {
    "float32": (torch.float32, False, False),
    "float16": (torch.float16, False, False),
    "dynamic": (torch.float32, False, True),
    "gradient": (torch.float32, True, False),
    "dynamic gradient": (torch.float32, True, True),
}


def entries():
    """(variant, entry): each variant takes other entries of the sample's stride."""
    for shift, (variant, (dtype, with_gradient, _)) in enumerate(VARIANTS.items()):
        for number, op in enumerate(op_db):
            if (number + shift) % STRIDE or dtype not in op.supported_dtypes("cpu"):
                continue
            if with_gradient and dtype not in op.supported_backward_dtypes("cpu"):
                continue
            yield pytest.param(variant, op, id=f"{variant}-{op.formatted_name}")


def run(function, op, sample, with_gradient):
    torch.manual_seed(0)
    arguments = (sample.input, sample.args, sample.kwargs)
    result = function(*arguments)
    if not with_gradient:
        return result, []
    return result, gradients(sample.output_process_fn_grad(result), arguments)


def compare(op, sample, dtype, with_gradient, dynamic):
    sample = sample.transform(functools.partial(comparison.to_device, device="webgpu"))

    def function(input, args, kwargs):
        return op.op(input, *args, **kwargs)

    try:
        expected = run(function, op, sample, with_gradient)
        torch.webgpu.synchronize()
    except Exception as error:  # tests/opinfo has a ledger of what eager mode cannot do
        pytest.skip(f"eager mode: {comparison.describe(error)}")
    actual = run(compile(function, dynamic=dynamic), op, sample, with_gradient)
    torch.webgpu.synchronize()
    if comparison.is_random(op, sample):
        return
    variant = "gradient" if with_gradient else "forward"
    rtol, atol = comparison.tolerance(variant, op, dtype)
    assert_equal(actual, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("variant", "op"), entries())
def test_entry(variant, op, monkeypatch):
    monkeypatch.setattr(lanes, "MIN_RESULTS", 1)  # samples are tiny
    monkeypatch.setattr(lanes, "MIN_TILED", 1)
    dtype, with_gradient, dynamic = VARIANTS[variant]
    reason = LEDGER.get(op.formatted_name) or LEDGER.get(f"{variant}: {op.formatted_name}")
    try:
        for sample in comparison.samples_of(op, dtype, with_gradient, MAX_SAMPLES):
            compare(op, sample, dtype, with_gradient, dynamic)
    except Exception as error:
        if reason is None:
            raise
        pytest.xfail(f"{reason} ({comparison.describe(error)})")
    assert reason is None, f"{op.formatted_name} passes: take it out of ledger.yaml"

"""PyTorch's operator database, compiled against eager mode on the device.

A sample of the entries; TORCH_WEBGPU_COMPILED_ENTRIES=1 takes them all (an hour on two cores), and
`make conformance` more variants of them. `make test` takes a sixth of the sample. An entry that
passes though listed as one that cannot is a failure.
"""

import os

import pytest
import torch
from conformance import comparison, compiled
from torch.testing._internal.common_methods_invocations import op_db

# One entry of so many is taken.
STRIDE = int(os.environ.get("TORCH_WEBGPU_COMPILED_ENTRIES", "9"))
IS_GIVEN = "TORCH_WEBGPU_COMPILED_ENTRIES" in os.environ
CASES = [
    (torch.float32, "forward"),
    (torch.float16, "forward"),
    *((torch.float32, variant) for variant in ("dynamic", "gradient", "dynamic gradient")),
]


def entries():
    """Each case takes other entries of the sample's stride."""
    for shift, (dtype, variant) in enumerate(CASES):
        for number, op in enumerate(op_db):
            is_taken = (number + shift) % STRIDE == 0 and op.formatted_name not in compiled.LEFT_OUT
            if is_taken and variant in compiled.variants_of(op, dtype):
                name = f"{str(dtype).removeprefix('torch.')}-{variant}-{op.formatted_name}"
                yield pytest.param(op, dtype, variant, id=name)


@pytest.mark.sampled(1 if IS_GIVEN else 6)
@pytest.mark.parametrize(("op", "dtype", "variant"), entries())
def test_entry(op, dtype, variant):
    compared, reason = 0, "no samples"
    for _, check in compiled.checks(op, dtype, variant, compiled.MOST_SAMPLES):
        try:
            check("webgpu")
            compared += 1
        except comparison.NoReferenceError as error:
            reason = f"eager mode: {error}"  # tests/opinfo has a ledger of what it cannot do
        except comparison.KnownError as error:
            pytest.xfail(f"{error} ({comparison.describe(error.__cause__)})")
    if not compared:
        pytest.skip(reason)
    known = compiled.known(op, dtype, variant)
    assert known is None, f"{op.formatted_name} passes: take it out of compiled.yaml"

"""PyTorch's operator database (op_db) on the device, against the CPU: results and gradients.

Every entry runs in float32, or in one dtype it supports where it has no float32. Operators that do
not pass yet stand in ledger.yaml with a reason; one that passes though listed is a failure.
"""

import os

import ledger
import pytest
import torch
from conformance import comparison
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase

# Samples per operator: enough for its overloads and corner shapes, few enough for a software GPU.
# 0 takes them all.
MAX_SAMPLES = int(os.environ.get("TORCH_WEBGPU_OPINFO_SAMPLES", "6"))


class TestOpInfo(TestCase):
    def run_op(self, kind, op, body):
        reason = ledger.reason_for(kind, op.formatted_name)
        try:
            body()
        except Exception as error:
            ledger.record(kind, op.formatted_name, comparison.describe(error))
            if reason is None:
                raise
            pytest.xfail(reason)
        if reason is not None:
            self.fail(f"{op.formatted_name} passes ({kind}): take it out of ledger.yaml ({reason})")

    def run_variant(self, variant, op, dtype, device):
        def body():
            gradient = variant == "gradient"
            for sample in comparison.samples_of(op, dtype, gradient, MAX_SAMPLES):
                comparison.check(variant, op, sample, dtype, device)

        self.run_op(variant, op, body)

    @ops(op_db, dtypes=OpDTypes.any_one)  # float32 wherever there is one
    def test_forward(self, device, dtype, op):
        self.run_variant("forward", op, dtype, device)

    @ops([op for op in op_db if op.supports_autograd], allowed_dtypes=(torch.float32,))
    def test_gradient(self, device, dtype, op):
        self.run_variant("gradient", op, dtype, device)


instantiate_device_type_tests(TestOpInfo, globals(), only_for=("privateuse1",))

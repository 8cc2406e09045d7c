"""Lazy clones (torch._lazy_clone) as operands of every entry of op_db.

What is only read stays shared, forward and backward; what is written in place or by out= leaves
the memory that others share as it was.
"""

import os

import ledger
import torch
from conformance import comparison
from torch.testing import assert_close
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase
from torch.utils._pytree import tree_map

MAX_SAMPLES = int(os.environ.get("TORCH_WEBGPU_OPINFO_SAMPLES", "2"))


class Shared:
    """Tensors, lazy clones of them, and what they held."""

    def __init__(self):
        self.all = []

    def clones_of(self, value):
        return tree_map(self.clone_of, value)

    def clone_of(self, leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
            return leaf
        lazy = torch._lazy_clone(leaf)
        self.all.append((leaf, lazy, leaf.detach().cpu()))
        return lazy

    def check(self, may_move):
        for original, lazy, held in self.all:
            assert may_move or torch._C._is_cow_tensor(lazy), "a tensor that is read was copied"
            now = original.detach().cpu()
            assert_close(now, held, rtol=0, atol=0, equal_nan=True)


class TestLazyClones(TestCase):
    def samples(self, op, dtype, device, gradient=False):
        self.skip_listed(op)
        for sample in comparison.samples_of(op, dtype, gradient, MAX_SAMPLES):
            yield self.moved(op, sample, device)

    def skip_listed(self, op):
        if reason := ledger.reason_for("forward", op.formatted_name):
            self.skipTest(reason)

    def moved(self, op, sample, device):
        """The sample with lazy clones on the device."""
        shared = Shared()
        lazy = comparison.on_device(op, sample, device)
        if "device" in lazy.kwargs:
            lazy.kwargs["device"] = device
        lazy.input, lazy.args, lazy.kwargs = shared.clones_of((lazy.input, lazy.args, lazy.kwargs))
        return lazy, shared

    @ops(op_db, dtypes=OpDTypes.any_one)
    def test_reads(self, device, dtype, op):
        gradient = (
            op.supports_autograd
            and dtype.is_floating_point
            and not op.skip_cow_input_backward
            and not ledger.reason_for("gradient", op.formatted_name)
        )
        may_move = not op.supports_cow_input_no_materialize_forward or bool(
            op.allow_cow_input_materialize_forward
        )
        may_move_backward = (
            may_move
            or not op.supports_cow_input_no_materialize_backward
            or bool(op.allow_cow_input_materialize_backward)
        )
        for sample, shared in self.samples(op, dtype, device, gradient):
            result = comparison.call(op, sample)
            shared.check(may_move)
            outputs = comparison.differentiable(result) if gradient else []
            if not outputs:
                continue
            inputs = [
                t
                for t in comparison.tensors_of((sample.input, sample.args, sample.kwargs))
                if t.requires_grad
            ]
            gradients = shared.clones_of([comparison.wanted_gradient(o) for o in outputs])
            torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)
            shared.check(may_move_backward)

    @ops([op for op in op_db if op.inplace_variant], dtypes=OpDTypes.any_one)
    def test_writes_in_place(self, device, dtype, op):
        for sample, shared in self.samples(op, dtype, device):
            if not sample.broadcasts_input:
                op.inplace_variant(sample.input, *sample.args, **sample.kwargs)
                shared.check(may_move=True)

    @ops([op for op in op_db if op.supports_out], dtypes=OpDTypes.any_one)
    def test_writes_out(self, device, dtype, op):
        self.skip_listed(op)
        for host in comparison.samples_of(op, dtype, False, MAX_SAMPLES):
            try:
                plain = op(host.input, *host.args, **host.kwargs)
                outs = tree_map(torch.ones_like, plain)
                op(host.input, *host.args, **host.kwargs, out=outs)
            except (RuntimeError, TypeError):
                continue  # these have no out=
            sample, shared = self.moved(op, host, device)
            lazy_outs = shared.clones_of(comparison.to_device(outs, device))
            op(sample.input, *sample.args, **sample.kwargs, out=lazy_outs)
            shared.check(may_move=True)


instantiate_device_type_tests(TestLazyClones, globals(), only_for=("privateuse1",))

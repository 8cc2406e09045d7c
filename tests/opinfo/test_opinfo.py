"""PyTorch's operator database (op_db) on the device, against the CPU: results and gradients.

Every entry runs in float32, or in one dtype it supports where it has no float32. Operators that do
not pass yet stand in ledger.yaml with a reason; one that passes though listed is a failure.
"""

import os

import ledger
import pytest
import torch
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase
from torch.utils._pytree import tree_flatten, tree_map

# Samples per operator: enough for its overloads and corner shapes, few enough for a software GPU.
# 0 takes them all.
MAX_SAMPLES = int(os.environ.get("TORCH_WEBGPU_OPINFO_SAMPLES", "6"))

# What these return is random (or uninitialized): only shapes and dtypes can be compared. Their
# distributions are tested in tests/ops/test_random.py.
RANDOM = {
    "bernoulli",
    "cauchy",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "new_empty",
    "new_empty_strided",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu",
    "normal",
    "pca_lowrank",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "svd_lowrank",
    "uniform",
}

# Random only in the samples with dropout.
DROPOUT = {
    "nn.functional.multi_head_attention_forward": lambda sample: sample.kwargs["training"],
    "nn.functional.scaled_dot_product_attention": lambda sample: sample.kwargs["dropout_p"] > 0,
}

# (rtol, atol) in float32 where assertEqual's own (1.3e-6, 1e-5) asks for more than another order of
# summation can keep: products and sums over many terms. CUDA's tests widen the same ones.
WIDE = (1e-4, 1e-4)
TOLERANCE = {
    # The gradient is exp(x - y) of numbers about 1e4, whose own rounding is 1e-3. Measured against
    # float64, the CPU's result is as far off as the device's.
    ("gradient", "logcumsumexp"): (1e-2, 1e-2),
    # Matrices of norms up to 5000: the error of any element is float32's of the largest ones.
    ("gradient", "matrix_exp"): (1e-4, 5e-3),
}


def move_tensor(tensor, device):
    if (
        tensor.numel() * tensor.itemsize < tensor.untyped_storage().nbytes()
        and not tensor.is_conj()
    ):
        # A view: the samples of as_strided reach what lies around it.
        storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        moved = storage.to(device).as_strided(
            tensor.size(), tensor.stride(), tensor.storage_offset()
        )
    else:
        moved = tensor.detach().to(device)
    return moved.requires_grad_(tensor.requires_grad)


def to_device(value, device):
    def move(leaf):
        if isinstance(leaf, torch.Tensor):
            return move_tensor(leaf, device)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return torch.device(device)
        return leaf

    return tree_map(move, value)


def samples_of(op, dtype, requires_grad):
    for count, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=requires_grad)):
        if MAX_SAMPLES and count >= MAX_SAMPLES:
            return
        yield sample


def call(op, sample):
    return sample.output_process_fn_grad(op(sample.input, *sample.args, **sample.kwargs))


def on_device(op, sample, device):
    moved = sample.transform(lambda value: to_device(value, device))
    if op.name == "tensor_split":  # takes its indices from the host, on every device
        moved.args = sample.args
    return moved


def tensors_of(value):
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def differentiable(outputs):
    return [
        t
        for t in tensors_of(outputs)
        if t.requires_grad and (t.is_floating_point() or t.is_complex())
    ]


def wanted_gradient(output):
    """The same for the CPU and the device, and not constant: a wrong order must show."""
    ramp = torch.linspace(0.5, 1.5, max(output.numel(), 1))[: output.numel()]
    return ramp.reshape(output.shape).to(output.dtype).to(output.device)


def is_random(op, sample):
    return op.name in RANDOM or (op.name in DROPOUT and DROPOUT[op.name](sample))


class TestOpInfo(TestCase):
    def compare(self, kind, actual, expected, op, sample):
        if is_random(op, sample):
            self.assertEqual(
                [(t.shape, t.dtype) for t in tensors_of(actual)],
                [(t.shape, t.dtype) for t in tensors_of(expected)],
            )
            return
        actual = tree_map(lambda t: t.cpu() if isinstance(t, torch.Tensor) else t, actual)
        rtol, atol = TOLERANCE.get((kind, op.name), WIDE)
        self.assertEqual(actual, expected, rtol=rtol, atol=atol, equal_nan=True)

    def run_op(self, kind, op, body):
        reason = ledger.reason_for(kind, op.formatted_name)
        try:
            body()
        except Exception as error:
            ledger.record(kind, op.formatted_name, error)
            if reason is None:
                raise
            pytest.xfail(reason)
        if reason is not None:
            self.fail(f"{op.formatted_name} passes ({kind}): take it out of ledger.yaml ({reason})")

    @ops(op_db, dtypes=OpDTypes.any_one)  # float32 wherever there is one
    def test_forward(self, device, dtype, op):
        def body():
            for sample in samples_of(op, dtype, requires_grad=False):
                expected = call(op, sample)
                actual = call(op, on_device(op, sample, device))
                self.compare("forward", actual, expected, op, sample)

        self.run_op("forward", op, body)

    @ops([op for op in op_db if op.supports_autograd], allowed_dtypes=(torch.float32,))
    def test_gradient(self, device, dtype, op):
        def body():
            for sample in samples_of(op, dtype, requires_grad=True):
                moved = on_device(op, sample, device)
                expected = self.gradients(op, sample)
                actual = self.gradients(op, moved)
                self.compare("gradient", actual, expected, op, sample)

        self.run_op("gradient", op, body)

    def gradients(self, op, sample):
        inputs = [
            t for t in tensors_of((sample.input, sample.args, sample.kwargs)) if t.requires_grad
        ]
        outputs = differentiable(call(op, sample))
        if not inputs or not outputs:
            return []
        return torch.autograd.grad(
            outputs, inputs, [wanted_gradient(o) for o in outputs], allow_unused=True
        )


instantiate_device_type_tests(TestOpInfo, globals(), only_for=("privateuse1",))

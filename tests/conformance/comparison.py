"""How an entry of PyTorch's operator database is run on the device and compared with the CPU."""

import itertools
import re
import sys
import unittest

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo import core
from torch.utils._pytree import tree_flatten, tree_map

# What these return is random (or uninitialized): only shapes and dtypes can be compared. Their
# distributions are tested in tests/ops/random/test_random.py.
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

# Eigenvectors and singular vectors are unique up to a factor of length 1, for which the samples'
# output_process_fn_grad makes up.
UP_TO_PHASE = {"linalg.eigh", "linalg.svd", "svd"}

# (rtol, atol) where assertEqual's own ask for more than another order of summation can keep.
# float32: what PyTorch's test_compare_cpu allows CUDA. The halves: what its tests of unary
# functions allow; the default, an atol of 1e-5, would ask for exact sums of numbers that cancel.
WIDE = {
    torch.float32: (1e-4, 1e-4),
    torch.complex64: (1e-4, 1e-4),
    torch.float16: (1.2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-3),
    # One step, for a sum that lies beside the middle between two numbers.
    torch.float8_e4m3fn: (2**-3, 2**-9),
    torch.float8_e5m2: (2**-2, 2**-16),
}
FLOAT8 = {torch.float8_e4m3fn, torch.float8_e5m2}
HALVES = (torch.float16, torch.bfloat16)
# The tests whose own tolerances for an entry hold here too: they compare results of eager mode.
EAGER_TESTS = (
    "TestCommon",
    "TestConsistency",  # of MPS with the CPU
    "TestUnaryUfuncs",
    "TestBinaryUfuncsDevice",
    "TestReductions",
)
# Of single entries, by dtype.
ROUNDING = (1e-2, 1e-2)
LARGE = (1e-4, 2e-2)
CANCELLED = (5e-2, 2e-2)
TOLERANCE = {
    # Sums of numbers up to 1e6 that cancel. The CPU scales, and so rounds, before it sums; CUDA and
    # the device scale the sum.
    ("forward", "torch._scaled_mm"): {
        torch.float8_e4m3fn: (2**-3, 4),
        torch.float8_e5m2: (2**-2, 4),
    },
    # The gradient is exp(x - y) of numbers about 1e4, whose own rounding is 1e-3. Measured against
    # float64, the CPU's result is as far off as the device's.
    ("gradient", "logcumsumexp"): {torch.float32: ROUNDING, torch.complex64: ROUNDING},
    # Results up to 1e5, gradients up to 1e4: any element's error is float32's of the largest ones.
    ("forward", "matrix_exp"): {torch.float32: LARGE},
    ("gradient", "matrix_exp"): {torch.float32: LARGE},
    # The third power of a result that is rounded to the half.
    ("gradient", "_foreach_rsqrt"): {torch.float16: (4e-3, 1e-3)},
    # Gradients up to 160, each a sum over a chain of reflections.
    ("gradient", "linalg.householder_product"): {
        torch.float32: (3e-4, 1e-3),
        torch.complex64: (1e-3, 1e-3),
    },
    # Differences that cancel, of statistics or products that are kept in bfloat16 on both sides.
    ("gradient", "native_group_norm"): {torch.bfloat16: CANCELLED},
    ("gradient", "nn.functional.linear_cross_entropy"): {
        torch.float16: (1e-2, 5e-3),
        torch.bfloat16: CANCELLED,
    },
    ("gradient", "log_softmax"): {torch.bfloat16: CANCELLED},
    ("gradient", "nn.functional.normalize"): {torch.bfloat16: (2e-2, 1e-1)},
}


def move_tensor(tensor, device):
    if (
        tensor.layout == torch.strided
        and tensor.numel() * tensor.itemsize < tensor.untyped_storage().nbytes()
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


def running_test():
    """The function of the test that runs, from whose name PyTorch makes the seed of samples."""
    frame = sys._getframe()
    while frame is not None:
        test = frame.f_locals.get("self")
        if isinstance(test, unittest.TestCase):
            kind, name = test.id().split(".")[-2:]
            if kind == type(test).__name__ and name.startswith("test"):
                return getattr(test, name).__func__
        frame = frame.f_back
    return None


# PyTorch's own looks for the source text of each frame in all modules, several times for each
# sample: half of the time of a test.
common_utils.extract_test_fn = core.extract_test_fn = running_test


def samples_of(op, dtype, requires_grad, limit):
    """The first samples of an entry; all of them if the limit is 0."""
    samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    return itertools.islice(samples, limit or None)


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
    """The same on every device, in every dtype; not constant, so that a wrong order shows."""
    ramp = torch.linspace(0.5, 1.5, max(output.numel(), 1))[: output.numel()].bfloat16()
    return ramp.reshape(output.shape).to(output.dtype).to(output.device)


def is_random(op, sample):
    return op.name in RANDOM or (op.name in DROPOUT and DROPOUT[op.name](sample))


def run_forward(op, sample):
    return call(op, sample)


def run_out(op, sample):
    """Into tensors whose elements are not neighbours, and into empty ones, which are resized."""

    def run(make_out):
        out = make_out(plain) if isinstance(plain, torch.Tensor) else tuple(map(make_out, plain))
        op(sample.input, *sample.args, **sample.kwargs, out=out)
        return sample.output_process_fn_grad(out) if op.name in UP_TO_PHASE else out

    plain = op(sample.input, *sample.args, **sample.kwargs)
    strided = run(lambda result: result.new_ones((*result.shape, 2))[..., 1])
    fresh = run(lambda result: result.new_empty(0))
    first, result = tensors_of(fresh)[0], tensors_of(plain)[0]
    if result.is_cpu and first.shape == result.shape:
        # Some of its kernels ignore the strides of out=: narrow_copy, avg_pool3d, gelu (bfloat16).
        return [fresh, fresh]
    return [strided, fresh]


def run_inplace(op, sample):
    if sample.broadcasts_input:
        raise NoReferenceError("the result is larger than the input")
    op.inplace_variant(sample.input, *sample.args, **sample.kwargs)
    return sample.input


def run_gradient(op, sample):
    inputs = [t for t in tensors_of((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    outputs = differentiable(call(op, sample))
    if not inputs or not outputs:
        return []
    return torch.autograd.grad(
        outputs, inputs, [wanted_gradient(o) for o in outputs], allow_unused=True
    )


VARIANTS = {
    "forward": run_forward,
    "out": run_out,
    "inplace": run_inplace,
    "gradient": run_gradient,
}


class NoReferenceError(Exception):
    """The CPU does not run this either; of what is compiled, eager mode does not."""


class KnownError(Exception):
    """A difference that stands in a ledger, with its reason."""


def check(variant, op, sample, dtype, device):
    """Raises AssertionError, or the device's own error, where the device is not as the CPU is."""
    run = VARIANTS[variant]
    # Before the CPU's run, which changes the sample if it is in place.
    moved = on_device(op, sample, device)
    widened = in_float32(sample) if dtype in HALVES else None
    try:
        expected = run(op, sample)
    except Exception as error:
        raise NoReferenceError(describe(error)) from error
    actual = run(op, moved)
    try:
        assert_same(variant, actual, expected, op, sample, dtype)
    except AssertionError as error:
        # The CPU rounds more often than the device where it computes in a half; then the device is
        # right if it is close to what float32 gives.
        if widened is None or not close_to_float32(variant, actual, widened, op, dtype):
            raise error


# Entries that may choose either of two equal elements, with the position of their `dim`.
TIES = {
    "argsort": 0,
    "kthvalue": 1,
    "median": 0,
    "mode": 0,
    "msort": 0,
    "nanmedian": 0,
    "sort": 0,
    "topk": 1,
}


def without_ties(variant, op, sample, dtype, result):
    """What is the same whichever of two equal elements is chosen."""
    if op.name not in TIES or sample.kwargs.get("stable"):
        return result
    if variant == "gradient":
        # Only the halves' samples have equal elements. They may have swapped their gradients.
        return [t.flatten().sort().values for t in result] if dtype in HALVES else result
    if isinstance(result, list):  # of run_out
        return [without_ties("forward", op, sample, dtype, one) for one in result]
    dim = sample.kwargs.get("dim", (*sample.args, -1, -1)[TIES[op.name]])

    def chosen(indices):
        if sample.input.dim() == 0:
            return sample.input.take(indices)
        reduced = indices.dim() < sample.input.dim()
        return sample.input.gather(dim, indices.unsqueeze(dim) if reduced else indices)

    if isinstance(result, tuple):
        return (result[0], chosen(result[1]))
    return chosen(result) if op.name == "argsort" else result


def in_float32(sample):
    def widen(leaf):
        if isinstance(leaf, torch.dtype):
            return torch.float32 if leaf in HALVES else leaf
        if isinstance(leaf, torch.Tensor) and leaf.dtype in HALVES:
            return leaf.detach().float().requires_grad_(leaf.requires_grad)
        return leaf

    return sample.transform(widen)


def close_to_float32(variant, actual, widened, op, dtype):
    def narrow(leaf):
        float32 = isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32
        return leaf.detach().to(dtype) if float32 else leaf

    try:
        expected = VARIANTS[variant](op, widened)
        assert_same(
            variant, tree_map(narrow, actual), tree_map(narrow, expected), op, widened, dtype
        )
    except Exception:  # float32 has no opinion
        return False
    return True


def tolerance(variant, op, dtype):
    """(rtol, atol): ours, or what PyTorch's own tests of this entry allow, if that is wider."""
    own = TOLERANCE.get((variant, op.name), {})
    if dtype in own:
        return own[dtype]
    # Integers that become floats become float32.
    allowed = [WIDE.get(dtype, WIDE[torch.float32])]
    for info in op.decorators:
        if isinstance(info, core.DecorateInfo) and info.cls_name in EAGER_TESTS and info.active_if:
            for decorator in info.decorators:
                if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                    allowed.append((decorator.d[dtype].rtol, decorator.d[dtype].atol))
    return tuple(map(max, zip(*allowed, strict=True)))


def assert_same(variant, actual, expected, op, sample, dtype):
    if is_random(op, sample):
        actual = [(t.shape, t.dtype) for t in tensors_of(actual)]
        expected = [(t.shape, t.dtype) for t in tensors_of(expected)]
    actual = tree_map(lambda t: t.cpu() if isinstance(t, torch.Tensor) else t, actual)
    actual, expected = (
        without_ties(variant, op, sample, dtype, result) for result in (actual, expected)
    )
    rounds = any(t.is_floating_point() or t.is_complex() for t in tensors_of(expected))
    rtol, atol = tolerance(variant, op, dtype) if rounds else (0, 0)
    types = [t.dtype for t in tensors_of(expected)]
    if FLOAT8 & set(types):  # which assertEqual compares by bits alone
        assert [t.dtype for t in tensors_of(actual)] == types
        actual, expected = (
            tree_map(lambda t: t.float() if getattr(t, "dtype", None) in FLOAT8 else t, result)
            for result in (actual, expected)
        )
    TestCase().assertEqual(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


def describe(error):
    """A short reason from an exception."""
    text = str(error)
    missing = re.search(r"Could not run '([\w:.]+)'", text)
    if missing:
        return f"no kernel for {missing.group(1)}"
    first_line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first_line}"[:160]

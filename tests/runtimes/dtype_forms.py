"""Hand-written kernels and table rows that only running builds: each in every dtype it takes.

As a program it runs them on the device of this process, whose runtime compiles (and so validates)
the shader of every form, compares with the CPU, and prints a JSON object from form to complaint.
Its arguments: how many samples of a form it takes, and of how many forms one.
"""

import contextlib
import functools
import itertools
import json
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
]
# Equal elements may come in any order: only the values are compared.
ANY_ORDER = {"sort", "topk", "msort", "kthvalue", "median", "mode"}
# Forms that run on the CPU, counted.
NO_KERNEL = {("logcumsumexp", torch.complex64)}
# Where the order of summation and the rounding of intermediate results may differ.
TOLERANCES = {torch.float16: 2e-2, torch.bfloat16: 1e-1}

OPERATORS = [
    "cat",
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce_prod",
    "index_select",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "nonzero",
    "put",
    "scatter",
    "scatter_add",
    "scatter_reduce_amax",
    "scatter_reduce_prod",
    "scatter_reduce_sum",
    "take",
    "searchsorted",
    "bucketize",
    "unique",
    "cumsum",
    "cumprod",
    "cummax",
    "cummin",
    "logcumsumexp",
    "sort",
    "topk",
    "msort",
    "kthvalue",
    "median",
    "mode",
    "softmax",
    "log_softmax",
    "native_layer_norm",
    "native_batch_norm",
    "nn.functional.group_norm",
    "nn.functional.rms_norm",
    "nn.functional.avg_pool2d",
    "nn.functional.avg_pool3d",
    "nn.functional.max_pool2d",
    "nn.functional.max_pool3d",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.adaptive_max_pool2d",
    "nn.functional.interpolate",
    "nn.functional.grid_sample",
    "nn.functional.pixel_shuffle",
    "nn.functional.fold",
    "nn.functional.unfold",
    "nn.functional.pad",
    "nn.functional.conv2d",
    "nn.functional.conv_transpose2d",
    "nn.functional.linear",
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
    "nn.functional.nll_loss",
    "nn.functional.multilabel_margin_loss",
    "nn.functional.multi_margin_loss",
    "bmm",
    "addmm",
    "matmul",
    "mv",
    "cdist",
    "cross",
    "fft.fft",
    "fft.hfft2",
    "fft.rfftn",
    "diag_embed",
    "tril",
    "triu",
    "tril_indices",
    "roll",
    "flip",
    "repeat_interleave",
    "linspace",
    "arange",
    "eye",
    "linalg.cholesky",
    "linalg.lu",
    "linalg.lu_solve",
    "linalg.qr",
    "linalg.solve_triangular",
    "ormqr",
]
# Filled in place: name and arguments. Their numbers are checked in tests/ops/random/test_random.py.
RANDOM = [
    ("uniform_", ()),
    ("normal_", ()),
    ("log_normal_", ()),
    ("cauchy_", ()),
    ("exponential_", ()),
    ("geometric_", (0.5,)),
    ("bernoulli_", (0.5,)),
    ("random_", (0, 2)),
]


def to_device(value):
    return value.to("webgpu") if isinstance(value, torch.Tensor) else value


def compare(actual, expected, dtype, any_order):
    tolerance = TOLERANCES.get(dtype, 1e-4)
    pairs = list(zip(tree_leaves(actual), tree_leaves(expected), strict=True))
    for got, want in pairs[:1] if any_order else pairs:
        if isinstance(want, torch.Tensor):
            # The statistics of half types are float32 here, as on CUDA.
            torch.testing.assert_close(
                got.cpu(), want, rtol=tolerance, atol=tolerance, equal_nan=True, check_dtype=False
            )


def check_operator(op, dtype, count):
    samples = op.sample_inputs("cpu", dtype, requires_grad=False)
    for sample in itertools.islice(samples, count):
        expected = op(sample.input, *sample.args, **sample.kwargs)
        moved = sample.transform(to_device)
        if "device" in moved.kwargs:
            moved.kwargs["device"] = "webgpu"
        actual = op(moved.input, *moved.args, **moved.kwargs)
        compare(actual, expected, dtype, op.name in ANY_ORDER)


def check_random(name, arguments, dtype):
    filled = getattr(torch.zeros(37, dtype=dtype, device="webgpu"), name)(*arguments)
    assert filled.cpu().isfinite().all()


def forms(count):
    """Name of each form, and the function that checks it on so many samples."""
    wanted = set(OPERATORS)
    for op in op_db:
        if op.name in wanted and not op.variant_test_name:
            for dtype in DTYPES:
                if dtype in op.dtypes and (op.name, dtype) not in NO_KERNEL:
                    yield f"{op.name} {dtype}", functools.partial(check_operator, op, dtype, count)
    for name, arguments in RANDOM:
        for dtype in DTYPES:
            with contextlib.suppress(RuntimeError, NotImplementedError):
                getattr(torch.zeros(1, dtype=dtype), name)(*arguments)
                if not dtype.is_complex:
                    check = functools.partial(check_random, name, arguments, dtype)
                    yield f"{name} {dtype}", check


def main() -> None:
    warnings.simplefilter("ignore")
    complaints = {}
    count, step = map(int, sys.argv[1:])
    for name, check in itertools.islice(forms(count), None, None, step):
        try:
            check()
            complaints[name] = ""
        # Whatever it raises is that form's result.
        except Exception as error:
            complaints[name] = (str(error).strip() or repr(error))[:2000]
    json.dump(complaints, sys.stdout)


if __name__ == "__main__":
    main()

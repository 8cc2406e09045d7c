"""Records what PyTorch computes for samples of its operators: web/tests/files/torch/ops.json.

With a folder as argument, copies the record there, and makes it only if it is missing or older than
this script.

The samples are those of PyTorch's own op_db. Each line of OPS names an operator of op_db, the
parameters that its TypeScript form takes in order, and behind a bar those that it takes as options.
A sample with other arguments is left out.
"""

import base64
import json
import pathlib
import shutil
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db

OUT = pathlib.Path(__file__).parents[1] / "files" / "torch"
UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "i0",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "neg",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "bitwise_not",
    "clone",
    "contiguous",
    "ravel",
    "t",
    "positive",
    "special.airy_ai",
    "special.bessel_j0",
    "special.bessel_j1",
    "special.bessel_y0",
    "special.bessel_y1",
    "special.entr",
    "special.erfcx",
    "special.i0e",
    "special.i1",
    "special.i1e",
    "special.log_ndtr",
    "special.modified_bessel_i0",
    "special.modified_bessel_i1",
    "special.modified_bessel_k0",
    "special.modified_bessel_k1",
    "special.ndtri",
    "special.spherical_bessel_j0",
    "nn.functional.hardsigmoid",
    "nn.functional.hardswish",
    "nn.functional.logsigmoid",
    "nn.functional.mish",
    "nn.functional.relu",
    "nn.functional.relu6",
    "nn.functional.selu",
    "nn.functional.silu",
    "nn.functional.softsign",
    "nn.functional.tanhshrink",
    "round",
    "zeros_like",
    "ones_like",
    "float",
    "half",
    "int",
    "long",
    "bool",
    "msort",
]
BINARY = [
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
    "ne",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "hypot",
    "lcm",
    "logaddexp",
    "logaddexp2",
    "atan2",
    "copysign",
    "xlogy",
    "heaviside",
    "maximum",
    "minimum",
    "nextafter",
    "remainder",
    "mul",
    "true_divide",
    "floor_divide",
    "pow",
    "igamma",
    "igammac",
    "special.zeta",
    "special.xlog1py",
    "mm",
    "bmm",
    "mv",
    "dot",
    "outer",
    "matmul",
    "view_as",
    "reshape_as",
    "expand_as",
    "nn.functional.prelu",
]
OPS = {
    **dict.fromkeys(UNARY, ""),
    **dict.fromkeys(BINARY, "other"),
    **{
        "add": "other | alpha",
        "sub": "other | alpha",
        "rsub": "other",
        "div": "other | rounding_mode",
        "addcmul": "tensor1 tensor2 | value",
        "addcdiv": "tensor1 tensor2 | value",
        "lerp": "end weight",
        "clamp": "min max",
        "clamp_min": "min",
        "clamp_max": "max",
        "nan_to_num": "nan posinf neginf",
        "where": "condition other",
        "masked_fill": "mask value",
        "logit": "eps",
        "nn.functional.hardtanh": "min_val max_val",
        "nn.functional.gelu": "approximate",
        "nn.functional.elu": "alpha",
        "nn.functional.celu": "alpha",
        "nn.functional.leaky_relu": "negative_slope",
        "nn.functional.softplus": "beta threshold",
        "nn.functional.threshold": "threshold value",
        "nn.functional.hardshrink": "lambd",
        "nn.functional.softshrink": "lambd",
        "nn.functional.glu": "dim",
        # Movement
        "view": "*shape",
        "reshape": "*shape",
        "flatten": "start_dim end_dim",
        "unflatten": "dim sizes",
        "permute": "*dims",
        "transpose": "dim0 dim1",
        "movedim": "source destination",
        "expand": "*size",
        "broadcast_to": "size",
        "unsqueeze": "dim",
        "squeeze": "dim",
        "narrow": "dim start length",
        "select": "dim index",
        "diagonal": "offset dim1 dim2",
        "diag": "diagonal",
        "split": "size dim",
        "chunk": "chunks dim",
        "unbind": "dim",
        "unfold": "dimension size step",
        "cat": "dim",
        "stack": "dim",
        "vstack": "",
        "hstack": "",
        "repeat": "*repeats",
        "tile": "*dims",
        "flip": "*dims",
        "roll": "shifts dims",
        "tril": "diagonal",
        "triu": "diagonal",
        # Indexing
        "index_select": "dim index",
        "index_add": "dim index source | alpha",
        "index_copy": "dim index source",
        "index_fill": "dim index value",
        "gather": "dim index",
        "scatter": "dim index src | reduce",
        "scatter_add": "dim index src",
        "take_along_dim": "indices dim",
        "index_put": "indices values accumulate",
        "nn.functional.embedding": "weight padding_idx",
        "nn.functional.one_hot": "num_classes",
        # Reductions
        "sum": "dim keepdim | dtype",
        "mean": "dim keepdim | dtype",
        "prod": "dim keepdim",
        "nansum": "dim keepdim",
        "all": "dim keepdim",
        "any": "dim keepdim",
        "amax": "dim keepdim",
        "amin": "dim keepdim",
        "max": "dim keepdim",
        "min": "dim keepdim",
        "argmax": "dim keepdim",
        "argmin": "dim keepdim",
        "var": "dim | keepdim correction",
        "std": "dim | keepdim correction",
        "logsumexp": "dim keepdim",
        "count_nonzero": "dim",
        "cumsum": "dim",
        "cumprod": "dim",
        "logcumsumexp": "dim",
        "cummax": "dim",
        "cummin": "dim",
        "sum_to_size": "*size",
        "sort": "dim descending",
        "argsort": "dim descending",
        "topk": "k dim largest",
        "median": "dim keepdim",
        # What is known only on the GPU
        "nonzero": "| as_tuple",
        "argwhere": "",
        "masked_select": "mask",
        "T": "",
        "mT": "",
        "einsum": "operands",
        "kthvalue": "k dim keepdim",
        # Products
        "addmm": "mat1 mat2 | beta alpha",
        "addmv": "mat vec | beta alpha",
        "baddbmm": "batch1 batch2 | beta alpha",
        "addbmm": "batch1 batch2 | beta alpha",
        "nn.functional.linear": "weight bias",
        # Normalization
        "softmax": "dim | dtype",
        "log_softmax": "dim | dtype",
        "nn.functional.softmin": "dim",
        "nn.functional.layer_norm": "normalized_shape weight bias eps",
        "nn.functional.rms_norm": "normalized_shape weight eps",
        "nn.functional.group_norm": "num_groups weight bias eps",
        "nn.functional.batch_norm": "running_mean running_var weight bias training momentum eps",
        "nn.functional.instance_norm": (
            "running_mean running_var weight bias use_input_stats momentum eps"
        ),
        "nn.functional.normalize": "p dim eps",
        "nn.functional.cosine_similarity": "x2 dim eps",
        # Convolution and pooling
        "nn.functional.conv1d": "weight bias stride padding dilation groups",
        "nn.functional.conv2d": "weight bias stride padding dilation groups",
        "nn.functional.conv_transpose1d": (
            "weight bias stride padding output_padding groups dilation"
        ),
        "nn.functional.conv_transpose2d": (
            "weight bias stride padding output_padding groups dilation"
        ),
        "nn.functional.max_pool1d": "kernel_size stride padding dilation ceil_mode",
        "nn.functional.max_pool2d": "kernel_size stride padding dilation ceil_mode",
        "nn.functional.avg_pool1d": "kernel_size stride padding ceil_mode count_include_pad",
        "nn.functional.avg_pool2d": (
            "kernel_size stride padding ceil_mode count_include_pad divisor_override"
        ),
        "nn.functional.adaptive_avg_pool1d": "output_size",
        "nn.functional.adaptive_avg_pool2d": "output_size",
        "nn.functional.adaptive_max_pool1d": "output_size",
        "nn.functional.adaptive_max_pool2d": "output_size",
        # Losses
        "nn.functional.cosine_embedding_loss": "input2 target | margin reduction",
        "nn.functional.gaussian_nll_loss": "target var | full eps reduction",
        "nn.functional.hinge_embedding_loss": "target | margin reduction",
        "nn.functional.margin_ranking_loss": "input2 target | margin reduction",
        "nn.functional.poisson_nll_loss": "target | log_input full eps reduction",
        "nn.functional.triplet_margin_loss": "positive negative | margin p eps swap reduction",
        "nn.functional.mse_loss": "target | reduction",
        "nn.functional.l1_loss": "target | reduction",
        "nn.functional.smooth_l1_loss": "target | reduction beta",
        "nn.functional.huber_loss": "target | reduction delta",
        "nn.functional.binary_cross_entropy": "target | weight reduction",
        "nn.functional.binary_cross_entropy_with_logits": "target | weight pos_weight reduction",
        "nn.functional.nll_loss": "target | weight ignore_index reduction",
        "nn.functional.cross_entropy": "target | weight ignore_index reduction label_smoothing",
        "nn.functional.kl_div": "target | reduction log_target",
        "nn.functional.scaled_dot_product_attention": (
            "key value attn_mask dropout_p is_causal | scale"
        ),
    },
}
# Operators that round: float64 says what float32 inputs give. Others must give what float32 gives.
DOUBLE = {
    *("addbmm", "addmm", "addmv", "baddbmm", "bmm", "matmul", "mm", "mv", "outer", "std", "var"),
    *(name for name in OPS if name.startswith("nn.functional.conv") or "_norm" in name),
    *(
        "einsum",
        "nn.functional.linear",
        "nn.functional.normalize",
        "nn.functional.cosine_similarity",
    ),
    *("nn.functional.scaled_dot_product_attention", "logsumexp", "prod", "cumprod"),
    "einsum",
}
SWAPPED = {"where", "nn.functional.embedding", "einsum"}
DROPOUT = {"nn.functional.scaled_dot_product_attention"}
# Of equal elements, any one may be chosen.
UNSTABLE = {"topk", "kthvalue", "median"}
# The names where TypeScript's differ.
NAMES = {"nn.functional.unfold": "unfold_image"}
KEYWORDS = {
    "float": "to_float32",
    "half": "to_float16",
    "int": "to_int32",
    "long": "to_int64",
    "bool": "to_bool",
}
# Arguments that say what happens anyway.
IGNORED = {"return_indices": False, "sorted": True}
DTYPES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "bool",
}
SAMPLES = {torch.float32: 8, torch.float16: 2, torch.int32: 2, torch.int64: 3, torch.bool: 2}
MOST_ELEMENTS = 1500


class Left(Exception):
    """The sample is left out."""


def encoded(value):
    if isinstance(value, torch.Tensor):
        if value.dtype not in DTYPES or value.numel() > MOST_ELEMENTS or value.is_sparse:
            raise Left
        if any(stride < 0 for stride in value.stride()):
            raise Left
        # The memory from the tensor's first element to its last.
        last = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
        length = 0 if value.numel() == 0 else last + 1
        if length > 4 * MOST_ELEMENTS:
            raise Left
        memory = value.detach().as_strided([length], [1])
        data = base64.b64encode(memory.contiguous().numpy().tobytes()).decode()
        return {
            "dtype": DTYPES[value.dtype],
            "shape": list(value.shape),
            "strides": list(value.stride()),
            "data": data,
        }
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise Left
        return {"name": DTYPES[value]}
    if isinstance(value, list | tuple):
        return [encoded(one) for one in value]
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise Left


def arguments(op, sample):
    """The sample's arguments in the order of TypeScript's parameters, and its options."""
    plain, _, extra = OPS[op.name].partition("|")
    names, options = plain.split(), extra.split()
    left = list(sample.args)
    keywords = {k: v for k, v in sample.kwargs.items() if IGNORED.get(k, ...) is not v}
    if names and names[0].startswith("*"):
        flat = left[0] if len(left) == 1 and isinstance(left[0], list | tuple) else left
        if not flat and keywords:
            flat = keywords.pop(names[0][1:], None)
            if flat is None:
                raise Left
        if keywords:
            raise Left
        return [list(flat) if isinstance(flat, list | tuple) else flat], {}
    positional = []
    for name in names:
        if left:
            positional.append(left.pop(0))
        else:
            positional.append(keywords.pop(name, None))
    # Whether indices are wanted, by place.
    if op.name.startswith("nn.functional.adaptive_max_pool") and left == [False]:
        left = []
    if left or set(keywords) - set(options):
        raise Left
    while positional and positional[-1] is None and not keywords:
        positional.pop()
    return positional, keywords


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for one in value for t in tensors_in(one)]
    if isinstance(value, dict):
        return [t for one in value.values() for t in tensors_in(one)]
    return []


def in_double(value):
    """The value with float32 tensors as float64."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return value.detach().double().requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(in_double(one) for one in value)
    if isinstance(value, dict):
        return {name: in_double(one) for name, one in value.items()}
    return value


def in_float(value):
    return value.float() if value.dtype == torch.float64 else value


def swapped(op, first, args):
    """op_db passes some operators' arguments in another order."""
    if op.name in SWAPPED:
        return args[0], [first, *args[1:]]
    return first, list(args)


def has_ties(tensor):
    return tensor.unique().numel() < tensor.numel()


def record(op, sample, with_gradient, generator):
    positional, options = arguments(op, sample)
    if options.get("dropout_p") or (len(positional) > 3 and op.name in DROPOUT and positional[3]):
        raise Left
    first, rest = swapped(op, sample.input, positional)
    entry = {
        "input": encoded(first),
        "args": encoded(rest),
        "options": {name: encoded(value) for name, value in options.items() if value is not None},
    }
    given = [sample.input, sample.args, sample.kwargs]
    if op.name in DOUBLE and all(t.dtype != torch.float16 for t in tensors_in(given)):
        given = in_double(given)
    out = op(given[0], *given[1], **given[2])
    outs = tensors_in(out)
    if not outs:
        raise Left
    entry["outputs"] = [encoded(in_float(t)) for t in outs]
    if op.name in UNSTABLE and len(outs) > 1 and has_ties(sample.input):
        entry["outputs"][1] = None
    ordered = tensors_in(swapped(op, sample.input, positional))
    # The same tensors in the order of the arguments of TypeScript's form.
    computed = dict(
        zip(
            map(id, tensors_in([sample.input, sample.args, sample.kwargs])),
            tensors_in(given),
            strict=True,
        )
    )
    wants = [computed[id(t)] for t in ordered + tensors_in(options)]
    wanted = [t for t in wants if t.requires_grad]
    differentiable = [t for t in outs if t.requires_grad]
    if with_gradient and wanted and differentiable:
        cotangents = [
            torch.rand(t.shape, generator=generator).to(t.dtype) + 0.5 for t in differentiable
        ]
        gradients = torch.autograd.grad(differentiable, wanted, cotangents, allow_unused=True)
        entry["cotangents"] = [encoded(in_float(t)) for t in cotangents]
        entry["gradients"] = [None if g is None else encoded(in_float(g)) for g in gradients]
        entry["wants"] = [t.requires_grad for t in wants]
    return entry


def spread(items, count):
    """That many of the items, from all parts of the list."""
    if len(items) <= count:
        return items
    step = len(items) / count
    return [items[int(k * step)] for k in range(count)]


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    result = []
    found = set()
    for op in op_db:
        if op.name not in OPS or (op.name in found and op.variant_test_name):
            continue
        found.add(op.name)
        samples = []
        for dtype, most in SAMPLES.items():
            if not op.supports_dtype(dtype, "cpu"):
                continue
            gradient = dtype == torch.float32 and op.supports_autograd
            kept = []
            given = [
                sample
                for sample in op.sample_inputs("cpu", dtype, requires_grad=gradient)
                if sample.kwargs.get("return_indices") is not True
            ]
            for sample in spread(given, 3 * most):
                try:
                    kept.append(record(op, sample, gradient, generator))
                except (Left, RuntimeError):
                    continue
            samples += spread(kept, most)
        name = KEYWORDS.get(op.name, op.name.removeprefix("nn.functional.").replace(".", "_"))
        result.append({"op": op.name, "name": NAMES.get(op.name, name), "samples": samples})
    OUT.mkdir(parents=True, exist_ok=True)
    result.sort(key=lambda one: one["op"])
    (OUT / "ops.json").write_text(json.dumps(result, separators=(",", ":")))
    without = [one["op"] for one in result if not one["samples"]]
    total = sum(len(one["samples"]) for one in result)
    print(f"{len(result)} operators, {total} samples; without samples: {without}", file=sys.stderr)
    print("not in op_db:", sorted(set(OPS) - found), file=sys.stderr)


if __name__ == "__main__":
    made = OUT / "ops.json"
    script = pathlib.Path(__file__)
    if not sys.argv[1:] or not made.exists() or made.stat().st_mtime < script.stat().st_mtime:
        main()
    for folder in sys.argv[1:]:
        shutil.copy(made, folder)

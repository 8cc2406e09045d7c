"""Records what PyTorch computes for samples of its operators: web/tests/files/torch/ops.json.

With a folder as argument, copies the record there, and makes it only if it is missing or older than
this script.

The samples are those of PyTorch's own op_db. Each line of OPS names an operator of op_db (behind a
dot one of its variants, else the first one is taken), the parameters that its TypeScript form takes
in order, and behind a bar those that it takes as options. A sample with other arguments is left
out.
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
    "deg2rad",
    "rad2deg",
    "sgn",
    "trace",
    "fliplr",
    "flipud",
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
    "inner",
    "vdot",
    "ldexp",
    "take",
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
        "norm": "p dim keepdim",
        "norm.inf": "p dim keepdim",
        "polygamma": "n",
        "as_strided": "size stride storage_offset",
        "var_mean": "dim | keepdim correction",
        "std_mean": "dim | keepdim correction",
        "aminmax": "| dim keepdim",
        "nanmean": "dim keepdim",
        "scatter_reduce.sum": "dim index src reduce | include_self",
        "scatter_reduce.prod": "dim index src reduce | include_self",
        "scatter_reduce.mean": "dim index src reduce | include_self",
        "scatter_reduce.amin": "dim index src reduce | include_self",
        "scatter_reduce.amax": "dim index src reduce | include_self",
        # Factories
        "arange": "end step | dtype",
        "eye": "m | dtype",
        "full": "fill_value | dtype",
        "full_like": "fill_value | dtype",
        "linspace": "end steps | dtype",
        "logspace": "end steps base | dtype",
        "ones": "| dtype",
        "zeros": "| dtype",
        "new_full": "size fill_value",
        "new_ones": "size",
        "new_zeros": "size",
        "tril_indices": "col offset | dtype",
        "triu_indices": "col offset | dtype",
        # Composed
        "addr": "vec1 vec2 | beta alpha",
        "atleast_1d": "*tensors",
        "atleast_2d": "*tensors",
        "atleast_3d": "*tensors",
        "block_diag": "*tensors",
        "broadcast_tensors": "*tensors",
        "cartesian_prod": "",
        "cdist": "x2 p",
        "column_stack": "",
        "cross": "other dim",
        "cumulative_trapezoid": "x | dx dim",
        "diag_embed": "offset dim1 dim2",
        "diagflat": "offset",
        "diagonal_scatter": "src offset dim1 dim2",
        "diff": "n dim prepend append",
        "dist": "other p",
        "dsplit": "parts",
        "dstack": "",
        "hsplit": "parts",
        "isclose": "other | rtol atol equal_nan",
        "isin": "test_elements | assume_unique invert",
        "masked_scatter": "mask source",
        "meshgrid.list_of_tensors": "| indexing",
        "rot90": "k dims",
        "repeat_interleave": "repeats dim",
        "select_scatter": "src dim index",
        "slice": "dim start end step",
        "split_with_sizes": "sizes dim",
        "tensor_split": "parts dim",
        "tensordot": "other dims",
        "trapezoid": "x | dx dim",
        "vsplit": "parts",
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
        "nn.functional.conv3d": "weight bias stride padding dilation groups",
        "nn.functional.conv_transpose3d": (
            "weight bias stride padding output_padding groups dilation"
        ),
        "nn.functional.max_pool3d": "kernel_size stride padding dilation ceil_mode",
        "nn.functional.avg_pool3d": (
            "kernel_size stride padding ceil_mode count_include_pad divisor_override"
        ),
        "nn.functional.adaptive_avg_pool3d": "output_size",
        "nn.functional.adaptive_max_pool3d": "output_size",
        "nn.functional.max_unpool1d": "indices kernel_size stride padding output_size",
        "nn.functional.max_unpool2d": "indices kernel_size stride padding output_size",
        "nn.functional.max_unpool3d": "indices kernel_size stride padding output_size",
        "nn.functional.unfold": "kernel_size dilation padding stride",
        "nn.functional.channel_shuffle": "groups",
        "nn.functional.pixel_shuffle": "upscale_factor",
        "nn.functional.pixel_unshuffle": "downscale_factor",
        "nn.functional.local_response_norm": "size alpha beta k",
        "nn.functional.grid_sample": "grid mode padding_mode align_corners",
        **{
            f"nn.functional.pad.{mode}": "pad mode value"
            for mode in ("constant", "reflect", "replicate", "replicate_negative", "circular")
        },
        **{
            f"nn.functional.interpolate.{mode}": (
                "| size scale_factor mode align_corners recompute_scale_factor"
            )
            for mode in (
                *("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear"),
                "area",
            )
        },
        "nn.functional.bilinear": "x2 weight bias",
        "nn.functional.pairwise_distance": "x2 p eps keepdim",
        # Losses
        "nn.functional.multi_margin_loss": "target | p margin weight reduction",
        "nn.functional.multilabel_soft_margin_loss": "target | weight reduction",
        "nn.functional.soft_margin_loss": "target | reduction",
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
# Operators that round: float64 says what float32 inputs give, float32 what float16 gives. Others
# must give what the dtype itself gives.
DOUBLE = {
    *("addbmm", "addmm", "addmv", "baddbmm", "bmm", "matmul", "mm", "mv", "outer", "std", "var"),
    *(name for name in OPS if name.startswith("nn.functional.conv") or "_norm" in name),
    *(
        "einsum",
        "nn.functional.linear",
        "nn.functional.normalize",
        "nn.functional.cosine_similarity",
    ),
    *("nn.functional.grid_sample", "polygamma"),
    *("nn.functional.scaled_dot_product_attention", "logsumexp", "prod", "cumprod"),
    "einsum",
}
SWAPPED = {"where", "nn.functional.embedding", "einsum", "polygamma"}
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
IGNORED = {
    "return_indices": False,
    "sorted": True,
    "device": "cpu",
    "requires_grad": False,
    "layout": None,
}
# Whose options op_db also gives by place.
BY_PLACE = ("nn.functional.interpolate", "nn.functional.multi", "nn.functional.soft_margin")
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


def name_of(op):
    """The operator's line in OPS: that of the variant, if there is one."""
    return op.full_name if op.full_name in OPS else op.name


def arguments(op, sample):
    """The sample's arguments in the order of TypeScript's parameters, and its options."""
    plain, _, extra = OPS[name_of(op)].partition("|")
    names, options = plain.split(), extra.split()
    left = list(sample.args)
    if names == ["*tensors"]:
        return left, {}
    if op.name == "cdist":
        left = left[:2]  # without the way to compute it
    if op.name == "tensor_split" and isinstance(left[0], torch.Tensor):
        raise Left  # places that only the GPU knows
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
    if op.name.startswith(BY_PLACE):
        for name in options:
            if left and name not in keywords:
                keywords[name] = left.pop(0)
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


WIDER = {torch.float16: torch.float32, torch.float32: torch.float64}


def in_wider(value):
    """The value with float32 tensors as float64, and float16 as float32."""
    if isinstance(value, torch.Tensor) and value.dtype in WIDER:
        return value.detach().to(WIDER[value.dtype]).requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(in_wider(one) for one in value)
    if isinstance(value, dict):
        return {name: in_wider(one) for name, one in value.items()}
    return value


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
    narrower = {}
    if op.name in DOUBLE:
        dtypes = {t.dtype for t in tensors_in(given)} & set(WIDER)
        narrower = {WIDER[dtype]: dtype for dtype in dtypes}
        given = in_wider(given) if len(dtypes) == 1 else given

    def in_narrower(t):
        return t.to(narrower.get(t.dtype, t.dtype))

    out = op(given[0], *given[1], **given[2])
    outs = tensors_in(out)
    if not outs:
        raise Left
    entry["outputs"] = [encoded(in_narrower(t)) for t in outs]
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
        entry["cotangents"] = [encoded(in_narrower(t)) for t in cotangents]
        entry["gradients"] = [None if g is None else encoded(in_narrower(g)) for g in gradients]
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
        line = name_of(op)
        if line not in OPS or line in found:
            continue
        found.add(line)
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
        result.append({"op": line, "name": NAMES.get(op.name, name), "samples": samples})
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

"""Where the CPU and the device differ, and should. Each entry says why."""

import re
from typing import NamedTuple


class Known(NamedTuple):
    reason: str
    text: str = ""  # of the step; not made at all
    difference: str = ""  # of the difference found; not reported


KNOWN = [
    Known(
        "x[...] = a 0-d tensor is fill_() on the CPU, which knows no overlap; copy_() elsewhere",
        r"\] = v\d+$",
        r"unsupported operation: some elements of the input tensor.*on the CPU: nothing",
    ),
    Known(
        "x[...] = a 0-d tensor of the CPU is fill_() with a number, which elements may share",
        r"\] = data\(|\] = v\d+$",
        r"raises: nothing; on the CPU: RuntimeError: unsupported operation: more than one element",
    ),
    Known(
        "x[...] = a 0-d tensor of the CPU is fill_() with a number on GPUs, which has to fit",
        r"\] = v\d+$",
        r"value cannot be converted to type \w+ without overflow; on the CPU: nothing",
    ),
    Known(
        "x[...] = a real 0-d tensor is fill_() on the CPU; its backward refuses complex gradients",
        r"backward\(|autograd\.grad\(",
        r"raises: nothing; on the CPU: RuntimeError: Expected isFloatingType\(grad\.scalar_type",
    ),
    Known(
        "a backward that cannot be done for two reasons: nodes of a device and of the CPU run in "
        "other orders",
        r"backward\(|autograd\.grad\(",
        r"raises: NotImplementedError: the derivative for.*; on the CPU: RuntimeError: Trying to "
        r"backward through the graph a second time",
    ),
    Known(
        "angle of a negated complex 0: the CPU negates it to +0 in vectors, to -0 elsewhere",
        r"torch\.angle\(",
        r"-?3\.14159274\d*, on the CPU (0\.0|-?3\.14159274\d*)",
    ),
    Known(
        "max_pool1d keeps the order of the input's dimensions, as on CUDA; the CPU has a kernel of "
        "its own",
        r"F\.max_pool1d",
        r" strides .*on the CPU",
    ),
    Known("logsigmoid keeps the strides of its input, as on CUDA", r"F\.logsigmoid", r"strides"),
    Known(
        "the CPU's narrow_copy asserts where the dimension does not exist",
        r"narrow_copy\(",
        r"raises: IndexError.*on the CPU: RuntimeError: Expected dim < ",
    ),
    Known(
        "the complex mean of nothing: ATen fills nan+0j on GPUs, the CPU divides 0 by 0",
        r"torch\.mean\(",
        r"0\.0, on the CPU nan",
    ),
    Known(
        "an integer that requires grad: x[...] = number is fill_() on the CPU, copy_() elsewhere",
        r"\] = v\d+$",
        r"is torch\.(u?int\d+|bool).*on the CPU.* requires_grad",
    ),
    Known(
        "the CPU's index_select has another error for empty dimensions than for other indices",
        r"index_select|embedding",
        r"on the CPU: RuntimeError: index_select\(\): self indexing axis dim should be positive|"
        r"on the CPU: RuntimeError: INDICES element is out of DATA bounds",
    ),
    Known(
        "roll is contiguous, as on CUDA; the CPU's keeps strides that a cat() of its parts keeps",
        r"roll\(",
        r" strides .*on the CPU",
    ),
    Known(
        "a convolution is channels_last if an operand is, as on CUDA; on the CPU it depends on the "
        "kernel, so on the dtype and on the instructions that this CPU has",
        r"F\.conv",
        r" strides .*on the CPU",
    ),
    Known(
        "sinh, cosh: the CPU's vector code overflows before the result does (inf for 2.2e38)",
        r"sinh|cosh",
        r"e\+38.*, on the CPU -?inf",
    ),
    Known(
        "prod of halves: the CPU multiplies halves, which overflow before the result does",
        r"torch\.prod\(",
        r"differs in .*, on the CPU (-?inf|nan)",
    ),
    Known(
        "pow by 3 of halves: the CPU rounds each product to a half, which an out of float32 shows",
        r"torch\.pow\(v\d+, 3(\.0)?, out=",
        r"differs in",
    ),
    Known(
        "grid_sample of halves: the CPU computes places and weights in halves",
        r"F\.grid_sample.*torch\.b?float16",
        r"differs in",
    ),
    Known(
        "tolist() of a device's tensor is an operator first, which autograd refuses for some views",
        r"\.tolist\(\)",
        r"raises: RuntimeError: Output \d+ of \w+ is a view.*on the CPU: nothing",
    ),
    Known(
        "index_reduce by prod: the CPU's kernel asserts for bfloat16",
        r"index_reduce.*prod",
        r"raises: nothing; on the CPU: RuntimeError: iter\.ninputs\(\)",
    ),
    Known(
        "conv_transpose of an empty result: the CPU's oneDNN makes it, its other kernels refuse",
        r"F\.conv_transpose",
        r"raises: nothing; on the CPU: RuntimeError: Given input size per channel.*too small",
    ),
    Known(
        "max_pool3d without a batch: the CPU takes strides of channels_last for no memory format",
        r"F\.max_(un)?pool3d",
        r"raises: nothing; on the CPU: RuntimeError: Unsupported memory format",
    ),
    Known(
        "index_add: the CPU has an IndexError in one dimension, a RuntimeError in several",
        r"index_add",
        r"raises: IndexError.*on the CPU: RuntimeError: index -?\d+ is out of bounds",
    ),
    Known(
        "clamp refuses limits on another device, as on CUDA; on the CPU they are all there",
        r"clamp.*torch\.tensor\(",
        r"raises: RuntimeError: Expected all tensors to be on the same device",
    ),
]

LEFT_OUT = re.compile("|".join(k.text for k in KNOWN if k.text and not k.difference) or r"(?!)")


def left_out(step):
    return bool(LEFT_OUT.search(step.text))


def reason_for(step, difference):
    """Why a difference is none; None if it is one."""
    for known in KNOWN:
        applies = known.difference and re.search(known.difference, difference)
        if applies and re.search(known.text, step.text):
            return known.reason
    return None

"""Entries of module_db: results and buffers of a module, and all of its gradients.

Every module runs in training and, where that differs, in evaluation.
"""

import copy
import functools
import itertools

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_utils import TestCase
from torch.utils._pytree import tree_map

from . import comparison

SIDES = {"forward": ("forward",), "backward": ("gradient",)}
LEFT_OUT = {}

# Their results are random: always, or in training only.
RANDOM = {"FractionalMaxPool2d", "FractionalMaxPool3d"}
RANDOM_IN_TRAINING = {
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
    "RReLU",
}
# A module is several operators, each of which rounds to the half, on both sides.
HALVES = {torch.float16: (4e-3, 8e-3), torch.bfloat16: (3e-2, 6e-2)}


def name_of(info):
    return info.name


def variants_of(info, dtype):
    if dtype in info.supported_dtypes("cpu"):
        yield "forward"
        yield "gradient"


def checks(info, dtype, variant, limit):
    for training in (True, False) if info.train_and_eval_differ else (True,):
        samples = info.module_inputs_func(
            info,
            device="cpu",
            dtype=dtype,
            requires_grad=variant == "gradient",
            training=training,
        )
        for sample in itertools.islice(samples, limit or None):
            if sample.forward_input is not None:
                mode = "training" if training else "evaluation"
                given = sample.constructor_input
                described = f"{mode}, {sample.desc or given.kwargs or given.args}"
                yield described, functools.partial(check, info, sample, dtype, variant, training)


def check(info, sample, dtype, variant, training, device):
    constructor, inputs = sample.constructor_input, sample.forward_input
    arguments = (inputs.args, inputs.kwargs)
    try:
        on_cpu = info.module_cls(*constructor.args, **constructor.kwargs).to(dtype)
        on_cpu.train(training)
        if isinstance(on_cpu, torch.nn.modules.lazy.LazyModuleMixin):
            with torch.no_grad():  # its parameters take their shapes from an input
                on_cpu(*inputs.args, **inputs.kwargs)
        on_device = copy.deepcopy(on_cpu).to(device)
        moved = move(arguments, device)
        expected = run(on_cpu, move(arguments, "cpu"), variant)  # leaves of their own on both
    except Exception as error:
        raise comparison.NoReferenceError(comparison.describe(error)) from error
    actual = run(on_device, moved, variant)
    name = info.module_cls.__name__
    if name in RANDOM or (training and name in RANDOM_IN_TRAINING):
        actual, expected = (
            [(t.shape, t.dtype) for t in comparison.tensors_of(result)]
            for result in (actual, expected)
        )
    rtol, atol = (comparison.WIDE | HALVES)[dtype]
    actual = tree_map(lambda t: t.cpu() if isinstance(t, torch.Tensor) else t, actual)
    TestCase().assertEqual(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


def run(module, arguments, variant):
    args, kwargs = arguments
    outputs = module(*args, **kwargs)
    if variant == "forward":
        return unpacked(outputs), dict(module.named_buffers())
    inputs = [t for t in comparison.tensors_of(unpacked(arguments)) if t.requires_grad]
    inputs += [p for p in module.parameters() if p.requires_grad]
    results = comparison.differentiable(unpacked(outputs))
    if not inputs or not results:
        return []
    wanted = [comparison.wanted_gradient(result) for result in results]
    return torch.autograd.grad(results, inputs, wanted, allow_unused=True)


def is_packed(value):
    return isinstance(value, PackedSequence)


def unpacked(value):
    return tree_map(lambda leaf: list(leaf) if is_packed(leaf) else leaf, value, is_leaf=is_packed)


def move(arguments, device):
    """Packed sequences keep their batch sizes on the CPU."""
    return tree_map(
        lambda leaf: leaf.to(device) if is_packed(leaf) else comparison.to_device(leaf, device),
        arguments,
        is_leaf=is_packed,
    )

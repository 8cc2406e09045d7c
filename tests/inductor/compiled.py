"""Running compiled functions on the device and comparing them with eager mode there."""

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

DEVICE = "webgpu"


def compile(function, **options):
    """torch.compile without memory of what was compiled before."""
    torch._dynamo.reset()
    return torch.compile(function, **options)


def tensors(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def gradients(outputs, inputs):
    """Gradients of a weighted sum of the outputs, by the inputs that require them."""
    outputs = [o for o in tensors(outputs) if o.requires_grad]
    inputs = [i for i in tensors(inputs) if i.requires_grad]
    if not outputs or not inputs:
        return []
    weights = [
        torch.linspace(0.5, 1.5, o.numel()).reshape(o.shape).to(o.device, o.dtype) for o in outputs
    ]
    return torch.autograd.grad(outputs, inputs, weights, allow_unused=True)


def assert_equal(actual, expected, **tolerances):
    """Same structure, shapes, strides of the dense dimensions, dtypes, and close values."""
    actual, expected = tensors(actual), tensors(expected)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.device.type == other.device.type
        assert_close(one.cpu(), other.cpu(), equal_nan=True, **tolerances)


def check(function, *args, backward=False, exact=False, dynamic=False, **options):
    """function(*args) compiled gives what it gives in eager mode, and the same gradients.

    `exact`: every bit. Not for a product that is added to something: a GPU's compiler may make one
    rounding of the two.
    """
    tolerances = {"rtol": 0, "atol": 0} if exact else options.pop("tolerances", {})
    expected = function(*args)
    compiled = compile(function, dynamic=dynamic, **options)
    actual = compiled(*args)
    assert_equal(actual, expected, **tolerances)
    if backward:
        assert_equal(gradients(actual, args), gradients(expected, args), **tolerances)
    return compiled


def dispatches(function, *args):
    """How many dispatches a call makes, after one that compiles."""
    function(*args)
    torch.webgpu.synchronize()
    before = torch.webgpu.stats()["dispatches"]
    function(*args)
    return torch.webgpu.stats()["dispatches"] - before

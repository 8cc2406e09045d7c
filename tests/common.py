"""Running an operation on the device and on the CPU, and comparing."""

import pytest
import torch
from torch.testing import assert_close

from torch_webgpu import _C

DEVICE = "webgpu"

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def has_matrices():
    """Whether the device has subgroup matrices."""
    return "subgroup-matrix" in _C.properties()[1]


def needs_matrices():
    if not has_matrices():
        pytest.skip("the device has no subgroup matrices")


def to_device(value):
    """Tensors of nested lists and tuples on the device; strides and offset are kept."""
    if isinstance(value, torch.Tensor):
        # The whole storage moves, so that views stay views of the same shape.
        whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
        moved = whole.to(DEVICE).as_strided(value.size(), value.stride(), value.storage_offset())
        return moved.detach().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(item) for item in value)
    return value


def assert_same(actual, expected, **tolerances):
    """The device's result equals the CPU's in values, dtype and shape."""
    if isinstance(expected, torch.Tensor):
        assert actual.device.type == DEVICE
        assert_close(actual.cpu(), expected, equal_nan=True, **tolerances)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other, **tolerances)
    else:
        assert actual == expected


def check(function, *args, **tolerances):
    """function(*args) gives on the device what it gives on the CPU."""
    assert_same(function(*to_device(args)), function(*args), **tolerances)


def check_gradients(function, *args, **tolerances):
    """The same for the result and for the gradients of every tensor that requires them."""

    def run(values):
        result = function(*values)
        results = result if isinstance(result, (list, tuple)) else [result]
        total = 0
        for k, one in enumerate(results):
            if one.requires_grad:
                # Weights that differ by element: errors cannot cancel.
                weights = torch.linspace(0.5, 1.5 + k, one.numel()).reshape(one.shape)
                total = total + (one * weights.to(one.device, one.dtype)).sum()
        inputs = [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
        return result, torch.autograd.grad(total, inputs)

    actual, actual_gradients = run(to_device(args))
    expected, expected_gradients = run(args)

    def detach(r):
        return [t.detach() for t in r] if isinstance(r, (list, tuple)) else r.detach()

    assert_same(detach(actual), detach(expected), **tolerances)
    assert_same(actual_gradients, expected_gradients, **tolerances)


def error_text(function, *args):
    """The type and text of the error that function(*args) raises."""
    try:
        function(*args)
    except Exception as error:  # any error is of interest
        return type(error), str(error)
    raise AssertionError("no error was raised")


def check_error(function, *args):
    """The device refuses with the CPU's error."""
    assert error_text(function, *to_device(args)) == error_text(function, *args)

"""Fake quantization, per tensor and per channel, with fixed and with learnable parameters."""

import pytest
import torch
from common import FLOATS, check, check_gradients

LEARNABLE_TENSOR = torch._fake_quantize_learnable_per_tensor_affine
LEARNABLE_CHANNEL = torch._fake_quantize_learnable_per_channel_affine


@pytest.fixture(autouse=True)
def inputs():
    torch.manual_seed(0)
    x = torch.randn(5, 6, 4) * 3
    x[0, 0] = torch.tensor([100.0, -100.0, 0.0, 0.05])
    return x.requires_grad_()


@pytest.mark.parametrize("dtype", FLOATS)
def test_per_tensor(inputs, dtype):
    x = inputs.detach().to(dtype).requires_grad_()
    fake = lambda t: torch.fake_quantize_per_tensor_affine(t, 0.1, 5, -128, 127)  # noqa: E731
    check_gradients(fake, x)
    check_gradients(lambda t: fake(t.transpose(0, 2)), x)
    check(fake, x.detach()[:0])


def test_parameters_in_tensors(inputs):
    scale, zero_point = torch.tensor([0.07]), torch.tensor([3], dtype=torch.int32)
    fake = lambda t, s, z: torch.fake_quantize_per_tensor_affine(t, s, z, 0, 255)  # noqa: E731
    check_gradients(fake, inputs, scale, zero_point)
    check_gradients(fake, inputs, scale, torch.tensor([3.7]))  # is cut to 3
    for enabled in (0, 1):
        check(
            lambda t, s, z, e: torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                t, s, z, e, 0, 255
            ),
            inputs.detach(),
            scale,
            zero_point,
            torch.tensor([enabled]),
        )


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("zero_dtype", [torch.int32, torch.float32])
def test_per_channel(inputs, axis, zero_dtype):
    count = inputs.shape[axis]
    scale = torch.rand(count) * 0.2 + 0.02
    zero_point = torch.arange(count).to(zero_dtype)
    check_gradients(
        lambda t, s, z: torch.fake_quantize_per_channel_affine(t, s, z, axis, 0, 100),
        inputs,
        scale,
        zero_point,
    )


@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_learnable(inputs, factor):
    tolerance = {"rtol": 1e-4, "atol": 1e-4}
    scale = torch.tensor([0.11], requires_grad=True)
    zero_point = torch.tensor([4.0], requires_grad=True)
    check_gradients(
        lambda t, s, z: LEARNABLE_TENSOR(t, s, z, 0, 60, factor),
        inputs,
        scale,
        zero_point,
        **tolerance,
    )
    scale = (torch.rand(6) * 0.2 + 0.05).requires_grad_()
    zero_point = torch.arange(6.0).requires_grad_()
    check_gradients(
        lambda t, s, z: LEARNABLE_CHANNEL(t, s, z, 1, 0, 60, factor),
        inputs,
        scale,
        zero_point,
        **tolerance,
    )

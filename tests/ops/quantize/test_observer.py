"""The fused observer and fake quantization of quantization-aware training."""

import pytest
import torch
from common import DEVICE, check_error
from torch.testing import assert_close


def state(channels):
    return [
        torch.full((channels,), float("inf")),
        torch.full((channels,), -float("inf")),
        torch.ones(channels),
        torch.zeros(channels, dtype=torch.int32),
    ]


def step(x, state, observes, quantizes, low, high, per_row, symmetric):
    flags = (torch.tensor([flag], device=x.device) for flag in (observes, quantizes))
    return torch.fused_moving_avg_obs_fake_quant(
        x, *flags, *state, 0.1, low, high, 0, per_row, symmetric
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("low", "high"), [(0, 255), (-128, 127), (-7, 7)])
def test_like_the_cpu(dtype, per_row, symmetric, low, high):
    host = state(0 if per_row else 1)
    device = [s.to(DEVICE) for s in host]
    for k, flags in enumerate([(1, 0), (1, 1), (0, 1), (1, 1), (0, 0)]):
        x = (torch.randn(5, 4, 6) * (k + 1) + 1).to(dtype)
        if k == 3:
            x[1] = x[1].abs()
            x[2] = 0
        ours = x.to(DEVICE).requires_grad_()
        theirs = x.float().requires_grad_()
        actual = step(ours, device, *flags, low, high, per_row, symmetric)
        expected = step(theirs, host, *flags, low, high, per_row, symmetric)
        # Before the first quantization there is no scale yet.
        for one, other in list(zip(device, host, strict=True))[: 4 if k else 2]:
            assert_close(one.cpu(), other)
        tolerance = 1e-5 if dtype == torch.float32 else 0.05
        assert_close(actual.cpu().float(), expected, atol=tolerance, rtol=tolerance)
        actual.sum().backward()
        expected.sum().backward()
        assert_close(ours.grad.cpu().float(), theirs.grad)


def test_a_module_in_training():
    from torch.ao.quantization import FusedMovingAvgObsFakeQuantize

    host = FusedMovingAvgObsFakeQuantize()
    device = FusedMovingAvgObsFakeQuantize().to(DEVICE)
    for _ in range(3):
        x = torch.randn(8, 16)
        assert_close(device(x.to(DEVICE)).cpu(), host(x))
    assert_close(device.scale.cpu(), host.scale)
    assert_close(device.zero_point.cpu(), host.zero_point)


def test_errors():
    fake = lambda x, f, *s: torch.fused_moving_avg_obs_fake_quant(x, f, f, *s, 0.1, 0, 255, 3, True)  # noqa: E731
    check_error(fake, torch.ones(2, 3), torch.tensor([1]), *state(1))

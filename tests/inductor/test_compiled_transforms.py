"""Fourier transforms: compiled modules assert the strides of what eager kernels return."""

import pytest
import torch
from compiled import DEVICE, check

TRANSFORMS = {
    "one dimension": lambda x: torch.fft.rfft(x, dim=1),
    "several dimensions": lambda x: torch.fft.rfftn(x, dim=(2, 0, 1)),
    "complex": lambda x: torch.fft.fftn(torch.complex(x, x), dim=(3, 1)),
    "complex of real": lambda x: torch.fft.fft(x, dim=2),
    "two dimensions of real": lambda x: torch.fft.fft2(x, dim=(1, 2)),
    "copied": lambda x: torch.fft.fftn(x, dim=(1, 3)).clone(memory_format=torch.contiguous_format),
    "inverse": lambda x: torch.fft.irfftn(torch.complex(x, x), dim=(2, 1)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_strides(name, dynamic):
    x = torch.randn(3, 4, 5, 6, device=DEVICE)
    for operand in (x, x.permute(0, 3, 1, 2), x[:, 1:3]):
        check(TRANSFORMS[name], operand, dynamic=dynamic)

"""torch.cond and its like on the device, under autocast too."""

import pytest
import torch
from torch.testing import assert_close


@pytest.mark.parametrize("enabled", [False, True])
def test_cond_and_loops_under_autocast(enabled):
    x = torch.randn(4, device="webgpu")
    with torch.autocast("webgpu", torch.float16, enabled=enabled):
        out = torch.cond(x.sum() > 100, torch.sin, torch.cos, (x,))
        (count, total) = torch.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, y + 1), (torch.zeros((), device="webgpu"), x)
        )
    assert_close(out, x.cos())
    assert count.item() == 3
    assert_close(total, x + 3)

"""Mixed precision training: autocast with torch.amp.GradScaler."""

import numpy as np
import pytest
import torch
from common import DEVICE, assert_same, check
from torch import nn


def test_float64_reciprocal():
    # GradScaler inverts its scale in float64.
    bits = np.random.default_rng(0).integers(0, 2**64, 4000, dtype=np.uint64)
    bits[:1000] &= np.uint64(0x800FFFFFFFFFFFFF)  # denormal
    bits[1000:1500] &= np.uint64(0xFFF0000000000000)  # powers of two
    bits[1500:2000] |= np.uint64(0x7FC0000000000000)  # huge, not finite
    x = torch.cat(
        [
            torch.from_numpy(bits.view(np.float64)),
            torch.tensor(
                [0.0, -0.0, 3.0, 65536.0, float("inf"), -float("inf"), float("nan")]
            ).double(),
        ]
    )
    check(torch.reciprocal, x, atol=0, rtol=0)
    check(torch.reciprocal, x.reshape(-1, 1)[::3].mT, atol=0, rtol=0)
    out = torch.zeros(x.numel(), dtype=torch.float64, device=DEVICE)
    torch.reciprocal(x.to(DEVICE), out=out)
    assert_same(out, x.reciprocal(), atol=0, rtol=0)
    check(lambda x: x.clone().reciprocal_(), x[:0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fused", [False, True])
def test_training(dtype, fused):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=fused)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**24)
    x = torch.randn(64, 8, device=DEVICE)
    target = x.sum(1, keepdim=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=dtype):
            loss = nn.functional.mse_loss(model(x), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    # float16 overflows at first, and the scale backs off.
    assert dtype == torch.bfloat16 or scaler.get_scale() < 2.0**24

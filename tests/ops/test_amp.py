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


MATRIX = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
# Operators that autocast leaves alone, whose kernels here are composed of products.
COMPOSED = {
    "qr": torch.linalg.qr,
    "geqrf": torch.geqrf,
    "householder_product": lambda a: torch.linalg.householder_product(*torch.geqrf(a)),
    "ormqr": lambda a: torch.ormqr(*torch.geqrf(a), a),
    "svd": torch.linalg.svd,
    "svdvals": torch.linalg.svdvals,
    "eigh": lambda a: torch.linalg.eigh(a[:4] + a[:4].mT),
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a[:4] + a[:4].mT),
    "matrix_exp": lambda a: torch.linalg.matrix_exp(a[:4] * 20),
    "linear_combination": lambda a: torch._compute_linear_combination(a, a.mT * 1e5),
    "int_mm": lambda a: torch._int_mm((a * 50).to(torch.int8), (a.mT * 50).to(torch.int8)),
    "weight_int8pack_mm": lambda a: torch._weight_int8pack_mm(
        a * 1e4, (a * 50).to(torch.int8), a[:, 0].contiguous() * 1e4
    ),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", COMPOSED)
def test_autocast_leaves_alone_what_operators_are_composed_of(name, dtype):
    a = MATRIX.to(DEVICE)
    expected = COMPOSED[name](a)
    with torch.autocast(DEVICE, dtype=dtype):
        actual = COMPOSED[name](a)
    if isinstance(expected, torch.Tensor):
        actual, expected = [actual], [expected]
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)

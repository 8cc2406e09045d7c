"""Products with weights of 8 and 4 bits, against the dequantized weights in float64."""

import pytest
import torch
from common import DEVICE, check, check_error

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
SIZES = [(1, 64, 16), (5, 96, 40), (17, 256, 72), (70, 544, 136)]


def close(actual, expected, dtype):
    tolerance = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(actual.cpu().double(), expected, atol=tolerance * 5, rtol=tolerance)
    assert actual.dtype == dtype


def int8(m, k, n, dtype):
    a = torch.randn(m, k).to(dtype)
    w = torch.randint(-128, 128, (n, k), dtype=torch.int8)
    scales = (torch.rand(n) / 100 + 0.001).to(dtype)
    return a, w, scales, a.double() @ (w.double() * scales.double()[:, None]).t()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [*SIZES, (3, 33, 7), (40, 61, 65), (1, 1, 1)])
def test_int8(dtype, m, k, n):
    a, w, scales, expected = int8(m, k, n, dtype)
    close(torch._weight_int8pack_mm(a.to(DEVICE), w.to(DEVICE), scales.to(DEVICE)), expected, dtype)


def test_int8_like_the_cpu():
    a, w, scales, _ = int8(4, 64, 32, torch.float32)
    check(torch._weight_int8pack_mm, a, w, scales, atol=1e-4, rtol=1e-4)
    # Rows that are part of a longer one; weights that begin at an odd byte.
    part = torch.randn(20, 100)[:, 3:67]
    check(torch._weight_int8pack_mm, part, w, scales, atol=1e-4, rtol=1e-4)
    odd = torch.randint(-128, 128, (32 * 64 + 1,), dtype=torch.int8)[1:].view(32, 64)
    check(torch._weight_int8pack_mm, a, odd, scales, atol=1e-4, rtol=1e-4)


def int4(m, k, n, group, dtype):
    q = torch.randint(0, 16, (n, k))
    scale = torch.rand(k // group, n) / 10 + 0.01
    zero = torch.randn(k // group, n) / 10
    scale_and_zeros = torch.stack([scale, zero], 2).to(dtype)
    a = torch.randn(m, k).to(dtype)
    s, z = (x.double().t().repeat_interleave(group, 1) for x in scale_and_zeros.unbind(2))
    packed = (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8)
    return a, packed, scale_and_zeros, a.double() @ ((q - 8).double() * s + z).t()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 256, 16), (5, 512, 40), (17, 256, 72), (70, 512, 136)]
)
@pytest.mark.parametrize(("group", "tiles"), [(32, 2), (64, 4), (128, 8), (256, 8)])
def test_int4(dtype, m, k, n, group, tiles):
    a, packed, scale_and_zeros, expected = int4(m, k, n, group, dtype)
    w = torch._convert_weight_to_int4pack(packed.to(DEVICE), tiles)
    assert w.shape == (n // 8, k // (tiles * 16), 32, tiles // 2)
    assert w.dtype == torch.int32
    close(
        torch._weight_int4pack_mm(a.to(DEVICE), w, group, scale_and_zeros.to(DEVICE)),
        expected,
        dtype,
    )


def test_no_rows():
    a, w, scales, _ = int8(4, 64, 32, torch.float32)
    assert torch._weight_int8pack_mm(a[:0].to(DEVICE), w.to(DEVICE), scales.to(DEVICE)).shape == (
        0,
        32,
    )


def test_errors():
    a, w, scales, _ = int8(4, 64, 32, torch.float32)
    check_error(torch._weight_int8pack_mm, a.int(), w, scales)
    check_error(torch._weight_int8pack_mm, a, w.int(), scales)
    check_error(torch._weight_int8pack_mm, a, w[:, :32].contiguous(), scales)
    check_error(torch._weight_int8pack_mm, a, w, scales[1:])
    packed = torch.zeros(16, 64, dtype=torch.uint8, device=DEVICE)
    with pytest.raises(RuntimeError, match="innerKTiles need to be 2, 4, or 8"):
        torch._convert_weight_to_int4pack(packed, 3)
    w = torch._convert_weight_to_int4pack(packed, 2)
    with pytest.raises(RuntimeError, match="expect qGroupSize to be 32"):
        torch._weight_int4pack_mm(
            torch.ones(2, 128, device=DEVICE), w, 48, torch.ones(4, 16, 2, device=DEVICE)
        )

"""Concatenation."""

import pytest
import torch
from common import assert_same, check, check_error, check_gradients, to_device

DTYPES = [
    torch.float32,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float64,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_dtypes_and_dimensions(dtype, dim):
    a = torch.randn(3, 5, 4).mul(4).to(dtype)
    b = a.narrow(dim, 0, 2)
    check(lambda *tensors: torch.cat(tensors, dim), a, b, a)


def test_transposed_inputs_and_output_strides():
    a = torch.randn(4, 6, 5).transpose(0, 2)
    check(lambda x: torch.cat([x, x[:, 1:]], 1), a)
    image = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    joined = torch.cat([to_device(image)] * 2, 1)
    assert joined.is_contiguous(memory_format=torch.channels_last)
    assert_same(joined, torch.cat([image, image], 1))


def test_odd_offsets_of_narrow_elements():
    flat = torch.arange(40, dtype=torch.int8)
    check(lambda x: torch.cat([x[1:8], x[11:12], x[3:20]]), flat)
    out = to_device(torch.zeros(64, dtype=torch.int8))
    torch.cat([to_device(flat)[1:8], to_device(flat)[3:20]], out=out[5:29])
    expected = torch.zeros(64, dtype=torch.int8)
    expected[5:29] = torch.cat([flat[1:8], flat[3:20]])
    assert_same(out, expected)


def test_mixed_dtypes_are_promoted():
    check(lambda a, b: torch.cat([a, b]), torch.randn(3), torch.arange(4))
    check(lambda a, b: torch.cat([a, b]), torch.randn(3).half(), torch.randn(2))


def test_empty_inputs():
    a = torch.randn(2, 3)
    check(lambda x: torch.cat([torch.empty(0, device=x.device), x, x[:, :0]], 1), a)
    check(lambda x: torch.cat([x[:0], x[:0]], 0), a)


def test_more_inputs_than_bindings():
    parts = [torch.randn(k % 4, 3) for k in range(40)]
    check(lambda tensors: torch.cat(tensors), parts)
    rows = torch.randn(30, 7)
    check(lambda x: torch.cat(list(x.split(1)[::-1])), rows)
    check(lambda x: torch.stack(x.unbind(0), 1), rows)


def test_one_dispatch():
    a, b = to_device([torch.randn(8, 3), torch.randn(8, 5)])
    torch.cat([a, b], 1)
    before = torch.webgpu.stats()["dispatches"]
    torch.cat([a, b], 1)
    assert torch.webgpu.stats()["dispatches"] == before + 1


def test_gradients():
    a = torch.randn(2, 3, requires_grad=True)
    b = torch.randn(2, 2, requires_grad=True)
    check_gradients(lambda x, y: torch.cat([x, y, x], 1), a, b)


def test_error_texts():
    a = torch.randn(2, 3)
    for bad in (torch.randn(3, 4), torch.randn(2)):
        check_error(lambda *tensors: torch.cat(tensors), a, bad)


def test_many_dimensions():
    sizes = (2, 1, 3, 1, 2, 2, 1, 2, 3, 1, 2, 2)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1)).tolist()
    x = torch.randn(sizes)
    y = torch.randn([sizes[d] for d in order]).permute(torch.tensor(order).argsort().tolist())
    for dim in (0, 5, -1):
        check(lambda x, y, dim=dim: torch.cat([x, y, x], dim), x, y)
        check(lambda x, y, dim=dim: torch.stack([y, x], dim), x, y)

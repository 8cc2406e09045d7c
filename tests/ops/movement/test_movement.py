"""Flips, rolls, triangles, padding, repetition, unfold."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, check, check_error, check_gradients, to_device

MOVED = [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.float64]
pad = F.pad


def random_tensor(size, dtype=torch.float32):
    return torch.randn(size).mul(4).to(dtype)


@pytest.mark.parametrize("dtype", MOVED)
def test_flip_and_roll(dtype):
    x = random_tensor((3, 5, 7), dtype)
    for dims in ([0], [1, 2], [0, 1, 2]):
        check(lambda x, dims=dims: x.flip(dims), x)
        check(lambda x, dims=dims: x.transpose(0, 2).flip(dims), x)
    check(lambda x: x.roll(4), x)
    check(lambda x: x.roll(-3, 1), x)
    check(lambda x: x.t().roll((2, -9), (0, 1)), x[0])
    check(lambda x: x.roll((2, 1), (1, 1)), x)


def test_narrow_copy_into_strided_memory():
    x = random_tensor((3, 5))
    out = torch.zeros(3, 4, device=DEVICE)
    torch.narrow_copy(x.to(DEVICE), 1, 1, 2, out=out[:, ::2])
    assert out[:, ::2].cpu().equal(x[:, 1:3])
    assert not out[:, 1::2].any()


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("diagonal", [-2, 0, 3, 100])
def test_triangles(dtype, diagonal):
    x = random_tensor((2, 5, 7), dtype)
    for take in (torch.tril, torch.triu):
        check(lambda x, take=take: take(x, diagonal), x)
        check(lambda x, take=take: take(x.transpose(1, 2), diagonal), x)
        check(lambda x, take=take: take(x.clone().transpose(0, 2), diagonal), x)
    check(lambda x: x.clone().tril_(diagonal), x)


def test_trace_and_diagonals():
    x = torch.randn(5, 7)
    check(torch.trace, x)
    for make in (torch.tril_indices, torch.triu_indices):
        check(lambda x, make=make: make(4, 6, 1, device=x.device), x)
    check(torch.diag, x)
    check(torch.diag, x[0])
    check(lambda x: torch.diag_embed(x, 1), x)
    check(lambda x: torch.rot90(x, 1), x)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_padding(mode, dims):
    x = torch.randn(2, 3, *(5, 4, 6)[:dims]).requires_grad_()
    amounts = (2, 1, 3, 0, 1, 3)[: 2 * dims]
    check_gradients(lambda x: pad(x, amounts, mode), x)
    if mode != "constant":
        check_gradients(lambda x: pad(x[0], amounts, mode), x)


@pytest.mark.parametrize("mode", ["replicate", "constant"])
def test_negative_padding(mode):
    x = torch.randn(2, 3, 6, 5).requires_grad_()
    check_gradients(lambda x: pad(x, (-1, 2, 1, -2), mode), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_padding_dtypes(dtype):
    x = torch.randn(2, 3, 5, 4).to(dtype).requires_grad_()
    check_gradients(lambda x: pad(x, (2, 1, 3, 0), "reflect"), x)


def test_padding_errors():
    x = torch.randn(1, 2, 3, 3)
    check_error(lambda x: pad(x, (3, 0, 0, 0), "reflect"), x)
    check_error(lambda x: pad(x, (0, 0, 0, 3), "reflect"), x)
    check_error(lambda x: pad(x[..., 0], (0, 3), "reflect"), x)
    check_error(lambda x: pad(x[:, :0], (1, 1, 1, 1), "reflect"), x)
    check_error(lambda x: torch.roll(x, (1, 2), 0), x)


def test_roll_of_many_dimensions():
    x = torch.arange(2.0**13).view([2] * 12 + [1, 2])
    check(lambda x: x.roll(1, 3), x)
    check(lambda x: x.roll([1, 1, 3], [0, -1, 11]), x)
    check(lambda x: x.mT.roll(1, 13), x)


def test_repeat_interleave():
    x = torch.randn(4, 3)
    repeats = torch.tensor([2, 0, 3, 1])
    check(lambda x, r: x.repeat_interleave(r, 0), x, repeats)
    check(lambda r: torch.repeat_interleave(r, output_size=6), repeats)
    check(lambda r: torch.repeat_interleave(r), repeats.int())
    check(lambda x: x.repeat_interleave(2, 1), x)
    check_error(lambda r: torch.repeat_interleave(r - 1), repeats)
    check_error(lambda r: torch.repeat_interleave(r.view(2, 2)), repeats)


@pytest.mark.parametrize("size", [0, 2, 5, 7])
def test_repeat_interleave_of_a_wrong_size(size):
    repeats = torch.tensor([2, 0, 3, 1]).webgpu()
    torch.repeat_interleave(repeats, output_size=size)
    with pytest.raises(RuntimeError, match="output_size does not match the sum of repeats"):
        torch.webgpu.synchronize()
    torch.repeat_interleave(repeats - 1, output_size=2)
    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        torch.webgpu.synchronize()


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
@pytest.mark.parametrize("dims", [2, 3])
def test_strides_of_paddings_gradients(mode, dims):
    x = torch.rand(2, 3, 4, 5, 6)[(slice(None),) * 2 + (0,) * (3 - dims)]
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    for layout in (x, x.transpose(0, -1).contiguous().transpose(0, -1), x.to(memory_format=last)):
        strides = []
        for device in ("cpu", DEVICE):
            t = layout.to(device).requires_grad_()
            y = F.pad(t, (1,) * 2 * dims, mode=mode)
            (gradient,) = torch.autograd.grad(y.sum(), t)
            strides.append((y.stride(), gradient.stride()))
        assert strides[0] == strides[1]


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_keeps_channels_last(mode):
    flat = torch.randn(2, 3, 5, 4).to(memory_format=torch.channels_last)
    deep = torch.randn(2, 3, 5, 4, 6).to(memory_format=torch.channels_last_3d)
    for x, amounts in ((flat, (1, 2, 1, 0)), (deep, (1, 2, 1, 0, 1, 1))):
        check_gradients(lambda x, a=amounts: pad(x, a, mode), x.requires_grad_())
        check(lambda x, a=amounts: pad(x, a, mode).stride(), x.detach())


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_deterministic_padding_gradient(mode):
    torch.use_deterministic_algorithms(True)
    try:
        for dtype in (torch.float32, torch.float16):
            x = torch.randn(2, 5, 4).to(dtype).requires_grad_()
            check_gradients(lambda x: pad(x, (2, 1, 3, -1), mode), x)
            check_gradients(lambda x: pad(x, (0, 3), mode), x)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("size", "step"), [(3, 1), (3, 2), (2, 2), (2, 4)])
def test_unfold(size, step):
    x = torch.randn(4, 9, 2).requires_grad_()
    check_gradients(lambda x: x.unfold(1, size, step) * 2, x)
    torch.use_deterministic_algorithms(True)
    try:
        check_gradients(lambda x: x.unfold(1, size, step) * 2, x)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("function", "channels"),
    [(F.pixel_shuffle, 12), (F.pixel_unshuffle, 3), (F.channel_shuffle, 12)],
    ids=["pixel_shuffle", "pixel_unshuffle", "channel_shuffle"],
)
def test_shuffles_keep_channels_last(function, channels):
    x = torch.randn(2, channels, 4, 6)
    for one in (x, x.to(memory_format=torch.channels_last), x.transpose(2, 3), x.half(), x[:, :0]):
        check(function, one, 2)
        expected = function(one, 2)
        actual = function(to_device(one), 2)
        assert actual.is_contiguous(memory_format=torch.channels_last) == expected.is_contiguous(
            memory_format=torch.channels_last
        )
    check_gradients(lambda x: function(x, 2), x.requires_grad_())
    for factor in (5, 0):
        check_error(function, x.detach(), factor)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients_of_overlapping_windows_in_double(dtype, silent_fallbacks):
    gradient = torch.randn(4, 2, 3, dtype=dtype).transpose(0, 1)
    check(lambda g: torch.ops.aten.unfold_backward(g, [2, 6], 1, 3, 1), gradient)
    assert silent_fallbacks() == {"aten::unfold_backward": 1}


def test_triangles_of_many_dimensions():
    x = torch.randn((2, 1, 3) + (1,) * 9 + (2, 3, 4)).transpose(0, 2)
    check(lambda x: x.tril(1), x)
    check(lambda x: x.clone().triu_(), x)

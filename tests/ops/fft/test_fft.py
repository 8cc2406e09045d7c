import pytest
import torch
from common import DEVICE, assert_same, check, check_error, check_gradients, error_text, to_device

from torch_webgpu.wgsl import target

NEAR = {"rtol": 1e-4, "atol": 1e-4}
# One workgroup, several passes, and convolutions (a prime factor above 13) of both kinds.
LENGTHS = [*range(1, 36), 49, 64, 77, 97, 121, 127, 169, 240, 343, 360, 512, 625, 720, 1001, 1009]
LONG = [1024, 1031, 2048, 2049, 2187, 4096, 5000, 10_007, 32_768, 30_030]


def error_of(actual, exact):
    """The largest error, as a part of the largest magnitude."""
    return ((actual.cpu() - exact).abs().max() / exact.abs().max()).item()


def exact_type(x):
    return torch.complex128 if x.is_complex() else torch.float64


def check_error_bound(function, x):
    assert error_of(function(x.to(DEVICE)), function(x.to(exact_type(x)))) < 1e-6


@pytest.mark.parametrize("n", LENGTHS + LONG)
def test_any_length(n):
    signal = torch.randn(2, n, dtype=torch.complex64)
    check_error_bound(torch.fft.fft, signal)
    check_error_bound(torch.fft.ifft, signal)
    check_error_bound(torch.fft.rfft, torch.randn(3, n))
    half = torch.randn(2, n // 2 + 1, dtype=torch.complex64)
    check_error_bound(lambda t: torch.fft.irfft(t, n=n), half)


def test_three_passes():
    check_error_bound(torch.fft.fft, torch.randn(1 << 22, dtype=torch.complex64))
    check_error_bound(torch.fft.rfft, torch.randn(3**14))


@pytest.mark.parametrize("n", [12, 17, 1600])
def test_other_dims(n):
    x = torch.randn(3, n, 5, dtype=torch.complex64)
    check(lambda t: torch.fft.fft(t, dim=1), x, **NEAR)
    check(lambda t: torch.fft.ifft(t, dim=0), x.transpose(0, 1), **NEAR)
    check(lambda t: torch.fft.irfft(t, n=n, dim=1), x, **NEAR)
    check(lambda t: torch.fft.rfft(t, dim=-2), torch.randn(3, n, 5), **NEAR)


def test_many_sequences():
    check(torch.fft.fft, torch.randn(70_001, 4, dtype=torch.complex64), **NEAR)
    check(lambda t: torch.fft.rfft(t, dim=0), torch.randn(7, 20_011), **NEAR)
    check(torch.fft.fft, torch.randn(40, 1700, dtype=torch.complex64), **NEAR)


@pytest.mark.long
def test_larger_than_a_binding_of_the_software_driver():
    check_along((3, 6_000_000), 0)
    check_along((16, 1_130_000), 0)
    check_along((1_130_000, 16), 1)


def test_larger_than_a_small_binding():
    with target(limits={"max_storage_binding_size": 1 << 21}):
        check_along((3, 93_750), 0)
        check_along((16, 17_657), 0)
        check_along((17_657, 16), 1)


def check_along(shape, dim):
    x = torch.randn(shape, dtype=torch.complex64)
    check(lambda t: torch.fft.fft(t, dim=dim), x, **NEAR)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_norms_and_sizes(norm):
    x = torch.randn(4, 9, 10)
    z = torch.randn(4, 9, 10, dtype=torch.complex64)
    for n in (None, 1, 7, 10, 16):
        for one in (torch.fft.fft, torch.fft.ifft, torch.fft.hfft, torch.fft.irfft):
            check(lambda t, one=one, n=n: one(t, n=n, norm=norm), z, **NEAR)
        for one in (torch.fft.fft, torch.fft.ifft, torch.fft.rfft, torch.fft.ihfft):
            check(lambda t, one=one, n=n: one(t, n=n, norm=norm), x, **NEAR)
    for many in (torch.fft.fftn, torch.fft.ifftn, torch.fft.hfftn, torch.fft.irfftn):
        check(lambda t, many=many: many(t, s=(6, 12), dim=(0, 2), norm=norm), z, **NEAR)
        check(lambda t, many=many: many(t, norm=norm), z, **NEAR)
    for many in (torch.fft.fftn, torch.fft.ifftn, torch.fft.rfftn, torch.fft.ihfftn):
        check(lambda t, many=many: many(t, dim=(2, 0), norm=norm), x, **NEAR)
        check(lambda t, many=many: many(t, norm=norm), x, **NEAR)
    for two in (torch.fft.fft2, torch.fft.ifft2, torch.fft.irfft2, torch.fft.hfft2):
        check(lambda t, two=two: two(t, norm=norm), z, **NEAR)


def test_views():
    z = torch.randn(6, 7, 8, 9, dtype=torch.complex64)
    views = [z.permute(2, 0, 3, 1), z[1::2, :, ::3], z[:, :1].expand(6, 7, 8, 9), z[0, 0]]
    for view in views:
        check(torch.fft.fft, view, **NEAR)
        check(lambda t: torch.fft.ifft2(t), view, **NEAR)
        check(lambda t: torch.fft.irfftn(t), view, **NEAR)
        check(lambda t: torch.fft.fft2(t.conj()), view, **NEAR)
    x = torch.randn(6, 7, 8, 9)
    for view in (
        x.permute(2, 0, 3, 1),
        x[1::2, :, ::3],
        x[:, :1].expand(6, 7, 8, 9),
        z.real,
        z.imag,
    ):
        check(lambda t: torch.fft.rfftn(t), view, **NEAR)
    deep = torch.randn([2] * 20, dtype=torch.complex64).transpose(3, 11)
    check(torch.fft.fft, deep[:, :, :, :, ::2], **NEAR)


def test_layout_is_that_of_the_cpu():
    z = torch.randn(4, 6, 8, dtype=torch.complex64)
    for view in (z, z.transpose(0, 2), z.permute(1, 2, 0)):
        for dims in ([0], [1], [2], [0, 1], [2, 0], [0, 1, 2]):
            for one in (
                lambda t, dims=dims: torch.ops.aten._fft_c2c(t, dims, 0, True),
                lambda t, dims=dims: torch.ops.aten._fft_c2r(t, dims, 1, 2 * t.size(dims[-1]) - 1),
                lambda t, dims=dims: torch.ops.aten._fft_r2c(t.real, dims, 2, True),
                lambda t, dims=dims: torch.ops.aten._fft_r2c(t.imag, dims, 2, False),
            ):
                check(one, view, **NEAR)
                assert one(to_device(view)).stride() == one(view).stride()


def test_half_of_a_symmetric_sequence():
    """The imaginary parts that a real result cannot have are ignored."""
    for n in (1, 2, 8, 9, 34):
        half = torch.randn(3, n // 2 + 1, dtype=torch.complex64)
        ignored = half.clone()
        ignored[:, 0].imag += 7
        if n % 2 == 0:
            ignored[:, -1].imag -= 5
        actual = torch.fft.irfft(ignored.to(DEVICE), n=n)
        assert_same(actual, torch.fft.irfft(half, n=n), rtol=1e-5, atol=1e-5)


def test_round_trip_keeps_small_values():
    x = torch.randn(8, 1500) * torch.tensor([1e-30, 1e-6, 1e6, 1e30] * 2)[:, None]
    back = torch.fft.irfft(torch.fft.rfft(x.to(DEVICE)), n=1500).cpu()
    assert ((back - x).abs().amax(1) / x.abs().amax(1) < 1e-6).all()


def test_stft_and_istft():
    x = torch.randn(2, 3000)
    for n_fft, hop, length in ((256, 64, 256), (400, 160, 320), (101, 25, 101)):
        window = torch.hann_window(length)

        def stft(t, w, n_fft=n_fft, hop=hop, length=length, **options):
            return torch.stft(t, n_fft, hop, length, w, return_complex=True, **options)

        def back(t, w, n_fft=n_fft, hop=hop, length=length):
            return torch.istft(t, n_fft, hop, length, w)

        check(stft, x, window, **NEAR)
        check(lambda t, w, f=stft: f(t, w, onesided=False, normalized=True), x, window, **NEAR)
        check(back, stft(x, window), window, **NEAR)


def test_gradients():
    def leaf(*size, dtype=torch.float32):
        return torch.randn(*size, dtype=dtype, requires_grad=True)

    def real(f):
        return lambda t: torch.view_as_real(f(t).resolve_conj())

    for n in (6, 9, 17):
        check_gradients(real(torch.fft.fft), leaf(3, n), **NEAR)
        check_gradients(real(torch.fft.rfft), leaf(3, n), **NEAR)
        check_gradients(real(torch.fft.ihfft), leaf(3, n), **NEAR)
        check_gradients(real(torch.fft.rfftn), leaf(3, n, 4), **NEAR)
        check_gradients(torch.fft.irfft2, leaf(3, n, dtype=torch.complex64), **NEAR)
        check_gradients(torch.fft.hfft, leaf(3, n, dtype=torch.complex64), **NEAR)
        check_gradients(real(torch.fft.ifft2), leaf(3, n, dtype=torch.complex64), **NEAR)
    window = torch.hann_window(16)

    def rebuilt(t):
        w = window.to(t.device)
        return torch.istft(torch.stft(t, 16, 4, window=w, return_complex=True) * 2, 16, 4, window=w)

    check_gradients(rebuilt, leaf(200), **NEAR)


def test_out():
    z = torch.randn(4, 6, 8, dtype=torch.complex64)
    out = torch.zeros(8, 6, 4, dtype=torch.complex64, device=DEVICE).permute(2, 1, 0)
    torch.fft.fft(z.to(DEVICE), out=out)
    assert_same(out, torch.fft.fft(z), **NEAR)
    assert out.stride() == (1, 4, 24)
    empty = torch.empty(0, device=DEVICE)
    torch.fft.irfft(z.to(DEVICE), out=empty)
    assert_same(empty, torch.fft.irfft(z), **NEAR)
    device_z = z.to(DEVICE)
    torch.fft.ifftn(device_z, out=device_z)
    assert_same(device_z, torch.fft.ifftn(z), **NEAR)


def test_conversions_of_the_input():
    check(torch.fft.fft, torch.arange(12), **NEAR)
    check(torch.fft.rfft2, torch.randint(0, 2, (3, 5), dtype=torch.bool), **NEAR)
    check(lambda t: torch.fft.fftn(t, dim=()), torch.randn(3, 4), **NEAR)


def test_nothing_to_do():
    none = torch.fft.fft(torch.empty(0, 5, device=DEVICE))
    assert none.shape == (0, 5) and none.dtype == torch.complex64
    none = torch.fft.irfft(torch.empty(3, 0, 5, dtype=torch.complex64, device=DEVICE))
    assert none.shape == (3, 0, 8) and none.dtype == torch.float32


def test_errors():
    x = torch.randn(3, 4)
    for dtype in (torch.float16, torch.bfloat16):
        check_error(torch.fft.fft, x.to(dtype))
        check_error(torch.fft.rfft, x.to(dtype))
    check_error(lambda t: torch.fft.fft(t, n=0), x)
    check_error(lambda t: torch.fft.fft(t, dim=2), x)
    check_error(lambda t: torch.fft.fftn(t, dim=(0, 0)), x)
    check_error(torch.fft.rfft, x.to(torch.complex64))
    check_error(lambda t: torch.ops.aten._fft_c2c(t, [0], 0, True), x)
    check_error(lambda t: torch.ops.aten._fft_r2c(t, [], 0, True), x)
    check_error(lambda t: torch.ops.aten._fft_r2c(t, [0], 0, True), x.long())
    kind, text = error_text(torch.ops.aten._fft_c2r, to_device(x.to(torch.complex64)), [1], 0, 9)
    assert kind is RuntimeError and "4 elements do not give 9 points" in text


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_double_precision_is_counted(dtype):
    x = torch.randn(4, dtype=dtype).to(DEVICE)
    assert error_text(torch.fft.fft, x)[0] is NotImplementedError

"""Pointwise operators that take more than a row of the table: frexp, ldexp, the tangent of glu."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from common import DEVICE, FLOATS, check, check_error, check_gradients, to_device


@pytest.mark.parametrize("dtype", FLOATS)
def test_frexp(dtype):
    torch.manual_seed(0)
    x = (torch.randn(7, 9) * 1000).to(dtype)
    x[0, :6] = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1.0, 0.5])
    x[1, 0] = torch.finfo(dtype).tiny
    check(torch.frexp, x[1:])
    check(torch.frexp, x[1:].t())
    # The exponent of what is not finite is unspecified.
    check(lambda t: torch.frexp(t).mantissa, x)
    check(lambda t: torch.ldexp(*torch.frexp(t)), x[2:])


def test_frexp_gradient_out_and_errors():
    check_gradients(torch.frexp, torch.randn(5, requires_grad=True))
    x = torch.randn(4, 3)
    y = x.to(DEVICE)
    exponent = torch.empty(3, 4, dtype=torch.int32, device=DEVICE).t()
    torch.frexp(y, out=(y, exponent))
    expected = torch.frexp(x)
    assert torch.equal(y.cpu(), expected.mantissa)
    assert torch.equal(exponent.cpu(), expected.exponent)
    check_error(torch.frexp, torch.ones(2, dtype=torch.int32))
    check_error(lambda t: torch.frexp(t, out=(t.clone(), t.long())), torch.ones(2))


def test_ldexp():
    x = torch.randn(5, 4, requires_grad=True)
    check_gradients(torch.ldexp, x, torch.arange(4))
    check_gradients(torch.ldexp, x, torch.randn(4, requires_grad=True), rtol=1e-5, atol=1e-5)
    check(torch.ldexp, torch.arange(6), torch.arange(6, dtype=torch.int32))


def test_number_with_a_wider_type():
    """A float64 number does not make float32 arithmetic float64."""
    x = torch.rand(6) * 3
    number = torch.tensor(2.5, dtype=torch.float64)
    check(lambda x: torch.pow(2.5, x), x, rtol=1e-5, atol=1e-5)
    check(lambda x, n: x * n, x, number)
    check(lambda x, n: x > n, x, number)
    check(lambda x, n: x.half() + n, x, number)
    check(lambda x, n: x.cfloat() + n, x, number)


@pytest.mark.parametrize("dtype", FLOATS)
def test_glu_tangent(dtype):
    torch.manual_seed(0)
    x, tangent = torch.randn(4, 6).to(dtype), torch.randn(4, 6).to(dtype)

    def jvp(x, tangent, dim):
        with forward_ad.dual_level():
            out = F.glu(forward_ad.make_dual(x, tangent), dim)
            return forward_ad.unpack_dual(out).tangent

    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    for a, b, dim in [(x, tangent, 1), (x, tangent, 0), (x.t(), tangent.t(), 0)]:
        actual = jvp(*to_device((a, b)), dim)
        assert actual.dtype is dtype
        expected = jvp(a.float(), b.float(), dim)  # the CPU has no kernel for 16 bits
        torch.testing.assert_close(actual.cpu().float(), expected, rtol=tolerance, atol=tolerance)


def test_known_zero_gradient():
    """The gradient of sgn is a tensor of zeros that has no memory."""
    check_gradients(torch.sgn, torch.randn(5, requires_grad=True))
    x = to_device(torch.randn(2, 5))
    zeros = torch._efficientzerotensor((2, 5), device=DEVICE)
    assert torch.equal((zeros + x).cpu(), x.cpu())
    assert torch.equal((zeros * x).cpu(), torch.zeros(2, 5))
    assert torch.equal(torch.empty_like(x).copy_(zeros).cpu(), torch.zeros(2, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_powers_with_kernels_of_their_own(dtype):
    x = torch.randn(500, dtype=torch.complex64 if dtype.is_complex else None).mul(20).to(dtype)
    for exponent in (2, 3, -1, -2, 0.5, -0.5, 2.0, 2 + 0j if dtype.is_complex else 3.0):
        check(lambda x, exponent=exponent: x**exponent, x)
    check(lambda x: x.clone().pow_(2), x)
    on_device = to_device(x)
    assert torch.equal(on_device**2, on_device * on_device)
    check(lambda x: x**2, torch.arange(-5, 5))

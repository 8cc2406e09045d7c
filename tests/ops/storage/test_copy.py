"""Copies into and out of views that are lazily conjugated or negated, and onto the same memory."""

import warnings

import pytest
import torch
from common import DEVICE, FLOATS, INTEGERS, assert_same, check, check_error

DTYPES = (*FLOATS, *INTEGERS, torch.bool, torch.complex64)

# Views of complex numbers, and the shape that they have.
VIEWS = {
    "conj": lambda z: z.conj(),
    "mH": lambda z: z.mH,
    "imag of conj": lambda z: z.conj().imag,
    "real of conj": lambda z: z.conj().real,
    "negative": torch._neg_view,
    "negative conj": lambda z: torch._neg_view(z.conj()),
    "part of mH": lambda z: z.mH[:, 1:],
}


def numbers(shape, dtype):
    x = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
    if dtype == torch.bool:
        return x % 2 == 1
    return torch.complex(x.float(), x.neg().float() / 2) if dtype.is_complex else x.to(dtype)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_into_a_lazy_view(name, dtype):
    z = numbers((3, 3), torch.complex64)
    view = VIEWS[name]
    source = numbers(view(z).shape, dtype)
    expected = z.clone()
    view(expected).copy_(source)
    for given in (source.to(DEVICE), source):
        target = z.to(DEVICE)
        view(target).copy_(given)
        assert_same(torch.view_as_real(target), torch.view_as_real(expected))


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_out_of_a_lazy_view(name, dtype):
    z = numbers((3, 3), torch.complex64)
    if dtype == torch.uint8:  # of positive numbers: what negative ones become is not defined
        z = z.neg() if name.startswith("negative") else z
    # Resolved first: the CPU cannot negate on the way to bool.
    expected = torch.empty(VIEWS[name](z).shape, dtype=dtype).copy_(
        VIEWS[name](z).resolve_conj().resolve_neg()
    )
    source = VIEWS[name](z.to(DEVICE))
    target = torch.empty(expected.shape, dtype=dtype, device=DEVICE)
    assert_same(target.copy_(source), expected)
    assert torch.equal(torch.empty_like(expected).copy_(source), expected)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.complex32])
def test_lazy_views_of_other_complex_types(dtype):
    z = numbers((2, 3), torch.complex64)
    for one, other in ((torch.complex64, dtype), (dtype, torch.complex64)):
        for to_view in (torch.conj, lambda t: t):
            for from_view in (torch.conj, lambda t: t):
                target = torch.zeros(2, 3, dtype=one)
                moved = target.to(DEVICE)
                to_view(target).copy_(from_view(z.to(other)))
                to_view(moved).copy_(from_view(z.to(other).to(DEVICE)))
                assert_same(moved, target)


def test_a_discarded_imaginary_part_is_told(warn_always):
    z = numbers((3,), torch.complex64).to(DEVICE)
    for lose in (
        lambda: z.float(),
        lambda: torch.empty(3, device=DEVICE).copy_(z),
        lambda: z.long(),
    ):
        with pytest.warns(UserWarning, match="discards the imaginary part"):
            lose()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z.bool()
        z.real.clone()
        z.to(torch.complex128)


def test_identity_into_an_adjoint():
    def adjoint(z, eye):
        z.mH.copy_(eye)
        return torch.view_as_real(z).clone(), torch.view_as_real(z).signbit()

    check(adjoint, torch.ones(2, 2, dtype=torch.complex64), torch.eye(2))
    check(adjoint, torch.ones(2, 2, dtype=torch.complex64), torch.eye(2).long())


def test_onto_the_same_view():
    """There is nothing to do, also where elements share memory."""
    check(lambda x: x.expand(3).copy_(x.expand(3)[:]), torch.ones(1))
    check(lambda x: x.copy_(x[:]), torch.arange(6.0).view(2, 3).t())
    check(lambda z: z.conj().copy_(z.conj()[:]), numbers((3,), torch.complex64))
    check_error(lambda x: x.expand(3).copy_(torch.ones(3, device=x.device)), torch.ones(1))
    check_error(lambda x: x[1:].copy_(x[:-1]), torch.ones(4))

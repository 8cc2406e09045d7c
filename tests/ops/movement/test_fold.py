"""unfold and fold."""

import pytest
import torch
import torch.nn.functional as F
from common import check, check_error, check_gradients

OPTIONS = [
    {"kernel_size": 2},
    {"kernel_size": (2, 3), "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "dilation": (2, 1), "padding": (2, 0), "stride": (1, 2)},
]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64])
def test_unfold_and_fold(options, dtype):
    x = torch.randn(2, 3, 7, 8).to(dtype).requires_grad_()
    real = torch.view_as_real if dtype.is_complex else lambda t: t
    unfold = lambda t: real(F.unfold(t, **options))  # noqa: E731
    check_gradients(unfold, x, rtol=1e-3, atol=1e-3)
    check_gradients(unfold, x.detach()[1].transpose(1, 2).requires_grad_(), rtol=1e-3, atol=1e-3)
    columns = F.unfold(x, **options).detach()
    fold = lambda t: real(F.fold(t, (7, 8), **options))  # noqa: E731
    check_gradients(fold, columns.requires_grad_(), rtol=1e-2, atol=1e-2)
    check(fold, columns.detach()[:, :, ::1].transpose(1, 2).contiguous().transpose(1, 2))


def test_unfold_of_other_types():
    check(lambda t: F.unfold(t, 2), torch.randint(0, 2, (1, 2, 4, 5)).bool())
    check(lambda t: F.unfold(t, 2, padding=1), torch.empty(0, 2, 4, 5))


def test_errors():
    check_error(lambda t: F.unfold(t, 5), torch.randn(1, 2, 3, 3))
    check_error(lambda t: F.unfold(t, 2), torch.randn(2, 3))
    check_error(lambda t: F.fold(t, (4, 4), 3), torch.randn(1, 9, 5))
    check_error(lambda t: F.fold(t, (4, 4), 3), torch.randn(1, 10, 4))

"""equal, and what is built on it: cov and corrcoef."""

import pytest
import torch
from common import DEVICE, check, check_gradients


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_equal(dtype):
    a = torch.randint(0, 2, (5, 7)).to(dtype)
    b = a.clone()
    check(torch.equal, a, b)
    check(torch.equal, a.t(), b.t())
    check(torch.equal, a.t(), b.t().contiguous())
    check(torch.equal, a, a[:4])
    b[4, 6] = 1 - b[4, 6].to(torch.int8)
    check(torch.equal, a, b)


def test_equal_of_special_cases():
    nan = torch.tensor([1.0, float("nan")]).to(DEVICE)
    assert not torch.equal(nan, nan)
    check(torch.equal, torch.empty(0, 3), torch.empty(0, 3))
    check(torch.equal, torch.empty(0, 3), torch.empty(3, 0))
    check(torch.equal, torch.tensor(3), torch.tensor(3))
    check(torch.equal, torch.ones(3), torch.ones(3, dtype=torch.int32))
    z = torch.randn(4, dtype=torch.complex64)
    check(lambda x: torch.equal(x, x.conj()), z)
    with pytest.raises(RuntimeError, match="Cannot compare two tensors on different devices"):
        torch.equal(torch.ones(2, device=DEVICE), torch.ones(2))


def test_cov_and_corrcoef():
    torch.manual_seed(0)
    x = torch.randn(3, 8, requires_grad=True)
    weights = torch.randint(1, 4, (8,))
    check_gradients(lambda x, w: torch.cov(x, correction=0, fweights=w), x, weights)
    check_gradients(lambda x, w: torch.cov(x, aweights=w.float()), x, weights)
    check_gradients(torch.corrcoef, x, rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="fweights cannot be negative"):
        torch.cov(x.detach().to(DEVICE), fweights=-weights.to(DEVICE))

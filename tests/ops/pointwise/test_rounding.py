"""round with decimals."""

import pytest
import torch
from common import FLOATS, INTEGERS, check, check_error


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("decimals", [0, 2, -2])
def test_floats(dtype, decimals):
    x = torch.tensor([1234.5678, -0.125, 50.0, 150.0]).to(dtype)
    check(lambda x: torch.round(x, decimals=decimals), x)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_integers(dtype, silent_fallbacks):
    x = torch.tensor([0, 55, 127]).to(dtype)
    check_error(lambda x: torch.round(x, decimals=-1), x)
    check_error(lambda x: x.round_(decimals=2), x)

"""Objects of the process: a function that is exported may use any."""

import gc
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake


def alive(kind: type) -> list[Any]:
    """Those of a type."""
    # type(), because isinstance() asks objects for their __class__, which some compute.
    return [x for x in gc.get_objects() if issubclass(type(x), kind)]


def leaves() -> list[torch.Tensor]:
    """The tensors that may have gradients, those that take none now included: not the fake ones
    that compilers keep."""
    return [
        x
        for x in alive(torch.Tensor)
        if x.is_leaf and (x.is_floating_point() or x.is_complex()) and not is_fake(x)
    ]

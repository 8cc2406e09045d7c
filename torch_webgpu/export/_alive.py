"""Objects of the process: a function that is exported may use any."""

import gc
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake


def alive(kind: type) -> list[Any]:
    """Those of a type."""
    # type(), because isinstance() asks objects for their __class__, which some compute.
    return [x for x in gc.get_objects() if issubclass(type(x), kind)]


def leaves() -> list[torch.Tensor]:
    """The tensors whose gradients a capture may replace: not the fake ones that compilers keep.
    Parameters that take no gradients now may do so later in a function."""
    return [
        x
        for x in alive(torch.Tensor)
        if x.is_leaf and (x.requires_grad or isinstance(x, nn.Parameter)) and not is_fake(x)
    ]

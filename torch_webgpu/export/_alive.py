"""Objects of the process: a function that is exported may use any."""

import gc
from typing import Any

import torch


def alive(kind: type) -> list[Any]:
    """Those of a type."""
    # type(), because isinstance() asks objects for their __class__, which some compute.
    return [x for x in gc.get_objects() if issubclass(type(x), kind)]


def leaves() -> list[torch.Tensor]:
    """The tensors whose gradients a capture may replace."""
    return [x for x in alive(torch.Tensor) if x.is_leaf and x.requires_grad]

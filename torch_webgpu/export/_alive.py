"""Objects of the process: a function that is exported may use any."""

import gc
import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.nn.parameter import is_lazy


def alive(*kinds: type) -> list[list[Any]]:
    """Those of each type, found in one pass: a process may have millions of objects."""
    objects = gc.get_objects()
    # type(), because isinstance() asks objects for their __class__, which some compute.
    types = set(map(type, objects))
    of_kinds = [{t for t in types if issubclass(t, kind)} for kind in kinds]
    wanted = frozenset().union(*of_kinds)
    found = list(itertools.compress(objects, map(wanted.__contains__, map(type, objects))))
    return [[x for x in found if type(x) in of_kind] for of_kind in of_kinds]


def leaves(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Those that may have gradients, those that take none now included: not those without
    data, nor the fake ones and the wrappers that compilers keep."""
    return [
        x
        for x in tensors
        if x.is_leaf and (x.is_floating_point() or x.is_complex()) and not has_no_data(x)
    ]


def has_no_data(x: torch.Tensor) -> bool:
    return (
        is_lazy(x)
        or x._is_zerotensor()
        or torch._C._functorch.is_functorch_wrapped_tensor(x)
        or torch._is_functional_tensor(x)
        or is_fake(x)
    )

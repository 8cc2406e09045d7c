"""Objects of the process: a function that is exported may use any."""

import gc
import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


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
    # A class's __torch_function__ may refuse to be asked.
    with torch._C.DisableTorchFunctionSubclass():
        return [
            x
            for x in tensors
            if x.is_leaf and (x.is_floating_point() or x.is_complex()) and not has_no_data(x)
        ]


def parts_of(x: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that a tensor consists of: indices and values of a sparse one, or what a wrapper
    holds. Another one consists of itself."""
    if is_traceable_wrapper_subclass(x):
        names, _ = x.__tensor_flatten__()
        return [part for name in names for part in parts_of(getattr(x, name))]
    if x.layout == torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [x.ccol_indices(), x.row_indices(), x.values()]
    return [x]


def has_no_data(x: torch.Tensor) -> bool:
    return (
        is_lazy(x)
        or x._is_zerotensor()
        or torch._C._functorch.is_functorch_wrapped_tensor(x)
        or torch._is_functional_tensor(x)
        or is_fake(x)
    )

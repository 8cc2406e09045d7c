"""Products of a vector with a matrix, as reductions.

Such a product moves every element of the matrix once and computes next to nothing, so a generated
reduction is as fast as a kernel of its own. It also takes part in fusion: products of one vector
with several matrices, such as query, key and value of one token, share a dispatch, and any
operators that follow are computed before a result is stored.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import lowering
from torch._inductor.virtualized import V

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def install() -> None:
    """Replaces the lowerings of products. Other products and devices keep theirs."""
    for op, added in (
        (aten.mm.default, False),
        (aten.bmm.default, False),
        (aten.addmm.default, True),
        (aten.baddbmm.default, True),
    ):
        table = lowering.lowerings
        table[op] = (_sum_of_both if added else _product)(table[op])


def _product(original: Callable[..., Any]) -> Callable[..., Any]:
    def product(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not _has_vector(a, b):
            return original(a, b, *args, **kwargs)
        return lowering.to_dtype(_reduction(a, b), a.get_dtype())

    return product


def _sum_of_both(original: Callable[..., Any]) -> Callable[..., Any]:
    def sum_of_both(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        if not _has_vector(a, b) or c.get_dtype() != a.get_dtype():
            return original(c, a, b, beta=beta, alpha=alpha)
        total = _reduction(a, b)
        if alpha != 1:
            total = lowering.mul(total, alpha)
        if beta != 0:  # else not even what is not finite counts
            wide = lowering.to_dtype(c, torch.float32)
            total = lowering.add(total, wide if beta == 1 else lowering.mul(wide, beta))
        return lowering.to_dtype(total, a.get_dtype())

    return sum_of_both


def _has_vector(a: Any, b: Any) -> bool:
    """Whether one of two matrices, or of two batches of them, is a vector."""
    if a.get_device().type != "webgpu" or a.get_device() != b.get_device():
        return False
    if a.get_dtype() not in _DTYPES or a.get_dtype() != b.get_dtype():
        return False
    is_one = V.graph.sizevars.statically_known_equals
    return bool(is_one(a.get_size()[-2], 1) or is_one(b.get_size()[-1], 1))


def _reduction(a: Any, b: Any) -> Any:
    """The product in float32."""
    is_one = V.graph.sizevars.statically_known_equals
    # A vector is read once for each row or column of the matrix, so it is not computed there.
    (a if is_one(a.get_size()[-2], 1) else b).realize()
    a, b = (lowering.to_dtype(each, torch.float32) for each in (a, b))
    dim = len(a.get_size()) - 1
    pairs = lowering.mul(lowering.unsqueeze(a, -1), lowering.unsqueeze(b, -3))
    return lowering.sum_(pairs, [dim])

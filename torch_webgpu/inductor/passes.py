"""Changes of a graph before Inductor lowers it."""

import operator
from typing import Any

import torch
from torch import fx
from torch._inductor import config, inductor_prims

from torch_webgpu.inductor.flex import expand
from torch_webgpu.inductor.scalars import check_copied

aten = torch.ops.aten
# By name: graphs hold copies of the operators they were decomposed from.
_SOFTMAX = {"aten._softmax.default", "aten._safe_softmax.default"}
_LOG_SOFTMAX = {"aten._log_softmax.default"}
# Elements of a row that a workgroup can keep in registers between its passes over the row.
_KEPT_ROW = 8192


def change(graph: fx.Graph) -> None:
    check_copied(graph)
    expand(graph)
    multiply_by_reciprocals(graph)
    if config.online_softmax:
        take_maximum_and_sum_together(graph)


def take_maximum_and_sum_together(graph: fx.Graph) -> None:
    """Has softmaxes of long rows find the maximum and the sum in one pass over memory.

    Inductor has the operator for it, but puts it into graphs for Triton only.
    """
    for node in graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
        if str(node.meta.get("original_aten")) not in _SOFTMAX | _LOG_SOFTMAX:
            continue
        match = _maximum_below(node)
        if match is None:
            continue
        x, maximum, dim = match
        with graph.inserting_before(maximum):
            both = graph.call_function(inductor_prims.prepare_softmax_online, (x, dim))
            parts = [graph.call_function(operator.getitem, (both, k)) for k in range(2)]
        both.meta = {**node.meta, "val": (maximum.meta["val"], node.meta["val"])}
        for old, new in zip((maximum, node), parts, strict=True):
            new.meta = dict(old.meta)
            old.replace_all_uses_with(new)
        for dead in (node, node.args[0], maximum):
            if not dead.users:
                graph.erase_node(dead)


def _maximum_below(total: fx.Node) -> tuple[fx.Node, fx.Node, int] | None:
    """Of the sum of exp(x - maximum) along a row: x, the maximum, the dimension."""
    dims = _arguments(total)
    exponential: Any = total.args[0]
    if dims is None or not _is_call(exponential, aten.exp.default):
        return None
    difference = exponential.args[0]
    if not _is_call(difference, aten.sub.Tensor):
        return None
    x: Any
    maximum: Any
    x, maximum = difference.args[:2]
    if not _is_call(maximum, aten.amax.default) or maximum.args[0] is not x:
        return None
    if _arguments(maximum) != dims or not isinstance(x, fx.Node) or not x.meta["val"].dim():
        return None
    length = x.meta["val"].shape[dims]
    is_kept = isinstance(length, int) and length <= _KEPT_ROW and length % 4 == 0
    if is_kept or not isinstance(length, int) or x.meta["val"].dtype != torch.float32:
        return None
    return x, maximum, dims


def _arguments(reduction: fx.Node) -> int | None:
    """The one dimension that is reduced and kept."""
    _, dims, keepdim = (*reduction.args, False, False)[:3]
    return dims[0] if keepdim and isinstance(dims, list) and len(dims) == 1 else None


def _is_call(node: Any, target: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is target


def multiply_by_reciprocals(graph: fx.Graph) -> None:
    """Turns the quotients of decomposed softmaxes into products with the reciprocal of the sum.

    The reciprocal is computed once for each row, an exact quotient would be for each element. The
    eager kernel does the same. Quotients that the program itself states stay.
    """
    for node in graph.find_nodes(op="call_function", target=aten.div.Tensor):
        if str(node.meta.get("original_aten")) not in _SOFTMAX:
            continue
        numerator, denominator = node.args
        if not isinstance(denominator, fx.Node):
            continue
        with graph.inserting_before(node):
            reciprocal = graph.call_function(aten.reciprocal.default, (denominator,))
            product = graph.call_function(aten.mul.Tensor, (numerator, reciprocal))
        reciprocal.meta = {**node.meta, "val": denominator.meta["val"]}
        product.meta = dict(node.meta)
        node.replace_all_uses_with(product)
        graph.erase_node(node)

"""Functions of Dynamo, Inductor and FlexAttention that are replaced, because there is no hook.

This is the one module that changes anything of PyTorch's. Each replacement asks for the device
first and leaves every other device to the function that it replaces.
"""

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from sympy import Expr, Integer, Pow, sympify
from torch.utils._sympy.functions import Max, Min
from torch.utils._sympy.value_ranges import ValueRanges

from torch_webgpu import _torch_versions
from torch_webgpu.inductor.interface import buffer_budget
from torch_webgpu.inductor.registers import EAGER_ONLY, is_integer_type

# Modules that ask utils.is_gpu for what is more than speed, or more than Triton. "webgpu" must not
# be among Inductor's GPU_TYPES: that would ask for Triton, and break get_gpu_type() beside CUDA.
_MODULES_THAT_ASK_IS_GPU = {
    "lowering": "an op on a CPU number and a device tensor would become a C++ kernel that reads "
    "device memory",
    "ir": "loops keep their order for fusion, and small reductions are written out",
    "scheduler": "loops are reordered so that more is fused, and kernels take CPU numbers",
    "decomposition": "the gradient of a convolution's bias becomes a sum that can be fused",
}


def apply() -> None:
    """Replaces Inductor's functions. Called once, before the first graph is lowered."""
    utils: Any = importlib.import_module("torch._inductor.utils")
    original = utils.is_gpu

    @functools.wraps(original)
    def is_gpu(device: str | None) -> bool:
        return device == "webgpu" or original(device)

    for name in _MODULES_THAT_ASK_IS_GPU:
        module: Any = importlib.import_module(f"torch._inductor.{name}")
        if _torch_versions.asks_is_gpu(module):
            module.is_gpu = is_gpu

    from torch._inductor import (
        bounds,
        choices,
        compile_fx,
        cudagraph_utils,
        decomposition,
        graph,
        index_propagation,
        ir,
        lowering,
        pattern_matcher,
        scheduler,
        sizevars,
    )
    from torch._inductor.codegen import simd
    from torch._inductor.fx_passes import joint_graph, post_grad

    from torch_webgpu.inductor import choices as product_choices
    from torch_webgpu.inductor import scalars, vectors

    _replace(scheduler.Scheduler, "create_backend", _create_backend)
    _replace(scheduler.Scheduler, "fuse_nodes", _fuse_nodes)
    if _torch_versions.nodes_have_tiling(scheduler):
        _replace(scheduler.BaseSchedulerNode, "get_tiling", _get_tiling)
    _replace(graph.GraphLowering, "decide_layout_opt", _decide_layout_opt)
    _replace(graph.GraphLowering, "call_function", _call_function)
    _replace(post_grad, "remove_noop_ops", _remove_noop_ops)
    _replace(joint_graph, "remove_no_ops", _remove_neutral)
    folder = joint_graph.UniformValueConstantFolder
    _replace(folder, "_add_peephole_patterns", _fold_products_with_zero)
    _replace(pattern_matcher._TargetArgsExpr, "_match", _match)
    _replace(index_propagation.IndexPropagation, "propagate_sympy", _propagate_sympy)
    _replace(ir.StorageBox, "has_exceeded_max_reads", _has_exceeded_max_reads)
    _replace(ir.StorageBox, "realize_hint", _realize_hint)
    _replace(ir.ConcatKernel, "can_realize_into_without_copy", _may_lie_in_concatenation)
    _replace(ir.View, "dynamic_reshape_indexer", _dynamic_reshape_indexer)
    _replace(ir, "get_stride_order", _stride_order)
    _replace(ir.FlexibleLayout, "same_ordered", _same_ordered)
    _replace(simd, "indexing_dtype_strength_reduction", _narrow_indices)
    _replace(simd.SIMDKernel, "_split_iteration_ranges", _split_ranges)
    _replace(sizevars.SizeVarAllocator, "guard_or_false", _guard_or_false)
    _replace(choices.InductorChoices, "reduction_split_factor", _split_factor)
    _replace(ir.Reduction, "num_splits", _num_splits)
    _replace(lowering, "pointwise_cat", _pointwise_cat)
    lowered = lowering.lowerings[torch.ops.aten.unfold.default]
    lowering.lowerings[torch.ops.aten.unfold.default] = functools.partial(_unfold, lowered)
    for op in (torch.ops.aten.clamp_min.default, torch.ops.aten.clamp_max.default):
        lowering.lowerings[op] = functools.partial(_saturated, lowering.lowerings[op])
    for op in (torch.ops.aten.any.default, torch.ops.aten.any.dim, torch.ops.aten.any.dims):
        lowering.lowerings[op] = functools.partial(_any, lowering.lowerings[op])
    _keep_indices_of_triangles()
    _fill_from_host(decomposition.decompositions)
    _check_types_of_put(decomposition.decompositions)
    _divide_from_remainder(decomposition.decompositions)
    scalars.install(decomposition.decompositions)
    _replace(lowering, "get_constant_value", _constant_divisor)
    _replace(lowering, "index_put_as_masked_fill", _put_where)
    _replace(lowering, "index_put_impl_", _put_at)
    _replace(bounds.ValueRangeAnalysis, "truncdiv", _truncated_range)
    _replace(cudagraph_utils, "check_multiple_devices_or_any_cpu_nodes", _reason_against_graphs)
    _replace(compile_fx, "cudagraphify", _graphify)
    for name in ("unsupported_input_tensor", "unsupported_output_tensor"):
        _replace(lowering, name, _is_unsupported_tensor)
    product_choices.install()
    vectors.install()


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    # A method of the class is replaced as it is bound to it.
    is_static = isinstance(inspect.getattr_static(owner, name), (staticmethod, classmethod))

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    setattr(owner, name, staticmethod(replaced) if is_static else replaced)


def _create_backend(original: Callable[..., Any], self: Any, device: torch.device) -> Any:
    """If the scheduler took the device for a GPU, it would ask for Triton."""
    if device.type != "webgpu":
        return original(self, device)
    from torch._inductor.codegen.common import get_scheduling_for_device
    from torch._inductor.virtualized import V

    V.graph.add_device_info(device)
    return get_scheduling_for_device(device.type)(self)


def _fuse_nodes(original: Callable[..., list[Any]], self: Any, nodes: list[Any]) -> list[Any]:
    """Adds three steps after fusion: products compute the pointwise nodes that read them, lists of
    parts that fusion does not join share dispatches, and so do small kernels."""
    from torch_webgpu.inductor.packing import combine_neighbours, pack_lists
    from torch_webgpu.inductor.products import fuse_products

    fused = fuse_products(self, original(self, nodes))
    return combine_neighbours(self, pack_lists(self, fused))


def _get_tiling(original: Callable[..., Any], self: Any, *sizes: Any) -> Any:
    """Tiles as the device's kernels do, which is not at all. Inductor's own tiles keep a transposed
    operand's reader from what reads its result."""
    device = self.get_device()
    if device is None or device.type != "webgpu":
        return original(self, *sizes)
    return self.scheduler.get_backend(device).select_tiling(self.get_nodes(), *sizes)


def _decide_layout_opt(original: Callable[..., bool], gm: Any, *args: Any, **kwargs: Any) -> bool:
    """Convolutions here are no faster with channels last; the change costs two copies each."""
    convolutions = _torch_versions.layout_operators()
    for node in gm.graph.nodes:
        if node.target in convolutions and _device_type(node.args[0]) == "webgpu":
            return False
    return original(gm, *args, **kwargs)


def _call_function(
    original: Callable[..., Any], self: Any, target: Any, args: Any, kwargs: Any
) -> Any:
    """Before an operator changes tensors, what was computed from their old values and is used
    later is stored. Inductor does that too late for lists: after the new values have their place
    in the order of operations."""
    from torch._inductor.ir import IRNode

    if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
        targets = [
            x.maybe_get_name() if isinstance(x, IRNode) and _is_on_device(x) else None
            for x in _changed_arguments(target, args, kwargs)
        ]
        changed = set(targets) - {None}
        readers = {id(x) for name in changed for x in self.name_to_users.get(name, ())}
        used_here_last = self.user_to_last_uses.get(self.current_node, [])
        for node, value in list(self.env.items()) if readers else ():
            for x in value if isinstance(value, (list, tuple)) else [value]:
                if id(x) in readers and node not in used_here_last:
                    x.realize()
        # Operands of a list's tensor are computed with its new value. They may read its old one,
        # but not that of another tensor.
        for value in (*args, *kwargs.values()):
            if not isinstance(value, (list, tuple)):
                continue
            for x, own in zip(value, targets, strict=False):
                if id(x) in readers and x.get_read_names() & changed - {own}:
                    x.realize()
    return original(self, target, args, kwargs)


def _keep_indices_of_triangles() -> None:
    """Inductor computes them in float64, which the device does not have. They stay operators."""
    from torch._inductor import decomposition, lowering

    for op in (torch.ops.aten.tril_indices.default, torch.ops.aten.triu_indices.default):
        if op in decomposition.decompositions:
            _replace_decomposition(decomposition.decompositions, op)
            lowering.make_fallback(op, warn=False, override_decomp=True)


def _fill_from_host(table: dict[Any, Callable[..., Any]]) -> None:
    """`index_fill` takes a single element of any type and of the CPU in eager mode. Its
    decomposition wants one of the tensor's type on the device."""
    from torch_webgpu.inductor.scalars import check_element

    op = torch.ops.aten.index_fill.int_Tensor
    original = table[op]

    def decomposed(x: Any, dim: int, index: Any, value: Any) -> Any:
        if x.device.type == "webgpu":
            check_element(value, x)
            value = value.to(x.device, x.dtype)
        return original(x, dim, index, value)

    table[op] = decomposed


def _check_types_of_put(table: dict[Any, Callable[..., Any]]) -> None:
    """`index_put` takes values of the tensor's type only, as in eager mode. Inductor converts them.
    One number on the CPU may have any type where a single mask tells its places."""
    op = torch.ops.aten.index_put.default
    original = table.get(op)

    def decomposed(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
        if x.device.type == "webgpu" and values.dtype != x.dtype:
            given = [index for index in indices if index is not None]
            is_mask = len(given) == 1 and given[0].dtype in (torch.bool, torch.uint8)
            is_number = values.device.type == "cpu" and values.numel() == 1 and not accumulate
            torch._check(
                is_mask and is_number,
                lambda: (
                    "Index put requires the source and destination dtypes match, got "
                    f"{x.dtype} for the destination and {values.dtype} for the source."
                ),
            )
        return NotImplemented if original is None else original(x, indices, values, accumulate)

    table[op] = decomposed


def _divide_from_remainder(table: dict[Any, Callable[..., Any]]) -> None:
    """Quotients of floats that are rounded down: Inductor rounds the rounded quotient, so that
    1.0 // 0.1 is 10. Eager mode divides what the remainder leaves, and has 9."""
    op = torch.ops.aten.div.Tensor_mode
    original = table.get(op)

    def element(number: Any, like: Any) -> Any:
        # As a product it is infinite if it is beyond float32. new_full would refuse it.
        return like.new_ones(()) * number

    def decomposed(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
        tensors = [x for x in (a, b) if isinstance(x, torch.Tensor)]
        dtype = torch.result_type(a, b)
        is_ours = any(x.device.type == "webgpu" for x in tensors) and dtype.is_floating_point
        if rounding_mode != "floor" or not is_ours:
            return (
                NotImplemented if original is None else original(a, b, rounding_mode=rounding_mode)
            )
        # Halves are divided as floats.
        a, b = (x.to(torch.float32) if isinstance(x, torch.Tensor) else x for x in (a, b))
        if not isinstance(a, torch.Tensor):
            a = element(a, b)
        elif isinstance(b, (torch.SymInt, torch.SymFloat)):
            b = element(b, a)
        remainder = torch.fmod(a, b)
        quotient = (a - remainder) / b
        # Not !=, which Inductor's ranges do not have for truth values that are known.
        is_below = (remainder != 0) & ((remainder < 0) ^ (b < 0))
        quotient = torch.where(is_below, quotient - 1, quotient)
        floored = quotient.floor()
        floored = torch.where(quotient - floored > 0.5, floored + 1, floored)
        zero = torch.copysign(torch.zeros_like(quotient), a / b)
        result = torch.where(quotient != 0, floored, zero)
        # The remainder of a division by 0 is NaN, the quotient need not be.
        is_zero = b == 0
        if isinstance(is_zero, torch.Tensor):
            result = torch.where(is_zero, a / b, result)
        elif is_zero:
            result = a / b
        return result.to(dtype)

    table[op] = decomposed


def _replace_decomposition(table: dict[Any, Callable[..., Any]], op: Any) -> None:
    original = table[op]

    @functools.wraps(original)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        device = torch.device(kwargs.get("device") or "cpu")
        return NotImplemented if device.type == "webgpu" else original(*args, **kwargs)

    table[op] = decomposed


# Keyword arguments that decide values, and their defaults.
_DECISIVE = {"alpha": 1, "beta": 1, "dtype": None}


def _match(original: Callable[..., Any], self: Any, node: torch.fx.Node, ctx: Any) -> Any:
    """Inductor's patterns match operators with keyword arguments that they do not name, and lose
    them: x @ w + 0.1 * x became addmm(x, x, w)."""
    if isinstance(node, torch.fx.Node) and _device_type(node) == "webgpu":
        for name, default in _DECISIVE.items():
            if name not in self.kwargs and node.kwargs.get(name, default) != default:
                from torch._inductor.pattern_matcher import FailedMatch

                return FailedMatch("{} would lose {}", self, name)
    return original(self, node, ctx)


def _remove_noop_ops(original: Callable[..., None], graph: torch.fx.Graph) -> None:
    """Inductor drops copies that are read only, also of a tensor that changes before its copy is
    read, as in a swap. These stay."""
    from torch._inductor.fx_passes.post_grad import noop_registry
    from torch._inductor.fx_utils import get_node_storage

    changed = {
        get_node_storage(x)
        for node in graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for x in _changed_arguments(node.target, node.args, node.kwargs)
        if isinstance(x, torch.fx.Node) and _device_type(x) == "webgpu"
    }
    changed.discard(None)
    kept = {
        node: node.target
        for node in (graph.nodes if changed else ())
        if node.target in noop_registry
        and get_node_storage(node) not in changed
        and any(get_node_storage(x) in changed for x in node.all_input_nodes)
    }
    for node in kept:
        node.target = _kept_copy  # which is no operator that would be removed
    try:
        original(graph)
    finally:
        for node, target in kept.items():
            node.target = target


def _remove_neutral(original: Callable[..., None], gm: Any, zeros: Any, ones: Any) -> None:
    """Inductor drops tensors of zeros from sums of floats, but -0.0 + 0.0 is 0.0."""
    for node in list(zeros):
        if _is_float_on_device(node):
            zeros.discard(node)
    original(gm, zeros, ones)


def _fold_products_with_zero(original: Callable[..., None], self: Any) -> None:
    """Inductor takes a product with the integer 0 for 0. Of floats it is NaN for NaN and infinity,
    and -0.0 for negative numbers."""
    original(self)
    for node in list(self.node_replacements):
        if _is_float_on_device(node):
            del self.node_replacements[node]
            del self.node_replacements_shapes[node]
            del self.constant_data_ptrs[node]


def _is_float_on_device(node: torch.fx.Node) -> bool:
    return _device_type(node) == "webgpu" and node.meta["val"].dtype.is_floating_point


def _kept_copy(*_: Any) -> None:
    """Never called."""


def _changed_arguments(op: torch._ops.OpOverload, args: Any, kwargs: Any) -> list[Any]:
    """What an operator changes in place, with the elements of lists."""
    names = [argument.name for argument in op._schema.arguments]
    given: dict[str, Any] = {**dict(zip(names, args, strict=False)), **kwargs}
    found: list[Any] = []
    for argument in op._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            value: Any = given.get(argument.name)
            found += value if isinstance(value, (list, tuple)) else [value]
    return found


def _is_on_device(x: Any) -> bool:
    device = x.get_device()
    return device is not None and device.type == "webgpu"


def _device_type(node: Any) -> str | None:
    value = node.meta.get("val")
    return value.device.type if isinstance(value, torch.Tensor) else None


def _is_unsupported_tensor(
    original: Callable[..., bool], t: torch.Tensor, *args: Any, **kwargs: Any
) -> bool:
    """Ops on dtypes that have no arithmetic in registers stay ops, which run eagerly."""
    is_eager_only = t.dtype in EAGER_ONLY or (t.dtype.is_floating_point and t.dtype.itemsize == 1)
    if t.device.type == "webgpu" and is_eager_only:
        return True
    return original(t, *args, **kwargs)


def _propagate_sympy(
    original: Callable[..., Any], self: Any, name: str, args: Any, kwargs: Any
) -> Any:
    """Inductor computes with indices, such as those of arange, as with integers that never wrap and
    are never rounded. A value that its type may not hold stays an op, which does that. So do a
    remainder with the sign of the dividend, which Inductor takes for one with the divisor's, and a
    quotient of a divisor that may be negative: two such quotients are not one of the product."""
    from torch._inductor.virtualized import V

    from torch_webgpu.inductor.printer import may_change

    result = original(self, name, args, kwargs)
    if not result.is_symbolic or "webgpu" not in V.graph.device_types:
        return result
    if not may_change(result.value.expr, result.value.dtype, dict(self.var_to_range)):
        operands = [sympify(x.value.expr) for x in args] if name in ("mod", "floordiv") else []
        is_exact = {
            "mod": lambda: all(x.is_nonnegative for x in operands),
            "floordiv": lambda: operands[1].is_positive,
        }.get(name, lambda: True)
        return result if is_exact() else self.fallback(name, args, kwargs)
    if name == "constant":  # of sizes: no number, as the op would have it
        value_of = "value_expr" if _torch_versions.indices_are_apart() else "index_expr"
        return self.fallback(value_of, args, kwargs)
    return self.fallback(name, args, kwargs)


def _truncated_range(original: Callable[..., Any], a: Any, b: Any) -> Any:
    """The range of a quotient of integers. Inductor's function divides the ends of the ranges as
    floats: large ones are rounded, and raise where it then asks for an integer quotient."""
    from torch._inductor.virtualized import V

    if "webgpu" not in V.graph.device_types:
        return original(a, b)
    dividend, divisor = ValueRanges.wrap(a), ValueRanges.wrap(b)
    ends = (dividend.lower, dividend.upper, divisor.lower, divisor.upper)
    if 0 in divisor or not all(n.is_Integer for n in ends):
        return ValueRanges.unknown_int()
    quotients = [
        (abs(x) // abs(y)) * (-1 if (x < 0) != (y < 0) else 1) for x in ends[:2] for y in ends[2:]
    ]
    return ValueRanges(min(quotients), max(quotients))


def _narrow_indices(original: Callable[..., None], body: Any) -> None:
    """Inductor computes in int32 what fits, and takes integers of other types for such as never
    wrap: -5 of uint32 fits, what it has become does not. Beside these int64 stays."""
    from torch._inductor.virtualized import V

    def is_narrow(node: torch.fx.Node) -> bool:
        dtypes = [arg for arg in node.args if isinstance(arg, torch.dtype)]
        return any(is_integer_type(dtype) and dtype != torch.int64 for dtype in dtypes)

    if "webgpu" in V.graph.device_types and any(map(is_narrow, body.get_nodes())):
        return
    original(body)


def _has_exceeded_max_reads(original: Callable[..., bool], self: Any) -> bool:
    """An expression that reads many buffers is stored to a buffer: an op of three such operands
    must still fit a kernel's storage buffers. The scheduler fuses it again where it fits."""
    return _reads_much(self) or original(self)


def _realize_hint(original: Callable[..., None], self: Any) -> None:
    """Inductor does not count single elements among reads, but each is a storage buffer, as where
    the squares of all gradients are added up."""
    if _reads_much(self):
        self.realize()
    else:
        original(self)


def _reads_much(box: Any) -> bool:
    from torch._inductor.ir import Pointwise

    if not isinstance(box.data, Pointwise) or not _is_on_device(box):
        return False
    return bool(box.num_reads() > (buffer_budget() - 1) // 3)


def _may_lie_in_concatenation(original: Callable[..., bool], src: Any, dst: Any = None) -> bool:
    """A product with dynamic sizes has a tensor of its own, as generated kernels of products store
    one. What copies it can be fused into it. So has what an operator changes afterwards: in a
    concatenation it would change there too."""
    from torch_webgpu.inductor import sized_products

    is_product = sized_products.is_active() and sized_products.is_product(src)
    is_own = is_product or (_is_on_device(src) and _is_changed_later(src))
    return not is_own and original(src, dst)


def _is_changed_later(src: Any) -> bool:
    """Whether an operator after the one that is being lowered changes its operands or result in
    place, as Inductor has `index_put` do. A copy of an operand does not count as the operand."""
    from torch._inductor.fx_utils import get_node_storage
    from torch._inductor.ir import IRNode
    from torch._inductor.virtualized import V

    node = V.graph.current_node
    operands = [V.graph.env.get(x) for x in node.all_input_nodes]
    names = {x.maybe_get_name() for x in operands if isinstance(x, IRNode)} - {None}
    if src.maybe_get_name() not in names:
        return False
    kept = {get_node_storage(x) for x in (node, *node.all_input_nodes)} - {None}
    while node.next.op != "root":
        node = node.next
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            changed = _changed_arguments(node.target, node.args, node.kwargs)
            if any(isinstance(x, torch.fx.Node) and get_node_storage(x) in kept for x in changed):
                return True
    return False


def _dynamic_reshape_indexer(
    original: Callable[..., Any], old_size: Any, new_size: Any, dense_dim: int | None = None
) -> Any:
    """Inductor's function states on its way that sizes are equal, or 1, and goes another way if
    that leads nowhere. What it stated stays: an export for all sizes would be one for size 1."""
    from torch_webgpu.inductor import sized_products

    if dense_dim is not None or not sized_products.is_active():
        return original(old_size, new_size, dense_dim)
    return sized_products.reshape_indexer(old_size, new_size)


def _stride_order(original: Callable[..., Any], seq: Any, shape_env: Any = None) -> Any:
    """Without a ShapeEnv, Inductor's function compares strides as numbers. Of dynamic ones it then
    demands that the order is the same for all sizes, but strides are equal where a size is 1."""
    from torch._inductor.virtualized import V

    from torch_webgpu.inductor import sized_products

    if shape_env is None and sized_products.is_active():
        shape_env = V.graph.sizevars.shape_env
    return original(seq, shape_env)


def _same_ordered(original: Callable[..., Any], sizes: Any, stride: Any) -> Any:
    """Inductor's function asks for the strides' numbers. Usual ones tell the order: it decides how
    a tensor is laid out, and what reads it takes it as it lies."""
    from torch_webgpu.inductor import sized_products
    from torch_webgpu.inductor.lanes import size_hint

    if sized_products.is_active():
        stride = [size_hint(n) for n in stride]
    return original(sizes, stride)


def _split_ranges(original: Callable[..., Any], groups: Any, lengths: Any) -> Any:
    """Inductor's function wants to know that n * m is more than n, which it is not where m is 1,
    and that nothing is left of n * n after n twice."""
    from torch_webgpu.inductor import sized_products

    if not sized_products.is_active():
        return original(groups, lengths)
    return sized_products.split_ranges(groups, lengths)


def _guard_or_false(original: Callable[..., bool], self: Any, condition: Any) -> bool:
    """Inductor asks whether a stride is a multiple of another one. The remainder may have a
    quotient in it, of which Inductor cannot compute the range."""
    from torch_webgpu.inductor import sized_products

    if sized_products.is_active():
        powers = condition.atoms(Pow)
        if any(power.exp.could_extract_minus_sign() for power in powers):
            return False
    return original(self, condition)


def _split_factor(original: Callable[..., int], *args: Any, **kwargs: Any) -> int:
    """A workgroup divides a column among 64 invocations where each takes 4 neighbouring columns,
    else among 8. While each has few elements, 16 or 64, a second kernel would cost more than it
    saves."""
    asked = _torch_versions.arguments_of(original, args, kwargs)
    few = 8 * 64 if asked["numel_hint"] % 4 else 64 * 16
    is_outer = asked["device"].type == "webgpu" and not asked["inner_reduction"]
    if is_outer and asked["reduction_numel_hint"] <= few:
        return 1
    return original(*args, **kwargs)


def _num_splits(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Inductor cuts a row of several dimensions anywhere, such as the images and positions that a
    norm of batches sums over. Then neighbours in a part are not known as such, so that nothing
    moves as vectors. Here each part is all of the inner dimensions, if parts are long enough.

    Split -1 means: the operand reads the result of a reduction that was done in parts, so divide
    this one into as many. Inductor chose those parts by usual sizes, without a guard. So this is
    done only where the rows are as long for all sizes; else it chooses without the operand."""
    from torch._inductor.ir import ReductionHint

    hint, split = original(*args, **kwargs)
    asked = _torch_versions.arguments_of(original, args, kwargs)
    if split == -1 and asked["device"].type == "webgpu" and not _has_parts_of_operand(asked):
        asked["input_node"] = None
        hint, split = original(**asked)
    is_ours = asked["device"].type == "webgpu" and asked["reduction_type"] != "scan"
    is_cut = isinstance(split, int) and split > 1 and hint == ReductionHint.INNER
    if is_ours and is_cut:
        split = _whole_parts(asked["reduction_ranges"], split)
    return hint, split


def _has_parts_of_operand(asked: dict[str, Any]) -> bool:
    """Whether the reduction that the operand reads was done in more than one part, over rows that
    for all sizes are as long as those of this reduction."""
    from torch._inductor.ir import FlexibleLayout, extract_input_node_reduction_ranges
    from torch._inductor.utils import sympy_product
    from torch._inductor.virtualized import V

    with patch.object(FlexibleLayout, "allow_indexing", True):
        outer, inner = extract_input_node_reduction_ranges(asked["input_node"])
    parts = sympy_product(outer)
    whole = parts * sympy_product(inner)
    known_equal = V.graph.sizevars.statically_known_equals
    return not known_equal(parts, 1) and known_equal(whole, asked["reduction_numel"])


# Elements that a workgroup sums at least, where a part is all of the inner dimensions.
_SHORTEST_PART = 1024


def _whole_parts(ranges: Sequence[Any], split: int) -> int:
    """The number of parts of a row that are all of its inner dimensions: the first that is not far
    below `split`. `split`, if there is none or sizes are dynamic."""
    if not all(isinstance(n, (int, Integer)) for n in ranges):
        return split
    lengths = [int(n) for n in ranges]
    for outer in range(1, len(lengths)):
        parts = math.prod(lengths[:outer])
        if 4 * parts >= split and math.prod(lengths[outer:]) >= _SHORTEST_PART:
            return parts
    return split


def _pointwise_cat(original: Callable[..., Any], inputs: Any, dim: int = 0) -> Any:
    """A concatenation in one kernel must fit its storage buffers; else each part is a kernel."""
    from torch._inductor import ir

    reads = {name for x in inputs for name in x.get_read_names()}
    if inputs[0].get_device().type == "webgpu" and len(reads) >= buffer_budget():
        return ir.TensorBox(ir.ConcatKernel.create(inputs, dim))
    return original(inputs, dim)


def _unfold(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Inductor asks for a number in place of a size, to tell how often an element is read."""
    from torch_webgpu.inductor import sized_products

    if not sized_products.is_active():
        return original(*args, **kwargs)
    with sized_products.lowered_windows():
        return original(*args, **kwargs)


def _saturated(original: Callable[..., Any], x: Any, bound: Any) -> Any:
    """A bound that the integers' type does not have is the nearest that it has. Inductor wraps it:
    `clamp(max=256)` of uint8 became `clamp(max=0)`."""
    # Where bounds do not saturate, scalars.py leaves only the places of flex_attention's masks, in
    # int32.
    has_bounds = _torch_versions.bounds_saturate() or x.get_dtype() == torch.int32
    if _is_on_device(x) and is_integer_type(x.get_dtype()) and has_bounds:
        limits = torch.iinfo(x.get_dtype())
        if isinstance(bound, int):
            bound = min(max(bound, limits.min), limits.max)
        elif isinstance(bound, Expr):  # of sizes
            bound = Min(Max(bound, limits.min), limits.max)
    return original(x, bound)


def _any(original: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """Of uint8 the result is uint8 in eager mode. Inductor has bool."""
    from torch._inductor.lowering import to_dtype

    result = original(x, *args, **kwargs)
    is_byte = _is_on_device(x) and x.get_dtype() == torch.uint8
    return to_dtype(result, torch.uint8) if is_byte else result


def _reason_against_graphs(original: Callable[..., str | None], devices: dict[Any, Any]) -> Any:
    """Inductor refuses graphs on every device but CUDA; here they are allowed on webgpu."""
    if {device.type for device in devices} - {"meta"} == {"webgpu"}:
        return None
    return original(devices)


def _constant_divisor(original: Callable[..., Any], x: Any) -> Any:
    """Asked for a divisor only: division by a constant would be a product with its reciprocal, and
    41 / 41 less than 1."""
    from torch._inductor.ir import IRNode

    device = x.get_device() if isinstance(x, IRNode) else None
    return None if device is not None and device.type == "webgpu" else original(x)


def _put_at(
    original: Callable[..., Any], self: Any, indices: Any, values: Any, *args: Any, **kwargs: Any
) -> Any:
    """Indices and values that are read from the tensor have its elements from before the change, so
    they are stored first. Inductor does so only for values that are computed from the tensor, not
    for values that are a part of it, nor for indices."""
    from torch._inductor.ir import try_get_name
    from torch._inductor.lowering import clone

    if not _is_on_device(self):
        return original(self, indices, values, *args, **kwargs)
    self.realize()
    name = try_get_name(self)

    def apart(x: Any, is_index: bool) -> Any:
        if x is not None and try_get_name(x) == name:
            x = clone(x)
            x.realize()
        elif x is not None and is_index and name in x.get_read_names():
            x.realize()
        return x

    indices = [apart(x, is_index=True) for x in indices]
    return original(self, indices, apart(values, is_index=False), *args, **kwargs)


def _put_where(
    original: Callable[..., Any], self: Any, indices: Any, value: Any, accumulate: Any
) -> Any:
    """Converts the value to the tensor's type first. Inductor selects between the two as they are,
    and its result has the type that they have in common."""
    from torch._inductor.lowering import to_dtype

    if _is_on_device(self):
        value = to_dtype(value, self.get_dtype())
    return original(self, indices, value, accumulate)


def _graphify(
    original: Callable[..., Callable[..., Any]],
    model: Callable[..., Any],
    static_input_idxs: Any = (),
    **kwargs: Any,
) -> Callable[..., Any]:
    """Chooses at the first call, because only the tensors of a call tell the device: its inputs or,
    of a function without, its results."""
    from torch_webgpu.inductor.replay import Replayed

    chosen: Callable[..., Any] | None = None

    def choose(tensors: Any) -> Callable[..., Any] | None:
        devices = {x.device for x in tensors if isinstance(x, torch.Tensor)}
        own = [device for device in devices if device.type == "webgpu"]
        if own:
            mutated = kwargs.get("mutated_input_idxs", ())
            return Replayed(model, static_input_idxs, mutated, own[0])
        return original(model, static_input_idxs, **kwargs) if devices else None

    def run(inputs: Any) -> Any:
        nonlocal chosen
        chosen = chosen or choose(inputs)
        if chosen is not None:
            return chosen(inputs)
        outputs = model(inputs)
        chosen = choose(outputs) or model
        return outputs

    return run


def make_optimizers_capturable(optimizer: ModuleType) -> None:
    """Dynamo makes a traced optimizer capturable on CUDA and XPU only. On another device its step
    counts would stay on the CPU, and their arithmetic would be compiled by a C++ compiler."""

    def can_be(self: Any, group: dict[str, Any]) -> bool:
        params = group.get("params", [])
        is_ours = all(p.device.type == "webgpu" and p not in self.value.state for p in params)
        return "capturable" in group and bool(params) and is_ours

    def set_capturable(original: Callable[..., None], self: Any, tx: Any) -> None:
        for group in self.value.param_groups:
            if can_be(self, group):
                group["capturable"] = True
        original(self, tx)

    def is_safe(original: Callable[..., bool], self: Any, group: dict[str, Any]) -> bool:
        return original(self, group) or can_be(self, group)

    if _torch_versions.keeps_groups_of_optimizers(optimizer):
        _replace(optimizer.OptimizerVariable, "_safe_to_set_capturable", is_safe)
    else:
        _replace(optimizer.OptimizerVariable, "_set_capturable", set_capturable)


def extend_flex_attention(module: ModuleType) -> None:
    """Has ``torch.nn.attention.flex_attention`` take tensors on webgpu, and its operator cast them
    under ``torch.autocast("webgpu")`` as under CUDA's.

    The module's check compares the device with a set of names. Dynamo traces the check, so the set
    is changed where it stands: a function of this package would break the graph.
    """
    check = module._validate_device
    check.__code__ = check.__code__.replace(
        co_consts=tuple(
            constant | {"webgpu"}
            if isinstance(constant, frozenset) and {"cuda", "cpu"} <= constant
            else constant
            for constant in check.__code__.co_consts
        )
    )
    autocast: Any = torch._C.DispatchKey.__members__["AutocastPrivateUse1"]
    attend = module.flex_attention_hop
    if autocast in attend.py_kernels:
        return

    def cast(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("webgpu")
        given = [x.to(dtype) for x in (query, key, value)]
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(autocast)):
            return attend(*given, *args, **kwargs)

    attend.py_impl(autocast)(cast)

"""Numbers that operators convert to an integer type: what does not fit raises, as in eager mode.

Inductor wraps such a number. Eager mode wraps operands only, such as 300 in `x + 300`. The checks
stand in the table of decompositions, by which each operator goes while a graph is traced. There a
number that depends on sizes can be compared, which is a guard; one that data decide is asserted.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, Number, elementwise_dtypes

from torch_webgpu import _torch_versions
from torch_webgpu.inductor.registers import is_integer_type

aten = torch.ops.aten

# By operator: arguments that become numbers of the type of `self`, or of `dtype` where it is given.
_FILLING = {
    aten.constant_pad_nd.default: ("value",),
    aten.fill.Scalar: ("value",),
    aten.full.default: ("fill_value",),
    aten.full_like.default: ("fill_value",),
    aten.index_add.default: ("alpha",),
    aten.index_fill.int_Scalar: ("value",),
    aten.linspace.default: ("start", "end"),
    aten.masked_fill.Scalar: ("value",),
    aten.new_full.default: ("fill_value",),
    aten.scalar_tensor.default: ("s",),
    aten.scatter.value: ("value",),
    aten.scatter.value_reduce: ("value",),
    aten.threshold.default: ("threshold", "value"),
    aten.threshold_backward.default: ("threshold",),
}
# Arguments that become numbers of the type that the operands have in common.
_COMPUTING = {
    aten.add.Scalar: ("alpha",),
    aten.add.Tensor: ("alpha",),
    aten.addcmul.default: ("value",),
    aten.addmv.default: ("beta", "alpha"),
    aten.addr.default: ("beta", "alpha"),
    aten.pow.Tensor_Scalar: ("exponent",),
    aten.rsub.Scalar: ("alpha",),
    aten.rsub.Tensor: ("alpha",),
    aten.sub.Scalar: ("alpha",),
    aten.sub.Tensor: ("alpha",),
    aten.where.ScalarOther: ("other",),
    aten.where.ScalarSelf: ("self",),
}
_BOUNDS = {aten.clamp_max.default: ("max",), aten.clamp_min.default: ("min",)}
_FACTORS = frozenset({"alpha", "beta", "value"})  # no operands: they decide no type
# They add a product with the opposite of alpha, and eager mode converts the opposite.
_DIFFERENCES = {aten.rsub.Scalar, aten.rsub.Tensor, aten.sub.Scalar, aten.sub.Tensor}

_SYMBOLIC = (torch.SymInt, torch.SymBool)
_NEGATIVE_POWER = "Integers to negative integer powers are not allowed."


def install(decompositions: dict[Any, Callable[..., Any]]) -> None:
    """Adds the checks to a table of decompositions."""
    computing = dict(_COMPUTING)
    if not _torch_versions.bounds_saturate():
        computing |= _BOUNDS
    for names_by_op, type_of in ((_FILLING, _filled_type), (computing, _common_type)):
        for op, names in names_by_op.items():
            decompositions[op] = _checked(op, names, type_of, decompositions.get(op))


def check_copied(graph: fx.Graph) -> None:
    """Checks the numbers of `torch.tensor([n])`, which is made on the CPU and then copied."""
    for node in graph.find_nodes(op="call_function", target=aten.scalar_tensor.default):
        number, dtype = node.args[0], node.meta["val"].dtype
        if isinstance(number, fx.Node) and is_integer_type(dtype):
            _check_fits(number.meta["val"], dtype, is_bound=False)


def _checked(
    op: torch._ops.OpOverload,
    names: tuple[str, ...],
    type_of: Callable[[dict[str, Any]], torch.dtype | None],
    original: Callable[..., Any] | None,
) -> Callable[..., Any]:
    places = [argument.name for argument in op._schema.arguments]

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(places, args, strict=False)), **kwargs}
        dtype = type_of(given) if _device_type(given) == "webgpu" else None
        if dtype is not None and is_integer_type(dtype):
            for number in (given[name] for name in names if name in given):
                if op in _BOUNDS and _is_beyond_places(given["self"], number):
                    continue
                _check_fits(-number if op in _DIFFERENCES else number, dtype, op in _BOUNDS)
                if op is aten.pow.Tensor_Scalar and not isinstance(number, (bool, torch.SymBool)):
                    torch._check(number >= 0, lambda: _NEGATIVE_POWER)
                if op is aten.pow.Tensor_Scalar and isinstance(number, _SYMBOLIC):
                    # Inductor has no kernel for an exponent that depends on sizes.
                    x = given["self"]
                    return aten.pow.Tensor_Tensor(x, x.new_full((), number, dtype=torch.int64))
        return NotImplemented if original is None else original(*args, **kwargs)

    return decomposed


def _is_beyond_places(x: torch.Tensor, number: Any) -> bool:
    """Whether a bound lies beyond the places that flex_attention computes masks from.

    They are int64 in eager mode, and single int32 elements where it is compiled. Such a bound
    becomes the nearest number of int32 when it is lowered.
    """
    is_place = x.dtype == torch.int32 and x.dim() == 0
    info = torch.iinfo(torch.int32)
    return is_place and isinstance(number, int) and not info.min <= number <= info.max


def _device_type(given: dict[str, Any]) -> str | None:
    if given.get("device") is not None:
        return torch.device(given["device"]).type
    return next((x.device.type for x in given.values() if isinstance(x, torch.Tensor)), None)


def _filled_type(given: dict[str, Any]) -> torch.dtype | None:
    """None for what has the type of the number itself."""
    if given.get("dtype") is not None or "self" not in given:
        return given.get("dtype")
    dtype: torch.dtype = given["self"].dtype
    return dtype


def _common_type(given: dict[str, Any]) -> torch.dtype:
    operands = [
        x
        for name, x in given.items()
        if name not in {*_FACTORS, "condition"} and isinstance(x, (torch.Tensor, *Number))
    ]
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    return elementwise_dtypes(*operands, type_promotion_kind=kind)[1]


def _check_fits(number: Any, dtype: torch.dtype, is_bound: bool) -> None:
    """Raises for what eager mode refuses to convert.

    Negative integers wrap to an unsigned type without an error. Of bounds only those of uint8 do.
    """
    if isinstance(number, (bool, torch.SymBool, complex)):
        return  # 0 and 1 fit, and complex numbers are refused later
    if isinstance(number, torch.SymInt) and dtype == torch.int64:
        return
    info = torch.iinfo(dtype)
    lowest: int = info.min
    largest: float = info.max
    is_integer = isinstance(number, (int, torch.SymInt))
    if is_integer and not dtype.is_signed and (dtype == torch.uint8 or not is_bound):
        lowest = -info.max
    if not is_integer:
        largest = float(largest)  # eager mode compares floats, as which 2**63 - 1 is 2**63

    def message() -> str:
        name = str(dtype).removeprefix("torch.")
        return f"value cannot be converted to type {name} without overflow"

    # Comparisons with NaN are false, so that it raises.
    torch._check(number >= lowest, message)
    torch._check(number <= largest, message)

"""Numbers that operators convert to a tensor's type: what does not fit raises, as in eager mode.

Inductor wraps such a number, or makes it infinite. Eager mode does that to operands only, such as
300 in `x + 300`. The checks also refuse booleans and fractions as factors where eager mode does and
Inductor does not. They stand in the table of decompositions, by which each operator goes while a
graph is traced. There a number that depends on sizes can be compared, which is a guard; one that
data decide is asserted.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, Number, elementwise_dtypes

from torch_webgpu import _torch_versions
from torch_webgpu.inductor.registers import HALVES, is_integer_type, nearest_f32

aten = torch.ops.aten

# By operator: arguments that become numbers of the type of `self`, or of `dtype` where it is given.
_FILLING = {
    aten.celu.default: ("alpha",),
    aten.constant_pad_nd.default: ("value",),
    aten.elu.default: ("alpha", "scale", "input_scale"),
    aten.fill.Scalar: ("value",),
    aten.full.default: ("fill_value",),
    aten.full_like.default: ("fill_value",),
    aten.index_add.default: ("alpha",),
    aten.index_fill.int_Scalar: ("value",),
    aten.leaky_relu.default: ("negative_slope",),
    aten.lerp.Scalar: ("weight",),
    aten.linspace.default: ("start", "end"),
    aten.masked_fill.Scalar: ("value",),
    aten.new_full.default: ("fill_value",),
    aten.scalar_tensor.default: ("s",),
    aten.scatter.value: ("value",),
    aten.scatter.value_reduce: ("value",),
    aten.softplus.default: ("beta", "threshold"),
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
_SUMS = {aten.add.Scalar, aten.add.Tensor, *_DIFFERENCES}
_SCALED = {aten.add.Scalar, aten.add.Tensor, aten.sub.Scalar, aten.sub.Tensor}
_REVERSED = {aten.rsub.Scalar, aten.rsub.Tensor}
# Inductor checks most numbers of floating types, but not those of these operators.
_UNCHECKED_FLOATS = {
    aten.constant_pad_nd.default,
    aten.pow.Tensor_Scalar,
    aten.scatter.value,
    aten.scatter.value_reduce,
}
# Of these eager mode makes a float32, also beside halves.
_COMPUTED_IN_FLOAT32 = {
    *(_SUMS | _BOUNDS.keys()),
    *(aten.addcmul.default, aten.celu.default, aten.elu.default, aten.index_add.default),
    *(aten.leaky_relu.default, aten.lerp.Scalar, aten.softplus.default),
}
# Operators with a number as operand that halves round first, and for which Inductor does not:
# it composes them of others. By name of the argument.
_ROUNDED = {
    aten.nan_to_num.default: ("nan", "posinf", "neginf"),
    aten.special_xlog1py.other_scalar: ("other",),
    aten.special_xlog1py.self_scalar: ("self",),
    aten.xlogy.Scalar_Other: ("other",),
    aten.xlogy.Scalar_Self: ("self",),
}
# The limits of random integers: (the lowest, one more than the highest).
_DRAWING = {
    aten.randint.default: (None, "high"),
    aten.randint.low: ("low", "high"),
    aten.randint_like.default: (None, "high"),
    aten.randint_like.low_dtype: ("low", "high"),
}
# Operators on lists, with what eager mode calls for each tensor of integers.
_LISTS: dict[Any, Callable[..., Any]] = {
    aten._foreach_add.List: torch.add,
    aten._foreach_add.Tensor: torch.add,
    aten._foreach_addcdiv.Scalar: torch.addcdiv,
    aten._foreach_addcmul.Scalar: torch.addcmul,
    aten._foreach_clamp_max.Scalar: torch.clamp_max,
    aten._foreach_clamp_min.Scalar: torch.clamp_min,
    aten._foreach_lerp.Scalar: torch.lerp,
    aten._foreach_maximum.Scalar: torch.clamp_min,
    aten._foreach_minimum.Scalar: torch.clamp_max,
    aten._foreach_pow.List: torch.pow,
    aten._foreach_pow.Scalar: torch.pow,
    aten._foreach_pow.ScalarAndTensor: torch.pow,
    aten._foreach_sub.List: torch.sub,
    aten._foreach_sub.Scalar: torch.sub,
}

_SYMBOLIC = (torch.SymInt, torch.SymBool)
_NEGATIVE_POWER = "Integers to negative integer powers are not allowed."
_BOOLEAN_FACTOR = "Boolean alpha only supported for Boolean results."
_BOOLEAN_OPERAND = (
    "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to "
    "invert a mask, use the `~` or `logical_not()` operator instead."
)
_FLOATING_FACTOR = "For integral input tensors, argument alpha must not be a floating point number."


def install(decompositions: dict[Any, Callable[..., Any]]) -> None:
    """Adds the checks to a table of decompositions."""
    computing = dict(_COMPUTING)
    if not _torch_versions.bounds_saturate():
        computing |= _BOUNDS
    for names_by_op, type_of in ((_FILLING, _filled_type), (computing, _common_type)):
        for op, names in names_by_op.items():
            decompositions[op] = _checked(op, names, type_of, decompositions.get(op))
    for op, names in _ROUNDED.items():
        decompositions[op] = _rounded(op, names, decompositions[op])
    masked_fill = aten.masked_fill.Tensor
    decompositions[masked_fill] = _with_checked_element(decompositions[masked_fill])
    for op, limits in _DRAWING.items():
        decompositions[op] = _drawn(op, limits, decompositions.get(op))
    for op, single in _LISTS.items():
        decompositions[op] = _by_tensor(op, single, decompositions.get(op))


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
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        given = _named(op, args, kwargs)
        dtype = type_of(given) if _device_type(given) == "webgpu" else None
        numbers = [given[name] for name in names if name in given]
        if dtype is not None and not dtype.is_complex and op not in _SUMS:
            reals = {name: _real(given[name], dtype) for name in names if name in given}
            if any(isinstance(number, complex) for number in numbers):
                return op(*_changed(op, args, reals), **_of(kwargs, reals))
        if op is aten.index_add.default and dtype == torch.bool and given.get("alpha", 1) != 1:
            # The source is multiplied by the truth of alpha, and stays of type bool.
            source = given["source"] if given["alpha"] else torch.zeros_like(given["source"])
            return op(given["self"], given["dim"], given["index"], source)
        if dtype is not None and op in _SUMS:
            _check_sum(op, given, dtype)
            other, alpha = given["other"], given.get("alpha", 1)
            if isinstance(other, torch.SymFloat) and alpha != 1:
                # PyTorch makes a tensor of such a number later, and loses the factor.
                x = given["self"]
                if op in _SCALED:
                    return op(x, other * alpha)
                if op in _REVERSED:
                    return aten.sub.Tensor(x.new_full((), other, dtype=dtype), x, alpha=alpha)
        if dtype is not None and is_integer_type(dtype):
            for number in numbers:
                if op in _BOUNDS and _is_beyond_places(given["self"], number):
                    continue
                if op is aten.pow.Tensor_Scalar and not isinstance(number, (bool, torch.SymBool)):
                    torch._check(number >= 0, lambda: _NEGATIVE_POWER)
                _check_fits(-number if op in _DIFFERENCES else number, dtype, op in _BOUNDS)
                if op is aten.pow.Tensor_Scalar and isinstance(number, _SYMBOLIC):
                    # Inductor has no kernel for an exponent that depends on sizes.
                    x = given["self"]
                    return aten.pow.Tensor_Tensor(x, x.new_full((), number, dtype=torch.int64))
        elif dtype is not None and dtype.is_floating_point:
            # Eager mode converts exponents to half types only.
            is_converted = op is not aten.pow.Tensor_Scalar or dtype in HALVES
            for number in numbers:
                real = _real(number, dtype)
                if op in _COMPUTED_IN_FLOAT32:
                    _check_fits_float(real, torch.float32)
                elif op in _UNCHECKED_FLOATS and is_converted:
                    _check_fits_float(real, dtype)
        return NotImplemented if original is None else original(*args, **kwargs)

    return decomposed


def _rounded(
    op: torch._ops.OpOverload, names: tuple[str, ...], original: Callable[..., Any]
) -> Callable[..., Any]:
    """An operator of which numbers become those of the tensor's type first, infinite ones if they
    are beyond it."""

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        given = _named(op, args, kwargs)
        tensor = next(x for x in given.values() if isinstance(x, torch.Tensor))
        if tensor.device.type == "webgpu" and tensor.dtype.is_floating_point:
            held = {
                name: _held(given[name], tensor.dtype)
                for name in names
                if isinstance(given.get(name), (int, float))
            }
            args, kwargs = _changed(op, args, held), _of(kwargs, held)
        return original(*args, **kwargs)

    return decomposed


def _held(number: float, dtype: torch.dtype) -> float:
    try:
        number = float(number)
    except OverflowError:
        number = math.inf if number > 0 else -math.inf
    return float(torch.tensor(number, dtype=torch.float64, device="cpu").to(dtype).item())


def _with_checked_element(original: Callable[..., Any]) -> Callable[..., Any]:
    """`masked_fill` with a single element, which eager mode takes for a number."""

    def decomposed(x: Any, mask: Any, value: Any) -> Any:
        if x.device.type == "webgpu" and value.dim() == 0:
            check_element(value, x)
        return original(x, mask, value)

    return decomposed


def check_element(value: torch.Tensor, x: torch.Tensor) -> None:
    """Asserts on the device that a single element, which becomes a number of the type of `x`, fits
    it. Not of float64, which only the CPU compares, and of none that always fits."""
    source, dtype = value.dtype, x.dtype
    is_real = not (source.is_complex or source == torch.bool)
    if source == dtype or not is_real or not (is_integer_type(dtype) or dtype.is_floating_point):
        return
    if source == torch.float64:
        if dtype == torch.float32:
            return
        value = value.to(torch.float32)
    value = value.to(x.device)
    if dtype.is_floating_point:
        largest = torch.finfo(dtype).max
        limit = torch.finfo(source) if source.is_floating_point else torch.iinfo(source)
        if limit.max <= largest:
            return
        fits = value.abs() <= largest
        if source.is_floating_point:
            fits = fits | value.isinf() | value.isnan()
    elif source.is_floating_point:
        info = torch.iinfo(dtype)
        value = value.to(torch.float32)
        end = nearest_f32(info.max)
        is_below = value < end if end > info.max and dtype != torch.int64 else value <= end
        fits = (value >= float(info.min)) & is_below
    else:
        info, given = torch.iinfo(dtype), torch.iinfo(source)
        lowest = info.min if dtype.is_signed else -info.max
        if given.min >= lowest and given.max <= info.max:
            return
        wide = value.to(torch.int64)
        fits = (wide >= lowest) & (wide <= min(info.max, torch.iinfo(torch.int64).max))
    aten._assert_async.msg(fits, _overflow(dtype))


def _drawn(
    op: torch._ops.OpOverload,
    limits: tuple[str | None, str],
    original: Callable[..., Any] | None,
) -> Callable[..., Any]:
    """Random integers, of which the lowest and the highest must fit the type."""
    low_name, high_name = limits

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        given = _named(op, args, kwargs)
        dtype = _filled_type(given) if _device_type(given) == "webgpu" else None
        if dtype is not None and dtype != torch.int64:
            if dtype == torch.bool:
                lowest, largest = 0, 1
            elif dtype.is_floating_point:
                largest = int(torch.finfo(dtype).max)
                lowest = -largest
            else:
                lowest, largest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
            low = given[low_name] if low_name else 0
            numbers = {"from": low, "to - 1": given[high_name] - 1}
            for name, number in numbers.items():
                message = f"{name} is out of bounds for {_name(dtype)}"
                torch._check(number >= lowest, lambda message=message: message)
                torch._check(number <= largest, lambda message=message: message)
        return NotImplemented if original is None else original(*args, **kwargs)

    return decomposed


def _by_tensor(
    op: torch._ops.OpOverload,
    single: Callable[..., Any],
    original: Callable[..., Any] | None,
) -> Callable[..., Any]:
    """An operator on a list, which is an operator for each tensor where numbers may not fit.

    That operator checks them, or is computed otherwise than Inductor computes the list.
    """

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        given = _named(op, args, kwargs)
        lists = [value for value in given.values() if isinstance(value, (list, tuple))]
        tensors = [x for xs in lists for x in xs]
        is_ours = any(x.device.type == "webgpu" for x in tensors)
        is_boolean = any(isinstance(x, (bool, torch.SymBool)) for x in given.values())
        if is_ours and (is_boolean or not all(x.dtype.is_floating_point for x in tensors)):
            factors = {name: given.pop(name) for name in ("alpha", "value") if name in given}
            count = len(lists[0])
            columns = [
                value if isinstance(value, (list, tuple)) else [value] * count
                for value in given.values()
            ]
            return [single(*row, **factors) for row in zip(*columns, strict=True)]
        return NotImplemented if original is None else original(*args, **kwargs)

    return decomposed


def _named(op: torch._ops.OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by their names, in the order of the schema."""
    places = [argument.name for argument in op._schema.arguments]
    return {**dict(zip(places, args, strict=False)), **kwargs}


def _changed(op: torch._ops.OpOverload, args: Any, values: dict[str, Any]) -> tuple[Any, ...]:
    """Positional arguments, of which those that are named have other values."""
    places = [argument.name for argument in op._schema.arguments]
    return tuple(values.get(name, arg) for name, arg in zip(places, args, strict=False))


def _of(kwargs: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments, of which those that are named have other values."""
    return {name: values.get(name, arg) for name, arg in kwargs.items()}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_sum(op: torch._ops.OpOverload, given: dict[str, Any], dtype: torch.dtype) -> None:
    """Raises for booleans and floating factors, which Inductor takes for integers."""
    alpha = given.get("alpha", 1)
    if op in _DIFFERENCES:
        for x in (given["self"], given["other"]):
            is_boolean = isinstance(x, torch.Tensor) and x.dtype == torch.bool
            is_boolean = is_boolean or isinstance(x, (bool, torch.SymBool))
            torch._check(not is_boolean, lambda: _BOOLEAN_OPERAND)
    is_boolean = isinstance(alpha, (bool, torch.SymBool))
    torch._check(not is_boolean or dtype == torch.bool, lambda: _BOOLEAN_FACTOR)
    is_floating = isinstance(alpha, (float, complex, torch.SymFloat))
    has_fractions = dtype.is_floating_point or dtype.is_complex
    torch._check(not is_floating or has_fractions, lambda: _FLOATING_FACTOR)


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
    if isinstance(number, (bool, torch.SymBool)):
        return  # 0 and 1 fit
    if isinstance(number, torch.SymInt) and dtype == torch.int64:
        return
    number = _real(number, dtype)
    info = torch.iinfo(dtype)
    lowest: int = info.min
    largest: float = info.max
    is_integer = isinstance(number, (int, torch.SymInt))
    if is_integer and not dtype.is_signed and (dtype == torch.uint8 or not is_bound):
        lowest = -info.max
    if not is_integer:
        largest = float(largest)  # eager mode compares floats, as which 2**63 - 1 is 2**63

    # Comparisons with NaN are false, so that it raises.
    torch._check(number >= lowest, lambda: _overflow(dtype))
    torch._check(number <= largest, lambda: _overflow(dtype))


def _check_fits_float(number: Any, dtype: torch.dtype) -> None:
    """Raises for finite numbers that the type does not have."""
    largest = torch.finfo(dtype).max
    if isinstance(number, float) and not math.isfinite(number):
        return
    # Sizes are not beyond the other types. Of a float that is no constant, nothing is known here.
    if isinstance(number, (int, float)) or (
        isinstance(number, torch.SymInt) and dtype == torch.float16
    ):
        torch._check(number >= -largest, lambda: _overflow(dtype))
        torch._check(number <= largest, lambda: _overflow(dtype))


def _real(number: Any, dtype: torch.dtype) -> Any:
    if not isinstance(number, complex):
        return number
    torch._check(number.imag == 0, lambda: _overflow(dtype))
    return number.real


def _overflow(dtype: torch.dtype) -> str:
    return f"value cannot be converted to type {_name(dtype)} without overflow"

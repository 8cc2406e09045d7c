"""Functions of PyTorch's with dynamic sizes by others, where Python asks for sizes on its way."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode, resolve_name

from torch_webgpu.export._composites import for_each, scaled_size
from torch_webgpu.export._sizes import is_sized


class SizedFunctions(TorchFunctionMode):
    """Replaces functions of which PyTorch's own form asks for sizes on its way."""

    def __init__(self) -> None:
        super().__init__()
        # The last error about a size that was asked for, and the function that asked.
        self.refused: tuple[Exception, str] | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        replaced = _functions().get(func)
        try:
            found = replaced(*args, **(kwargs or {})) if replaced else NotImplemented
            return func(*args, **(kwargs or {})) if found is NotImplemented else found
        except GuardOnDataDependentSymNode as error:
            if self.refused is None or self.refused[0] is not error:  # the innermost function
                self.refused = error, resolve_name(func) or f"{func.__module__}.{func.__name__}"
            raise


@functools.cache
def _functions() -> dict[Any, Callable[..., Any]]:
    """By the function of PyTorch's. They return NotImplemented as decompositions do."""
    return {
        torch.linspace: _linspace,
        F.affine_grid: _affine_grid,
        F.interpolate: _interpolate,
    }


def _linspace(start: Any, end: Any, steps: Any, **options: Any) -> Any:
    dtype = options.get("dtype") or torch.get_default_dtype()
    if isinstance(steps, int) or any(isinstance(x, torch.Tensor) for x in (start, end)):
        return NotImplemented
    if options.get("out") is not None or not dtype.is_floating_point:
        return NotImplemented
    requires_grad = options.pop("requires_grad", False)
    places = torch.arange(steps, **{**options, "dtype": dtype})
    # From both ends, as PyTorch does, so that the last element is `end`.
    to_end, from_end = places, places - (steps - 1)
    if start > end:  # a file's quotients of sizes are not negative
        to_end, from_end = -to_end, -from_end
    step = abs(end - start) / torch.sym_max(steps - 1, 1)
    found = torch.where(2 * places < steps, start + to_end * step, end + from_end * step)
    return found.requires_grad_(requires_grad)


def _affine_grid(
    theta: torch.Tensor, size: Sequence[Any], align_corners: bool | None = None
) -> Any:
    """PyTorch's own compares sizes with 0."""
    if all(isinstance(n, int) for n in size):
        return NotImplemented
    return torch.affine_grid_generator(theta, size, bool(align_corners))


def _interpolate(
    x: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Where of the factors only the sizes count that they make."""
    if not is_sized(x) or scale_factor is None or not (recompute_scale_factor or mode == "area"):
        return NotImplemented
    lengths = x.shape[2:]
    factors = for_each(len(lengths), scale_factor)
    sizes = [scaled_size(n, float(factor)) for n, factor in zip(lengths, factors, strict=True)]
    return F.interpolate(x, sizes, None, mode, align_corners, antialias=antialias)

"""Operators with dynamic sizes by others, before autograd sees them: PyTorch's own form asks for
sizes on its way. Their gradients are those of what they are made of."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from torch._C import DispatchKey

from torch_webgpu.export._order import end_of
from torch_webgpu.export._sizes import is_sized

aten = torch.ops.aten

_COMPOSITE = DispatchKey.CompositeImplicitAutograd
_AUTOGRAD = DispatchKey.Autograd
# Denominators of the factors of sizes, such as 1.5 or 1/3.
_LARGEST_DENOMINATOR = 1 << 10
# Sizes for which it is computed that a factor's multiple is rounded as the fraction's is.
_MOST_SIZES = 1 << 16


@contextlib.contextmanager
def sized_composites() -> Iterator[None]:
    """In the block, where operators are Python's to choose, these stand for PyTorch's own. Also
    where functions of PyTorch call them."""
    kept: list[tuple[Any, Any, Any]] = []
    for op, function in _functions().items():
        keys = [key for key in (_AUTOGRAD, _COMPOSITE) if key in op.py_kernels]
        is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), _COMPOSITE.name)
        for key in keys or [_COMPOSITE if is_composite else _AUTOGRAD]:
            before = op.py_kernels.get(key)
            kept.append((op, key, before))
            op.py_kernels[key] = _or_else(function, before or functools.partial(op._op_dk, key))
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, key, before in kept:
            if before is None:
                del op.py_kernels[key]
            else:
                op.py_kernels[key] = before
            op._dispatch_cache.clear()


def _or_else(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return other(*args, **kwargs) if found is NotImplemented else found

    return kernel


@functools.cache
def _functions() -> dict[Any, Callable[..., Any]]:
    """By operator. They return NotImplemented, which leaves the operator, if no size is dynamic."""
    found: dict[Any, Callable[..., Any]] = {
        aten.adaptive_avg_pool1d.default: functools.partial(_adaptive_average, 1),
        aten.adaptive_avg_pool2d.default: functools.partial(_adaptive_average, 2),
        aten.adaptive_avg_pool3d.default: functools.partial(_adaptive_average, 3),
        aten.adaptive_max_pool2d.default: functools.partial(_adaptive_maximum, 2),
        aten.adaptive_max_pool3d.default: functools.partial(_adaptive_maximum, 3),
        aten.affine_grid_generator.default: _affine_grid,
        aten.avg_pool1d.default: functools.partial(_average, 1),
        aten.avg_pool2d.default: functools.partial(_average, 2),
        aten.avg_pool3d.default: functools.partial(_average, 3),
        aten.cdist.default: _cdist,
        aten.corrcoef.default: _corrcoef,
        aten.cosine_similarity.default: _cosine_similarity,
        aten.cov.default: _cov,
        aten.grid_sampler_2d.default: _grid_sample,
        aten.kron.default: _kron,
        aten.max_pool1d.default: _maximum_of_rows,
        aten.max_pool2d_with_indices.default: functools.partial(_maximum, 2),
        aten.max_pool3d_with_indices.default: functools.partial(_maximum, 3),
        aten.scaled_dot_product_attention.default: _attention,
        aten.take_along_dim.default: _take_along_dim,
        aten.tensordot.default: _tensordot,
        aten.upsample_linear1d.default: functools.partial(_linear, 1),
        aten.upsample_bilinear2d.default: functools.partial(_linear, 2),
        aten.upsample_trilinear3d.default: functools.partial(_linear, 3),
        aten._upsample_bilinear2d_aa.default: functools.partial(_filtered, _triangle, 1),
        aten._upsample_bicubic2d_aa.default: functools.partial(_filtered, _cubic, 2),
        aten.vander.default: _vander,
    }
    for dims in (1, 2, 3):
        found[getattr(aten, f"upsample_nearest{dims}d").default] = functools.partial(_nearest, 0.0)
        exact = getattr(aten, f"_upsample_nearest_exact{dims}d").default
        found[exact] = functools.partial(_nearest, 0.5)
    for op in [op for op in found if "upsample" in op.name()] + [aten.upsample_bicubic2d.default]:
        found[op.overloadpacket.vec] = functools.partial(_scaled, op)
    return found


# ---- Products


def _tensordot(
    a: torch.Tensor, b: torch.Tensor, dims_a: Sequence[int], dims_b: Sequence[int]
) -> Any:
    if not is_sized(a, b):
        return NotImplemented
    dims_a, dims_b = [d % a.dim() for d in dims_a], [d % b.dim() for d in dims_b]
    for i, j in zip(dims_a, dims_b, strict=True):
        # One element counts as often as the other tensor has some.
        if _is_one(a.shape[i]) and not _is_one(b.shape[j]):
            b = b.sum(j, keepdim=True)
        elif _is_one(b.shape[j]) and not _is_one(a.shape[i]):
            a = a.sum(i, keepdim=True)
        torch._check(a.shape[i] == b.shape[j])
    kept_a = [d for d in range(a.dim()) if d not in dims_a]
    kept_b = [d for d in range(b.dim()) if d not in dims_b]
    shape = [a.shape[d] for d in kept_a] + [b.shape[d] for d in kept_b]
    length = math.prod(a.shape[d] for d in dims_a)
    rows = a.permute(*kept_a, *dims_a).reshape(math.prod(a.shape[d] for d in kept_a), length)
    columns = b.permute(*dims_b, *kept_b).reshape(length, math.prod(b.shape[d] for d in kept_b))
    return (rows @ columns).reshape(shape)


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _kron(a: torch.Tensor, b: torch.Tensor) -> Any:
    if not is_sized(a, b):
        return NotImplemented
    dims = max(a.dim(), b.dim())
    of_a, of_b = ([1] * (dims - x.dim()) + list(x.shape) for x in (a, b))
    shape = [n * m for n, m in zip(of_a, of_b, strict=True)]
    # In turns a dimension of the one and of the other.
    spread_a = a.reshape([size for n in of_a for size in (n, 1)])
    spread_b = b.reshape([size for n in of_b for size in (1, n)])
    return (spread_a * spread_b).reshape(shape)


def _cov(
    x: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> Any:
    given = [weights for weights in (fweights, aweights) if weights is not None]
    if not is_sized(x, *given) or x.dim() > 2:
        return NotImplemented
    rows = x if x.dim() == 2 else x.reshape(1, -1)
    if not given:
        centred = weighted = rows - rows.sum(1, keepdim=True) / rows.shape[1]
        factor: Any = torch.sym_max(rows.shape[1] - correction, 0)
    else:
        weights = math.prod(given[1:], start=given[0])
        total = weights.sum()
        centred = rows - (rows * weights).sum(1, keepdim=True) / total
        weighted = centred * weights
        lost = correction if aweights is None else correction * (weights * aweights).sum() / total
        factor = (total - lost).clamp(min=0)
    return (centred @ weighted.T.conj() / factor).squeeze()


def _corrcoef(x: torch.Tensor) -> Any:
    if not is_sized(x) or x.dim() > 2 or x.is_complex():
        return NotImplemented
    covariance = torch.cov(x)
    if covariance.dim() == 0:
        return covariance / covariance
    deviations = covariance.diagonal().sqrt()
    return (covariance / deviations[:, None] / deviations).clamp(-1, 1)


def _vander(x: torch.Tensor, N: Any = None, increasing: bool = False) -> Any:
    if not is_sized(x):
        return NotImplemented
    exponents = torch.arange(x.shape[0] if N is None else N, device=x.device)
    if not increasing:
        exponents = exponents.flip(0)
    base = x if x.is_floating_point() or x.is_complex() else x.long()
    return base[:, None] ** exponents


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """PyTorch computes with roots of the factor, which is no number if the head's size is none."""
    width = query.shape[-1]
    if scale is not None or isinstance(width, int):
        return NotImplemented
    dtype = query.dtype
    # Halves are rounded once, as PyTorch does.
    query, key, value = (x.float() if x.dtype.itemsize == 2 else x for x in (query, key, value))
    if attn_mask is not None and attn_mask.is_floating_point():
        attn_mask = attn_mask.to(query.dtype)
    found = F.scaled_dot_product_attention(
        query * width**-0.5,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale=1.0,
        enable_gqa=enable_gqa,
    )
    return found.to(dtype)


# ---- Distances and indices


def _cdist(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2, compute_mode: int | None = None
) -> Any:
    """By differences in any case: sizes would decide whether it is a product."""
    if not is_sized(x1, x2):
        return NotImplemented
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    x1, x2 = (x.expand(*batch, *x.shape[-2:]) for x in (x1, x2))
    return aten._cdist_forward(x1, x2, p, 2)


def _cosine_similarity(x1: torch.Tensor, x2: torch.Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    if not is_sized(x1, x2):
        return NotImplemented
    dtype = torch.result_type(x1, x2)
    x1, x2 = torch.broadcast_tensors(x1.to(dtype), x2.to(dtype))
    return (_of_length_one(x1, dim, eps) * _of_length_one(x2, dim, eps)).sum(dim)


def _of_length_one(x: torch.Tensor, dim: int, eps: float) -> torch.Tensor:
    length = torch.linalg.vector_norm(x, 2, dim, keepdim=True).clone()
    with torch.no_grad():  # so that short vectors have the gradient that PyTorch gives them
        length.clamp_min_(eps)
    return x / length


def _take_along_dim(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> Any:
    if not is_sized(x, indices):
        return NotImplemented
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    dim = dim % x.dim()
    others = [d for d in range(x.dim()) if d != dim]
    sizes = torch.broadcast_shapes([x.shape[d] for d in others], [indices.shape[d] for d in others])
    shapes = [list(sizes), list(sizes)]
    for shape, tensor in zip(shapes, (x, indices), strict=True):
        shape.insert(dim, tensor.shape[dim])
    return x.expand(shapes[0]).gather(dim, indices.expand(shapes[1]))


# ---- Pooling, one dimension after the other


def _adaptive_average(dims: int, x: torch.Tensor, output_size: Sequence[Any]) -> Any:
    """For each dimension, a result sums those of all elements that are its part."""
    if not is_sized(x):
        return NotImplemented
    for d, size in enumerate(output_size, x.dim() - dims):
        if _is_one(size):
            x = x.mean(d, keepdim=True)
            continue
        _, is_part, counts = _adaptive_parts(x, d, size)
        sums = torch.where(is_part, x.movedim(d, -1).unsqueeze(-2), 0).sum(-1)
        x = (sums / counts).movedim(-1, d)
    return x


def _adaptive_parts(
    x: torch.Tensor, d: int, size: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each result all places along a dimension, which of them are its part, and how many."""
    results, length = torch.arange(size, device=x.device)[:, None], x.shape[d]
    first, end = results * length // size, ((results + 1) * length + size - 1) // size
    places = torch.arange(length, device=x.device)
    is_part = (places >= first) & (places < end)
    return places.expand(first.shape[0], length), is_part, (end - first).squeeze(1)


def _adaptive_maximum(dims: int, x: torch.Tensor, output_size: Sequence[Any]) -> Any:
    if not is_sized(x):
        return NotImplemented

    def places_of(d: int) -> tuple[torch.Tensor, torch.Tensor]:
        places, is_part, _ = _adaptive_parts(x, d, output_size[d - x.dim() + dims])
        return places, is_part

    return _maxima(x, dims, places_of)


def _maxima(
    x: torch.Tensor, dims: int, places_of: Callable[[int], tuple[torch.Tensor, torch.Tensor]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest elements, and their numbers in the last `dims` dimensions.

    places_of: for a dimension the places that each result looks at, and which of these count.
    """
    first = x.dim() - dims
    with torch.no_grad():
        values, numbers = x.detach(), None
        length = 1
        # From the last dimension on, so that the first element of several that are largest is the
        # one that PyTorch takes.
        for d in range(x.dim() - 1, first - 1, -1):
            places, counts = places_of(d)
            values, found = _largest(values, d, places, counts)
            chosen = numbers.gather(d, found) if numbers is not None else 0
            numbers = found * length + chosen
            length = length * x.shape[d]
    assert numbers is not None
    flat = numbers.reshape(*numbers.shape[:first], -1)
    return x.flatten(first).gather(-1, flat).reshape(numbers.shape), numbers


def _largest(
    x: torch.Tensor, d: int, places: torch.Tensor, counts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Along a dimension the largest of the elements at each row of places, and its place."""
    length = x.shape[d]
    windows = x.movedim(d, -1)[..., places.clamp(0, length - 1)]
    windows = torch.where(counts, windows, end_of(x.dtype, False))
    values = windows.amax(-1, keepdim=True)
    is_largest = windows == values
    if x.is_floating_point():
        is_largest = is_largest | windows.isnan()
    found = torch.where(is_largest & counts, places, length - 1).amin(-1)
    return values.squeeze(-1).movedim(-1, d), found.movedim(-1, d)


def _windows(
    x: torch.Tensor, d: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> torch.Tensor:
    """The places of each window along a dimension. Some may be in the padding or beyond."""
    length = x.shape[d]
    left_over = length + 2 * padding - dilation * (kernel - 1) - 1
    count = (left_over + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode:  # the last one starts before the padding at the end
        count = torch.sym_min(count, (length + padding - 1) // stride + 1)
    torch._check(count >= 1)
    starts = torch.arange(count, device=x.device)[:, None] * stride - padding
    return starts + torch.arange(kernel, device=x.device) * dilation


def for_each(dims: int, values: Any, default: Any = None) -> list[Any]:
    """A value for each dimension, of one for all or one each; `default` if there are none."""
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    values = values or default
    return list(values) * dims if len(values) == 1 else list(values)


def _maximum(
    dims: int,
    x: torch.Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    kernel, padding, dilation = (for_each(dims, values) for values in (kernel, padding, dilation))
    stride = for_each(dims, stride, kernel)
    if not is_sized(x) or not (ceil_mode or math.prod(kernel) > _MOST_OF_A_WINDOW):
        return NotImplemented
    first = x.dim() - dims

    def places_of(d: int) -> tuple[torch.Tensor, torch.Tensor]:
        k = d - first
        places = _windows(x, d, kernel[k], stride[k], padding[k], dilation[k], ceil_mode)
        return places, (places >= 0) & (places < x.shape[d])

    return _maxima(x, dims, places_of)


# Larger windows are not written out by the compiler.
_MOST_OF_A_WINDOW = 25


def _maximum_of_rows(
    x: torch.Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    if not is_sized(x):
        return NotImplemented
    kernel, padding, dilation = (for_each(1, values) for values in (kernel, padding, dilation))
    (stride,) = for_each(1, stride, kernel)
    found = aten.max_pool2d(
        x.unsqueeze(-2), [1, *kernel], [1, stride], [0, *padding], [1, *dilation], ceil_mode
    )
    return found.squeeze(-2)


def _average(
    dims: int,
    x: torch.Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    kernel, padding = (for_each(dims, values) for values in (kernel, padding))
    stride = for_each(dims, stride, kernel)
    if not is_sized(x) or not (ceil_mode or math.prod(kernel) > _MOST_OF_A_WINDOW):
        return NotImplemented
    for k, d in enumerate(range(x.dim() - dims, x.dim())):
        length = x.shape[d]
        if dims == 3:
            torch._check(length >= kernel[k])
        places = _windows(x, d, kernel[k], stride[k], padding[k], 1, ceil_mode)
        is_inside = (places >= 0) & (places < length)
        windows = x.movedim(d, -1)[..., places.clamp(0, length - 1)]
        sums = torch.where(is_inside, windows, 0).sum(-1)
        if divisor_override is None:
            # Padding counts, but nothing beyond it.
            counted = places < length + padding[k] if count_include_pad else is_inside
            sums = sums / counted.sum(-1)
        x = sums.movedim(-1, d)
    return x if divisor_override is None else x / divisor_override


# ---- Interpolation


def _scaled(op: Any, x: torch.Tensor, sizes: Any, *options: Any) -> Any:
    """With the sizes that factors make, which are the last of the options."""
    *others, factors = options
    if not is_sized(x):
        return NotImplemented
    if factors is None:
        factors = [None] * len(sizes)
    else:
        sizes = [scaled_size(n, factor) for n, factor in zip(x.shape[2:], factors, strict=True)]
    return op(x, sizes, *others, *factors)


def scaled_size(size: Any, factor: float) -> Any:
    """int(size * factor), as a product and a quotient of integers."""
    if isinstance(size, int):
        return int(size * factor)
    found = Fraction(factor).limit_denominator(_LARGEST_DENOMINATOR)
    numerator, denominator = found.numerator, found.denominator
    bounds = size.node.shape_env.bound_sympy(size.node.expr)
    sizes = range(int(bounds.lower), int(bounds.upper) + 1)
    # What is rounded otherwise than the fraction is another number.
    if len(sizes) > _MOST_SIZES or any(
        int(n * factor) != n * numerator // denominator for n in sizes
    ):
        raise RuntimeError(
            f"{factor} times a size that a call decides is no quotient of integers for all sizes"
        )
    scaled = size * numerator // denominator
    torch._check(scaled >= 1)
    return scaled


def _nearest(offset: float, x: torch.Tensor, sizes: Sequence[Any], *factors: float | None) -> Any:
    if not is_sized(x):
        return NotImplemented
    options = factors or [None] * len(sizes)
    for d, size, factor in zip(range(2, x.dim()), sizes, options, strict=True):
        length = x.shape[d]
        places = torch.arange(size, device=x.device, dtype=torch.float32)
        sources = ((places + offset) * _ratio(length, size, False, factor)).long()
        x = x.index_select(d, sources.clamp(max=length - 1))
    return x


def _linear(
    dims: int, x: torch.Tensor, sizes: Sequence[Any], align_corners: bool, *factors: float | None
) -> Any:
    """Between two neighbours along each dimension."""
    if not is_sized(x) or not x.is_floating_point():
        return NotImplemented
    found = x.float()
    for d, size, factor in zip(range(2, 2 + dims), sizes, factors or [None] * dims, strict=True):
        length = x.shape[d]
        places = torch.arange(size, device=x.device, dtype=torch.float32)
        ratio = _ratio(length, size, align_corners, factor)
        source = places * ratio if align_corners else ((places + 0.5) * ratio - 0.5).clamp(min=0)
        first = source.long().clamp(max=length - 1)
        second = (first + 1).clamp(max=length - 1)
        weight = (source - first).clamp(0, 1).reshape([-1] + [1] * (x.dim() - 1 - d))
        found = found.index_select(d, first) * (1 - weight) + (
            found.index_select(d, second) * weight
        )
    return found.to(x.dtype)


def _ratio(length: Any, size: Any, align_corners: bool, factor: float | None) -> Any:
    """How far apart the sources of neighbours are."""
    if align_corners:
        return (length - 1) / torch.sym_max(size - 1, 1)
    return 1 / factor if factor else length / size


def _filtered(
    weight_of: Callable[[torch.Tensor], torch.Tensor],
    reach: int,
    x: torch.Tensor,
    sizes: Sequence[Any],
    align_corners: bool,
    *factors: float | None,
) -> Any:
    """Each result is a weighted mean along each dimension: a product with a matrix of weights."""
    if not is_sized(x) or not x.is_floating_point():
        return NotImplemented
    found = x.float()
    for d, size, factor in zip((2, 3), sizes, factors or [None, None], strict=True):
        length = x.shape[d]
        ratio = _ratio(length, size, align_corners, factor)
        places = torch.arange(size, device=x.device, dtype=torch.float32)[:, None]
        # Numbers of one element, as sizes are no numbers yet.
        ratio = torch.ones((), device=x.device) * ratio
        scale = ratio.clamp(min=1)
        centre = (places + 0.5) * ratio
        first = (centre - reach * scale + 0.5).long().clamp(min=0)
        end = (centre + reach * scale + 0.5).long().clamp(max=length)
        sources = torch.arange(length, device=x.device)
        weights = weight_of((sources + 0.5 - centre) / scale)
        weights = torch.where((sources >= first) & (sources < end), weights, 0)
        weights = weights / weights.sum(1, keepdim=True)
        found = (found.movedim(d, -1) @ weights.T).movedim(-1, d)
    return found.to(x.dtype)


def _triangle(distance: torch.Tensor) -> torch.Tensor:
    return (1 - distance.abs()).clamp(min=0)


def _cubic(distance: torch.Tensor) -> torch.Tensor:
    """Keys' kernel with the parameter that PyTorch has for antialiasing."""
    x = distance.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _affine_grid(theta: torch.Tensor, size: Sequence[Any], align_corners: bool) -> Any:
    if all(isinstance(n, int) for n in size):
        return NotImplemented
    lengths = list(size[2:])
    found: Any = theta[:, :, -1].reshape([-1, *[1] * len(lengths), len(lengths)])
    for d, length in enumerate(lengths):
        places = torch.arange(length, device=theta.device, dtype=theta.dtype)
        # From -1 to 1, and 0 where there is one.
        divisor = torch.sym_max(length - 1, 1) if align_corners else length
        places = (2 * places - (length - 1)) / divisor
        column = theta[:, :, len(lengths) - 1 - d]
        found = found + places.reshape([-1, *[1] * (len(lengths) - d)]) * column.reshape(
            [-1, *[1] * len(lengths), len(lengths)]
        )
    return found


def _grid_sample(x: torch.Tensor, grid: torch.Tensor, *options: Any) -> Any:
    from torch._decomp import decomposition_table

    if not is_sized(x, grid):
        return NotImplemented
    return decomposition_table[aten.grid_sampler_2d.default](x, grid, *options)

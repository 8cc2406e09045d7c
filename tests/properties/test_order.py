"""What orders or selects, over NaN, infinities, zeros of both signs, denormals, ties, empty and 0-d
tensors and layouts, compared with the CPU.

Left out is where the CPU is no reference: the order of NaNs among each other (unique's inverse and
rows, mode), and the remainder by a denormal number."""

import math

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import FLOATS, INTEGERS, layouts, seeds, shapes
from torch.testing import assert_close

DEVICE = "webgpu"
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 2.0, 2.0, -3.5)
NEAR = {"rtol": 2e-2, "atol": 2e-2}


def special_numbers(length, dtype, seed, finite=False):
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -5
        return torch.randint(low, 7, (length,), generator=generator).to(dtype)
    pool = torch.tensor([x for x in SPECIAL if math.isfinite(x)] if finite else SPECIAL)
    chosen = pool[torch.randint(0, len(pool), (length,), generator=generator)]
    near = torch.randn(length, generator=generator) * 2
    return torch.where(torch.rand(length, generator=generator) < 0.6, chosen, near).to(dtype)


def outcome(function, *values):
    try:
        result = function(*values)
    except (RuntimeError, IndexError, ValueError) as error:
        # What the CPU cannot do by a mistake of its own has no reference either.
        return NotImplementedError if "INTERNAL ASSERT" in str(error) else type(error)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def compare(function, *values, **tolerances):
    """Values is (flat tensor, layout) each, or a plain tensor."""

    def placed(device):
        return [
            value[1].of(value[0].to(device)) if isinstance(value, tuple) else value.to(device)
            for value in values
        ]

    expected = outcome(function, *placed("cpu"))
    if expected is NotImplementedError:
        return  # no reference for this dtype
    actual = outcome(function, *placed(DEVICE))
    if isinstance(expected, type) or isinstance(actual, type):
        assert actual == expected
        return
    for one, other in zip(actual, expected, strict=True):
        assert one.device.type == DEVICE
        assert_close(one.cpu(), other, equal_nan=True, **tolerances)


def order_free(x):
    """Distinct values and their counts, and what the inverse leads to."""
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return values, counts, values[inverse]


def apart(x):
    """The CPU reads past expanded tensors: there, elements get a place each."""
    return x.contiguous() if x.device.type == "cpu" else x


# Of a tensor x and a dimension.
ALONG = {
    "sort": lambda x, d: x.sort(dim=d, stable=True),
    "sort down": lambda x, d: x.sort(dim=d, stable=True, descending=True),
    "argsort": lambda x, d: x.argsort(dim=d, stable=True),
    "topk": lambda x, d: x.topk(min(2, x.size(d)) if x.dim() else 1, d)[0],
    "topk least": lambda x, d: x.topk(min(2, x.size(d)) if x.dim() else 1, d, False)[0],
    "kthvalue": lambda x, d: x.kthvalue(1, d)[0],
    "median": lambda x, d: apart(x).median(d)[0],
    "nanmedian": lambda x, d: apart(x).nanmedian(d, keepdim=True)[0],
    "cummax": lambda x, d: x.cummax(d),
    "cummin": lambda x, d: x.cummin(d),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
    "max": lambda x, d: x.max(d),
    "min": lambda x, d: x.min(d),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "unique_consecutive": lambda x, d: torch.unique_consecutive(
        x, return_inverse=True, return_counts=True
    ),
    "unique": lambda x, d: order_free(x),
    "searchsorted": lambda x, d: torch.searchsorted(
        x.movedim(d, -1).contiguous(), x.movedim(d, -1).contiguous(), right=d == 0
    ),
    "bucketize": lambda x, d: torch.bucketize(x.contiguous(), x.reshape(-1)[:7], right=d != 0),
    "any": lambda x, d: x.any(d),
    "count_nonzero": lambda x, d: x.count_nonzero(d),
    "nonzero": lambda x, d: x.nonzero(),
    "flip": lambda x, d: x.flip(d) if x.dim() else x,
}


@given(st.data(), shapes(3), st.sampled_from((*FLOATS, *INTEGERS)), st.sampled_from(sorted(ALONG)))
@settings(max_examples=250)
def test_along_a_dimension(data, shape, dtype, name):
    layout = data.draw(layouts(shape, overlapping=True))
    base = special_numbers(layout.length, dtype, data.draw(seeds))
    dim = data.draw(st.integers(0, max(len(shape) - 1, 0)))
    compare(lambda x: ALONG[name](x, dim), (base, layout))


PAIRS = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "isin": lambda x, y: torch.isin(x.contiguous(), y.contiguous()),
    "not isin": lambda x, y: torch.isin(x.contiguous(), y.contiguous(), invert=True),
    "clamp": lambda x, y: x.clamp(y, y.flip(0) if y.dim() else y),
    "clamp to numbers": lambda x, y: x.clamp(0, 2),
    "eq": torch.eq,
    "lt": torch.lt,
    "isclose": lambda x, y: torch.isclose(x, y, equal_nan=True),
    "nan_to_num": lambda x, y: x.nan_to_num(nan=1.0),
    "where": lambda x, y: torch.where(x > y, x, y),
}


@given(st.data(), shapes(3), st.sampled_from((*FLOATS, *INTEGERS)), st.sampled_from(sorted(PAIRS)))
@settings(max_examples=120)
def test_pairs(data, shape, dtype, name):
    operands = []
    for _ in range(2):
        layout = data.draw(layouts(shape, overlapping=True))
        operands.append((special_numbers(layout.length, dtype, data.draw(seeds)), layout))
    compare(PAIRS[name], *operands)


REDUCTIONS = {
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of -inf": lambda x: F.softmax(torch.full_like(x, -math.inf), -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
    "norm": lambda x: torch.linalg.vector_norm(x, 3, dim=-1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, math.inf, dim=-1),
    "norm -inf": lambda x: torch.linalg.vector_norm(x, -math.inf, dim=-1),
    "norm 0": lambda x: torch.linalg.vector_norm(x, 0, dim=-1),
    "nansum": lambda x: torch.nansum(x, -1),
    "nanmean": lambda x: torch.nanmean(x, -1),
    "quantile": lambda x: torch.quantile(x.float(), 0.3, dim=-1),
    "nanquantile": lambda x: torch.nanquantile(x.float(), 0.5, dim=-1),
    "cdist 1": lambda x: torch.cdist(x, x.flip(0), 1.0),
    "cdist 3": lambda x: torch.cdist(x, x.flip(0), 3.0),
    "pdist": lambda x: torch.pdist(x, 1.0),
    "diff": torch.diff,
}


@given(
    st.data(), st.integers(1, 5), st.integers(1, 9), st.sampled_from(FLOATS),
    st.sampled_from(sorted(REDUCTIONS)),
)  # fmt: skip
@settings(max_examples=60)
def test_reductions(data, rows, columns, dtype, name):
    layout = data.draw(layouts((rows, columns), overlapping=True))
    base = special_numbers(layout.length, dtype, data.draw(seeds))
    compare(REDUCTIONS[name], (base, layout), **NEAR)


REDUCED_INTO = ("amax", "amin", "mean", "prod")


@given(
    st.data(), st.sampled_from(["scatter_reduce", "index_reduce", "segment_reduce"]),
    st.sampled_from(REDUCED_INTO), st.sampled_from(FLOATS), st.booleans(), seeds,
)  # fmt: skip
@settings(max_examples=40)
def test_reducing_into_places(data, name, how, dtype, include_self, seed):
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    # Without denormals, whose products a device may flush.
    x, y = (special_numbers(rows * columns, dtype, seed + k).view(rows, columns) for k in range(2))
    x, y = (torch.where(t.abs() < 1e-6, 0.0, t) for t in (x, y))
    chosen = torch.randint(0, rows, (rows,), generator=torch.Generator().manual_seed(seed))
    if name == "segment_reduce":
        cut = data.draw(st.integers(0, rows))
        lengths = torch.tensor([cut, 0, rows - cut])
        how = how.removeprefix("a")
        compare(lambda x, n: torch.segment_reduce(x, how, lengths=n), x, lengths, **NEAR)
    elif name == "index_reduce":
        compare(
            lambda x, i, y: x.index_reduce(0, i, y, how, include_self=include_self),
            x, chosen, y, **NEAR,
        )  # fmt: skip
    else:
        places = chosen.view(-1, 1).expand(rows, columns).contiguous()
        compare(
            lambda x, i, y: x.scatter_reduce(0, i, y, how, include_self=include_self),
            x, places, y, **NEAR,
        )  # fmt: skip


@given(st.data(), st.integers(1, 3), st.sampled_from(FLOATS), seeds)
@settings(max_examples=40)
def test_neighbourhoods(data, dims, dtype, seed):
    """Pooling, padding and resampling by the nearest, with what is not finite."""
    shape = (2, 3, *[data.draw(st.integers(3, 6)) for _ in range(dims)])
    x = special_numbers(math.prod(shape), dtype, seed).view(shape)
    kind = data.draw(st.sampled_from(["max", "adaptive", "average", "pad", "resample"]))
    if kind == "max":
        pool = getattr(F, f"max_pool{dims}d")
        compare(lambda x: pool(x, 3, stride=2, padding=1, return_indices=True), x)
    elif kind == "adaptive":
        compare(lambda x: getattr(F, f"adaptive_max_pool{dims}d")(x, 2, return_indices=True), x)
    elif kind == "average":
        compare(lambda x: getattr(F, f"avg_pool{dims}d")(x, 2), x, **NEAR)
    elif kind == "pad":
        mode = data.draw(st.sampled_from(["constant", "reflect", "replicate", "circular"]))
        sides = [data.draw(st.integers(0, 2)) for _ in range(2 * dims)]
        compare(lambda x: F.pad(x, sides, mode=mode), x)
    else:
        mode = data.draw(st.sampled_from(["nearest", "nearest-exact"]))
        size = [data.draw(st.integers(1, 9)) for _ in range(dims)]
        compare(lambda x: F.interpolate(x, size=size, mode=mode), x)


MODES = {
    1: ("nearest", "nearest-exact", "linear"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic", "bilinear-aa", "bicubic-aa"),
    3: ("nearest", "nearest-exact", "trilinear"),
}
FACTORS = st.one_of(
    st.sampled_from([0.5, 1.0, 1.1, 1.3, 2.0, 2.01, 2.3]),
    st.integers(4, 30).map(lambda tenth: tenth / 10),
)


@given(st.data(), st.integers(1, 3), seeds)
@settings(max_examples=60)
def test_resampling_by_a_factor(data, dims, seed):
    name = data.draw(st.sampled_from(MODES[dims]))
    size = [data.draw(st.integers(3, 7)) for _ in range(dims)]
    factors = [data.draw(FACTORS) for _ in range(dims)]
    out = [int(one * factor) for one, factor in zip(size, factors, strict=True)]
    options = {"mode": name.removesuffix("-aa"), "antialias": name.endswith("-aa")}
    if options["antialias"]:
        # The CPU ignores the factor of a size that stays, with CUDA it counts; and a single column
        # repeats the first row there.
        factors = [
            1.0 if new == one or new < 2 else factor
            for one, new, factor in zip(size, out, factors, strict=True)
        ]
    if not name.startswith("nearest"):
        options["align_corners"] = data.draw(st.booleans())
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, *size, generator=generator, requires_grad=True)
    moved = x.detach().to(DEVICE).requires_grad_()
    expected = F.interpolate(x, scale_factor=factors, **options)
    actual = F.interpolate(moved, scale_factor=factors, **options)
    assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
    weights = torch.randn(expected.shape, generator=generator)
    (gradient,) = torch.autograd.grad(actual, moved, weights.to(DEVICE))
    if name == "nearest":
        # The transpose of the result, as with CUDA: the CPU's gradient ignores the factor of a size
        # that stays or doubles.
        places = torch.arange(float(x.numel())).view(x.shape)
        taken = F.interpolate(places, scale_factor=factors).long().flatten()
        reference = torch.zeros(x.numel()).index_add(0, taken, weights.flatten()).view(x.shape)
    else:
        (reference,) = torch.autograd.grad(expected, x, weights)
    if name != "bicubic" or out != size:  # where the CPU's gradient is a copy, unlike its result
        assert_close(gradient.cpu(), reference, rtol=1e-4, atol=1e-5)

"""Operators over sizes that a call decides, in a file, compared with PyTorch on the CPU: their
results, and the gradients of the function's inputs."""

import logging
import pathlib
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

INF, NAN = float("inf"), float("nan")


def with_gradients(function):
    """Returns the results, and the gradients of a number that depends on each of them."""

    def call(**inputs):
        leaves = {name: x.detach().requires_grad_() for name, x in inputs.items()}
        results = function(**leaves)
        total = 0
        for result in results.values():
            if result.requires_grad:
                weights = torch.arange(result.numel(), device=result.device).mul(0.7).cos()
                total = total + (result * result * weights.reshape(result.shape)).sum()
        gradients = torch.autograd.grad(total, list(leaves.values()))
        named = dict(zip((f"gradient of {name}" for name in leaves), gradients, strict=True))
        return {**{name: x.detach() for name, x in results.items()}, **named}

    return call


def compare(path, function, make, shapes, sizes, tolerance=1e-3):
    """Exports the function at the first of the sizes, which is the largest, and plays it at all."""
    torch.manual_seed(0)
    inputs = make(*sizes[0])
    torch.webgpu.export(
        lambda **x: list(function(**x).values()), inputs, path, dynamic_shapes=shapes
    )
    graph = torch.webgpu.Graph.load(path)
    for size in sizes:
        given = make(*size)
        results = graph(**given)
        for k, (name, wanted) in enumerate(function(**given).items()):
            torch.testing.assert_close(
                results[f"output{k}"].cpu(),
                wanted,
                rtol=tolerance,
                atol=tolerance / 10,
                equal_nan=True,
                msg=lambda text, name=name, size=size: f"{name} at {size}: {text}",
            )


def pair(found):
    return dict(zip(("values", "indices"), found, strict=True))


def named(name, results):
    return {f"{name} {key}": value for key, value in results.items()}


# ---- Rows

ROWS = {
    "running extremes": lambda x: {
        **named("up", pair(x.cummax(0))),
        **named("down", pair(x.round().cummin(1))),
    },
    "medians": lambda x: {
        **named("first", pair(x.median(0))),
        **named("second", pair(x.median(1, keepdim=True))),
        "all": x.median(),
        "one": x[:, 3].median(0).values,
        "without NaN": (x + 1).log().nanmedian(0).values,
        "all without NaN": (x + 1).log().nanmedian(),
    },
    "elements of a rank": lambda x: {
        **named("third", pair(x.kthvalue(3, 1))),
        **named("last", pair(x.kthvalue(x.shape[0], 0, keepdim=True))),
        "frequent": (2 * x).round().mode(0).values,
    },
    "quantiles": lambda x: {
        "first": x.quantile(0.3, 0),
        "second": x.quantile(0.7, 1, keepdim=True),
        "all": x.quantile(0.9),
        **{
            kind: x.quantile(
                torch.tensor([0.0, 0.2, 0.5, 1.0], device=x.device), 0, interpolation=kind
            )
            for kind in ("linear", "lower", "higher", "nearest", "midpoint")
        },
        "without NaN": (x + 1).log().nanquantile(0.4, 1),
    },
    "searches": lambda x: {
        "in steps": torch.searchsorted(torch.arange(-1.0, 2, device=x.device), x.round()),
        "in rows": torch.searchsorted(
            x.sort(1).values, x[:, :5].contiguous(), side="right", out_int32=True
        ),
        "in an order": torch.searchsorted(x, x[:, :5].contiguous(), sorter=x.argsort(1)),
        "of a number": torch.searchsorted(x[:, 2].sort().values, 0.3),
        "which are in": torch.isin(x.round(), torch.arange(2.0, device=x.device)),
        "which are not in": torch.isin(x.round(), x[:1].round(), invert=True),
        "x": x,
    },
    "products of rows": lambda x: {
        "similarity": F.cosine_similarity(x[:, None], x[None], dim=-1),
        "of neighbours": F.cosine_similarity(x, x.flip(0), dim=0),
        "bilinear": F.bilinear(x, x, torch.linspace(-1, 1, 432, device=x.device).view(3, 12, 12)),
        "taken": torch.take_along_dim(x, x.argmax(1, keepdim=True), 1),
        "taken of all": torch.take_along_dim(x, torch.arange(3, device=x.device)),
        "diagonal": torch.diag(x[:, 0]),
    },
    # PyTorch's own gradient of it raises.
    "powers": lambda x: {"of 4": torch.vander(x[:, 0].detach(), 4), "x": x},
    "covariances of columns": lambda x: {"plain": torch.cov(x.T, correction=0)},
    "windows": lambda x: {"of all": x.unfold(1, 3, 2), "of some": x.unfold(0, 1, 1)},
}


@pytest.mark.sampled(
    "running extremes", "elements of a rank", "powers", "covariances of columns", "windows"
)
@pytest.mark.parametrize("name", ROWS)
def test_rows(tmp_path, name):
    if name == "quantiles" and torch.__version__ >= "2.14":
        pytest.skip("PyTorch computes the places of quantiles in float64, so on the CPU")
    sizes = [(37,), (1,), (2,), (7,), (36,)]
    function = with_gradients(ROWS[name])
    compare(tmp_path / "m", function, lambda n: {"x": torch.randn(n, 12)}, {"x": {0: "n"}}, sizes)


def weighted(x):
    counts = torch.arange(1, x.shape[0] + 1, device=x.device)
    return torch.cov(x.T, fweights=counts, aweights=x[:, 0].abs())


@pytest.mark.long
def test_covariances(tmp_path):
    function = with_gradients(
        lambda x: {
            "rows": torch.cov(x),
            "columns": torch.cov(x.T),
            "one row": torch.cov(x[:, 0]),
            "correlations of rows": torch.corrcoef(x),
            "correlations of columns": torch.corrcoef(x.T),
            "weighted": weighted(x),
        }
    )
    # Of one row PyTorch's result has no dimension.
    shapes = {"x": {0: Dim("n", min=2)}}
    sizes = [(23,), (2,), (3,), (22,)]
    compare(tmp_path / "m", function, lambda n: {"x": torch.randn(n, 5)}, shapes, sizes)
    with pytest.raises(RuntimeError, match="removes a dimension of n elements if that is 1"):
        torch.webgpu.export(
            lambda x: torch.cov(x), [torch.randn(4, 5)], tmp_path / "m", dynamic_shapes=[{0: "n"}]
        )


UNUSUAL = {
    "numbers": torch.tensor([1.0, NAN, INF, -INF, 0.0, -0.0, 2.0]),
    "integers": torch.tensor([-3, 0, 2, 7, -(2**62)]),
    "truths": torch.tensor([True, False]),
}


@pytest.mark.sampled("order-truths", "ranks-numbers")
@pytest.mark.parametrize(
    ("part", "kind"),
    [*(("order", kind) for kind in UNUSUAL), ("ranks", "numbers"), ("ranks", "integers")],
)
def test_rows_of_unusual_elements(tmp_path, part, kind):
    elements = UNUSUAL[kind]

    def function(x):
        if part == "order":
            return {
                **named("up", pair(x.cummax(0))),
                **named("down", pair(x.cummin(1))),
                **named("sorted", pair(x.sort(dim=0, stable=True))),
            }
        low, rank = x.median(0, keepdim=True), x.kthvalue(5, 1, keepdim=True)
        found = {
            "median": low.values,
            "at its index": x.gather(0, low.indices),
            "of all": x.median(),
            "of a rank": rank.values,
            "at its rank": x.gather(1, rank.indices),
        }
        if kind == "numbers":
            found |= {"without NaN": x.nanmedian(0).values, "of all numbers": x.nanmedian()}
        return found

    def make(n):
        return {"x": elements[torch.randint(0, len(elements), (n, 12))]}

    sizes = [(37,), (1,), (2,), (3,), (16,)]
    compare(tmp_path / "m", function, make, {"x": {0: "n"}}, sizes)


# ---- Two inputs


def two(n, m):
    return {"x": torch.randn(n, 5), "y": torch.randn(m, 5)}


PAIRS = {
    "distances": lambda x, y: {
        **{f"by {p}": torch.cdist(x, y, p=p) for p in (0.5, 1.0, 2.0, 3.0, INF)},
        "different": torch.cdist(x.round(), y.round(), p=0),
        "by products": torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
        "of some": torch.cdist(x[:, None, None], y),
        # The same element: PyTorch's gradient is 0 there.
        "of the same": torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist"),
    },
    "products": lambda x, y: {
        "of rows": torch.tensordot(x, y, ([1], [1])),
        "kron": torch.kron(x, y[:, :2]),
    },
    "more products": lambda x, y: {
        "of columns": torch.tensordot(x, x, ([0], [0])),
        "of none": torch.tensordot(x, y, 0),
        "of several": torch.tensordot(x[:, :, None], y.T[:, None], ([1, 2], [0, 1])),
        "of one": torch.tensordot(x[:, :1], y, ([1], [1])),
        "kron with a vector": torch.kron(x, y[:, 0]),
        "kron of a batch": torch.kron(x[None], y[:, :2]),
    },
    "einsum": lambda x, y: {
        "rows": torch.einsum("nd,md->nm", x, y),
        "outer": torch.einsum("nd,me->nmde", x, y),
        "squares": torch.einsum("nd,ne->de", x, x),
        "diagonal": torch.einsum("ii->i", x @ x.T),
        "others": torch.einsum("i...,j...->ij...", x, y),
        "three": torch.einsum("ik,jk,ik->j", x, y, x),
        "all": torch.einsum("ij,kl->", x, y),
    },
}


@pytest.mark.sampled("products")
@pytest.mark.parametrize("name", PAIRS)
def test_pairs(tmp_path, name):
    shapes = {"x": {0: "n"}, "y": {0: "m"}}
    sizes = [(23, 19), (1, 1), (2, 3), (1, 19), (23, 1), (22, 5)]
    compare(tmp_path / "m", with_gradients(PAIRS[name]), two, shapes, sizes)


# ---- Images

IMAGES = {
    "maxima with rounding up": lambda x: {
        "2": F.max_pool2d(x, 2, ceil_mode=True),
        **named("3", pair(F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True))),
    },
    "maxima of far elements": lambda x: pair(
        F.max_pool2d(x, (3, 2), (2, 3), (1, 0), (1, 2), ceil_mode=True, return_indices=True)
    ),
    "maxima of large windows": lambda x: pair(F.max_pool2d(x, 13, 1, 6, return_indices=True)),
    "maxima of rows": lambda x: {"plain": F.max_pool1d(x[:, :, 0], 3, 2, 1)},
    "maxima of rows with rounding up": lambda x: pair(
        F.max_pool1d(x[:, 0], 3, 2, 1, ceil_mode=True, return_indices=True)
    ),
    "maxima of volumes": lambda x: pair(
        F.max_pool3d(x[:, None], 2, 2, 1, ceil_mode=True, return_indices=True)
    ),
    "averages with rounding up": lambda x: {
        "plain": F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        "of what is there": F.avg_pool2d(
            x, (3, 2), (2, 3), 1, ceil_mode=True, count_include_pad=False
        ),
        "by 5": F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
        "of rows": F.avg_pool1d(x[:, :, 0], 3, 2, 1, ceil_mode=True),
        "of volumes": F.avg_pool3d(x[:, None], 2, 2, 1, ceil_mode=True),
        "of large windows": F.avg_pool2d(x, 7, 3, 3),
    },
    "adaptive maxima": lambda x: {
        **named("planes", pair(F.adaptive_max_pool2d(x, (3, 2), return_indices=True))),
        "one": F.adaptive_max_pool2d(x, 1),
        "more": F.adaptive_max_pool2d(x, (17, 3)),
        "rows": F.adaptive_max_pool1d(x[:, 0], 4),
        "volumes": F.adaptive_max_pool3d(x[:, None], (2, 4, 3)),
    },
    "adaptive averages": lambda x: {"planes": F.adaptive_avg_pool2d(x, (None, 3))},
    "adaptive averages of volumes": lambda x: {
        "volumes": F.adaptive_avg_pool3d(x[:, None], (2, None, 3))
    },
    "nearest": lambda x: {
        "twice": F.interpolate(x, scale_factor=2),
        "half": F.interpolate(x, scale_factor=0.5),
        "a third": F.interpolate(x, scale_factor=1 / 3),
        "as stated": F.interpolate(x, size=(5, 6)),
        "as another": F.interpolate(F.avg_pool2d(x, 2), size=x.shape[2:]),
        "exact": F.interpolate(x, scale_factor=(1.3, 2.6), mode="nearest-exact"),
        "rows": F.interpolate(x[:, :, 0], scale_factor=0.7),
        "volumes": F.interpolate(x[:, None], scale_factor=(1, 0.5, 1.5)),
    },
    "linear": lambda x: {
        "twice": F.interpolate(x, scale_factor=2, mode="bilinear"),
        "half": F.interpolate(x, scale_factor=0.5, mode="bilinear"),
        "aligned": F.interpolate(x, scale_factor=(0.4, 1.25), mode="bilinear", align_corners=True),
        "as another": F.interpolate(F.avg_pool2d(x, 2), size=x.shape[2:], mode="bilinear"),
        "of the sizes": F.interpolate(
            x, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True
        ),
        "module": nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)(x),
    },
    "linear rows": lambda x: {"rows": F.interpolate(x[:, :, 0], scale_factor=2.1, mode="linear")},
    "linear volumes": lambda x: {
        "volumes": F.interpolate(x[:, None], scale_factor=(1, 2, 0.7), mode="trilinear")
    },
    "areas": lambda x: {"half": F.interpolate(x, scale_factor=0.5, mode="area")},
    "cubic": lambda x: {"twice": F.interpolate(x, scale_factor=2, mode="bicubic")},
    # Not to a width of 1, where PyTorch's result on the CPU has equal rows.
    "antialiased": lambda x: {
        "half": F.interpolate(x, scale_factor=(0.5, 0.7), mode="bilinear", antialias=True),
        "as stated": F.interpolate(x, size=(7, 9), mode="bilinear", antialias=True),
        "cubic": F.interpolate(x, scale_factor=(0.4, 0.7), mode="bicubic", antialias=True),
    },
    "columns": lambda x: {
        "3": F.unfold(x, 3, padding=1),
        "some": F.unfold(x, (2, 3), stride=2, dilation=(1, 1)),
        "windows": x.unfold(2, 3, 2).unfold(3, 2, 1),
    },
    "columns back": lambda x: {
        "same": F.fold(F.unfold(x, (1, 2), padding=1), x.shape[2:], (1, 2), padding=1)
    },
    "circular padding": lambda x: {
        "planes": F.pad(x, (1, 2, 3, 1), mode="circular"),
        "convolved": F.conv2d(
            F.pad(x, (1, 1, 1, 1), mode="circular"),
            torch.linspace(-1, 1, 108, device=x.device).view(4, 3, 3, 3),
        ),
    },
    "reflections": lambda x: {"rows": F.pad(x[:, :, 0], (1, 2), mode="reflect")},
    "reflections of planes": lambda x: {
        "planes": F.pad(x, (1, 2, 2, 1), mode="reflect"),
        "cropped": F.pad(x, (-1, 2, 1, -1), mode="reflect"),
    },
    "edges": lambda x: {
        "planes": F.pad(x, (1, 2, 3, 1), mode="replicate"),
        "cropped": F.pad(x, (-1, 2, 3, -1), mode="replicate"),
        "rows": F.pad(x[:, :, 0], (1, 0), mode="replicate"),
        "volumes": F.pad(x[:, None], (1, 2, 3, 1, 1, 1), mode="replicate"),
    },
    "grids": lambda x: {
        "of a map": F.affine_grid(
            x[:, 0, :2, :3].tanh(), [x.shape[0], 3, *x.shape[2:]], align_corners=True
        ),
        "sampled": F.grid_sample(
            x,
            F.affine_grid(x[:, 0, :2, :3].tanh(), x.shape, align_corners=False),
            align_corners=False,
        ),
        "at edges": F.grid_sample(
            x, torch.stack([x[:, 0], x[:, 1]], -1), padding_mode="border", align_corners=True
        ),
        "nearest": F.grid_sample(
            x, torch.stack([x[:, 0], x[:, 1]], -1), mode="nearest", align_corners=False
        ),
    },
}


@pytest.mark.sampled(
    "maxima of rows",
    "adaptive averages",
    "linear rows",
    "columns back",
    "reflections",
)
@pytest.mark.parametrize("name", IMAGES)
def test_images(tmp_path, name):
    least = 3
    shapes = {"x": {0: "n", 2: Dim("h", min=least), 3: Dim("w", min=least)}}
    sizes = [(2, 13, 12), (1, 3, 3), (1, 3, 4), (2, 5, 7), (1, 13, 3), (2, 12, 11)]
    compare(
        tmp_path / "m",
        with_gradients(IMAGES[name]),
        lambda n, h, w: {"x": torch.randn(n, 3, h, w)},
        shapes,
        sizes,
    )


@pytest.mark.long
def test_images_of_one_position(tmp_path):
    function = with_gradients(
        lambda x: {
            "maxima": F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            "averages": F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            "parts": F.adaptive_max_pool2d(x, (3, 2)),
            "nearest": F.interpolate(x, scale_factor=2),
            "linear": F.interpolate(x, scale_factor=2, mode="bilinear"),
            "edges": F.pad(x, (1, 2, 3, 1), mode="replicate"),
        }
    )
    sizes = [(2, 7, 6), (1, 1, 1), (1, 1, 6), (1, 7, 1), (2, 2, 5)]
    compare(
        tmp_path / "m",
        function,
        lambda n, h, w: {"x": torch.randn(n, 3, h, w)},
        {"x": {0: "n", 2: "h", 3: "w"}},
        sizes,
    )


MAXIMA = {
    "windows": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "parts": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "integers": lambda x: F.max_pool2d(x.nan_to_num(5, 9, -9).int(), 3, 2, 1, ceil_mode=True),
    "of none": lambda x: F.max_pool2d(
        x.nan_to_num(0, 0, 0) - INF, 2, ceil_mode=True, return_indices=True
    )[1],
}


@pytest.mark.sampled("windows")
@pytest.mark.parametrize("name", MAXIMA)
def test_maxima_of_unusual_elements(tmp_path, name):
    elements = torch.tensor([1.0, NAN, INF, -INF, -INF, -INF, 2.0])
    compare(
        tmp_path / "m",
        lambda x: {name: MAXIMA[name](x)},
        lambda n, h: {"x": elements[torch.randint(0, 7, (n, 3, h, h))]},
        {"x": {0: "n", 2: Dim("h"), 3: Dim("h")}},
        [(2, 13), (1, 1), (1, 2), (2, 5)],
    )


# ---- Attention

attention = F.scaled_dot_product_attention

ATTENTION = {
    "plain": attention,
    "with a factor": lambda q, k, v: attention(q, k, v, scale=0.3),
    "causal": lambda q, k, v: attention(q, k, v, is_causal=True),
    "masked": lambda q, k, v: attention(
        q, k, v, attn_mask=q[:, :, :, :1] > k[:, :, None, :, 0] - 2
    ),
    "biased": lambda q, k, v: attention(q, k, v, attn_mask=q[:, :, :, :1] + k[:, :, None, :, 0]),
    "of groups": lambda q, k, v: attention(torch.cat([q, q], 1), k, v, enable_gqa=True),
}


@pytest.mark.sampled("masked")
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_any_batch_length_and_width(tmp_path, name):
    def make(b, rows, columns, width):
        return {
            "q": torch.randn(b, 2, rows, width),
            "k": torch.randn(b, 2, columns, width),
            "v": torch.randn(b, 2, columns, width),
        }

    dims = {0: "b", 3: "width"}
    shapes = {"q": {**dims, 2: "rows"}, "k": {**dims, 2: "columns"}, "v": {**dims, 2: "columns"}}
    sizes = [(3, 17, 19, 16), (1, 1, 1, 1), (2, 5, 7, 3), (3, 17, 1, 8), (1, 17, 19, 7)]
    function = with_gradients(lambda q, k, v: {"output": ATTENTION[name](q, k, v)})
    compare(tmp_path / "m", function, make, shapes, sizes)


@pytest.mark.long
def test_attention_of_halves(tmp_path):
    def make(b, heads, length, width):
        return {name: torch.randn(b, heads, length, width).half() for name in "qkv"}

    shape = {0: "b", 1: "heads", 2: "length", 3: "width"}
    compare(
        tmp_path / "m",
        lambda q, k, v: {"output": attention(q, k, v)},
        make,
        dict.fromkeys("qkv", shape),
        [(2, 3, 17, 16), (1, 1, 1, 1), (2, 2, 5, 3)],
        2e-2,
    )


# ---- Errors

REFUSED = {
    "transform": (lambda x: torch.fft.rfft(x).real, "aten._fft_r2c depends on sizes"),
    "histogram": (lambda x: x.histc(5, -2, 2), "aten.histc depends on sizes"),
    "scattered means": (
        lambda x: torch.zeros_like(x[:3]).scatter_reduce(0, (x > 0).long(), x, "mean"),
        "aten.scatter_reduce_ depends on sizes",
    ),
    "gradient": (
        lambda x: torch.autograd.grad((y := x.requires_grad_()).cumprod(0).sum(), y)[0],
        r"torch\.autograd\.grad depends on",
    ),
    "padding of more": (
        lambda x: F.pad(x[None], (0, 0, 3, 0), mode="circular"),
        r"torch\.nn\.functional\.pad depends on n >= 3",
    ),
    "reflections of more": (
        lambda x: F.pad(x.T[None], (3, 0), mode="reflect"),
        r"what is done needs \(0 < n\) & \(3 < n\)",
    ),
    "no window": (
        lambda x: F.max_pool1d(x.T[None], 5, 1, ceil_mode=True),
        r"what is done needs 1 <= Min\(n, n - 4\)",
    ),
    "less than one": (
        lambda x: F.interpolate(x.T[None], scale_factor=0.5),
        r"what is done needs 1 <= \(\(n//2\)\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_error_names_operator_and_line(tmp_path, name, caplog, capfd):
    function, message = REFUSED[name]
    with pytest.raises(RuntimeError, match=message) as caught:
        torch.webgpu.export(
            function, {"x": torch.randn(8, 12)}, tmp_path / "m", dynamic_shapes={"x": {0: "n"}}
        )
    text = str(caught.value)
    assert text.startswith("cannot export ") and len(text.splitlines()) <= 2
    assert re.search(rf"{re.escape(pathlib.Path(__file__).name)}:\d+: ", text)
    printed = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not printed and "Traceback" not in capfd.readouterr().err

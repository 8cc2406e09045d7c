"""Every row of the table of products (csrc/ops/matmul/strategies.cpp), forced, against float64.

A row computes each product that it accepts: odd sizes, transposed and strided operands, batches,
added matrices, and fused expressions.
"""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, has_matrices, to_device

import torch_webgpu
from torch_webgpu.wgsl import target

ROWS = [name for name, *_ in torch_webgpu._C._product_strategies()]
HIGH = "matrix_f32"  # takes products only if less than float32's precision is asked for
PLAIN = [name for name in ROWS if not name.startswith("convolution") and name != HIGH]
# How many of the problems a row must take at least, if it declines some. A row that declines all
# sizes below needs one more of them, here and in FUSED, else nothing tests it.
LEAST = {
    **{row: 16 for row in ROWS if row.startswith("registers")},
    "matrix_f16": 20,
    "matrix_bf16": 20,
    "matrix_bf16_copies": 10,
    "matrix_f16_copies": 10,
    "strips": 80,
    "thin": 40,
    **{row: 4 for row in ROWS if row.startswith("vector")},
}
LARGE_GPU = {"workgroups_to_fill": 2048}
SIZES = [
    (1, 1, 1), (3, 5, 4), (8, 16, 8), (33, 70, 101), (130, 17, 65), (64, 64, 64), (132, 40, 136),
    (100, 2000, 8), (200, 33, 1), (5, 700, 1), (6, 96, 40), (136, 544, 72),
]  # fmt: skip


class Problem(NamedTuple):
    m: int
    k: int
    n: int
    dtype: torch.dtype
    batch: int = 0  # 0: matrices
    layout: str = "nn"  # of A and B: n by rows, t by columns, s with gaps
    added: str = ""  # D: full, row, column, self
    alpha: float = 1
    beta: float = 1
    # Of C: n by rows, t by columns, o from an odd offset on, s columns apart, g with gaps.
    out: str = "n"
    shared: bool = False  # all batches have one A


def problems():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        layouts = ("nn", "tn", "nt", "tt", "ss")
        for size, layout in itertools.product(SIZES, layouts if dtype != torch.bfloat16 else "n"):
            yield Problem(*size, dtype, layout=layout[0] + layout[-1])
        for size in SIZES[1::2]:
            for batch, added, alpha in ((0, "full", 1), (3, "row", 0.5), (2, "column", -2)):
                yield Problem(*size, dtype, batch, "nt", added, alpha, 1 if alpha == 1 else 1.5)
            yield Problem(*size, dtype, 2, "nn", "self", 2, 0.5)
            yield Problem(*size, dtype, out="t")
        for out in "os":
            yield Problem(*SIZES[4], dtype, layout="nt", out=out)
    for dtype in (torch.complex64, torch.int64, torch.int32, torch.int8):
        for size in SIZES[1::2]:
            yield Problem(*size, dtype, 2, "nt", "full", 2, 3)


def values(*shape, dtype):
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, shape, dtype=dtype)


def matrix(batch, rows, columns, layout, dtype):
    """Lies at an odd offset where it has gaps, else at an aligned one."""
    head = [batch] if batch else []
    if layout == "s":
        return values(*head, 2 * rows, columns + 3, dtype=dtype)[..., 1::2, 3:]
    if layout == "t":
        return values(*head, columns, rows, dtype=dtype).mT
    return values(*head, rows, columns, dtype=dtype)


def wide(tensor):
    if not tensor.dtype.is_floating_point:
        return tensor.to(torch.complex128) if tensor.is_complex() else tensor
    return tensor.double()


def added_matrix(problem, shape):
    head, (m, n) = shape[:-2], shape[-2:]
    sizes = {"full": (*head, m, n), "self": (*head, m, n), "row": (n,), "column": (*head, m, 1)}
    return values(*sizes[problem.added], dtype=problem.dtype)


def assert_close(actual, expected, magnitude, depth, note):
    actual = actual.cpu()
    if not (actual.is_floating_point() or actual.is_complex()):
        assert torch.equal(actual, expected), note
        return
    info = torch.finfo(actual.dtype)
    bound = torch.finfo(torch.float32).eps * (depth + 4) * magnitude.abs()
    bound = bound + info.eps * expected.abs() + info.smallest_normal * info.eps
    assert ((wide(actual) - expected).abs() <= bound).all(), note


def product(a, b):
    return torch.bmm(a, b) if a.dim() == 3 else torch.mm(a, b)


def empty_result(shape, problem):
    """C as `problem.out` says, and the tensor in which it lies; what is not C's there is 0."""
    *head, rows, columns = shape
    options = {"dtype": problem.dtype, "device": DEVICE}
    if problem.out == "t":
        around = torch.zeros(*head, columns, rows, **options)
        return around.mT, around
    if problem.out == "o":
        around = torch.zeros(*head, rows, columns + columns % 2 + 2, **options)
        return around[..., 1 : columns + 1], around
    if problem.out == "s":
        around = torch.zeros(*head, rows, 2 * columns, **options)
        return around[..., ::2], around
    if problem.out == "g":
        around = torch.zeros(*head, rows, columns + 8, **options)
        return around[..., 8:], around
    around = torch.empty(shape, **options)
    return around, around


def check(problem):
    batch_of_a = 0 if problem.shared else problem.batch
    a = matrix(batch_of_a, problem.m, problem.k, problem.layout[0], problem.dtype)
    a = a.expand(problem.batch, -1, -1) if problem.shared else a
    b = matrix(problem.batch, problem.k, problem.n, problem.layout[1], problem.dtype)
    x, y = to_device(a), to_device(b)
    shape = (*a.shape[:-1], problem.n)
    expected = product(wide(a), wide(b))
    magnitude = product(wide(a).abs(), wide(b).abs())
    if not problem.added:
        out, others = empty_result(shape, problem)
        (torch.bmm if problem.batch else torch.mm)(x, y, out=out)
        assert_close(out, expected, magnitude, problem.k, problem)
        out.zero_()
        assert (others == 0).all(), problem
        return
    d = added_matrix(problem, shape)
    alpha, beta = problem.alpha, problem.beta
    expected = alpha * expected + beta * wide(d)
    magnitude = abs(alpha) * magnitude + abs(beta) * wide(d).abs()
    name = "baddbmm" if problem.batch else "addmm"
    if problem.added == "self":
        actual = getattr(to_device(d), f"{name}_")(x, y, alpha=alpha, beta=beta)
    else:
        actual = getattr(torch, name)(to_device(d), x, y, alpha=alpha, beta=beta)
    assert_close(actual, expected, magnitude, problem.k, problem)


@pytest.fixture
def force():
    """Forces a row until the test ends."""
    torch.manual_seed(0)
    yield torch_webgpu._C._force_product_strategy
    torch_webgpu._C._force_product_strategy("")


def accepted(function, *args):
    """Whether the forced row takes the product of function(*args), which then is right."""
    try:
        function(*args)
    except NotImplementedError as error:
        if "does not take this product" not in str(error):
            raise
        return False
    return True


def needs_missing_feature(row):
    return "matrix_" in row and not has_matrices()


@pytest.mark.parametrize("row", PLAIN)
def test_products(row, force):
    force(row)
    given = list(problems())
    count = sum(accepted(check, problem) for problem in given)
    if needs_missing_feature(row):
        assert count == 0
    else:
        least = LEAST.get(row, len(given))
        assert count >= least, f"took {count} products of {len(given)}; LEAST asks for {least}"


# Arguments of F.conv2d behind a weight of 3 x 2 taps, and the channels of x and y.
CONVOLUTIONS = [
    ({}, 3, 8),
    ({"padding": 1}, 5, 4),
    ({"stride": 2, "padding": 1}, 4, 70),
    ({"stride": (2, 3), "dilation": 2, "padding": (2, 1)}, 6, 2),
    ({"groups": 2, "padding": 1}, 6, 12),
    ({"groups": 6, "padding": 1}, 6, 6),
]


def check_convolution(options, channels, filters, width, dtype, transposed):
    x = torch.randn(2, channels, 9, width).to(dtype)
    w = torch.randn(filters, channels // options.get("groups", 1), 3, 2).to(dtype)
    function = F.conv2d
    if transposed:
        function = F.conv_transpose2d
        w = torch.randn(channels, filters // options.get("groups", 1), 3, 2).to(dtype)
    bias = torch.randn(filters).to(dtype)
    results = []
    for device, kind in ((DEVICE, dtype), ("cpu", torch.float64)):
        leaves = [t.to(device, kind).requires_grad_() for t in (x, w, bias)]
        result = function(*leaves, **options)
        weights = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape).to(dtype)
        gradients = torch.autograd.grad(result, leaves, weights.to(result))
        results.append([t.detach().cpu().double() for t in (result, *gradients)])
    for actual, expected in zip(*results, strict=True):
        scale = expected.abs().max().clamp(min=1)
        error = ((actual - expected) / scale).abs().max()
        assert error < 4 * max(torch.finfo(dtype).eps, 2e-6), (options, width, dtype, transposed)


# Rows that gather groups of channels, and dtypes that each takes.
GROUPS = [
    ("convolution_registers", torch.float32),
    ("convolution_registers", torch.float16),
    ("convolution_registers", torch.bfloat16),
    ("convolution_matrix_f16", torch.float16),
]
GROUPED_CONVOLUTIONS = [
    ({"padding": 1}, 16, 24),
    ({"stride": 2, "padding": 1}, 8, 136),
    ({"stride": (2, 3), "dilation": 2, "padding": (2, 1)}, 24, 8),
    ({"groups": 2, "padding": (0, 2)}, 16, 32),
]


@pytest.mark.sampled(
    "convolution_registers-dtype0", "convolution_registers-dtype2", "convolution_matrix_f16-dtype3"
)
@pytest.mark.parametrize(("row", "dtype"), GROUPS)
def test_convolutions_of_channel_groups(row, dtype, force):
    force(row)
    # bfloat16 differs from float16 in one function of the kernel. Cores of a CPU compile it slowly.
    shortened = dtype == torch.bfloat16
    cases = itertools.product(
        GROUPED_CONVOLUTIONS[1:3] if shortened else GROUPED_CONVOLUTIONS,
        (10,) if shortened else (10, 11),
        (False, True),
    )
    taken = [
        accepted(check_convolution, *case, width, dtype, transposed)
        for case, width, transposed in cases
    ]
    assert not any(taken) if needs_missing_feature(row) else all(taken)


# A row that computes results and gradients of inputs only.
FEW = "convolution_few"
FEW_CONVOLUTIONS = [
    ({"padding": 1}, 3, 9),
    ({"padding": (0, 3), "dilation": 2}, 5, 20),
    ({"stride": 2, "padding": (1, 2)}, 3, 7),
    ({"stride": (1, 2), "padding": 3}, 2, 3),
    ({"stride": (3, 1)}, 4, 1),
    ({"groups": 6, "padding": 1}, 6, 6),
    ({"groups": 6, "stride": 2, "padding": 1}, 6, 12),
    ({"groups": 3, "stride": (2, 1), "padding": (0, 5), "dilation": (2, 1)}, 3, 3),
]


@pytest.mark.sampled("torch.float32", "torch.float16")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_convolutions_of_few_channels(dtype, force):
    for (options, channels, filters), width in itertools.product(FEW_CONVOLUTIONS, (10, 11)):
        groups = options.get("groups", 1)
        x = torch.randn(2, channels, 9, width).to(dtype)
        w = torch.randn(filters, channels // groups, 3, 2).to(dtype)
        bias = torch.randn(filters).to(dtype)
        wide = x.double().requires_grad_()
        expected = F.conv2d(wide, w.double(), bias.double(), **options)
        gradient = torch.randn(expected.shape).to(dtype)
        (expected_x,) = torch.autograd.grad(expected, wide, gradient.double())
        leaf = x.to(DEVICE).requires_grad_()
        force(FEW)
        actual = F.conv2d(leaf, w.to(DEVICE), bias.to(DEVICE), **options)
        results = [(actual.detach(), expected.detach())]
        if options.get("stride") in {(3, 1), (2, 1)}:
            with pytest.raises(NotImplementedError, match="does not take this product"):
                torch.autograd.grad(actual, leaf, gradient.to(DEVICE))
        else:
            found = torch.autograd.grad(actual, leaf, gradient.to(DEVICE))[0]
            results.append((found, expected_x))
        for one, other in results:
            error = (one.cpu().double() - other).abs().max() / other.abs().max()
            assert error < 4 * max(torch.finfo(dtype).eps, 2e-6), (options, width)


@pytest.mark.sampled("torch.float16")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_lines_of_depthwise_convolutions(dtype, force):
    """So many channels that an invocation computes up to four lines, as many as there are."""
    force(FEW)
    heights, kernels = (1, 2, 3, 4, 5, 11), ((3, 3), (1, 5), (6, 2), (2, 9))
    for height, width, kernel in itertools.product(heights, (10, 12), kernels):
        options = {"groups": 32, "padding": tuple(size // 2 for size in kernel)}
        x = torch.randn(2, 32, height, width).to(dtype)
        w, bias = torch.randn(32, 1, *kernel).to(dtype), torch.randn(32).to(dtype)
        wide = x.double().requires_grad_()
        expected = F.conv2d(wide, w.double(), bias.double(), **options)
        gradient = torch.randn(expected.shape).to(dtype)
        leaf = x.to(DEVICE).requires_grad_()
        actual = F.conv2d(leaf, w.to(DEVICE), bias.to(DEVICE), **options)
        results = [
            (actual, expected),
            (
                *torch.autograd.grad(actual, leaf, gradient.to(DEVICE)),
                *torch.autograd.grad(expected, wide, gradient.double()),
            ),
        ]
        for one, other in results:
            error = (one.detach().cpu().double() - other).abs().max() / other.abs().max()
            assert error < 4 * max(torch.finfo(dtype).eps, 2e-6), (height, width, kernel)


@pytest.mark.parametrize(
    ("channels", "kernel", "width"), [(3, 4, 13), (33, 4, 13), (33, 11, 13), (33, 4, 12)]
)
def test_missing_elements_of_depthwise_convolutions(channels, kernel, width, force):
    """They add nothing, whatever the weight that they meet."""
    x, w = torch.randn(2, channels, 7, width), torch.randn(channels, 1, 5, kernel)
    w[0, 0, 0, 0], w[1, 0, -1, -1], w[2, 0, 2, 0] = torch.inf, torch.nan, -torch.inf
    results = []
    for row in (FEW, "convolution_direct"):
        force(row)
        leaf = x.to(DEVICE).requires_grad_()
        result = F.conv2d(leaf, w.to(DEVICE), padding=2, groups=channels)
        results.append([result.detach(), *torch.autograd.grad(result.sum(), leaf)])
    for actual, expected in zip(*results, strict=True):
        assert 0 < expected.isfinite().sum() < expected.numel()
        torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


# A row that computes gradients of weights only.
TAPS = "convolution_taps"
# Sizes of images, channels, filters and kernel; options.
TAPS_CONVOLUTIONS = [
    ((40,), 3, 3, (7,), {"groups": 3, "padding": 3}),
    ((9, 11), 4, 4, (3, 3), {"groups": 4, "padding": 1}),
    ((17, 16), 6, 12, (5, 8), {"groups": 6, "stride": 2, "padding": 3}),
    ((9, 14), 5, 5, (7, 6), {"groups": 5, "stride": (3, 1), "padding": (3, 4)}),
    ((8, 13), 4, 4, (3, 3), {"groups": 4, "stride": (2, 3), "padding": 1}),
    ((7, 12), 5, 5, (3, 3), {"groups": 5, "padding": 1}),  # in groups of four
    ((7, 16), 5, 5, (2, 4), {"groups": 5, "stride": 2, "padding": 2}),
    ((12, 19), 2, 4, (1, 2), {"groups": 2, "stride": (2, 3), "dilation": (1, 2)}),
    ((9, 9), 6, 2, (2, 4), {"padding": (1, 2)}),
    ((5, 6, 7), 3, 3, (3, 2, 3), {"groups": 3, "padding": 1, "stride": (1, 2, 1)}),
]


def check_weight_gradient(sizes, channels, filters, kernel, options, dtype, last=False):
    dims = len(sizes)
    given = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, **options}
    each = [
        [value] * dims if isinstance(value, int) else list(value)
        for value in (given["stride"], given["padding"], given["dilation"])
    ]
    x = torch.randn(3, channels, *sizes).to(dtype)
    w = torch.randn(filters, channels // given["groups"], *kernel).to(dtype)
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dims]
    wide = w.double().requires_grad_()
    result = convolve(x.double(), wide, **options)
    y = torch.randn(result.shape).to(dtype)
    (expected,) = torch.autograd.grad(result, wide, y.double())

    def gradient(x, y):
        mask = [False, True, False]
        given_to = (y.to(DEVICE), x.to(DEVICE), w.to(DEVICE), None, *each, False, [0] * dims)
        return torch.ops.aten.convolution_backward(*given_to, given["groups"], mask)[1].cpu()

    if last:
        x, y = (t.to(memory_format=torch.channels_last) for t in (x, y))
    error = (gradient(x, y).double() - expected).abs().max() / expected.abs().max()
    assert error < 4 * max(torch.finfo(dtype).eps, 2e-6), (sizes, kernel, options)


@pytest.mark.sampled("torch.float32", "torch.float16")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_weight_gradients_of_few_filters(dtype, force):
    force(TAPS)
    for case in TAPS_CONVOLUTIONS:
        check_weight_gradient(*case, dtype)
    check_weight_gradient(*TAPS_CONVOLUTIONS[1], dtype, last=True)
    with pytest.raises(NotImplementedError, match="does not take this product"):
        check_weight_gradient((30, 30), 2, 2, (1, 9), {"groups": 2}, dtype)


# The same for few channels.
LINES = "convolution_lines"
LINES_CONVOLUTIONS = [
    ((21, 44), 3, 64, (7, 7), {"stride": 2, "padding": 3}),
    ((17, 37), 3, 30, (3, 3), {"padding": 1}),  # filters beyond the edge, a second segment
    ((14, 16), 1, 32, (5, 5), {}),
    ((9, 35), 16, 70, (3, 3), {"padding": 1}),  # two tiles of lines and of filters
    ((14, 35), 12, 70, (5, 8), {"groups": 2, "stride": (1, 2), "padding": (2, 9)}),
    ((8, 40), 4, 33, (3, 1), {"stride": (3, 2), "dilation": (2, 5), "padding": 1}),
    ((70,), 2, 40, (6,), {"padding": 2}),
    ((4, 5, 34), 2, 17, (2, 3, 2), {"padding": 1, "stride": (1, 2, 1)}),
    ((3, 5), 2, 9, (2, 2), {"padding": 1}),
]


@pytest.mark.sampled("torch.float32", "torch.float16")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_weight_gradients_of_few_channels(dtype, force):
    force(LINES)
    for case in LINES_CONVOLUTIONS:
        check_weight_gradient(*case, dtype)
    for case in LINES_CONVOLUTIONS[:3]:
        check_weight_gradient(*case, dtype, last=True)
    for options in ({"stride": 3}, {"dilation": 2}):
        with pytest.raises(NotImplementedError, match="does not take this product"):
            check_weight_gradient((30, 30), 3, 16, (3, 3), options, dtype)


@pytest.mark.parametrize(
    ("row", "cases"),
    [
        (LINES, LINES_CONVOLUTIONS[:3]),
        (TAPS, [((61, 63), 2, 2, (5, 3), {"groups": 2, "padding": 1})]),
    ],
    ids=[LINES, TAPS],
)
def test_weight_gradients_are_cut_as_on_a_large_gpu(row, cases, force):
    force(row)
    with target(limits=LARGE_GPU):
        for case in cases:
            check_weight_gradient(*case, torch.float32)


@pytest.mark.parametrize("row", [TAPS, LINES])
def test_weight_gradients_leave_padding_out(row, force):
    """Infinities in y meet zeros of x, not those of its padding."""
    x, w = torch.rand(2, 3, 6, 6) + 1, torch.randn(3, 1, 3, 3)
    y = torch.randn(2, 3, 6, 6)
    y[0, 0, 0, 0] = torch.inf
    options = ([1, 1], [1, 1], [1, 1], False, [0, 0], 3, [False, True, False])
    expected = torch.ops.aten.convolution_backward(y, x, w, None, *options)[1]
    force(row)
    given = [t.to(DEVICE) for t in (y, x, w)]
    actual = torch.ops.aten.convolution_backward(*given, None, *options)[1].cpu()
    torch.testing.assert_close(actual, expected)
    assert actual[0, 0, 1, 1] == torch.inf
    assert actual[0, 0, 0, 0].isfinite()


# K that is cut into no, few and many pieces; tiles of each size.
PLANNED = [
    (m, k, n, batch)
    for m, n in ((8, 40), (64, 64), (60, 128), (64, 260), (100, 100), (132, 520), (1100, 136))
    for k, batch in ((8, 0), (16, 2), (48, 0), (200, 3), (1000, 0), (1024, 0), (2600, 2), (2608, 0))
]


# Of each third of the problems, which has all sizes of C and of K, another layout.
@pytest.mark.sampled("nn-0", "nt-1", "tn-2")
@pytest.mark.parametrize("third", range(3))
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_products_as_on_a_large_gpu(layout, third):
    """Software adapters have few processors, so that neither small tiles nor cuts pay there."""
    for number, (m, k, n, batch) in list(enumerate(PLANNED))[third::3]:
        added = ("", "row", "full")[number // 3 % 3] if batch else ""
        with target(limits=LARGE_GPU):
            check(Problem(m, k, n, torch.float32, batch, layout, added, 2 if added else 1))


def test_edges_of_large_products_are_products_of_their_own():
    """The last rows are computed alone where they would take a round of tiles."""
    torch.manual_seed(0)
    a, b, out = (torch.empty(size).to(DEVICE) for size in ((1025, 304), (304, 1920), (1025, 1920)))
    with target(limits=LARGE_GPU):
        counts = []
        for rows in (1024, 1025):
            before = torch.webgpu.profiler.stats()["dispatches"]
            torch.mm(a[:rows], b, out=out[:rows])
            counts.append(torch.webgpu.profiler.stats()["dispatches"] - before)
        assert counts == [1, 2]


@pytest.mark.sampled("rows-fused", "columns-added")
@pytest.mark.parametrize("kind", ["added", "fused"])
@pytest.mark.parametrize("edge", ["rows", "columns"])
def test_edges_of_large_products(edge, kind):
    torch.manual_seed(0)
    m, n = (1025, 1920) if edge == "rows" else (1920, 1032)
    with target(limits=LARGE_GPU):
        if kind == "added":
            check(Problem(m, 304, n, torch.float32, added="full", beta=2))
        else:
            check_fused(torch.float32, 0, m, 304, n, flipped=edge == "rows")


@pytest.mark.sampled("tn-dtype0")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_edges_of_large_products_of_unaligned_rows(dtype, layout):
    """Large enough that operands are copied to aligned rows first."""
    torch.manual_seed(0)
    with target(limits=LARGE_GPU):
        check(Problem(1025, 547, 1921, dtype, layout=layout, added="row"))


def test_convolutions_as_on_a_large_gpu():
    cases = [
        ((2, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
        ((2, 64, 29, 28), (96, 64, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 64, 20, 20), (132, 64, 1, 1), {}),
        ((4, 3, 40, 40), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ]
    torch.manual_seed(0)
    for x_size, w_size, options in cases:
        x, w = torch.randn(x_size), torch.randn(w_size)
        y = torch.randn(F.conv2d(x, w, **options).shape)
        stride, padding = options.get("stride", 1), options.get("padding", 0)
        geometry = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True, True, False]

        def results(x, w, y, options=options, geometry=geometry):
            gradients = torch.ops.aten.convolution_backward(y, x, w, None, *geometry)
            return F.conv2d(x, w, **options), *gradients[:2]

        expected = results(*(t.double() for t in (x, w, y)))
        moved = [t.to(DEVICE) for t in (x, w, y)]
        with target(limits=LARGE_GPU):
            actual = results(*moved)
        for one, other in zip(actual, expected, strict=True):
            error = (one.cpu().double() - other).norm()
            assert error < 2e-6 * other.norm(), (x_size, w_size, options)


WINOGRAD = "convolution_winograd"  # see ../conv/test_winograd.py
STAGED = "convolution_rows_f16"  # tests/ops/conv/test_matrices.py
DEPTHWISE = {"convolution_depthwise", "convolution_depthwise_weight"}  # ../conv/test_depthwise.py
OTHERS = {*PLAIN, *(row for row, _ in GROUPS), *DEPTHWISE, FEW, TAPS, LINES, WINOGRAD, HIGH, STAGED}


@pytest.mark.parametrize("row", [row for row in ROWS if row not in OTHERS])
def test_convolutions(row, force):
    force(row)
    # An odd width, one whose rows are whole words of halves, and one whose rows are not.
    kinds = itertools.cycle([(11, torch.float32), (10, torch.float16), (9, torch.bfloat16)])
    for case, transposed in itertools.product(CONVOLUTIONS, (False, True)):
        width, dtype = next(kinds)
        check_convolution(*case, width, dtype, transposed)


EXPRESSION = "max_f(value, -1.0) + 2.0 * e - f * f32(row) / 64.0 + f32(column) + 100.0 * f32(batch)"


def fused_product(expression, second="", strategy=""):
    statements = f"result.value = {expression};"
    if second:
        statements += f" result.second = {second};"
    return torch_webgpu._C.FusedProduct(statements, strategy)


def check_fused(dtype, batch, m, k, n, flipped, shared=False):
    head = [batch] if batch else []
    a, b = values(*head, m, k, dtype=dtype), values(*head, k, n, dtype=dtype)
    a = a[:1].expand(batch, -1, -1) if shared else a
    e, f = values(*head, m, n, dtype=dtype), values(n, dtype=dtype)
    shape = (*head, m, n)

    def empty(dtype):
        tensor = torch.empty(shape, dtype=dtype).to(DEVICE)
        return tensor.mT.contiguous().mT if flipped else tensor

    out, second, truth = empty(dtype), empty(dtype), empty(torch.bool)
    operands = to_device([a, b, e, f])
    fused_product(EXPRESSION, "value - f32(row)")(out, *operands, second=second)
    fused_product(EXPRESSION, "f32((row + 3u * column) % 5u < 2u)")(out, *operands, second=truth)
    value = product(wide(a), wide(b))
    row = torch.arange(m).double()[:, None]
    column = torch.arange(n).double()
    expected = value.clamp(min=-1) + 2 * wide(e) - wide(f) * row / 64 + column
    if batch:
        expected = expected + 100 * torch.arange(batch).double()[:, None, None]
    magnitude = product(wide(a).abs(), wide(b).abs()) + expected.abs() + row + 8
    case = (dtype, batch, m, k, n, flipped)
    assert_close(out, expected, magnitude, k, case)
    assert_close(second, value - row, magnitude + row, k, case)
    wanted = (row + 3 * column) % 5 < 2
    assert torch.equal(truth.cpu(), wanted.expand(shape))


FUSED = [
    (dtype, batch, *size, flipped)
    for dtype, batch in (
        (torch.float32, 0),
        (torch.float16, 2),
        (torch.float32, 2),
        (torch.bfloat16, 2),
    )
    for size in ((33, 70, 101), (132, 40, 136), (20, 1500, 12), (200, 33, 1), (6, 96, 40))
    for flipped in (False, True)
]


# Cores of a CPU compile this row's kernel slowly: of halves it computes one size.
SLOW = "registers_128"
SIZE_OF_SLOW = (132, 40, 136)


@pytest.mark.sampled(
    "direct",
    "strips",
    "thin",
    "vector_32",
    "vector_16",
    "vector_8",
    "vector_4",
    "vector_2",
    "vector_1",
    "matrix_f16",
    "matrix_bf16",
    "matrix_bf16_copies",
    "matrix_f16_copies",
    "registers_64",
    "tiles_32",
)
@pytest.mark.parametrize("row", PLAIN)
def test_fused_expressions(row, force):
    force(row)
    given = [
        case
        for case in FUSED
        if row != SLOW or case[0] == torch.float32 or case[2:5] == SIZE_OF_SLOW
    ]
    count = sum(accepted(check_fused, *case) for case in given)
    least = 0 if needs_missing_feature(row) else min(LEAST.get(row, len(FUSED)), 2)
    assert count >= least, f"took {count} products of FUSED; {least} at least must be tested"


MATRIX_ROWS = [row for row in PLAIN if row.startswith("matrix_")]


@pytest.mark.skipif(not has_matrices(), reason="the device has no subgroup matrices")
@pytest.mark.parametrize("row", MATRIX_ROWS)
@pytest.mark.parametrize("m", [60, 140])  # tiles of 64 rows, and of 128
def test_ends_of_k_and_odd_rows_on_matrix_units(row, m, force):
    """K ends in parts of a step. Rows of several tiles start in the middle of a word."""
    force(row)
    dtype = torch.bfloat16 if "bf16" in row else torch.float16
    taken = []
    for k, n in itertools.product((33, 40, 65, 200, 2056), (259, 262)):
        for layout in ("nn", "nt", "tn", "tt"):
            taken.append(accepted(check, Problem(m, k, n, dtype, layout=layout)))
        for out in "os":
            taken.append(accepted(check, Problem(m, k, n, dtype, 2, "nt", out=out)))
        for added, batch in (("self", 0), ("row", 3)):
            taken.append(accepted(check, Problem(m, k, n, dtype, batch, added=added, alpha=0.5)))
        taken.append(accepted(check_fused, dtype, 2, m, k, n, False))
    assert sum(taken) > len(taken) / 2


JOINING_ROWS = [
    ("registers_128", torch.float32),
    ("registers_128", torch.float16),
    ("registers_128", torch.bfloat16),
    ("matrix_f16", torch.float16),
]


def workgroups(function):
    """Those of the last kernel that the function launches."""
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        function()
    return math.prod(torch_webgpu._C.list_graph(graph._graph).commands[-1].grid)


@pytest.mark.sampled("registers_128-dtype0", "matrix_f16-dtype3")
@pytest.mark.parametrize(("row", "dtype"), JOINING_ROWS)
def test_tiles_across_batches(row, dtype, force):
    """Batches that share A fill tiles together."""
    if needs_missing_feature(row):
        pytest.skip("the device has no subgroup matrices")
    force(row)
    a = values(1, 64, 32, dtype=dtype).to(DEVICE)
    b = values(90, 32, 136, dtype=dtype).to(DEVICE)
    with target(limits=LARGE_GPU):
        joined = workgroups(lambda: torch.bmm(a.expand(90, -1, -1), b))
        assert joined == math.ceil(90 * 136 / 128)
        images, weight = b.view(90, 32, 17, 8), a.view(64, 32, 1, 1)
        assert workgroups(lambda: F.conv2d(images, weight)) == joined
        check_fused(dtype, 90, 64, 32, 136, flipped=False, shared=True)


# Cores of a CPU compile each form of these kernels for seconds.
@pytest.mark.long
@pytest.mark.parametrize(("row", "dtype"), JOINING_ROWS)
def test_sizes_and_layouts_of_tiles_across_batches(row, dtype, force):
    if needs_missing_feature(row):
        pytest.skip("the device has no subgroup matrices")
    force(row)
    with target(limits=LARGE_GPU):
        sizes = (90, 64, 32), (90, 32, 136), (1024, 512), (4, 512, 1032)
        a, b, c, d = (torch.empty(size, dtype=dtype).to(DEVICE) for size in sizes)
        assert workgroups(lambda: torch.bmm(a, b)) == 90 * 2
        # The eight columns beyond whole tiles are no product of their own.
        tiles = 8 * math.ceil(4 * 1032 / 128)
        assert workgroups(lambda: torch.bmm(c.expand(4, -1, -1), d)) == tiles
        for m, k, n, batch in ((64, 32, 136, 90), (136, 72, 64, 40), (72, 40, 200, 50)):
            for layout, out in (("nn", "n"), ("tt", "n"), ("nn", "g"), ("nn", "o")):
                check(Problem(m, k, n, dtype, batch, layout, out=out, shared=True))
            for added in ("row", "self"):
                check(Problem(m, k, n, dtype, batch, "nn", added, 2, 0.5, shared=True))
            check_fused(dtype, batch, m, k, n, flipped=False, shared=True)


def test_fused_expressions_of_parts():
    """A product whose matrices are larger than a storage binding is cut; rows count on."""
    torch.manual_seed(0)
    with target(limits={"max_storage_binding_size": 8192}):
        for batch, m, k, n in [(0, 300, 40, 8), (0, 8, 40, 300), (5, 70, 40, 20), (0, 8, 300, 40)]:
            check_fused(torch.float32, batch, m, k, n, flipped=False)
            check_fused(torch.float32, batch, m, k, n, flipped=True)


def test_few_columns_without_subgroups(force):
    """The sums of a row's lanes go by way of workgroup memory, of eight columns across K twice."""
    force("thin")
    with target("browser"):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for layout, n in itertools.product("nt", (1, 3, 8)):
                check(Problem(264, 1000, n, dtype, layout=layout + "t"))
                check(Problem(n, 1000, 264, dtype, layout="n" + layout, added="row"))


def test_few_columns_that_lie_across_k(force):
    """They are copied where many rows read them."""
    force("thin")
    for dtype, n, batch in itertools.product((torch.float32, torch.bfloat16), (2, 7), (0, 2)):
        check(Problem(520, 1024, n, dtype, batch=batch, layout="nn", added="row"))
        check(Problem(520, 2048, n, dtype, batch=batch, layout="ns"))
        check_fused(dtype, batch, 520, 512, n, flipped=False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_few_columns_that_start_anywhere(dtype, force):
    """Along K, but not in aligned groups: they are copied, too."""
    force("thin")
    a = values(4096, 1024, dtype=dtype)
    for n, start in itertools.product((1, 4), (0, 1, 3)):
        flat = values(start + n * 1024, dtype=dtype)
        b, moved = (t[start:].view(n, 1024).T for t in (flat, flat.to(DEVICE)))
        magnitude = product(wide(a).abs(), wide(b).abs())
        case = (dtype, n, start)
        assert_close(a.to(DEVICE) @ moved, product(wide(a), wide(b)), magnitude, 1024, case)


def test_fused_integers():
    a, b, e = (torch.randint(-(2**60), 2**60, (5, 5)) for _ in range(3))
    out = torch.empty(5, 5, dtype=torch.int64).to(DEVICE)
    moved = [t.to(DEVICE) for t in (a, b, e)]
    fused_product("add_l(value, e)")(out, *moved)
    assert torch.equal(out.cpu(), a @ b + e)


def test_unknown_rows_and_wrong_expressions(force):
    with pytest.raises(ValueError, match="there is no strategy tiles_63"):
        force("tiles_63")
    a, out = torch.ones(4, 4).to(DEVICE), torch.ones(4, 4).to(DEVICE)
    with pytest.raises(RuntimeError, match="valeu"):
        fused_product("valeu + 1.0")(out, a, a)
    with pytest.raises(RuntimeError, match="do not fit"):
        fused_product("value")(out, a[:3], a)
    assert torch.equal((a @ a).cpu(), torch.full((4, 4), 4.0))


def test_expressions_of_a_long_process():
    """More than the 256 values that a constant of the kernels has."""
    a = torch.rand(3, 4)
    moved, out = a.to(DEVICE), torch.empty(3, 3).to(DEVICE)
    fused = [fused_product(f"value + {n}.0") for n in range(600)]
    for n in (0, 255, 256, 511, 512, 599, 0):
        fused[n](out, moved, moved.t())
        assert_close(out, a @ a.t() + n, a @ a.t() + n, 4, n)


@pytest.mark.parametrize("row", PLAIN)
def test_strategy_of_a_call(row):
    """It computes the product if it takes it; else another does."""
    fused = fused_product("value + e", strategy=row)
    for m, k, n in [(33, 70, 101), (128, 64, 128), (200, 33, 1), (2, 3, 4)]:
        a, b, e = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
        out = torch.empty(m, n).to(DEVICE)
        moved = [x.to(DEVICE) for x in (a, b, e)]
        fused(out, *moved)
        magnitude = product(wide(a).abs(), wide(b).abs()) + 8
        assert_close(out, product(wide(a), wide(b)) + wide(e), magnitude, k, (m, k, n))
        torch_webgpu._C._force_product_strategy(row)
        try:
            torch_webgpu._C.FusedProduct()(out, *moved[:2])
            is_taken = True
        except NotImplementedError:
            is_taken = False
        finally:
            torch_webgpu._C._force_product_strategy("")
        assert is_taken == fused.accepts(out, *moved[:2])
        assert fused.accepts(*(x.to("meta") for x in (out, *moved[:2]))) == is_taken
    with pytest.raises(ValueError, match="there is no strategy tiles_63"):
        torch_webgpu._C.FusedProduct("", "tiles_63")


def scaled_products(problem, span, span_within):
    """A product and its bound: each number to 2^-11, and to 2^-38 of its row's largest.

    Rows of A and columns of B differ by powers of two of up to 2 * span, and their numbers by up to
    2 * span_within.
    """
    a, b = (matrix(problem.batch, *size, kind, torch.float32) for size, kind in (
        ((problem.m, problem.k), problem.layout[0]), ((problem.k, problem.n), problem.layout[1])
    ))  # fmt: skip

    def powers(span, *sizes):
        return torch.exp2(torch.randint(-span, span + 1, sizes).float())

    a = a * powers(span, *a.shape[:-1], 1) * powers(span_within, *a.shape)
    b = b * powers(span, *b.shape[:-2], 1, b.shape[-1]) * powers(span_within, *b.shape)
    d = torch.randn(problem.n)
    arguments = [t.to(DEVICE) for t in (d, a, b)]
    actual = torch.baddbmm(*arguments) if problem.batch else torch.addmm(*arguments)
    magnitude = wide(a).abs() @ wide(b).abs() + wide(d).abs()
    bound = (2.0**-10 + 2.0**-22 + problem.k * 2.0**-24) * magnitude
    tops = wide(a).abs().amax(-1, keepdim=True) * wide(b).abs().amax(-2, keepdim=True)
    return actual.cpu().double(), wide(a) @ wide(b) + wide(d), bound + problem.k * 2.0**-37 * tops


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_float32_of_less_precision(precision, force):
    """Scaled float16 on subgroup matrices, if the precision allows it and not otherwise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    force(HIGH)
    sizes = [(33, 70, 101), (200, 64, 40), (65, 300, 9), (40, 1100, 30)]
    try:
        for size, layout in itertools.product(sizes, "nt"):
            for batch, *spans in ((0, 0, 0), (2, 30, 0), (0, 4, 16)):
                problem = Problem(*size, torch.float32, batch, layout + "n")
                if precision == "highest" or needs_missing_feature(HIGH):
                    with pytest.raises(NotImplementedError, match="does not take this product"):
                        scaled_products(problem, *spans)
                    continue
                actual, expected, bound = scaled_products(problem, *spans)
                assert ((actual - expected).abs() <= bound).all(), (problem, spans)
    finally:
        torch.set_float32_matmul_precision(before)


def test_convolutions_keep_their_precision(force):
    """Also those that are plain products: PyTorch's switch is for matrix operators."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    x, weight = torch.randn(2, 40, 8, 8).to(DEVICE), torch.randn(50, 40, 1, 1).to(DEVICE)
    force(HIGH)
    try:
        with pytest.raises(NotImplementedError, match="does not take this product"):
            F.conv2d(x, weight)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("k", [50, 1100])  # in pieces, too
def test_special_numbers_of_less_precision(k):
    """As float32 has them, whichever kernel computes the product."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    if not needs_missing_feature(HIGH):
        torch_webgpu._C._force_product_strategy(HIGH)
    try:
        a, b = torch.rand(40, k) + 0.5, torch.rand(k, 60) + 0.5
        a[3, 5], a[7, 1], b[2, 9], a[11] = -torch.inf, torch.nan, torch.inf, 1e38
        actual = (a.to(DEVICE) @ b.to(DEVICE)).cpu()
    finally:
        torch_webgpu._C._force_product_strategy("")
        torch.set_float32_matmul_precision(before)
    expected = a @ b
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.isinf() * actual.sign(), expected.isinf() * expected.sign())


@pytest.mark.sampled("torch.bfloat16-tn")
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_large_products_of_rows_that_are_no_whole_groups(dtype, layout):
    """On subgroup matrices their operands are copied to aligned rows, which end in zeros."""
    torch.manual_seed(0)
    a, b = matrix(0, 1025, 1027, layout[0], dtype), matrix(0, 1027, 1031, layout[1], dtype)
    wide = torch.nn.functional.pad(b, (3, 2))[:, 3:-2]  # between elements that do not count
    expected = a.double() @ b.double()
    for other in (b, wide):
        actual = (a.to(DEVICE) @ other.to(DEVICE)).cpu().double()
        assert (actual - expected).abs().max() <= 2.0**-7 * expected.abs().max()

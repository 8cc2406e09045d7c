"""torchvision's operators, against references in float64 that are written from their definitions.

Where torchvision can be loaded its schemas are used. Elsewhere this file defines them.
"""

import math
import struct

import pytest
import torch
from common import DEVICE

try:
    import torchvision.extension

    PRESENT = torchvision.extension._has_ops()
except (ImportError, RuntimeError):  # a torchvision of another torch raises the latter
    PRESENT = False

ROI = "Tensor x, Tensor rois, float scale, int height, int width"
IMAGE = "int images, int channels, int rows, int columns"
STEPS = (
    "int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, "
    "int groups, int offset_groups, bool use_mask"
)
WEIGHTED = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
if not PRESENT:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        f"roi_align({ROI}, int sampling, bool aligned) -> Tensor",
        f"_roi_align_backward({ROI}, {IMAGE}, int sampling, bool aligned) -> Tensor",
        f"roi_pool({ROI}) -> (Tensor, Tensor)",
        "_roi_pool_backward(Tensor x, Tensor rois, Tensor argmax, float scale, int height, "
        f"int width, {IMAGE}) -> Tensor",
        f"ps_roi_align({ROI}, int sampling) -> (Tensor, Tensor)",
        "_ps_roi_align_backward(Tensor x, Tensor rois, Tensor mapping, float scale, int height, "
        f"int width, int sampling, {IMAGE}) -> Tensor",
        f"ps_roi_pool({ROI}) -> (Tensor, Tensor)",
        "_ps_roi_pool_backward(Tensor x, Tensor rois, Tensor mapping, float scale, int height, "
        f"int width, {IMAGE}) -> Tensor",
        f"deform_conv2d({WEIGHTED}, {STEPS}) -> Tensor",
        f"_deform_conv2d_backward(Tensor grad, {WEIGHTED}, {STEPS}) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    ):
        library.define(schema)

VISION = torch.ops.torchvision
TOLERANCE = {torch.float32: 1e-4, torch.float16: 6e-3, torch.bfloat16: 5e-2}
HALVES = pytest.mark.parametrize("dtype", list(TOLERANCE))


def near(actual, expected, dtype):
    tolerance = TOLERANCE[dtype]
    assert actual.dtype == dtype
    torch.testing.assert_close(
        actual.cpu().double(), expected.detach(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def keep(boxes, scores, threshold):
    """The places of kept boxes: each is the best that no better one overlaps."""
    kept = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i].item()):
        x, y, x2, y2 = boxes[i].tolist()
        for j in kept:
            u, v, u2, v2 = boxes[j].tolist()
            both = max(min(x2, u2) - max(x, u), 0) * max(min(y2, v2) - max(y, v), 0)
            whole = (x2 - x) * (y2 - y) + (u2 - u) * (v2 - v) - both
            # The ratio is a float32, the threshold is not: 0.1 as a float32 is above 0.1.
            if whole and struct.unpack("f", struct.pack("f", both / whole))[0] > threshold:
                break
        else:
            kept.append(i)
    return kept


@HALVES
@pytest.mark.parametrize("count", [1, 31, 33, 300])
def test_nms(count, dtype):
    # Whole numbers are exact in all dtypes; equal scores keep their order.
    corner = torch.randint(0, 40, (count, 2))
    boxes = torch.cat([corner, corner + torch.randint(0, 30, (count, 2))], 1).to(dtype)
    scores = torch.randint(0, 20, (count,)).to(dtype)
    for threshold in (0.1, 0.5, 0.75):
        found = VISION.nms(boxes.to(DEVICE), scores.to(DEVICE), threshold)
        assert found.dtype == torch.int64
        assert found.tolist() == keep(boxes, scores, threshold)


def test_nms_at_the_threshold():
    boxes = torch.tensor([[0.0, 0, 3, 10], [0, 0, 3, 5], [0, 0, 3, 7], [7, 7, 7, 7], [7, 7, 7, 7]])
    scores = torch.ones(5, device=DEVICE)
    assert VISION.nms(boxes.to(DEVICE), scores, 0.5).tolist() == [0, 1, 3, 4]
    assert VISION.nms(torch.empty(0, 4, device=DEVICE), scores[:0], 0.5).shape == (0,)


def test_nms_refuses():
    boxes, scores = torch.rand(3, 4, device=DEVICE), torch.rand(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="boxes should be a 2d tensor, got 1D"):
        VISION.nms(scores, scores, 0.5)
    with pytest.raises(RuntimeError, match="dimension 0, got 3 and 2"):
        VISION.nms(boxes, scores[:2], 0.5)
    with pytest.raises(RuntimeError, match="dets should have the same type as scores"):
        VISION.nms(boxes, scores.half(), 0.5)
    with pytest.raises(NotImplementedError, match="not implemented for 'Double'"):
        VISION.nms(boxes.double(), scores.double(), 0.5)
    graph = torch.webgpu.Graph()
    with pytest.raises(RuntimeError, match="nms"), torch.webgpu.graph(graph):
        VISION.nms(boxes, scores, 0.5)


def point(plane, y, x):
    """A point between pixels; up to one pixel outside, the edge continues."""
    rows, columns = plane.shape
    if not (-1 <= y <= rows and -1 <= x <= columns):
        return plane.new_zeros(())
    y, x = min(max(y, 0), rows - 1), min(max(x, 0), columns - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
    v, u = y - top, x - left
    return (1 - v) * ((1 - u) * plane[top, left] + u * plane[top, right]) + v * (
        (1 - u) * plane[bottom, left] + u * plane[bottom, right]
    )


def cells(x, rois, size, sensitive):
    """Image planes of each cell of the pooled tensor, with row and column of the cell."""
    channels = x.shape[1] // (size[0] * size[1] if sensitive else 1)
    for roi in rois.tolist():
        for c in range(channels):
            for i in range(size[0]):
                for j in range(size[1]):
                    channel = (c * size[0] + i) * size[1] + j if sensitive else c
                    yield roi, x[int(roi[0]), channel], i, j


def align(x, rois, scale, size, sampling, aligned, sensitive):
    results = []
    offset = 0.5 if aligned else 0.0
    for roi, plane, i, j in cells(x, rois, size, sensitive):
        left, top, right, bottom = (value * scale - offset for value in roi[1:])
        spans = [bottom - top, right - left]
        if not aligned:
            spans = [max(span, 1.0) for span in spans]
        high, wide = (span / n for span, n in zip(spans, size, strict=True))
        n, m = (sampling, sampling) if sampling > 0 else (math.ceil(high), math.ceil(wide))
        total = sum(
            point(plane, top + (i + (a + 0.5) / n) * high, left + (j + (b + 0.5) / m) * wide)
            for a in range(n)
            for b in range(m)
        )
        divisor = n * m if sensitive else max(n * m, 1)
        empty = plane.new_full((), math.nan)
        results.append(empty if divisor == 0 else total / divisor + plane.new_zeros(()))
    return torch.stack(results).reshape(len(rois), -1, *size)


def pool(x, rois, scale, size, sensitive):
    results = []
    for roi, plane, i, j in cells(x, rois, size, sensitive):
        left, top, right, bottom = (
            int(math.copysign(math.floor(abs(value * scale) + 0.5), value)) for value in roi[1:]
        )
        extra = 0 if sensitive else 1
        ends = []
        for begin, end, place, n, limit in (
            (top, bottom, i, size[0], plane.shape[0] - 1 + extra),
            (left, right, j, size[1], plane.shape[1] - 1 + extra),
        ):
            span = max(end - begin + extra, 1)
            for edge in (place * span // n, -(-(place + 1) * span // n)):
                ends.append(min(max(edge + begin, 0), limit))
        part = plane[ends[0] : ends[1], ends[2] : ends[3]]
        if part.numel() == 0:
            results.append(plane.new_zeros(()))
        else:
            results.append(part.mean() if sensitive else part.max())
    return torch.stack(results).reshape(len(rois), -1, *size)


# Exact in all dtypes. Regions reach outside, are empty, and contain others.
ROIS = torch.tensor(
    [
        [0, 1.0, 1.5, 7.0, 6.0],
        [1, 0.25, 2.0, 4.0, 8.5],
        [1, -3.0, -2.5, 3.5, 4.0],
        [0, 3.0, 3.0, 3.5, 3.25],
        [1, 20.0, 20.0, 24.0, 26.0],
        [0, -40.0, -30.0, 50.0, 40.0],
    ]
)


def compare(name, reference, arguments, dtype, channels=8, backward=()):
    """A pooling operator and its gradient against the reference."""
    scale, size = 0.5, (2, 2)
    x = (torch.randperm(2 * channels * 63) / 64 - 8).reshape(2, channels, 7, 9).to(dtype)
    exact = x.double().requires_grad_()
    expected = reference(exact, ROIS.double(), scale, size)
    rois = ROIS.to(DEVICE, dtype)
    result = getattr(VISION, name)(x.to(DEVICE), rois, scale, *size, *arguments)
    out, *more = result if isinstance(result, tuple) else (result,)
    near(out, expected, dtype)
    grad = torch.randint(-4, 5, expected.shape).to(dtype)
    (wanted,) = torch.autograd.grad(expected, exact, grad.double())
    found = getattr(VISION, f"_{name}_backward")(
        grad.to(DEVICE), rois, *more, scale, *size, *backward, *x.shape, *arguments[len(backward) :]
    )
    near(found, wanted, dtype)


@HALVES
@pytest.mark.parametrize("sampling", [-1, 2])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align(sampling, aligned, dtype):
    def reference(x, rois, scale, size):
        return align(x, rois, scale, size, sampling, aligned, False)

    compare("roi_align", reference, (sampling, aligned), dtype)


@HALVES
@pytest.mark.parametrize("sampling", [-1, 3])
def test_ps_roi_align(sampling, dtype):
    def reference(x, rois, scale, size):
        return align(x, rois, scale, size, sampling, True, True)

    compare("ps_roi_align", reference, (sampling,), dtype, backward=(sampling,))


@HALVES
def test_roi_pool(dtype):
    compare("roi_pool", lambda *given: pool(*given, False), (), dtype, channels=3)


def test_ps_roi_pool():
    x, rois = torch.randn(2, 8, 7, 9), ROIS
    out, mapping = VISION.ps_roi_pool(x.to(DEVICE), rois.to(DEVICE), 0.5, 2, 2)
    near(out, pool(x.double(), rois.double(), 0.5, (2, 2), True), torch.float32)
    assert mapping.dtype == torch.int32
    assert mapping[3].flatten().tolist() == list(range(8))


def test_regions_refuse():
    x, rois = torch.rand(2, 3, 5, 5, device=DEVICE), ROIS.to(DEVICE)
    with pytest.raises(RuntimeError, match=r"rois must have shape as Tensor\[K, 5\]"):
        VISION.roi_align(x, rois[:, :4], 1.0, 2, 2, -1, False)
    with pytest.raises(RuntimeError, match="input should have the same type as rois"):
        VISION.roi_align(x, rois.half(), 1.0, 2, 2, -1, False)
    with pytest.raises(RuntimeError, match="must be a multiple of pooling height"):
        VISION.ps_roi_align(x, rois, 1.0, 2, 2, -1)
    assert VISION.roi_align(x, rois[:0], 1.0, 2, 2, -1, False).shape == (0, 3, 2, 2)
    VISION.roi_align(x[:1], rois, 1.0, 2, 2, -1, False)
    with pytest.raises(IndexError, match="an image that does not exist"):
        torch.webgpu.synchronize()


def deform(x, weight, offset, mask, bias, stride, pad, dilation, groups, offset_groups):
    """Deformable convolution: samples of each tap by grid_sample, then a product."""
    images, channels, rows, columns = x.shape
    kh, kw = weight.shape[2:]
    out_rows, out_columns = offset.shape[2:]
    members = channels // offset_groups
    taps = []
    for k in range(kh * kw):
        y0 = torch.arange(out_rows).double() * stride[0] - pad[0] + k // kw * dilation[0]
        x0 = torch.arange(out_columns).double() * stride[1] - pad[1] + k % kw * dilation[1]
        parts = []
        for g in range(offset_groups):
            at = 2 * (g * kh * kw + k)
            v = (y0[:, None] + offset[:, at]) * 2 / (rows - 1) - 1
            u = (x0[None] + offset[:, at + 1]) * 2 / (columns - 1) - 1
            part = torch.nn.functional.grid_sample(
                x[:, g * members : (g + 1) * members], torch.stack([u, v], -1), align_corners=True
            )
            parts.append(part * mask[:, at // 2, None] if mask is not None else part)
        taps.append(torch.cat(parts, 1))
    stacked = torch.stack(taps, 2).reshape(images, groups, -1, out_rows * out_columns)
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)
    product = torch.einsum("gok,ngkp->ngop", matrix, stacked)
    return product.reshape(images, -1, out_rows, out_columns) + bias[:, None, None]


@HALVES
@pytest.mark.parametrize(
    ("groups", "offset_groups", "kernel", "stride", "pad", "dilation", "masked"),
    [
        (1, 1, (3, 3), (1, 1), (1, 1), (1, 1), True),
        (2, 4, (3, 2), (2, 1), (1, 2), (1, 2), True),
        (4, 2, (2, 2), (1, 2), (0, 0), (2, 1), False),
    ],
)
def test_deform_conv2d(groups, offset_groups, kernel, stride, pad, dilation, masked, dtype):
    x = torch.randn(2, 8, 7, 6)
    weight = torch.randn(12, 8 // groups, *kernel) / 4
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip((7, 6), pad, dilation, kernel, stride, strict=True)
    ]
    taps = kernel[0] * kernel[1] * offset_groups
    # Away from whole numbers, where the gradients jump; eighths are exact.
    offset = torch.randint(-16, 16, (2, 2 * taps, *size)) / 4 + 0.125
    mask = torch.rand(2, taps, *size) if masked else torch.zeros(2, 1)
    given = [t.to(dtype) for t in (x, weight, offset, mask, torch.randn(12))]
    exact = [t.double().requires_grad_() for t in given]
    inputs = [t for t in exact if masked or t is not exact[3]]
    expected = deform(
        *exact[:3],
        exact[3] if masked else None,
        exact[4],
        stride,
        pad,
        dilation,
        groups,
        offset_groups,
    )
    moved = [t.to(DEVICE) for t in given]
    steps = (*stride, *pad, *dilation, groups, offset_groups, masked)
    scale = max(1.0, expected.abs().max().item())
    near(VISION.deform_conv2d(*moved, *steps) / scale, expected / scale, dtype)
    grad = torch.randint(-2, 3, expected.shape).to(dtype)
    wanted = list(torch.autograd.grad(expected, inputs, grad.double()))
    if not masked:
        wanted.insert(3, torch.zeros(2, 1))
    found = VISION._deform_conv2d_backward(grad.to(DEVICE), *moved, *steps)
    for one, other in zip(found, wanted, strict=True):
        scale = max(1.0, other.abs().max().item())
        near(one / scale, other.double() / scale, dtype)


def test_deform_conv2d_refuses():
    x, weight = torch.rand(1, 4, 5, 5, device=DEVICE), torch.rand(2, 4, 3, 3, device=DEVICE)
    bias, mask = torch.zeros(2, device=DEVICE), torch.zeros(1, 1, device=DEVICE)
    steps = (1, 1, 0, 0, 1, 1, 1, 1, False)
    with pytest.raises(RuntimeError, match="not valid: got: 4 expected: 18"):
        VISION.deform_conv2d(x, weight, x[:, :, :3, :3], mask, bias, *steps)
    with pytest.raises(RuntimeError, match="offset output dims"):
        VISION.deform_conv2d(x, weight, torch.zeros(1, 18, 2, 2, device=DEVICE), mask, bias, *steps)


def test_autocast_computes_in_float32():
    x = torch.randn(2, 3, 7, 9).half().to(DEVICE)
    with torch.autocast(DEVICE, dtype=torch.float16):
        result = VISION.roi_align(x, ROIS.to(DEVICE), 0.5, 2, 2, 2, True)
    exact = align(x.cpu().double(), ROIS.double(), 0.5, (2, 2), 2, True, False)
    near(result, exact, torch.float16)


@pytest.mark.parametrize(
    "box", [(0, 0, math.inf, 4), (0, 3e9, 0, 9e9), (0, -2e9, 0, 2e9), (-math.inf, 0, 4, 4)]
)
def test_regions_without_bounds_end(box):
    x = torch.ones(1, 4, 8, 8, device=DEVICE)
    rois = torch.tensor([[0.0, *box], [0.0, 1.0, 1.0, 5.0, 5.0]], device=DEVICE)
    out = VISION.roi_align(x, rois, 1.0, 2, 2, -1, False)
    assert out[0].isfinite().all()
    assert out[1].eq(1).all()
    # A bin without samples is 0 / 0 there.
    assert VISION.ps_roi_align(x, rois, 1.0, 2, 2, -1)[0][1].eq(1).all()

import copy
import itertools

import pytest
import torch
from common import DEVICE, FLOATS, assert_same, check, check_error, check_gradients, to_device
from torch import nn
from torch.nn import functional as F

from torch_webgpu import wgsl

pytestmark = pytest.mark.usefixtures("planned")

NEAR = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float16: {"rtol": 5e-3, "atol": 5e-3},
    torch.bfloat16: {"rtol": 4e-2, "atol": 4e-2},
}


def leaf(*shape, dtype=torch.float32, scale=1.0, shift=0.0):
    return (torch.randn(shape) * scale + shift).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 10), (3, 5, 33), (2, 8192), (2, 9001), (300, 17), (1, 1)])
def test_layer_norm(shape, dtype):
    if shape[0] > 100 and dtype != torch.float32:
        pytest.skip("the CPU sums the weights' gradient in half precision: no reference")
    width = shape[-1]
    x = leaf(*shape, dtype=dtype, shift=3)
    w, b = leaf(width, dtype=dtype), leaf(width, dtype=dtype)
    check_gradients(lambda *a: F.layer_norm(a[0], (width,), a[1], a[2]), x, w, b, **NEAR[dtype])


def test_layer_norm_arguments():
    x = leaf(2, 3, 4, 5)
    w = leaf(4, 5)
    check_gradients(lambda t: F.layer_norm(t, (5,)), x, **NEAR[torch.float32])
    check_gradients(lambda t, w: F.layer_norm(t, (4, 5), w), x, w, **NEAR[torch.float32])
    check_gradients(lambda t, b: F.layer_norm(t, (4, 5), None, b), x, w, **NEAR[torch.float32])
    check_gradients(lambda t: F.layer_norm(t.transpose(1, 3), (3,)), x, **NEAR[torch.float32])
    check(lambda t: F.layer_norm(t, (4,)), torch.empty(0, 4))
    check_error(lambda t: F.layer_norm(t, (3,)), torch.ones(2, 4))


def test_layer_norm_keeps_float32_weights():
    x, w = leaf(6, 32, dtype=torch.bfloat16), leaf(32)
    check(lambda t, w: F.layer_norm(t, (32,), w), x, w, rtol=2e-2, atol=2e-2)


def test_layer_norm_of_a_large_mean():
    x = torch.randn(3, 1000) + 1e4
    expected = F.layer_norm(x.double(), (1000,)).float()
    actual = F.layer_norm(to_device(x), (1000,)).cpu()
    torch.testing.assert_close(actual, expected, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize(("shape", "groups"), [((2, 6, 4, 5), 3), ((3, 4), 2), ((2, 8, 70, 33), 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(shape, groups, affine):
    x, w, b = leaf(*shape, shift=1), leaf(shape[1]), leaf(shape[1])
    if affine:
        check_gradients(
            lambda *a: F.group_norm(a[0], groups, a[1], a[2]), x, w, b, rtol=1e-3, atol=1e-4
        )
    else:
        check_gradients(lambda t: F.group_norm(t, groups), x, rtol=1e-3, atol=1e-4)


def test_group_norm_formats():
    x = leaf(2, 6, 4, 5).detach().to(memory_format=torch.channels_last)
    check(lambda t: F.group_norm(t, 2), x, **NEAR[torch.float32])
    check(lambda t: F.group_norm(t, 2), x.half(), **NEAR[torch.float16])
    check_error(lambda t: F.group_norm(t, 4), x)


@pytest.mark.parametrize(
    "shape", [(8, 3), (4, 3, 10), (4, 5, 6, 7), (2, 3, 4, 3, 2), (2, 2, 100, 100)]
)
def test_batch_norm_training(shape):
    channels = shape[1]
    x, w, b = leaf(*shape, scale=2, shift=5), leaf(channels), leaf(channels)
    check_gradients(
        lambda *a: F.batch_norm(a[0], None, None, a[1], a[2], training=True),
        x,
        w,
        b,
        rtol=1e-3,
        atol=1e-4,
    )
    check_gradients(lambda t: F.batch_norm(t, None, None, training=True), x, rtol=1e-3, atol=1e-4)


def test_batch_norm_evaluation():
    x, w, b = leaf(4, 3, 5, 6), leaf(3), leaf(3)
    mean, var = torch.randn(3), torch.rand(3) + 0.5
    check_gradients(lambda *a: F.batch_norm(*a), x, mean, var, w, b, **NEAR[torch.float32])
    check(lambda t, m, v: F.batch_norm(t, m, v), x[:0].detach(), mean, var)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_batch_norm_module(dtype, memory_format):
    expected_module = nn.BatchNorm2d(6)
    nn.init.normal_(expected_module.weight)
    module = copy.deepcopy(expected_module).to(DEVICE)
    for _ in range(3):
        x = torch.randn(5, 6, 4, 3).to(dtype).to(memory_format=memory_format)
        expected = expected_module(x)
        actual = module(to_device(x))
        assert actual.is_contiguous(memory_format=memory_format) and actual.dtype == dtype
        torch.testing.assert_close(actual.cpu(), expected, **NEAR[dtype])
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        actual, expected = getattr(module, name), getattr(expected_module, name)
        torch.testing.assert_close(actual.cpu(), expected, **NEAR[dtype])
    module.eval(), expected_module.eval()
    torch.testing.assert_close(module(to_device(x)).cpu(), expected_module(x), **NEAR[dtype])


def test_batch_norm_channels_last_gradients():
    x = torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last).requires_grad_()
    check_gradients(lambda t: F.batch_norm(t, None, None, training=True), x, rtol=1e-3, atol=1e-4)


def by_offset(x):
    """The same elements behind another one, so that pairs of halves do not start at words."""
    moved = x.new_empty(x.numel() + 1)[1:].view(x.shape)
    return moved.copy_(x)


# Several parts of each channel's elements, of one image and of many, and channels beside others.
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "place"),
    [
        ((3, 2, 70, 91), torch.Tensor.contiguous),
        ((3, 2, 70, 90), torch.Tensor.contiguous),
        ((3, 2, 70, 90), by_offset),
        ((700, 3, 7, 7), torch.Tensor.contiguous),
        ((9, 40, 21, 20), lambda x: x.to(memory_format=torch.channels_last)),
        ((2, 33, 9, 10, 11), lambda x: x.to(memory_format=torch.channels_last_3d)),
        ((5000, 35), torch.Tensor.contiguous),
        ((3, 70, 91, 4), lambda x: x.permute(0, 3, 1, 2)[:, :, ::2]),
    ],
)
def test_batch_norm_of_many_elements(shape, place, dtype):
    torch.manual_seed(0)
    x = place(to_device((torch.randn(shape) * 0.5 + 5).to(dtype))).requires_grad_()
    channels = x.shape[1]
    gradient = torch.randn(x.shape).to(dtype)
    given = [
        torch.randn(channels),
        torch.randn(channels),
        torch.zeros(channels),
        torch.ones(channels),
    ]
    weight, bias, mean, var = (t.to(DEVICE) for t in given)
    weight.requires_grad_(), bias.requires_grad_()
    y = F.batch_norm(x, mean, var, weight, bias, training=True)
    grads = torch.autograd.grad(
        y, (x, weight, bias), torch.empty_like(y).copy_(to_device(gradient))
    )

    exact_x = x.detach().cpu().double().requires_grad_()
    exact = [t.double().requires_grad_(k < 2) for k, t in enumerate(given)]
    exact_y = F.batch_norm(exact_x, exact[2], exact[3], exact[0], exact[1], training=True)
    exact_grads = torch.autograd.grad(exact_y, (exact_x, *exact[:2]), gradient.double())
    for actual, expected in zip((y, grads[0]), (exact_y, exact_grads[0]), strict=True):
        torch.testing.assert_close(actual.cpu(), expected.to(dtype), **NEAR[dtype])
    sums = [
        (grads[1], exact_grads[1]),
        (grads[2], exact_grads[2]),
        (mean, exact[2]),
        (var, exact[3]),
    ]
    for (actual, expected), atol in zip(sums, (2e-2, 2e-2, 1e-5, 1e-5), strict=True):
        torch.testing.assert_close(actual.cpu(), expected.detach().float(), rtol=1e-4, atol=atol)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sizes", [(2, 6, 6, 1), (2, 6, 1, 6), (1, 3, 4, 5), (2, 3, 4, 5)])
def test_batch_norm_strides(sizes, training):
    channels = sizes[1]
    for order in itertools.permutations(range(4)):
        x = torch.empty_permuted(sizes, order).normal_()

        def strides(device, x=x):
            x = x.to(device).requires_grad_()
            mean, var = torch.zeros(channels, device=device), torch.ones(channels, device=device)
            y = F.batch_norm(x, mean, var, training=training)
            (gradient,) = torch.autograd.grad(y.sum(), x)
            wide = [k for k in range(4) if sizes[k] > 1]
            return [[t.stride(k) for k in wide] for t in (y, gradient)]

        assert strides(DEVICE) == strides("cpu"), order


def test_batch_norm_updates_statistics_alone():
    x, mean, var = torch.randn(4, 3, 5), torch.zeros(6)[::2], torch.ones(3)
    check(lambda t, m, v: (*torch.batch_norm_update_stats(t, m, v, 0.3), m, v), x, mean, var)


@pytest.mark.parametrize("elsewhere", ["x", "weight", "bias", "mean"])
def test_mixed_devices_are_refused(elsewhere):
    def run(function, **tensors):
        tensors = {k: t.to("cpu" if k == elsewhere else DEVICE) for k, t in tensors.items()}
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            function(**tensors)

    x, weight, bias = torch.ones(3, 4, 4), torch.ones(4), torch.zeros(4)
    if elsewhere != "mean":
        run(lambda x, **p: F.layer_norm(x, (4,), **p), x=x, weight=weight, bias=bias)
        run(lambda x, **p: F.group_norm(x, 2, **p), x=x, weight=weight, bias=bias)
    for training in (False, True):
        run(
            lambda x, mean, var, training=training, **p: F.batch_norm(
                x, mean, var, training=training, **p
            ),
            **{"x": x, "mean": bias, "var": weight, "weight": weight, "bias": bias},
        )


def test_batch_norm_refuses():
    check_error(lambda t, m: F.batch_norm(t, m, m), torch.ones(2, 3), torch.ones(4))
    check_error(lambda t: F.batch_norm(t, None, None, training=True), torch.ones(1, 3))
    check_error(
        lambda t: torch.native_batch_norm(t, None, None, None, None, True, 0.1, 1e-5),
        torch.ones(0, 3, 4),
    )


def test_instance_norm():
    x, w, b = leaf(3, 4, 5, 6), leaf(4), leaf(4)
    check_gradients(
        lambda *a: F.instance_norm(a[0], weight=a[1], bias=a[2]), x, w, b, rtol=1e-3, atol=1e-4
    )
    module = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)
    other = copy.deepcopy(module).to(DEVICE)
    t = torch.randn(2, 4, 9)
    torch.testing.assert_close(other(to_device(t)).cpu(), module(t), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other.running_var.cpu(), module.running_var)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 10), (3, 5, 33), (2, 8192), (2, 9001), (40, 17), (1, 1)])
def test_rms_norm(shape, dtype):
    width = shape[-1]
    x, w = leaf(*shape, dtype=dtype, shift=0.5), leaf(width, dtype=dtype)
    check_gradients(lambda t, w: F.rms_norm(t, (width,), w), x, w, **NEAR[dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rms_norm_is_rounded_once(dtype):
    x, w = torch.randn(50, 300).to(dtype), torch.randn(300).to(dtype)
    exact = F.rms_norm(x.double(), (300,), w.double(), 1e-5)
    actual = F.rms_norm(to_device(x), (300,), to_device(w), 1e-5).cpu()
    # Half a unit in the last place, and what float32 computes wrongly.
    info = torch.finfo(dtype)
    unit = info.eps * torch.exp2(torch.floor(torch.log2(exact.abs()))).clamp(min=info.tiny)
    assert ((actual.double() - exact).abs() <= 0.5 * unit * 1.01).all()


def test_rms_norm_in_float64(silent_fallbacks):
    """PyTorch's CPU has no backward kernel to fall back on."""
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    close = {"rtol": 1e-12, "atol": 1e-12}
    check_gradients(lambda t, w: F.rms_norm(t, (4, 5), w), x, w, **close)
    check_gradients(lambda t: F.rms_norm(t, (5,)), x, **close)
    counts = silent_fallbacks()
    assert counts["aten::_fused_rms_norm_backward"] and counts["aten::_fused_rms_norm"]


def test_rms_norm_arguments():
    x = leaf(2, 3, 4, 5)
    w = leaf(4, 5)
    near = NEAR[torch.float32]
    check_gradients(lambda t: F.rms_norm(t, (5,)), x, **near)
    check_gradients(lambda t: F.rms_norm(t, (5,), None, 0.1), x, **near)
    check_gradients(lambda t, w: F.rms_norm(t, (4, 5), w), x, w, **near)
    check_gradients(lambda t: F.rms_norm(t.transpose(1, 3), (3,)), x, **near)
    check(lambda t: F.rms_norm(t, (4,)), torch.empty(0, 4))
    check(lambda t: F.rms_norm(t, (4,)), torch.zeros(3, 4))
    check_error(lambda t: F.rms_norm(t, (3,)), torch.ones(2, 4))
    # In half types the default eps is that of float32, as the tiny row shows.
    for dtype in FLOATS:
        check(lambda t: F.rms_norm(t, (4,)), torch.full((2, 4), 1e-3).to(dtype), **NEAR[dtype])


def test_gradients_of_rms_norm_can_be_differentiated():
    x, w = leaf(3, 7), leaf(7)

    def second(t, w):
        (first,) = torch.autograd.grad(F.rms_norm(t, (7,), w).pow(3).sum(), t, create_graph=True)
        return first

    check_gradients(second, x, w, rtol=1e-3, atol=1e-4)


def test_rms_norm_is_one_dispatch():
    x, w = to_device(torch.randn(30, 64)), to_device(torch.randn(64))
    F.rms_norm(x, (64,), w)
    before = torch.webgpu.stats()["dispatches"]
    F.rms_norm(x, (64,), w)
    assert torch.webgpu.stats()["dispatches"] - before == 1


VECTOR_ROWS = [
    (1, 8),
    (3, 16),
    (300, 96),
    (7, 768),
    (600, 1024),
    (3, 4096),
    (300, 8192),
    (2, 6004),
    (3, 16384),
    (9, 30),
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "length"), VECTOR_ROWS)
@pytest.mark.parametrize("mask", ["all", "weight", "bias of rows", "none", "weights only"])
def test_layer_norm_of_vectors(rows, length, dtype, mask):
    """Rows of whole vectors, whose gradients of the weights are summed by workgroups."""
    torch.manual_seed(0)
    x, g = torch.randn(2, rows, length).to(dtype).unbind()
    weight, bias = torch.randn(2, length).to(dtype).unbind()

    def run(device, kind):
        tensors = [t.to(device, kind) for t in (x, weight, bias)]
        for tensor in tensors if mask != "weights only" else tensors[1:]:
            tensor.requires_grad_()
        x_, weight_, bias_ = tensors
        if mask == "none":
            tensors = tensors[:1]
            y = F.rms_norm(x_, (length,), eps=1e-5)
        elif mask == "weight":
            tensors = tensors[:2]
            y = F.rms_norm(x_, (length,), weight_, 1e-5)
        elif mask == "bias of rows":
            tensors = [x_, bias_]
            y = F.layer_norm(x_, (length,), None, bias_)
        else:
            y = F.layer_norm(x_, (length,), weight_, bias_)
        y.backward(g.to(device, kind))
        return y.detach(), [t.grad for t in tensors]

    expected, wanted = run("cpu", torch.float64)
    result, gradients = run(DEVICE, dtype)
    unit = torch.finfo(dtype).eps
    for got, want in zip([result, *gradients], [expected, *wanted], strict=True):
        if want is None:
            assert got is None
            continue
        scale = max(1.0, want.abs().max().item())
        assert (got.cpu().double() - want).abs().max() <= (2 * unit + 4e-6) * scale


@pytest.mark.parametrize("invocations", [256, 512])
def test_gradients_of_rows_longer_than_registers(invocations):
    """32 KiB a row: one kernel computes both gradients with 512 invocations; with 256, two do."""
    torch.manual_seed(0)
    x, w, g = torch.randn(20, 8192), torch.randn(8192), torch.randn(20, 8192)
    wanted = [t.double().requires_grad_() for t in (x, w)]
    F.rms_norm(wanted[0], (8192,), wanted[1], 1e-5).backward(g.double())
    x, w, g = (to_device(t) for t in (x, w, g))
    with wgsl.target(limits={"max_workgroup_invocations": invocations}):
        results = [t.requires_grad_() for t in (x, w)]
        F.rms_norm(x, (8192,), w, 1e-5).backward(g)
    for result, want in zip(results, wanted, strict=True):
        assert_same(result.grad, want.grad.float(), rtol=1e-4, atol=1e-4)

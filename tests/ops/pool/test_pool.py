"""Pooling over fixed, adaptive and random windows."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, FLOATS, check, check_error, check_gradients

TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
}

# Every feature once, alone and with others.
FIXED = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 1, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
]


def distinct(*shape, dtype=torch.float32, **kwargs):
    """Numbers that are all different, so that the place of a maximum is clear in every dtype."""
    numel = torch.Size(shape).numel()
    return torch.randperm(numel).reshape(shape).sub(numel // 2).to(dtype, **kwargs)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("options", [*FIXED, {"kernel_size": 3, "dilation": 2, "padding": 1}])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max_pool(dims, options):
    pool = getattr(F, f"max_pool{dims}d")
    x = distinct(2, 3, *(9, 8, 7)[:dims]).requires_grad_()
    check_gradients(lambda t: pool(t, **options), x)
    check(lambda t: pool(t, return_indices=True, **options), x.detach()[0])


@pytest.mark.parametrize("options", [*FIXED, {"kernel_size": (3, 2), "stride": (1, 3)}])
@pytest.mark.parametrize("count_include_pad", [True, False])
def test_avg_pool2d(options, count_include_pad):
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    check_gradients(
        lambda t: F.avg_pool2d(t, count_include_pad=count_include_pad, **options),
        x,
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("dims", [1, 3])
def test_avg_pool_other_dimensions(dims):
    pool = getattr(F, f"avg_pool{dims}d")
    for options in FIXED:
        x = torch.randn(2, 3, *(9, 8, 7)[:dims], requires_grad=True)
        check_gradients(lambda t, options=options: pool(t, **options), x, rtol=1e-5, atol=1e-6)


def test_divisor_override_and_integers():
    x = torch.randint(-50, 50, (2, 3, 6, 7))
    check(lambda t: F.avg_pool2d(t, 3, 2, 1), x)
    y = torch.randn(2, 3, 6, 7, 5, requires_grad=True)
    check_gradients(lambda t: F.avg_pool3d(t, 2, divisor_override=5), y, rtol=1e-5, atol=1e-6)
    check_gradients(
        lambda t: F.avg_pool2d(t, 2, divisor_override=-3), y[..., 0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_dtypes(dtype):
    x = torch.randn(2, 3, 7, 9).to(dtype).requires_grad_()
    check_gradients(lambda t: F.avg_pool2d(t, 3, 2, 1), x, **TOLERANCE[dtype])
    check_gradients(lambda t: F.adaptive_avg_pool2d(t, (3, 4)), x, **TOLERANCE[dtype])
    y = distinct(1, 2, 7, 9, dtype=dtype).requires_grad_()
    check_gradients(lambda t: F.max_pool2d(t, 3, 3), y)
    check_gradients(lambda t: F.adaptive_max_pool2d(t, (3, 4)), y, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_max_pool_of_integers(dtype):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.randint(low, high, (2, 3, 6, 7), dtype=dtype)
    check(lambda t: F.max_pool2d(t, 3, 2, 1, return_indices=True), x)
    check(lambda t: F.max_pool2d(t, 2, return_indices=True), torch.full_like(x, low))


def test_max_pool_of_nan_and_infinity():
    x = torch.randn(1, 2, 6, 6)
    x[0, 0, 1, 1] = x[0, 0, 1, 2] = x[0, 1, 5, 5] = torch.nan
    x[0, 1, :3] = -torch.inf
    x[0, 1, 4, 0] = torch.inf
    check(lambda t: F.max_pool2d(t, 3, 2, 1, return_indices=True), x)
    check(lambda t: F.avg_pool2d(t, 3, 2, 1), x)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive(dims):
    sizes = (7, 9, 5)[:dims]
    for goal in ((3, 4, 5)[:dims], (1,) * dims, (9, 10, 11)[:dims]):
        x = distinct(2, 3, *sizes).requires_grad_()
        largest = getattr(F, f"adaptive_max_pool{dims}d")
        mean = getattr(F, f"adaptive_avg_pool{dims}d")
        check_gradients(lambda t, goal=goal, f=largest: f(t, goal), x)
        check(lambda t, goal=goal, f=largest: f(t, goal, return_indices=True), x.detach())
        check_gradients(lambda t, goal=goal, f=mean: f(t, goal), x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dims", [2, 3])
def test_fractional(dims):
    pool = getattr(F, f"fractional_max_pool{dims}d")
    for kernel, goal in ((2, 5), (3, 3), (2, 1), (7, 1)):
        x = distinct(2, 3, *(10, 9, 8)[:dims]).requires_grad_()
        samples = torch.rand(2, 3, dims)
        function = lambda t, s, k=kernel, g=goal: pool(  # noqa: E731
            t, k, output_size=g, _random_samples=s, return_indices=True
        )
        check_gradients(function, x, samples)
        check(function, x.detach(), samples)


@pytest.mark.parametrize("dims", [2, 3])
def test_memory_formats_and_strides(dims):
    memory_format = {2: torch.channels_last, 3: torch.channels_last_3d}[dims]
    sizes = (6, 7, 5)[:dims]
    largest = getattr(F, f"max_pool{dims}d")
    mean = getattr(F, f"avg_pool{dims}d")
    x = distinct(2, 4, *sizes).to(memory_format=memory_format).requires_grad_()
    for pool in (largest, mean):
        function = lambda t, pool=pool: pool(t, 3, 2, 1)  # noqa: E731
        check_gradients(function, x, rtol=1e-5, atol=1e-5)
        assert function(x.to("webgpu")).stride() == function(x).stride()
        # A view with gaps, another order of dimensions and an offset.
        view = distinct(*(2 * s + 1 for s in sizes), 5, 3)[
            (slice(1, None, 2),) * dims + (slice(1, 5), slice(None, 2))
        ].permute(dims + 1, dims, *range(dims))
        check_gradients(function, view.detach().requires_grad_(), rtol=1e-5, atol=1e-5)


def test_out_and_empty():
    x = distinct(2, 3, 6, 6)

    def into(t):
        out = torch.empty(2, 3, 3, 6, device=t.device)[..., ::2]
        indices = torch.empty(2, 3, 3, 6, dtype=torch.int64, device=t.device)[..., 1::2]
        torch.ops.aten.max_pool2d_with_indices.out(t, [2, 2], out=out, indices=indices)
        mean = torch.empty(2, 3, 3, 3, device=t.device)
        torch.ops.aten.avg_pool2d.out(t, [2, 2], out=mean)
        return out, indices, mean

    check(into, x)
    for pool in (F.max_pool2d, F.avg_pool2d):
        check_gradients(
            lambda t, pool=pool: pool(t, 2), torch.empty(0, 3, 4, 4, requires_grad=True)
        )
    check(lambda t: F.adaptive_avg_pool2d(t, 3), torch.empty(0, 3, 4, 4))


def test_errors():
    x = torch.randn(1, 1, 4, 4)
    check_error(lambda t: F.max_pool2d(t, 0), x)
    check_error(lambda t: F.max_pool2d(t, 2, padding=2), x)
    check_error(lambda t: F.avg_pool2d(t, 5), x)
    check_error(lambda t: F.avg_pool2d(t, 2, divisor_override=0), x)
    check_error(lambda t: F.max_pool3d(t, 5), x[None])
    check_error(lambda t: F.max_pool3d(t, (1, 2)), x[None])
    check_error(lambda t: F.max_pool3d(t, 2), x[0, 0])
    check_error(lambda t: F.adaptive_avg_pool3d(t, 2), x[0])
    check_error(lambda t: torch.ops.aten._adaptive_avg_pool2d(t, [2, 2]), x[0, 0])


@pytest.mark.parametrize("batch", [(), (2,)])
def test_channels_last_of_three_dimensions(batch):
    x = torch.randn(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)
    x = x if batch else x[0]

    def strides(x):
        out, indices = F.max_pool3d(x, 2, return_indices=True)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        return out.stride(), indices.stride(), gradient.stride()

    x = x.detach().requires_grad_()
    check(strides, x)
    check_gradients(lambda x: F.max_pool3d(x, 2), x)


def test_arguments_that_do_not_fit():
    x = torch.randn(2, 3, 8, 8)
    samples = torch.rand(1, 3, 2)
    fractional = torch.ops.aten.fractional_max_pool2d
    check_error(lambda x, s: fractional(x, [2, 2], [4, 4], s), x, samples)
    check_error(lambda x, s: fractional(x, [2, 2], [4, 4], s), x[:, :1], samples)
    backward = torch.ops.aten._adaptive_avg_pool2d_backward
    with pytest.raises(RuntimeError, match="Expected dimensions 4 for `grad_output`"):
        backward(x[0].to(DEVICE), x.to(DEVICE))
    check_error(lambda x: F.adaptive_max_pool2d(x, 2), x.int())
    check_error(lambda x: F.adaptive_avg_pool2d(x, 2), x.int())


@pytest.mark.parametrize("function", [F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d])
def test_channels_last_of_float64_on_the_cpu(function, silent_fallbacks):
    x = torch.randn(2, 3, 4, 6).double().contiguous(memory_format=torch.channels_last)
    assert function(x.to(DEVICE), 2).stride() == function(x, 2).stride()


def test_channels_last_of_three_dimensions_of_float64_on_the_cpu(silent_fallbacks):
    x = torch.randn(2, 3, 4, 6, 5).double().contiguous(memory_format=torch.channels_last_3d)
    assert F.max_pool3d(x.to(DEVICE), 2).stride() == F.max_pool3d(x, 2).stride()


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_memory_format_of_adaptive_results(dims, batched):
    x = distinct(4, 3, 5, 6, 7)[(slice(None),) * batched + (0,) * (3 - dims + (not batched))]
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    layouts = [x, x.transpose(0, -1).contiguous().transpose(0, -1)]
    if x.dim() in formats:
        layouts.append(x.contiguous(memory_format=formats[x.dim()]))
    for layout in layouts:
        for name in (f"adaptive_avg_pool{dims}d", f"adaptive_max_pool{dims}d"):
            strides = []
            for device in ("cpu", DEVICE):
                t = layout.to(device).requires_grad_()
                y = getattr(F, name)(t, 2)
                (gradient,) = torch.autograd.grad(y.sum(), t)
                strides.append((y.stride(), gradient.stride()))
            assert strides[0] == strides[1], (name, layout.stride())

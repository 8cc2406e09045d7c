"""FusedConvolution: an expression of a convolution's results, by any strategy."""

import pytest
import torch
import torch.nn.functional as F

import torch_webgpu
from torch_webgpu.wgsl import target

DEVICE = "webgpu"
STRATEGIES = ["", "convolution_few", "convolution_direct", "convolution_32", "convolution_64"]
# Sizes of x and of the weight, the result's channels, options.
CASES = {
    "plain": ((2, 5, 9, 10), (4, 5, 3, 3), 4, {"padding": 1}),
    "groups": ((3, 6, 7, 5), (8, 3, 3, 2), 8, {"stride": (2, 1), "groups": 2}),
    "depthwise": ((2, 4, 8, 8), (4, 1, 3, 3), 4, {"dilation": 2, "groups": 4}),
    "depthwise, in lines": ((2, 24, 9, 12), (24, 1, 3, 3), 24, {"padding": 1, "groups": 24}),
    "depthwise, in odd lines": ((2, 24, 9, 10), (24, 1, 3, 3), 24, {"padding": 1, "groups": 24}),
    "one dimension": ((2, 3, 17), (5, 3, 4), 5, {"stride": 3}),
    "three dimensions": ((1, 2, 4, 5, 6), (3, 2, 2, 1, 3), 3, {"padding": (0, 1, 1)}),
    "long": ((1, 600, 4, 4), (6, 300, 2, 2), 6, {"groups": 2}),
    "transposed": ((2, 4, 5, 6), (4, 3, 3, 2), 6, {"stride": 2, "groups": 2}),
    "transposed, padded": ((2, 4, 7), (4, 3, 3), 3, {"stride": 3, "output_padding": 2}),
}
EXPRESSION = "max_f(value, -1.0) * e + 2.0 * f - g + h * i"
EPSILONS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def fused(expression="", strategy="", second="", *, dims=2, transposed=False, **options):
    def values(name, default):
        value = options.get(name, default)
        return [value] * dims if isinstance(value, int) else list(value)

    statements = f"result.value = {expression};" if expression else ""
    if second:
        statements += f"\nresult.second = {second};"
    return torch_webgpu._C.FusedConvolution(
        statements,
        strategy,
        stride=values("stride", 1),
        padding=values("padding", 0),
        dilation=values("dilation", 1),
        transposed=transposed,
        output_padding=values("output_padding", 0),
        groups=options.get("groups", 1),
    )


def expected_of(name, x, weight, bias, options):
    dims = x.dim() - 2
    kind = "conv_transpose" if "transposed" in name else "conv"
    return getattr(F, f"{kind}{dims}d")(x, weight, bias, **options)


def operands_of(result):
    """Of the result's sizes, by channel, by image and channel, of one element, by place."""
    n, c, *places = result.shape
    ones = [1] * len(places)
    shapes = [(n, c, *places), (1, c, *ones), (n, c, *ones), (1, 1, *ones), (1, 1, *places)]
    return [torch.randn(shape) for shape in shapes]


def dtype_of(name, strategy):
    """Each case is computed in every dtype, each time by another strategy."""
    number = [*CASES].index(name) + STRATEGIES.index(strategy)
    return [*EPSILONS][number % len(EPSILONS)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", CASES)
def test_expressions(name, strategy):
    torch.manual_seed(0)
    dtype = dtype_of(name, strategy)
    x_size, w_size, channels, options = CASES[name]
    x, weight, bias = (torch.randn(s).to(dtype) for s in (x_size, w_size, (channels,)))
    value = expected_of(name, x.double(), weight.double(), bias.double(), options)
    operands = [o.to(dtype) for o in operands_of(value)]
    e, f, g, h, i = (o.double() for o in operands)
    expected = value.clamp(min=-1) * e + 2 * f - g + h * i
    options = {**options, "dims": x.dim() - 2, "transposed": "transposed" in name}
    moved = [t.to(DEVICE) for t in (x, weight, bias, *operands)]
    last = [torch.channels_last] if x.dim() == 4 else []
    for layout in (torch.contiguous_format, *last):
        out, second = (
            torch.empty(value.shape, dtype=dtype).to(DEVICE, memory_format=layout) for _ in range(2)
        )
        fused(EXPRESSION, strategy, "value - e", **options)(out, *moved, second=second)
        truth = torch.empty(value.shape, dtype=torch.bool).to(DEVICE, memory_format=layout)
        fused(EXPRESSION, strategy, "f32(e > f)", **options)(out, *moved, second=truth)
        for actual, wanted in ((out, expected), (second, value - e)):
            error = (actual.cpu().double() - wanted).abs().max() / wanted.abs().max()
            assert error < EPSILONS[dtype]
        assert torch.equal(truth.cpu(), (e > f).expand(value.shape))


DEPTHWISE_CASES = {
    "strided": ((2, 16, 9, 10), {"stride": (1, 2), "padding": 1}),
    "transposed": ((2, 16, 5, 6), {"stride": 2, "output_padding": 1}),
}


@pytest.mark.parametrize("dtype", EPSILONS)
@pytest.mark.parametrize("name", DEPTHWISE_CASES)
def test_expressions_of_depthwise_convolutions(name, dtype):
    torch.manual_seed(0)
    x_size, options = DEPTHWISE_CASES[name]
    options = {**options, "groups": 16}
    x, weight, bias = (torch.randn(s).to(dtype) for s in (x_size, (16, 1, 3, 3), (16,)))
    value = expected_of(name, x.double(), weight.double(), bias.double(), options)
    operands = [o.to(dtype) for o in operands_of(value)]
    e, f, g, h, i = (o.double() for o in operands)
    expected = value.clamp(min=-1) * e + 2 * f - g + h * i
    moved = [t.to(DEVICE, memory_format=torch.channels_last) for t in (x, weight)]
    moved += [t.to(DEVICE) for t in (bias, *operands)]
    out, second = (
        torch.empty(value.shape, dtype=dtype).to(DEVICE, memory_format=torch.channels_last)
        for _ in range(2)
    )
    call = fused(
        EXPRESSION, "convolution_depthwise", "value - e", transposed=name == "transposed", **options
    )
    assert call.accepts(out, *moved[:2])
    call(out, *moved, second=second)
    for actual, wanted in ((out, expected), (second, value - e)):
        error = (actual.cpu().double() - wanted).abs().max() / wanted.abs().max()
        assert error < EPSILONS[dtype]


GROUPED_CASES = {
    "padding": ((2, 8, 9, 10), (12, 8, 3, 3), {"padding": 1}),
    "groups": ((3, 16, 7, 5), (24, 8, 3, 2), {"stride": (2, 1), "groups": 2}),
    "cut": ((1, 600, 4, 4), (8, 600, 2, 2), {}),
    "transposed": ((2, 8, 5, 6), (8, 8, 3, 2), {"stride": 2, "groups": 2}),
}


# Cores of a CPU compile each of these kernels for seconds.
@pytest.mark.sampled("groups", "cut")
@pytest.mark.parametrize("name", GROUPED_CASES)
def test_expressions_in_groups_of_channels(name):
    torch.manual_seed(0)
    x_size, w_size, options = GROUPED_CASES[name]
    x, weight = torch.randn(x_size), torch.randn(w_size)
    channels = w_size[1] * 2 if name == "transposed" else w_size[0]
    bias = torch.randn(channels)
    value = expected_of(name, x.double(), weight.double(), bias.double(), options)
    operands = operands_of(value.float())
    e, f, g, h, i = (o.double() for o in operands)
    expected = value.clamp(min=-1) * e + 2 * f - g + h * i
    options = {**options, "transposed": name == "transposed"}
    call = fused(EXPRESSION, "convolution_registers", "f32(value > e)", **options)
    for layout in (torch.contiguous_format, torch.channels_last):
        out = torch.empty(value.shape).to(DEVICE, memory_format=layout)
        truth = torch.empty(value.shape, dtype=torch.bool).to(DEVICE, memory_format=layout)
        moved = [t.to(DEVICE) for t in (x, weight, bias, *operands)]
        assert call.accepts(out, *moved[:2])
        call(out, *moved, second=truth)
        error = (out.cpu().double() - expected).abs().max() / expected.abs().max()
        assert error < EPSILONS[torch.float32]
        is_clear = (value - e).abs() > 1e-3
        assert torch.equal(truth.cpu()[is_clear], (value > e)[is_clear])


def test_operands_of_other_types_and_layouts():
    torch.manual_seed(0)
    x, weight = torch.randn(2, 4, 9, 9).half(), torch.randn(6, 4, 3, 3).half()
    value = F.conv2d(x.double(), weight.double())
    wide = torch.randn(7, 2, 6, 7).permute(1, 2, 0, 3)  # whose rows lie apart
    narrow = torch.randn(6, 1, 7).bfloat16()  # by columns
    half = torch.randn(2, 6, 7, 7).half().to(memory_format=torch.channels_last)
    out = torch.empty(2, 6, 7, 7).to(DEVICE)
    operands = [t.to(DEVICE) for t in (wide, narrow, half)]
    assert operands[0].stride() == wide.stride()
    fused("value + e * f - g")(out, x.to(DEVICE), weight.to(DEVICE), None, *operands)
    expected = value + wide.double() * narrow.double() - half.double()
    torch.testing.assert_close(out.cpu(), expected.float(), rtol=1e-4, atol=1e-4)


def test_a_result_within_a_larger_tensor():
    torch.manual_seed(0)
    x, weight, rest = torch.randn(2, 3, 6, 6), torch.randn(5, 3, 3, 3), torch.randn(2, 5, 4, 4)
    base = torch.zeros(2, 9, 4, 4).to(DEVICE)
    fused("value * e")(base[:, 2:7], x.to(DEVICE), weight.to(DEVICE), None, rest.to(DEVICE))
    expected = torch.zeros(2, 9, 4, 4)
    expected[:, 2:7] = F.conv2d(x, weight) * rest
    torch.testing.assert_close(base.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_parts_of_a_batch():
    torch.manual_seed(0)
    x, weight, rest = torch.randn(7, 3, 10, 10), torch.randn(5, 3, 3, 3), torch.randn(7, 5, 8, 8)
    channel = torch.randn(5, 1, 1)
    out = torch.empty(7, 5, 8, 8).to(DEVICE)
    moved = [t.to(DEVICE) for t in (x, weight)]
    with target(limits={"max_storage_binding_size": 4096}):
        second = torch.empty_like(out)
        operands = rest.to(DEVICE), channel.to(DEVICE)
        fused("value * e + f", "", "value")(out, *moved, None, *operands, second=second)
    value = F.conv2d(x, weight)
    torch.testing.assert_close(out.cpu(), value * rest + channel, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second.cpu(), value, rtol=1e-4, atol=1e-4)


def test_no_images():
    out = torch.empty(0, 5, 4, 4, device=DEVICE)
    before = torch.webgpu.stats()["dispatches"]
    x, weight = torch.empty(0, 3, 6, 6, device=DEVICE), torch.randn(5, 3, 3, 3).to(DEVICE)
    fused("value + 1.0")(out, x, weight)
    assert torch.webgpu.stats()["dispatches"] == before


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_strategies(strategy):
    """A convolution takes the strategy that accepts() names, of tensors on the device or none."""
    out, x, weight = torch.empty(2, 6, 7, 7), torch.empty(2, 4, 9, 9), torch.empty(6, 4, 3, 3)
    tensors = [t.to(DEVICE) for t in (out, x, weight)]
    for given in (tensors, [t.to("meta") for t in tensors]):
        assert fused("", strategy).accepts(*given)
        assert not fused("", "tiles_64").accepts(*given)
        assert fused().accepts(*given)
    with target(limits={"max_workgroup_storage": 8 * 1024, "max_workgroup_invocations": 128}):
        is_small = strategy not in {"convolution_64", "convolution_few"}
        assert fused("", strategy).accepts(*tensors) == is_small


def test_what_is_refused():
    x, weight, out = torch.ones(2, 4, 9, 9), torch.ones(6, 4, 3, 3), torch.zeros(2, 6, 7, 7)
    x, weight, out = (t.to(DEVICE) for t in (x, weight, out))
    call = fused("value + e")
    refused = [
        ((out, x, weight[:, :3]), "to have 3 channels"),
        ((out[:, :5], x, weight), "expected a result of size"),
        ((out, x, weight, weight[0, 0, 0]), "expected bias to be 1-dimensional"),
        ((out, x, weight.half()), "fitting dtypes"),
        ((out.long(), x, weight), "fitting dtype"),
        ((out, x.cpu(), weight), "to be on the same device"),
        ((out, x, weight, None, out), "other webgpu tensors"),
        ((out, x, weight, None, out.long()), "fitting dtypes"),
        ((out, x, weight, None, x), "expanded size"),
        ((out.mT, x, weight), "one stride"),
        ((out.long(), x.long(), weight.long()), "no fused convolution of Long"),
    ]
    other = torch.empty_like(out)
    seconds = [
        (out, "another webgpu tensor"),
        (other[:1], "of the result's size"),
        (other.long(), "float32, float16, bfloat16 or bool"),
        (other.cpu(), "another webgpu tensor"),
        (other.mT, "one stride"),
    ]
    for second, message in seconds:
        with pytest.raises(RuntimeError, match=message):
            fused("value")(out, x, weight, second=second)
    for args, message in refused:
        with pytest.raises((RuntimeError, TypeError), match=message):
            call(*args)
    with pytest.raises(RuntimeError, match="non-positive stride"):
        fused(stride=0)(out, x, weight)
    with pytest.raises(RuntimeError, match="expected stride to be"):
        fused(stride=[1])(out, x, weight)
    call(out, x, weight, None, x[:, :1, :1, :1])
    assert torch.equal(out.cpu(), torch.full((2, 6, 7, 7), 37.0))


def test_expressions_that_do_not_compile():
    x, weight, out = torch.ones(2, 4, 9, 9), torch.ones(6, 4, 3, 3), torch.zeros(2, 6, 7, 7)
    moved = [t.to(DEVICE) for t in (out, x, weight)]
    with pytest.raises(RuntimeError, match="valeu"):
        fused("valeu")(*moved)
    for number in range(3):
        fused(f"value + {number}.0")(*moved)
        assert moved[0].cpu().eq(36 + number).all()

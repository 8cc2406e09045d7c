"""Convolutions that compute what follows them before they store."""

import pytest
import torch
import torch.nn.functional as F
from compiled import DEVICE, assert_equal, check, compile, dispatches
from torch import nn
from torch._inductor.utils import run_and_get_code

from torch_webgpu import _C
from torch_webgpu.inductor import choices
from torch_webgpu.wgsl import target

TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    # Eager mode rounds to the half between its operators.
    torch.float16: {"rtol": 5e-3, "atol": 2e-2},
    torch.bfloat16: {"rtol": 4e-2, "atol": 2e-1},
}
WIDE = TOLERANCES[torch.float32]


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


def norm(x, mean, variance, weight, bias):
    return F.batch_norm(x, mean, variance.abs() + 0.5, weight, bias)


IMAGES, WEIGHT = (2, 4, 9, 11), (6, 4, 3, 3)
RESULT = (2, 6, 9, 11)  # of these with padding 1
CHANNELS = (6,)
ONE_DISPATCH = {
    "bias and activation": (
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)),
        [IMAGES, WEIGHT, CHANNELS],
    ),
    "bias": (lambda x, w, b: F.conv2d(x, w, b), [IMAGES, WEIGHT, CHANNELS]),
    "used twice": (lambda x, w: F.gelu(F.conv2d(x, w)), [IMAGES, WEIGHT]),
    "residual": (
        lambda x, w, b, rest: F.silu(F.conv2d(x, w, b, padding=1) * 0.3 + rest),
        [IMAGES, WEIGHT, CHANNELS, RESULT],
    ),
    "norm": (
        lambda x, w, *of_norm: F.relu(norm(F.conv2d(x, w, padding=1), *of_norm)),
        [IMAGES, WEIGHT, CHANNELS, CHANNELS, CHANNELS, CHANNELS],
    ),
    "norm and residual": (
        lambda x, w, rest, *of_norm: F.relu(norm(F.conv2d(x, w, padding=1), *of_norm) + rest),
        [IMAGES, WEIGHT, RESULT, CHANNELS, CHANNELS, CHANNELS, CHANNELS],
    ),
    "factors of images and of positions": (
        lambda x, w, a, b: (F.conv2d(x, w, padding=1) * a).sigmoid() - b,
        [IMAGES, WEIGHT, (2, 6, 1, 1), (9, 11)],
    ),
    "strides and dilation": (
        lambda x, w, b: F.elu(F.conv2d(x, w, b, stride=(2, 3), dilation=2, padding=(2, 1))),
        [IMAGES, WEIGHT, CHANNELS],
    ),
    "groups": (
        lambda x, w, b, rest: F.conv2d(x, w, b, padding=1, groups=2).tanh() + rest,
        [IMAGES, (6, 2, 3, 3), CHANNELS, RESULT],
    ),
    "a filter for each channel": (
        lambda x, w, b: F.hardswish(F.conv2d(x, w, b, padding=1, groups=4)),
        [IMAGES, (4, 1, 3, 3), (4,)],
    ),
    "one tap": (lambda x, w, rest: F.conv2d(x, w).abs() * rest, [IMAGES, (6, 4, 1, 1), RESULT]),
    "one dimension": (
        lambda x, w, b, rest: F.relu(F.conv1d(x, w, b, stride=2) + rest),
        [(3, 4, 21), (5, 4, 3), (5,), (3, 5, 10)],
    ),
    "three dimensions": (
        lambda x, w, b: F.relu(F.conv3d(x, w, b, padding=1)),
        [(2, 3, 4, 5, 6), (4, 3, 3, 2, 3), (4,)],
    ),
    "transposed": (
        lambda x, w, b: F.relu(
            F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1, groups=2)
        ),
        [IMAGES, (4, 3, 3, 3), CHANNELS],
    ),
    "transposed, one dimension": (
        lambda x, w, b, rest: F.conv_transpose1d(x, w, b, stride=3).sin() * rest,
        [(2, 4, 7), (4, 5, 4), (5,), (2, 5, 22)],
    ),
    "transposed, three dimensions": (
        lambda x, w, b: F.conv_transpose3d(x, w, b, stride=(1, 2, 1)).exp().clamp(max=3),
        [(2, 3, 4, 5, 6), (3, 4, 1, 2, 2), (4,)],
    ),
    "one image without a batch": (
        lambda x, w, b: F.relu(F.conv2d(x, w, b)),
        [(4, 9, 11), WEIGHT, CHANNELS],
    ),
    "one position": (
        lambda x, w, b, rest: F.relu(F.conv2d(x, w, b) + rest),
        [(2, 4, 3, 3), WEIGHT, CHANNELS, (2, 6, 1, 1)],
    ),
    "a column": (
        lambda x, w, rest: F.relu(F.conv2d(x, w) + rest),
        [(2, 4, 9, 3), WEIGHT, (2, 6, 7, 1)],
    ),
    "channels that become the last": (
        lambda x, w, b: F.relu(F.conv2d(x, w)).permute(0, 2, 3, 1) + b,
        [IMAGES, WEIGHT, CHANNELS],
    ),
}


def programs():
    """All in float32, every third in either half. Every other one of the halves is long."""
    for number, name in enumerate(ONE_DISPATCH):
        for place, dtype in enumerate(TOLERANCES):
            if place in (0, 1 + number % 3):
                marks = pytest.mark.long if place and number % 2 else ()
                yield pytest.param(name, dtype, id=f"{name}-{dtype}", marks=marks)


@pytest.mark.parametrize(("name", "dtype"), programs())
def test_one_dispatch(name, dtype):
    torch.manual_seed(0)
    program, shapes = ONE_DISPATCH[name]
    args = [randn(*shape, dtype=dtype) for shape in shapes]
    compiled = check(program, *args, tolerances=TOLERANCES[dtype])
    assert dispatches(compiled, *args) == 1
    if dtype == torch.float32:
        wide = program(*(arg.cpu().double() for arg in args))
        assert_equal(compiled(*args).cpu(), wide.float(), **WIDE)


@pytest.mark.parametrize("storing", TOLERANCES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_conversions(dtype, storing):
    """The result, and operands of what follows, may be of other types."""
    args = [randn(*IMAGES, dtype=dtype), randn(*WEIGHT, dtype=dtype), randn(*RESULT)]

    def program(x, w, rest):
        return (F.conv2d(x, w, padding=1).float() + rest).to(storing)

    compiled = check(program, *args, tolerances=TOLERANCES[max(dtype, storing, key=wideness)])
    assert dispatches(compiled, *args) == 1


def wideness(dtype):
    return torch.finfo(dtype).eps


@pytest.mark.parametrize("weight_too", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_channels_last(dtype, weight_too):
    x = randn(*IMAGES, dtype=dtype).to(memory_format=torch.channels_last)
    w, b, rest = (randn(*shape, dtype=dtype) for shape in (WEIGHT, CHANNELS, RESULT))
    if weight_too:
        w = w.to(memory_format=torch.channels_last)

    def program(x, w, b, rest):
        return F.relu(F.conv2d(x, w, b, padding=1) + rest)

    compiled = check(program, x, w, b, rest, tolerances=TOLERANCES[dtype])
    assert compiled(x, w, b, rest).is_contiguous(memory_format=torch.channels_last)
    # Inductor lays the weight channels last, and the kernel wants it contiguous.
    assert dispatches(compiled, x, w, b, rest) == (2 if weight_too else 3)


def test_gradients_are_not_laid_out_channels_last():
    """A graph of gradients has no convolution to know the device by."""
    tensors = [randn(*shape) for shape in (RESULT, IMAGES, WEIGHT)]

    def program(gradient, x, w):
        options = [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
        return torch.ops.aten.convolution_backward(gradient, x, w, None, *options)[:2]

    compiled = check(program, *tensors, tolerances=WIDE)
    assert all(one.is_contiguous() for one in compiled(*tensors))
    assert dispatches(compiled, *tensors) == dispatches(program, *tensors)


def test_channels_last_of_volumes():
    x = randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
    w, b = randn(4, 3, 2, 2, 2), randn(4)
    compiled = check(lambda x, w, b: F.relu(F.conv3d(x, w, b)), x, w, b, tolerances=WIDE)
    assert compiled(x, w, b).is_contiguous(memory_format=torch.channels_last_3d)
    assert dispatches(compiled, x, w, b) <= 3


@pytest.mark.sampled("False")
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_lie_as_in_eager_mode(dynamic):
    """The strides of one channel do not matter, but tell channels last from others."""
    cases = [
        (F.conv2d, (1, 31, 33, 1), (8, 1, 3, 3)),
        (F.conv2d, (2, 9, 9, 5), (8, 5, 3, 3)),
        (F.conv_transpose2d, (2, 31, 33, 1), (1, 8, 3, 3)),
        (F.conv1d, (1, 300, 1), (8, 1, 3)),
        (F.conv1d, (2, 300, 5), (8, 5, 3)),
        (F.conv_transpose1d, (2, 301, 1), (1, 8, 3)),
    ]
    for function, sizes, of_weight in cases:
        x = torch.randn(sizes, device=DEVICE).movedim(-1, 1).requires_grad_()
        w = torch.randn(of_weight, device=DEVICE, requires_grad=True)
        y, expected = compile(function, dynamic=dynamic)(x, w), function(x, w)
        assert_equal(y, expected)
        assert y.stride() == expected.stride()
        weights = torch.randn_like(y)
        gradients = [torch.autograd.grad(of, (x, w), weights) for of in (y, expected)]
        assert_equal(*gradients)


def test_sums_in_pieces():
    """Few results of long sums are computed in pieces, which are added before what follows."""
    shapes = [(2, 300, 5, 5), (12, 150, 3, 3), (12,), (2, 12, 5, 5), (12,)]
    args = [randn(*shape) * 0.2 for shape in shapes]

    def convolution(x, w, b, *_):
        return F.conv2d(x, w, b, padding=1, groups=2)

    def program(x, w, b, rest, factor):
        return F.relu(convolution(x, w, b) * factor[:, None, None] + rest)

    compiled = check(program, *args, tolerances=WIDE)
    assert dispatches(compiled, *args) == dispatches(convolution, *args) == 2


MORE_DISPATCHES = {
    "factors of columns": (lambda x, w, a: F.conv2d(x, w, padding=1) * a, [(9, 1)]),
    "the convolution is a result too": (
        lambda x, w: (F.conv2d(x, w), F.conv2d(x, w).relu()),
        [],
    ),
    "two results": (lambda x, w: (F.conv2d(x, w).sin(), F.conv2d(x, w).cos()), []),
    "a sum": (lambda x, w: F.conv2d(x, w).sin().sum((2, 3)), []),
    "truth": (lambda x, w: F.conv2d(x, w) > 0, []),
    "a part": (lambda x, w: F.conv2d(x, w)[:, 3:].sin(), []),
    "another order": (lambda x, w, a: F.conv2d(x, w, padding=1).sin() + a.mT, [(2, 6, 11, 9)]),
    "positions": (lambda x, w: F.conv2d(x, w).sin().triu(), []),
    "a concatenation": (
        lambda x, w, a: torch.cat([F.conv2d(x, w, padding=1).sin(), a], 1),
        [RESULT],
    ),
    "seven operands": (
        lambda x, w, *rest: sum(a.sin() * F.conv2d(x, w, padding=1) for a in rest),
        [RESULT] * 7,
    ),
    "pixels": (lambda x, w: F.pixel_shuffle(F.conv2d(x, w[:4]).sin(), 2), []),
    "a norm of images": (lambda x, w: F.group_norm(F.conv2d(x, w), 2), []),
    "a pool": (lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w)), 2), []),
}


@pytest.mark.parametrize("name", MORE_DISPATCHES)
def test_more_dispatches(name):
    program, shapes = MORE_DISPATCHES[name]
    check(program, randn(*IMAGES), randn(*WEIGHT), *(randn(*s) for s in shapes), tolerances=WIDE)


def test_integers_and_complex_numbers():
    """What the generated code cannot compute runs as in eager mode."""
    x, w = randn(2, 3, 7, 7), randn(4, 3, 3, 3)
    check(lambda x, w: F.conv2d(x.long(), w.long()).relu(), x, w, exact=True)
    check(lambda x, w: F.conv2d(x + 1j, w + 2j).abs(), x, w, tolerances=WIDE)


@pytest.mark.parametrize("is_read", [True, False])
def test_operands_that_change_between(is_read):
    """The convolution reads its input before the change; what follows may read the changed one."""

    def program(x, w, rest):
        result = F.conv2d(x, w, padding=1)
        x.mul_(rest.sum())
        return (result + (x.sum() if is_read else rest)).relu()

    args = [randn(*shape) for shape in (IMAGES, WEIGHT, RESULT)]
    expected_args = [arg.clone() for arg in args]
    expected = program(*expected_args)
    actual = compile(program)(*args)
    assert_equal([actual, *args], [expected, *expected_args], **WIDE)


def test_dynamic_sizes():
    def program(x, w, b, rest):
        return F.relu(F.conv2d(x, w, b, padding=1) + rest) * x.shape[0]

    compiled = compile(program, dynamic=True, fullgraph=True)
    for n, height, width in [(3, 5, 7), (2, 12, 9), (5, 3, 33)]:
        args = randn(n, 4, height, width), randn(*WEIGHT), randn(6), randn(n, 6, height, width)
        assert_equal(compiled(*args), program(*args), **WIDE)


def test_dynamic_strides():
    compiled = compile(lambda x, w, b: F.gelu(F.conv2d(x, w, b, stride=2)), dynamic=True)
    for n, height, width in [(3, 5, 7), (2, 12, 9), (5, 3, 33)]:
        args = randn(n, 4, height, width), randn(*WEIGHT), randn(6)
        assert_equal(compiled(*args), F.gelu(F.conv2d(*args, stride=2)), **WIDE)
    assert dispatches(compiled, *args) == 1


@pytest.mark.parametrize("images", [0, 1])
def test_few_images(images):
    args = randn(images, *IMAGES[1:]), randn(*WEIGHT), randn(*CHANNELS)
    check(lambda x, w, b: F.relu(F.conv2d(x, w, b)), *args, tolerances=WIDE)
    check(lambda x, w, b: F.relu(F.conv2d(x, w, b)), *args, dynamic=True, tolerances=WIDE)


def test_parts_of_buffers():
    """Inputs, and what is added, lie somewhere in their buffers."""
    base = randn(3, 8, 14, 15)
    check(
        lambda x, w, base: (
            F.conv2d(x[1:, 2:, :, ::2], w[:, 1:3]) * base[1:, :6, 1:8, :1] + base[0, 7, 2]
        ),
        randn(3, 4, 9, 9),
        randn(*WEIGHT),
        base[..., :3],
        tolerances=WIDE,
    )
    check(
        lambda x, w, base: F.conv2d(x[1:, 2:], w[:, 1:3]) + base[1:, 2:],
        randn(3, 4, 9, 9),
        randn(*WEIGHT),
        randn(3, 8, 7, 7),
        tolerances=WIDE,
    )


def test_more_images_than_a_binding_holds():
    """The convolution is computed for parts of the images, with those parts of the operands."""
    x, w, b, rest = randn(5, 4, 9, 11), randn(*WEIGHT), randn(6), randn(5, 6, 9, 11)
    expected = F.relu(F.conv2d(x, w, b, padding=1) + rest)

    def program(x, w, b, rest):
        return F.relu(F.conv2d(x, w, b, padding=1) + rest)

    with target(limits={"max_storage_binding_size": 4096}):
        compiled = compile(program)
        assert_equal(compiled(x, w, b, rest), expected, **WIDE)


@pytest.mark.parametrize(("buffers", "count"), [(8, 1), (7, 2)])
def test_storage_buffers_are_a_budget(buffers, count):
    """The convolution, its input and weight, and five operands are eight buffers."""
    program, shapes = ONE_DISPATCH["norm and residual"]
    args = [randn(*shape) for shape in shapes]
    with target(limits={"max_storage_buffers": buffers}):
        compiled = check(program, *args, tolerances=WIDE)
        assert dispatches(compiled, *args) == count


def test_replay():
    args = randn(*IMAGES), randn(*WEIGHT), randn(*CHANNELS)
    compiled = compile(lambda x, w, b: F.relu(F.conv2d(x, w, b)), mode="reduce-overhead")
    for _ in range(3):  # run, captured, replayed
        assert_equal(compiled(*args), F.relu(F.conv2d(*args)), **WIDE)
        args[0].add_(1)


class Block(nn.Module):
    """A basic block of a ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.down = nn.Sequential()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.down = nn.Sequential(convolution, nn.BatchNorm2d(outputs))
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2)
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.down(x))


@pytest.mark.parametrize(("inputs", "stride", "count"), [(8, 1, 2), (4, 2, 4)])
def test_block_of_a_resnet(inputs, stride, count):
    """Each convolution is a dispatch with its norm, the residual and the activation. Where the
    residual has a convolution and a norm of its own, the sum of both has nine operands, which is
    more than a convolution reads: it is a kernel."""
    torch.manual_seed(0)
    block = Block(inputs, 8, stride).eval()
    x = torch.randn(2, inputs, 10, 12)
    wide = block.double()(x.double()).float()
    block = block.float().to(DEVICE)
    with torch.no_grad():
        compiled = check(block, x.to(DEVICE), tolerances=WIDE)
        assert dispatches(compiled, x.to(DEVICE)) == count
        assert_equal(compiled(x.to(DEVICE)).cpu(), wide, **WIDE)


@pytest.mark.sampled("True")
@pytest.mark.parametrize("training", [False, True])
def test_gradients(training):
    torch.manual_seed(0)
    block = Block(4, 8, 2).to(DEVICE).train(training)
    names, parameters = zip(*block.named_parameters(), strict=True)
    buffers = {name: buffer.clone() for name, buffer in block.named_buffers()}

    def program(x, *parameters):
        given = {
            **dict(zip(names, parameters, strict=True)),
            **{n: b.clone() for n, b in buffers.items()},
        }
        return torch.func.functional_call(block, given, x)

    x = randn(2, 4, 10, 12).requires_grad_()
    check(program, x, *parameters, backward=True, tolerances={"rtol": 1e-3, "atol": 1e-3})


def test_dispatches_of_the_forward_of_training():
    """What the backward pass needs is stored by the convolution: the result of the ReLU. Of a ReLU
    whose result is returned it needs where that is positive, which is a second result."""
    layers = [nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.ReLU()]
    x = randn(*IMAGES)
    for count, expected in ((3, 2), (4, 2)):
        model = nn.Sequential(*layers[:count]).to(DEVICE)
        compiled = check(model, x, tolerances=WIDE)
        assert compiled(x).requires_grad
        assert dispatches(compiled, x) == expected


@pytest.mark.parametrize("dims", [1, 2])
def test_a_bias_that_is_converted(dims):
    """As under autocast, which converts the bias of a convolution to its dtype."""
    conv, size = {1: (F.conv1d, (2, 4, 20)), 2: (F.conv2d, IMAGES)}[dims]
    x, weight = randn(*size).half(), randn(6, size[1], *[3] * dims).half()
    program = lambda x, weight, bias: conv(x, weight, bias.half()).relu()  # noqa: E731
    args = x, weight, randn(6)
    compiled = check(program, *args, tolerances=TOLERANCES[torch.float16])
    assert dispatches(compiled, *args) == 1


# ---- max_autotune

NO_GRAPHS = "max-autotune-no-cudagraphs"


@pytest.fixture
def fastest(monkeypatch):
    """Has one kernel be the fastest, without timing any. Returns the kernels that were asked."""
    asked = []

    def choose(strategy):
        def milliseconds(launch):
            launch()
            asked.append(getattr(launch.func, "strategy", ""))
            return 1.0 if asked[-1] == strategy else 2.0

        monkeypatch.setattr(choices, "_milliseconds", milliseconds)
        return asked

    return choose


# The rows of the table for convolutions of float32 with a stride, but for those of depthwise ones.
# Gradients of weights are not tuned.
WINOGRAD = "convolution_winograd"
STRATEGIES = [
    name
    for name, *_ in _C._product_strategies()
    if name.startswith("convolution")
    and name != WINOGRAD
    and not name.endswith(("f16", "taps", "lines", "depthwise", "depthwise_weight"))
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_fastest_kernel_is_taken(fastest, strategy, transposed):
    asked = fastest(strategy)
    convolution = F.conv_transpose2d if transposed else F.conv2d
    weight = (4, 6, 3, 3) if transposed else WEIGHT

    for program, text in (
        (
            lambda x, w: convolution(x, w, stride=2),
            f"extern_kernels.webgpu_convolution_{strategy}(",
        ),
        (lambda x, w: convolution(x, w, stride=2).relu(), f"strategy='{strategy}'"),
    ):
        args = randn(*IMAGES), randn(*weight)
        torch._dynamo.reset()
        actual, (code,) = run_and_get_code(torch.compile(program, mode=NO_GRAPHS), *args)
        assert_equal(actual, program(*args), **WIDE)
        assert text in code
    assert {"", *STRATEGIES} == set(asked)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_algorithm_for_three_taps_is_a_choice(fastest, transposed):
    asked = fastest(WINOGRAD)
    convolution = F.conv_transpose2d if transposed else F.conv2d
    args = randn(2, 8, 9, 10), randn(8, 8, 3, 3)
    actual, (code,) = run_and_get_code(
        torch.compile(lambda x, w: convolution(x, w, padding=1).relu(), mode=NO_GRAPHS), *args
    )
    assert_equal(actual, convolution(*args, padding=1).relu(), **WIDE)
    assert f"strategy='{WINOGRAD}'" in code
    assert {"", WINOGRAD, *STRATEGIES} == set(asked)
